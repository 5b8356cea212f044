"""A user who was merged into another is the same person, and is erased with it."""

from pathlib import Path

import pytest
from django.core.management import call_command
from rest_framework.test import APIClient

from memory.integrations import merging
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind
from memory.operations.verification import problems
from memory.privacy import user_erasure
from memory.privacy.models import UserErasure
from tests.integration.erasure.conftest import MARKER, finish, found
from workers import tasks

pytestmark = pytest.mark.django_db

USER = "/v1/users/ada/"


@pytest.fixture
def anonymous(workspace: Workspace) -> MemoryUser:
    """A user with messages, before it is known who it is."""
    somebody = create_user(workspace, "anon-1", metadata=None)
    entry_log.append(somebody, [Draft(kind=EntryKind.MESSAGE, content=MARKER)], source="key:x")
    return somebody


@pytest.fixture
def merged(user: MemoryUser, anonymous: MemoryUser) -> MemoryUser:
    """The same user, merged into the known one, entries and all."""
    row = merging.merge(user, anonymous, by="key:x")
    while merging.waiting().filter(pk=row.pk).exists():
        tasks.work("merges", row.pk)
    return anonymous


def test_erasure_leaves_nothing_of_either_user(
    api: APIClient, user: MemoryUser, merged: MemoryUser
) -> None:
    assert len([place for place in found() if place.startswith("memory_logentry.content")]) == 2

    assert api.delete(f"{USER}?reason=asked+for").status_code == 202

    assert api.get("/v1/users/anon-1/").status_code == 404
    for person in (user, merged):
        assert finish(person).due_at is None
        assert list(problems(person)) == []
    assert found() == []


def test_while_it_is_copied_still_it_ends(user: MemoryUser, anonymous: MemoryUser) -> None:
    row = merging.merge(user, anonymous, by="key:x")

    user_erasure.ask(user, by="key:x", reason="asked for")
    tasks.work("merges", row.pk)

    for person in (user, anonymous):
        assert finish(person).due_at is None
    assert found() == []


def test_the_one_alone_cannot_be_erased(api: APIClient, merged: MemoryUser) -> None:
    answer = api.delete("/v1/users/anon-1/?reason=asked+for")

    assert answer.status_code == 409
    assert "ada" in answer.json()["detail"]
    assert not UserErasure.objects.exists()


def test_neither_name_may_stay_in_the_reason(api: APIClient, merged: MemoryUser) -> None:
    answer = api.delete(f"{USER}?reason=once+anon-1")

    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["reason"])
    assert not UserErasure.objects.exists()


def test_both_are_erased_again_after_an_older_backup_was_restored(
    user: MemoryUser, merged: MemoryUser, tmp_path: Path
) -> None:
    names = [f'{{"erased_user": "{one.public_id}"}}\n' for one in (merged, user)]
    listed = tmp_path / "erased"
    listed.write_text("".join(names))

    call_command("erase", again=str(listed))

    assert not MemoryUser.objects.exists()
    assert UserErasure.objects.count() == 2

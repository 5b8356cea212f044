"""A kind of work is one entry of a table: whatever deals with work derives from it."""

import dataclasses
from pkgutil import resolve_name
from typing import cast

import pytest
from django.db.models import QuerySet
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory.kernel.models.users import MemoryUser
from memory.kernel.work import leases, stuck
from memory.kernel.work.hints import redis_client
from memory.kernel.work.kinds import KINDS, WorkKind
from memory.recall.models import SearchIndex
from tests.hints import read_hints
from uac_site.celery import app
from workers import tasks
from workers.service import dispatching

pytestmark = pytest.mark.django_db

HERE = "tests.integration.work.test_kinds"
NAMES = (
    "waiting",
    "does",
    "claims",
    "afterwards",
    "ready",
    "hinted",
    "mortal",
    "retries",
    "purges",
)

_done: list[int] = []


def waiting() -> QuerySet[SearchIndex]:
    return SearchIndex.objects.filter(due_at__isnull=False)


def do(index: SearchIndex) -> None:
    if _done:
        raise ValueError("once is enough")
    _done.append(index.user_id)
    leases.release(index, due_at=None)


@pytest.fixture
def kind(user: MemoryUser, monkeypatch: pytest.MonkeyPatch) -> WorkKind:
    """A new kind of work, of which some is due for the user."""
    _done.clear()
    made = WorkKind("samples", "samples", "llm", f"{HERE}:waiting", f"{HERE}:do", key="user_id")
    monkeypatch.setitem(cast("dict[str, WorkKind]", KINDS), made.name, made)
    SearchIndex.objects.create(user=user, due_at=timezone.now())
    return made


@pytest.mark.parametrize("name", KINDS)
def test_functions_of_a_kind_exist(name: str) -> None:
    named = [value for field in NAMES if (value := getattr(KINDS[name], field))]
    assert all(callable(resolve_name(one)) for one in named)
    assert {field.name for field in dataclasses.fields(WorkKind)} >= set(NAMES)


@pytest.mark.parametrize("name", KINDS)
def test_kind_has_a_task(name: str) -> None:
    assert KINDS[name].task in app.tasks


def test_new_kind_is_announced_to_its_queue(kind: WorkKind, user: MemoryUser) -> None:
    redis_client().delete("llm")

    assert dispatching.hint_work(kind) == 1

    [hint] = read_hints("llm")
    assert (hint.task, hint.key) == ("workers.samples", user.pk)
    redis_client().delete("llm")


def test_new_kind_is_done_once(kind: WorkKind, user: MemoryUser) -> None:
    tasks.work("samples", user.pk)
    tasks.work("samples", user.pk)

    assert _done == [user.pk]
    assert not waiting().exists()


def test_new_kind_that_fails_is_seen_as_stuck(
    kind: WorkKind, user: MemoryUser, settings: Settings
) -> None:
    settings.UAC_STUCK_ATTEMPTS = 1
    _done.append(0)
    with pytest.raises(ValueError, match="once is enough"):
        tasks.work("samples", user.pk)

    (status,) = (one for one in stuck.work_statuses() if one.kind == kind)
    assert (status.kind.label, status.failing, status.held) == ("samples", 1, 0)
    (item,) = stuck.find_stuck(kind, 10)
    assert (item.owner, item.error) == (user, "ValueError: once is enough")

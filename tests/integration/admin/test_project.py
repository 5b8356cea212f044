"""The files of a version, its changes, and the parts of both that may no longer be shown."""

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.staff.models import StaffAccess, StaffAudit
from memory.llm.models import LlmCall
from memory.log.models.entries import LogEntry
from memory.privacy import redaction
from memory.versions.admin.diffs import side_by_side
from memory.versions.models.checkpoints import Checkpoint
from tests.integration.admin.conftest import (
    Populate,
    Rows,
    Say,
    messages_of,
    page_url,
    shown,
    text_of,
)
from tests.integration.admin.test_hostile import HOSTILE
from tests.integration.commits.conftest import trip

pytestmark = pytest.mark.django_db


@pytest.fixture
def rows(populate: Populate) -> Rows:
    """Rows of one person, made for each test, since others count all rows."""
    return populate()


def project(checkpoint: Checkpoint, **query: Any) -> tuple[str, dict[str, Any]]:
    return reverse("admin:memory_checkpoint_project", args=[checkpoint.pk]), query


def links(response: Any) -> list[tuple[str, str]]:
    found = re.findall(r'<a [^>]*href="([^"]*)"[^>]*>(.*?)</a>', text_of(response))
    return [
        (html.unescape(url), html.unescape(re.sub(r"<[^>]+>", "", told))) for url, told in found
    ]


def test_version_links_files_and_entries(admin_client: Client, say: Say, user: MemoryUser) -> None:
    say(trip("Rome", key="a"))
    version = say(trip("Oslo", key="b"))

    tree = admin_client.get(*project(version))
    words = shown(tree)
    assert "manifest.py" in words
    state = next(url for url, told in links(tree) if told == "state.py")
    page = admin_client.get(state)

    assert 'aria-current="page"' in text_of(page)
    assert "changed" in shown(page)
    second = LogEntry.objects.get(user=user, seq=2)
    assert (page_url(second), "2") in links(page)
    assert "Oslo" in shown(page)


def test_the_same_file_of_other_versions_is_a_click_away(admin_client: Client, say: Say) -> None:
    first = say(trip("Rome", key="a"))
    second = say(trip("Oslo", key="b"))
    path = "domains/travel/state.py"

    page = admin_client.get(*project(second, path=path))
    before = next(url for url, told in links(page) if told == "← v1")
    assert before == f"{project(first)[0]}?path=domains%2Ftravel%2Fstate.py"
    assert "Oslo" not in shown(admin_client.get(before))

    chosen = admin_client.get(*project(second, path=path, version="1"))
    assert chosen.headers["Location"] == before


def test_a_version_that_is_not_there_is_named(admin_client: Client, say: Say) -> None:
    version = say(trip("Rome", key="a"))

    for number in ("99", "-1", "x\u202e", "9" * 40):
        answer = admin_client.get(*project(version, version=number), follow=True)
        assert messages_of(answer)[0].startswith("This user has no version")
        assert "\u202e" not in text_of(answer)
    assert admin_client.get(reverse("admin:memory_checkpoint_project", args=[0])).status_code == 404


def test_a_file_that_is_not_there_is_named(admin_client: Client, say: Say) -> None:
    version = say(trip("Rome", key="a"))

    page = admin_client.get(*project(version, path="../../etc/passwd\u202e"))

    assert "has no file ../../etc/passwd\\u202e" in shown(page)
    assert "\u202e" not in text_of(page)


def test_a_file_that_was_redacted_says_so(
    admin_client: Client, say: Say, user: MemoryUser, work: Callable[[], None]
) -> None:
    version = say(trip("Rome", key="a"))
    path = "domains/travel/state.py"
    redaction.redact(user, [1], by="staff:eve", reason="asked for")
    work()

    page = shown(admin_client.get(*project(version, path=path)))
    assert "(redacted) This file is based on an entry that was redacted later." in page
    assert "Rome" not in page
    changed = shown(admin_client.get(page_url(version)))
    assert "domains/travel/state.py new (redacted)" in changed
    assert "Rome" not in changed


def test_pending_redaction_hides_files(admin_client: Client, say: Say, user: MemoryUser) -> None:
    version = say(trip("Rome", key="a"))
    MemoryUser.objects.filter(pk=user.pk).update(redacting_since=timezone.now())

    page = shown(admin_client.get(*project(version, path="domains/travel/state.py")))
    assert "redaction of this user" in page
    assert "Rome" not in page


def test_an_erased_person_has_no_project(admin_client: Client, say: Say, user: MemoryUser) -> None:
    version = say(trip("Rome", key="a"))
    MemoryUser.objects.filter(pk=user.pk).update(erased_at=timezone.now())

    assert admin_client.get(*project(version)).status_code == 404


@pytest.mark.parametrize("may", [["view_run", "view_content"], ["view_checkpoint"]])
def test_files_need_permission(staff: Callable[..., Client], rows: Rows, may: list[str]) -> None:
    assert staff(*may).get(*project(rows[Checkpoint])).status_code == 403


def test_files_are_limited_and_audited(staff: Callable[..., Client], rows: Rows) -> None:
    client = staff("view_checkpoint", "view_content", workspaces=[rows[Workspace]])

    assert client.get(*project(rows[Checkpoint])).status_code == 200
    noted = StaffAudit.objects.get(staff_name="eve", what="project")
    assert noted.person == rows[MemoryUser].public_id
    access = StaffAccess.objects.get(user__username="eve")
    access.workspaces.set([Workspace.objects.create(name="elsewhere")])
    assert client.get(*project(rows[Checkpoint])).status_code == 404


def test_changes_are_hidden_without_content(staff: Callable[..., Client], rows: Rows) -> None:
    words = shown(staff("view_checkpoint").get(page_url(rows[Checkpoint])))

    assert "Records: (hidden)" in words
    assert "Aspirin" not in words
    assert "1 call: 120 tokens sent" in words


def test_hostile_files_are_inert(admin_client: Client, populate: Populate) -> None:
    page = text_of(admin_client.get(*project(populate(HOSTILE)[Checkpoint])))

    assert "<script>alert" not in page
    for steering in "\u202e\u200b\U000e0041":
        assert steering not in page


def test_version_names_changed_records(admin_client: Client, say: Say, user: MemoryUser) -> None:
    say(trip("Rome", key="a", cost=100), trip("Oslo", key="b"))
    version = say(trip("Rome", key="a", cost=250), trip("Bonn", key="c"))

    response = admin_client.get(page_url(version))
    words = shown(response)
    assert "Trip c in travel.trips was added (from #4 )" in words
    assert "Trip a in travel.trips was changed (from #3 ): cost changed from 100 to 250" in words
    assert (page_url(LogEntry.objects.get(user=user, seq=3)), "#3") in links(response)
    # and the file, side by side
    page = text_of(response)
    assert '<td class="gone"><del>' in page
    assert '<td class="come"><ins>' in page


def test_a_version_tells_what_the_language_model_took(admin_client: Client, rows: Rows) -> None:
    call = rows[LlmCall]

    response = admin_client.get(page_url(rows[Checkpoint]))

    words = shown(response)
    assert "1 call: 120 tokens sent, 30 received, cost" in words
    assert (page_url(call), "request 1, attempt 1") in links(response)
    assert "refused by the model" in words


def test_each_check_of_the_gate_says_what_it_asks(admin_client: Client, rows: Rows) -> None:
    words = shown(admin_client.get(page_url(rows[Checkpoint])))

    assert "passed execution Does the code run in the sandbox?" in words


# -- Side by side ------------------------------------------------------------------------------


def cells(markup: str) -> list[tuple[str, ...]]:
    rows = re.findall(r"<tr>(<td.*?)</tr>", markup, re.DOTALL)
    return [
        tuple(
            html.unescape(re.sub(r"<[^>]+>", "", cell))
            for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
        )
        for row in rows
    ]


def test_changed_lines_stand_side_by_side() -> None:
    told = side_by_side("a\nb\nc\n", "a\nB\nc\nd\n")

    assert cells(told) == [
        ("1", "a", "1", "a"),
        ("2", "b", "2", "B"),
        ("3", "c", "3", "c"),
        ("", "", "4", "d"),
    ]


def test_unchanged_lines_are_folded() -> None:
    same = "\n".join(f"line{number}" for number in range(100))
    told = side_by_side(f"{same}\nx\n{same}", f"{same}\ny\n{same}")

    assert told.count("<details>") == 2
    assert "97 unchanged lines" in told
    numbers = [row[0] for row in cells(told)]
    assert numbers == [str(number) for number in range(1, 202)]


def test_files_that_have_nothing_in_common_are_compared_in_no_time() -> None:
    old = "\n".join(f"a{number}" for number in range(20_000))
    new = "\n".join(f"b{number}" for number in range(20_000))

    told = side_by_side(old, new)

    assert "more lines" in told
    assert len(told) < 2_000_000


def test_a_deleted_and_a_new_file_have_one_side() -> None:
    assert cells(side_by_side("", "a\n")) == [("", "", "1", "a")]
    assert cells(side_by_side("a\n", "")) == [("1", "a", "", "")]
    assert cells(side_by_side("<b>\u202e", "")) == [("1", "<b>\\u202e", "", "")]


def test_a_hostile_version_of_one_line_is_compared() -> None:
    hostile = "'" * 150_000
    assert len(side_by_side(hostile, hostile + "'")) < 20_000_000

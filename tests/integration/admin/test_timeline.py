"""A user's timeline: one order of all events, page after page without a gap."""

import datetime
import html
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import time_machine
from django.db.models import QuerySet
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from memory.alerts.models.alerts import Alert
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log.models.entries import LogEntry
from memory.users import timeline
from memory.users.timeline import KINDS, BadPlace, TimelineEvent, TimelinePage
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run, RunKind, RunTrigger
from tests.factories import make_checkpoint
from tests.integration.admin.conftest import Populate, Rows, page_url, shown, text_of
from tests.integration.admin.test_hostile import HOSTILE

pytestmark = pytest.mark.django_db


@pytest.fixture
def rows(populate: Populate) -> Rows:
    """Rows of one person, made for each test, since others count all rows."""
    return populate()


START = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


def everything() -> Mapping[str, QuerySet[Any]]:
    return {name: kind.model.objects.all() for name, kind in KINDS.items()}


def names(page: TimelinePage) -> list[str]:
    return [f"{one.kind.name} {one.row.pk}" for one in page.moments]


def line_url(user: MemoryUser) -> str:
    return reverse("admin:memory_memoryuser_timeline", args=[user.pk])


def run_at(user: MemoryUser, moment: datetime.datetime) -> Run:
    run = Run.objects.create(
        user=user, kind=RunKind.QUERY, trigger=RunTrigger.API, instant=moment, id=uuid.uuid4()
    )
    Run.objects.filter(pk=run.pk).update(queued_at=moment)
    return run


def version_at(user: MemoryUser, number: int, moment: datetime.datetime) -> Checkpoint:
    with time_machine.travel(moment, tick=False):
        return make_checkpoint(user, number)


@pytest.fixture
def busy(user: MemoryUser) -> MemoryUser:
    """Runs and versions, many of which have the same time."""
    for number in range(1, 31):
        moment = START + datetime.timedelta(minutes=number // 7)
        run_at(user, moment)
        version_at(user, number, moment)
    return user


# -- The order -------------------------------------------------------------------------------------


def test_all_kinds_stand_in_one_line_the_newest_first(rows: Rows) -> None:
    found = timeline.page(rows[MemoryUser], everything())

    moments = [one.cursor.at for one in found.moments]
    assert moments == sorted(moments, reverse=True)
    assert {one.kind.name for one in found.moments} == set(KINDS)
    own = sum(
        kind.model.objects.filter(**{kind.user: rows[MemoryUser]}).count()
        for kind in KINDS.values()
    )
    assert len(found.moments) == own
    assert (found.newer, found.older) == (None, None)


@pytest.mark.parametrize("limit", [1, 3, 7, 50])
def test_page_after_page_shows_each_moment_once(busy: MemoryUser, limit: int) -> None:
    whole = names(timeline.page(busy, everything(), limit=1000))
    assert len(whole) == 60

    walked: list[str] = []
    page = timeline.page(busy, everything(), limit=limit)
    while True:
        walked += names(page)
        if page.older is None:
            break
        page = timeline.page(busy, everything(), before=page.older, limit=limit)
    assert walked == whole

    back = names(page)
    while page.newer is not None:
        page = timeline.page(busy, everything(), after=page.newer, limit=limit)
        back = names(page) + back
    assert back == whole


def test_new_events_move_no_page(busy: MemoryUser) -> None:
    first = timeline.page(busy, everything(), limit=10)
    assert first.older is not None
    before = names(timeline.page(busy, everything(), before=first.older, limit=10))

    run_at(busy, START + datetime.timedelta(days=1))

    assert names(timeline.page(busy, everything(), before=first.older, limit=10)) == before


def test_a_place_is_read_as_it_was_written(busy: MemoryUser) -> None:
    def written(moment: TimelineEvent) -> bool:
        return timeline.place_of(str(moment.cursor)) == moment.cursor

    assert all(map(written, timeline.page(busy, everything()).moments))


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "2026-03-01T00:00:00Z",
        "2026-03-01T00:00:00,entries,1",  # no zone
        "2026-13-01T00:00:00Z,entries,1",
        "2026-03-01T00:00:00Z,nothing,1",
        "2026-03-01T00:00:00Z,runs,1",
        "2026-03-01T00:00:00Z,entries,-1",
        "2026-03-01T00:00:00Z,entries,99999999999999999999",
    ],
)
def test_invalid_position_is_refused(text: str) -> None:
    with pytest.raises(BadPlace):
        timeline.place_of(text)


# -- The page --------------------------------------------------------------------------------------


def test_each_row_leads_to_its_page(admin_client: Client, rows: Rows) -> None:
    page = text_of(admin_client.get(line_url(rows[MemoryUser])))

    links = [html.unescape(address) for address in re.findall(r'href="([^"]+)"', page)]
    for model in (LogEntry, Checkpoint, Run, Alert):
        assert page_url(rows[model]) in links
    assert page_url(rows[MemoryUser]) in links


def test_line_shows_entries_runs_and_alerts(admin_client: Client, rows: Rows) -> None:
    words = shown(admin_client.get(line_url(rows[MemoryUser])))

    assert "name: Aspirin" in words
    assert "covered" in words
    assert "rejected" in words
    assert "pending" in words
    assert "error in the user's code" in words
    assert "Aspirin critical opened by" in words
    assert "all times are in Europe/Berlin" in words


def test_others_are_not_in_it(admin_client: Client, rows: Rows, populate: Populate) -> None:
    populate("of another", "bob")

    assert "of another" not in text_of(admin_client.get(line_url(rows[MemoryUser])))


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("kind=entries", {"entries"}),
        ("kind=runs&kind=versions", {"runs", "versions"}),
        ("", set(KINDS)),
        ("kind=xyzzy", set(KINDS)),
    ],
)
def test_kinds_are_chosen_by_checkboxes(
    admin_client: Client, rows: Rows, query: str, kinds: set[str]
) -> None:
    response = admin_client.get(f"{line_url(rows[MemoryUser])}?{query}")

    assert {one.name for one in response.context["moments"]} == kinds
    assert {kind.name for kind, is_chosen in response.context["kinds"] if is_chosen} == kinds


def test_the_next_page_keeps_the_chosen_kinds(admin_client: Client, busy: MemoryUser) -> None:
    first = admin_client.get(f"{line_url(busy)}?kind=runs&kind=versions")
    assert len(first.context["moments"]) == 50

    second = admin_client.get(line_url(busy) + first.context["older"])

    assert len(second.context["moments"]) == 10
    assert second.context["older"] == ""
    assert {one.name for one in second.context["moments"]} == {"runs", "versions"}
    back = admin_client.get(line_url(busy) + second.context["newer"])
    assert [one.what for one in back.context["moments"]] == [
        one.what for one in first.context["moments"]
    ]


def test_a_day_is_jumped_to(admin_client: Client, user: MemoryUser) -> None:
    for day in range(3):
        version_at(user, day + 1, START + datetime.timedelta(days=day))

    response = admin_client.get(f"{line_url(user)}?date=2026-03-02")

    assert [one.at.day for one in response.context["moments"]] == [2, 1]
    assert "Newer" in text_of(response)


@pytest.mark.parametrize("query", ["before=x", "after=1,2,3", "date=yesterday", "date=2026-02-31"])
def test_a_wrong_address_leads_to_the_newest(admin_client: Client, rows: Rows, query: str) -> None:
    address = line_url(rows[MemoryUser])

    response = admin_client.get(f"{address}?{query}", follow=True)

    assert response.redirect_chain == [(address, 302)]
    assert "The timeline has no such page." in text_of(response)


def test_an_empty_line_says_so(admin_client: Client, user: MemoryUser) -> None:
    assert "There are no such events." in shown(admin_client.get(line_url(user)))


def test_entries_are_left_out_without_view(staff: Callable[..., Client], rows: Rows) -> None:
    client = staff("view_memoryuser", "view_run")

    response = client.get(line_url(rows[MemoryUser]))

    assert {one.name for one in response.context["moments"]} == {"runs"}
    assert [kind.name for kind, _ in response.context["kinds"]] == ["runs"]
    assert "Aspirin" not in text_of(client.get(line_url(rows[MemoryUser]) + "?kind=entries"))


def test_time_line_needs_view_user(staff: Callable[..., Client], rows: Rows) -> None:
    client = staff("view_logentry", "view_lane")

    for name in ("timeline", "progress", "day"):
        address = reverse(f"admin:memory_memoryuser_{name}", args=[rows[MemoryUser].pk])
        assert client.get(address).status_code == 403


def test_unknown_user_has_no_time_line(admin_client: Client, workspace: Workspace) -> None:
    gone = create_user(workspace, "gone", time_zone="UTC", metadata=None)
    MemoryUser.objects.filter(pk=gone.pk).update(erased_at=timezone.now())

    for pk in (gone.pk, 10**9):
        for name in ("timeline", "progress", "day"):
            address = reverse(f"admin:memory_memoryuser_{name}", args=[pk])
            assert admin_client.get(address).status_code == 404


def test_hostile_texts_are_inert_in_the_line(admin_client: Client, populate: Populate) -> None:
    user = populate(HOSTILE)[MemoryUser]

    for address in (line_url(user), page_url(user)):
        page = text_of(admin_client.get(address))
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert "\u202e" not in page

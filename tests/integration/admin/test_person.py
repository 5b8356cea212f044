"""The top of a user's page: coverage, cost, and work in progress."""

import datetime
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from memory.alerts.models.alerts import Alert, AlertFeedback, PausedConstraint
from memory.constraints.admin.own_constraints import own_constraint_url
from memory.constraints.models.backtests import Backtest, BacktestState
from memory.kernel.models.pauses import Pause
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.llm.models import LlmCall
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, LogEntry
from memory.recall.admin.console import console_url
from memory.users import progress
from memory.versions.admin.project import project_url
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus, RunTrigger
from tests.factories import make_checkpoint, make_run
from tests.integration.admin.conftest import Populate, Rows, page_url, rows_at, shown, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def rows(rows: Rows) -> Rows:
    """Rows of one person with work in progress."""
    Pause.objects.all().delete()
    return rows


NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)


def panel(client: Client, user: MemoryUser) -> Any:
    return client.get(page_url(user)).context["panel"]


def url(name: str, user: MemoryUser) -> str:
    return reverse(f"admin:memory_memoryuser_{name}", args=[user.pk])


def going_on(user: MemoryUser) -> progress.Progress:
    return progress.read_progress(user, progress.lanes_of(user))


@pytest.fixture
def idle(user: MemoryUser) -> MemoryUser:
    """A user with nothing to do."""
    Lane.objects.filter(user=user).update(due_at=None)
    return user


# -- What is known ---------------------------------------------------------------------------------


def test_the_bar_tells_what_became_of_the_entries(admin_client: Client, rows: Rows) -> None:
    found = panel(admin_client, rows[MemoryUser])["coverage"]

    parts = {part.name: part for part in found["parts"]}
    assert found["total"] == 3
    assert {name: part.number for name, part in parts.items()} == {
        "covered": 1,
        "pending": 1,
        "dismissed": 0,
        "rejected": 1,
    }
    assert sum(part.width for part in parts.values()) == pytest.approx(100, abs=0.01)
    assert parts["pending"].start == pytest.approx(33.333)
    for part in parts.values():
        assert len(rows_at(admin_client, part.url) if part.url else []) == part.number
    page = text_of(admin_client.get(page_url(rows[MemoryUser])))
    assert 'aria-label="covered: 1, pending: 1, dismissed: 0, rejected: 1"' in page


def test_the_cost_is_told_of_late_and_altogether(admin_client: Client, rows: Rows) -> None:
    call = rows[LlmCall]
    LlmCall.objects.filter(pk=call.pk).update(cost=Decimal("0.5"))
    earlier = LlmCall.objects.get(pk=call.pk)
    earlier.pk, earlier._state.adding = None, True
    earlier.id = LogEntry._meta.pk.default()
    earlier.started_at = timezone.now() - datetime.timedelta(days=40)
    earlier.save()

    late, overall = panel(admin_client, rows[MemoryUser])["cost"]

    assert (late["calls"], late["tokens_in"], late["tokens_out"]) == ("1", "120", "30")
    assert (overall["calls"], overall["tokens_in"], overall["cost"]) == ("2", "240", "1.000000")
    assert [one.pk for one in rows_at(admin_client, late["url"])] == [call.pk]
    assert len(rows_at(admin_client, overall["url"])) == 2


def test_the_newest_of_the_time_line_is_on_the_page(admin_client: Client, rows: Rows) -> None:
    user = rows[MemoryUser]
    for number in range(3, 30):
        make_checkpoint(user, number)

    response = admin_client.get(page_url(user))

    assert len(response.context["panel"]["moments"]) == 15
    page = text_of(response)
    assert url("timeline", user) in page
    assert "All earlier events" in page


def test_viewer_of_users_sees_nothing_else(staff: Callable[..., Client], rows: Rows) -> None:
    found = panel(staff("view_memoryuser"), rows[MemoryUser])

    assert found["coverage"] is None
    assert found["cost"] is None
    assert found["progress"] is None
    assert (list(found["day"]["bar"].marks), found["day"]["domains"]) == ([], [])
    assert list(found["moments"]) == []


# -- What leads ------------------------------------------------------------------------------------


def test_who_it_is_and_live_alerts_lead_the_page(admin_client: Client, rows: Rows) -> None:
    user, alert = rows[MemoryUser], rows[Alert]

    page = text_of(admin_client.get(page_url(user)))

    places = [
        page.index(words)
        for words in (
            f"{user.workspace.name}</bdi></a> · ",
            "Live alerts</h2>",
            f'<a href="{page_url(alert)}">',
            f'<a class="button" href="{console_url(user)}">Query console</a>',
            f'<a class="button" href="{url("timeline", user)}">Timeline</a>',
            f'<a class="button" href="{project_url(rows[Checkpoint].pk)}">Project, file by file',
            f'<a class="button" href="{own_constraint_url(user)}">Constraints for this user',
            'value="pause"',
            "<b>Now:</b>",
            'class="time-bar"',
            "Outcomes of",
            'name="metadata"',
        )
    ]
    assert places == sorted(places)


def test_viewer_of_users_has_no_other_links(staff: Callable[..., Client], rows: Rows) -> None:
    found = panel(staff("view_memoryuser"), rows[MemoryUser])

    assert (found["ways"], found["day"]["sees_alerts"]) == ([], False)
    assert "last heard" not in " ".join(found["facts"])


def test_who_it_is_includes_when_we_last_heard_of_them(admin_client: Client, rows: Rows) -> None:
    newest = rows[MemoryUser].entries.order_by("-seq")[0]

    facts = " ".join(panel(admin_client, rows[MemoryUser])["facts"])

    assert f'last heard <time datetime="{newest.recorded_at.isoformat()}"' in facts


def test_what_prepares_a_model_call_is_on_time_line_alone(
    admin_client: Client, user: MemoryUser
) -> None:
    for outcome in (RunOutcome.OK, RunOutcome.TIMEOUT):
        Run.objects.create(
            user=user,
            kind=RunKind.OUTLOOK,
            trigger=RunTrigger.MODEL,
            instant=timezone.now(),
            status=RunStatus.DONE,
            outcome=outcome,
            finished_at=timezone.now(),
        )

    assert len(panel(admin_client, user)["moments"]) == 1
    assert len(admin_client.get(url("timeline", user)).context["moments"]) == 2


def test_staff_queries_are_on_time_line_alone(admin_client: Client, user: MemoryUser) -> None:
    for trigger in (RunTrigger.STAFF, RunTrigger.API):
        Run.objects.create(
            user=user, kind=RunKind.QUERY, trigger=trigger, instant=timezone.now(), asked_by="eve"
        )

    assert len(panel(admin_client, user)["moments"]) == 1
    assert len(admin_client.get(url("timeline", user)).context["moments"]) == 2


@pytest.mark.parametrize("place", ["page", "timeline"])
def test_late_entry_names_its_day(admin_client: Client, user: MemoryUser, place: str) -> None:
    # On the 17th in UTC, on the 18th in Berlin, where she lives.
    then = datetime.datetime(2026, 6, 17, 23, tzinfo=datetime.UTC)
    now = timezone.now()
    entry_log.append(user, [message("long ago", then), message("just now", now)], source="key:x")

    address = page_url(user) if place == "page" else url("timeline", user)
    response = admin_client.get(address)

    assert "long ago pending occurred on 18 June 2026" in shown(response)
    assert shown(response).count("2026") >= 1
    assert len(re.findall(r'class="quiet">occurred on \d', text_of(response))) == 1


def message(text: str, occurred_at: datetime.datetime) -> Draft:
    return Draft(kind=EntryKind.MESSAGE, content=text, occurred_at=occurred_at)


def test_constraints_lead_to_where_they_are_written(
    admin_client: Client, staff: Callable[..., Client], rows: Rows
) -> None:
    user = rows[MemoryUser]
    PausedConstraint.objects.all().delete()
    address = own_constraint_url(user, name="allergy")

    page = text_of(admin_client.get(page_url(user)))
    assert f'<a href="{address}"><bdi>allergy</bdi></a>: useful 100% (1 of 1)' in page

    AlertFeedback.objects.all().delete()
    assert "allergy : not rated yet" in shown(admin_client.get(page_url(user)))

    # A member of the staff who may only view gets no links to actions.
    reader = staff("view_memoryuser", "view_content")
    assert address not in text_of(reader.get(page_url(user)))


# -- What goes on ----------------------------------------------------------------------------------


def test_nothing_goes_on(admin_client: Client, idle: MemoryUser) -> None:
    assert admin_client.get(url("progress", idle)).json() == {
        "text": "Nothing is being processed.",
        "working": False,
    }


def test_work_that_waits_or_goes_on_is_told_in_words(idle: MemoryUser) -> None:
    now = timezone.now()
    minute = datetime.timedelta(minutes=1)
    Lane.objects.filter(user=idle, name=LaneName.RECORDS).update(
        due_at=now - 2 * minute, run_after=now - minute
    )
    checkpoint = make_checkpoint(idle, 1)
    run = make_run(checkpoint)
    Run.objects.filter(pk=run.pk).update(status=RunStatus.RUNNING, started_at=now - minute)
    Backtest.objects.create(
        workspace=idle.workspace,
        user=idle,
        constraint="constraints/x.py",
        source_hash="f",
        days=1,
        most_users=1,
        until=now,
        state=BacktestState.RUNNING,
        started_at=now,
        created_by="test",
    )

    found = going_on(idle)

    assert found.is_working
    assert found.in_words(now) == (
        "typed records: waiting for 2 min 0 s; run (constraints): in progress for 1 min 0 s;"
        " backtest: in progress for 0 min 0 s"
    )


def test_pending_entries_are_counted(admin_client: Client, rows: Rows) -> None:
    found = going_on(rows[MemoryUser])

    assert found.pending == 1


def test_postponed_work_is_not_polled(idle: MemoryUser) -> None:
    later = timezone.now() + datetime.timedelta(hours=1)
    Lane.objects.filter(user=idle, name=LaneName.RECORDS).update(due_at=later, run_after=later)
    assert not going_on(idle).is_working

    # Work that nobody does, since there is no language model, is not in progress.
    Lane.objects.filter(user=idle, name=LaneName.RECORDS).update(due_at=None)
    Lane.objects.filter(user=idle, name=LaneName.STRUCTURE).update(due_at=timezone.now())
    assert not going_on(idle).is_working


def test_failed_work_shows_its_retry_without_reason(idle: MemoryUser) -> None:
    """The error may quote users' texts; the page shows it to those who may see these."""
    now = timezone.now()
    later = now + datetime.timedelta(minutes=12)
    Lane.objects.filter(user=idle, name=LaneName.STRUCTURE).update(
        due_at=now, run_after=later, last_error="secret"
    )

    found = going_on(idle)

    assert not found.is_working
    assert found.in_words(now) == ("nothing is being processed; next attempt in 12 min 0 s")


def test_progress_has_no_content_and_no_cache(admin_client: Client, populate: Populate) -> None:
    user = populate("a secret of hers", "carol")[MemoryUser]
    Pause.objects.all().delete()

    response = admin_client.get(url("progress", user))

    assert response["Content-Type"] == "application/json"
    assert "no-store" in response["Cache-Control"]
    assert "secret" not in text_of(response)
    assert response.json()["working"] is True


def test_without_a_script_it_is_a_text(admin_client: Client, idle: MemoryUser) -> None:
    assert "Now: Nothing is being processed." in shown(admin_client.get(page_url(idle)))

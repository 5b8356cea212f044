"""The page of all work: stuck work is shown, retried and dismissed, and this is audited."""

import datetime
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry as StaffAction
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory.kernel.models.operations import Alarm
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind
from memory.operations import alarms
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus
from tests.factories import make_checkpoint, make_run
from tests.integration.admin.conftest import messages_of, shown
from workers.service import dispatching

pytestmark = pytest.mark.django_db

HOUR = datetime.timedelta(hours=1)


def url() -> str:
    return reverse("admin:memory_work")


def act(client: Client, action: str, *chosen: str) -> list[str]:
    return messages_of(client.post(url(), {"action": action, "chosen": chosen}, follow=True))


@pytest.fixture
def lane(user: MemoryUser, settings: Settings) -> Lane:
    """Typed records that fail again and again."""
    entry_log.append(user, [Draft(kind=EntryKind.RECORD, data={"type": "Trip"})], source="t")
    lane = Lane.objects.get(user=user, name=LaneName.RECORDS)
    lane.attempts, lane.last_error = settings.UAC_STUCK_ATTEMPTS, "SandboxError: <b>no engine</b>"
    lane.run_after = timezone.now() + HOUR
    lane.save()
    return lane


@pytest.fixture
def run(user: MemoryUser, settings: Settings) -> Run:
    """A run that failed permanently."""
    run = make_run(make_checkpoint(user), kind=RunKind.QUERY)
    Run.objects.filter(pk=run.pk).update(attempts=settings.UAC_MAX_ATTEMPTS, last_error="killed")
    dispatching.abandon_hopeless_runs()
    run.refresh_from_db()
    assert run.outcome == RunOutcome.ABANDONED
    return run


def test_where_nothing_is_stuck_it_says_so(admin_client: Client) -> None:
    page = shown(admin_client.get(url()))

    assert "Nothing is stuck." in page
    assert "typed records sandbox 0" in page


def test_stuck_work_is_described(admin_client: Client, lane: Lane, run: Run) -> None:
    page = shown(admin_client.get(url()))

    assert "Typed records" in page
    assert "ada" in page
    assert "SandboxError: <b>no engine</b>" in page  # as text: `shown` takes markup away
    assert f"{run} ada failed permanently" in page
    assert "on request only" in page


def test_retry_of_one_piece_is_audited(admin_client: Client, lane: Lane, run: Run) -> None:
    assert act(admin_client, "try_again", f"records:{lane.pk}") == ["Typed records: 1 retried now."]

    lane.refresh_from_db()
    run.refresh_from_db()
    assert lane.run_after <= timezone.now()
    assert run.status == RunStatus.DONE
    [note] = StaffAction.objects.all()
    assert (note.object_id, note.change_message) == (str(lane.pk), "Stuck work retried now.")
    assert not re.search(r"\bada\b", note.object_repr)


def test_all_of_a_kind_are_tried_again(
    admin_client: Client, workspace: Workspace, run: Run, settings: Settings
) -> None:
    other = make_run(
        make_checkpoint(create_user(workspace, "bob", metadata=None)), kind=RunKind.QUERY
    )
    Run.objects.filter(pk=other.pk).update(attempts=settings.UAC_MAX_ATTEMPTS)
    dispatching.abandon_hopeless_runs()

    assert act(admin_client, "try_again", "runs:all") == ["Runs: 2 retried now."]

    assert Run.objects.filter(status=RunStatus.QUEUED).count() == 2
    assert StaffAction.objects.count() == 2


def test_abandoned_work_is_dismissed(admin_client: Client, lane: Lane, run: Run) -> None:
    assert act(admin_client, "dismiss", f"runs:{run.pk}", f"records:{lane.pk}") == [
        "Typed records: 1 not changed.",
        "Runs: 1 dismissed.",
    ]

    assert (
        "failed permanently"
        not in shown(admin_client.get(url(), {"kind": "runs"})).split("Stuck")[1]
    )


@pytest.mark.parametrize(
    "chosen",
    ["", "runs", "runs:", "runs:1", "runs:'; --", "nothing:all", "records:" + "9" * 40, ":"],
)
def test_nonsense_changes_nothing(admin_client: Client, lane: Lane, run: Run, chosen: str) -> None:
    before = lane.run_after
    act(admin_client, "try_again", chosen)

    lane.refresh_from_db()
    run.refresh_from_db()
    assert lane.run_after == before
    assert run.status == RunStatus.DONE


def test_an_unknown_action_and_no_choice_are_told(admin_client: Client, lane: Lane) -> None:
    assert act(admin_client, "delete", f"records:{lane.pk}") == [
        "Choose an action: retry or dismiss."
    ]
    assert act(admin_client, "try_again") == ["Nothing was done: select some work."]


def test_page_needs_view_alarm(staff: Callable[..., Client]) -> None:
    assert staff("view_run").get(url()).status_code == 403


def test_retry_needs_permission_to_change(
    staff: Callable[..., Client], lane: Lane, run: Run
) -> None:
    client = staff("view_alarm", "view_run", "view_content")

    page = client.get(url()).content.decode()
    told = act(client, "try_again", f"runs:{run.pk}", f"records:{lane.pk}")

    assert str(run) in page
    assert "SandboxError" not in page
    assert f"runs:{run.pk}" not in page
    assert told == [
        "typed records: skipped, since you do not have permission to change this work.",
        "runs: skipped, since you do not have permission to change this work.",
    ]
    run.refresh_from_db()
    assert run.status == RunStatus.DONE
    assert not StaffAction.objects.exists()


def test_alarms_are_shown_there_and_lead_there(admin_client: Client) -> None:
    Alarm.objects.create(name="redis", detail="Redis does not answer.", raised_at=timezone.now())

    assert "redis : Redis does not answer." in shown(admin_client.get(url()))
    listed: Any = admin_client.get(reverse("admin:memory_alarm_changelist"))
    assert url() in listed.content.decode()


def test_page_shows_when_the_dispatcher_worked(admin_client: Client) -> None:
    alarms.beat(alarms.DISPATCHER)

    assert re.search(r"The dispatcher last ran \d+ s ago\.", shown(admin_client.get(url())))


def test_current_alarms_stand_above_past_ones(admin_client: Client) -> None:
    now = timezone.now()
    Alarm.objects.create(name="not-for-long-yet")
    Alarm.objects.create(name="was-wrong", cleared_at=now)
    Alarm.objects.create(name="is-wrong", raised_at=now - HOUR)
    Alarm.objects.create(name="is-wrong-since-now", raised_at=now)

    page = admin_client.get(reverse("admin:memory_alarm_changelist")).content.decode()

    names = ("is-wrong-since-now<", "is-wrong<", "not-for-long-yet<", "was-wrong<")
    places = [page.index(name) for name in names]
    assert places == sorted(places)

"""Pauses: entries of a paused user or workspace wait, and nobody else is affected."""

import datetime
from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient

from memory.constraints import forecasts
from memory.constraints.models.backtests import Backtest
from memory.constraints.models.forecasts import Forecast
from memory.kernel import pauses
from memory.kernel.models.pauses import Pause
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.staff.models import StaffAccess
from memory.kernel.users import create_user
from memory.llm import lane_status
from memory.llm.lane_status import LaneState
from memory.log import entry_log
from memory.log.models.entries import LogEntry
from memory.log.models.redactions import Redaction
from memory.operations import alarms
from memory.privacy import redaction
from memory.versions import runs
from memory.versions.models.runs import Run, RunKind, RunTrigger
from tests.factories import make_checkpoint, make_run
from tests.steps import append_records, append_texts, not_none
from workers import tasks
from workers.service import dispatching

pytestmark = pytest.mark.django_db

Work = Callable[[], None]

PAGES = "admin:memory_memoryuser_changelist", "admin:memory_workspace_changelist"
HOUR = datetime.timedelta(hours=1)
TRIP = {"domain": "travel", "type": "Trip", "key": "a", "data": {"to": "Rome"}}


@pytest.fixture
def other(workspace: Workspace) -> MemoryUser:
    return create_user(workspace, "other", metadata=None)


def pending(user: MemoryUser) -> int:
    return entry_log.coverage(user).pending


@pytest.mark.parametrize("whole", [False, True], ids=["user", "workspace"])
def test_entries_of_a_paused_user_wait_until_resumed(
    api: APIClient, user: MemoryUser, work: Work, whole: bool
) -> None:
    of = user.workspace if whole else user
    assert pauses.pause(of, by="staff:eve", reason="too loud")

    answer = api.post(f"/v1/users/{user.user_id}/entries/", {"kind": "record", **TRIP})
    tasks.work("records", user.pk)

    assert answer.status_code == 202
    assert LogEntry.objects.filter(user=user).count() == pending(user) == 1
    assert dispatching.dispatch()["records"] == 0

    assert pauses.resume(of, by="staff:eve")
    Lane.objects.update(hinted_at=None)
    assert dispatching.dispatch()["records"] == 1
    work()
    assert pending(user) == 0


def test_paused_user_is_not_run_or_forecast(user: MemoryUser, other: MemoryUser) -> None:
    now = timezone.now()
    for one in (user, other):
        checkpoint = make_checkpoint(one)
        MemoryUser.objects.filter(pk=one.pk).update(
            head=checkpoint, constraints_due_at=now, constraints_changed_at=now
        )
        Forecast.objects.update_or_create(user=one, defaults={"due_at": now})
        make_run(checkpoint)
        Backtest.objects.create(
            workspace=one.workspace,
            user=one,
            constraint="constraints/a.py",
            source_hash="",
            days=1,
            most_users=1,
            until=now,
        )
    Backtest.objects.update(created_at=now - dispatching.PATIENCE)  # no run comes first any more

    pauses.pause(user, by="staff:eve", reason="")

    assert {run.user_id for run in runs.waiting()} == {other.pk}
    assert runs.claim(str(Run.objects.get(user=user).pk)) is None
    assert [row.user_id for row in forecasts.waiting()] == [other.pk]
    found = dispatching.dispatch()
    assert (found["daily"], found["changed"], found["backtests"]) == (1, 1, 1)
    clocks = MemoryUser.objects.values_list("user_id", "constraints_due_at")
    assert dict(clocks) == {"ada": now, "other": None}  # who has no constraint needs no clock

    pauses.pause(user.workspace, by="staff:eve", reason="")

    assert not runs.waiting().exists()
    assert not forecasts.waiting().exists()
    assert runs.claim(str(Run.objects.filter(user=other).latest("queued_at").pk)) is None


def test_query_of_paused_user_waits(api: APIClient, user: MemoryUser, work: Work) -> None:
    append_records(user, TRIP)
    work()
    pauses.pause(user, by="staff:eve", reason="")

    asked = api.post(f"/v1/users/{user.user_id}/query/?wait=0", {"code": "len(trips)"})
    tasks.work("runs", asked.data["id"])

    assert asked.status_code == 202
    assert api.get(f"/v1/runs/{asked.data['id']}/").data["status"] == "queued"
    assert api.get(f"/v1/users/{user.user_id}/state/").status_code == 200
    pauses.resume(user, by="staff:eve")
    work()
    run = Run.objects.get(pk=asked.data["id"])
    assert (run.outcome, run.output["value"]) == ("ok", 1)


def test_redaction_continues_during_a_pause(user: MemoryUser, work: Work) -> None:
    append_records(user, TRIP)
    work()
    user.refresh_from_db()
    pauses.pause(user, by="staff:eve", reason="")

    redaction.redact(user, [1], by="staff:eve", reason="asked for")
    tasks.work("redactions", user.pk)

    assert Redaction.objects.get(user=user).due_at is None


def test_paused_work_raises_no_alarm(user: MemoryUser, other: MemoryUser) -> None:
    for one in (user, other):
        append_records(one, TRIP)
    Lane.objects.filter(name=LaneName.RECORDS).update(
        due_at=timezone.now() - HOUR, run_after=timezone.now() - HOUR
    )
    waits = {problem.name: problem.detail for problem in alarms.problems()}
    assert waits["waiting: records"].startswith("typed records: 2 waiting")

    pauses.pause(user, by="staff:eve", reason="")

    waits = {problem.name: problem.detail for problem in alarms.problems()}
    assert waits["waiting: records"].startswith("typed records: 1 waiting")


def test_pausing_twice_is_pausing_once(user: MemoryUser) -> None:
    assert pauses.pause(user, by="staff:eve", reason="first")
    assert not pauses.pause(user, by="staff:bob", reason="second")
    assert pauses.pause(user.workspace, by="staff:bob", reason="all of them")
    assert [row.reason for row in Pause.objects.filter(user=user)] == ["first"]

    assert pauses.resume(user, by="staff:eve")
    assert not pauses.resume(user, by="staff:eve")
    still = not_none(pauses.find_pause(user))
    assert still.reason == "all of them"
    assert pauses.resume(user.workspace, by="staff:bob")
    assert pauses.find_pause(user) is None
    assert pauses.pause(user, by="staff:eve", reason="again")


def test_staff_see_why_the_language_model_does_nothing(user: MemoryUser) -> None:
    append_texts(user, "hi")
    pauses.pause(user.workspace, by="staff:eve", reason="its import runs wild")

    standing = lane_status.read_status(user)

    assert standing.state == LaneState.STOPPED
    assert standing.reason == "paused by staff:eve: its import runs wild"


def test_requests_waiting_for_a_paused_user_block_nobody_else(
    api: APIClient, user: MemoryUser, other: MemoryUser, workspace: Workspace
) -> None:
    Workspace.objects.filter(pk=workspace.pk).update(max_waiting_runs=2)
    for one in (user, other):
        MemoryUser.objects.filter(pk=one.pk).update(head=make_checkpoint(one))
    pauses.pause(user, by="staff:eve", reason="")

    def ask(one: MemoryUser, number: int) -> int:
        code = {"code": f"{number} + 1"}
        status: int = api.post(f"/v1/users/{one.user_id}/query/?wait=0", code).status_code
        return status

    assert [ask(user, number) for number in range(3)] == [202, 202, 429]
    assert [ask(other, number) for number in range(3)] == [202, 202, 429]


def test_runs_requested_by_work_in_progress_are_done_during_a_pause(user: MemoryUser) -> None:
    """Given a query that a worker was answering when the pause began; its own queries run."""
    run = runs.queue(user, RunKind.QUERY, RunTrigger.MODEL, checkpoint=make_checkpoint(user))
    pauses.pause(user, by="staff:eve", reason="")

    assert runs.claim(str(run.pk)) is not None


@pytest.mark.parametrize("page", PAGES, ids=["user", "workspace"])
def test_staff_pause_and_resume(admin_client: Client, user: MemoryUser, page: str) -> None:
    of = user if "memoryuser" in page else user.workspace
    chosen = {"_selected_action": str(of.pk), "from_page": "1"}

    paused = admin_client.post(
        reverse(page),
        {**chosen, "action": "pause", "note": "too loud", "confirmed": "1"},
        follow=True,
    )

    row = Pause.objects.get()
    assert (row.reason, row.paused_by, row.resumed_at) == ("too loud", "staff:admin", None)
    assert "paused; new entries and requests wait until work is resumed" in paused.content.decode()
    assert "too loud" in paused.content.decode()  # and its page says so
    listed = admin_client.get(reverse("admin:memory_pause_changelist")).content.decode()
    assert "too loud" in listed

    admin_client.post(reverse(page), {**chosen, "action": "resume"})
    row.refresh_from_db()
    assert row.resumed_by == "staff:admin"


def test_staff_without_permission_pause_nothing(client: Client, user: MemoryUser) -> None:
    staff = User.objects.create_user("bob", password="x", is_staff=True)
    staff.user_permissions.add(Permission.objects.get(codename="view_memoryuser"))
    StaffAccess.objects.create(user=staff, all_workspaces=True)
    client.force_login(staff)

    client.post(
        reverse(PAGES[0]), {"_selected_action": str(user.pk), "action": "pause", "note": "x"}
    )

    assert not Pause.objects.exists()

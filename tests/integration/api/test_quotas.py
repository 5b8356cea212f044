"""Quotas: how much a workspace may have, and how much of it may wait."""

from collections.abc import Callable

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.constraints import backtests
from memory.constraints.models.backtests import Backtest, BacktestState
from memory.kernel.admission import quotas, refusals
from memory.kernel.admission.quotas import PENDING, TOTALS
from memory.kernel.admission.refusals import LimitExceeded
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log import entry_log
from memory.log.models.entries import EntryKind
from memory.operations import workload
from memory.privacy import redaction, user_erasure
from memory.versions import runs
from memory.versions.models.runs import Run, RunStatus, RunTrigger
from tests.factories import make_checkpoint, make_run

pytestmark = pytest.mark.django_db

ENTRIES = "/v1/users/ada/entries/"
MESSAGE = {"kind": "message", "role": "user", "content": "I fly to Rome on Monday."}
TRIP = {"kind": "record", "domain": "travel", "type": "Trip", "data": {"to": "Rome", "days": 3}}


@pytest.fixture(autouse=True)
def counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the counts at every request, and count what is due at every look."""
    monkeypatch.setattr(quotas, "BELIEVED_SECONDS", 0.0)
    monkeypatch.setattr(quotas, "OWN_SECONDS", 0.0)
    monkeypatch.setattr(quotas, "_believed", {})
    monkeypatch.setattr(quotas, "_count_own_at", {})
    monkeypatch.setattr(quotas, "_count_at", {TOTALS: 0.0, PENDING: 0.0})


def allow(workspace: Workspace, **chosen: int) -> None:
    Workspace.objects.filter(pk=workspace.pk).update(**chosen)


def test_entries_past_the_quota_are_refused_for_good(
    api: APIClient, user: MemoryUser, workspace: Workspace
) -> None:
    allow(workspace, max_entries_per_user=2)
    assert api.post(ENTRIES, {"entries": [MESSAGE, MESSAGE]}).status_code == 202

    refused = api.post(ENTRIES, MESSAGE)

    assert refused.status_code == 403
    assert not refused.has_header("Retry-After")
    assert refused.json()["limit"] == "max_entries_per_user"
    assert (str(workspace.public_id), "max_entries_per_user", 1) in set(refusals.counters())


def test_the_users_of_a_workspace_are_bounded(api: APIClient, workspace: Workspace) -> None:
    allow(workspace, max_users=2)

    codes = [api.post("/v1/users/", {"user_id": f"u{n}"}).status_code for n in range(3)]

    assert codes == [201, 201, 403]
    assert MemoryUser.objects.filter(workspace=workspace).count() == 2


def test_erased_user_does_not_count(user: MemoryUser, workspace: Workspace) -> None:
    other = create_user(workspace, "bob", metadata=None)
    quotas._count(TOTALS)
    assert workload.used(workspace)["max_users"] == 2

    user_erasure.ask(other, by="key:x", reason="asked for")

    quotas._count(TOTALS)
    assert workload.used(workspace)["max_users"] == 1


@pytest.mark.parametrize(
    ("quota", "told"),
    [
        ({"max_entries": 4}, "entries in this workspace's logs is 4,"),
        ({"max_log_mib": 1}, "size of this workspace's logs is 1.1 MiB,"),
    ],
)
def test_the_logs_of_a_workspace_are_bounded_together(
    api: APIClient, user: MemoryUser, workspace: Workspace, quota: dict[str, int], told: str
) -> None:
    other = create_user(workspace, "bob", metadata=None)
    long = entry_log.Draft(kind=EntryKind.MESSAGE, content="x" * 300_000)
    entry_log.append(other, [long] * 4, source="test")
    allow(workspace, **quota)
    quotas.count_when_due()

    refused = api.post(ENTRIES, MESSAGE)

    assert refused.status_code == 403
    assert (refused.json()["limit"],) == tuple(quota)
    assert told in refused.json()["detail"]


def test_redacted_entries_take_no_room(user: MemoryUser, workspace: Workspace) -> None:
    entry_log.append(
        user, [entry_log.Draft(kind=EntryKind.MESSAGE, content="x" * 10_000)], source="test"
    )
    user.refresh_from_db()
    before = user.log_bytes

    redaction.redact(user, [1], by="test", reason="")

    user.refresh_from_db()
    assert before > 10_000
    assert 0 < user.log_bytes < 1000  # the redaction's own entry


def test_a_backlog_is_refused_for_a_moment_and_then_taken(
    api: APIClient, user: MemoryUser, workspace: Workspace, work: Callable[[], None]
) -> None:
    allow(workspace, max_pending_entries=5)
    assert api.post(ENTRIES, {"entries": [TRIP] * 8}).status_code == 202  # nothing else waits
    quotas.count_when_due()

    refused = api.post(ENTRIES, TRIP)
    work()
    taken = api.post(ENTRIES, TRIP)

    assert refused.status_code == 429
    assert int(refused["Retry-After"]) == quotas.PENDING_WAIT
    assert refused.json()["limit"] == "max_pending_entries"
    assert "The number of pending entries in this workspace is 8," in refused.json()["detail"]
    assert taken.status_code == 202
    assert api.get("/v1/users/ada/").json()["entries"]["total"] == 9


def test_a_long_history_is_imported_in_parts_with_a_bounded_backlog(
    api: APIClient, user: MemoryUser, workspace: Workspace, work: Callable[[], None]
) -> None:
    allow(workspace, max_pending_entries=20)
    refused = 0
    for number in range(10):
        part = [{**TRIP, "key": f"trip-{number}-{n}"} for n in range(10)]
        while api.post(ENTRIES, {"entries": part}).status_code == 429:
            refused += 1
            work()
        quotas.count_when_due()
        quotas._count_at.update({TOTALS: 0.0, PENDING: 0.0})
        assert quotas.usage_of(workspace).pending_records <= 20
    work()

    assert refused > 0
    coverage = api.get("/v1/users/ada/").json()["entries"]
    assert (coverage["total"], coverage["covered"]) == (100, 100)


def test_a_repeated_write_is_answered_whatever_waits(
    api: APIClient, user: MemoryUser, workspace: Workspace
) -> None:
    api.post(ENTRIES, {"entries": [TRIP] * 3}, HTTP_IDEMPOTENCY_KEY="k")
    allow(workspace, max_pending_entries=1)

    again = api.post(ENTRIES, {"entries": [TRIP] * 3}, HTTP_IDEMPOTENCY_KEY="k")

    assert (again.status_code, again["Idempotent-Replayed"]) == (202, "true")


def test_messages_without_a_model_are_no_backlog(
    api: APIClient, user: MemoryUser, workspace: Workspace, settings: Settings
) -> None:
    allow(workspace, max_pending_entries=1)
    api.post(ENTRIES, {"entries": [MESSAGE] * 3})

    without = api.post(ENTRIES, MESSAGE).status_code
    settings.UAC_LLM_MODEL = "openai:some"
    quotas.count_when_due()
    with_model = api.post(ENTRIES, MESSAGE).status_code

    assert (without, with_model) == (202, 429)
    assert quotas.usage_of(workspace).pending_structure == 4


def test_runs_that_wait_are_bounded(api: APIClient, user: MemoryUser, workspace: Workspace) -> None:
    allow(workspace, max_waiting_runs=2)
    checkpoint = make_checkpoint(user)
    MemoryUser.objects.filter(pk=user.pk).update(head=checkpoint)
    for _ in range(3):
        make_run(checkpoint)  # nobody asked for those
    url, query = "/v1/users/ada/query/?wait=0", {"code": "1 + 1"}

    codes = [api.post(url, query).status_code for _ in range(2)]
    refused = api.post(url, query)
    Run.objects.filter(trigger=RunTrigger.API).update(
        status=RunStatus.DONE, outcome="cancelled", finished_at=timezone.now()
    )
    later = api.post(url, query)

    assert codes == [202, 202]
    assert (refused.status_code, refused.json()["limit"]) == (429, "max_waiting_runs")
    assert int(refused["Retry-After"]) == runs.RUNS_WAIT
    assert later.status_code == 202


def test_backtests_that_go_on_are_bounded(user: MemoryUser, workspace: Workspace) -> None:
    allow(workspace, max_backtests=1)
    workspace.refresh_from_db()
    backtests.check_backtests(workspace)
    one = Backtest.objects.create(
        workspace=workspace, user=user, days=1, most_users=1, until=timezone.now()
    )

    with pytest.raises(LimitExceeded) as refused:
        backtests.check_backtests(workspace)
    ended = {"state": BacktestState.FINISHED, "finished_at": timezone.now()}
    Backtest.objects.filter(pk=one.pk).update(**ended)
    backtests.check_backtests(workspace)

    assert (refused.value.limit, refused.value.wait) == ("max_backtests", backtests.BACKTESTS_WAIT)

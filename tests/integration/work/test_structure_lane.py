"""The language model's lane is due by number, quiet, age and urgency; and who is notified."""

import datetime
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
import time_machine
from pytest_django import DjangoCaptureOnCommitCallbacks
from pytest_django.fixtures import Settings

from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.work import leases
from memory.kernel.work.hints import redis_client
from memory.llm import lane_status
from memory.llm.lane_status import LaneState
from memory.log import lanes
from memory.log.models.entries import EntryKind, EntryOutcome, Outcome
from memory.versions import checkpoints
from memory.versions.checkpoints import Decision
from memory.versions.models.runs import RunKind
from tests.factories import make_checkpoint, make_run
from tests.steps import append_texts, not_none
from workers.service import dispatching

pytestmark = pytest.mark.django_db

Hints = Callable[[], int]

START = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
Clock: TypeAlias = time_machine.Traveller
OnCommit: TypeAlias = DjangoCaptureOnCommitCallbacks


@pytest.fixture(autouse=True)
def server_settings(settings: Settings) -> None:
    settings.UAC_STRUCTURE_ENTRIES = 5
    settings.UAC_STRUCTURE_IDLE_SECONDS = 60
    settings.UAC_STRUCTURE_AGE_SECONDS = 150
    settings.UAC_LLM_MODEL = "openai:gpt-5-mini"
    settings.UAC_LLM_API_KEY = "sk-of-the-server"


@pytest.fixture(autouse=True)
def clock() -> Iterator[Clock]:
    """The time, which only the tests move."""
    with time_machine.travel(START, tick=False) as traveller:
        yield traveller


@pytest.fixture
def hints() -> Iterator[Callable[[], int]]:
    """Return a counter of the hints that wait in the queue of the language model workers."""
    redis_client().delete("llm", "sandbox")
    yield lambda: int(redis_client().llen("llm"))
    assert not redis_client().llen("sandbox")
    redis_client().delete("llm")


def say(user: MemoryUser, number: int = 1, **fields: Any) -> list[int]:
    return append_texts(user, *["hi"] * number, **fields)


def lane_of(user: MemoryUser) -> Lane:
    return Lane.objects.get(user=user, name=LaneName.STRUCTURE)


def due_in(user: MemoryUser) -> float | None:
    """Return the seconds from the start to the moment when work is due."""
    due_at = lane_of(user).due_at
    return None if due_at is None else (due_at - START).total_seconds()


def claimed(user: MemoryUser) -> Lane:
    return not_none(leases.claim(lanes.due(LaneName.STRUCTURE).filter(user=user)))


def settle(user: MemoryUser, *seqs: int) -> None:
    EntryOutcome.objects.bulk_create(
        EntryOutcome(user=user, seq=seq, outcome=Outcome.COVERED) for seq in seqs
    )


@pytest.mark.parametrize(("metadata", "seconds"), [({"urgent": True}, 0), (None, 150)])
def test_a_long_pause_after_a_failure_ends_for_what_is_new(
    user: MemoryUser, clock: Clock, metadata: dict[str, Any] | None, seconds: int
) -> None:
    # Given a lane that is not to be tried again before tomorrow
    say(user, 5)
    leases.fail(claimed(user), "no", until=START + datetime.timedelta(days=1))
    # When something new is said
    say(user, metadata=metadata)
    # Then it waits no longer than the oldest may
    assert (lane_of(user).run_after - START).total_seconds() == seconds


# -- When it is due ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [EntryKind.MESSAGE, EntryKind.FACT, EntryKind.CORRECTION])
def test_work_is_due_after_a_silence(user: MemoryUser, clock: Clock, kind: EntryKind) -> None:
    say(user, kind=kind)
    assert due_in(user) == 60

    clock.shift(40)
    say(user)

    assert due_in(user) == 100
    assert (lane_of(user).waiting, lane_of(user).waiting_since) == (2, START)


def test_work_is_due_at_once_when_enough_entries_wait(user: MemoryUser, clock: Clock) -> None:
    say(user, 4)
    assert due_in(user) == 60

    clock.shift(10)
    say(user)

    assert due_in(user) == 10


@pytest.mark.parametrize(
    ("metadata", "due"),
    [
        ({"urgent": True}, 0),
        ({"urgent": True, "room": "kitchen"}, 0),
        ({"urgent": False}, 60),
        ({"urgent": "true"}, 60),
        ({"room": "urgent"}, 60),
        (None, 60),
    ],
)
def test_an_urgent_entry_does_not_wait(
    user: MemoryUser, metadata: dict[str, Any] | None, due: int
) -> None:
    say(user, metadata=metadata)

    assert due_in(user) == due


@pytest.mark.parametrize("urgent", [True, False])
def test_later_entries_do_not_delay_work(user: MemoryUser, clock: Clock, urgent: bool) -> None:
    say(user, metadata={"urgent": urgent})
    due = due_in(user)

    clock.shift(70)
    say(user, 10)

    assert due_in(user) == due
    assert lane_of(user).waiting == 11


def test_a_workspace_may_have_a_schedule_of_its_own(
    user: MemoryUser, workspace: Workspace, clock: Clock
) -> None:
    workspace.structure_entries = 2
    workspace.structure_idle_seconds = 600
    workspace.structure_age_seconds = 700
    workspace.full_clean()
    workspace.save()

    say(user)
    assert due_in(user) == 600
    clock.shift(500)
    say(user)
    assert due_in(user) == 500


# -- Giving it back ----------------------------------------------------------------------------


def test_entries_arriving_during_work_start_a_new_wait(user: MemoryUser, clock: Clock) -> None:
    seqs = say(user, 5)
    lane = claimed(user)
    clock.shift(10)
    say(user, 2)
    clock.shift(20)
    settle(user, *seqs)

    assert not lanes.release(lane)

    after = lane_of(user)
    assert due_in(user) == 70
    assert (after.waiting, after.waiting_since) == (2, START + datetime.timedelta(seconds=10))


@pytest.mark.parametrize(("number", "metadata"), [(5, None), (1, {"urgent": True})])
def test_enough_or_an_urgent_one_among_the_rest_is_due_at_once(
    user: MemoryUser, number: int, metadata: dict[str, Any] | None
) -> None:
    seqs = say(user, 5)
    lane = claimed(user)
    say(user, number, metadata=metadata)
    settle(user, *seqs)

    assert lanes.release(lane)
    assert due_in(user) == 0


def test_release_without_a_model_notifies_nobody(user: MemoryUser, settings: Settings) -> None:
    say(user, 5)
    lane = claimed(user)
    settings.UAC_LLM_MODEL = ""

    assert not lanes.release(lane)
    assert due_in(user) == 0


def test_entries_settled_by_a_proposal_no_longer_wait(user: MemoryUser) -> None:
    seqs = say(user, 5)
    run = make_run(make_checkpoint(user), kind=RunKind.PROPOSAL)

    checkpoints.commit(run, user, None, [Decision(seq, Outcome.DISMISSED) for seq in seqs[:3]])
    assert (due_in(user), lane_of(user).waiting) == (60, 2)

    checkpoints.commit(run, user, None, [Decision(seq, Outcome.DISMISSED) for seq in seqs[3:]])
    assert (due_in(user), lane_of(user).waiting) == (None, 0)


# -- Failures ----------------------------------------------------------------------------------


def test_failures_back_off_up_to_an_hour(user: MemoryUser, clock: Clock) -> None:
    say(user, 5)
    waits = []
    for _ in range(10):
        lane = claimed(user)
        leases.fail(lane, "no answer")
        lane.refresh_from_db()
        waits.append((lane.run_after - datetime.datetime.now(datetime.UTC)).total_seconds())
        assert leases.claim(lanes.due(LaneName.STRUCTURE)) is None
        clock.move_to(lane.run_after)

    assert waits == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


def test_a_failure_that_will_last_is_not_tried_before_its_end(user: MemoryUser) -> None:
    say(user, 5)
    midnight = START + datetime.timedelta(hours=12)

    leases.fail(claimed(user), "no budget", until=midnight)
    assert lane_of(user).run_after == midnight

    lanes.hurry(Lane.objects.filter(user=user))
    leases.fail(claimed(user), "no answer", until=START)
    assert lane_of(user).run_after == START + datetime.timedelta(seconds=60)


# -- Who is told -------------------------------------------------------------------------------


def test_workers_are_told_when_it_becomes_due_and_once(
    user: MemoryUser, hints: Hints, django_capture_on_commit_callbacks: OnCommit
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        say(user, 4)
    assert hints() == 0

    with django_capture_on_commit_callbacks(execute=True):
        say(user)
    assert hints() == 1


def test_without_a_model_nobody_is_told(
    user: MemoryUser,
    workspace: Workspace,
    settings: Settings,
    hints: Hints,
    django_capture_on_commit_callbacks: OnCommit,
) -> None:
    settings.UAC_LLM_MODEL = ""
    with django_capture_on_commit_callbacks(execute=True):
        say(user, 5)
    assert (due_in(user), hints()) == (0, 0)
    assert dispatching.dispatch()["structure"] == 0

    Workspace.objects.filter(pk=workspace.pk).update(llm_model="google:gemini")

    assert dispatching.dispatch()["structure"] == 1
    assert hints() == 1


def test_dispatcher_announces_due_work(user: MemoryUser, clock: Clock, hints: Hints) -> None:
    say(user)
    clock.shift(59)
    assert dispatching.dispatch()["structure"] == 0

    clock.shift(1)
    assert dispatching.dispatch()["structure"] == 1
    assert dispatching.dispatch()["structure"] == 0
    assert hints() == 1


def test_dispatcher_skips_held_and_failed_work(user: MemoryUser, hints: Hints) -> None:
    say(user, 5)
    lane = claimed(user)
    assert dispatching.dispatch()["structure"] == 0

    leases.fail(lane, "no answer")
    assert dispatching.dispatch()["structure"] == 0
    assert hints() == 0


# -- What the staff are told -------------------------------------------------------------------


def test_status_has_its_reason(user: MemoryUser, settings: Settings, clock: Clock) -> None:
    def told() -> tuple[LaneState, int, float | None, str]:
        found = lane_status.read_status(user)
        until = None if found.until is None else (found.until - START).total_seconds()
        return found.state, found.waiting, until, found.reason

    assert told() == (LaneState.IDLE, 0, None, "")
    say(user)
    assert told() == (LaneState.WAITING, 1, 60, "")
    clock.shift(60)
    assert told() == (LaneState.DUE, 1, None, "")

    lane = claimed(user)
    assert told() == (LaneState.WORKING, 1, None, "")
    leases.fail(lane, "TimeoutError: no answer")
    assert told() == (LaneState.STOPPED, 1, 90, "TimeoutError: no answer")
    clock.shift(30)
    assert told() == (LaneState.DUE, 1, None, "")

    settings.UAC_LLM_TOKENS_PER_DAY = 0
    state, _, _, reason = told()
    assert state == LaneState.STOPPED
    assert "(tokens per day)" in reason
    settings.UAC_LLM_MODEL = ""
    *stopped, reason = told()
    assert stopped == [LaneState.STOPPED, 1, None]
    assert "UAC_LLM_MODEL" in reason


def test_lost_worker_is_not_working(user: MemoryUser, settings: Settings, clock: Clock) -> None:
    say(user, 5)
    claimed(user)

    clock.shift(settings.UAC_LEASE_SECONDS + 1)

    assert lane_status.read_status(user).state == LaneState.DUE

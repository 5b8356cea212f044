"""Erasing a user just after a write: nobody waits for the other in a circle.

A deadlock ends one of the two: the request with 503, or a worker's step, whose call of the model
is lost.
"""

import uuid
from collections.abc import Callable
from functools import partial

import pytest
from django.db import DatabaseError, OperationalError, transaction
from django.utils import timezone
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.kernel.models.idempotency import IdempotencyKey
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings.language_models import Usage
from memory.kernel.users import create_user, is_erased
from memory.kernel.work import leases
from memory.llm import llm_calls
from memory.llm.llm_calls import Attempt, CallSession
from memory.llm.models import LlmCall, LlmPurpose
from memory.recall.models import SearchSegment
from memory.recall.search import index_maintenance
from memory.recall.search.announcing import want
from memory.versions import runs
from memory.versions.models.runs import Run, RunKind, RunTrigger
from tests.rivals import Rival, at_once, at_the_lock
from workers import tasks

pytestmark = pytest.mark.usefixtures("live_database")

# Enough that one in fourteen, as it was, could not go unseen.
ROUNDS = 200

ENTRIES = [
    {"kind": "message", "role": "user", "content": "I fly to Rome."},
    {"kind": "record", "domain": "travel", "type": "Trip", "data": {"to": "Rome"}},
]


JustBefore = Callable[[object, str, Callable[[], object]], None]


def append(api: APIClient, name: str) -> int:
    """Append entries under an Idempotency-Key, as clients do; return the status."""
    path, key = f"/v1/users/{name}/entries/", str(uuid.uuid4())
    answer = api.post(path, {"entries": ENTRIES}, headers={"Idempotency-Key": key})
    return int(answer.status_code)


def erase(api: APIClient, name: str) -> int:
    return int(api.delete(f"/v1/users/{name}/?reason=asked+for").status_code)


def claimed_lane(user: MemoryUser) -> Lane:
    """Claim the lane of the model's worker, as it does when messages have come."""
    lanes = Lane.objects.filter(user=user, name=LaneName.STRUCTURE)
    lanes.update(due_at=timezone.now())
    lane = leases.claim(lanes)
    assert lane is not None
    return lane


def call_model(lane: Lane) -> LlmCall:
    """Write the row of a call to the model, as the model's worker does before each call."""
    work = CallSession(
        workspace=lane.user.workspace, purpose=LlmPurpose.MEMORIZE, user=lane.user, lane=lane
    )
    usage = Usage(input_tokens=1, output_tokens=1)
    attempt = Attempt(model="test:x", turn=1, attempt=1, prompt={}, most=usage, seconds=60)
    return llm_calls.start(work, attempt, keep_content=False)


def queue_query(lane: Lane) -> Run:
    """Queue a query for the model, as its worker does."""
    with transaction.atomic():
        leases.check(lane)
        return runs.queue(lane.user, RunKind.QUERY, RunTrigger.MODEL, checkpoint=None)


def index_log(user: MemoryUser) -> None:
    """Index the log, as an indexing worker does, although it is short."""
    want(user.pk)
    tasks.work("indexes", user.pk)


@pytest.fixture(autouse=True)
def short_logs_are_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_maintenance, "TAIL", 1)


def ends_by_erasure(error: BaseException | None) -> bool:
    """Return whether a worker ended as it should when the user is erased, or did not notice."""
    return (
        error is None
        or isinstance(error, leases.LeaseLost | MemoryUser.DoesNotExist)
        or (isinstance(error, DatabaseError) and is_erased(error))
    )


@pytest.mark.parametrize(
    ("step", "rows"),
    [(call_model, LlmCall.objects), (queue_query, Run.objects)],
    ids=["the row of a call", "a query"],
)
def test_a_step_of_the_models_worker_and_an_erasure_both_succeed(
    api: APIClient,
    user: MemoryUser,
    just_before: JustBefore,
    step: Callable[[Lane], object],
    rows: object,
) -> None:
    """The worker holds its lane when the erasure comes, and then writes a row about the user."""
    lane = claimed_lane(user)
    answers: list[int] = []
    with at_the_lock(lambda: answers.append(erase(api, "ada"))) as eraser:
        just_before(rows, "create", eraser.start_and_wait_for_lock)
        step(lane)

    assert answers == [202]
    with pytest.raises(leases.LeaseLost):
        step(lane)


def test_an_index_that_is_being_written_and_an_erasure_both_succeed(
    api: APIClient, user: MemoryUser, just_before: JustBefore
) -> None:
    api.post("/v1/users/ada/entries/", {"entries": ENTRIES})
    answers: list[int] = []
    with at_the_lock(lambda: answers.append(erase(api, "ada"))) as eraser:
        just_before(SearchSegment.objects, "create", eraser.start_and_wait_for_lock)
        index_log(user)

    assert answers == [202]


def test_a_request_about_a_run_and_an_erasure_both_succeed(
    api: APIClient, user: MemoryUser, just_before: JustBefore
) -> None:
    """The request holds the run when the erasure comes; its Idempotency-Key names the user."""
    run = runs.queue(user, RunKind.QUERY, RunTrigger.API, checkpoint=None)
    answers: list[int] = []
    with at_the_lock(lambda: answers.append(erase(api, "ada"))) as eraser:
        just_before(IdempotencyKey.objects, "create", eraser.start_and_wait_for_lock)
        cancelled = api.post(f"/v1/runs/{run.pk}/cancel/", {}, headers={"Idempotency-Key": "once"})

    assert (answers, cancelled.status_code in (200, 404)) == ([202], True)


def test_a_write_that_loses_a_deadlock_is_repeated(api: APIClient, user: MemoryUser) -> None:
    """Whoever locks a lane before the user may still deadlock with a write, which then waits."""
    ended: list[BaseException | None] = []

    def lock_the_wrong_way(writer: Rival) -> None:
        try:
            with transaction.atomic():
                Lane.objects.select_for_update().get(user=user, name=LaneName.RECORDS)
                writer.start_and_wait_for_lock()
                MemoryUser.objects.select_for_update().get(pk=user.pk)
        except OperationalError as error:
            ended.append(error)

    statuses: list[int] = []
    with at_the_lock(lambda: statuses.append(append(api, "ada"))) as writer:
        lock_the_wrong_way(writer)

    assert (statuses, ended) == ([202], [])


def test_erasures_just_after_a_write_do_not_fail(
    workspace: Workspace, api: APIClient, settings: Settings
) -> None:
    settings.UAC_LLM_CONCURRENCY = 100 * ROUNDS  # the calls are begun, but never ended
    failed: list[str] = []
    for number in range(ROUNDS):
        name = f"user-{number}"
        user = create_user(workspace, name, metadata=None)
        assert append(api, name) == 202
        lane = claimed_lane(user)
        answers: dict[str, int] = {}

        def write(name: str = name, answers: dict[str, int] = answers) -> None:
            answers["write"] = append(api, name)

        def remove(name: str = name, answers: dict[str, int] = answers) -> None:
            answers["erase"] = erase(api, name)

        def work(lane: Lane = lane) -> None:
            for _ in range(5):
                call_model(lane)
                queue_query(lane)

        rivals = at_once(
            write,
            remove,
            work,
            partial(index_log, user),
            # A checkpoint takes as long as all the rest.
            *([partial(tasks.work, "records", user.pk)] if number % 5 == 0 else []),
        )

        failed += [repr(rival.error) for rival in rivals if not ends_by_erasure(rival.error)]
        failed += [f"{what}: {code}" for what, code in answers.items() if code not in (202, 404)]
        assert answers["erase"] == 202 or failed

    assert failed == [], f"{len(failed)} of {ROUNDS}"

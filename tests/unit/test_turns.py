"""Fair turns of workspaces: none keeps the others waiting, and no hint is forgotten."""

import itertools
from collections.abc import Sequence

import pytest
from celery import Celery

from workers.service import fair_turns
from workers.service.fair_turns import BACKGROUND_SECONDS, CurrentWork, FairTask, Hint, Turns

LONG = 5.0
SHORT = 0.01
THREADS = 4


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def worker(clock: Clock) -> Turns:
    return Turns(THREADS, clock)


_numbers = itertools.count()


def hint(workspace: int | None, kind: str = "query") -> Hint:
    return Hint("runs", next(_numbers), workspace, kind=kind)


def take(worker: Turns, clock: Clock, workspace: int, seconds: float, kind: str = "query") -> None:
    """Do a piece of work that takes so long."""
    work = worker.begin(hint(workspace, kind))
    assert work is not None
    clock.now += seconds
    worker.end(work)


def begun(worker: Turns, workspace: int | None, kind: str = "query") -> list[CurrentWork]:
    """Begin as many of the pieces of work as are let in."""
    works = [worker.begin(hint(workspace, kind)) for _ in range(3 * THREADS)]
    return [work for work in works if work is not None]


def test_short_work_of_a_workspace_leaves_one_thread(worker: Turns, clock: Clock) -> None:
    take(worker, clock, 1, SHORT)

    assert len(begun(worker, 1)) == THREADS - 1
    assert worker.begin(hint(2)) is not None


def test_long_work_gets_half_of_the_threads_beside_others(worker: Turns, clock: Clock) -> None:
    take(worker, clock, 1, LONG)
    take(worker, clock, 2, SHORT)

    assert len(begun(worker, 1)) == THREADS // 2
    assert len(begun(worker, 2)) >= THREADS // 2


def test_alone_it_has_all_but_those_that_do_no_long_work(worker: Turns, clock: Clock) -> None:
    take(worker, clock, 2, SHORT)
    clock.now += fair_turns.ALONE_SECONDS + 1
    take(worker, clock, 1, LONG)

    assert len(begun(worker, 1)) == THREADS - 1


def test_long_work_of_many_leaves_one_thread(worker: Turns, clock: Clock) -> None:
    for workspace in range(1, 6):
        take(worker, clock, workspace, LONG)

    assert sum(len(begun(worker, workspace)) for workspace in range(1, 6)) == THREADS - 1
    assert worker.begin(hint(7)) is not None


def test_work_in_progress_counts_as_long_once_it_takes_long(worker: Turns, clock: Clock) -> None:
    take(worker, clock, 2, LONG)
    works = begun(worker, 1)
    assert len(works) == THREADS - 1
    clock.now += fair_turns.LONG_SECONDS + 0.01

    assert worker.begin(hint(2)) is None


def test_short_work_passes_long_work_of_its_workspace(worker: Turns, clock: Clock) -> None:
    take(worker, clock, 1, LONG, "proposal")
    take(worker, clock, 2, SHORT)
    assert len(begun(worker, 1, "proposal")) == THREADS // 2

    assert worker.begin(hint(1, "query")) is not None


def test_long_work_is_forgiven_in_time(worker: Turns, clock: Clock) -> None:
    take(worker, clock, 1, LONG)
    clock.now += 10 * fair_turns.HALF_LIFE_SECONDS
    take(worker, clock, 2, SHORT)

    assert len(begun(worker, 1)) == THREADS - 1


def test_short_work_does_not_hide_long_work(worker: Turns, clock: Clock) -> None:
    take(worker, clock, 1, LONG)
    for _ in range(50):
        take(worker, clock, 1, SHORT)
    take(worker, clock, 2, SHORT)

    assert len(begun(worker, 1)) == THREADS // 2


def test_held_hints_are_sent_cheapest_workspace_first(worker: Turns, clock: Clock) -> None:
    for workspace, seconds in ((1, 4 * LONG), (2, LONG), (3, LONG / 2)):
        take(worker, clock, workspace, seconds)
    works = begun(worker, 1)
    third = [worker.begin(hint(2)), worker.begin(hint(3)), worker.begin(hint(3))]
    assert [work is not None for work in third] == [True, False, False]

    # Given a thread that has become free, of the workspace that has cost the most
    again = worker.end(works[0])

    assert again is not None
    assert again.workspace == 3


@pytest.mark.parametrize("task", ["forecasts", "backtests"])
@pytest.mark.parametrize("workspace", [1, 2])
def test_query_goes_before_waiting_background_work(clock: Clock, task: str, workspace: int) -> None:
    worker, under_way, waiting, query = background_and_a_query(clock, task, workspace)
    assert [worker.begin(one) for one in (*waiting, query)] == [None] * 4

    assert worker.end(under_way) == query


def test_a_forecast_that_has_waited_for_a_minute_takes_its_turn_by_cost(clock: Clock) -> None:
    worker, under_way, waiting, query = background_and_a_query(clock, "forecasts", workspace=2)
    assert [worker.begin(one) for one in (*waiting, query)] == [None] * 4
    clock.now += BACKGROUND_SECONDS

    assert worker.end(under_way) == waiting[0]


def background_and_a_query(
    clock: Clock, task: str, workspace: int
) -> tuple[Turns, CurrentWork, list[Hint], Hint]:
    """Return a worker of two threads with a long piece of work, and what cannot begin beside it:
    background work of a workspace, and a query of workspace 1, which has cost more."""
    worker = Turns(2, clock)
    first, *waiting = [Hint(task, number, workspace) for number in range(4)]
    for one in (hint(1), hint(1), first):
        work = worker.begin(one)
        assert work is not None
        clock.now += LONG
        worker.end(work)
    under_way = worker.begin(hint(3))
    assert under_way is not None
    clock.now += LONG
    return worker, under_way, waiting, hint(1)


def test_a_hint_that_is_held_already_is_held_once(worker: Turns, clock: Clock) -> None:
    take(worker, clock, 1, LONG)
    take(worker, clock, 2, SHORT)
    first, second = (worker.begin(hint(1)) for _ in range(2))
    assert first is not None
    assert second is not None
    same = hint(1)
    for user in (None, 3, 4):  # whoever sent it
        again = Hint(same.work, same.key, 1, user, kind="query")
        assert worker.begin(again) is None

    assert worker.end(first) == same
    assert worker.end(second) is None


def test_no_more_is_held_than_there_is_room_for(
    worker: Turns, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_turns, "MAX_HELD", 2)
    take(worker, clock, 1, LONG)
    take(worker, clock, 2, SHORT)
    works = begun(worker, 1)

    sent = [worker.end(work) for work in works]

    assert all(sent)
    assert worker.begin(hint(2)) is not None
    ends = [worker.begin(one) for one in sent if one]
    assert [worker.end(work) for work in ends if work] == [None, None]


def test_work_without_a_workspace_never_waits(worker: Turns) -> None:
    assert len(begun(worker, None)) == 3 * THREADS


def test_a_worker_with_one_thread_does_what_comes(clock: Clock) -> None:
    worker = Turns(1, clock)
    take(worker, clock, 1, LONG)
    assert worker.begin(hint(1)) is not None


def test_language_model_work_has_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(fair_turns, "_turns", Turns(3))
    monkeypatch.setattr(fair_turns, "send_hint", lambda kind, key, **owner: sent.append(kind))

    begun: list[int] = []

    app = Celery("turns", task_cls=FairTask, set_as_current=False)

    @app.task(name="workers.structure", bind=True)
    def structure(task: FairTask, key: int, others: Sequence[int]) -> bool:
        begun.append(task.request.get("workspace"))
        begin(others)
        return True

    def begin(workspaces: Sequence[int]) -> None:
        """Begin tasks of these workspaces, each while the tasks before it go on."""
        if workspaces:
            structure.push_request(workspace=workspaces[0])
            if not structure(next(_numbers), workspaces[1:]):
                begin(workspaces[1:])
            structure.pop_request()

    begin([1, 1, 1, 1, 2])

    assert begun == [1, 1, 2]
    assert sent == ["structure"] * 2

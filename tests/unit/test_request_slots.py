"""Turns of callers whose work is costly: each gets its share of a processor, and no more."""

import pytest

from memory.admission import request_slots
from memory.admission.request_slots import Pace


class Clock:
    """A clock that only work and waiting move."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.computed = 50.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.computed

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.now += seconds

    def compute(self, seconds: float) -> None:
        self.now += seconds
        self.computed += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(request_slots, "time", clock)
    return clock


def work(pace: Pace, whose: str, clock: Clock, seconds: float = 1.0) -> bool:
    with pace.turn(whose) as came:
        if came:
            clock.compute(seconds)
        return came


def test_a_caller_rests_in_proportion_to_its_work(clock: Clock) -> None:
    pace = Pace(share=0.2, patience=60)
    for seconds in (1.0, 0.5, 0.1):
        assert work(pace, "a", clock, seconds)
    assert clock.slept == [0, 4, 2]


def test_time_that_passes_counts_as_rest(clock: Clock) -> None:
    pace = Pace(share=0.2, patience=60)
    for idle in (3, 100, 0):
        work(pace, "a", clock)
        clock.now += idle
    assert clock.slept == [0, 1, 0]


def test_waiting_within_a_turn_is_not_counted(clock: Clock) -> None:
    pace = Pace(share=0.2, patience=60)
    with pace.turn("a"):
        clock.now += 10  # the database or another thread works
    work(pace, "a", clock)
    assert clock.slept == [0, 0]


def test_another_caller_does_not_wait(clock: Clock) -> None:
    pace = Pace(share=0.2, patience=60)
    work(pace, "a", clock)
    work(pace, "b", clock)
    assert clock.slept == [0, 0]


def test_a_caller_that_would_wait_too_long_is_refused_at_once(clock: Clock) -> None:
    pace = Pace(share=0.2, patience=3.5)
    assert work(pace, "a", clock)
    assert not work(pace, "a", clock)
    clock.now += 1
    assert work(pace, "a", clock)
    assert clock.slept == [0, 3]


def test_work_that_fails_counts_as_well(clock: Clock) -> None:
    pace = Pace(share=0.2, patience=60)

    def fail() -> None:
        clock.compute(1.0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"), pace.turn("a"):
        fail()
    work(pace, "a", clock)
    assert clock.slept == [0, 4]


def test_turns_at_the_same_time_add_up(clock: Clock) -> None:
    pace = Pace(share=0.2, patience=60)
    with pace.turn("a"), pace.turn("a"):
        clock.compute(1.0)
    work(pace, "a", clock)
    assert clock.slept == [0, 0, 8]

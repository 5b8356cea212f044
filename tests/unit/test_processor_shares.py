"""Shares of processor time: a workspace that uses more waits while others are active."""

import pytest

from memory.kernel.admission import shares as processor_shares
from memory.kernel.admission import slots
from memory.kernel.admission.shares import (
    ACTIVE_SECONDS,
    BURST_SECONDS,
    MAX_DEBT_SECONDS,
    MAX_WAIT_SECONDS,
    REMEMBERED_SECONDS,
    ProcessorShares,
)
from memory.kernel.admission.slots import Slots

SHARE = 0.2


class Clock:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(processor_shares, "time", clock)
    monkeypatch.setattr(slots, "WAITING", Slots(4, factor=1))
    return clock


@pytest.fixture
def shares(clock: Clock) -> ProcessorShares:
    """Shares of a process in which workspace b has just made a request."""
    shares = ProcessorShares()
    assert shares.admit("b", SHARE) == 0
    return shares


def test_workspace_waits_until_its_share_has_paid(shares: ProcessorShares, clock: Clock) -> None:
    shares.charge("a", BURST_SECONDS, SHARE)
    assert shares.admit("a", SHARE) == 0
    assert clock.slept == []

    for used in (0.1, 0.3):
        shares.charge("a", used, SHARE)
        assert shares.admit("a", SHARE) == 0
    assert clock.slept == [0.5, 1.5]


def test_idle_time_saves_up_a_burst_at_most(shares: ProcessorShares, clock: Clock) -> None:
    shares.charge("a", BURST_SECONDS + 0.2, SHARE)
    clock.now += 0.4
    assert shares.admit("a", SHARE) == 0
    for _ in range(100):
        clock.now += 1
        assert (shares.admit("a", SHARE), shares.admit("b", SHARE)) == (0, 0)
    shares.charge("a", BURST_SECONDS + 0.2, SHARE)
    assert shares.admit("a", SHARE) == 0
    assert clock.slept == [0.6, 1.0]


def test_another_workspace_does_not_wait(shares: ProcessorShares, clock: Clock) -> None:
    shares.charge("a", 100, SHARE)
    assert shares.admit("b", SHARE) == 0
    assert clock.slept == []


def test_only_active_workspace_is_unlimited(shares: ProcessorShares, clock: Clock) -> None:
    shares.charge("a", BURST_SECONDS + SHARE * 10, SHARE)
    assert shares.admit("a", SHARE) == pytest.approx(10)
    clock.now += ACTIVE_SECONDS
    for _ in range(3):
        assert shares.admit("a", SHARE) == 0
        shares.charge("a", 100, SHARE)
    # When others return, only what it used while they were active counts
    assert shares.admit("b", SHARE) == 0
    assert shares.admit("a", SHARE) == pytest.approx(10 - ACTIVE_SECONDS)
    assert clock.slept == []


def test_use_of_long_ago_is_forgotten(shares: ProcessorShares, clock: Clock) -> None:
    for number in range(100):
        shares.charge(number, 0.1, SHARE)
    clock.now += REMEMBERED_SECONDS + ACTIVE_SECONDS + 1
    shares.charge("a", 0.1, SHARE)
    assert list(shares._usage) == ["a"]


def test_request_that_waits_too_long_is_refused(shares: ProcessorShares, clock: Clock) -> None:
    longer = MAX_WAIT_SECONDS + 1
    shares.charge("a", BURST_SECONDS + SHARE * longer, SHARE)
    assert shares.admit("a", SHARE) == pytest.approx(longer)
    assert clock.slept == []

    clock.now += 1
    assert (shares.admit("b", SHARE), shares.admit("a", SHARE)) == (0, 0)
    assert clock.slept == [MAX_WAIT_SECONDS]


def test_no_workspace_is_refused_for_long(shares: ProcessorShares, clock: Clock) -> None:
    shares.charge("a", 10_000, SHARE)
    assert shares.admit("a", SHARE) == pytest.approx(MAX_DEBT_SECONDS)


def test_waiting_requests_leave_slots_to_others(shares: ProcessorShares, clock: Clock) -> None:
    shares.charge("a", BURST_SECONDS + 0.2, SHARE)
    shares.charge("b", BURST_SECONDS + 0.2, SHARE)
    with slots.WAITING.take("a"), slots.WAITING.take("a"):
        assert shares.admit("a", SHARE) == pytest.approx(1)
        assert clock.slept == []
        assert shares.admit("b", SHARE) == 0
    assert clock.slept == [1]
    # And a slot that was taken is free again
    shares.charge("a", 0.2, SHARE)
    assert shares.admit("a", SHARE) == 0


def test_each_workspace_has_its_own_share(shares: ProcessorShares, clock: Clock) -> None:
    shares.charge("a", BURST_SECONDS + 0.1, 0.1)
    shares.charge("b", BURST_SECONDS + 0.1, 0.4)
    assert (shares.admit("b", 0.4), shares.admit("a", 0.1)) == (0, 0)
    assert clock.slept == [0.25, 0.75]


def test_workspace_without_limit_is_active(shares: ProcessorShares, clock: Clock) -> None:
    clock.now += ACTIVE_SECONDS
    shares.charge("all", 100, 1.0)
    assert shares.admit("all", 1.0) == 0
    assert clock.slept == []
    shares.charge("a", BURST_SECONDS + 0.1, SHARE)
    assert shares.admit("a", SHARE) == 0
    assert clock.slept == [0.5]

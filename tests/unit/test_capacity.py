"""The simulation behind docs/capacity.md follows the laws of queues; the document has its table."""

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.capacity import COEFFICIENTS, USERS, simulated
from benchmarks.capacity import text as table
from benchmarks.capacity_model import Coefficients, Day, erlang_c, fifo

NUMBER = 200_000
DOCUMENT = Path(__file__).parents[2] / "docs" / "capacity.md"


def arrivals(
    chance: np.random.Generator, per_second: float
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.cumsum(chance.exponential(1 / per_second, NUMBER))


@pytest.mark.parametrize(("servers", "busy"), [(1, 0.5), (1, 0.8), (3, 0.7), (20, 0.85)])
def test_waits_are_those_of_erlang(servers: int, busy: float) -> None:
    chance = np.random.default_rng(1)
    coming = arrivals(chance, servers * busy)

    waits = fifo(coming, chance.exponential(1, NUMBER), servers)

    must_wait = erlang_c(servers * busy, servers)
    assert float((waits > 0).mean()) == pytest.approx(must_wait, rel=0.08)
    assert float(waits.mean()) == pytest.approx(must_wait / (servers * (1 - busy)), rel=0.12)


def test_erlangs_formula_is_right_where_it_is_known() -> None:
    assert erlang_c(0.5, 1) == pytest.approx(0.5)  # with one server, its own load
    assert erlang_c(2, 3) == pytest.approx(4 / 9)


def test_queue_is_served_in_order_by_one_server_each() -> None:
    waits = fifo(np.array([0.0, 1, 1, 2]), np.array([10.0, 1, 5, 1]), 2)

    assert waits.tolist() == [0, 0, 1, 5]


def test_a_day_has_its_requests_and_its_peak() -> None:
    day = Day(10_000, Coefficients.read(COEFFICIENTS))

    coming = day.arrivals(100_000)

    assert len(coming) == pytest.approx(100_000, abs=4 * math.sqrt(100_000))
    by_hour = np.bincount((coming // 3600).astype(int), minlength=24)
    assert int(by_hour.argmax()) in (19, 20)
    assert by_hour[19] == pytest.approx(len(day.arrivals(100_000, 19)), rel=0.1)


def test_ten_times_the_users_take_less_than_ten_times_the_servers() -> None:
    small, large = simulated([20_000, 200_000])

    for few, many in zip(small.stations, large.stations, strict=True):
        assert few.servers <= many.servers <= 10 * few.servers
        assert many.busy <= 0.71


def test_the_document_has_the_table_that_the_command_prints() -> None:
    assert table(simulated(USERS)) in DOCUMENT.read_text()

"""The check that no record is lost finds an inserted fault of every kind, and nothing else."""

from dataclasses import replace

import pytest

from memory.project import Record, RecordId, Value
from workers.gate.project_checks import losses


def record(key: str, cost: Value) -> tuple[RecordId, Record]:
    """A record with its place."""
    return RecordId("travel", "trips", key), Record("Trip", key, {"cost": cost}, (1,))


TRUE = [record("a", 1), record("b", 2.5), record("c", None)]


@pytest.mark.parametrize(
    ("after", "codes"),
    [
        pytest.param(TRUE, [], id="all there"),
        pytest.param(list(reversed(TRUE)), [], id="in another order"),
        pytest.param(TRUE[1:], ["record_lost"], id="record_lost"),
        pytest.param([], ["record_lost", "record_lost", "record_lost"], id="all lost"),
        pytest.param([*TRUE, record("d", 1)], ["record_unexpected"], id="from nowhere"),
        pytest.param([*TRUE, record("a", 1)], ["record_doubled"], id="twice"),
        pytest.param(
            [*TRUE, record("a", 2)], ["record_doubled", "record_changed"], id="twice, once wrong"
        ),
        pytest.param([record("a", 2), *TRUE[1:]], ["record_changed"], id="another value"),
        pytest.param([record("a", 1.0), *TRUE[1:]], ["record_changed"], id="another type"),
        pytest.param([record("a", True), *TRUE[1:]], ["record_changed"], id="true is not one"),
        pytest.param([record("a", "1"), *TRUE[1:]], ["record_changed"], id="its text"),
        pytest.param(
            [(TRUE[0][0], replace(TRUE[0][1], sources=(2,))), *TRUE[1:]],
            ["record_changed"],
            id="sources",
        ),
        pytest.param(
            [(TRUE[0][0], TRUE[1][1]), (TRUE[1][0], TRUE[0][1]), TRUE[2]],
            ["record_changed", "record_changed"],
            id="exchanged",
        ),
    ],
)
def test_faults_are_found(after: list[tuple[RecordId, Record]], codes: list[str]) -> None:
    assert [finding.code for finding in losses(dict(TRUE), after)] == codes

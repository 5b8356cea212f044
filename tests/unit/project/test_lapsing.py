"""The last day on which a record holds, read from its line without parsing its file."""

import datetime

import pytest

from memory.project import RecordEntry, compile_record
from memory.project.apply import apply
from memory.project.model import Project
from memory.project.parse import find_record, last_day_in, sources_in
from memory.project.types import format_type
from memory.project.values import PartialDate, last_day_of
from sandbox_image.uac.records import LAPSES_AFTER
from tests.steps import not_none


def state_of(*datas: dict[str, object]) -> str:
    """Return the state file of records with these data."""
    project = Project.empty()
    for seq, data in enumerate(datas, 1):
        entry = RecordEntry(seq, "home", "Lease", f"l{seq}", data=data)
        for edit in compile_record(project, entry):
            apply(project, edit)
    return not_none(project.change().files["domains/home/state.py"])


def test_the_last_day_is_that_of_the_field_and_not_of_a_text() -> None:
    source = state_of(
        {"name": 'x, lapses_after=datetime.date(2020, 1, 1), sources=(9,)),"', LAPSES_AFTER: None},
        {"name": "y", LAPSES_AFTER: "2026-05-01"},
        {"name": "z"},
    )
    lines = [not_none(find_record(source, "leases", key)) for key in ("l1", "l2", "l3")]

    assert [last_day_in(line) for line in lines] == [None, datetime.date(2026, 5, 1), None]
    assert [sources_in(line) for line in lines] == [(1,), (2,), (3,)]
    assert find_record(source, "leases", "l4") is None


@pytest.mark.parametrize(
    ("value", "day"),
    [
        (datetime.date(2026, 5, 1), datetime.date(2026, 5, 1)),
        (PartialDate("2026-05"), datetime.date(2026, 5, 31)),
        (datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC), None),
        ("2026-05-01", None),
        (None, None),
    ],
)
def test_only_a_date_is_a_last_day(value: object, day: datetime.date | None) -> None:
    assert last_day_of(value) == day


def test_a_class_whose_first_record_lapses_does_not_require_it() -> None:
    entry = RecordEntry(1, "home", "Lease", "l1", data={"name": "x", LAPSES_AFTER: "2026-05-01"})
    project = Project.empty()
    for edit in compile_record(project, entry):
        apply(project, edit)

    (field,) = (
        one
        for one in project.outline.domains["home"].classes["Lease"].fields
        if one.name == LAPSES_AFTER
    )

    assert (format_type(field.type), field.default) == ("datetime.date | None", None)

"""Tests for conflicting_instructions: when it alerts, when it does not, and the boundary days."""

import datetime

from uac import Alert, PartialDate, Severity
from uac.testing import run_check
from workspace.constraints import conflicting_instructions

TODAY = datetime.date(2026, 3, 10)
SINCE = datetime.date(2026, 1, 5)


def instruction(
    key: str,
    value: str | bool,
    subject: str = "Deliveries",
    scope: str = "",
    given_on: datetime.date | PartialDate | None = None,
    ends_on: datetime.date | PartialDate | None = None,
) -> conflicting_instructions.Instruction:
    return conflicting_instructions.Instruction(
        key=key, subject=subject, value=value, scope=scope, given_on=given_on, ends_on=ends_on
    )


def alerts(*given: conflicting_instructions.Instruction) -> list[Alert]:
    return run_check(conflicting_instructions, today=TODAY, instructions=list(given))


def test_says_what_contradicts_what_and_since_when() -> None:
    door = instruction("i-1", "leave at the door", given_on=SINCE)
    neighbour = instruction("i-2", "give to the neighbour")
    (alert,) = alerts(neighbour, door)
    assert alert.severity is Severity.WARNING
    assert alert.message == (
        "Instructions on Deliveries contradict each other: “leave at the door” (since 2026-01-05)"
        " versus “give to the neighbour”"
    )
    assert alert.evidence == (door, neighbour)


def test_speaks_or_is_silent_by_subject_scope_and_value() -> None:
    door = instruction("i-1", "at the door", scope="weekdays")
    for other, speaks in (
        (instruction("i-2", "to the neighbour", scope="weekdays"), True),
        (instruction("i-2", "to the neighbour", subject=" DELIVERIES ", scope="Weekdays"), True),
        (instruction("i-2", " At the  door", scope="weekdays"), False),
        (instruction("i-2", "to the neighbour", scope="weekends"), False),
        (instruction("i-2", "to the neighbour"), False),
        (instruction("i-2", "to the neighbour", subject="Letters", scope="weekdays"), False),
    ):
        assert bool(alerts(door, other)) is speaks, other


def test_the_scope_is_told() -> None:
    (alert,) = alerts(
        instruction("a", True, scope="travel"), instruction("b", False, scope="travel")
    )
    assert alert.message == (
        "Instructions on Deliveries (travel) contradict each other: “True” versus “False”"
    )


def test_boundary_days_of_being_in_force() -> None:
    for given_on, ends_on, speaks in (
        (TODAY, None, True),
        (datetime.date(2026, 3, 11), None, False),
        (None, TODAY, True),
        (None, datetime.date(2026, 3, 9), False),
        (PartialDate("2026-03"), None, True),
        (PartialDate("2026-04"), None, False),
        (None, PartialDate("2026-03"), True),
        (None, PartialDate("2026-02"), False),
    ):
        other = instruction("b", "no", given_on=given_on, ends_on=ends_on)
        assert bool(alerts(instruction("a", "yes"), other)) is speaks, (given_on, ends_on)


def test_silent_where_one_is_over() -> None:
    off = conflicting_instructions.Instruction(
        key="b", subject="Deliveries", value="no", active=False
    )
    revoked = conflicting_instructions.Instruction(
        key="c", subject="Deliveries", value="no", status="Superseded"
    )
    assert alerts(instruction("a", "yes"), off, revoked) == []


def test_three_are_one_alert_and_the_same_value_is_said_once() -> None:
    found = alerts(instruction("c", "no"), instruction("a", "yes"), instruction("b", "no"))
    assert [[record.key for record in alert.evidence] for alert in found] == [["a", "b", "c"]]
    assert found[0].message.endswith("“yes” versus “no”")


def test_the_order_is_that_of_the_subjects() -> None:
    found = alerts(
        *(
            instruction(f"{subject}-{value}", value, subject=subject)
            for subject in ("music", "food")
            for value in ("yes", "no")
        )
    )
    assert [alert.evidence[0].key for alert in found] == ["food-no", "music-no"]

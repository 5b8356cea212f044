"""Two standing instructions on the same subject must not contradict each other.

Raises a warning for each subject, or each scope of a subject, for which instructions with different
values are in force today. All instructions in force on that subject or scope are the evidence. Case
and extra spaces make no difference. An instruction is in force from the day on which it was given
through the day on which it ends. If only the month or year is known, the instruction begins on the
first day of that month or year, or ends on the last.

Needs instructions with a subject and a value.

Does not consider that differently worded subjects or values may mean the same, that one instruction
may restrict another, or which of two conflicting instructions is valid: ask the user.
"""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from uac import Alert, PartialDate, Record, warning

ALSO = {
    "Instruction": ("StandingInstruction", "Directive", "StandingOrder", "Rule", "Setting"),
    "Instruction.subject": ("topic", "about", "matter", "name", "title", "setting"),
    "Instruction.value": ("instruction", "choice", "answer", "decision", "text", "says"),
    "Instruction.scope": ("context", "applies_to", "situation"),
    "Instruction.given_on": ("starts_on", "start_date", "since", "noted_on", "date", "stated_on"),
    "Instruction.ends_on": ("ended_on", "end_date", "valid_until", "revoked_on", "until"),
    "Instruction.active": ("is_active", "in_force", "current"),
}

OVER = ("revoked", "ended", "superseded", "replaced", "inactive", "cancelled", "canceled")


@dataclass(kw_only=True)
class Instruction(Record):
    """The user's standing instruction on a subject."""

    subject: str
    value: str | int | float | bool | Decimal
    scope: str = ""
    given_on: datetime.date | PartialDate | None = None
    ends_on: datetime.date | PartialDate | None = None
    active: bool = True
    status: str = ""


def check(today: datetime.date, instructions: Sequence[Instruction]) -> Iterator[Alert]:
    """Two standing instructions on the same subject must not contradict each other."""
    subjects: dict[tuple[str, str], list[Instruction]] = {}
    for one in sorted(instructions, key=lambda one: one.key):
        if is_in_force(one, today):
            subjects.setdefault((plain(one.subject), plain(one.scope)), []).append(one)
    for _, group in sorted(subjects.items()):
        if len({plain(str(one.value)) for one in group}) > 1:
            scope = f" ({group[0].scope.strip()})" if group[0].scope.strip() else ""
            values = " versus ".join(dict.fromkeys(in_words(one) for one in group))
            yield warning(
                f"Instructions on {group[0].subject.strip()}{scope} contradict each other:"
                f" {values}",
                evidence=group,
            )


def is_in_force(instruction: Instruction, today: datetime.date) -> bool:
    """Return whether the instruction is in force today."""
    begins, ends = instruction.given_on, instruction.ends_on
    begun = begins is None or first(begins) <= today
    over = ends is not None and ends < today
    stopped = instruction.status.strip().casefold() in OVER
    return instruction.active and begun and not over and not stopped


def first(day: datetime.date | PartialDate) -> datetime.date:
    """The first day of a date, which may be a whole month or year."""
    return day.earliest if isinstance(day, PartialDate) else day


def in_words(instruction: Instruction) -> str:
    """Describe the instruction, including the date since which it has been in force."""
    since = f" (since {instruction.given_on})" if instruction.given_on else ""
    return f"“{str(instruction.value).strip()}”{since}"


def plain(text: str) -> str:
    """The text, normalised for comparison."""
    return " ".join(text.casefold().split())

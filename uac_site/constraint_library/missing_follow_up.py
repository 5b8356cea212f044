"""A case that requires a follow-up by a certain day must be followed up by then.

Raises a warning for each case whose follow-up day has passed, unless the case is marked as done or
a follow-up on the case is recorded. The warning starts on the day after the follow-up day and ends
after 180 days. A follow-up must name the case's key or title, and must not be earlier than the case
itself. If only the month or year of the follow-up day is known, the last day of that month or year
is used.

Needs cases with a title and the day by which to follow up, which may be empty. Follow-ups, and
whether and when a case was closed, are used if they are recorded.

Does not consider follow-ups that name neither the key nor the title, or whether a follow-up did
what was required.
"""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uac import Alert, PartialDate, Record, warning

ALSO = {
    "Case": (
        "Visit",
        "MedicalVisit",
        "DoctorVisit",
        "Consultation",
        "LabResult",
        "Referral",
        "TestResult",
        "Ticket",
        "SupportCase",
        "Complaint",
        "Issue",
        "Lead",
        "Request",
        "Inquiry",
        "Meeting",
    ),
    "Case.title": ("subject", "name", "reason", "summary", "test", "about", "topic", "what"),
    "Case.follow_up_by": (
        "follow_up_on",
        "follow_up_due",
        "follow_up_date",
        "follow_up",
        "next_visit_by",
        "recheck_on",
        "recheck_by",
        "respond_by",
        "call_back_by",
    ),
    "Case.opened_on": ("date", "on", "visited_on", "created_on", "noted_on", "opened"),
    "Case.followed_up_on": ("closed_on", "resolved_on", "answered_on", "completed_on"),
    "Case.followed_up": ("follow_up_done", "done", "closed", "resolved", "completed", "answered"),
    "FollowUp": ("FollowUpVisit", "CallBack", "Reply", "Response", "Recheck"),
    "FollowUp.about": ("case", "of", "subject", "title", "reference", "regarding", "topic"),
    "FollowUp.done_on": ("date", "on", "visited_on", "completed_on", "called_on", "sent_on"),
}

TOLD_DAYS = 180
CLOSED = ("closed", "resolved", "done", "completed", "answered", "cancelled", "canceled")


@dataclass(kw_only=True)
class Case(Record):
    """A visit, a result or a request that calls for a follow-up."""

    title: str
    follow_up_by: datetime.date | PartialDate | None
    opened_on: datetime.date | PartialDate | None = None
    followed_up_on: datetime.date | PartialDate | None = None
    followed_up: bool = False
    status: str = ""


@dataclass(kw_only=True)
class FollowUp(Record):
    """Something that was done to follow up on a case."""

    about: str
    done_on: datetime.date | PartialDate | None = None


def check(
    today: datetime.date, cases: Sequence[Case], follow_ups: Sequence[FollowUp] = ()
) -> Iterator[Alert]:
    """A case that requires a follow-up by a certain day must be followed up by then."""
    about: dict[str, list[FollowUp]] = {}
    for one in follow_ups:
        about.setdefault(plain(one.about), []).append(one)
    waiting = [(one.follow_up_by, one) for one in cases if one.follow_up_by is not None]
    for day, case in sorted(waiting, key=lambda item: (last(item[0]), item[1].key)):
        late = (today - last(day)).days
        done = [*about.get(plain(case.key), []), *about.get(plain(case.title), [])]
        if 0 < late <= TOLD_DAYS and not is_closed(case, today):
            if any(answers(one, case, today) for one in done):
                continue
            yield warning(
                f"{case.title.strip()}: no follow-up is recorded; one was due"
                f" {'by' if first(day) == last(day) else 'in'} {day}",
                evidence=[case],
            )


def is_closed(case: Case, today: datetime.date) -> bool:
    """Return whether the case is marked as followed up or closed."""
    day = case.followed_up_on
    return (
        case.followed_up
        or case.status.strip().casefold() in CLOSED
        or (day is not None and first(day) <= today)
    )


def answers(follow_up: FollowUp, case: Case, today: datetime.date) -> bool:
    """Return whether the follow-up is neither earlier than the case nor in the future."""
    day, opened = follow_up.done_on, case.opened_on
    if day is None:
        return True
    return first(day) <= today and (opened is None or last(day) >= first(opened))


def first(day: datetime.date | PartialDate) -> datetime.date:
    """The first day of a date, which may be a whole month or year."""
    return day.earliest if isinstance(day, PartialDate) else day


def last(day: datetime.date | PartialDate) -> datetime.date:
    """The last day of a date, which may be a whole month or year."""
    return day.latest if isinstance(day, PartialDate) else day


def plain(text: str) -> str:
    """The text, normalised for comparison."""
    return " ".join(text.casefold().split())

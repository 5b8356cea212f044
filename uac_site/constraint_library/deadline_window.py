"""An approaching deadline or renewal must be met in time.

Raises an alert for each deadline that has not been met. It is an info alert from 30 days before the
last day, a warning from 7 days before, and critical from the day before. The alert stays critical
for 30 days after the last day and then ends, because anything overdue for longer is dealt with
elsewhere. If notice has to be given some days in advance, the last day is the day on which the
notice is due. If only the month or year of the deadline is known, the first day of that month or
year is used, so that the alert never comes too late.

Needs records with a title and a due day, which may be empty. Whether a deadline has been met, and
how many days in advance notice has to be given, are used if they are recorded.

Does not consider business days and holidays, deadlines that follow from other deadlines, or whether
an automatic renewal is wanted.
"""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uac import Alert, PartialDate, Record, critical, info, warning

ALSO = {
    "Deadline": (
        "DueDate",
        "Task",
        "Todo",
        "Obligation",
        "Filing",
        "TaxFiling",
        "Renewal",
        "Lease",
        "Contract",
        "Warranty",
        "License",
        "Licence",
        "DriversLicense",
        "Permit",
        "Membership",
        "Certificate",
        "InsurancePolicy",
        "PromotionalRate",
    ),
    "Deadline.title": (
        "name",
        "task",
        "subject",
        "description",
        "what",
        "product",
        "provider",
        "kind",
    ),
    "Deadline.due_on": (
        "due",
        "due_date",
        "deadline",
        "due_by",
        "expires_on",
        "expiry_date",
        "expiration_date",
        "renews_on",
        "renewal_date",
        "ends_on",
        "end_date",
        "valid_until",
    ),
    "Deadline.notice_days": ("notice_period_days", "notice_period", "days_notice"),
    "Deadline.done": ("completed", "is_done", "filed", "renewed", "paid", "submitted", "cancelled"),
    "Deadline.done_on": ("completed_on", "filed_on", "renewed_on", "paid_on", "submitted_on"),
}

# How many days before the last day the alert starts, becomes a warning, and becomes critical.
EARLY = 30
SOON = 7
NOW = 1
# How many days after the last day the constraint keeps alerting.
LATE = 30
SETTLED = (
    *("done", "completed", "complete", "filed", "renewed", "paid", "submitted", "cancelled"),
    *("canceled", "closed", "resolved"),
)


@dataclass(kw_only=True)
class Deadline(Record):
    """Something that has to be done or renewed by a given day."""

    title: str
    due_on: datetime.date | PartialDate | None
    notice_days: int | None = None
    done: bool = False
    done_on: datetime.date | PartialDate | None = None
    status: str = ""


def check(today: datetime.date, deadlines: Sequence[Deadline]) -> Iterator[Alert]:
    """An approaching deadline or renewal must be met in time."""
    open_ones = [(last_day(one), one) for one in deadlines if not is_settled(one)]
    for day, deadline in sorted(open_ones, key=lambda item: (item[0], item[1].key)):
        left = (day - today).days
        if not -LATE <= left <= EARLY:
            continue
        raised = critical if left <= NOW else warning if left <= SOON else info
        yield raised(message(deadline, day, late=left < 0), evidence=[deadline])


def is_settled(deadline: Deadline) -> bool:
    """Return whether nothing is left to do, or the due day is not known."""
    return (
        deadline.due_on is None
        or deadline.done
        or deadline.done_on is not None
        or deadline.status.strip().casefold() in SETTLED
    )


def last_day(deadline: Deadline) -> datetime.date:
    """The last day on which something can be done about the deadline."""
    due = deadline.due_on
    if due is None:
        return datetime.date.max
    if isinstance(due, PartialDate):  # "by the end of 2026" has no first day
        due = due.latest if due.earliest == datetime.date.min else due.earliest
    # A long notice period could reach back beyond the first day that a date can represent.
    return datetime.date.fromordinal(max(due.toordinal() - max(deadline.notice_days or 0, 0), 1))


def message(deadline: Deadline, day: datetime.date, *, late: bool) -> str:
    """Describe what is due and when, worded the same every day so that it is reported only once."""
    title = deadline.title.strip()
    was = "was" if late else "is"
    if (deadline.notice_days or 0) > 0:
        days = "day's" if deadline.notice_days == 1 else "days'"
        notice = f"{deadline.notice_days} {days} notice for {deadline.due_on}"
        return f"{title}: {notice} {was} due by {day}"
    return f"{title} {was} due {'in' if is_partial(deadline) else 'on'} {deadline.due_on}"


def is_partial(deadline: Deadline) -> bool:
    """Return whether the due day is only known to be one of several."""
    due = deadline.due_on
    return isinstance(due, PartialDate) and due.earliest != due.latest

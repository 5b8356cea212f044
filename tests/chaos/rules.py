"""A constraint for all users of a workspace: nobody is paid for buying something."""

SOURCE = '''"""Purchases for less than nothing."""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uac import Alert, Record, warning


@dataclass(kw_only=True)
class Purchase(Record):
    """Something that was bought."""

    what: str
    cents: int


def check(today: datetime.date, purchases: Sequence[Purchase]) -> Iterator[Alert]:
    """Nobody is paid for buying something."""
    for purchase in purchases:
        if purchase.cents < 0:
            yield warning(f"{purchase.what} for {purchase.cents} cents", evidence=[purchase])
'''
TESTS = '''"""Speaks of negative amounts alone."""

import datetime

from uac.testing import run_check
from workspace.constraints import overpaid

TODAY = datetime.date(2026, 3, 1)


def purchase(cents: int) -> overpaid.Purchase:
    """Return a purchase."""
    return overpaid.Purchase(key="p", what="tea", cents=cents)


def test_speaks() -> None:
    """A cent less than nothing is too little."""
    assert run_check(overpaid, today=TODAY, purchases=[purchase(-1)])


def test_is_silent() -> None:
    """A gift is none of our business."""
    assert not run_check(overpaid, today=TODAY, purchases=[purchase(0)])
'''
NAME = "overpaid"

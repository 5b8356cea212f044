"""A constraint for benchmarks: nobody is paid for buying something."""

CONSTRAINT = '''"""Purchases."""

import datetime
from collections.abc import Iterator

from domains.money.state import purchases
from uac import Alert, warning


def check(today: datetime.date) -> Iterator[Alert]:
    """Nobody is paid for buying something."""
    for purchase in purchases:
        if purchase.cents < 0:
            yield warning(f"{purchase.what} for {purchase.cents} cents", evidence=[purchase])
'''
CONSTRAINT_TESTS = '''"""Speaks of negative amounts alone."""

import datetime

from constraints import overpaid
from domains.money.schema import Purchase
from uac.testing import run_check

TODAY = datetime.date(2025, 3, 1)


def purchase(cents: int) -> Purchase:
    """Return a purchase."""
    return Purchase(key="p", what="tea", cents=cents, bought_on=TODAY)


def test_speaks() -> None:
    """A cent less than nothing is too little."""
    assert run_check(overpaid, today=TODAY, purchases=[purchase(-1)])


def test_is_silent() -> None:
    """A gift is none of our business."""
    assert not run_check(overpaid, today=TODAY, purchases=[purchase(0)])
'''
# The body of a request that proposes the constraint.
OVERPAID = {"source": CONSTRAINT, "tests": CONSTRAINT_TESTS}

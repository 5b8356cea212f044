"""Work by the clock, in this process."""

from collections.abc import Callable

import pytest

from memory.constraints import forecasts
from workers import tasks


@pytest.fixture
def settled(work: Callable[[], None]) -> Callable[[], None]:
    """Do the waiting work: the runs first, then the forecasts."""

    def do() -> None:
        work()
        for waiting in forecasts.waiting():
            tasks.work("forecasts", waiting.user_id)

    return do

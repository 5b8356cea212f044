"""Half a year of a few users: every alert on its day."""

import pytest
from pytest_django.fixtures import Settings

from memory.kernel.models.workspaces import Workspace
from tests.integration.time.simulated_year import simulate


@pytest.mark.timeout(900)  # half a minute, where the machine has nothing else to do
@pytest.mark.usefixtures("live_database")
def test_half_a_year_has_every_alert_on_its_day(workspace: Workspace, settings: Settings) -> None:
    settings.UAC_CLOCK_SECONDS = 4.0  # the default, which must not hold where clocks stand still

    rows, figures, problems = simulate(workspace, users=9, days=200, threads=2)

    assert problems == []
    assert (figures["wrong_days"], figures["twice"], figures["runs_too_many"]) == (0, 0, 0)
    assert (figures["without_forecast"], figures["failures"]) == (0, 0)
    assert figures["runs_per_user_and_year"] < 12
    for row in rows:
        assert min(row["opened"], row["resolved"]) > 0, row
    assert sum(row["changed"] for row in rows) > 0

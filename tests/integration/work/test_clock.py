"""The constraints run by the user's clock: daily, and by minutes where one takes the moment."""

import datetime
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import time_machine
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.kernel.daily_runs import next_daily_run
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.project import Outline
from memory.versions.models.runs import Run
from tests.factories import make_checkpoint
from tests.steps import due
from workers.service import dispatching

pytestmark = pytest.mark.django_db

Work = Callable[[], None]

# 09:00 in Berlin; the daily hour, 06:00, strikes next at 05:00 UTC.
MORNING = datetime.datetime(2026, 3, 2, 8, 0, tzinfo=datetime.UTC)
TOMORROW = datetime.datetime(2026, 3, 3, 5, 0, tzinfo=datetime.UTC)


def minutes(number: float) -> datetime.timedelta:
    return datetime.timedelta(minutes=number)


@pytest.fixture
def user(workspace: Workspace) -> MemoryUser:
    """A user of that time: one created later would not be due yet."""
    with time_machine.travel(MORNING - minutes(60)):
        return create_user(workspace, "ada", time_zone="Europe/Berlin", metadata=None)


# A zone, the days to check, the daily hour, and the days on which it does not strike.
ZONES = [
    pytest.param("Europe/Berlin", "2026-03-27", "2026-04-01", 2, [], id="gap"),
    pytest.param("Europe/Berlin", "2026-10-23", "2026-10-28", 2, [], id="overlap"),
    pytest.param("America/Sao_Paulo", "2018-11-02", "2018-11-07", 0, [], id="gap at midnight"),
    pytest.param("America/Sao_Paulo", "2018-02-15", "2018-02-20", 23, [], id="overlap at midnight"),
    pytest.param("Australia/Lord_Howe", "2026-10-02", "2026-10-07", 2, [], id="half an hour"),
    pytest.param("Australia/Lord_Howe", "2026-04-03", "2026-04-08", 1, [], id="half an hour back"),
    pytest.param("Africa/Casablanca", "2026-02-13", "2026-02-18", 2, [], id="Ramadan begins"),
    pytest.param("Africa/Casablanca", "2026-03-20", "2026-03-25", 2, [], id="Ramadan ends"),
    pytest.param("Pacific/Apia", "2011-12-28", "2012-01-02", 6, ["2011-12-30"], id="skipped day"),
    pytest.param("Pacific/Apia", "2011-12-28", "2012-01-02", 0, ["2011-12-30"], id="skipped, 0:00"),
]


@pytest.mark.parametrize(("zone", "first", "last", "hour", "skipped"), ZONES)
def test_each_day_of_the_calendar_has_one_daily_run(
    zone: str, first: str, last: str, hour: int, skipped: list[str], settings: Settings
) -> None:
    settings.UAC_DAILY_RUN_HOUR = hour
    user = MemoryUser(time_zone=zone)
    begin, end = (datetime.date.fromisoformat(day) for day in (first, last))
    moment = datetime.datetime.combine(begin, datetime.time(), tzinfo=ZoneInfo(zone))
    moment -= minutes(1)

    days = []
    runs = [moment.astimezone(datetime.UTC)]
    while True:
        # The dispatcher comes some seconds later.
        runs.append(next_daily_run(user, runs[-1] + datetime.timedelta(seconds=2)))
        local = runs[-1].astimezone(ZoneInfo(zone))
        if local.date() > end:
            break
        days.append(local.date())

    every = [begin + datetime.timedelta(days=number) for number in range((end - begin).days + 1)]
    assert days == [day for day in every if day.isoformat() not in skipped]
    gaps = [later - earlier for earlier, later in pairwise(runs[1:])]
    assert all(abs(gap - datetime.timedelta(days=1)) <= minutes(60) for gap in gaps)


class TestDefaultZone:
    @pytest.mark.parametrize(
        ("of_workspace", "given", "expected"),
        [
            (None, {}, "UTC"),
            ("America/Sao_Paulo", {}, "America/Sao_Paulo"),
            ("America/Sao_Paulo", {"time_zone": "Europe/Berlin"}, "Europe/Berlin"),
        ],
    )
    def test_a_user_without_a_time_zone_has_the_workspaces(
        self,
        workspace: Workspace,
        api: APIClient,
        of_workspace: str | None,
        given: dict[str, Any],
        expected: str,
    ) -> None:
        if of_workspace:
            workspace.time_zone = of_workspace
            workspace.save()
        created = api.post("/v1/users/", {"user_id": "ben", **given}, format="json")
        assert created.status_code == 201
        assert created.json()["time_zone"] == expected
        assert MemoryUser.objects.get(user_id="ben").time_zone == expected

    def test_users_of_before_keep_theirs(self, workspace: Workspace) -> None:
        user = create_user(workspace, "ben", metadata=None)
        workspace.time_zone = "Asia/Tokyo"
        workspace.save()
        user.refresh_from_db()
        assert user.time_zone == "UTC"


class TestOneForWhomNothingCanBeQueued:
    """A version that cannot be read, as if by an older release, must not affect other users."""

    @pytest.fixture
    def users(self, workspace: Workspace) -> list[MemoryUser]:
        """Three users with a constraint; the version of the second one cannot be read."""
        outline = Outline().with_constraint("always", "").to_json()
        found = []
        for number in range(3):
            user = create_user(workspace, f"u{number}", time_zone="UTC", metadata=None)
            user.head = make_checkpoint(user, outline=outline if number != 1 else {"odd": True})
            user.constraints_due_at = user.constraints_changed_at = MORNING + minutes(number)
            user.save()
            found.append(user)
        return found

    def test_the_others_are_woken_and_it_is_tried_again(self, users: list[MemoryUser]) -> None:
        now = MORNING + minutes(60)
        with time_machine.travel(now, tick=False):
            assert dispatching.queue_runs_by_the_clock() == 3
            assert dispatching.queue_runs_by_the_clock() == 0

        assert {*Run.objects.values_list("user__user_id", flat=True)} == {"u0", "u2"}
        assert due(users[1]) == now + minutes(60)

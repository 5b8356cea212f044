"""A forecast wakes the user on its day, by beat alone; nobody is woken otherwise."""

import datetime
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import pytest
import time_machine
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.alerts.models.alerts import Alert, AlertEvent
from memory.constraints.models.forecasts import Forecast
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import change_user, create_user
from memory.kernel.work import leases
from memory.kernel.work.kinds import KINDS
from memory.kernel.workspaces import create_key
from memory.llm import reopening
from memory.llm.reopening import Selection
from memory.log.models.entries import EntryOutcome, Outcome
from memory.project import Outline
from memory.project.errors import RunError
from memory.project.outline import Domain
from memory.versions import runs
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunTrigger
from tests.factories import make_checkpoint, store_files
from tests.steps import append_texts, due
from tests.waiting import scaled
from workers import tasks
from workers.execution import forecasting
from workers.sandbox.results import ConstraintForecast, SandboxError
from workers.service import dispatching

pytestmark = pytest.mark.django_db

Begin = Callable[..., None]
Work = Callable[[], None]
DAY = datetime.timedelta(days=1)
NO_SANDBOX = SandboxError("killed", "no sandbox", infrastructure=True)
# 10:00 in Berlin; the daily hour, 06:00, is 05:00 UTC in winter and 04:00 in summer.
START = datetime.datetime(2027, 3, 1, 9, tzinfo=datetime.UTC)

SCHEMA = """\
import datetime
import math
from dataclasses import dataclass
from uac import Record

@dataclass(kw_only=True)
class Lease(Record):
    ends_on: datetime.date
"""
STATE = """\
import datetime
import math
from domains.{domain}.schema import Lease
leases: list[Lease] = [
    Lease(key="flat", ends_on=datetime.date.fromisoformat("{ends_on}"), sources=(1,)),
]
"""
IMPORTS = """\
import datetime
import math
from collections.abc import Iterator
from uac import Alert, critical, info, warning
from domains.{domain}.state import leases

"""
NOTICE = (
    IMPORTS
    + """\
def check(today: datetime.date) -> Iterator[Alert]:
    for lease in leases:
        left = (lease.ends_on - today).days
        if 0 <= left <= 30:
            severity = critical if left <= 7 else warning
            yield severity(f"{{left}} days are left", evidence=[lease])
"""
)
SOON = (
    IMPORTS
    + """\
def check(now: datetime.datetime) -> Iterator[Alert]:
    for lease in leases:
        noon = datetime.datetime.combine(lease.ends_on, datetime.time(12), now.tzinfo)
        if datetime.timedelta() <= noon - now < datetime.timedelta(hours=2):
            yield info("at noon", evidence=[lease])
"""
)
LEAP = (
    IMPORTS
    + """\
def check(today: datetime.date) -> Iterator[Alert]:
    if today.replace(year=today.year + 1):
        yield info("always", key="always")
"""
)
TIMELESS = (
    IMPORTS
    + """\
def check() -> Iterator[Alert]:
    yield info("always", evidence=[leases[0]])
"""
)


@pytest.fixture
def user(workspace: Workspace) -> MemoryUser:
    with time_machine.travel(START - DAY):
        return create_user(workspace, "ada", time_zone="Europe/Berlin", metadata=None)


def settle(
    user: MemoryUser, constraints: Mapping[str, str], ends: Mapping[str, str] | None = None
) -> Checkpoint:
    """Give the user a next version.

    It has these constraints by name, on the domain of their first word, and leases that end on
    these days, by domain.
    """
    user.refresh_from_db()
    ends = ends or {"home": "2027-06-01"}
    outline = Outline()
    files = {"domains/__init__.py": "", "constraints/__init__.py": ""}
    for domain, day in ends.items():
        outline = outline.with_domain(Domain(domain))
        files |= {
            f"domains/{domain}/__init__.py": "",
            f"domains/{domain}/schema.py": SCHEMA,
            f"domains/{domain}/state.py": STATE.format(domain=domain, ends_on=day),
        }
    for name, source in constraints.items():
        outline = outline.with_constraint(name, "")
        files[f"constraints/{name}.py"] = source.format(domain=name.partition("_")[0])
    version = make_checkpoint(
        user,
        user.head.version + 1 if user.head else 1,
        outline=outline.to_json(),
        tree=store_files(user, files),
    )
    user.head = version
    user.save(update_fields=["head"])
    runs.queue_constraints(user, version)
    return version


@pytest.fixture
def begin(user: MemoryUser, settled: Work) -> Begin:
    """Give the user a version at the start, as `settle` does, and do the waiting work."""

    def do(constraints: Mapping[str, str] | None = None, **ends: str) -> None:
        with time_machine.travel(START, tick=False):
            settle(user, constraints or {"home_notice": NOTICE}, ends)
            settled()

    return do


def forecast_of(user: MemoryUser) -> Forecast:
    return Forecast.objects.get(user=user)


def told(user: MemoryUser) -> list[tuple[str, str, str | None]]:
    return [(one["at"][:10], one["kind"], one["severity"]) for one in forecast_of(user).timeline]


def test_alert_opens_and_resolves_on_its_day(user: MemoryUser, begin: Begin, settled: Work) -> None:
    begin()
    assert told(user) == [
        ("2027-05-02", "opens", "warning"),
        ("2027-05-25", "changes", "critical"),
        ("2027-06-02", "resolves", "critical"),
    ]
    assert not Alert.objects.exists()

    woken = []
    for number in range(1, 120):
        with time_machine.travel(START.replace(hour=4, minute=30) + number * DAY, tick=False):
            if dispatching.queue_runs_by_the_clock():
                settled()
                woken.append((START + number * DAY).date().isoformat())

    assert woken == ["2027-05-02", "2027-05-25", "2027-06-02"]
    events = AlertEvent.objects.order_by("seq").values_list("kind", "at")
    assert [(kind, at.date().isoformat()) for kind, at in events] == [
        ("opened", "2027-05-02"),
        ("changed", "2027-05-25"),
        ("resolved", "2027-06-02"),
    ]
    triggers = Run.objects.order_by("queued_at").values_list("trigger", flat=True)
    assert [*triggers] == [RunTrigger.CHECKPOINT, *[RunTrigger.FORECAST] * 3]


def test_the_version_of_a_reopening_is_looked_ahead_at(user: MemoryUser, settled: Work) -> None:
    with time_machine.travel(START, tick=False):
        append_texts(user, "Hello!")
        version = settle(user, {"home_notice": NOTICE})
        EntryOutcome.objects.create(
            user=user, seq=1, outcome=Outcome.DISMISSED, checkpoint=version, decided_at=START
        )
        settled()
        reopened = reopening.reopen(user, Selection(), by="staff").checkpoint
        settled()

    assert reopened is not None
    assert forecast_of(user).checkpoint == reopened
    user.refresh_from_db()
    assert user.alerts_version == reopened.version
    assert due(user) == datetime.datetime(2027, 5, 2, 4, tzinfo=datetime.UTC)


def test_constraint_on_now_is_woken_then(user: MemoryUser, begin: Begin, settled: Work) -> None:
    begin({"home_soon": SOON})
    # Noon in Berlin is 10:00 UTC in summer.
    opens = datetime.datetime(2027, 6, 1, 8, 0, 0, 1, tzinfo=datetime.UTC)
    assert due(user) == opens
    with time_machine.travel(opens + datetime.timedelta(seconds=2), tick=False):
        assert dispatching.queue_runs_by_the_clock() == 1
        settled()
    assert Alert.objects.get().state == "open"
    assert due(user) == datetime.datetime(2027, 6, 1, 10, 0, 0, 1, tzinfo=datetime.UTC)


def test_forecasts_can_be_switched_off(user: MemoryUser, begin: Begin, settings: Settings) -> None:
    settings.UAC_FORECAST_DAYS = 0
    begin()
    assert not Forecast.objects.exists()


@pytest.mark.parametrize("ends_on", ["0001-01-01", "9999-12-31"])
def test_the_ends_of_the_calendar(user: MemoryUser, begin: Begin, ends_on: str) -> None:
    begin({"home_notice": NOTICE, "home_soon": SOON}, home=ends_on)
    assert {run.outcome for run in Run.objects.all()} == {RunOutcome.OK}
    found = forecast_of(user)
    assert (found.timeline, found.needs_daily, found.last_error) == ([], False, "")
    # The next forecast is at the daily hour after half of the horizon, 21:00 on 30 August.
    assert due(user) == datetime.datetime(2027, 8, 31, 4, tzinfo=datetime.UTC)


def test_only_readers_of_changed_records_are_forecast(user: MemoryUser, settled: Work) -> None:
    ends = {f"d{number}": "2027-06-01" for number in range(10)}
    rules = {
        f"{domain}_{name}": text
        for domain in ends
        for name, text in {"notice": NOTICE, "timeless": TIMELESS}.items()
    }
    with time_machine.travel(START, tick=False):
        settle(user, rules, ends)
        settled()
        first = forecast_of(user).timings
    with time_machine.travel(START + DAY, tick=False):
        settle(user, rules, {**ends, "d3": "2027-07-01"})
        settled()
    second = forecast_of(user)
    assert (first["looked_at"], first["used_again"]) == (20, 0)
    assert (second.timings["looked_at"], second.timings["used_again"]) == (2, 18)
    assert second.timings["calls"] <= 0.15 * first["calls"]
    opens = [one["day"] for one in second.timeline if one["kind"] == "opens"]
    assert opens == ["2027-05-02"] * 9 + ["2027-06-01"]


@pytest.mark.parametrize(
    "spelling",
    ["domains . {domain} . state", "domains.\\\n    {domain}.state", "\uff44omains.{domain}.state"],
)
def test_reader_of_changed_record_is_redone(user: MemoryUser, settled: Work, spelling: str) -> None:
    rules = {"home_notice": NOTICE.replace("domains.{domain}.state", spelling)}
    with time_machine.travel(START, tick=False):
        settle(user, rules)
        settled()
        assert told(user)[0] == ("2027-05-02", "opens", "warning")
        settle(user, rules, {"home": "2027-04-02"})
        settled()
    assert told(user)[0] == ("2027-03-03", "opens", "warning")
    assert due(user) == datetime.datetime(2027, 3, 3, 5, tzinfo=datetime.UTC)


def test_past_forecast_event_is_not_listed(user: MemoryUser, begin: Begin, settled: Work) -> None:
    # Given a lease of which everything is foreseen
    rules = {"home_notice": NOTICE, "garden_notice": NOTICE}
    begin(rules, home="2027-04-10", garden="2027-06-01")
    assert len(told(user)) == 6
    # When it has ended, and another record changes
    with time_machine.travel(START + 50 * DAY, tick=False):
        settle(user, rules, {"home": "2027-04-10", "garden": "2027-06-02"})
        settled()
    # Then the forecast tells what is to come, though the lease was not looked at again
    assert forecast_of(user).timings["used_again"] == 1
    assert told(user) == [
        ("2027-05-03", "opens", "warning"),
        ("2027-05-26", "changes", "critical"),
        ("2027-06-03", "resolves", "critical"),
    ]


def test_a_newer_version_takes_the_place_of_a_forecast_that_is_under_way(
    user: MemoryUser, work: Work, settled: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    with time_machine.travel(START, tick=False):
        settle(user, {"home_notice": NOTICE})
        work()
        look_ahead = forecasting._look_ahead

        def overtaken(*arguments: Any) -> Any:
            made = look_ahead(*arguments)
            with time_machine.travel(START + datetime.timedelta(minutes=1), tick=False):
                settle(user, {"home_notice": NOTICE}, {"home": "2027-04-02"})
                work()
            return made

        monkeypatch.setattr(forecasting, "_look_ahead", overtaken)
        tasks.work("forecasts", user.pk)
        monkeypatch.undo()
    assert forecast_of(user).due_at is not None
    with time_machine.travel(START + datetime.timedelta(minutes=2), tick=False):
        settled()
    assert told(user)[0] == ("2027-03-03", "opens", "warning")
    assert due(user) == datetime.datetime(2027, 3, 3, 5, tzinfo=datetime.UTC)


def test_a_new_time_zone_is_looked_ahead_in(user: MemoryUser, settled: Work) -> None:
    with time_machine.travel(START, tick=False):
        settle(user, {"home_notice": NOTICE})
        settled()
        change_user(user, time_zone="Asia/Tokyo")
        moved = due(user)
        assert moved == START.replace(hour=21)
    with time_machine.travel(START.replace(hour=21), tick=False):
        dispatching.queue_runs_by_the_clock()
        settled()
    assert due(user) == datetime.datetime(2027, 5, 1, 21, tzinfo=datetime.UTC)


def test_clock_set_back_misses_nothing(user: MemoryUser, begin: Begin, settled: Work) -> None:
    begin()
    with time_machine.travel(START - 3 * DAY, tick=False):
        assert dispatching.queue_runs_by_the_clock() == 0
        runs.queue(user, RunKind.CONSTRAINTS, RunTrigger.API, checkpoint=user.head)
        settled()  # its result is older than what is there
    assert not Alert.objects.exists()
    with time_machine.travel(datetime.datetime(2027, 5, 2, 4, 0, 1, tzinfo=datetime.UTC)):
        assert dispatching.queue_runs_by_the_clock() == 1
        settled()
    assert Alert.objects.get().severity == "warning"


def test_clock_a_year_ahead_is_forgotten(user: MemoryUser, begin: Begin, settled: Work) -> None:
    # Given constraints that ran by a clock that was a year ahead, and alerts of that day
    begin(home="2027-03-20")
    assert Alert.objects.get().state == "open"
    with time_machine.travel(START + 365 * DAY, tick=False):
        dispatching.queue_runs_by_the_clock()
        settled()
    assert Alert.objects.get().state == "resolved"
    # When the clock is right again
    with time_machine.travel(START + DAY, tick=False):
        assert dispatching.wake_oversleepers() == 1
        assert dispatching.wake_oversleepers() == 0
    tomorrow = datetime.datetime(2027, 3, 3, 5, tzinfo=datetime.UTC)
    assert due(user) == tomorrow
    with time_machine.travel(tomorrow, tick=False):
        assert dispatching.queue_runs_by_the_clock() == 1
        settled()
    # Then the days go on from there
    assert [*Run.objects.order_by("instant").values_list("outcome", flat=True)] == ["ok"] * 3
    assert Alert.objects.filter(state="open").count() == 1
    assert told(user)[0] == ("2027-03-13", "changes", "critical")
    assert due(user) == datetime.datetime(2027, 3, 13, 5, tzinfo=datetime.UTC)


def test_sleeping_user_runs_daily_once_forecasts_are_off(
    user: MemoryUser, settled: Work, settings: Settings
) -> None:
    with time_machine.travel(START, tick=False):
        settle(user, {"home_notice": NOTICE})
        settled()
        asleep = due(user)
        assert asleep == datetime.datetime(2027, 5, 2, 4, tzinfo=datetime.UTC)
        dispatching.dispatch()
        assert due(user) == asleep

        settings.UAC_FORECAST_DAYS = 0
        assert dispatching.dispatch()["overslept"] == 1
        assert due(user) == datetime.datetime(2027, 3, 2, 5, tzinfo=datetime.UTC)


def test_forecasts_come_after_all_runs(user: MemoryUser, work: Work) -> None:
    with time_machine.travel(START, tick=False):
        settle(user, {"home_notice": NOTICE})
        work()
        runs.queue(user, RunKind.CONSTRAINTS, RunTrigger.API, checkpoint=user.head)
        assert dispatching.hint_work(KINDS["forecasts"]) == 0
        work()
        assert dispatching.hint_work(KINDS["forecasts"]) == 1


def test_forecasts_yield_to_waiting_runs_for_a_while(workspace: Workspace, work: Work) -> None:
    people = [create_user(workspace, name, metadata=None) for name in ("bob", "eve", "kim")]
    with time_machine.travel(START, tick=False):
        for one in people:
            settle(one, {"home_notice": NOTICE})
        work()
    runs.queue(people[0], RunKind.CONSTRAINTS, RunTrigger.API, checkpoint=people[0].head)

    def hinted(seconds: float) -> int:
        """Return how many are hinted that long after the last run asked for them."""
        with time_machine.travel(START + datetime.timedelta(seconds=seconds), tick=False):
            return dispatching.hint_work(KINDS["forecasts"])

    assert hinted(29) == 0
    assert hinted(31) == 2
    assert hinted(45) == 1  # whose hint nobody has had yet
    with time_machine.travel(START + datetime.timedelta(seconds=70), tick=False):
        for one in people[:2]:
            assert leases.claim(Forecast.objects.filter(user=one)) is not None
        assert dispatching.hint_work(KINDS["forecasts"]) == 0


class TestTroubles:
    """An older version's forecast keeps nobody asleep, whatever happens to the next one."""

    TOMORROW = datetime.datetime(2027, 4, 2, 4, tzinfo=datetime.UTC)

    @pytest.mark.parametrize("trouble", ["switched off", "given up", "unforeseen", "no run"])
    def test_a_new_version_of_which_nothing_is_foreseen_is_run_daily(
        self,
        user: MemoryUser,
        begin: Begin,
        settled: Work,
        monkeypatch: pytest.MonkeyPatch,
        settings: Settings,
        trouble: str,
    ) -> None:
        begin()
        assert due(user) == datetime.datetime(2027, 5, 2, 4, tzinfo=datetime.UTC)

        def unforeseen(*arguments: Any) -> list[ConstraintForecast]:
            error = RunError(type="timeout", message="took too long")
            return [ConstraintForecast(path=path, error=error) for path in arguments[1]]

        if trouble == "switched off":
            settings.UAC_FORECAST_DAYS = 0
        elif trouble == "given up":
            settings.UAC_MAX_ATTEMPTS = 1
            monkeypatch.setattr(forecasting, "loaded", Mock(side_effect=NO_SANDBOX))
        elif trouble == "unforeseen":
            monkeypatch.setattr(forecasting, "_look_ahead", unforeseen)
        with time_machine.travel(self.TOMORROW - DAY / 2, tick=False):
            settle(user, {"home_notice": NOTICE}, {"home": "2027-05-02"})
            if trouble != "no run":
                settled()
        assert due(user) == self.TOMORROW
        with time_machine.travel(self.TOMORROW, tick=False):
            assert dispatching.queue_runs_by_the_clock() == 1
            settled()
        assert Alert.objects.get().severity == "warning"

    def test_forecast_that_kills_every_worker_fails_permanently(
        self,
        user: MemoryUser,
        work: Work,
        monkeypatch: pytest.MonkeyPatch,
        settings: Settings,
    ) -> None:
        settings.UAC_MAX_ATTEMPTS = 2
        kill = Mock(side_effect=KeyboardInterrupt)
        monkeypatch.setattr(forecasting, "_look_ahead", kill)
        with time_machine.travel(START, tick=False):
            settle(user, {"home_notice": NOTICE})
            work()
        for hour in range(1, 4):
            later = time_machine.travel(START + hour * DAY / 24, tick=False)
            with later, suppress(KeyboardInterrupt):
                tasks.work("forecasts", user.pk)
        assert kill.call_count == 2
        assert forecast_of(user).due_at is None
        assert "killed" in forecast_of(user).last_error
        assert due(user) == datetime.datetime(2027, 3, 2, 5, tzinfo=datetime.UTC)

    def test_forecast_known_for_a_minute_adds_no_runs(
        self, user: MemoryUser, begin: Begin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def slow(*arguments: Any) -> list[ConstraintForecast]:
            until = (arguments[2] + datetime.timedelta(minutes=1)).isoformat()
            return [ConstraintForecast(path=path, error=None, until=until) for path in arguments[1]]

        monkeypatch.setattr(forecasting, "_look_ahead", slow)
        begin({"home_soon": SOON})
        assert forecast_of(user).known_until == START + datetime.timedelta(minutes=1)
        assert due(user) == START + datetime.timedelta(minutes=5)

    def test_another_horizon_counts_from_the_next_run_on(
        self, user: MemoryUser, begin: Begin, settled: Work, settings: Settings
    ) -> None:
        begin()
        settings.UAC_FORECAST_DAYS = 10
        woken = datetime.datetime(2027, 5, 2, 4, tzinfo=datetime.UTC)
        with time_machine.travel(woken, tick=False):
            dispatching.queue_runs_by_the_clock()
            settled()
        assert forecast_of(user).horizon_days == 10
        assert due(user) == woken + 5 * DAY
        assert Alert.objects.get().severity == "warning"

    def test_error_in_2031_alone_is_forecast_four_years_ahead(
        self, user: MemoryUser, begin: Begin, settings: Settings
    ) -> None:
        settings.UAC_FORECAST_DAYS = 1830
        raises = NOTICE.replace("    for lease", "    1 // (today.year - 2031)\n    for lease")
        begin({"home_raises": raises, "home_notice": NOTICE})
        years = [(one["day"], one["kind"]) for one in forecast_of(user).timeline[6:]]
        assert years == [("2031-01-01", "fails"), ("2032-01-01", "recovers")]
        assert due(user) == datetime.datetime(2027, 5, 2, 4, tzinfo=datetime.UTC)


class TestReading:
    URL = "/v1/users/ada/forecast/"

    def test_forecast_events_have_days_and_records(
        self, user: MemoryUser, api: APIClient, settled: Work
    ) -> None:
        with time_machine.travel(START, tick=False):
            settle(user, {"home_notice": NOTICE})
            settled()
            answer = api.get(self.URL)

        assert answer.status_code == 200
        body = answer.json()
        assert (body["version"], body["current"], body["horizon_days"]) == (1, True, 365)
        assert body["next_change"] == body["wakes_at"] == "2027-05-02T04:00:00Z"
        assert body["unforeseen"] == []
        first = body["events"][0]
        assert {name: first[name] for name in ("day", "kind", "severity", "records")} == {
            "day": "2027-05-02",
            "kind": "opens",
            "severity": "warning",
            "records": ["home.leases:flat"],
        }
        with time_machine.travel(datetime.datetime(2027, 5, 2, 4, 1, tzinfo=datetime.UTC)):
            dispatching.queue_runs_by_the_clock()
            settled()
        assert Alert.objects.get().fingerprint == first["fingerprint"]

    def test_missing_forecast_is_an_empty_one(self, user: MemoryUser, api: APIClient) -> None:
        body = api.get(self.URL).json()
        assert (body["version"], body["current"], body["events"]) == (None, False, [])

    def test_forecast_is_not_current_after_a_newer_version(
        self, user: MemoryUser, api: APIClient, settled: Work
    ) -> None:
        with time_machine.travel(START, tick=False):
            settle(user, {"home_notice": NOTICE})
            settled()
            settle(user, {"home_notice": NOTICE}, {"home": "2027-07-01"})
            body = api.get(self.URL).json()
        assert (body["version"], body["current"]) == (1, False)

    def test_a_constraint_that_cannot_be_looked_ahead_at_is_named_and_runs_daily(
        self, user: MemoryUser, api: APIClient, settled: Work
    ) -> None:
        endless = (
            IMPORTS
            + """\
def check(today: datetime.date) -> Iterator[Alert]:
    while today > datetime.date(2027, 4, 1):
        pass
    return iter(())
"""
        )
        tomorrow = datetime.datetime(2027, 3, 2, 5, tzinfo=datetime.UTC)
        # A forecast has half of that, in which the other constraint must finish.
        user.workspace.wall_seconds = user.workspace.cpu_seconds = math.ceil(scaled(1.5))
        user.workspace.save()
        with time_machine.travel(START, tick=False):
            MemoryUser.objects.filter(pk=user.pk).update(constraints_due_at=tomorrow)
            settle(user, {"home_endless": endless, "home_notice": NOTICE})
            settled()
            body = api.get(self.URL).json()
        assert due(user) == tomorrow
        (unforeseen,) = body["unforeseen"]
        assert unforeseen["constraint"] == "constraints/home_endless.py"
        assert unforeseen["error"]["type"] == "timeout"
        assert body["events"][0]["day"] == "2027-05-02"

    def test_another_workspace_reads_nothing(self, user: MemoryUser, begin: Begin) -> None:
        begin()
        _, text = create_key(Workspace.objects.create(name="other"), "tests")
        stranger = APIClient(headers={"Authorization": f"Bearer {text}"})
        assert stranger.get(self.URL).status_code == 404

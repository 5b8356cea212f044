"""A backtest finds what really happens on the same history, and is the basis of an approval."""

import datetime
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
import time_machine
from django.utils import timezone
from rest_framework.test import APIClient

from memory.alerts.models.alerts import Alert, AlertEvent
from memory.constraints import backtest_reports, backtests, workspace_constraints
from memory.constraints.models.backtests import Backtest
from memory.constraints.models.workspace_constraints import WorkspaceConstraintVersion
from memory.constraints.workspace_constraints import NotApprovable
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from memory.kernel.texts import REDACTED
from memory.kernel.users import create_user
from memory.kernel.work import leases
from memory.kernel.work.kinds import KINDS
from memory.kernel.workspaces import create_key
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import By, EntryKind
from memory.privacy import user_erasure
from memory.project import Outline
from memory.versions import runs
from memory.versions.models.checkpoints import Bytecode, Checkpoint
from memory.versions.models.runs import RunKind, RunTrigger
from tests.factories import redacted
from tests.integration.time.test_forecast import NOTICE as OWN_NOTICE
from tests.integration.time.test_forecast import settle
from tests.integration.work.test_workspace_constraints import SOURCE, TESTS
from tests.steps import Killed, append_records, head_of, not_none
from workers import tasks
from workers.execution import backtesting
from workers.execution.loading import LoadPlan, loaded
from workers.sandbox.results import SandboxError
from workers.service import dispatching

pytestmark = pytest.mark.django_db

RESULT: dict[str, Any] = {"alerts": 0, "findings": [], "problems": []}
Work = Callable[[], None]
History = Mapping[int, list[dict[str, Any]]]
DAY = datetime.timedelta(days=1)
# 10:00 in Berlin; the daily hour, 06:00, is 05:00 UTC in winter.
START = datetime.datetime(2027, 3, 1, 9, tzinfo=datetime.UTC)
END = START + 30 * DAY

ENDED = """\
        if lease.ends_on < today:
            yield warning(f"{lease.flat} ended on {lease.ends_on}", evidence=[lease])
"""
SOON = """\
        left = (lease.ends_on - today).days
        if 0 <= left <= 10:
            severity = critical if left <= 3 else warning
            yield severity(f"{left} days are left", evidence=[lease])
"""
AT_NOON = """\
        noon = datetime.datetime.combine(lease.ends_on, datetime.time(12), now.tzinfo)
        if datetime.timedelta() <= noon - now < datetime.timedelta(hours=2):
            yield warning("at noon", evidence=[lease])
"""
MOMENT = SOURCE.replace(ENDED, AT_NOON).replace("today: datetime.date", "now: datetime.datetime")
NOTICE = SOURCE.replace(ENDED, SOON).replace("Record, warning", "Record, critical, warning")
LEAP = NOTICE.replace(
    "        left = (", "        today.replace(year=today.year + 1)\n        left = ("
)


def rental(key: str, until: str, **more: Any) -> dict[str, Any]:
    data = {"flat": key, "until": until}
    return {"domain": "home", "type": "Rental", "key": key, "data": data, **more}


def plant(name: str) -> dict[str, Any]:
    return {"domain": "garden", "type": "Plant", "data": {"name": name}}


# Day → the entries of that day.
HISTORY: History = {
    0: [rental("main", "2027-03-20"), rental("side", "2027-03-15")],
    3: [plant("fern")],
    8: [rental("late", "2027-03-11")],
    12: [rental("side", "2027-04-08"), plant("rose")],
    13: [rental("late", "2027-03-11", retired=True)],
    15: [plant("oak")],
    21: [rental("main", "2027-03-25")],
}


@pytest.fixture
def user(workspace: Workspace) -> MemoryUser:
    return person(workspace, "ada")


def person(workspace: Workspace, user_id: str) -> MemoryUser:
    with time_machine.travel(START - DAY):
        return create_user(workspace, user_id, time_zone="Europe/Berlin", metadata=None)


def passed(workspace: Workspace, source: str = NOTICE) -> WorkspaceConstraintVersion:
    """Return a version as if it had passed its checks."""
    constraint = workspace_constraints.create(
        workspace, "lease_end", source=source, tests=TESTS, by="test"
    )
    constraint.versions.update(state="passed")
    return constraint.versions.get()


def say(user: MemoryUser, work: Work, history: History) -> None:
    """Append entries on these days, while no constraint runs."""
    for number, statements in history.items():
        with time_machine.travel(START + number * DAY, tick=False):
            append_records(user, *statements)
            work()


def live_through(user: MemoryUser, work: Work, history: History) -> None:
    """Let the days pass, by beat alone, on which entries are appended."""
    for number in range((END - START).days + 1):
        with time_machine.travel(START.replace(hour=5) + number * DAY, tick=False):
            dispatching.queue_runs_by_the_clock()
            work()
        say(user, work, {number: history[number]} if number in history else {})


def backtested(version: WorkspaceConstraintVersion, work: Work, **numbers: Any) -> Backtest:
    """Backtest a version at the end of the history, as workers would."""
    with time_machine.travel(END + datetime.timedelta(hours=1), tick=False):
        backtest = backtests.start(version, by="test", **numbers)
        work()
    backtest.refresh_from_db()
    assert backtest.state == "finished", backtest.last_error
    return backtest


def told(backtest: Backtest) -> list[tuple[str, str, str | None, str]]:
    """Return for each finding the days it opened and was resolved, its severity and message."""
    return [
        (one["day"], one["severity"], (one["resolved_at"] or "")[:10] or None, one["message"])
        for one in backtest_reports.findings_of(backtest)
    ]


def result_of(backtest: Backtest, user: MemoryUser) -> dict[str, Any]:
    """Return the user's part of the report."""
    backtest.refresh_from_db()
    result: dict[str, Any] = backtest.report["users"][str(user.pk)]
    return result


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[LoadPlan]:
    """The versions that backtests load."""
    plans: list[LoadPlan] = []

    def load(plan: LoadPlan, **options: Any) -> Any:
        plans.append(plan)
        return loaded(plan, **options)

    monkeypatch.setattr(backtesting, "loaded", load)
    return plans


def what_happened(user: MemoryUser) -> list[tuple[str, str, str]]:
    return sorted(
        (event.at.date().isoformat(), event.kind, event.alert.fingerprint)
        for event in AlertEvent.objects.filter(alert__user=user).select_related("alert")
        if event.alert is not None and event.kind in ("opened", "resolved")
    )


def what_was_found(backtest: Backtest) -> list[tuple[str, str, str]]:
    found = []
    for one in backtest_reports.findings_of(backtest):
        ends = [(one["resolved_at"], "resolved")] if one["resolved_at"] else []
        for at, kind in [(one["opened_at"], "opened"), *ends]:
            found.append((at[:10], kind, one["fingerprint"]))
    return sorted(found)


def test_backtest_equals_live_history(
    workspace: Workspace, user: MemoryUser, work: Work, loads: list[LoadPlan]
) -> None:
    # Given a constraint that everybody has, on a history by whose days it runs daily
    version = passed(workspace)
    workspace_constraints.approve(version, by="boss")  # nobody has a project yet
    workspace_constraints.change(version.constraint, by="boss", percentage=100)
    live_through(user, work, HISTORY)
    assert Alert.objects.filter(user=user).count() == 5

    # When the same version is backtested on it
    backtest = backtested(version, work)

    # Then it opens and resolves the same alerts on the same days
    assert what_was_found(backtest) == what_happened(user)
    live = Alert.objects.filter(user=user, state="open").values_list("fingerprint", flat=True)
    findings = backtest_reports.findings_of(backtest)
    still = [one["fingerprint"] for one in findings if one["resolved_at"] is None]
    assert [*live] == still != []
    # And it loaded only those of the seven versions in which something that it reads had changed
    assert len(loads) == 5


def test_imported_history_keeps_its_times(
    workspace: Workspace, user: MemoryUser, work: Work
) -> None:
    # Given a history as it came in, and the same one loaded in one go at its end
    history = {day: HISTORY[day] for day in (0, 8, 12, 13)}
    say(user, work, history)
    late = person(workspace, "bob")
    with time_machine.travel(END, tick=False):
        drafts = [
            Draft(kind=EntryKind.RECORD, data=data, occurred_at=START + day * DAY)
            for day, statements in history.items()
            for data in statements
        ]
        entry_log.append(late, drafts, source="test")
        work()
    version = passed(workspace)

    # When it is backtested by what was known, and by what was the case
    found = {}
    for times in By:
        with time_machine.travel(END + datetime.timedelta(hours=1), tick=False):
            backtest = backtests.start(version, by="test", times=times)
            work()
        for person_ in (user, late):
            result = result_of(backtest, person_)
            assert result["problems"] == []
            found[times, person_.user_id] = [
                (one["opened_at"], one["severity"], one["message"], one["resolved_at"])
                for one in result["findings"]
            ]

    # Then by what was the case, both had the same alerts at the same times
    lived = found[By.RECORDED, "ada"]
    assert len(lived) >= 3
    assert found[By.OCCURRED, "ada"] == found[By.OCCURRED, "bob"] == lived
    # And by what was known, the loaded history has no past
    assert all(opened >= END.isoformat() for opened, *_ in found[By.RECORDED, "bob"])


def test_summary_counts_users_findings_and_problems(workspace: Workspace, work: Work) -> None:
    # Given two users whom it fits, and one whom it does not
    ada, bob, eve = (person(workspace, name) for name in ("ada", "bob", "eve"))
    say(ada, work, {0: [rental("main", "2027-03-20")], 5: [plant("fern")]})
    say(bob, work, {1: [rental("x", "2027-04-07")], 2: [rental("y", "2027-03-20")]})
    say(eve, work, {0: [plant("fern")]})

    backtest = backtested(passed(workspace), work)

    assert told(backtest) == [
        ("2027-03-10", "critical", "2027-03-21", "10 days are left"),
        ("2027-03-10", "critical", "2027-03-21", "10 days are left"),
        ("2027-03-28", "warning", None, "10 days are left"),
    ]
    found = backtest_reports.summary(backtest)
    counts = ("looked_at", "fits", "done", "fired", "findings", "left_out", "failed")
    assert [found[name] for name in counts] == [3, 2, 2, 2, 3, 0, 0]
    assert found["problems"] == []
    (first,) = result_of(backtest, ada)["findings"]
    assert (first["version"], first["entries"]) == (2, [1])  # it holds the same as the first
    assert [one["key"] for one in first["evidence"]] == ["main"]
    assert not Alert.objects.exists()


def test_short_period_has_prior_state(workspace: Workspace, user: MemoryUser, work: Work) -> None:
    say(user, work, {0: [rental("main", "2027-03-20")]})

    backtest = backtested(passed(workspace), work, days=15)

    # 15 days before the end, in the middle of the alert's life
    assert told(backtest) == [("2027-03-16", "critical", "2027-03-21", "4 days are left")]


def test_error_on_29_february_is_dated(workspace: Workspace, user: MemoryUser, work: Work) -> None:
    say(user, work, {0: [rental("main", "2028-03-05")]})
    version = passed(workspace, LEAP)

    with time_machine.travel(datetime.datetime(2028, 3, 10, tzinfo=datetime.UTC), tick=False):
        backtest = backtests.start(version, by="test", days=400)
        work()

    (problem,) = result_of(backtest, user)["problems"]
    line = LEAP.splitlines().index("        today.replace(year=today.year + 1)") + 1
    assert problem == {
        "at": "2028-02-29T05:00:00+00:00",
        "version": 1,
        "kind": "error",
        "message": f"failed at line {line}: ValueError: day is out of range for month",
    }
    # And its alert stays over that day
    assert told(backtest) == [("2028-02-24", "critical", "2028-03-06", "10 days are left")]
    assert backtest_reports.summary(backtest)["problems"] == [{"user_id": "ada", **problem}]


def test_finding_has_its_moment(workspace: Workspace, user: MemoryUser, work: Work) -> None:
    say(user, work, {0: [rental("main", "2027-03-20")]})

    backtest = backtested(passed(workspace, MOMENT), work)

    (found,) = backtest_reports.findings_of(backtest)
    # Noon in Berlin is 11:00 UTC in winter.
    after = datetime.datetime(2027, 3, 20, 9, 0, 0, 1, tzinfo=datetime.UTC)
    until = after.replace(hour=11)
    assert (found["opened_at"], found["resolved_at"]) == (after.isoformat(), until.isoformat())


def test_a_history_that_is_too_long_is_told_to_be_unknown_from_there_on(
    workspace: Workspace, user: MemoryUser, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(user, work, {0: [rental("main", "2027-03-20")]})
    monkeypatch.setattr(backtesting, "USER_SECONDS", -1.0)

    backtest = backtested(passed(workspace), work)

    (problem,) = result_of(backtest, user)["problems"]
    assert (problem["kind"], problem["version"]) == ("unknown", 1)
    assert problem["at"] == START.isoformat()
    assert told(backtest) == []


def test_moments_that_are_too_many_are_unknown_from_there_on(
    workspace: Workspace, user: MemoryUser, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its findings change every day, in a version that lasts a month."""
    say(user, work, {0: [rental("main", "2027-03-20")]})
    version = passed(
        workspace,
        SOURCE.replace(ENDED, '        yield warning(f"it is {today}", key=str(today))\n'),
    )
    run, runs_ = backtesting._History._run, list[Any]()

    def slow(history: Any, *arguments: Any) -> Any:
        runs_.append(history)
        if len(runs_) == 3:
            history._deadline = 0.0
        return run(history, *arguments)

    monkeypatch.setattr(backtesting._History, "_run", slow)

    backtest = backtested(version, work)

    (problem,) = result_of(backtest, user)["problems"]
    assert (problem["kind"], problem["at"]) == ("unknown", "2027-03-04T05:00:00+00:00")
    assert [day for day, *_ in told(backtest)] == ["2027-03-01", "2027-03-02", "2027-03-03"]


def test_differing_clocks_keep_the_order(
    workspace: Workspace, user: MemoryUser, work: Work, loads: list[LoadPlan]
) -> None:
    # Given a second version by a clock that is two days ahead, and a third by one that is right
    say(user, work, {0: [rental("main", "2027-03-16")]})
    say(user, work, {6: [rental("main", "2027-03-17")]})
    Lane.objects.update(run_after=user.created_at)  # when work is given back is by that clock, too
    say(user, work, {4: [rental("main", "2027-12-01")]})

    backtest = backtested(passed(workspace), work)

    # Then the alert is not resolved before it opened
    (found,) = backtest_reports.findings_of(backtest)
    assert found["resolved_at"] > found["opened_at"]
    assert len(loads) == 2


def test_a_flood_is_told_and_not_listed(workspace: Workspace, user: MemoryUser, work: Work) -> None:
    workspace.alerts_per_constraint = 3
    workspace.save()
    # Given four findings at once from the tenth on, one of which is gone on the twelfth
    say(user, work, {0: [rental(f"a{number}", "2027-03-20") for number in range(4)]})
    say(user, work, {11: [rental("a0", "2027-12-01")]})

    backtest = backtested(passed(workspace), work)

    problems = result_of(backtest, user)["problems"]
    assert [(one["at"][:10], one["kind"], one["message"]) for one in problems] == [
        ("2027-03-10", "alert_limit", "it raised more than 3 alerts at once")
    ]
    assert [(day, until) for day, _, until, _ in told(backtest)] == [
        ("2027-03-12", "2027-03-21")
    ] * 3


def test_excess_openings_are_reported(workspace: Workspace, user: MemoryUser, work: Work) -> None:
    workspace.openings_per_day = 2
    workspace.save()
    say(user, work, {0: [rental(f"a{number}", "2027-03-20") for number in range(3)]})

    backtest = backtested(passed(workspace), work)

    problem = result_of(backtest, user)["problems"][0]
    assert problem["message"] == "it would open more than 2 alerts within 24 hours"
    assert told(backtest) == []


def test_all_alerts_are_counted_and_the_first_are_kept(
    workspace: Workspace, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backtests, "MAX_FINDINGS_OF_USER", 3)
    monkeypatch.setattr(backtests, "MAX_FINDINGS", 5)
    for name in ("ada", "bob", "eve"):
        flats = [rental(f"a{number}", f"2027-03-{20 + number}") for number in range(4)]
        say(person(workspace, name), work, {0: flats})

    backtest = backtested(passed(workspace), work)

    results = backtest.report["users"].values()
    assert sorted(len(result["findings"]) for result in results) == [0, 2, 3]
    summary = backtest_reports.summary(backtest)
    assert (summary["fired"], summary["findings"], summary["left_out"]) == (3, 12, 7)


def test_a_worker_that_is_killed_loses_one_user_at_most(
    workspace: Workspace, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = [person(workspace, f"u{number}") for number in range(4)]
    for user in users:
        say(user, work, {0: [rental("main", "2027-03-20")]})
    version = passed(workspace)
    looked_at: list[int] = []
    real = backtesting._History

    def look(backtest: Backtest, user: MemoryUser) -> Any:
        looked_at.append(user.pk)
        if len(looked_at) == 3:
            raise Killed
        return real(backtest, user)

    monkeypatch.setattr(backtesting, "_History", look)
    with time_machine.travel(END, tick=False):
        backtest = backtests.start(version, by="test")
        with pytest.raises(Killed):
            tasks.work("backtests", str(backtest.pk))
        backtest.refresh_from_db()
        assert backtest_reports.count_users(backtest)["done"] == 2
        tasks.work("backtests", str(backtest.pk))  # the lease of the dead holds
        assert len(looked_at) == 3
        Backtest.objects.update(lease_expires_at=END - DAY)
        work()

    # Then each user was looked at once, but the one with whom it died
    assert sorted(looked_at) == sorted([*(user.pk for user in users), looked_at[2]])
    backtest.refresh_from_db()
    assert backtest_reports.summary(backtest)["findings"] == 4
    assert (backtest.state, backtest.attempts) == ("finished", 0)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The users for whom no sandbox can be opened."""
    users: set[int] = set()

    def broken_for_some(plan: LoadPlan, **options: Any) -> Any:
        if plan.user.pk in users:
            raise SandboxError("killed", "no engine", infrastructure=True)
        return loaded(plan, **options)

    monkeypatch.setattr(backtesting, "loaded", broken_for_some)
    return users


def tried(version: WorkspaceConstraintVersion, times: int) -> Backtest:
    """Try so many times to backtest a version at the end of the history."""
    with time_machine.travel(END, tick=False):
        backtest = backtests.start(version, by="test")
        for _ in range(2 * times):  # it may have stood back, on a machine that is busy
            Backtest.objects.update(run_after=END)
            with suppress(SandboxError):
                tasks.work("backtests", str(backtest.pk))
    backtest.refresh_from_db()
    return backtest


def test_user_whose_sandbox_fails_does_not_stop_the_others(
    workspace: Workspace, work: Work, broken: set[int], settings: Any
) -> None:
    users = [person(workspace, f"u{number}") for number in range(2)]
    for user in users:
        say(user, work, {0: [rental("main", "2027-03-20")]})
    broken.add(users[0].pk)

    backtest = tried(passed(workspace), settings.UAC_MAX_ATTEMPTS)

    assert backtest.state == "finished"
    assert [result_of(backtest, user)["alerts"] for user in users] == [0, 1]
    summary = backtest_reports.summary(backtest)
    assert summary["conclusion"].endswith("2 of 2 users, of whom 1 could not be evaluated.")
    (problem,) = summary["problems"]
    assert (problem["user_id"], problem["kind"]) == ("u0", "failed")
    assert "no engine" in problem["message"]


def test_where_nobody_can_be_looked_at_it_failed_and_approves_nothing(
    workspace: Workspace, user: MemoryUser, work: Work, broken: set[int], settings: Any
) -> None:
    say(user, work, {0: [rental("main", "2027-03-20")]})
    broken.add(user.pk)
    version = passed(workspace)

    backtest = tried(version, settings.UAC_MAX_ATTEMPTS)

    assert backtest.state == "failed"
    with pytest.raises(NotApprovable, match="start another one"):
        workspace_constraints.approve(version, by="boss")


def test_a_user_who_is_erased_meanwhile_leaves_nothing(
    workspace: Workspace, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        say(person(workspace, f"u{number}"), work, {0: [rental("main", "2027-03-20")]})
    version = passed(workspace)
    erased: list[int] = []

    def erase(plan: LoadPlan, **options: Any) -> Any:
        if not erased:
            erased.append(plan.user.pk)
            user_erasure.ask(plan.user, by="test", reason="asked for")
        return loaded(plan, **options)

    monkeypatch.setattr(backtesting, "loaded", erase)

    backtest = backtested(version, work)

    assert backtest_reports.count_users(backtest)["fits"] == 1
    assert str(erased[0]) not in backtest.report["users"]
    assert len(told(backtest)) == 1


def test_redacted_versions_are_not_read(workspace: Workspace, user: MemoryUser, work: Work) -> None:
    say(user, work, {0: [rental("main", "2027-03-20")], 5: [rental("side", "2027-03-20")]})
    redacted(user, 2, START + 8 * DAY)

    backtest = backtested(passed(workspace), work)

    (problem,) = result_of(backtest, user)["problems"]
    assert (problem["kind"], problem["version"]) == ("redacted", 2)
    assert "entry 2" in problem["message"]
    assert told(backtest) == []


def test_redaction_empties_results(workspace: Workspace, user: MemoryUser, work: Work) -> None:
    say(user, work, {0: [rental("main", "2027-03-20")]})
    backtest = backtested(passed(workspace), work)

    backtests.redact_results(user, END)

    (finding,) = result_of(backtest, user)["findings"]
    assert (finding["message"], finding["evidence"], finding["day"]) == (
        REDACTED,
        [],
        "2027-03-10",
    )


class TestForgetting:
    """Backtests are kept for three months, those that an approval relies on for longer."""

    LATER = START + backtests.KEPT + 3 * DAY

    @pytest.fixture
    def version(self, workspace: Workspace) -> WorkspaceConstraintVersion:
        return passed(workspace)

    def ended(self, version: WorkspaceConstraintVersion, user: MemoryUser) -> Backtest:
        """A backtest that finished at the start."""
        with time_machine.travel(START, tick=False):
            backtest = backtests.start(version, by="test")
            Backtest.objects.filter(pk=backtest.pk).update(
                state="finished",
                finished_at=timezone.now(),
                report={"checked": 1, "users": {str(user.pk): RESULT}},
            )
        backtest.refresh_from_db()
        return backtest

    def purged(self) -> list[int]:
        """Return how many were purged at each tick, until none was."""
        with time_machine.travel(self.LATER, tick=False):
            gone = []
            while number := backtests.purge(4):
                gone.append(number)
        return gone

    @pytest.mark.parametrize("live", [True, False])
    def test_that_of_the_newest_and_of_the_live_version_stay(
        self, version: WorkspaceConstraintVersion, user: MemoryUser, live: bool
    ) -> None:
        constraint, kept = version.constraint, []
        numbers = []
        for number in (1, 2, 3):
            if number > 1:
                version = workspace_constraints.propose(
                    constraint, source=NOTICE + "#" * number, tests=TESTS, by="x"
                )
                constraint.versions.update(state="passed")
            kept.append(self.ended(version, user))
            numbers.append(version)
        if live:
            workspace_constraints.approve(numbers[0], by="boss")

        assert self.purged()
        assert {*Backtest.objects.all()} == {kept[2], *kept[: 1 if live else 0]}
        assert backtest_reports.tested(numbers[2]).enough
        assert backtest_reports.tested(numbers[1]).backtest is None

    def test_cancelled_ones_and_those_of_users_own_go_and_those_under_way_stay(
        self, version: WorkspaceConstraintVersion, user: MemoryUser
    ) -> None:
        given = {"workspace": user.workspace, "days": 1, "most_users": 1, "until": START}
        ended = {"finished_at": START, "state": "finished"}
        Backtest.objects.create(**given, **ended, user=user, constraint="constraints/x.py")
        Backtest.objects.create(**given, finished_at=START, state="cancelled", version=version)
        newer = workspace_constraints.propose(
            version.constraint, source=NOTICE + "#", tests=TESTS, by="x"
        )
        under_way = Backtest.objects.create(**given, state="running", version=newer)

        assert self.purged() == [2]
        assert [*Backtest.objects.all()] == [under_way]


class TestWhom:
    """Users are picked by a hash; no sandbox is needed for it."""

    @pytest.fixture
    def crowd(self, workspace: Workspace, user: MemoryUser, work: Work) -> list[MemoryUser]:
        """Two thousand users, every second of whom has a lease."""
        say(user, work, {0: [rental("main", "2027-03-20")]})
        lease = head_of(user).outline
        MemoryUser.objects.filter(pk=user.pk).update(head=None)
        users = MemoryUser.objects.bulk_create(
            MemoryUser(workspace=workspace, user_id=f"u{number}") for number in range(2000)
        )
        given: dict[str, Any] = {
            "tree": {},
            "seen_seq": 0,
            "edits": [],
            "verdict": {"accepted": True},
        }
        heads = Checkpoint.objects.bulk_create(
            Checkpoint(
                user=one,
                version=1,
                outline=lease if number % 2 else Outline().to_json(),
                **given,
            )
            for number, one in enumerate(users)
        )
        for one, head in zip(users, heads, strict=True):
            one.head = head
        MemoryUser.objects.bulk_update(users, ["head"])
        return users

    def picked(self, backtest: Backtest) -> set[int]:
        """Choose the users to test."""
        claimed = not_none(leases.claim(backtests.waiting().filter(pk=backtest.pk)))
        backtests.select_users(claimed)
        backtest.refresh_from_db()
        return {int(pk) for pk in backtest.report["users"]}

    def test_a_sample_is_the_same_each_time(
        self, workspace: Workspace, crowd: list[MemoryUser]
    ) -> None:
        version = passed(workspace)
        first = backtests.start(version, by="test", most_users=100)
        sample = self.picked(first)
        again = self.picked(backtests.start(version, by="test", most_users=100))

        assert sample == again
        assert len(sample) == 100
        assert sample <= {user.pk for user in crowd[1::2]}
        assert 120 < first.report["checked"] < 300
        # And that of another version is another one, spread over all
        constraint = version.constraint
        other = workspace_constraints.propose(constraint, source=NOTICE + "#", tests=TESTS, by="x")
        constraint.versions.filter(pk=other.pk).update(state="passed")
        others = self.picked(backtests.start(other, by="test", most_users=100))
        assert len(sample & others) < 40
        assert 20 < len(others & {user.pk for user in crowd[:1000]}) < 80

    def test_tries_to_pick_count_against_no_user(
        self, workspace: Workspace, user: MemoryUser, work: Work, broken: set[int], settings: Any
    ) -> None:
        say(user, work, {0: [rental("main", "2027-03-20")]})
        broken.add(user.pk)
        with time_machine.travel(END, tick=False):
            backtest = backtests.start(passed(workspace), by="test")
            Backtest.objects.update(attempts=settings.UAC_MAX_ATTEMPTS - 1)
            with pytest.raises(SandboxError):
                tasks.work("backtests", str(backtest.pk))
            broken.clear()
            Backtest.objects.update(run_after=END)
            tasks.work("backtests", str(backtest.pk))
        assert result_of(backtest, user)["alerts"] == 1

    def test_backtest_killing_every_worker_fails(
        self, workspace: Workspace, user: MemoryUser, settings: Any
    ) -> None:
        version = passed(workspace)
        backtest = backtests.start(version, by="test")
        Backtest.objects.update(attempts=settings.UAC_MAX_ATTEMPTS)
        tasks.work("backtests", str(backtest.pk))
        backtest.refresh_from_db()
        assert (backtest.state, backtest.reason) == ("failed", backtesting.KILLED)


class TestApproving:
    def test_without_a_backtest_nothing_is_approved(
        self, workspace: Workspace, user: MemoryUser, work: Work
    ) -> None:
        say(user, work, {0: [rental("main", "2027-03-20")]})
        version = passed(workspace)
        with pytest.raises(NotApprovable, match="not been backtested"):
            workspace_constraints.approve(version, by="boss")
        backtest = backtests.start(version, by="test")
        with pytest.raises(NotApprovable, match="still running"):
            workspace_constraints.approve(version, by="boss")
        backtests.cancel(backtest, by="eve")
        with pytest.raises(NotApprovable, match="cancelled"):
            workspace_constraints.approve(version, by="boss")
        constraint = version.constraint
        constraint.refresh_from_db()
        assert constraint.live is None

        backtested(version, work)
        assert workspace_constraints.approve(version, by="boss").live == version

        # And an earlier one is approved again at any time
        other = workspace_constraints.propose(constraint, source=NOTICE + "#", tests=TESTS, by="x")
        constraint.versions.filter(pk=other.pk).update(state="passed")
        with pytest.raises(NotApprovable, match="Version 2"):
            workspace_constraints.approve(other, by="boss")
        version.backtests.all().delete()
        assert workspace_constraints.approve(version, by="boss").live == version

    def test_where_there_is_nobody_it_says_so(
        self, workspace: Workspace, user: MemoryUser, work: Work
    ) -> None:
        version = passed(workspace)
        nobody = backtest_reports.tested(version)
        assert (nobody.enough, nobody.backtest) == (True, None)
        assert "no user in the workspace has a project" in nobody.detail

        say(user, work, {0: [plant("fern")]})
        assert not backtest_reports.tested(version).enough
        backtest = backtested(version, work)
        assert backtest_reports.tested(version).enough
        found = backtest_reports.summary(backtest)
        assert (found["looked_at"], found["fits"], found["done"]) == (1, 0, 0)

    def test_backtest_starts_once_checks_pass(self, workspace: Workspace) -> None:
        constraint = workspace_constraints.create(
            workspace, "lease_end", source=SOURCE, tests=TESTS, by="test"
        )
        tasks.work("versions", str(constraint.versions.get().pk))

        backtest = Backtest.objects.get(version=constraint.versions.get())
        assert (backtest.state, backtest.created_by) == ("waiting", "the checks")
        # And is cancelled when a newer version is written, whoever works on it
        claimed = leases.claim(backtests.waiting())
        workspace_constraints.propose(constraint, source=SOURCE + "#", tests=TESTS, by="x")
        backtest.refresh_from_db()
        assert (backtest.state, backtest.reason) == ("cancelled", "version 2 was written")
        assert claimed is not None
        with pytest.raises(leases.LeaseLost):
            backtests.select_users(claimed)

    def test_backtest_yields_to_waiting_runs(
        self, workspace: Workspace, user: MemoryUser, work: Work
    ) -> None:
        say(user, work, {0: [rental("main", "2027-03-20")]})
        user.refresh_from_db()
        backtests.start(passed(workspace), by="test")

        def hinted(seconds: int) -> int:
            """Return whether it is hinted that many seconds after the last hint."""
            with time_machine.travel(timezone.now(), tick=False):
                past = timezone.now() - datetime.timedelta(seconds=seconds)
                Backtest.objects.update(hinted_at=past, created_at=past)
                return dispatching.hint_work(KINDS["backtests"])

        assert [hinted(seconds) for seconds in (5, 15, 31)] == [0, 1, 1]
        runs.queue(user, RunKind.CONSTRAINTS, RunTrigger.API, checkpoint=user.head)
        assert [hinted(seconds) for seconds in (5, 15, 31)] == [0, 0, 1]


class TestOwn:
    """A user's own constraint over the user's own history."""

    @pytest.fixture
    def grown(self, user: MemoryUser) -> None:
        """A version without what the constraint reads, one with it, and one with both."""
        for day, domains, rules in (
            (0, {"garden": "2027-04-01"}, {}),
            (10, {"home": "2027-04-01"}, {}),
            (20, {"home": "2027-04-01"}, {"home_notice": OWN_NOTICE}),
        ):
            with time_machine.travel(START + day * DAY, tick=False):
                settle(user, rules, domains)

    @pytest.mark.usefixtures("grown")
    def test_constraint_without_its_imports_does_not_fire(
        self, user: MemoryUser, work: Work, loads: list[LoadPlan]
    ) -> None:
        with time_machine.travel(START + 40 * DAY, tick=False):
            backtest = backtests.start_own(user, "home_notice", by="test")  # as PUT names it
            work()

        backtest.refresh_from_db()
        assert backtest.state == "finished", backtest.last_error
        assert (len(loads), result_of(backtest, user)["problems"]) == (2, [])
        assert told(backtest) == [("2027-03-11", "critical", "2027-04-02", "21 days are left")]

    @pytest.mark.usefixtures("grown")
    def test_only_a_constraint_of_the_newest_version_can_be(self, user: MemoryUser) -> None:
        for path in ("constraints/other.py", "other", "../x", "workspace/constraints/x.py"):
            with pytest.raises(backtests.BadBacktest, match=r"has constraints/home_notice\.py"):
                backtests.start_own(user, path, by="test")
        assert not Backtest.objects.exists()

    @pytest.fixture
    def manager(self, workspace: Workspace) -> APIClient:
        """A client that may start backtests."""
        _, text = create_key(workspace, "boss", [*Scope])
        return APIClient(headers={"Authorization": f"Bearer {text}"})

    @pytest.mark.usefixtures("grown")
    def test_a_text_is_tried_before_it_is_proposed(
        self, user: MemoryUser, work: Work, manager: APIClient
    ) -> None:
        sooner = OWN_NOTICE.format(domain="home").replace("<= 30", "<= 5")
        with time_machine.travel(START + 40 * DAY, tick=False):
            for path in ("constraints/home_notice.py", "constraints/home_late.py"):
                asked = {"constraint": path, "source": sooner}
                answer = manager.post("/v1/users/ada/backtests/", asked, format="json")
                assert answer.status_code == 201, answer.data
            user.refresh_from_db()
            before = user.head_id
            work()

        for backtest in Backtest.objects.all():
            assert backtest.state == "finished", backtest.reason
            assert told(backtest) == [("2027-03-27", "critical", "2027-04-02", "5 days are left")]
        user.refresh_from_db()
        assert user.head_id == before
        assert not Alert.objects.filter(constraint="constraints/home_late.py").exists()

    @pytest.mark.parametrize(
        ("source", "reason"),
        [
            ("import os\n", "import os"),
            ("def check(:\n", "line 1: invalid syntax"),
            ("import datetime\n\nx = datetime.date.today()\n", "line 3"),
        ],
    )
    @pytest.mark.usefixtures("grown")
    def test_a_text_that_the_policy_refuses_does_not_run(
        self, user: MemoryUser, work: Work, source: str, reason: str
    ) -> None:
        with time_machine.travel(START + 40 * DAY, tick=False):
            backtest = backtests.start_own(user, "constraints/x.py", by="test", source=source)
            work()

        backtest.refresh_from_db()
        assert backtest.state == "failed"
        assert reason in backtest.reason
        assert not Bytecode.objects.filter(source_hash=backtest.source_hash).exists()

    @pytest.mark.parametrize(
        "asked",
        [
            {"constraint": "../x.py", "source": "1"},
            {"constraint": "domains/home/state.py", "source": "1"},
            {"constraint": "constraints/X.py", "source": "1"},
            {"constraint": "constraints/x.py", "source": "#" * 65537},
            {"constraint": "constraints/x.py", "source": 5},
        ],
    )
    @pytest.mark.usefixtures("grown")
    def test_invalid_constraint_text_is_refused(
        self, manager: APIClient, asked: dict[str, Any]
    ) -> None:
        answer = manager.post("/v1/users/ada/backtests/", asked, format="json")
        assert answer.status_code == 400
        assert set(answer.data["errors"]) <= {"constraint", "source"}
        assert not Backtest.objects.exists()

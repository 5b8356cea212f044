"""Workspace constraints: judged in a worker, run for matching users, ended with reasons."""

import uuid
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone
from rest_framework.test import APIClient

from memory.alerts.models.alerts import (
    Alert,
    AlertEventKind,
    AlertKind,
    AlertState,
)
from memory.constraints import applicability
from memory.constraints.applicability import includes
from memory.constraints.models.workspace_constraints import (
    VersionState,
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.constraints.workspace_constraints import (
    BadConstraint,
    ConstraintExists,
    NotApprovable,
    approve,
    change,
    create,
    propose,
)
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, Trust
from memory.project import Outline
from memory.project.errors import RunError
from memory.recall import retrieval
from memory.versions.models.runs import Run, RunKind, RunStatus, RunTrigger
from tests.steps import append_records, head_of, not_none
from workers import tasks
from workers.execution import constraints
from workers.gate import checks
from workers.sandbox import runner
from workers.sandbox.results import SandboxError
from workers.service import dispatching

pytestmark = pytest.mark.django_db

Work = Callable[[], None]

SOURCE = '''\
"""A lease that nobody may forget."""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uac import Alert, Record, warning

ALSO = {"Lease": ("Rental",), "Lease.ends_on": ("until",)}


@dataclass(kw_only=True)
class Lease(Record):
    """A lease."""

    flat: str
    ends_on: datetime.date
    rent: int | float = 0


def check(today: datetime.date, leases: Sequence[Lease]) -> Iterator[Alert]:
    """A lease that has ended."""
    for lease in leases:
        if lease.ends_on < today:
            yield warning(f"{lease.flat} ended on {lease.ends_on}", evidence=[lease])
'''
TESTS = '''\
"""Cases."""

import datetime

from uac.testing import run_check
from workspace.constraints import lease_end

DAY = datetime.date(2026, 1, 1)


def test_speaks() -> None:
    """The day after."""
    lease = lease_end.Lease(key="l", flat="Main Street", ends_on=datetime.date(2025, 12, 31))
    assert [alert.message for alert in run_check(lease_end, today=DAY, leases=[lease])] == [
        "Main Street ended on 2025-12-31"
    ]


def test_is_silent() -> None:
    """The day itself."""
    assert not run_check(
        lease_end, today=DAY, leases=[lease_end.Lease(key="l", flat="x", ends_on=DAY)]
    )
'''
PATH = "workspace/constraints/lease_end.py"
CHECKS = ["policy", "shape", "types", "execution", "tests", "mutants"]


def rental(flat: str = "Main Street", until: str = "2020-01-01", **fields: Any) -> dict[str, Any]:
    return {"domain": "home", "type": "Rental", "data": {"flat": flat, "until": until, **fields}}


def tell(user: MemoryUser, *statements: dict[str, Any]) -> None:
    append_records(user, *statements)


def made(workspace: Workspace, source: str = SOURCE, tests: str = TESTS) -> WorkspaceConstraint:
    return create(workspace, "lease_end", source=source, tests=tests, by="test")


def judged(constraint: WorkspaceConstraint) -> WorkspaceConstraintVersion:
    """Have the newest version judged and, if it passes, backtested."""
    version = constraint.versions.order_by("-number")[0]
    tasks.work("versions", str(version.pk))
    for backtest in version.backtests.all():
        tasks.work("backtests", str(backtest.pk))
    version.refresh_from_db()
    return version


def live(
    workspace: Workspace, percentage: int = 100, source: str = SOURCE, tests: str = TESTS
) -> WorkspaceConstraint:
    constraint = made(workspace, source, tests)
    version = judged(constraint)
    assert version.state == VersionState.PASSED, version.verdict
    approve(version, by="boss")
    return change(constraint, by="boss", percentage=percentage)


def alerts_of(user: MemoryUser) -> list[Alert]:
    live = Alert.objects.filter(user=user).exclude(state=AlertState.RESOLVED)
    return list(live.order_by("message"))


def reason_of(user: MemoryUser) -> str:
    """Return why the alert of the workspace's constraint was resolved."""
    alert = Alert.objects.get(user=user, constraint=PATH)
    assert alert.state == AlertState.RESOLVED
    event = alert.events.get(kind=AlertEventKind.RESOLVED)
    return str(event.detail["reason"])


def codes(version: WorkspaceConstraintVersion) -> list[str]:
    checks = not_none(version.verdict)["checks"]
    return [one["code"] for check in checks for one in check["findings"]]


class TestJudging:
    def test_sound_constraint_passes_every_check(self, workspace: Workspace) -> None:
        version = judged(made(workspace))

        found = not_none(version.verdict)["checks"]
        assert all(check["passed"] for check in found)
        assert [check["name"] for check in found] == CHECKS
        assert (version.state, version.attempts, version.lease_owner) == ("passed", 0, "")
        assert version.bytecode
        assert version.image_digest

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            pytest.param(("leases: Sequence[Lease]", "leases: list[Lease]"), "shape", id="shape"),
            pytest.param(
                ("from uac import", "from domains.home.state import rentals\nfrom uac import"),
                "import",
                id="state",
            ),
            pytest.param(("lease.ends_on < today", "lease.flat < today"), "operator", id="types"),
            pytest.param(
                ("    for lease in leases:", "    print(leases[0])\n    for lease in leases:"),
                "constraint_failed",
                id="fails on nothing",
            ),
            pytest.param(
                (
                    "    for lease in leases:",
                    "    yield warning('x', key='x')\n    for lease in leases:",
                ),
                "speaks_of_nothing",
                id="alerts about nothing",
            ),
            pytest.param(("< today", "<= today"), "test_failed", id="tests"),
            pytest.param(("def check(", "def check(("), "syntax", id="syntax"),
        ],
    )
    def test_faulty_constraint_is_refused_with_its_place(
        self, workspace: Workspace, change: tuple[str, str], code: str
    ) -> None:
        version = judged(made(workspace, SOURCE.replace(*change)))

        assert version.state == VersionState.REFUSED
        assert code in codes(version)

    def test_tests_that_show_no_silence_or_no_alert_are_refused(self, workspace: Workspace) -> None:
        silent, speaking = TESTS.index("def test_is_silent"), TESTS.index("def test_speaks")

        version = judged(made(workspace, tests=TESTS[:silent]))
        assert codes(version) == ["always_alerts_unnoticed"]

        tests = TESTS[:speaking] + TESTS[silent:]
        version = judged(
            create(
                workspace,
                "lease_end2",
                source=SOURCE,
                tests=tests.replace("lease_end", "lease_end2"),
                by="x",
            )
        )
        assert codes(version) == ["never_alerts_unnoticed"]

    def test_tests_depending_on_set_order_are_refused(self, workspace: Workspace) -> None:
        tests = TESTS + (
            "\n\ndef test_order() -> None:\n"
            '    """Depends on the seed."""\n'
            "    names = {f'name {number}' for number in range(20)}\n"
            "    assert [*names][0] == ORDERED\n"
        )
        first = next(iter({f"name {number}" for number in range(20)}))
        tests = tests.replace("ORDERED", repr(first))

        version = judged(made(workspace, tests=tests))

        # Strings are hashed differently in this process: one of the two seeds has other findings.
        assert version.state == VersionState.REFUSED
        assert set(codes(version)) <= {"not_deterministic", "test_failed"}

    def test_a_sandbox_that_breaks_refuses_nothing(
        self, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        constraint = made(workspace)

        error = SandboxError("killed", "no engine", infrastructure=True)

        with monkeypatch.context() as patched:
            patched.setattr(runner, "open_sandbox", Mock(side_effect=error))
            with pytest.raises(checks.GateUnavailable):
                judged(constraint)
        version = constraint.versions.get()
        assert (version.state, version.attempts) == (VersionState.CHECKING, 1)
        assert "no engine" in version.last_error

        constraint.versions.update(run_after=timezone.now())
        assert judged(constraint).state == VersionState.PASSED


class TestVersions:
    def test_names_and_texts_are_held_to_rules(self, workspace: Workspace) -> None:
        for name in ("Lease", "1x", "class", "a-b", ""):
            with pytest.raises(BadConstraint):
                create(workspace, name, source=SOURCE, tests=TESTS, by="x")
        made(workspace)
        with pytest.raises(ConstraintExists):
            made(workspace)
        with pytest.raises(BadConstraint, match="empty"):
            create(workspace, "other", source=" \n", tests=TESTS, by="x")
        with pytest.raises(BadConstraint, match="65536"):
            create(workspace, "other", source="#" * 70_000, tests=TESTS, by="x")

    def test_the_same_text_again_is_the_same_version(self, workspace: Workspace) -> None:
        constraint = made(workspace)

        assert propose(constraint, source=SOURCE, tests=TESTS, by="x").number == 1
        assert propose(constraint, source=SOURCE + "\n", tests=TESTS, by="x").number == 2
        assert propose(constraint, source=SOURCE, tests=TESTS, by="x").number == 3

    def test_only_one_that_passed_can_be_approved(self, workspace: Workspace) -> None:
        constraint = made(workspace)
        with pytest.raises(NotApprovable, match="being checked"):
            approve(constraint.versions.get(), by="boss")
        refused = propose(constraint, source=SOURCE.replace("<", "<="), tests=TESTS, by="x")
        assert judged(constraint).state == VersionState.REFUSED
        with pytest.raises(NotApprovable, match="refused"):
            approve(refused, by="boss")
        constraint.refresh_from_db()
        assert constraint.live is None

    def test_earlier_version_is_approved_again(self, workspace: Workspace) -> None:
        constraint = live(workspace)
        first = constraint.versions.get()
        propose(
            constraint,
            source=SOURCE.replace("ended on", "has ended on"),
            tests=TESTS.replace("ended on", "has ended on"),
            by="x",
        )
        second = judged(constraint)
        assert approve(second, by="chief").live == second

        assert approve(first, by="chief").live == first
        first.refresh_from_db()
        assert (first.approved_by, first.constraint.changed_by) == ("boss", "chief")

    @pytest.mark.parametrize(
        "columns",
        [{"source": "x"}, {"tests": "x"}, {"number": 7}, {"verdict": {}}, {"state": "checking"}],
    )
    def test_a_judged_version_cannot_be_changed_in_the_database(
        self, workspace: Workspace, columns: dict[str, Any]
    ) -> None:
        constraint = made(workspace)
        judged(constraint)

        with pytest.raises(IntegrityError, match="immutable"), transaction.atomic():
            constraint.versions.update(**columns)


class TestPercentage:
    def test_more_only_adds_users_and_the_share_is_about_right(self, workspace: Workspace) -> None:
        constraint = WorkspaceConstraint(workspace=workspace, name="x")
        users = [uuid.uuid4() for _ in range(2000)]
        before: set[uuid.UUID] = set()
        for percentage in (0, 1, 10, 50, 99, 100):
            constraint.percentage = percentage
            now = {user for user in users if includes(constraint, user)}
            assert before <= now
            assert abs(len(now) - 20 * percentage) <= 90
            before = now
        assert len(before) == len(users)

    @pytest.mark.parametrize("percentage", [-1, 101])
    def test_invalid_names_are_refused(self, workspace: Workspace, percentage: int) -> None:
        with pytest.raises(BadConstraint):
            change(made(workspace), by="x", percentage=percentage)


@pytest.fixture
def fired(workspace: Workspace, user: MemoryUser, work: Work) -> WorkspaceConstraint:
    """A live constraint, of which the user has an open alert."""
    constraint = live(workspace)
    tell(user, rental())
    work()
    return constraint


def report_failure(user: MemoryUser) -> None:
    """Report that the sandbox of the user's last run has failed."""
    run = Run.objects.filter(user=user, kind=RunKind.CONSTRAINTS).latest("queued_at")
    told = RunError(type="killed", message="no engine")
    with transaction.atomic():
        constraints.report_failure(
            Run.objects.select_related("checkpoint", "user").get(pk=run.pk), told
        )


class TestRunning:
    def test_workspace_constraint_alerts_with_the_users_records_as_evidence(
        self, workspace: Workspace, user: MemoryUser, work: Work
    ) -> None:
        live(workspace)
        tell(user, rental(), rental("Side Street", "2999-01-01"))
        work()

        (alert,) = alerts_of(user)
        assert (alert.constraint, alert.kind) == (PATH, AlertKind.FINDING)
        assert alert.message == "Main Street ended on 2020-01-01"
        (evidence,) = alert.evidence
        assert (evidence["domain"], evidence["collection"], evidence["class"]) == (
            *("home", "rentals"),
            "Rental",
        )
        assert alert.entries == [1]
        run = Run.objects.get(user=user, kind=RunKind.CONSTRAINTS)
        assert run.output["workspace"] == [
            {"path": PATH, "version": 1, "applies": True, "reasons": [], "notes": []}
        ]

    def test_workspace_constraint_may_count_only_what_the_person_said(
        self, workspace: Workspace, user: MemoryUser, work: Work
    ) -> None:
        source = SOURCE.replace("Alert, Record,", "Alert, Record, trust_of,").replace(
            "if lease.ends_on", 'if trust_of(lease) == "user" and lease.ends_on'
        )
        tests = TESTS + (
            "\n\ndef test_is_silent_about_what_a_document_says() -> None:\n"
            '    """A document in the file."""\n'
            "    ended = datetime.date(2025, 12, 31)\n"
            '    lease = lease_end.Lease(key="l", flat="x", ends_on=ended, sources=(3,))\n'
            "    found = run_check(\n"
            '        lease_end, today=DAY, trust={3: "document"}, leases=[lease]\n'
            "    )\n"
            "    assert not found\n"
        )
        live(workspace, source=source, tests=tests)
        scanned = Draft(kind=EntryKind.RECORD, data=rental("Side Street"), trust=Trust.DOCUMENT)
        entry_log.append(user, [scanned], source="test")
        tell(user, rental())
        work()

        assert [alert.message for alert in alerts_of(user)] == ["Main Street ended on 2020-01-01"]

    def test_run_names_why_a_constraint_does_not_apply(
        self, workspace: Workspace, user: MemoryUser, work: Work
    ) -> None:
        live(workspace)
        tell(user, {"domain": "home", "type": "Rental", "data": {"flat": "x", "until": 3}})
        work()
        assert alerts_of(user) == []

        standing = applicability.applicabilities
        (found,) = standing(user, _outline(user))
        assert found.reasons == ("home.Rental.until is int, not datetime.date",)

    def test_disabling_resolves_and_enabling_finds_anew(
        self, fired: WorkspaceConstraint, user: MemoryUser, work: Work
    ) -> None:
        assert len(alerts_of(user)) == 1

        change(fired, by="boss", enabled=False)
        _catch_up(work)

        assert reason_of(user) == "constraint disabled"
        run = Run.objects.filter(user=user).latest("queued_at")
        assert run.trigger == RunTrigger.WORKSPACE

        change(fired, by="boss", enabled=True)
        _catch_up(work)
        assert len(alerts_of(user)) == 1

    def test_leaving_the_percentage_resolves(
        self, fired: WorkspaceConstraint, user: MemoryUser, work: Work
    ) -> None:
        change(fired, by="boss", percentage=0)
        _catch_up(work)

        assert reason_of(user) == "user no longer within the rollout percentage"

    def test_a_new_version_that_does_not_fit_resolves(
        self, fired: WorkspaceConstraint, user: MemoryUser, work: Work
    ) -> None:
        source = SOURCE.replace('("Rental",)', '("Contract",)')
        propose(fired, source=source, tests=TESTS, by="x")
        approve(judged(fired), by="boss")
        _catch_up(work)

        assert reason_of(user) == "no longer applies"

    def test_a_new_version_runs_and_keeps_the_alert(
        self, fired: WorkspaceConstraint, user: MemoryUser, work: Work
    ) -> None:
        (before,) = alerts_of(user)

        said = (
            SOURCE.replace("ended on", "is over since"),
            TESTS.replace("ended on", "is over since"),
        )
        propose(fired, source=said[0], tests=said[1], by="x")
        approve(judged(fired), by="boss")
        _catch_up(work)

        (after,) = alerts_of(user)
        assert after.pk == before.pk
        assert after.message == "Main Street is over since 2020-01-01"

    def test_failing_constraint_harms_no_other_and_is_reported_to_staff(
        self, workspace: Workspace, user: MemoryUser, work: Work, api: APIClient
    ) -> None:
        live(workspace)
        source = SOURCE.replace("lease.ends_on < today", "1 / lease.rent and lease.ends_on < today")
        tests = TESTS.replace('flat="', 'rent=1, flat="')
        other = create(
            workspace,
            "other_end",
            source=source,
            tests=tests.replace("lease_end", "other_end"),
            by="x",
        )
        approve(judged(other), by="boss")
        change(other, by="boss", percentage=100)
        tell(user, rental(rent=0))
        work()

        failed, found = sorted(alerts_of(user), key=lambda alert: alert.kind)
        assert (found.constraint, found.kind) == (PATH, AlertKind.FINDING)
        assert failed.kind == AlertKind.CONSTRAINT_ERROR
        assert failed.constraint == other.path
        assert "ZeroDivisionError" in failed.message
        listed = {
            row["path"]: row["failing"]
            for row in api.get(f"/v1/users/{user.user_id}/constraints/").data["results"]
        }
        assert listed[PATH] is None
        assert listed[other.path]["message"] == failed.message
        # It is none of the user's own, and the manifest shows its failure.
        assert f"warning: {failed.message}" in retrieval.manifest(user).text

        change(other, by="boss", enabled=False)
        _catch_up(work)
        assert "ZeroDivisionError" not in retrieval.manifest(user).text
        assert [alert.constraint for alert in alerts_of(user)] == [PATH]

    def test_users_of_other_workspaces_and_without_a_project_are_left_alone(
        self, workspace: Workspace, user: MemoryUser, work: Work
    ) -> None:
        elsewhere = Workspace.objects.create(name="elsewhere")
        stranger = create_user(elsewhere, "bob", metadata=None)
        tell(stranger, rental())
        empty = create_user(workspace, "nobody", metadata=None)
        work()

        live(workspace)

        assert stranger not in MemoryUser.objects.filter(constraints_changed_at__isnull=False)
        assert dispatching.queue_runs_of_changed_constraints() == 0
        tell(user, rental())
        _catch_up(work)
        assert len(alerts_of(user)) == 1
        assert alerts_of(stranger) == alerts_of(empty) == []

    def test_only_so_many_runs_wait_at_a_time_and_all_users_get_theirs(
        self, workspace: Workspace, work: Work, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        users = [create_user(workspace, f"u{number}", metadata=None) for number in range(5)]
        for user in users:
            tell(user, rental())
        work()
        monkeypatch.setattr(dispatching, "WORKSPACE_RUNS", 2)
        live(workspace)

        waiting = Run.objects.filter(trigger=RunTrigger.WORKSPACE).exclude(status=RunStatus.DONE)
        dispatching.dispatch()
        dispatching.dispatch()
        assert waiting.count() == 2
        for _ in range(3):
            work()
            dispatching.dispatch()
        work()

        assert [len(alerts_of(user)) for user in users] == [1] * 5
        assert not MemoryUser.objects.filter(constraints_changed_at__isnull=False).exists()

    def test_a_sandbox_that_fails_resolves_with_the_right_reason(
        self, fired: WorkspaceConstraint, user: MemoryUser, work: Work
    ) -> None:
        change(fired, by="boss", enabled=False)

        report_failure(user)

        assert reason_of(user) == "constraint disabled"

    def test_unaffected_users_get_no_run(
        self, workspace: Workspace, user: MemoryUser, work: Work
    ) -> None:
        tell(user, {"domain": "home", "type": "Plant", "data": {"name": "fern"}})
        work()
        live(workspace)

        _catch_up(work)

        assert not Run.objects.filter(user=user, kind=RunKind.CONSTRAINTS).exists()


class TestCoverage:
    def test_applicability_is_counted_by_page(self, workspace: Workspace, work: Work) -> None:
        said = [rental(), rental(), {"domain": "d", "type": "Plant", "data": {"name": "x"}}]
        for number, statement in enumerate(said):
            tell(create_user(workspace, f"u{number}", metadata=None), statement)
        create_user(workspace, "empty", metadata=None)
        work()
        version = made(workspace).versions.get()

        found = applicability.coverage(version)
        assert (found.users, found.applies, found.within, found.after) == (3, 2, 0, None)
        assert found.reasons == {"no class Lease or Rental": 1}

        first = applicability.coverage(version, most=2)
        assert (first.users, first.applies) == (2, 2)
        rest = applicability.coverage(version, after=not_none(first.after))
        assert (rest.users, rest.applies, rest.after) == (1, 0, None)


def _outline(user: MemoryUser) -> Any:
    return Outline.from_json(head_of(user).outline)


def _catch_up(work: Work) -> None:
    dispatching.dispatch()
    work()

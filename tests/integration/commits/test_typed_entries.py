"""Typed entries become typed Python, without a model: what is accepted, what is not, and why."""

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from memory.alerts.models.alerts import AlertEvent
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.log import entry_log, lanes
from memory.log.models.entries import EntryOutcome
from memory.operations.verification import problems
from memory.project import compile_record
from memory.versions.models.checkpoints import Bytecode, Checkpoint
from tests.integration.commits.conftest import Append, Records, Source, trip
from tests.steps import append_texts
from workers import tasks
from workers.commits import typed_entries
from workers.findings import Check, Finding, Verdict
from workers.gate import checks
from workers.gate.cases import ProjectCase
from workers.sandbox import process
from workers.sandbox.client import Sandbox
from workers.sandbox.results import SandboxError

pytestmark = pytest.mark.django_db

Verdicts = Callable[[], dict[int, tuple[str, str]]]


def test_an_entry_becomes_a_record_that_names_it(
    user: MemoryUser, checkpoint: Append, source_of: Source
) -> None:
    checkpoint(trip(starts_on="2026-05-02", cost=840))

    assert user.head is not None
    assert (user.head.version, user.head.origin, user.head.seen_seq) == (1, "records", 1)
    assert (
        'Trip(key="trip-1", to="Rome", starts_on=datetime.date(2026, 5, 2), cost=840, sources=(1,))'
        in source_of("domains/travel/state.py")
    )
    assert "starts_on: datetime.date" in source_of("domains/travel/schema.py")
    assert "trips: 1 Trip" in source_of("manifest.py")
    assert list(problems(user)) == []


def test_the_same_key_updates_and_keeps_what_is_not_said(
    checkpoint: Append, fields_of: Records, source_of: Source
) -> None:
    checkpoint(trip(key="t", cost=840))
    checkpoint({**trip(key="t"), "data": {"cost": 900}})

    assert fields_of("travel.trips") == {"t": {"to": "Rome", "cost": 900}}
    assert "sources=(1, 2)" in source_of("domains/travel/state.py")


def test_a_retired_record_leaves_and_may_come_back(
    checkpoint: Append, fields_of: Records, verdicts: Verdicts, source_of: Source
) -> None:
    checkpoint(trip(key="t"), trip("Oslo", key="o"))
    checkpoint({"domain": "travel", "type": "Trip", "key": "t", "retired": True})
    assert list(fields_of("travel.trips")) == ["o"]

    (again,) = checkpoint(trip("Bonn", key="t"))

    assert verdicts()[again] == ("covered", "")
    assert fields_of("travel.trips") == {"o": {"to": "Oslo"}, "t": {"to": "Bonn"}}
    assert 'Trip(key="t", to="Bonn", sources=(4,))' in source_of("domains/travel/state.py")


def test_contradicting_entries_are_rejected_and_the_rest_accepted(
    user: MemoryUser, checkpoint: Append, verdicts: Verdicts, fields_of: Records
) -> None:
    seqs = checkpoint(
        trip(key="a", days=3),
        {**trip(key="b"), "type": "Hotel", "collection": "trips"},
        {**trip(), "key": "c\x07"},
        trip(key="d", days=5),
    )

    assert [verdicts()[seq][0] for seq in seqs] == ["covered", "rejected", "rejected", "covered"]
    assert "travel.trips contains Trip records" in verdicts()[seqs[1]][1]
    assert "control characters" in verdicts()[seqs[2]][1]
    assert list(fields_of("travel.trips")) == ["a", "d"]
    counts = entry_log.coverage(user)
    assert (counts.covered, counts.rejected, counts.pending) == (2, 2, 0)


def test_misfit_values_are_set_aside_and_named_in_outcome_and_event(
    user: MemoryUser, checkpoint: Append, fields_of: Records
) -> None:
    checkpoint(trip(key="a", days=3))
    seqs = checkpoint(
        trip(key="b", days="three"), trip(key="c", days=4), trip(key="d", days=[5], on="TBD")
    )

    outcomes = EntryOutcome.objects.filter(user=user, seq__in=seqs).order_by("seq")
    assert [(one.outcome, one.set_aside) for one in outcomes] == [
        ("covered", ["days"]),
        ("covered", []),
        ("covered", ["days"]),
    ]
    found = fields_of("travel.trips")
    assert found["b"] == {"to": "Rome", "days": None, "on": None, "set_aside": {"days": "three"}}
    assert found["d"]["set_aside"] == {"days": [5]}
    (event,) = AlertEvent.objects.filter(user=user)
    assert (event.kind, event.entries) == ("set_aside", [seqs[0], seqs[2]])


def test_messages_wait_and_are_counted(user: MemoryUser, checkpoint: Append) -> None:
    append_texts(user, "hello")
    checkpoint(trip())

    counts = entry_log.coverage(user)
    assert (counts.total, counts.pending, counts.covered) == (2, 1, 1)


def test_an_entry_on_which_the_server_itself_fails_does_not_block_the_others(
    checkpoint: Append, verdicts: Verdicts, fields_of: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(project: Any, entry: Any) -> Any:
        if entry.key == "strange":
            raise ZeroDivisionError("a fault of ours")
        return compile_record(project, entry)

    monkeypatch.setattr(typed_entries, "compile_record", faulty)
    seqs = checkpoint(trip(key="a"), trip(key="strange"), trip(key="b"))

    assert [verdicts()[seq][0] for seq in seqs] == ["covered", "rejected", "covered"]
    assert "the server failed" in verdicts()[seqs[1]][1]
    assert list(fields_of("travel.trips")) == ["a", "b"]


@pytest.mark.parametrize("error", [MemoryError, SystemError])
def test_failure_that_tells_nothing_about_an_entry_is_tried_again(
    user: MemoryUser,
    checkpoint: Append,
    verdicts: Verdicts,
    fields_of: Records,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Exception],
) -> None:
    # Given an interpreter that has no memory left, or is at fault itself
    with monkeypatch.context() as broken:
        broken.setattr(typed_entries, "compile_record", Mock(side_effect=error))
        with pytest.raises(error):
            checkpoint(trip(key="a"))
    # Then the entry is not rejected, and the next attempt covers it
    assert verdicts() == {}
    Lane.objects.filter(user=user).update(run_after=timezone.now())
    tasks.work("records", user.pk)
    assert [outcome for outcome, _ in verdicts().values()] == ["covered"]
    assert list(fields_of("travel.trips")) == ["a"]


def test_large_entries_go_in_smaller_batches(
    user: MemoryUser, checkpoint: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "BATCH_BYTES", 5000)
    # On a slow machine the time slice would end after the first checkpoint.
    monkeypatch.setattr(tasks, "TURN_SECONDS", 600.0)

    checkpoint(*(trip("x" * 2000, key=f"t{number}") for number in range(6)))

    versions = Checkpoint.objects.filter(user=user).order_by("version")
    added = [version.verdict["counts"]["records_added"] for version in versions]
    assert added == [3, 3]


# -- The gate refuses ---------------------------------------------------------------------------


def poison_gate(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let the real gate refuse every candidate with a poisoned record; return what it judged."""
    judged: list[int] = []
    real = checks.judge

    def judge(case: ProjectCase) -> Verdict:
        judged.append(len(case.change.added))
        poisoned = [record for record in case.change.added if "poison" in record.key]
        if poisoned:
            finding = Finding(code="poison", message=f"{poisoned[0].key} makes it fail")
            return Verdict(checks=[Check("execution", [finding])])
        return real(case)

    monkeypatch.setattr(checks, "judge", judge)
    return judged


@pytest.mark.parametrize("poisoned", [{0}, {6}, {3}, {0, 1}, {2, 5}, set(range(7))])
def test_refused_entry_is_found_by_bisecting(
    user: MemoryUser,
    checkpoint: Append,
    verdicts: Verdicts,
    fields_of: Records,
    monkeypatch: pytest.MonkeyPatch,
    poisoned: set[int],
) -> None:
    checkpoint(trip(key="first"))
    poison_gate(monkeypatch)

    seqs = checkpoint(
        *(trip(key=f"poison-{n}" if n in poisoned else f"good-{n}") for n in range(7))
    )

    outcomes = [verdicts()[seq] for seq in seqs]
    assert {n for n, (outcome, _) in enumerate(outcomes) if outcome == "rejected"} == poisoned
    for number in poisoned:
        assert outcomes[number][1] == f"execution: poison-{number} makes it fail"
    good = [f"good-{n}" for n in range(7) if n not in poisoned]
    assert list(fields_of("travel.trips")) == ["first", *good]
    assert list(problems(user)) == []


def test_a_sandbox_that_cannot_be_had_rejects_nothing_and_is_tried_again(
    user: MemoryUser,
    append: Append,
    verdicts: Verdicts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    append(trip())
    error = SandboxError("killed", "no engine answers", infrastructure=True)

    with monkeypatch.context() as patch:
        patch.setattr(process, "start", Mock(side_effect=error))
        with pytest.raises(checks.GateUnavailable):
            tasks.work("records", user.pk)

    lane = Lane.objects.get(user=user, name=LaneName.RECORDS)
    assert "no engine answers" in lane.last_error
    assert lane.attempts == 1
    assert lane.lease_expires_at is None
    assert verdicts() == {}
    assert entry_log.coverage(user).pending == 1

    Lane.objects.filter(pk=lane.pk).update(run_after=timezone.now())
    tasks.work("records", user.pk)

    assert verdicts()[1][0] == "covered"
    lane.refresh_from_db()
    assert (lane.attempts, lane.last_error, lane.due_at) == (0, "", None)


@pytest.mark.parametrize(
    "error", [OperationalError("gone"), InterfaceError("the connection is closed")]
)
def test_a_database_that_goes_away_rejects_nothing(
    user: MemoryUser,
    append: Append,
    verdicts: Verdicts,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    append(trip())

    with monkeypatch.context() as patch:
        patch.setattr(typed_entries, "compile_record", Mock(side_effect=error))
        with pytest.raises(type(error)):
            tasks.work("records", user.pk)

    assert verdicts() == {}
    assert Lane.objects.get(user=user, name=LaneName.RECORDS).last_error


@pytest.mark.parametrize("outcome", ["timeout", "killed"])
def test_data_alone_is_not_rejected_because_its_sandbox_was_ended(
    user: MemoryUser,
    append: Append,
    verdicts: Verdicts,
    monkeypatch: pytest.MonkeyPatch,
    outcome: str,
) -> None:
    append(trip())
    error = SandboxError(outcome, "ended by SIGKILL")

    with monkeypatch.context() as patch:
        patch.setattr(Sandbox, "dump", Mock(side_effect=error))
        with pytest.raises(checks.GateUnavailable):
            tasks.work("records", user.pk)

    assert verdicts() == {}


def test_bytecode_that_is_damaged_rejects_nothing_and_is_compiled_anew(
    user: MemoryUser, append: Append, checkpoint: Append, verdicts: Verdicts
) -> None:
    checkpoint(trip(key="a"))
    damaged = Bytecode.objects.filter(user=user)
    assert damaged.update(code=b"no bytecode") > 0

    append(trip(key="b"))
    with pytest.raises(checks.GateUnavailable, match="is damaged"):
        tasks.work("records", user.pk)
    assert list(verdicts()) == [1]

    Lane.objects.filter(user=user).update(run_after=timezone.now())
    tasks.work("records", user.pk)
    assert verdicts()[2] == ("covered", "")
    assert not Bytecode.objects.filter(user=user, code=b"no bytecode").exists()

"""The world's time decides, not the order of arrival; and a retired key may come back.

Many more histories are in tests/unit/project/test_folding.py. Run more here with
`UAC_EXAMPLES=100 pytest tests/integration/commits/test_late_entries.py`.
"""

import datetime
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rest_framework.test import APIClient

from memory.alerts.models.alerts import Alert
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from memory.kernel.users import create_user
from memory.log import copies, entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, EntryOutcome, Outcome
from memory.operations.verification import problems
from memory.privacy import redaction
from memory.project import RecordId
from memory.versions import past_states, provenance, rollback
from memory.versions.models.checkpoints import RecordLocation
from tests.conftest import finish_work, new_client
from tests.edits import retire, update
from tests.integration.commits.conftest import Propose, Records, constraint
from tests.integration.merging.test_merging import merged
from tests.integration.time.test_by_occurred import state_of
from tests.properties import examples
from tests.steps import head_of, not_none
from workers import tasks
from workers.findings import Verdict
from workers.gate import checks

pytestmark = pytest.mark.django_db

START = datetime.datetime(2025, 3, 1, 9, tzinfo=datetime.UTC)
USER = "/v1/users/ada/"

Say = Callable[..., int]


def on(day: int) -> datetime.datetime:
    return START + datetime.timedelta(days=day)


def said(day: int, key: str = "t", *, retired: bool = False, **data: Any) -> Draft:
    statement = {"domain": "travel", "type": "Trip", "key": key}
    what = {"retired": True} if retired else {"data": data}
    return Draft(kind=EntryKind.RECORD, data={**statement, **what}, occurred_at=on(day))


def settle(user: MemoryUser, *drafts: Draft) -> list[int]:
    """Append typed entries and settle them together; return their numbers."""
    entries = entry_log.append(user, drafts, source="test")
    tasks.work("records", user.pk)
    user.refresh_from_db()
    return [entry.seq for entry in entries]


@pytest.fixture
def say(user: MemoryUser) -> Say:
    """Append a typed entry about a trip, settle it, and return its number."""

    def do(day: int, key: str = "t", **data: Any) -> int:
        (seq,) = settle(user, said(day, key, **data))
        return seq

    return do


@pytest.fixture
def api(workspace: Workspace) -> APIClient:
    """A client of the API whose key may redact."""
    return new_client(workspace, Scope.READ, Scope.WRITE, Scope.MANAGE)


@pytest.fixture
def without_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the compiler alone judge the entries."""
    monkeypatch.setattr(checks, "judge", lambda *_, **__: Verdict())


def location(user: MemoryUser, key: str = "t") -> RecordLocation:
    return RecordLocation.objects.select_related("user__head").get(user=user, key=key)


def remark(user: MemoryUser, seq: int) -> tuple[str, list[int]]:
    """Return the code of the reason why an entry changed less than it says, and the newer ones."""
    outcome = EntryOutcome.objects.get(user=user, seq=seq)
    assert outcome.outcome == Outcome.COVERED
    return outcome.reason.partition(":")[0], outcome.superseded_by or []


# -- Late entries ---------------------------------------------------------------------------------


def test_each_number_has_its_state_of_then(user: MemoryUser, say: Say, fields_of: Records) -> None:
    say(9, to="Rome")
    say(1, to="Oslo", cost=100)
    say(5, cost=200)

    def trip(text: str) -> Any:
        return not_none(state_of(past_states.read_as_of(user, text).checkpoint)).get(
            "travel.trips.t"
        )

    assert [trip(str(seq))["fields"] for seq in (1, 2, 3)] == [
        {"to": "Rome"},
        {"to": "Rome", "cost": 100},
        {"to": "Rome", "cost": 200},
    ]
    then = past_states.read_by_occurred(user, on(2).isoformat()).checkpoint
    assert state_of(then)["travel.trips.t"]["fields"] == {"to": "Oslo", "cost": 100}
    now = state_of(past_states.read_by_occurred(user).checkpoint)["travel.trips.t"]
    assert now["fields"] == state_of(head_of(user))["travel.trips.t"]["fields"]


def test_provenance_names_the_entry_of_each_value(user: MemoryUser, say: Say) -> None:
    say(9, to="Rome")
    say(1, to="Oslo", cost=100)

    origin = not_none(provenance.trace_record(location(user)))

    assert {field.name: list(field.entries) for field in origin.fields} == {"to": [1], "cost": [2]}
    assert list(origin.entries) == [1, 2]


def test_alerts_follow_a_late_entry(
    user: MemoryUser, say: Say, propose: Propose, work: Callable[[], None]
) -> None:
    say(9, to="Rome", cost=1)
    propose(constraint())
    say(9, "u", to="Oslo", cost=500)
    work()
    assert not Alert.objects.filter(user=user).exists()

    settle(user, said(20, "u", to="Bergen"), said(15, "u", cost=1500))
    work()
    assert [alert.state for alert in Alert.objects.filter(user=user)] == ["open"]

    say(12, "u", cost=2)  # older: the trip still costs 1500
    work()
    assert [alert.state for alert in Alert.objects.filter(user=user)] == ["open"]

    say(17, "u", cost=900)  # late, but newer than 1500
    work()
    assert [alert.state for alert in Alert.objects.filter(user=user)] == ["resolved"]


def test_correction_is_not_overwritten_by_earlier_occurrences(
    user: MemoryUser, say: Say, propose: Propose, fields_of: Records
) -> None:
    first = say(1, to="Rome", cost=100)
    (fact,) = entry_log.append(
        user,
        [
            Draft(
                kind=EntryKind.CORRECTION,
                content="The trip to Rome, t, costs 250.",
                derived_from=[first],
                occurred_at=on(10),
            )
        ],
        source="test",
    )
    run = propose(update("travel.trips.t", fact.seq, cost=250))
    assert run.outcome == "ok", run.output

    before = say(5, to="Oslo", cost=1)
    assert fields_of("travel.trips")["t"] == {"to": "Oslo", "cost": 250}
    assert remark(user, before) == ("partly_superseded", [fact.seq])

    say(15, cost=300)
    assert fields_of("travel.trips")["t"] == {"to": "Oslo", "cost": 300}


def test_retirement_by_edit_ends_all_entries_of_the_record(
    user: MemoryUser, say: Say, propose: Propose, fields_of: Records
) -> None:
    newest = say(9, to="Rome")
    said_so = Draft(kind=EntryKind.FACT, content="The trip to Rome is off.", occurred_at=on(4))
    (fact,) = entry_log.append(user, [said_so], source="test")
    run = propose(retire("travel.trips.t", fact.seq))
    assert run.outcome == "ok", run.output

    late = say(6, cost=1)
    assert remark(user, late) == ("superseded", [newest])
    say(10, to="Rome", cost=2)
    assert fields_of("travel.trips") == {"t": {"to": "Rome", "cost": 2}}


# -- Lives ----------------------------------------------------------------------------------------


def test_a_retired_record_comes_back_and_both_lives_are_in_its_history(
    api: APIClient, user: MemoryUser, say: Say, fields_of: Records
) -> None:
    say(1, to="Rome", cost=100)
    say(2, retired=True)
    say(3, to="Oslo")

    assert fields_of("travel.trips") == {"t": {"to": "Oslo", "cost": None}}
    states = [state_of(past_states.read_as_of(user, str(seq)).checkpoint) for seq in (1, 2, 3)]
    assert [state.get("travel.trips.t", {}).get("sources") for state in states] == [[1], None, [3]]
    origin = not_none(provenance.trace_record(location(user)))
    assert {field.name: list(field.entries) for field in origin.fields} == {"to": [3], "cost": []}
    since = api.get(f"{USER}diff/?since=v1&until=v2").data["retired"]
    assert [(one["key"], one["entries"]) for one in since] == [("t", [2])]
    back = api.get(f"{USER}diff/?since=v2").data["added"]
    assert [(one["key"], one["entries"]) for one in back] == [("t", [3])]
    assert list(problems(user)) == []


def test_a_full_file_moves_a_record_that_comes_back(user: MemoryUser, say: Say) -> None:
    settle(user, *(said(1, f"k{number}", to="x" * 900) for number in range(80)))
    old, first = location(user, "k0").path, head_of(user)

    settle(user, said(2, "k0", retired=True), said(3, "k0", to="y"))

    record_id = RecordId("travel", "trips", "k0")
    assert provenance.read_records(first, [record_id])[record_id]["sources"] == [1]
    assert provenance.read_records(head_of(user), [record_id])[record_id]["sources"] == [82]

    assert location(user, "k0").path != old
    assert state_of(head_of(user))["travel.trips.k0"]["fields"] == {"to": "y"}
    assert list(problems(user)) == []


# -- Redaction, rollback, merging -----------------------------------------------------------------


def redact(user: MemoryUser, seq: int, work: Callable[[], None]) -> None:
    redaction.redact(user, [seq], by="test", reason="")
    work()
    user.refresh_from_db()
    assert list(problems(user)) == []


def test_without_the_newer_entry_the_late_one_holds(
    user: MemoryUser, say: Say, work: Callable[[], None], fields_of: Records
) -> None:
    newer, late = say(9, to="Rome", cost=1), say(1, to="Oslo")
    assert fields_of("travel.trips")["t"]["to"] == "Rome"

    redact(user, newer, work)

    assert fields_of("travel.trips") == {"t": {"to": "Oslo", "cost": None}}
    assert remark(user, late) == ("", [])


def test_without_its_retirement_a_record_has_one_life(
    user: MemoryUser, say: Say, work: Callable[[], None], fields_of: Records
) -> None:
    say(1, to="Rome", cost=1)
    gone = say(5, retired=True)
    say(3, cost=3)
    say(9, to="Oslo")
    assert fields_of("travel.trips") == {"t": {"to": "Oslo", "cost": None}}

    redact(user, gone, work)

    assert fields_of("travel.trips") == {"t": {"to": "Oslo", "cost": 3}}
    assert state_of(head_of(user))["travel.trips.t"]["sources"] == [1, 3, 4]


def test_without_its_retirement_a_retired_record_is_there(
    user: MemoryUser, say: Say, work: Callable[[], None], fields_of: Records
) -> None:
    say(1, to="Rome")
    gone = say(5, retired=True)

    redact(user, gone, work)

    assert fields_of("travel.trips") == {"t": {"to": "Rome"}}


def test_without_what_began_its_second_life_a_record_is_retired_as_before(
    user: MemoryUser, say: Say, work: Callable[[], None], fields_of: Records
) -> None:
    say(1, to="Rome")
    settle(user, said(5, retired=True), said(9, to="Oslo"))

    redact(user, 3, work)

    assert fields_of("travel.trips") == {}
    late = say(3, to="Bonn")
    assert remark(user, late) == ("superseded", [2])
    say(9, to="Pisa")
    assert fields_of("travel.trips") == {"t": {"to": "Pisa"}}


def test_without_an_entry_of_an_ended_life_the_present_one_stays(
    user: MemoryUser, say: Say, work: Callable[[], None], fields_of: Records
) -> None:
    first = say(1, to="Rome")
    say(5, retired=True)
    say(9, to="Oslo")

    redact(user, first, work)

    assert fields_of("travel.trips") == {"t": {"to": "Oslo"}}
    assert location(user).ended_by == 2


@pytest.mark.parametrize("reopen", [False, True])
def test_a_rollback_takes_a_retirement_back(
    user: MemoryUser, say: Say, fields_of: Records, reopen: bool
) -> None:
    say(1, to="Rome")
    first = say(2, retired=True)
    say(4, to="Oslo")
    say(6, retired=True)
    say(8, to="Pisa")

    rollback.restore(user, 3, reopen=reopen, by="test")
    assert location(user).ended_by == first
    tasks.work("records", user.pk)
    user.refresh_from_db()

    assert fields_of("travel.trips") == {"t": {"to": "Pisa" if reopen else "Oslo"}}
    say(5, cost=5)
    cost = None if reopen else 5
    assert fields_of("travel.trips")["t"].get("cost") == cost
    assert list(problems(user)) == []


def test_copies_of_a_merged_user_are_folded_by_their_times(
    user: MemoryUser, work: Callable[[], None], fields_of: Records
) -> None:
    anon = create_user(user.workspace, "anon", metadata=None)
    settle(anon, said(9, to="Rome"), said(1, to="Oslo", cost=1))
    settle(anon, said(3, "u", retired=True), said(2, "u", to="Bonn"))

    merged(user, anon)
    work()

    assert fields_of("travel.trips") == {"t": {"to": "Rome", "cost": 1}}
    assert len(copies.origins(user, range(1, 5))) == 4
    user.refresh_from_db()
    assert list(problems(user)) == []


# -- Cost and property ----------------------------------------------------------------------------


_DATA = st.dictionaries(st.sampled_from(["cost", "days"]), st.integers(0, 3) | st.none())
_TOLD = st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.integers(0, 3), _DATA)
_NUMBERS = itertools.count()


@pytest.mark.usefixtures("without_gate")
@settings(
    max_examples=examples(3),
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(
    batches=st.lists(st.lists(_TOLD, min_size=1, max_size=4), min_size=1, max_size=4),
    redacted=st.sets(st.integers(1, 16), max_size=4),
)
def test_the_state_is_that_of_the_order_of_occurrence(
    workspace: Workspace,
    batches: list[list[tuple[str, int, int, dict[str, Any]]]],
    redacted: set[int],
) -> None:
    def drafts(batch: Sequence[tuple[str, int, int, dict[str, Any]]]) -> list[Draft]:
        return [
            said(day, key, retired=True) if end == 0 else said(day, key, **data)
            for key, day, end, data in batch
        ]

    user = create_user(workspace, f"late-{next(_NUMBERS)}", metadata=None)
    for batch in batches:
        settle(user, *drafts(batch))
        assert _present(user) == _true(user)
        assert list(problems(user)) == []
    assert not EntryOutcome.objects.filter(user=user).exclude(outcome=Outcome.COVERED).exists()

    # Without some of the entries, it is what the others say, as if those had never been there.
    for seq in sorted(redacted & {*range(1, user.last_seq + 1)}):
        redaction.redact(user, [seq], by="test", reason="")
        finish_work()
        user.refresh_from_db()
        assert _present(user) == _true(user)
        assert list(problems(user)) == []


def _present(user: MemoryUser) -> dict[str, Any]:
    return _records(state_of(user.head))


def _true(user: MemoryUser) -> dict[str, Any]:
    """Return what was true, as far as it is known now, by the entries' own times."""
    return _records(state_of(past_states.read_by_occurred(user).checkpoint))


def _records(state: Any) -> dict[str, Any]:
    """Return the records of a state without the fields that are None."""
    return {
        name: (
            {k: v for k, v in record["fields"].items() if v is not None},
            record["sources"],
        )
        for name, record in state.items()
        if name.count(".") == 2
    }


@pytest.mark.usefixtures("without_gate")
def test_late_entries_are_compared_with_few_queries(user: MemoryUser) -> None:
    settle(user, *(said(9, f"k{number}", to="x") for number in range(50)))

    def queries(day: int, number: int) -> int:
        drafts = [said(day, f"k{one}", to="y") for one in range(number)]
        entry_log.append(user, drafts, source="test")
        with CaptureQueriesContext(connection) as captured:
            tasks.work("records", user.pk)
        return len(captured)

    assert queries(2, 50) == queries(3, 1)

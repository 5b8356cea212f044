"""The state as of a number holds the entries up to it, however they were batched.

The state by occurred time is that of a user who was told each entry when it occurred.

These tests use the server's versions; many more histories are in
tests/unit/project/test_rebuilding.py.
Run more here with `UAC_EXAMPLES=200 pytest tests/integration/time/test_by_occurred.py`.
"""

import datetime
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, EntryOutcome, Outcome
from memory.project import Project
from memory.project.typed import encode
from memory.versions import checkpoints, computed_states, past_states
from memory.versions.checkpoints import AnyState
from memory.versions.models.checkpoints import Checkpoint
from tests.properties import examples
from tests.unit.project.strategies import histories, statements
from workers import tasks
from workers.findings import Verdict
from workers.gate import checks

pytestmark = pytest.mark.django_db

DAY = datetime.datetime(2025, 3, 1, 9, tzinfo=datetime.UTC)

State = Mapping[str, Any]


@pytest.fixture(autouse=True)
def gate_that_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the compiler alone judge the entries.

    The tests are about which entries a state holds.
    """
    monkeypatch.setattr(checks, "judge", lambda *_: Verdict())


@dataclass(frozen=True)
class Told:
    """A typed entry, and the day of March 2025 on which it occurred."""

    statement: Mapping[str, Any]
    day: int

    @property
    def occurred_at(self) -> datetime.datetime:
        return DAY + datetime.timedelta(days=self.day)


_TOLD = st.builds(Told, statement=statements(), day=st.integers(0, 4))
HISTORIES = histories(_TOLD, batches=3, batch=4)
# The first failing example is reported as it is: shrinking it takes many times as long.
_MANY = settings(
    max_examples=examples(2),
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_NUMBERS = itertools.count()


def told(workspace: Workspace, batches: Iterable[Sequence[Told]]) -> MemoryUser:
    """Return a user who was told these batches, each of them settled at once."""
    user = create_user(workspace, f"user-{next(_NUMBERS)}", metadata=None)
    for batch in batches:
        drafts = [
            Draft(kind=EntryKind.RECORD, data=dict(one.statement), occurred_at=one.occurred_at)
            for one in batch
        ]
        entry_log.append(user, drafts, source="test")
        tasks.work("records", user.pk)
    user.refresh_from_db()
    return user


def state_of(checkpoint: AnyState | None, numbers: Mapping[int, int] | None = None) -> State:
    """Return the content of a state: the classes, and the records in typed JSON, in order."""
    project = Project.from_files(checkpoints.read_files(checkpoint) if checkpoint else {})
    found: dict[str, Any] = {}
    for domain in project.outline.domains.values():
        found[domain.name] = {str(class_) for class_ in domain.classes.values()}
        for name in domain.collections:
            for record_id, record in project.records(domain.name, name):
                told = encode(record, domain)
                sources = [numbers[seq] if numbers else seq for seq in told["sources"]]
                found[".".join(record_id)] = {**told, "sources": sorted(sources)}
    return found


def covered(user: MemoryUser) -> list[int]:
    rows = EntryOutcome.objects.filter(user=user, outcome=Outcome.COVERED)
    return sorted(rows.values_list("seq", flat=True))


def ends_of(batches: Sequence[Sequence[Told]]) -> Iterator[int]:
    return itertools.accumulate(map(len, batches))


@_MANY
@given(batches=HISTORIES)
def test_number_has_the_entries_up_to_it(workspace: Workspace, batches: list[list[Told]]) -> None:
    # Given the same history told in bulk, and one by one
    flat = list(itertools.chain.from_iterable(batches))
    bulk, single = told(workspace, batches), told(workspace, [[one] for one in flat])
    assert covered(bulk) == covered(single)

    for seq in range(1, len(flat) + 1):
        # What somebody knew who had been told so far
        so_far = Checkpoint.objects.filter(user=single, seen_seq__lte=seq).order_by("-version")
        expected = state_of(so_far.first())
        for user in (bulk, single):
            known = past_states.read_as_of(user, str(seq))
            assert state_of(known.checkpoint) == expected, (user, seq)
            assert (known.seq, known.pending_count) == (seq, 0)

    # By moment: when a batch was settled, all of it was known
    for end in ends_of(batches):
        settled = EntryOutcome.objects.get(user=bulk, seq=end).decided_at
        known = past_states.read_as_of(bulk, settled.isoformat())
        so_far = Checkpoint.objects.filter(user=single, seen_seq__lte=end).order_by("-version")
        assert state_of(known.checkpoint) == state_of(so_far.first())


@_MANY
@given(batches=HISTORIES)
def test_time_has_the_entries_until_then(workspace: Workspace, batches: list[list[Told]]) -> None:
    user = told(workspace, batches)
    flat = list(itertools.chain.from_iterable(batches))
    counts = sorted(covered(user), key=lambda seq: (flat[seq - 1].day, seq))
    if user.head is None:
        return

    for day in sorted({flat[seq - 1].day for seq in counts}):
        moment = DAY + datetime.timedelta(days=day)
        by_then = [seq for seq in counts if flat[seq - 1].day <= day]
        other = told(workspace, [[flat[seq - 1]] for seq in by_then])
        numbers = dict(enumerate(by_then, 1))

        known = past_states.read_by_occurred(user, moment.isoformat())

        assert state_of(known.checkpoint) == state_of(other.head, numbers)
        rejected = sorted(set(numbers) - set(covered(other)))
        assert isinstance(known.checkpoint, checkpoints.State)
        assert known.checkpoint.rejected == sorted(numbers[seq] for seq in rejected)

    # And the states of the whole period are the same ones
    walked = list(computed_states.occurrences(user.head, DAY, DAY + datetime.timedelta(days=99)))
    assert [at for at, _ in walked] == sorted({flat[seq - 1].occurred_at for seq in counts})
    for at, state in walked:
        again = past_states.read_by_occurred(user, at.isoformat())
        assert state_of(state) == state_of(again.checkpoint)

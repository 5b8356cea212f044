"""A record is the fold of its typed entries in the order in which they occurred.

Run more histories with `UAC_EXAMPLES=30 pytest tests/unit/project/test_folding.py`.
"""

import datetime
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.project import (
    EditError,
    Project,
    RecordEntry,
    Retire,
    RetireEarlier,
    apply,
    compile_record,
)
from memory.project.folding import KnownEntries
from tests.properties import examples

from .support import Store

DAY = datetime.datetime(2026, 3, 1, 9, tzinfo=datetime.UTC)

# A record's fields without those that are None, and the entries behind it.
State = dict[str, tuple[dict[str, object], set[int]]]


def entry(seq: int, day: int, *, retired: bool = False, key: str = "a", **data: Any) -> RecordEntry:
    at = DAY + datetime.timedelta(days=day)
    return RecordEntry(seq, "life", "Thing", key, data=data, retired=retired, occurred_at=at)


def fold(entries: Sequence[RecordEntry]) -> State:
    """Return the state that the entries make in the order in which they occurred."""
    found: State = {}
    for one in sorted(entries, key=lambda one: one.moment):
        assert one.key
        if one.retired:
            found.pop(one.key, None)
            continue
        fields, seqs = found.setdefault(one.key, ({}, set()))
        fields.update(one.data)
        seqs.add(one.seq)
    return {
        key: ({name: value for name, value in fields.items() if value is not None}, seqs)
        for key, (fields, seqs) in found.items()
    }


def settle(batches: Sequence[Sequence[RecordEntry]]) -> tuple[Store, dict[int, str]]:
    """Settle batch after batch as the server does; return the result and the remarks' codes."""
    store, codes = Store(Project.empty()), dict[int, str]()
    known = [one for batch in batches for one in batch]
    for batch in batches:
        project = store.open()
        project.earlier = KnownEntries(known)
        for one in batch:
            for edit in compile_record(project, one):
                apply(project, edit)
        change = project.change()
        codes |= {seq: remark.code for seq, remark in change.remarks.items()}
        store.keep(change)
    return store, codes


def state_of(store: Store) -> State:
    project = store.open()
    found: State = {}
    for domain in project.outline.domains.values():
        for name in domain.collections:
            for record_id, record in project.records(domain.name, name):
                fields: dict[str, object] = {
                    name: value for name, value in record.fields.items() if value is not None
                }
                found[record_id.key] = fields, set(record.sources)
    return found


def cut(entries: Sequence[RecordEntry], ends: Sequence[int]) -> list[Sequence[RecordEntry]]:
    bounds = [0, *sorted({end for end in ends if end < len(entries)}), len(entries)]
    return [entries[a:b] for a, b in itertools.pairwise(bounds) if a < b]


_DATA = st.dictionaries(
    st.sampled_from(["cost", "days", "nights"]), st.integers(0, 5) | st.none(), max_size=3
)
_ENTRIES = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.integers(0, 4), st.integers(0, 3).map(lambda n: n == 0), _DATA
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(80), deadline=None)
@given(drawn=_ENTRIES, ends=st.lists(st.integers(1, 11), max_size=5))
def test_any_order_of_arrival_gives_the_state_of_the_order_of_occurrence(
    drawn: list[tuple[str, int, bool, dict[str, Any]]], ends: list[int]
) -> None:
    entries = [
        entry(seq, day, key=key, retired=retired, **({} if retired else data))
        for seq, (key, day, retired, data) in enumerate(drawn, 1)
    ]
    store, _ = settle(cut(entries, ends))

    assert state_of(store) == fold(entries)


@settings(max_examples=examples(40), deadline=None)
@given(drawn=_ENTRIES, seed=st.randoms(use_true_random=False))
def test_the_same_entries_in_another_order_give_the_same_state(
    drawn: list[tuple[str, int, bool, dict[str, Any]]], seed: random.Random
) -> None:
    # Ties are decided by the number, which is the order of arrival: each has its own time here.
    said = [
        entry(0, minute, key=key, retired=retired, **({} if retired else data))
        for minute, (key, _, retired, data) in enumerate(drawn)
    ]
    shuffled = seed.sample(said, len(said))

    def fields(arrived: Sequence[RecordEntry]) -> Mapping[str, object]:
        numbered = [replace(one, seq=seq) for seq, one in enumerate(arrived, 1)]
        return {key: found for key, (found, _) in state_of(settle([numbered])[0]).items()}

    assert fields(shuffled) == fields(said)


# Situations. Each is a history as it arrived, the state, and the codes of the remarks.

SITUATIONS: dict[str, tuple[list[RecordEntry], State, dict[int, str]]] = {
    "a late entry changes nothing that is known to be newer": (
        [entry(1, 9, city="Ghent"), entry(2, 1, city="Lyon")],
        {"a": ({"city": "Ghent"}, {1, 2})},
        {2: "superseded"},
    ),
    "a late entry adds what nobody has said since": (
        [entry(1, 9, city="Ghent"), entry(2, 1, city="Lyon", phone="1")],
        {"a": ({"city": "Ghent", "phone": "1"}, {1, 2})},
        {2: "partly_superseded"},
    ),
    "a value said again is said then": (
        [entry(1, 1, cost=1), entry(2, 9, cost=1), entry(3, 5, cost=2)],
        {"a": ({"cost": 1}, {1, 2, 3})},
        {3: "superseded"},
    ),
    "null is a statement, too": (
        [entry(1, 1, cost=1), entry(2, 9, cost=None), entry(3, 5, cost=2)],
        {"a": ({}, {1, 2, 3})},
        {3: "superseded"},
    ),
    "at the same time the number decides": (
        [entry(1, 1, cost=1), entry(2, 1, cost=2)],
        {"a": ({"cost": 2}, {1, 2})},
        {},
    ),
    "a retired key comes back": (
        [entry(1, 1, cost=1), entry(2, 2, retired=True), entry(3, 3, days=2)],
        {"a": ({"days": 2}, {3})},
        {},
    ),
    "an entry of an ended life changes only history": (
        [entry(1, 1, cost=1), entry(2, 5, retired=True), entry(3, 3, cost=3)],
        {},
        {3: "superseded"},
    ),
    "an entry of an earlier life does not leak into the next one": (
        [
            entry(1, 1, cost=1),
            entry(2, 5, retired=True),
            entry(3, 9, days=2),
            entry(4, 3, nights=3),
        ],
        {"a": ({"days": 2}, {3})},
        {4: "superseded"},
    ),
    "a late retirement ends what was said before it": (
        [entry(1, 1, cost=1, days=1), entry(2, 9, days=2), entry(3, 5, retired=True)],
        {"a": ({"days": 2}, {2})},
        {},
    ),
    "a late retirement of all that is known ends it": (
        [entry(1, 1, cost=1), entry(2, 3, days=2), entry(3, 5, retired=True)],
        {},
        {},
    ),
    "a late retirement before all that is known only ends what comes later": (
        [entry(1, 9, cost=1), entry(2, 5, retired=True), entry(3, 3, days=3)],
        {"a": ({"cost": 1}, {1})},
        {2: "superseded", 3: "superseded"},
    ),
    "a retirement that comes first is remembered": (
        [entry(1, 5, retired=True), entry(2, 3, cost=1)],
        {},
        {1: "nothing_to_retire", 2: "superseded"},
    ),
    "a later retirement moves the end": (
        [
            entry(1, 1, cost=1),
            entry(2, 3, retired=True),
            entry(3, 7, retired=True),
            entry(4, 5, cost=2),
        ],
        {},
        {3: "nothing_to_retire", 4: "superseded"},
    ),
    "an earlier retirement changes nothing": (
        [entry(1, 1, cost=1), entry(2, 7, retired=True), entry(3, 3, retired=True)],
        {},
        {3: "superseded"},
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.parametrize("one_by_one", [True, False], ids=["one by one", "as a batch"])
def test_situations(name: str, one_by_one: bool) -> None:
    entries, state, codes = SITUATIONS[name]
    assert fold(entries) == state, "the situation contradicts the definition"

    store, found = settle([[one] for one in entries] if one_by_one else [entries])

    assert state_of(store) == state
    assert found == codes


def test_a_remark_names_the_newer_entries() -> None:
    project = Store(Project.empty()).open()
    entries = [entry(1, 9, cost=1), entry(2, 8, days=1), entry(3, 1, cost=0, days=0)]
    project.earlier = KnownEntries(entries)

    for one in entries:
        for edit in compile_record(project, one):
            apply(project, edit)

    assert project.change().remarks[3].newer == (1, 2)


def test_a_field_that_a_late_retirement_clears_becomes_optional() -> None:
    store, _ = settle(
        [[entry(1, 1, cost=1, days=1), entry(2, 9, days=2)], [entry(3, 5, retired=True)]]
    )

    class_ = store.open().outline.domains["life"].classes["Thing"]
    assert {field.name: str(field.type) for field in class_.fields}.keys() == {"cost", "days"}
    assert "cost: int | None" in store.files["domains/life/schema.py"]
    assert "days: int\n" in store.files["domains/life/schema.py"]


def test_superseded_values_of_a_late_entry_need_not_fit() -> None:
    store, codes = settle([[entry(1, 9, cost=1)], [entry(2, 1, cost="free")]])

    assert state_of(store) == {"a": ({"cost": 1}, {1, 2})}
    assert codes == {2: "superseded"}


def test_without_a_time_an_entry_is_the_newest() -> None:
    project = Store(Project.empty()).open()
    project.earlier = KnownEntries([])
    for seq, cost in ((2, 2), (1, 1)):
        for edit in compile_record(
            project, RecordEntry(seq, "life", "Thing", "a", data={"cost": cost})
        ):
            apply(project, edit)

    assert project.change().remarks == {}
    assert [record.fields for _, record in project.records("life", "things")] == [{"cost": 1}]


def test_an_edit_may_not_keep_entries_that_are_not_behind_the_record() -> None:
    project = Store(Project.empty()).open()
    for edit in compile_record(project, entry(1, 1, cost=1)):
        apply(project, edit)
    (retire,) = compile_record(project, entry(2, 2, retired=True))
    assert isinstance(retire, Retire)

    for keeps in ((), (7,)):
        with pytest.raises(EditError) as refused:
            apply(
                project,
                RetireEarlier(
                    retire.domain, retire.collection, retire.key, sources=(2,), keeps=keeps
                ),
            )
        assert refused.value.code == "malformed"

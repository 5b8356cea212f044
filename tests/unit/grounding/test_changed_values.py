"""Recognise the entries that mention a change of a record's values."""

import datetime
from collections.abc import Collection, Mapping, Sequence

import pytest

from memory.project import EnumMember, Record, RecordId, Ref
from memory.project.values import Value
from workers.findings import Finding
from workers.grounding.changed_values import RecordUpdate, ungrounded_updates
from workers.grounding.values_in_entries import Source

AT = datetime.datetime(2026, 3, 4, tzinfo=datetime.UTC)
PEN = RecordId("health", "allergies", "pen")
BEFORE: dict[str, Value] = {
    "allergen": "penicillin",
    "drug_class": "penicillin",
    "person": "Paul",
    "since": 2019,
    "found": ["rash"],
    "grade": EnumMember("Grade", "SEVERE"),
}
FIELDS = [*BEFORE, "doctor", "ended_on"]
# The entry that the record relies on, and its origin.
FIRST = {1: "Paul has an allergy to penicillin, says his dermatologist", 2: "no penicillin for me"}


def findings(
    said: Mapping[int, str] | str,
    changed: Mapping[str, Value],
    cited: Sequence[int] = (3,),
    *,
    read: Collection[str] = ("drug_class", "ended_on", "grade"),
    derived: Mapping[str, str] | None = None,
    fields: Collection[str] = FIELDS,
    without: Collection[str] = (),
) -> list[Finding]:
    texts = {**FIRST, **({3: said} if isinstance(said, str) else said)}
    after = {name: value for name, value in {**BEFORE, **changed}.items() if name not in without}
    update = RecordUpdate(
        PEN,
        Record("Allergy", "pen", BEFORE, (1,)),
        Record("Allergy", "pen", after, (1, *cited)),
        cited=dict.fromkeys(changed, cited),
        fields=fields,
        rested_on=frozenset(FIRST),
        derived=derived or {},
    )
    sources = {seq: Source(seq, text, AT) for seq, text in texts.items()}
    return list(ungrounded_updates([update], sources, read, "UTC"))


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        # For a field that a constraint reads, an entry must name the record, and contain a new
        # text.
        ("Paul's allergy is one of nsaid, it turned out", {"drug_class": "nsaid"}),
        ("Paul can have penicillin after all", {"drug_class": None}),
        ("The allergy is mild now", {"grade": EnumMember("Grade", "MILD")}),
        ("Penicillin was cleared on 2026-03-01", {"ended_on": datetime.date(2026, 3, 1)}),
        # For others, it may instead name the field with its value, or the old value.
        ("The person is Ada", {"person": "Ada"}),
        ("The allergy is the neighbour's", {"person": "Ada"}),
        ("It began in 2018, and not in 2019", {"since": 2018}),
        ("They found hives, too", {"found": ["rash", "hives"]}),
        # Or say what was not told before.
        ("Dr. Miller called", {"doctor": Ref("Doctor", "miller")}),
        # Or share several words with what the record rests on.
        ("Der Dermatologist sagt: no rash for Paul", {"found": []}),
    ],
)
def test_entry_speaks_of_the_change(text: str, changed: Mapping[str, Value]) -> None:
    assert findings(text, changed) == []


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("Paul likes jazz and cooks pasta", {"drug_class": "nsaid"}),
        ("Paul likes jazz and cooks pasta", {"grade": EnumMember("Grade", "MILD")}),
        ("Paul bought an nsaid", {"drug_class": "nsaid"}),
        ("Paul bought an nsaid", {"drug_class": None}),
        # A class or a collection names all of its records: not enough to empty a field.
        ("Paul has an allergy", {"drug_class": None}),
        ("```python\nallergies.clear()\n```", {"drug_class": None}),
        ("The concert was on 2026-03-01", {"ended_on": datetime.date(2026, 3, 1)}),
        ("Paul completed of his allergy", {"drug_class": "nsaid"}),
        ("Paul bought an nsaid", {"person": "Ada"}),
        ("Ada bought an nsaid", {"person": "Ada"}),
        ("The concert was in 2018", {"since": 2018}),
        # The name of its owner fits all records of that person.
        ("Paul told Eve", {"person": None}),
        ("Paul told Eve", {"found": []}),
        ("Paul told Eve", {"doctor": Ref("Doctor", "miller")}),
    ],
)
def test_entry_does_not(text: str, changed: Mapping[str, Value]) -> None:
    (finding,) = findings(text, changed)

    assert (finding.code, finding.blocking) == ("ungrounded_update", True)
    assert (finding.record, finding.field, finding.entry) == (PEN, *changed, 3)
    assert "cite the entry" in finding.fix


@pytest.mark.parametrize("seq", [1, 2])
def test_entry_on_which_a_record_rests_says_of_no_change(seq: int) -> None:
    assert findings({}, {"drug_class": None}, [seq])
    assert findings({}, {"grade": None, "person": "Ada"}, [seq])
    # But what it says may have been overlooked.
    assert not findings({}, {"doctor": "dermatologist"}, [1])


def test_value_that_follows_is_declared() -> None:
    text = "Paul's allergy is one of ibuprofen alone"
    derived = {"drug_class": "ibuprofen is an nsaid"}
    assert findings(text, {"drug_class": "nsaid"})
    assert findings(text, {"drug_class": "nsaid"}, derived=derived) == []
    # But who names nothing has nothing to derive from.
    assert findings("Paul likes jazz", {"drug_class": "nsaid"}, derived=derived)


def test_renamed_field_is_no_change_but_what_is_left_in_its_place_is() -> None:
    renamed = {"group": BEFORE["drug_class"]}
    fields = [name for name in FIELDS if name != "drug_class"]
    assert not findings("", renamed, [], fields=[*fields, "group"], without=["drug_class"])
    found = findings("", renamed, [], fields=[*FIELDS, "group"], without=["drug_class"])
    assert "drug_class" in {finding.field for finding in found}

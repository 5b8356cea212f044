"""A batch of typed entries equals its entries one by one, and can be cut after each.

Run more histories with `UAC_EXAMPLES=30 pytest tests/unit/project/test_rebuilding.py`.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings

from memory.project import (
    EditError,
    Project,
    RecordEntry,
    WidenField,
    apply,
    compile_record,
    edit_from_json,
    edit_to_json,
    render,
)
from memory.project.rebuilding import ProjectBuild, select_edits_up_to
from tests.properties import examples

from .strategies import histories, statements
from .support import Store


@dataclass(frozen=True)
class Version:
    """A version as the server stores it: the files before it, its edits, and its last entry."""

    before: dict[str, str]
    edits: list[dict[str, Any]]
    ends: int


def settle(batches: Sequence[Sequence[RecordEntry]]) -> list[Version]:
    """Settle batch after batch as the server does, each on the stored result of the one before."""
    store, versions = Store(Project.empty()), []
    for batch in batches:
        rejected: set[int] = set()
        while True:
            project, edits = store.open(), []
            for entry in batch:
                if entry.seq in rejected:
                    continue
                try:
                    compiled = compile_record(project, entry)
                except EditError:
                    rejected.add(entry.seq)
                    continue
                try:
                    for edit in compiled:
                        apply(project, edit)
                except EditError:
                    rejected.add(entry.seq)
                    break
                edits += [edit_to_json(edit) for edit in compiled]
            else:
                break
        versions.append(Version(dict(store.files), edits, batch[-1].seq))
        store.keep(project.change())
    return versions


@settings(max_examples=examples(20))
@given(batches=histories(statements()))
def test_batch_can_be_cut_after_any_entry(
    batches: list[list[dict[str, Any]]],
) -> None:
    numbers = itertools.count(1)
    entries = [[RecordEntry(seq=next(numbers), **one) for one in batch] for batch in batches]
    versions = settle(entries)

    one_by_one = ProjectBuild()
    for entry in itertools.chain.from_iterable(entries):
        # What is known to who was told one after another, up to this entry
        one_by_one.add_entries([entry])

        version = next(one for one in versions if one.ends >= entry.seq)
        project = Project.from_files(version.before)
        for edit in select_edits_up_to(map(edit_from_json, version.edits), entry.seq):
            apply(project, edit)

        assert render(project) == one_by_one.files
        assert project.outline == one_by_one.outline

    # And told all at once, it is the same
    at_once = ProjectBuild()
    at_once.add_entries([*itertools.chain.from_iterable(entries)])
    assert at_once.files == one_by_one.files
    assert at_once.made_of == one_by_one.made_of


def test_an_entry_that_cannot_be_is_named_with_the_reason() -> None:
    build = ProjectBuild()
    pill: dict[str, Any] = {"domain": "health", "type": "Pill", "key": "a"}

    rejected = build.add_entries(
        [
            RecordEntry(seq=1, **pill, retired=True),
            RecordEntry(seq=2, **pill, data={"dose": 1}),
            RecordEntry(seq=3, **pill, collection="Pills", data={"dose": 2}),
        ]
    )

    assert list(rejected) == [3]
    assert "Pills" in rejected[3]
    assert "dose=1" in build.files["domains/health/state.py"]
    assert build.add_entries([RecordEntry(seq=4, **pill, retired=True)]) == {}
    assert build.add_entries([RecordEntry(seq=5, **pill, data={})]) == {}
    assert "dose" not in build.files["domains/health/state.py"], "it has only what was said since"


def test_field_widened_by_hand_stays_wide_when_it_appears() -> None:
    pill: dict[str, Any] = {"domain": "health", "type": "Pill"}
    entries = [
        RecordEntry(seq=1, **pill, key="a", data={"dose": "much"}),
        RecordEntry(seq=2, **pill, key="b", data={"dose": 1}),
        RecordEntry(seq=3, **pill, key="c", data={"dose": 1.5}),
    ]
    widened = [
        WidenField("health", "Pill", "dose", "int | str"),
        WidenField("health", "Pill", "dose", "int | str | None"),
        WidenField("health", "Pill", "colour", "str | None"),
        WidenField("travel", "Trip", "to", "str | None"),
    ]

    for order in itertools.permutations(entries[:2]):
        build = ProjectBuild(widened=widened)
        assert build.add_entries([*order, entries[2]]) == {}
        assert "dose: int | str | None" in build.files["domains/health/schema.py"]
        assert 'set_aside={"dose": 1.5}' in build.files["domains/health/state.py"]

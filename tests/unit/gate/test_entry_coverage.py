"""Every entry that edits claim to settle is cited or dismissed, and not both."""

import pytest

from memory.project import Dismiss, Edit, Note
from workers.gate.entry_coverage import uncovered

NOTE = Note("x", (1, 2))
DISMISS = Dismiss("small talk", (3,))


def found(*edits: Edit, considered: tuple[int, ...] = (), last: int = 5) -> list[tuple[str, int]]:
    findings = uncovered(dict(enumerate(edits)), considered, last_seq=last)
    return [(finding.code, finding.entry or 0) for finding in findings]


def test_entries_that_are_cited_or_dismissed_are_covered() -> None:
    assert found(NOTE, DISMISS, considered=(1, 2, 3)) == []
    assert found(NOTE, DISMISS) == []  # nothing is claimed of the rest
    assert found() == []


def test_entry_neither_cited_nor_dismissed_is_named() -> None:
    assert found(NOTE, DISMISS, considered=(1, 3, 5, 4)) == [
        ("entry_without_outcome", 4),
        ("entry_without_outcome", 5),
    ]


def test_entry_cited_and_dismissed_is_named_with_the_edits() -> None:
    (finding,) = uncovered({0: NOTE, 1: Dismiss("why", (2, 3))}, (), last_seq=5)

    assert (finding.code, finding.entry, finding.edit) == ("used_and_dismissed", 2, 1)
    assert "edits[1] dismisses entry 2; edits[0] cites it" in finding.message


@pytest.mark.parametrize("seq", [0, 6, 10**30, -1])
def test_unknown_entry_is_named(seq: int) -> None:
    assert found(Note("x", (seq,)), considered=()) == [("unknown_source", seq)]
    assert found(considered=(seq,)) == [("unknown_entry", seq)]


def test_an_empty_log_is_called_so() -> None:
    (finding,) = uncovered({0: Note("x", (1,))}, (), last_seq=0)
    assert "the log has no entries" in finding.message

"""Commit messages for versions: what changed, and why."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory.kernel.texts import one_line
from memory.versions.models.checkpoints import Origin

MAX_SUBJECT = 100
MAX_NAMED = 2
MAX_LINES = 100
MAX_LINE = 300
MAX_TEXT = 80
_VERBS = {"add": "adds", "update": "changes", "retire": "retires"}
_PHRASES = {
    **{op: f"{verb} {{what}} {{key}}" for op, verb in _VERBS.items()},
    "retire_earlier": "retires what was said before of {what} {key}",
    "define_class": "defines {name}",
    "add_field": "adds the field {what}.{name}",
    "widen_field": "widens {what}.{name} to {type}",
    "rename_field": "renames {what}.{name} to {new_name}",
    "write_constraint": "writes the constraint {name}",
    "delete_constraint": "deletes the constraint {name}",
    "note": "adds a note",
    "conflict": "marks a conflict: {about}",
    "dismiss": "dismisses entries that contain nothing to remember",
}


@dataclass(frozen=True)
class Event:
    """The parts of a version that are needed for its commit message."""

    version: int
    origin: str
    seen_seq: int
    created_at: datetime.datetime
    edits: Sequence[Mapping[str, Any]]
    restored: Mapping[str, Any] | None


def message(
    event: Event, classes: Mapping[tuple[str, str], str], redacted: Sequence[str] = ()
) -> str:
    """Return the commit message: a subject, the origin, then one line for each edit.

    `classes` maps collections, given as (domain, name), to their classes; `redacted` lists the
    files of the version whose content was redacted later. The message contains no control
    characters, which could affect a terminal.
    """
    edits = [_EditText(edit, classes) for edit in event.edits]
    paragraphs = [one_line(f"v{event.version}: {_subject(event, edits)}", MAX_SUBJECT)]
    origin = Origin(event.origin).label if event.origin in Origin.values else event.origin
    facts = [f"Origin: {origin}"]
    if cited := sorted({seq for edit in edits for seq in edit.sources}):
        facts.append(f"Entries: {_numbers(cited)}")
    facts.append(f"Log read up to entry {event.seen_seq}")
    paragraphs.append("\n".join(facts))
    if event.restored and event.restored.get("reason"):
        paragraphs.append(one_line(str(event.restored["reason"]), MAX_LINE))
    if edits:
        paragraphs.append(_listed([edit.line for edit in edits[:MAX_LINES]], len(edits)))
    if redacted:
        paths = _listed([one_line(path, MAX_LINE) for path in redacted], len(redacted))
        paragraphs.append(f"Redacted later, and therefore not included:\n{paths}")
    return "\n\n".join(paragraphs) + "\n"


class _EditText:
    """Describes an edit for a commit message."""

    def __init__(self, edit: Mapping[str, Any], classes: Mapping[tuple[str, str], str]) -> None:
        self.edit = edit
        self.op = self._text("op") or "something"
        self.sources = [seq for seq in edit.get("sources") or () if type(seq) is int]
        location = (self._text("domain"), self._text("collection"))
        self.verb = _VERBS.get(self.op, "")
        self.what = self._text("class_name") or classes.get(location) or location[1] or "a record"

    def _text(self, name: str) -> str:
        value = self.edit.get(name)
        return one_line(value, MAX_TEXT) if isinstance(value, str) else ""

    @property
    def phrase(self) -> str:
        """The edit as a phrase, such as `adds Trip rome`."""
        if self.op not in _PHRASES:
            return self.op
        names = ("key", "name", "type", "new_name", "about")
        texts = {name: self._text(name) for name in names}
        return _PHRASES[self.op].format(what=self.what, **texts).rstrip()

    @property
    def line(self) -> str:
        """The edit as a line that also names its domain and collection, entries and reasons."""
        text = self.phrase
        if location := ".".join(filter(None, (self._text("domain"), self._text("collection")))):
            text += f" in {location}"
        if self.sources:
            text += f" ({'entry' if len(self.sources) == 1 else 'entries'} "
            text += f"{_numbers(self.sources)})"
        derived = [pair for pair in self.edit.get("derived") or () if isinstance(pair, list)]
        reasons = [self._text("reason"), *(": ".join(map(str, pair)) for pair in derived)]
        if self.edit.get("redacted"):
            reasons.append("redacted later")
        why = "; ".join(filter(None, reasons))
        return one_line(f"{text}: {why}" if why else text, MAX_LINE)


def _subject(event: Event, edits: Sequence[_EditText]) -> str:
    if event.restored:
        return f"rolls back to v{event.restored.get('version')}"
    phrases = []
    for verb in ("adds", "changes", "retires"):
        some = [edit for edit in edits if edit.verb == verb]
        if len(some) > MAX_NAMED:
            phrases.append(f"{verb} {len(some)} records")
        else:
            phrases += [edit.phrase for edit in some]
    others = [edit.phrase for edit in edits if not edit.verb]
    if len(others) > MAX_NAMED and phrases:
        others = [f"{len(others)} changes to the schema and constraints"]
    if event.origin == Origin.IMPORTED:
        phrases.insert(0, "imports a project")
    if event.origin == Origin.REDACTION:
        phrases.insert(0, "removes redacted content")
    return ", ".join([*phrases, *others]) or "changes no records"


def _numbers(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:MAX_LINES]))
    return f"{named} and {len(numbers) - MAX_LINES} more" if len(numbers) > MAX_LINES else named


def _listed(lines: Sequence[str], total: int) -> str:
    more = [f"and {total - MAX_LINES} more"] if total > MAX_LINES else []
    return "\n".join(f"- {line}" for line in [*lines[:MAX_LINES], *more])

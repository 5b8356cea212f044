"""The project that a language model works on: what the model can read, and its edits so far."""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from memory.constraints.constraint_sources import reads_field, reads_of
from memory.kernel.models.users import Lane, MemoryUser
from memory.log.models.entries import STATEMENTS, EntryOutcome, LogEntry, Outcome
from memory.project import (
    Add,
    DefineClass,
    DeleteConstraint,
    Domain,
    Edit,
    EditError,
    Outline,
    Record,
    RecordId,
    Update,
    WidenField,
    WriteConstraint,
    apply,
    proposal_from_json,
)
from memory.project.apply import collection_for
from memory.project.field_texts import FieldTexts, describe_texts
from memory.project.model import Project
from memory.project.paths import constraint_files, constraint_path, constraint_tests_path
from memory.project.schema_edits import places_of
from memory.project.typed import encode, encode_plain
from memory.versions import checkpoints
from memory.versions.checkpoints import AnyState
from memory.versions.prescribed_classes import adopt_prescribed
from workers.authoring import prompts
from workers.authoring.partial_answers import WrongChange, change_items
from workers.authoring.related_records import find_entries, locate_records, rank_records
from workers.authoring.same_records import Candidates
from workers.authoring.short_forms import expand_edit, refuse_row, split_edits
from workers.authoring.taken_over import NO_DRAFTS, refer, take_over
from workers.authoring.tools import CONSTRAINT_RULES, NEW, SAME_AS
from workers.gate.cited_entries import TooMuchCited, read_sources
from workers.gate.entry_coverage import uncovered
from workers.grounding.content_words import names_one_of
from workers.grounding.separate_process import FIX, TOO_MUCH
from workers.policy.checks import check_policy
from workers.repairs.repair import repair_constraint

# Limits on what is shown in the result of one tool call.
MAX_CHARACTERS = 8000
MAX_RECORDS = 20
SHOWN_RECORDS = 5
# How many of a collection's newest records are searched in this process, and how many records are
# read to describe texts. Older records are found by a query in a sandbox.
READ_RECORDS = 2000
QUERIED_RECORDS = 200
MAX_EDITS = 500
# Limits on the related records shown in a question, on the characters of these records and of each
# of them, and on how many of the newest records and first collections are compared by words.
MAX_RELATED = 12
MAX_RELATED_CHARACTERS = 3000
MAX_SMALL_CHARACTERS = 1000  # of these, for keys in collections without such a record
MAX_RECORD_CHARACTERS = 600
SCANNED_RECORDS = 100
MAX_PLACES = 40
# Limits on the keys listed of each collection that has related records. Other collections' keys are
# listed if they are small, and if there is room.
MAX_KEYS = 30
MAX_KEYS_CHARACTERS = 500
SMALL_COLLECTION = 10
# Limits on the facts shown behind each related record, and on the characters of all of them.
FACTS_OF_RECORD = 3
MAX_FACT_CHARACTERS = 2000
MAX_FINDINGS = 10
# How many of the newest records of a class are compared with a record that is added, and how many
# characters of the one that says the same are shown.
COMPARED_RECORDS = 300
MAX_ASKED = 400

NOTHING_SHOWN: Mapping[str, int] = MappingProxyType({})

# A function that runs Python code on the newest version's state and returns the code's value.
Query = Callable[[str], Any]


@dataclass(frozen=True)
class Related:
    """What a project has about new entries: records and keys as text, and the facts behind them."""

    records: str = ""
    facts: Sequence[LogEntry] = ()


@dataclass
class Shown:
    """What a model has seen: records, and the numbers of entries, at least as a record's sources.

    A model may cite no other entries. `questions` ask whether a record is one with these fields.
    """

    entries: set[int] = field(default_factory=set)
    records: set[RecordId] = field(default_factory=set)
    questions: set[tuple[RecordId, str]] = field(default_factory=set)

    def add(self, other: "Shown") -> None:
        """Add what the model has seen elsewhere."""
        self.entries |= other.entries
        self.records |= other.records
        self.questions |= other.questions


class ToolFailed(Exception):
    """A tool call had no effect; the exception's message tells the model why."""


class Workbench:
    """A state of a user's project, with a model's edits applied to it."""

    def __init__(
        self,
        user: MemoryUser,
        state: AnyState | None,
        query: Query,
        shown: Shown | None = None,
        drafts: Mapping[int, LogEntry] = NO_DRAFTS,
    ) -> None:
        self._user = user
        self._state = state
        self._query = query
        self.shown = shown or Shown()
        # Facts, by number, that edits may cite although they are not in the log yet.
        self._drafts = drafts
        # What the model has sent, by number, and those of these edits that apply.
        self._sent: dict[int, Any] = {}
        self.edits: dict[int, Edit] = {}
        # The questions of earlier calls, which are not asked again.
        self._asked = set[tuple[RecordId, str]]()
        # The records with which new ones are compared, by domain and class, and those that edits,
        # by number, would add once more.
        self._compared: dict[tuple[str, str], Candidates] = {}
        self._project = self._open_project()

    @property
    def outline(self) -> Outline:
        """The project's outline with the edits applied."""
        return self._project.outline

    def try_out(self, edits: Any, drafts: Mapping[int, LogEntry]) -> str:
        """Return the problems with edits that cite these drafts of facts; "" if there are none."""
        bench = Workbench(self._user, self._state, self._query, self.shown, drafts)
        self.shown.entries |= drafts.keys()
        try:
            bench.edit(edits)
        except ToolFailed as failure:
            return str(failure)
        finally:
            self.shown.entries -= drafts.keys()
        missing = list(uncovered(bench.edits, drafts, last_seq=max(drafts, default=0)))
        return prompts.findings(missing) if missing else ""

    # Tools that read the project

    def read(self, name: str, arguments: Mapping[str, Any]) -> str | None:
        """Return the result of a tool that only reads; None for other tools."""
        match name:
            case "open_domain":
                return self.open_domain(arguments["domain"])
            case "look_up":
                return self.look_up(**arguments)
            case "read_constraint":
                return self.read_constraint(arguments["name"])
            case "read_entry":
                return self.read_entry(arguments["seq"], arguments.get("start", 0))
            case CONSTRAINT_RULES.name:
                return prompts.CONSTRAINTS
        return None

    def open_domain(self, name: str) -> str:
        """Return a domain's schema as source code, and each collection's newest records."""
        domain = self.outline.domains.get(name)
        if domain is None:
            raise ToolFailed(f"There is no domain {name!r}: {_names(self.outline.domains)}.")
        parts = [self._project.source(domain.schema_path).strip()]
        if texts := self.describe_texts([name]).get(name):
            lines = [f"{'.'.join(location)} {written}" for location, written in texts.items()]
            parts.append("\n".join(["Texts in the fields, with ... if there are others:", *lines]))
        for collection in [*domain.collections, *domain.singletons]:
            newest = [self._show(*one) for one in self._newest(name, collection, SHOWN_RECORDS)]
            count = self._count(name, collection)
            shown = f"the newest {len(newest)} of them" if count > len(newest) else "all of them"
            parts.append(f"{collection}: {count} records; {shown}:\n" + "\n".join(newest))
        return _cut("\n\n".join(parts))

    def describe_texts(self, domains: Iterable[str]) -> dict[str, FieldTexts]:
        """Return, for each of these domains, how the texts in its fields are written.

        READ_RECORDS records are read at most: all of small collections, and of others the newest.
        """
        places = [
            (name, holder) for name in domains for holder in self.outline.domains[name].holders
        ]
        read: dict[str, list[tuple[list[Record], bool]]] = {name: [] for name, _ in places}
        room = READ_RECORDS
        for rest, (name, holder) in enumerate(sorted(places, key=lambda one: self._count(*one))):
            most = room // (len(places) - rest)
            records = [record for _, record in self._newest(name, holder, most)]
            room -= len(records)
            read[name].append((records, self._count(name, holder) <= most))
        return {
            name: describe_texts(samples, self.outline.domains[name])
            for name, samples in read.items()
        }

    def read_constraint(self, name: str) -> str:
        """Return the source code of a constraint and its tests."""
        if name not in self.outline.constraints:
            raise ToolFailed(
                f"There is no constraint {name!r}: {_names(self.outline.constraints)}."
            )
        source, tests = (self._project.source(path) for path in constraint_files(name))
        return f"source:\n{source}\ntests_source:\n{tests}"

    def read_entry(self, seq: int, start: int = 0) -> str:
        """Return a log entry: its kind, date and origin, and its text from character `start` on."""
        entry = LogEntry.objects.filter(user=self._user, seq=seq).first()
        if entry is None:
            raise ToolFailed(f"The log has no entry {seq}: it has 1 to {self._user.last_seq}.")
        if entry.redacted_at is not None:
            return f"[{seq}] was redacted: its content is gone, and no edit may cite it."
        self.shown.entries |= {seq, *entry.derived_from}
        text = entry.content or json.dumps(entry.data, ensure_ascii=False)
        shown = text[start : start + MAX_CHARACTERS]
        rest = len(text) - start - len(shown)
        more = (
            f"\n... and {rest} more characters: start at {start + len(shown)}" if rest > 0 else ""
        )
        origin = f", derived from entries {list(entry.derived_from)}" if entry.derived_from else ""
        return f"[{seq}] ({entry.kind}, {entry.occurred_at:%Y-%m-%d}{origin}) {shown}{more}"

    def look_up(
        self,
        domain: str | None = None,
        collection: str | None = None,
        key: str | None = None,
        text: str = "",
        where: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the record with this key, or the newest records that match all the other criteria.

        `text` contains words that a record has to contain; `where` maps fields to their values.
        """
        locations = list(self._places(domain, collection))
        if key is not None:
            return self._by_key(locations, key)
        words = text.casefold().split()
        fields = dict(where or {})
        locations = [location for location in locations if self._has_fields(location, fields)]
        if not locations and fields:
            raise ToolFailed(f"No class searched has {' and '.join(fields)}: see open_domain.")
        matching = (
            match for location in locations for match in self._matching(*location, words, fields)
        )
        lines = [self._show(*match) for match in itertools.islice(matching, MAX_RECORDS + 1)]
        if not lines:
            return "No record matches."
        if len(lines) > MAX_RECORDS:
            lines[MAX_RECORDS:] = [
                f"... and more: only {MAX_RECORDS} are shown; narrow the search."
            ]
        return _cut("\n".join(lines))

    def related(
        self, lane: Lane, new: Sequence[LogEntry], earlier: Sequence[LogEntry] = ()
    ) -> Related:
        """Return what the project has about these entries, so that the model need not look it up.

        They are pending in the lane, on which the caller must hold the lease. Of a large project,
        the search finds the records; its newest records are also compared by the words in them.
        Text of `earlier` facts, which the model sees as well, isn't repeated. Keys go before
        records: edits refer to them, even if no record is about the entries.
        """
        texts = [entry.content or "" for entry in new]
        entries = find_entries(lane, self._user, self.outline, new, texts)
        locations = [location for location in self._places(None, None) if self._count(*location)]
        scanned = {
            record_id: record
            for location in locations[:MAX_PLACES]
            for record_id, record in self._newest(*location, SCANNED_RECORDS)
        }
        has_others = sum(self._count(*location) for location in locations) > len(scanned)
        located = locate_records(self._user, entries, scanned, has_others=has_others)
        ranked = rank_records(located, scanned, texts)
        shown = {
            record_id: record
            for record_id in ranked[:MAX_RELATED]
            if (record := scanned.get(record_id) or self._find(record_id))
        }
        touched = dict.fromkeys((domain, name) for domain, name, _ in shown)
        lines = [self._keys_line(location, shown) for location in touched]
        facts = self._facts_behind(shown.values(), entries)
        small = [
            location
            for location in locations[:MAX_PLACES]
            if location not in touched and self._count(*location) <= SMALL_COLLECTION
        ]
        lines += _fitting(
            [self._keys_line(location, ()) for location in small], MAX_SMALL_CHARACTERS
        )
        large = [
            f"{'.'.join(location)} {self._count(*location)}"
            for location in locations
            if location not in touched and location not in small
        ]
        if counted := _fitting(large, MAX_KEYS_CHARACTERS):
            lines.append(f"Numbers of records elsewhere: {', '.join(counted)}")
        seqs = {fact.content: fact.seq for fact in [*earlier, *facts] if fact.content}
        records = [_cut_line(_describe(*one, seqs)) for one in shown.items()]
        kept = _fitting(records, MAX_RELATED_CHARACTERS - sum(map(len, lines)))
        for record_id, record in itertools.islice(shown.items(), len(kept)):
            self.shown.records.add(record_id)
            self.shown.entries |= {*record.sources}
        return Related("\n".join([*lines, *kept]), facts)

    def _find(self, record_id: RecordId) -> Record | None:
        """Return a record if this version has it; the index may already be a newer one's."""
        location = self._project.find(record_id)
        if location is None or location.retired:
            return None
        by_key = self._project.records_of(location.path).get(record_id.collection, {})
        return by_key.get(record_id.key)

    def _keys_line(self, location: tuple[str, str], first: Iterable[RecordId]) -> str:
        """Return the keys in a collection: those of the `first` records and then the newest."""
        ours = [record_id.key for record_id in first if record_id[:2] == location]
        newest = [record_id.key for record_id, _ in self._newest(*location, MAX_KEYS)]
        keys = _fitting(list(dict.fromkeys([*ours, *newest]))[:MAX_KEYS], MAX_KEYS_CHARACTERS)
        rest = self._count(*location) - len(keys)
        others = f" and {rest} others" if rest > 0 else ""
        return f"{'.'.join(location)} has the keys {', '.join(keys)}{others}"

    def _facts_behind(
        self, records: Iterable[Record], entries: Sequence[LogEntry]
    ) -> Sequence[LogEntry]:
        """Return the newest facts behind each of these records, and then the other facts found."""
        behind = [seq for record in records for seq in record.sources[-FACTS_OF_RECORD:]]
        facts = LogEntry.objects.filter(
            user=self._user, seq__in=behind, kind__in=STATEMENTS, redacted_at=None
        )
        by_seq = {fact.seq: fact for fact in facts}
        ranked = [by_seq[seq] for seq in behind if seq in by_seq]
        # What is pending is a question of its own, and what was rejected must not be shown again.
        covered = EntryOutcome.objects.filter(
            user=self._user, seq__in=[entry.seq for entry in entries], outcome=Outcome.COVERED
        )
        settled = set(covered.values_list("seq", flat=True))
        ranked += [one for one in entries if one.kind in STATEMENTS and one.seq in settled]
        unique = list({fact.seq: fact for fact in ranked}.values())
        fitting = _fitting([fact.content or "" for fact in unique], MAX_FACT_CHARACTERS)
        kept = unique[: len(fitting)]
        self.shown.entries |= {seq for fact in kept for seq in (fact.seq, *fact.derived_from)}
        return sorted(kept, key=lambda fact: fact.seq)

    def _show(self, record_id: RecordId, record: Record) -> str:
        """Return a record as text; the model may cite the entries that it is based on."""
        self.shown.entries |= set(record.sources)
        self.shown.records.add(record_id)
        return _describe(record_id, record)

    def _places(self, domain: str | None, collection: str | None) -> Iterator[tuple[str, str]]:
        if domain is not None and domain not in self.outline.domains:
            raise ToolFailed(f"There is no domain {domain!r}: {_names(self.outline.domains)}.")
        locations = [
            (one.name, name)
            for one in self.outline.domains.values()
            for name in [*one.collections, *one.singletons]
            if domain in (None, one.name)
        ]
        if collection is not None and not any(collection == name for _, name in locations):
            where = places_of(self._project, collection)
            raise ToolFailed(
                f"There is no collection {collection!r}: {_names(map('.'.join, locations))}{where}."
            )
        return (location for location in locations if collection in (None, location[1]))

    def _count(self, domain: str, name: str) -> int:
        held = self.outline.domains[domain].collections.get(name)
        return held.count if held else 1

    def _has_fields(self, location: tuple[str, str], fields: Iterable[str]) -> bool:
        domain = self.outline.domains[location[0]]
        held = domain.collections.get(location[1]) or domain.singletons[location[1]]
        class_ = domain.classes[held.class_name]
        return all(class_.field(name) is not None for name in fields)

    def _by_key(self, places: Sequence[tuple[str, str]], key: str) -> str:
        lines = []
        for holder in places:
            location = self._project.find(RecordId(*holder, key))
            if location and location.retired:
                lines.append(f"{'.'.join(holder)} {key!r} was retired.")
            elif location and (record := self._project.record(RecordId(*holder, key))):
                lines.append(self._show(RecordId(*holder, key), record))
        return _cut("\n".join(lines)) or f"No record has the key {key!r}."

    def _matching(
        self, domain: str, collection: str, words: Sequence[str], where: Mapping[str, Any]
    ) -> Iterator[tuple[RecordId, Record]]:
        seen = set()
        for record_id, record in self._newest(domain, collection, READ_RECORDS):
            seen.add(record_id)
            if _matches(record, words, where):
                yield record_id, record
        if len(seen) < READ_RECORDS:
            return
        for key in self._query(_query(domain, collection, words, where)):
            record_id = RecordId(domain, collection, key)
            older = None if record_id in seen else self._project.record(record_id)
            if older is not None and _matches(older, words, where):
                yield record_id, older

    def _newest(self, domain: str, name: str, most: int) -> Iterator[tuple[RecordId, Record]]:
        held = self.outline.domains[domain].collections.get(name)
        shards = [shard.path for shard in held.shards] if held else []
        for path in reversed(shards or [self.outline.domains[domain].state_path]):
            for key, record in reversed(self._project.records_of(path).get(name, {}).items()):
                if most == 0:
                    return
                most -= 1
                yield RecordId(domain, name, key), record

    # Tools that edit the project

    def edit(self, sent: Sequence[Any] | Mapping[str, Any]) -> str:
        """Apply further edits, or changes to earlier ones by number; say which edits apply now.

        Raises ToolFailed if any edits were refused. All edits are kept, and refused ones may be
        changed; with a change, all edits are applied anew, in order.
        """
        before = set(self.edits)
        self._asked |= self.shown.questions
        sent = split_edits(sent)
        if isinstance(sent, Mapping):
            try:
                self._sent = change_items(self._sent, sent, 0, "edit")
            except WrongChange as error:
                raise ToolFailed(str(error)) from None
            refused = self._apply_anew()
        else:
            further = dict(enumerate(sent, max(self._sent, default=-1) + 1))
            self._sent |= further
            refused = {
                number: problem
                for number, data in further.items()
                if (problem := self._apply(number, data))
            }
        applied = self.edits.keys() if isinstance(sent, Mapping) else self.edits.keys() - before
        hints = [*self._new_places(applied), *self._readers_of_widened(applied)]
        message = " ".join([f"Applied: {_ranges(applied)}.", *hints])
        if refused:
            lines = "\n".join(f"- edit {number}: {why}" for number, why in refused.items())
            raise ToolFailed(
                f"{message} Refused; all edits are kept: send only what changes, by number, such as"
                f' edits={{"{next(iter(refused))}": {{...}}}}; null takes something out of one,'
                " or leaves it out.\n" + _cut(lines)
            )
        return message

    def _new_places(self, numbers: Iterable[int]) -> Iterator[str]:
        """For each class defined by these edits, yield its collections."""
        for number in sorted(numbers):
            edit = self.edits[number]
            if isinstance(edit, DefineClass) and (domain := self.outline.domains.get(edit.domain)):
                for name in domain.collections_of(edit.name):
                    yield f"{edit.name} is in {edit.domain}.{name}."

    def _readers_of_widened(self, numbers: Iterable[int]) -> Iterator[str]:
        """For each field widened by these edits, yield the constraints that may read it."""
        widened = [
            edit for number in sorted(numbers) if isinstance(edit := self.edits[number], WidenField)
        ]
        names = self.outline.constraints if widened else ()
        reads = {name: reads_of(self._project.source(constraint_path(name))) for name in names}
        for edit in widened:
            domain = self.outline.domains[edit.domain]
            class_ = domain.classes[edit.class_name]
            if readers := [
                name for name, read in reads.items() if reads_field(read, domain, class_, edit.name)
            ]:
                yield (
                    f"{edit.class_name}.{edit.name} is read by {', '.join(readers)}, which must"
                    " allow for all that it may hold now."
                )

    def follow(self, user: MemoryUser) -> list[str]:
        """Apply the edits to the user's newest version; return a line for each that now fails."""
        self._user = user
        applied = self.edits.keys()
        return [
            f"Edit {number} no longer applies: {problem}"
            for number, problem in self._apply_anew(user.head).items()
            if number in applied
        ]

    def _open_project(self) -> Project:
        """Open the version with the prescribed classes, as the proposal will find it."""
        project = checkpoints.open_project(self._state, self._user)
        adopt_prescribed(project, self._user)
        return project

    def _apply_anew(self, state: AnyState | None = None) -> dict[int, str]:
        """Apply all edits to the version that they started from; return each refused one's problem.

        `state` is a newer version, if they shall be applied to that one.
        """
        self._compared = {} if state else self._compared
        self._state = state or self._state
        self._project = self._open_project()
        self.edits = {}
        return {
            number: problem
            for number, data in sorted(self._sent.items())
            if (problem := self._apply(number, data))
        }

    def _apply(self, number: int, data: Any) -> str | None:
        """Apply one edit; return the problem with it, if there is one."""
        if number >= MAX_EDITS:
            return f"there are {MAX_EDITS} edits already: finish"
        data = expand_edit(data)
        try:
            if isinstance(data, dict):
                refuse_row(data)
            data = self._find_same(number, data)
            edit = _with_collection(proposal_from_json(self._completed(data)), self.outline)
            for seq in edit.sources:
                if not (1 <= seq <= self._user.last_seq or seq in self._drafts):
                    return f"{edit.op}.sources cites entry {seq}, which does not exist"
                if seq not in self.shown.entries:
                    return (
                        f"{edit.op}.sources: {seq} is not among the entries shown: cite one that"
                        " is, or read it first with read_entry"
                    )
            self._refuse_unfounded(edit)
            self._carry_out(edit)
        except EditError as error:
            return str(error)
        self.edits[number] = edit
        return None

    def _find_same(self, number: int, edit: Any) -> Any:
        """Return an edit; raise EditError to ask whether an `add` is a record that exists.

        If that record was shown, nothing is asked: the model knows what it adds. A question is
        asked in one call only, so that the work goes on even if the model does not answer, but
        sends the same again.
        """
        is_add = isinstance(edit, dict) and edit.get("op") == Add.op
        if not is_add or edit.get(NEW) is True or SAME_AS in edit:
            return edit
        candidates = self._candidates(str(edit.get("domain")), str(edit.get("class_name")))
        if candidates is None or not isinstance(edit.get("fields"), dict):
            return edit
        alike = candidates.find_alike(edit["fields"])
        if alike is None or alike in self.shown.records or not self._is_untouched(alike):
            return edit
        question = (alike, json.dumps(edit["fields"], sort_keys=True))
        if question in self._asked:
            return edit
        self.shown.questions.add(question)
        record = self._project.record(alike)
        assert record is not None
        self.shown.entries |= {*record.sources}
        raise EditError(
            "may_exist",
            f"is this {alike.key!r}, which exists? {_describe(alike, record)[:MAX_ASKED]}."
            f' If so, answer {{"{number}": {{"{SAME_AS}": "{alike.key}"}}}}, and `fields` then'
            f' change that record; if not, {{"{number}": {{"{NEW}": true}}}}',
        )

    def _candidates(self, domain_name: str, class_name: str) -> Candidates | None:
        """Return the records with which one of a class is compared; None if there is no class."""
        domain = self.outline.domains.get(domain_name)
        if domain is None or class_name not in domain.classes:
            return None
        if (domain_name, class_name) not in self._compared:
            made = {seq for edit in self.edits.values() for seq in edit.sources}
            self._compared[domain_name, class_name] = Candidates(
                (record_id, record)
                for name in domain.collections_of(class_name)
                for record_id, record in self._newest(domain_name, name, COMPARED_RECORDS)
                if made.isdisjoint(record.sources)  # what a session adds, it tells apart itself
            )
        return self._compared[domain_name, class_name]

    def _is_untouched(self, record_id: RecordId) -> bool:
        """Return whether a record exists, and no edit so far has changed it."""
        record = self._project.record(record_id)
        made = {seq for edit in self.edits.values() for seq in edit.sources}
        return record is not None and made.isdisjoint(record.sources)

    def _refuse_unfounded(self, edit: Edit) -> None:
        """Raise EditError for a constraint edit without sources, or an unsupported deletion.

        A deletion is supported only if a cited entry names the constraint; an entry that asks to
        delete all constraints doesn't name any particular one.
        """
        if not isinstance(edit, WriteConstraint | DeleteConstraint):
            return
        if not edit.sources:
            raise EditError(
                "no_sources",
                f"{edit.op}.sources is empty: cite the entries that the edit comes from",
            )
        if isinstance(edit, DeleteConstraint) and edit.name in self.outline.constraints:
            about = [edit.name.replace("_", " "), self.outline.constraints[edit.name]]
            try:
                texts = [one.text for one in read_sources(self._user, edit.sources).values()]
            except TooMuchCited as error:
                raise EditError(TOO_MUCH, f"{error}: {FIX}") from error
            texts += [
                self._drafts[seq].content or "" for seq in self._drafts if seq in edit.sources
            ]
            if not any(names_one_of(text, about) for text in texts):
                raise EditError(
                    "ungrounded_deletion",
                    f"none of the entries {list(edit.sources)} names the constraint {edit.name!r}:"
                    " cite one that does, or keep the constraint",
                )

    def _completed(self, data: Any) -> Any:
        """Complete an edit: facts that it takes over, and what it leaves as it is.

        An edit to a known constraint may have only its source or only its tests.
        """
        if not isinstance(data, dict):
            return data
        data = take_over(self._as_update(data), self._user, self.outline, self._drafts)
        if data.get("op") == Update.op:
            return {"fields": {}, **data}
        name = data.get("name")
        if (
            isinstance(name, str)
            and name in self.outline.constraints
            and data.get("op") == WriteConstraint.op
        ):
            data = {
                "source": self._project.source(constraint_path(name)),
                "tests_source": self._project.source(constraint_tests_path(name)),
                **data,
            }
        return data

    def _as_update(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return an `add` as an update of the record that the model says it is, if it is any."""
        edit = {name: value for name, value in data.items() if name not in (SAME_AS, NEW)}
        key, domain = data.get(SAME_AS), self.outline.domains.get(str(data.get("domain")))
        if data.get("op") != Add.op or key is None or domain is None:
            return edit
        given = ("domain", "fields", "from", "sources", "derived")
        collections = domain.collections_of(str(data.get("class_name")))
        places = [
            name
            for name in collections
            if self._project.find(RecordId(domain.name, name, str(key)))
        ]
        target = {"collection": next(iter([*places, *collections]), None), "key": key}
        update = {"op": Update.op, **{name: edit[name] for name in given if name in edit}, **target}
        if isinstance(fields := edit.get("fields"), dict):
            # What an `add` leaves empty is not to be cleared.
            update["fields"] = {name: one for name, one in fields.items() if one is not None}
        return update

    def _carry_out(self, edit: Edit) -> None:
        """Apply an edit in the form that the gate will judge: with repairs.

        The edit is still proposed as the model sent it, so that the gate reports the repairs.
        """
        if isinstance(edit, WriteConstraint):
            edit, _ = repair_constraint(edit)
            _refuse_forbidden(edit)
        apply(self._project, edit)


def _with_collection(edit: Edit, outline: Outline) -> Edit:
    """Return the edit; if it defines a record class, make it also create the collection.

    A constraint can then use the collection before it holds any records.
    """
    if not isinstance(edit, DefineClass) or edit.kind != "record" or edit.collection:
        return edit
    domain = outline.domains.get(edit.domain)
    if domain and edit.name in domain.names():
        return edit  # `apply` will reject this edit and give the reason
    return replace(edit, collection=collection_for(domain or Domain(edit.domain), edit.name))


def _refuse_forbidden(edit: WriteConstraint) -> None:
    """Raise EditError for code that the gate would reject without running it."""
    findings = [
        *check_policy(constraint_path(edit.name), edit.source),
        *check_policy(constraint_tests_path(edit.name), edit.tests_source),
    ]
    if findings:
        places = [f"{one.path}:{one.line}: {one.message}" for one in findings[:MAX_FINDINGS]]
        raise EditError("policy", "; ".join(places))


def _cut_line(line: str) -> str:
    rest = len(line) - MAX_RECORD_CHARACTERS
    if rest <= 0:
        return line
    return f"{line[:MAX_RECORD_CHARACTERS]} ... and {rest} more characters: look_up shows them"


def _fitting(texts: Sequence[str], most: int) -> list[str]:
    """Return the first texts that, with a separator each, fit into so many characters."""
    sizes = itertools.accumulate(len(text) + 2 for text in texts)
    return [text for text, size in zip(texts, sizes, strict=True) if size <= most]


def _describe(record_id: RecordId, record: Record, shown: Mapping[str, int] = NOTHING_SHOWN) -> str:
    """Return a record as a line of text, in the form in which the model writes values.

    `shown` are texts that the model sees elsewhere, with the numbers of their entries, and that a
    value refers to instead of repeating them.
    """
    fields = {
        name: refer(value, shown) or encode_plain(value)
        for name, value in record.fields.items()
        if value is not None
    }
    values = json.dumps(fields, ensure_ascii=False)
    sources = list(record.sources)
    return f"{'.'.join(record_id)} {record.class_name} {values} sources={sources}"


def _plain(record: Record) -> dict[str, Any]:
    return {name: encode(value) for name, value in record.fields.items()}


def _matches(record: Record, words: Sequence[str], where: Mapping[str, Any]) -> bool:
    values = _plain(record)
    text = f"{record.key} {json.dumps(values, ensure_ascii=False)}".casefold()
    return all(word in text for word in words) and all(
        _same(values.get(name), wanted) for name, wanted in where.items()
    )


def _same(value: Any, wanted: Any) -> bool:
    """Return whether a typed JSON value equals a plain JSON value, ignoring case."""
    if isinstance(value, dict):
        value = value.get("key", next(iter(value.values())))
    return str(value).casefold() == str(wanted).casefold()


def _query(domain: str, collection: str, words: Sequence[str], where: Mapping[str, Any]) -> str:
    """Return Python code that lists the keys of records that may match, newest first."""
    tests = [f"{word!r} in repr(r).casefold()" for word in words]
    tests += [
        f"{str(value).casefold()!r} in (str(r.{name}) + repr(r.{name})).casefold()"
        for name, value in where.items()
    ]
    records = f"r.key for r in reversed({domain}.{collection}) if {' and '.join(tests) or True}"
    return f"list(itertools.islice(({records}), {QUERIED_RECORDS}))"


def _names(names: Iterable[str]) -> str:
    choices = ", ".join(names)
    return f"use one of {choices}" if choices else "there are none yet"


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers as text, such as "0 to 4, 6"; "none" if there are none."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return ", ".join(parts) or "none"


def _cut(text: str) -> str:
    rest = len(text) - MAX_CHARACTERS
    if rest <= 0:
        return text
    return f"{text[:MAX_CHARACTERS]}\n... and {rest} more characters: ask for less at a time"

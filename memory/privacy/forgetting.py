"""Removing everything based on redacted entries from versions and derived data.

Data that cites an entry is found by the entry's number: records by their sources, constraints by
the edits that created them. Data that may quote an entry without citing it (answers, alert
messages, prompts) is selected in two ways: everything computed from a version that contained data
from the entry, and everything that a model has written since the entry arrived. This errs on the
side of removing too much, since such data can be computed again.
"""

import datetime
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from django.db.models import (
    Exists,
    F,
    Func,
    JSONField,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    TextField,
    Value,
)

from memory.alerts import alert_events, alert_redaction
from memory.constraints import backtests, forecasts
from memory.kernel.canonical import sha256
from memory.kernel.models.idempotency import IdempotencyKey
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.texts import REDACTED
from memory.llm.models import LlmCall
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry, Outcome
from memory.log.models.redactions import Redaction
from memory.privacy.redaction import AUTHORED, REASON
from memory.project import Outline, Record, RecordId
from memory.project.errors import RunError
from memory.project.parse import parse_state
from memory.project.paths import constraint_files, constraint_path, domain_name
from memory.versions import runs
from memory.versions.earlier_entries import entries_about
from memory.versions.models.checkpoints import Blob, Bytecode, Checkpoint, RecordLocation
from memory.versions.models.runs import Run, RunKind, RunTrigger
from memory.versions.rollback import UNDONE

# Matches a record's sources as written in a file: `Trip(key="rome", to="Rome", sources=(3, 7))`.
_SOURCES = re.compile(r"\bsources=\(([0-9]+(?:, [0-9]+)*),?\)")
_EMPTY = sha256("")  # hash of every package's __init__.py content
_RETIREMENTS = ("retire", "retire_earlier")
_CONSTRAINT_EDITS = ("write_constraint", "delete_constraint")
_REDACTED_VERDICT = Func(F("verdict"), function="memory_redacted_verdict", output_field=JSONField())


@dataclass
class Traces:
    """The parts of a user's versions that are based on certain entries.

    `hashes` contains the hashes of all files based on any of the entries, and `versions` the
    primary keys of all versions that contain one of these files; the first of these versions was
    created at `since`. `records` contains all records that ever cited any of the entries, and
    `keys` the (domain, key) pairs of records named by edits that cite any of the entries. For the
    newest version, `head_records` maps the affected records to their sources, and
    `head_constraints` maps the affected constraints to the other entries they cite. `ended` maps
    each record that any of the entries retired to the other entries behind it and its earlier
    lives: without the retirement, they are folded again. `earlier` and `earlier_constraints`
    (source and tests) hold the state of records and constraints from before they were affected.
    """

    hashes: set[str] = field(default_factory=set)
    versions: list[int] = field(default_factory=list)
    since: datetime.datetime | None = None
    records: set[RecordId] = field(default_factory=set)
    keys: set[tuple[str, str]] = field(default_factory=set)
    head_records: dict[RecordId, Sequence[int]] = field(default_factory=dict)
    head_constraints: dict[str, set[int]] = field(default_factory=dict)
    ended: dict[RecordId, set[int]] = field(default_factory=dict)
    earlier: dict[RecordId, Record] = field(default_factory=dict)
    earlier_constraints: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def kept(self) -> set[RecordId]:
        """The records in the newest version that will be restored to their earlier state."""
        return self.head_records.keys() & self.earlier.keys()

    @property
    def in_head(self) -> bool:
        """True if the newest version contains data from the entries."""
        return bool(self.head_records or self.head_constraints)


def find(user: MemoryUser, seqs: Collection[int]) -> Traces:
    """Find the parts of the user's versions that are based on these entries."""
    return _Search(user, frozenset(seqs)).traces if seqs else Traces()


class _Search:
    """Walks through the versions that may cite certain entries, oldest first."""

    def __init__(self, user: MemoryUser, seqs: frozenset[int]) -> None:
        self.traces = Traces()
        self._user, self._seqs = user, seqs
        self._seen: set[str] = set()
        self._lines: set[str] = set()
        # Maps the name of each constraint based on the entries to the other entries it cites.
        self._constraints: dict[str, set[int]] = {}
        # Those of the entries that retired records.
        self._retiring: set[int] = set()
        before: Checkpoint | None = None
        for checkpoint in _versions(user, seqs).select_related("parent").iterator(chunk_size=20):
            self._look_at(checkpoint, before or checkpoint.parent)
            before = checkpoint
            if checkpoint.pk == user.head_id:
                self._look_at_head(checkpoint)
        self._fold_ended_again()

    def _look_at(self, checkpoint: Checkpoint, before: Checkpoint | None) -> None:
        traces, tree = self.traces, checkpoint.tree
        for path, content in self._new_files(checkpoint):
            lines = set(_citing_lines(content, self._seqs))
            if lines:
                traces.hashes.add(tree[path])
                if not lines <= self._lines:  # an unchanged record recurs in many files
                    self._lines |= lines
                    citing = _records_citing(checkpoint, path, content, self._seqs)
                    self._look_back(before, path, citing.keys() - traces.records)
                    traces.records |= citing.keys()
        for edit in checkpoint.edits:
            if not self._cites(edit):
                continue
            retires = edit["op"] in _RETIREMENTS
            if retires:
                self._retiring |= self._seqs.intersection(edit["sources"])
            if edit.get("domain") and edit.get("key"):
                traces.keys.add((edit["domain"], edit["key"]))
                if retires:
                    record_id = RecordId(edit["domain"], edit["collection"], edit["key"])
                    traces.ended[record_id] = self._sources(before, record_id)
        self._look_at_constraints(checkpoint, before)
        traces.hashes.discard(_EMPTY)
        if not traces.hashes.isdisjoint(tree.values()):
            traces.versions.append(checkpoint.pk)
            traces.since = traces.since or checkpoint.created_at

    def _look_back(
        self, before: Checkpoint | None, path: str, records: Collection[RecordId]
    ) -> None:
        """Save these records as of version `before`, in which they didn't cite the entries yet."""
        content = self._content(before, path) if records else None
        if before is None or content is None:
            return
        domain = Outline.from_json(before.outline).domains[domain_name(path)]
        previous_records = parse_state(path, content, domain).records
        for record_id in records:
            if (
                record := previous_records.get(record_id.collection, {}).get(record_id.key)
            ) is not None:
                self.traces.earlier[record_id] = record

    def _sources(self, version: Checkpoint | None, record_id: RecordId) -> set[int]:
        """Return the entries behind a record in a version, as far as it is where the index says."""
        row = RecordLocation.objects.filter(user=self._user, **record_id._asdict()).first()
        content = self._content(version, row.path) if row else None
        if version is None or row is None or content is None:
            return set()
        domain = Outline.from_json(version.outline).domains[record_id.domain]
        by_key = parse_state(row.path, content, domain).records.get(record_id.collection, {})
        return set(by_key[record_id.key].sources) if record_id.key in by_key else set()

    def _fold_ended_again(self) -> None:
        """Add to `ended` all typed entries about these records, and take them from the head."""
        ended, earlier = self.traces.ended, self.traces.earlier
        # An edit that an earlier redaction cleared no longer names its record.
        for row in RecordLocation.objects.filter(user=self._user, ended_by__in=self._retiring):
            ended.setdefault(RecordId(row.domain, row.collection, row.key), set())
        if not ended:
            return
        for record_id, entries in entries_about(self._user, ended).items():
            ended[record_id] |= {entry.seq for entry in entries}
        for record_id in ended:
            if sources := self._sources(self._user.head, record_id):
                self.traces.head_records[record_id] = sorted(sources)
                earlier.pop(record_id, None)

    def _content(self, checkpoint: Checkpoint | None, path: str) -> str | None:
        if checkpoint is None or path not in checkpoint.tree:
            return None
        return Blob.objects.get(user=self._user, hash=checkpoint.tree[path]).content

    def _new_files(self, checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
        """Yield the path and content of files below `domains/` that no earlier version had."""
        new = {
            hash_: path
            for path, hash_ in checkpoint.tree.items()
            if path.startswith("domains/") and hash_ not in self._seen
        }
        self._seen |= new.keys()
        blobs = Blob.objects.filter(user=self._user, hash__in=new.keys(), content__isnull=False)
        for hash_, content in blobs.values_list("hash", "content").iterator(chunk_size=50):
            assert content is not None
            yield new[hash_], content

    def _look_at_constraints(self, checkpoint: Checkpoint, before: Checkpoint | None) -> None:
        """Track the constraints that are based on the entries.

        A constraint is based on the entries cited by its edits, until an edit that cites no entry
        rewrites it.
        """
        traces, tree = self.traces, checkpoint.tree
        resting = {
            name: also
            for name, also in self._constraints.items()
            if tree.get(constraint_path(name)) in traces.hashes
        }
        for edit in checkpoint.edits:
            if edit.get("op") != "write_constraint":
                continue
            name, sources = edit["name"], edit.get("sources", [])
            if self._cites(edit) or (sources and name in self._constraints):
                if name not in self._constraints:
                    parts = [self._content(before, path) for path in constraint_files(name)]
                    if parts[0] is not None:
                        traces.earlier_constraints[name] = parts[0], parts[1] or ""
                resting[name] = self._constraints.get(name, set()) | set(sources) - self._seqs
            else:
                resting.pop(name, None)
        self._constraints = resting
        for name in resting:
            paths = (*constraint_files(name), "manifest.py")
            traces.hashes |= {tree[path] for path in paths if path in tree}

    def _look_at_head(self, head: Checkpoint) -> None:
        traces = self.traces
        for path, hash_ in head.tree.items():
            if hash_ in traces.hashes and path.startswith("domains/"):
                content = self._content(head, path) or ""
                traces.head_records |= _records_citing(head, path, content, self._seqs)
        traces.head_constraints = {
            name: also
            for name, also in self._constraints.items()
            if constraint_path(name) in head.tree
        }

    def _cites(self, edit: Mapping[str, Any]) -> bool:
        return not self._seqs.isdisjoint(edit.get("sources", ()))


def _versions(user: MemoryUser, seqs: Collection[int]) -> QuerySet[Checkpoint]:
    """Select the versions that may cite these entries according to `seen_seq`, oldest first."""
    checkpoints = Checkpoint.objects.filter(user=user, seen_seq__gte=min(seqs))
    return checkpoints.order_by("version")


def cited(content: str) -> set[int]:
    """Return the entries that a file's records are based on."""
    return {int(seq) for match in _SOURCES.finditer(content) for seq in match[1].split(", ")}


def _citing_lines(content: str, seqs: frozenset[int]) -> Iterator[str]:
    for line in content.splitlines():
        for match in _SOURCES.finditer(line):
            if not seqs.isdisjoint(map(int, match[1].split(", "))):
                yield line
                break


def _records_citing(
    checkpoint: Checkpoint, path: str, content: str, seqs: frozenset[int]
) -> dict[RecordId, tuple[int, ...]]:
    domain = Outline.from_json(checkpoint.outline).domains[domain_name(path)]
    return {
        RecordId(domain.name, name, key): record.sources
        for name, by_key in parse_state(path, content, domain).records.items()
        for key, record in by_key.items()
        if not seqs.isdisjoint(record.sources)
    }


# -- Removing affected data -----------------------------------------------------------------------


def forget(user: MemoryUser, seqs: Collection[int], traces: Traces) -> None:
    """Remove everything that is based on these entries or may quote them, except in the head.

    The head no longer contains any such data; `traces` must have been found before that head was
    created. Call this in the transaction that creates the head, with the user's row locked. A
    repeated call finds nothing more to remove.
    """
    if not seqs:
        return
    since = _came(user, seqs)
    _forget_versions(user, seqs, traces)
    emptied = _forget_runs(user, since, traces)
    _forget_requests(user, frozenset(seqs), emptied)
    LlmCall.objects.filter(user=user, started_at__gte=since).update(
        prompt=None, answer=None, prompt_hash="", error=""
    )
    _forget_reasons(user, since)
    Lane.objects.filter(user=user).update(last_error="")
    if traces.since is not None:
        backtests.redact_results(user, traces.since)
        forecasts.forget(user)
    alert_redaction.redact(user, seqs, traces.since)
    alert_events.redact(user, seqs, since)


def _came(user: MemoryUser, seqs: Collection[int]) -> datetime.datetime:
    """Return when the first of these entries, or of the entries behind them, was recorded."""
    entries = LogEntry.objects.filter(user=user)
    origins = {
        seq
        for derived in entries.filter(seq__in=seqs).values_list("derived_from", flat=True)
        for seq in derived
    }
    came: datetime.datetime = entries.filter(seq__in={*seqs, *origins}).aggregate(
        first=Min("recorded_at")
    )["first"]
    return came


def _forget_versions(user: MemoryUser, seqs: Collection[int], traces: Traces) -> None:
    kept = set(user.head.tree.values()) if user.head else set()
    gone = traces.hashes - kept
    Blob.objects.filter(user=user, hash__in=gone, content__isnull=False).update(content=None)
    Bytecode.objects.filter(user=user, source_hash__in=gone).delete()
    retired = RecordLocation.objects.filter(user=user, retired_version__isnull=False)
    keys = defaultdict(set)
    for domain, collection, key in {*traces.records, *traces.ended} - _still_ended(user, traces):
        keys[domain, collection].add(key)
    for (domain, collection), some in keys.items():
        retired.filter(domain=domain, collection=collection, key__in=some).delete()
    # A record added and retired in the same version isn't in any file.
    for domain, key in traces.keys:
        retired.filter(domain=domain, key=key, path="").delete()
    records = traces.records - traces.kept
    revealing = _RevealingEdits(
        frozenset(seqs), records, {(one.domain, one.key) for one in records}
    )
    for checkpoint in _versions(user, seqs).iterator(chunk_size=20):
        files = {path for path, hash_ in checkpoint.tree.items() if hash_ in traces.hashes}
        edits = [
            _redacted(edit) if revealing.includes(edit, files) else edit
            for edit in checkpoint.edits
        ]
        held = checkpoint.pk in traces.versions
        if held or edits != checkpoint.edits:
            rows = Checkpoint.objects.filter(pk=checkpoint.pk)
            rows.update(
                edits=edits,
                outline=_redacted_outline(checkpoint, gone),
                verdict=_REDACTED_VERDICT,
            )


def _still_ended(user: MemoryUser, traces: Traces) -> set[RecordId]:
    """Return the records that other entries are about, too, and that another entry retired.

    The index keeps their keys, so that late entries don't bring back what that entry retired.
    """
    rows = RecordLocation.objects.filter(
        user=user, ended_by__isnull=False, key__in={record.key for record in traces.records}
    )
    located = {RecordId(row.domain, row.collection, row.key) for row in rows}
    candidates = located & traces.records - traces.ended.keys()
    about = entries_about(user, candidates) if candidates else {}
    return {one for one in candidates if any(not e.retired for e in about.get(one, ()))}


@dataclass(frozen=True)
class _RevealingEdits:
    """Finds edits that reveal certain entries, by citing them or naming something based on them.

    Edits that dismiss other entries are included, because their reasons may quote these entries.
    """

    seqs: frozenset[int]
    records: Collection[RecordId]
    keys: Collection[tuple[str, str]]

    def includes(self, edit: Mapping[str, Any], files: Collection[str]) -> bool:
        """Return whether an edit reveals any of the entries.

        `files` are the paths of those files in the edit's version that are based on one of the
        entries.
        """
        op = edit.get("op")
        if op == "dismiss" or not self.seqs.isdisjoint(edit.get("sources", ())):
            return True
        if op in _CONSTRAINT_EDITS:
            return constraint_path(str(edit.get("name"))) in files
        named = {RecordId(**one) for one in edit.get("records", ())}
        if not named.isdisjoint(self.records):
            return True
        target = (edit.get("domain"), edit.get("key"))
        if edit.get("collection") is None:
            return target in self.keys
        return (target[0], edit["collection"], target[1]) in self.records


def _redacted(edit: Mapping[str, Any]) -> dict[str, Any]:
    """Return the edit in redacted form, the only change to an edit that the database permits."""
    kept = {"op": edit["op"]}
    if edit["op"] in _CONSTRAINT_EDITS and "name" in edit:
        kept["name"] = edit["name"]
    if "sources" in edit:
        kept["sources"] = edit["sources"]
    return {**kept, "redacted": True}


def _redacted_outline(checkpoint: Checkpoint, gone: Collection[str]) -> Any:
    """Return the outline without the docstrings of constraints whose files were removed."""
    constraints = [
        [name, "" if checkpoint.tree.get(constraint_path(name)) in gone else doc]
        for name, doc in checkpoint.outline.get("constraints", ())
    ]
    return {**checkpoint.outline, "constraints": constraints}


# Runs whose input was written by somebody who may have read the entries.
_WRITTEN = Q(kind__in=AUTHORED) | Q(trigger__in=[RunTrigger.MODEL, RunTrigger.STAFF])


def count_queries(user: MemoryUser, seqs: Collection[int], traces: Traces) -> int:
    """Return the number of finished queries that a redaction of these entries would empty."""
    if not seqs:
        return 0
    return _runs_to_empty(user, _came(user, seqs), traces).filter(kind=RunKind.QUERY).count()


def _runs_to_empty(user: MemoryUser, since: datetime.datetime, traces: Traces) -> QuerySet[Run]:
    return Run.objects.filter(
        Q(checkpoint__in=traces.versions) | (_WRITTEN & Q(finished_at__gte=since)),
        user=user,
        finished_at__isnull=False,
    )


def _forget_runs(user: MemoryUser, since: datetime.datetime, traces: Traces) -> set[str]:
    """Clear the content of runs that may contain data from the entries; return their ids.

    These are runs of an affected version, and runs whose input was written by somebody who may have
    read the entries.
    """
    of_user = Run.objects.filter(user=user)
    runs.close(
        of_user.filter(
            kind__in=[RunKind.CONSTRAINTS, RunKind.CONSTRAINT, RunKind.QUERY, RunKind.OUTLOOK],
            checkpoint__in=traces.versions,
        ),
        "The requested version contained redacted content. Try again.",
    )
    # A run that failed permanently and was then requeued still has its old input, so close it.
    redacted_at = Redaction.objects.filter(user=user).aggregate(last=Max("created_at"))["last"]
    if redacted_at is not None:
        runs.close(
            of_user.filter(_WRITTEN, queued_at__gte=since, queued_at__lt=redacted_at),
            "Content in this user's memory was redacted in the meantime. Try again.",
        )
    chosen = _runs_to_empty(user, since, traces)
    emptied = {str(pk) for pk in chosen.values_list("pk", flat=True)}
    error = RunError(type="redacted", message=REDACTED).to_json()
    chosen.exclude(error=None).exclude(error__type=runs.CLOSED).update(error=error)
    chosen.update(
        input={"redacted": True},
        output=None,
        stdout="",
        last_error="",
        answer_key="",
        test_gaps=[],
        dead_since=None,
    )
    return emptied


def _forget_requests(user: MemoryUser, seqs: Set[int], emptied: Collection[str]) -> None:
    """Delete the hashes of requests that wrote the entries or triggered the `emptied` runs.

    A short body can be guessed from its hash. Without the hash, a repeated request is rejected
    instead of restoring what was redacted.
    """
    # A query writes nothing: repeating one that the redaction closed runs it, as its answer said.
    queries = Run.objects.filter(pk__in=emptied, kind=RunKind.QUERY, error__type=runs.CLOSED)
    closed = {str(pk) for pk in queries.values_list("pk", flat=True)}
    repeatable, wrote = [], []
    for key in IdempotencyKey.objects.filter(user=user).exclude(fingerprint="").only("reference"):
        # The reference is to the written row, such as a run, or has the numbers of entries as JSON.
        row, written = key.reference.get("pk"), key.reference.get("json")
        if row in closed:
            repeatable.append(key.pk)
        elif row in emptied or (isinstance(written, list) and not seqs.isdisjoint(written)):
            wrote.append(key.pk)
    IdempotencyKey.objects.filter(pk__in=repeatable).delete()
    IdempotencyKey.objects.filter(pk__in=wrote).update(fingerprint="")


def _forget_reasons(user: MemoryUser, since: datetime.datetime) -> None:
    """Remove explanations that may quote the entries.

    These are a model's reasons for dismissing or rejecting other entries, reasons given by staff
    for rollbacks, and the gate's objections to versions created by earlier redactions.
    """
    entries = LogEntry.objects.filter(user=user, seq=OuterRef("seq")).exclude(
        kind__in=[EntryKind.RECORD, EntryKind.REDACTION]
    )
    outcomes = EntryOutcome.objects.filter(user=user, decided_at__gte=since).exclude(reason="")
    outcomes.exclude(reason__startswith=UNDONE).exclude(reason=REASON).filter(
        Exists(entries), outcome__in=[Outcome.DISMISSED, Outcome.REJECTED]
    ).update(reason=REDACTED)
    # Keep the beginning, which names the rollback and determines the outcome if the rollback is
    # later undone.
    short = (F("reason"), Value(rf"^({UNDONE} \d+).*"), Value(r"\1"))
    EntryOutcome.objects.filter(user=user, reason__startswith=UNDONE).update(
        reason=Func(*short, function="regexp_replace", output_field=TextField())
    )
    condition = Q(verdict__restored__reason__gt="") | Q(verdict__redaction__problem__gt="")
    Checkpoint.objects.filter(condition, user=user, created_at__gte=since).update(
        verdict=_REDACTED_VERDICT
    )
    earlier = Redaction.objects.filter(user=user, finished_at__gte=since).exclude(problem="")
    earlier.update(problem=REDACTED)

"""States that are not stored as versions: computed exactly from typed entries, or not at all.

Entries that are settled together share a version. The state as of one of these entries is the
previous version plus the edits for the entries up to and including it, which works because edits
are recorded entry by entry. *What was true* at a given time, according to the entries' own times,
is the project that would result if each typed entry had arrived when it occurred. Edits that a
language model or a person made from several entries can't be separated. In that case, the message
of `NotComputable` says what to request instead.
"""

import datetime
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from django.db.models import Exists, OuterRef, Q

from memory.kernel.canonical import sha256
from memory.kernel.models.users import MemoryUser
from memory.kernel.refused import Refused
from memory.log import entry_log
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry, Outcome
from memory.project import (
    EditError,
    Outline,
    Project,
    ProjectError,
    RecordId,
    WidenField,
    apply,
    edit_from_json,
)
from memory.project.paths import is_own_constraint
from memory.project.rebuilding import ProjectBuild, select_edits_up_to
from memory.versions import checkpoints, redactions
from memory.versions.checkpoints import AnyState, State
from memory.versions.models.checkpoints import Checkpoint, Origin

# The kinds of entries whose outcomes affect a state (messages and redactions don't).
STATED = (EntryKind.RECORD, EntryKind.FACT, EntryKind.CORRECTION)
# The kinds of edits that don't change any records.
_RULES = {"write_constraint", "delete_constraint", "dismiss"}
# The maximum number of entries named in an error message.
_NAMED = 3
# The maximum number of typed entries recompiled for a single request, which takes about five
# seconds.
MAX_COMPUTED = 20_000


class NotComputable(Refused):
    """The state can't be computed exactly; the message says why, and what to request instead."""

    problem = "not-computable"

    def __init__(self, why: str, instead: str = "") -> None:
        super().__init__(f"{why} {instead}".strip())
        self.why = why


# -- States as of an entry ------------------------------------------------------------------------


def version_with(user: MemoryUser, seq: int, before: Checkpoint | None) -> Checkpoint | None:
    """Return the version that, truncated after this entry, is the state as of the entry.

    Returns None if that state is `before`, the newest version that takes no later entries into
    account. Raises NotComputable if the state can't be separated from that of later entries.
    """
    version = before.version if before else 0
    later = EntryOutcome.objects.filter(
        user=user,
        outcome=Outcome.COVERED,
        checkpoint__version__gt=version,
        seq=OuterRef("seq"),
    )
    entries = LogEntry.objects.filter(Exists(later), user=user, seq__lte=seq, kind__in=STATED)
    kinds = dict(entries.order_by("seq").values_list("seq", "kind"))
    if not kinds:
        return None
    held = EntryOutcome.objects.filter(user=user, seq__in=kinds)
    holders = list(
        Checkpoint.objects.filter(pk__in=held.values("checkpoint"))
        .select_related("parent", "user")
        .order_by("version")
    )
    (first, *others) = holders
    tree = first.parent.tree if first.parent else {}
    typed = first.origin == Origin.RECORDS and set(kinds.values()) == {EntryKind.RECORD}
    if not others and typed and tree == (before.tree if before else {}):
        return first
    raise NotComputable(_describe_batch(seq, list(kinds), holders, before))


def _describe_batch(
    seq: int, entries: Sequence[int], holders: Sequence[Checkpoint], before: Checkpoint | None
) -> str:
    what = f"Entry {entries[0]} was" if len(entries) == 1 else f"Entries {_listed(entries)} were"
    instead = [f"v{one.version}" for one in (before, holders[-1]) if one is not None]
    return (
        f"{what} not processed individually, but in version {holders[-1].version}, together with"
        f" later entries: there is no exact state as of entry {seq}. Ask for the state as"
        f" of a version ({' or '.join(instead)}) or a point in time instead."
    )


def _listed(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:_NAMED]))
    more = len(numbers) - _NAMED
    return f"{named} and {more} more" if more > 0 else named


def compute_up_to(version: Checkpoint, seq: int) -> State:
    """Return the state a version built from typed entries would have if it ended at this entry.

    This is the previous version plus the edits up to this entry. Raises NotComputable if these
    edits can't be applied.
    """
    parent = version.parent
    edits = list(select_edits_up_to(map(edit_from_json, version.edits), seq))
    try:
        try:
            project = checkpoints.open_project(parent, version.user, as_of=True)
            for edit in edits:
                apply(project, edit)
        except (EditError, ProjectError):
            # The record index describes the newest version, so read all files instead.
            project = Project.from_files(checkpoints.read_files(parent) if parent else {})
            for edit in edits:
                apply(project, edit)
    except EditError as error:
        raise NotComputable(
            f"Version {version.version}'s edits cannot be applied one by one ({error}): ask for"
            f" the state as of v{version.version} instead."
        ) from None
    change = project.change()
    files = {path: text for path, text in change.files.items() if text is not None}
    tree = {
        path: hash_
        for path, hash_ in (parent.tree if parent else {}).items()
        if path not in change.files
    }
    return _state(version, tree, files, change.outline, seen_seq=seq)


def _state(
    version: Checkpoint,
    tree: Mapping[str, str],
    texts: Mapping[str, str],
    outline: Outline,
    **more: Any,
) -> State:
    """Return a state computed from a version: `tree` has the files that are kept of it."""
    return State(
        user=version.user,
        version=version.version,
        tree={**tree, **{path: sha256(text) for path, text in texts.items()}},
        texts=texts,
        outline=outline.to_json(),
        created_at=version.created_at,
        **more,
    )


def replace_constraint(state: AnyState, path: str, source_hash: str) -> State:
    """Return a version or state in which `path` has the given source, which must be in a blob."""
    return State(
        user=state.user,
        version=state.version,
        tree={**state.tree, path: source_hash},
        texts=state.texts if isinstance(state, State) else {},
        outline=state.outline,
    )


# -- States by the entries' own times -------------------------------------------------------------


def lineage(version: Checkpoint) -> list[tuple[int, int]]:
    """Return the ranges of versions that led to this one, without those that were rolled back."""
    returns = Checkpoint.objects.filter(user=version.user_id, origin=Origin.RESTORED)
    skipped = dict(returns.values_list("version", "verdict__restored__version"))
    ranges, last = [], version.version
    while last:
        began = max((one for one in skipped if one <= last), default=1)
        ranges.append((began, last))
        last = skipped.get(began, 0)
    return ranges


def within(ranges: Sequence[tuple[int, int]], prefix: str = "") -> Q:
    """Return a filter for rows whose version is in one of these ranges.

    `prefix` is the lookup path to the version, such as `checkpoint__`.
    """
    condition = Q(pk=None)
    for began, last in ranges:
        condition |= Q(**{f"{prefix}version__gte": began, f"{prefix}version__lte": last})
    return condition


def compute_by_occurred(head: Checkpoint, moment: datetime.datetime) -> State:
    """Return what was true at a given time, according to when the typed entries occurred.

    This is the project that would exist if each of the version's typed entries had arrived when it
    occurred; entries that occurred at the same time are in the order of the log. The constraints
    are the version's own. Raises NotComputable if the version is based on anything but typed
    entries.
    """
    build, entries = _start_build(head), _occurred(head, moment)
    rejected = build.add_entries([entry_log.record_entry(entry) for entry in entries])
    return _make_state(head, build, rejected, entries)


def occurrences(
    head: Checkpoint, since: datetime.datetime, until: datetime.datetime
) -> Iterator[tuple[datetime.datetime, State]]:
    """Yield the states during a period, by the entries' own times, with the time each one began.

    The first is the state at the beginning of the period, if there was one. It is followed by a
    state for each time before the end at which an entry occurred. Raises NotComputable if the
    states can't be computed from typed entries.
    """
    build, entries = _start_build(head), _occurred(head, until)
    rejected: dict[int, str] = {}
    processed: list[LogEntry] = []
    groups: dict[datetime.datetime, list[LogEntry]] = {}
    for entry in entries:
        groups.setdefault(max(entry.occurred_at, since), []).append(entry)
    for moment, group in groups.items():
        if moment >= until:
            return
        rejected |= build.add_entries([entry_log.record_entry(entry) for entry in group])
        processed += group
        yield moment, _make_state(head, build, rejected, processed)


def _start_build(head: Checkpoint) -> ProjectBuild:
    widened = _widened_by_hand(head)
    rules = [path for path in head.tree if is_own_constraint(path)]
    zone = zoneinfo.ZoneInfo(head.user.time_zone)
    return ProjectBuild(checkpoints.read_files(head, rules), widened, zone)


def _make_state(
    head: Checkpoint,
    build: ProjectBuild,
    rejected: Mapping[int, str],
    entries: Sequence[LogEntry],
) -> State:
    rules = {
        path: head.tree[path]
        for path in build.files
        if path in head.tree and is_own_constraint(path)
    }
    return _state(
        head,
        rules,
        {path: text for path, text in build.files.items() if path not in rules},
        build.outline,
        seen_seq=max((entry.seq for entry in entries), default=0),
        rejected=sorted(rejected),
        behind={RecordId(*record): tuple(seqs) for record, seqs in build.made_of.items()},
    )


def _occurred(head: Checkpoint, until: datetime.datetime) -> list[LogEntry]:
    """Return a version's typed entries that had occurred by a given time."""
    made = within(lineage(head), "checkpoint__")
    covered = EntryOutcome.objects.filter(
        made, user=head.user_id, seq=OuterRef("seq"), outcome=Outcome.COVERED
    )
    entries = LogEntry.objects.filter(
        Exists(covered), user=head.user_id, kind=EntryKind.RECORD, occurred_at__lte=until
    )
    occurred = list(entries.order_by("occurred_at", "seq")[: MAX_COMPUTED + 1])
    if len(occurred) > MAX_COMPUTED:
        raise NotComputable(
            f"More than {MAX_COMPUTED:,} typed entries had occurred by then, so the state according"
            " to their own times is not computed.",
            "Ask for an earlier time, or omit by=occurred.",
        )
    forgotten = [entry.seq for entry in occurred if entry.redacted_at is not None]
    if forgotten:
        redacted = set(redactions.redacted_among(head.user, forgotten))
        occurred = [entry for entry in occurred if entry.seq not in redacted]
        if kept := [seq for seq in forgotten if seq not in redacted]:
            noun = "entry" if len(kept) == 1 else "entries"
            raise NotComputable(
                f"Retention has deleted the text of {noun} {_listed(kept)}, so the state"
                " according to the entries' own times cannot be computed.",
                "Omit by=occurred.",
            )
    return occurred


def refuse_untyped(head: Checkpoint) -> None:
    """Raise NotComputable if a version is not based solely on typed entries.

    This is the case if a language model, an import or proposed edits changed classes or records in
    any way other than by widening fields.
    """
    _widened_by_hand(head)


def _widened_by_hand(head: Checkpoint) -> list[WidenField]:
    """Return the edits that widen fields but weren't derived from typed entries.

    Raises NotComputable if any other edits weren't derived from typed entries.
    """
    widened: list[WidenField] = []
    others = Checkpoint.objects.filter(within(lineage(head)), user=head.user_id).exclude(
        origin__in=(Origin.RECORDS, Origin.RESTORED, Origin.REDACTION)
    )
    for version, origin, edits in (
        others.order_by("version").values_list("version", "origin", "edits").iterator(chunk_size=50)
    ):
        wider = [one for one in edits if one["op"] == WidenField.op and not one.get("redacted")]
        changes = {edit["op"] for edit in edits if edit not in wider} - _RULES
        if origin == Origin.IMPORTED or changes:
            made_by = Origin(origin).label
            raise NotComputable(
                f"Version {version} ({made_by}) changed classes or records other than through"
                " typed entries, and these changes have no time of their own, so the state"
                " according to the entries' own times cannot be computed.",
                "Omit by=occurred, and ask for the state as of a version"
                f" (v{version - 1 or version}) or a point in time.",
            )
        widened += (cast("WidenField", edit_from_json(edit)) for edit in wider)
    return widened

"""Coverage: every entry considered by a candidate gets exactly one outcome."""

from collections.abc import Collection, Iterator, Mapping

from memory.project import Dismiss, Edit
from workers.findings import Finding


def uncovered(
    edits: Mapping[int, Edit],
    considered: Collection[int],
    *,
    last_seq: int,
    redacted: Collection[int] = (),
) -> Iterator[Finding]:
    """Yield a finding for each entry that has no outcome or two outcomes, or must not be cited.

    The edits are keyed by the numbers under which their author knows them.
    `considered` are the entries that the edits claim to settle, `last_seq` is the log's last entry
    number, and `redacted` are the redacted entries, which nothing may rely on any more. An entry is
    settled when an edit cites it or dismisses it with a reason.
    """
    used: dict[int, int] = {}
    dismissed: dict[int, int] = {}
    for index, edit in edits.items():
        for seq in edit.sources:
            (dismissed if isinstance(edit, Dismiss) else used).setdefault(seq, index)
            if not 1 <= seq <= last_seq:
                yield Finding(
                    code="unknown_source",
                    edit=index,
                    entry=seq,
                    message=f"edits[{index}].sources cites entry {seq}; {_log(last_seq)}",
                    fix="cite the entries that the edit comes from",
                )
            if seq in redacted:
                yield Finding(
                    code="redacted_source",
                    edit=index,
                    entry=seq,
                    message=f"edits[{index}].sources cites entry {seq}, which was redacted",
                    fix="leave out everything that comes from this entry",
                )
    for seq in sorted(used.keys() & dismissed.keys()):
        yield Finding(
            code="used_and_dismissed",
            edit=dismissed[seq],
            entry=seq,
            message=f"edits[{dismissed[seq]}] dismisses entry {seq}; edits[{used[seq]}] cites it",
            fix="either cite the entry or dismiss it",
        )
    for seq in sorted({*considered} - used.keys() - dismissed.keys()):
        if 1 <= seq <= last_seq:
            yield Finding(
                code="entry_without_outcome",
                entry=seq,
                message=f"entry {seq} was considered, but no edit cites or dismisses it",
                fix="cite the entry in the edits that come from it, or dismiss it with a reason",
            )
        else:
            yield Finding(
                code="unknown_entry",
                entry=seq,
                message=f"entry {seq} was considered, but {_log(last_seq)}",
                fix="name entries in this user's log",
            )


def _log(last_seq: int) -> str:
    return f"the log has entries 1 to {last_seq}" if last_seq else "the log has no entries"

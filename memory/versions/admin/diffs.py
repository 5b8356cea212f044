"""Side-by-side file diffs, and the changes made by a project version."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, TypeAlias

from django.db.models.functions import Length
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memory.kernel.admin.display import NOTHING, badge, counted, folded, inline, lines, record_name
from memory.kernel.admin.source import code_lines
from memory.kernel.admin.values import describe_value
from memory.kernel.texts import REDACTED
from memory.log.admin.links import entry_pages
from memory.versions import differences
from memory.versions.checkpoints import AnyState, Redacted
from memory.versions.differences import RecordChange
from memory.versions.models.checkpoints import Blob, Checkpoint

# Maximum number of characters compared on one page (old and new texts together), and of records
# shown on it.
MAX_COMPARED = 400_000
MAX_RECORDS = 100
# If the number of old lines times the number of new lines to compare exceeds this, show them all as
# changed.
_MAX_WORK = 250_000
_MAX_ROWS = 2_000
# Number of unchanged lines shown before and after each change.
_AROUND = 3

Row: TypeAlias = tuple[int | None, int | None]


def side_by_side(before: str, after: str) -> SafeString:
    """Return two texts side by side, line by line, with unchanged parts folded."""
    old, new = code_lines(before) if before else [], code_lines(after) if after else []
    parts: list[SafeString] = []
    for same, rows in _stretches(old, new):
        table = _table(rows[:_MAX_ROWS], old, new, same=same)
        if (more := len(rows) - _MAX_ROWS) > 0:
            table = format_html("{}<div>… {}</div>", table, counted(more, "more line"))
        if same:
            table = folded(counted(len(rows), "unchanged line"), table)
        parts.append(table)
    return format_html_join("", "{}", ((part,) for part in parts))


def _stretches(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[bool, list[Row]]]:
    """Yield (is_unchanged, rows) for each group of rows.

    A row is a pair of line indexes, one in each text; an index is None if the line exists only in
    the other text.
    """
    shown: list[Row] = []
    blocks = list(_blocks(old, new))
    for number, (same, a, b, c, d) in enumerate(blocks):
        if not same:
            shown += zip_longest(range(a, b), range(c, d))
            continue
        rows: list[Row] = list(zip(range(a, b), range(c, d), strict=True))
        first, last = number == 0, number == len(blocks) - 1
        head, tail = (0 if first else _AROUND), (0 if last else _AROUND)
        if len(rows) <= head + tail + 1:
            shown += rows
            continue
        if shown or head:
            yield False, shown + rows[:head]
        yield True, rows[head : len(rows) - tail]
        shown = rows[len(rows) - tail :] if tail else []
    if shown:
        yield False, shown


def _blocks(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[bool, int, int, int, int]]:
    """Yield each block of equal or changed lines.

    A block is (is_equal, start in the old text, end in the old text, start in the new text, end in
    the new text).
    """
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    if start:
        yield True, 0, start, 0, start
    left, right = old[start : len(old) - end], new[start : len(new) - end]
    if len(left) * len(right) > _MAX_WORK:
        yield False, start, len(old) - end, start, len(new) - end
    else:
        for tag, a, b, c, d in SequenceMatcher(None, left, right).get_opcodes():
            yield tag == "equal", start + a, start + b, start + c, start + d
    if end:
        yield True, len(old) - end, len(old), len(new) - end, len(new)


def _table(
    rows: Sequence[Row], old: Sequence[SafeString], new: Sequence[SafeString], *, same: bool
) -> SafeString:
    return format_html(
        '<table class="diff code"><caption class="quiet">{}</caption><colgroup>'
        '<col class="number"><col><col class="number"><col></colgroup><thead><tr>'
        '<th scope="col">line</th><th scope="col">before</th>'
        '<th scope="col">line</th><th scope="col">after</th></tr></thead><tbody>{}</tbody></table>',
        "Unchanged lines" if same else "Before and after, line by line",
        format_html_join("", "<tr>{}{}</tr>", (_cells(row, old, new) for row in rows)),
    )


def _cells(
    row: Row, old: Sequence[SafeString], new: Sequence[SafeString]
) -> tuple[SafeString, SafeString]:
    left, right = row
    if left is not None and right is not None and old[left] == new[right]:
        return _cell(left, old, ""), _cell(right, new, "")
    return _cell(left, old, "gone"), _cell(right, new, "come")


def _cell(index: int | None, rows: Sequence[SafeString], kind: str) -> SafeString:
    if index is None:
        return SafeString('<td class="number"></td><td class="none"></td>')
    tag = SafeString({"gone": "del", "come": "ins"}.get(kind, "span"))  # nosec B703 # our own
    return format_html(
        '<td class="number">{}</td><td class="{}"><{}>{}</{}></td>',
        *(index + 1, kind, tag, rows[index], tag),
    )


# -- Changes made by a version ------------------------------------------------------------------


def changed_files(before: Checkpoint | None, after: Checkpoint) -> list[str]:
    """Return the paths of the files that differ between two versions."""
    old, new = before.tree if before else {}, after.tree
    return sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))


def show_files(before: Checkpoint | None, after: Checkpoint) -> SafeString | str:
    """Show each changed file next to its previous text, up to a limit for the whole page."""
    paths = changed_files(before, after)
    old, new = before.tree if before else {}, after.tree
    hashes = {tree[path] for path in paths for tree in (old, new) if path in tree}
    blobs = Blob.objects.filter(user_id=after.user_id, hash__in=hashes)
    sizes = dict(blobs.annotate(size=Length("content")).values_list("hash", "size"))
    # Maps each path to the file's sizes before and after; the size of redacted content is None.
    taken = {
        path: [sizes[tree[path]] for tree in (old, new) if path in tree and tree[path] in sizes]
        for path in paths
    }
    room, read = MAX_COMPARED, list[str]()
    for path in paths:
        size = sum(filter(None, taken[path]))
        if size <= room:
            room -= size
            read.append(path)
    wanted = {tree[path] for path in read for tree in (old, new) if path in tree}
    contents = dict(blobs.filter(hash__in=wanted).values_list("hash", "content"))
    rows = []
    for path in paths:
        mark = badge("changed") if path in old and path in new else badge(*_came(path in new))
        title = format_html("{} {}", inline(path), mark)
        if None in taken[path]:
            rows.append(format_html("{} {}", title, REDACTED))
        elif path not in read:
            rows.append(format_html("{} (too large to compare here)", title))
        elif not any(taken[path]):
            continue  # a package's empty __init__.py
        else:
            comparison = side_by_side(
                *(contents.get(tree.get(path, ""), "") or "" for tree in (old, new))
            )
            rows.append(folded(title, comparison, unfold=len(paths) <= 3))
    return lines(rows)


def _came(is_there: bool) -> tuple[str, str]:
    return ("new", "new") if is_there else ("plain", "deleted")


def show_records(before: AnyState | None, after: AnyState) -> SafeString | str:
    """Say which records were added, changed and retired in between, each with its entries."""
    old = before.tree if before else {}
    hashes = {
        tree[path]
        for path in differences.differing_paths(before, after)
        for tree in (old, after.tree)
        if path in tree and path.startswith("domains/")
    }
    if not hashes:
        return NOTHING
    sizes = Blob.objects.filter(user_id=after.user_id, hash__in=hashes).annotate(
        size=Length("content")
    )
    found_sizes = list(sizes.values_list("size", flat=True))
    if None in found_sizes:
        return REDACTED
    if sum(found_sizes) > MAX_COMPARED:
        return "The files are too large to compare here. See the edits below."
    try:
        diff = differences.difference(before, after)
    except Redacted:
        return REDACTED
    changes = [
        *(("new", "added", one) for one in diff.added),
        *(("changed", "changed", one) for one in diff.changed),
        *(("plain", "retired", one) for one in diff.retired),
    ]
    shown = changes[:MAX_RECORDS]
    pages = entry_pages(after.user, {seq for *_, change in shown for seq in change.entries[:10]})
    rows: list[SafeString | str] = [
        _record(kind, word, change, pages) for kind, word, change in shown
    ]
    if (more := len(changes) - len(shown)) > 0:
        rows.append(f"… and {counted(more, 'more record')}")
    return lines(rows)


def _record(kind: str, word: str, change: RecordChange, pages: Mapping[int, str]) -> SafeString:
    value = change.after or change.before
    numbers = format_html_join(", ", "{}", ((_entry(seq, pages),) for seq in change.entries[:10]))
    more = f" and {len(change.entries) - 10} more" if len(change.entries) > 10 else ""
    return format_html(
        "{} in {} was {}{}{}",
        record_name(str(value["$record"]), change.record.key),
        inline(f"{change.record.domain}.{change.record.collection}"),
        badge(kind, word),
        format_html(" (from {}{})", numbers, more) if change.entries else "",
        _fields(change),
    )


def _entry(seq: int, pages: Mapping[int, str]) -> SafeString | str:
    return format_html('<a href="{}">#{}</a>', pages[seq], seq) if seq in pages else f"#{seq}"


def _fields(change: RecordChange) -> SafeString | str:
    was: Mapping[str, Any] = (change.before or {"fields": {}})["fields"]
    now: Mapping[str, Any] = (change.after or {"fields": {}})["fields"]
    rows = [
        _sentence(name, was.get(name), now.get(name), is_new=change.before is None)
        for name in {**was, **now}
        if was.get(name) != now.get(name)
    ]
    shown = format_html_join("; ", "{}", ((one,) for one in rows))
    return format_html(": {}.", shown) if shown else "."


def _sentence(name: str, was: Any, now: Any, *, is_new: bool) -> SafeString:
    old = "" if was is None else format_html("<del>{}</del>", inline(describe_value(was)))
    new = "" if now is None else format_html("<ins>{}</ins>", inline(describe_value(now)))
    if old and new:
        return format_html("{} changed from {} to {}", inline(name), old, new)
    if old:
        return format_html("{} was {}", inline(name), old)
    return format_html("{} {} {}", inline(name), "is" if is_new else "was set to", new)

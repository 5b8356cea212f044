"""A query's result as a table, with a bar next to each number in a series."""

import datetime
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from memory.kernel.admin.display import NOTHING, counted, inline, preformatted
from memory.kernel.admin.values import describe_value, items_of, pairs_of, scalar, tag_of
from memory.kernel.models.users import MemoryUser
from memory.log.admin.links import entry_pages

MAX_ROWS = 200
MAX_COLUMNS = 20
_MAX_CITED = 10
# The minimum width of a bar, in percent.
_THIN = 0.3
# Text up to this length is shown in large type, like a number.
_SHORT = 80


@dataclass(frozen=True)
class Table:
    """A query's value in rows and columns.

    If the value is a series, `numbers` holds its bars' values; if the rows are records, `sources`
    holds the entry numbers behind each row.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    count: int
    numbers: Sequence[float] | None = None
    sources: Sequence[Sequence[int]] | None = None


def show_value(value: Any, user: MemoryUser) -> SafeString | str:
    """Show a value given in typed JSON: a single value in large type, a collection as a table."""
    if (table := table_of(value)) is not None:
        return _show(table, user)
    if tag_of(value) in ("$record", "$object"):
        return _show(_of_items([value]), user)
    text = describe_value(value, 2000)
    if isinstance(value, str) and (len(value) > _SHORT or "\n" in value):
        return preformatted(value)
    return format_html('<p class="answer">{}</p>', inline(text) if text else '""')


def table_of(value: Any) -> Table | None:
    """Return a list, tuple, set or dict as a table, or None for anything else."""
    if (items := items_of(value)) is not None:
        return _of_items(items)
    if (pairs := pairs_of(value)) is not None:
        return _of_pairs(pairs)
    return None


def _of_pairs(pairs: Sequence[tuple[Any, Any]]) -> Table:
    shown = pairs[:MAX_ROWS]
    rows = [(key, value) for key, value in shown]
    return Table(["key", "value"], rows, len(pairs), numbers=_series(rows))


def _of_items(items: Sequence[Any]) -> Table:
    shown = items[:MAX_ROWS]
    fields = [_fields(item) for item in shown]
    if shown and all(one is not None for one in fields):
        named = [one for one in fields if one is not None]
        columns = list(dict.fromkeys(name for one in named for name in one))[:MAX_COLUMNS]
        rows = [[one.get(name) for name in columns] for one in named]
        records = all(tag_of(item) == "$record" for item in shown)
        return Table(
            columns,
            rows,
            len(items),
            sources=[item["sources"] for item in shown] if records else None,
        )
    tuples = [items_of(item) for item in shown]
    if shown and all(tuples):
        width = min(max(len(one) for one in tuples if one), MAX_COLUMNS)
        parts = [list(one or [])[:width] for one in tuples]
        rows = [[*one, *[None] * (width - len(one))] for one in parts]
        names = [str(number + 1) for number in range(width)]
        return Table(names, rows, len(items), numbers=_series(rows) if width == 2 else None)
    return Table(["value"], [[item] for item in shown], len(items))


def _fields(item: Any) -> Mapping[str, Any] | None:
    """Return the columns of a record, object or dict, or None for anything else."""
    match tag_of(item):
        case "$record":
            return {"key": item["key"], **item["fields"]}
        case "$object":
            fields: Mapping[str, Any] = item["fields"]
            return fields
    pairs = pairs_of(item)
    return {describe_value(key, 60): value for key, value in pairs} if pairs else None


def _series(rows: Sequence[Sequence[Any]]) -> list[float] | None:
    """Return the numbers in the second column if the first column holds their labels, else None."""
    if len(rows) < 2:
        return None
    numbers = [_number(row[1]) for row in rows]
    named = all(isinstance(scalar(row[0]), str | int | float) for row in rows)
    present = [number for number in numbers if number is not None]
    return present if named and len(present) == len(numbers) else None


def _number(value: Any) -> float | None:
    """Return a bar's value (a finite number or a duration), or None for anything else."""
    tag = tag_of(value)
    if isinstance(value, bool) or tag not in (None, "$int", "$decimal", "$duration"):
        return None
    plain = scalar(value)
    if not isinstance(plain, int | float | str) or (isinstance(plain, str) and tag is None):
        return None
    try:
        number = float(Decimal(plain)) if isinstance(plain, str) else float(plain)
    except (InvalidOperation, OverflowError, ValueError):  # a signaling NaN raises ValueError
        return None
    return number if math.isfinite(number) else None


def _show(table: Table, user: MemoryUser) -> SafeString:
    pages = entry_pages(user, {seq for row in table.sources or () for seq in row[:_MAX_CITED]})
    head = [*table.columns]
    if table.numbers is not None:
        head.append("")
    if table.sources is not None:
        head.append("entries")
    bars = bars_of(table.numbers) if table.numbers is not None else None
    rows = []
    for index, row in enumerate(table.rows):
        cells = [_cell(value) for value in row]
        if bars is not None:
            cells.append(format_html('<td class="bars">{}</td>', bars[index]))
        if table.sources is not None:
            cells.append(format_html("<td>{}</td>", _cited(table.sources[index], pages)))
        rows.append(format_html("<tr>{}</tr>", format_html_join("", "{}", ((c,) for c in cells))))
    summary = counted(table.count, "row") if table.count else "empty"
    if table.count > len(table.rows):
        summary += f", of which the first {len(table.rows)} are shown"
    return format_html(
        '<div class="scrolled" tabindex="0"><table class="result"><caption>{}</caption>'
        "<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>",
        summary,
        format_html_join("", '<th scope="col">{}</th>', ((inline(name),) for name in head)),
        format_html_join("", "{}", ((row,) for row in rows)),
    )


def _cell(value: Any) -> SafeString:
    if value is None:
        return format_html("<td>{}</td>", NOTHING)
    kind = "number" if _number(value) is not None else ""
    return format_html('<td class="{}">{}</td>', kind, inline(describe_value(value)))


def _cited(sources: Sequence[int], pages: Mapping[int, str]) -> SafeString | str:
    entries = format_html_join(
        ", ",
        "{}",
        (
            (format_html('<a href="{}">#{}</a>', pages[seq], seq) if seq in pages else f"#{seq}",)
            for seq in sources[:_MAX_CITED]
        ),
    )
    more = len(sources) - _MAX_CITED
    return format_html("{}{}", entries, f" and {more} more" if more > 0 else "")


def bars_of(numbers: Sequence[float]) -> list[SafeString]:
    """Return a bar for each number, on a common scale; the numbers are shown next to their bars."""
    low, high = min(0.0, *numbers), max(0.0, *numbers)
    # `high` and `low` are halved, since the difference between two very large floats could
    # overflow.
    span = high / 2 - low / 2 or 1.0
    return [
        bar(
            (min(number, 0.0) / 2 - low / 2) / span,
            abs(number) / 2 / span,
            kind="less" if number < 0 else "",
        )
        for number in numbers
    ]


def bar(start: float, length: float, *, kind: str = "") -> SafeString:
    """Return a bar that begins at `start` and is `length` long, both as fractions of the width."""
    return format_html(
        '<svg class="bar" width="100%" height="12" aria-hidden="true" focusable="false">'
        '<rect class="{}" x="{}%" y="1" height="10" width="{}%"></rect></svg>',
        kind,
        f"{min(100 * start, 100 - _THIN):.3f}",
        f"{max(100 * length, _THIN):.3f}",
    )


@dataclass(frozen=True)
class Stage:
    """A stage of a run: its start, in seconds since the run was requested, and its duration."""

    name: str
    start: float
    seconds: float


def waterfall(stages: Collection[Stage]) -> SafeString | str:
    """Show a run's stages one below the other on a time axis, with their durations."""
    total = max((stage.start + stage.seconds for stage in stages), default=0.0)
    if not stages:
        return NOTHING
    return format_html(
        '<table class="waterfall"><caption>{} in total</caption><thead><tr>'
        '<th scope="col">stage</th><th scope="col">starts after</th><th scope="col">takes</th>'
        '<th scope="col"><span class="visually-hidden">as a bar</span></th></tr></thead>'
        "<tbody>{}</tbody></table>",
        _seconds(total),
        format_html_join(
            "",
            '<tr><th scope="row">{}</th><td class="number">{}</td><td class="number">{}</td>'
            '<td class="bars">{}</td></tr>',
            (
                (
                    stage.name,
                    _seconds(stage.start),
                    _seconds(stage.seconds),
                    bar(stage.start / total if total else 0, stage.seconds / total if total else 0),
                )
                for stage in stages
            ),
        ),
    )


def _seconds(seconds: float) -> str:
    if seconds >= 120:
        return str(datetime.timedelta(seconds=round(seconds)))
    return f"{seconds:.3f} s" if seconds < 1 else f"{seconds:.2f} s"

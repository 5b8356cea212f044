"""Safe display of text, badges, JSON and source code.

Content from people, models and backends is untrusted. Everything here escapes such content, and
spells out characters that would reorder or hide the text around them.
"""

import datetime
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from django.utils import timezone
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString

from memory.kernel.admin.source import block
from memory.kernel.hooks import later
from memory.kernel.models.hosts import warning_of
from memory.kernel.models.users import MemoryUser
from memory.kernel.texts import STEERING
from memory.kernel.texts import shortened as shortened
from memory.kernel.texts import visible as visible

NOTHING = "–"

# Maximum number of characters shown of a text: enough to judge the text. The API returns the full
# text.
MAX_TEXT = 100_000

# A string in escaped JSON, which may be cut off, and a letter of a script that runs from right to
# left.
_JSON_STRING = re.compile(r"&quot;(?:\\[\s\S]|(?!&quot;)[^\\])*+(?:&quot;|\\?\Z)")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff]")
_has_function_words = later("memory.language.detection:has_function_words")

# The values of each colour. All others are plain: badges mark what deserves a look.
_TONES = {
    value: tone
    for tone, values in {
        "strong": ["open", "opened", "reopened"],
        "note": [
            *("info", "changed", "acknowledged", "feedback", "running", "started", "checking"),
            *("waiting", "due", "working"),
        ],
        "caution": [
            *("warning", "constraint_paused", "paused", "pending", "invalid_call", "rate_limited"),
            *("redacted", "unknown", "expired"),
        ],
        "bad": [
            *("critical", "escalated", "constraint_error", "wrong", "rejected", "failed"),
            *("failing", "error", "stopped", "revoked"),
            # Outcomes of runs and of language model calls.
            *("user_error", "timeout", "out_of_memory", "output_limit", "result_limit"),
            *("alert_limit", "killed", "input_limit", "protocol_error", "abandoned", "truncated"),
            *("empty", "refused", "unavailable", "connection_lost", "invalid_answer"),
            *("wrong_key", "no_credit", "unknown_model", "too_long", "interrupted"),
        ],
    }.items()
    for value in values
}


def visible_json(text: str) -> str:
    """Return equivalent JSON in which characters that would reorder or hide text are escaped."""
    return STEERING.sub(lambda match: json.dumps(match[0])[1:-1], text)


def inline(text: str) -> SafeString:
    """Return inline text whose direction can't affect the rest of the line.

    The direction is that of the first letter, except that a sentence in Latin letters that begins
    with a name from right to left runs from left to right.
    """
    shown = visible(text)
    latin = _RIGHT_TO_LEFT.sub("", shown)
    # A few Latin words, such as "vitamin D", don't make it a sentence in Latin letters.
    is_mostly_latin = len(latin) > len(shown) / 2
    if latin != shown and is_mostly_latin and _has_function_words(latin):
        return format_html('<bdi dir="ltr">{}</bdi>', shown)
    return format_html("<bdi>{}</bdi>", shown)


def badge(value: str, label: str | None = None) -> SafeString:
    """Return a label in the value's colour; the label is plain if the value has no colour."""
    return format_html(
        '<span class="badge {}">{}</span>', _TONES.get(value, "plain"), label or value
    )


def sandbox(runner: str) -> SafeString | str:
    """Return the kind of sandbox that produced a result, with the warning for that kind, if any."""
    warning = warning_of(runner)
    if warning is None:
        return runner or "no sandbox"
    return format_html("{} {}", sandbox_badge(runner), warning)


def sandbox_badge(runner: str) -> SafeString | str:
    """Return a short name for the kind of sandbox, for use in lists."""
    return badge("warning", "development") if warning_of(runner) else runner or NOTHING


def preformatted(text: str) -> SafeString | str:
    """Return text in a block that keeps its line breaks."""
    if not text:
        return NOTHING
    return format_html('<pre class="block" tabindex="0">{}</pre>', _beginning(text))


def source(text: str, *, marked: Collection[int] = ()) -> SafeString | str:
    """Return source code in a block with colours and line numbers; highlight the `marked` lines."""
    return block(text, marked=marked) if text else NOTHING


def _beginning(text: str) -> str:
    more = len(text) - MAX_TEXT
    return visible(text[:MAX_TEXT]) + (f"\n… {more:,} more characters" if more > 0 else "")


def pretty(value: Any) -> SafeString | str:
    """Return indented JSON in a block that keeps its line breaks."""
    if value in (None, "", {}, []):
        return NOTHING
    text = escape(_beginning(visible_json(json.dumps(value, indent=2, ensure_ascii=False))))
    isolated = _JSON_STRING.sub(_isolated, text)
    return SafeString(f'<pre class="block code" tabindex="0">{isolated}</pre>')  # nosec B703 # escaped


def _isolated(escaped: re.Match[str]) -> str:
    """Return a string such that its direction can't affect the rest of the line."""
    return f"<bdi>{escaped[0]}</bdi>" if _RIGHT_TO_LEFT.search(escaped[0]) else escaped[0]


def folded(title: SafeString | str, body: SafeString | str, *, unfold: bool = False) -> SafeString:
    """Return a block that unfolds when its title is clicked."""
    return format_html(
        "<details{}><summary>{}</summary>{}</details>",
        SafeString(" open" if unfold else ""),  # nosec B703 # our own words
        title,
        body,
    )


def lines(items: Iterable[SafeString | str]) -> SafeString | str:
    """Return the items as a list, one below the other."""
    rows = format_html_join("", "<li>{}</li>", ((item,) for item in items))
    return format_html('<ul class="lines">{}</ul>', rows) if rows else NOTHING


def first_lines(items: Sequence[SafeString | str], most: int) -> SafeString | str:
    """Return the first items as a list, followed by the number of items left out."""
    more = len(items) - most
    return lines([*items[:most], f"… and {more} more"] if more > 0 else items)


def facts(values: Mapping[str, Any]) -> str:
    """Return `name: value` pairs on one line, without empty values."""
    return ", ".join(
        f"{visible(name)}: {shortened(_plain(value))}"
        for name, value in values.items()
        if value not in (None, "", [], {})
    )


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False)


def counted(number: int, noun: str) -> str:
    """Return the number and the noun, in the plural unless the number is 1."""
    return f"{number:,} {noun if number == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    return re.sub("(?<![aeiou])y$", "ie", noun) + "s"


def record_name(class_name: str, key: str) -> SafeString:
    """Return the display name of a record."""
    return format_html("{} <b>{}</b>", inline(class_name), inline(key))


def source_line(location: Mapping[str, Any]) -> str:
    """Return a source location as text, such as `path, line 3`, or "" if it is unknown."""
    line = location.get("line")
    path = visible(str(location.get("path") or ""))
    return f"{path}, line {line}" if path and line else path


def rule_of(path: str) -> str:
    """Return a constraint's name, given its path; a workspace constraint keeps its prefix."""
    return path.removesuffix(".py").replace("constraints/", "", 1)


def problem(error: Mapping[str, Any] | None) -> SafeString | str:
    """Show an error in the user's code: its message, its location and the code's stack frames."""
    if not error:
        return NOTHING
    where = source_line(error)
    return format_html(
        "<div><b>{}</b>: {}</div>{}{}",
        inline(str(error.get("type", "error"))),
        inline(str(error.get("message", ""))),
        format_html("<div>{}</div>", where) if where else "",
        preformatted(error["traceback"]) if error.get("traceback") else "",
    )


def duration(seconds: float) -> str:
    """Return a duration in its largest unit, such as "24 min"."""
    for unit, length, least in (("d", 86_400, 2), ("h", 3_600, 1), ("min", 60, 1)):
        if seconds >= least * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def ago(at: datetime.datetime) -> SafeString:
    """Return how long ago a time was; the time itself is shown on hover, in the reader's zone."""
    seconds = (timezone.now() - at).total_seconds()
    return format_html(
        '<time datetime="{}" title="{} UTC">{}</time>',
        at.isoformat(),
        f"{at:%Y-%m-%d %H:%M}",
        duration(seconds),
    )


def local_time(at: datetime.datetime, user: MemoryUser) -> str:
    """Return a time in the user's time zone, with the zone's name."""
    return f"{at.astimezone(ZoneInfo(user.time_zone)):%Y-%m-%d %H:%M} ({user.time_zone})"

"""Tools' results: small enough for a model, with what was left out and how to get it.

A result has the answer twice: as text, which most clients show to a model, and as structured
content, which some show instead. Neither alone would reach every model, so both say everything
that a model needs, and the text leaves out what is of use to programs only.
"""

import json
from collections.abc import Sequence
from typing import Any

from mcp_types import CallToolResult, TextContent

from memory.integrations.mcp.api import Json, RequestRefused, describe_error
from memory.kernel.texts import shortened

# Maximum number of characters of a result, as text and structured content together.
MAX_CHARACTERS = 20_000
# A result's answer is cut to this size as JSON. The text is never longer, and both have notes.
MAX_ANSWER = 9_000
# A list is cut to its first items, and so is an object with more members than this, such as a
# mapping of days to amounts; of other objects, the large members are cut.
MAX_MEMBERS = 40
# Of use to programs, which read them in the structured content.
FOR_PROGRAMS = frozenset({"timings", "runner", "instant", "cached", "recorded_at", "searched"})
# The ids of entries, which a model knows by their numbers.
ENTRY_IDS = frozenset({"id"})
# Maps each part of a context to how the note on omitted lines refers to that part.
LINES_OF = {
    "manifest": "of the manifest",
    "alerts": "of the alerts",
    "state": "of the records",
    "facts": "of the facts",
    "archive": "of the messages",
    "timeline": "of the timeline",
}


def from_answer(answer: Json, ignored: Sequence[str] = ()) -> CallToolResult:
    """Return the result that tells an answer, which is small enough, and the ignored arguments."""
    if ignored:
        answer = {**answer, "ignored_arguments": list(ignored)}
    if isinstance(answer.get("text"), str):
        return _from_block(answer)
    text = TextContent(type="text", text=_write(_for_models(answer)))
    return CallToolResult(content=[text], structured_content=answer)


def from_error(refused: RequestRefused, ignored: Sequence[str] = ()) -> CallToolResult:
    """Return the result that tells an error, and the ignored arguments, which may explain it."""
    answer, message = refused.answer, str(refused)
    if answer is not None:
        answer = cut(answer)
        message = describe_error(_for_models(answer))
    if len(message) > MAX_ANSWER:
        message = f"{message[:MAX_ANSWER]}… ({len(message) - MAX_ANSWER} more characters)"
    note = f" (Ignored arguments: {', '.join(ignored)}.)" if ignored else ""
    text = TextContent(type="text", text=message + note)
    return CallToolResult(content=[text], structured_content=answer, is_error=True)


def cut(answer: Json, pages: str = "", offset: int = 0, how: str = "") -> Json:
    """Return an answer of at most MAX_ANSWER characters as JSON, with what was left out, and `how`.

    `pages` names the member that is read page by page, in which the first `offset` items, or
    characters, are skipped. `how` says how to get what is left out.
    """
    if pages in answer and offset:
        answer = {**answer, pages: _skip(answer[pages], offset)}
    if len(_write(answer)) <= MAX_ANSWER:
        return {**answer, "offset": offset} if offset else answer
    left_out: list[Json] = []
    shown: Json = _cut_object(answer, MAX_ANSWER - 1000, "", left_out)
    page = next((one for one in left_out if one["at"] == pages), None)
    if page is not None:
        page["from"] = offset
        page["of"] += offset
        following = offset + max(page["shown"], 1)
        how = f"Call again with the same arguments and offset {following}. {how}"
    return {**shown, "left_out": left_out[:10], "how_to_get_the_rest": how.strip()}


def _from_block(answer: Json) -> CallToolResult:
    """Return the result that tells a context or a manifest, whose text is ready for a model.

    The structured content repeats the text, so there is none if both would be too large.
    """
    text = text_of(answer)
    is_small = len(text) + len(_write(answer)) <= MAX_CHARACTERS
    content = TextContent(type="text", text=text)
    return CallToolResult(content=[content], structured_content=answer if is_small else None)


def text_of(answer: Json) -> str:
    """Return the text of a context or manifest, with notes on what was omitted and on problems."""
    left_out = ", ".join(
        f"{part['left_out']} {LINES_OF[part['name']]}"
        for part in answer.get("parts", ())
        if part["left_out"]
    )
    problem = (answer.get("meaning") or {}).get("problem")
    ignored = ", ".join(answer.get("ignored_arguments", ()))
    lapsed = answer.get("lapsed", 0)
    notes = (
        f"(Lines left out because of the size limit: {left_out}.)" if left_out else "",
        f"(Left out because they have lapsed: {lapsed} records or facts.)" if lapsed else "",
        f"(Search: {problem})" if problem else "",
        f"(Ignored arguments: {ignored}.)" if ignored else "",
    )
    return "\n\n".join(filter(None, [answer["text"], *notes]))


def shorten_text(answer: Json, how: str) -> Json:
    """Return an answer whose `text` is cut after a line if it is too long, with `how` to go on."""
    text = answer["text"]
    if len(text) <= MAX_CHARACTERS:
        return answer
    kept = text[: text.rindex("\n", 0, MAX_CHARACTERS - 500)]
    lines = text.count("\n", len(kept))
    return {**answer, "text": f"{kept}\n({lines} more lines. {how})"}


def _for_models(answer: Json) -> Json:
    """Return an answer without what is of use to programs only, and without what is empty."""
    dropped = FOR_PROGRAMS | (ENTRY_IDS if "seq" in answer else frozenset())
    return {
        name: [_for_models(one) if _is_object(one) else one for one in value]
        if isinstance(value, list) and name != "value"
        else value
        for name, value in answer.items()
        if name == "value" or (value not in (None, "", [], {}) and name not in dropped)
    }


def _is_object(value: Any) -> bool:
    # A record is shown as it is: a field that is None says something.
    return isinstance(value, dict) and "$record" not in value


def _write(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _skip(value: Any, offset: int) -> Any:
    """Return a value without its first items, members or characters."""
    if isinstance(value, list | str):
        return value[offset:]
    if isinstance(value, dict) and (tag := _tag_of(value)):
        return {tag: value[tag][offset:]}
    if isinstance(value, dict) and _is_mapping(value):
        return dict([*value.items()][offset:])
    return value


def _is_mapping(value: Json) -> bool:
    return len(value) > MAX_MEMBERS or sum(map(len, value)) > MAX_ANSWER // 4


def _tag_of(value: Json) -> str:
    """Return the tag of a typed list such as {"$set": [...]}; otherwise ""."""
    tag, *more = value or [""]
    return tag if not more and tag.startswith("$") and isinstance(value[tag], list) else ""


def _cut(value: Any, room: int, at: str, left_out: list[Json]) -> Any:
    """Return a value cut to about `room` characters as JSON; adds what is left out to the list."""
    if len(_write(value)) <= room:
        return value
    if isinstance(value, str):
        kept = value[: max(room - 10, 0)]
        while kept and (size := len(_write(kept))) > room:  # quotation marks and the like
            kept = kept[: (len(kept) * room) // (size + 1)]
        left_out.append({"at": at, "shown": len(kept), "of": len(value), "unit": "characters"})
        return kept + "…"
    if isinstance(value, list):
        return _cut_items(value, room, at, left_out)
    if isinstance(value, dict) and (tag := _tag_of(value)):
        return {tag: _cut_items(value[tag], room - len(tag) - 5, at, left_out)}
    if not isinstance(value, dict):
        return value
    return (_cut_mapping if _is_mapping(value) else _cut_object)(value, room, at, left_out)


def _cut_items(items: Sequence[Any], room: int, at: str, left_out: list[Json]) -> list[Any]:
    """Return the first items that fit; a first one that does not fit is itself cut."""
    shown: list[Any] = []
    for item in items:
        size = len(_write(item)) + 1
        if size > room:
            break
        shown.append(item)
        room -= size
    if not shown and room > 100:
        shown.append(_cut(items[0], room, f"{at}[0]", left_out))
    if len(shown) < len(items):
        left_out.append({"at": at, "shown": len(shown), "of": len(items)})
    return shown


def _cut_mapping(value: Json, room: int, at: str, left_out: list[Json]) -> Json:
    """Return the first members that fit; a first one that does not fit is itself cut."""
    shown: Json = {}
    for name, member in value.items():
        size = len(_write({name: member}))
        if size > room:
            break
        shown[name] = member
        room -= size
    if not shown:
        name, member = next(iter(value.items()))
        short = shortened(name)
        if short != name:
            counts = {"shown": len(short), "of": len(name), "unit": "characters of the key"}
            left_out.append({"at": f"{at}.{short}", **counts})
        shown[short] = _cut(member, room - len(_write(short)), f"{at}.{short}", left_out)
    if len(shown) < len(value):
        left_out.append({"at": at, "shown": len(shown), "of": len(value)})
    return shown


def _cut_object(value: Json, room: int, at: str, left_out: list[Json]) -> Json:
    """Return an object whose large members are cut, so that each has the same share of the room."""
    sizes = {name: len(_write(member)) for name, member in value.items()}
    room -= sum(len(name) + 4 for name in value)
    shown = {}
    for number, name in enumerate(sorted(sizes, key=lambda name: sizes[name])):
        share = max(room // (len(value) - number), 0)
        path = f"{at}.{name}" if at else name
        shown[name] = _cut(value[name], share, path, left_out)
        room -= len(_write(shown[name]))
    return {name: shown[name] for name in value}

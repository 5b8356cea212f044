"""The protocol between a host and the runner in a sandbox: frames, outcomes and limits.

Both sides import this file. A frame is a four-byte big-endian length followed by that many bytes of
JSON, which encode a single object. The runner first sends a hello frame; after that, each request
{"id", "op", …} gets one answer {"id", "outcome", …}. Nothing sent by a runner is trusted: `decode`
and `check_typed_json` reject anything that could harm the host.
"""

import datetime
import decimal
import json
import json.scanner
import math
import re
import struct
from collections.abc import Callable, Mapping
from typing import Any

from .dates import PARTIAL_DATE

VERSION = 1

OUTCOMES = (
    "ok",
    "user_error",  # the user's code raised an exception or doesn't compile
    "timeout",  # the code took too much wall-clock time or CPU time
    "out_of_memory",
    "output_limit",  # the code printed too much
    "result_limit",  # the result is too large or nested too deeply
    "alert_limit",  # a constraint exceeded its alert limit; the result includes a few of its alerts
    "input_limit",  # the project doesn't fit into a frame
    "killed",  # the process exited without an answer
    "protocol_error",  # an answer or a request is invalid
)

SEVERITIES = ("info", "warning", "critical")  # the severities of alerts
SCOPES = ("value", "selected", "read")  # how the records listed as evidence relate to the answer

HEADER_BYTES = 4
MAX_FRAME_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 160  # levels of JSON; one level of a user's value takes up to 3 levels of typed JSON
MAX_SAFE_INTEGER = 2**53 - 1
MAX_INTEGER = 2**63 - 1  # the largest integer that the database can store
MAX_SOURCES = 100_000  # per record

# JSON that exceeds these limits goes to a slow decoder that lets other threads run.
QUICK_BYTES = 1024 * 1024
QUICK_VALUES = 50_000
CHUNK_BYTES = 128 * 1024  # how many bytes to process at a time
MAX_NUMBER = 100  # characters in a non-integer number; Python writes at most 24

# For finding the nesting depth of JSON: delete all but the brackets, and turn braces into brackets.
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_ALIKE = bytes.maketrans(b"{}", b"[]")
_QUICK_DEPTH = 20  # hardly any message is nested more deeply

# Characters that the database or UTF-8 can't store: the null character and lone surrogates.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class ProtocolError(ValueError):
    """A frame or a value violates the protocol."""


class FrameTooLargeError(ProtocolError):
    """A message has more bytes than a frame may hold."""

    def __init__(self, size: int, allowed: int) -> None:
        super().__init__(f"a frame of {size} bytes: at most {allowed} are allowed")
        self.size = size
        self.allowed = allowed


class TooManyValuesError(ProtocolError):
    """A message has more values, or more escape sequences in its strings, than the reader allows.

    The whole frame has been read, so the next one can be read from the stream.
    """


def encode_frame(message: Mapping[str, Any]) -> bytes:
    """Return a message as one frame.

    Raises FrameTooLargeError if it is too large, and ProtocolError if it can't be written as JSON.
    """
    try:
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        body = text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"not a JSON message: {error}") from None
    return frame(body)


def frame(body: bytes) -> bytes:
    """Return a frame with this body; raise FrameTooLargeError if it is too large."""
    if len(body) > MAX_FRAME_BYTES:
        raise FrameTooLargeError(len(body), MAX_FRAME_BYTES)
    return struct.pack(">I", len(body)) + body


def read_frame(
    read: Callable[[int], bytes],
    max_bytes: int = MAX_FRAME_BYTES,
    max_values: int | None = None,
    max_escapes: int | None = None,
) -> dict[str, Any] | None:
    """Read the next message; return None at the end of the stream.

    `read` is called with a number of bytes and returns fewer bytes only at the end of the stream.
    Raises ProtocolError if the bytes read are not a valid frame. The length is checked before the
    body is read. The number of values is checked before the JSON is decoded, since a value that
    takes three bytes of JSON needs far more memory once decoded. The number of escapes is checked,
    too, since each escape takes as long to decode as dozens of plain characters. A limit on values
    means that the sender may be hostile, so the message is then decoded gently: see `decode`.
    """
    body = read_body(read, max_bytes)
    if body is None:
        return None
    if max_escapes is not None and _count(body, b"\\") > max_escapes:
        raise TooManyValuesError(f"more than {max_escapes} escapes")
    if max_values is not None and has_more_values(body, max_values):
        raise TooManyValuesError(f"more than {max_values} values")
    return decode(body, gently=max_values is not None)


def read_body(read: Callable[[int], bytes], max_bytes: int = MAX_FRAME_BYTES) -> bytes | None:
    """Read the next frame and return its body undecoded; None at the end of the stream.

    Raises ProtocolError if the frame is incomplete, and FrameTooLargeError if it is too large.
    """
    header = read(HEADER_BYTES)
    if not header:
        return None
    if len(header) < HEADER_BYTES:
        raise ProtocolError("the stream ended within a frame")
    (length,) = struct.unpack(">I", header)
    if length > max_bytes:
        raise FrameTooLargeError(length, max_bytes)
    body = read(length)
    if len(body) < length:
        raise ProtocolError("the stream ended within a frame")
    return body


def has_more_values(body: bytes, number: int) -> bool:
    """Return whether a message has more than `number` values, judging by commas and brackets.

    Commas and brackets inside strings don't count. A quick first count includes them; it is usually
    enough to decide.
    """
    return len(body) > number and _marks(body) > number and _has_more_marks(body, number)


def _has_more_marks(body: bytes, number: int) -> bool:
    """Return whether valid JSON has more than `number` commas and brackets outside of strings.

    The JSON is searched chunk by chunk and without a regular expression: on hostile input, a
    regular expression that looks for the end of a string at every quote takes minutes, during which
    no other thread runs.
    """
    marks, start, is_inside = 0, 0, False
    while start < len(body) and marks <= number:
        chunk = body[start : start + CHUNK_BYTES]
        if (len(chunk) - len(chunk.rstrip(b"\\"))) % 2:  # don't split an escape
            chunk = body[start : start + len(chunk) + 1]
        start += len(chunk)
        parts = chunk.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        marks += _marks(b"".join(parts[is_inside::2]))
        is_inside ^= len(parts) % 2 == 0
    return marks > number


def _marks(body: bytes) -> int:
    return sum(_count(body, mark) for mark in (b",", b"[", b"{"))


def _count(body: bytes, character: bytes) -> int:
    starts = range(0, len(body), CHUNK_BYTES)
    return sum(body.count(character, start, start + CHUNK_BYTES) for start in starts)


def decode(body: bytes, *, gently: bool = False) -> dict[str, Any]:
    """Return a frame's body as a message; raise ProtocolError unless it is one valid JSON object.

    Python's default decoder is written in C, and no other thread runs until it has finished. If
    `gently` is set, that decoder is used only for messages that take a few milliseconds. Messages
    that are larger or have more values are decoded in pure Python, which takes ten times as long
    but lets other threads run.
    """
    gently = gently and (len(body) > QUICK_BYTES or _marks(body) > QUICK_VALUES)
    read = _gentle_decoder().decode if gently else _decoder.decode
    try:
        message = read(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {str(error)[:200]}") from None
    if not isinstance(message, dict):
        raise ProtocolError("not a JSON object")
    # Without escapes, JSON in UTF-8 contains no string that can't be stored, and every quote starts
    # or ends a string.
    if gently or b"\\" in body or not _is_flat(body):
        _check_depth(message)
    return message


def _is_flat(body: bytes) -> bool:
    """Return whether valid JSON without escapes is definitely nested less deeply than MAX_DEPTH.

    This check is quick; if it returns False, a slower check is needed.
    """
    brackets = b"".join(body.split(b'"')[::2]).translate(_ALIKE, _NO_BRACKETS)
    for _ in range(_QUICK_DEPTH):
        if not brackets:
            return True
        brackets = brackets.replace(b"[]", b"")
    return False


def is_storable(text: str) -> bool:
    """Return whether the database can store a string: one without lone surrogates and nulls."""
    if text.isascii():  # most text is ASCII, and this check is almost free
        return "\0" not in text
    try:
        text.encode()  # faster than searching for characters that can't be encoded
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def storable(text: str) -> str:
    """Return the string with each character that can't be stored replaced by U+FFFD."""
    return text if is_storable(text) else _UNSTORABLE.sub("\ufffd", text)


def are_sources(value: object) -> bool:
    """Return whether a value is a valid list of sources for a record: up to MAX_SOURCES numbers."""
    return (
        isinstance(value, (list, tuple))
        and len(value) <= MAX_SOURCES
        and all(type(source) is int and 1 <= source <= MAX_INTEGER for source in value)
    )


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _ascii_integer(text: str) -> int:
    if not text.isascii():  # Python and its JSON decoder also accept digits from other scripts
        raise ValueError(f"{text[:40]} is not a number")
    return int(text)


def _finite_float(text: str) -> float:
    if len(text) > MAX_NUMBER or not text.isascii():
        raise ValueError(f"{text[:40]}… is not a canonical decimal number")
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is not a number")
    if len(repr(number)) > len(text):  # a number must not get longer when it is serialised again
        raise ValueError(f"{text[:40]} is not a canonical decimal number")
    return number


_decoder = json.JSONDecoder(parse_float=_finite_float, parse_constant=_no_constant)


def _gentle_decoder() -> json.JSONDecoder:
    """Return a JSON decoder whose scanner is written in Python instead of C."""
    decoder = json.JSONDecoder(
        parse_int=_ascii_integer, parse_float=_finite_float, parse_constant=_no_constant
    )
    decoder.scan_once = json.scanner.py_make_scanner(decoder)  # type: ignore[attr-defined]
    return decoder


def _check_depth(message: dict[str, Any]) -> None:
    """Raise ProtocolError for nesting beyond MAX_DEPTH and for strings that can't be stored.

    This doesn't use recursion, since deep nesting could exhaust the stack.
    """
    level: list[Any] = [message]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                if not all(map(is_storable, value)):
                    raise ProtocolError("a name with characters that cannot be stored")
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, str) and not is_storable(value):
                raise ProtocolError("a text with characters that cannot be stored")
        level = below
        if not level:
            return
    raise ProtocolError(f"nested more than {MAX_DEPTH} levels deep")


def check_typed_json(value: Any) -> None:
    """Raise ProtocolError unless `value` is typed JSON, which encodes values from user code.

    An object with a key that begins with "$" must have exactly one of the forms in `_FORMS`;
    everything else is plain JSON.
    """
    # Use a list of pending values instead of recursion: hostile nesting could exhaust the stack.
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, dict):
            tag = next((name for name in value if name.startswith("$")), None)
            if tag is None:
                pending.extend(value.values())
            elif tag not in _FORMS:
                raise ProtocolError(f"{tag[:40]!r} is not a form of typed JSON")
            else:
                try:
                    pending.extend(_FORMS[tag](value))
                except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
                    raise ProtocolError(f"not a valid {tag}: {_shown(value[tag])}") from None
        elif isinstance(value, int) and abs(value) > MAX_SAFE_INTEGER:
            raise ProtocolError("an integer too large for JSON")


def _shown(value: object) -> str:
    """Return a short description of a value of any size for an error message."""
    return value[:80] if isinstance(value, str) else type(value).__name__


def _scalar(tag: str, parse: Callable[[str], object]) -> Callable[[dict[str, Any]], list[Any]]:
    def check(form: dict[str, Any]) -> list[Any]:
        _exactly(form, tag)
        if not isinstance(form[tag], str):
            raise TypeError
        parse(form[tag])
        return []

    return check


def _sequence(tag: str) -> Callable[[dict[str, Any]], list[Any]]:
    def check(form: dict[str, Any]) -> list[Any]:
        _exactly(form, tag)
        if not isinstance(form[tag], list):
            raise TypeError
        return list(form[tag])

    return check


def _exactly(form: dict[str, Any], *names: str) -> None:
    if form.keys() != set(names):
        raise KeyError


def _texts(form: dict[str, Any], *names: str) -> None:
    if not all(isinstance(form[name], str) for name in names):
        raise TypeError


def _duration(form: dict[str, Any]) -> list[Any]:
    _exactly(form, "$duration")
    if isinstance(form["$duration"], bool) or not isinstance(form["$duration"], (int, float)):
        raise TypeError
    if abs(form["$duration"]) > MAX_SAFE_INTEGER:
        raise ValueError
    return []


def _dict(form: dict[str, Any]) -> list[Any]:
    _exactly(form, "$dict")
    if not isinstance(form["$dict"], list):
        raise TypeError
    return [part for key, value in form["$dict"] for part in (key, value)]


def _enum(form: dict[str, Any]) -> list[Any]:
    _exactly(form, "$enum", "value")
    _texts(form, "$enum")
    return [form["value"]]


def _ref(form: dict[str, Any]) -> list[Any]:
    _exactly(form, "$ref", "key")
    _texts(form, "$ref", "key")
    return []


def _object(form: dict[str, Any]) -> list[Any]:
    _exactly(form, "$object", "fields")
    _texts(form, "$object")
    return list(form["fields"].values())


def _record(form: dict[str, Any]) -> list[Any]:
    _exactly(form, "$record", "key", "sources", "fields")
    _texts(form, "$record", "key")
    if not are_sources(form["sources"]):
        raise TypeError
    return list(form["fields"].values())


def _iso(
    kind: type[datetime.date] | type[datetime.time],
) -> Callable[[str], object]:
    def parse(text: str) -> object:
        if kind.fromisoformat(text).isoformat() != text:
            raise ValueError
        return text

    return parse


def _matching(pattern: str) -> Callable[[str], object]:
    def parse(text: str) -> object:
        if not re.fullmatch(pattern, text):
            raise ValueError
        return text

    return parse


_FORMS: dict[str, Callable[[dict[str, Any]], list[Any]]] = {
    "$int": _scalar("$int", _matching("-?[0-9]{16,}")),
    "$float": _scalar("$float", _matching("nan|inf|-inf")),
    "$decimal": _scalar("$decimal", decimal.Decimal),
    "$date": _scalar("$date", _iso(datetime.date)),
    "$datetime": _scalar("$datetime", _iso(datetime.datetime)),
    "$time": _scalar("$time", _iso(datetime.time)),
    "$duration": _duration,
    "$partial_date": _scalar("$partial_date", _matching(PARTIAL_DATE)),
    "$bytes": _scalar("$bytes", _matching("[A-Za-z0-9+/]*={0,2}")),
    "$enum": _enum,
    "$ref": _ref,
    "$record": _record,
    "$object": _object,
    "$tuple": _sequence("$tuple"),
    "$set": _sequence("$set"),
    "$dict": _dict,
}

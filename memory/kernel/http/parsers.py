"""Request body parsers, which accept only unambiguous JSON that PostgreSQL can store."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from memory.kernel.admission import slots
from memory.kernel.http.authentication import Principal
from memory.kernel.http.errors import PayloadTooLarge

MAX_DEPTH = 32
# About 300 digits, so that the integer also fits in a float.
MAX_INTEGER_BITS = 1000
# The proxy buffers bodies up to this size completely (deploy/haproxy.cfg). A slow sender of a
# larger body ties up a thread, so it needs a slot.
BUFFERED_BYTES = 15_000


class StrictJSONParser(JSONParser):
    """Parses a JSON object in UTF-8.

    Rejects NaN, duplicate keys, NUL characters, lone surrogates and deep nesting. The error for a
    body that is not an object includes the view's `body_example`.
    """

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the body's object; raises a ParseError that describes what is wrong, and where."""
        body = read_body(stream, parser_context or {})
        try:
            value = json.loads(
                body.decode(),
                parse_constant=_refuse,
                parse_int=_integer,
                object_pairs_hook=_object,
            )
        except RecursionError:
            raise ParseError(
                f"The JSON is nested deeper than {MAX_DEPTH} levels; flatten it."
            ) from None
        except ValueError as error:
            raise ParseError(f"The body is not valid JSON in UTF-8: {error}.") from None
        if not isinstance(value, dict):
            view = (parser_context or {}).get("view")
            example = getattr(view, "body_example", '{"name": "value"}')
            raise ParseError(f"The body must be a JSON object, such as {example}.")
        try:
            _check(value, depth=0)
        except _Fault as fault:
            raise ParseError(f"{fault.position} {fault.what}") from None
        return value


def read_body(stream: IO[Any], context: Mapping[str, Any]) -> bytes:
    """Return the body.

    Raises PayloadTooLarge if the body is too large, LimitExceeded if too many are being read, and
    ParseError if the body ends too soon (the web server then passes on whatever it received).
    """
    most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    request = context.get("request")
    declared = request.META.get("CONTENT_LENGTH") or "0" if request is not None else "0"
    principal = request.user if request is not None else None
    if isinstance(principal, Principal) and declared.isdecimal() and int(declared) > BUFFERED_BYTES:
        with slots.BODIES.hold(principal.workspace.pk):
            body: bytes = stream.read(most + 1)
    else:
        body = stream.read(most + 1)
    if len(body) > most:
        raise PayloadTooLarge()
    # A chunked body does not declare its length (uac_site/wsgi.py), but has an end marker.
    chunked = request is not None and "HTTP_TRANSFER_ENCODING" in request.META
    if declared.isdecimal() and len(body) < int(declared) and not chunked:
        raise ParseError(
            f"The body ended after {len(body)} of {declared} bytes (Content-Length). Send it again."
        )
    return body


class _Fault(Exception):
    """A fault in a value of the body; the value's path is built while the exception propagates.

    Building the path on the way down would cost time for every value in a valid body.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: list[str] = []

    @property
    def position(self) -> str:
        """Return the value's path the way a client would write it: `data.trips[3].to`."""
        return "".join(reversed(self.path)).removeprefix(".")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _integer(digits: str) -> int:
    if len(digits) > MAX_INTEGER_BITS:
        raise ValueError(
            f"an integer has {len(digits)} digits, which is too many; send it as a string"
        )
    return int(digits)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice[:100]!r} appears twice in one object")
    return value


def _check(value: Any, *, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _Fault(f"is nested deeper than {MAX_DEPTH} levels; flatten it.")
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _Fault("is a number too large for a float; send it as a string.")
    elif isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
        raise _Fault("is an integer of more than 300 digits; send it as a string.")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            try:
                _check(item, depth=depth + 1)
            except _Fault as fault:
                fault.path.append(f"[{index}]")
                raise
    elif isinstance(value, dict):
        for name, item in value.items():
            try:
                _check_text(name, "has a name with")
                _check(item, depth=depth + 1)
            except _Fault as fault:
                fault.path.append(f".{_printable(name)}")
                raise


def _check_text(text: str, verb: str = "has") -> None:
    if "\0" in text:
        raise _Fault(f"{verb} a NUL character; remove it.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _Fault(
                f"{verb} a lone surrogate, which is not valid Unicode; remove it."
            ) from None


def _printable(name: str) -> str:
    """Return a field's name for an error message, with invalid characters escaped."""
    return name[:100].encode("ascii", "backslashreplace").decode().replace("\0", "\\0")

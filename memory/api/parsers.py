"""Request bodies: JSON that PostgreSQL can store and everybody reads alike."""

import json
import math
from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from memory.api.errors import PayloadTooLarge

MAX_DEPTH = 32


class StrictJSONParser(JSONParser):
    """JSON in UTF-8: no NaN, duplicate keys, NUL characters, lone surrogates or deep nesting."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the body's value; raises ParseError that says what is wrong and where."""
        body = stream.read(settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1)
        if len(body) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            raise PayloadTooLarge()
        try:
            value = json.loads(body.decode(), parse_constant=_refuse, object_pairs_hook=_object)
        except RecursionError:
            raise ParseError(f"The JSON is nested deeper than {MAX_DEPTH} levels.") from None
        except ValueError as error:
            raise ParseError(f"The body is not valid JSON in UTF-8: {error}") from None
        _check(value, path="", depth=0)
        return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} appears twice in one object")
    return value


def _check(value: Any, *, path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ParseError(f"The JSON is nested deeper than {MAX_DEPTH} levels.")
    if isinstance(value, str):
        if "\0" in value:
            raise ParseError(f"{path or 'The body'} has a NUL character; remove it.")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ParseError(
                f"{path or 'The body'} has a lone surrogate, which is no Unicode text; remove it."
            )
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ParseError(f"{path or 'The body'} is a number too large for a float.")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, path=f"{path}[{index}]", depth=depth + 1)
    elif isinstance(value, dict):
        for name, item in value.items():
            _check(name, path=f"A key of {path or 'the body'}", depth=depth + 1)
            _check(item, path=f"{path}.{name}" if path else name, depth=depth + 1)

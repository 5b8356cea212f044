"""Encode values from user code as typed JSON; `protocol.check_typed_json` is the counterpart."""

import base64
import dataclasses
import datetime
import decimal
import enum
import json
import math
import types
from collections.abc import ItemsView, KeysView, ValuesView
from typing import Any

from .uac import PartialDate, Record, Ref, protocol


class ResultLimitError(Exception):
    """The value is too large or too deeply nested for a result."""


class AlertLimitError(Exception):
    """A constraint exceeded its alert limit; `result` includes a few of its alerts."""

    def __init__(self, message: str, result: dict[str, Any]) -> None:
        super().__init__(message)
        self.result = result


class NotAValueError(Exception):
    """The value is not data; the message says what to return instead.

    `line` is the line of code that returned it, if known.
    """

    line: int | None = None


def encode(
    value: object, *, max_bytes: int, max_depth: int, held: list[Record] | None = None
) -> Any:
    """Return a value as typed JSON of at most roughly `max_bytes`; append its records to `held`.

    Raises NotAValueError if any part of it is not data, and ResultLimitError if it is too large,
    too deeply nested, or contains itself.
    """
    return _Encoder(max_bytes, max_depth, [] if held is None else held).encode(value, max_depth)


class _Encoder:
    def __init__(self, max_bytes: int, max_depth: int, held: list[Record]) -> None:
        self.max_bytes = max_bytes
        self.max_depth = max_depth
        self.held = held
        self.bytes_left = max_bytes

    def spend(self, count: int) -> None:
        """Count these bytes against the limit; raise before the encoding can exhaust the memory."""
        self.bytes_left -= count
        if self.bytes_left < 0:
            raise ResultLimitError(
                f"the result is larger than {size(self.max_bytes)}: return a part of it or a count"
            )

    def encode(self, value: object, depth: int) -> Any:
        if depth < 0:
            raise ResultLimitError(
                f"the result is nested more than {self.max_depth} levels deep, or contains itself"
            )
        kind = type(value)
        if value is None or kind is bool:
            self.spend(4)
            return value
        if kind is str:
            return self.text(value)
        if kind is int:
            return self.integer(value)
        if kind is float:
            return self.float(value)
        if isinstance(value, enum.Enum):
            name = self.text(f"{kind.__name__}.{value.name}")
            return {"$enum": name, "value": self.encode(value.value, depth - 1)}
        if isinstance(value, Record):
            return self.record(value, depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            return {"$object": self.text(kind.__name__), "fields": self.fields(value, names, depth)}
        if isinstance(value, (list, range, KeysView, ValuesView, ItemsView)):
            return self.items(value, depth)
        if isinstance(value, tuple):
            return {"$tuple": self.items(value, depth)}
        if isinstance(value, (set, frozenset)):
            items = self.items(value, depth)
            return {"$set": sorted(items, key=lambda item: json.dumps(item, sort_keys=True))}
        if isinstance(value, dict):
            return self.mapping(value, depth)
        return self.scalar(value)

    def scalar(self, value: object) -> Any:
        self.spend(16)
        if isinstance(value, datetime.datetime):
            return {"$datetime": value.isoformat()}
        if isinstance(value, datetime.date):
            return {"$date": value.isoformat()}
        if isinstance(value, datetime.time):
            return {"$time": value.isoformat()}
        if isinstance(value, datetime.timedelta):
            return {"$duration": value.total_seconds()}
        if isinstance(value, decimal.Decimal):
            return {"$decimal": self.text(str(value))}
        if isinstance(value, PartialDate):
            return {"$partial_date": str(value)}
        if isinstance(value, Ref):
            return {"$ref": self.text(value.class_name), "key": self.text(value.key)}
        if isinstance(value, (bytes, bytearray)):
            self.spend(len(value) * 4 // 3)
            return {"$bytes": base64.b64encode(value).decode()}
        # Convert instances of subclasses without calling methods that they override.
        if isinstance(value, str):
            return self.text(str.__str__(value))
        if isinstance(value, int):
            return self.integer(int(value))
        if isinstance(value, float):
            return self.float(float(value))
        raise NotAValueError(_advice(value))

    def text(self, value: Any) -> str:
        if not isinstance(value, str):
            raise NotAValueError(f"{_described(value)} was found where text is expected")
        self.spend(len(value) + 2)
        if not protocol.is_storable(value):
            raise NotAValueError(
                "a text with a null character or half a surrogate pair is not a value:"
                " remove these characters, or return bytes"
            )
        return value

    def integer(self, value: Any) -> Any:
        self.spend(8)
        if -protocol.MAX_SAFE_INTEGER <= value <= protocol.MAX_SAFE_INTEGER:
            return value
        try:
            digits = str(value)
        except ValueError:
            raise ResultLimitError(
                f"an integer of {value.bit_length()} bits is too long to print:"
                " return its logarithm or a remainder"
            ) from None
        self.spend(len(digits))
        return {"$int": digits}

    def float(self, value: Any) -> Any:
        self.spend(8)
        return value if math.isfinite(value) else {"$float": repr(value)}

    def record(self, value: Record, depth: int) -> dict[str, Any]:
        self.held.append(value)
        names = [field.name for field in dataclasses.fields(value)]
        own = [name for name in names if name not in ("key", "sources")]
        if not protocol.are_sources(value.sources):
            raise NotAValueError(f"the sources of {value.key!r} are not a tuple of entry numbers")
        self.spend(8 * len(value.sources) + 2)
        return {
            "$record": self.text(type(value).__name__),
            "key": self.text(value.key),
            "sources": list(value.sources),
            "fields": self.fields(value, own, depth),
        }

    def fields(self, value: object, names: list[str], depth: int) -> dict[str, Any]:
        return {self.text(name): self.encode(getattr(value, name), depth - 1) for name in names}

    def items(self, values: Any, depth: int) -> list[Any]:
        self.spend(2)
        return [self.encode(item, depth - 1) for item in values]

    def mapping(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {self.text(key): self.encode(item, depth - 1) for key, item in value.items()}
        self.spend(8)
        pairs = [
            [self.encode(key, depth - 1), self.encode(item, depth - 1)]
            for key, item in value.items()
        ]
        return {"$dict": pairs}


def size(count: int) -> str:
    """Format a number of bytes as readable text, such as "4 MiB"."""
    for unit, factor in (("MiB", 1024 * 1024), ("KiB", 1024)):
        if count >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count} bytes"


def _described(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[:1].lower() in tuple("aeiou") else f"a {name}"


def _advice(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__} is not a value: return one of its records"
    if isinstance(value, types.ModuleType):
        return f"the module {value.__name__} is not a value: return something in it"
    if callable(value):
        return f"{_described(value)} is not a value: call it"
    if hasattr(value, "__next__") or hasattr(value, "__iter__"):
        return f"{_described(value)} is not a value: wrap it in list(...)"
    return f"{_described(value)} is not a value: return text, numbers, dates, records or lists"

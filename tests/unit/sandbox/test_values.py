"""The encoding of values as typed JSON."""

import collections
import datetime
import decimal
import enum
import json
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_image.uac import PartialDate, Record, Ref, protocol
from sandbox_image.values import NotAValueError, ResultLimitError, encode


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Address:
    street: str


@dataclass(kw_only=True)
class Trip(Record):
    name: str
    to: Address | None = None


class Text(str):
    __slots__ = ()


def typed(value: object, *, max_bytes: int = 100_000, max_depth: int = 32) -> Any:
    return encode(value, max_bytes=max_bytes, max_depth=max_depth)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (-0.5, -0.5),
        ("é", "é"),
        (2**53 - 1, 2**53 - 1),
        (2**53, {"$int": "9007199254740992"}),
        (-(2**53), {"$int": "-9007199254740992"}),
        (math.nan, {"$float": "nan"}),
        (-math.inf, {"$float": "-inf"}),
        (decimal.Decimal("12.50"), {"$decimal": "12.50"}),
        (datetime.date(2024, 1, 31), {"$date": "2024-01-31"}),
        (
            datetime.datetime(2024, 1, 31, 12, tzinfo=datetime.UTC),
            {"$datetime": "2024-01-31T12:00:00+00:00"},
        ),
        (datetime.time(23, 45), {"$time": "23:45:00"}),
        (datetime.timedelta(minutes=1, milliseconds=5), {"$duration": 60.005}),
        (PartialDate("2024-03"), {"$partial_date": "2024-03"}),
        (PartialDate("2019~/.."), {"$partial_date": "2019~/.."}),
        (Color.RED, {"$enum": "Color.RED", "value": "red"}),
        (Level.HIGH, {"$enum": "Level.HIGH", "value": 3}),
        (Ref[Trip]("t"), {"$ref": "Trip", "key": "t"}),
        (
            Trip(key="t", name="Rome", to=Address("Via"), sources=(3,)),
            {
                "$record": "Trip",
                "key": "t",
                "sources": [3],
                "fields": {
                    "name": "Rome",
                    "to": {"$object": "Address", "fields": {"street": "Via"}},
                },
            },
        ),
        ([1, "a"], [1, "a"]),
        (range(3), [0, 1, 2]),
        ({"a": 1}.keys(), ["a"]),
        ({"a": 1}.values(), [1]),
        ({"a": 1}.items(), [{"$tuple": ["a", 1]}]),
        ((1, 2), {"$tuple": [1, 2]}),
        (Point(1, 2), {"$tuple": [1, 2]}),
        ({3, 1, 2}, {"$set": [1, 2, 3]}),
        (frozenset({"b", "a"}), {"$set": ["a", "b"]}),
        ({"a": [1]}, {"a": [1]}),
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        ({1: "x"}, {"$dict": [[1, "x"]]}),
        ({"$date": 1}, {"$dict": [["$date", 1]]}),
        (b"\0\1", {"$bytes": "AAE="}),
        (Text("x"), "x"),
    ],
)
def test_each_kind_of_value_has_its_form(value: object, expected: object) -> None:
    encoded = typed(value)
    assert encoded == expected
    assert type(encoded) is type(expected)
    protocol.check_typed_json(encoded)


HASHABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.dates()
    | st.datetimes(timezones=st.just(datetime.UTC))
    | st.times()
    | st.timedeltas()
    | st.sampled_from([Color.RED, Level.HIGH, PartialDate("2021"), Ref[Trip]("t")]),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=6,
)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(HASHABLE, inner, max_size=3)
        | st.builds(Trip, key=st.just("t"), name=inner)
        | st.builds(Address, street=inner)
    ),
    max_leaves=10,
)


@given(VALUES)
def test_every_value_survives_the_way_to_the_host(value: object) -> None:
    encoded = typed(value, max_bytes=10**6, max_depth=100)
    message = {"value": encoded}
    arrived = protocol.decode(protocol.encode_frame(message)[protocol.HEADER_BYTES :])
    assert json.dumps(arrived) == json.dumps(message)
    protocol.check_typed_json(arrived["value"])


@given(st.sets(HASHABLE, max_size=5))
def test_sets_are_in_canonical_order(value: set[object]) -> None:
    # The order of the set does not matter.
    texts = [json.dumps(item, sort_keys=True) for item in typed(value)["$set"]]
    assert texts == sorted(texts)


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ((n for n in [1]), "a generator is not a value: wrap it in list"),
        (map(str, [1]), "a map is not a value: wrap it in list"),
        (collections.deque([1]), "a deque is not a value: wrap it in list"),
        (len, "call it"),
        (lambda: 1, "a function is not a value: call it"),
        (Trip, "the class Trip is not a value"),
        (json, "the module json is not a value"),
        (object(), "an object is not a value"),
        (1j, "a complex is not a value"),
        ("half a \ud800", "surrogate"),
        ("nul \0", "null character"),
        ([{"a": object()}], "an object is not a value"),
        (Trip(key="t", name="x", sources="3"), "sources"),  # type: ignore[arg-type]
        (Trip(key="t", name="x", sources=(0,)), "sources"),
        (Trip(key="t", name="x", sources=(2**63,)), "sources"),
        (Trip(key=3, name="x"), "an int was found where text is expected"),  # type: ignore[arg-type]
    ],
)
def test_unsupported_value_is_named_with_the_fix(value: object, advice: str) -> None:
    with pytest.raises(NotAValueError, match=advice):
        typed(value)


def test_a_value_that_contains_itself_is_a_limit() -> None:
    inner: list[object] = []
    inner.append(inner)
    with pytest.raises(ResultLimitError, match="contains itself"):
        typed(inner)


def test_depth_is_limited_to_the_level() -> None:
    assert typed([[1]], max_depth=2) == [[1]]
    with pytest.raises(ResultLimitError, match="more than 2 levels deep"):
        typed([[[1]]], max_depth=2)


@pytest.mark.parametrize(
    "value",
    [
        "x" * 2000,
        list(range(2000)),
        {str(n): n for n in range(500)},
        b"x" * 2000,
        {2000: "x" * 2000},
    ],
)
def test_size_is_limited(value: object) -> None:
    with pytest.raises(ResultLimitError, match="larger than 1000 bytes"):
        typed(value, max_bytes=1000)


def test_an_endless_range_stops_at_the_limit() -> None:
    with pytest.raises(ResultLimitError):
        typed(range(10**12), max_bytes=1000)


def test_an_integer_too_long_to_print_says_so() -> None:
    with pytest.raises(ResultLimitError, match="an integer of 33220 bits is too long to print"):
        typed(10**10_000)

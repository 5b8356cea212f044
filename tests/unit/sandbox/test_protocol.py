"""Frames and typed JSON, as the host checks them."""

import io
import json
import struct
from collections.abc import Callable
from json import dumps
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_image.uac import protocol
from sandbox_image.uac.protocol import ProtocolError

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def stream(data: bytes) -> Callable[[int], bytes]:
    return io.BytesIO(data).read


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


@given(st.dictionaries(TEXT, JSON, max_size=4))
def test_a_message_comes_out_as_it_went_in(message: dict[str, Any]) -> None:
    assert protocol.read_frame(stream(protocol.encode_frame(message))) == message


@given(
    st.binary(min_size=1, max_size=200).filter(lambda data: not data.lstrip().startswith(b"{"))
    | JSON.filter(lambda value: not isinstance(value, dict)).map(
        lambda value: dumps(value).encode()
    )
)
def test_bodies_that_are_no_object_raise_protocol_errors(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        protocol.read_frame(stream(frame(body)))


@given(st.dictionaries(TEXT, JSON, max_size=4), st.data())
def test_truncated_frame_is_a_protocol_error(message: dict[str, Any], data: st.DataObject) -> None:
    whole = protocol.encode_frame(message)
    length = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(ProtocolError):
        protocol.read_frame(stream(whole[:length]))


def test_a_message_that_is_too_large_tells_both_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_FRAME_BYTES", 10)
    assert protocol.encode_frame({"a": 1234}) == frame(b'{"a":1234}')
    with pytest.raises(protocol.FrameTooLargeError) as raised:
        protocol.encode_frame({"a": 12345})
    assert (raised.value.size, raised.value.allowed) == (11, 10)


def test_frames_follow_each_other_and_the_end_is_none() -> None:
    read = stream(protocol.encode_frame({"a": 1}) + protocol.encode_frame({"b": 2}))
    assert protocol.read_frame(read) == {"a": 1}
    assert protocol.read_frame(read) == {"b": 2}
    assert protocol.read_frame(read) is None


def test_an_announced_size_is_refused_before_anything_is_read() -> None:
    asked: list[int] = []

    def read(count: int) -> bytes:
        asked.append(count)
        return b"\xff\xff\xff\xff"

    with pytest.raises(ProtocolError, match="at most 100"):
        protocol.read_frame(read, max_bytes=100)
    assert asked == [4]


@pytest.mark.parametrize("data", [b"\0", b"\0\0\0\5{", frame(b"{}")[:-1]])
def test_a_stream_that_ends_within_a_frame_is_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="ended within"):
        protocol.read_frame(stream(data))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"1",
        b'"text"',
        b"{",
        b"{}{}",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": "\\ud800"}',
        b'{"a": "\\u0000"}',
        b'{"\\u0000": 1}',
        b'{"a": ["\\udfff"]}',
        b'\xff\xfe{"a": 1}',
        b'{"a": "\xff"}',
        b'{"a":' + b"[" * 200 + b"]" * 200 + b"}",
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[" * 100_000,
    ],
)
def test_a_body_that_the_host_could_stumble_over_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        protocol.decode(body)


@pytest.mark.parametrize("text", ["", "][", "[]", "}{", '\\"[', "\\\\"])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_only_what_is_nested_too_deeply_is_refused(text: str, opening: str) -> None:
    """Brackets in texts, and escaped quotes, neither add to the depth nor hide it."""
    closing = {"[": "]", "{": "}"}[opening[0]]

    def nested(depth: int) -> bytes:
        each = f'["{text}",' if opening == "[" else opening
        return f'{{"b":{each * depth}"{text}"{closing * depth}}}'.encode()

    assert protocol.decode(nested(10)).keys() == {"b"}
    assert protocol.decode(nested(protocol.MAX_DEPTH - 2)).keys() == {"b"}
    with pytest.raises(ProtocolError, match="nested more than 160 levels deep"):
        protocol.decode(nested(protocol.MAX_DEPTH))


@pytest.mark.parametrize("message", [{"a": float("nan")}, {"a": object()}, {"a": "\ud800"}])
def test_invalid_message_is_not_sent(message: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError, match="not a JSON message"):
        protocol.encode_frame(message)


@pytest.mark.parametrize(
    "value",
    [
        None,
        1.5,
        2**53 - 1,
        {"name": [1, {"b": "c"}]},
        {"$int": "9007199254740992"},
        {"$float": "nan"},
        {"$decimal": "12.50"},
        {"$date": "2024-02-29"},
        {"$datetime": "2024-02-29T12:00:00+01:00"},
        {"$time": "23:45:00"},
        {"$duration": 90.0},
        {"$partial_date": "2024-03"},
        {"$bytes": "AAE="},
        {"$enum": "Color.RED", "value": {"$tuple": [1]}},
        {"$ref": "Passport", "key": "p-1"},
        {"$record": "Trip", "key": "t", "sources": [3], "fields": {"on": {"$date": "2024-01-31"}}},
        {"$object": "Address", "fields": {"street": "x"}},
        {"$set": [1, 2]},
        {"$dict": [[{"$tuple": [1, 2]}, "x"]]},
    ],
)
def test_every_form_of_typed_json_is_accepted(value: Any) -> None:
    protocol.check_typed_json(value)
    protocol.check_typed_json([{"within": value}])


@pytest.mark.parametrize(
    "value",
    [
        2**53,
        -(2**53),
        {"$int": "12"},
        {"$int": 12},
        {"$float": "Infinity"},
        {"$decimal": "a lot"},
        {"$date": "2024-02-30"},
        {"$date": "20240229"},
        {"$date": "2024-02-29T00:00:00"},
        {"$date": None},
        {"$datetime": "2024-02-29"},
        {"$time": "25:00:00"},
        {"$duration": "90"},
        {"$duration": True},
        {"$duration": 2**53},
        {"$duration": 1e300},
        {"$partial_date": "2024-3"},
        {"$bytes": "<>"},
        {"$enum": "Color.RED"},
        {"$enum": 1, "value": 1},
        {"$ref": "Passport"},
        {"$record": "Trip", "key": "t", "sources": [3]},
        {"$record": "Trip", "key": "t", "sources": [True], "fields": {}},
        {"$record": "Trip", "key": "t", "sources": [0], "fields": {}},
        {"$record": "Trip", "key": "t", "sources": [2**63], "fields": {}},
        {"$record": "Trip", "key": "t", "sources": [1] * 100_001, "fields": {}},
        {"$record": "Trip", "key": 1, "sources": [], "fields": {}},
        {"$record": "Trip", "key": "t", "sources": [], "fields": []},
        {"$record": "Trip", "key": "t", "sources": [], "fields": {}, "more": 1},
        {"$object": "Address", "fields": None},
        {"$set": {}},
        {"$tuple": "ab"},
        {"$dict": [[1]]},
        {"$dict": [1]},
        {"$date": "2024-01-31", "$time": "23:45:00"},
        {"$unheard_of": 1},
        {"$": 1},
        {"plain": 1, "$date": "2024-01-31"},
        [[{"deep": {"$date": "x"}}]],
        {"$enum": "Color.RED", "value": {"$date": "x"}},
        {"$dict": [["k", {"$date": "x"}]]},
        {"$record": "Trip", "key": "t", "sources": [], "fields": {"on": {"$date": "x"}}},
    ],
)
def test_malformed_typed_json_is_refused(value: Any) -> None:
    json.dumps(value)  # it is JSON
    with pytest.raises(ProtocolError):
        protocol.check_typed_json(value)


def test_hostile_nesting_does_not_exhaust_the_stack() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    protocol.check_typed_json(value)  # depth is decode's to refuse

"""Nearly correct frames: each is a message or an error, in a number of steps linear in its size.

The reader holds the interpreter's lock: the tests count the steps, between any two of which other
threads may run, and the bytes processed in a single one.
"""

import io
import json
import random
import struct
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_image.uac import protocol
from sandbox_image.uac.protocol import ProtocolError
from tests.unit.sandbox.test_protocol import JSON, TEXT, frame
from workers.sandbox import client
from workers.sandbox.exchange import MAX_ESCAPES

MAX_BYTES = 4 * 1024 * 1024
MAX_SECONDS = 0.1  # of computing, for frames of some kilobytes
GENTLE_BYTES = 20_000
PIECES = [
    *(b'"', b'\\"', b"\\", b"[", b"]", b"{", b"}", b",", b":", b"null", b"1e9", b"-", b"NaN"),
    *(b'{"id":1}', b"\\u0000", b"\\ud800", b"\xff", b"\xc3", b"\x00", b" ", b'"a":', b"1" * 400),
]
TIMES = [1, 1, 1, 2, 50, 200]
# Steps of the reader's lines of code, per byte and per frame.
STEPS_OF_BYTE, STEPS_OF_FRAME = 40, 400

bodies = st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(TIMES)), max_size=8).map(
    lambda parts: b"".join(piece * number for piece, number in parts)
)
nearly_right = bodies | bodies.map(lambda body: b'{"id":1,"result":' + body + b"}")


def read(data: bytes, most: int = MAX_BYTES) -> dict[str, Any] | None:
    """Read a frame as a host does; return None if it is refused."""
    stream = io.BytesIO(data)
    try:
        return protocol.read_frame(stream.read, most, client.MAX_VALUES, MAX_ESCAPES)
    except ProtocolError:
        return None


def steps(do: Callable[[], object]) -> int:
    """Return how many lines of Python it executes."""
    lines = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        do()
    finally:
        sys.settrace(before)
    return lines


@pytest.fixture(scope="class", params=["as large ones", "as small ones"])
def reader(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have frames read as large ones are, which would take too long here, or as small ones."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "as large ones":
            patch.setattr(protocol, "QUICK_BYTES", 0)
            patch.setattr(protocol, "CHUNK_BYTES", 7)
        yield


@pytest.mark.usefixtures("reader")
class TestSteps:
    @given(nearly_right)
    def test_they_follow_the_size(self, body: bytes) -> None:
        taken = steps(lambda: read(frame(body)))

        assert taken <= STEPS_OF_BYTE * len(body) + STEPS_OF_FRAME

    @given(st.binary(max_size=60))
    def test_they_do_for_what_is_no_frame(self, data: bytes) -> None:
        assert steps(lambda: read(data)) <= STEPS_OF_BYTE * len(data) + STEPS_OF_FRAME


def test_more_than_linear_is_found() -> None:
    body = b'"' * 2000
    taken = steps(lambda: [one for start in range(len(body)) for one in body[start : start + 100]])
    assert taken > STEPS_OF_BYTE * len(body) + STEPS_OF_FRAME


@given(st.dictionaries(TEXT, JSON, max_size=4))
def test_a_large_message_reads_as_a_small_one(message: dict[str, Any]) -> None:
    body = json.dumps(message, ensure_ascii=False).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "QUICK_BYTES", 0)
        large = protocol.decode(body, gently=True)

    assert large == protocol.decode(body) == message


@given(nearly_right)
def test_large_frame_is_refused_as_a_small_one(body: bytes) -> None:
    small = read(frame(body))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "QUICK_BYTES", 0)
        assert read(frame(body)) == small


@given(bodies, st.integers(min_value=0, max_value=30))
def test_values_are_counted_alike_whatever_the_pieces(body: bytes, number: int) -> None:
    whole = protocol.has_more_values(body, number)
    with pytest.MonkeyPatch.context() as patch:
        for size in (1, 2, 5):
            patch.setattr(protocol, "CHUNK_BYTES", size)
            assert protocol.has_more_values(body, number) is whole


LARGE: dict[str, bytes] = {
    "values": b'{"a":[' + b"[]," * 60_000 + b"[]]}",
    "numbers": b'{"a":[' + b"1," * 60_000 + b"1]}",
    "names": b"{" + b",".join(b'"%d":0' % n for n in range(60_000)) + b"}",
    "a text": b'{"a":"' + b"x" * 2_000_000 + b'"}',
    "bytecode": b'{"bytecode":{"a.py":"' + b"QUJD" * 500_000 + b'"}}',
}


@pytest.mark.parametrize("body", LARGE.values(), ids=LARGE)
def test_no_large_frame_is_read_in_one_go(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader written in C holds the interpreter until it has read everything."""

    class InOneGo:
        def decode(self, text: str) -> None:
            raise AssertionError("all of it")

    monkeypatch.setattr(protocol, "_decoder", InOneGo())

    found = read(frame(body))

    assert found is not None
    assert len(found) > 0


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":"' + b"\\n" * (MAX_ESCAPES + 1) + b'"}',
        b'{"a":[' + b"[]," * client.MAX_VALUES + b"[]]}",
        b'"' * 1_000_000 + b"," * (client.MAX_VALUES + 1),
    ],
    ids=["escapes", "values", "quotes"],
)
def test_too_costly_frame_is_not_read(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "decode", lambda body, **how: pytest.fail("it was read"))
    with pytest.raises(protocol.TooManyValuesError):
        protocol.read_frame(io.BytesIO(frame(body)).read, 2**26, client.MAX_VALUES, MAX_ESCAPES)


def test_to_count_values_takes_no_memory() -> None:
    body = b'"' * 8_000_000 + b"," * 1_000_001
    tracemalloc.start()
    try:
        assert not protocol.has_more_values(body, 1_000_002)
        assert protocol.has_more_values(body, 1_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < len(body)


@pytest.mark.parametrize("tag", ["$dict", "$date", "$record", "$int"])
def test_error_does_not_quote_the_frame(tag: str) -> None:
    class Unwritable(list[Any]):
        def __repr__(self) -> str:
            raise AssertionError("it may be of any size")

    with pytest.raises(ProtocolError, match=f"not a valid .{tag[1:]}"):
        protocol.check_typed_json({tag: Unwritable([1])})


ANSWER = protocol.encode_frame(
    {
        "id": 7,
        "outcome": "ok",
        "message": "",
        "stdout": 'said: "so"\n',
        "seconds": 0.25,
        "result": {"$dict": [["a", [1, -2.5e-7, None, True]], ["ä\\u00e9", {"b": [{}, []]}]]},
        "error": {"type": "KeyError", "message": "'x'", "path": None, "line": 3, "traceback": "t"},
    }
)[protocol.HEADER_BYTES :]


def made(chance: random.Random) -> bytes:
    """Return bytes that begin like a frame: pieces in any order, or a modified answer."""
    pieces = [chance.choice(PIECES) * chance.choice(TIMES) for _ in range(chance.randrange(12))]
    if chance.random() < 0.5:
        body = b"".join(pieces)
        if chance.random() < 0.5:
            body = b'{"id":1,"result":' + body + b"}"
    else:
        body = ANSWER
        for piece in pieces[:3]:
            start, end = sorted(chance.randrange(len(body) + 1) for _ in range(2))
            body = chance.choice(
                [
                    body[:start] + piece + body[start:],
                    body[:start] + body[end:],
                    body[:end] + body[start:end] * 3 + body[end:],
                ]
            )
    length = len(body) if chance.random() < 0.9 else chance.randrange(2**32)
    return struct.pack(">I", length) + body


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(4))
def test_a_million_frames(seed: int) -> None:
    chance, messages, longest = random.Random(100 + seed), 0, 0.0
    with pytest.MonkeyPatch.context() as patch:
        for number in range(250_000):
            data = made(chance)
            # Every other frame is read as a large one: value by value, with other threads in
            # between.
            gently = number % 2 and len(data) < GENTLE_BYTES
            patch.setattr(protocol, "QUICK_BYTES", 0 if gently else 1024 * 1024)
            seconds, message = timed(data)
            if seconds > MAX_SECONDS:  # of the machine, or of the frame?
                seconds = min(seconds, *(timed(data)[0] for _ in range(3)))
            longest = max(longest, seconds)
            messages += message is not None

    assert messages > 500  # it does not refuse everything
    assert longest < MAX_SECONDS


def timed(data: bytes) -> tuple[float, dict[str, Any] | None]:
    """Return the computing seconds of reading a frame, and the result."""
    began = time.thread_time()
    message = read(data, 1_000_000)
    return time.thread_time() - began, message

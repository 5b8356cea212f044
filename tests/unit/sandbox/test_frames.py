"""The engine's framing of a container's two streams, cut into pieces in any way."""

import itertools
import struct

from hypothesis import given
from hypothesis import strategies as st

from workers.sandbox.docker import LAST_WORDS_BYTES, _Frames

STDOUT, STDERR = 1, 2

frames = st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), st.binary(max_size=40)), max_size=12)
cuts = st.lists(st.integers(min_value=0, max_value=600), max_size=20)


def framed(stream: int, data: bytes) -> bytes:
    return struct.pack(">BxxxI", stream, len(data)) + data


def fed(*pieces: bytes) -> _Frames:
    sorted_out = _Frames()
    for piece in pieces:
        sorted_out.feed(piece)
    return sorted_out


@given(frames, cuts)
def test_any_split_gives_the_same_streams(parts: list[tuple[int, bytes]], at: list[int]) -> None:
    whole = b"".join(framed(stream, data) for stream, data in parts)
    places = [0, *sorted(at), len(whole)]
    pieces = [whole[start:end] for start, end in itertools.pairwise(places)]

    found = fed(*pieces)

    assert found.output == b"".join(data for stream, data in parts if stream == STDOUT)
    assert found.errors == b"".join(data for stream, data in parts if stream == STDERR)


@given(st.binary(max_size=60), st.lists(st.integers(min_value=0, max_value=30), max_size=10))
def test_output_is_taken_in_order(data: bytes, counts: list[int]) -> None:
    found = fed(framed(STDOUT, data))
    taken = b"".join(found.take(count) for count in counts)
    assert taken == data[: sum(counts)]
    assert taken + found.take(len(data)) == data
    assert found.take(1) == b""


def test_end_of_a_flood_of_errors_is_kept() -> None:
    found = fed(*[framed(STDERR, b"%07d\n" % number) for number in range(5_000)])
    assert len(found.errors) == LAST_WORDS_BYTES
    assert found.errors.endswith(b"0004998\n0004999\n")
    found.feed(framed(STDERR, b"x" * 10_000_000))
    assert found.errors == b"x" * LAST_WORDS_BYTES
    assert found.output == b""


def test_a_frame_that_promises_gigabytes_reserves_nothing() -> None:
    found = fed(struct.pack(">BxxxI", STDOUT, 2**32 - 1), b"abc")
    assert found.output == b"abc"
    assert found.take(100) == b"abc"

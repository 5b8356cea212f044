"""Frames that are nearly right: each is a message or a ProtocolError, at once."""

import io
import random
import struct
import time

import pytest

from sandbox_image.uac import protocol

MOST_SECONDS = 0.1  # of computing, for frames of some kilobytes
PIECES = [
    *(b'"', b'\\"', b"\\", b"[", b"]", b"{", b"}", b",", b":", b"null", b"1e9", b"-", b"NaN"),
    *(b'{"id":1}', b"\\u0000", b"\\ud800", b"\xff", b"\xc3", b"\x00", b" ", b'"a":', b"1" * 400),
]


def made(chance: random.Random) -> bytes:
    """Return bytes that begin like a frame."""
    body = b"".join(
        chance.choice(PIECES) * chance.choice([1, 1, 1, 2, 50, 200])
        for _ in range(chance.randrange(12))
    )
    if chance.random() < 0.5:
        body = b'{"id":1,"result":' + body + b"}"
    length = len(body) if chance.random() < 0.9 else chance.randrange(2**32)
    return struct.pack(">I", length) + body


def feed(number: int, seed: int) -> tuple[int, float]:
    """Read so many frames; return how many were messages, and the longest time that one took."""
    chance, messages, longest = random.Random(seed), 0, 0.0
    for _ in range(number):
        data = io.BytesIO(made(chance))
        began = time.thread_time()
        try:
            message = protocol.read_frame(data.read, 1_000_000, 100_000)
            assert message is None or isinstance(message, dict)
            messages += message is not None
        except protocol.ProtocolError:
            pass
        longest = max(longest, time.thread_time() - began)
    return messages, longest


def test_some_thousand_frames() -> None:
    messages, longest = feed(5_000, 1)

    assert messages > 10  # it does not refuse everything
    assert longest < MOST_SECONDS


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(4))
def test_a_million_frames(seed: int) -> None:
    messages, longest = feed(250_000, 100 + seed)

    assert messages > 500
    assert longest < MOST_SECONDS

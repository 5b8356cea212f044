"""Deltas of git's packs: another implementation restores the original from them."""

from dulwich.pack import apply_delta
from hypothesis import given
from hypothesis import strategies as st

from memory.export.deltas import delta

TEXTS = st.binary(max_size=300)
LONG = st.integers(0, 200_000).map(lambda size: bytes(n % 251 for n in range(size)))


def applied(base: bytes, change: bytes) -> bytes:
    return b"".join(apply_delta(base, change))


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_delta_restores_the_target(head: bytes, tail: bytes, old: bytes, new: bytes) -> None:
    base, target = head + old + tail, head + new + tail
    assert applied(base, delta(base, target)) == target


@given(LONG, LONG, TEXTS)
def test_long_texts_come_back(one: bytes, other: bytes, between: bytes) -> None:
    base, target = one + other, one + between + other
    assert applied(base, delta(base, target)) == target
    assert len(delta(base, target)) < 2 * len(between) + 200


def test_delta_of_an_append_is_short() -> None:
    base = b"line\n" * 10_000
    change = delta(base, base + b"one more\n")
    assert len(change) < 30

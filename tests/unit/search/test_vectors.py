"""Vectors in the form that an index stores."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.recall.search import vectors
from memory.recall.search.vectors import Floats


def unit(number: int, dimensions: int = 256, seed: int = 0) -> Floats:
    made = np.random.default_rng(seed).standard_normal((number, dimensions)).astype(np.float32)
    rows: Floats = made / np.linalg.norm(made, axis=1, keepdims=True)
    return rows


def test_closeness_is_the_cosine() -> None:
    made = unit(5000)

    found = vectors.quantised("m", made).closeness(made[7])

    assert np.abs(found - made @ made[7]).max() < 0.01
    assert found.argmax() == 7


def test_zero_vector_is_close_to_nothing() -> None:
    made = np.zeros((2, 256), np.float32)

    assert vectors.quantised("m", made).closeness(unit(1)[0]).tolist() == [0, 0]


@given(st.integers(0, 9), st.integers(1, 40), st.text(min_size=1, max_size=30))
def test_encoded_vectors_are_decoded(number: int, dimensions: int, model: str) -> None:
    kept = vectors.quantised(model, unit(number, dimensions))
    block = vectors.encode(kept)

    found = vectors.decode(block)

    assert found is not None
    assert (found.model, found.dimensions) == (model, dimensions)
    assert np.array_equal(found.values, kept.values)
    assert np.array_equal(found.factors, kept.factors)
    assert vectors.kind_of(block[: vectors.BEGINNING]) == (model, dimensions)


def test_without_vectors_there_is_a_block_all_the_same() -> None:
    block = vectors.encode(None)

    assert vectors.decode(block) is None
    assert vectors.kind_of(block) == ("", 0)


@pytest.mark.parametrize("damage", [b"", b"\x01", b"\xff" * 40, b"short", b"cut"])
def test_unreadable_vectors_are_refused(damage: bytes) -> None:
    block = vectors.encode(vectors.quantised("m", unit(3)))

    with pytest.raises(ValueError, match="block"):
        vectors.decode(block[:-1] if damage == b"cut" else damage)


def test_a_vector_that_is_not_finite_is_refused() -> None:
    kept = vectors.quantised("m", unit(3))
    kept.factors[1] = np.nan

    with pytest.raises(ValueError, match="finite"):
        vectors.decode(vectors.encode(kept))


def test_vectors_of_one_model_are_joined_and_of_two_are_not() -> None:
    first, second, other, short = (
        vectors.quantised("m", unit(2)),
        vectors.quantised("m", unit(3, seed=1)),
        vectors.quantised("other", unit(2)),
        vectors.quantised("m", unit(2, 8)),
    )
    none = vectors.quantised("m", np.zeros((0, 256), np.float32))

    whole = vectors.joined([first, none, second])

    assert whole is not None
    assert whole.values.tolist() == [*first.values.tolist(), *second.values.tolist()]
    assert vectors.joined([none]) is not None
    for parts in ([first, other], [first, None], [first, short], []):
        assert vectors.joined(parts) is None


def test_vectors_of_blank_texts_which_have_no_numbers_are_joined_with_others() -> None:
    blank = vectors.quantised("m", np.zeros((2, 0), np.float32))
    made = vectors.quantised("m", unit(1, 8))

    whole = vectors.joined([blank, made, blank])

    assert whole is not None
    assert whole.values.tolist() == [[0] * 8] * 2 + made.values.tolist() + [[0] * 8] * 2
    assert len(whole.factors) == 5
    alone = vectors.joined([blank, blank])
    assert alone is not None
    assert (len(alone.values), alone.dimensions) == (4, 0)

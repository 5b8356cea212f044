"""Segments: however a log is cut, encoded and merged, the index is the same."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.recall.search import segments
from memory.recall.search.segments import Document, Segment
from memory.recall.search.vectors import quantised

terms = st.dictionaries(st.integers(0, 2**63 - 1) | st.integers(0, 9), st.integers(1, 999))
entries = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 2**32 - 1), terms, st.lists(st.integers(10, 12))),
    max_size=30,
)

Drawn = list[tuple[int, int, dict[int, int], list[int]]]


def documents(drawn: Drawn) -> list[Document]:
    return [
        Document(
            seq=7 * (place // 2) + 1,  # of two passages each
            corpus=one[0],
            session=one[1],
            terms=one[2],
            marks=one[3],
            start=place,
            end=place + 5,
            is_users=bool(place % 3),
        )
        for place, one in enumerate(drawn)
    ]


def same(first: Segment, second: Segment) -> bool:
    return all(
        np.array_equal(getattr(first, name), getattr(second, name))
        for name in Segment.__dataclass_fields__
    )


@given(entries, st.integers(1, 10))
def test_pieces_merge_into_the_whole(drawn: Drawn, size: int) -> None:
    found = documents(drawn)
    pieces = [
        segments.build(found[start : start + size]) for start in range(0, len(found), size)
    ] or [segments.build([])]

    assert same(segments.merge(pieces), segments.build(found))


@given(entries)
def test_encoded_segment_is_decoded(drawn: Drawn) -> None:
    segment = segments.build(documents(drawn))

    first, *blocks, _ = segments.encode(segment)

    assert same(segments.decode(first, blocks), segment)


def test_a_term_is_in_the_block_that_its_number_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "BLOCK", 8)
    found = [
        Document(seq=place, corpus=0, session=0, terms=dict.fromkeys(range(place, 40), 1))
        for place in range(1, 5)
    ]
    whole = segments.build(found)
    first, *blocks, _ = segments.encode(whole)
    assert len(blocks) > 5

    for term in (1, 2, 17, 39):
        part = segments.decode(first, [blocks[term % len(blocks)]])
        for wanted, amount in ((term, 1), (1000 + term, 0)):
            corpora = [segments.corpus_of([one], 0, [wanted]) for one in (part, whole)]
            assert [len(one.postings) for one in corpora] == [amount, amount]
        a, b = (segments.corpus_of([one], 0, [term]).postings[term] for one in (part, whole))
        assert a.places.tolist() == b.places.tolist()


def test_pieces_keep_their_vectors_if_all_have_some() -> None:
    made = quantised("m", np.eye(4, dtype=np.float32))
    pieces = [
        replace(segments.build([Document(seq, 0, 0, {5: 1})]), vectors=part)
        for seq, part in enumerate([made, None])
    ]

    whole = segments.merge([pieces[0], pieces[0]]).vectors
    assert whole is not None
    assert whole.values.tolist() == [*made.values.tolist()] * 2
    assert segments.merge(pieces).vectors is None


def test_closeness_is_in_the_order_of_the_corpus() -> None:
    found = [Document(seq=seq, corpus=seq % 2, session=0, terms={}) for seq in range(1, 6)]
    pieces = [segments.build(found[:2]), segments.build(found[2:])]
    close = [np.array([1, 2], np.float32), np.array([3, 4, 5], np.float32)]

    one = segments.corpus_of(pieces, 1, [], close).closeness
    none = segments.corpus_of([], 1, [], []).closeness

    assert one is not None
    assert one.tolist() == [1, 3, 5]
    assert none is None


def test_corpora_are_apart() -> None:
    found = [Document(seq=seq, corpus=seq % 2, session=seq, terms={5: seq}) for seq in range(1, 6)]
    pieces = [segments.build(found[:2]), segments.build(found[2:])]

    corpus = segments.corpus_of(pieces, 1, [5, 6])

    assert corpus.seqs.tolist() == [1, 3, 5]
    assert corpus.postings[5].places.tolist() == [0, 1, 2]
    assert corpus.postings[5].counts.tolist() == [1, 3, 5]
    assert 6 not in corpus.postings


@pytest.mark.parametrize("damage", [b"", b"\x02", b"\x01" * 9, b"\x01\x05\x00\x00\x00" * 9])
def test_unreadable_segment_is_refused(damage: bytes) -> None:
    first, block, _ = segments.encode(segments.build([Document(1, 0, 0, {5: 1})]))

    with pytest.raises(ValueError, match=r"block|buffer|unpack"):
        segments.decode(damage, [block])
    with pytest.raises(ValueError, match=r"block|buffer|unpack"):
        segments.decode(first, [damage])
    with pytest.raises(ValueError, match=r"block|buffer|unpack"):
        segments.decode(first[:9] + first[12:], [block])

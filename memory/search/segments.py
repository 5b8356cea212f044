"""Segments: the form of an index. Immutable, mergeable, and read in part.

A segment tells of consecutive entries of one log. What is known of the entries themselves is one
block; the postings are spread over others by the number of their term, so that a question reads the
few blocks that its terms are in. Nothing here knows of a database.
"""

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.search.ranking import Corpus, Postings

# Of what is stored. Blocks of another version are not read but made anew.
VERSION = 2
# Postings in a block, about.
BLOCK = 1024
# Before a term: it is part of the speaker's name.
SPEAKER_PREFIX = "@"

_HEADER = struct.Struct("<BII")
_COUNT_MOST = 255
_DOCUMENT_FIELDS = ("<i8", "<u1", "<u4", "<u4")


@dataclass(frozen=True)
class Document:
    """What an index is told of an entry; the terms by their identities."""

    seq: int
    corpus: int
    session: int
    terms: Mapping[int, int]
    """Term → how often. Its length is all of these but the names of speakers."""
    names: Sequence[int] = ()


@dataclass(frozen=True)
class Segment:
    """An index of some entries, or what was read of it: all entries, the postings of some terms.

    `starts` has one number more than `terms`: the postings of the n-th term begin at the n-th and
    end before the next. Places count the entries of this segment from 0.
    """

    seqs: NDArray[np.int64]
    corpora: NDArray[np.uint8]
    lengths: NDArray[np.uint32]
    sessions: NDArray[np.uint32]
    terms: NDArray[np.int64]
    starts: NDArray[np.int64]
    places: NDArray[np.int64]
    counts: NDArray[np.uint8]


def build(documents: Sequence[Document]) -> Segment:
    """Return a segment of these entries, which are in the order of the log."""
    terms: list[int] = []
    places: list[int] = []
    counts: list[int] = []
    for place, document in enumerate(documents):
        found = {**document.terms, **dict.fromkeys(document.names, 1)}
        terms.extend(found)
        places.extend([place] * len(found))
        counts.extend(min(count, _COUNT_MOST) for count in found.values())
    return _sorted(
        (
            np.array([one.seq for one in documents], np.int64),
            np.array([one.corpus for one in documents], np.uint8),
            np.array([sum(one.terms.values()) for one in documents], np.uint32),
            np.array([one.session for one in documents], np.uint32),
        ),
        np.array(terms, np.int64),
        np.array(places, np.int64),
        np.array(counts, np.uint8),
    )


def merge(segments: Sequence[Segment]) -> Segment:
    """Return one segment of several that follow each other in the log."""
    offsets = np.cumsum([0, *(len(one.seqs) for one in segments)])
    return _sorted(
        (
            np.concatenate([one.seqs for one in segments]),
            np.concatenate([one.corpora for one in segments]),
            np.concatenate([one.lengths for one in segments]),
            np.concatenate([one.sessions for one in segments]),
        ),
        np.concatenate([np.repeat(one.terms, np.diff(one.starts)) for one in segments]),
        np.concatenate(
            [one.places + offset for one, offset in zip(segments, offsets, strict=False)]
        ),
        np.concatenate([one.counts for one in segments]),
    )


def _sorted(
    documents: tuple[Any, Any, Any, Any],
    terms: NDArray[np.int64],
    places: NDArray[np.int64],
    counts: NDArray[np.uint8],
) -> Segment:
    order = np.argsort(terms, kind="stable")
    distinct, starts = np.unique(terms[order], return_index=True)
    return Segment(
        *documents, distinct, np.append(starts, len(terms)), places[order], counts[order]
    )


def corpus_of(segments: Sequence[Segment], corpus: int, wanted: Iterable[int]) -> Corpus:
    """Return the entries of one corpus in all segments, in order, with the wanted postings."""
    segments = [build([]), *segments]
    mine = np.concatenate([one.corpora for one in segments]) == corpus
    # The place of an entry among those of its corpus, by its place among all.
    renumbered = np.cumsum(mine) - 1
    offsets = np.cumsum([0, *(len(one.seqs) for one in segments)])
    postings = {}
    for term in wanted:
        places, counts = [], []
        for one, offset in zip(segments, offsets, strict=False):
            at = int(np.searchsorted(one.terms, term))
            if at < len(one.terms) and one.terms[at] == term:
                here = slice(one.starts[at], one.starts[at + 1])
                places.append(one.places[here] + offset)
                counts.append(one.counts[here])
        if places:
            everywhere = np.concatenate(places)
            kept = mine[everywhere]
            if kept.any():
                amounts = np.concatenate(counts)[kept].astype(np.float64)
                postings[term] = Postings(renumbered[everywhere[kept]], amounts)
    return Corpus(
        np.concatenate([one.seqs for one in segments])[mine],
        np.concatenate([one.lengths for one in segments])[mine].astype(np.float64),
        np.concatenate([one.sessions for one in segments])[mine],
        postings,
    )


# -- As bytes -------------------------------------------------------------------------------------


def encode(segment: Segment) -> list[bytes]:
    """Return the blocks of a segment: first that of its entries, then those of its postings.

    A term is in the block `1 + term % (number of blocks - 1)`.
    """
    number = max(1, -(-len(segment.places) // BLOCK))
    block_of = segment.terms % number
    blocks = [_pack(_document_arrays(segment), len(segment.seqs), 0)]
    amounts = np.diff(segment.starts)
    for block in range(number):
        mine = np.flatnonzero(block_of == block)
        postings = _ranges(segment.starts[mine], amounts[mine])
        places = segment.places[postings]
        blocks.append(
            _pack(
                [
                    segment.terms[mine].astype("<i8"),
                    amounts[mine].astype("<u4"),
                    # Differences are small, which the compression takes advantage of.
                    np.diff(places, prepend=0).astype("<i4"),
                    segment.counts[postings],
                ],
                len(mine),
                len(postings),
            )
        )
    return blocks


def decode(entries: bytes, blocks: Sequence[bytes]) -> Segment:
    """Return what these blocks of one segment hold; raises ValueError if that cannot be read."""
    number, _, data = _unpack(entries)
    documents = _arrays(data, [(kind, number) for kind in _DOCUMENT_FIELDS])
    parts = []
    for block in blocks:
        terms_number, postings_number, data = _unpack(block)
        terms, amounts, differences, counts = _arrays(
            data,
            [
                ("<i8", terms_number),
                ("<u4", terms_number),
                ("<i4", postings_number),
                ("<u1", postings_number),
            ],
        )
        parts.append((terms, amounts, np.cumsum(differences, dtype=np.int64), counts))
    terms, amounts, places, counts = (
        np.concatenate([part[index] for part in parts] or [np.empty(0, np.int64)])
        for index in range(4)
    )
    order = np.argsort(terms, kind="stable")
    starts = np.cumsum(np.append(0, amounts))[:-1]
    postings = _ranges(starts[order], amounts[order])
    return Segment(
        seqs=np.cumsum(documents[0], dtype=np.int64),
        corpora=documents[1],
        lengths=documents[2],
        sessions=documents[3],
        terms=terms[order],
        starts=np.append(0, np.cumsum(amounts[order])).astype(np.int64),
        places=places[postings],
        counts=counts[postings],
    )


def _document_arrays(segment: Segment) -> list[NDArray[Any]]:
    fields: tuple[NDArray[Any], ...] = (
        np.diff(segment.seqs, prepend=0),
        segment.corpora,
        segment.lengths,
        segment.sessions,
    )
    return [field.astype(kind) for field, kind in zip(fields, _DOCUMENT_FIELDS, strict=True)]


def _ranges(starts: NDArray[np.int64], amounts: NDArray[Any]) -> NDArray[np.int64]:
    """Return the numbers from each start on, so many of each, one range after the other."""
    amounts = amounts.astype(np.int64)
    before = np.cumsum(amounts) - amounts
    firsts = np.repeat(starts.astype(np.int64) - before, amounts)
    found: NDArray[np.int64] = np.arange(len(firsts)) + firsts
    return found


def _pack(arrays: Sequence[NDArray[Any]], first: int, second: int) -> bytes:
    data = b"".join(array.tobytes() for array in arrays)
    return _HEADER.pack(VERSION, first, second) + zlib.compress(data, 6)


def _unpack(block: bytes) -> tuple[int, int, bytes]:
    try:
        version, first, second = _HEADER.unpack_from(block)
        if version != VERSION:
            raise ValueError(f"a block of version {version}; this server reads {VERSION}")
        return first, second, zlib.decompress(block[_HEADER.size :])
    except (struct.error, zlib.error) as error:
        raise ValueError(f"a block that cannot be read: {error}") from None


def _arrays(data: bytes, kinds: Sequence[tuple[str, int]]) -> list[NDArray[Any]]:
    found = []
    start = 0
    for kind, number in kinds:
        found.append(np.frombuffer(data, kind, number, start))
        start += number * np.dtype(kind).itemsize
    return found

"""Segments, the format of an index: immutable, mergeable, and partially readable.

A segment covers consecutive entries of one log, passage by passage; each passage is a document. The
first block contains the data for the documents themselves. Postings are spread over further blocks
by their term's identity, so that a question only has to read the few blocks with its terms. The
last block contains the documents' vectors. This module doesn't use a database.
"""

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.recall.search import vectors
from memory.recall.search.ranking import Corpus, Postings
from memory.recall.search.vectors import Vectors

# The version of the format and of the terms in it. Blocks of another version are rebuilt, not read.
VERSION = 8
# The approximate number of postings in a block.
BLOCK = 1024
# The prefix for terms that come from a speaker's name.
SPEAKER_PREFIX = "@"

_HEADER = struct.Struct("<BII")
_COUNT_MOST = 255
_DOCUMENT_FIELDS = ("<i8", "<u1", "<u4", "<u4", "<u4", "<u4", "<u1")


@dataclass(frozen=True)
class Document:
    """An indexed passage of an entry; terms and marks are represented by their identities."""

    seq: int
    corpus: int
    session: int
    terms: Mapping[int, int]
    """Term → count. The sum of the counts is the document's length."""
    marks: Sequence[int] = ()
    """Speaker names, record marks and alternative terms, which are not part of the length."""
    start: int = 0
    end: int = 0
    """The position of the passage in the entry's text."""
    is_users: bool = False
    """Whether the passage was said by the user, or by somebody whose role is unknown."""
    text: str = field(default="", compare=False)
    """The text that the passage's vector is made from; not stored."""


@dataclass(frozen=True)
class Segment:
    """An index of some entries, or the part of it that was read: documents and postings.

    `starts` has one more item than `terms`: the n-th term's postings begin at the n-th start and
    end before the next start. Places are the indices of this segment's documents, starting at 0.
    There are no vectors if there is no model, or until the model has returned them.
    """

    seqs: NDArray[np.int64]
    corpora: NDArray[np.uint8]
    lengths: NDArray[np.uint32]
    sessions: NDArray[np.uint32]
    begins: NDArray[np.uint32]
    ends: NDArray[np.uint32]
    is_users: NDArray[np.uint8]
    terms: NDArray[np.int64]
    starts: NDArray[np.int64]
    places: NDArray[np.int64]
    counts: NDArray[np.uint8]
    vectors: Vectors | None = None


def build(documents: Sequence[Document]) -> Segment:
    """Build a segment from documents that are in the order of the log."""
    terms: list[int] = []
    places: list[int] = []
    counts: list[int] = []
    for index, document in enumerate(documents):
        counted = {**document.terms, **dict.fromkeys(document.marks, 1)}
        terms.extend(counted)
        places.extend([index] * len(counted))
        counts.extend(min(count, _COUNT_MOST) for count in counted.values())
    return _sorted(
        (
            np.array([one.seq for one in documents], np.int64),
            np.array([one.corpus for one in documents], np.uint8),
            np.array([sum(one.terms.values()) for one in documents], np.uint32),
            np.array([one.session for one in documents], np.uint32),
            np.array([one.start for one in documents], np.uint32),
            np.array([one.end for one in documents], np.uint32),
            np.array([one.is_users for one in documents], np.uint8),
        ),
        np.array(terms, np.int64),
        np.array(places, np.int64),
        np.array(counts, np.uint8),
    )


def merge(segments: Sequence[Segment]) -> Segment:
    """Merge consecutive segments into one."""
    offsets = np.cumsum([0, *(len(one.seqs) for one in segments)])
    merged = _sorted(
        tuple(np.concatenate(field) for field in zip(*map(_documents, segments), strict=True)),
        np.concatenate([np.repeat(one.terms, np.diff(one.starts)) for one in segments]),
        np.concatenate(
            [one.places + offset for one, offset in zip(segments, offsets, strict=False)]
        ),
        np.concatenate([one.counts for one in segments]),
    )
    return replace(merged, vectors=vectors.joined([one.vectors for one in segments]))


def _documents(segment: Segment) -> tuple[NDArray[Any], ...]:
    return (
        *(segment.seqs, segment.corpora, segment.lengths, segment.sessions),
        *(segment.begins, segment.ends, segment.is_users),
    )


def _sorted(
    documents: tuple[Any, ...],
    terms: NDArray[np.int64],
    places: NDArray[np.int64],
    counts: NDArray[np.uint8],
) -> Segment:
    seqs, corpora, lengths, sessions, begins, ends, is_users = documents
    order = np.argsort(terms, kind="stable")
    distinct, first = np.unique(terms[order], return_index=True)
    return Segment(
        seqs=seqs,
        corpora=corpora,
        lengths=lengths,
        sessions=sessions,
        begins=begins,
        ends=ends,
        is_users=is_users,
        terms=distinct,
        starts=np.append(first, len(terms)),
        places=places[order],
        counts=counts[order],
    )


def corpus_of(
    segments: Sequence[Segment],
    corpus: int,
    wanted: Iterable[int],
    closeness: Sequence[vectors.Floats] | None = None,
) -> Corpus:
    """Return a corpus's documents from all segments, in order, with the wanted terms' postings.

    `closeness` has, for each segment, how close its documents are to the question.
    """
    close = np.concatenate(closeness) if closeness else None
    segments = [build([]), *segments]
    mine = np.concatenate([one.corpora for one in segments]) == corpus
    # Maps a document's position among all documents to its position in the corpus.
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
    seqs, _, lengths, sessions, begins, ends, is_users = (
        np.concatenate(column)[mine] for column in zip(*map(_documents, segments), strict=True)
    )
    return Corpus(
        seqs,
        lengths.astype(np.float64),
        sessions,
        postings,
        begins,
        ends,
        is_users.astype(np.bool_),
        None if close is None else close[mine],
    )


# -- Encoding and decoding segments ---------------------------------------------------------------


def encode(segment: Segment) -> list[bytes]:
    """Return a segment's blocks: first its documents, then its postings, and finally its vectors.

    A term's postings are in block `1 + term % (number of blocks with postings)`.
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
                    # Differences between consecutive numbers are small, so they compress well.
                    np.diff(places, prepend=0).astype("<i4"),
                    segment.counts[postings],
                ],
                len(mine),
                len(postings),
            )
        )
    return [*blocks, vectors.encode(segment.vectors)]


def decode(documents_block: bytes, blocks: Sequence[bytes]) -> Segment:
    """Return the part of a segment that these blocks contain: all documents and some postings.

    Raises ValueError if the blocks can't be read.
    """
    number, _, data = _unpack(documents_block)
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
        begins=documents[4],
        ends=documents[5],
        is_users=documents[6],
        terms=terms[order],
        starts=np.append(0, np.cumsum(amounts[order])).astype(np.int64),
        places=places[postings],
        counts=counts[postings],
    )


def _document_arrays(segment: Segment) -> list[NDArray[Any]]:
    seqs, *others = _documents(segment)
    fields = [np.diff(seqs, prepend=0), *others]
    return [field.astype(kind) for field, kind in zip(fields, _DOCUMENT_FIELDS, strict=True)]


def _ranges(starts: NDArray[np.int64], amounts: NDArray[Any]) -> NDArray[np.int64]:
    """Concatenate ranges of integers, given the starts and lengths (`amounts`) of these ranges."""
    amounts = amounts.astype(np.int64)
    before = np.cumsum(amounts) - amounts
    firsts = np.repeat(starts.astype(np.int64) - before, amounts)
    positions: NDArray[np.int64] = np.arange(len(firsts)) + firsts
    return positions


def _pack(arrays: Sequence[NDArray[Any]], first: int, second: int) -> bytes:
    data = b"".join(array.tobytes() for array in arrays)
    return _HEADER.pack(VERSION, first, second) + zlib.compress(data, 6)


def _unpack(block: bytes) -> tuple[int, int, bytes]:
    try:
        version, first, second = _HEADER.unpack_from(block)
        if version != VERSION:
            raise ValueError(f"a block of version {version}; this server reads version {VERSION}")
        return first, second, zlib.decompress(block[_HEADER.size :])
    except (struct.error, zlib.error) as error:
        raise ValueError(f"a block that cannot be read: {error}") from None


def _arrays(data: bytes, kinds: Sequence[tuple[str, int]]) -> list[NDArray[Any]]:
    arrays = []
    start = 0
    for kind, number in kinds:
        arrays.append(np.frombuffer(data, kind, number, start))
        start += number * np.dtype(kind).itemsize
    return arrays

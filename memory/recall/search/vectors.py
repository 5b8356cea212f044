"""Passage vectors: their stored format, and their closeness to a question's vector.

Each vector is stored as 8-bit integers plus one factor: 256 dimensions take up 260 bytes, and the
ranking by closeness stays the same. Each search compares all of a user's vectors, which takes about
10 milliseconds for 100,000 vectors; docs/search.md describes where this approach reaches its limit,
and what to do then.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

# A block's header: the format version, the length of the model's name in UTF-8 bytes, the number of
# vectors, and their number of dimensions.
_HEADER = struct.Struct("<BHII")
_VERSION = 1
MAX_NAME = 200
# How many vectors to convert at a time: as many as fit into a CPU cache.
_ROWS = 2048


@dataclass(frozen=True)
class Vectors:
    """Vectors made by the same model, one for each document in a segment."""

    model: str
    values: NDArray[np.int8]
    factors: Floats

    @property
    def dimensions(self) -> int:
        """The number of dimensions."""
        return int(self.values.shape[1])

    @property
    def bytes(self) -> int:
        """The memory that the vectors take up, in bytes."""
        return self.values.nbytes + self.factors.nbytes

    def closeness(self, question: Floats) -> Floats:
        """Return each vector's cosine similarity to a question's vector."""
        products = np.empty(len(self.values), np.float32)
        for start in range(0, len(products), _ROWS):
            rows = slice(start, start + _ROWS)
            products[rows] = self.values[rows].astype(np.float32) @ question
        closeness: Floats = products * self.factors
        return closeness


def quantised(model: str, vectors: Floats) -> Vectors:
    """Convert unit vectors (or zero vectors) to the stored format."""
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    factors = np.where(largest > 0, largest / 127, 1.0).astype(np.float32)
    values = np.rint(vectors / factors[:, None]).astype(np.int8)
    return Vectors(model, values, factors)


def joined(parts: Sequence[Vectors | None]) -> Vectors | None:
    """Combine segments' vectors; return None if any vectors are missing or their models differ."""
    present = [part for part in parts if part is not None]
    # If all of a segment's texts are blank, their vectors have no dimensions.
    filled = [part for part in present if len(part.values) and part.dimensions] or present[:1]
    kinds = {(part.model, part.dimensions) for part in filled}
    if not present or len(present) < len(parts) or len(kinds) > 1:
        return None
    ((model, dimensions),) = kinds
    values = [
        part.values
        if part.dimensions == dimensions
        else np.zeros((len(part.values), dimensions), np.int8)
        for part in present
    ]
    return Vectors(
        model, np.concatenate(values), np.concatenate([part.factors for part in present])
    )


def encode(vectors: Vectors | None) -> bytes:
    """Return the block for a segment's vectors; segments without vectors have this block, too."""
    if vectors is None:
        return _HEADER.pack(_VERSION, 0, 0, 0)
    name = vectors.model.encode()[:MAX_NAME]
    header = _HEADER.pack(_VERSION, len(name), len(vectors.values), vectors.dimensions)
    return b"".join(
        [header, name, vectors.factors.astype("<f4").tobytes(), vectors.values.tobytes()]
    )


def kind_of(block: bytes) -> tuple[str, int]:
    """Return the model that made a block's vectors ("" if none) and their number of dimensions.

    The first BEGINNING bytes of the block are sufficient. Raises ValueError if they are invalid.
    """
    name, _, dimensions, _ = _read_header(block)
    return name, dimensions


# A block's first BEGINNING bytes always include the whole name of the model.
BEGINNING = _HEADER.size + MAX_NAME


def decode(block: bytes) -> Vectors | None:
    """Return a block's vectors; raises ValueError if they can't be read."""
    name, number, dimensions, start = _read_header(block)
    if not name:
        return None
    if len(block) != start + number * (4 + dimensions):
        raise ValueError(f"a block of {number} vectors with {len(block)} bytes")
    factors = np.frombuffer(block, "<f4", number, start).astype(np.float32)
    values = np.frombuffer(block, np.int8, number * dimensions, start + 4 * number)
    if not np.isfinite(factors).all():
        raise ValueError("a block of vectors that are not finite")
    return Vectors(name, values.reshape(number, dimensions), factors)


def _read_header(block: bytes) -> tuple[str, int, int, int]:
    try:
        version, length, number, dimensions = _HEADER.unpack_from(block)
        if version != _VERSION:
            raise ValueError(f"a block of vectors of version {version}")
        start = _HEADER.size + length
        return bytes(block[_HEADER.size : start]).decode(), number, dimensions, start
    except struct.error as error:
        raise ValueError(f"cannot read a block of vectors: {error}") from None

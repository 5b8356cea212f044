"""Embedding models: texts as vectors, which are close where texts mean the same.

`embedder` returns the one that the settings name. A model may fail at any time: a search goes on by
words then, and says so.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import structlog
from django.conf import settings
from numpy.typing import NDArray

if TYPE_CHECKING:
    from memory.models import MemoryUser
    from memory.models.leased import LeasedWork

logger = structlog.get_logger(__name__)

OFF = "off"
WORDLLAMA = "wordllama"

Floats = NDArray[np.float32]


class EmbeddingFailed(Exception):
    """The model gave no vectors; the message says why."""


class EmbedderBusy(EmbeddingFailed):
    """As many threads of this process wait for the model as may; it is nobody's failure."""


class Embedder(Protocol):
    """A model that makes vectors."""

    @property
    def name(self) -> str:
        """What tells its vectors from those of another model."""

    def embed(self, texts: Sequence[str], *, is_question: bool = False) -> Floats:
        """Return a vector of length 1 for each text, of length 0 for a text without tokens.

        Raises EmbeddingFailed; LeaseLost if the texts were read for work that was taken away.
        """


def embedder(
    user: "MemoryUser", *, hurried: bool = False, lease: "LeasedWork | None" = None
) -> Embedder | None:
    """Return the model that the settings name, None for none; raises EmbeddingFailed.

    A model of the server's own is loaded with the first use, and once in a process. A provider is
    asked for the user, whose workspace it is counted to; `hurried` is for somebody who waits, and
    `lease` the work for which texts are read: it is sent none after that was taken away, since they
    may have been redacted.
    """
    from memory.recall.search.embeddings import remote

    if is_remote(settings.UAC_EMBEDDINGS):
        return remote.make(settings.UAC_EMBEDDINGS, user, hurried=hurried, lease=lease)
    return _load(settings.UAC_EMBEDDINGS)


def find_earlier(name: str, user: "MemoryUser") -> Embedder | None:
    """Return the model that made vectors of this name, if it can be asked though another is set:
    UAC_EMBEDDINGS_PREVIOUS names it, it is the one that is set with other dimensions, or it is part
    of the installation. Raises EmbeddingFailed.

    No other is asked: a question must not go to a provider whom nobody has named.
    """
    from memory.recall.search.embeddings import remote

    current, previous = settings.UAC_EMBEDDINGS, settings.UAC_EMBEDDINGS_PREVIOUS
    if is_remote(current) and remote.make(current, user).name == name:
        return None  # it has just failed
    for named in (previous, current):
        if is_remote(named) and (found := remote.make_earlier(name, named, user)):
            return found
    for named in (previous, WORDLLAMA):
        if not named or is_remote(named) or (named == WORDLLAMA and named not in name):
            continue
        model = _load(named)
        if model is not None and model.name == name:
            return model
    return None


def is_remote(named: str) -> bool:
    """Tell whether this is a provider's model."""
    return named.startswith("openai:")


def closeness(question: str, texts: Sequence[str]) -> list[float]:
    """Return how close each text is to a question, from 0 to 1; without a model, 0 throughout.

    The texts are embedded for this question alone, so where a provider's model is set the
    installation's own compares them.
    """
    nothing = [0.0] * len(texts)
    named = settings.UAC_EMBEDDINGS
    try:
        model = _load(WORDLLAMA if is_remote(named) else named)
        if model is None or not texts:
            return nothing
        asked, *made = model.embed([question, *texts])
    except EmbeddingFailed as error:
        logger.warning("compared_by_words_alone", error=str(error))
        return nothing
    return [max(0.0, min(1.0, float(one @ asked))) for one in made]


def validate(named: str) -> str | None:
    """Return what is wrong with the value of UAC_EMBEDDINGS, None if nothing is."""
    from memory.recall.search.embeddings import remote, static

    if named in (OFF, WORDLLAMA):
        return None
    if is_remote(named):
        return remote.validate(named)
    folder = Path(named)
    if not folder.is_absolute():
        return (
            f"Set it to {WORDLLAMA}, {OFF}, the absolute path of a folder, or a provider's model as"
            " openai:text-embedding-3-small."
        )
    try:
        static.find_files(folder)
    except EmbeddingFailed as error:
        return str(error)
    return None


def wrong_settings() -> dict[str, str]:
    """Return which of the settings are wrong, and what is wrong with them, by their names."""
    from memory.recall.search.embeddings import remote

    found = remote.wrong_settings()
    for name, value in (
        ("UAC_EMBEDDINGS", settings.UAC_EMBEDDINGS),
        ("UAC_EMBEDDINGS_PREVIOUS", settings.UAC_EMBEDDINGS_PREVIOUS or OFF),
    ):
        if problem := validate(value):
            found[name] = problem
    return found


@functools.lru_cache(maxsize=3)
def _load(named: str) -> Embedder | None:
    from memory.recall.search.embeddings import static  # its libraries take a while

    if named == OFF:
        return None
    return static.load_wordllama() if named == WORDLLAMA else static.load_folder(Path(named))

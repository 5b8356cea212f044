"""Embedding models, which map texts with similar meanings to vectors close to each other.

`embedder` returns the configured model. By default, that is a static model for logs and questions
in English, and a multilingual one, which is slower and larger, for all others (`for_texts`). A
model can fail at any time; searches then use words only, and report the failure.
"""

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from django.conf import settings

from memory.language.detection import may_be_english
from memory.recall.search.embeddings import multilingual
from memory.recall.search.embeddings.interface import Embedder, EmbeddingFailed

if TYPE_CHECKING:
    from memory.kernel.models.leased import LeasedWork
    from memory.kernel.models.users import MemoryUser

logger = structlog.get_logger(__name__)

OFF = "off"
WORDLLAMA = "wordllama"
MULTILINGUAL = "multilingual"
# The model WORDLLAMA for English, and MULTILINGUAL for logs with texts or questions in others.
LOCAL = "local"


def embedder(
    user: "MemoryUser", *, hurried: bool = False, lease: "LeasedWork | None" = None
) -> Embedder | None:
    """Return the configured model, or None if there is none; may raise EmbeddingFailed.

    If it depends on the language, this is the model for English; see `for_texts`. A local model is
    loaded once per process, when it is first used. A provider's model is used on
    behalf of the user, whose workspace pays for it. Set `hurried` if somebody is waiting for the
    result. `lease` is the leased work that the texts belong to: once the lease is lost, no more
    texts are sent, because they may have been redacted.
    """
    from memory.recall.search.embeddings import remote

    if is_remote(settings.UAC_EMBEDDINGS):
        return remote.make(settings.UAC_EMBEDDINGS, user, hurried=hurried, lease=lease)
    return _load(WORDLLAMA if settings.UAC_EMBEDDINGS == LOCAL else settings.UAC_EMBEDDINGS)


def for_texts(model: Embedder | None, texts: Iterable[str]) -> Embedder | None:
    """Return the model to use for these texts, given the one for English.

    May raise EmbeddingFailed.
    """
    if settings.UAC_EMBEDDINGS == LOCAL and not all(map(may_be_english, texts)):
        return _load(MULTILINGUAL)
    return model


def for_log(model: Embedder | None, *, is_multilingual: bool) -> Embedder | None:
    """Return the model to use for a whole log, given the one for English.

    May raise EmbeddingFailed.
    """
    if settings.UAC_EMBEDDINGS == LOCAL and is_multilingual:
        return _load(MULTILINGUAL)
    return model


def is_multilingual(name: str) -> bool:
    """Return whether vectors with this name are those of the multilingual model."""
    return name == multilingual.NAME


def find_installed(name: str) -> Embedder | None:
    """Return the model that made the vectors with this name, if it comes with the server.

    A provider's earlier model is not asked: questions go to the configured provider alone. May
    raise EmbeddingFailed.
    """
    if is_multilingual(name):
        return _load(MULTILINGUAL)
    if WORDLLAMA in name and (model := _load(WORDLLAMA)) and model.name == name:
        return model
    return None


def is_remote(named: str) -> bool:
    """Return whether this value of UAC_EMBEDDINGS names a provider's model."""
    return named.startswith("openai:")


def closeness(question: str, texts: Sequence[str]) -> list[float]:
    """Return how close each text is to a question, from 0 to 1; all zeros if there is no model.

    The vectors are not kept, so the local model is used even if a provider's model is configured.
    """
    nothing = [0.0] * len(texts)
    named = settings.UAC_EMBEDDINGS
    try:
        model = _load(WORDLLAMA if is_remote(named) or named == LOCAL else named)
        model = for_texts(model, [question, *texts])
        if model is None or not texts:
            return nothing
        query_vector, *made = model.embed([question, *texts])
    except EmbeddingFailed as error:
        logger.warning("compared_by_words_alone", error=str(error))
        return nothing
    return [max(0.0, min(1.0, float(one @ query_vector))) for one in made]


def validate(named: str) -> str | None:
    """Return what is wrong with a UAC_EMBEDDINGS value, or None if it is valid."""
    from memory.recall.search.embeddings import remote, static

    if named in (OFF, WORDLLAMA, MULTILINGUAL, LOCAL):
        return None
    if is_remote(named):
        return remote.validate(named)
    folder = Path(named)
    if not folder.is_absolute():
        return (
            f"Set it to {LOCAL}, {WORDLLAMA}, {MULTILINGUAL}, {OFF}, the absolute path of a folder,"
            " or a provider's model such as openai:text-embedding-3-small."
        )
    try:
        static.find_files(folder)
    except EmbeddingFailed as error:
        return str(error)
    return None


def validate_server_settings() -> dict[str, str]:
    """Map each invalid setting's name to what is wrong with it."""
    from memory.recall.search.embeddings import remote

    errors = remote.validate_server_settings()
    if problem := validate(settings.UAC_EMBEDDINGS):
        errors["UAC_EMBEDDINGS"] = problem
    return errors


@functools.lru_cache(maxsize=4)
def _load(named: str) -> Embedder | None:
    from memory.recall.search.embeddings import static  # importing its libraries is slow

    if named == OFF:
        return None
    if named == MULTILINGUAL:
        return multilingual.load()
    return static.load_wordllama() if named == WORDLLAMA else static.load_folder(Path(named))

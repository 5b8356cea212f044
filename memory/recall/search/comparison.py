"""Comparing a question with passages by meaning, using vectors from one or more models."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import structlog

from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.users import MemoryUser
from memory.recall.search import embeddings
from memory.recall.search.candidates import RankedCorpus
from memory.recall.search.embeddings import embedder
from memory.recall.search.embeddings.interface import Embedder, EmbeddingFailed
from memory.recall.search.ranking import USUAL_CLOSENESS, deviation_of
from memory.recall.search.results import Meaning
from memory.recall.search.segments import Segment
from memory.recall.search.vectors import Floats

logger = structlog.get_logger(__name__)

# Two models' closeness values are put on the same scale if each model has compared at least this
# many passages.
MIN_COMPARABLE = 32


def embed_question(
    user: MemoryUser, question: str, lease: LeasedWork | None = None
) -> tuple[Embedder | None, Floats | None, str | None]:
    """Return (model, question's vector, problem); if the model failed, only `problem` is set."""
    try:
        model = embeddings.for_texts(embedder(user, hurried=True, lease=lease), [question])
        if model is None:
            return None, None, None
        (vector,) = model.embed([question], is_question=True)
    except EmbeddingFailed as error:
        logger.warning("search_by_words_alone", error=str(error))
        return None, None, str(error)
    # A question without tokens has no meaning to compare.
    return (model, vector, None) if vector.any() else (None, None, None)


class Comparison:
    """Compares a question with passages, using for each passage the model that made its vector.

    Each earlier model is called only once, when the first of its vectors is encountered.
    """

    def __init__(
        self, question: str, model: Embedder | None, vector: Floats | None, problem: str | None
    ) -> None:
        self._question = question
        self._questions: dict[str, Floats | None] = {}
        if model is not None:
            self._questions[model.name] = vector
        self.model, self.problem = model, problem
        # Maps each model's name to the number of passages it has compared.
        self.models: dict[str, int] = {}
        self.mismatch = ""

    @property
    def is_on(self) -> bool:
        """True if meanings are compared: a model embedded the question, or tried to and failed."""
        return self.model is not None or self.problem is not None

    def of_all(self, segments: Sequence[Segment]) -> list[Floats] | None:
        """Return how close each segment's passages are to the question, with NaN for "unknown".

        Returns None if the model failed and no other model has compared any passages.
        """
        closeness = [self._measure_closeness(segment) for segment in segments]
        for segment, close in zip(segments, closeness, strict=True):
            if number := int(np.isfinite(close).sum()):
                assert segment.vectors is not None
                name = segment.vectors.model
                self.models[name] = self.models.get(name, 0) + number
        if len(self.models) > 1:
            _put_on_one_scale(
                [one.vectors.model if one.vectors else "" for one in segments],
                closeness,
                self.models,
            )
        return closeness if self.models or self.model is not None else None

    def _measure_closeness(self, segment: Segment) -> Floats:
        unknown = np.full(len(segment.seqs), np.nan, np.float32)
        held = segment.vectors
        if held is None:
            return unknown
        if not held.dimensions:  # all of the segment's texts are blank
            return np.zeros(len(segment.seqs), np.float32)
        if (vector := self._ask(held.model)) is None:
            return unknown
        if held.dimensions != len(vector):
            self.mismatch = (
                f"vectors of {held.dimensions} dimensions, but {held.model} returns {len(vector)}:"
                " set UAC_EMBEDDINGS_DIMENSIONS"
            )
            return unknown
        return held.closeness(vector)

    def _ask(self, name: str) -> Floats | None:
        if name not in self._questions:
            self._questions[name] = None
            try:
                if earlier := embeddings.find_installed(name):
                    (vector,) = earlier.embed([self._question], is_question=True)
                    self._questions[name] = vector
            except EmbeddingFailed as error:
                logger.warning("earlier_model_not_asked", model=name, error=str(error))
        return self._questions[name]


def _put_on_one_scale(
    names: Sequence[str], closeness: list[Floats], models: Mapping[str, int]
) -> None:
    """Scale closeness to the mean and deviation of the model that compared the most passages.

    Without this, values from different models couldn't be compared: a cosine of 0.7 is high for one
    model and meaningless for another.
    """
    measures = {}
    for name in models:
        parts = [one for owner, one in zip(names, closeness, strict=True) if owner == name]
        values = np.concatenate(parts)
        values = values[np.isfinite(values)]
        if len(values) >= MIN_COMPARABLE:
            measures[name] = (
                values.mean(),
                deviation_of([values.astype(np.float64)], USUAL_CLOSENESS),
            )
    if len(measures) < 2:
        return
    mean, deviation = measures[max(measures, key=lambda name: models[name])]
    for index, name in enumerate(names):
        if name in measures:
            own_mean, own_deviation = measures[name]
            scaled = (closeness[index] - own_mean) / own_deviation * deviation + mean
            closeness[index] = scaled.astype(np.float32)


def describe_meaning(compared: Comparison, rankings: Collection[RankedCorpus]) -> Meaning:
    """Describe to what extent meanings were compared in these corpora, and the problem, if any."""
    problem = compared.problem
    close = [one.corpus.closeness for one in rankings if one.corpus.closeness is not None]
    number = sum(int(np.isfinite(one).sum()) for one in close)
    if missing := sum(len(one) for one in close) - number:
        why = compared.mismatch or "no vectors from this model yet"
        problem = (
            f"{problem} {missing} passages were searched by words only."
            if problem
            else f"{missing} passages were searched by words only: they have {why}."
        )
    # The model that compared the most passages comes first. If no passages were compared, the name
    # is that of the model that could have compared them.
    by_number = sorted(compared.models, key=lambda name: -compared.models[name])
    answering = compared.model.name if compared.model is not None else None
    names = (" and ".join(by_number) or answering) if close else None
    return Meaning(names, number, problem)

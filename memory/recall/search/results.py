"""Results of a search: hits, their explanations, and to what extent meaning was compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memory.models import LogEntry
from memory.recall.search.documents import CorpusName
from memory.recall.search.followups import Question


@dataclass(frozen=True)
class Term:
    """The contribution of one of the question's terms to a hit.

    `heard` is how often the term occurs in the hit's best passage and, with less weight, around it;
    `score` is the part of the hit's score that is due to the term.
    """

    term: str
    heard: float
    score: float


@dataclass(frozen=True)
class Explanation:
    """An explanation of a hit's position among the results.

    It has the rank of the hit's best passage among those of all entries in the corpus, whether the
    question names the speaker, the terms that matched, and the part of the score that is due to
    meaning.
    """

    rank: int
    of: int
    speaker_named: bool
    terms: Sequence[Term]
    meaning: float


@dataclass(frozen=True)
class Hit:
    """An entry that was found.

    `score`, from 0 to 1, is the score of the entry's best passage. If the entry's text is long,
    `text` has only the matching passages, and `is_cut` is set.
    """

    entry: LogEntry
    corpus: CorpusName
    score: float
    text: str
    is_cut: bool
    words: int
    explanation: Explanation | None

    @property
    def rests_on(self) -> list[int]:
        """The numbers of this entry and of those that it was derived from."""
        return [self.entry.seq, *self.entry.derived_from]


@dataclass(frozen=True)
class Meaning:
    """The model that compared meanings, the number of passages compared, and the problem, if any.

    As long as some segments have an earlier model's vectors, both models are named.
    """

    model: str | None
    compared: int
    problem: str | None


@dataclass(frozen=True)
class Found:
    """The result of a search.

    It has the hits, best first; the terms searched for; the number of entries ranked per corpus; to
    what extent meaning was compared; and the completed question.
    """

    hits: Sequence[Hit]
    terms: Sequence[str]
    searched: Mapping[str, int]
    meaning: Meaning
    question: Question

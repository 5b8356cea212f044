"""Search results: hits, explanations, and to what extent meanings were compared."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memory.log.models.entries import LogEntry
from memory.recall.search.documents import CorpusName
from memory.recall.search.followups import Question
from memory.recall.search.passages import Passage
from memory.recall.search.statuses import EntryStatus


@dataclass(frozen=True)
class Term:
    """The contribution of one of the question's terms to a hit.

    `heard` is how often the term occurs in the hit's best passage and, with less weight, around it;
    `score` is the term's part of the hit's score.
    """

    term: str
    heard: float
    score: float


@dataclass(frozen=True)
class Explanation:
    """An explanation of where a hit ranks among the results.

    It has the rank of the hit's best passage among the best passages of all entries in the corpus,
    whether the question names the speaker, the terms that matched, and how much of the score is due
    to meaning.
    """

    rank: int
    of: int
    speaker_named: bool
    terms: Sequence[Term]
    meaning: float


@dataclass(frozen=True)
class Hit:
    """An entry that was found.

    `score`, from 0 to 1, is that of the entry's best passage. If the entry's text is long, `text`
    contains only the matching passages, and `is_cut` is set. `passages` are these passages with
    their scores, best first. `status` says whether a fact or record
    still holds, if the search was asked to find out.
    """

    entry: LogEntry
    corpus: CorpusName
    score: float
    text: str
    is_cut: bool
    words: int
    explanation: Explanation | None
    status: EntryStatus | None = None
    passages: Sequence[tuple[float, Passage]] = ()

    @property
    def rests_on(self) -> list[int]:
        """The numbers of the hit's entry and of the entries that entry was derived from."""
        return [self.entry.seq, *self.entry.derived_from]


@dataclass(frozen=True)
class Meaning:
    """The model that compared meanings, how many passages it compared, and the problem, if any.

    `model` names both models as long as some segments still have an earlier model's vectors.
    """

    model: str | None
    compared: int
    problem: str | None


@dataclass(frozen=True)
class Found:
    """A search result.

    It has the hits, best first; the terms searched for; the number of entries ranked in each
    corpus; to what extent meanings were compared; the completed question; and the numbers of the
    entries that rank among the hits and are left out because they have lapsed.
    """

    hits: Sequence[Hit]
    terms: Sequence[str]
    searched: Mapping[str, int]
    meaning: Meaning
    question: Question
    lapsed: Sequence[int] = ()

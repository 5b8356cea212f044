"""Follow-up questions, which depend on earlier turns: "And in May?", "When was she there?"

No grammar of any language is used here: the fewer words a question has of its own, the more the
words of the turns before it count. They always count for less than the question's own, so a
complete question finds what it would find alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from memory.kernel.texts import with_few_marks
from memory.recall.search.question_dates import QuestionDates
from memory.recall.search.words import terms, terms_by_language, terms_of_names, written_words

USER, ASSISTANT = "user", "assistant"
# Only the last MAX_CHARACTERS characters of each of the newest MAX_TURNS turns are read.
MAX_TURNS = 8
MAX_CHARACTERS = 2000
# A question longer than MAX_QUESTION characters is considered complete.
MAX_QUESTION = 400
# A question with more terms of its own is considered complete.
MAX_OWN_TERMS = 3
# Words are taken from this many exchanges: the last words of each turn, and this many in all.
MAX_EXCHANGES = 2
MAX_OF_TURN = 12
MAX_TAKEN = 16
# Weights of words from the last exchange, if the question has one term of its own; the question's
# own terms have a weight of 1. With each further term, the weights are multiplied by PER_TERM, and
# with each exchange further back by FURTHER.
OWN, OTHERS = 0.4, 0.3
PER_TERM = 0.35
FURTHER = 0.8
# The weight of the stems that a name has in other languages.
INFLECTED = 0.5
# The weight of the terms of a relative date.
DATED = 0.5


@dataclass(frozen=True)
class Turn:
    """A turn in the conversation that precedes the question."""

    role: str
    content: str


@dataclass(frozen=True)
class Question:
    """A question and its completion.

    `taken` maps words borrowed from earlier turns to their weights; `dates` are those that the
    question names relative to now.
    """

    text: str
    taken: Mapping[str, float] = field(default_factory=dict)
    dates: QuestionDates | None = None

    @property
    def taken_as(self) -> str | None:
        """The completed question, or None if the question was left unchanged."""
        return " ".join([self.text, *self.taken]) if self.taken else None

    @property
    def meant(self) -> str:
        """The question to search for, as a single text."""
        return self.taken_as or self.text

    def weights(self) -> dict[str, float]:
        """Return each term's weight, the question's own terms first."""
        own_terms, other_terms = terms_by_language(self.text)
        weights = dict.fromkeys([*own_terms, *other_terms], 1.0)
        for words, weight in self.taken.items():
            for term in chain(*terms_by_language(words)):
                weights.setdefault(term, weight)
        for term in terms_of_names(self.text):
            weights.setdefault(term, INFLECTED)
        for term in self.dates.terms if self.dates else ():
            weights.setdefault(term, DATED)
        return weights


def complete(question: str, turns: Sequence[Turn] = ()) -> Question:
    """Return the question with words from the turns before it (given oldest first), if it is short.

    The words have less weight than the question's own.
    """
    own_terms = set(terms(question))
    if not 0 < len(question.strip()) <= MAX_QUESTION or len(own_terms) > MAX_OWN_TERMS:
        return Question(question)
    seen, taken = set(own_terms), dict[str, float]()
    factor = PER_TERM ** max(len(own_terms) - 1, 0)
    for exchange in _newest_exchanges(shortened(turns)):
        for turn in exchange:
            weight = (OWN if turn.role == USER else OTHERS) * factor
            for word in _last_words(turn.content):
                if new := set(terms(word)) - seen:
                    seen |= new
                    taken[word] = weight
        factor *= FURTHER
    heaviest = sorted(taken.items(), key=lambda one: -one[1])[:MAX_TAKEN]
    return Question(question, dict(heaviest))


def shortened(turns: Sequence[Turn]) -> list[Turn]:
    """Return the newest non-empty turns, with long ones cut to their last characters."""
    spoken = [turn for turn in turns if turn.content.strip()]
    return [
        Turn(turn.role, with_few_marks(turn.content)[-MAX_CHARACTERS:])
        for turn in spoken[-MAX_TURNS:]
    ]


def _newest_exchanges(turns: Sequence[Turn]) -> Iterator[list[Turn]]:
    """Yield the last exchanges, newest first: what the person said, and the answers to it.

    Turns without any terms, such as "?!", are left out.
    """
    turns = [turn for turn in turns if terms(turn.content)]
    starts = [number for number, turn in enumerate(turns) if turn.role == USER and number]
    ends = [*starts, len(turns)]
    exchanges = [list(turns[start:end]) for start, end in zip([0, *starts], ends, strict=True)]
    yield from exchanges[: -MAX_EXCHANGES - 1 : -1]


def _last_words(text: str) -> list[str]:
    words = {term: word for word in written_words(text) for term in terms(word)}
    return list(dict.fromkeys(words.values()))[-MAX_OF_TURN:]

"""Follow-up questions, which depend on earlier turns: "And in May?", "When was she there?"

No language model is called here. A complete question is left unchanged. A follow-up borrows words
from earlier turns: for "she" the last person named, for "there" a place, for "then" a date, and
otherwise words about the topic of these turns (newest turns first, and the person's own turns
before the assistant's). Borrowed words count for less than the question's own, so a wrong guess
costs little. The same goes for a completion by a language model, if a request asks for one
(`memory.api.completing`).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property

from memory.recall.search.languages import (
    BARE_VERBS,
    BE,
    CLAUSES,
    ENGLISH,
    IMPERSONAL,
    SAYING,
    SPANS,
    SUBJECTS,
    WEATHER,
)
from memory.recall.search.utterances import BREAKS, Name, Utterance
from memory.recall.search.words import UNSPACED, number_of_words, terms
from memory.texts import with_few_marks

USER, ASSISTANT = "user", "assistant"
# Ways to complete a question: with words from earlier turns, or by a language model.
WORDS, MODEL = "words", "model"
# Only the last MAX_CHARACTERS characters of each of the newest MAX_TURNS turns are read.
MAX_TURNS = 8
MAX_CHARACTERS = 2000
# A question longer than MAX_QUESTION characters is considered complete. A question that was
# completed by a model may have up to MAX_COMPLETED characters.
MAX_QUESTION = 400
MAX_COMPLETED = 2 * MAX_QUESTION
# The maximum number of words to borrow in total and from a single turn, and how many borrowed words
# are enough to stop looking at earlier exchanges.
MAX_TAKEN = 8
MAX_OF_TURN = 5
ENOUGH = 2
# Weights for words from earlier turns; the question's own words have a weight of 1. REFERENT is for
# a pronoun's referent and for a language model's words, OWN for the person's words, and OTHERS for
# the assistant's. With each exchange further back, these weights are multiplied by FURTHER.
REFERENT, OWN, OTHERS = 0.8, 0.6, 0.4
FURTHER = 0.8
# A question with more content words than this is complete, even if it begins with "and".
MAX_OWN_WORDS = 3
# In scripts whose function words we don't know, a question of up to this many words or characters
# may be a follow-up.
SHORT_WORDS, SHORT_CHARACTERS = 3, 8
MAX_RUN = 12

_UNSPACED = re.compile(f"[{UNSPACED}]")
_LATIN = re.compile(r"[A-Za-z]")


class Leaning(Enum):
    """The ways in which a question can depend on earlier turns."""

    PERSON = auto()
    PLACE = auto()
    TIME = auto()
    THING = auto()
    GOES_ON = auto()
    """The question replaces part of the previous one: "And in May?"."""
    IS_SHORT = auto()


@dataclass(frozen=True)
class Turn:
    """A turn in the conversation that precedes the question."""

    role: str
    content: str


@dataclass(frozen=True)
class Question:
    """A question and its completion.

    `taken` maps words borrowed from earlier turns to their weights; `sentence` is a language
    model's version of the question. `problem` says why a requested completion failed.
    """

    text: str
    taken: Mapping[str, float] = field(default_factory=dict)
    sentence: str = ""
    problem: str | None = None

    @property
    def taken_as(self) -> str | None:
        """The completed question, or None if the question was left unchanged."""
        if self.sentence:
            return self.sentence
        return " ".join([self.text, *self.taken]) if self.taken else None

    @property
    def completed_by(self) -> str | None:
        """The method that completed the question, or None if it was left unchanged."""
        if self.sentence:
            return MODEL
        return WORDS if self.taken else None

    @property
    def meant(self) -> str:
        """The question to search for, as a single text."""
        return self.taken_as or self.text

    def weights(self) -> dict[str, float]:
        """Return each term's weight, the question's own terms first."""
        found = dict.fromkeys(terms(self.text), 1.0)
        added = {self.sentence: REFERENT} if self.sentence else self.taken
        for words, weight in added.items():
            for term in terms(words):
                found.setdefault(term, weight)
        return found


def understand(question: str, turns: Sequence[Turn] = ()) -> Question:
    """Return the question with the words it borrows from earlier turns (given oldest first)."""
    said = shortened(turns)
    if not _can_lean(question, said):
        return Question(question)
    asked = Utterance.of(question)
    if not _LATIN.search(question):
        return Question(question, _of_other_script(asked, question, said))
    leanings = _leanings(asked)
    if not leanings:
        return Question(question)
    newest_first = [_Said(one) for one in reversed(said)]
    return Question(question, _Taking(asked, leanings, newest_first).words())


def may_lean(question: str, turns: Sequence[Turn]) -> bool:
    """Return whether a question may depend on earlier turns.

    In a language whose function words we don't know, any question may.
    """
    if not _can_lean(question, shortened(turns)):
        return False
    asked = Utterance.of(question)
    return not asked.is_of_known_language or bool(_leanings(asked))


def _can_lean(question: str, said: Sequence[Turn]) -> bool:
    return bool(said and question.strip()) and len(question) <= MAX_QUESTION


def shortened(turns: Sequence[Turn]) -> list[Turn]:
    """Return the newest non-empty turns, with long ones cut to their last characters."""
    said = [one for one in turns if one.content.strip()]
    return [
        Turn(one.role, with_few_marks(one.content)[-MAX_CHARACTERS:]) for one in said[-MAX_TURNS:]
    ]


# -- Detecting a follow-up ------------------------------------------------------------------------


def _leanings(asked: Utterance) -> set[Leaning]:
    """Return the ways in which a question depends on earlier turns; empty if it is complete."""
    language = asked.language
    found = {
        leaning
        for place in range(len(asked.folded))
        for leaning in [_pronoun(asked, place)]
        if leaning is not None
    }
    own = [place for place in range(len(asked.folded)) if asked.has_content(place)]
    names = {place for one in asked.names for place in range(one.start, one.end)}
    if (begins := _opening(asked)) is not None:
        is_whole = asked.at(begins) in language.questions and asked.at(begins + 1)
        if not is_whole and len(own) <= MAX_OWN_WORDS:
            found.add(Leaning.GOES_ON)
    # "Side effects?" asks about the side effects of something mentioned earlier.
    is_fragment = len(asked.folded) == 3 and asked.at(2) == "?" and not names - {0}
    stands = (
        (len(own) >= 2 and not is_fragment)
        or _is_about_oneself(asked, own)
        or (set(own) & names and len(asked.folded) > 3)
    )
    if not stands and not found:
        found.add(Leaning.IS_SHORT)
    return found


def _is_about_oneself(asked: Utterance, own: Sequence[int]) -> bool:
    """Return whether "I" and one more word make a question complete, as in "Where do I live?".

    They don't make "What did I pay?" or "Which seat did I have?" complete.
    """
    return (
        any(word in asked.language.first_person for word in asked.folded)
        and any(asked.at(place) not in BARE_VERBS for place in own)
        and asked.at(0) != "which"
    )


def _opening(asked: Utterance) -> int | None:
    """Return where a question begins after "and" or "what about", or None if it has neither."""
    has_opener = asked.at(0) in asked.language.openers
    for start in (0, 1) if has_opener else (0,):
        for phrase in asked.language.phrases:
            end = start + len(phrase)
            if tuple(asked.folded[start:end]) == phrase:
                return end
    return 1 + (asked.at(1) == ",") if has_opener else None


def _pronoun(asked: Utterance, place: int) -> Leaning | None:
    """Return the kind of thing outside the question that a word refers to, or None if none."""
    language, word = asked.language, asked.at(place)
    if word in language.persons:
        named = [*(one for one, _ in asked.persons), *(n.start for n in asked.names if not n.is_at)]
        if any(one < place for one in named):
            return None
        is_many = language is ENGLISH and word.startswith("the")
        return None if is_many and _has_plural_before(asked, place) else Leaning.PERSON
    if language is not ENGLISH:
        return _foreign_pronoun(asked, place)
    if word in language.places:
        return None if _is_existential(asked, place) else Leaning.PLACE
    if word in language.times:
        return None if "if" in asked.folded[:place] else Leaning.TIME
    if word in language.things:
        return _thing(asked, place)
    return None


def _foreign_pronoun(asked: Utterance, place: int) -> Leaning | None:
    language, word = asked.language, asked.at(place)
    if word in language.places:
        return Leaning.PLACE
    if word in language.times:
        return Leaning.TIME
    is_article = word in language.determiners and asked.has_content(place + 1)
    before = place - 1 >= 0 and any(asked.has_content(one) for one in range(place))
    # In "en mai" and "lo que", the first word refers to nothing.
    is_small = word in language.at or asked.at(place + 1) in ("que", "gibt", "geht")
    if word in language.things and not is_article and not is_small and not before:
        return Leaning.THING
    return None


def _has_plural_before(asked: Utterance, place: int) -> bool:
    return any(asked.has_content(one) and asked.at(one).endswith("s") for one in range(place))


def _is_existential(asked: Utterance, place: int) -> bool:
    """Return whether "there" is existential, as in "is there a pool", rather than a place."""
    before, after = asked.at(place - 1), asked.at(place + 1)
    return after in BE or (before in BE and after not in BREAKS and after != "with")


def _thing(asked: Utterance, place: int) -> Leaning | None:
    """Classify an English "it", "this", "that", "one" or "same"."""
    word, before, after = asked.at(place), asked.at(place - 1), asked.at(place + 1)
    if word in ("this", "these") and (after in SPANS or after == "days"):
        return None
    if word == "that":
        if after in SPANS:
            return Leaning.THING if after == "trip" else Leaning.TIME
        if before in SAYING and after not in BREAKS:
            return None
        if after in SUBJECTS or any(one.start == place + 1 for one in asked.names):
            return None
        if asked.has_content(place - 1):
            # In "the hotel that opened" and "said that I", "that" doesn't refer to anything outside
            # the question; in "did I like that hotel" and "did I say that", it does.
            is_verb = asked.at(place - 2) in SUBJECTS
            if after not in BREAKS and not (is_verb and asked.has_content(place + 1)):
                return None
    if word in ("one", "ones", "same", "former", "latter"):
        selects = before in ("the", "which", "that", "this", "other", "first", "second", "last")
        if word == "same" and asked.names:
            return None  # "Do Jon and Ines play in the same team?"
        return Leaning.THING if selects and (word == "same" or after in BREAKS | BE) else None
    if word in ("it", "its"):
        rest = asked.folded[place + 1 :]
        is_work = asked.written[place] == "IT"
        if is_work or (before == "is" and asked.at(place - 2) == "time"):
            return None
        if after == "been" and "since" in rest:
            return None
        if WEATHER & set(rest[:3]) or (IMPERSONAL & set(rest[:2]) and {"to", "that"} & set(rest)):
            return None
        if _has_thing_before(asked, place):
            return None
    return Leaning.THING


def _has_thing_before(asked: Utterance, place: int) -> bool:
    """Return whether an earlier clause of the question has something "it" may refer to."""
    known = False
    for one in range(place):
        if asked.at(one) in CLAUSES and known:
            return True
        known = known or (
            asked.has_content(one)
            and asked.at(one) not in ENGLISH.relations
            and (
                asked.at(one - 1) in ENGLISH.determiners | {"which", "what"}
                or asked.at(one - 2) in ENGLISH.determiners
            )
        )
    return False


# -- Borrowing words from earlier turns -----------------------------------------------------------


@dataclass(frozen=True)
class _Said:
    """A turn, parsed only when its words are needed."""

    turn: Turn

    @property
    def is_own(self) -> bool:
        """Return whether the turn is by the person whose memory is searched."""
        return self.turn.role == USER

    @cached_property
    def words(self) -> Utterance:
        return Utterance.of(self.turn.content)


class _Taking:
    """Borrows words from the turns before a question."""

    def __init__(
        self, asked: Utterance, leanings: set[Leaning], newest_first: Sequence[_Said]
    ) -> None:
        self._asked = asked
        self._leanings = leanings
        self._turns = newest_first
        self._known = set(terms(" ".join(asked.written)))
        self._taken: dict[str, float] = {}

    def words(self) -> Mapping[str, float]:
        """Return the borrowed words and their weights, highest weight first."""
        found = []
        if Leaning.PERSON in self._leanings:
            found.append(self._refer(self._persons(), others=OWN))
        if Leaning.PLACE in self._leanings:
            found.append(self._refer(self._place()))
        if Leaning.TIME in self._leanings:
            found.append(self._refer(self._date()))
        says_nothing = not any(map(self._asked.has_content, range(len(self._asked.folded))))
        is_open = self._leanings & {Leaning.THING, Leaning.GOES_ON}
        if not found or not all(found) or says_nothing or is_open:
            self._take_topic()
        ordered = sorted(self._taken.items(), key=lambda one: -one[1])
        return dict(ordered[:MAX_TAKEN])

    def _refer(self, words: Sequence[str], *, others: float = REFERENT) -> bool:
        """Borrow a pronoun's possible referents, likeliest first; return whether there are any."""
        for number, one in enumerate(words):
            self._take(one, others if number else REFERENT)
        return bool(words)

    def _take(self, words: str, weight: float) -> bool:
        new = set(terms(words)) - self._known
        if new:
            self._known |= new
            self._taken[words] = weight
        return bool(new)

    def _persons(self) -> Sequence[str]:
        """Return the last person named, and others named along with or before that person.

        The others are named in the same turn or, if that turn is something like "That is your
        sister.", in the turn before it.
        """
        for number, one in enumerate(self._turns):
            said = one.words
            if said.persons:
                place, last = said.persons[-1]
                others = [name for _, name in said.persons[-2:-1]]
                if said.at(place) in said.language.relations:
                    before = self._turns[number + 1 : number + 2]
                    others += [turn.words.persons[-1][1] for turn in before if turn.words.persons]
                return [last, *others]
        return next(([one.words.names[-1].written] for one in self._turns if one.words.names), [])

    def _place(self) -> Sequence[str]:
        """Return the last place named.

        Names without an article, such as towns, are preferred to names with one, such as
        restaurants, and names after "in" are preferred to names after "to".
        """
        kinds: list[Callable[[Name], bool]] = [
            lambda one: one.is_at and not one.has_determiner,
            lambda one: one.is_towards and not one.has_determiner,
            lambda one: one.may_be_place,
        ]
        for fits in kinds:
            for said in self._turns:
                if found := [one.written for one in said.words.names if fits(one)]:
                    return found[-1:]
        return []

    def _date(self) -> Sequence[str]:
        return next((one.words.dates for one in self._turns if one.words.dates), [])

    def _take_topic(self) -> None:
        """Borrow words about the newest exchange's topic, then earlier topics, up to ENOUGH."""
        factor, taken = 1.0, 0
        goes_on = Leaning.GOES_ON in self._leanings and Leaning.THING not in self._leanings
        # The new question isn't about the previous answer.
        own_alone = goes_on and any(one.is_own for one in self._turns)
        for exchange in _exchanges(self._turns):
            for said in exchange:
                if said.is_own or not own_alone:
                    weight = (OWN if said.is_own else OTHERS) * factor
                    taken += sum(self._take(word, weight) for word in self._topic(said.words))
            if taken >= ENOUGH:
                break
            factor *= FURTHER

    def _topic(self, said: Utterance) -> list[str]:
        """Return the most important words about a turn's topic, in the order of the text.

        Names are preferred to numbers and dates, which are preferred to other words; of the latter,
        longer words are preferred because they are rarer.
        """
        left_out = self._replaced(said)
        in_names = {place for one in said.names for place in range(one.start, one.end)}
        names = [(one.start, one.written) for one in said.names if one.start not in left_out]
        numbers: list[tuple[int, str]] = []
        others: list[tuple[int, str]] = []
        for place, word in enumerate(said.written):
            if place in in_names:
                continue
            if said.is_date(place):
                if not self._asked.dates:
                    numbers.append((place, word))
            elif said.has_content(place):
                (numbers if word.isdigit() else others).append((place, word))
        others.sort(key=lambda one: -len(one[1]))
        first = [*names, *numbers, *others][:MAX_OF_TURN]
        return [word for _, word in sorted(first)]

    def _replaced(self, said: Utterance) -> set[int]:
        """Return the positions where the names that the question replaces start in a turn."""
        own = self._asked.names
        if Leaning.GOES_ON not in self._leanings:
            return set()
        if any(one.may_be_place for one in own):
            return {one.start for one in said.names if one.may_be_place}
        is_other_person = bool(own) or Leaning.PERSON in self._leanings
        return {said.names[0].start} if is_other_person and len(said.names) == 1 else set()


def _exchanges(newest_first: Sequence[_Said]) -> Iterator[list[_Said]]:
    """Yield the exchanges, newest first; in each, the person's turn precedes the answers."""
    exchange: list[_Said] = []
    for one in newest_first:
        exchange.insert(0, one)
        if one.is_own:
            yield exchange
            exchange = []
    if exchange:
        yield exchange


def _of_other_script(asked: Utterance, question: str, said: Sequence[Turn]) -> Mapping[str, float]:
    """Borrow words from the last exchange if a question in a non-Latin script is short."""
    is_unspaced = _UNSPACED.search(question) is not None
    most = SHORT_CHARACTERS if is_unspaced else SHORT_WORDS
    if number_of_words(question) - is_unspaced > most:
        return {}
    known = set(terms(question))
    taken: dict[str, float] = {}
    exchange = next(_exchanges([_Said(one) for one in reversed(said)]), [])
    for turn in exchange:
        words = [word for word in turn.words.written if word not in BREAKS and len(word) > 1]
        for word in sorted(words, key=lambda one: -len(one))[:MAX_OF_TURN]:
            if new := set(terms(word[:MAX_RUN])) - known:
                known |= new
                taken[word[:MAX_RUN]] = OWN if turn.is_own else OTHERS
    return dict(list(taken.items())[:MAX_TAKEN])

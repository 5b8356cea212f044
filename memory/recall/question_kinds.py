"""Kinds of questions, recognised by their words, that need a context of another shape.

Most questions are about one thing, which the best passages answer. A question about an order or for
a summary is about a whole history, and a question for a list about all records of some kind. If a
question isn't recognised, it gets the usual context.
"""

import re
from enum import StrEnum

from memory.recall.search.words import terms


class QuestionKind(StrEnum):
    """What a question asks for."""

    ONE_THING = "one_thing"
    LIST = "list"
    ORDER = "order"
    SUMMARY = "summary"


# A noun in the plural, as far as its ending shows; `his` and `does` are none.
_PLURAL = r"(?!(?:has|does|is|was|his|this|its|us|yes|always|across|less)\b)\w{2,}s(?<!ss)"
_KINDS = (
    (
        QuestionKind.ORDER,
        r"\bin (?:what|which|chronological) (?:order|sequence)|\bin order\b(?! (?:to|that|for)\b)"
        r"|\b(?:the|what|which) (?:order|sequence|timeline) (?:in which|of|that|did|do|was|were|is)"
        r"|\bchronolog|\bwhat (?:came|happened|was) first\b|\bfirst\b.{1,80}\bthen\b"
        r"|\breihenfolge\b|\bdans quel ordre\b|\ben qué orden\b|\bin che ordine\b",
    ),
    (
        QuestionKind.SUMMARY,
        r"\bsummar(?:y|i[sz]e|ies)\b|\b(?:overview|recap|sum up)\b|\bover time\b"
        r"|\bhow (?:has|have|had|did)\b.{1,160}\b(?:evolved?|progressed|developed?|changed)\b"
        r"|\b(?:zusammenfass\w*|zusammen!?$|résum\w+|resum(?:en|ir)|riassu\w+)",
    ),
    (
        QuestionKind.LIST,
        r"^(?:what|which)(?: \w+){0,3}? (?:kinds?|types?|sorts?) of\b"
        rf"|\b(?:what|which)(?: (?!(?:is|was|did|does|do|has|have)\b)[\w'-]+){{0,3}}? {_PLURAL}\b"
        r"|^what (?:has|have|did)\b.{1,80}\b(?:bought|visited|read|watched|tried|done|joined|played"
        r"|received|attended|collected|owned?|buy|visit|read|watch|try|do|join|play)\b"
        r"|\bwhat (?:are|were)\b.{1,60}\b\w{3,}s\b"
        r"|^(?:list|name)\b|\blist (?:of |all|every)|\bhow often\b"
        r"|\bhow many (?!(?:second|minute|hour|day|week|month|year)s)\b",
    ),
)
_PATTERNS = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _KINDS]

# Words about the conversations and the form of the answer: not about what the answer is about.
_ABOUT_THE_ANSWER = frozenset(
    terms(
        "across answer aspect ask bring brought bullet chat chronological clear complete"
        " comprehensive conversation cover detail detailed develop developed different discuss"
        " discussed discussion evolve evolved full give item key list mention order overall"
        " overview please point progress progressed provide question quick recap sequence session"
        " short step summarise summarize summary talk talked tell thorough throughout time timeline"
        " topic various walk"
    )
)
_NUMBER_OF_ITEMS = re.compile(
    r"\bmention (?:only (?:and only )?)?\w+ (?:items?|things?|points?|topics?)\b", re.IGNORECASE
)
_SPACES = re.compile(r"\s+")


def kind_of(question: str) -> QuestionKind:
    """Return what a question asks for, judging by its words alone."""
    text = _SPACES.sub(" ", question.strip())[:1000]
    return next(
        (kind for kind, pattern in _PATTERNS if pattern.search(text)), QuestionKind.ONE_THING
    )


def topic_of(question: str) -> str:
    """Return the words of a question about an order or a summary that name its topic.

    If there are none, this is the whole question.
    """
    words = _NUMBER_OF_ITEMS.sub(" ", question).split()
    kept = [word for word in words if not _ABOUT_THE_ANSWER.issuperset(terms(word))]
    return " ".join(kept) if any(map(terms, kept)) else question

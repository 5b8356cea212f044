"""Cutting texts to what matters for a question, in whole sentences."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from memory.recall.search.excerpts import GAP
from memory.recall.search.passages import Passage
from memory.recall.search.words import best_part, searchable_terms
from memory.recall.tokens import tokens_of_words

# The end of a sentence: the text up to here belongs to it.
_END = re.compile(r"""(?<![.!?\u2026])[.!?\u2026]+["')\]]*\s+|[\u3002\uff01\uff1f]+|\n+""")
# The number of characters per token assumed when a single sentence has to be cut.
_CHARACTERS = 3
CUT = "…"


def sentences(text: str) -> list[Passage]:
    """Return the start and end of each sentence, in order; together, they are the whole text."""
    ends = [match.end() for match in _END.finditer(text)]
    if not ends or ends[-1] < len(text):
        ends.append(len(text))
    return list(zip([0, *ends], ends, strict=False))


def in_sentences(text: str, passages: Sequence[Passage]) -> list[Passage]:
    """Return the passages with their bounds moved to those of sentences.

    A sentence belongs to the passage that its middle is in. A passage that no sentence belongs to,
    or that is not within the text, stays as it is.
    """
    middles = [((start + end) / 2, start, end) for start, end in sentences(text)]
    spans = []
    for passage in passages:
        own = [one for one in middles if passage[0] <= one[0] < passage[1]]
        is_within = own and passage[1] <= len(text)
        spans.append((own[0][1], own[-1][2]) if is_within else passage)
    return spans


def shortened(text: str, term_weights: Mapping[str, float], tokens: float) -> str:
    """Return the sentences of a text that matter most for the question, within these tokens.

    A term of the question counts for more if few sentences have it; without any, the first
    sentences are returned. If not even the best sentence fits, the part of it with the most terms
    is returned.
    """
    text = " ".join(text.split())
    if tokens_of_words(text) <= tokens:
        return text
    parts = [text[start:end] for start, end in sentences(text)]
    words = [term_weights.keys() & searchable_terms(part) for part in parts]
    spread = Counter(term for of_part in words for term in of_part)
    scores = [sum(term_weights[term] / spread[term] for term in of_part) for of_part in words]
    room, kept = tokens - 1, set[int]()
    for index in sorted(range(len(parts)), key=lambda one: -scores[one]):
        if (cost := tokens_of_words(parts[index])) <= room:
            kept.add(index)
            room -= cost
        elif not kept:
            return _part(parts[index], term_weights, tokens - 1)
    return _joined(parts, kept)


def _joined(parts: Sequence[str], kept: Collection[int]) -> str:
    """Return the kept parts in order, with marks for what is missing."""
    text = ""
    for index in sorted(kept):
        if index and index - 1 not in kept:
            text = text.rstrip() + GAP
        text += parts[index]
    return text.rstrip() + ("" if len(parts) - 1 in kept else CUT)


def _part(text: str, query_terms: Collection[str], tokens: float) -> str:
    """Return the part of a sentence with the most of these terms, in whole words if it has any."""
    length = int(tokens * _CHARACTERS)
    while length > 0:
        part = best_part(text, query_terms, length)
        if tokens_of_words(part) <= tokens:
            words = part.split(" ")
            inner = words[1:-1] if len(words) > 2 else words
            return f"{CUT}{' '.join(inner)}{CUT}"
        length = length * 3 // 4
    return ""

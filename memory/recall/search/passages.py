"""Passages of texts: the units in which a long text is ranked, embedded and returned.

In an assistant's answer of 400 words, usually only one sentence matters. A text of fewer than 120
words is one passage; a longer one is cut evenly into passages of 60 words, or a few more.
"""

import re
from itertools import pairwise

from memory.recall.search.words import UNSPACED

WORDS = 60
# The maximum number of passages per text. If a text would have more, its passages are longer.
MAX_PASSAGES = 1000

# In scripts without spaces, each character counts as a word; in other scripts, a run of characters
# that is longer than any word counts as one word per 64 characters.
_WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]{{1,64}}")

Passage = tuple[int, int]


def cut(text: str) -> list[Passage]:
    """Return the start and end of each passage in a text, in order; there is at least one."""
    words = [match.span() for match in _WORD.finditer(text)]
    number = max(1, min(len(words) // WORDS, MAX_PASSAGES))
    if number == 1:
        return [(0, len(text))]
    bounds = [round(place * len(words) / number) for place in range(number + 1)]
    return [(words[first][0], words[last - 1][1]) for first, last in pairwise(bounds)]

"""Passages: the units in which long texts are ranked, embedded and returned.

In a 400-word answer from an assistant, usually only one sentence matters. A text of fewer than 120
words is a single passage; a longer one is divided evenly into passages of 60 words or a few more.
"""

import re
from itertools import pairwise

from memory.language.folding import UNSPACED

WORDS = 60
# The maximum number of passages per text. Very long texts get longer passages instead of more
# passages.
MAX_PASSAGES = 1000

# In scripts without spaces, each character counts as a word. In other scripts, a run of characters
# that is longer than any real word counts as one word per 64 characters.
_WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]{{1,64}}")

Passage = tuple[int, int]


def cut(text: str) -> list[Passage]:
    """Return each passage's start and end in a text, in order; there is always at least one."""
    words = [match.span() for match in _WORD.finditer(text)]
    number = max(1, min(len(words) // WORDS, MAX_PASSAGES))
    if number == 1:
        return [(0, len(text))]
    bounds = [round(index * len(words) / number) for index in range(number + 1)]
    return [(words[first][0], words[last - 1][1]) for first, last in pairwise(bounds)]

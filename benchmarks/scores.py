"""Scores of an answer in words."""

import string
from collections import Counter


def token_f1(said: str, gold: str) -> float:
    """Return the harmonic mean of precision and recall over the words of two texts.

    Texts without words, such as two empty lists, are the same.
    """
    left, right = _words(said), _words(gold)
    if not left and not right:
        return 1.0
    same = (left & right).total()
    return 2 * same / (left.total() + right.total()) if same else 0.0


def _words(text: str) -> Counter[str]:
    plain = text.lower().translate(str.maketrans("", "", string.punctuation))
    return Counter(word for word in plain.split() if word not in ("a", "an", "the", "and"))

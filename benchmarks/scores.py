"""Scores of an answer in words."""

import string
from collections import Counter


def token_f1(said: str, gold: str) -> float:
    """Return the harmonic mean of precision and recall over the words of two texts."""
    left, right = _words(said), _words(gold)
    same = (left & right).total()
    return 2 * same / (left.total() + right.total()) if same else 0.0


def _words(text: str) -> Counter[str]:
    plain = text.lower().translate(str.maketrans("", "", string.punctuation))
    return Counter(word for word in plain.split() if word not in ("a", "an", "the", "and"))

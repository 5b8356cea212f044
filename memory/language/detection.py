"""Guess which languages a text may be in.

A script that only one major language uses decides by itself. For the others, naive Bayes over byte
sequences (py3langid) gives an order, in which the right language is nearly always the first, even
for a short sentence. Its model takes half a second to load and 80 MB, so a process that reads only
English doesn't load it.
"""

import re
from functools import lru_cache
from typing import Any

# Only this much of a text is looked at.
MAX_CHARACTERS = 1000
# py3langid's scores are log-probabilities; a language this far behind the best isn't plausible.
MARGIN = 12.0
MAX_LANGUAGES = 3

_BY_SCRIPT = tuple(
    (re.compile(f"[{characters}]"), languages)
    for characters, languages in (
        ("\u3040-\u30ff", ("ja",)),
        ("\uac00-\ud7af\u1100-\u11ff", ("ko",)),
        ("\u4e00-\u9fff", ("zh", "ja")),
        ("\u0e00-\u0e7f", ("th",)),
        ("\u0370-\u03ff", ("el",)),
        ("\u0590-\u05ff", ("he",)),
    )
)
# English words that texts in other languages hardly contain, and that most English sentences do.
_ENGLISH = re.compile(
    r"\b(?:the|and|are|were|your|they|she|with|this|have|has|had|you|it|what|when|from|next|about|"
    r"how|where|who|did|does|which|there|their|would|should|been)\b"
)
# The languages that a text in Latin, Cyrillic, Arabic or Indian letters may be in.
_LANGUAGES = (
    *("af", "ar", "be", "bg", "bn", "ca", "cs", "cy", "da", "de", "en", "es", "et", "eu", "fa"),
    *("fi", "fr", "ga", "gl", "gu", "hi", "hr", "hu", "hy", "id", "is", "it", "ka", "kk", "lt"),
    *("lv", "mk", "ml", "mr", "ms", "ne", "nl", "no", "pa", "pl", "pt", "ro", "ru", "sk", "sl"),
    *("sq", "sr", "sv", "sw", "ta", "te", "tl", "tr", "uk", "ur", "uz", "vi"),
)
_WORD = re.compile(r"[^\W\d_]+")


@lru_cache(maxsize=1 << 12)
def languages_of(text: str) -> tuple[str, ...]:
    """Return the languages that a text may be in, as ISO 639 codes, the likeliest first.

    A text without letters is in none.
    """
    text = text[:MAX_CHARACTERS]
    words = _WORD.findall(text.lower())
    if not words:
        return ()
    if text.isascii() and 4 * len(_ENGLISH.findall(text.lower())) >= len(words):
        return ("en",)
    by_script = next((found for pattern, found in _BY_SCRIPT if pattern.search(text)), None)
    if by_script is not None:
        return by_script
    ranked = _identifier().rank(text)
    highest = ranked[0][1]
    return tuple(code for code, score in ranked[:MAX_LANGUAGES] if highest - score < MARGIN)


@lru_cache(maxsize=1)
def _identifier() -> Any:
    from py3langid import langid

    identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE)
    identifier.set_languages(_LANGUAGES)
    return identifier

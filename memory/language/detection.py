"""Guess which languages a text may be in.

Function words and scripts tell at once whether a text is in English (`may_be_english`).

A script that only one major language uses decides by itself. For the others, naive Bayes over byte
sequences (py3langid) gives an order, in which the right language is nearly always the first, even
for a short sentence. Its model takes half a second to load and 80 MB, so a process that reads only
English doesn't load it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import stop_words
import stopwordsiso

# Only this much of a text is looked at.
MAX_CHARACTERS = 1000
MAX_SAMPLE = 300  # this much tells whether it is English
# py3langid's scores are log-probabilities; a language this far behind the best isn't plausible.
MARGIN = 12.0
MAX_LANGUAGES = 3

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
# Letters of other scripts, each with its language, or the one with the most speakers.
_SCRIPTS = tuple(
    (re.compile(f"[{letters}]"), language)
    for letters, language in (
        ("\u3040-\u30ff", "ja"),
        ("\uac00-\ud7af\u1100-\u11ff", "ko"),
        ("\u4e00-\u9fff", "zh"),
        ("\u0e00-\u0e7f", "th"),
        ("ђћџњљј", "sr"),
        ("іїєґ", "uk"),
        ("\u0400-\u04ff", "ru"),
        ("\u0370-\u03ff", "el"),
        ("\u0590-\u05ff", "he"),
        ("پچژگ", "fa"),
        ("\u0600-\u06ff", "ar"),
        ("\u0900-\u097f", "hi"),
        ("\u0b80-\u0bff", "ta"),
        ("\u0530-\u058f", "hy"),
    )
)
# Which languages a text in a script that few languages use may be in.
_OF_SCRIPT: Mapping[str, tuple[str, ...]] = {
    **{language: (language,) for language in ("ja", "ko", "th", "el", "he")},
    "zh": ("zh", "ja"),
}
# The languages that are written in Latin letters and have a list of function words, by their number
# of native speakers.
LATIN = (
    *("es", "pt", "fr", "de", "vi", "tr", "it", "id", "pl", "nl", "ro", "tl", "sw", "hu", "cs"),
    *("sv", "ca", "hr", "da", "fi", "no", "sk", "lt", "gl", "sl", "lv", "et", "eu"),
)
_SHORT_ENGLISH = (
    *("a", "i", "am", "an", "as", "at", "be", "by", "do", "go", "he", "if", "in", "is", "it", "me"),
    *("my", "no", "of", "on", "or", "so", "to", "up", "us", "we"),
)
_WORD = re.compile(r"[^\W\d_]+")
_OTHER_SCRIPT = re.compile(r"[^\W\d_\u0000-\u024f\u1e00-\u1eff\u2100-\u214f]")
_NOT_UKRAINIAN = re.compile("[ыэёъ]")
_SPACES = str.maketrans(dict.fromkeys('.,;:!?¿¡…"“”„«»()[]{}-–—/_0123456789', " "))
_OTHER_SIGN = re.compile(r"[¿¡\u00c0-\u024f\u1e00-\u1eff]")
# So many of another language's function words tell that a text isn't English. One does in a
# question, which would have an English one, and beside letters or signs that English lacks.
MIN_FUNCTION_WORDS = 2
MAX_FUNCTION_WORD = 5
# Lists with fewer words in common are spelt differently (Hebrew) or of another age (Greek).
MIN_OF_BOTH = 90
_CODES = {"no": "nb"}  # if the second library's code for a language is another


def may_be_english(text: str) -> bool:
    """Return whether nothing tells that a text is in another language; names alone tell nothing."""
    return language_of(text) == "en"


def language_of(text: str) -> str:
    """Return a text's language by its script and function words, "en" if they don't tell.

    A script or words that several languages use count as those of the language with the most
    speakers, unless a letter tells otherwise.
    """
    text = text[:MAX_SAMPLE]
    if language := _language_of_script(text):
        return language
    # A word that is repeated tells no more: a record names its class twice, such as Cat or Van.
    counts = count_function_words([*dict.fromkeys(text.lower().translate(_SPACES).split())])
    english = counts.pop("en")
    if not counts:
        return "en"
    is_clear = text.rstrip().endswith("?") or (
        not text.isascii() and _OTHER_SIGN.search(text) is not None
    )
    most = max(counts.values())
    if most < max(1 if is_clear else MIN_FUNCTION_WORDS, english + 1):
        return "en"
    return next(language for language in LATIN if counts[language] == most)


def count_function_words(words: Sequence[str]) -> Counter[str]:
    """Return how many of the words are function words, by language. English ones are no other's."""
    languages, english_words = _languages_of_words()
    counts = Counter(language for word in words for language in languages.get(word, ()))
    counts["en"] = sum(word in english_words for word in words)
    return counts


def _language_of_script(text: str) -> str | None:
    """Return the language with the most speakers of those in a text's script, unless it is Latin.

    For a script that isn't known, this is one of its letters.
    """
    if text.isascii() or (letter := _OTHER_SCRIPT.search(text)) is None:
        return None
    language = next((code for pattern, code in _SCRIPTS if pattern.search(text)), letter[0])
    return "uk" if language == "ru" and _is_ukrainian(text) else language


def _is_ukrainian(text: str) -> bool:
    """Return whether a text that no letter tells has more Ukrainian words than Russian ones."""
    if _NOT_UKRAINIAN.search(text):
        return False
    words = {*text.lower().translate(_SPACES).split()}
    ukrainian, russian = _words_of_ukrainian_and_russian()
    return len(words & ukrainian) > len(words & russian)


@lru_cache(maxsize=1)
def _words_of_ukrainian_and_russian() -> tuple[frozenset[str], frozenset[str]]:
    """Return the function words of Ukrainian that Russian lacks, and those of Russian."""
    ukrainian, russian = (
        frozenset([*stopwordsiso.stopwords(code), *stop_words.get_stop_words(code)])
        for code in ("uk", "ru")
    )
    return ukrainian - russian, russian - ukrainian


def languages_of_script(text: str) -> tuple[str, ...]:
    """Return the languages that a text in its script may be in, if there are few."""
    return _OF_SCRIPT.get(_language_of_script(text) or "", ())


def has_function_words(text: str) -> bool:
    """Return whether a text in Latin letters has words that tell its language, so isn't a name."""
    words = text[:MAX_SAMPLE].lower().translate(_SPACES).split()
    return any(count_function_words(words).values())


@lru_cache(maxsize=64)
def function_words(language: str) -> frozenset[str]:
    """Return a language's words that carry no information about a topic.

    One library's lists have nouns as well, such as "мать" (mother). The other's have fewer, and
    hardly any short ones, but not for all languages.
    """
    words = stopwordsiso.stopwords(language)
    if (code := _CODES.get(language, language)) in stop_words.LANGUAGE_MAPPING:
        words_of_both = words.intersection(stop_words.get_stop_words(code))
        words = words_of_both if len(words_of_both) >= MIN_OF_BOTH else words
    return frozenset(word for word in words if len(word) <= MAX_FUNCTION_WORD)


@lru_cache(maxsize=1)
def _languages_of_words() -> tuple[Mapping[str, Sequence[str]], Collection[str]]:
    """Return the languages in which words are function words, and those of English, without it."""
    english = {word for word in stopwordsiso.stopwords("en") if len(word) > 2}
    english |= {*_SHORT_ENGLISH}
    by_word = defaultdict[str, list[str]](list)
    for language in LATIN:
        for word in frozenset(stopwordsiso.stopwords(language)) - english:
            by_word[word].append(language)
    return by_word, english


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
    if languages := languages_of_script(text):
        return languages
    ranked = _identifier().rank(text)
    highest = ranked[0][1]
    likely = [code for code, score in ranked[:MAX_LANGUAGES] if highest - score < MARGIN]
    by_words = [code for code in (language_of(text),) if code != "en" and code in _LANGUAGES]
    return tuple(dict.fromkeys([*likely, *by_words]))


@lru_cache(maxsize=1)
def _identifier() -> Any:
    from py3langid import langid

    identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE)
    identifier.set_languages(_LANGUAGES)
    return identifier

"""Terms: the units of text that are indexed and searched for.

A term is a word stripped of case, accents and its language's endings; text in scripts without
spaces is cut into pairs of characters, and found by each Chinese or Korean one as well. Marks for
vowels, the width of characters, the script of digits and the separators of thousands make no
difference.
"""

import datetime
import hashlib
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache

import stopwordsiso

from memory.kernel.texts import with_few_marks
from memory.language.dates_in_text import MONTH_NAMES
from memory.language.detection import LATIN, function_words, has_function_words, language_of
from memory.language.folding import UNSPACED, with_ascii_digits
from memory.language.stems import STEMMED, stem

# English words that carry no information about a topic; the last line has the endings of
# contractions.
_STOP_TEXT = """
    a about above after again against all am an and any are as at be because been before being
    below between both but by can could did do does doing down during each few for from further had
    has have having he her here hers herself him himself his how i if in into is it its itself just
    me more most my myself no nor not now of off on once only or other our ours ourselves out over
    own same she should so some such than that the their theirs them themselves then there these
    they this those through to too under until up very was we were what when where which while who
    whom why will with would you your yours yourself yourselves
    d ll m o re s t ve
"""
STOP_WORDS = frozenset(_STOP_TEXT.split())
# Python doesn't count the combining marks of Indian scripts as letters, but they belong to words.
LETTER = rf"(?:[^\W_{UNSPACED}]|[\u0900-\u0963\u0966-\u0dff])"
_WORD = re.compile(
    rf"(?P<day>(?<!\d)\d{{4}}-\d{{2}}-\d{{2}}(?!\d))|(?P<unspaced>[{UNSPACED}]+)|(?P<word>{LETTER}+)"
)
# Simpler patterns for lower-case ASCII text without dates, i.e. most text; they take a third of the
# time.
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_ASCII_WORD = re.compile("[a-z0-9]+")
_UNSPACED_RUNS = re.compile(f"[{UNSPACED}]+")
# The characters that are words: 猫, 차. One by itself or before a particle, as in "猫は", is a word
# in a question; before other kana it is the stem of a verb or adjective: "食べた".
_HAN, _HANGUL = "\u3005\u3400-\u9fff\U00020000-\U0003ffff", "\uac00-\ud7a3"
_CHARACTER = re.compile(f"[{_HAN}{_HANGUL}]")
_ALONE = re.compile(
    rf"(?<![{_HAN}])[{_HAN}](?=[はをにのでへだ]|[がも](?![らりるれっ])|[とや](?![さしす])|から|まで|より"
    rf"|[^\u3041-\u3096{_HAN}]|$)"
    rf"|(?<![{_HANGUL}])[{_HANGUL}](?=[은는이가을를의에로도와과만]?(?![{_HANGUL}]))"
)
_ORDINAL = re.compile(r"(\d{1,2})(?:st|nd|rd|th)")
_ACCENTS = re.compile("[\u0300-\u036f]")
# Marks for vowels in Hebrew and Arabic, Arabic's elongation, and characters without width.
_VOWEL_MARKS = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc"
    "\u06df-\u06e8\u06ea-\u06ed\u0640\u00ad\u200b-\u200f]"
)
# Thousands: "1,200", "1.200", "1'200" and "1\u202f200" are 1200. After a plain space, a group may
# also be a number of its own.
_SEPARATED = re.compile(r"(?<![\d.,])\d{1,3}(?:[,.'’٬\xa0\u2009\u202f]\d{3})+(?!\d)")
_SPACED = re.compile(r"(?<![\d.,])(?<!\d )\d{1,3}(?: \d{3})++(?![ .,]?\d)")
_NO_DIGITS = re.compile(r"\D")
_DIGIT = re.compile("[0-9]")
# Maximum number of characters in a word; no real word is longer. Only the beginning of a longer
# string is matched.
_LONGEST = 64
# Chinese function words that the library lacks: others, and some in traditional characters.
_MORE_FUNCTION_WORDS = "没里沒裡個們麼嗎這為過還說對會誰時後從"
# Languages without a stemmer, with the one whose endings are most like theirs.
_ENDINGS_LIKE = {"hr": "sr", "sk": "cs", "sl": "sr", "uk": "ru"}
# Shorter stems of names are shared by too many other words.
MIN_STEM_OF_NAME = 4


def terms(text: str) -> list[str]:
    """Return a text's terms in order, without stop words, as if it were in English."""
    return [_term(word) for word in _words(text) if word not in STOP_WORDS]


def terms_by_language(text: str) -> tuple[list[str], list[str]]:
    """Return a text's terms in its language, and others by which it may be found as well.

    The others are the terms that its words have in a text whose language isn't recognised, such as
    a single word: those of `terms`. In Chinese, Japanese and Korean, they are the words of one
    character.
    """
    language = language_of(text)
    endings = _ENDINGS_LIKE.get(language, language)
    if endings not in STEMMED or endings == "en":
        own_terms = terms(text)
        known = {*own_terms, *function_words(language)}
        if language == "zh":
            text = _chinese_function_words().sub(" ", text)
        return own_terms, [one for one in _ALONE.findall(text) if one not in known]
    ignored = function_words(language)
    words = [word for word in _words(text, keep_accents=True) if word not in ignored]
    stems = [_term(word, endings) for word in words]
    return stems, [term for word in words if (term := _term(_bare(word))) not in stems]


def characters_of(text: str) -> list[str]:
    """Return a text's Chinese and Korean characters, by each of which it may be found."""
    return [] if text.isascii() else _CHARACTER.findall(unicodedata.normalize("NFKC", text))


def searchable_terms(text: str) -> set[str]:
    """Return a text's terms and its Chinese and Korean characters."""
    return {*terms(text), *characters_of(text)}


def terms_of_names(text: str) -> list[str]:
    """Return the stems that the words of a name have in any language in Latin letters.

    "Kölner Dom" tells no language, but has the stem of "Köln" in German. A text with other words
    than names has none.
    """
    if language_of(text) != "en" or has_function_words(text):
        return []
    names = " ".join(word for word in written_words(text) if word[0].isupper())
    stems = {
        _term(word, language): None
        for word in _words(names, keep_accents=True)
        for language in LATIN
        if language in STEMMED
    }
    return [stem for stem in stems if len(stem) >= MIN_STEM_OF_NAME]


def terms_of_day(day: datetime.date) -> list[str]:
    """Return the terms by which a text may refer to a day: year, month and day of the month."""
    return [str(day.year), _term(MONTH_NAMES[day.month - 1]), str(day.day)]


@lru_cache(maxsize=1 << 16)
def identity(term: str) -> int:
    """Return the number that represents a term in an index: 63 bits of its hash."""
    digest = hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def number_of_words(text: str) -> int:
    """Count the words in a text; in scripts without spaces, each character counts as one."""
    return len(text.split()) + sum(len(run) for run in _UNSPACED_RUNS.findall(text))


def best_part(text: str, wanted: Collection[str], length: int) -> str:
    """Return the text or, if it is longer than `length`, the part with the most wanted terms."""
    if len(text) <= length:
        return text
    places = [
        position
        for position, piece in _pieces(text)
        if not searchable_terms(piece).isdisjoint(wanted)
    ]
    best, most = 0, 0
    for index, position in enumerate(places):
        within = bisect_left(places, position + length) - index
        if within > most:
            best, most = position, within
    start = min(best, len(text) - length)
    return text[start : start + length]


def written_words(text: str) -> list[str]:
    """Return a text's words as they are written; in scripts without spaces, pairs of characters."""
    return [written[:_LONGEST] for _, written in _pieces(text)]


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield the words in a text, with their positions."""
    for match in _WORD.finditer(text):
        start, written = match.start(), match[0]
        if match.lastgroup == "unspaced":
            for offset in range(max(1, len(written) - 1)):
                yield start + offset, written[offset : offset + 2]
        else:
            yield start, written


def _words(text: str, *, keep_accents: bool = False) -> Iterable[str]:
    text = text.casefold().replace("i\u0307", "i")  # Turkish İ
    if not text.isascii():
        decomposed = _VOWEL_MARKS.sub("", unicodedata.normalize("NFKD", with_few_marks(text)))
        if not keep_accents:
            decomposed = _ACCENTS.sub("", decomposed).replace("ı", "i")
        text = with_ascii_digits(unicodedata.normalize("NFC", decomposed))
    if _DIGIT.search(text):
        text = _SEPARATED.sub(lambda match: _NO_DIGITS.sub("", match[0]), text)
        text = _SPACED.sub(lambda match: f"{match[0]} {_NO_DIGITS.sub('', match[0])}", text)
    if text.isascii() and ("-" not in text or not _DAY.search(text)):
        return [word[:_LONGEST] for word in _ASCII_WORD.findall(text)]
    return _words_of_any_script(text)


def _bare(word: str) -> str:
    """Return a word without accents."""
    if word.isascii():
        return word
    decomposed = _ACCENTS.sub("", unicodedata.normalize("NFKD", word)).replace("ı", "i")
    return unicodedata.normalize("NFC", decomposed)


def _words_of_any_script(text: str) -> Iterator[str]:
    for match in _WORD.finditer(text):
        word = match[0]
        if match.lastgroup == "word":
            yield word[:_LONGEST]
        elif match.lastgroup == "unspaced":
            yield from (word[start : start + 2] for start in range(max(1, len(word) - 1)))
        else:
            yield from _named(word)


def _named(day: str) -> list[str]:
    """Return the words for a day written as 2026-03-01, or the numbers if there is no such day."""
    try:
        date = datetime.date.fromisoformat(day)
    except ValueError:
        return day.split("-")
    return [str(date.year), MONTH_NAMES[date.month - 1], str(date.day)]


@lru_cache(maxsize=1)
def _chinese_function_words() -> re.Pattern[str]:
    """Return a pattern for Chinese words that carry no information, between which others stand."""
    words = {*stopwordsiso.stopwords("zh"), *_MORE_FUNCTION_WORDS}
    return re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))))


@lru_cache(maxsize=1 << 16)
def _term(word: str, language: str = "en") -> str:
    if ordinal := _ORDINAL.fullmatch(word):
        return ordinal[1]
    stemmed = stem(word, language)
    return stemmed if language == "en" else _bare(stemmed)

"""The content words of a text, compared by their stems.

Content words decide whether an entry names a record, and whether a quotation is meaningful. Words
that could occur in any text (grammatical words, commands to a program, words about how things are
stored) don't count.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import lru_cache

from memory.language.detection import function_words, language_of
from memory.language.folding import UNSPACED
from memory.language.lexicon import lexicon_of
from workers.grounding.values_in_entries import any_starts_with, words_of

# Minimum length of a content word: in letters, and in characters of a script without upper case.
MIN_LETTERS = 3
MIN_SIGNS = 2
# Han and katakana, which in Japanese are words, while hiragana between them are mostly endings.
# Longer runs, and those of other scripts without spaces, are compared by their parts of so many
# characters.
_JAPANESE = re.compile("[\u3040-\u30ff]")
_RUN = re.compile("[\u30a1-\u30ff]+|[^\u3040-\u30ff]+")
_HAN = re.compile("[\u3005\u3400-\u9fff\U00020000-\U0003ffff]")
_NO_SPACES = re.compile(f"[{UNSPACED}]")
SIGNS_OF_HAN = 4
SIGNS_OF_OTHERS = 6
# A stem of at least this length also matches longer stems that begin with it: "medic" (medication)
# begins "medicin" (medicine).
LONG_STEM = 5
# No real word has more characters than this; of a longer string, only the beginning is compared.
LONGEST = 64


def names_one_of(text: str, texts: Iterable[str], *, without: Set[str] = frozenset()) -> bool:
    """Return whether a text has a content word from one of `texts`, ignoring those in `without`."""
    words = Words(text)
    return any(words.have(word) for word in content_words(texts) if word not in without)


def shared_words(text: str, other: str, *, without: Set[str] = frozenset()) -> int:
    """Count the content words that a text shares with another, ignoring those in `without`."""
    words = Words(other)
    return sum(words.have(word) for word in content_words([text]) if word not in without)


def content_words(texts: Iterable[str]) -> dict[str, None]:
    """Return the content words of these texts in order, without duplicates."""
    return dict.fromkeys(word for text in texts for word in _content_words(text))


class Words:
    """The content words of a text, prepared for looking up other words."""

    def __init__(self, text: str) -> None:
        self._stems = {_stem(word[:LONGEST]) for word in _content_words(text)}
        self._in_order = sorted(self._stems)
        self._plain = " ".join(words_of(text))
        self._runs: dict[int, frozenset[str]] = {}  # by their length, made when they are needed

    def have(self, word: str) -> bool:
        """Return whether the text has a word with the same stem as this word."""
        if _NO_SPACES.match(word):
            return word in self._runs_of(len(word))
        if is_sign(word[0]):
            return word in self._plain
        return _is_akin(_stem(word[:LONGEST]), self._stems, self._in_order)

    def _runs_of(self, size: int) -> frozenset[str]:
        if size not in self._runs:
            last = len(self._plain) - size + 1
            self._runs[size] = frozenset(self._plain[start : start + size] for start in range(last))
        return self._runs[size]


def _content_words(text: str) -> Iterator[str]:
    ignored = _ignored_words(language_of(text))
    for word in words_of(text):
        if _NO_SPACES.match(word):
            yield from _signs_of(word)
        elif len(word) >= (MIN_SIGNS if is_sign(word[0]) else MIN_LETTERS) and word not in ignored:
            yield word


@lru_cache(maxsize=64)
def _ignored_words(language: str) -> Set[str]:
    if language == "en":
        return _EMPTY
    return _EMPTY.union(*map(words_of, function_words(language)))


def _signs_of(run: str) -> Iterator[str]:
    """Yield the words in a run of characters without spaces, or its parts if it is long."""
    for word in _RUN.findall(run) if _JAPANESE.search(run) else [run]:
        size = SIGNS_OF_HAN if _HAN.match(word) else SIGNS_OF_OTHERS
        if len(word) > size:
            yield from (word[start : start + size] for start in range(len(word) - size + 1))
        elif len(word) >= MIN_SIGNS and word not in _EMPTY and word not in _empty_signs():
            yield word


@lru_cache(maxsize=1)
def _empty_signs() -> frozenset[str]:
    """Return words of scripts without spaces that any text may contain: of dates, and others."""
    texts = [text for language in ("ja", "zh") for text in function_words(language)]
    for language in ("ja", "zh"):
        lexicon = lexicon_of(language)
        texts += lexicon.meanings if lexicon else ()
    return frozenset(word for text in texts for word in words_of(text))


def is_sign(character: str) -> bool:
    """Return whether a character belongs to a script without upper and lower case.

    Many of these scripts don't use spaces, so a word in one of them may match anywhere in a text.
    """
    return unicodedata.category(character) == "Lo"


def _is_akin(stem: str, stems: Set[str], in_order: Sequence[str]) -> bool:
    """Return whether a text has this stem or a shorter or longer one: "medic" and "medicat"."""
    return (
        stem in stems
        or any(stem[:length] in stems for length in range(LONG_STEM, len(stem)))
        or (len(stem) >= LONG_STEM and any_starts_with(in_order, stem))
    )


_PLURAL = re.compile(r"(?<=...)(?:(?<=i)es|(?<=s|x|z|h)es|(?<=[^s])s)$")
_ENDING = re.compile(r"(?<=...)(?:ations?|ing|ic|al|(?<!i)ly|ed|er|ie?|[ey])$")
_DOUBLE = re.compile(r"([^aeious])\1$")


def _stem(word: str) -> str:
    """Return an English word without its endings: "allerg" for "allergies"."""
    return _DOUBLE.sub(r"\1", _ENDING.sub("", _PLURAL.sub("", word)))


# Words that do not count as content words: words that express how, when or to whom something
# happens, and words about deleting or storing data.
_EMPTY = frozenset(
    words_of("""
        about above after again against all also although always and another any anybody anyone
        anything anyway are around away back because been before being below between both but can
        cannot could did does doing done down during each either else even ever every everybody
        everyone everything few for from further get gets getting give given gives giving goes
        going gone good got had has have having her here hers him his how however inside instead
        into its itself just keep keeps kept know knows known last least less let like lot lots
        made make makes making many may maybe mean means might mine more most much must myself
        need needs neither never next nobody none nor not nothing now off often okay once one only
        onto other others otherwise our ours out over own per perhaps please put really same say
        says see seem seems seen set shall she should since some somebody someone something soon
        still such sure take taken takes taking tell tells than thank thanks that the their them
        then there these they thing things think this those though through thus too took toward
        under until upon use used user uses using very via want wants was way well went were what
        when where whether which while who whole whom whose why will with within without would yes
        yet you your yours yourself
        first second third two three four five six seven eight nine ten today tomorrow yesterday
        tonight morning afternoon evening night day days week weeks month months year years time
        times moment date dates assistant agent bot system prompt message messages instruction
        instructions previous prior following earlier later new old ignore ignored disregard
        override obey follow delete deletes deleted deleting remove removes removed removing
        forget forgets forgetting forgotten erase erased erasing clear clearing clean wipe wiped
        drop dropped dropping discard destroy purge reset empty retire retires retired retiring
        cancel cancels cancelled canceled cancelling stop stopped stopping end ended ends change
        changes changed update updates updated correct corrected wrong true false
        record records entry entries item items data database memory memories information info
        fact facts field fields value values list lists collection collections class classes
        domain domains table tables row rows file files state states stored type types key keys
        name names note notes text content
        ユーザー 利用者 情報 記録 記憶 項目 削除 消去 変更 更新 取消 確認 キャンセル
        用户 信息 记录 记忆 删除 更改 取消 确认
    """)
)

"""Find the numbers in a text, with every possible reading.

"1,200", "1.200,50", "1 200", "1.2k", "15 %", "½", "twelve hundred" and "a dozen" are all numbers.
An ambiguous number (1.200 may be twelve hundred, or just over one) gets both readings. Numbers in
digits are read in any language, number words only in English.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

MAX_DIGITS = 60  # a number with more digits than this is never meant as a quantity

_SPACES = " \u00a0\u2009\u202f"
# Groups of three digits separated by a space or an apostrophe, or digits with points and commas
# between them.
_NUMERAL = re.compile(
    rf"\d{{1,3}}(?:[{_SPACES}'’]\d{{3}}){{1,6}}(?!\d)(?:[.,]\d+)?|\d+(?:[.,]\d+)*", re.ASCII
)
_FRACTION = re.compile(r"(\d{1,9})\s?/\s?(\d{1,9})", re.ASCII)
_VULGAR = {"¼": "0.25", "½": "0.5", "¾": "0.75", "⅓": "0.333", "⅔": "0.667"}
_WORD = re.compile(r"[^\W\d_]+")
_SCALES = {
    **dict.fromkeys(("hundred", "hundredth"), 10**2),
    **dict.fromkeys(("thousand", "thousandth", "k"), 10**3),
    **dict.fromkeys(("million", "mio", "mn", "m"), 10**6),
    **dict.fromkeys(("billion", "bn", "b"), 10**9),
    "trillion": 10**12,
    "dozen": 12,
    "lakh": 10**5,
    "crore": 10**7,
}
_SCALE = re.compile(
    rf"[{_SPACES}-]?({'|'.join(sorted(_SCALES, key=len, reverse=True))})s?\b", re.IGNORECASE
)
_PERCENT = re.compile(rf"[{_SPACES}-]?(?:%|per\s?cent|pct)", re.IGNORECASE)

_UNITS = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen"),
    *("eighteen", "nineteen"),
]
_ORDINALS = [
    *("zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"),
    *("ninth", "tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth"),
    *("sixteenth", "seventeenth", "eighteenth", "nineteenth"),
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
# Days of the month, keyed by their spelled-out ordinals, such as "twenty-first".
ORDINALS = {
    **{word: number for number, word in enumerate(_ORDINALS) if number},
    "twentieth": 20,
    **{f"twenty-{word}": 20 + number for number, word in enumerate(_ORDINALS[:10]) if number},
    "thirtieth": 30,
    "thirty-first": 31,
}
_CARDINALS = {
    **{word: number for number, word in enumerate(_UNITS)},
    **{word: number for number, word in enumerate(_ORDINALS)},
    **{word: 10 * number for number, word in enumerate(_TENS, 2)},
    **{f"{word[:-1]}ieth": 10 * number for number, word in enumerate(_TENS, 2)},
    "oh": 0,
}
_EVERY_OTHER = re.compile(r"\bevery\s+(?:other|second)\s+([a-z]+)", re.IGNORECASE | re.ASCII)
_IN_DAYS = {"week": 7}
# Words that imply a number without being number words; a text may use them without meaning a count.
_OTHERS: dict[str, Sequence[str]] = {
    **dict.fromkeys(("a", "an", "once", "single", "another"), ("1",)),
    **dict.fromkeys(("no", "none", "never", "nothing", "without", "free"), ("0",)),
    **dict.fromkeys(("twice", "both", "couple", "pair", "double", "twin", "twins"), ("2",)),
    **dict.fromkeys(("thrice", "triple", "triplets"), ("3",)),
    "half": ("0.5",),
    **dict.fromkeys(("fortnight", "fortnights", "fortnightly", "biweekly"), ("2", "14")),
    "quarter": ("0.25",),
    "quarters": ("0.25", "0.75"),
}


@dataclass(frozen=True)
class Quantity:
    """A number in a text, from `start` to `end`, with all its possible readings."""

    text: str
    start: int
    end: int
    readings: frozenset[Decimal]


def numerals(text: str) -> Iterator[Quantity]:
    """Yield the numbers that are written in digits."""
    for match in _NUMERAL.finditer(text):
        readings = set(_readings(match[0]))
        end = match.end()
        if match.start() > 0 and text[match.start() - 1] == "." and "." not in match[0]:
            digits = re.sub(r"\D", "", match[0])[:MAX_DIGITS]
            readings.add(Decimal(f"0.{digits}"))  # such as ".5"
        if text[end : end + 1] in _VULGAR:
            readings |= {number + Decimal(_VULGAR[text[end]]) for number in readings}
            end += 1
        if scale := _SCALE.match(text, end):
            readings |= {number * _SCALES[scale[1].lower()] for number in readings}
            end = scale.end()
        elif percent := _PERCENT.match(text, end):
            readings |= {number / 100 for number in readings}
            end = percent.end()
        yield Quantity(text[match.start() : end], match.start(), end, frozenset(readings))


def spelled(text: str) -> Iterator[Quantity]:
    """Yield the numbers that are written in words: one Quantity per run of number words."""
    run: list[re.Match[str]] = []
    for match in [*_WORD.finditer(text), None]:
        word = match[0].lower() if match else ""
        joined = not run or (match and _joins(text[run[-1].end() : match.start()]))
        if match and joined and (_is_numeral(word) or (run and word == "and")):
            run.append(match)
            continue
        if run:
            yield _run(text, run)
        run = [match] if match and _is_numeral(word) else []


def find_numbers(text: str) -> set[Decimal]:
    """Return all numbers that a text may mean, including words that may not be meant as numbers."""
    values = {reading for read in (numerals, spelled) for q in read(text) for reading in q.readings}
    values |= {Decimal(number) for mark, number in _VULGAR.items() if mark in text}
    for match in _FRACTION.finditer(text):
        if int(match[2]):
            values.add(Decimal(match[1]) / Decimal(match[2]))
    for match in _WORD.finditer(text.lower()):
        values |= {Decimal(number) for number in _OTHERS.get(match[0], ())}
    if interval := _EVERY_OTHER.search(text):
        values |= {Decimal(2), Decimal(2 * _IN_DAYS.get(interval[1].lower(), 1))}
    if re.search(r"\band a half\b", text, re.IGNORECASE):
        values |= {number + Decimal("0.5") for number in list(values)}
    if scale := re.search(
        r"\bhalf an? (hundred|dozen|thousand|million|billion)\b", text, re.IGNORECASE
    ):
        values.add(Decimal(_SCALES[scale[1].lower()]) / 2)
    return values


def _readings(numeral: str) -> Iterator[Decimal]:
    if len(numeral) > MAX_DIGITS:
        return
    digits = re.sub(rf"[{_SPACES}'’]", "", numeral)
    if digits != numeral:  # what looks like a single number in groups may also be several numbers
        for part in re.split(rf"[{_SPACES}'’]", numeral):
            yield from _readings(part)
    points, commas = digits.count("."), digits.count(",")
    if not points and not commas:
        yield Decimal(digits)
    elif points and commas:
        mark = "." if digits.rindex(".") > digits.rindex(",") else ","
        other = "," if mark == "." else "."
        if digits.count(mark) == 1:
            yield Decimal(digits.replace(other, "").replace(mark, "."))
    else:
        mark = "." if points else ","
        first, *groups = digits.split(mark)
        if len(groups) == 1:
            yield Decimal(f"{first}.{groups[0]}")
        else:
            for part in (first, *groups):
                yield Decimal(part)
        last = len(groups[-1]) == 3 and {len(group) for group in groups[:-1]}
        # Groups of three digits or, in India, of two before the last three.
        if last in (set(), {3}, {2}) and len(first) <= 3 and first.strip("0"):
            yield Decimal(first + "".join(groups))


def _is_numeral(word: str) -> bool:
    return word in _CARDINALS or (len(word) > 2 and word.removesuffix("s") in _SCALES)


def _joins(between: str) -> bool:
    return not between.strip(f"{_SPACES}-\n\t")


def _run(text: str, run: Sequence[re.Match[str]]) -> Quantity:
    while run[-1][0].lower() == "and":
        run = run[:-1]
    words = [match[0].lower() for match in run if match[0].lower() != "and"]
    start, end = run[0].start(), run[-1].end()
    return Quantity(text[start:end], start, end, frozenset(map(Decimal, _values(words))))


def _values(words: Sequence[str]) -> Iterator[int]:
    """Yield what a run of number words can mean, as one number or as several numbers in a row."""
    parts: list[int] = []  # the numbers below a hundred so far, in order
    total = current = 0
    has_words, previous = False, ""
    for word in words:
        if word in _CARDINALS:
            number = _CARDINALS[word]
            fits = current % 100 == 0 or (current % 10 == 0 and current % 100 >= 20 and number < 10)
            if has_words and not fits:  # as in "nineteen eighty": another number begins
                yield total + current
                total = current = 0
            tens = parts and parts[-1] >= 20 and parts[-1] % 10 == 0
            if 0 < number < 10 and (tens or previous == "oh"):
                parts[-1] += number
            else:
                parts.append(number)
            current += number
        else:
            scale = _SCALES[word.removesuffix("s")]
            parts.append(-1)  # a word such as "thousand", which no year read in pairs contains
            current = max(current, 1) * scale
            if scale >= 1000:
                total, current = total + current, 0
        has_words, previous = True, word
    yield total + current
    for left, right in itertools.pairwise(parts):
        if 10 <= left < 100 and 0 <= right < 100:  # "nineteen eighty-four"
            yield 100 * left + right

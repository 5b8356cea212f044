"""Restate what a text in another language says about dates, times and numbers in English.

Only the words for these are replaced: "Ich fliege nächsten Freitag nach Rom, das kostet
zwölfhundert Euro" becomes "ich fliege next friday nach rom, das kostet 1200 euro". The grammar for
English reads the result with all its readings. Where a word has several meanings (Hindi's "कल" is
yesterday and tomorrow), the result has all of them.
"""

import re
from collections.abc import Iterator, Sequence

from memory.language.dates_in_text import MONTH_NAMES, MONTHS
from memory.language.detection import languages_of, may_be_english
from memory.language.folding import UNSPACED
from memory.language.lexicon import (
    AHEAD_AFTER,
    AHEAD_OF,
    ATTACHED,
    HOUR,
    LAST,
    MARKS,
    MIN_STEMMED,
    MINUTE,
    NEXT,
    PAST_AFTER,
    PAST_OF,
    SHORT,
    Lexicon,
    folded,
    is_scale,
    key_of,
    lexicon_of,
)
from memory.language.parts_of_hours import AFTER, OF, clock
from memory.language.relative_dates_in_text import (
    WEEKDAYS,
    WEEKEND_FROM_FRIDAY,
    WEEKEND_FROM_THURSDAY,
)

# Only this much of a text is translated.
MAX_CHARACTERS = 20_000
MAX_WORDS = 6  # in a phrase

_INDIC = "\u0900-\u0963\u0981-\u0dff"  # letters and the vowel signs that belong to them
# Years and the like in Chinese characters, one for each digit
_HAN_DIGITS = str.maketrans("〇零一二三四五六七八九", "00123456789")
# What is attached to an hour: Hungarian "nyolckor" (at eight), Turkish "sekize" (to eight)
_ENDINGS = {"hu": re.compile("kor$"), "tr": re.compile("(?:[dt][ae]n?|y?[aeiu])$")}
# The year before the first of a Japanese era and of Taiwan's; a year of Thailand's beside a word
# for years, a month or a sign.
_ERAS = {"令和": 2018, "平成": 1988, "昭和": 1925, "民国": 1911, "民國": 1911}
_ERA_YEAR = re.compile(
    rf"({'|'.join(_ERAS)})\s?(元|\d{{1,3}}|[一二三四五六七八九十]{{1,3}})\s?(?=年)"
)
_THAI_YEAR = re.compile(r"(?<=[a-z./-])(\s{0,3})(2[45]\d\d)(?!\d|\s{0,3}บาท)")
_DIGIT_BY_DIGIT = re.compile("[〇零一二三四五六七八九]{3,}")
_DIGITS_ONLY = re.compile(r"\d+")
_DIGITS = re.compile(r"\d{1,12}(?:[.,]\d{1,2})?(?![\d.,])")
_TOKEN = re.compile(rf"\d+(?:[.,]\d+)*|(?:[^\W\d_]|[{_INDIC}])+")
_UNSPACED_LETTER = re.compile(f"[{UNSPACED}]")

_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
_NEAR = r"\s{0,3}"
_ANY_MARK = rf"[{MARKS}\s]{{0,9}}"
_PERIOD = (
    r"(?P<period>(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:week|weekend|month|year)(?=s))s?\b"
)
_LENGTH = (
    rf"(?:(?<!\d)(?P<count>\d{{1,6}}){_NEAR})?(?P<unit>day|week|month|year)s\b"
    rf"(?:{_NEAR},{_NEAR}[a-z]+day\b)?(?!{_NEAR}\d{{4}})"
)
_YEAR = r"((?:1[5-9]|2[01])\d\d)\b"


def _beside(before: str, after: str, phrase: str) -> re.Pattern[str]:
    """Return a pattern for a phrase with one mark before it, or another after it."""
    again = re.sub(r"\(\?P<(\w+)>", r"(?P<\1_>", phrase)
    short = r"(?:[^\s\d]{1,3}\s{1,3})?"
    return re.compile(
        rf"{before}{_ANY_MARK}{short}{phrase}|{again}{_NEAR}{short}{_ANY_MARK}{after}"
    )


_NEXT, _LAST = _beside(NEXT, NEXT, _PERIOD), _beside(LAST, LAST, _PERIOD)
_AHEAD = _beside(AHEAD_OF, AHEAD_AFTER, _LENGTH)
_SINCE = _beside(LAST, LAST, _LENGTH)
_PAST = _beside(PAST_OF, PAST_AFTER, _LENGTH)
# "Ba tuần trước" is three weeks ago, although "tuần trước" is last week. In other languages, a
# number before last week is something else: "Gasté 500 el mes pasado".
_COUNT_FIRST = {"id", "ms", "th", "vi"}
# Not after a weekday: Vietnamese "thứ sáu" is Friday, and the sixth.
_COUNTED = re.compile(
    rf"(?<![\d.,/-])(?<!day , )(?P<count>\d{{1,4}}){_NEAR}"
    r"(?P<which>last|next) (?P<unit>week|month|year)\b"
)
# Which days they have depends on the country: all that some have are read.
_WEEKENDS = {"ar": WEEKEND_FROM_FRIDAY, "fa": WEEKEND_FROM_THURSDAY, "he": WEEKEND_FROM_FRIDAY}
_CLOCK = re.compile(
    rf"{HOUR}{_ANY_MARK}(\d{{1,2}})(?![\d:.,])|"
    rf"(?<![\d:.,])(\d{{1,2}}){_NEAR}{HOUR}(?:{_ANY_MARK}(\d{{2}})(?!\d))?"
)
# A bare hour after a short word, such as "um 8", "a las 8" or "в 8".
_AT = re.compile(
    r"(?<!\d\s)(?<=\s)((?!at\b|may\b)[^\W\d]{1,3}\s{1,3})(\d{1,2})"
    rf"(?!\d|[:.,/%-]\d|{_NEAR}[^\W\d{MARKS}]|{_NEAR}[{MARKS}€$£¥%])"
)
# A part of an hour or of anything else beside a number, such as "half", with the minutes it means.
_OF_CLOCK = rf"[{HOUR}{MINUTE}\s]{{0,9}}"
_HOURS = r"(?<![\d.,:])(?P<hours>\d{1,12})(?![\d:]|[.,]\d)"
_UNIT = rf"(?:(?:day|week|month|year)s|[^\W\d]{{1,2}}|\s(?!{_MONTH})[^\W\d]{{2,12}}(?=\s))?"
_PART_OF = re.compile(rf"{OF}(?P<part>[+-]\d++){_OF_CLOCK}{_HOURS}{_OF_CLOCK}")
_PART_AFTER = re.compile(
    rf"(?:{_HOURS}{_OF_CLOCK}{_UNIT}|(?<!\d)(?<!\d\s){HOUR}){_OF_CLOCK}"
    rf"{AFTER}(?P<part>[+-]\d++){_OF_CLOCK}(?:(?P<scale>10{{2,12}})(?!\d))?"
)
_SIGN = rf"(?P<sign>[+-])(?!\d){_ANY_MARK}"
_MINUTES_OF = re.compile(
    rf"{OF}(?P<sign>-)(?!\d){_ANY_MARK}"
    rf"(?P<minutes>\d{{1,2}}(?=[{HOUR}{MINUTE}\s])|[1-5](?=[1-9](?!\d|{_NEAR}[a-z]+s\b))){_OF_CLOCK}"
    rf"(?P<hours>\d{{1,2}})(?![\d:.,]){_OF_CLOCK}"
)
_MINUTES_BEFORE = re.compile(
    rf"(?<![\d.,:])(?P<minutes>\d{{1,2}}){_ANY_MARK}{OF}{_SIGN}"
    rf"(?P<hours>\d{{1,2}})(?![\d:.,]){_OF_CLOCK}"
)
_MINUTES_AFTER = re.compile(rf"{_HOURS}{_OF_CLOCK}[{OF}{AFTER}]{_SIGN}(?P<minutes>\d{{1,2}})(?!\d)")
_MINUTES_LAST = re.compile(
    rf"{_HOURS}{_OF_CLOCK}(?<=\s)(?P<minutes>\d{{1,2}}){_OF_CLOCK}{AFTER}{_SIGN}"
)
# "A las ocho y diez", "в восемь десять"
_MINUTES_BESIDE = re.compile(
    rf"(?<![\d.,:])(?<!\d\s)(?P<hours>\d{{1,2}})\s{{1,3}}(?P<minutes>[1-5]\d)"
    rf"(?![\d:.,/%-]\d|{_NEAR}[\d%€$£¥]){_NEAR}{MINUTE}?"
)
_MINUTES_AND = re.compile(
    r"(?<=\s)(?P<before>[^\W\d]{1,4}\s{1,3})(?P<hours>\d{1,2})\s{1,3}(?:y|e|i|si|και|и|و|uhr)\s{1,3}"
    rf"(?P<minutes>[1-5]?\d)(?![\d:.,/%-]\d|{_NEAR}[\d%€$£¥]){_NEAR}{MINUTE}?"
)
_HALF_HOUR = re.compile(rf"(?<![\d.,:])(?P<hours>\d{{1,2}})\.5{_NEAR}{HOUR}")
_NO_PART = re.compile(rf"[{OF}{AFTER}](?P<part>[+-]\d*)")
# "and", "or" and "to" between days of one month, as in "8. und 9. März"; folded, but for Vietnamese
_BETWEEN_DAYS = (
    "und|oder|bis|et|ou|au|y|o|al|e|a|og|eller|til|och|till|en|of|tot|t/m|ja|tai|i|do|ili|lub|az"
    "|nebo|alebo|in|ali|ir|iki|un|lidz|si|sau|pana la|es|vagy|ve|veya|dan|atau|sampai|và|đến"
    "|и|или|до|по|та|і|й|або|και|ή|ως|εως|η|और|या|से"
)
_DAYS_BEFORE = re.compile(
    rf"(?<![\d.,:])((?:\d{{1,2}}[^\s\d/,–-]{{0,3}}"
    rf"(?:\s?[/,–-]\s?|\s?(?:و|ו-?)\s?|\s(?:{_BETWEEN_DAYS})\s(?:[^\W\d]{{1,3}}\s)?)){{1,6}})"
    rf"(?=\d{{1,2}}[^\s\d]{{0,3}}{_NEAR}(?:[^\W\d]{{1,3}}\s{{1,3}})?(?:{_MONTH})\b)"
)
_DAY_OF_MONTH = re.compile(
    rf"\b(\d{{1,2}})[^\s\d]{{0,3}}{_NEAR}(?:[^\W\d]{{1,3}}\s{{1,3}})?({_MONTH})\b"
    rf"(?:\s{{1,3}}(?:[^\W\d]{{1,4}}\s{{1,3}})?{_YEAR})?"
)
_MONTH_AND_YEAR = re.compile(rf"\b({_MONTH})\s{{1,3}}[^\W\d]{{1,4}}\s{{1,3}}{_YEAR}")
_YEAR_FIRST = re.compile(r"(?<![\d.,/-])(\d\d)[./-]\s?(\d{1,2})[./-]\s?(\d{1,2})(?!\d)")
# Days of one month after it, as in "3月8日和9日"
_CJK_DAY = rf"{_NEAR}(?:[号號日]|days\b)"
_CJK_AND = rf"{_NEAR}(?:[、,・~〜–-]|[和与與及跟至到]|[とや]|から|[과와및]|부터|에서){_NEAR}"
_DAYS_AFTER = re.compile(
    rf"\b({_MONTH}){_NEAR}((?:\d{{1,2}}(?:{_CJK_DAY})?{_CJK_AND}){{1,6}}\d{{1,2}})"
    rf"{_CJK_DAY}(?!{_NEAR}[間间])"
)
# "来月5日" is a day of the next month, "来月5日間" five days of it.
_DAY_OF_NEAR_MONTH = re.compile(
    rf"((?:next|this|last) month){_NEAR}(\d{{1,2}}){_NEAR}(?:[号號日]|days\b)(?!{_NEAR}[間间])"
)
_BESIDE_NUMBER = r"\.?\s{0,2}\d"
_SHORT_MONTH = re.compile(
    rf"(?P<before>\d[^\s\d]{{0,3}}\s{{0,3}}(?:[^\W\d]{{1,3}}\s{{1,3}})?)?"
    rf"{SHORT}(?P<month>[a-z]+)\s*(?!{_BESIDE_NUMBER})(?:,\s*)?"
)
# English words that are other words elsewhere: French "mon" is "my", Swedish "fri" is free.
_SHORT_NAMES = {"may"} | {
    name for name in (*MONTHS, *WEEKDAYS) if name not in MONTH_NAMES and not name.endswith("day")
}
_ANY_SHORT_NAME = "|".join(sorted(_SHORT_NAMES, key=len, reverse=True))
_SHORT_NAME = re.compile(
    rf"(?<!\w)(?<!\d\s)(?<!\d\.\s)(?:{_ANY_SHORT_NAME})(?!\w|{_BESIDE_NUMBER})",
    re.IGNORECASE,
)


def english_of(text: str) -> str:
    """Return what the grammar for English may read of a text, which may be in another language.

    Short names of days and months count only beside a number there.
    """
    return text if may_be_english(text) else _SHORT_NAME.sub(" ", text)


def in_english(text: str) -> Iterator[str]:
    """Yield a text restated in English, once for each other language that it may be in."""
    text = text[:MAX_CHARACTERS]
    for language in languages_of(text):
        lexicon = lexicon_of(language) if language != "en" else None
        if lexicon is not None:
            yield restated(text, lexicon)


def _in_digits(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:.12g}"


def restated(text: str, lexicon: Lexicon) -> str:
    """Return a text in a lexicon's language with its dates, times and numbers in English."""
    text = _SHORT_NAME.sub(
        lambda match: match[0] if _knows(lexicon, match[0]) else " ",
        folded(text, lexicon.language),
    )
    if lexicon.is_year_first:
        text = _DIGIT_BY_DIGIT.sub(lambda match: match[0].translate(_HAN_DIGITS), text)
        text = _ERA_YEAR.sub(lambda match: _era_year(match, lexicon), text)
    text = _SHORT_MONTH.sub(_short_month, _with_marks(text, lexicon)).replace(SHORT, "")
    if lexicon.language == "th":
        text = _THAI_YEAR.sub(lambda match: f"{match[1]}{int(match[2]) - 543}", text)
    text = _with_parts(re.sub(" {2,}", " ", text))
    if lexicon.is_year_first:
        text = _DAY_OF_NEAR_MONTH.sub(r"\1 the \2th ", text)
        text = _DAYS_AFTER.sub(
            lambda match: f"{match[1]} {' and '.join(_DIGITS_ONLY.findall(match[2]))} ", text
        )
    text = _NEXT.sub(lambda match: f" next {match['period'] or match['period_']} ", text)
    text = _LAST.sub(lambda match: f" last {match['period'] or match['period_']} ", text)
    text = text.replace("weekends", "this weekend")
    text = text.replace("weekend", _WEEKENDS.get(lexicon.language, "weekend"))
    if lexicon.language in _COUNT_FIRST:
        text = _COUNTED.sub(lambda match: f" {_counted(match)} ", text)
    text = _SINCE.sub(lambda match: f" last {_length(match)} ", text)
    text = _PAST.sub(lambda match: f" {_length(match)} ago ", text)
    text = _AHEAD.sub(lambda match: f" in {_length(match)} ", text)
    text = _CLOCK.sub(_clock, text)
    if lexicon.is_year_first:
        text = _YEAR_FIRST.sub(r" 20\1-\2-\3 ", text)
    text = _DAYS_BEFORE.sub(
        lambda match: f" {' and '.join(_DIGITS_ONLY.findall(match[1]))} and ", text
    )
    text = _DAY_OF_MONTH.sub(lambda match: f" {match[1]} {match[2]} {match[3] or ''}", text)
    text = _MONTH_AND_YEAR.sub(r"\1 \2", text)
    text = _MINUTES_AND.sub(_with_minutes, _MINUTES_BESIDE.sub(_with_minutes, text))
    return re.sub(f"[{MARKS}]", " ", _AT.sub(r"\1 at \2", text))


def _knows(lexicon: Lexicon, word: str) -> bool:
    return word in lexicon.meanings or word in lexicon.numbers


def _era_year(match: re.Match[str], lexicon: Lexicon) -> str:
    year = int(match[2]) if match[2].isdigit() else lexicon.numbers.get(match[2], 1)
    return str(int(_ERAS[match[1]] + year))


def _short_month(match: re.Match[str]) -> str:
    return match[0] if match["before"] else " "


def _with_parts(text: str) -> str:
    """Return a text with the times and numbers for its marks of parts of hours.

    "Sept heures et demie" is read as both 7:30 and 7.5 hours.
    """
    for minutes in (_MINUTES_BEFORE, _MINUTES_OF, _MINUTES_AFTER, _MINUTES_LAST):
        text = minutes.sub(_with_minutes, text)
    text = _PART_OF.sub(_with_part, _PART_AFTER.sub(_with_part, text))
    text = _HALF_HOUR.sub(lambda match: f" {clock(60 * int(match[1]) + 30)} , {match[1]}.5 ", text)
    return _NO_PART.sub(lambda match: " half " if match["part"] == "-30" else " ", text)


def _with_minutes(match: re.Match[str]) -> str:
    """Return the time, and the numbers as well: "tři za dvacet" may be a price."""
    hours, minutes = int(match["hours"]), int(match["minutes"])
    numbers = f"{minutes} , {hours}"
    if len(match["minutes"]) == 1 and match.end("minutes") == match.start("hours"):
        minutes *= 10  # "twenty six" was read as one number
        numbers = match["minutes"] + match["hours"]
    if hours > 24 or minutes > 59:
        return match[0]
    sign = -1 if match.groupdict().get("sign") == "-" else 1
    time = clock(60 * hours + sign * minutes)
    return f"{match.groupdict().get('before') or ''} , {time} , {numbers} , "


def _with_part(match: re.Match[str]) -> str:
    hours, minutes = int(match["hours"] or 1), int(match["part"])
    if hours > 24 and minutes in (-30, -45):
        return match[0]  # no hour
    unit = 1
    if hours >= 1000:  # the scale that is halved: "dos millones y medio"
        zeros = len(str(hours)) - len(str(hours).rstrip("0"))
        unit = 10 ** (zeros if match[0][0] == OF else zeros // 3 * 3)
    number = (hours + unit * minutes / 60) * int(match.groupdict().get("scale") or 1)
    times = f"{clock(60 * hours + minutes)} , " if match["hours"] and hours <= 24 else ""
    return f" , {times}{_in_digits(number)} , "


def _length(match: re.Match[str]) -> str:
    return f"{match['count'] or match['count_'] or 1} {match['unit'] or match['unit_']}s"


def _counted(match: re.Match[str]) -> str:
    length = f"{match['count']} {match['unit']}s"
    return f"in {length}" if match["which"] == "next" else f"{length} ago"


def _clock(match: re.Match[str]) -> str:
    return f" {match[2]}:{match[3]} " if match[3] else f" at {match[1] or match[2]} "


def _with_marks(text: str, lexicon: Lexicon) -> str:
    """Return a folded text with its phrases replaced by their meanings, and its number words."""
    ends = _ends(text, lexicon)
    pieces: list[str] = []
    numbers: list[float] = []  # the number words just read
    position = copied = 0

    def flush() -> None:
        if numbers:
            pieces.append(f" {_in_digits(_value(numbers))} ")
            numbers.clear()

    while position < len(text):
        reach = ends.get(position, ())
        if not reach and numbers and position == copied and not lexicon.is_spaced:
            reach = range(min(position + lexicon.longest, len(text)), position, -1)
        meaning, number, end = _phrase(text, position, reach, lexicon)
        if end == position:
            position += 1
            continue
        between = text[copied:position]
        if numbers and number and _continues(numbers, between.strip(" -\u00a0"), number, lexicon):
            numbers += number
        elif meaning and number and _ends_in_number(between, numbers):
            flush()  # a number of units: Korean "일" is a day, and 1
            pieces += [between, f" {meaning} "]
        else:
            flush()
            pieces += [between, f" {meaning} , " if meaning and number else f" {meaning} "]
            numbers += number
        position = copied = end
    flush()
    return "".join([*pieces, text[copied:]])


def _ends(text: str, lexicon: Lexicon) -> dict[int, Sequence[int]]:
    """Return where phrases may begin in a text, each with where it may end, the longest first."""
    spans = [match.span() for match in _TOKEN.finditer(text)]
    if lexicon.is_spaced:
        all_ends = [end for _, end in spans]
        return {
            start: all_ends[index : index + min(lexicon.longest, MAX_WORDS)][::-1]
            for index, (start, _) in enumerate(spans)
        }
    starts = [start for start, _ in spans]
    if lexicon.language not in ATTACHED:
        starts += [match.start() for match in _UNSPACED_LETTER.finditer(text)]
    reach = lexicon.longest + 3
    return {start: range(min(start + reach, len(text)), start, -1) for start in starts}


def _phrase(
    text: str, start: int, ends: Sequence[int], lexicon: Lexicon
) -> tuple[str, list[float], int]:
    """Return the meaning of the longest phrase, the parts of its number, and where it ends.

    A phrase may be both: French "sept" is 7, and September.
    """
    if ends and (in_digits := _digits(text, start, lexicon)):
        return "", *in_digits
    for end in ends:
        phrase = text[start:end]
        if phrase[-1].isspace():
            continue
        key = key_of(phrase, is_spaced=lexicon.is_spaced)
        for form in _forms(key, lexicon):
            meaning = lexicon.meanings.get(form, "")
            number = _factors(lexicon.numbers[form], lexicon) if form in lexicon.numbers else []
            if meaning or number or form in lexicon.meanings:
                return meaning, number, end
        if lexicon.is_spaced and len(key) >= MIN_STEMMED:
            stems = " ".join(map(lexicon.stem, key.split()))
            if meaning := lexicon.stems.get(stems, "") or lexicon.meanings.get(stems, ""):
                return meaning, [], end
    parts = _parts(text[start : ends[-1]], lexicon) if lexicon.is_spaced and ends else []
    return "", parts, ends[-1] if parts else start


def _forms(key: str, lexicon: Lexicon) -> Sequence[str]:
    """Return the phrase, in Hebrew and Arabic also without a letter that is a word before it.

    In Hungarian, "nyolckor" is also "nyolc" (at eight); in Turkish, "sekize" is "sekiz" (to eight).
    """
    if ending := _ENDINGS.get(lexicon.language):
        return (key, ending.sub("", key))
    if lexicon.language in ("he", "ar") and len(key) > 3:
        return (key, key[1:])
    return (key,)


def _digits(text: str, start: int, lexicon: Lexicon) -> tuple[list[float], int] | None:
    """Return a number in digits, and its end, if a number word goes on with it: "3,5 Millionen"."""
    digits = _DIGITS.match(text, start)
    if digits is None:
        return None
    end = digits.end()
    if lexicon.is_spaced:
        word = _TOKEN.match(text, end + 1)
        is_part = text[end : end + 1].isspace() and word is not None and word[0] in lexicon.scales
    else:
        is_part = text.startswith(lexicon.scales, end) or text[:start].endswith(lexicon.scales)
    number = digits[0].replace(",", ".")
    return ([int(number) if number.isdecimal() else float(number)], end) if is_part else None


def _parts(word: str, lexicon: Lexicon) -> list[float]:
    """Return the numbers that a compound such as "zweitausendfünfhundert" is made of."""
    if len(word) < 5 or len(word) > 60:
        return []
    best: list[list[float] | None] = [None] * len(word) + [[]]
    for start in range(len(word) - 1, -1, -1):
        for end in range(len(word), start + 1, -1):
            rest, part = best[end], word[start:end]
            if rest is None:
                continue
            if part in lexicon.numbers:
                numbers = [*_factors(lexicon.numbers[part], lexicon), *rest]
            elif part in lexicon.joints and start and rest:
                numbers = rest
            else:
                continue
            if best[start] is None or len(numbers) < len(best[start] or ()):
                best[start] = numbers
    return best[0] or []


def _factors(number: float, lexicon: Lexicon) -> list[float]:
    """Return a phrase's number, or what it multiplies and by what: "five thousand" ends 45,000."""
    scales = (10**9, 10**6, 1000) if lexicon.is_spaced else (10**8, 10**4, 1000)
    scale = next((scale for scale in scales if number % scale == 0), 0)
    return [number // scale, scale] if scale and number and not is_scale(number) else [number]


def _ends_in_number(between: str, numbers: Sequence[float]) -> bool:
    return between[-1:].isdigit() or (bool(numbers) and not between.strip())


def _continues(
    numbers: Sequence[float], between: str, more: Sequence[float], lexicon: Lexicon
) -> bool:
    """Return whether a number word continues a number: "two hundred", but not "two three"."""
    last, first = numbers[-1], more[0]
    if between and between not in lexicon.joints:
        return False
    if between and last < 10 and first in range(20, 100, 10) and lexicon.language in ("ar", "da"):
        return True  # these say the units first
    if is_scale(first):
        return True
    return is_scale(last) or last % 10 ** len(str(first)) == 0 < last


def _value(numbers: Sequence[float]) -> float:
    """Return the number that the words make up: each scale multiplies what is smaller before it."""
    stack: list[float] = []
    for number in numbers:
        if is_scale(number) or (number == 10 and stack and stack[-1] < 10 and len(stack) > 1):
            factor: float = 0
            while stack and stack[-1] < number:
                factor += stack.pop()
            stack.append(number * (factor or 1))
        else:
            stack.append(number)
    return sum(stack)

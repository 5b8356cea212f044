"""Dates that a question names relative to now, in any language: "yesterday", "la semana pasada".

Entries are found by the day on which they occurred and by the dates they contain, as terms. So a
question is searched for as if it had named these days itself, with every reading of its words.
"""

import calendar
import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from zoneinfo import ZoneInfo

from django.utils import timezone

from memory.kernel.models.users import MemoryUser
from memory.language.dates_in_text import Said
from memory.language.detection import language_of, languages_of_script
from memory.language.folding import UNSPACED
from memory.language.lexicon import languages_of_dates, lexicon_of
from memory.language.relative_dates_in_text import add_relative_dates
from memory.language.translation import restated
from memory.recall.search.words import terms_of_day

# Only this much of a question is read, and no more days are searched for one by one.
MAX_CHARACTERS = 400
MAX_DAYS = 31
# Such as "in the last two weeks".
_SINCE = re.compile(
    r"\b(?:last|past|previous)\s+(?P<length>[^\W_]{1,6}\s+(?:day|week|month|year)s)\b",
    re.IGNORECASE,
)
# The first and the last days of a week are read; days this far apart are two periods.
BETWEEN_WEEKENDS = datetime.timedelta(days=6)
# The languages that write the names of weekdays with a capital (CLDR); in others, words with one
# are names, unless they begin a sentence: "¿Quién es Domingo?"
CAPITALISED = frozenset({"de", "el", "en", "id", "sw", "tl", "tr", "vi"})
# Words before a day that isn't a name, whatever its capital: "el Domingo", "on Friday".
_BEFORE_DAY = (
    r"\b(?i:on|last|next|this|since|until|by|el|los|este|le|ce|il|no|na|op|w|we|v|ve|vo|på"
    "|u|у|в|во)"
)
_CAPITALISED_WORD = re.compile(
    rf"(?P<date>{_BEFORE_DAY} [^\W\d_]+)|(?<=[\w,;:] )[^\W\d_{UNSPACED}]+"
)
_DAY = "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
# A name that is also a word for a day: "Frau Samstag" (but not "meine Frau"), "Wednesday Addams",
# "Black Friday".
_NAME = re.compile(
    r"(?<![nr]e )(?<![nr]er )\b(?:Mrs?|Ms|Miss|Dr|Prof|Herrn?|Frau|Familie)\b\.? [A-Z]\w+"
    rf"|{_BEFORE_DAY} (?P<date>{_DAY})\b"
    rf"|(?:(?<=\bis )[A-Z][a-z]+|Ash|Black|Cyber|Easter|Good|Palm|Shrove|Super) {_DAY}\b"
    rf"|\b{_DAY} (?!Morning|Afternoon|Evening|Night)[A-Z][a-z]+"
)


@dataclass(frozen=True)
class QuestionDates:
    """The period from `first` to `last`, and the terms of its days, months or years."""

    first: datetime.date
    last: datetime.date
    terms: Sequence[str]

    def to_json(self) -> dict[str, str]:
        """Return the period as a JSON object."""
        return {"first": str(self.first), "last": str(self.last)}


def relative_dates_of(
    question: str, user: MemoryUser, at: datetime.datetime | None = None
) -> QuestionDates | None:
    """Return the dates that a question names relative to its day in the user's time zone, if any.

    `at` is the time at which it is asked; None means now.
    """
    today = (at or timezone.now()).astimezone(ZoneInfo(user.time_zone)).date()
    every = (_periods_of(text, today) for text in _readings(question[:MAX_CHARACTERS]))
    periods = next(filter(None, every), None)
    if periods is None:
        return None
    terms: dict[str, None] = {}
    for first, last in periods:
        terms |= dict.fromkeys(_terms_of_period(first, last))
    return QuestionDates(min(periods)[0], max(last for _, last in periods), list(terms))


def _readings(text: str) -> Iterator[str]:
    """Yield a question in English, read in its own language, then in that of its dates."""
    language = language_of(text)
    if language in CAPITALISED:
        text = _NAME.sub(lambda match: match[0] if match["date"] else "", text)
    else:
        text = _CAPITALISED_WORD.sub(
            lambda match: match["date"] or ("" if match[0].istitle() else match[0]), text
        )
    yield _in_english(text, language)
    for other in languages_of_script(text) or languages_of_dates(text):
        if other != language:
            yield _in_english(text, other)


def _in_english(text: str, language: str) -> str:
    lexicon = lexicon_of(language) if language != "en" else None
    return restated(text, lexicon) if lexicon else text


_Period = tuple[datetime.date, datetime.date]


def _periods_of(text: str, today: datetime.date) -> list[_Period]:
    moments = Said()
    if since := _SINCE.search(text):
        add_relative_dates(f"{since['length']} ago", today, moments)
        return [(min(moments.days), today)] if moments.days else []
    add_relative_dates(text, today, moments)
    return list(_periods(moments))


def _periods(moments: Said) -> Iterator[_Period]:
    """Yield the days, or the months and years if there are no days; adjoining ones are one."""
    days = sorted(moments.days)
    if days:
        first = days[0]
        for day, following in pairwise([*days, datetime.date.max]):
            if following - day >= BETWEEN_WEEKENDS:
                yield first, day
                first = following
        return
    for year, month in moments.months:
        last = calendar.monthrange(year, month)[1]
        yield datetime.date(year, month, 1), datetime.date(year, month, last)
    for year in moments.years:
        yield datetime.date(year, 1, 1), datetime.date(year, 12, 31)


def _terms_of_period(first: datetime.date, last: datetime.date) -> Iterator[str]:
    """Yield the terms of a period's days; of a whole month or year, which all its days share."""
    year, month, _ = terms_of_day(first)
    yield year
    if (first.day, last.day) == (1, calendar.monthrange(last.year, last.month)[1]):
        if first.month == last.month:
            yield month
        return
    for distance in range(min((last - first).days + 1, MAX_DAYS)):
        yield from terms_of_day(first + datetime.timedelta(days=distance))

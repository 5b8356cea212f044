"""Find the dates and times in a text, given when the text was said.

Numeric dates are read in every order that the calendar allows. Relative dates ("tomorrow", "in two
weeks", "last Friday") and dates without a year are resolved relative to that time, to every day
that the speaker may have meant. Only English words are understood: `translation` restates texts in
other languages in English.
"""

import datetime
import re
from collections.abc import Collection

from memory.language.dates_in_text import (
    FLAGS,
    Said,
    absolute_dates,
    masked,
    read_years,
    without_accented_words,
)
from memory.language.relative_dates_in_text import (
    add_dates_in_words,
    add_relative_dates,
    add_yearless_dates,
)
from memory.language.times_in_text import find_times

_ANY_YEAR = re.compile(r"(?<!\d)(?:1[5-9]|2[01])\d\d(?!\d)|(?<=['’])\d\d(?!\d)", FLAGS)


def find_moments(
    text: str, at: datetime.datetime, months: Collection[tuple[int, int]] = ()
) -> Said:
    """Return the dates and times mentioned in a text that was said at the local time `at`.

    `months` are months that were mentioned before: "the 14th" may be in one of them.
    """
    moments = Said()
    text = without_accented_words(text)
    today = at.date()
    moments.days.add(today)
    moments.years.add(today.year)
    moments.times.add((at.hour, at.minute))
    moments.years.update(
        year for match in _ANY_YEAR.finditer(text) for year in read_years(match[0])
    )
    dated = list(absolute_dates(text))
    for phrase in dated:
        moments.days.update(phrase.days)
        moments.months.update(phrase.months)
    rest = masked(text, [(phrase.start, phrase.end) for phrase in dated])
    add_yearless_dates(rest, today, moments, months)
    add_dates_in_words(text, today, moments)
    add_relative_dates(text, today, moments)
    moments.times.update(find_times(text))
    return moments

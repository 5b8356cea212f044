"""Find the dates and times in a text, given when the text was said.

Numeric dates are read in every order that the calendar allows. Relative dates ("tomorrow", "in two
weeks", "last Friday") and dates without a year are resolved relative to that time, to every day
that the speaker may have meant. Only English words are understood: `translation` restates texts in
other languages in English.
"""

import datetime
import re

from memory.language.dates_in_text import FLAGS, Said, absolute_dates, masked, read_years
from memory.language.relative_dates_in_text import (
    add_dates_in_words,
    add_relative_dates,
    add_yearless_dates,
)
from memory.language.times_in_text import times_said

_ANY_YEAR = re.compile(r"(?<!\d)(?:1[5-9]|2[01])\d\d(?!\d)|(?<=['’])\d\d(?!\d)", FLAGS)


def moments_said(text: str, at: datetime.datetime) -> Said:
    """Return the dates and times mentioned in a text that was said at the local time `at`."""
    said = Said()
    today = at.date()
    said.days.add(today)
    said.years.add(today.year)
    said.times.add((at.hour, at.minute))
    said.years.update(year for match in _ANY_YEAR.finditer(text) for year in read_years(match[0]))
    dated = list(absolute_dates(text))
    for found in dated:
        said.days.update(found.days)
        said.months.update(found.months)
    rest = masked(text, [(found.start, found.end) for found in dated])
    add_yearless_dates(rest, today, said)
    add_dates_in_words(text, today, said)
    add_relative_dates(text, today, said)
    said.times.update(times_said(text))
    return said

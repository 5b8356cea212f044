"""Forecasts equal the result of trying every moment, however code asks for the time.

Run many more examples with `UAC_EXAMPLES=200 pytest tests/unit/sandbox/test_tracing.py`.
"""

import dataclasses
import datetime
import decimal
import functools
import itertools
import math
import re
import statistics
import string
from collections import Counter
from collections.abc import Mapping
from types import CodeType
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_image.forecasting import Forecaster, Horizon, Told
from sandbox_image.uac import PartialDate, info, warning
from sandbox_image.uac.alerts import Alert
from tests.properties import examples

START = datetime.date(2027, 11, 20)
END = datetime.date(2028, 11, 20)  # a leap year
# The day before a change of the clocks, by zone: at night, at midnight, by half an hour, by a day.
CHANGES = {
    "Europe/Berlin": "2028-03-25",
    "America/New_York": "2028-11-04",
    "Australia/Lord_Howe": "2028-04-01",
    "Africa/Cairo": "2028-04-27",
    "Asia/Beirut": "2028-10-28",
    "America/Santiago": "2028-09-02",
    "Europe/Dublin": "2028-10-28",
    "Asia/Kathmandu": "2028-02-28",
    "Pacific/Apia": "2011-12-29",
    "UTC": "2028-12-31",
}

# Functions for the questions, as the files of a project would define them.
HELPERS = '''
DAYS = [date(2027, 12, 1), date(2028, 2, 29), date(2028, 3, 31), date(2028, 7, 1), date(2028, 9, 9)]

class Feast(date):
    """A date that C code makes a subclass of."""

@dataclasses.dataclass(order=True, frozen=True)
class Window:
    start: date
    end: date

    def holds(self, day):
        return self.start <= day <= self.end

    @property
    def length(self):
        return (self.end - self.start).days

@dataclasses.dataclass(kw_only=True)
class Plan:
    days: list
    owner: object = None

    def next(self, day):
        return min((one for one in self.days if one >= day), default=None)

    def soon(self, day):
        following = self.next(day)
        return following is not None and (following - day).days <= 14

PLAN = Plan(days=DAYS)

def first_of_next_month(day):
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)

def anniversary(day, of):
    if (of.month, of.day) == (2, 29) and not is_leap(day.year):
        return date(day.year, 3, 1)
    return of.replace(year=day.year)

def is_leap(year):
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)

def working_days(start, end):
    count = 0
    while start < end:
        count += start.weekday() < 5
        start += timedelta(days=1)
    return count

def season(day):
    match day:
        case date(month=12 | 1 | 2):
            return "winter"
        case date(month=month, day=1) if month > 5:
            return "first"
        case date():
            return "other"

def stage(left):
    match left:
        case 0 | 1:
            return "now"
        case int(days) if days < 0:
            return "over"
        case int():
            return "later"
        case _:
            return "unknown"

def countdown(day):
    for mark in (30, 7, 1):
        yield day - timedelta(days=mark)

@functools.lru_cache
def left_until(day, of):
    return (of - day).days
'''
NAMES: dict[str, Any] = {
    **{name: getattr(datetime, name) for name in ("date", "datetime", "time", "timedelta")},
    **{one.__name__: one for one in (dataclasses, functools, itertools, math, re, statistics)},
    "UTC": datetime.UTC,
    "PartialDate": PartialDate,
    "ZoneInfo": ZoneInfo,
    "Decimal": decimal.Decimal,
    "Counter": Counter,
    "__name__": __name__,
}


exec(compile(HELPERS, "<helpers>", "exec", dont_inherit=True), NAMES)


def template(text: str, parts: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[str]:
    """A strategy for a text with the parts that it names."""
    named = {name for _, name, _, _ in string.Formatter().parse(text) if name}
    named |= set(re.findall(r"\{\{\{(\w)", text))
    used = {name: parts[name] for name in named if name in parts}
    return st.fixed_dictionaries(used).map(lambda found: f"({text.format(**found)})")


def one_of(texts: str, parts: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[str]:
    """A strategy for one of these texts, separated by bars and lines."""
    each = filter(None, map(str.strip, re.split(r"[|\n]", texts)))
    return st.one_of([template(text, parts) for text in each])


orders = st.sampled_from(["<", "<=", "==", "!=", ">", ">="])
# Each as likely as the others, where a strategy for numbers would favour the first ones.
literal_dates = st.sampled_from(
    [START + datetime.timedelta(days=number) for number in range(-20, 380)]
).map(lambda day: f"date({day.year}, {day.month}, {day.day})")
small = st.sampled_from(range(-40, 61))
counts = st.sampled_from(range(1, 13))
literal_spans = one_of(
    "timedelta(days={n}) | timedelta(days={n}, hours={c}) | timedelta(hours={n})",
    {"n": small, "c": counts},
)


# Questions by the type of their answer. `d` and `e` are days, `s` and `r` spans, `n` and `m` whole
# numbers, `f` and `g` others, `t` and `u` texts, `a` and `b` truths, `p` and `q` moments; literals
# are `l` (a day), `x` (a span), `k` (a number), `c` (one of 1 to 12), `z` (a zone), `o` (an order).
KINDS = {
    "de": """
{d} + {x} | {d} - {x} | {x} + {d} | {d} + {s} | {d} - {s} | min({d}, {e}) | max({d}, {e}, {l})
sorted([{d}, {e}])[0] | {d}.replace(day={c}) | date({d}.year, {c}, 1)
date({d}.year, {d}.month, {c})
date.fromordinal({d}.toordinal() + {k}) | date.fromisoformat(f'{{{d}}}') | PLAN.next({d})
datetime.combine({d}, time({c})).date() | min([one for one in DAYS if one > {d}], default={e})
max([{d}, *DAYS], key=lambda one: abs((one - {e}).days)) | {d} if {b} else {e} | ({d}, {e})[{b}]
[*countdown({d})][{n} % 3] | next(countdown({d})) | Window({d}, {e}).start | anniversary({d}, {l})
first_of_next_month({d})
""",
    "sr": """
{d} - {e} | {d} - {l} | {l} - {d} | {s} + {r} | {s} - {r} | -{s} | abs({s}) | {s} * {c} | {s} // {c}
{s} % {x} | max({s}, {r}) | {s} / {c} | {x} - {s} | {s} * 0.5 | timedelta(days={n})
sum([{s}, {r}], timedelta()) | {s} if {b} else {r} | divmod({s}, timedelta(days={c}))[1]
""",
    "nm": """
({d} - {l}).days | ({l} - {d}).days | {s}.days | {s}.seconds | {d}.year | {d}.month | {d}.day
{d}.weekday() | {d}.isoweekday() | {d}.toordinal() | {d}.isocalendar()[0] | {d}.isocalendar().week
{d}.timetuple().tm_yday | {n} + {m} | {n} - {m} | {n} * {c} | divmod({n}, {c})[0] | {n} // {c}
{n} % {c} | -{n} | +{n} | abs({n}) | int({f}) | round({f}) | math.floor({f}) | math.ceil({f})
round({n}, -1) | len(range({n} % 99)) | sum([{n}, {m}]) | max({n}, {m}) | min({n}, {m}, {c})
{n} if {b} else {m} | {s} // {x} | {s} // timedelta(days={c}) | sum(one <= {d} for one in DAYS)
len([one for one in DAYS if one > {d}]) | working_days({d}, {l}) % 50 | Window({d}, {l}).length
left_until({d}, {l}) | statistics.median([{n}, {m}, {k}]) | sorted([{n}, {m}, {k}])[1] | {n} ** 2
Counter([{n}, {m}, {k}])[{k}] | functools.reduce(max, [{n}, {m}, {k}]) | int(Decimal({n}))
[*range(5)][{n} % 5] | {b} + {n} | next(itertools.count({n})) | {n} & {c} | int(f'{{{n}}}')
{n}.real | {n} or {m} | hash({d}) % 1 | len([*itertools.takewhile(lambda one: one < {d}, DAYS)])
""",
    "fg": """
{s}.total_seconds() | {s} / timedelta(days={c}) | {n} / {c} | {s} / {x} | {f} + {g} | {f} - {g}
{f} * {c} | {f} / {c} | -{f} | abs({f}) | float({n}) | math.fsum([{f}, {n}]) | {f} // {c}
{f} % {c} | statistics.fmean([{n}, {m}]) | math.sqrt(abs({f})) | max({f}, {n}) | {n} * 0.1
round({f}, 1) | {n} / 30.44 | math.copysign({f}, {n}) | {f} * 1e-9 | {f} + 1e16
{n} * 1e17 | {n} * float('inf') | ({n} * 1e-300) * 1e-20
""",
    "tu": """
f'{{{d}}}' | {d}.isoformat() | {d}.strftime('%m-%d') | str({n}) | '%d' % {n} | '%s' % {d}
'{{}}'.format({d}) | f'{{{f}:.1f}}' | season({d}) | stage({n}) | 'x' * ({n} % 4) | f'{{{n}:>4}}'
{t} if {b} else {u} | {t}[:7] | repr({d}) | ','.join(map(str, [{n}, {d}])) | {d}.ctime()[:3]
stage({d})
""",
    "ab": """
{d} {o} {e} | {d} {o} {l} | {l} {o} {d} | {s} {o} {r} | {n} {o} {m} | {n} {o} {k} | {f} {o} {g}
{f} {o} {k} | {t} {o} {u} | {n} in ({k}, {c}) | {d} in ({l}, {e}) | {d} in {{{l}, {e}}}
{d} in DAYS | {n} in range({k}) | {n} in {{{k}, {c}}} | {{{d}: True}}.get({e}, False)
DAYS.count({d}) > 0 | not {b} | {b} and {a} | {b} or {a} | {b} != {a} | bool({s}) | bool({n})
({d}, {n}) {o} ({e}, {m})
Window({d}, {l}) {o} Window({l}, {e}) | Window({l}, {l} + {x}).holds({d}) | PLAN.soon({d})
[{d}] {o} [{e}] | {d} == None | {d} is None | {n} is None | isinstance({n}, int) | {d} != {t}
isinstance({d}, date) | isinstance({d}, datetime) | {d} == Feast(2028, {c}, 9) | {n} == {t}
Feast(2028, {c}, 9) {o} {d} | PartialDate('2028-04') {o} {d} | {d} {o} PartialDate('2028')
any({d} <= one <= {e} for one in DAYS) | all(one > {d} for one in DAYS) | {n} == Decimal({c})
Decimal({k}) {o} {n} | {d} == datetime(2028, {c}, 1) | {d}.month == {c} == {e}.day | {n} != {m}
datetime.combine({d}, time({c})) {o} datetime(2028, {c}, 1) | 0 <= ({l} - {d}).days <= {k}
left_until({d}, {l}) {o} {k} | {d}.replace(year={d}.year + 1) {o} {l} | math.isclose({f}, {k})
bool(re.match('2028-0[{c}]', str({d}))) | len({{{d}, {e}, {l}}}) == 2 | {n} < 10 ** {c}
""",
}
OF_MOMENTS = {
    "pq": """
{p} + {x} | {x} + {p} | {p} - {x} | {p} + {s} | {p}.astimezone({z}) | min({p}, {q}) | max({p}, {q})
{p}.replace(hour={c}) | {p}.replace(tzinfo={z}) | {p}.replace(minute=0, second=0, microsecond=0)
{p} if {b} else {q} | datetime.combine({d}, time({c}), {z})
datetime.fromisoformat({p}.isoformat())
datetime({p}.year, {p}.month, {p}.day, {p}.hour, tzinfo={z})
""",
    "de": "{p}.date()",
    "sr": "{p} - {q} | {q} - {p} | {p}.utcoffset() | {p}.dst()",
    "nm": """
{p}.hour | {p}.minute | {p}.day | {p}.month | {p}.year | {p}.weekday() | {p}.time().hour | {p}.fold
""",
    "fg": "{p}.timestamp() | ({p} - {q}).total_seconds() | ({p} - {q}) / {x}",
    "tu": "f'{{{p}:%H:%M}}' | {p}.isoformat() | {p}.tzname() | str({p}.time())",
    "ab": """
{p} {o} {q} | {p}.time() {o} time({c}, 30) | time({c}) {o} {p}.time() | {p}.time() {o} {q}.time()
{p} == {d} | isinstance({p}, datetime) | isinstance({p}, date) | {p} in ({q},) | {p} - {q} {o} {x}
{p} + {x} {o} {q} | {p}.date() {o} {q}.date() | {p}.utcoffset() == timedelta(hours={c})
{p}.tzinfo == {z} | {c} <= {p}.hour < {c} + {c} | {p} - {q} < timedelta(minutes={k})
""",
}


def grammar(
    day: str, depth: int, moments: st.SearchStrategy[str] | None = None
) -> st.SearchStrategy[str]:
    """A strategy for questions about a day, and about moments, nested so deep."""
    parts = {"o": orders, "c": counts, "k": small, "l": literal_dates, "x": literal_spans}
    parts["z"] = st.sampled_from(["UTC", "HOME", "ZoneInfo('Asia/Tokyo')"])
    today = {"d": st.just(day), **parts}
    found: dict[str, st.SearchStrategy[str]] = {
        "de": st.sampled_from([day] * 3) | literal_dates,
        "sr": literal_spans | one_of("{l} - {d} | {d} - {l}", today),
        "nm": small.map(str) | one_of("({l} - {d}).days | ({d} - {l}).days", today),
        "fg": one_of("({l} - {d}).days / {c} | 0.5 | -3.25 | 1e3", today),
        "tu": one_of("f'{{{d}}}' | '2028-03-01' | '7' | ''", today),
        "ab": one_of("{d} {o} {l}", today),
    }
    if moments is not None:
        found["pq"] = moments
    for _ in range(depth):
        inner = parts | {letter: one for letters, one in found.items() for letter in letters}
        for letters, shallow in found.items():
            texts = KINDS.get(letters, "")
            if moments is not None:
                texts += OF_MOMENTS[letters]
            found[letters] = shallow | one_of(texts, inner)
    return found["ab"]


@functools.cache
def compiled(question: str) -> CodeType:
    return compile(question, "<question>", "eval", dont_inherit=True)


def alerts_of(questions: list[str], today: Any, now: Any) -> list[Alert]:
    """Return an alert for each question answered with yes; more severe if the next one is, too."""
    NAMES["left_until"].cache_clear()  # a module that keeps such a thing is made anew
    names = {**NAMES, "today": today, "now": now}
    said = [bool(eval(compiled(text), names)) for text in questions]
    return [
        (warning if following else info)("m", key=text)
        for text, one, following in zip(questions, said, [*said[1:], False], strict=True)
        if one
    ]


def tell(alert: Alert) -> Told:
    return alert.key, (), ""


Outcome = str | frozenset[tuple[str | None, str]]


def really(questions: list[str], today: Any, now: Any = None) -> Outcome:
    """Return the findings of that time, by unmodified code."""
    try:
        alerts = alerts_of(questions, today, now)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return frozenset((alert.key, str(alert.severity)) for alert in alerts)


def forecaster(questions: list[str], **options: Any) -> Forecaster:
    def call(today: Any, now: Any) -> list[Alert]:
        return alerts_of(questions, today, now)

    given = {"follows": True, "seconds": 600.0, "most_calls": 1_000_000, **options}
    return Forecaster(call, tell, lambda: True, **given)


def foreseen(timeline: Any) -> dict[str, Outcome]:
    """Return the findings from each change on, by its day or moment."""
    return {
        one["at"]: one["error"]
        or frozenset((timeline.findings[place][0], severity) for place, severity in one["found"])
        for one in timeline.changes
    }


def tried(questions: list[str], start: datetime.date, end: datetime.date) -> dict[str, Outcome]:
    """Return the same by trying every day."""
    found: dict[str, Outcome] = {}
    last = None
    for number in range((end - start).days + 1):
        day = start + datetime.timedelta(days=number)
        if (outcome := really(questions, day)) != last:
            found[day.isoformat()] = last = outcome
    return found


ON_DAYS = grammar("today", 3)
unhurried = settings(
    max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck)
)


class TestDays:
    @unhurried
    @given(questions=st.lists(ON_DAYS, min_size=1, max_size=3))
    def test_forecast_equals_trying_every_day(self, questions: list[str]) -> None:
        assert foreseen(forecaster(questions).days(START, END)) == tried(questions, START, END)


# Cases that a stand-in could miss, where `left` is the days until 1 May: C code and other classes
# that take it, shapes that hold it, and numbers that are large, small or zero.
SUBTLE = [
    "today - timedelta(hours=5) == date(2028, 3, 1)",
    "today == Feast(2028, 3, 1)",
    "Feast(2028, 3, 1) in (today,)",
    "left > -(10**12)",
    "left < 10**400",
    "left / 7 < 10**400",
    "left * 1e17 + 1e20 > 1e20 + 12e17",
    "left + 1e17 > 1e17",
    "left * float('inf') > 0",
    "left * 1e-300 * 1e-20 > 3e-319",
    "left / 0 > 1",
    "left * 0 == 0 and left == 9",
    "left == True",
    "left in range(10, 20)",
    "[*range(20)][-left] == 9",
    "{left: 1} == {5: 1}",
    "{today} == {date(2028, 3, 1)}",
    "{today: 1}.get(date(2028, 3, 1)) == 1",
    "[*range(left)] == [0, 1]",
    "[1, 2, 3, 4][:left] == [1, 2]",
    "'ab' * left == 'abab'",
    "'%c' % (left % 100 + 40) == 'a'",
    "'%.1f' % (left / 7) == '1.0'",
    "f'{date(2028, 5, 1) - today}' == '3 days, 0:00:00'",
    "chr(abs(left)) == 'a'",
    "round(left / 7, 1) == 0.3",
    "left.bit_length() == 3",
    "int.from_bytes(abs(left).to_bytes(2, 'big'), 'big') == 9",
    "divmod(left, 7) == (3, 2)",
    "divmod(50, left) == (3, 2)",
    "pow(left, 2, 5) == 4",
    "2**left == 8",
    "complex(left) == 3",
    "sum([left] * 3) == 9",
    "Decimal(left) == 4",
    "Decimal(4) == left",
    "Decimal(4) * left == 8",
    "Decimal(4) + left == 8",
    "Decimal(left) / 4 < 2",
    "timedelta(4) * left == timedelta(16)",
    "timedelta(16) / left == timedelta(4)",
    "timedelta(days=left) == timedelta(4)",
    "date(2028, left, 1) > date(2028, 4, 1)",
    "date.fromordinal(today.toordinal() + left) == date(2028, 5, 1) and today.day == 3",
    "datetime.combine(today, time(9)) == datetime(2028, 3, 1, 9)",
    "statistics.mean([left, 4]) == 4",
    "statistics.mode([left, 4, 4, left + 1]) == 4 and left < 9",
    "statistics.median_low([left, 4, 9]) == 4",
    "math.isclose(left, 4)",
    "math.copysign(1, left * 0.0) > 0",
    "min([date(2028, 3, 1), today]) is today",
    "min(DAYS, key=lambda day: abs(day - today)) == date(2028, 3, 31)",
    "sorted([(day - today).days for day in DAYS], key=abs)[0] == 3",
    "max(day - today for day in DAYS) < timedelta(100)",
    "next(itertools.dropwhile(lambda day: day < today, DAYS)) == date(2028, 3, 31)",
    "[*itertools.groupby(DAYS, key=lambda day: day < today)][0][0]",
    "next(enumerate([1], left))[0] == 3",
    "next(itertools.islice(DAYS, left, None)) == DAYS[3]",
    "functools.reduce(lambda one, other: one if one > other else other, [*DAYS, today]) == today",
    "functools.partial(max, today)(date(2028, 3, 1)) == today",
    "sorted([today, *DAYS], key=functools.cmp_to_key(lambda a, b: (a - b).days))[2] == today",
    "Window(date(2028, 3, 1), date(2028, 5, 1)) == Window(today, date(2028, 5, 1))",
    "Window(today, today) in {Window(date(2028, 3, 1), date(2028, 3, 1))}",
    "Window(today, today) < Window(date(2028, 3, 1), today)",
    "dataclasses.replace(Window(today, today), end=date(2028, 5, 1)).length == 3",
    "dataclasses.asdict(Window(today, today)) == {'start': DAYS[1], 'end': DAYS[1]}",
    "(lambda span: span.days if isinstance(span, timedelta) else 0)(date(2028, 5, 1) - today) == 3",
    "re.fullmatch('.{%d}' % abs(left), 'xxx') is not None",
    "today - timedelta.max > date(2028, 1, 1)",
    "today + timedelta(days=2_912_000 + today.day) > today",
]


@pytest.mark.parametrize("question", SUBTLE)
def test_subtle_use_of_the_clock_is_forecast_as_by_days(question: str) -> None:
    asked = question.replace("left", "(date(2028, 5, 1) - today).days")
    begin, end = datetime.date(2028, 1, 1), datetime.date(2028, 6, 30)
    assert foreseen(forecaster([asked]).days(begin, end)) == tried([asked], begin, end)


def about(zone: str) -> st.SearchStrategy[tuple[str, list[str]]]:
    """The zone, with questions about moments near the change of its clocks."""
    begin = datetime.datetime.fromisoformat(CHANGES[zone])
    literal = st.builds(
        "datetime.fromisoformat('{}').replace(tzinfo={})".format,
        st.integers(-24 * 4, 72 * 4).map(lambda n: begin + datetime.timedelta(minutes=15 * n)),
        st.sampled_from(["UTC", "HOME", "HOME"]),
    )
    asked = grammar("now.date()", 2, st.sampled_from(["now"] * 3) | literal)
    return st.tuples(st.just(zone), st.lists(asked, min_size=1, max_size=2))


class TestMoments:
    @settings(unhurried, max_examples=examples(5))
    @given(asked=st.one_of([about(zone) for zone in CHANGES]))
    def test_forecast_equals_trying_every_minute(self, asked: tuple[str, list[str]]) -> None:
        name, questions = asked
        NAMES["HOME"] = zone = ZoneInfo(name)
        begin = datetime.datetime.fromisoformat(CHANGES[name]).replace(tzinfo=zone)
        start = begin.astimezone(datetime.UTC)
        end = start + datetime.timedelta(hours=36)

        found = foreseen(forecaster(questions).moments(Horizon(start, end, name)))

        minutes = [start + datetime.timedelta(minutes=n) for n in range(36 * 60 + 1)]
        changes = {datetime.datetime.fromisoformat(at): what for at, what in found.items()}
        expected: Outcome = ""
        for at in sorted({*minutes, *changes}):
            local = at.astimezone(zone)
            expected = changes.get(at, expected)
            assert expected == really(questions, local.date(), local), f"at {local}"

"""The static policy, line by line: what is allowed, and what is reported where."""

import re
import textwrap
from pathlib import Path

import pytest

from sandbox_image.library_names import NAMES
from sandbox_image.runner import PRELOADED
from typecheck_image.checker import KNOWN
from workers.authoring.prompts import CONSTRAINTS
from workers.findings import Finding
from workers.policy import kinds_of_file, library
from workers.policy.checks import (
    check_policy,
    check_query,
)
from workers.policy.library import LIBRARY

DOCS = Path(__file__).parents[3] / "docs"
SCHEMA = "domains/travel/schema.py"
STATE = "domains/travel/state.py"
SHARD = "domains/travel/trips_0002.py"
CONSTRAINT = "constraints/expiring.py"
TEST = "tests/test_expiring.py"

CHECK = """
import datetime
from collections.abc import Iterator
from uac import Alert, critical
from domains.travel.state import trips

def check(today: datetime.date) -> Iterator[Alert]:
    for trip in trips:
        yield critical("x", evidence=[trip])
"""


def constraint(body: str, head: str = "") -> str:
    """Return a constraint whose check has this body, with these lines before it."""
    return (
        "import datetime\nfrom collections.abc import Iterator\nfrom uac import Alert, critical\n"
        f"from domains.travel.state import trips\n{textwrap.dedent(head)}\n"
        "def check(today: datetime.date) -> Iterator[Alert]:\n"
        f"{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
        "    yield critical('x', key='k')\n"
    )


def codes(findings: list[Finding]) -> list[str]:
    return [finding.code for finding in findings]


ACCEPTED = {
    "schema": (
        SCHEMA,
        """
        \"\"\"What is known of journeys.\"\"\"
        import builtins
        import dataclasses
        import datetime
        import enum
        from dataclasses import dataclass, field
        from decimal import Decimal
        from typing import TYPE_CHECKING
        from uac import PartialDate, Record, Ref
        from domains.people.schema import Person

        if TYPE_CHECKING:
            from domains.home.schema import Address as home_Address

        class Mode(enum.Enum):
            TRAIN = "train"
            CAR = enum.auto()

        @dataclass(kw_only=True)
        class Leg:
            pass

        @dataclass(kw_only=True)
        class Trip(Record):
            \"\"\"A journey.\"\"\"

            name: str
            start: datetime.date | None = None
            roughly: PartialDate | None = None
            price: Decimal = Decimal("0.00")
            budget: float = -1.5
            mode: Mode = Mode.TRAIN
            with_whom: Ref[Person] | None = None
            home: "home_Address | None" = None
            list: builtins.list[str] = dataclasses.field(default_factory=builtins.list)
            stops: builtins.list[Leg] = field(default_factory=lambda: [])

            @property
            def title(self) -> str:
                return self.name.title()
        """,
    ),
    "state": (
        STATE,
        """
        import datetime
        from decimal import Decimal
        from uac import PartialDate, Ref
        from domains.people.schema import Person
        from domains.travel.schema import Mode, Leg, Trip
        from domains.travel.trips_0002 import trips as trips_0002

        home = Leg()
        drafts: list[Trip] = []
        trips: list[Trip] = [
            Trip(key="a", name="Rome", start=datetime.date(2025, 1, 10), sources=(41,)),
            Trip(key="b", name="__init__ # type: ignore", mode=Mode.CAR, budget=-2.5),
            Trip(key="c", name="x", with_whom=Ref[Person]("p-1"), roughly=PartialDate("2021")),
            *trips_0002,
        ]
        """,
    ),
    "shard": (
        SHARD,
        """
        from domains.travel.schema import Trip
        trips: list[Trip] = [Trip(key="d", name="Oslo")]
        """,
    ),
    "constraint": (CONSTRAINT, CHECK),
    "a constraint with helpers and constants": (
        CONSTRAINT,
        """
        \"\"\"Passports must outlast journeys.\"\"\"
        import datetime as dt
        import re
        from collections import Counter
        from collections.abc import Iterator
        from functools import cache
        from itertools import pairwise
        from statistics import mean
        from typing import Any
        from zoneinfo import ZoneInfo
        from uac import Alert, warning
        from domains.travel.schema import Trip
        from domains.travel.state import passport, trips as journeys

        WINDOW = dt.timedelta(days=180)
        DAY = 60 * 60 * 24
        NAMES: frozenset[str] = frozenset({"a", "b"})
        PATTERN = re.compile("[a-z]+")
        BERLIN = ZoneInfo("Europe/Berlin")

        @cache
        def months(days: int = 30) -> float:
            return days / 30

        def check(now: dt.datetime) -> Iterator[Alert]:
            counts = Counter(trip.name for trip in journeys)
            counts["x"] += 1
            for first, second in pairwise(sorted(journeys, key=lambda trip: trip.key)):
                match first.name:
                    case "Rome" | "Oslo":
                        continue
                if (now.astimezone(BERLIN) + WINDOW).date() > dt.date(2030, 1, 1):
                    yield warning(f"{first.name:>10} {mean([1, 2])}", evidence=[first, second])
                yield warning("{} of {0.name}".format(first, second), evidence=[first])
        """,
    ),
    "a constraint that reckons with dates, and with a record called as a module": (
        CONSTRAINT,
        """
        import calendar
        import datetime
        from calendar import monthrange
        from collections.abc import Iterator
        from domains.travel.state import calendar as planner
        from uac import Alert, add_months, birthday, full_months, hours_between, info, user_zone

        def check(now: datetime.datetime) -> Iterator[Alert]:
            later = add_months(now.astimezone(user_zone()), calendar.monthrange(2026, 2)[1])
            if planner and hours_between(now, later) > full_months(now, later):
                yield info(str(birthday(now, 2026, leap_day="1 March")), key="k")
        """,
    ),
    "test": (
        TEST,
        """
        import datetime
        from constraints import expiring
        from domains.travel.schema import Trip
        from uac.testing import run_check

        TODAY = datetime.date(2026, 1, 1)
        ROME = Trip(key="t", name="Rome")

        def helper() -> Trip:
            trip = Trip(key="u", name="Oslo")
            trip.name = "Bergen"
            return trip

        def test_it_speaks() -> None:
            assert run_check(expiring, today=TODAY, trips=[ROME, helper()])

        def test_it_is_silent() -> None:
            assert run_check(expiring, today=TODAY) == []
        """,
    ),
    "a test that imports the module by its whole name": (
        TEST,
        """
        import constraints.expiring
        from constraints.expiring import check
        def test_it() -> None:
            assert check and constraints.expiring
        """,
    ),
    "package": ("domains/travel/__init__.py", ""),
    "package with a docstring": ("constraints/__init__.py", '"""Rules."""\n'),
    "the package of all domains": ("domains/__init__.py", ""),
    "manifest": ("manifest.py", "DOMAINS = {'travel': ['Trip(name, start)']}\n"),
    "windows line ends": (CONSTRAINT, CHECK.replace("\n", "\r\n")),
    "comments": (CONSTRAINT, CHECK + "# The decoding: of what type it is, mypy knows.\n"),
}


@pytest.mark.parametrize(("path", "source"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepts(path: str, source: str) -> None:
    assert check_policy(path, textwrap.dedent(source)) == []


IN_A_CHECK = [
    # Imports, under any name and in any form.
    ("import os", "import"),
    ("import os as math", "import"),
    ("import os.path", "import"),
    ("import random", "import"),
    ("import time", "import"),
    ("import importlib", "import"),
    ("from calendar import setfirstweekday", "import"),
    ("from domains.travel.schema import calendar", "import"),
    ("import builtins", "import"),
    ("import uac.protocol", "import"),
    ("import uac.testing", "import"),
    ("import domains.travel.state", "import"),
    ("import constraints.other", "import"),
    ("from os import path as math", "import"),
    ("from random import random", "import"),
    ("from collections import *", "import"),
    ("from enum import sys", "import"),
    ("from re import enum", "import"),
    ("from dataclasses import make_dataclass", "import"),
    ("from typing import get_type_hints", "import"),
    ("from typing import no_type_check", "import"),
    ("from zoneinfo import available_timezones", "import"),
    ("from uac import records", "import"),
    ("from uac.testing import run_check", "import"),
    ("from domains.travel import state", "import"),
    ("from domains.travel.trips_0002 import trips", "import"),
    ("from domains.travel.schema import datetime as moment", "import"),
    ("from domains.travel.schema import __builtins__", "attribute"),
    ("from constraints.other import check as other", "import"),
    ("from constraints import other", "import"),
    ("from . import other", "import"),
    ("from .other import thing", "import"),
    ("from __future__ import annotations", "import"),
    # Modules give access to what they import.
    ("datetime.sys.exit()", "attribute"),
    ("import enum\nenum.sys", "import"),
    ("import statistics\nstatistics.random", "import"),
    ("import collections.abc\ncollections._sys", "attribute"),
    ("import enum\nx = enum", "import"),
    ("import enum\nprint(enum)", "import"),
    ("trips[0].sys", "attribute"),
    # Dynamic code, input and output, reflection.
    ("eval('1')", "name"),
    ("exec('1')", "name"),
    ("compile('1', '', 'eval')", "name"),
    ("open('x')", "name"),
    ("input()", "name"),
    ("__import__('os')", "name"),
    ("globals()", "name"),
    ("locals()", "name"),
    ("vars(trips)", "name"),
    ("dir(trips)", "name"),
    ("getattr(trips, '__cla' + 'ss__')", "name"),
    ("setattr(trips[0], 'name', 'x')", "name"),
    ("delattr(trips[0], 'name')", "name"),
    ("breakpoint()", "name"),
    ("memoryview(b'')", "name"),
    ("exit()", "name"),
    ("read = open", "name"),
    ("\N{FULLWIDTH LATIN SMALL LETTER E}val('1')", "name"),  # the same identifier to Python
    ("__builtins__", "name"),
    ("__loader__", "name"),
    ("x = lambda eval: 1", "name"),
    ("try:\n    pass\nexcept ValueError as open:\n    pass", "name"),
    ("match trips:\n    case [*vars]:\n        pass", "name"),
    ("match trips:\n    case vars:\n        pass", "name"),
    ("import math as exec", "name"),
    ("type('X', (), {})", "name"),
    ("type(*trips)", "name"),
    ("id(trips)", "name"),
    ("hash('x')", "name"),
    ("trips.__class__", "attribute"),
    ("().__class__.__base__.__subclasses__()", "attribute"),
    ("f'{trips.__class__}'", "attribute"),
    ("check.__globals__", "attribute"),
    ("trips[0]._secret", "attribute"),
    # Executed objects lead to the frames that execute them.
    ("(trip for trip in trips).gi_frame.f_builtins", "attribute"),
    ("step = (x for x in trips)\nstep.gi_frame", "attribute"),
    (
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    e.with_traceback(None).tb_frame",
        "attribute",
    ),
    ("frame.f_back.f_globals", "attribute"),
    ("code.co_consts", "attribute"),
    ("match step:\n    case object(gi_frame=frame):\n        pass", "attribute"),
    ("match trips:\n    case list(__class__=kind):\n        pass", "attribute"),
    ("'{0.__class__}'.format(trips)", "attribute"),
    ("'{0[0].__class__}'.format(trips)", "attribute"),
    ("'{:{0.__doc__}}'.format(trips)", "attribute"),
    ("template = '{0.__class__}'\ntemplate.format(trips)", "attribute"),
    ("('{0.__cla' + 'ss__}').format(trips)", "attribute"),
    ("'{x.__class__}'.format_map({'x': trips})", "attribute"),
    ("show = '{0.__class__}'.format\nshow(trips)", "attribute"),
    ("print(*map('{0.__class__}'.format, trips))", "attribute"),
    ("import functools\nfunctools.partial(str.format, '{0.__class__}')", "attribute"),
    ("show = '{x.__class__}'.format_map", "attribute"),
    ("(step for step in trips).gi_yieldfrom", "attribute"),
    ("later.ag_frame", "attribute"),
    ("later.cr_frame", "attribute"),
    ("check.__wrapped__", "attribute"),
    # Functions that copy attributes by their names, or evaluate annotations.
    ("import functools\nfunctools.update_wrapper(check, check)", "import"),
    ("from functools import wraps", "import"),
    ("from functools import singledispatch", "import"),
    ("import functools\nfunctools.singledispatchmethod(check)", "import"),
    ("from typing import get_origin", "import"),
    ("import operator", "import"),
    ("import string", "import"),
    # Functions that build classes from texts.
    ("build = type\nbuild('X', (), {})", "name"),
    ("print(*map(type, 'X', [()], [{}]))", "name"),
    ("type(int)('X', (), {})", "name"),
    ("build = type(int)\nbuild('X', (), {})", "name"),
    ("type[int]('X', (), {})", "name"),
    ("class Kind(type): pass", "name"),
    ("class Kind(metaclass=type): pass", "statement"),
    ("from enum import EnumType", "import"),
    ("import enum\nenum.Enum('X', {'__call__': print})", "name"),
    ("import enum, functools\nfunctools.partial(enum.Enum, 'X')", "name"),
    ("from typing import TypedDict as D\nD('X', {'a=exec()': int})", "name"),
    ("from typing import NamedTuple\nNamedTuple('X', [('a', int)])", "name"),
    ("from enum import global_enum", "import"),
    ("from dataclasses import dataclass\ndataclass(trips[0])", "name"),
    ("import dataclasses\nprint(*map(dataclasses.dataclass, trips))", "name"),
    ("from dataclasses import dataclass\nsame = dataclass(trips[0]) == 1", "name"),
    ("class Kind:\n    __set_name__ = print", "name"),
    ("class Kind:\n    def __class_getitem__(cls, key: str) -> int: ...", "name"),
    ("class Kind:\n    __match_args__ = ('gi_frame',)", "name"),
    # Modules under other names, which another file would import from here.
    ("import enum as e", "import"),
    ("import re as r", "import"),
    ("from collections import abc", "import"),
    ("from uac import testing", "import"),
    ("import uac\ntools = uac.testing", "import"),
    ("import collections.abc\ntools = collections.abc", "import"),
    # The clock and chance.
    ("datetime.datetime.now()", "clock"),
    ("datetime.date.today()", "clock"),
    ("datetime.datetime.utcnow()", "clock"),
    ("datetime.datetime.fromtimestamp(0)", "clock"),
    ("from datetime import date as d\nd.today()", "clock"),
    ("clock = datetime.date.today", "clock"),
    ("match datetime.date:\n    case object(today=clock):\n        pass", "clock"),
    ("datetime.datetime(2026, 1, 1).astimezone()", "clock"),
    ("import statistics\nstatistics.NormalDist().samples(3)", "random"),
    # Statements.
    ("global trips", "statement"),
    ("async def later() -> None: ...", "statement"),
    ("trips[0].name = 'x'", "mutation"),
    ("trips[0].count += 1", "mutation"),
    ("del trips[0].name", "mutation"),
    ("for trips[0].name in 'ab': pass", "mutation"),
    # Directives that silence the type checker.
    ("x = 1  # type: ignore", "directive"),
    ("x = 1  #type:ignore[arg-type]", "directive"),
    ("x = 1  # because # type: ignore", "directive"),
    ("x = []  # type: list[int]", "directive"),
    ("# mypy: ignore-errors", "directive"),
    ("# pyright: basic", "directive"),
    ("# pyre-ignore", "directive"),
    ("# ty: ignore", "directive"),
    ("from typing import TYPE_CHECKING", "directive"),
    ("TYPE_CHECKING = False", "directive"),
    ("if MYPY: pass", "directive"),
    ("import typing\nif not typing.TYPE_CHECKING: pass", "directive"),
]


@pytest.mark.parametrize("field", ["co_pay", "f_score", "tb_test", "gi_tract"])
def test_fields_that_only_begin_like_that_are_in_order(field: str) -> None:
    assert check_policy(CONSTRAINT, constraint(f"total = trips[0].{field}")) == []


@pytest.mark.parametrize(
    "statement",
    [
        "same = type(trips[0]) == type(trips[1])",
        "same = type(trips[0]) is int",
        "type(trips[0])",
        "def same(kind: type, of: type[int]) -> type[str] | None: ...",
        "import enum\nclass Mode(enum.Enum):\n    A = 1\nmode = Mode(1)",
        "import enum\nsame = isinstance(trips[0], enum.Enum)",
        "from typing import NamedTuple\nclass Stay(NamedTuple):\n    days: int",
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Stay:\n    days: int",
        "same = trips[0].format == 'jpeg'\nkind = trips[0].format",
        "import collections.abc\nrows: collections.abc.Sequence[int] = ()",
        "for _ in trips: pass",
    ],
)
def test_similar_permitted_code_passes(statement: str) -> None:
    assert check_policy(CONSTRAINT, constraint(statement)) == []


@pytest.mark.parametrize(("statement", "code"), IN_A_CHECK)
def test_finds_in_a_check(statement: str, code: str) -> None:
    findings = check_policy(CONSTRAINT, constraint(statement))
    assert code in codes(findings)
    # On the statement's own lines, and with a message for each.
    assert {finding.line for finding in findings} <= set(range(7, 7 + statement.count("\n") + 1))
    assert all(finding.path == CONSTRAINT and finding.message for finding in findings)


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        (SCHEMA, "print('loaded')"),
        (SCHEMA, "X = 1"),
        (SCHEMA, "def helper() -> None: ..."),
        (SCHEMA, "if True:\n    pass"),
        (SCHEMA, "if TYPE_CHECKING:\n    X = 1"),
        (SCHEMA, "if TYPE_CHECKING:\n    from domains.a.schema import A\nelse:\n    A = int"),
        (SCHEMA, "for x in ():\n    pass"),
        (SCHEMA, "class A(print('x')):\n    pass"),
        (SCHEMA, "class A:\n    print('x')"),
        (SCHEMA, "class A:\n    x: int = print('x')"),
        (SCHEMA, "class A:\n    x: print('x')"),
        (SCHEMA, "class A:\n    x: int = 10 ** 10 ** 9"),
        (SCHEMA, "class A:\n    x, y = 1, 2"),
        (SCHEMA, "class A:\n    for x in ():\n        pass"),
        (SCHEMA, "class A:\n    def f(self, x: int = print('x')) -> None: ..."),
        (SCHEMA, "class A:\n    def f(self) -> print('x'): ..."),
        (SCHEMA, "class A:\n    def f(self, *, x: print('x')) -> None: ..."),
        (SCHEMA, "@dataclass(kw_only=print('x'))\nclass A:\n    pass"),
        (STATE, "trips.append(1)"),
        (STATE, "trips = [print('x')]"),
        (STATE, "trips = [n for n in range(3)]"),
        (STATE, "trips = sorted([])"),
        (STATE, "trips = [] if True else [1]"),
        (STATE, "trips = (x := [])"),
        (STATE, "trips = other = []"),
        (STATE, "trips[0] = 1"),
        (STATE, "trips.name = 1"),
        (STATE, "name = f'{1}'"),
        (STATE, "class A: pass"),
        (STATE, "def f() -> None: ..."),
        (STATE, "import datetime\nday = datetime.date.fromisoformat('2024-01-01')"),
        (STATE, "from domains.travel.schema import Trip\ntrip = Trip(key=len('x'))"),
        (STATE, "from domains.travel.schema import Trip\ntrip = Trip(**{'key': print('x')})"),
        (STATE, "from domains.travel.schema import Trip\ntrip = Trip.make()"),
        (SHARD, "while True: pass"),
        (CONSTRAINT, CHECK + "print('x')"),
        (CONSTRAINT, CHECK + "class A: pass"),
        (CONSTRAINT, CHECK + "X = sum([1])"),
        (CONSTRAINT, CHECK + "X = 1 << 10 ** 9"),
        (CONSTRAINT, CHECK + "trips.clear()"),
        (CONSTRAINT, CHECK + "assert trips"),
        (CONSTRAINT, CHECK + "X: int\nX += 1"),
        (CONSTRAINT, CHECK + "with trips: pass"),
        (CONSTRAINT, CHECK + "try:\n    pass\nfinally:\n    pass"),
        (
            SCHEMA,
            "from dataclasses import field\nclass A:\n"
            "    x: int = field(default_factory=lambda: sum(range(10**9)))",
        ),
        (
            SCHEMA,
            "from dataclasses import field\nclass A:\n    def make() -> int: ...\n"
            "    x: int = field(default_factory=make)",
        ),
        (TEST, "def test_x() -> None: ...\ntest_x()"),
        (TEST, "def test_x() -> None: ...\nX = test_x()"),
        # A constructor that the file itself has defined does not count.
        (CONSTRAINT, CHECK + "dict = lambda *a: check(*a)\nX = dict(1)"),
        (CONSTRAINT, CHECK + "def dict(x: int) -> int:\n    return x\nX = dict(1)"),
        (CONSTRAINT, CHECK + "class Ref: pass\nX = Ref()"),
        (SCHEMA, "class A:\n    tuple = lambda: print(1)\n    x: int = tuple()"),
        (STATE, "from domains.travel.schema import Trip\nTrip = print\nx = Trip(1)"),
        (STATE, "import datetime\ndatetime = print\nx = datetime.date(1)"),
        ("domains/travel/__init__.py", "from domains.travel.state import trips"),
        ("domains/__init__.py", "X = 1"),
        ("tests/__init__.py", "def f() -> None: ..."),
    ],
)
def test_finds_what_runs_on_import(path: str, statement: str) -> None:
    assert "top_level" in codes(check_policy(path, statement))


@pytest.mark.parametrize(
    ("path", "statement", "code"),
    [
        (SCHEMA, "from domains.travel.state import trips", "import"),
        (SCHEMA, "import domains.travel.state", "import"),
        (SCHEMA, "from uac.testing import run_check", "import"),
        (SCHEMA, "class A(metaclass=type):\n    pass", "statement"),
        (SCHEMA, "class __A:\n    pass", "name"),
        # Functions that an enumeration calls when it is created, or for a missing member.
        (
            SCHEMA,
            "import enum\nclass A(enum.Enum):\n"
            "    def _generate_next_value_(name, start, count, last): ...\n    X = enum.auto()",
            "name",
        ),
        (SCHEMA, "import enum\nclass A(enum.Enum):\n    _missing_ = print\n", "name"),
        (SCHEMA, "class A:\n    def __getattr__(self, name: str) -> int: ...", "name"),
        (SCHEMA, "@print\nclass A:\n    pass", "decorator"),
        (SCHEMA, "import functools\n@functools.singledispatch\nclass A:\n    pass", "decorator"),
        (SCHEMA, "class A:\n    def f(self) -> None:\n        if TYPE_CHECKING: pass", "directive"),
        (STATE, "from uac.testing import run_check", "import"),
        (STATE, "import constraints.x", "import"),
        (STATE, "x = 1  # type: ignore", "directive"),
        (TEST, "from domains.travel.trips_0002 import trips", "import"),
        (TEST, "import pytest\ndef test_x() -> None: ...", "import"),
        (TEST, "import builtins\ndef test_x() -> None: ...", "import"),
        (TEST, "def test_x() -> None:\n    eval('1')", "name"),
        (CONSTRAINT, CHECK + "@print\ndef f() -> None: ...", "decorator"),
        (
            CONSTRAINT,
            CHECK + "def cache(f: int) -> int: ...\n@cache\ndef f() -> None: ...",
            "decorator",
        ),
        (SCHEMA, "class dataclass:\n    pass\n@dataclass\nclass A:\n    pass", "decorator"),
        (CONSTRAINT, "# coding: utf-7\n" + CHECK, "directive"),
        (CONSTRAINT, "#!x\n# vim: set fileencoding=latin-1 :\n" + CHECK, "directive"),
    ],
)
def test_finds_by_kind_of_file(path: str, statement: str, code: str) -> None:
    assert code in codes(check_policy(path, statement))


@pytest.mark.parametrize(
    "signature",
    [
        "def check() -> Iterator[Alert]: ...",
        "def check(today) -> Iterator[Alert]: ...",
        "def check(today: datetime.datetime) -> Iterator[Alert]: ...",
        "def check(now: datetime.date) -> Iterator[Alert]: ...",
        "def check(date: datetime.date) -> Iterator[Alert]: ...",
        "def check(today: datetime.date, now: datetime.datetime) -> Iterator[Alert]: ...",
        "def check(today: datetime.date = datetime.date(2026, 1, 1)) -> Iterator[Alert]: ...",
        "def check(*today: datetime.date) -> Iterator[Alert]: ...",
        "def check(*, today: datetime.date) -> Iterator[Alert]: ...",
        "def check(today: datetime.date, /) -> Iterator[Alert]: ...",
        "def check(today: datetime.date): ...",
        "def check(today: datetime.date) -> Alert: ...",
        "def check(today: datetime.date) -> Iterator[str]: ...",
        "def checked(today: datetime.date) -> Iterator[Alert]: ...",
        "check = 1",
    ],
)
def test_a_constraint_needs_one_of_two_signatures(signature: str) -> None:
    head = "import datetime\nfrom collections.abc import Iterator\nfrom uac import Alert\n"
    assert codes(check_policy(CONSTRAINT, head + signature)) == ["check"]


@pytest.mark.parametrize(
    "signature",
    [
        "def check(today: datetime.date) -> Iterator[Alert]: ...",
        "def check(now: datetime.datetime) -> Iterable[Alert]: ...",
        "def check(today: date) -> list[Alert]: ...",
    ],
)
def test_either_signature_will_do(signature: str) -> None:
    head = (
        "import datetime\nfrom datetime import date\n"
        "from collections.abc import Iterable, Iterator\nfrom uac import Alert\n"
    )
    assert check_policy(CONSTRAINT, head + signature) == []


def test_a_test_file_holds_tests_without_parameters() -> None:
    assert codes(check_policy(TEST, "def helper() -> None: ...")) == ["test"]
    assert codes(check_policy(TEST, "def test_x(fixture: int) -> None: ...")) == ["test"]
    assert codes(check_policy(TEST, "def test_x(*, key: int) -> None: ...")) == ["test"]


@pytest.mark.parametrize(
    "path",
    [
        "setup.cfg",
        "mypy.ini",
        "conftest.py",
        "tests/conftest.py",
        "tests/expiring.py",
        "domains/travel/deep/state.py",
        "domains/schema.py",
        "constraints/../state.py",
        "constraints/a/b.py",
        "/manifest.py",
        "sitecustomize.py",
    ],
)
def test_file_outside_the_layout_is_refused(path: str) -> None:
    assert codes(check_policy(path, "")) == ["path"]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("x = (", 1),
        ("x = 1\ny = = 2", 2),
        ("def f(:\n  pass", 1),
        ("x = '\0'", 1),
        ("x = '\ud800'", 1),
        ("x = 1\n\x0cy = 2", 2),
        ("x = 1\ry = 2", 1),
        ("x = 1\n# a\u2028b", 2),
        ("x = " + "(" * 500 + ")" * 500, 1),
        ("x = " + "-" * 5000 + "1", 1),
        ("x = " + "+".join(["1"] * 20_000), 1),
    ],
)
def test_invalid_python_is_a_finding(source: str, line: int) -> None:
    (finding, *_) = [finding for finding in check_policy(STATE, source) if finding.code == "syntax"]
    assert (finding.path, finding.line) == (STATE, line)
    assert "syntax" in codes(check_query(source))


def test_findings_come_by_line_and_once() -> None:
    source = constraint("eval('1')\neval('1'); eval('2')\nopen('x')")
    assert [(f.line, f.code) for f in check_policy(CONSTRAINT, source)] == [
        (7, "name"),
        (8, "name"),
        (9, "name"),
    ]


def test_a_message_names_the_violation_and_the_fix() -> None:
    (finding,) = check_policy(CONSTRAINT, constraint("datetime.date.today()"))
    assert finding.message == ".today reads the clock: take the parameter today or now instead"


@pytest.mark.parametrize(
    "code",
    [
        "1 + 1",
        "len(trips)",
        "[t.name for t in trips if t.start and t.start > today]",
        "import datetime\nfrom collections import Counter\nCounter(t.name for t in trips)",
        "from domains.travel.schema import Trip\n[t for t in trips if isinstance(t, Trip)]",
        "import domains.travel.state\ndomains.travel.state.trips",
        "def f(x: int) -> int:\n    return x * 2\nprint(f(2))\nf(3)",
        "statistics.mean(t.price for t in trips)",
        "datetime.date(2024, 1, 1)\nmath.ceil(now.timestamp())",
        "x = 1  # type: ignore",
        "class A:\n    pass\nA()",
        "trips[0].name = 'x'",
        "while True: pass",
        "",
    ],
)
def test_accepts_queries(code: str) -> None:
    assert check_query(code) == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import os\nos.listdir('/')", "import"),
        ("from uac.testing import run_check", "import"),
        ("from constraints import x", "import"),
        ("datetime.datetime.now()", "clock"),
        ("date.today()", "clock"),
        ("open('/etc/passwd').read()", "name"),
        ("trips[0].__dict__", "attribute"),
        ("(t for t in trips).gi_frame", "attribute"),
        ("statistics.random", "import"),
        ("re.enum.sys", "import"),
        ("[math]", "import"),
        ("'{0.__class__}'.format(trips)", "attribute"),
        ("await trips", "statement"),
        ("x = (", "syntax"),
    ],
)
def test_finds_in_queries(code: str, found: str) -> None:
    findings = check_query(code)
    assert found in codes(findings)
    assert {finding.path for finding in findings} == {"<query>"}


# -- Constraints of a workspace -----------------------------------------------------------------

WORKSPACE = "workspace/constraints/lease_end.py"
WORKSPACE_TEST = "workspace/tests/test_lease_end.py"
OF_WORKSPACE = """\
import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uac import Alert, Record, info

ALSO = {"Lease": ("Rental",)}

@dataclass(kw_only=True)
class Lease(Record):
    flat: str
    ends_on: datetime.date

def check(today: datetime.date, leases: Sequence[Lease]) -> Iterator[Alert]:
    yield from ()
"""


def test_a_workspace_constraint_declares_classes_and_takes_records() -> None:
    assert check_policy(WORKSPACE, OF_WORKSPACE, kinds_of_file.WORKSPACE) == []
    tests = (
        "from uac.testing import run_check\nfrom workspace.constraints import lease_end\n"
        "def test_it() -> None:\n    assert run_check(lease_end) == []\n"
    )
    assert check_policy(WORKSPACE_TEST, tests, kinds_of_file.WORKSPACE) == []
    # And a project's constraint may do neither
    assert set(codes(check_policy(CONSTRAINT, OF_WORKSPACE))) == {"top_level", "check"}


@pytest.mark.parametrize(
    ("path", "statement", "code"),
    [
        (WORKSPACE, "from domains.home.state import leases", "import"),
        (WORKSPACE, "from domains.home.schema import Lease", "import"),
        (WORKSPACE, "from workspace.constraints import other", "import"),
        (WORKSPACE, "from constraints import other", "import"),
        (WORKSPACE, "from uac.testing import run_check", "import"),
        (WORKSPACE, "import os", "import"),
        (WORKSPACE, "print('x')", "top_level"),
        (WORKSPACE, "def f(lease: Lease) -> None:\n    lease.flat = 'x'", "mutation"),
        (WORKSPACE, "def f() -> None:\n    datetime.date.today()", "clock"),
        (WORKSPACE_TEST, "from domains.home.state import leases", "import"),
        (WORKSPACE_TEST, "from constraints import other", "import"),
        (WORKSPACE_TEST, "x = 1", "test"),
    ],
)
def test_a_workspace_constraint_knows_no_project(path: str, statement: str, code: str) -> None:
    source = statement if path == WORKSPACE_TEST else f"{OF_WORKSPACE}\n{statement}\n"

    assert code in codes(check_policy(path, source, kinds_of_file.WORKSPACE))


@pytest.mark.parametrize("path", [CONSTRAINT, "tests/test_expiring.py"])
@pytest.mark.parametrize(
    "statement", ["import workspace.constraints.x", "from workspace.constraints import x"]
)
def test_no_project_knows_a_workspace_constraint(path: str, statement: str) -> None:
    assert "import" in codes(check_policy(path, statement))
    assert "import" in codes(check_query(statement))


def test_a_path_that_is_none_of_a_workspace_constraint_is_refused() -> None:
    for path in (CONSTRAINT, "workspace/x.py", "workspace/constraints/a/b.py"):
        findings = check_policy(path, OF_WORKSPACE, kinds_of_file.WORKSPACE)
        assert codes(findings) == ["path"]
    assert codes(check_policy(WORKSPACE, OF_WORKSPACE)) == ["path"]


def test_allowed_imports_are_documented() -> None:
    """The document and the instructions for a model both list it."""
    told = (DOCS / "constraints.md").read_text()
    listed = re.findall(r"^\| `([\w.]+)` \|", told, re.MULTILINE)
    assert set(listed) == LIBRARY.keys() - {"builtins"}
    instructions = " ".join(CONSTRAINTS.split())
    for name in LIBRARY.keys() - {"builtins", "collections.abc", "dataclasses", "uac.testing"}:
        assert re.search(rf"Allowed imports:[^.]*\b{name}\b", instructions), name
    for name in LIBRARY["uac"]:
        assert f"`{name}" in told, name


def test_frozen_library_is_that_of_this_python() -> None:
    """Names that are in one of the two alone have to be reviewed, and the list frozen anew."""
    of_this = library.names_of_this_python()

    differing = {name: LIBRARY[name] ^ names for name, names in of_this.items()}
    assert {name: names for name, names in differing.items() if names} == {}


def test_the_sandbox_and_the_type_checker_know_every_module_of_the_library() -> None:
    assert {*LIBRARY} - {"builtins", "uac", "uac.testing"} == {*NAMES} <= {*PRELOADED}
    assert all(name in KNOWN for name in LIBRARY)

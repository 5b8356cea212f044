"""Clocks and chance, which the policy refuses, fail at run time, too."""

import subprocess
import sys
import time

import pytest

from sandbox_image.uac import protocol
from tests.integration.sandbox.conftest import NOW, PROJECT, value_of
from tests.steps import not_none
from workers.policy.checks import check_query
from workers.policy.library import LIBRARY
from workers.sandbox.client import Sandbox
from workers.sandbox.interface import Runner
from workers.sandbox.results import SandboxError

CLOCKS = [
    "datetime.datetime.now()",
    "datetime.datetime.now(datetime.UTC)",
    "datetime.datetime.utcnow()",
    "datetime.datetime.today()",
    "datetime.date.today()",
    "today.today()",
    "now.now()",
    "date.today()",
    'getattr(datetime.date, "to" + "day")()',
    "class Day(datetime.date): pass\nDay.today()",
    "import time\ntime.time()",
    "import time\ntime.time_ns()",
    "from time import time\ntime()",
    "import time\ntime.monotonic()",
    "import time\ntime.perf_counter()",
    "import time\ntime.process_time()",
    "import time\ntime.clock_gettime(0)",
    "import time\ntime.localtime()",
    "import time\ntime.gmtime(None)",
    "import time\ntime.ctime()",
    "import time\ntime.strftime('%Y')",
]

CHANCE = [
    "import os\nos.urandom(1)",
    "import os\nos.getrandom(1)",
    "import uuid\nuuid.uuid4()",
    "import secrets\nsecrets.token_hex()",
    "import random\nrandom.Random()",
    "import random\nrandom.seed()",
    "import random\nrandom.SystemRandom().random()",
]


@pytest.mark.parametrize("code", CLOCKS)
def test_a_query_cannot_read_a_clock(loaded: Sandbox, code: str) -> None:
    with pytest.raises(SandboxError) as raised:
        value_of(loaded, code)
    error = not_none(raised.value.error)
    assert (raised.value.outcome, error.type) == ("user_error", "ClockError")
    assert (error.path, error.line) == ("<query>", code.count("\n") + 1)
    assert "() reads the clock: use today or now instead" in error.message
    assert check_query(code)  # it would not have come so far


@pytest.mark.parametrize("code", CHANCE)
def test_a_query_cannot_draw_lots(loaded: Sandbox, code: str) -> None:
    with pytest.raises(SandboxError) as raised:
        value_of(loaded, code)
    error = not_none(raised.value.error)
    assert (error.type, error.path) == ("ChanceError", "<query>")
    assert "from run to run: " in error.message
    assert check_query(code)


def test_neither_a_constraint_nor_a_test_nor_a_state_can(sandbox: Sandbox) -> None:
    clock = 'getattr(datetime.datetime, "n" + "ow")()'
    sandbox.load(
        {
            **PROJECT,
            "constraints/late.py": f"import datetime\ndef check(today):\n    {clock}\n    yield\n",
            "tests/test_late.py": f"import datetime\ndef test_it():\n    {clock}\n",
            "domains/notes/schema.py": "import datetime\nfrom dataclasses import dataclass, field\n"
            "from uac import Record\n@dataclass(kw_only=True)\nclass Note(Record):\n"
            f"    text: str\n    at: object = field(default_factory=lambda: {clock})\n",
            "domains/notes/state.py": "notes = []\n",
        }
    )
    late, _ = sandbox.run_constraints(now=NOW, time_zone="UTC").results
    (test,) = sandbox.run_tests(["tests/test_late.py"]).results
    with pytest.raises(SandboxError) as raised:  # a record that takes the moment as its default
        sandbox.load(
            {
                "domains/notes/state.py": "from domains.notes.schema import Note\n"
                "notes = [Note(key='n', text='x')]\n"
            }
        )
    for error, path, line in (
        (late.error, "constraints/late.py", 3),
        (test.error, "tests/test_late.py", 3),
        (raised.value.error, "domains/notes/schema.py", 7),
    ):
        assert error is not None
        assert (error.type, error.path, error.line) == ("ClockError", path, line)
        assert "use today or now instead" in error.message
    assert late.alerts == ()


# Functions that do not depend on the time, and must behave as before.
UNCHANGED = """
import calendar, copy, pickle, random, re, time
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

class Day(datetime.date):
    pass

def parsed(text):
    return datetime.datetime.fromisoformat(text)

@dataclass
class Stay:
    since: datetime.datetime = datetime.datetime(2026, 1, 1)
    until: datetime.datetime = field(default_factory=lambda: parsed("2026-02-01"))

berlin = datetime.datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
stay = Stay()
[
    type(now) is datetime.datetime and type(today) is datetime.date,
    isinstance(now, datetime.date) and issubclass(datetime.datetime, datetime.date),
    isinstance(Day(2026, 1, 1), datetime.date) and type(Day.fromisoformat("2026-01-01")) is Day,
    pickle.loads(pickle.dumps(berlin)) == copy.deepcopy(berlin) == copy.copy(berlin) == berlin,
    (stay.until - stay.since).days == 31 and stay.since + timedelta(31) == stay.until,
    type(today + timedelta(1)) is datetime.date and type(now - timedelta(1)) is datetime.datetime,
    today.replace(day=1) <= today and datetime.date.fromordinal(1).year == 1,
    datetime.datetime.strptime("3 Feb 2026", "%d %b %Y").date() == date(2026, 2, 3),
    f"{berlin:%d.%m. %H:%M %Z}" == berlin.strftime("%d.%m. %H:%M %Z") == "01.07. 12:00 CEST",
    berlin.astimezone(ZoneInfo("Asia/Tokyo")).hour == 19 and berlin.timetuple().tm_yday == 182,
    datetime.datetime.combine(today, datetime.time(1)).hour == 1 and str(berlin)[:4] == "2026",
    re.fullmatch(r"\\d+", "12") is not None and calendar.monthrange(2026, 2) == (6, 28),
    time.gmtime(0).tm_year == 1970 and time.strftime("%Y", time.gmtime(0)) == "1970",
    random.Random(7).random() == random.Random(7).random(),
    random.seed(7) is None and random.random() == random.Random(7).random(),
    statistics.NormalDist().samples(2, seed=1) == statistics.NormalDist().samples(2, seed=1),
    now.tzinfo is not None and now.date() == today,
]
"""


def test_dates_and_seeded_numbers_are_as_ever(loaded: Sandbox) -> None:
    assert value_of(loaded, UNCHANGED) == [True] * 17


def test_unseeded_numbers_are_the_same_everywhere(runner: Runner, loaded: Sandbox) -> None:
    code = "import random\n[random.random(), random.randint(1, 9), random.gauss()]"
    with runner.start(hash_seed=1) as other:
        assert value_of(other, code) == value_of(loaded, code) == value_of(loaded, code)


# Everything that user code may import and call without arguments: functions and methods of classes.
SWEEP = """
import importlib, re

def told(call):
    try:
        return re.sub("0x[0-9a-f]+", "", repr(call()))[:200]
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:200]

found = {}
for module, names in LIBRARY.items():
    for name in names:
        one = getattr(importlib.import_module(module), name, None)
        if callable(one):
            found[f"{module}.{name}"] = told(one)
        if isinstance(one, type):
            for method in dir(one):
                if not method.startswith("_") and callable(getattr(one, method)):
                    found[f"{module}.{name}.{method}"] = told(getattr(one, method))
[[name, found[name]] for name in sorted(found)]
"""


def test_library_is_the_same_at_any_time(runner: Runner, loaded: Sandbox) -> None:
    library = {name: sorted(names) for name, names in LIBRARY.items()}
    code = f"LIBRARY = {library!r}\n{SWEEP}"

    first = dict(value_of(loaded, code))
    time.sleep(1.1)
    with runner.start(hash_seed=1) as other:
        other.load(PROJECT)
        later = dict(value_of(other, code))

    assert len(first) > 300
    assert first["datetime.datetime.now"].startswith("ClockError")
    assert [name for name in first if first[name] != later[name]] == []


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "<x>-3:21"])
def test_the_time_zone_of_the_machine_makes_no_difference(zone: str) -> None:
    code = (
        "import datetime\nfrom sandbox_image import determinism\ndeterminism.prepare()\n"
        "moment = datetime.datetime(2026, 7, 1)\n"
        "print(moment.timestamp(), datetime.datetime.fromtimestamp(0), moment.astimezone())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env={"TZ": zone}, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "1782864000.0 1970-01-01 00:00:00 2026-07-01 00:00:00+00:00\n"


def test_the_runner_goes_on_measuring(loaded: Sandbox) -> None:
    usage = loaded.evaluate("sum(range(10 ** 5))", now=NOW, time_zone="UTC").usage
    assert 0 < usage.cpu_seconds < protocol.MAX_INTEGER
    assert usage.seconds > 0
    (found,) = loaded.run_constraints(now=NOW, time_zone="UTC").results
    assert found.error is None
    assert found.seconds > 0

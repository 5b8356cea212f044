"""Loading a project together with the first request to it."""

import random
from bisect import bisect_left
from collections.abc import Callable, Sized

import pytest

from tests.integration.sandbox.conftest import NOW, PROJECT, sandbox_error, value_of
from tests.steps import not_none
from workers.sandbox.client import Sandbox
from workers.sandbox.interface import Runner
from workers.sandbox.limits import MEBIBYTE, Limits
from workers.sandbox.results import ConstraintRun, SandboxError

STATE = PROJECT["domains/travel/state.py"]
SPEAKS = """
from uac import warning
from domains.travel.state import trips
def check(today):
    {first}
    yield warning(f"{{len(trips)}} trips, {{trips[0].name}}", evidence=[trips[0]])
"""


def run(sandbox: Sandbox, limits: Limits | None = None) -> ConstraintRun:
    return sandbox.run_constraints(now=NOW, time_zone="UTC", limits=limits or Limits())


def speaking(**first: str) -> dict[str, str]:
    """Return the project with constraints that each do one of these things before they fire."""
    constraints = {
        f"constraints/{name}.py": SPEAKS.format(first=text) for name, text in first.items()
    }
    others = {path: text for path, text in PROJECT.items() if not path.startswith("constraints/")}
    return {**others, "constraints/__init__.py": "", **constraints}


def said(ran: ConstraintRun) -> list[str]:
    return [alert.message for result in ran.results for alert in result.alerts]


def test_the_first_question_finds_what_was_prepared_and_so_does_the_next(sandbox: Sandbox) -> None:
    sandbox.prepare(PROJECT)
    found = sandbox.evaluate("[t.name for t in trips]", now=NOW, time_zone="UTC")
    assert found.value == ["Rome", "Oslo", "Bonn"]
    assert 0 < found.usage.load_seconds < found.usage.seconds
    assert not sandbox.prepared

    again = sandbox.evaluate("len(trips)", now=NOW, time_zone="UTC")
    assert (again.value, again.usage.load_seconds) == (3, 0)


def test_bytecode_can_be_prepared_and_only_what_differs(runner: Runner, sandbox: Sandbox) -> None:
    other = STATE.replace("Oslo", "Lima")
    bytecode = sandbox.compile({**PROJECT, "domains/travel/other.py": other})
    changed = sandbox.compile({"domains/travel/state.py": other})
    with runner.start() as fresh:
        fresh.prepare(bytecode={path: bytecode[path] for path in PROJECT})
        assert value_of(fresh, "trips[1].name") == "Oslo"
        fresh.prepare(bytecode=changed, removed=["domains/notes/state.py"])
        assert value_of(fresh, "trips[1].name") == "Lima"
        assert value_of(fresh, "trips[1].name") == "Lima"
        assert "domains/notes/state.py" not in fresh.dump().records


ASKED: list[Callable[[Sandbox], Sized]] = [
    lambda sandbox: run(sandbox).results,
    lambda sandbox: sandbox.run_tests().results,
    lambda sandbox: sandbox.dump().counts,
]


@pytest.mark.parametrize("ask", ASKED, ids=["constraints", "tests", "dump"])
def test_any_first_request_loads(ask: Callable[[Sandbox], Sized], sandbox: Sandbox) -> None:
    sandbox.prepare(PROJECT)
    found = ask(sandbox)
    assert not sandbox.prepared
    assert len(found) == len(ask(sandbox)) > 0


def test_constraints_run_on_it_and_each_finds_it_as_it_was_loaded(sandbox: Sandbox) -> None:
    sandbox.prepare(speaking(a="pass", b="trips.clear()", c="trips.pop()", d="pass"))
    ran = run(sandbox)
    assert [result.error and result.error.type for result in ran.results] == [
        None, "IndexError", None, None,
    ]  # fmt: skip
    assert said(ran) == ["3 trips, Rome", "2 trips, Rome", "3 trips, Rome"]
    assert value_of(sandbox, "len(trips)") == 3


def test_in_another_version_it_is_noticed_what_a_constraint_changes(sandbox: Sandbox) -> None:
    # Given a version whose classes stay
    sandbox.prepare(speaking(a="trips[0].name = 'Lima'", b="pass"))
    assert said(run(sandbox)) == ["3 trips, Lima", "3 trips, Rome"]
    # When the next one is loaded beside the first question
    sandbox.prepare({"domains/travel/state.py": STATE.replace("Oslo", "Bern")})
    # Then the others are told what was loaded, as before
    assert said(run(sandbox)) == ["3 trips, Lima", "3 trips, Rome"]


@pytest.mark.parametrize(
    ("first", "error"),
    [
        ("while True: pass", "timeout"),
        ("import os; os._exit(3)", "killed"),
        ("x = 'x' * 10 ** 10", "out_of_memory"),
        ("print('x' * 3_000_000)", "output_limit"),
        ("import os; os.write(3, b'nonsense\\n')", "protocol_error"),
        ("import os; os.write(3, b'{}\\n' * 9)", "protocol_error"),
    ],
)
def test_stopped_constraint_silences_no_other(first: str, error: str, sandbox: Sandbox) -> None:
    sandbox.prepare(speaking(a="pass", b=first, c="pass"))
    # Only endless code uses all of it; the others must finish on a busy machine.
    ran = run(sandbox, Limits(wall_seconds=1.5 if error == "timeout" else 20))
    assert [result.error and result.error.type for result in ran.results] == [None, error, None]
    assert said(ran) == ["3 trips, Rome"] * 2
    assert value_of(sandbox, "len(trips)") == 3


def test_failed_load_raises_and_keeps_the_earlier_project(sandbox: Sandbox) -> None:
    sandbox.load(PROJECT)
    broken = {"domains/travel/state.py": STATE.replace('name="Oslo"', "name=1 / 0")}
    sandbox.prepare(broken)
    for _ in range(2):  # it stays what the next request would load
        with sandbox_error("user_error", infrastructure=False) as raised:
            value_of(sandbox, "len(trips)")
        assert not_none(raised.value.error).path == "domains/travel/state.py"
        assert sandbox.prepared
    sandbox.load({})
    assert not sandbox.prepared
    assert value_of(sandbox, "len(trips)") == 3


def test_lookups_of_a_load_are_made_anew(sandbox: Sandbox) -> None:
    # Given what looks for a record while not all of them are there
    early = 'plans: list[Trip] = []\nearly = Ref[Passport]("p-1").get()'
    changed = STATE.replace("plans: list[Trip] = []", early).replace("Rome", "Bari")
    code = "from uac import Ref\nRef[Trip]('t-1').get().name"
    sandbox.load(PROJECT)
    # When it cannot be loaded, then what was there is found
    with pytest.raises(SandboxError, match="division"):
        sandbox.load({"domains/travel/state.py": f"{changed}\nx = 1 / 0"})
    assert value_of(sandbox, code) == "Rome"
    # When it is loaded, then all that is there is found, the first time and the next
    sandbox.prepare({"domains/travel/state.py": changed})
    assert [value_of(sandbox, code) for _ in range(2)] == ["Bari", "Bari"]


def test_an_error_of_the_question_is_none_of_the_load(sandbox: Sandbox) -> None:
    sandbox.prepare(PROJECT)
    with pytest.raises(SandboxError) as raised:
        value_of(sandbox, "1 / 0")
    assert not_none(raised.value.error).type == "ZeroDivisionError"
    assert not sandbox.prepared
    assert value_of(sandbox, "len(trips)") == 3


@pytest.mark.parametrize("seconds", ["null", '"long"', "-1.0", "1e300", "true"])
def test_loaded_code_cannot_forge_its_load_time(seconds: str, sandbox: Sandbox) -> None:
    line = f'{{"outcome":"ok","result":{seconds}}}'
    forging = f"import os\ntry: os.write(3, {line!r}.encode() + b'\\n')\nexcept OSError: pass\n"
    sandbox.prepare({"domains/forged/state.py": forging + "x: list[int] = [7]"})
    found = sandbox.evaluate("x", now=NOW, time_zone="UTC")
    assert found.value == [7]
    assert 0 <= found.usage.load_seconds <= found.usage.seconds
    assert not sandbox.prepared


def test_damaged_bytecode_is_nobodys_fault_and_leaves_the_sandbox(sandbox: Sandbox) -> None:
    sandbox.prepare(bytecode={"domains/a.py": "AAAA"})
    with pytest.raises(SandboxError, match="damaged") as raised:
        value_of(sandbox, "1")
    assert raised.value.outcome == "protocol_error"
    assert raised.value.infrastructure
    assert sandbox.prepared
    assert sandbox.alive


def test_to_load_it_may_take_more_memory_than_a_question(sandbox: Sandbox) -> None:
    sandbox.prepare({"domains/big/state.py": "x: list[int] = [len('x' * 400_000_000)]"})
    assert value_of(sandbox, "x") == [400_000_000]
    assert not sandbox.prepared


def test_records_added_by_a_constraint_are_no_evidence(sandbox: Sandbox) -> None:
    adds = "import copy\n    trips.insert(0, copy.copy(trips[0]))"
    sandbox.prepare(speaking(a=adds, b="pass"))
    for _ in range(2):
        ran = run(sandbox)
        assert [result.error and result.error.type for result in ran.results] == [
            "NotAValueError", None,
        ]  # fmt: skip
        assert said(ran) == ["3 trips, Rome"]


def test_the_first_question_has_as_much_time_as_the_next(sandbox: Sandbox) -> None:
    busy = "from sandbox_image.evaluation import time\nuntil = time.monotonic() + 8\n"
    busy += "while time.monotonic() < until: pass\n"
    limits = Limits(wall_seconds=15, total_seconds=15, cpu_seconds=15)
    sandbox.prepare({"domains/busy/state.py": f"{busy}x: list[int] = [7]"})
    for _ in range(2):
        found = sandbox.evaluate(f"{busy}x", now=NOW, time_zone="UTC", limits=limits)
        assert found.value == [7]


def test_the_first_question_has_as_much_memory_as_the_next(runner: Runner) -> None:
    # Given a project of some size, and the largest question that fits beside it
    drawn = random.Random(0)

    def texts(number: int) -> list[str]:
        return [drawn.randbytes(48).hex() for _ in range(number)]

    files = {
        f"domains/big/part_{number:04}.py": f"x: list[str] = {texts(1000)}"
        for number in range(1, 161)
    }
    limits = Limits(memory_bytes=256 * MEBIBYTE)

    def fits(sandbox: Sandbox, size: int) -> bool:
        code = f"len('x' * {size * MEBIBYTE})"
        try:
            found = sandbox.evaluate(code, now=NOW, time_zone="UTC", limits=limits)
        except SandboxError as error:
            if error.outcome != "out_of_memory":
                raise
            return False
        return found.value == size * MEBIBYTE

    with runner.start() as compiler:
        bytecode = compiler.compile(files)
    with runner.start() as resident:
        resident.load(bytecode=bytecode)
        most = bisect_left(range(256), True, key=lambda size: not fits(resident, size)) - 1
    # When it is the first one
    with runner.start() as fresh:
        fresh.prepare(bytecode=bytecode)
        # Then it fits, too, but for how the one and the other happen to allocate
        assert fits(fresh, most - 4)

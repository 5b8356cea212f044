"""Running constraints and tests: each is independent of the others."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.integration.sandbox.conftest import NOW, PROJECT
from tests.steps import not_none
from workers.sandbox.client import Sandbox
from workers.sandbox.interface import Runner
from workers.sandbox.limits import DEFAULT_LIMITS, Limits
from workers.sandbox.results import ConstraintResult, Evidence, Loaded, SandboxError

HEAD = """\
from uac import critical, info, warning
from domains.travel.state import passport, trips
"""
TOP = HEAD.count("\n")


@pytest.fixture(scope="module")
def shared(runner: Runner) -> Iterator[Sandbox]:
    with runner.start() as one:
        yield one
        assert one.alive


@pytest.fixture
def sandbox(shared: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """An empty sandbox, emptied again afterwards: starting one takes longer than most tests."""
    load, loaded = shared.load, set[str]()

    def remember(sources: Mapping[str, str], **options: Any) -> Loaded:
        loaded.update(sources)
        return load(sources, **options)

    monkeypatch.setattr(shared, "load", remember)
    yield shared
    load(removed=sorted(loaded))


def run(
    sandbox: Sandbox,
    sources: dict[str, str],
    *,
    time_zone: str = "UTC",
    limits: Limits = DEFAULT_LIMITS,
) -> dict[str, ConstraintResult]:
    sandbox.load(PROJECT)
    sandbox.load({f"constraints/{name}.py": HEAD + text for name, text in sources.items()})
    ran = sandbox.run_constraints(now=NOW, time_zone=time_zone, limits=limits)
    assert [result.path for result in ran.results] == sorted(
        ["constraints/today.py", *(f"constraints/{name}.py" for name in sources)]
    )
    results = {result.path[12:-3]: result for result in ran.results}
    # The other constraints fire, whatever this one does.
    assert time_zone != "UTC" or [a.message for a in results["today"].alerts] == ["Rome is today"]
    return results


def test_an_alert_carries_its_evidence(sandbox: Sandbox) -> None:
    source = "def check():\n    yield warning('x', evidence=[trips[0], passport], key='k')\n"
    results = run(sandbox, {"a": source})
    (alert,) = results["a"].alerts
    assert (alert.severity, alert.message, alert.key) == ("warning", "x", "k")
    assert alert.evidence == (
        Evidence(class_name="Trip", domain="travel", collection="trips", key="t-1", sources=(2, 3)),
        Evidence(
            class_name="Passport", domain="travel", collection="passport", key="p-1", sources=(1,)
        ),
    )
    assert results["a"].error is None
    assert results["a"].seconds >= 0


@pytest.mark.parametrize(
    ("time_zone", "expected"),
    [
        ("UTC", ["2026-03-01", "2026-03-01T23:30:00+00:00"]),
        ("Europe/Berlin", ["2026-03-02", "2026-03-02T00:30:00+01:00"]),
        ("America/Los_Angeles", ["2026-03-01", "2026-03-01T15:30:00-08:00"]),
    ],
)
def test_the_parameters_are_the_users_moment(
    sandbox: Sandbox, time_zone: str, expected: list[str]
) -> None:
    results = run(
        sandbox,
        {
            "a": "def check(today):\n    yield info(today.isoformat(), key='k')\n",
            "b": "def check(now):\n    yield info(now.isoformat(), key='k')\n",
            "c": "def check():\n    return [info('no time', key='k')]\n",
        },
        time_zone=time_zone,
    )
    messages = [results[name].alerts[0].message for name in ("a", "b", "c")]
    assert messages == [*expected, "no time"]
    assert [results[name].takes_now for name in ("a", "b", "c")] == [False, True, False]


@pytest.mark.parametrize(
    ("source", "kind", "line", "message"),
    [
        ("1 / 0", "ZeroDivisionError", 1, "division"),
        ("x = (", "SyntaxError", 1, "never closed"),
        ("from domains.travel.state import nothing", "ImportError", 1, "nothing"),
        ("", "TypeError", None, "has no check"),
        ("def check(tomorrow): yield", "TypeError", None, "a parameter 'tomorrow'"),
        ("def check(today): return 3", "TypeError", None, "check returned int"),
        ("def check(today): yield 'x'", "TypeError", None, "check yielded str"),
        ("def check(today):\n    yield info('x')", "TypeError", 2, "needs evidence"),
        ("def check(today):\n    yield info('x', key='k')\n    trips.x", "AttributeError", 3, "x"),
        (
            "import copy\ndef check(today):\n    yield info('x', evidence=[copy.copy(trips[0])])",
            "NotAValueError",
            None,
            "not a record in the state",
        ),
        ("import sys\ndef check(today): sys.exit()", "killed", None, "sys.exit"),
        ("import os\ndef check(today): os._exit(0)", "killed", None, "status 0"),
        ("import os\ndef check(): os.kill(os.getpid(), 40)", "killed", None, "signal 40"),
        ("def check(today):\n    while True: pass", "timeout", None, "longer than 1.5 s"),
        ("def check(today): return 'x' * 10 ** 9", "out_of_memory", None, "memory"),
        ("def check(today):\n    while True: print('x' * 999)", "output_limit", None, "printed"),
        (
            "def check(today):\n    yield info('x' * 3_000_000, key='k')",
            "result_limit",
            None,
            "larger",
        ),
        (
            "def check(today):\n    while True: yield from ()",
            "timeout",
            None,
            "longer than 1.5 s",
        ),
    ],
)
def test_the_error_of_one_is_its_own(
    sandbox: Sandbox, source: str, kind: str, line: int | None, message: str
) -> None:
    # Enough for the other constraint on a busy machine; only endless code uses all of it.
    limits = Limits(wall_seconds=1.5 if kind == "timeout" else 20)
    results = run(sandbox, {"a": source, "z": "def check(): return []"}, limits=limits)
    error = not_none(results["a"].error)
    assert (error.type, error.path) == (kind, "constraints/a.py")
    assert error.line == (None if line is None else line + TOP)
    assert message in error.message
    assert results["a"].alerts == ()
    assert results["z"].error is None
    assert sandbox.alive


def test_constraints_past_the_total_time_are_not_run(sandbox: Sandbox) -> None:
    loop = "def check(today):\n    while True: pass\n"
    sandbox.load({f"constraints/{name}.py": loop for name in "abc"})
    limits = Limits(wall_seconds=0.2, total_seconds=0.3)
    ran = sandbox.run_constraints(now=NOW, time_zone="UTC", limits=limits)
    errors = [result.error for result in ran.results]
    assert [error.type for error in errors if error] == ["timeout"] * 3
    assert "not run" in not_none(errors[2]).message


def test_results_that_are_too_large_together_lose_the_last(sandbox: Sandbox) -> None:
    long = "from uac import info\ndef check():\n    yield info('x' * 300_000, key='k')\n"
    sandbox.load({f"constraints/{name}.py": long for name in "abcdef"})
    limits = Limits(result_bytes=10**6)
    ran = sandbox.run_constraints(now=NOW, time_zone="UTC", limits=limits)
    errors = [result.error and result.error.type for result in ran.results]
    assert errors == [None, None, None, "result_limit", "result_limit", "result_limit"]


@pytest.mark.parametrize(
    "body",
    [
        "n = 0\n    while True:\n        yield warning(f'alert {n}', key=f'{n}')\n        n += 1",
        "return [warning(f'alert {n}' + 'x' * 10**4, key=f'{n}') for n in range(10**6)]",
        "while True:\n        yield warning('alert 0', evidence=trips[:1])",
    ],
    ids=["endless", "a list of a million", "one again and again"],
)
def test_a_flood_is_stopped_early_and_quoted(sandbox: Sandbox, body: str) -> None:
    quiet = "def check():\n    yield critical('x', key='k')\n"
    flood = f"def check():\n    {body}\n"
    # If the number of alerts does not stop it, the time would, with another error.
    limits = Limits(
        alerts=50, wall_seconds=60, total_seconds=90, cpu_seconds=30, result_bytes=20_000
    )

    results = run(sandbox, {"a": flood, "z": quiet}, limits=limits)

    error = not_none(results["a"].error)
    assert (error.type, error.path) == ("alert_limit", "constraints/a.py")
    assert "more than 50 alerts at once" in error.message
    assert [alert.severity for alert in results["a"].alerts] == ["warning"] * 3
    assert all(alert.message.startswith("alert ") for alert in results["a"].alerts)
    assert all(len(alert.message) <= 500 for alert in results["a"].alerts)
    assert [alert.message for alert in results["z"].alerts] == ["x"]
    assert sandbox.alive


def test_most_severe_excess_alerts_are_quoted(
    sandbox: Sandbox,
) -> None:
    def yields(infos: int) -> str:
        return (
            f"def check():\n    for n in range({infos}):\n        yield info('i', key=str(n))\n"
            "    yield critical('grave', key='k')\n"
        )

    results = run(sandbox, {"a": yields(48), "b": yields(49)}, limits=Limits(alerts=50))
    assert [results[name].error for name in "ab"] == [None, None]
    assert (len(results["a"].alerts), len(results["b"].alerts)) == (49, 50)

    flood = yields(20) + "    for n in range(99):\n        yield warning('w', key=f'w{n}')\n"
    results = run(sandbox, {"a": flood, "b": yields(1)}, limits=Limits(alerts=50))
    assert [alert.severity for alert in results["a"].alerts] == ["critical", "warning", "warning"]


def test_a_message_that_cannot_be_stored_is_mended(sandbox: Sandbox) -> None:
    results = run(sandbox, {"a": "def check():\n    yield info('a\\0\\ud800b', key='k\\0')\n"})
    (alert,) = results["a"].alerts
    assert (alert.message, alert.key) == ("a\ufffd\ufffdb", "k\ufffd")


def test_a_forged_answer_is_the_fault_of_the_one_that_forged_it(sandbox: Sandbox) -> None:
    forged = b'{"outcome":"ok","item":"constraints/a.py","result":{"alerts":[],"seconds":0}}\n'
    source = f"import os\ndef check():\n    os.write(3, {forged!r})\n    return []\n"
    results = run(sandbox, {"a": source})
    error = not_none(results["a"].error)
    assert error.type == "protocol_error"


END = b"\n"
# The other fields of a result.
USED = b'"left_out":0,"takes_now":false,"seconds":0.0'
ALERT = (
    b'{"severity":"info","message":"x","key":"k","evidence":[{"class":"T","domain":"d",'
    b'"collection":"c","key":"k","sources":[1]}]}'
)


@pytest.mark.parametrize(
    "forged",
    [
        b'{"outcome":"ok"}',
        b'{"outcome":"ok","result":5}',
        b'{"outcome":"ok","result":{"alerts":[],"left_out":0,"takes_now":false,"seconds":-1.0}}',
        b'{"outcome":"ok","result":{"alerts":[5],%b}}' % USED,
        b'{"outcome":"ok","result":{"alerts":[],"takes_now":1,"left_out":0,"seconds":0.0}}',
        b'{"outcome":"ok","result":{"alerts":[],"left_out":0,"seconds":0.0}}',
        b'{"outcome":"ok","result":{"alerts":[],%b,"path":"constraints/today.py"}}' % USED,
        *(
            b'{"outcome":"ok","result":{"alerts":[%b],%b}}' % (ALERT.replace(*change), USED)
            for change in (
                (b'"info"', b'"fatal"'),
                (b'"key":"k","evidence"', b'"key":5,"evidence"'),
                (b"[1]", b"[0]"),
                (b'"T"', b"null"),
            )
        ),
        b'{"outcome":"ok","cpu_seconds":9e99,"result":{"alerts":[],"seconds":0.0}}',
        b'{"outcome":"ok","message":5,"result":{"alerts":[],"seconds":0.0}}',
        # An answer that the host would refuse as too deep, or too large, together with the others'
        # answers.
        b'{"outcome":"ok","result":{"alerts":[%b],"seconds":0.0}}'
        % ALERT.replace(b'"x"', b'"x","more":%b' % (b"[" * 156 + b"]" * 156)),
        b'{"outcome":"ok","result":{"alerts":[%b],"seconds":0.0}}'
        % ALERT.replace(b"[1]", b'[1],"more":[%b1e15]' % (b"1e15," * 150_000)),
        b'{"outcome":"user_error","message":"x","result":[1]}',
        b'{"outcome":"user_error","message":"x","result":{"alerts":5}}',
        b'{"outcome":"user_error","message":"x","error":{"type":"E","message":"x","traceback":"",'
        b'"more":%b}}' % (b"[" * 157 + b"]" * 157),
        b'{"outcome":"user_error"}',
        b'{"outcome":"user_error","message":"x","error":{"type":5}}',
        b'{"outcome":"user_error","message":"x","error":{"type":"E","message":"x",'
        b'"traceback":"","path":null,"line":-1}}',
        b'{"outcome":"splendid"}',
    ],
)
def test_a_forged_answer_that_is_none_silences_no_other(sandbox: Sandbox, forged: bytes) -> None:
    source = f"import os\ndef check():\n    os.write(3, {forged + END!r})\n    os._exit(0)\n"
    results = run(sandbox, {"a": source})  # which sees that the other one has spoken
    error = not_none(results["a"].error)
    assert (error.type, error.path) == ("protocol_error", "constraints/a.py")
    assert results["a"].alerts == ()
    assert sandbox.alive


def test_reported_time_is_at_most_that_of_the_request(sandbox: Sandbox) -> None:
    forged = b'{"outcome":"ok","cpu_seconds":%d,"result":{"alerts":[],%b}}' % (2**63 - 1, USED)
    source = f"import os\ndef check():\n    os.write(3, {forged + END!r})\n    os._exit(0)\n"
    sandbox.load({**PROJECT, "constraints/zz.py": source})
    ran = sandbox.run_constraints(now=NOW, time_zone="UTC")
    assert [(len(result.alerts), result.error) for result in ran.results] == [(1, None), (0, None)]
    assert ran.usage.cpu_seconds <= ran.usage.seconds


def test_a_forged_answer_in_order_is_an_answer(sandbox: Sandbox) -> None:
    forged = b'{"outcome":"ok","result":{"alerts":[%b],%b}}\n' % (ALERT, USED)
    source = f"import os\ndef check():\n    os.write(3, {forged!r})\n    os._exit(0)\n"
    result = run(sandbox, {"a": source})["a"]  # it speaks for itself, as it may
    assert (result.error, [alert.message for alert in result.alerts]) == (None, ["x"])


@pytest.mark.parametrize(
    "forged",
    [
        b'{"outcome":"ok"}',
        b'{"outcome":"ok","result":[5]}',
        b'{"outcome":"ok","result":[{"name":"tests/test_today.py::test_speaks","error":null}]}',
        b'{"outcome":"ok","result":[{"name":"tests/test_a.py::test_x","error":5}]}',
        b'{"outcome":"ok","result":[{"name":"tests/test_a.py::test_x","error":null,"more":%b}]}'
        % (b"[" * 157 + b"]" * 157),
    ],
)
def test_a_test_file_answers_for_itself_alone(sandbox: Sandbox, forged: bytes) -> None:
    source = f"import os\nos.write(3, {forged + END!r})\nos._exit(0)\n"
    sandbox.load({**PROJECT, "tests/test_a.py": source})
    found = [
        (result.name, result.error and result.error.type) for result in sandbox.run_tests().results
    ]
    assert found == [
        ("tests/test_a.py", "protocol_error"),
        ("tests/test_today.py::test_speaks", None),
        ("tests/test_today.py::test_is_silent", None),
    ]


def test_only_the_constraints_asked_for_run(sandbox: Sandbox) -> None:
    sandbox.load({**PROJECT, "constraints/b.py": "def check(): return []"})
    ran = sandbox.run_constraints(["constraints/b.py"], now=NOW, time_zone="UTC")
    assert [result.path for result in ran.results] == ["constraints/b.py"]
    assert sandbox.run_constraints([], now=NOW, time_zone="UTC").results == ()
    with pytest.raises(SandboxError, match="not among the files"):
        sandbox.run_constraints(["constraints/c.py"], now=NOW, time_zone="UTC")
    with pytest.raises(SandboxError, match="not among the files"):
        sandbox.run_constraints(["domains/travel/state.py"], now=NOW, time_zone="UTC")


@pytest.mark.parametrize("name", ["another", "zz_last"])  # before `speaks`, and after it
def test_a_constraint_cannot_silence_another(sandbox: Sandbox, name: str) -> None:
    empties = "def check():\n    found = trips\n    while found: found.pop()\n    return []\n"
    speaks = "def check():\n    yield info(f'{len(trips)} trips', evidence=[trips[0]])\n"
    results = run(sandbox, {name: empties, "speaks": speaks})
    assert [result.error for result in results.values()] == [None] * 3
    assert [alert.message for alert in results["speaks"].alerts] == ["3 trips"]


def test_the_memory_that_a_constraint_keeps_is_not_missing_to_another(sandbox: Sandbox) -> None:
    keeps = "import functools\n@functools.cache\ndef text(size):\n    return 'x' * size\n"
    check = "def check():\n    yield info(str(len({}(150_000_000))), key='k')\n"
    results = run(
        sandbox,
        {
            "a": keeps + check.format("text"),
            "b": check.format("'x' * "),
            "c": "def check():\n    return 'x' * 10 ** 9\n",
        },
    )
    said = {name: [alert.message for alert in result.alerts] for name, result in results.items()}
    assert said == {"a": ["150000000"], "b": ["150000000"], "c": [], "today": ["Rome is today"]}
    assert not_none(results["c"].error).type == "out_of_memory"


def test_a_test_file_cannot_mislead_another(sandbox: Sandbox) -> None:
    sandbox.load(PROJECT)
    sandbox.load(
        {
            "tests/test_a.py": "from domains.travel.state import trips\n"
            "from constraints import today\n"
            "def test_empties():\n    trips.clear()\n    today.check = None\n",
            "tests/test_b.py": "from domains.travel.state import trips\n"
            "def test_sees():\n    assert len(trips) == 3\n",
        }
    )
    results = sandbox.run_tests().results
    assert [result.name for result in results] == [
        "tests/test_a.py::test_empties",
        "tests/test_b.py::test_sees",
        "tests/test_today.py::test_speaks",
        "tests/test_today.py::test_is_silent",
    ]
    assert [result.error for result in results] == [None] * 4


def test_every_constraint_has_all_of_the_cpu_time_and_all_is_added_up(sandbox: Sandbox) -> None:
    used = "sum(resource.getrusage(resource.RUSAGE_SELF)[:2])"
    busy = (
        f"import resource\ndef check():\n    until = {used} + 0.4\n"
        f"    while {used} < until: pass\n    return []\n"
    )
    sandbox.load({f"constraints/{name}.py": busy for name in "abc"})
    limits = Limits(wall_seconds=20, cpu_seconds=1)
    ran = sandbox.run_constraints(now=NOW, time_zone="UTC", limits=limits)
    assert [result.error for result in ran.results] == [None] * 3
    assert ran.usage.cpu_seconds >= 3 * 0.4


@pytest.mark.parametrize("change", ["sources = (-1,)", "sources = 3", "key = 5"])
def test_tampered_evidence_is_an_error_of_the_constraint(sandbox: Sandbox, change: str) -> None:
    source = f"def check():\n    trips[0].{change}\n    yield info('x', evidence=[trips[0]])\n"
    error = not_none(run(sandbox, {"a": source})["a"].error)
    assert (error.type, error.path) == ("NotAValueError", "constraints/a.py")
    assert sandbox.alive


@pytest.mark.parametrize("line", ["-1", "2 ** 63", "'one'"])
def test_a_line_that_is_none_is_left_out(sandbox: Sandbox, line: str) -> None:
    source = f"def check():\n    raise SyntaxError('x', ('constraints/a.py', {line}, 1, ''))\n"
    error = not_none(run(sandbox, {"a": source})["a"].error)
    assert (error.type, error.path, error.line) == ("SyntaxError", "constraints/a.py", None)


def test_a_constraint_sees_nothing_of_another_run(sandbox: Sandbox) -> None:
    source = "def check():\n    trips.clear()\n    return []\n"
    for _ in range(2):
        run(sandbox, {"zz_last": source})


def test_tests_run_and_fail_one_by_one(sandbox: Sandbox) -> None:
    sandbox.load(PROJECT)
    sandbox.load(
        {
            "tests/test_b.py": "def helper(): raise ValueError\n"
            "def test_fails():\n    x = [1]\n    assert x == [2]\n"
            "def test_raises():\n    helper()\n"
            "def test_passes():\n    pass\n",
            "tests/test_c.py": "from nothing import x\ndef test_x(): pass\n",
            "tests/test_d.py": "import os\ndef test_x(): os._exit(0)\n",
            "tests/test_e.py": "from constraints.today import check as test_not_mine\n",
        }
    )

    results = {result.name: result.error for result in sandbox.run_tests().results}

    assert {name: error and (error.type, error.line) for name, error in results.items()} == {
        "tests/test_b.py::test_fails": ("AssertionError", 4),
        "tests/test_b.py::test_raises": ("ValueError", 1),
        "tests/test_b.py::test_passes": None,
        "tests/test_c.py": ("ModuleNotFoundError", 1),
        "tests/test_d.py": ("killed", None),
        "tests/test_today.py::test_speaks": None,
        "tests/test_today.py::test_is_silent": None,
    }
    failed = not_none(results["tests/test_b.py::test_fails"])
    assert failed.message == "assert x == [2]"
    only = sandbox.run_tests(["tests/test_today.py"])
    assert [result.name for result in only.results] == [
        "tests/test_today.py::test_speaks",
        "tests/test_today.py::test_is_silent",
    ]


def test_constraint_that_prints_too_much_is_named_alone(sandbox: Sandbox) -> None:
    """This holds however little it prints, and however soon the next one answers."""
    prints = "def check(today):\n    print('x' * {})\n    return []"
    sources = {
        "a": prints.format(700),
        "b": prints.format(3000),
        "c": prints.format(700),
        "d": "def check(today):\n    return []",
        "e": prints.format(3000),
    }
    for _ in range(5):  # it is a matter of when what is read
        found = run(sandbox, sources, limits=Limits(stdout_produced_bytes=1024))
        assert {name for name, result in found.items() if result.error} == {"b", "e"}
        for name in ("b", "e"):
            error = not_none(found[name].error)
            assert error.type == "output_limit"

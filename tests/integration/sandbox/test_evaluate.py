"""Queries: their values, their names, and each way in which they can fail."""

import datetime
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.sandbox.conftest import NOW
from tests.steps import not_none
from workers.sandbox.client import Sandbox
from workers.sandbox.limits import Limits
from workers.sandbox.results import Evaluation, SandboxError

LIMITS = Limits(wall_seconds=10, cpu_seconds=10)


def evaluate(
    sandbox: Sandbox, code: str, *, time_zone: str = "UTC", limits: Limits = LIMITS
) -> Evaluation:
    return sandbox.evaluate(code, now=NOW, time_zone=time_zone, limits=limits)


def failure(sandbox: Sandbox, code: str, **limits: Any) -> SandboxError:
    with pytest.raises(SandboxError) as raised:
        evaluate(sandbox, code, limits=replace(LIMITS, **limits))
    # Whatever happened, the next query is answered.
    assert evaluate(sandbox, "1 + 1").value == 2
    return raised.value


@pytest.mark.parametrize(
    ("code", "value", "kind"),
    [
        ("1 + 1", 2, "int"),
        ("x = 3\nx * 2", 6, "int"),
        ("x = 3", 3, "int"),
        ("return 3", 3, "int"),
        ("def f(n):\n    return n + len(trips)\n\nf(1)", 4, "int"),
        ("[t.name for t in trips if t.on]", ["Rome"], "list"),
        ("len(travel.trips)", 3, "int"),
        ("passport.number", "X1", "str"),
        ("trips[1].passport.get().number", "X1", "str"),
        ("travel.Trip is Trip and Mode.TRAIN.value", "train", "str"),
        ("[len(travel.plans), len(notes.plans)]", [0, 0], "list"),
        ("[n.text for n in notes] == [n.text for n in notes.notes]", True, "bool"),
        ("date(2026, 1, 1) < today and datetime.timedelta(1) == timedelta(1)", True, "bool"),
        ("[Decimal('1.10'), PartialDate('2021')]",
         [{"$decimal": "1.10"}, {"$partial_date": "2021"}], "list"),
        ("Counter('aab')", {"a": 2, "b": 1}, "Counter"),
        ("defaultdict(list, a=[math.floor(statistics.mean([1, 2]))])", {"a": [1]}, "defaultdict"),
        ("[re.sub('a', 'b', 'a'), *itertools.chain('c')]", ["b", "c"], "list"),
        ("float('nan')", {"$float": "nan"}, "float"),
        ("[float('-inf'), 2 ** 63, -10 ** 40]",
         [{"$float": "-inf"}, {"$int": str(2 ** 63)}, {"$int": str(-10 ** 40)}], "list"),
        ("trips[0]", {
            "$record": "Trip", "key": "t-1", "sources": [2, 3],
            "fields": {"name": "Rome", "on": {"$date": "2026-03-01"},
                       "mode": {"$enum": "Mode.TRAIN", "value": "train"}, "passport": None},
        }, "Trip"),
        ("from domains.travel.schema import Trip as T\nT is Trip", True, "bool"),
        ("from zoneinfo import ZoneInfo\nstr(now.astimezone(ZoneInfo('Asia/Tokyo')).date())",
         "2026-03-02", "str"),
        ("datetime.datetime.strptime('2026', '%Y').year", 2026, "int"),
        ("add_months(date(2026, 1, 31), 1)", {"$date": "2026-02-28"}, "date"),
    ],
)  # fmt: skip
def test_a_value(loaded: Sandbox, code: str, value: object, kind: str) -> None:
    evaluation = evaluate(loaded, code)
    assert (evaluation.value, evaluation.type) == (value, kind)


@pytest.mark.parametrize(
    ("time_zone", "today"), [("UTC", "2026-03-01"), ("Europe/Berlin", "2026-03-02")]
)
def test_today_is_the_users_date(loaded: Sandbox, time_zone: str, today: str) -> None:
    evaluation = evaluate(loaded, "[today, now, str(user_zone())]", time_zone=time_zone)
    assert isinstance(evaluation.value, list)
    assert evaluation.value[0] == {"$date": today}
    assert evaluation.value[2] == time_zone
    moment = datetime.datetime.fromisoformat(evaluation.value[1]["$datetime"])
    assert moment == NOW


def test_a_name_of_two_domains_is_found_in_them_alone(loaded: Sandbox) -> None:
    error = not_none(failure(loaded, "plans").error)
    assert error.type == "NameError"
    assert error.message.startswith(
        "name 'plans' is not defined: did you mean 'notes.plans' or 'travel.plans'? known names are"
    )


def test_tail_of_the_output_is_returned(loaded: Sandbox) -> None:
    evaluation = evaluate(
        loaded,
        "import os, sys\nprint('é' * 10_000)\nprint('error', file=sys.stderr)\n"
        "sys.stdout.flush()\nos.write(1, b'raw\\xff\\0')\n1",
    )
    assert evaluation.usage.stdout.endswith("ééé\nerror\nraw\ufffd\ufffd")
    assert len(evaluation.usage.stdout.encode()) <= LIMITS.stdout_kept_bytes + 8


def test_usage_is_measured(loaded: Sandbox) -> None:
    usage = evaluate(loaded, "sum(range(10 ** 6))").usage
    assert usage.seconds > 0
    assert usage.cpu_seconds > 0
    assert usage.memory_bytes > 5_000_000


@pytest.mark.parametrize(
    ("code", "kind", "line", "message"),
    [
        ("1 / 0", "ZeroDivisionError", 1, "division by zero"),
        ("def f():\n    return 1 / 0\n\nf()", "ZeroDivisionError", 2, "division by zero"),
        ("x = 1\n\nnope", "NameError", 3, "name 'nope' is not defined"),
        ("trips[0].nmae", "AttributeError", 1, "'Trip' object has no attribute 'nmae'"),
        ("date(2027, 1, 1) > '2027-01-01'", "TypeError", 1,
         "'str': write the text as a date, such as date(2027, 1, 1)"),
        ("'2027' <= datetime.datetime(2027, 1, 1)", "TypeError", 1, "write the text as a datetime"),
        ("now > datetime.datetime(2027, 1, 1)", "TypeError", 1, ", tzinfo=user_zone())"),
        ("now - datetime.datetime(2027, 1, 1)", "TypeError", 1, ", tzinfo=user_zone())"),
        ("5 < '6'", "TypeError", 1, "write the text as a number, such as 5"),
        ("Decimal(5) < '6'", "TypeError", 1, "or Decimal('9.50')"),
        ("timedelta(days=3) < '6'", "TypeError", 1, "such as timedelta(days=30)"),
        ("max([PartialDate('2027'), '2028'])", "TypeError", 1, "such as PartialDate('2027')"),
        ("'2027' > [1]", "TypeError", 1, "between instances of 'str' and 'list'"),
        ("date(2027, 1, 1) > None", "TypeError", 1, "one of the values is None: test for that"),
        ("date(2027, 1, 1) > datetime.datetime(2027, 1, 1)", "TypeError", 1, " datetime's .date()"),
        ("x = 1\ny = (\n", "SyntaxError", 2, "'(' was never closed"),
        ("if trips:\n    return 2\n3", "NoValueError", 2, "only its last statement"),
        ("x = 1\nprint(x)", "NoValueError", 2, "End it with the printed value itself: `x`"),
        ("", "NoValueError", 1, "it is empty"),
        ("x = 1\n  y = 2", "IndentationError", 2, "unexpected indent"),
        ("x = 1\n(n for n in trips)", "NotAValueError", 2, "wrap it in list"),
        ("def f():\n    f()\n\nf()", "RecursionError", 2, "maximum recursion depth"),
        ("print(10 ** 5000)", "ValueError", 1, "Exceeds the limit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", 1, ""),
        ("assert 1 == 2", "AssertionError", 1, "assert 1 == 2"),
        ("'a\\0b'", "NotAValueError", 1, "null character"),
        ("import nothing", "ModuleNotFoundError", 1, "nothing"),
        ("class E(Exception):\n    def __str__(self): raise self\nraise E", "E", 3, "printed"),
        ("raise ValueError('x' * 10 ** 6)", "ValueError", 1, "xxx"),
        ("(" * 300 + ")" * 300, "SyntaxError", 1, "nested"),
    ],
)  # fmt: skip
def test_an_error_of_the_user_is_told_in_their_terms(
    loaded: Sandbox, code: str, kind: str, line: int | None, message: str
) -> None:
    raised = failure(loaded, code)
    assert raised.outcome == "user_error"
    error = not_none(raised.error)
    assert (error.type, error.path, error.line) == (kind, "<query>", line)
    assert message in error.message
    assert len(error.message) <= 2000
    assert len(error.traceback.encode()) <= 4096
    assert error.traceback.rstrip().endswith(error.message[-100:].rstrip())
    # No frame of ours, no path of this machine.
    assert "sandbox_image" not in error.traceback
    assert ".py" not in error.traceback


def test_code_that_is_no_text_is_refused_before_it_is_sent(loaded: Sandbox) -> None:
    assert failure(loaded, "'\ud800'").outcome == "protocol_error"


OUTCOMES = [
    ("while True: pass", {"wall_seconds": 0.2}, "timeout", "longer than 0.2 s"),
    ("10 ** 10 ** 9", {"wall_seconds": 0.2}, "timeout", "longer"),
    ("re.match('(a+)+$', 'a' * 40 + 'b')", {"wall_seconds": 0.2}, "timeout", "longer"),
    ("import signal\nsignal.pause()", {"wall_seconds": 0.2}, "timeout", "longer"),
    ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", {"wall_seconds": 0.2}, "timeout",
     "longer"),
    ("import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n"
     "    except OSError: pass\nwhile True: pass", {"wall_seconds": 0.2}, "timeout", "longer"),
    ("import os\nos.closerange(0, 100)\nwhile True: pass", {"wall_seconds": 0.2}, "timeout",
     "longer"),
    ("while True: pass", {"cpu_seconds": 1, "wall_seconds": 90}, "timeout", "more than 1 s of CPU"),
    ("'x' * 10 ** 9", {}, "out_of_memory", "256 MiB of memory"),
    ("x = []\nwhile True: x.append('x' * 2 ** 20)", {}, "out_of_memory", "memory"),
    ("raise MemoryError", {}, "out_of_memory", "memory"),
    ("while True: print('x' * 1000)", {}, "output_limit", "more than 1 MiB"),
    ("import os\nwhile True: os.write(2, b'x' * 1000)", {}, "output_limit", "printed"),
    ("for n in range(10 ** 9): print(n)", {}, "output_limit", "printed"),
    ("'x' * 2_000_000", {}, "result_limit", "larger than 1 MiB"),
    ("list(range(10 ** 6))", {}, "result_limit", "larger"),
    ("x = []\nfor n in range(100): x = [x]\nx", {}, "result_limit", "more than 32 levels deep"),
    ("x = []\nx.append(x)\nx", {}, "result_limit", "contains itself"),
    ("x = {}\nx['x'] = x\nx", {}, "result_limit", "contains itself"),
    ("10 ** 5000", {}, "result_limit", "too long to print"),
    ("import sys\nsys.exit(0)", {}, "killed", "sys.exit"),
    ("raise SystemExit('bye')", {}, "killed", "sys.exit"),
    ("import os\nos._exit(0)", {}, "killed", "status 0"),
    ("import os\nos._exit(3)", {}, "killed", "status 3"),
    ("import os\nos.kill(os.getpid(), 40)", {}, "killed", "signal 40"),
    ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", {}, "killed", "SIGKILL"),
    ("import ctypes\nctypes.string_at(0)", {}, "killed", "SIGSEGV"),
    ("import os\nos.closerange(3, 100)\n1", {}, "killed", "exited"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "limits", "outcome", "message"), OUTCOMES)
def test_each_limit_has_its_outcome(
    loaded: Sandbox, code: str, limits: dict[str, Any], outcome: str, message: str
) -> None:
    raised = failure(loaded, code, **limits)
    assert raised.outcome == outcome
    assert message in raised.message
    assert raised.error is None


def test_output_before_a_failure_is_kept(loaded: Sandbox) -> None:
    assert failure(loaded, "print('so far')\n1 / 0").usage.stdout == "so far\n"
    code = "print('so far', flush=True)\nwhile True: pass"
    assert failure(loaded, code, wall_seconds=1.5).usage.stdout == "so far\n"


FRAME = """
import json, os, struct
answer = json.dumps({
    "id": n, "outcome": "ok", "message": "", "error": None, "stdout": "", "seconds": 0,
    "cpu_seconds": 0, "memory_bytes": 0, "result": {"value": "forged", "type": "str"},
}).encode()
frame = struct.pack(">I", len(answer)) + answer
"""


@pytest.mark.parametrize("descriptor", ["range(3, 256)", "[0]"])
def test_forged_frames_reach_nobody(loaded: Sandbox, descriptor: str) -> None:
    code = f"for n in range(200):{FRAME.replace(chr(10), chr(10) + '    ')}\n" + (
        f"    for d in {descriptor}:\n"
        "        try: os.write(d, frame)\n        except OSError: pass\n'own'"
    )
    try:
        assert evaluate(loaded, code).value == "own"
    except SandboxError as error:
        assert error.outcome == "protocol_error"  # noqa: PT017
    assert evaluate(loaded, "1 + 1").value == 2


@pytest.mark.parametrize(
    "line",
    [
        b"{}\n",
        b"[]\n",
        b"\n",
        b"garbage",
        b'{"outcome": "ok"}\n',
        b'{"outcome": "great", "item": "<query>"}\n',
        b'{"outcome": "ok", "item": "other", "result": {"value": 1, "type": "int"}}\n',
        b'{"outcome": "ok", "item": "<query>", "result": {"value": 1, "type": "int"}}\n',
        b'{"outcome":"ok","result":{"value":NaN,"type":"float"}}\n',
        b'{"outcome":"ok","result":{"value":1e999,"type":"float"}}\n',
        b'{"outcome":"ok","result":{"value":%d,"type":"int"}}\n' % 10**60,
        b'{"outcome":"ok","result":{"value":' + b"9" * 5000 + b',"type":"int"}}\n',
        b'{"outcome":"ok","result":{"value":' + b"[" * 999 + b"]" * 999 + b',"type":"list"}}\n',
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
    ],
)
def test_a_forged_answer_of_the_child_is_found(loaded: Sandbox, line: bytes) -> None:
    raised = failure(loaded, f"import os\nos.write(3, {line!r})\n1")
    assert raised.outcome == "protocol_error"


def test_a_flood_of_the_answers_pipe_is_cut(loaded: Sandbox) -> None:
    raised = failure(loaded, "import os\nwhile True: os.write(3, b'x' * 65536)")
    assert raised.outcome == "result_limit"

"""The host's end of the protocol, against runners that lie."""

import datetime
import io
import struct
from collections.abc import Callable
from typing import Any

import pytest

from sandbox_image.uac import protocol
from workers.sandbox import client
from workers.sandbox.client import Sandbox
from workers.sandbox.exchange import MAX_ESCAPES
from workers.sandbox.limits import Limits
from workers.sandbox.results import Evaluation, SandboxError, Usage

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
HELLO = {"hello": protocol.VERSION, "python": "3.11.7", "hash_seed": "0"}
EVIDENCE: dict[str, Any] = {
    "class": "T",
    "domain": "d",
    "collection": "c",
    "key": "k",
    "sources": [1],
}
COLUMNS: dict[str, Any] = {
    "class": "R",
    "domain": "d",
    "collection": "c",
    "count": 2,
    "keys": ["k", "l"],
    "sources": [[1], []],
}
RESTS_ON: dict[str, Any] = {
    "scope": "read",
    "count": 2,
    "records": [COLUMNS],
    "collections": [],
    "set_aside": [],
    "lapsed": [],
}
VALUE: dict[str, Any] = {"value": 2, "type": "int", "evidence": RESTS_ON, "ties": []}
ANSWER: dict[str, Any] = {
    "id": 1,
    "outcome": "ok",
    "message": "",
    "error": None,
    "result": VALUE,
    "stdout": "",
    "load_seconds": 0.0,
    "seconds": 0.1,
    "cpu_seconds": 0,
    "memory_bytes": 10,
}


class Script:
    """A channel whose runner sends a script, whatever it is asked."""

    def __init__(self, *frames: dict[str, Any] | bytes) -> None:
        data = [
            frame if isinstance(frame, bytes) else protocol.encode_frame(frame) for frame in frames
        ]
        self.incoming = io.BytesIO(b"".join(data))
        self.sent: list[bytes] = []
        self.closed = False
        self.raises: Exception | None = None

    def send(self, data: bytes, deadline: float) -> None:
        if data:
            self.sent.append(data)
        if data and self.raises is not None:
            raise self.raises

    def receive(self, count: int, deadline: float) -> bytes:
        return self.incoming.read(count)

    def has_ended(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def sandbox(channel: Script) -> Sandbox:
    return Sandbox(channel, runner_name="script", image_digest="x", hash_seed=0)


def evaluate(channel: Script) -> Evaluation:
    return sandbox(channel).evaluate("1 + 1", now=NOW, time_zone="UTC")


def test_a_proper_answer_is_returned() -> None:
    evaluation = evaluate(Script(HELLO, ANSWER))
    assert (evaluation.value, evaluation.type) == (2, "int")
    assert evaluation.usage == Usage(seconds=0.1, memory_bytes=10)


@pytest.mark.parametrize(
    "hello",
    [
        {**HELLO, "hello": 2},
        {**HELLO, "hash_seed": "1"},
        {},
        ANSWER,
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"\0\0",
    ],
)
def test_a_wrong_hello_is_refused(hello: dict[str, Any] | bytes) -> None:
    channel = Script(hello)
    with pytest.raises(SandboxError) as raised:
        sandbox(channel)
    assert raised.value.outcome in ("protocol_error", "killed")
    assert raised.value.infrastructure
    assert channel.closed


def test_answer_filling_the_memory_is_not_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bomb = b'{"id":1,"result":[' + b"[]," * client.MAX_VALUES + b"[]]}"
    channel = Script(HELLO, struct.pack(">I", len(bomb)) + bomb)
    one = sandbox(channel)
    monkeypatch.setattr(protocol, "decode", lambda body, **how: pytest.fail("it was decoded"))

    with pytest.raises(SandboxError, match="more than 1000000 values") as raised:
        one.dump()

    # Another sandbox would answer the same, and the stream is still in step.
    assert raised.value.outcome == "result_limit"
    assert not raised.value.infrastructure
    assert one.alive


@pytest.mark.parametrize(
    ("operation", "megabytes", "values"),
    [
        ("load", 2, client.MAX_VALUES),
        ("compile", 25, client.MAX_COMPILED_VALUES + 2),
        ("evaluate", 2, client.MAX_VALUES),
        ("constraints", 2, client.MAX_VALUES),
        ("tests", 2, client.MAX_VALUES),
        ("dump", 25, client.MAX_VALUES),
    ],
)
def test_each_kind_of_answer_has_bounds_of_its_own(
    operation: str, megabytes: int, values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = sandbox(Script(HELLO))
    bounds: list[tuple[int, int, int]] = []

    def read(receive: object, *most: int) -> None:
        bounds.append(most)  # type: ignore[arg-type]

    monkeypatch.setattr(protocol, "read_frame", read)
    moment: dict[str, Any] = {"now": NOW, "time_zone": "UTC"}
    requests: dict[str, Callable[[], object]] = {
        "load": lambda: one.load({}),
        "compile": lambda: one.compile({"a.py": "", "b.py": ""}),
        "evaluate": lambda: one.evaluate("1", **moment),
        "constraints": lambda: one.run_constraints(**moment),
        "tests": one.run_tests,
        "dump": one.dump,
    }
    with pytest.raises(SandboxError):
        requests[operation]()

    ((size, most, escapes),) = bounds
    assert size <= megabytes * 2**20
    assert (most, escapes) == (values, MAX_ESCAPES)


def test_compiled_files_are_fetched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "COMPILED_BYTES", 10)
    files = {"a.py": "x" * 6, "b.py": "x" * 5, "c.py": "x" * 5, "d.py": "x" * 99}
    parts = [["a.py"], ["b.py", "c.py"], ["d.py"]]
    channel = Script(
        HELLO,
        *(
            {**ANSWER, "id": number, "result": {"bytecode": dict.fromkeys(part, f"{number}")}}
            for number, part in enumerate(parts, start=1)
        ),
    )

    compiled = sandbox(channel).compile(files)

    assert compiled == {"a.py": "1", "b.py": "2", "c.py": "2", "d.py": "3"}
    assert [list(protocol.decode(sent[4:])["files"]) for sent in channel.sent] == parts


def test_brackets_in_texts_are_no_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "MAX_VALUES", 100)
    text = ',"[{\\' * 1000
    channel = Script(HELLO, {**ANSWER, "result": {**VALUE, "value": text, "type": "str"}})

    assert evaluate(channel).value == text


@pytest.mark.parametrize(
    ("operation", "ours"), [("load", True), ("compile", True), ("evaluate", False)]
)
def test_malformed_request_is_our_fault_before_user_code(operation: str, ours: bool) -> None:
    answer = {**ANSWER, "outcome": "protocol_error", "message": "bad request", "result": None}
    one = sandbox(Script(HELLO, answer))
    requests: dict[str, Callable[[], object]] = {
        "load": lambda: one.load({}),
        "compile": lambda: one.compile({}),
        "evaluate": lambda: one.evaluate("1", now=NOW, time_zone="UTC"),
    }
    with pytest.raises(SandboxError) as raised:
        requests[operation]()
    assert raised.value.infrastructure is ours


def test_no_request_is_given_more_memory_than_there_is() -> None:
    channel = Script(HELLO, ANSWER, {**ANSWER, "id": 2})
    one = Sandbox(channel, runner_name="script", image_digest="x", hash_seed=0, memory_bytes=1000)
    for memory_bytes in (2000, 500):
        limits = Limits(memory_bytes=memory_bytes)
        one.evaluate("1", now=NOW, time_zone="UTC", limits=limits)

    given = [protocol.decode(request[4:])["limits"]["memory_bytes"] for request in channel.sent]
    assert given == [1000, 500]


WRONG_EVIDENCE: list[dict[str, Any]] = [
    {"scope": "all"},
    {"scope": None},
    {"count": 1},
    {"count": True},
    {"records": None},
    {"records": [{**COLUMNS, "sources": [[1], ["1"]]}]},
    {"records": [{**COLUMNS, "sources": [[1], [0]]}]},
    {"records": [{**COLUMNS, "sources": [[1]]}]},
    {"records": [{**COLUMNS, "sources": {"k": [1], "l": []}}]},
    {"records": [{**COLUMNS, "keys": ["k", 1]}]},
    {"records": [{**COLUMNS, "keys": "kl"}]},
    {"records": [{**COLUMNS, "class": None}]},
    {"records": [["k", "l"]]},
    {"records": [{**COLUMNS, "count": 1}]},
    {"records": [{**COLUMNS, "count": 3}]},
    {"records": [{name: value for name, value in COLUMNS.items() if name != "count"}]},
    {"collections": [["travel", "trips", 1]]},
    {"collections": [{"domain": "travel", "collection": "trips", "count": -1}]},
    {"lapsed": [{"domain": "travel", "collection": "trips", "count": 1, "keys": ["a", "b"]}]},
    {"lapsed": None},
]
FORGED: list[dict[str, Any] | bytes] = [
    {**ANSWER, "id": 2},
    {**ANSWER, "id": 0},
    {**ANSWER, "id": True},
    {**ANSWER, "id": "1"},
    {**ANSWER, "outcome": "great"},
    {**ANSWER, "outcome": None},
    {**ANSWER, "message": 1},
    {**ANSWER, "result": None},
    {**ANSWER, "result": []},
    {**ANSWER, "result": {"type": "int", "evidence": RESTS_ON}},
    {**ANSWER, "result": {"value": 1, "type": 2, "evidence": RESTS_ON}},
    {**ANSWER, "result": {**VALUE, "ties": [1]}},
    {**ANSWER, "result": {**VALUE, "value": {"$date": "tomorrow"}}},
    {**ANSWER, "result": {**VALUE, "value": 2**60}},
    {**ANSWER, "result": {"value": 2, "type": "int"}},
    *(
        {**ANSWER, "result": {**VALUE, "evidence": {**RESTS_ON, **wrong}}}
        for wrong in WRONG_EVIDENCE
    ),
    {**ANSWER, "stdout": None},
    {**ANSWER, "seconds": "fast"},
    {**ANSWER, "seconds": -1},
    {**ANSWER, "seconds": 2**63},
    {**ANSWER, "seconds": 10**400},  # no float holds it
    {**ANSWER, "cpu_seconds": 1e300},
    {**ANSWER, "memory_bytes": True},
    {**ANSWER, "memory_bytes": 10.0},
    {**ANSWER, "memory_bytes": -1},
    {**ANSWER, "memory_bytes": 2**63},
    {**ANSWER, "result": {**VALUE, "value": {"$duration": 2**60}}},
    {**ANSWER, "outcome": "user_error", "error": "bad"},
    {**ANSWER, "outcome": "user_error", "error": {"type": "X"}},
    {
        **ANSWER,
        "outcome": "user_error",
        "error": {"type": "X", "message": "", "path": None, "line": "1", "traceback": ""},
    },
    {
        **ANSWER,
        "outcome": "user_error",
        "error": {"type": "X", "message": "", "path": None, "line": 2**63, "traceback": ""},
    },
    {},
    HELLO,
    b"\xff\xff\xff\xff",
    b"\0\0\0\2[]",
    b"\0\0\0\5{}",
    struct.pack(">I", 16) + b'{"id": 1, "a":1}'[:16],
    struct.pack(">I", 11) + b'{"id": NaN}',
]


@pytest.mark.parametrize("answer", FORGED)
def test_a_forged_answer_breaks_the_sandbox(answer: dict[str, Any] | bytes) -> None:
    channel = Script(HELLO, answer, ANSWER, {**ANSWER, "id": 2})
    one = sandbox(channel)
    with pytest.raises(SandboxError) as raised:
        one.evaluate("1 + 1", now=NOW, time_zone="UTC")
    assert raised.value.outcome == "protocol_error"
    assert raised.value.infrastructure
    assert channel.closed
    assert not one.alive
    # It gets no further requests: a later answer would belong to none of them.
    asked = len(channel.sent)
    with pytest.raises(SandboxError, match="open another") as refused:
        one.evaluate("1 + 1", now=NOW, time_zone="UTC")
    assert refused.value.infrastructure
    assert len(channel.sent) == asked


ALERT = {"severity": "info", "message": "x", "key": None, "evidence": [EVIDENCE]}
RESULT = {
    "path": "constraints/a.py",
    "alerts": [ALERT],
    "error": None,
    "seconds": 0.1,
    "left_out": 0,
    "takes_now": False,
}


@pytest.mark.parametrize(
    "results",
    [
        {},
        [1],
        [{**RESULT, "path": "constraints/b.py"}],
        [],
        [RESULT, RESULT],
        [{**RESULT, "alerts": None}],
        [{**RESULT, "error": []}],
        [{**RESULT, "alerts": [{**ALERT, "severity": "fatal"}]}],
        [{**RESULT, "alerts": [{**ALERT, "evidence": []}]}],
        [{**RESULT, "alerts": [{**ALERT, "key": 1}]}],
        [{**RESULT, "alerts": [{**ALERT, "evidence": [{}]}]}],
        *(
            [{**RESULT, "alerts": [{**ALERT, "evidence": [{**EVIDENCE, "sources": sources}]}]}]
            for sources in (["1"], [True], [0], [-1], [2**63], [1] * 100_001, "1", None)
        ),
        [{**RESULT, "seconds": -0.1}],
    ],
)
def test_forged_results_of_constraints_are_refused(results: Any) -> None:
    one = sandbox(Script(HELLO, {**ANSWER, "result": results}))
    with pytest.raises(SandboxError, match="protocol_error"):
        one.run_constraints(["constraints/a.py"], now=NOW, time_zone="UTC")


FORESEEN = {
    "path": "constraints/a.py",
    "error": None,
    "takes_now": False,
    "findings": [{"key": None, "records": [["d", "c", "k"]], "wording": ""}],
    "changes": [
        {"at": "2026-03-01", "error": None, "found": []},
        {"at": "2026-03-05", "error": None, "found": [[0, "info"]]},
    ],
    "until": None,
    "calls": 3,
}
FOUND = {"at": "2026-03-05", "error": None, "found": [[0, "info"]]}


def look_ahead(result: Any) -> Any:
    one = sandbox(Script(HELLO, {**ANSWER, "result": result}))
    start = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
    return one.forecast(
        ["constraints/a.py"],
        now=start,
        until=start + datetime.timedelta(days=30),
        time_zone="UTC",
    )


def test_a_forecast_is_read() -> None:
    (found,) = look_ahead([FORESEEN]).results
    assert [change.at for change in found.changes] == ["2026-03-01", "2026-03-05"]
    assert found.findings[0].records == (("d", "c", "k"),)


@pytest.mark.parametrize(
    "results",
    [
        {},
        [],
        [{**FORESEEN, "path": "constraints/b.py"}],
        [{**FORESEEN, "changes": []}],
        [{**FORESEEN, "changes": [FOUND, FOUND]}],
        [{**FORESEEN, "changes": [{**FOUND, "at": "soon"}]}],
        [{**FORESEEN, "changes": [{**FOUND, "at": "0001-01-01"}]}],
        [{**FORESEEN, "changes": [{**FOUND, "at": "9999-12-31"}]}],
        [{**FORESEEN, "changes": [{**FOUND, "at": "2026-03-05T10:00:00"}]}],
        [{**FORESEEN, "changes": [{**FOUND, "at": "2026-03-05T10:00:00+02:00"}]}],
        [{**FORESEEN, "changes": [FOUND, {**FOUND, "at": "2026-03-06T10:00:00+00:00"}]}],
        [{**FORESEEN, "changes": [{**FOUND, "found": [[1, "info"]]}]}],
        [{**FORESEEN, "changes": [{**FOUND, "found": [[-1, "info"]]}]}],
        [{**FORESEEN, "changes": [{**FOUND, "found": [[0, "fatal"]]}]}],
        [{**FORESEEN, "changes": [{**FOUND, "error": 1}]}],
        [{**FORESEEN, "findings": [{"key": None, "records": [], "wording": ""}]}],
        [{**FORESEEN, "findings": [{"key": None, "records": [["d", "c"]], "wording": ""}]}],
        [{**FORESEEN, "until": "0001-01-01"}],
        [{**FORESEEN, "until": 1}],
        [{**FORESEEN, "calls": -1}],
    ],
)
def test_forged_forecasts_are_refused(results: Any) -> None:
    with pytest.raises(SandboxError, match="protocol_error"):
        look_ahead(results)


@pytest.mark.parametrize(
    ("ask", "result"),
    [
        (lambda one: one.compile({"a.py": ""}), {"bytecode": {}}),
        (lambda one: one.compile({"a.py": ""}), {"bytecode": {"b.py": ""}}),
        (lambda one: one.compile({"a.py": ""}), {"bytecode": {"a.py": 1}}),
        (lambda one: one.load({"a.py": ""}), {"modules": "1", "executed": 1}),
        (lambda one: one.load({"a.py": ""}), {"modules": -1, "executed": 1}),
        (lambda one: one.load({"a.py": ""}), {"modules": 1, "executed": 2**63}),
        (lambda one: one.run_tests(["tests/test_a.py"]), [{"name": "tests/test_b.py::test_x"}]),
        (lambda one: one.run_tests(), [{"error": None}]),
        *(
            (lambda one: one.run_tests(), [{"name": "tests/test_a.py", "same_evidence": pair}])
            for pair in ("ab", ["a"], ["a", 1], ["a", "b", "c"], {"a": "b"})
        ),
        (lambda one: one.dump(["domains/a/state.py"]), {"counts": {}, "records": {}}),
        (lambda one: one.dump(), {"counts": {"a": {"b": "1"}}, "records": {}}),
        (lambda one: one.dump(), {"counts": {"a": {"b": -1}}, "records": {}}),
        (lambda one: one.dump(), {"counts": {"a": {"b": 2**63}}, "records": {}}),
        (lambda one: one.dump(), {"counts": {"a": 1}, "records": {}}),
        (lambda one: one.dump(), {"counts": {}, "records": {"p": {"c": ["x"]}}}),
        (lambda one: one.dump(), {"counts": {}, "records": {"p": {"c": [{"$record": 1}]}}}),
    ],
)
def test_forged_results_are_refused(ask: Callable[[Sandbox], object], result: Any) -> None:
    one = sandbox(Script(HELLO, {**ANSWER, "result": result}))
    with pytest.raises(SandboxError, match="protocol_error"):
        ask(one)
    assert not one.alive


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(TimeoutError(), "timeout"), (EOFError(), "killed"), (OSError("no buffers"), "killed")],
)
def test_a_channel_that_fails_is_an_outcome_of_the_machine(error: Exception, outcome: str) -> None:
    channel = Script(HELLO)
    channel.raises = error
    with pytest.raises(SandboxError) as raised:
        evaluate(channel)
    assert raised.value.outcome == outcome
    assert raised.value.infrastructure
    assert channel.closed


@pytest.mark.parametrize("outcome", [one for one in protocol.OUTCOMES if one != "ok"])
def test_reported_outcome_of_an_evaluation_is_the_users(outcome: str) -> None:
    one = sandbox(Script(HELLO, {**ANSWER, "outcome": outcome, "message": "why"}))
    with pytest.raises(SandboxError, match="why") as raised:
        one.evaluate("1", now=NOW, time_zone="UTC")
    assert raised.value.outcome == outcome
    assert not raised.value.infrastructure
    assert one.alive


@pytest.mark.parametrize(
    "ask", [lambda one: one.compile({"a.py": ""}), lambda one: one.load({"a.py": ""})]
)
@pytest.mark.parametrize(
    ("outcome", "infrastructure"),
    [("timeout", True), ("user_error", False), ("out_of_memory", False)],
)
def test_compiling_and_loading_are_slow_on_a_slow_machine_alone(
    ask: Callable[[Sandbox], object], outcome: str, infrastructure: bool
) -> None:
    with pytest.raises(SandboxError) as raised:
        ask(sandbox(Script(HELLO, {**ANSWER, "outcome": outcome})))
    assert raised.value.outcome == outcome
    assert raised.value.infrastructure is infrastructure


def test_an_interruption_halfway_closes_the_sandbox() -> None:
    channel = Script(HELLO, ANSWER)
    channel.raises = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        evaluate(channel)
    assert channel.closed


def test_too_large_request_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "MAX_FRAME_BYTES", 1000)
    channel = Script(HELLO, {**ANSWER, "id": 2})
    one = sandbox(channel)
    with pytest.raises(SandboxError, match=r"takes 2\d\d\d bytes .* at most 1000 ") as raised:
        one.load({"domains/a/state.py": "x" * 2000})
    assert raised.value.outcome == "input_limit"
    assert not raised.value.infrastructure
    assert channel.sent == []
    assert one.alive
    assert one.evaluate("2", now=NOW, time_zone="UTC").value == 2


@pytest.mark.parametrize(
    ("now", "time_zone", "message"),
    [
        (datetime.datetime(2026, 1, 1), "UTC", "aware datetime"),  # noqa: DTZ001
        (NOW, "Mars/Olympus", "Mars/Olympus"),
        (NOW, "../etc/passwd", "is not a zone"),
    ],
)
def test_a_wrong_instant_is_the_callers_error(
    now: datetime.datetime, time_zone: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        sandbox(Script(HELLO)).evaluate("1", now=now, time_zone=time_zone)


@pytest.mark.parametrize(
    "paths",
    [
        ["domains/health/state.py"],
        ["workspace/constraints/not_bound.py"],
        ["constraints/one.py", "constraints/one.py"],
        ["constraints/one.py", "../constraints/two.py"],
    ],
)
def test_results_of_what_is_no_constraint_are_believed_by_nobody(paths: list[str]) -> None:
    one: dict[str, Any] = {
        "alerts": [],
        "error": None,
        "seconds": 0.1,
        "left_out": 0,
        "takes_now": False,
    }
    answer = {**ANSWER, "result": [{**one, "path": path} for path in paths]}
    sandbox = Sandbox(Script(HELLO, answer), runner_name="test", image_digest="", hash_seed=0)

    with pytest.raises(SandboxError, match="constraints other than those requested"):
        sandbox.run_constraints(now=NOW, time_zone="UTC")
    assert not sandbox.alive

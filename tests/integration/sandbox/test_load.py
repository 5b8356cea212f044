"""Loading a project: from source, from bytecode, and again where it changed."""

import base64
import marshal
import zlib

import pytest

from tests.integration.sandbox.conftest import NOW, PROJECT, sandbox_error, value_of
from tests.steps import not_none
from workers.sandbox.client import Sandbox
from workers.sandbox.interface import Runner
from workers.sandbox.limits import Limits
from workers.sandbox.results import SandboxError

STATE = PROJECT["domains/travel/state.py"]


def test_every_module_of_the_domains_is_executed_and_no_other(sandbox: Sandbox) -> None:
    loaded = sandbox.load(PROJECT)
    # domains, and of travel and notes: the package, schema, state and a shard
    assert (loaded.modules, loaded.executed) == (8, 8)
    assert loaded.usage.memory_bytes > 0
    found = value_of(sandbox, "import sys\n[n for n in sys.modules if 'today' in n]")
    assert found == ["constraints.today"]  # and no test


def test_bytecode_does_what_the_source_does(runner: Runner, sandbox: Sandbox) -> None:
    bytecode = sandbox.compile(PROJECT)
    with runner.start(hash_seed=1) as other:
        assert other.image_digest == sandbox.image_digest
        other.load(bytecode=bytecode)
        assert value_of(other, "[t.name for t in trips]") == ["Rome", "Oslo", "Bonn"]
        assert [test.error for test in other.run_tests().results] == [None, None]


def test_compiling_executes_nothing(sandbox: Sandbox) -> None:
    sandbox.compile({"domains/a/state.py": "import os\nos._exit(1)\nwhile True: pass"})
    assert value_of(sandbox, "1") == 1


def test_code_that_does_not_compile_is_named_with_its_line(sandbox: Sandbox) -> None:
    with sandbox_error("user_error") as raised:
        sandbox.compile({"domains/a/schema.py": "x = 1", "domains/a/state.py": "x = 1\ny = ("})
    error = not_none(raised.value.error)
    assert (error.type, error.path, error.line) == ("SyntaxError", "domains/a/state.py", 2)


def test_a_compiler_that_runs_out_of_memory_takes_nothing_along(sandbox: Sandbox) -> None:
    limits = Limits(memory_bytes=64 * 1024 * 1024, wall_seconds=20, cpu_seconds=20)
    with sandbox_error("out_of_memory"):
        sandbox.compile({"domains/a/state.py": "x = [" + "1.5, " * 2_000_000 + "]"}, limits=limits)
    assert value_of(sandbox, "1") == 1


def test_an_error_while_loading_has_the_line_in_the_users_file(sandbox: Sandbox) -> None:
    broken = STATE.replace('name="Oslo"', "name=1 / 0")
    project = {**PROJECT, "domains/travel/state.py": broken}
    for sources, bytecode in ((project, None), (None, sandbox.compile(project))):
        with pytest.raises(SandboxError) as raised:
            sandbox.load(sources, bytecode=bytecode)
        error = not_none(raised.value.error)
        assert (error.type, error.path, error.line) == (
            "ZeroDivisionError",
            "domains/travel/state.py",
            10,
        )
        assert "sandbox_image" not in error.traceback
        assert "importlib" not in error.traceback


def test_a_syntax_error_while_loading_has_its_line(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError) as raised:
        sandbox.load({"domains/a/schema.py": "x = 1\nclass A(:\n"})
    error = not_none(raised.value.error)
    assert (error.type, error.path, error.line) == ("SyntaxError", "domains/a/schema.py", 2)


def test_an_error_in_a_method_of_a_schema_has_the_line_there(sandbox: Sandbox) -> None:
    sandbox.load({"domains/a/schema.py": "class A:\n    def f(self):\n        return 1 / 0\n"})
    with pytest.raises(SandboxError) as raised:
        value_of(sandbox, "from domains.a.schema import A\nA().f()")
    error = not_none(raised.value.error)
    assert (error.path, error.line) == ("domains/a/schema.py", 3)
    assert '"<query>", line 2' in error.traceback
    assert "return 1 / 0" in error.traceback


def test_only_what_changed_and_its_importers_are_executed_again(sandbox: Sandbox) -> None:
    sandbox.load(PROJECT)
    shard = PROJECT["domains/travel/trips_0002.py"].replace("Bonn", "Bergen")

    loaded = sandbox.load({"domains/travel/trips_0002.py": shard})

    assert loaded.executed == 2  # the shard, and the state that imports it
    assert value_of(sandbox, "[t.name for t in trips]") == ["Rome", "Oslo", "Bergen"]
    assert value_of(sandbox, "isinstance(trips[2], Trip)") is True
    assert value_of(sandbox, "import domains.travel.state as s\ns.trips is trips") is True


def test_a_changed_schema_reaches_all_records(sandbox: Sandbox) -> None:
    sandbox.load(PROJECT)
    schema = PROJECT["domains/travel/schema.py"] + "    stars: int = 5\n"

    loaded = sandbox.load({"domains/travel/schema.py": schema})

    assert loaded.executed == 3  # schema, shard, state; not the other domain
    assert value_of(sandbox, "[t.stars for t in trips]") == [5, 5, 5]
    assert value_of(sandbox, "trips[1].passport.get() is passport") is True


def test_constraints_and_tests_are_always_the_newest(sandbox: Sandbox) -> None:
    sandbox.load(PROJECT)
    assert sandbox.run_constraints(now=NOW, time_zone="UTC").results[0].alerts
    silent = "def check(today):\n    return []\n"
    assert sandbox.load({"constraints/today.py": silent}).executed == 0
    assert sandbox.run_constraints(now=NOW, time_zone="UTC").results[0].alerts == ()
    assert [test.error is None for test in sandbox.run_tests().results] == [False, True]


def test_removed_files_are_gone(sandbox: Sandbox) -> None:
    sandbox.load(PROJECT)
    gone = [path for path in PROJECT if "notes" in path or "today" in path]

    sandbox.load(removed=gone)

    assert sandbox.run_constraints(now=NOW, time_zone="UTC").results == ()
    assert sandbox.run_tests().results == ()
    assert list(sandbox.dump().counts) == ["travel"]
    for code in ("notes", "import domains.notes.state", "import constraints.today"):
        with pytest.raises(SandboxError, match="user_error"):
            value_of(sandbox, code)


def test_a_load_that_fails_leaves_what_was_loaded(sandbox: Sandbox) -> None:
    sandbox.load(PROJECT)
    for change in (
        {"domains/travel/schema.py": "raise ValueError"},
        {"domains/travel/state.py": "x = ("},
        {"domains/new/state.py": "from domains.travel.schema import Nothing"},
        {"domains/travel/trips_0002.py": "import sys\nsys.exit(1)"},
        {"domains/travel/trips_0002.py": "x = 'x' * 10 ** 10"},
    ):
        with pytest.raises(SandboxError) as raised:
            sandbox.load(change)
        assert raised.value.outcome in ("user_error", "out_of_memory")
        assert value_of(sandbox, "[t.name for t in trips]") == ["Rome", "Oslo", "Bonn"]
        assert value_of(sandbox, "all(isinstance(t, Trip) for t in trips)") is True
        assert "new" not in sandbox.dump().counts
    with pytest.raises(SandboxError):
        sandbox.load({"domains/b/state.py": "1 / 0"}, removed=["domains/notes/state.py"])
    assert value_of(sandbox, "len(notes)") == 1


def test_a_load_that_does_not_end_ends_the_sandbox(sandbox: Sandbox) -> None:
    with sandbox_error("timeout"):
        sandbox.load({"domains/a/state.py": "while True: pass"}, limits=Limits(wall_seconds=0.1))
    assert not sandbox.alive


def test_a_module_that_ends_the_process_ends_the_sandbox(sandbox: Sandbox) -> None:
    with sandbox_error("killed"):
        sandbox.load({"domains/a/state.py": "import os\nos._exit(0)"})
    assert not sandbox.alive


def test_a_module_can_start_no_process(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError) as raised:
        sandbox.load({"domains/a/state.py": "import os\nos.fork()"})
    assert not_none(raised.value.error).type == "BlockingIOError"


@pytest.mark.parametrize(
    "bytecode",
    [
        "",
        "!",
        base64.b64encode(b"garbage").decode(),
        base64.b64encode(marshal.dumps("not packed")).decode(),
        base64.b64encode(zlib.compress(b"no marshal")).decode(),
        base64.b64encode(zlib.compress(marshal.dumps("no code"))).decode(),
    ],
)
def test_damaged_bytecode_is_refused(loaded: Sandbox, bytecode: str) -> None:
    with sandbox_error("protocol_error"):
        loaded.load(bytecode={"domains/a/state.py": bytecode})
    assert value_of(loaded, "len(trips)") == 3


@pytest.mark.parametrize("path", ["../x.py", "/etc/x.py", "domains/a b/state.py", "x.txt", ""])
def test_a_path_that_is_none_is_refused(loaded: Sandbox, path: str) -> None:
    with pytest.raises(SandboxError, match="not the path of a Python file"):
        loaded.load({path: "x = 1"})
    assert value_of(loaded, "len(trips)") == 3


def test_folders_need_no_init_file(sandbox: Sandbox) -> None:
    sandbox.load({"domains/a/state.py": "from domains.b.schema import X\nx = X",
                  "domains/b/schema.py": "X = 1"})  # fmt: skip
    assert value_of(sandbox, "import domains.a.state\ndomains.a.state.x") == 1


def test_the_dump_tells_what_each_file_contributes(sandbox: Sandbox) -> None:
    sandbox.load(PROJECT)

    dump = sandbox.dump(["domains/travel/state.py", "domains/travel/trips_0002.py"])

    assert dump.counts == {
        "notes": {"notes": 1, "plans": 0},
        "travel": {"passport": 1, "plans": 0, "trips": 3},
    }
    keys = {
        path: {name: [record["key"] for record in found] for name, found in collections.items()}
        for path, collections in dump.records.items()
    }
    assert keys == {
        "domains/travel/state.py": {"passport": ["p-1"], "plans": [], "trips": ["t-1", "t-2"]},
        "domains/travel/trips_0002.py": {"trips": ["t-3"]},
    }
    assert dump.records["domains/travel/trips_0002.py"]["trips"][0] == {
        "$record": "Trip",
        "key": "t-3",
        "sources": [],
        "fields": {
            "name": "Bonn",
            "on": None,
            "mode": {"$enum": "Mode.TRAIN", "value": "train"},
            "passport": None,
        },
    }
    assert set(sandbox.dump().records) == {
        "domains/notes/state.py",
        "domains/travel/state.py",
        "domains/travel/trips_0002.py",
    }
    assert sandbox.dump([]).records == {}


def test_a_shard_that_the_state_forgets_is_missing_in_the_counts(sandbox: Sandbox) -> None:
    sandbox.load({**PROJECT, "domains/travel/state.py": STATE.replace("    *trips_0002,\n", "")})
    assert sandbox.dump([]).counts["travel"]["trips"] == 2


def test_fifty_thousand_records_load_from_bytecode(runner: Runner, sandbox: Sandbox) -> None:
    shards = {
        f"domains/travel/trips_{n:04}.py": "from domains.travel.schema import Trip\n"
        "trips: list[Trip] = [\n"
        + "".join(f'    Trip(key="t-{n}-{i}", name="Trip {i}"),\n' for i in range(500))
        + "]\n"
        for n in range(2, 102)
    }
    names = [f"trips_{n:04}" for n in range(2, 102)]
    state = (
        "from domains.travel.schema import Trip\n"
        + "".join(f"from domains.travel.{n} import trips as {n}\n" for n in names)
        + f"trips: list[Trip] = [{', '.join(f'*{n}' for n in names)}]\n"
    )
    project = {**PROJECT, "domains/travel/state.py": state, **shards}
    bytecode = sandbox.compile(project)
    with runner.start() as other:
        assert other.load(bytecode=bytecode).modules == 8 - 1 + 100
        assert value_of(other, "len(trips)") == 50_000
        assert value_of(other, "len({t.key for t in trips})") == 50_000
        shard = shards["domains/travel/trips_0101.py"].replace(
            "]\n", '    Trip(key="new", name="x")]\n'
        )
        assert other.load({"domains/travel/trips_0101.py": shard}).executed == 2
        dump = other.dump(["domains/travel/trips_0101.py"])
        assert dump.counts["travel"]["trips"] == 50_001
        assert len(dump.records["domains/travel/trips_0101.py"]["trips"]) == 501

"""Foreign projects: what they see while they are executed, and the translated result."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from memory.integrations.foreign import (
    ForeignError,
    Plan,
    graph_in,
    layout,
    read,
    reading_code,
    translate,
)
from memory.project import Project, RecordId, render
from memory.project.typed import encode
from tests.integration.sandbox.conftest import NOW, sandbox_error
from workers.sandbox.client import Sandbox
from workers.sandbox.interface import Runner
from workers.sandbox.limits import FOREIGN_LIMITS

HEAD = (
    "from dataclasses import dataclass, field\nfrom datetime import *\n"
    "from decimal import Decimal\nfrom enum import Enum\nfrom typing import *\n"
    "from zoneinfo import ZoneInfo\n\n"
)
A = f"{HEAD}@dataclass\nclass A:\n    n: Any = None\n\n"


@pytest.fixture(scope="module")
def shared(runner: Runner) -> Iterator[Sandbox]:
    """A sandbox that all these tests share; each project is executed in a process of its own."""
    with runner.start() as one:
        yield one
        assert one.alive


def plan(sandbox: Sandbox, files: Mapping[str, str] | str) -> tuple[Plan, Project]:
    """Execute and translate files; the project is what its own files say it is."""
    named = {"m.py": files} if isinstance(files, str) else files
    found = layout(named)
    code = reading_code(named, list(found.modules))
    answer = sandbox.evaluate(code, now=NOW, time_zone="UTC", limits=FOREIGN_LIMITS)
    made = translate(read(graph_in(answer.value)), found.modules, (1,))
    project = Project.empty()
    made.carry_out(project)
    assert Project.from_files(render(project)) == project
    return made, project


def records(project: Project, name: str, domain: str = "m") -> dict[str, Any]:
    """Return key → typed JSON of the fields of a collection or singleton."""
    return {record.key: encode(dict(record.fields)) for _, record in project.records(domain, name)}


def kinds(made: Plan) -> set[tuple[str, str]]:
    return {(note["kind"], note["place"]) for note in made.notes.to_json()}


@pytest.mark.parametrize(
    ("value", "typed"),
    [
        ("None", None),
        ("True", True),
        ("10**30", {"$int": str(10**30)}),
        ("1.5", 1.5),
        ("'2026-01-02'", "2026-01-02"),
        ("date(2026, 1, 2)", {"$date": "2026-01-02"}),
        ("time(9, 30)", {"$time": "09:30:00"}),
        ("datetime(2026, 1, 2, 3)", {"$datetime": "2026-01-02T03:00:00"}),
        (
            "datetime(2026, 1, 2, 3, tzinfo=timezone.utc)",
            {"$datetime": "2026-01-02T03:00:00+00:00"},
        ),
        ("Decimal('1.50')", {"$decimal": "1.50"}),
        ("[1, 'a', None]", [1, "a", None]),
        ("[[1], []]", [[1], []]),
        ("{'a': 1}", {"$object": "AN", "fields": {"a": 1}}),
        ("{}", []),
        ("A(n=2)", {"$ref": "A", "key": "a-1"}),
    ],
)
def test_values_are_kept_or_their_change_noted(shared: Sandbox, value: str, typed: Any) -> None:
    made, project = plan(shared, f"{A}x = A({value})\n")
    found = records(project, "x")["x"].get("n")
    assert (found, type(found)) == (typed, type(typed))
    assert (("converted", "A.n") in kinds(made)) == value.startswith("{")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("10**400", "integer of more than 300 digits"),
        ("10**5000", "very large integer"),
        ("datetime(2026, 1, 2, tzinfo=ZoneInfo('Europe/Berlin'))", "datetime"),
        ("time(9, tzinfo=ZoneInfo('Europe/Berlin'))", "time"),
        ("(A(2), 2)", "tuple"),
        ("{3, 1, 2}", "set"),
        ("range(3)", "range"),
        ("float('nan')", "float"),
        ("Decimal('NaN')", "Decimal"),
        ("b'ab'", "bytes"),
        ("timedelta(1, 2)", "timedelta"),
        ("{'x y': 1}", "keys that are no names"),
        ("{1: 'a'}", "keys that are no names"),
        ("{f'k{n}': n for n in range(61)}", "more than 60 keys"),
        ("[{f'k{n}': n} for n in range(9)]", "more than 8 sets of keys"),
        ("Enum('Odd', {'A': (1, 2)}, module=__name__).A", "tuple"),
        ("Enum('Odd', {'A': 1.5}, module=__name__).A", "not distinct texts or integers"),
        ("__import__('pathlib').PurePath('a')", "Path"),
    ],
)
def test_other_values_are_refused_with_their_place(shared: Sandbox, value: str, kind: str) -> None:
    with pytest.raises(ForeignError) as refused:
        plan(shared, f"{A}x = A({value})\n")
    assert refused.value.code == "unsupported_value"
    assert kind in str(refused.value)
    assert "write texts, numbers, dates" in str(refused.value)


@pytest.mark.parametrize(
    "value",
    [
        "datetime(2026, 1, 2, tzinfo=ZoneInfo('Europe/Berlin'))",
        "time(9, tzinfo=ZoneInfo('Europe/Berlin'))",
        "timedelta(3)",
        "float('nan')",
        "Decimal('NaN')",
        "b'ab'",
        "10**5000",
    ],
)
def test_data_of_a_module_is_refused_rather_than_left_out(shared: Sandbox, value: str) -> None:
    with pytest.raises(ForeignError) as refused:
        plan(shared, f"{A}x = A(1)\nLIMIT = {value}\n")
    assert refused.value.code == "unsupported_value"
    assert "LIMIT" in str(refused.value)


def test_a_tuple_of_a_module_is_refused_and_an_object_of_a_library_left_out(
    shared: Sandbox,
) -> None:
    with pytest.raises(ForeignError, match="xs has a tuple"):
        plan(shared, f"{A}xs = (A(1),)\n")
    made, _ = plan(shared, f"{A}x = A(1)\nzone = ZoneInfo('Europe/Berlin')\n")
    assert kinds(made) == {("left_out", "zone")}


def test_dictionaries_of_other_keys_are_objects_of_other_classes(shared: Sandbox) -> None:
    _, project = plan(shared, f"{A}x = A([{{'a': 1}}, {{'b': None}}, {{'a': 'text'}}])\n")
    assert records(project, "x")["x"]["n"] == [
        {"$object": "AN", "fields": {"a": 1}},
        {"$object": "AN2", "fields": {}},
        {"$object": "AN", "fields": {"a": "text"}},
    ]


@pytest.mark.parametrize(
    ("source", "collections", "singletons"),
    [
        pytest.param("x = A(1)", [], ["x"], id="name"),
        pytest.param("X = A(1)", [], ["x"], id="upper case"),
        pytest.param("_x = A(1)", [], ["x"], id="underscore"),
        pytest.param("xs = [A(1), A(2)]", ["xs"], [], id="list"),
        pytest.param("x = A(1)\nxs = [x]", ["xs"], [], id="name in list"),
        pytest.param("xs = [A(1)]\nys = xs", ["xs"], ["variables"], id="list of two names"),
        pytest.param("x = A(1)\ny = x", [], ["x", "variables"], id="two names"),
        pytest.param("x = A(1)\nxs = [x, x]", [], ["x", "variables"], id="twice in a list"),
        pytest.param("xs = [A(1), 2]", ["as_"], ["variables"], id="list of many kinds"),
        pytest.param("xs_0001 = [A(1)]", ["xs_0001_"], [], id="like a shard"),
        pytest.param("list = [A(1)]", ["list_"], [], id="like a builtin"),
        pytest.param("xs = []\nn = 3", [], ["variables"], id="no objects"),
        pytest.param("STATE = {'a': {'b': [1]}}", [], ["state"], id="dictionaries"),
        pytest.param("rows = [{'a': 1}, {'a': 2}]", ["rows"], [], id="rows"),
        pytest.param("x = A(A(A(1)))", ["as_"], ["x"], id="nested in itself"),
    ],
)
def test_where_things_go(
    shared: Sandbox, source: str, collections: list[str], singletons: list[str]
) -> None:
    _, project = plan(shared, f"{A}{source}\n")
    domain = project.outline.domains["m"]
    assert (list(domain.collections), list(domain.singletons)) == (collections, singletons)


def test_classes_that_refer_to_each_other(shared: Sandbox) -> None:
    _, project = plan(
        shared,
        f"{HEAD}@dataclass\nclass A:\n    b: 'B'\n\n@dataclass\nclass B:\n    a: A | None\n\n"
        "b = B(None)\na = A(b)\nb.a = a\n",
    )
    assert records(project, "a")["a"] == {"b": {"$ref": "B", "key": "b"}}
    assert records(project, "b")["b"] == {"a": {"$ref": "A", "key": "a"}}


def test_an_object_that_two_hold_is_one_record(shared: Sandbox) -> None:
    _, project = plan(
        shared,
        f"{A}@dataclass\nclass P:\n    at: A\n\ndef both():\n    a = A(1)\n    return [P(a), P(a)]"
        "\n\nps = both()\n",
    )
    assert {p["at"]["key"] for p in records(project, "ps").values()} == {"a-1"}
    assert len(records(project, "as_")) == 1


def test_references_lead_to_one_record_whatever_the_collection(shared: Sandbox) -> None:
    # Given objects of one class with the same id in two lists, and one that no list holds,
    made, project = plan(
        shared,
        f"{HEAD}@dataclass\nclass T:\n    id: int\n    o: Any = None\n\n"
        "a = [T(1), T(2)]\nb = [T(1, a[0]), T(3, T(2, a[1]))]\n",
    )
    # then no two records of the class have one key.
    assert list(records(project, "a")) == ["t-1", "t-2"]
    assert list(records(project, "b")) == ["b-t-1", "t-3"]
    assert records(project, "b")["b-t-1"]["o"]["key"] == "t-1"
    assert list(records(project, "ts")) == ["ts-t-2"]
    assert ("keyed", "b") in kinds(made)


def test_modules_of_one_domain_may_use_the_same_names(shared: Sandbox) -> None:
    schema = f"{HEAD}@dataclass\nclass P:\n    n: int\n\n"
    _, project = plan(
        shared,
        {
            "domains/h/a.py": f"{schema}user = P(1)\nnotes = ['a']\n",
            "domains/h/b.py": "from domains.h.a import P\nimport domains.h.a as a\n"
            "user = P(2)\nnotes = ['b']\npeople = [user, a.user]\n",
        },
    )
    assert [person["n"] for person in records(project, "people", "h").values()] == [2, 1]
    (rest,) = records(project, "variables", "h").values()
    assert (rest["notes"], rest["notes2"]) == (["a"], ["b"])


def test_objects_that_are_no_dataclasses(shared: Sandbox) -> None:
    made, project = plan(
        shared,
        f"{A}class Plain:\n    def __init__(self):\n        self.n = 1\n\n"
        "plain = Plain()\nlate = A(1)\nlate.more = 3\n",
    )
    assert records(project, "plain")["plain"] == {"n": 1}
    assert records(project, "late")["late"] == {"n": 1, "more": 3}
    assert made.counts["records"] == 2


def test_enums(shared: Sandbox) -> None:
    _, project = plan(
        shared,
        f"{A}class Color(Enum):\n    RED = 'red'\n    BLUE = 2\n\nx = A([Color.RED, Color.BLUE])\n",
    )
    assert records(project, "x")["x"]["n"] == [{"$enum": "Color.RED"}, {"$enum": "Color.BLUE"}]


def test_domains_share_classes_and_refer_to_each_other(shared: Sandbox) -> None:
    files = {
        "common.py": f"{A}",
        "domains/x/state.py": "from common import A\nfirst = A(1)\n",
        "domains/y/state.py": "from common import A\nfrom domains.x.state import first\n"
        "second = A(first)\n",
    }
    _, project = plan(shared, files)
    assert records(project, "first", "x")["first"] == {"n": 1}
    assert records(project, "second", "y")["second"] == {"n": {"$ref": "x.A", "key": "first"}}
    assert project.record(RecordId("y", "first", "first")) is None


@pytest.mark.parametrize(
    ("files", "modules", "constraints", "left_out"),
    [
        ({"a.py": ""}, {"a.py": "a"}, {}, []),
        ({"My Data.py": ""}, {"My Data.py": "my_data"}, {}, []),
        ({"list.py": ""}, {"list.py": "list_"}, {}, []),
        ({"2024.py": ""}, {"2024.py": "imported"}, {}, []),
        ({"p/domains/h/state.py": ""}, {"p/domains/h/state.py": "h"}, {}, []),
        ({"health/schema.py": ""}, {"health/schema.py": "health"}, {}, []),
        ({"manifest.py": "", "tests/test_a.py": "", "setup.py": ""}, {}, {}, []),
        ({"constraints/c.py": "def check(p): ..."}, {}, {}, ["constraints/c.py"]),
        (
            {"constraints/c.py": "import uac\ndef check(p): ..."},
            {},
            {"c": "constraints/c.py"},
            [],
        ),
        ({"s.py": "STATE = {}\ndef check_constraints(t): ..."}, {"s.py": "s"}, {}, ["s.py"]),
    ],
)
def test_layouts(
    files: dict[str, str], modules: object, constraints: object, left_out: object
) -> None:
    found = layout(files)
    assert (found.modules, found.constraints, found.left_out) == (modules, constraints, left_out)


def test_each_folder_has_its_own_schema(shared: Sandbox) -> None:
    schema = f"{HEAD}@dataclass\nclass T:\n    "
    files = {
        "domains/g/schema.py": f"{schema}g: int\n",
        "domains/g/state.py": "from schema import T\nts = [T(1)]\n",
        "domains/h/schema.py": f"{schema}h: int\n",
        "domains/h/state.py": "from schema import T\nts = [T(2)]\n",
    }
    _, project = plan(shared, files)
    assert list(records(project, "ts", "g").values()) == [{"g": 1}]
    assert list(records(project, "ts", "h").values()) == [{"h": 2}]


def test_two_executions_give_the_same(shared: Sandbox) -> None:
    source = (
        f"{A}import random, time, uuid\nx = A([str(uuid.uuid4()), random.random(), time.time(),\n"
        "       datetime.now().isoformat(), date.today().isoformat()])\n"
    )
    first, second = (records(plan(shared, source)[1], "x")["x"]["n"] for _ in range(2))
    assert first == second
    assert first[2:] == [NOW.timestamp(), "2026-03-01T23:30:00", "2026-03-01"]


# What is no project


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        (f"{A}x = A()\nx.n = x.__class__(x)\ny = [[]]\ny[0] = y", "result_limit"),
        ("import os\nos.abort()", "killed"),
        ("import os\nos._exit(0)", "killed"),
        ("import os\nos.write(3, b'{}\\n')", "protocol_error"),
        ("raise MemoryError", "out_of_memory"),
    ],
)
def test_module_ending_its_process_harms_nothing(
    shared: Sandbox, source: str, outcome: str
) -> None:
    with sandbox_error(outcome, infrastructure=False):
        plan(shared, source)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"modules": None},
        {"modules": [], "classes": [], "enums": [], "objects": []},
        {"modules": [{"path": "m.py", "names": [["x", ["object", 0], ""]]}], "classes": []},
        *(
            {
                "modules": [{"path": path, "names": [[name, value, ""]]}],
                "classes": [{"name": "A", "is_record": False, "doc": "", "fields": []}],
                "enums": [],
                "objects": [[0, [], None]],
            }
            for path, name, value in [
                ("m.py", "x", ["object", 1]),
                ("m.py", "x", ["object", -1]),
                ("m.py", "x", ["object", True]),
                ("m.py", "x", ["enum", [0, "A"]]),
                ("m.py", "x", ["date", "2026-02-30"]),
                ("m.py", "x", ["date", 3]),
                ("m.py", "x", ["unknown", 3]),
                ("m.py", "x", {"a": 1}),
                ("m.py", "x", ["list", 3]),
                ("m.py", "x", ["int", "nine"]),
                ("m.py", 3, ["object", 0]),
                ("other.py", "x", ["object", 0]),
            ]
        ),
    ],
)
def test_a_forged_graph_is_refused(data: Any) -> None:
    with pytest.raises(ForeignError):
        translate(read(data), {"m.py": "m"}, (1,))

"""Stored files that are not as rendered: reported with path and line, never executed."""

from collections.abc import Callable

import pytest

from memory.project import Project, ProjectError, render

from .examples import rich_project
from .support import trips_project

SCHEMA = "domains/travel/schema.py"
STATE = "domains/travel/state.py"
SHARD = "domains/travel/trips_0002.py"
Damage = Callable[[str], str]


def replaced(old: str, new: str) -> Damage:
    def damage(source: str) -> str:
        assert old in source
        return source.replace(old, new, 1)

    return damage


@pytest.mark.parametrize(
    ("path", "damage", "message"),
    [
        (SCHEMA, lambda _: "class", "schema.py:1: invalid Python"),
        (SCHEMA, lambda _: "\x00", "invalid Python"),
        (SCHEMA, lambda source: source + "print('run')\n", "only imports and classes"),
        (
            SCHEMA,
            lambda source: "if True:\n    x = 1\n" + source,
            "schema.py:1: a schema may contain only",
        ),
        (SCHEMA, replaced("(Record)", "(Other)"), "may only extend Record"),
        (SCHEMA, replaced("to: str", "to = 'x'"), "a class may contain only fields"),
        (SCHEMA, replaced("to: str", "to: dict[int, str]"), "is not a valid field type"),
        (SCHEMA, replaced("to: str", "to: Nowhere"), "Trip.to: Nowhere is not defined here"),
        (SCHEMA, replaced("to: str", "to: str = open('x')"), "expected"),
        (STATE, lambda source: source + "import_it = exit()\n", "expected a record in travel"),
        (STATE, lambda source: source + "x = 1\n", "expected a record in travel"),
        (STATE, lambda source: source + "exit()\n", "state.py"),
        (STATE, replaced('to="Town 1"', 'to=open("x")'), "state.py:6: "),
        (STATE, replaced('to="Town 1"', 'to=f"{1}"'), "expected a value"),
        (STATE, replaced('to="Town 1"', "to=1 + 1"), "expected a value"),
        (STATE, replaced('key="trip-1"', '"x", key="trip-1"'), "keyword arguments only"),
        (STATE, replaced('to="Town 1"', '**{"to": 1}'), "keyword arguments only"),
        (STATE, replaced('to="Town 1", ', ""), "the fields of Trip, including `to`"),
        (STATE, replaced('to="Town 1"', 'tow="Town 1"'), "the fields of Trip, without `tow`"),
        (STATE, replaced('key="trip-1", ', ""), "a record with a key"),
        (STATE, replaced('key="trip-1"', 'key="trip-2"'), "the key 'trip-2' occurs twice in trips"),
        (STATE, replaced("(1,)", "('x',)"), "an entry number"),
        (STATE, replaced("2025, 3, 1", "2025, 13, 1"), "a valid date"),
        (STATE, replaced("2025, 3, 1", "2025, 3, 1, 4, 5"), "a valid date"),
        (STATE, replaced("Trip(key", "Trap(key"), "a record in travel"),
        (STATE, replaced("*trips_0002", "*trips_0003"), "which has the wrong number"),
        (SHARD, replaced("trips: list", "other: list"), "must contain trips and nothing else"),
        (SHARD, lambda _: "", "must contain trips and nothing else"),
        (SHARD, replaced('key="trip-', 'key="trip-1"), Trip(key="trip-'), "the fields of Trip"),
        ("domains/travel/__init__.py", lambda _: "import os", "must be empty"),
        ("constraints/expiring.py", lambda _: "def", "invalid Python"),
    ],
)
def test_a_damaged_file_is_named(path: str, damage: Damage, message: str) -> None:
    project = rich_project() if path.startswith("constraints") else trips_project(500)
    files = render(project)

    with pytest.raises(ProjectError) as error:
        Project.from_files({**files, path: damage(files[path])})

    assert error.value.path == path
    assert message in str(error.value)


def test_a_missing_shard_is_named() -> None:
    files = render(trips_project(500))
    del files[SHARD]

    with pytest.raises(ProjectError, match=r"trips_0002\.py: is missing"):
        Project.from_files(files)


def test_the_same_key_in_two_shards_is_an_error() -> None:
    files = render(trips_project(500))
    line = next(line for line in files[STATE].splitlines() if '"trip-1"' in line)
    files[SHARD] = files[SHARD].replace("= [\n", f"= [\n{line}\n")

    with pytest.raises(ProjectError, match="the same key in two"):
        Project.from_files(files)


@pytest.mark.parametrize(
    "path",
    [
        *("README.md", "domains/travel/other.py", "constraints/sub/x.py", "tests/helper.py"),
        *("domains/travel/trips_0009.py", "setup.cfg", "domains/travel/schema.pyi"),
        "x/__init__.py",
    ],
)
def test_a_file_that_belongs_to_no_project_is_an_error(path: str) -> None:
    files = {**render(trips_project(1)), path: "x = 1"}

    with pytest.raises(ProjectError) as error:
        Project.from_files(files)

    assert error.value.path == path


def test_a_hand_written_project_is_read_and_becomes_canonical() -> None:
    project = Project.from_files(
        {
            "domains/travel/schema.py": (
                '"""Travel."""\n'
                "import datetime, enum\n"
                "from dataclasses import dataclass\n"
                "from typing import Optional\n"
                "from uac import Record\n"
                "@dataclass(kw_only=True)\n"
                "class Trip(Record):\n"
                "    to: str\n"
                "    on: Optional['datetime.date']\n"
            ),
            "domains/travel/state.py": (
                "from domains.travel.schema import Trip\n"
                "trips: list[Trip] = [Trip(on=None, to='Oslo', sources=(), key='t')]  # one\n"
            ),
        }
    )

    assert render(project)[STATE] == (
        "from domains.travel.schema import Trip\n"
        "\n"
        "trips: list[Trip] = [\n"
        '    Trip(key="t", to="Oslo"),\n'
        "]\n"
    )

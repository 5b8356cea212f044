"""Conflicts: what the edit writes, what it needs, and other uses of its names."""

import ast
from collections.abc import Mapping
from typing import Any

import pytest

from memory.project import EditError, Project, RecordId, render
from workers.policy.checks import check_policy

from .support import Store, add, define, define_enum, edit, project_with, write

FIELDS = {"about": "str", "records": "list[str]"}
FIRST, SECOND, THIRD = (
    {"domain": "home", "collection": "moves", "key": key} for key in ("by-ann", "by.bob", "by-eve")
)
CONFLICT: dict[str, Any] = {
    "op": "conflict",
    "about": "moving day",
    "records": [FIRST, SECOND],
    "sources": [9],
}


@pytest.fixture
def project() -> Project:
    """A project of three people who say when somebody moves."""
    return project_with(
        define("home", "Move", {"on": "datetime.date"}),
        {**add("home", "Move", "by-ann", on="2026-05-02"), "sources": [3]},
        {**add("home", "Move", "by.bob", on="2026-05-03"), "sources": [4]},
        {**add("home", "Move", "by-eve", on="2026-05-04"), "sources": [5]},
    )


def mark(project: Project, **arguments: Any) -> None:
    edit(project, **{**CONFLICT, **arguments})


def test_the_first_conflict_brings_its_class_and_its_constraint(project: Project) -> None:
    before = render(project)

    mark(project)

    files = render(project)
    assert files.keys() - before.keys() == {
        "domains/conflicts/__init__.py",
        "domains/conflicts/schema.py",
        "domains/conflicts/state.py",
        "constraints/__init__.py",
        "constraints/conflicts.py",
        "tests/__init__.py",
        "tests/test_conflicts.py",
    }
    assert files["domains/home/state.py"] == before["domains/home/state.py"]
    # It also relies on the entries that made the records.
    assert (
        'Conflict(key="conflict-9", about="moving day",'
        ' records=["home.moves.by-ann", "home.moves.by.bob"], sources=(3, 4, 9))'
    ) in files["domains/conflicts/state.py"]
    assert Project.from_files(files) == project


@pytest.mark.parametrize("path", ["constraints/conflicts.py", "tests/test_conflicts.py"])
def test_rendered_conflict_passes_the_policy(project: Project, path: str) -> None:
    mark(project)

    source = render(project)[path]

    ast.parse(source)
    assert check_policy(path, source) == []


def test_the_next_conflict_adds_a_record_alone(project: Project) -> None:
    mark(project)
    store = Store(project)
    again = store.open()

    mark(again, records=[FIRST, THIRD, SECOND], about=" moving\n day ")

    change = again.change()
    assert list(change.files) == ["domains/conflicts/state.py", "manifest.py"]
    assert change.added == [RecordId("conflicts", "conflicts", "conflict-9-2")]
    assert change.derived[change.added[0]].keys() == {"records"}
    added = again.record(change.added[0])
    assert added is not None
    assert added.fields["about"] == "moving day"


def test_rewritten_constraint_stays_and_deleted_one_returns(
    project: Project,
) -> None:
    mark(project)
    rewritten = render(project)["constraints/conflicts.py"].replace("Conflicting", "Contradictory")
    tests = render(project)["tests/test_conflicts.py"]
    edit(project, **write("conflicts", rewritten, tests))

    mark(project)
    assert render(project)["constraints/conflicts.py"] == rewritten

    edit(project, "delete_constraint", name="conflicts")
    mark(project)
    assert "Conflicting" in render(project)["constraints/conflicts.py"]


def test_a_class_of_that_form_is_used_whoever_defined_it(project: Project) -> None:
    edit(project, **define("conflicts", "Conflict", {**FIELDS, "until": "datetime.date | None"}))

    mark(project)

    assert project.outline.domains["conflicts"].collections["conflicts"].count == 1


TAKEN: dict[str, list[Mapping[str, Any]]] = {
    "a class with another field": [define("conflicts", "Conflict", {**FIELDS, "who": "str"})],
    "a class without these fields": [define("conflicts", "Conflict", {"about": "str"})],
    "a class with other types": [define("conflicts", "Conflict", {**FIELDS, "records": "str"})],
    "a class of objects": [define("conflicts", "Conflict", FIELDS, kind="object")],
    "an enum": [define_enum("conflicts", "Conflict", WAR="war")],
    "a collection of another class": [define("conflicts", "Meeting", collection="conflicts")],
    "a singleton": [
        define("conflicts", "Meeting"),
        {**add("conflicts", "Meeting", "m"), "collection": "conflicts", "singleton": True},
    ],
    "a constraint": [write("conflicts")],
}


@pytest.mark.parametrize("edits", TAKEN.values(), ids=TAKEN.keys())
def test_taken_names_refuse_a_conflict(project: Project, edits: list[Mapping[str, Any]]) -> None:
    for one in edits:
        edit(project, **one)
    before = render(project)

    with pytest.raises(EditError, match="write a note instead") as error:
        mark(project)

    assert error.value.code == "name_taken"
    assert render(project) == before


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "about nothing": ({"about": " "}, "malformed", "conflict.about"),
    "about very much": ({"about": "x" * 201}, "malformed", "200 characters"),
    "one record": ({"records": [FIRST]}, "malformed", "conflict.records"),
    "one record twice": ({"records": [FIRST, FIRST]}, "malformed", "two records"),
    "no sources": ({"sources": []}, "no_sources", "cite"),
    "a record that is not there": (
        {"records": [FIRST, {**FIRST, "key": "x"}]},
        "unknown_key",
        "home.moves has no record 'x'",
    ),
    "a collection that is not there": (
        {"records": [FIRST, {**FIRST, "collection": "x"}]},
        "unknown_collection",
        "home has no collection 'x'",
    ),
    "a domain that is not there": (
        {"records": [FIRST, {**FIRST, "domain": "x"}]},
        "unknown_domain",
        "no domain 'x'",
    ),
}


@pytest.mark.parametrize(("arguments", "code", "word"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_conflict_is_refused(
    project: Project, arguments: dict[str, Any], code: str, word: str
) -> None:
    before = render(project)

    with pytest.raises(EditError) as error:
        mark(project, **arguments)

    assert (error.value.code, word in error.value.message) == (code, True)
    assert render(project) == before


def test_a_retired_record_is_in_no_conflict(project: Project) -> None:
    edit(project, "retire", **SECOND, sources=[8])

    with pytest.raises(EditError) as error:
        mark(project)

    assert error.value.code == "key_retired"

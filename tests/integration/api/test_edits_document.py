"""docs/edits.md: its example works, and its table names every edit with its fields."""

import dataclasses
import json
import re
from pathlib import Path
from typing import get_args

from memory.project import Edit, Project, apply, edit_from_json

DOCUMENT = (Path(__file__).parents[3] / "docs" / "edits.md").read_text()


def test_the_example_can_be_applied() -> None:
    example, _ = re.findall(r"```json\n(.*?)```", DOCUMENT, re.DOTALL)
    project = Project.empty()

    for edit in json.loads(example)["edits"]:
        apply(project, edit_from_json(edit))

    assert project.change().outline.domains["health"].collections["allergies"].count == 1


def test_the_example_of_a_conflict_can_be_applied() -> None:
    _, example = re.findall(r"```json\n(.*?)```", DOCUMENT, re.DOTALL)
    project = Project.empty()
    define = {"op": "define_class", "domain": "home", "name": "Move"}
    add = {"op": "add", "domain": "home", "class_name": "Move", "fields": {}}

    for edit in (define, {**add, "sources": [3]}, {**add, "sources": [9]}, json.loads(example)):
        apply(project, edit_from_json(edit))

    outline = project.change().outline
    assert outline.domains["conflicts"].collections["conflicts"].count == 1
    assert list(outline.constraints) == ["conflicts"]


def test_the_table_names_every_edit_and_every_field() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", DOCUMENT, re.MULTILINE))

    assert set(rows) == {edit.op for edit in get_args(Edit)}
    for edit in get_args(Edit):
        documented = set(re.findall(r"`(\w+)`", rows[edit.op])) - {"record", "object", "enum"}
        fields = {field.name for field in dataclasses.fields(edit)}
        assert documented | {"sources"} == fields | {"sources"}, edit.op

"""The examples of edits in a tool's description."""

import json
import re
from typing import Any

from memory.project import Project, apply, proposal_from_json
from workers.authoring.short_forms import expand_edit, split_edits
from workers.authoring.tools import EDIT

OPTIONAL = re.compile(r', "(?!key)\w+"\?(: ("\w+" \| "\w+"|\{[^}]*\}))?')
# Operations on a class; `define_class` defines it.
ON_CLASS = ("add_field", "widen_field", "rename_field", "add", "add")


def examples() -> list[dict[str, Any]]:
    """Return the examples without their optional attributes."""
    text = OPTIONAL.sub("", EDIT["description"].partition("is optional:")[2]).replace("?", "")
    decoder = json.JSONDecoder()
    return [decoder.raw_decode(one[one.index("{") :])[0] for one in text.split(" · ")]


def test_the_examples_on_a_class_apply_to_the_one_defined() -> None:
    define, *others = examples()
    applied = [one for one in others if next(iter(one)) in ON_CLASS]

    for example in applied:
        project = Project.empty()
        for edit in map(expand_edit, split_edits([define, example])):
            cited = {"sources": [edit.pop("from", 1)]}
            apply(project, proposal_from_json({**edit, **cited}))

    assert tuple(next(iter(one)) for one in applied) == ON_CLASS
    # A rename has to cite an entry that explains it (`unexplained_rename`).
    assert all(one["from"] for one in applied if "rename_field" in one)

"""An update adds to lists and texts, and takes something out, without sending all of it again."""

import pytest

from memory.project import EditError, Project, apply, edit_from_json, edit_to_json
from tests.edits import add, define, update


def family(**update_parts: object) -> dict[str, object]:
    """Return the fields of a family after an update with these parts."""
    project = Project.empty()
    types = {"children": "list[str]", "about": "str | None", "size": "int"}
    made = add("home.Family", 1, key="f", children=["Ada"], about="They sail.", size=3)
    change = {**update("home.families.f", 2), **update_parts}
    for edit in (define("home.Family", **types), made, change):
        read = edit_from_json(edit)
        assert edit_from_json(edit_to_json(read)) == read
        apply(project, read)
    (record,) = [record for _, record in project.records("home", "families")]
    assert record.sources == (1, 2)
    return dict(record.fields)


def test_only_the_change_is_sent() -> None:
    changed = family(append={"children": ["Ben", "Ada"], "about": "They ski."})
    assert (changed["children"], changed["about"]) == (["Ada", "Ben"], "They sail. They ski.")
    changed = family(append={"children": "Ben"}, remove={"children": "Ada", "about": "sail."})
    assert (changed["children"], changed["about"]) == (["Ben"], "They")


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ({"remove": {"children": ["Cid"]}}, "not_contained"),
        ({"remove": {"about": "swim"}}, "not_contained"),
        ({"append": {"size": 4}}, "no_parts"),
        ({"append": {"pets": ["Rex"]}}, "unknown_field"),
    ],
)
def test_invalid_partial_change_is_refused(parts: dict[str, object], code: str) -> None:
    with pytest.raises(EditError) as refused:
        family(**parts)
    assert refused.value.code == code

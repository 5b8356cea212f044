"""Files of another project that are kept unchanged: where they are, and their alerts."""

import pytest

from memory.project import Outline, Project, manifest_text, render
from memory.project.legacy import FROZEN, LIVE, is_old_constraint, surroundings

CHECK = "def check(project_path):\n    return []\n"


@pytest.mark.parametrize(
    ("source", "is_one"),
    [
        (CHECK, True),
        ("def check_constraints(current_time):\n    return []\n", True),
        ("from uac import Alert\n\ndef check(today):\n    return []\n", False),
        ("import uac.testing\n\ndef check(today):\n    return []\n", False),
        ("class A:\n    def check(self): ...\n", False),
        ("x = 1\n", False),
        ("def check(", False),
    ],
)
def test_old_constraints_are_told_by_their_function(source: str, is_one: bool) -> None:
    assert is_old_constraint(source) is is_one


def test_kept_files_are_part_of_the_tree_and_of_the_manifest() -> None:
    # Given a project that keeps a constraint and a file that it needs,
    project = Project.empty()
    kept = {f"{LIVE}c/a.py": CHECK, f"{LIVE}c/__init__.py": "# not empty\n"}
    project.keep_legacy(kept)
    # then its files are as they came, and the constraint is named.
    files = render(project)
    assert {path: files[path] for path in kept} == kept
    assert project.outline.legacy_constraints == (f"{LIVE}c/a.py",)
    assert f'LEGACY = ["{LIVE}c/a.py"]' in files["manifest.py"]
    assert f"{LIVE}c/a.py" in manifest_text(project.outline)
    # When they are read back, nothing is missing.
    assert Project.from_files(files) == project
    assert Outline.from_json(project.outline.to_json()) == project.outline


def test_live_state_takes_the_place_of_what_came_frozen_state_does_not() -> None:
    files = {
        f"{LIVE}c.py": CHECK,
        f"{LIVE}domains/h/state.py": "old",
        f"{LIVE}manifest.py": "theirs",
        f"{FROZEN}c.py": CHECK,
        f"{FROZEN}domains/h/state.py": "old",
        "domains/h/state.py": "new",
        "manifest.py": "ours",
        "constraints/d.py": "ours",
    }
    assert surroundings(f"{LIVE}c.py", files) == {
        "c.py": CHECK,
        "domains/h/state.py": "new",
        "manifest.py": "theirs",
    }
    assert surroundings(f"{FROZEN}c.py", files) == {"c.py": CHECK, "domains/h/state.py": "old"}

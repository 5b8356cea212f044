"""The architecture pages name files and functions that exist."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "architecture"
WALK = FOLDER / "life-of-an-entry.md"
PAGES = [ROOT / "ARCHITECTURE.md", *sorted(FOLDER.glob("*.md"))]
TOP = (
    "benchmarks|convert_image|deploy|docs|memory|releasing|sandbox_image|tests|typecheck_image"
    "|uac_site|workers"
)
PATHS = re.compile(rf"`((?:{TOP})/[\w./-]*)`")
LINKS = re.compile(r"\]\((?!http|#)([^)#]+)(?:#[^)]*)?\)")
STOP = re.compile(r"^\| \d+ \| `([^`]+)` \| `([^`]+)` \|", re.MULTILINE)
MENTION = re.compile(r"`([\w.]+)` in\s+`([^`]+\.py)`")


@functools.cache
def functions_of(path: str) -> frozenset[str]:
    """Return the names of a module's functions; of a method or an inner one after its owner's."""
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(_functions(tree, ""))


def _functions(node: ast.AST, owner: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{owner}{child.name}"
            if not isinstance(child, ast.ClassDef):
                yield name
            yield from _functions(child, f"{name}.")
        else:
            yield from _functions(child, owner)


def test_every_function_of_the_walk_exists() -> None:
    text = WALK.read_text()
    mentions = [(path, function) for function, path in MENTION.findall(text)]
    stops = [*STOP.findall(text), *mentions]

    assert len(mentions) < len(stops)
    assert mentions
    missing = [stop for stop in stops if stop[1] not in functions_of(stop[0])]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_and_link_of_the_pages_exists(page: Path) -> None:
    text = page.read_text()

    assert [path for path in PATHS.findall(text) if not (ROOT / path).exists()] == []
    assert [link for link in LINKS.findall(text) if not (page.parent / link).exists()] == []


def test_every_page_is_linked_from_the_overview() -> None:
    linked = LINKS.findall((ROOT / "ARCHITECTURE.md").read_text())

    assert {f"docs/architecture/{page.name}" for page in FOLDER.glob("*.md")} <= set(linked)


def test_every_test_that_the_threat_model_names_exists() -> None:
    named = re.findall(r"\btest_\w+", (ROOT / "THREAT_MODEL.md").read_text())
    files = [*(ROOT / "tests").rglob("test_*.py")]
    defined = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}

    assert named
    assert set(named) - defined - {file.stem for file in files} == set()

"""Rendered code is a program: it runs, means what the project means, and type-checks."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

import sandbox_image
from memory.project import Project, render
from memory.project.render import render_state_stub
from memory.project.typed import encode as to_typed_json
from sandbox_image import uac
from sandbox_image.values import encode
from tests.properties import examples

from .examples import rich_project
from .strategies import projects
from .support import trips_project

LIBRARY = Path(sandbox_image.__file__).parent


class Files(MetaPathFinder, InspectLoader):
    """Imports a project's modules straight from its rendered files."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files

    def path(self, module: str) -> str:
        path = module.replace(".", "/")
        return f"{path}.py" if f"{path}.py" in self.files else f"{path}/__init__.py"

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        known = self.path(name) in self.files
        return ModuleSpec(name, self, is_package=self.is_package(name)) if known else None

    def is_package(self, name: str) -> bool:
        return self.path(name).endswith("__init__.py")

    def get_source(self, name: str) -> str:
        return self.files[self.path(name)]


@contextmanager
def importable(project: Project) -> Iterator[None]:
    """Import `domains` and `constraints` from the project and `uac` from the sandbox."""
    before = dict(sys.modules)
    finder = Files(render(project))
    sys.modules["uac"] = uac
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in sys.modules.keys() - before.keys():
            del sys.modules[name]
        sys.modules.pop("uac", None)


def dumped(value: object) -> Any:
    return encode(value, max_bytes=10_000_000, max_depth=40)


def said_by_project(project: Project, domain: str, name: str) -> list[Any]:
    records = project.records(domain, name)
    return [to_typed_json(record, project.outline.domains[domain]) for _, record in records]


def assert_runs_as_it_says(project: Project) -> None:
    with importable(project):
        for domain in project.outline.domains.values():
            import_module(f"domains.{domain.name}.schema")
            state = import_module(f"domains.{domain.name}.state")
            for name in domain.collections:
                records = getattr(state, name)
                assert [dumped(r) for r in records] == said_by_project(project, domain.name, name)
            for name in domain.singletons:
                record = getattr(state, name)
                assert [dumped(record)] == said_by_project(project, domain.name, name)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(projects())
def test_any_project_runs_and_holds_what_it_says(project: Project) -> None:
    # A sandbox refuses to return null characters, which JSON in PostgreSQL cannot hold either.
    assume(not any("\\u0000" in text for text in render(project).values()))

    assert_runs_as_it_says(project)


def test_names_in_each_others_way_run() -> None:
    assert_runs_as_it_says(rich_project())


def test_shards_run_as_one_list() -> None:
    project = trips_project(1_000)
    assert "domains/travel/trips_0003.py" in render(project)

    assert_runs_as_it_says(project)


@pytest.mark.parametrize("first", ["identity", "travel"])
def test_a_circle_of_references_imports_from_either_side(first: str) -> None:
    with importable(rich_project()):
        for module in ("schema", "state"):
            for domain in (first, "identity", "travel"):
                import_module(f"domains.{domain}.{module}")


def mypy(folder: Path, files: Mapping[str, str]) -> tuple[int, str]:
    """Type-check files strictly."""
    for path, text in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=cache", "."],
        cwd=folder,
        env={"MYPYPATH": str(LIBRARY)},
        capture_output=True,
        text=True,
        check=False,
    )
    return found.returncode, found.stdout + found.stderr


def test_rendered_code_satisfies_mypy_strict_and_mypy_sees_it(tmp_path: Path) -> None:
    files = render(rich_project())
    code, output = mypy(tmp_path, files)

    assert code == 0, output

    # Conversely: with one wrong value it fails, so nothing is `Any` by accident.
    wrong = 'Oslo", after="not a reference'
    code, output = mypy(tmp_path, {path: files[path].replace("Oslo", wrong) for path in files})

    assert code == 1
    assert 'domains/travel/state.py:11: error: Argument "after" to "Trip"' in output


def test_stubs_say_of_every_name_what_the_state_says(tmp_path: Path) -> None:
    project = rich_project()
    domains = project.outline.domains.values()
    stubs = {domain.state_path: render_state_stub(domain) for domain in domains}
    names = [(domain.name, name) for domain in domains for name in domain.holders]
    reveals = [
        f"import domains.{domain}.state as {domain}_{number}\n"
        f"reveal_type({domain}_{number}.{name})\n"
        for number, (domain, name) in enumerate(names)
    ]
    probe = {"probe.py": "".join(reveals)}

    code, told = mypy(tmp_path / "state", {**render(project), **probe})
    stub_code, stub_told = mypy(tmp_path / "stubs", {**render(project), **stubs, **probe})

    assert (code, told.count("Revealed type")) == (0, len(names)), told
    assert (stub_code, stub_told) == (code, told)

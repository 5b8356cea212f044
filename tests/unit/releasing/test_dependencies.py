"""What the modules of a package import is what installing the package brings."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
# The packages of a release, each by its folder with that of its modules.
PACKAGES = {".": "", "clients/python": "src/", "integrations/agents": "src/"}
# Files and folders that need extras; nothing imports them where these are missing.
EXTRAS: Mapping[str, Mapping[str, set[str]]] = {
    ".": {
        "memory/log/sensitive_text.py": {"personal-data"},
        "uac_site/sign_in/saml.py": {"saml"},
        "workers/llm/adapter.py": {"anthropic", "google"},
    },
    "clients/python": {"src/userascode/mcp_proxy.py": {"mcp"}},
    "integrations/agents": {
        f"src/userascode_agents/{module}.py": {extra}
        for module, extra in {
            "claude": "claude",
            "crewai": "crewai",
            "google_adk": "google-adk",
            "langchain": "langchain",
            "langchain_tools": "langchain",
            "langgraph": "langgraph",
            "langgraph_store": "langgraph",
            "llama_index": "llama-index",
            "openai_agents": "openai-agents",
            "pydantic_ai": "pydantic-ai",
        }.items()
    },
}
# Imported inside a function that says what to do without them, or uses something else.
OPTIONAL = {"keyring", "pandas"}
# What brings modules whose package has another name; frameworks of agents are not installed here.
FRAMEWORKS = {
    "agents": {"openai-agents"},
    "google": {"google-adk"},
    "langchain_core": {"langchain", "langgraph"},
    "llama_index": {"llama-index-core"},
}
# Python in which the server's modules are texts for sandboxes.
NOT_OURS = re.compile(
    r"^(uac_site/constraint_library|deploy/demo/(project|recordings)|src/userascode_agents/examples)/"
)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def project_of(folder: str) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())[
        "project"
    ]
    return project


def requirements_of(name: str) -> Iterable[str]:
    """Return what a distribution requires; nothing of one that is not installed."""
    if name == "userascode":
        dependencies: list[str] = project_of("clients/python")["dependencies"]
        return dependencies
    try:
        return requires(name) or ()
    except PackageNotFoundError:
        return ()


def installed_with(requirements: Iterable[str]) -> set[str]:
    """Return the distributions that pip installs for these requirements."""
    found = set[tuple[str, frozenset[str]]]()
    left = [(text, frozenset[str]()) for text in requirements]
    while left:
        text, of_extras = left.pop()
        wanted = Requirement(text)
        if wanted.marker and not any(
            wanted.marker.evaluate({"extra": extra}) for extra in of_extras or {""}
        ):
            continue
        one = (normal(wanted.name), frozenset(wanted.extras))
        if one not in found:
            found.add(one)
            left += [(text, one[1]) for text in requirements_of(one[0])]
    return {name for name, _ in found}


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Yield the outermost packages that a module imports, but for its type checker alone."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Import():
                yield from (alias.name.partition(".")[0] for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]
            case _:
                yield from imports_of(node)


def modules_of(folder: str) -> dict[str, ast.Module]:
    """Return the modules of a package by their paths below its folder."""
    build = tomllib.loads((ROOT / folder / "pyproject.toml").read_text()).get("tool", {})
    default = [project_of(folder)["name"].replace("-", "_")]
    roots = build.get("uv", {}).get("build-backend", {}).get("module-name", default)
    paths = [
        path.relative_to(ROOT / folder)
        for root in roots
        for path in (ROOT / folder / PACKAGES[folder] / root).rglob("*.py")
    ]
    return {
        str(path): ast.parse((ROOT / folder / path).read_text())
        for path in paths
        if not NOT_OURS.match(str(path))
    }


@pytest.mark.parametrize("folder", PACKAGES)
def test_a_package_requires_what_its_modules_import(folder: str) -> None:
    project, modules = project_of(folder), modules_of(folder)
    installed = packages_distributions()
    ours = {path.removeprefix(PACKAGES[folder]).partition("/")[0] for path in modules}
    available = {"": installed_with(project["dependencies"])}
    missing = []
    for path, tree in modules.items():
        place = next((place for place in EXTRAS[folder] if path.startswith(place)), "")
        if place not in available:
            available[place] = available[""].union(
                *(
                    installed_with(project["optional-dependencies"][extra])
                    for extra in EXTRAS[folder][place]
                )
            )
        for name in set(imports_of(tree)) - sys.stdlib_module_names - ours - OPTIONAL:
            providers = {*installed.get(name, [name]), *FRAMEWORKS.get(name, ())}
            if available[place].isdisjoint(map(normal, providers)):
                missing.append(f"{path}: {name}")

    assert modules
    assert not missing
    assert set(EXTRAS[folder]) < set(available), "a place that needs no extra, or is gone"

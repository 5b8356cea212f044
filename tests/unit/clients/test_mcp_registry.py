"""`server.json`, by which the MCP Registry and its clients find and start the server."""

import json
import re
import tomllib
from pathlib import Path

from click.testing import CliRunner
from userascode.cli import main

FOLDER = Path(__file__).parents[3] / "clients" / "python"
SERVER = json.loads((FOLDER / "server.json").read_text())
[PACKAGE] = SERVER["packages"]


def test_it_has_what_the_registry_requires() -> None:
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", SERVER["name"])
    assert 0 < len(SERVER["description"]) <= 100
    assert f"mcp-name: {SERVER['name']} " in (FOLDER / "README.md").read_text()
    assert PACKAGE["transport"] == {"type": "stdio"}
    for remote in SERVER["remotes"]:
        assert remote["type"] == "streamable-http"
        assert set(re.findall(r"{(\w+)}", remote["url"])) == set(remote["variables"])


def test_it_names_the_package_of_this_version_with_its_extra() -> None:
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]

    assert PACKAGE["identifier"] == project["name"]
    assert {SERVER["version"], PACKAGE["version"]} == {project["version"]}
    [extra] = PACKAGE["runtimeArguments"]
    assert extra["value"] == f"{project['name']}[mcp]=={project['version']}"
    assert "mcp" in project["optional-dependencies"]


def test_the_command_line_takes_its_arguments_and_variables() -> None:
    command, user = PACKAGE["packageArguments"]
    shown = CliRunner().invoke(main, [command["value"], "--help"], env={"COLUMNS": "200"})

    assert shown.exit_code == 0
    assert user["name"] in shown.output
    program = "".join(path.read_text() for path in (FOLDER / "src" / "userascode").glob("*.py"))
    assert all(f'"{one["name"]}"' in program for one in PACKAGE["environmentVariables"])

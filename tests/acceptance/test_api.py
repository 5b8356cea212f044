"""The whole API over HTTP: it does what its document says, and shows nobody another's data.

schemathesis sends valid and invalid requests of the document, with all its checks. A failing
request can be repeated by the `curl` in its report; for more examples run `UAC_EXAMPLES=200 pytest
tests/acceptance/test_api.py`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.system import System
from memory.kernel.http.openapi import operations
from tests import api_tour
from tests.api_tour import READS, Tour, key_of
from tests.integration.api.test_openapi import generated
from tests.properties import examples
from tests.system import running_system, select_rows
from tests.waiting import polled

FOLDER = Path(__file__).parent
SEED = "20261122"
EXAMPLES = str(examples(1))
# Operations that have nothing left to repeat, or no model to ask.
REFUSED = {
    "POST /v1/users/{user_id}/ask",
    "POST /v1/runs/{run_id}/cancel",
    "POST /v1/runs/{run_id}/retry",
    "POST /v1/backtests/{backtest_id}/cancel",
}


@pytest.fixture(scope="module")
def server() -> Iterator[System]:
    """A server of its own: the requests keep it busy for longer than the test takes."""
    with running_system(environment=api_tour.ENVIRONMENT) as system:
        yield system


@pytest.fixture(scope="module")
def tour(server: System) -> Tour:
    """A workspace with an instance of everything, and no work in progress."""
    tour = api_tour.take(server.base_url, key_of(server, "first"))
    (endpoint,) = tour.ask("GET", "webhooks/")["results"]
    tour.ask("PATCH", "webhooks/{endpoint_id}/", {"enabled": False}, endpoint_id=endpoint["id"])
    path = "users/{user_id}/forecast/"
    whose: dict[str, Any] = dict(tour.names[f"/v1/{path}".removesuffix("/")])
    polled(lambda: tour.ask("GET", path, **whose), lambda forecast: forecast["current"])
    polled(lambda: going_on(server), lambda rows: rows == 0, seconds=240)
    return tour


def going_on(server: System) -> int:
    """Return how many runs, backtests, checks, erasures, redactions and merges are in progress."""
    [(number,)] = select_rows(
        server,
        "SELECT (SELECT count(*) FROM memory_run WHERE status <> 'done')"
        " + (SELECT count(*) FROM memory_backtest WHERE state IN ('waiting', 'running'))"
        " + (SELECT count(*) FROM memory_workspaceconstraintversion WHERE state = 'checking')"
        " + (SELECT count(*) FROM memory_usererasure WHERE due_at IS NOT NULL)"
        " + (SELECT count(*) FROM memory_redaction WHERE due_at IS NOT NULL)"
        " + (SELECT count(*) FROM memory_merge WHERE due_at IS NOT NULL)",
    )
    return int(number)


def attacked(
    tour: Tour, key: str, folder: Path, *options: str, environment: Mapping[str, str] | None = None
) -> None:
    """Send schemathesis's requests for the document; fail with its report."""
    names = folder / "names.json"
    names.write_text(json.dumps(tour.names))
    command = [
        *(sys.executable, "-m", "schemathesis.cli"),
        *("--config-file", str(FOLDER / "schemathesis.toml")),
        *("run", f"{tour.base_url}/v1/openapi.json"),
        *("--header", f"Authorization: Bearer {key}"),
        *("--seed", SEED, "--generation-deterministic", "--no-color", "--no-shrink"),
        *("--suppress-health-check", "all", "--continue-on-failure"),
        *options,
    ]
    finished = subprocess.run(
        command,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(FOLDER.parents[1]),
            "SCHEMATHESIS_HOOKS": "tests.acceptance.api_formats",
            "UAC_TOUR": str(names),
            **(environment or {}),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, (finished.stdout + finished.stderr)[-20_000:]


def test_every_operation_is_asked_and_every_write_is_done_once(tour: Tour) -> None:
    document = generated()
    every = {f"{method.upper()} {path}" for path, method, _ in operations(document)}
    writes = {one for one in every if not one.startswith("GET ") and not one.endswith(READS)}

    assert tour.examples.keys() == every
    assert writes - tour.replayed <= REFUSED


def seen(tour: Tour) -> dict[str, Any]:
    """Return everything that the first workspace reads about itself."""
    found = {}
    for name, one in tour.examples.items():
        if name.startswith("GET ") and "answer" in one:
            query = {"since": "v1"} if name.endswith("/diff") else None
            names: dict[str, Any] = dict(tour.names[name.removeprefix("GET ")])
            found[name] = tour.ask("GET", name.removeprefix("GET /v1/"), query=query, **names)
    return found


def test_other_workspace_reads_and_changes_nothing(
    server: System, tour: Tour, tmp_path: Path
) -> None:
    before = seen(tour)

    attacked(
        tour,
        key_of(server, "second"),
        tmp_path,
        *("--phases", "examples,fuzzing", "--mode", "positive", "--max-examples", EXAMPLES),
        *("--include-path-regex", r"\{", "--exclude-path-regex", "constraint-library"),
        environment={"UAC_STRANGER": "1"},
    )

    assert seen(tour) == before


@pytest.mark.timeout(1200)
def test_the_api_is_what_its_document_says(tour: Tour, tmp_path: Path) -> None:
    phases = "examples,coverage,fuzzing"
    attacked(tour, tour.key, tmp_path, "--phases", phases, "--max-examples", EXAMPLES)

"""The TypeScript client against the OpenAPI document, compiled by `tsc --strict`."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client_operations import METHODS
from tests.typescript_client import (
    PACKAGE,
    Driver,
    compile_client,
    require_packages,
    run_tests,
    running_driver,
)
from tests.unit.clients.test_python_client import (
    EXAMPLES,
    READ_BY_POST,
    URL,
    comparable,
    recorded_answer,
)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("typescript")
    compile_client(folder)
    return folder


@pytest.fixture(scope="module")
def driver(compiled: Path) -> Iterator[Driver]:
    with running_driver(compiled, URL, "key") as driver:
        yield driver


def test_its_types_are_right_and_its_own_tests_pass(compiled: Path) -> None:
    run_tests(compiled / "test" / "client.test.js")


def test_every_operation_sends_and_reads_what_was_recorded(driver: Driver) -> None:
    for operation in METHODS:
        example = EXAMPLES[operation]
        names = example.get("parameters", {})
        answer = recorded_answer(example)
        recorded: dict[str, Any] = {
            "status": answer.status_code,
            "headers": {"Content-Type": answer.headers.get("Content-Type", "application/zip")},
        }
        if "answer" in example:
            recorded["answer"] = answer.json()

        given = example.get("body") or example.get("file")
        got = driver.call(operation, names, given, recorded)

        [request] = got["requests"]
        method, _, template = operation.partition(" ")
        in_path = {name: value for name, value in names.items() if f"{{{name}}}" in template}
        in_path.setdefault("user_id", "ada")
        assert request["method"] == method
        assert request["path"].rstrip("/") == template.format(**in_path)
        assert ("idempotency-key" in request["headers"]) is (
            method != "GET" and not template.endswith(READ_BY_POST)
        )
        body = given or None
        is_entry = isinstance(body, dict) and "kind" in body
        expected_body = {"entries": [body]} if is_entry else body
        assert (request["body"] or None) == expected_body, operation
        expected = example.get("answer")
        read = got.get("problem") or got["answer"]
        assert ("problem" in got) is (example["status"] >= 400)
        if isinstance(read, dict) and isinstance(expected, dict):
            assert comparable(read).items() <= comparable(answer.json()).items()
        elif isinstance(read, list):
            assert read == (expected.get("records") or expected.get("results", []))


def test_generated_files_are_up_to_date(tmp_path: Path) -> None:
    require_packages()
    subprocess.run([sys.executable, PACKAGE / "generate.py", tmp_path], check=True)

    for name in ("api.ts", "problems.ts"):
        committed = (PACKAGE / "src" / name).read_text()
        assert (tmp_path / name).read_text() == committed, f"{name}: make generate"

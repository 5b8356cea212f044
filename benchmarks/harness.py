"""Code that the benchmarks share: recorded data, options, the report, and an API client."""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import django
from cryptography.fernet import Fernet

from deploy.embedded.http import ApiClient
from deploy.embedded.services import Services, running_services
from deploy.embedded.system import System, running_system
from tests.waiting import scaled, slowness

Row = dict[str, Any]
# The rows of the table, the figures, and the problems found.
Measured = tuple[list[Row], dict[str, Any], list[str]]

NOON = datetime.time(12, tzinfo=datetime.UTC)
# The machine's load average over the five minutes before the measurements, from other processes.
_LOAD = round(os.getloadavg()[1], 1)

slowness()  # measures the machine's speed before anything else runs


def data_file(name: str) -> Path | None:
    """Return the path of recorded data, or None if UAC_DATA_DIR does not contain it."""
    folder = os.environ.get("UAC_DATA_DIR")
    path = Path(folder) / name if folder else None
    return path if path is not None and path.exists() else None


def require_data(*names: str) -> list[Path]:
    """Return the paths of recorded data files; exit with status 2 if one is missing."""
    paths = [data_file(name) for name in names]
    for name, path in zip(names, paths, strict=True):
        if path is None:
            end_without_data(f"{name} is missing")
    return [path for path in paths if path is not None]


def end_without_data(why: str) -> NoReturn:
    """Explain what is wrong with the recorded data, and exit with status 2."""
    folder = os.environ.get("UAC_DATA_DIR")
    where = f"it is {folder}" if folder else "it is not set"
    print(
        f"{why}: UAC_DATA_DIR must name a folder with this recorded data; {where}",
        file=sys.stderr,
    )
    sys.exit(2)


def parser(description: str | None, **sizes: tuple[Any, Any]) -> argparse.ArgumentParser:
    """Return a benchmark's argument parser: `--json`, `--quick` and an option for each size.

    Each size is given with its default and its value under `--quick`, as in `seconds=(60.0, 2.0)`.
    If these are tuples, the option takes several values; None means no limit.
    """
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", type=Path, help="also write the report to this file")
    made.add_argument(
        "--quick",
        action=_Quick,
        nargs=0,
        default=False,
        const={name: quick for name, (_, quick) in sizes.items()},
        help="run every step with the smallest sizes; the numbers are meaningless",
    )
    for name, (full, quick) in sizes.items():
        has_many = isinstance(quick, tuple)
        made.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(quick[0] if has_many else quick),
            nargs="+" if has_many else None,
            default=full,
            help=f"default: {'all' if full is None else full}; with --quick: {quick}",
        )
    return made


class _Quick(argparse.Action):
    """Sets every size to its quick value, except those given earlier on the command line."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        namespace.quick = True
        for name, size in self.const.items():
            if getattr(namespace, name) == parser.get_default(name):
                setattr(namespace, name, size)


@contextmanager
def embedded_server(runner: str = "docker", **settings: str) -> Iterator[Services]:
    """Configure the server in this process, with new services and the given sandbox runner."""
    with running_services() as services:
        os.environ.update(services.environment, UAC_SANDBOX_RUNNER=runner, **settings)
        os.environ["DJANGO_SETTINGS_MODULE"] = "uac_site.settings"
        django.setup()
        from workers.sandbox.build import ensure_image
        from workers.sandbox.runner import close_pool

        if runner == "docker":
            ensure_image()
        try:
            yield services
        finally:
            close_pool()


@contextmanager
def durable_system(**options: Any) -> Iterator[System]:
    """Run a server whose database waits for the disk at every commit, as in production."""
    with (
        tempfile.TemporaryDirectory(prefix="uac-") as folder,
        running_system(Path(folder) / "data", **options) as system,
    ):
        yield system


def migrate(services: Services) -> None:
    """Create the database tables, connected as the role that owns them."""
    environment = {**os.environ, "DATABASE_URL": services.postgres.owner_url}
    command = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
    subprocess.run(command, env=environment, check=True)


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    """Poll every 10 ms until the condition is true.

    Raises TimeoutError after `seconds`, scaled by how slow this machine is.
    """
    deadline = time.monotonic() + scaled(seconds)
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {scaled(seconds):g} s")
        time.sleep(0.01)


def run_on(user_id: str, day: str) -> Any:
    """Have a worker run the user's constraints as of noon on a past day; return the run."""
    from memory.kernel.models.users import MemoryUser
    from memory.versions import runs
    from memory.versions.models.runs import Run, RunKind, RunStatus, RunTrigger

    user = MemoryUser.objects.select_related("head").get(user_id=user_id)
    until(lambda: not Run.objects.filter(user=user).exclude(status=RunStatus.DONE).exists())
    # Without this reset, alerts raised today would stay in place, since they are newer.
    MemoryUser.objects.filter(pk=user.pk).update(alerts_version=0, alerts_instant=None)
    instant = datetime.datetime.combine(datetime.date.fromisoformat(day), NOON)
    run = runs.queue(
        user, RunKind.CONSTRAINTS, RunTrigger.DAILY, checkpoint=user.head, instant=instant
    )
    until(lambda: Run.objects.filter(pk=run.pk, status=RunStatus.DONE).exists())
    run.refresh_from_db()
    return run


def alerts_of(run: Any) -> list[dict[str, Any]]:
    """Return the alerts in a run's output."""
    output = run.output or {}
    return [alert for one in output.get("constraints", []) for alert in one["alerts"]]


def settings_of(system: System) -> None:
    """Let this process join the system: use its database, its Redis and its kind of sandbox."""
    os.environ.update(system.environment)
    django.setup()


def server_environment() -> dict[str, str]:
    """Return settings of a server that calls language models for workspaces with their own keys.

    Work is due at once and soon found.
    """
    return {
        "UAC_DISPATCH_SECONDS": "0.5",
        "UAC_STRUCTURE_IDLE_SECONDS": "1",
        "UAC_STRUCTURE_AGE_SECONDS": "1",
        "UAC_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
    }


def settled(client: "Client", user_id: str, number: int, seconds: float = 120) -> None:
    """Wait until `number` of the user's entries are covered or dismissed.

    Raises AssertionError if any entry is rejected, and TimeoutError after `seconds`, scaled by how
    slow this machine is.
    """
    started = time.monotonic()
    while (waited := time.monotonic() - started) < scaled(seconds):
        counts = client.get(f"users/{user_id}/")[1]["entries"]
        if counts["rejected"]:
            raise AssertionError(f"{user_id}: {counts['rejected']} entries were rejected")
        if counts["covered"] + counts["dismissed"] == number:
            return
        time.sleep(
            min(1, 0.05 + waited / 20)
        )  # poll a long log less often, since counting it takes a while
    raise TimeoutError(f"{user_id}: not settled after {scaled(seconds):g} s: {counts}")


def commit() -> str:
    """Return the commit that is measured, with a mark if files differ from it."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile, or the value itself if there is only one."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=20, method="inclusive")[18]


def percentiles(
    seconds: Sequence[float], name: str = "p{}_ms", *, digits: int = 1
) -> dict[str, float]:
    """Return the median and the 95th percentile in ms, each under its name."""
    return {
        name.format(50): round(1000 * statistics.median(seconds), digits),
        name.format(95): round(1000 * p95(seconds), digits),
    }


def report(
    name: str,
    *,
    settings: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    figures: Mapping[str, Any],
    path: Path | None,
    problems: Sequence[str] = (),
) -> None:
    """Print the problems, the rows as a table, and the figures.

    If `path` is given, the rows and figures are also written to that file, with the date, the
    machine, and the machine's load just before the benchmark.
    """
    for problem in problems[:50]:
        print(f"PROBLEM: {problem}")
    _print_table(rows)
    for key, value in figures.items():
        print(f"{key} = {value}")
    if path is not None:
        # Recorded, so that nobody takes a quick run for a measurement.
        options = [one for one in sys.argv[1:] if one not in ("--json", str(path))]
        document = {
            "name": name,
            "command": f"make bench NAME={name}"
            + (f" ARGS='{' '.join(options)}'" if options else ""),
            "date": str(datetime.datetime.now(datetime.UTC).date()),
            "machine": {
                "cpus": os.cpu_count(),
                "python": platform.python_version(),
                "system": platform.platform(),
                "load": _LOAD,
            },
            "settings": dict(settings),
            "rows": [dict(row) for row in rows],
            "figures": dict(figures),
        }
        path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    columns = list(rows[0])
    cells = [[str(row.get(column, "")) for column in columns] for row in rows]
    widths = [
        max(len(column), *(len(line[index]) for line in cells))
        for index, column in enumerate(columns)
    ]
    for line in (columns, ["-" * width for width in widths], *cells):
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )
    sys.stdout.flush()


class Client(ApiClient):
    """An API client with one key, for requests that may take long on a slow machine."""

    def get(self, path: str) -> tuple[int, Any]:
        """GET a path below /v1/."""
        return self.request("GET", path)

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        """POST JSON to a path below /v1/."""
        return self.request("POST", path, body)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 120,
    ) -> tuple[int, Any]:
        """Send a request; the time limit is scaled by how slow this machine is."""
        return super().request(method, path, body, headers=headers, timeout=scaled(timeout))

    def finished(self, run_id: str, seconds: float = 120) -> Any:
        """Wait until a run is done, and return it.

        Raises TimeoutError after `seconds`, scaled by how slow this machine is.
        """
        deadline = time.monotonic() + scaled(seconds)
        while time.monotonic() < deadline:
            status, run = self.get(f"runs/{run_id}/")
            if status == 200 and run["status"] == "done":
                return run
            time.sleep(0.1)
        raise TimeoutError(f"run {run_id} was not done after {scaled(seconds):g} s")


def new_client(system: System, workspace: str, *scopes: str) -> Client:
    """Return a client with a new key of the workspace, which is created if needed.

    Without scopes, the key may read and write.
    """
    chosen = [f"--scope={scope}" for scope in scopes]
    key = json.loads(system.manage("create_workspace", workspace, *chosen))["api_key"]
    return Client(system.base_url, key)


def expect(status: int, answer: tuple[int, Any]) -> Any:
    """Return the body of an answer; raise AssertionError unless it has this status."""
    assert answer[0] == status, answer
    return answer[1]


def append(
    client: Client, user_id: str, entries: Sequence[Mapping[str, Any]], batch: int = 1000
) -> None:
    """Append entries to a user's log, `batch` of them in each request."""
    for start in range(0, len(entries), batch):
        body = {"entries": entries[start : start + batch]}
        expect(202, client.post(f"users/{user_id}/entries/", body))


def until_embedded(client: Client, user_id: str, query: str) -> None:
    """Wait until all passages of a user's messages have been embedded.

    This keeps the time that the workers need for it out of the measurements.
    """
    body = {"query": query, "top_k": 1, "in": ["archive"]}

    def is_embedded() -> bool:
        status, found = client.post(f"users/{user_id}/search/", body)
        return status == 200 and found["meaning"]["problem"] is None

    until(is_embedded, 300)

"""Common parts of the benchmarks: recorded data, the report, and a client of the API."""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import django

from tests.waiting import scaled, slowness
from uac_site.embedded.services import Services, running_services
from uac_site.embedded.system import System

NOON = datetime.time(12, tzinfo=datetime.UTC)
# Load that other processes put on the machine in the five minutes before the measurements.
_LOAD = round(os.getloadavg()[1], 1)

slowness()  # measured before anything else is


def data_file(name: str) -> Path | None:
    """Return a file of recorded data, or None if UAC_DATA_DIR does not have it."""
    folder = os.environ.get("UAC_DATA_DIR")
    path = Path(folder) / name if folder else None
    return path if path is not None and path.is_file() else None


def require_data(*names: str) -> list[Path]:
    """Return files of recorded data; end the program with status 2 if one is missing."""
    paths = [data_file(name) for name in names]
    for name, path in zip(names, paths, strict=True):
        if path is None:
            end_without_data(f"{name} is missing")
    return [path for path in paths if path is not None]


def end_without_data(why: str) -> NoReturn:
    """End the program with status 2: the recorded data is not suitable."""
    folder = os.environ.get("UAC_DATA_DIR")
    where = f"it is {folder}" if folder else "it is not set"
    print(
        f"{why}: UAC_DATA_DIR must name a folder with this recorded data; {where}",
        file=sys.stderr,
    )
    sys.exit(2)


def parser(description: str | None, **sizes: tuple[Any, Any]) -> argparse.ArgumentParser:
    """Return the command line of a benchmark: `--json`, `--quick`, and an option for each size.

    A size has its default and its value with `--quick`, `seconds=(60.0, 2.0)`; a tuple of sizes
    takes several arguments, and None means no limit.
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
        help="the smallest run with every step; its numbers are meaningless",
    )
    for name, (full, quick) in sizes.items():
        has_many = isinstance(quick, tuple)
        made.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(quick[0] if has_many else quick),
            nargs="+" if has_many else None,
            default=full,
            help=f"default {'all' if full is None else full}, with --quick {quick}",
        )
    return made


class _Quick(argparse.Action):
    """Reduces every size that was not given before."""

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
    """Configure the server in this process, with services of its own and this sandbox runner."""
    with running_services() as services:
        os.environ.update(services.environment, UAC_SANDBOX_RUNNER=runner, **settings)
        os.environ["DJANGO_SETTINGS_MODULE"] = "uac_site.settings"
        django.setup()
        yield services


def migrate(services: Services) -> None:
    """Create the tables, as the role that owns them."""
    environment = {**os.environ, "DATABASE_URL": services.postgres.owner_url}
    command = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
    subprocess.run(command, env=environment, check=True)


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    """Poll every 10 ms until the condition is true.

    Raises TimeoutError after a time that depends on this machine's speed.
    """
    deadline = time.monotonic() + scaled(seconds)
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {scaled(seconds):g} s")
        time.sleep(0.01)


def run_on(user_id: str, day: str) -> Any:
    """Have a worker run the user's constraints as of a past day; return the finished run."""
    from memory.models import MemoryUser, Run
    from memory.models.runs import RunKind, RunStatus, RunTrigger
    from memory.work import runs

    user = MemoryUser.objects.select_related("head").get(user_id=user_id)
    until(lambda: not Run.objects.filter(user=user).exclude(status=RunStatus.DONE).exists())
    # Otherwise the alerts raised today would remain, since they are newer.
    MemoryUser.objects.filter(pk=user.pk).update(alerts_version=0, alerts_instant=None)
    instant = datetime.datetime.combine(datetime.date.fromisoformat(day), NOON)
    run = runs.queue(
        user, RunKind.CONSTRAINTS, RunTrigger.DAILY, checkpoint=user.head, instant=instant
    )
    until(lambda: Run.objects.filter(pk=run.pk, status=RunStatus.DONE).exists())
    run.refresh_from_db()
    return run


def alerts_of(run: Any) -> list[dict[str, Any]]:
    """Return the alerts that a run raised."""
    output = run.output or {}
    return [alert for one in output.get("constraints", []) for alert in one["alerts"]]


def settings_of(system: System) -> None:
    """Join the system: use its database, its Redis, and its kind of sandboxes."""
    os.environ.update(system.environment)
    django.setup()


def settled(client: "Client", user_id: str, number: int, seconds: float = 120) -> None:
    """Wait until `number` entries of the user are covered or dismissed.

    Raises AssertionError if any is rejected, TimeoutError after a time that depends on this
    machine's speed.
    """
    started = time.monotonic()
    while (waited := time.monotonic() - started) < scaled(seconds):
        counts = client.get(f"users/{user_id}/")[1]["entries"]
        if counts["rejected"]:
            raise AssertionError(f"{user_id}: {counts['rejected']} entries were rejected")
        if counts["covered"] + counts["dismissed"] == number:
            return
        time.sleep(min(1, 0.05 + waited / 20))  # counting a long log takes a while, too
    raise TimeoutError(f"{user_id}: not settled after {scaled(seconds):g} s: {counts}")


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile, or the value itself if there is only one."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=20, method="inclusive")[18]


def report(
    name: str,
    *,
    settings: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    figures: Mapping[str, Any],
    path: Path | None,
    problems: Sequence[str] = (),
) -> None:
    """Print problems, rows as a table, and figures; write rows and figures to `path` if given.

    The file also has the day, the machine, and the machine's load just before.
    """
    for problem in problems[:50]:
        print(f"PROBLEM: {problem}")
    _print_table(rows)
    for key, value in figures.items():
        print(f"{key} = {value}")
    if path is not None:
        is_quick = "--quick" in sys.argv[1:]  # so that nobody takes it for a measurement
        document = {
            "name": name,
            "command": f"make bench NAME={name}" + (" ARGS=--quick" if is_quick else ""),
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


@dataclass(frozen=True)
class Client:
    """A caller of the API with one key. Every method returns the status and the decoded body."""

    base_url: str
    key: str

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
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Send a request; an error status is returned, not raised."""
        request = urllib.request.Request(
            f"{self.base_url}/v1/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.key}",
                "Content-Type": "application/json",
                **(headers or {}),
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=scaled(120)) as response:
                return response.status, json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def finished(self, run_id: str, seconds: float = 120) -> Any:
        """Wait until a run is done and return it.

        Raises TimeoutError after a time that depends on this machine's speed.
        """
        deadline = time.monotonic() + scaled(seconds)
        while time.monotonic() < deadline:
            status, run = self.get(f"runs/{run_id}/")
            if status == 200 and run["status"] == "done":
                return run
            time.sleep(0.1)
        raise TimeoutError(f"run {run_id} was not done after {scaled(seconds):g} s")


def until_embedded(client: Client, user_id: str, query: str) -> None:
    """Wait until all passages of a user's messages have vectors.

    The progress of the workers after an append is not part of the measurement.
    """

    def is_embedded() -> bool:
        body = {"query": query, "top_k": 1, "in": ["archive"]}
        status, found = client.post(f"users/{user_id}/search/", body)
        return status == 200 and found["meaning"]["problem"] is None

    until(is_embedded, 300)

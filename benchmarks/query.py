"""Time queries over HTTP from 1, 4 and 16 concurrent clients, for a user with a resident project.

Each client keeps its connection open, as a product backend does. The query is a sum over 500
records. It is sent with different code each time, so that a sandbox has to compute it, and with the
same code each time, so that its stored answer is used.
"""

import http.client
import itertools
import json
import time
import urllib.parse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import Row, expect, new_client, parser, percentiles, report
from uac_site.embedded.system import System, running_system

RECORDS = 500
CLIENTS = (1, 4, 16)
# Long enough even for a busy machine, since a client without an answer in time ends the benchmark.
WAIT_SECONDS = 100
TOTAL = sum(number * 7 % 997 for number in range(RECORDS))
_numbers = itertools.count()


@dataclass(frozen=True)
class Asker:
    """Asks a user with 500 trips for their total cost."""

    key: str
    netloc: str

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection that a client keeps open."""
        return http.client.HTTPConnection(self.netloc)

    def ask(self, connection: http.client.HTTPConnection, code: str) -> tuple[float, Any]:
        """Run a query; return the seconds that it took and the answer.

        Raises AssertionError unless the answer is correct.
        """
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        body = json.dumps({"code": code})
        started = time.perf_counter()
        connection.request("POST", f"/v1/users/ada/query/?wait={WAIT_SECONDS}", body, headers)
        response = connection.getresponse()
        answer = json.load(response)
        seconds = time.perf_counter() - started
        assert (response.status, answer.get("value")) == (200, TOTAL), (response.status, answer)
        return seconds, answer


def asker(system: System) -> Asker:
    """Create the user, and wait until all records are in the project."""
    client = new_client(system, "benchmark")
    expect(201, client.post("users/", {"user_id": "ada"}))
    entries = [
        {
            "kind": "record",
            "domain": "travel",
            "type": "Trip",
            "key": f"t-{number}",
            "data": {
                "name": f"City {number}",
                "cost": number * 7 % 997,
                "on": f"2026-01-{number % 28 + 1:02}",
            },
        }
        for number in range(RECORDS)
    ]
    expect(202, client.post(f"users/ada/entries/?wait={WAIT_SECONDS}", {"entries": entries}))
    return Asker(client.key, urllib.parse.urlsplit(system.base_url).netloc)


def another() -> str:
    """Return code that has not run before; repeated code would be answered without a sandbox."""
    return f"sum(t.cost for t in trips)  # {next(_numbers)}"


def the_same() -> str:
    """Return code that has run before."""
    return "sum(t.cost for t in trips)"


def measured(user: Asker, clients: int, queries: int, code: Callable[[], str]) -> dict[str, float]:
    """Run `queries` queries from `clients` concurrent clients; return the figures."""

    def client(_: int) -> list[float]:
        connection = user.connect()
        return [user.ask(connection, code())[0] for _ in range(queries // clients)]

    started = time.perf_counter()
    with ThreadPoolExecutor(clients) as threads:
        times = list(itertools.chain(*threads.map(client, range(clients))))
    seconds = time.perf_counter() - started
    return {
        "clients": clients,
        **percentiles(times),
        "per_second": round(len(times) / seconds, 1),
    }


def main() -> None:
    """Run the benchmark and report the results."""
    asked = parser(__doc__, queries=(200, max(CLIENTS))).parse_args()
    rows: list[Row] = []
    # One workspace may use only two thirds of the slots for waiting requests.
    places = max(CLIENTS) * 3 // 2
    environment = {
        "UAC_SANDBOX_RUNNER": "docker",
        "UAC_WAITING_REQUESTS": str(places),
        "UAC_MAX_WAIT_SECONDS": str(WAIT_SECONDS),
    }
    with running_system(environment=environment) as system:
        user = asker(system)
        warm = user.connect()
        for text in (*(another() for _ in range(20)), the_same()):
            user.ask(warm, text)
        for clients in CLIENTS:
            for name, code in (("computed", another), ("cached", the_same)):
                rows.append({"answers": name, **measured(user, clients, asked.queries, code)})
    figures = {
        f"{row['answers']}_{figure}_{row['clients']}": row[figure]
        for row in rows
        for figure in ("p50_ms", "per_second")
    }
    settings = {"records": RECORDS, "queries": asked.queries, "goal": "computed_p50_ms_1 <= 25"}
    report("query", settings=settings, rows=rows, figures=figures, path=asked.json)


if __name__ == "__main__":
    main()

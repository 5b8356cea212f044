"""Measure how much memory an idle server uses and how long it takes to start.

The server is started as by `make demo`: PostgreSQL, Redis, the web server, the process that serves
agents (MCP), one worker each for sandboxes, language models and everything else, and beat. A start
is timed from the start of the first process until the first entry has been answered with 202: once
with an empty data folder, where the database is created and all migrations run, and once with the
same folder again. After the first start, a typed record is timed until it is in the project.
The memory of each process is the proportional set size (PSS) of it and its children after a minute
of rest.

For comparison, mem0 as pip installs it is measured: the time from its import until the first `add`
(`infer=False`) has returned, and the memory of a process that has loaded it. It is a library in the
caller's process, not a server.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import Client, Row, expect, new_client, parser, report
from deploy.embedded.system import System, running_system

RECORD = {
    "kind": "record",
    "domain": "travel",
    "type": "Trip",
    "data": {"to": "Rome", "cost": 840},
}


def main() -> None:
    """Run the benchmark and report the results."""
    asked = parser(__doc__, rest_seconds=(60.0, 1.0)).parse_args()
    with tempfile.TemporaryDirectory(prefix="uac-") as folder:
        data = Path(folder) / "data"
        with started(data) as (_, client, first):
            record = seconds_of_a_record(client)
        with started(data) as (system, _, again):
            time.sleep(asked.rest_seconds)
            rows = memory_of(system)
    library = peer()
    figures = {
        "uac_mib": round(sum(row["mib"] for row in rows)),
        "uac_server_mib": round(
            sum(row["mib"] for row in rows if row["process"] not in ("postgres", "redis"))
        ),
        "uac_first_start_seconds": round(first, 1),
        "uac_start_seconds": round(again, 1),
        "uac_record_seconds": record,
        "mem0_mib": library["mib"],
        "mem0_start_seconds": library["seconds"],
    }
    settings = {"rest_seconds": asked.rest_seconds, "mem0": "2.2, a library, as pip installs it"}
    report("footprint", settings=settings, rows=rows, figures=figures, path=asked.json)


@contextmanager
def started(data: Path) -> Iterator[tuple[System, Client, float]]:
    """Start the server on a data folder and append an entry to a user's log.

    Yields the server, a client, and the seconds until the entry was answered.
    """
    begun = time.perf_counter()
    environment = {"UAC_LLM_MODEL": "openai:nobody", "UAC_SANDBOX_RUNNER": "docker"}
    with running_system(data, mcp=True, llm_workers=1, environment=environment) as system:
        ready = time.perf_counter()
        client = new_client(system, "footprint")
        client.post("users/", {"user_id": "ada"})
        asked = time.perf_counter()
        expect(202, client.post("users/ada/entries/", RECORD))
        yield system, client, ready - begun + time.perf_counter() - asked


def seconds_of_a_record(client: Client) -> float:
    """Return how many seconds a typed record takes to get into the project on a new server."""
    began = time.perf_counter()
    status, body = client.post("users/ada/entries/?wait=30", RECORD)
    assert (status, body["covered"]) == (202, 1), body
    return round(time.perf_counter() - began, 2)


def memory_of(system: System) -> list[Row]:
    """Return a row for each process: the MiB that it and its children use, as PSS."""
    forker = psutil.Process(system.forker.process.pid)
    families = {"forker": [forker]}
    for name, process in system.processes.items():
        parent = psutil.Process(process.pid)
        families[name] = [parent, *parent.children(recursive=True)]
    rows = []
    for name, family in families.items():
        pss = sum(map(_pss, family)) / 2**20
        rows.append({"process": name, "processes": len(family), "mib": round(pss, 1)})
    return rows


def _pss(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.NoSuchProcess:
        return 0  # one of PostgreSQL's short-lived processes


PROGRAM = """
import os, sys, time
begun = time.perf_counter()
os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=sys.argv[1])
from benchmarks.mem0_peer import DIMENSIONS, by_hash, mem0
with mem0(by_hash, DIMENSIONS) as peer:
    peer.memory.add("I booked a trip to Rome.", user_id="ada", infer=False)
    seconds = time.perf_counter() - begun
    import json, psutil
    pss = psutil.Process().memory_full_info().pss / 2**20
    print(json.dumps({"seconds": round(seconds, 1), "mib": round(pss)}))
"""


def peer() -> dict[str, Any]:
    """Measure mem0 in a new process, and return its figures."""
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, folder], capture_output=True, text=True, check=True
        )
    taken: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return taken


if __name__ == "__main__":
    main()

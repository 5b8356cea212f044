"""Measure the time from appending a typed entry to receiving the webhook about the new alert.

Two complete servers, otherwise idle, run side by side: one with Docker sandboxes and one with
process sandboxes. On each in turn, a user with an allergy and a constraint is prescribed a drug,
and a receiver on this machine waits for the webhook. A single clock measures the time from just
before the request until the webhook has been read; the breakdown comes from the times that the
server recorded. Time that is not spent in sandboxes (compiling, loading, running) is the server's
own overhead: waiting for a worker, edits, checks, commits and the delivery.
"""

import datetime
import itertools
import json
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.fernet import Fernet

from benchmarks.harness import Client, p95, parser, report, until
from uac_site.demo import person
from uac_site.embedded.system import running_system

RUNNERS = ("docker", "process")
# Settings that allow webhooks to a receiver on this machine, which has an internal address and no
# TLS.
WEBHOOKS = {
    "UAC_WEBHOOK_ALLOW_HTTP": "true",
    "UAC_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
    "UAC_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
}
ALLERGY = {
    "kind": "record",
    "domain": "health",
    "type": "Allergy",
    "key": "penicillin",
    "data": {
        "allergen": "penicillin",
        "drug_class": "penicillin",
        "reaction": "hives",
        "severity": "severe",
        "noted_on": "2025-01-10",
    },
}
HARMLESS = {
    "kind": "record",
    "domain": "health",
    "type": "Medication",
    "key": "ibuprofen",
    "data": {
        "name": "Ibuprofen",
        "dose": "400 mg",
        "drug_class": "nsaid",
        "started_on": "2025-02-01",
        "prescribed_by": None,  # the constraint's tests do not set this field
    },
}
HARMFUL = {
    **HARMLESS,
    "key": "amoxicillin",
    "data": {**HARMLESS["data"], "name": "Amoxicillin", "drug_class": "penicillin"},  # type: ignore[dict-item]
}


@dataclass
class Receiver:
    """A webhook receiver, which records when it read the first `alert.opened` for each user."""

    url: str = ""
    arrived: dict[str, float] = field(default_factory=dict)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a webhook receiver on a free port of this machine."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            at = time.monotonic()
            message = json.loads(body)
            if message["type"] == "alert.opened":
                receiver.arrived.setdefault(message["data"]["user_id"], at)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/"
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    ).start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


def prescribe(client: Client, receiver: Receiver, user_id: str) -> dict[str, float]:
    """Create a user with a constraint and prescribe a drug; return the seconds each part took."""
    user = f"users/{user_id}/"
    expect(201, client.post("users/", {"user_id": user_id}))
    expect(202, client.post(f"{user}entries/?wait=30", {"entries": [ALLERGY, HARMLESS]}))
    rule = next(rule for rule in person.constraints() if rule.name == "drug_allergy")
    body = {"source": rule.source, "tests": rule.tests}
    expect(200, client.request("PUT", f"{user}constraints/{rule.name}/?wait=30", body))
    until(lambda: client.get(f"{user}runs/?status=queued")[1]["results"] == [])
    until(lambda: client.get(f"{user}runs/?status=running")[1]["results"] == [])

    started = time.monotonic()
    appended = expect(202, client.post(f"{user}entries/", HARMFUL))
    answered = time.monotonic() - started
    until(lambda: user_id in receiver.arrived)
    received = receiver.arrived[user_id] - started

    (alert,) = client.get(f"{user}alerts/?state=open")[1]["results"]
    run = client.get(f"runs/{alert['last_run']}/")[1]
    version = client.get(f"{user}checkpoints/{run['checkpoint']}/")[1]
    gate = version["verdict"]["timings"]
    (entry,) = appended["entries"]
    recorded, accepted, begun, opened = (
        datetime.datetime.fromisoformat(text).timestamp()
        for text in (
            entry["recorded_at"],
            version["created_at"],
            run["started_at"],
            alert["opened_at"],
        )
    )
    in_sandboxes = (
        gate["compile"] + gate["load"] + run["timings"]["load"] + run["timings"]["constraints"]
    )
    return {
        "append (the request)": answered,
        "to the worker, edits, commit": accepted - recorded - gate["total"],
        "gate: compile in a sandbox": gate["compile"],
        "gate: load in a sandbox": gate["load"],
        "gate: check the state, policy": gate["total"] - gate["compile"] - gate["load"],
        "to the worker again": begun - accepted,
        "constraints: load in a sandbox": run["timings"]["load"],
        "constraints: run": run["timings"]["constraints"],
        "alert written": opened - begun - run["timings"]["total"],
        "entry recorded to alert opened": opened - recorded,
        "own overhead": received - in_sandboxes,
        "append to webhook": received,
    }


def expect(status: int, answer: tuple[int, Any]) -> Any:
    """Return the body of an answer; raise AssertionError unless it has this status."""
    assert answer[0] == status, answer
    return answer[1]


def rows_of(measured: Mapping[str, Sequence[Mapping[str, float]]]) -> list[dict[str, Any]]:
    """Return a row for each part: its median and 95th percentile in ms with each runner."""
    parts = list(next(iter(measured.values()))[0])
    return [
        {
            "part": part,
            **{
                f"{runner} {name}": round(1000 * of([one[part] for one in times]), 1)
                for runner, times in measured.items()
                for name, of in (("p50", statistics.median), ("p95", p95))
            },
        }
        for part in parts
    ]


def main() -> None:
    """Run the benchmark and report the results."""
    asked = parser(__doc__, people=(40, 1)).parse_args()
    measured: dict[str, list[dict[str, float]]] = {runner: [] for runner in RUNNERS}
    with ExitStack() as stack:
        clients, receivers = {}, {}
        for runner in RUNNERS:
            receiver = receivers[runner] = stack.enter_context(receiving())
            environment = {**WEBHOOKS, "UAC_SANDBOX_RUNNER": runner}
            system = stack.enter_context(running_system(environment=environment))
            scopes = [f"--scope={scope}" for scope in ("read", "write", "manage")]
            made = json.loads(system.manage("create_workspace", "benchmark", *scopes))
            client = clients[runner] = Client(system.base_url, made["api_key"])
            expect(201, client.post("webhooks/", {"url": receiver.url}))
        for number, runner in itertools.product(range(asked.people + 1), RUNNERS):
            times = prescribe(clients[runner], receivers[runner], f"person-{number}")
            if number:  # each runner's first person only warms it up
                measured[runner].append(times)
    rows = rows_of(measured)
    report(
        "alerts",
        settings={"people": asked.people, "runners": list(RUNNERS)},
        rows=rows,
        figures=figures_of(rows),
        path=asked.json,
    )


def figures_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures to compare between runs, for Docker and for process sandboxes."""
    by_part = {row["part"]: row for row in rows}
    webhook, own = by_part["append to webhook"], by_part["own overhead"]
    alert = by_part["entry recorded to alert opened"]
    return {
        "append_to_webhook_ms_p50": webhook["docker p50"],
        "append_to_webhook_ms_p95": webhook["docker p95"],
        "own_overhead_ms_p50": own["docker p50"],
        "process_append_to_webhook_ms_p50": webhook["process p50"],
        "process_append_to_webhook_ms_p95": webhook["process p95"],
        "process_own_overhead_ms_p50": own["process p50"],
        "docker_p50_ms": alert["docker p50"],
        "docker_p95_ms": alert["docker p95"],
        "process_p50_ms": alert["process p50"],
        "process_p95_ms": alert["process p95"],
    }


if __name__ == "__main__":
    main()

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
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from cryptography.fernet import Fernet

from benchmarks.harness import Client, Row, expect, new_client, parser, percentiles, report, until
from deploy.demo import person
from deploy.embedded.http import serve_json
from deploy.embedded.system import running_system

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


@dataclass(frozen=True)
class Receiver:
    """A webhook receiver, which records when it read the first `alert.opened` for each user."""

    url: str
    arrived: dict[str, float]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a webhook receiver on a free port of this machine."""
    arrived: dict[str, float] = {}

    def receive(body: bytes) -> tuple[int, None]:
        at = time.monotonic()
        message = json.loads(body)
        if message["type"] == "alert.opened":
            arrived.setdefault(message["data"]["user_id"], at)
        return 200, None

    with serve_json(receive) as url:
        yield Receiver(url, arrived)


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


def rows_of(measured: Mapping[str, Sequence[Mapping[str, float]]]) -> list[Row]:
    """Return a row for each part: its median and 95th percentile in ms with each runner."""
    parts = list(next(iter(measured.values()))[0])
    rows: list[Row] = [{"part": part} for part in parts]
    for row in rows:
        for runner, times in measured.items():
            row |= percentiles([one[row["part"]] for one in times], f"{runner} p{{}}")
    return rows


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
            client = clients[runner] = new_client(system, "benchmark", "read", "write", "manage")
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

"""From the append of a typed entry to the alert that it raises, and where the time goes.

Two whole servers run side by side, one with Docker sandboxes and one with processes, idle but for
this: in turn, a user with an allergy and a constraint is prescribed a drug. All times are taken
from what the server itself recorded, but that of the request.
"""

import datetime
import itertools
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks.harness import Client, json_path, p95, report, until
from uac_site.demo import person
from uac_site.embedded.system import running_system

PEOPLE = 40
RUNNERS = ("docker", "process")
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
MEDICATION = {"kind": "record", "domain": "health", "type": "Medication"}
IBUPROFEN = {
    "name": "Ibuprofen",
    "dose": "400 mg",
    "drug_class": "nsaid",
    "started_on": "2025-02-01",
    "prescribed_by": "Dr. Ek",
}
HARMLESS = {**MEDICATION, "key": "ibuprofen", "data": IBUPROFEN}
# Bought by oneself, as one in the constraint's tests.
ASPIRIN = {
    **MEDICATION,
    "key": "aspirin",
    "data": {
        "name": "Aspirin",
        "dose": "500 mg",
        "drug_class": "nsaid",
        "started_on": "2025-02-01",
    },
}
HARMFUL = {
    **MEDICATION,
    "key": "amoxicillin",
    "data": {**IBUPROFEN, "name": "Amoxicillin", "drug_class": "penicillin"},
}


def prescribe(client: Client, user_id: str) -> dict[str, float]:
    """Make a user with a constraint, prescribe, and return the seconds that each part took."""
    user = f"users/{user_id}/"
    expect(201, client.post("users/", {"user_id": user_id}))
    expect(202, client.post(f"{user}entries/?wait=30", {"entries": [ALLERGY, HARMLESS, ASPIRIN]}))
    rule = next(rule for rule in person.constraints() if rule.name == "drug_allergy")
    body = {"source": rule.source, "tests": rule.tests}
    expect(200, client.request("PUT", f"{user}constraints/{rule.name}/?wait=30", body))
    until(lambda: client.get(f"{user}runs/?status=queued")[1]["results"] == [])
    until(lambda: client.get(f"{user}runs/?status=running")[1]["results"] == [])

    started = time.monotonic()
    appended = expect(202, client.post(f"{user}entries/", HARMFUL))
    answered = time.monotonic() - started
    until(lambda: client.get(f"{user}alerts/?state=open")[1]["results"] != [])

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
    }


def expect(status: int, answer: tuple[int, Any]) -> Any:
    """Return the body of an answer with this status; AssertionError for any other."""
    assert answer[0] == status, answer
    return answer[1]


def rows_of(measured: Mapping[str, Sequence[Mapping[str, float]]]) -> list[dict[str, Any]]:
    """A row for each part, with the median and the 95th percentile of each runner, in ms."""
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
    """Measure and report."""
    path = json_path(__doc__)
    measured: dict[str, list[dict[str, float]]] = {runner: [] for runner in RUNNERS}
    with ExitStack() as stack:
        clients = {}
        for runner in RUNNERS:
            system = stack.enter_context(running_system(environment={"UAC_SANDBOX_RUNNER": runner}))
            key = json.loads(system.manage("create_workspace", "benchmark"))["api_key"]
            clients[runner] = Client(system.base_url, key)
        for number, runner in itertools.product(range(PEOPLE + 1), RUNNERS):
            times = prescribe(clients[runner], f"person-{number}")
            if number:  # the first one of each warms up
                measured[runner].append(times)
    rows = rows_of(measured)
    whole = {name: value for name, value in rows[-1].items() if name != "part"}
    figures = {f"{name.replace(' ', '_')}_ms": value for name, value in whole.items()}
    report(
        "alert_latency",
        settings={"people": PEOPLE, "runners": list(RUNNERS)},
        rows=rows,
        figures=figures,
        path=path,
    )


if __name__ == "__main__":
    main()

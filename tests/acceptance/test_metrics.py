"""Prometheus metrics of a sandbox worker: a real worker, before and after real work."""

import re
import urllib.request
from collections import Counter
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.system import Person, record
from tests.waiting import polled

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


class Metrics:
    """The samples of one scrape, by name."""

    def __init__(self, port: int) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        self.samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples with these labels."""
        return sum(
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


def moved(before: Metrics, after: Metrics, name: str, **labels: str) -> float:
    return after.total(name, **labels) - before.total(name, **labels)


def at_rest(port: int) -> Metrics:
    """Return the metrics once no sandbox is used or waited for.

    So they do not depend on work that other tests have left.
    """

    def rests(metrics: Metrics) -> bool:
        waited_for = metrics.total("uac_sandbox_claim_seconds_count")
        used = metrics.total("uac_sandbox_pool_sandboxes", state="used")
        return used == 0 and metrics.total("uac_sandbox_claims_total") == waited_for

    return polled(lambda: Metrics(port), rests)


def test_metrics_move_with_the_work(person: Person, metrics_port: int) -> None:
    before = at_rest(metrics_port)
    person.log(record("Trip", "a", domain="travel", to="Rome"))
    for number in range(3):  # the same would be answered without a sandbox
        answer = person.post("query/?wait=100", {"code": f"len(trips) + {number}"}, status=200)
        assert answer["value"] == 1 + number
    again = person.post("query/?wait=100", {"code": "len(trips) + 2"}, status=200)
    assert again["cached"] is True
    person.post("query/?wait=100", {"code": "1 / 0"}, status=422)
    after = at_rest(metrics_port)

    requests = "uac_sandbox_requests_total"
    evaluated = Counter(
        {
            outcome: moved(before, after, requests, operation="evaluate", outcome=outcome)
            for outcome in ("ok", "user_error", "timeout", "killed")
        }
    )
    assert evaluated == {"ok": 3, "user_error": 1, "timeout": 0, "killed": 0}
    assert moved(before, after, requests, operation="compile", outcome="ok") == 1
    assert moved(before, after, requests, operation="load", outcome="ok") >= 1
    assert moved(before, after, requests, infrastructure="true") == 0
    seconds = "uac_sandbox_request_seconds"
    assert moved(before, after, f"{seconds}_count", operation="evaluate") == 4
    assert moved(before, after, f"{seconds}_bucket", operation="evaluate", le="+Inf") == 4
    assert 0 < moved(before, after, f"{seconds}_sum", operation="evaluate") < 4 * 30
    # At least one for the checkpoint, and one for each query.
    claims = moved(before, after, "uac_sandbox_claims_total")
    assert claims >= 5
    assert moved(before, after, "uac_sandbox_claim_seconds_count") == claims


def test_every_sandbox_is_accounted_for(person: Person, metrics_port: int) -> None:
    person.log(record("Trip", "a", domain="travel", to="Rome"))

    def balanced(metrics: Metrics) -> bool:
        there = metrics.total("uac_sandbox_pool_sandboxes")
        started = metrics.total("uac_sandbox_start_seconds_count")
        used = metrics.total("uac_sandbox_pool_sandboxes", state="used")
        return there == started - metrics.total("uac_sandbox_destroyed_total") and used == 0

    settled = polled(lambda: Metrics(metrics_port), balanced)
    assert settled.total("uac_sandbox_start_seconds_count") > 0
    assert settled.total("uac_sandbox_start_failures_total") == 0


def test_the_web_process_counts_requests_by_route(person: Person, metrics_port: int) -> None:
    web = metrics_port + 1  # after the worker's
    before = Metrics(web)
    person.get()
    person.get()
    person.get("checkpoints/99/", status=404)
    person.client.request("GET", f"nothing/{person.user_id}/")
    after = Metrics(web)

    requests, user = "uac_http_requests_total", "/v1/users/<user:user_id>/"
    assert moved(before, after, requests, method="GET", route=user, status="200") == 2
    unknown = f"{user}checkpoints/<int:version>/"
    assert moved(before, after, requests, route=unknown, status="404") == 1
    assert moved(before, after, requests, route="/v1/", status="404") == 1  # no route of ours
    seconds = "uac_http_request_seconds"
    assert moved(before, after, f"{seconds}_count", method="GET", route=user) == 2
    assert moved(before, after, f"{seconds}_bucket", route=user, le="+Inf") == 2
    named = [sample.labels for sample in after.samples if sample.name.startswith("uac_http_")]
    assert person.user_id not in str(named)


def test_metrics_are_documented_and_name_no_person(person: Person, metrics_port: int) -> None:
    person.log(record("Trip", "a", domain="travel", to="Rome"))
    metrics = polled(  # a user's sandbox is kept for some seconds before one is destroyed
        lambda: Metrics(metrics_port), lambda seen: seen.total("uac_sandbox_destroyed_total")
    )
    documented = set(re.findall(r"^\| `(uac_[a-z_]+)`", DOCUMENT.read_text(), re.MULTILINE))
    served = {
        re.sub("_(bucket|count|sum)$", "", sample.name)
        for sample in metrics.samples
        if sample.name.startswith("uac_")
    }
    # No language model is called here, an alarm exists only while it is raised, and there may be no
    # refusals or waits.
    uncalled = {"uac_llm_call_seconds", "uac_llm_tokens_total", "uac_llm_cost_total", "uac_alarm"}
    uncalled |= {"uac_refused_total", "uac_waiting"}
    of_the_web = {"uac_http_requests_total", "uac_http_request_seconds"}
    assert documented == served | uncalled | of_the_web
    [about] = [one.labels for one in metrics.samples if one.name == "uac_sandbox_info"]
    assert about["image"].startswith("uac-sandbox:")
    assert about["runtime"] == "default"
    labels = {
        label
        for sample in metrics.samples
        if sample.name.startswith("uac_")
        for label in sample.labels
    }
    of_requests = {"operation", "outcome", "infrastructure", "le"}
    of_work = {"kind", "queue"}
    assert labels - of_work - {"workspace", "alarm", "severity"} == of_requests | {
        *("state", "hash_seed", "found", "reason", "runner", "runtime", "image")
    }

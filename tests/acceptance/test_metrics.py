"""What a sandbox worker tells Prometheus: a real worker, before and after real work."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.acceptance.conftest import Person, new_client, polled, record
from uac_site.embedded.process import free_port
from uac_site.embedded.system import running_system

PORT = free_port()


@pytest.fixture(scope="module")
def ada() -> Iterator[Person]:
    """A user of a server whose sandbox worker has a port for Prometheus."""
    with running_system(environment={"UAC_METRICS_PORT": str(PORT)}) as system:
        person = Person(new_client(system, "acceptance"), "ada")
        assert person.client.post("users/", {"user_id": "ada"})[0] == 201
        yield person


def scraped() -> dict[str, Metric]:
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {metric.name: metric for metric in text_string_to_metric_families(text)}


def total(name: str, sample: str = "", **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    metric = scraped().get(name)
    return sum(
        one.value
        for one in (metric.samples if metric else ())
        if one.name == (sample or name) and labels.items() <= one.labels.items()
    )


def requests(operation: str, outcome: str) -> float:
    return total(
        "uac_sandbox_requests",
        "uac_sandbox_requests_total",
        operation=operation,
        outcome=outcome,
        infrastructure="false",
    )


def test_they_move_with_the_work(ada: Person) -> None:
    (about,) = scraped()["uac_sandbox_info"].samples
    assert about.labels["runtime"] == "default"
    assert about.labels["image"].startswith("uac-sandbox:")
    assert requests("evaluate", "ok") == requests("evaluate", "user_error") == 0

    ada.log(record("Trip", "a", domain="travel", to="Rome"))
    claims = total("uac_sandbox_claims", "uac_sandbox_claims_total")
    for _ in range(3):
        answer = ada.post("query/?wait=30", {"code": "len(trips)"}, status=200)
        assert answer["value"] == 1
    ada.post("query/?wait=30", {"code": "1 / 0"}, status=422)

    assert requests("evaluate", "ok") == 3
    assert requests("evaluate", "user_error") == 1
    assert requests("compile", "ok") == 1
    assert requests("load", "ok") >= 1
    seconds = "uac_sandbox_request_seconds"
    assert total(seconds, f"{seconds}_count", operation="evaluate") == 4
    assert total(seconds, f"{seconds}_bucket", operation="evaluate", le="+Inf") == 4
    assert 0 < total(seconds, f"{seconds}_sum", operation="evaluate") < 4 * 30
    asked = total("uac_sandbox_claims", "uac_sandbox_claims_total")
    assert asked == claims + 4
    assert total("uac_sandbox_claim_seconds", "uac_sandbox_claim_seconds_count") == asked


def test_every_sandbox_is_accounted_for(ada: Person) -> None:
    ada.log(record("Trip", "b", domain="travel", to="Rome"))

    def accounts() -> tuple[float, float]:
        metrics = scraped()
        there = sum(one.value for one in metrics["uac_sandbox_pool_sandboxes"].samples)
        (started,) = (
            one.value
            for one in metrics["uac_sandbox_start_seconds"].samples
            if one.name.endswith("_count")
        )
        destroyed = sum(one.value for one in metrics["uac_sandbox_destroyed"].samples)
        return there, started - destroyed

    there, left = polled(accounts, lambda both: both[0] == both[1])
    assert there == left
    states = {one.labels["state"] for one in scraped()["uac_sandbox_pool_sandboxes"].samples}
    assert states >= {"idle", "used"}
    assert total("uac_sandbox_pool_sandboxes", state="used") == 0  # nobody is at work


def test_what_the_document_names_is_there(ada: Person) -> None:
    ada.log(record("Trip", "d", domain="travel", to="Rome"))
    document = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    named = set(re.findall(r"uac_sandbox_[a-z_]+", document))
    served = {name + suffix for name, metric in scraped().items() for suffix in suffixes(metric)}
    assert len(named) >= 9
    assert named <= served


def suffixes(metric: Metric) -> set[str]:
    return {one.name.removeprefix(metric.name) for one in metric.samples} | {""}


def test_no_label_names_a_person(ada: Person) -> None:
    ada.log(record("Trip", "c", domain="travel", to="Rome"))
    names = {
        label for metric in scraped().values() for one in metric.samples for label in one.labels
    }
    ours = {"operation", "outcome", "infrastructure", "state", "hash_seed", "found", "reason"}
    assert names <= ours | {"le", "runner", "runtime", "image"} | {
        *("generation", "implementation", "major", "minor", "patchlevel", "version")
    }

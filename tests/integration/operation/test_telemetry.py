"""The web process's metrics of its requests, where several processes answer them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from memory.kernel import tracing
from tests.services import SERVICES

ASKED = """
import sys
import django
django.setup()
from django.test import Client
from prometheus_client import generate_latest
from uac_site.telemetry import registry
client = Client()
for _ in range(int(sys.argv[1])):
    client.get("/livez")
client.generic("SPAM", "/livez")
print(generate_latest(registry()).decode())
"""


def answered(folder: Path | None, times: int) -> dict[str, float]:
    """Return the counts of a process that has answered so many requests, by their method."""
    environment = {**os.environ, **SERVICES.environment}
    if folder is not None:
        environment["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    ran = subprocess.run(
        [sys.executable, "-c", ASKED, str(times)],
        env={**environment, "DJANGO_SETTINGS_MODULE": "uac_site.settings"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    samples = [
        one for family in text_string_to_metric_families(ran.stdout) for one in family.samples
    ]
    assert not [one for one in samples if one.name.startswith("uac_sandbox")]
    return {
        one.labels["method"]: one.value
        for one in samples
        if one.name == "uac_http_requests_total" and one.labels["route"] == "/livez"
    }


def test_each_process_counts_its_own_requests() -> None:
    assert answered(None, 2) == {"GET": 2, "other": 1}
    assert answered(None, 3) == {"GET": 3, "other": 1}


def test_with_a_folder_that_they_share_each_counts_for_all(tmp_path: Path) -> None:
    assert answered(tmp_path, 2) == {"GET": 2, "other": 1}
    assert answered(tmp_path, 3) == {"GET": 5, "other": 2}


def test_traces_without_exporter_refuse_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert tracing.validate_server_settings() == {}

    monkeypatch.setitem(sys.modules, tracing.EXPORTER, None)  # as if it were not there

    (name,) = tracing.validate_server_settings()
    assert name == "OTEL_EXPORTER_OTLP_ENDPOINT"
    assert "install the extra `traces`" in tracing.validate_server_settings()[name]


def test_without_a_collector_nothing_is_carried_along() -> None:
    with tracing.span("anything") as span:
        assert not span.is_recording()
        assert tracing.carried() == {}
        assert tracing.trace_id() is None


def test_the_dashboard_draws_what_is_documented_with_labels_that_it_has() -> None:
    documents = Path(__file__).parents[3] / "docs"
    rows = re.findall(
        r"^\| `(uac_[a-z_]+)` \| (.*?) \|", (documents / "metrics.md").read_text(), re.MULTILINE
    )
    labels = {name: set(re.findall(r"`([a-z_]+)`", told)) for name, told in rows}
    panels = json.loads((documents / "grafana.json").read_text())["panels"]
    drawn = [target for panel in panels for target in panel.get("targets", ())]

    assert len(drawn) > 20
    for target in drawn:
        names = {
            re.sub("_(bucket|count)$", "", one) for one in re.findall(r"uac_\w+", target["expr"])
        }
        assert names <= labels.keys(), target
        known = set().union(*(labels[name] for name in names))
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= known, target
        by = re.findall(r"by \(([^)]*)\)", target["expr"])
        assert {one.strip() for some in by for one in some.split(",")} <= known | {"le"}, target

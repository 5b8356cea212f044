"""Prometheus metrics of language model calls."""

import re
from pathlib import Path

import pytest
from django.db import connection
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings.language_models import Usage
from memory.llm import llm_calls
from memory.llm.llm_calls import Attempt, CallSession
from memory.llm.models import LlmPurpose
from tests.integration.llm.conftest import QUESTION, Ask, Connect
from tests.llm_server import llm_server, said, status
from workers.metrics import server_metrics
from workers.metrics.serving import Read

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"


OF_THE_MODEL = {"model": "openai:the-model", "purpose": "memorize"}


def served() -> str:
    registry = CollectorRegistry()
    registry.register(Read(*server_metrics.READS))
    return generate_latest(registry).decode()


def value(name: str, **labels: str) -> float:
    """Return the value of the only sample with this name and exactly these labels."""
    [found] = [
        sample.value
        for family in text_string_to_metric_families(served())
        for sample in family.samples
        if (sample.name, sample.labels) == (name, labels)
    ]
    return float(found)


def test_calls_are_counted_by_what_came_of_them_and_by_no_person(
    live_database: str, connect: Connect, workspace: Workspace, user: MemoryUser
) -> None:
    with llm_server(status(500), said("Noted."), said("Noted.", tokens=None)) as server:
        connect(server).complete(QUESTION)
        connect(server).complete(QUESTION)
    most = Usage(input_tokens=1, output_tokens=1)
    waiting = Attempt(model="m", turn=1, attempt=1, prompt={}, most=most, seconds=9)
    work = CallSession(workspace=workspace, purpose=LlmPurpose.QUERY, user=user)
    llm_calls.start(work, waiting, keep_content=False)

    assert value("uac_llm_call_seconds_count", outcome="ok", **OF_THE_MODEL) == 2
    assert value("uac_llm_call_seconds_count", outcome="unavailable", **OF_THE_MODEL) == 1
    assert value("uac_llm_call_seconds_sum", outcome="ok", **OF_THE_MODEL) > 0
    assert value("uac_llm_tokens_total", kind="input", **OF_THE_MODEL) == 100
    assert value("uac_llm_tokens_total", kind="output", **OF_THE_MODEL) == 20
    assert value("uac_llm_tokens_total", kind="presumed", **OF_THE_MODEL) > 1000
    assert value("uac_llm_cost_total", **OF_THE_MODEL) == pytest.approx(0.0004)
    assert value("uac_llm_calls_under_way") == 1
    assert workspace.name not in served()
    assert not re.search(rf"\b{user.user_id}\b", served())


def test_the_document_names_them_all(live_database: str, ask: Ask) -> None:
    ask(said("Noted."))

    documented = set(re.findall(r"^\| `(uac_llm_[a-z_]+)`", DOCUMENT.read_text(), re.MULTILINE))
    names = re.findall(r"^(uac_llm_[a-z_]+?)(?:_count|_sum)?[{ ]", served(), re.MULTILINE)
    assert set(names) == documented


def test_metrics_without_database_leave_figures_out(
    live_database: str,
) -> None:
    port = connection.settings_dict["PORT"]
    connection.close()
    connection.settings_dict["PORT"] = "1"
    try:
        assert "uac_llm" not in served()
    finally:
        connection.close()
        connection.settings_dict["PORT"] = port

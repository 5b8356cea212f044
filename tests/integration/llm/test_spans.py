"""Traces of calls to models."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memory.kernel import tracing
from tests.integration.llm.conftest import Ask
from tests.llm_server import said, status
from workers.llm.interface import CallFailed

pytestmark = pytest.mark.django_db


def test_a_call_is_a_span_by_the_conventions_and_without_content(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("test"))

    ask(said("Noted: Rex."))
    with pytest.raises(CallFailed):
        ask(status(400, "no Rex"), protocol="google")

    answered, failed = exporter.get_finished_spans()
    assert answered.name == "chat the-model"
    assert dict(answered.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "the-model",
        "gen_ai.response.model": "the-model-2026-01-01",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.cache_creation.input_tokens": 0,
        "uac.purpose": "memorize",
    }
    about = failed.attributes or {}
    assert (about["gen_ai.provider.name"], about["error.type"]) == ("gcp.gemini", "RequestRejected")
    assert "Rex" not in f"{answered.to_json()}{failed.to_json()}"

"""Traces of calls to models, as OpenTelemetry's conventions for generative AI name things.

Content is never part of a span.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.trace import Span, SpanKind

from memory.kernel import tracing
from memory.kernel.settings.language_models import Usage

# The conventions' names of providers, where they differ from ours.
_PROVIDERS = {"google": "gcp.gemini"}


@contextmanager
def model_span(operation: str, name: str, *, purpose: str) -> Iterator[Span]:
    """Trace a call of a model (`provider:model`); `operation` is `chat` or `embeddings`."""
    provider, _, model = name.partition(":")
    with tracing.span(f"{operation} {model}", kind=SpanKind.CLIENT) as span:
        span.set_attribute("gen_ai.operation.name", operation)
        span.set_attribute("gen_ai.provider.name", _PROVIDERS.get(provider, provider))
        span.set_attribute("gen_ai.request.model", model)
        span.set_attribute("uac.purpose", str(purpose))
        yield span


def note_answer(span: Span, model: str, usage: Usage | None) -> None:
    """Add to a model's span which model answered, and the tokens that it used, if known."""
    if model:
        span.set_attribute("gen_ai.response.model", model)
    if usage is not None:
        span.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens)
        span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)
        span.set_attribute("gen_ai.usage.cache_read.input_tokens", usage.cache_read_tokens)
        span.set_attribute("gen_ai.usage.cache_creation.input_tokens", usage.cache_write_tokens)

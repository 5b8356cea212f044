"""Traces: one request through all processes involved, and no user data in it."""

from collections.abc import Iterator
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.system import Person, record
from tests.waiting import polled
from tests.webhook_receiver import Receiver

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
CANARY = "Wolframite"


@dataclass(frozen=True)
class Seen:
    """A span as the collector received it."""

    service: str
    name: str
    id: str
    parent: str
    attributes: dict[str, str]
    failed: bool


def of_trace(collector: Receiver, trace: str) -> dict[str, Seen]:
    """Return the spans of a trace that have arrived, by name."""
    return {span.name: span for span in _spans(collector, trace)}


def _spans(collector: Receiver, trace: str) -> Iterator[Seen]:
    for call in list(collector.received):
        for resource in ExportTraceServiceRequest.FromString(call.body).resource_spans:
            about = {one.key: one.value.string_value for one in resource.resource.attributes}
            for span in (one for scope in resource.scope_spans for one in scope.spans):
                if span.trace_id.hex() == trace:
                    yield Seen(
                        service=about["service.name"],
                        name=span.name,
                        id=span.span_id.hex(),
                        parent=span.parent_span_id.hex(),
                        attributes={
                            one.key: one.value.string_value or str(one.value.int_value)
                            for one in span.attributes
                        },
                        failed=span.status.code == span.status.STATUS_CODE_ERROR,
                    )


def ask(person: Person, code: str, trace: str) -> int:
    status, _ = person.client.request(
        "POST",
        f"users/{person.user_id}/query/?wait=100",
        {"code": code},
        headers={"traceparent": f"00-{trace}-{CALLER}-01"},
    )
    return status


def test_query_is_one_trace_from_caller_to_sandbox(person: Person, collector: Receiver) -> None:
    person.log(record("Trip", CANARY, domain="travel", to=CANARY))

    assert ask(person, f"[trip.to for trip in trips] + ['{CANARY}']", TRACE) == 200

    seen = polled(lambda: of_trace(collector, TRACE), lambda spans: len(spans) >= 3)
    request = seen["POST /v1/users/<user:user_id>/query/"]
    task = seen["workers.runs"]
    evaluated = seen["sandbox evaluate"]
    assert (request.parent, task.parent, evaluated.parent) == (CALLER, request.id, task.id)
    assert (request.service, task.service) == ("uac-web", "uac-worker")
    assert request.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/users/<user:user_id>/query/",
        "http.response.status_code": "200",
    }
    assert not any(span.failed for span in seen.values())


def test_failed_span_has_the_error_type_and_no_content(person: Person, collector: Receiver) -> None:
    trace = TRACE[::-1]
    person.log(record("Trip", "a", domain="travel", to="Rome"))

    assert ask(person, f"1 / len('{CANARY}'[:0])", trace) == 422

    seen = polled(lambda: of_trace(collector, trace), lambda spans: len(spans) >= 3)
    assert seen["sandbox evaluate"].failed
    assert seen["sandbox evaluate"].attributes["error.type"] == "SandboxError"
    # The request is answered as usual, and no span has contained user data.
    assert not seen["POST /v1/users/<user:user_id>/query/"].failed
    told = b"".join(call.body for call in collector.received)
    assert CANARY.encode() not in told
    assert person.user_id.encode() not in told

"""The OpenAPI document describes what the API does."""

import json
from typing import Any

import pytest
import yaml
from django.conf import settings
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema
from rest_framework.test import APIClient

from memory import urls
from memory.kernel.http.openapi import operations
from memory.kernel.http.reference import made


def generated() -> dict[str, Any]:
    document: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return document


def test_the_document_is_valid_and_leaves_nothing_to_guess() -> None:
    GENERATOR_STATS.reset()

    document = generated()

    validate_schema(document)  # type: ignore[no-untyped-call]
    GENERATOR_STATS.emit_summary()
    assert not GENERATOR_STATS, "warnings are printed above"


def test_every_address_of_the_api_is_in_the_document() -> None:
    document = generated()

    names = {pattern.name for pattern in urls.urlpatterns}
    # Git has a protocol of its own.
    assert len(document["paths"]) == len(names - {"openapi", "unknown", "git"})
    assert document["components"]["securitySchemes"]["ApiKey"]["scheme"] == "bearer"


# These use POST, and change nothing.
READS = ("query", "search", "context")


def test_every_write_takes_an_idempotency_key() -> None:
    without, keyed = set(), 0
    for path, method, operation in operations(generated()):
        if method == "get" or path.endswith(tuple(f"/{name}" for name in READS)):
            continue
        headers = [item["name"] for item in operation["parameters"] if item["in"] == "header"]
        if "Idempotency-Key" not in headers:
            without.add((method, path))
            continue
        keyed += 1
        assert "Idempotent-Replayed" in json.dumps(operation["responses"])

    assert without == set()
    assert keyed > 30


def test_every_list_has_a_cursor() -> None:
    document = generated()
    schemas = document["components"]["schemas"]
    without = set()
    for path, method, operation in operations(document):
        told = operation["responses"].get("200", {}).get("content", {}).get("application/json", {})
        name = told.get("schema", {}).get("$ref", "").rpartition("/")[2]
        names = {item["name"] for item in operation.get("parameters", [])}
        if "results" in schemas.get(name, {}).get("properties", {}) and not (
            {"cursor", "page_size"} <= names
        ):
            without.add((method, path))

    # The feed is read by the numbers of its events.
    assert without == {("get", "/v1/events"), ("get", "/v1/users/{user_id}/events")}


def test_only_these_fields_of_answers_may_be_left_out() -> None:
    schemas = generated()["components"]["schemas"]

    optional = {
        name: set(schema["properties"]) - set(schema.get("required", ()))
        for name, schema in schemas.items()
        if "properties" in schema and not name.endswith("Request")
    }

    # The fields of an event's details depend on its kind; all of a filter's are optional.
    del optional["AlertEventDetail"], optional["SearchFilter"]
    failed = {"request_id", "errors", "limit"}
    assert {name: fields for name, fields in optional.items() if fields} == {
        "AlertThen": {"state_then"},
        "Appended": {"widened", "constraints_to_check"},
        "FailedRun": failed | {"id", "outcome", "error", "verdict"},
        "GateFinding": set(schemas["GateFinding"]["properties"]) - {"code", "message", "blocking"},
        "Problem": failed,
        "RunError": {"traceback", "infrastructure", "provider_said"},
        "Verdict": {"restored", "redaction"},
    }


def test_every_operation_tells_its_errors_and_headers() -> None:
    document = generated()
    for path, method, operation in operations(document):
        responses = {
            status: document["components"]["responses"][status] if "$ref" in told else told
            for status, told in operation["responses"].items()
        }
        for status in ("400", "401", "403", "404", "405", "406", "422", "429", "500", "503"):
            assert "application/problem+json" in responses[status]["content"], (method, path)
        for status, response in responses.items():
            assert {"X-Request-Id", "RateLimit", "RateLimit-Policy"} <= response["headers"].keys()
            if status == "202":
                assert {"Location", "Retry-After"} <= response["headers"].keys()
        assert ("304" in responses) == (method == "get")
        assert operation["security"] == [{"ApiKey": []}]


# Operations whose recorded answer is an ordinary error.
REFUSED = {
    ("/v1/users/{user_id}/ask", "post"),
    ("/v1/runs/{run_id}/cancel", "post"),
    ("/v1/runs/{run_id}/retry", "post"),
    ("/v1/backtests/{backtest_id}/cancel", "post"),
}


def test_every_operation_has_an_example_that_holds() -> None:
    document = generated()
    for path, method, operation in operations(document):
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if body is not None:
            assert "example" in body, (method, path)
            hold(body["example"], body["schema"], document)
        # If the tour's request was refused, the answer is an error's.
        shown = [
            (told["example"], told["schema"])
            for response in operation["responses"].values()
            for told in response.get("content", {}).values()
            if "example" in told
        ]
        whole = {"200", "201", "202"} & operation["responses"].keys()
        is_json = any(
            "application/json" in operation["responses"][status].get("content", {})
            for status in whole
        )
        assert shown or not is_json or (path, method) in REFUSED, (method, path)
        for example, schema in shown:
            hold(example, schema, document)


def hold(example: Any, schema: dict[str, Any], document: dict[str, Any]) -> None:
    """Fail unless the example matches the schema."""
    # Imported here: with all its formats that takes more than a second.
    import jsonschema

    whole = {**schema, "components": document["components"]}
    jsonschema.Draft202012Validator(whole).validate(example)


def test_the_copy_in_the_documentation_is_of_this_code() -> None:
    copy = yaml.safe_load((settings.BASE_DIR / "docs" / "openapi.yaml").read_text())

    assert copy == json.loads(json.dumps(generated())), "write it anew: make generate"


@pytest.mark.django_db
def test_the_document_is_served_without_a_key() -> None:
    response = APIClient().get("/v1/openapi.json")

    assert response.status_code == 200
    assert json.loads(response.content)["openapi"].startswith("3.")


def test_document_is_generated_once_and_not_sent_again() -> None:
    client = APIClient()
    first = client.get("/v1/openapi.json")

    again = client.get("/v1/openapi.json", HTTP_IF_NONE_MATCH=first["ETag"])

    assert (again.status_code, again.content) == (304, b"")
    assert made.cache_info().misses == 1

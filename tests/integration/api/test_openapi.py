"""The OpenAPI document says what the API does."""

import json
from typing import Any

import pytest
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema
from rest_framework.test import APIClient

from memory.api import urls


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
    assert len(document["paths"]) == len(names - {"openapi", "unknown"})
    assert document["components"]["securitySchemes"]["ApiKey"]["scheme"] == "bearer"


def test_every_write_takes_an_idempotency_key_and_a_query_does_not() -> None:
    keyed = set()
    for path, operations in generated()["paths"].items():
        for method, operation in operations.items():
            if any(item["name"] == "Idempotency-Key" for item in operation.get("parameters", [])):
                keyed.add((method, path))
                for status in ("409", "422"):
                    assert "application/problem+json" in operation["responses"][status]["content"]

    writes = {
        (method, path)
        for path, operations in generated()["paths"].items()
        for method in operations
        if method in {"post", "put", "patch", "delete"}
    }
    # Of a webhook's secret there is no second copy to answer with, and to repeat what is said of a
    # workspace's constraints changes nothing; of a backtest that goes on there is one.
    unkeyed = {
        (method, path)
        for method, path in writes
        if path.startswith(("/v1/webhooks/", "/v1/constraints/")) or "/backtests/" in path
    }
    asked = {
        ("post", f"/v1/users/{{user_id}}/{name}/") for name in ("query", "search", "ask", "context")
    }
    assert keyed == writes - unkeyed - asked
    assert len(keyed) == 14


@pytest.mark.django_db
def test_the_document_is_served_without_a_key() -> None:
    response = APIClient().get("/v1/openapi.json")

    assert response.status_code == 200
    assert json.loads(response.content)["openapi"].startswith("3.")

"""The OpenAPI document says what the API does."""

import pytest
from django.urls import get_resolver
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.management.commands.spectacular import GENERATOR_STATS
from drf_spectacular.validation import validate_schema
from rest_framework.test import APIClient


def test_the_document_is_valid_and_leaves_nothing_to_guess() -> None:
    GENERATOR_STATS.reset()

    document = SchemaGenerator().get_schema(request=None, public=True)

    validate_schema(document)
    GENERATOR_STATS.emit_summary()
    assert not GENERATOR_STATS, "warnings are printed above"


def test_every_address_of_the_api_is_in_the_document() -> None:
    document = SchemaGenerator().get_schema(request=None, public=True)
    (api,) = [pattern for pattern in get_resolver().url_patterns if str(pattern.pattern) == "v1/"]

    names = {pattern.name for pattern in api.url_patterns}
    assert len(document["paths"]) == len(names - {"openapi"})
    assert document["components"]["securitySchemes"]["ApiKey"]["scheme"] == "bearer"


@pytest.mark.django_db
def test_the_document_is_served_without_a_key() -> None:
    assert APIClient().get("/v1/openapi.json", HTTP_ACCEPT="application/json").status_code == 200

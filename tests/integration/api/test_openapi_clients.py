"""Rules of the OpenAPI document without which clients are generated wrongly, or not at all.

`tests/acceptance/test_clients.py` runs the generators themselves.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.kernel.http.openapi import operations
from tests.integration.api.test_openapi import generated, hold

SCHEMAS = "#/components/schemas/"
# Keywords that describe a schema without saying anything about values.
WORDS = {"description", "title", "default", "example", "readOnly", "writeOnly"}
# Conditions, which generators leave out.
CONDITIONS = {"if", "then", "else", "not", "propertyNames", "dependentSchemas"}
# The only schema of any value: it has a name.
ANYTHING = "JsonValue"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(json.dumps(generated()))
    return whole


def inner_schemas(schema: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield a schema and everything in it that generators read, each with its place."""
    yield place, schema
    if not isinstance(schema, dict):
        return
    for name, inner in schema.get("properties", {}).items():
        yield from inner_schemas(inner, f"{place}.{name}")
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from inner_schemas(schema[keyword], f"{place}[{keyword}]")
    for keyword in ("oneOf", "anyOf", "allOf"):
        for number, inner in enumerate(schema.get(keyword, ())):
            yield from inner_schemas(inner, f"{place}.{keyword}[{number}]")


def all_schemas(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, schema in document["components"]["schemas"].items():
        yield from inner_schemas(schema, name)
    for path, method, operation in operations(document):
        for content in operation.get("requestBody", {}).get("content", {}).values():
            yield from inner_schemas(content["schema"], f"{method} {path}")
        for status, response in operation["responses"].items():
            for content in response.get("content", {}).values():
                yield from inner_schemas(content["schema"], f"{method} {path} {status}")


def test_no_schema_is_true_or_false(document: dict[str, Any]) -> None:
    assert [place for place, schema in all_schemas(document) if isinstance(schema, bool)] == []


def test_every_field_has_a_type(document: dict[str, Any]) -> None:
    untyped = [
        place
        for place, schema in all_schemas(document)
        if isinstance(schema, dict)
        and not schema.keys() - WORDS - CONDITIONS
        # The values of an object whose keys are the caller's own.
        and not place.endswith("[additionalProperties]")
    ]

    assert set(untyped) <= {ANYTHING, "PlainValue"}


def test_no_field_has_several_types_except_null(document: dict[str, Any]) -> None:
    several = [
        place
        for place, schema in all_schemas(document)
        if isinstance(schema.get("type"), list) and len({*schema["type"]} - {"null"}) != 1
    ]

    assert several == []


def test_no_choice_is_a_choice_again(document: dict[str, Any]) -> None:
    def is_choice(schema: Mapping[str, Any]) -> bool:
        named = schema.get("$ref", "").removeprefix(SCHEMAS)
        whole = document["components"]["schemas"][named] if named else schema
        return bool({"oneOf", "anyOf"} & whole.keys())

    nested = [
        place
        for place, schema in all_schemas(document)
        for one in (*schema.get("oneOf", ()), *schema.get("anyOf", ()))
        if is_choice(one)
    ]

    assert nested == []


def test_a_choice_has_no_fields_beside_it(document: dict[str, Any]) -> None:
    """Generators would take the alternatives for the whole type."""
    both = [
        place
        for place, schema in all_schemas(document)
        if {"oneOf", "anyOf"} & schema.keys() and {"properties", "type"} & schema.keys()
    ]

    assert both == []


def test_at_most_one_schema_of_a_choice_is_an_enum(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    several = [
        place
        for place, schema in all_schemas(document)
        if sum(
            "enum" in (schemas[one["$ref"].removeprefix(SCHEMAS)] if "$ref" in one else one)
            for one in schema.get("oneOf", ())
        )
        > 1
    ]

    assert several == []


def test_parameters_of_a_path_are_in_its_order(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        names = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"]
        assert names == re.findall(r"\{(\w+)\}", path), (method, path)
        assert [one["name"] for one in operation.get("parameters", ())[: len(names)]] == names


def test_every_operation_has_an_id_of_its_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]

    assert len({*names}) == len(names)


def test_no_field_of_a_body_has_a_default(document: dict[str, Any]) -> None:
    """`openapi-typescript` would require the field."""
    with_default = [
        place
        for place, schema in all_schemas(document)
        if place.split(".")[0].endswith("Request") and "default" in schema
    ]

    assert with_default == []


def test_every_schema_is_used(document: dict[str, Any]) -> None:
    text = json.dumps(document)

    unused = [
        name for name in document["components"]["schemas"] if f'"{SCHEMAS}{name}"' not in text
    ]
    assert unused == []


def test_no_schema_is_named_like_one_of_its_fields(document: dict[str, Any]) -> None:
    """`openapi-python-client` would have two variables of one name."""
    alike = [
        name
        for name, schema in document["components"]["schemas"].items()
        if re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() in schema.get("properties", {})
    ]

    assert alike == []


def test_document_satisfies_linters(document: dict[str, Any]) -> None:
    assert document["servers"]
    assert document["info"]["license"]
    assert document["info"]["contact"]
    described = {tag["name"] for tag in document["tags"] if tag["description"]}
    for path, method, operation in operations(document):
        assert {*operation["tags"]} <= described, (method, path)
        assert not path.endswith("/"), path


def test_conditions_on_bodies_say_what_the_server_refuses(document: dict[str, Any]) -> None:
    """They replace choices, so they must still be exact."""
    import jsonschema

    record = {"kind": "record", "type": "Trip"}
    text = {"kind": "fact", "content": "x"}
    constraint = {"name": "late", "source": "x", "tests": "y"}
    for name, good, bad in (
        (
            "NewEntryRequest",
            [text, {**record, "data": {}}, {**record, "key": "a", "retired": True}],
            [
                {"kind": "fact"},
                {**text, "type": "Trip"},
                record,
                {**record, "data": {}, "content": "x"},
                {**record, "retired": True},
                {**record, "key": "a", "retired": False},
                {"kind": "record", "data": {}},
            ],
        ),
        (
            "NewWorkspaceConstraintRequest",
            [{"library": "budget_exceeded", "description": "x"}, constraint],
            [{}, {"name": "late"}, {**constraint, "library": "budget_exceeded"}],
        ),
        (
            "ProposalRequest",
            [{"edits": [{"op": "note", "text": "x", "sources": [1]}]}, {"files": {"a.py": ""}}],
            [{}, {"edits": []}, {"files": {}}, {"version": 1, "edits": [{}]}],
        ),
        ("SelectionRequest", [{"entries": [1]}, {"session_id": "a"}], [{}, {"reason": "x"}]),
    ):
        for body in good:
            hold(body, {"$ref": SCHEMAS + name}, document)
        for body in bad:
            with pytest.raises(jsonschema.ValidationError):
                hold(body, {"$ref": SCHEMAS + name}, document)


@pytest.mark.django_db
def test_the_final_slash_of_a_path_is_optional(api: APIClient) -> None:
    assert api.post("/v1/users", {"user_id": "ada"}).status_code == 201
    for path in ("users", "users/ada", "users/ada/entries", "alerts"):
        without, with_slash = api.get(f"/v1/{path}"), api.get(f"/v1/{path}/")
        assert (without.status_code, without.data) == (200, with_slash.data)
    logged = api.post("/v1/users/ada/entries", {"kind": "fact", "content": "x"})
    assert logged.status_code in (200, 201, 202)
    assert api.get("/v1/users/ada/entries/1").data == logged.data["entries"][0]

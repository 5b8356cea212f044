"""`/docs/`: the API reference as a web page, generated from the OpenAPI document.

The page has no scripts and needs no other server, so it works wherever this server is reachable.
"""

import functools
import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.request import Request

from memory.kernel.http.openapi import operations

MAX_DEPTH = 4


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Return the reference page, which is public."""
    return HttpResponse(_rendered())


@functools.cache
def _rendered() -> str:
    document = json.loads(made())
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, method, operation in operations(document):
        (tag, *_) = operation.get("tags") or ["other"]
        groups.setdefault(tag, []).append(_operation(document, path, method, operation))
    info = document["info"]
    return render_to_string("reference/page.html", {"info": info, "groups": sorted(groups.items())})


def _operation(
    document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]
) -> dict[str, Any]:
    body = operation.get("requestBody", {}).get("content", {})
    return {
        "id": operation["operationId"],
        "method": method.upper(),
        "path": path,
        "summary": operation.get("summary", ""),
        "description": operation.get("description", ""),
        "parameters": [
            {**one, "type": _type(one.get("schema", {}))} for one in operation.get("parameters", [])
        ],
        "body": [
            (media_type, list(_fields(document, content["schema"])), _json(content.get("example")))
            for media_type, content in body.items()
        ],
        "responses": [
            (code, *_response(document, response))
            for code, response in operation["responses"].items()
        ],
    }


def _response(
    document: Mapping[str, Any], response: Mapping[str, Any]
) -> tuple[str, list[tuple[int, str, str, str]], str]:
    """Return a response's description, its fields and an example.

    Common errors have only a description.
    """
    if "$ref" in response:
        return _resolved(document, response)["description"], [], ""
    fields: list[tuple[int, str, str, str]] = []
    example = ""
    for content in response.get("content", {}).values():
        fields = fields or list(_fields(document, content.get("schema", {})))
        example = example or _json(content.get("example"))
    return response.get("description", ""), fields, example


def _json(example: Any) -> str:
    return json.dumps(example, indent=1, ensure_ascii=False) if example is not None else ""


def _resolved(document: Mapping[str, Any], schema: Any) -> Mapping[str, Any]:
    """Return a schema, with a reference resolved; return an empty schema if anything is allowed."""
    if not isinstance(schema, Mapping):
        return {}
    while "$ref" in schema:
        target: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        schema = {**target, **{name: one for name, one in schema.items() if name != "$ref"}}
    resolved: Mapping[str, Any] = schema
    return resolved


def _fields(
    document: Mapping[str, Any], schema: Any, depth: int = 0
) -> Iterator[tuple[int, str, str, str]]:
    """Yield the depth, name, type and description of a schema's fields, including nested ones."""
    schema = _resolved(document, schema)
    for one in [*schema.get("oneOf", ()), *schema.get("allOf", ()), *schema.get("anyOf", ())]:
        if depth < MAX_DEPTH:
            yield from _fields(document, one, depth)
    for name, given in schema.get("properties", {}).items():
        field = _resolved(document, given)
        needed = " *" if name in schema.get("required", ()) else ""
        yield depth, name + needed, _type(field), field.get("description", "")
        inner = field.get("items", field)
        if depth + 1 < MAX_DEPTH:
            yield from _fields(document, inner, depth + 1)
    if "items" in schema and depth < MAX_DEPTH:
        yield from _fields(document, schema["items"], depth)


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(str(one) for one in schema["enum"] if one not in ("", None))
    kind = schema.get("type", "any JSON" if "$ref" not in schema else "object")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


_lock = threading.Lock()


class Document(SpectacularJSONAPIView):
    """The OpenAPI document, as JSON."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        """Return the document."""
        with _lock:  # make sure that only one thread builds the document
            document = made()
        return HttpResponse(document, content_type=OpenApiJsonRenderer.media_type)


@functools.cache
def made() -> bytes:
    """Return the document as JSON, cached after the first call."""
    document = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    rendered: bytes = OpenApiJsonRenderer().render(document, renderer_context={})
    return rendered

"""The OpenAPI document: what all operations have in common, and examples.

The document is generated from the code; a test checks that `docs/openapi.yaml` is up to date. The
generator learns a list's model from the view's attribute `queryset`; requests call `get_queryset`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from drf_spectacular.openapi import AutoSchema
from rest_framework.fields import empty

from memory.kernel.http.problems import CONTENT_TYPE, NAMESPACE
from memory.kernel.http.serializers import LOWER_NAME, StrictSerializer
from memory.kernel.models.users import USER_ID_PATTERN

EXAMPLES = Path(__file__).with_name("examples.json")

_PARAMETER = re.compile(r"\{(\w+)\}")
# Matches the first sentence of a text, or only the first clause of that sentence.
_SENTENCE = re.compile(r".*?[.;:](?= |$)")

_SCHEMAS = "#/components/schemas/"
# The schemas that the generator makes for choices that may be empty or null.
_BLANK, _NULL = {"$ref": f"{_SCHEMAS}BlankEnum"}, {"$ref": f"{_SCHEMAS}NullEnum"}
READ = ("get", "head")
# The first part of a path → what is below it.
TAGS: Mapping[str, str] = {
    "alerts": "Alerts of all users.",
    "backtests": "Constraints run over the history of users.",
    "constraint-library": "Constraints that come with the server.",
    "constraint-precision": "How useful the alerts of each constraint were.",
    "constraints": "Constraints for all users of a workspace.",
    "erasures": "The progress of erasures of users.",
    "events": "What happens to alerts and entries, in order.",
    "paused-constraints": "Constraints that raised too many alerts.",
    "runs": "Queries, questions, proposals and imports that are or were executed.",
    "schema": "The classes that a workspace prescribes for its users' projects.",
    "users": "Users, what is known about them, and questions about it.",
    "webhooks": "Endpoints that receive alerts, and deliveries to them.",
}
# Status → default description of the error, for operations that don't declare one themselves.
ERRORS: Mapping[str, str] = {
    "400": "The URL, a parameter, a header or the body is invalid: `errors` names the field.",
    "401": "The API key is missing or invalid.",
    "403": "The key lacks the required scope, or a quota is exceeded (then with `limit`).",
    "404": "The resource does not exist, or this key cannot access it.",
    "405": "The endpoint does not allow the method.",
    "406": "The `Accept` header allows none of the available formats.",
    "409": "The request conflicts with the current state.",
    "410": "The content was redacted, or is based on redacted content.",
    "412": "The content does not match `If-Match`.",
    "413": "The body is too large.",
    "415": "The `Content-Type` is not supported here.",
    "422": "The request is well formed but cannot be carried out. For fields that cannot be"
    " combined, `errors` names one.",
    "429": "A rate limit is exceeded.",
    "500": "The server failed.",
    "503": "Temporarily unavailable. Try again in a moment.",
}
# Schemas of the parts of paths.
IN_PATHS: Mapping[str, Mapping[str, Any]] = {
    "name": LOWER_NAME,
    "user_id": {"pattern": f"^{USER_ID_PATTERN.pattern}$"},
    **{name: {"minimum": 1, "maximum": 2**31 - 1} for name in ("number", "seq", "version")},
}
ALWAYS = ("400", "401", "403", "404", "405", "406", "409", "410", "412", "422", "429", "500", "503")
WITH_BODY = ("413", "415")

_PROBLEM = {"schema": {"$ref": "#/components/schemas/Problem"}}
_TEXT = {"type": "string"}
HEADERS: Mapping[str, Any] = {
    "X-Request-Id": {
        "description": "Identifies the request: the value of the request's own `X-Request-Id` if"
        " that has 1 to 128 of the characters A-Z a-z 0-9 . _ : -, otherwise a new id.",
        "schema": _TEXT,
        "required": True,
    },
    "RateLimit": {
        "description": "The rate limits that apply to the request, such as"
        ' `"reads_per_minute";r=11999;t=1`: the remaining requests `r`, and the seconds `t`'
        " until the full rate is available again.",
        "schema": _TEXT,
    },
    "RateLimit-Policy": {
        "description": 'The rate limits, such as `"reads_per_minute";q=12000;w=60`: `q`'
        " requests in `w` seconds.",
        "schema": _TEXT,
    },
    "ETag": {"description": "For `If-None-Match` and `If-Match`.", "schema": _TEXT},
    "Retry-After": {
        "description": "Seconds to wait before the next attempt.",
        "schema": {"type": "integer"},
    },
    "Location": {
        "description": "The URL of the created resource, or of its progress.",
        "schema": _TEXT,
    },
    "Idempotent-Replayed": {
        "description": "`true`: the request was carried out earlier, and was not repeated.",
        "schema": {"type": "string", "enum": ["true"]},
    },
    "WWW-Authenticate": {"description": "How to send the API key.", "schema": _TEXT},
}


class Schema(AutoSchema):
    """The schemas of one view."""

    def _map_basic_serializer(self, serializer: Any, direction: str) -> dict[str, Any]:
        """Require each field of a response except those declared with `required=False` alone.

        The generator does not require a field whose column may be null or has a default.
        """
        schema: dict[str, Any] = super()._map_basic_serializer(serializer, direction)  # type: ignore[no-untyped-call]
        if direction != "response":
            return schema
        declared = serializer._declared_fields
        required = [
            name
            for name in schema.get("properties", ())
            if (field := declared.get(name)) is None
            or field.required
            or field.read_only
            or field.default is not empty
        ]
        return {**schema, "required": sorted(required)} if required else schema


def paths_without_final_slash(endpoints: list[Any], **more: Any) -> list[Any]:
    """Leave out the paths with a final slash, which is optional, and which linters refuse."""
    return [endpoint for endpoint in endpoints if not endpoint[0].endswith("/")]


def complete(result: dict[str, Any], generator: Any, **more: Any) -> dict[str, Any]:
    """Add what all operations have in common to the document: errors, headers, limits, examples.

    Rules that the fields of a body cannot express are in its serializer's `rules`.
    """
    components = result["components"]
    components["headers"] = dict(HEADERS)
    components["responses"] = _shared()
    schemas = components["schemas"]
    for name, schema in schemas.items():
        if name.endswith("Request") and schema.get("type") == "object":
            schema["additionalProperties"] = False
            _defaults(schema)
    schemas["JsonValue"] = {"description": "Any JSON value."}
    for body in _bodies(StrictSerializer):
        name = body.__name__.removesuffix("Serializer")
        for component in {f"{name}Request", f"Patched{name}Request"} & schemas.keys():
            # As JSON, so that nothing below changes the rules, or several places at once.
            _merge(schemas[component], json.loads(json.dumps(body.rules)))
            schemas |= json.loads(json.dumps(body.definitions))
    _anything(result)
    _choices(result, schemas)
    _conditions(schemas)
    examples = json.loads(EXAMPLES.read_text()) if EXAMPLES.exists() else {}
    for path, method, operation in operations(result):
        _summary(operation)
        _errors(method, operation)
        _body(operation, schemas)
        _parameters(path, operation)
        for code, response in operation["responses"].items():
            _headers(method, code, response)
        _example(operation, examples.get(f"{method.upper()} {path}", {}))
    _remove_unused(result)
    tags = {tag for _, _, operation in operations(result) for tag in operation["tags"]}
    result["tags"] = [{"name": tag, "description": TAGS[tag]} for tag in sorted(tags)]
    return result


def _bodies(body: type[StrictSerializer]) -> Iterator[type[StrictSerializer]]:
    for subclass in body.__subclasses__():
        yield subclass
        yield from _bodies(subclass)


def _choices(schema: Any, schemas: dict[str, Any]) -> None:
    """Replace the generator's `oneOf` of an enum and the enums of "" or null by single schemas.

    Each enum that allows "" becomes a schema of its own: generated clients cannot read a choice
    between two enums.
    """
    if isinstance(schema, list):
        for inner in schema:
            _choices(inner, schemas)
    if not isinstance(schema, dict):
        return
    if _NULL in schema.get("oneOf", ()):
        schema["oneOf"][schema["oneOf"].index(_NULL)] = {"type": "null"}
    if _BLANK in schema.get("oneOf", ()):
        enum, *rest = (one for one in schema.pop("oneOf") if one != _BLANK)
        name = enum["$ref"].rpartition("/")[2]
        blank = f"{name.removesuffix('Enum')}OrBlankEnum"
        schemas[blank] = {**schemas[name], "enum": ["", *schemas[name]["enum"]]}
        schema |= _one_of([{"$ref": _SCHEMAS + blank}, *rest])
    for inner in list(schema.values()):
        _choices(inner, schemas)


def _defaults(body: dict[str, Any]) -> None:
    """Put the defaults of a body's fields into words: as a keyword, some clients require them."""
    for field in body.get("properties", {}).values():
        default = field.pop("default", None)
        if default not in (None, "", [], {}) and "default" not in field.get("description", ""):
            text = f"Default: {json.dumps(default)}."
            field["description"] = (
                f"{field['description']} {text}" if "description" in field else text
            )


def _conditions(schema: Any, *, is_condition: bool = False) -> None:
    """Declare in each `if`, `then` and `else` that the schema around it has more properties.

    Linters judge these parts by themselves, where generated clients leave them out.
    """
    if isinstance(schema, list):
        for inner in schema:
            _conditions(inner, is_condition=is_condition)
    if not isinstance(schema, dict):
        return
    if is_condition and {"required", "properties", "propertyNames"} & schema.keys():
        properties = schema.setdefault("properties", {})
        for name in schema.get("required", ()):
            properties.setdefault(name, {})
        schema.setdefault("additionalProperties", {})
    for name, inner in schema.items():
        if name in ("if", "then", "else"):
            _conditions(inner, is_condition=True)
        elif name in ("anyOf", "allOf", "oneOf"):
            _conditions(inner, is_condition=is_condition)
        else:
            _conditions(inner)


def _one_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    return {"oneOf": schemas} if len(schemas) > 1 else schemas[0]


def _remove_unused(document: dict[str, Any]) -> None:
    """Remove the components that nothing refers to, such as those that rules replace."""
    schemas = document["components"]["schemas"]
    used: set[str] = set()
    pending = {
        name for part in ("paths", "components") for name in _named(document[part], skip=schemas)
    }
    while pending:
        used |= pending
        pending = {name for one in pending for name in _named(schemas[one])} - used
    for name in schemas.keys() - used:
        del schemas[name]


def _named(value: Any, skip: Any = None) -> Iterator[str]:
    """Yield the names of the schemas that a part of the document refers to, except in `skip`."""
    if value is skip:
        return
    if isinstance(value, dict):
        if isinstance(reference := value.get("$ref"), str) and reference.startswith(_SCHEMAS):
            yield reference.removeprefix(_SCHEMAS)
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _named(inner, skip)


def _anything(schema: Any) -> None:
    """Allow null where any JSON is allowed; the generator's `oneOf` of {} and null forbids it."""
    if isinstance(schema, dict):
        if {} in schema.get("oneOf", ()):
            del schema["oneOf"]
        if schema.pop("nullable", None) is True:  # a keyword of OpenAPI 3.0
            schema["type"] = [schema["type"], "null"]
        for inner in schema.values():
            _anything(inner)
    elif isinstance(schema, list):
        for inner in schema:
            _anything(inner)


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Merge `more` into `into` recursively; a null in `more` removes the value."""
    for name, value in more.items():
        if value is None:
            del into[name]
        elif isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = value


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (path, method, operation) for each operation."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _summary(operation: dict[str, Any]) -> None:
    """Derive an operation's summary from the first sentence of its description."""
    first = " ".join(operation.get("description", "").partition("\n\n")[0].split())
    sentence = _SENTENCE.match(first)
    operation["summary"] = (sentence[0] if sentence else first).rstrip(".;:")


def _body(operation: dict[str, Any], schemas: Mapping[str, Any]) -> None:
    """Mark a body as required if it has several forms or any required field.

    The generator does this only for bodies with a single form.
    """
    if (body := operation.get("requestBody")) is None:
        return
    for media_type in body["content"].values():
        schema = media_type["schema"]
        schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        if schema.get("required") or {"oneOf", "anyOf"} & schema.keys():
            body["required"] = True


def _errors(method: str, operation: dict[str, Any]) -> None:
    """Add the errors that an operation doesn't declare, or declares with only a description."""
    responses = operation["responses"]
    for code in [*ALWAYS, *(WITH_BODY if "requestBody" in operation else ())]:
        response = responses.setdefault(code, {"$ref": f"#/components/responses/{code}"})
        if "$ref" not in response:
            response.setdefault("content", {}).setdefault(CONTENT_TYPE, _PROBLEM)
            response["description"] = response.get("description") or ERRORS[code]
    if method == "get":
        responses["304"] = {"$ref": "#/components/responses/304"}
    operation["responses"] = dict(sorted(responses.items()))


def _shared() -> dict[str, Any]:
    """Return the responses shared between operations."""
    responses: dict[str, Any] = {
        code: {"description": text, "content": {CONTENT_TYPE: _PROBLEM}}
        for code, text in ERRORS.items()
    }
    responses["304"] = {"description": "The content matches `If-None-Match`."}
    for code, response in responses.items():
        _headers("get", code, response)
    return responses


def _headers(method: str, code: str, response: dict[str, Any]) -> None:
    if "$ref" in response:
        return
    names = ["X-Request-Id", "RateLimit", "RateLimit-Policy"]
    if method == "get" and code in ("200", "304"):
        names.append("ETag")
    if code in ("201", "202"):
        names.append("Location")
    if code in ("202", "409", "429", "503"):
        names.append("Retry-After")
    if method != "get" and code < "300":
        names.append("Idempotent-Replayed")
    if code == "401":
        names.append("WWW-Authenticate")
    response["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _parameters(path: str, operation: dict[str, Any]) -> None:
    """Put the path's parameters first, in the path's order: clients take them by position."""
    named = _PARAMETER.findall(path)
    parameters = operation.get("parameters", [])
    parameters.sort(key=lambda one: named.index(one["name"]) if one["in"] == "path" else len(named))
    for parameter in parameters:
        if parameter["in"] == "path":
            parameter["schema"] |= IN_PATHS.get(parameter["name"], {})


def _example(operation: dict[str, Any], example: Mapping[str, Any]) -> None:
    """Add an operation's recorded request and response as examples."""
    if not example:
        return
    for parameter in operation.get("parameters", []):
        if parameter["name"] in example.get("parameters", {}):
            parameter["example"] = example["parameters"][parameter["name"]]
    for media_type in operation.get("requestBody", {}).get("content", {}).values():
        if "body" in example:
            media_type["example"] = example["body"]
            break
    response = operation["responses"][str(example["status"])]
    if "answer" not in example or "$ref" in response:
        return
    is_problem = str(example["answer"].get("type", "")).startswith(NAMESPACE)
    kind = CONTENT_TYPE if is_problem else "application/json"
    response["content"][kind]["example"] = example["answer"]

"""Shared parts of the serializers, which validate bodies strictly and never guess."""

import datetime
import difflib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.validators import ProhibitSurrogateCharactersValidator

from memory.kernel import instants
from memory.kernel.canonical import exact_json

# The schema of a name of a domain, a collection or a constraint.
LOWER_NAME = {"pattern": "^[a-z][a-z0-9_]{0,99}$", "format": "lower-name"}
MAX_OBJECT_BYTES = 256 * 1024
# Maximum number of errors returned for a body, so that the response does not grow with the body.
MAX_NAMED = 20
# Maximum length, in characters, of an entry number, a version, a day or a point in time.
MAX_MOMENT = 100


@extend_schema_field(
    {"oneOf": [{"type": "string", "maxLength": MAX_MOMENT}, {"type": "integer", "minimum": 1}]}
)
class MomentField(serializers.Field[str, Any, str, Any]):
    """A version, a day or a point in time as text, or an entry number as text or a JSON number."""

    def to_internal_value(self, data: Any) -> str:
        """Return the text; raises ValidationError if it is too long."""
        text = str(int(data) if isinstance(data, float) else data)
        if len(text) > MAX_MOMENT:
            raise serializers.ValidationError(f"Use at most {MAX_MOMENT} characters.")
        return text

    def to_representation(self, value: str) -> str:
        """Return the text."""
        return value


class DayStartField(serializers.DateTimeField):
    """A time, or a day, which means its start in the current time zone."""

    def to_internal_value(self, value: Any) -> datetime.datetime:
        """Return the time; raises ValidationError if it is neither a time nor a day."""
        span = _day(value)
        return span.first if span else super().to_internal_value(value)


class DayEndField(serializers.DateTimeField):
    """The end of a period: a time, or a day, which belongs to the period as a whole."""

    def to_internal_value(self, value: Any) -> datetime.datetime:
        """Return the time; raises ValidationError if it is neither a time nor a day."""
        span = _day(value)
        return span.after if span else super().to_internal_value(value)


def _day(value: Any) -> instants.Span | None:
    if not (isinstance(value, str) and instants.is_day(value)):
        return None
    with suppress(instants.BadMoment):
        return instants.span_in(timezone.get_current_timezone_name(), value)
    return None


class LabelField(serializers.CharField):
    """A label such as a key, as text; other systems also label with integers."""


# The JSON types that each kind of field accepts. The framework would accept 5 for "5" and "yes" for
# true.
_EXPECTED: Mapping[
    type[serializers.Field[Any, Any, Any, Any]], tuple[type | tuple[type, ...], str]
] = {
    MomentField: ((str, int), "a string or an integer"),
    LabelField: ((str, int), "a string or an integer"),
    serializers.CharField: (str, "a string"),
    serializers.ChoiceField: (str, "a string"),
    serializers.DateField: (str, "a string"),
    serializers.DateTimeField: (str, "a string"),
    serializers.BooleanField: (bool, "true or false"),
    serializers.IntegerField: (int, "an integer"),
    serializers.FloatField: ((int, float), "a number"),
    serializers.DictField: (dict, "an object"),
    serializers.ListField: (list, "a list"),
}
_JSON_NAMES: Mapping[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number with a fraction",
    dict: "an object",
    list: "a list",
    type(None): "null",
}


class StrictSerializer(serializers.Serializer[Any]):
    """A body that rejects unknown fields, so that a misspelt name is not ignored.

    A string must be a JSON string, a boolean true or false, and so on; strings are kept unchanged.
    An empty value (null, "", [] or {}) counts as not given if the field is optional and does not
    itself accept that value: agents' frameworks send one for every argument that they leave out.
    """

    # For the OpenAPI document: JSON schema to merge into the body's own, and further schemas.
    rules: ClassVar[Mapping[str, Any]] = {}
    definitions: ClassVar[Mapping[str, Any]] = {}

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return the fields, which keep whitespace and whose errors list the valid choices."""
        fields = super().get_fields()
        for field in fields.values():
            if isinstance(field, serializers.CharField):
                field.trim_whitespace = False
                # The parser already rejects lone surrogates in the whole body, in a tenth of the
                # time.
                field.validators = [
                    one
                    for one in field.validators
                    if not isinstance(one, ProhibitSurrogateCharactersValidator)
                ]
            choice = field.child if isinstance(field, serializers.ListField) else field
            if isinstance(choice, serializers.ChoiceField):
                choice.error_messages["invalid_choice"] = choose_one_of(choice.choices)
        return fields

    def to_internal_value(self, data: Any) -> Any:
        """Validate the fields; raises ValidationError naming the invalid fields."""
        if not isinstance(data, dict):
            raise serializers.ValidationError(not_an_object(data))
        if unknown := sorted(set(data) - set(self.fields)):
            raise serializers.ValidationError(unknown_fields(unknown, list(self.fields)))
        data = {
            name: value
            for name, value in data.items()
            if not is_empty(value) or _accepts_empty(self.fields[name], value)
        }
        mistyped = {
            name: [message]
            for name, field in self.fields.items()
            if name in data and (message := _mismatch(field, data[name]))
        }
        if mistyped:
            raise serializers.ValidationError(mistyped)
        return super().to_internal_value(data)


def validated(serializer: type[StrictSerializer], data: Any) -> dict[str, Any]:
    """Return a body's fields; raises ValidationError naming the invalid ones."""
    body = serializer(data=data)
    body.is_valid(raise_exception=True)
    fields: dict[str, Any] = body.validated_data
    return fields


def numbers(help_text: str | None = None) -> serializers.ListField:
    """Return a field for a list of integers, such as entry numbers."""
    return serializers.ListField(child=serializers.IntegerField(), help_text=help_text)


def strings(help_text: str | None = None, **options: Any) -> serializers.ListField:
    """Return a field for a list of strings."""
    return serializers.ListField(child=serializers.CharField(), help_text=help_text, **options)


class ObjectField(serializers.DictField):
    """A JSON object with arbitrary content, limited in size.

    Its values are not validated individually, since a body may contain half a million values.
    """

    def to_internal_value(self, data: Any) -> dict[Any, Any]:
        """Return the object; raises ValidationError if it is too large."""
        value: dict[Any, Any] = super().to_internal_value(data)
        size = len(exact_json(value))
        if size > MAX_OBJECT_BYTES:
            raise serializers.ValidationError(
                f"An object may have at most {MAX_OBJECT_BYTES} bytes as JSON; this one has {size}."
            )
        return value

    def run_child_validation(self, data: Any) -> Any:
        """Return the values unchanged: any JSON is allowed."""
        return data


def is_empty(value: Any) -> bool:
    """Return whether a value is null, "", [] or {}."""
    return value is None or (isinstance(value, str | list | dict) and not value)


def _accepts_empty(field: serializers.Field[Any, Any, Any, Any], value: Any) -> bool:
    """Return whether an empty value has a meaning of its own, or is an error: a required field's.

    For example, `metadata: {}` clears a user's metadata, and `description: ""` a description.
    """
    if field.required:
        return True
    if value is None:
        return field.allow_null
    if isinstance(value, str):
        return getattr(field, "allow_blank", False)
    kind = serializers.ListField if isinstance(value, list) else serializers.DictField
    return isinstance(field, kind) and field.allow_empty and not getattr(field, "min_length", None)


def choose_one_of(choices: Iterable[str]) -> str:
    """Return the error message for an invalid choice."""
    return f"Choose one of {', '.join(choices)}."


def not_an_object(data: Any) -> dict[str, list[str]]:
    """Return the error for a body that is no object."""
    return {"non_field_errors": [f"Send an object, not {_json_name(data)}."]}


def unknown_fields(unknown: list[str], allowed: list[str]) -> dict[str, list[str]]:
    """Return errors for a body's unknown fields, up to `MAX_NAMED` of them, keyed by field name."""
    errors = {}
    for name in unknown[:MAX_NAMED]:
        similar = difflib.get_close_matches(name[:100].strip().lower(), allowed, n=1, cutoff=0.8)
        hint = f" (did you mean {similar[0]}?)" if similar else ""
        errors[name[:100]] = [f"Unknown field{hint}; this body accepts: {', '.join(allowed)}."]
    return errors


def _mismatch(field: serializers.Field[Any, Any, Any, Any], value: Any) -> str | None:
    """Return an error that names the expected JSON type; None if the value has that type."""
    if value is None and field.allow_null:
        return None
    expected, name = next(
        (pair for kind, pair in _EXPECTED.items() if isinstance(field, kind)), (object, "")
    )
    if expected in (int, (str, int)) and isinstance(value, float) and value.is_integer():
        return None  # 5.0 is an integer in JSON
    if not isinstance(value, expected) or (
        isinstance(value, bool) and expected not in (bool, object)
    ):
        return f"Send {name}, not {_json_name(value)}."
    if isinstance(field, serializers.ListField) and isinstance(value, list):
        for index, item in enumerate(value):
            if message := _mismatch(field.child, item):
                return f"[{index}]: {message}"
    if isinstance(field, serializers.DictField) and not isinstance(field, ObjectField):
        for key, item in value.items():
            if message := _mismatch(field.child, item):
                return f"[{key[:100]!r}]: {message}"
    return None


def _json_name(value: Any) -> str:
    return _JSON_NAMES.get(type(value), type(value).__name__)

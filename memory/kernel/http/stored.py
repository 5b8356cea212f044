"""Fields for JSON that is stored as it is returned: unchanged, each with the schema of its form.

A serializer per form would convert every value again. The schemas are for the OpenAPI document.
"""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from memory.kernel.models.hosts import warning_of

ANY_OBJECT = {"type": "object", "additionalProperties": {}}


@extend_schema_field({"$ref": "#/components/schemas/JsonValue"})
class ValueField(serializers.JSONField):
    """Any JSON."""


@extend_schema_field({"anyOf": [{"type": "string"}, {"type": "integer"}]})
class EnumValueField(serializers.JSONField):
    """The value of an enum's member."""


@extend_schema_field(ANY_OBJECT)
class AnyObjectField(serializers.JSONField):
    """An object whose keys are the caller's own, or depend on another field."""


@extend_schema_field({"type": "object", "additionalProperties": {"type": "number"}})
class TimingsField(serializers.JSONField):
    """Stage → seconds that it took."""

    def __init__(self, **options: Any) -> None:
        super().__init__(help_text="Stage → seconds that it took.", **options)


@extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
class HashesField(serializers.JSONField):
    """Path → SHA-256 of the file."""


class WarningField(serializers.CharField):
    """A warning if a runner's sandboxes are meant for development only; otherwise null."""

    def __init__(self, help_text: str | None = None, source: str = "runner") -> None:
        super().__init__(source=source, allow_null=True, default=None, help_text=help_text)

    def to_representation(self, value: str) -> Any:
        """Return the warning of the runner with this name."""
        return warning_of(value)


class RecordNameSerializer(serializers.Serializer[Any]):
    """The name of a record."""

    domain = serializers.CharField()
    collection = serializers.CharField()
    key = serializers.CharField()


class EvidenceSerializer(RecordNameSerializer):
    """A record that is part of the evidence, with the numbers of the entries it comes from."""

    sources = serializers.ListField(child=serializers.IntegerField())

    def get_fields(self) -> dict[str, Any]:
        """Return the fields plus `class`, which can't be declared because it's a Python keyword."""
        return {"class": serializers.CharField(), **super().get_fields()}


@extend_schema_field(EvidenceSerializer(many=True))
class EvidenceField(serializers.JSONField):
    """The records that an alert is based on."""


class RunErrorSerializer(serializers.Serializer[Any]):
    """Why a run or a constraint failed."""

    type = serializers.CharField(
        help_text="The exception's class in the user's code; otherwise what happened, such as"
        " `timeout`."
    )
    message = serializers.CharField()
    path = serializers.CharField(allow_null=True, help_text="The file; `<query>` for a query.")
    line = serializers.IntegerField(allow_null=True)
    traceback = serializers.CharField(
        required=False, help_text="The frames of the user's own code; may be empty."
    )
    infrastructure = serializers.BooleanField(
        required=False, help_text="True: the server failed, and not the code. Try again."
    )
    provider_said = serializers.CharField(
        required=False,
        allow_null=True,
        help_text="For a question: the error message of the language model's provider, if it sent"
        " one.",
    )


@extend_schema_field(RunErrorSerializer)
class RunErrorField(serializers.JSONField):
    """The error of a run or a constraint; null if there is none."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_null": True, **options})


class GateFindingSerializer(serializers.Serializer[Any]):
    """What a check found, how to fix it, and where it is; fields without a value are left out."""

    code = serializers.CharField()
    message = serializers.CharField()
    fix = serializers.CharField(required=False)
    path = serializers.CharField(required=False)
    line = serializers.IntegerField(required=False)
    record = RecordNameSerializer(required=False)
    field = serializers.CharField(required=False)
    entry = serializers.IntegerField(required=False, help_text="The number of the entry.")
    edit = serializers.IntegerField(required=False, help_text="The index of the edit, from 0.")
    test = serializers.CharField(required=False)
    type = serializers.CharField(required=False, help_text="The exception's class.")
    traceback = serializers.CharField(required=False)
    fingerprint = serializers.CharField(required=False, help_text="The alert's fingerprint.")
    blocking = serializers.BooleanField(help_text="Whether it makes the check fail.")


class CheckSerializer(serializers.Serializer[Any]):
    """A check of the gate."""

    name = serializers.CharField()
    passed = serializers.BooleanField()
    findings = GateFindingSerializer(many=True)


class VerdictAlertSerializer(serializers.Serializer[Any]):
    """An alert that a constraint raises on the new version."""

    path = serializers.CharField(help_text="The constraint.")
    severity = serializers.CharField()
    message = serializers.CharField()


class ComingAlertSerializer(serializers.Serializer[Any]):
    """How an alert of a constraint will change if nothing changes but the clock."""

    path = serializers.CharField(help_text="The constraint.")
    of = serializers.ListField(
        child=serializers.CharField(), help_text="The alert's key, or the names of its records."
    )
    changes = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField(allow_null=True)),
        help_text="For each change: its day or time, opens, changes or resolves, and the severity.",
    )


class RestoredSerializer(serializers.Serializer[Any]):
    """The rollback that made a version."""

    version = serializers.IntegerField(help_text="The version that was restored.")
    by = serializers.CharField()
    reason = serializers.CharField()
    reopened = serializers.BooleanField()


class RedactedSerializer(serializers.Serializer[Any]):
    """The redaction that made a version."""

    seq = serializers.IntegerField(help_text="The number of the redaction's entry.")
    problem = serializers.CharField(help_text="The gate's objection; empty if it had none.")


class VerdictSerializer(serializers.Serializer[Any]):
    """The gate's verdict: every check with its findings."""

    accepted = serializers.BooleanField()
    reason = serializers.CharField(help_text="The first blocking finding; empty if accepted.")
    checks = CheckSerializer(many=True)
    counts = serializers.DictField(child=serializers.IntegerField())
    timings = serializers.DictField(child=serializers.FloatField(), help_text="Seconds by stage.")
    runner = serializers.CharField()
    day = serializers.CharField(
        help_text="The day on which the constraints were run; empty if none was."
    )
    alerts = VerdictAlertSerializer(many=True)
    coming = ComingAlertSerializer(many=True)
    restored = RestoredSerializer(required=False)
    redaction = RedactedSerializer(required=False)


@extend_schema_field(VerdictSerializer)
class VerdictField(serializers.JSONField):
    """The gate's verdict; null if the run did not reach the gate."""


@extend_schema_field(
    {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"op": {"type": "string"}},
            "required": ["op"],
            "additionalProperties": {},
        },
    }
)
class EditsField(serializers.JSONField):
    """The edits that produced a version: see docs/edits.md. A redaction empties them."""


class TypedRecordSerializer(serializers.Serializer[Any]):
    """A record in typed JSON."""

    key = serializers.CharField()
    sources = serializers.ListField(
        child=serializers.IntegerField(), help_text="The numbers of the entries it comes from."
    )
    fields = AnyObjectField(help_text="Field → value, in typed JSON.")  # type: ignore[assignment]

    def get_fields(self) -> dict[str, Any]:
        """Return the fields plus `$record`, which is no Python name."""
        name = serializers.CharField(help_text="The name of the record's class.")
        return {"$record": name, **super().get_fields()}


@extend_schema_field(TypedRecordSerializer)
class TypedRecordField(serializers.JSONField):
    """A record in typed JSON."""


@extend_schema_field(TypedRecordSerializer(many=True))
class TypedRecordsField(serializers.JSONField):
    """Records in typed JSON."""


class AlertWordingSerializer(serializers.Serializer[Any]):
    """What an alert said before or after a change."""

    severity = serializers.CharField()
    message = serializers.CharField()


class AlertEventDetailSerializer(serializers.Serializer[Any]):
    """What an event of an alert is about; which fields there are depends on its kind."""

    severity = serializers.CharField(required=False)
    note = serializers.CharField(required=False)
    reason = serializers.CharField(required=False)
    until = serializers.CharField(
        required=False, help_text="The end of a snooze: a point in time, or `it changes`."
    )
    changed = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="The fields that changed."
    )
    before = AlertWordingSerializer(required=False)
    after = AlertWordingSerializer(required=False)
    graver = serializers.BooleanField(required=False, help_text="True: it became more severe.")
    more = serializers.BooleanField(required=False)
    held = serializers.CharField(
        required=False, help_text="Why edits that would have resolved the alert were held back."
    )
    verdict = serializers.CharField(required=False, help_text="The feedback that was given.")


@extend_schema_field(AlertEventDetailSerializer)
class AlertEventDetailField(serializers.JSONField):
    """What an event of an alert is about."""


class ImportRepairSerializer(serializers.Serializer[Any]):
    """The repairs of a file that did not parse as Python."""

    path = serializers.CharField()
    repairs = serializers.ListField(child=serializers.CharField())


class ImportNoteSerializer(serializers.Serializer[Any]):
    """Something whose form in the project differs from the files."""

    kind = serializers.CharField()
    place = serializers.CharField()
    message = serializers.CharField()
    count = serializers.IntegerField()


class ImportReportSerializer(serializers.Serializer[Any]):
    """A report on an import."""

    modules = serializers.DictField(
        child=serializers.CharField(), help_text="File → the domain that holds its objects."
    )
    counts = serializers.DictField(child=serializers.IntegerField())
    repairs = ImportRepairSerializer(many=True)
    notes = ImportNoteSerializer(many=True)


@extend_schema_field(ImportReportSerializer)
class ImportReportField(serializers.JSONField):
    """A report on an import."""

"""Serializers for log entries and their redactions."""

import itertools
import unicodedata
from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import (
    PolymorphicProxySerializer,
    extend_schema_field,
    inline_serializer,
)
from rest_framework import serializers

from memory.kernel.http.serializers import (
    LOWER_NAME,
    DayStartField,
    LabelField,
    ObjectField,
    StrictSerializer,
    not_an_object,
    unknown_fields,
    validated,
)
from memory.kernel.http.stored import AnyObjectField
from memory.kernel.texts import with_few_marks
from memory.log import entry_log
from memory.log.documents import place_of
from memory.log.models.entries import STATEMENTS, EntryKind, LogEntry, Outcome, Trust
from memory.project import EditError, names
from sandbox_image.uac.records import LAPSES_AFTER

MAX_ENTRIES = 1000
MAX_TEXT = 1_000_000
# Redactions are written only by the server.
KINDS = [kind for kind in EntryKind.choices if kind[0] != EntryKind.REDACTION]
RECORD_KINDS = [kind for kind in KINDS if kind[0] == EntryKind.RECORD]
TEXT_KINDS = [kind for kind in KINDS if kind[0] != EntryKind.RECORD]
RECORD_FIELDS = ("domain", "type", "collection", "key", "data", "retired")
PROPOSE = "/v1/users/{user_id}/checkpoints/"
IMPOSSIBLE_TIME = "Send a valid date and time, such as 2026-05-02T14:30:00+02:00."
STATES = {
    None: "pending",
    Outcome.COVERED: "covered",
    Outcome.DISMISSED: "dismissed",
    Outcome.REJECTED: "rejected",
}


class _NewEntrySerializer(StrictSerializer):
    """What entries of all kinds have in common."""

    occurred_at = DayStartField(
        required=False,
        help_text="When the content was said or was true; a time without a UTC offset is"
        " interpreted in the user's time zone, and a day means its start. Default: now.",
        error_messages=dict.fromkeys(("invalid", "overflow"), IMPOSSIBLE_TIME),
    )
    role = serializers.CharField(required=False, max_length=32)
    speaker = serializers.CharField(required=False, max_length=200)
    agent_id = serializers.CharField(required=False, max_length=200)
    session_id = LabelField(required=False, max_length=200)
    valid_until = serializers.DateField(
        required=False,
        help_text="Of a fact, correction or record: the last day, in the user's time zone, on which"
        " it holds. From the day after, it has lapsed, and is left out unless asked for. A record"
        " keeps this day in its field `lapses_after`.",
    )
    trust = serializers.ChoiceField(
        choices=Trust.choices,
        required=False,
        help_text="Where the entry comes from: the user, a tool, a document or a model. Default: as"
        " the role says (assistant: model; tool, system: tool), otherwise user.",
    )
    metadata = ObjectField(
        required=False,
        help_text='For the caller\'s own use. "urgent": true makes the language model process'
        " the entry immediately.",
    )
    idempotency_key = serializers.CharField(required=False, max_length=255)

    def get_fields(self) -> dict[str, Any]:
        """Return the fields, the kind first."""
        fields = super().get_fields()
        return {"kind": fields.pop("kind"), **fields}


# The rule of JSON Schema for what cannot say until when it holds.
_WITHOUT_LAST_DAY: dict[str, Any] = {"not": {"required": ["valid_until"]}}


def _needed(name: str, kind: str) -> dict[str, Any]:
    """Return the error messages of a field that entries of this kind need."""
    return dict.fromkeys(("required", "blank"), f"An entry of kind {kind} needs `{name}`.")


class NewTextEntrySerializer(_NewEntrySerializer):
    """A message, a fact or a correction to be appended."""

    rules = {
        "if": {"properties": {"kind": {"const": EntryKind.MESSAGE.value}}},
        "then": _WITHOUT_LAST_DAY,
    }

    kind = serializers.ChoiceField(choices=TEXT_KINDS)
    content = serializers.CharField(
        max_length=MAX_TEXT, error_messages=_needed("content", "message, fact or correction")
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check that only what states something says until when it holds."""
        if attrs["kind"] == EntryKind.MESSAGE and "valid_until" in attrs:
            error = "A message cannot have `valid_until`: append what it says as a fact or record."
            raise serializers.ValidationError({"valid_until": [error]})
        return attrs


class NewRecordEntrySerializer(_NewEntrySerializer):
    """A typed entry to be appended, which sets fields of a record or retires it."""

    rules = {
        "properties": {
            "domain": LOWER_NAME,
            "type": {"pattern": "^[A-Z][A-Za-z0-9_]{0,99}$", "format": "class-name"},
            "collection": LOWER_NAME,
            "key": {
                "format": "record-key",
                "description": "The record's name in its collection, without control characters.",
            },
        },
        "if": {"properties": {"retired": {"const": True}}, "required": ["retired"]},
        "then": {"required": ["key"], **_WITHOUT_LAST_DAY},
        "else": {"required": ["data"]},
    }

    kind = serializers.ChoiceField(choices=RECORD_KINDS)
    domain = serializers.CharField(
        required=False,
        max_length=names.MAX_LENGTH,
        help_text="The record's domain. Default: general.",
    )
    type = serializers.CharField(
        max_length=names.MAX_LENGTH,
        help_text="The name of the class, such as Trip.",
        error_messages=_needed("type", "record"),
    )
    collection = serializers.CharField(
        required=False,
        max_length=names.MAX_LENGTH,
        help_text="The record's collection. Default: the plural of the type.",
    )
    key = LabelField(
        required=False, max_length=200, help_text="The record's name in its collection."
    )
    data = ObjectField(  # type: ignore[assignment]
        required=False, help_text="The record's fields."
    )
    retired = serializers.BooleanField(
        required=False, help_text="Set to true to retire the record."
    )

    def validate_key(self, key: str) -> str:
        """Return the key in Unicode's form NFC: what looks the same is then the same key."""
        return unicodedata.normalize("NFC", with_few_marks(key))

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check the names, and that there is a key to retire or data to set."""
        errors = {}
        if attrs.get("retired", False) and "key" not in attrs:
            errors["key"] = ["An entry that retires a record needs `key`."]
        if not attrs.get("retired", False) and "data" not in attrs:
            errors["data"] = ["An entry of kind record needs `data`."]
        if "valid_until" in attrs and attrs.get("retired", False):
            errors["valid_until"] = ["An entry that retires a record cannot have `valid_until`."]
        if "valid_until" in attrs and LAPSES_AFTER in attrs.get("data", {}):
            errors["valid_until"] = [f"`data` has `{LAPSES_AFTER}`, too: send one of them."]
        for name, check in (
            ("type", names.check_class_name),
            ("domain", lambda text: names.check_lower_name(text, "domain")),
            ("collection", lambda text: names.check_lower_name(text, "collection")),
            ("key", names.check_key),
        ):
            try:
                if name in attrs:
                    check(attrs[name])
            except EditError as error:
                errors[name] = [str(error)]
        if errors:
            raise serializers.ValidationError(errors)
        return attrs


class _KindSerializer(StrictSerializer):
    """The kind of an entry, which decides on its form."""

    kind = serializers.ChoiceField(choices=KINDS)


# Kind → the form of entries of that kind.
_FORMS: Mapping[str, StrictSerializer] = {
    **dict.fromkeys((kind for kind, _ in TEXT_KINDS), NewTextEntrySerializer()),
    EntryKind.RECORD.value: NewRecordEntrySerializer(),
}
_FIELDS: dict[str, None] = dict.fromkeys(
    itertools.chain.from_iterable(form.fields.keys() for form in _FORMS.values())
)
NEW_ENTRY = PolymorphicProxySerializer(
    component_name="NewEntry",
    serializers={kind: type(form) for kind, form in _FORMS.items()},
    resource_type_field_name="kind",
    many=True,
)


def read_draft(entry: Any) -> entry_log.Draft:
    """Turn an entry of a body into a draft for the log; raises ValidationError if it is invalid.

    What is null, and what is empty or false among the fields of the other form, is not given.
    """
    if not isinstance(entry, dict):
        raise serializers.ValidationError(not_an_object(entry))
    kind = str(entry.get("kind"))
    if kind not in _FORMS:
        if unknown := sorted(entry.keys() - _FIELDS.keys()):
            raise serializers.ValidationError(unknown_fields(unknown, list(_FIELDS)))
        validated(_KindSerializer, {"kind": entry["kind"]} if "kind" in entry else {})  # raises
    form, others = _FORMS[kind], _FIELDS.keys() - _FORMS[kind].fields.keys()
    if errors := {
        name: [f"An entry of kind {kind} cannot have `{name}`: remove it."]
        for name in entry
        if name in others and entry[name]
    }:
        raise serializers.ValidationError(errors)
    values = form.run_validation(
        {key: value for key, value in entry.items() if key not in others and value is not None}
    )
    data = {name: values.pop(name) for name in RECORD_FIELDS if name in values}
    if last_day := values.pop("valid_until", None):
        if kind == EntryKind.RECORD:
            data["data"] = {**data["data"], LAPSES_AFTER: last_day.isoformat()}
        else:
            data[entry_log.VALID_UNTIL] = last_day.isoformat()
    trust = Trust(values.pop("trust")) if "trust" in values else None
    return entry_log.Draft(data=data or None, trust=trust, **values)


class EntrySerializer(serializers.ModelSerializer[LogEntry]):
    """A log entry with its outcome; the caller must set the entry's `outcome`."""

    data = serializers.SerializerMethodField(  # type: ignore[assignment]
        help_text="Of a record: `type`, `data` and the rest of what was sent; of a redaction: what"
        " was redacted, by whom and why; otherwise null.",
    )
    metadata = AnyObjectField(allow_null=True)
    valid_until = serializers.SerializerMethodField(
        help_text="The last day on which the entry says that it, or its record, holds."
    )
    place = serializers.SerializerMethodField(
        help_text="Where in which document the entry stands, such as `page 3 of lease.pdf`; null if"
        " it comes from none. A fact stands where the entries that it is derived from do."
    )
    state = serializers.SerializerMethodField(
        help_text="The entry's state: pending, covered, dismissed or rejected."
    )
    reason = serializers.SerializerMethodField(
        help_text="Why the entry was dismissed or rejected; if it is covered, why it changed"
        " nothing (superseded: newer entries are known; nothing_to_retire) or less than it says"
        " (partly_superseded)."
    )
    superseded_by = serializers.SerializerMethodField(
        help_text="The newer entries because of which a late typed entry changed nothing, or less"
        " than it says; empty otherwise."
    )
    set_aside = serializers.SerializerMethodField(
        help_text="The fields whose values in this entry did not fit their types: the record keeps"
        " the values as they were sent, set aside."
    )
    checkpoint = serializers.SerializerMethodField(
        help_text="The project version that settled the entry."
    )

    class Meta:
        model = LogEntry
        fields = [
            "id",
            "seq",
            "kind",
            "state",
            "reason",
            "set_aside",
            "superseded_by",
            "checkpoint",
            "occurred_at",
            "recorded_at",
            "content",
            "data",
            "valid_until",
            "trust",
            "place",
            "role",
            "speaker",
            "agent_id",
            "session_id",
            "metadata",
            "source",
            "derived_from",
            "idempotency_key",
            "redacted_at",
        ]

    @extend_schema_field(AnyObjectField(allow_null=True))
    def get_data(self, entry: LogEntry) -> dict[str, Any] | None:
        """Return the data of a record or redaction; `valid_until` shows what others have."""
        return None if entry.kind in STATEMENTS else entry.data

    @extend_schema_field(serializers.DateField(allow_null=True))
    def get_valid_until(self, entry: LogEntry) -> str | None:
        """Return the last day on which the entry, or its record, holds."""
        last_day = entry_log.valid_until(entry)
        return last_day.isoformat() if last_day else None

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_place(self, entry: LogEntry) -> str | None:
        """Return where the entry stands; the caller may have set `place`, from other entries."""
        return getattr(entry, "place", None) or place_of(entry) or None

    def get_state(self, entry: LogEntry) -> str:
        """Return the entry's state."""
        return STATES[Outcome(entry.outcome.outcome) if entry.outcome else None]

    def get_reason(self, entry: LogEntry) -> str | None:
        """Return why an entry was not added to the project, or not all of it."""
        return (entry.outcome.reason or None) if entry.outcome else None

    def get_superseded_by(self, entry: LogEntry) -> list[int]:
        """Return the newer entries that leave nothing, or less, for the entry to change."""
        return (entry.outcome.superseded_by or []) if entry.outcome else []

    def get_set_aside(self, entry: LogEntry) -> list[str]:
        """Return the fields whose values in the entry did not fit."""
        return entry.outcome.set_aside if entry.outcome else []

    def get_checkpoint(self, entry: LogEntry) -> int | None:
        """Return the version that settled the entry."""
        settled = entry.outcome and entry.outcome.checkpoint
        return settled.version if settled else None


class RejectedSerializer(serializers.Serializer[Any]):
    """An entry that the project cannot hold, with the reason and how to fix it."""

    seq = serializers.IntegerField()
    reason = serializers.CharField()
    fix = serializers.CharField()


class SetAsideSerializer(serializers.Serializer[Any]):
    """An entry with values that do not fit their fields, and how to make them fit."""

    seq = serializers.IntegerField()
    fields = serializers.ListField(  # type: ignore[assignment]
        child=serializers.CharField(),
        help_text="The fields, such as `due`, `outcome.risk_score` or `labels[0]`.",
    )
    fix = serializers.CharField()


class MaskedSerializer(serializers.Serializer[Any]):
    """Something sensitive that the workspace's content policy masked in an entry."""

    seq = serializers.IntegerField()
    field = serializers.CharField(help_text="`content`, `data` or `metadata`.")
    kind = serializers.CharField(help_text="What was masked, such as `email_address`.")


WIDENED = inline_serializer(
    "Widened",
    {
        "domain": serializers.CharField(),
        "class": serializers.CharField(),
        "field": serializers.CharField(),
        "from": serializers.CharField(help_text="The previous type."),
        "to": serializers.CharField(
            help_text="The new type; with `| None`, the field may be empty."
        ),
        "seq": serializers.IntegerField(
            help_text="The number of the entry that required the change."
        ),
    },
    many=True,
    required=False,
    help_text="With `wait`: the fields that these records made optional or whose type they"
    " widened.",
)


class AppendedSerializer(serializers.Serializer[Any]):
    """The appended entries and their state."""

    entries = EntrySerializer(
        many=True, help_text="The appended entries, which are now in the log permanently."
    )
    pending = serializers.IntegerField(help_text="How many of these entries are not settled yet.")
    covered = serializers.IntegerField(
        help_text="How many of these entries are already in the project."
    )
    rejected = RejectedSerializer(
        many=True, help_text="Which of these entries the project cannot hold, and why."
    )
    set_aside = SetAsideSerializer(
        many=True,
        help_text="Which of these entries have values that did not fit their fields. The values are"
        " kept in the records, set aside, as they were sent.",
    )
    masked = MaskedSerializer(
        many=True,
        help_text="Which of these entries contain what the workspace's content policy masked. The"
        " text has `[masked: KIND]` in its place.",
    )
    widened = WIDENED
    constraints_to_check = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="With `wait`: the user's constraints that read a widened field. They may fail if"
        " the field is empty.",
    )


@extend_schema_field(NEW_ENTRY)
class NewEntriesField(serializers.JSONField):
    """Entries, each in the form of its kind."""


class NewEntriesSerializer(StrictSerializer):
    """Several entries, appended in order, all or nothing."""

    rules = {"properties": {"entries": {"minItems": 1, "maxItems": MAX_ENTRIES}}}

    entries = NewEntriesField()

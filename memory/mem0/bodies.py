"""Request bodies from mem0's client. Parsing is strict: errors name unknown fields."""

import datetime
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from rest_framework import serializers

from memory import log
from memory.api.entry_serializers import MAX_TEXT
from memory.api.search import MAX_QUERY, MAX_TOP_K
from memory.api.serializers import ObjectField, StrictSerializer
from memory.mem0.errors import CannotBeMapped
from memory.mem0.events import MAX_MESSAGES
from memory.mem0.filters import USER
from memory.mem0.memories import APP, FIELDS, metadata_with
from memory.models.log import EntryKind

MAX_CHANGES = 1000
ENTITIES = (USER, "agent_id", "run_id", APP)
NO_USER = (
    "Memories belong to a user: send user_id. You can also send an agent_id, run_id or app_id, but"
    " these have no memories of their own."
)


@dataclass(frozen=True)
class NotMapped:
    """A field with no equivalent here: the reason, and the values that can safely be ignored."""

    reason: str
    harmless: Collection[Any] = ()


# Fields that many clients send and that are safe to ignore: a key belongs to one workspace, nothing
# expires, and search always matches words as well.
IGNORED = ("version", "output_format", "org_id", "project_id", "show_expired", "keyword_search")
_EXPIRES = NotMapped("Memories do not expire here; delete a memory to forget it.")
_INSTRUCTIONS = NotMapped(
    "The server sets the language model's instructions, which are the same for everyone."
)
_CATEGORIES = NotMapped("Memories have no categories here; send metadata, and filter by it.", [[]])
_LATEST = NotMapped(
    "Search covers only the newest text of a memory; GET /v1/memories/{id}/history/ has the"
    " earlier texts.",
    [True],
)


class Body(StrictSerializer):
    """A request body in which some fields are ignored and some have no equivalent here."""

    not_mapped: Mapping[str, NotMapped] = {}

    def to_internal_value(self, data: Any) -> Any:
        """Validate the body; raises CannotBeMapped for a field that has no equivalent here."""
        if isinstance(data, dict):
            for name, field in self.not_mapped.items():
                value = data.get(name)
                if value is not None and value not in field.harmless:
                    raise CannotBeMapped(f"{name}: {field.reason}")
            passed_over = (*IGNORED, *self.not_mapped)
            data = {name: value for name, value in data.items() if name not in passed_over}
        return super().to_internal_value(data)


class MessageSerializer(StrictSerializer):
    """A message; `name` is the speaker's name if there are several speakers."""

    role = serializers.CharField(max_length=32)
    content = serializers.CharField(max_length=MAX_TEXT)
    name = serializers.CharField(required=False, max_length=200)

    def to_internal_value(self, data: Any) -> Any:
        """Validate the message; raises CannotBeMapped for content that is not text."""
        if isinstance(data, dict) and isinstance(data.get("content"), list | dict):
            raise CannotBeMapped("messages: The log contains text only; send content as a string.")
        return super().to_internal_value(data)


class AddSerializer(Body):
    """Messages to remember."""

    messages = serializers.ListField(
        child=MessageSerializer(), min_length=1, max_length=MAX_MESSAGES
    )
    user_id = serializers.CharField(required=False, max_length=128)
    agent_id = serializers.CharField(required=False, max_length=200)
    run_id = serializers.CharField(required=False, max_length=200)
    app_id = serializers.CharField(required=False, max_length=200)
    filters = serializers.DictField(required=False)
    metadata = ObjectField(required=False)
    infer = serializers.BooleanField(default=True)
    timestamp = serializers.IntegerField(required=False)

    not_mapped = {
        "custom_categories": _CATEGORIES,
        "custom_instructions": _INSTRUCTIONS,
        "agent_custom_instructions": _INSTRUCTIONS,
        "structured_data_schema": NotMapped(
            "Send typed records instead: POST /v1/users/{user_id}/entries/ with kind record."
        ),
        "expiration_date": _EXPIRES,
    }

    def validate_timestamp(self, value: int) -> datetime.datetime:
        """Convert a Unix timestamp to a datetime."""
        try:
            return datetime.datetime.fromtimestamp(value, datetime.UTC)
        except (ValueError, OverflowError, OSError):
            raise serializers.ValidationError(
                "Send seconds since 1970-01-01, up to the year 9999."
            ) from None

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Determine whose messages these are, from the body's fields or its filters."""
        filters = attrs.pop("filters", {})
        wrong = [
            name
            for name, value in filters.items()
            if name not in ENTITIES or not isinstance(value, str) or not value
        ]
        if wrong:
            told = f"{wrong[0][:100]}: send only {', '.join(ENTITIES)}, as non-empty strings."
            raise serializers.ValidationError({"filters": [told]})
        attrs = {**filters, **attrs}
        if USER not in attrs:
            if any(name in attrs for name in ENTITIES):
                raise CannotBeMapped(NO_USER)
            raise serializers.ValidationError(
                {USER: ["Send the id of the user whose memories these are."]}
            )
        return attrs


def drafts_of(asked: Mapping[str, Any]) -> list[log.Draft]:
    """Return the entries to append: messages, or complete memories."""
    return [
        log.Draft(
            kind=EntryKind.MESSAGE if asked["infer"] else EntryKind.FACT,
            content=message["content"],
            role=message["role"],
            speaker=message.get("name"),
            occurred_at=asked.get("timestamp"),
            session_id=asked.get("run_id"),
            agent_id=asked.get("agent_id"),
            metadata=metadata_with(asked.get("metadata"), asked.get(APP)),
        )
        for message in asked["messages"]
    ]


class SearchSerializer(Body):
    """A search: a query, and the user whose memories to search."""

    query = serializers.CharField(max_length=MAX_QUERY)
    filters = serializers.DictField(required=False)
    metadata = serializers.DictField(required=False)
    top_k = serializers.IntegerField(default=10, min_value=1, max_value=MAX_TOP_K)
    threshold = serializers.FloatField(default=0.0, min_value=0, max_value=1)
    fields_ = serializers.ListField(
        child=serializers.ChoiceField([*FIELDS, "score"]), required=False
    )

    not_mapped = {
        "categories": _CATEGORIES,
        "latest_only": _LATEST,
        "rerank": NotMapped("The ranking is fixed; there is no reranking.", [False]),
        "reference_date": NotMapped(
            "Give the dates in the query, or filter by created_at; POST"
            " /v1/users/{user_id}/query/ computes with dates."
        ),
    }

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return the fields plus `fields`, which would clash with an attribute if declared."""
        fields = super().get_fields()
        fields["fields"] = fields.pop("fields_")
        return fields


class GetAllSerializer(Body):
    """The user whose memories to list, and the filters."""

    filters = serializers.DictField(required=False)
    start_date = serializers.CharField(required=False, max_length=40)
    end_date = serializers.CharField(required=False, max_length=40)

    not_mapped = {"categories": _CATEGORIES, "latest_only": _LATEST}


class UpdateSerializer(Body):
    """The new text and metadata of a memory."""

    text = serializers.CharField(required=False, max_length=MAX_TEXT)
    metadata = ObjectField(required=False)

    not_mapped = {
        "timestamp": NotMapped(
            "An update does not change the time of a memory; delete the memory and add it again."
        ),
        "expiration_date": _EXPIRES,
    }


class BatchUpdateItem(UpdateSerializer):
    """A memory with its new text and metadata."""

    memory_id = serializers.CharField(max_length=100)


class BatchUpdateSerializer(Body):
    """Memories to update, all or none."""

    memories = serializers.ListField(child=BatchUpdateItem(), min_length=1, max_length=MAX_CHANGES)


class BatchDeleteItem(StrictSerializer):
    """A memory to delete."""

    memory_id = serializers.CharField(max_length=100)


class BatchDeleteSerializer(Body):
    """Memories to delete, all or none."""

    memories = serializers.ListField(child=BatchDeleteItem(), min_length=1, max_length=MAX_CHANGES)

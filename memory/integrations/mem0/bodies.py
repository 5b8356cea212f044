"""Request bodies from mem0's clients.

What does not change a request's meaning is ignored, and the answer says so; what would change it is
refused, as is a field that no client of mem0 sends. null, "", [] and {} mean "not given".
"""

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

from rest_framework import serializers

from memory.integrations.mem0.errors import CannotBeMapped
from memory.integrations.mem0.filters import ENTITIES, USER, is_given, make_id
from memory.integrations.mem0.memories import APP, metadata_with, owner
from memory.integrations.mem0.messages import Conversation, ConversationField
from memory.kernel.http.serializers import ObjectField, StrictSerializer
from memory.kernel.models.users import MAX_USER_ID
from memory.log import entry_log
from memory.log.api.entry_serializers import MAX_TEXT
from memory.log.models.entries import EntryKind
from memory.recall.api.search import MAX_QUERY, MAX_TOP_K

MAX_ID = 200
# Fields that change no data and no meaning, and why they are ignored.
HINTS: Mapping[str, str] = {
    **dict.fromkeys(("source", "version", "output_format", "api_version"), "it changes nothing"),
    **dict.fromkeys(("org_id", "project_id"), "a key belongs to one workspace"),
    **dict.fromkeys(("async_mode", "enable_graph"), "the server always works like this"),
    **dict.fromkeys(("rerank", "keyword_search"), "words and meaning are always ranked together"),
    "show_expired": "nothing expires here",
    "latest_only": "the newest text is returned; GET /v1/memories/{id}/history/ has the others",
    "reference_date": "dates in filters count; POST /v1/users/{user_id}/query/ computes with dates",
    "immutable": "entries are never overwritten here",
    "custom_categories": "memories have no categories here",
    "structured_data_schema": "all messages become typed records",
}
_EXPIRES = "Memories do not expire here; delete a memory to forget it."
_INSTRUCTIONS = "The server sets the language model's instructions, the same for everyone."
_CATEGORIES = "Memories have no categories here; send metadata, and filter by it."


def ignored(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each field that is ignored."""
    for name, reason in HINTS.items():
        if is_given(given.get(name)):
            yield f"{name}: ignored, since {reason}"


class Body(StrictSerializer):
    """A request body in which some fields are ignored and some have no equivalent here."""

    # Field → why it is refused.
    refused: Mapping[str, str] = {}

    def to_internal_value(self, data: Any) -> Any:
        """Validate the body; raises CannotBeMapped for a field that has no equivalent here."""
        if isinstance(data, dict):
            data = {
                name: make_id(value) if name in ENTITIES else value
                for name, value in data.items()
                if is_given(value) and name not in HINTS
            }
            for name in data.keys() & self.refused.keys():
                raise CannotBeMapped(f"{name}: {self.refused[name]}")
        return super().to_internal_value(data)


class EntityBody(Body):
    """A body that names a user, an agent, a run or an app next to its filters."""

    user_id = serializers.CharField(required=False, max_length=MAX_USER_ID)
    agent_id = serializers.CharField(required=False, max_length=MAX_ID)
    run_id = serializers.CharField(required=False, max_length=MAX_ID)
    app_id = serializers.CharField(required=False, max_length=MAX_ID)
    filters = serializers.DictField(required=False)


class AddSerializer(EntityBody):
    """Messages to remember."""

    messages = ConversationField()
    metadata = ObjectField(required=False)
    infer = serializers.BooleanField(default=True)
    timestamp = serializers.IntegerField(required=False)

    refused = {
        "custom_instructions": _INSTRUCTIONS,
        "agent_custom_instructions": _INSTRUCTIONS,
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
        attrs = {**dict(_entities(attrs.pop("filters", {}))), **attrs}
        named = [name for name in ENTITIES if name in attrs]
        if not named:
            raise serializers.ValidationError(
                {USER: ["Send the id of the user whose memories these are."]}
            )
        # What an agent, a run or an app learns without a user is a memory of its own.
        attrs.setdefault(USER, owner(named[0], attrs[named[0]]))
        return attrs


def _entities(filters: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the ids in the filters of an addition, which can only name whose memories these are."""
    for name, value in filters.items():
        if (
            name == "AND"
            and isinstance(value, list)
            and all(isinstance(one, dict) for one in value)
        ):
            for one in value:
                yield from _entities(one)
        elif is_given(value):
            value = make_id(value)
            if name not in ENTITIES or not isinstance(value, str):
                message = f"{name[:100]}: send only {', '.join(ENTITIES)}, as strings."
                raise serializers.ValidationError({"filters": [message]})
            yield name, value


def drafts_of(body: Mapping[str, Any]) -> list[entry_log.Draft]:
    """Return the entries to append: messages, or complete memories.

    Raises ValidationError if the messages, as memories, say nothing.
    """
    conversation: Conversation = body["messages"]
    texts = [(message, message.text) for message in conversation.messages]
    if not body["infer"]:  # a tool call alone states nothing
        texts = [(message, message.speech) for message, _ in texts if message.speech]
    if not texts:
        raise serializers.ValidationError({"messages": ["None of them says anything by itself."]})
    return [
        entry_log.Draft(
            kind=EntryKind.MESSAGE if body["infer"] else EntryKind.FACT,
            content=text,
            role=message.role,
            speaker=message.name,
            occurred_at=body.get("timestamp"),
            session_id=body.get("run_id"),
            agent_id=body.get("agent_id"),
            metadata=metadata_with(body.get("metadata"), body.get(APP)),
        )
        for message, text in texts
    ]


class ReadSerializer(EntityBody):
    """A selection of memories, and which of their fields to return."""

    fields_ = serializers.ListField(child=serializers.CharField(max_length=100), required=False)

    refused = {"categories": _CATEGORIES}

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return the fields plus `fields`, which would clash with an attribute if declared."""
        fields = super().get_fields()
        fields["fields"] = fields.pop("fields_")
        return fields


class SearchSerializer(ReadSerializer):
    """A search: a query, and the memories to search."""

    query = serializers.CharField(max_length=MAX_QUERY)
    metadata = serializers.DictField(required=False)
    top_k = serializers.IntegerField(default=10, min_value=1, max_value=MAX_TOP_K)
    # Asked for everything (0), a search returns top_k memories, even those that do not match.
    threshold = serializers.FloatField(default=None, min_value=0, max_value=1)


class GetAllSerializer(ReadSerializer):
    """The memories to list."""

    start_date = serializers.CharField(required=False, max_length=40)
    end_date = serializers.CharField(required=False, max_length=40)
    page = serializers.IntegerField(required=False)
    page_size = serializers.IntegerField(required=False)


class UpdateSerializer(Body):
    """The new text and metadata of a memory."""

    text = serializers.CharField(required=False, max_length=MAX_TEXT)
    metadata = ObjectField(required=False)

    refused = {
        "timestamp": "An update does not change the time of a memory; delete it and add it again.",
        "expiration_date": _EXPIRES,
    }

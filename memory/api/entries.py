"""`/v1/users/{user_id}/entries/`: append to the log, and read it."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import django_filters
from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema
from rest_framework import generics, serializers, status
from rest_framework.request import Request
from rest_framework.response import Response

from memory import log
from memory.api import idempotency, waiting
from memory.api.authentication import principal_of
from memory.api.errors import Unprocessable
from memory.api.filters import WholeNumberFilter
from memory.api.serializers import (
    MAX_NAMED,
    ObjectField,
    StrictSerializer,
    unknown_fields,
)
from memory.api.users import UserScopedView
from memory.models import EntryOutcome, LogEntry
from memory.models.log import EntryKind, Outcome
from memory.project import EditError, names

MAX_ENTRIES = 1000
MAX_TEXT = 1_000_000

APPENDED_KINDS = [kind for kind in EntryKind.choices if kind[0] != EntryKind.REDACTION]

IMPOSSIBLE_TIME = "Send a date and time that exists, such as 2026-05-02T14:30:00+02:00."

STATES = {
    None: "logged",
    Outcome.COVERED: "checkpointed",
    Outcome.DISMISSED: "dismissed",
    Outcome.REJECTED: "rejected",
}


class NewEntrySerializer(StrictSerializer):
    """An entry to be appended.

    A `message`, `fact` or `correction` has `content`. A `record` has `type` and `data`, and may
    have `domain`, `collection`, `key` and `retired`.
    """

    kind = serializers.ChoiceField(
        choices=APPENDED_KINDS,
        help_text="A redaction is written by the server alone.",
    )
    occurred_at = serializers.DateTimeField(
        required=False,
        help_text="When it was true or said; UTC without an offset; default now.",
        error_messages=dict.fromkeys(("invalid", "overflow"), IMPOSSIBLE_TIME),
    )
    content = serializers.CharField(required=False, max_length=MAX_TEXT)
    role = serializers.CharField(required=False, max_length=32)
    speaker = serializers.CharField(required=False, max_length=200)
    agent_id = serializers.CharField(required=False, max_length=200)
    session_id = serializers.CharField(required=False, max_length=200)
    metadata = ObjectField(
        required=False,
        help_text='The caller\'s own. "urgent": true has the language model work on it at once.',
    )
    idempotency_key = serializers.CharField(required=False, max_length=255)

    domain = serializers.CharField(
        required=False, max_length=names.MAX_LENGTH, help_text="Default: general."
    )
    type = serializers.CharField(
        required=False, max_length=names.MAX_LENGTH, help_text="Name of the class, such as Trip."
    )
    collection = serializers.CharField(
        required=False, max_length=names.MAX_LENGTH, help_text="Default: plural of the type."
    )
    key = serializers.CharField(required=False, max_length=200, help_text="Names the record.")
    data = ObjectField(  # type: ignore[assignment]
        required=False, help_text="The record's fields."
    )
    retired = serializers.BooleanField(required=False, help_text="True: the record is no more.")

    RECORD_FIELDS = ("domain", "type", "collection", "key", "data", "retired")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check what each kind needs and what it cannot have."""
        is_record = attrs["kind"] == EntryKind.RECORD
        foreign = ["content"] if is_record else list(self.RECORD_FIELDS)
        errors = {
            name: [f"A {attrs['kind']} entry has no {name}."] for name in foreign if name in attrs
        }
        if is_record:
            errors |= self._record_errors(attrs)
        elif not attrs.get("content"):
            errors["content"] = [f"A {attrs['kind']} entry needs content."]
        if errors:
            raise serializers.ValidationError(errors)
        return attrs

    def _record_errors(self, attrs: Mapping[str, Any]) -> dict[str, list[str]]:
        errors = {}
        retired = attrs.get("retired", False)
        needed = ("type", "key") if retired else ("type", "data")
        for name in needed:
            if name not in attrs:
                what = "record that retires another" if retired else "record"
                errors[name] = [f"A {what} needs {name}."]
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
        return errors

    def draft(self) -> log.Draft:
        """Return the validated entry as a draft for the log."""
        values = dict(self.validated_data)
        record = {name: values.pop(name) for name in self.RECORD_FIELDS if name in values}
        return log.Draft(data=record or None, **values)


class EntrySerializer(serializers.ModelSerializer[LogEntry]):
    """An entry with what became of it."""

    state = serializers.SerializerMethodField(
        help_text="logged (pending), checkpointed, dismissed or rejected"
    )
    reason = serializers.SerializerMethodField(help_text="Why it was dismissed or rejected.")
    checkpoint = serializers.SerializerMethodField(help_text="Version that settled it.")

    class Meta:
        model = LogEntry
        fields = [
            "id",
            "seq",
            "kind",
            "state",
            "reason",
            "checkpoint",
            "occurred_at",
            "recorded_at",
            "content",
            "data",
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

    def _outcome(self, entry: LogEntry) -> EntryOutcome | None:
        outcomes: Mapping[int, EntryOutcome] = self.context["outcomes"]
        return outcomes.get(entry.seq)

    def get_state(self, entry: LogEntry) -> str:
        """Name the entry's state."""
        outcome = self._outcome(entry)
        return STATES[Outcome(outcome.outcome) if outcome else None]

    def get_reason(self, entry: LogEntry) -> str | None:
        """Return the verdict on an entry that was not taken into the project."""
        outcome = self._outcome(entry)
        return (outcome.reason or None) if outcome else None

    def get_checkpoint(self, entry: LogEntry) -> int | None:
        """Return the version that settled the entry."""
        outcome = self._outcome(entry)
        return outcome.checkpoint.version if outcome and outcome.checkpoint else None


class AppendedSerializer(serializers.Serializer[Any]):
    """What was appended, and how far it has come."""

    entries = EntrySerializer(many=True)
    logged = serializers.IntegerField(help_text="Entries of this request in the log: all of them.")
    checkpointed = serializers.IntegerField(help_text="Those that are in the project already.")


class NewEntriesSerializer(StrictSerializer):
    """Several entries, appended in order, all or none."""

    entries = NewEntrySerializer(many=True)


class EntryFilter(django_filters.FilterSet):
    """How a log can be narrowed."""

    after = WholeNumberFilter("seq", "gt", min_value=0, label="Only entries after this seq.")
    kind = django_filters.ChoiceFilter(choices=EntryKind.choices)
    session_id = django_filters.CharFilter()

    class Meta:
        model = LogEntry
        fields: list[str] = []


class Entries(UserScopedView, generics.ListAPIView[LogEntry]):
    """Append entries, or read the log in its order."""

    serializer_class = EntrySerializer
    parameters = {"POST": ["wait"]}
    filterset_class = EntryFilter
    ordering = ["seq"]

    def get_queryset(self) -> QuerySet[LogEntry]:
        """Return the user's entries."""
        if getattr(self, "swagger_fake_view", False):
            return LogEntry.objects.none()
        return LogEntry.objects.filter(user=self.memory_user())

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return a page of the log with what became of each entry."""
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset())) or []
        return self.get_paginated_response(self._serialize(page))

    @extend_schema(
        request=PolymorphicProxySerializer(
            component_name="OneOrManyEntries",
            serializers=[NewEntrySerializer, NewEntriesSerializer],
            resource_type_field_name=None,
        ),
        responses={202: AppendedSerializer, **idempotency.RESPONSES},
        parameters=[waiting.WAIT, idempotency.HEADER],
    )
    def post(self, request: Request, user_id: str) -> Response:
        """Append one entry or many, all or none; answers 202 once they are in the log.

        With `?wait=` it answers when the typed records among them are settled, or when time is up.
        """
        limit = waiting.seconds(request, default=0)
        user = self.memory_user()
        drafts = read_drafts(request.data)

        def append() -> list[LogEntry]:
            try:
                return log.append(user, drafts, source=str(principal_of(request)))
            except log.IdempotencyConflict as conflict:
                raise Unprocessable(str(conflict)) from None

        written = idempotency.once(
            request,
            append,
            user_of=lambda entries: user,
            refer=lambda entries: [entry.seq for entry in entries],
            recall=lambda known: log.read(known.user, known.reference),
        )
        entries = written.result
        records = {entry.seq for entry in entries if entry.kind == EntryKind.RECORD}
        if limit and records:
            waiting.until(lambda: log.all_decided(user, records), limit)
        serialized = self._serialize(entries)
        return Response(
            {
                "entries": serialized,
                "logged": len(serialized),
                "checkpointed": sum(item["state"] == "checkpointed" for item in serialized),
            },
            status=status.HTTP_202_ACCEPTED,
            headers=written.headers,
        )

    def _serialize(self, entries: Sequence[LogEntry]) -> Any:
        found: dict[int, EntryOutcome] = {}
        if entries:
            found = log.outcomes(entries[0].user, (entry.seq for entry in entries))
        return EntrySerializer(entries, many=True, context={"outcomes": found}).data


def read_drafts(body: Any) -> list[log.Draft]:
    """Read one entry, or `{"entries": [...]}`; raises ValidationError that names what is wrong."""
    if isinstance(body, dict) and "entries" in body:
        entries = body["entries"]
        if unknown := sorted(set(body) - {"entries"}):
            raise serializers.ValidationError(unknown_fields(unknown, ["entries"]))
        if not isinstance(entries, list) or not entries:
            raise serializers.ValidationError(
                {"entries": ['Send one entry, or {"entries": [...]} with at least one.']}
            )
        if len(entries) > MAX_ENTRIES:
            raise serializers.ValidationError(
                {"entries": [f"Send {MAX_ENTRIES} entries at most; these are {len(entries)}."]}
            )
        many = [NewEntrySerializer(data=entry) for entry in entries]
        wrong = (
            (str(index), serializer.errors)
            for index, serializer in enumerate(many)
            if not serializer.is_valid()
        )
        if errors := dict(itertools.islice(wrong, MAX_NAMED)):
            raise serializers.ValidationError({"entries": errors})
        return [serializer.draft() for serializer in many]
    one = NewEntrySerializer(data=body)
    one.is_valid(raise_exception=True)
    return [one.draft()]


class Entry(UserScopedView):
    """One entry."""

    @extend_schema(responses=EntrySerializer)
    def get(self, request: Request, user_id: str, seq: int) -> Response:
        """Return the entry with what became of it."""
        user = self.memory_user()
        entry = LogEntry.objects.filter(user=user, seq=seq).first()
        if entry is None:
            raise Http404(f"The log has no entry {seq}.")
        return Response(
            EntrySerializer(entry, context={"outcomes": log.outcomes(user, [seq])}).data
        )

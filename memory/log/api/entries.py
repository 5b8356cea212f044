"""`/v1/users/{user_id}/entries/`: appending to the log, and reading it."""

import re
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import django_filters
from django.core.validators import RegexValidator
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema_field
from rest_framework import mixins, serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from memory.kernel.admission import quotas
from memory.kernel.admission.rates import ENTRIES
from memory.kernel.hooks import later
from memory.kernel.http import operations, throttles, waiting
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.errors import Unprocessable
from memory.kernel.http.filters import WholeNumberFilter
from memory.kernel.http.idempotency import IdempotentView
from memory.kernel.http.pagination import BoundedPagination
from memory.kernel.http.serializers import MAX_NAMED, unknown_fields
from memory.kernel.http.user_scope import UserScopedView
from memory.kernel.models.users import MemoryUser, is_user_id
from memory.kernel.users import WITHOUT_HEAD, find_or_create_user
from memory.log import documents, entry_log, fixes
from memory.log.api.entry_serializers import (
    MAX_ENTRIES,
    PROPOSE,
    AppendedSerializer,
    EntrySerializer,
    NewEntriesSerializer,
    NewRecordEntrySerializer,
    NewTextEntrySerializer,
    read_draft,
)
from memory.log.models.entries import EntryKind, LogEntry

# These serializers are created once and shared, because creating a serializer's fields takes longer
# than using the fields, and using them doesn't change them.
_ENTRY = EntrySerializer()
_describe_widened_fields: Callable[[MemoryUser, Collection[int]], dict[str, Any]] = later(
    "memory.constraints.widening:to_json"
)


_NUMBERS = re.compile(r"^[0-9]{1,18}(,[0-9]{1,18}){0,499}$")


class EntryFilter(django_filters.FilterSet):
    """Filters for log entries."""

    after = extend_schema_field(  # type: ignore[type-var] # it decorates filters, too
        {
            "type": "integer",
            "minimum": 0,
            "maximum": 2**31 - 1,
            "description": "Only entries with higher numbers.",
        }
    )(WholeNumberFilter("seq", "gt", min_value=0))
    kind = django_filters.ChoiceFilter(choices=EntryKind.choices)
    seq = extend_schema_field(  # type: ignore[type-var]
        {
            "type": "string",
            "pattern": _NUMBERS.pattern,
            "description": "Only these entries: up to 500 numbers, separated by commas.",
        }
    )(
        django_filters.CharFilter(
            method="filter_numbers",
            validators=[RegexValidator(_NUMBERS, "Give up to 500 numbers, separated by commas.")],
        )
    )
    session_id = django_filters.CharFilter()

    class Meta:
        model = LogEntry
        fields: list[str] = []

    def filter_numbers(
        self, entries: QuerySet[LogEntry], name: str, numbers: str
    ) -> QuerySet[LogEntry]:
        """Select the entries with these numbers, separated by commas."""
        return entries.filter(seq__in=map(int, numbers.split(",")))


class Entries(UserScopedView, mixins.ListModelMixin, viewsets.GenericViewSet[LogEntry]):
    """List the entries in a user's log, in order."""

    lookup_url_kwarg = "seq"
    lookup_value_converter = "int"
    queryset = LogEntry.objects.none()
    serializer_class = EntrySerializer
    body_example = (
        '{"kind": "message", "content": "I fly to Rome."}, or'
        ' {"entries": [{"kind": "record", "type": "Trip", "data": {"to": "Rome"}}, …]}'
    )
    filterset_class = EntryFilter
    pagination_class = BoundedPagination
    row_bytes = entry_log.BYTES
    ordering = ["seq"]

    def get_queryset(self) -> QuerySet[LogEntry]:
        """Return the user's entries."""
        user = self.memory_user()
        self.all_bytes = user.log_bytes
        return LogEntry.objects.filter(user=user)

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List the entries in a user's log, in order."""
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset())) or []
        if page:
            _look_up(page[0].user, page)
        return self.get_paginated_response([_ENTRY.to_representation(entry) for entry in page])

    @operations.write(
        {202: AppendedSerializer},
        [waiting.WAIT],
        request=PolymorphicProxySerializer(
            component_name="OneOrManyEntries",
            serializers=[
                NewTextEntrySerializer,
                NewRecordEntrySerializer,
                NewEntriesSerializer,
            ],
            resource_type_field_name=None,
        ),
    )
    def create(self, request: Request, user_id: str) -> Response:
        """Append one or more entries, all or none; returns 202 once they are in the log.

        With `?wait=`, the server responds once all typed entries in the request are settled, or
        after that many seconds.
        """
        limit = waiting.seconds(request, default=0)
        existing, workspace = self._find_user(), principal_of(request).workspace
        with timezone.override(ZoneInfo(existing.time_zone if existing else workspace.time_zone)):
            drafts = read_drafts(request.data)
        throttles.take(request, ENTRIES, len(drafts))
        # A new user and their first entries are created together or not at all.
        with nullcontext() if existing else transaction.atomic():
            user = existing or find_or_create_user(workspace, user_id)
            entries = append_once(self, user, drafts)
        records = {entry.seq for entry in entries if entry.kind == EntryKind.RECORD}
        if limit and records:
            decided = partial(entry_log.all_decided, user, records)
            waiting.until(decided, limit, workspace_pk=user.workspace_id)
        # Entries that this request has just appended have no outcomes yet.
        if limit or self.is_replayed or any(draft.idempotency_key for draft in drafts):
            _look_up(user, entries)
        serialized = [_ENTRY.to_representation(entry) for entry in entries]
        first = serialized[0]["seq"]
        location = reverse("entry-list", args=[user_id]) + f"?after={first - 1}"
        if len(serialized) == 1:
            location = reverse("entry-detail", args=[user_id, first])
        answer = _appended(entries, drafts, serialized)
        if limit:
            answer |= _describe_widened_fields(user, records)
        return operations.accepted(answer, location)

    @operations.read(responses=EntrySerializer)
    def retrieve(self, request: Request, user_id: str, seq: int) -> Response:
        """Return the entry with its outcome."""
        user = self.memory_user()
        entry = LogEntry.objects.filter(user=user, seq=seq).first()
        if entry is None:
            raise Http404(f"The log has no entry {seq}.")
        _look_up(user, [entry])
        return Response(_ENTRY.to_representation(entry))

    def _find_user(self) -> MemoryUser | None:
        """Return the user in the URL, or None if a first entry may create it; or raise Http404."""
        try:
            return self.memory_user(WITHOUT_HEAD)
        except Http404:
            principal = principal_of(self.request)
            may = principal.workspace.users_by_entry and principal.key.user_pks is None
            if not may or not is_user_id(self.kwargs["user_id"]):
                raise
            return None


def append_once(
    view: IdempotentView, user: MemoryUser, drafts: Sequence[entry_log.Draft]
) -> list[LogEntry]:
    """Append the drafts, or return the entries that an earlier request with this key appended."""
    entries: list[LogEntry] = []

    def append() -> list[int]:
        principal = principal_of(view.request)
        quotas.check_entries(principal.workspace, user, len(drafts))
        try:
            policy = principal.workspace.content_policy
            entries[:] = entry_log.append(user, drafts, source=str(principal), policy=policy)
        except entry_log.IdempotencyConflict as conflict:
            raise Unprocessable(str(conflict)) from None
        return [entry.seq for entry in entries]

    seqs = view.once(append, user)
    return entries or entry_log.read(user, seqs)


def _appended(
    entries: Sequence[LogEntry],
    drafts: Sequence[entry_log.Draft],
    serialized: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Return the response for appended entries."""
    return {
        "entries": serialized,
        "pending": sum(item["state"] == "pending" for item in serialized),
        "covered": sum(item["state"] == "covered" for item in serialized),
        "rejected": [
            {"seq": item["seq"], "reason": item["reason"] or "", "fix": fixes.FIX}
            for item in serialized
            if item["state"] == "rejected"
        ],
        "set_aside": [
            {"seq": item["seq"], "fields": item["set_aside"], "fix": fixes.FIX_SET_ASIDE}
            for item in serialized
            if item["set_aside"]
        ],
        "masked": [
            {"seq": entry.seq, "field": found.field, "kind": found.kind}
            for entry, given in zip(entries, drafts, strict=True)
            for found in entry_log.masked_in(entry, given)
        ],
    }


def _look_up(user: MemoryUser, entries: Sequence[LogEntry]) -> None:
    """Look up the outcomes of a user's entries and their places in documents, and set both."""
    outcomes = entry_log.outcomes(user, [entry.seq for entry in entries])
    places = documents.places_of(user.pk, entries)
    for entry in entries:
        entry.outcome = outcomes.get(entry.seq)
        entry.__dict__["place"] = places.get(entry.seq)


def read_drafts(body: Any) -> list[entry_log.Draft]:
    """Parse one entry, or `{"entries": [...]}`; raises ValidationError with the errors."""
    if isinstance(body, dict) and "edits" in body:
        raise serializers.ValidationError(
            {"edits": [f"These are edits, not entries: send this body to POST {PROPOSE}."]}
        )
    if isinstance(body, dict) and isinstance(body.get("messages"), list):
        message = (
            'Send each message as an entry: {"entries": [{"kind": "message", "role": …,'
            ' "content": …}]}.'
        )
        raise serializers.ValidationError({"messages": [message]})
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
                {"entries": [f"Send at most {MAX_ENTRIES} entries, not {len(entries)}."]}
            )
        drafts: list[entry_log.Draft] = []
        errors: dict[str, Any] = {}
        for index, entry in enumerate(entries):
            try:
                drafts.append(read_draft(entry))
            except serializers.ValidationError as error:
                errors[str(index)] = error.detail
                if len(errors) == MAX_NAMED:
                    break
        if errors:
            raise serializers.ValidationError({"entries": errors})
        return drafts
    return [read_draft(body)]

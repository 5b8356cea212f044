"""The endpoints that mem0's public client calls, below `/mem0/`."""

import datetime
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError as ModelValidationError
from django.db import transaction
from django.db.models.expressions import RawSQL
from django.http import Http404
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from memory import log
from memory.admission import usage
from memory.api import idempotency, rates
from memory.api.authentication import ApiKeyAuthentication, principal_of
from memory.api.filters import refuse_unknown
from memory.api.serializers import validated
from memory.llm import llm_budgets, track_records
from memory.mem0 import bodies, events, filters, memories
from memory.mem0.errors import CannotBeMapped, exception_handler
from memory.models import IdempotencyKey, LogEntry, MemoryUser, Workspace
from memory.models.workspaces import Scope
from memory.privacy import user_erasure
from memory.users import find_or_create_user, find_user
from memory.workspace_settings import quotas
from memory.workspaces import reaches

PAGE_SIZE = 100
MAX_PAGE_SIZE = 1000
_WHOLE_NUMBER = re.compile(r"[0-9]{1,9}")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
PAGING = ("page", "page_size")


class TokenAuthentication(ApiKeyAuthentication):
    """API key authentication under the scheme name that mem0's client sends."""

    scheme = "Token"


class Mem0View(APIView):
    """Base class for mem0's views: authentication, errors, and strict query parameters."""

    authentication_classes = [TokenAuthentication]
    certain_users = True
    schema = None  # the OpenAPI document describes only our own API
    # Method → the query parameters it accepts.
    parameters: Mapping[str, Collection[str]] = {}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Reject unknown query parameters."""
        super().initial(request, *args, **kwargs)
        known = self.parameters.get(str(request.method), ())
        given = [name for name in request.query_params if name not in bodies.IGNORED]
        refuse_unknown(given, known)

    def get_exception_handler(self) -> Callable[..., Response | None]:
        """Return the handler that formats errors the way mem0's client expects."""
        return exception_handler

    @property
    def workspace(self) -> Workspace:
        """The caller's workspace."""
        return principal_of(self.request).workspace

    def user_named(self, user_id: str) -> MemoryUser | None:
        """Return the user with this id if the caller's key may access them, otherwise None."""
        user = find_user(self.workspace, user_id)
        return user if user and reaches(principal_of(self.request).key, user) else None

    def refuse_others(self, *memory_ids: str) -> None:
        """Raise UnknownMemory if any memory belongs to a user the caller's key may not access."""
        memories.refuse_others(principal_of(self.request).key, memory_ids)

    @property
    def caller(self) -> str:
        """The caller's name in the log, for writes and deletions."""
        return str(principal_of(self.request))

    def scope(
        self, asked: Mapping[str, Any], also: Mapping[str, Any] | None = None
    ) -> tuple[MemoryUser | None, RawSQL | None]:
        """Return the user named in `asked`, if they exist, and the condition on their memories.

        The condition combines the filters and `also`. Raises ValidationError if no user is named or
        a filter is invalid, and CannotBeMapped if the filters don't name exactly one user.
        """
        user_id, rest = filters.split(asked, also or {})
        if user_id is None:
            if rest:
                raise CannotBeMapped(filters.ONE_USER)
            raise ValidationError(
                {"filters": {"user_id": ["Send the id of the user whose memories you want."]}}
            )
        user = self.user_named(user_id)
        return user, filters.compiled(rest, user.time_zone if user else "UTC")


class Ping(Mem0View):
    """The workspace of the caller's key."""

    def get(self, request: Request) -> Response:
        """Return the workspace, as organization and project."""
        name = str(self.workspace.public_id)
        return Response({"status": "ok", "org_id": name, "project_id": name, "user_email": None})


class Add(Mem0View):
    """Add messages or memories to a user's log."""

    def post(self, request: Request) -> Response:
        """Append messages for a language model to process (202), or complete memories (200)."""
        asked = validated(bodies.AddSerializer, request.data)
        drafts = bodies.drafts_of(asked)
        restricted = principal_of(request).key.user_pks is not None
        if restricted and self.user_named(asked["user_id"]) is None:
            raise Http404("This API key is limited to certain users; this user is not one of them.")
        rates.take(request, quotas.ENTRIES, len(drafts))
        # mem0's client sends no Idempotency-Key, but other callers of this URL might.
        written = idempotency.once(
            request,
            lambda: self._append(asked["user_id"], drafts),
            user_of=lambda entries: entries[0].user,
            refer=lambda entries: [entry.seq for entry in entries],
            recall=_told_before,
        )
        entries, headers = written.result, dict(written.headers)
        if asked["infer"]:
            waits = llm_budgets.why_stopped(self.workspace) or track_records.why_stopped(
                self.workspace
            )
            answer: dict[str, Any] = {
                "message": "The messages are in the log; a language model will process them."
                if waits is None
                else f"The messages are in the log, waiting for a language model: {waits}",
                "status": "PENDING",
                "event_id": str(entries[0].pk),
            }
            return Response(answer, status=status.HTTP_202_ACCEPTED, headers=headers)
        told = memories.of_told(entries[0].user, entries)
        answer = {
            "message": "The memories are in the log.",
            "status": "SUCCEEDED",
            "event_id": str(entries[0].pk),
            "results": [events.added(memory) for memory in told],
        }
        return Response(answer, headers=headers)

    @transaction.atomic
    def _append(self, user_id: str, drafts: Sequence[log.Draft]) -> list[LogEntry]:
        """Append to the user's log; a new user is created in the same transaction."""
        try:
            user = find_or_create_user(self.workspace, user_id)
        except ModelValidationError as error:
            raise ValidationError(error.message_dict) from None
        usage.check_entries(self.workspace, user, len(drafts))
        return log.append(user, drafts, source=self.caller)


class Search(Mem0View):
    """Search a user's memories by words and by meaning."""

    costly = ("POST",)
    reads_only = True

    def post(self, request: Request) -> Response:
        """Return the user's memories that best match a query."""
        asked = validated(bodies.SearchSerializer, request.data)
        metadata = {"metadata": asked["metadata"]} if asked.get("metadata") else {}
        user, where = self.scope(asked.get("filters", {}), metadata)
        if user is None:
            return Response({"results": []})
        found = memories.search(
            user, asked["query"], where=where, top_k=asked["top_k"], threshold=asked["threshold"]
        )
        results = [{**memory.to_json(), "score": score} for memory, score in found]
        if names := asked.get("fields"):
            results = [{name: result[name] for name in ("id", *names)} for result in results]
        return Response({"results": results})


class Memories(Mem0View):
    """List a user's memories."""

    reads_only = True
    parameters = {"POST": PAGING}

    def post(self, request: Request) -> Response:
        """Return a page of a user's memories, newest first."""
        asked = validated(bodies.GetAllSerializer, request.data)
        user, where = self.scope(asked.get("filters", {}), _created(asked))
        if user is None:
            return Response(_page(request, 0, lambda start, end: []))

        def rows(start: int, end: int) -> list[dict[str, Any]]:
            return [memory.to_json() for memory in memories.page(user, where, start, end)]

        return Response(_page(request, memories.count(user, where), rows))


class AllMemories(Mem0View):
    """Delete all of a user's memories together."""

    parameters = {"DELETE": (*bodies.ENTITIES, "filters")}

    def delete(self, request: Request) -> Response:
        """Redact a user's memories, or only those of an agent, a run or an app."""
        asked = request.query_params.dict()
        wanted = filters.from_query(asked["filters"]) if "filters" in asked else {}
        named = {name: asked[name] for name in bodies.ENTITIES if name in asked}
        user, where = self.scope({**wanted, **named})
        deleted = memories.delete_all(user, where, by=self.caller) if user else 0
        return Response({"message": "Memories deleted successfully!", "deleted": deleted})


class OneMemory(Mem0View):
    """A single memory."""

    parameters = {"DELETE": ("delete_linked",)}

    def get(self, request: Request, memory_id: str) -> Response:
        """Return the memory with its current text."""
        self.refuse_others(memory_id)
        return Response(memories.one(self.workspace, memory_id).to_json())

    def put(self, request: Request, memory_id: str) -> Response:
        """Append a correction that changes the memory's text or metadata."""
        given = validated(bodies.UpdateSerializer, request.data)
        if not given:
            raise ValidationError({"text": ["Send text or metadata, or both."]})
        change = memories.Change(memory_id, **given)
        self.refuse_others(memory_id)
        rates.take(request, quotas.ENTRIES)
        memory = memories.update(self.workspace, [change], by=self.caller)
        return Response(memory.to_json())

    def delete(self, request: Request, memory_id: str) -> Response:
        """Redact the memory, including its earlier texts and everything derived from it."""
        self.refuse_others(memory_id)
        memories.delete(self.workspace, [memory_id], by=self.caller)
        return Response({"message": "Memory deleted successfully!"})


class History(Mem0View):
    """A memory's history."""

    def get(self, request: Request, memory_id: str) -> Response:
        """Return every text the memory has had, plus its deletion if it was deleted."""
        self.refuse_others(memory_id)
        return Response(memories.history(self.workspace, memory_id))


class Batch(Mem0View):
    """Update or delete several memories, all or none."""

    def put(self, request: Request) -> Response:
        """Update the memories."""
        given = validated(bodies.BatchUpdateSerializer, request.data)["memories"]
        changes = [memories.Change(**one) for one in given]
        for number, change in enumerate(changes):
            if change.text is None and change.metadata is None:
                raise ValidationError(
                    {"memories": {str(number): ["Send text or metadata, or both."]}}
                )
        self.refuse_others(*(change.memory_id for change in changes))
        rates.take(request, quotas.ENTRIES, len(changes))
        memories.update(self.workspace, changes, by=self.caller)
        return Response({"message": f"Successfully updated {len(changes)} memories"})

    def delete(self, request: Request) -> Response:
        """Redact the memories."""
        given = validated(bodies.BatchDeleteSerializer, request.data)["memories"]
        ids = [one["memory_id"] for one in given]
        self.refuse_others(*ids)
        memories.delete(self.workspace, ids, by=self.caller)
        return Response({"message": f"Successfully deleted {len(ids)} memories"})


class Entities(Mem0View):
    """The users in the workspace."""

    parameters = {"GET": PAGING}

    def get(self, request: Request) -> Response:
        """Return the users, each with their number of memories."""
        users = MemoryUser.objects.filter(principal_of(request).reach()).order_by("user_id")

        def rows(start: int, end: int) -> list[dict[str, Any]]:
            page = list(users[start:end])
            counted = memories.counts(page)
            return [
                {
                    "id": str(user.public_id),
                    "name": user.user_id,
                    "type": "user",
                    "total_memories": counted.get(user.pk, 0),
                    "owner": None,
                    "organization": str(self.workspace.public_id),
                    "metadata": user.metadata,
                    "created_at": user.created_at.isoformat(),
                    "updated_at": user.created_at.isoformat(),
                }
                for user in page
            ]

        # mem0's client never asks for a second page, so the first one is as large as allowed.
        return Response(_page(request, users.count(), rows, size=MAX_PAGE_SIZE))


class Entity(Mem0View):
    """One user in the workspace."""

    # Needs `manage`, because erased data can't be restored.
    scopes = {"DELETE": Scope.MANAGE}

    def delete(self, request: Request, kind: str, name: str) -> Response:
        """Erase the user irreversibly; agents, runs and apps are only labels on memories."""
        if kind != "user":
            raise CannotBeMapped(
                "Only users are entities. To redact the memories of an agent, a run or an app, use"
                " DELETE /v1/memories/ with a user_id and the agent_id, run_id or app_id."
            )
        user = self.user_named(name)
        if user is None:
            raise Http404("There is no such user in this workspace.")
        row = user_erasure.ask(user, by=self.caller, reason=user_erasure.MEM0)
        return Response({"message": "Entity deleted successfully!", "erasure": str(row.pk)})


class Event(Mem0View):
    """The progress of adding messages or memories."""

    def get(self, request: Request, event_id: str) -> Response:
        """Return the status of the addition, and the memories that resulted from it."""
        self.refuse_others(event_id)
        try:
            return Response(events.one(self.workspace, event_id))
        except events.UnknownEvent as error:
            raise Http404(str(error)) from None


class Events(Mem0View):
    """The newest additions to a user's memory."""

    parameters = {"GET": ("user_id", "page_size")}

    def get(self, request: Request) -> Response:
        """Return the events, newest first."""
        if "user_id" not in request.query_params:
            raise CannotBeMapped(
                "user_id: Send the id of the user whose events you want, or get a single event with"
                " GET /v1/event/{event_id}/."
            )
        user = self.user_named(request.query_params["user_id"])
        size = _number(request, "page_size", default=50, most=100)
        return Response({"results": events.newest(user, size) if user else []})


class NotHere(Mem0View):
    """mem0 features that this server doesn't have, or has elsewhere."""

    reads_only = True
    reason = ""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Raise CannotBeMapped with the reason, once the caller is authenticated."""
        APIView.initial(self, request, *args, **kwargs)
        raise CannotBeMapped(self.reason)


class Unknown(Mem0View):
    """Responds to any method on a URL that does not exist."""

    reads_only = True

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Raise Http404, once the caller is authenticated."""
        APIView.initial(self, request, *args, **kwargs)
        raise Http404("Endpoint not found; mem0's client 2.2 does not call it.")


def _told_before(known: IdempotencyKey) -> list[LogEntry]:
    """Return the entries that an earlier request with this key appended."""
    if known.user is None:
        raise Http404("This user no longer exists in this workspace.")
    return log.read(known.user, known.reference)


def _created(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return `start_date` and `end_date`, both inclusive, as filters."""
    operators: dict[str, str] = {}
    if start := asked.get("start_date"):
        operators["gte"] = start
    if end := asked.get("end_date"):
        operators["lte"] = end
        if _DAY.fullmatch(end):
            try:
                following = datetime.date.fromisoformat(end) + datetime.timedelta(days=1)
            except (ValueError, OverflowError):
                raise ValidationError(
                    {"end_date": ["Send a valid date, such as 2026-03-01."]}
                ) from None
            del operators["lte"]
            operators["lt"] = following.isoformat()
    return {"created_at": operators} if operators else {}


def _page(
    request: Request,
    count: int,
    rows: Callable[[int, int], list[dict[str, Any]]],
    *,
    size: int = PAGE_SIZE,
) -> dict[str, Any]:
    """Return the requested page of `count` rows in mem0's form, with links to adjacent pages."""
    number = _number(request, "page", default=1, most=10**8)
    size = _number(request, "page_size", default=size, most=MAX_PAGE_SIZE)
    start = (number - 1) * size

    def address(page: int) -> str:
        query = request.query_params.copy()
        query["page"] = str(page)
        return request.build_absolute_uri(f"{request.path}?{query.urlencode()}")

    return {
        "count": count,
        "next": address(number + 1) if start + size < count else None,
        "previous": address(number - 1) if number > 1 and start < count + size else None,
        "results": rows(start, start + size),
    }


def _number(request: Request, name: str, *, default: int, most: int) -> int:
    text = request.query_params.get(name, str(default))
    number = int(text) if _WHOLE_NUMBER.fullmatch(text) else 0
    if not 1 <= number <= most:
        raise serializers.ValidationError({name: [f"Send a whole number from 1 to {most}."]})
    return number

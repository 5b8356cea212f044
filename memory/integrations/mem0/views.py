"""The endpoints that mem0's public client calls, below `/mem0/`."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError as ModelValidationError
from django.db import transaction
from django.db.models import Q
from django.http import Http404
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from memory.integrations.mem0 import bodies, filters, memories
from memory.integrations.mem0.errors import exception_handler
from memory.kernel import instants
from memory.kernel.admission.rates import ENTRIES
from memory.kernel.http import throttles
from memory.kernel.http.authentication import ApiKeyAuthentication, principal_of
from memory.kernel.http.filters import refuse_unknown
from memory.kernel.http.idempotency import IdempotentView
from memory.kernel.http.serializers import validated
from memory.kernel.models.users import MemoryUser, is_user_id
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings.environment import SENSITIVE
from memory.kernel.users import find_or_create_user, find_user
from memory.kernel.workspaces import reach, reaches
from memory.llm import lane_status
from memory.llm.lane_status import LaneState
from memory.log import entry_log
from memory.log.api.entries import append_once
from memory.log.models.entries import EntryKind, LogEntry

PAGE_SIZE = 100
MAX_PAGE_SIZE = 1000
# The maximum number of users that one request may read or delete memories of.
MAX_USERS = 100
MAX_WARNINGS = 20
WHOSE = "Send the id of the user, agent, run or app whose memories you mean."
UNKNOWN = (
    "Endpoint not found. Of mem0's API, this server has add, search, get_all, get, update, delete,"
    " delete_all, history and users; its own API, outside of /mem0/, has everything else."
)
_WHOLE_NUMBER = re.compile(r"[0-9]{1,9}")
PAGING = ("page", "page_size")


class TokenAuthentication(ApiKeyAuthentication):
    """API key authentication under the scheme name that mem0's client sends."""

    scheme = "Token"


class Mem0View(IdempotentView):
    """Base class for mem0's views: authentication, errors, and strict query parameters."""

    authentication_classes = [TokenAuthentication]
    certain_users = True
    schema = None  # the OpenAPI document describes only our own API
    # Method → the query parameters it accepts.
    parameters: Mapping[str, Collection[str]] = {}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Reject unknown query parameters."""
        # What this request's answer says was ignored.
        self.ignored = list(bodies.ignored(dict(request.query_params.items())))
        super().initial(request, *args, **kwargs)
        allowed = self.parameters.get(str(request.method), ())
        refuse_unknown([name for name in request.query_params if name not in bodies.HINTS], allowed)

    def read(self, body: type[bodies.Body]) -> dict[str, Any]:
        """Return the request body's fields; raises ValidationError naming the invalid ones."""
        given = validated(body, self.request.data)
        self.ignored += bodies.ignored(dict(self.request.data))
        return given

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        """Say in a header what was ignored."""
        answer = super().finalize_response(request, response, *args, **kwargs)
        if warnings := getattr(self, "ignored", ()):
            answer["Warning"] = ", ".join(f'299 uac "{text}"' for text in warnings[:MAX_WARNINGS])
        return answer

    def tell_masked(self, entries: Iterable[LogEntry], drafts: Iterable[entry_log.Draft]) -> None:
        """Have the answer say what the content policy masked in the entries given as `drafts`."""
        for entry, given in zip(entries, drafts, strict=True):
            for found in entry_log.masked_in(entry, given):
                self.ignored.append(f"{found.field}: masked, since it had {SENSITIVE[found.kind]}")

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

    def refuse_others(self, memory_id: str) -> None:
        """Raise UnknownMemory if the memory belongs to a user the caller's key may not access."""
        memories.refuse_others(principal_of(self.request).key, memory_id)

    @property
    def caller(self) -> str:
        """The caller's name in the log, for writes and deletions."""
        return str(principal_of(self.request))

    def select(
        self,
        body: Mapping[str, Any],
        also: Mapping[str, Any] | None = None,
        *,
        named: bool = False,
    ) -> list[memories.Selection]:
        """Return the users whose memories are asked for, and the condition on each one's memories.

        `body` has filters, and perhaps ids next to them; `also` has further conditions. If
        `named`, "any user" is refused. Raises ValidationError for invalid filters, if they name
        neither a user nor an agent, run or app, and if they concern too many users.
        """
        ids = {name: body[name] for name in filters.ENTITIES if name in body}
        given = body.get("filters") or {}
        if ids:
            given = {"AND": [ids, given]} if ids.keys() & given.keys() else {**ids, **given}
        names, rest = filters.split(given, also or {})
        if names is None and not filters.names_entity(rest):
            raise ValidationError({"filters": {"user_id": [WHOSE]}})
        filters.compiled(rest, "UTC")  # what is wrong is named even if no user is found
        users = self._users(names, rest, named)
        return [(user, filters.compiled(rest, user.time_zone)) for user in users]

    def _users(
        self, names: Collection[str] | None, rest: dict[str, Any], named: bool
    ) -> list[MemoryUser]:
        """Return the users that the filters can match, as far as the key may access them."""
        key = principal_of(self.request).key
        if names is not None and len(names) == 1:
            return [user for name in names if (user := self.user_named(name))]
        users = MemoryUser.objects.filter(reach(key)).order_by("pk")
        if names is not None:
            users = users.filter(user_id__in=[name for name in names if is_user_id(name)])
        else:
            entries = LogEntry.objects.filter(reach(key, "user")).order_by()

            def matching(condition: dict[str, Any]) -> set[int]:
                entry_rows = entries.filter(Q(filters.compiled(condition, "UTC"))).values_list(
                    "user_id"
                )
                return {pk for (pk,) in entry_rows.distinct()[: MAX_USERS + 1]}

            in_question = filters.users_in_question(rest, matching)
            if in_question is None and named:
                raise ValidationError({"filters": {"user_id": [WHOSE]}})
            if in_question is not None:
                users = users.filter(pk__in=in_question)
        rows = list(users[: MAX_USERS + 1])
        if len(rows) > MAX_USERS:
            message = f"These filters concern more than {MAX_USERS} users: name at most that many."
            raise ValidationError({"filters": {"user_id": [message]}})
        return rows


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
        body = self.read(bodies.AddSerializer)
        drafts = bodies.drafts_of(body)
        self.ignored += body["messages"].left_out
        restricted = principal_of(request).key.user_pks is not None
        if restricted and self.user_named(body["user_id"]) is None:
            raise Http404("This API key is limited to certain users; this user is not one of them.")
        throttles.take(request, ENTRIES, len(drafts))
        # mem0's client sends no Idempotency-Key, but other callers of this URL might.
        entries = self._append(body["user_id"], drafts)
        self.tell_masked(entries, drafts)
        if body["infer"]:
            work = lane_status.read_status(entries[0].user)
            ahead = "; a language model will process them."
            if work.state == LaneState.STOPPED:
                ahead = f", waiting for a language model: {work.reason}"
            answer: dict[str, Any] = {
                "message": f"The messages are in the log{ahead}",
                "status": "PENDING",
                "event_id": str(entries[0].pk),
            }
            return Response(answer, status=status.HTTP_202_ACCEPTED)
        added = memories.read_created(entries[0].user, entries)
        answer = {
            "message": "The memories are in the log.",
            "status": "SUCCEEDED",
            "event_id": str(entries[0].pk),
            "results": [memory.as_added() for memory in added],
        }
        return Response(answer)

    @transaction.atomic
    def _append(self, user_id: str, drafts: Sequence[entry_log.Draft]) -> list[LogEntry]:
        """Append to the user's log; a new user is created in the same transaction."""
        try:
            user = find_or_create_user(self.workspace, user_id)
        except ModelValidationError as error:
            raise ValidationError(error.message_dict) from None
        return append_once(self, user, drafts)


class Search(Mem0View):
    """Search a user's memories by words and by meaning."""

    costly = ("post",)
    reads_only = True

    def post(self, request: Request) -> Response:
        """Return the user's memories that best match a query."""
        body = self.read(bodies.SearchSerializer)
        metadata = {"metadata": body["metadata"]} if "metadata" in body else {}
        matches = memories.search(
            self.select(body, metadata),
            body["query"],
            top_k=body["top_k"],
            threshold=body["threshold"],
        )
        results = [{**memory.to_json(), "score": score} for memory, score in matches]
        return Response({"results": _fields(results, body)})


class Memories(Mem0View):
    """List a user's memories."""

    reads_only = True
    parameters = {"POST": PAGING}

    def post(self, request: Request) -> Response:
        """Return a page of a user's memories, newest first."""
        body = self.read(bodies.GetAllSerializer)
        selections = self.select(body, _created(body))

        def rows(start: int, end: int) -> list[dict[str, Any]]:
            page = [memory.to_json() for memory in memories.page(selections, start, end)]
            return _fields(page, body)

        return Response(_page(request, memories.count(selections), rows, body))


class AllMemories(Mem0View):
    """Delete all of a user's memories together."""

    parameters = {"DELETE": (*filters.ENTITIES, "filters")}

    def delete(self, request: Request) -> Response:
        """Redact a user's memories, or only those of an agent, a run or an app."""
        query: dict[str, Any] = request.query_params.dict()
        if "filters" in query:
            query["filters"] = filters.parse_query(query["filters"])
        # A deletion cannot be undone: an id that turned out to be empty must not widen it.
        for name, value in {**query, **query.get("filters", {})}.items():
            if name in filters.ENTITIES and not filters.is_given(value):
                raise ValidationError({name: ["Name it, or leave it out to delete more."]})
        deleted = memories.delete_all(self.select(query, named=True), by=self.caller)
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
        given = self.read(bodies.UpdateSerializer)
        # Clients clear a field that has no equivalent here with null: that changes nothing.
        if not given and not dict(request.data).keys() - {"text", "metadata"}:
            raise ValidationError({"text": ["Send text or metadata, or both."]})
        change = memories.Change(memory_id, **given)
        self.refuse_others(memory_id)
        throttles.take(request, ENTRIES)
        memory = memories.update(self.workspace, change, by=self.caller)
        told = entry_log.Draft(
            kind=EntryKind.CORRECTION, content=change.text, metadata=change.metadata
        )
        self.tell_masked([memory.now], [told])
        return Response(memory.to_json())

    def delete(self, request: Request, memory_id: str) -> Response:
        """Redact the memory, including its earlier texts and everything derived from it."""
        self.refuse_others(memory_id)
        memories.delete(self.workspace, memory_id, by=self.caller)
        return Response({"message": "Memory deleted successfully!"})


class History(Mem0View):
    """A memory's history."""

    def get(self, request: Request, memory_id: str) -> Response:
        """Return every text the memory has had, plus its deletion if it was deleted."""
        self.refuse_others(memory_id)
        return Response(memories.history(self.workspace, memory_id))


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
                    "name": memories.entity_of(user.user_id)[1],
                    "type": memories.entity_of(user.user_id)[0],
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


class Unknown(Mem0View):
    """Responds to any method on a URL that does not exist."""

    reads_only = True

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Raise Http404, once the caller is authenticated."""
        IdempotentView.initial(self, request, *args, **kwargs)
        raise Http404(UNKNOWN)


def _created(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return `start_date` and `end_date`, both inclusive, as filters."""
    bounds = {"gte": body.get("start_date"), "lte": body.get("end_date")}
    operators = {name: value for name, value in bounds.items() if value}
    for name in ("start_date", "end_date"):
        if value := body.get(name):
            try:
                instants.span_in("UTC", value)
            except instants.BadMoment as error:
                raise ValidationError({name: [str(error)]}) from None
    return {"created_at": operators} if operators else {}


def _fields(rows: list[dict[str, Any]], body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the memories with their ids and the fields that the request names, if it names any."""
    names = body.get("fields")
    return [{name: row.get(name) for name in ("id", *names)} for row in rows] if names else rows


def _page(
    request: Request,
    count: int,
    rows: Callable[[int, int], list[dict[str, Any]]],
    body: Mapping[str, Any] | None = None,
    *,
    size: int = PAGE_SIZE,
) -> dict[str, Any]:
    """Return the requested page of `count` rows in mem0's form, with links to adjacent pages.

    The body may name the page, as well as the address; the links are addresses.
    """
    given = {**(body or {}), **request.query_params.dict()}
    number = _number(given, "page", default=1, most=10**8)
    size = _number(given, "page_size", default=size, most=MAX_PAGE_SIZE)
    start = (number - 1) * size

    def address(page: int) -> str:
        query = request.query_params.copy()
        query["page"], query["page_size"] = str(page), str(size)
        return request.build_absolute_uri(f"{request.path}?{query.urlencode()}")

    return {
        "count": count,
        "next": address(number + 1) if start + size < count else None,
        "previous": address(number - 1) if number > 1 and start < count + size else None,
        "results": rows(start, start + size),
    }


def _number(given: Mapping[str, Any], name: str, *, default: int, most: int) -> int:
    text = str(given.get(name) or default)
    number = int(text) if _WHOLE_NUMBER.fullmatch(text) else 0
    if not 1 <= number <= most:
        raise serializers.ValidationError({name: [f"Send a whole number from 1 to {most}."]})
    return number

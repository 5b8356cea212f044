"""`manifest/` and `state/`: what the newest version of a user's project knows."""

from typing import Any

from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory import retrieval
from memory.api.users import UserScopedView


class ManifestSerializer(serializers.Serializer[Any]):
    """What the project knows, small enough to be always in an agent's prompt."""

    version = serializers.IntegerField(allow_null=True)
    text = serializers.CharField()
    warning = serializers.CharField(
        allow_null=True, help_text="What to know of the sandboxes behind it, if anything."
    )


class StateSerializer(serializers.Serializer[Any]):
    """The classes and collections of the newest version; the records are under each collection."""

    version = serializers.IntegerField(allow_null=True)
    domains = serializers.JSONField()


class RecordsSerializer(serializers.Serializer[Any]):
    """A page of a collection's records, in typed JSON, in the order in which they were added."""

    version = serializers.IntegerField()
    count = serializers.IntegerField(help_text="Records of the whole collection.")
    records = serializers.JSONField()
    next = serializers.IntegerField(allow_null=True, help_text="?page= of the next page.")


class Manifest(UserScopedView):
    """The manifest of the newest version, with the open alerts."""

    @extend_schema(responses=ManifestSerializer)
    def get(self, request: Request, user_id: str) -> Response:
        """Return the manifest as text."""
        user = self.memory_user()
        manifest = retrieval.manifest(user)
        return Response(
            {
                "version": user.head.version if user.head else None,
                "text": manifest.text,
                "warning": manifest.warning,
            }
        )


class State(UserScopedView):
    """What there is: domains, classes with their fields, collections with their counts."""

    @extend_schema(operation_id="users_state_overview", responses=StateSerializer)
    def get(self, request: Request, user_id: str) -> Response:
        """Return the schema and the counts."""
        user = self.memory_user()
        return Response(
            {
                "version": user.head.version if user.head else None,
                "domains": retrieval.schema(user),
            }
        )


class Collection(UserScopedView):
    """The records of one collection, or the one record of a singleton."""

    parameters = {"GET": ["page"]}

    @extend_schema(
        operation_id="users_state_records",
        responses=RecordsSerializer,
        parameters=[OpenApiParameter("page", int, description="From 1; a page is one file.")],
    )
    def get(self, request: Request, user_id: str, domain: str, collection: str) -> Response:
        """Return one page of records."""
        text = request.query_params.get("page", "1")
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise serializers.ValidationError({"page": [f"Give a number from 1, not {text!r}."]})
        try:
            page = retrieval.records(self.memory_user(), domain, collection, int(text))
        except LookupError as error:
            raise Http404(str(error)) from None
        return Response(
            {
                "version": page.version,
                "count": page.count,
                "records": page.records,
                "next": page.next,
            }
        )

"""`manifest/` and `state/`: the contents of the newest version of a user's project."""

from typing import Any

from django.http import Http404
from drf_spectacular.utils import OpenApiParameter, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.kernel.http import operations
from memory.kernel.http.stored import EnumValueField, TypedRecordsField
from memory.recall import retrieval
from memory.versions.api.moments import AS_OF, BY, AsOfSerializer, KnownView


class ManifestSerializer(serializers.Serializer[Any]):
    """A summary of the project, small enough for an agent to include in every prompt."""

    version = serializers.IntegerField(allow_null=True)
    text = serializers.CharField()
    as_of = AsOfSerializer(allow_null=True, help_text="Null means the current state.")
    warning = serializers.CharField(
        allow_null=True,
        help_text="A warning if an alert was raised in a sandbox meant for development only;"
        " otherwise null.",
    )


class CollectionSizeSerializer(serializers.Serializer[Any]):
    """A collection of a domain."""

    count = serializers.IntegerField(help_text="The number of records in the collection.")

    def get_fields(self) -> dict[str, Any]:
        """Return the fields plus `class`, which can't be declared because it's a Python keyword."""
        return {"class": serializers.CharField(), **super().get_fields()}


class DomainSerializer(serializers.Serializer[Any]):
    """A domain's classes and collections, by name."""

    classes = serializers.DictField(
        child=serializers.DictField(child=serializers.CharField()),
        help_text="Class → field → type.",
    )
    enums = serializers.DictField(
        child=serializers.DictField(child=EnumValueField()), help_text="Enum → member → value."
    )
    collections = serializers.DictField(child=CollectionSizeSerializer())
    singletons = serializers.DictField(
        child=serializers.CharField(), help_text="The only record of its kind → class."
    )


@extend_schema_field(serializers.DictField(child=DomainSerializer()))
class DomainsField(serializers.JSONField):
    """Domains by name."""


class StateSerializer(serializers.Serializer[Any]):
    """The classes and collections of the newest version, without the records."""

    version = serializers.IntegerField(allow_null=True)
    as_of = AsOfSerializer(allow_null=True, help_text="Null means the current state.")
    domains = DomainsField()


class RecordPageSerializer(serializers.Serializer[Any]):
    """A page of a collection's records, in typed JSON, in the order they were added."""

    version = serializers.IntegerField()
    as_of = AsOfSerializer(allow_null=True, help_text="Null means the current state.")
    count = serializers.IntegerField(help_text="The number of records in the whole collection.")
    records = TypedRecordsField()
    next = serializers.IntegerField(
        allow_null=True, help_text="The ?page= value that fetches the next page; null at the end."
    )


class Manifest(KnownView):
    """The newest version's manifest with open alerts, or an earlier version's without alerts."""

    @operations.read(responses=ManifestSerializer, parameters=[AS_OF, BY])
    def get(self, request: Request, user_id: str) -> Response:
        """Return the manifest as text."""
        snapshot = self.snapshot()
        if not snapshot.is_now:
            manifest = retrieval.manifest_of(snapshot.checkpoint)
        else:
            manifest = retrieval.manifest(snapshot.user)
        return Response(
            {
                "version": snapshot.version,
                "as_of": snapshot.to_json(),
                "text": manifest.text,
                "warning": manifest.warning,
            }
        )


class State(KnownView):
    """The project's domains, classes with their fields, and collections with their counts."""

    @operations.read(
        operation_id="users_state_overview", responses=StateSerializer, parameters=[AS_OF, BY]
    )
    def get(self, request: Request, user_id: str) -> Response:
        """Return the project's schema, and the number of records in each collection."""
        snapshot = self.snapshot()
        return Response(
            {
                "version": snapshot.version,
                "as_of": snapshot.to_json(),
                "domains": retrieval.schema(snapshot.checkpoint),
            }
        )


class Collection(KnownView):
    """The records in a collection, or the only record of a singleton."""

    @operations.read(
        operation_id="users_state_records",
        responses=RecordPageSerializer,
        parameters=[
            OpenApiParameter(
                "page",
                {"type": "integer", "minimum": 1, "maximum": 999_999_999},
                description="The page number, starting at 1; each page is one file of the project.",
            ),
            AS_OF,
            BY,
        ],
    )
    def get(self, request: Request, user_id: str, domain: str, collection: str) -> Response:
        """Return one page of the collection's records."""
        text = request.query_params.get("page", "1")
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise serializers.ValidationError(
                {"page": [f"Give a whole number of at least 1, not {text!r}."]}
            )
        snapshot = self.snapshot()
        try:
            page = retrieval.records(snapshot.checkpoint, domain, collection, int(text))
        except LookupError as error:
            raise Http404(str(error)) from None
        return Response(
            {
                "version": page.version,
                "as_of": snapshot.to_json(),
                "count": page.count,
                "records": page.records,
                "next": page.next,
            }
        )

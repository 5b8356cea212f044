"""`/v1/constraint-library/`: the constraints that ship with the server."""

from django.http import Http404
from drf_spectacular.helpers import forced_singular_serializer
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from memory.constraints import constraint_library
from memory.constraints.api.workspace_constraint_serializers import describe_library
from memory.constraints.constraint_library import LibraryConstraint
from memory.kernel.http import operations
from memory.kernel.http.filters import StrictView
from memory.kernel.http.pages import PAGE, PageSerializer, page_of


class LibraryConstraintSerializer(serializers.Serializer[LibraryConstraint]):
    """A constraint in the constraint library."""

    name = serializers.CharField()
    summary = serializers.CharField()
    doc = serializers.CharField(
        help_text="What the constraint alerts on, what it requires, and what it does not detect."
    )


class LibraryPageSerializer(PageSerializer):
    """A page of constraints in the constraint library."""

    results = LibraryConstraintSerializer(many=True)


class LibraryConstraintDetailSerializer(LibraryConstraintSerializer):
    """A constraint in the constraint library, with its source and tests."""

    source = serializers.CharField()  # type: ignore[assignment]
    tests = serializers.CharField()


class ConstraintLibrary(StrictView, viewsets.ViewSet):
    """The constraint library that ships with the server."""

    certain_users = True
    lookup_url_kwarg = "name"

    @operations.read(
        forced_singular_serializer(LibraryPageSerializer),  # type: ignore[no-untyped-call]
        PAGE,
        operation_id="constraint_library_list",
    )
    def list(self, request: Request) -> Response:
        """List the constraints in the library that ships with the server."""
        page = page_of(request, constraint_library.names(), lambda name: (name,))
        constraints = map(constraint_library.read, page["results"])
        results = [LibraryConstraintSerializer(one).data for one in constraints]
        return Response({**page, "results": results})

    @operations.read(LibraryConstraintDetailSerializer)
    def retrieve(self, request: Request, name: str) -> Response:
        """Return the library constraint with its source and tests."""
        try:
            constraint = constraint_library.read(name)
        except KeyError:
            raise Http404(describe_library()) from None
        return Response(LibraryConstraintDetailSerializer(constraint).data)

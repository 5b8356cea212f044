"""`/v1/constraint-library/`: the constraints that ship with the server."""

from django.http import Http404
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.constraints import constraint_library
from memory.constraints.api.workspace_constraint_serializers import describe_library
from memory.constraints.api.workspace_constraints import WorkspaceView
from memory.constraints.constraint_library import LibraryConstraint
from memory.kernel.http import operations
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


class ConstraintLibrary(WorkspaceView):
    """The constraint library that ships with the server."""

    certain_users = True

    @operations.read(
        operation_id="constraint_library_list",
        responses=LibraryPageSerializer,
        parameters=PAGE,
    )
    def get(self, request: Request) -> Response:
        """List the constraints in the library that ships with the server."""
        page = page_of(request, constraint_library.names(), lambda name: (name,))
        found = map(constraint_library.read, page["results"])
        results = [LibraryConstraintSerializer(one).data for one in found]
        return Response({**page, "results": results})


class OneLibraryConstraint(WorkspaceView):
    """One constraint in the constraint library."""

    certain_users = True

    @operations.read(responses=LibraryConstraintDetailSerializer)
    def get(self, request: Request, name: str) -> Response:
        """Return the library constraint with its source and tests."""
        try:
            found = constraint_library.read(name)
        except KeyError:
            raise Http404(describe_library()) from None
        return Response(LibraryConstraintDetailSerializer(found).data)

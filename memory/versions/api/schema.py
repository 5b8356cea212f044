"""`/v1/schema/`: the classes that a workspace prescribes for its users' projects."""

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from memory.kernel.http import etags, operations
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.filters import StrictView
from memory.kernel.http.serializers import StrictSerializer, validated
from memory.kernel.models.workspaces import Scope, Workspace
from memory.project import EditError, ProjectError
from memory.project.edits import MAX_SOURCE
from memory.versions import prescribed_classes


class PrescribedClassesSerializer(StrictSerializer):
    """The classes that a workspace prescribes."""

    modules = serializers.DictField(
        child=serializers.CharField(max_length=MAX_SOURCE, trim_whitespace=False),
        help_text="By domain, a module of Python with dataclasses and enums, as in the file"
        " `domains/<domain>/schema.py` of a project. A class derives from `Record`, or is a part of"
        " records. `{}` prescribes nothing.",
    )


class WorkspaceSchema(StrictView):
    """The classes that the workspace prescribes."""

    scopes = {"put": Scope.MANAGE}

    @operations.read(PrescribedClassesSerializer)
    def get(self, request: Request) -> Response:
        """Return the prescribed classes."""
        return Response(_representation(_workspace(request)))

    @operations.write(
        {200: PrescribedClassesSerializer, **etags.CHANGED},
        [etags.IF_MATCH],
        request=PrescribedClassesSerializer,
    )
    def put(self, request: Request) -> Response:
        """Prescribe classes for the projects of all users, instead of those prescribed before.

        A user's next version has them, whatever it is made from. Typed entries and language models
        then use them. A project keeps its own classes, and its own fields of a prescribed one; a
        field that an existing class lacks is added to it, and may be null if it has no default.
        Requires the scope `manage`.
        """
        modules = validated(PrescribedClassesSerializer, request.data)["modules"]
        workspace = _workspace(request)

        def write() -> Workspace:
            with etags.unchanged(request, workspace, lambda: _representation(_workspace(request))):
                try:
                    prescribed_classes.prescribe(workspace, modules)
                except ProjectError as error:
                    domain = error.path.split("/")[1]
                    raise serializers.ValidationError({"modules": {domain: [str(error)]}}) from None
                except EditError as error:
                    raise serializers.ValidationError({"modules": [str(error)]}) from None
            return workspace

        self.once(write)
        return Response(_representation(_workspace(request)))


def _workspace(request: Request) -> Workspace:
    return Workspace.objects.get(pk=principal_of(request).workspace.pk)


def _representation(workspace: Workspace) -> dict[str, object]:
    return {"modules": workspace.schema}

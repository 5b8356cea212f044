"""`/v1/users/{user_id}/import/`: importing an external project into the user's own project."""

from collections.abc import Mapping
from typing import IO, Any

from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from memory.integrations import imports
from memory.integrations.imports import ImportRefused
from memory.kernel.http import operations, waiting
from memory.kernel.http.parsers import StrictJSONParser, read_body
from memory.kernel.http.serializers import StrictSerializer, validated
from memory.kernel.http.stored import ImportReportField
from memory.kernel.http.user_scope import UserScopedView
from memory.versions.api.checkpoints import PROPOSAL_WAIT_SECONDS, DecisionSerializer
from memory.versions.api.runs import FAILURES, RunSerializer, answer_run
from memory.versions.models.runs import Run, RunTrigger


class ZipParser(BaseParser):
    """Parses a zip of a project's Python files into the same form as the equivalent JSON body."""

    media_type = "application/zip"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the files, keyed by path; raises a ParseError that describes what is wrong."""
        body = read_body(stream, parser_context or {})
        try:
            return {"files": imports.read_zip(body)}
        except imports.ImportRefused as error:
            raise ParseError(str(error)) from None


_NAME = "[A-Za-z0-9_][A-Za-z0-9_-]{0,49}"


class ImportSerializer(StrictSerializer):
    """A project's Python files, in any layout; a single module is enough."""

    rules = {
        "properties": {
            "files": {
                "minProperties": 1,
                "maxProperties": 1000,
                "propertyNames": {"pattern": rf"^{_NAME}(/{_NAME}){{0,3}}\.py$"},
            }
        }
    }

    files = serializers.DictField(
        child=serializers.CharField(trim_whitespace=False, allow_blank=True),
        help_text="Path → source, such as `domains/health/state.py` or `memory.py`.",
    )

    def validate_files(self, files: dict[str, str]) -> dict[str, str]:
        """Check the files' paths and sizes; raises ValidationError if any is not allowed."""
        try:
            imports.check_files(files)
        except ImportRefused as error:
            raise serializers.ValidationError([str(error)]) from None
        return files


class ImportDecisionSerializer(DecisionSerializer):
    """The result of an import."""

    report = ImportReportField(
        source="output.import",
        allow_null=True,
        default=None,
        help_text="The repairs that were made, and everything whose name or form in the project"
        " differs from the files; null if nothing was imported.",
    )


class Import(UserScopedView):
    """Import a project that was created elsewhere."""

    costly = ("post",)
    parser_classes = [StrictJSONParser, ZipParser]

    @operations.write(
        {200: ImportDecisionSerializer, 202: RunSerializer, **FAILURES},
        [waiting.WAIT],
        request={
            "application/json": ImportSerializer,
            "application/zip": OpenApiTypes.BINARY,
        },
    )
    def post(self, request: Request, user_id: str) -> Response:
        """Execute the files in a sandbox and turn their typed objects into project records.

        A project exported by this server, as a zip or a clone, is imported unchanged.

        200 with the new version; 422 with the verdict if the files cannot be imported, in which
        case the head stays unchanged; 202 with the run if it did not finish in time.
        """
        limit = waiting.seconds(request, default=PROPOSAL_WAIT_SECONDS)
        files = validated(ImportSerializer, request.data)["files"]
        user = self.memory_user()

        def queue() -> Run:
            return imports.queue(user, files, RunTrigger.API)

        return answer_run(self, user, queue, ImportDecisionSerializer, limit)

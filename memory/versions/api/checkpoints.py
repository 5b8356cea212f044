"""`/v1/users/{user_id}/checkpoints/`: a project's versions, and proposed edits."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import OpenApiParameter
from rest_framework import mixins, serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from memory.kernel.http import operations, waiting
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.errors import NamesNothing
from memory.kernel.http.idempotency import IdempotentView
from memory.kernel.http.serializers import MAX_NAMED, StrictSerializer, validated
from memory.kernel.http.stored import (
    EditsField,
    HashesField,
    RunErrorField,
    VerdictField,
    WarningField,
)
from memory.kernel.http.user_scope import UserScopedView
from memory.kernel.models.large import defer_large
from memory.kernel.models.users import MemoryUser
from memory.log import content_policy
from memory.project import EditError, proposal_from_json
from memory.versions import checkpoints, past_states, runs
from memory.versions.api import edit_schemas
from memory.versions.api.runs import FAILURES, RunSerializer, answer_run
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunTrigger

MAX_EDITS = 1000
MAX_FILES = 1000
MAX_FILE = 1_000_000
MAX_CONSIDERED = 10_000
PROPOSAL_WAIT_SECONDS = 20.0


class CheckpointSerializer(serializers.ModelSerializer[Checkpoint]):
    """A version of a project, as shown in lists."""

    parent = serializers.IntegerField(  # type: ignore[assignment]
        source="parent.version", default=None, allow_null=True
    )
    accepted_checks = serializers.SerializerMethodField(
        help_text="The names of the gate's checks that this version passed."
    )
    warning = WarningField(
        "A warning if the gate used a sandbox meant for development only; otherwise null.",
        source="verdict.runner",
    )

    class Meta:
        model = Checkpoint
        fields = [
            "version",
            "parent",
            "origin",
            "seen_seq",
            "created_at",
            "accepted_checks",
            "warning",
        ]

    def get_accepted_checks(self, checkpoint: Checkpoint) -> list[str]:
        """Return the names of the gate's checks that this version passed."""
        return [check["name"] for check in checkpoint.verdict.get("checks", [])]


class CheckpointDetailSerializer(CheckpointSerializer):
    """A version with its files, its edits and the gate's verdict."""

    files = HashesField(source="tree", help_text="Path → SHA-256 of the file.")
    edits = EditsField()
    verdict = VerdictField()

    class Meta(CheckpointSerializer.Meta):
        fields = [*CheckpointSerializer.Meta.fields, "files", "edits", "verdict"]


_FILES = {"required": ["files"], "properties": {"files": {"minProperties": 1}}}


class ProposalSerializer(StrictSerializer):
    """Edits to the project, whole project files, or both.

    Together, they become the project's next version, or none of them is applied.
    """

    rules = {
        "properties": {
            "edits": {
                "items": {"type": None, "additionalProperties": None, "$ref": edit_schemas.EDIT}
            },
            "files": {"maxProperties": MAX_FILES},
            "considered": {"items": edit_schemas.SEQ},
            "version": {"maximum": 2**31 - 1},
        },
        "if": {"required": ["edits"], "properties": {"edits": {"minItems": 1}}},
        "else": _FILES,
        "dependentSchemas": {"version": _FILES},
    }
    definitions = edit_schemas.DEFINITIONS

    edits = serializers.ListField(
        child=serializers.DictField(),
        default=list,
        max_length=MAX_EDITS,
        help_text="Each edit has `op` and its own fields; see docs/edits.md.",
    )
    files = serializers.DictField(
        child=serializers.CharField(
            allow_null=True, allow_blank=True, max_length=MAX_FILE, trim_whitespace=False
        ),
        default=dict,
        help_text="Path → new source of the file, in the format of the project's files; null"
        " deletes a constraint. A file that omits a record is rejected: omitting a record does not"
        " retire it.",
    )
    version = serializers.IntegerField(
        required=False,
        min_value=1,
        help_text="The version that the files are based on; by default, the newest.",
    )
    considered = serializers.ListField(
        child=serializers.IntegerField(min_value=1),
        default=list,
        max_length=MAX_CONSIDERED,
        help_text="The numbers of the log entries that the edits must settle: the gate checks that"
        " each of them is cited or dismissed by an edit.",
    )

    def to_internal_value(self, data: Any) -> Any:
        """Validate the fields; raises ValidationError for a body with entries or a single edit."""
        if isinstance(data, dict) and "op" in data:
            message = 'Send even a single edit in a list: {"edits": [{"op": …}]}.'
            raise serializers.ValidationError({"edits": [message]})
        if isinstance(data, dict) and data.keys() & {"kind", "entries"}:
            name = "entries" if "entries" in data else "kind"
            message = (
                "These are entries, not edits: send this body to POST /v1/users/{user_id}/entries/."
            )
            raise serializers.ValidationError({name: [message]})
        return super().to_internal_value(data)

    def validate_files(self, files: dict[str, str | None]) -> dict[str, str | None]:
        """Raise ValidationError if there are more than MAX_FILES files."""
        if len(files) > MAX_FILES:
            raise serializers.ValidationError(f"Send at most {MAX_FILES} files, not {len(files)}.")
        return files

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Reject a proposal that has neither edits nor files, or has a `version` but no files."""
        if not attrs["edits"] and not attrs["files"]:
            raise serializers.ValidationError({"edits": ["Propose at least one edit or file."]})
        if "version" in attrs and not attrs["files"]:
            raise serializers.ValidationError(
                {"version": ["`version` applies to files only: send it with `files`."]}
            )
        return attrs

    def validate_edits(self, edits: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Check that the edits are well-formed; raises ValidationError naming each invalid edit."""
        errors = []
        for index, edit in enumerate(edits):
            try:
                proposal_from_json(edit)
            except EditError as error:
                errors.append(f"edits[{index}]: {error}")
            if len(errors) == MAX_NAMED:
                break
        if errors:
            raise serializers.ValidationError(errors)
        return edits


class DecisionSerializer(serializers.Serializer[Any]):
    """The gate's decision on a proposal."""

    id = serializers.UUIDField(source="pk", help_text="The id of the run.")
    accepted = serializers.SerializerMethodField(
        help_text="Whether the gate accepted the proposal."
    )
    version = serializers.IntegerField(
        source="output.version",
        allow_null=True,
        default=None,
        help_text="The new version's number; null if the proposal was rejected.",
    )
    verdict = VerdictField(
        source="output.verdict",
        allow_null=True,
        default=None,
        help_text="Null if the run did not reach the gate.",
    )
    notes = serializers.SerializerMethodField(
        help_text="The gate's findings that do not cause a rejection, such as a proposed constraint"
        " that fails."
    )
    error = RunErrorField()
    warning = WarningField(
        "A warning if the gate used a sandbox meant for development only; otherwise null."
    )

    def get_accepted(self, run: Run) -> bool:
        """Return whether the gate accepted the proposal."""
        return run.outcome == RunOutcome.OK

    def get_notes(self, run: Run) -> list[str]:
        """Return the gate's non-blocking findings, one line each."""
        verdict = (run.output or {}).get("verdict") or {}
        return [
            ": ".join(filter(None, (finding.get("path"), finding["message"], finding.get("fix"))))
            for check in verdict.get("checks", [])
            for finding in check["findings"]
            if not finding["blocking"]
        ]


DECISIONS: dict[Any, Any] = {200: DecisionSerializer, 202: RunSerializer, **FAILURES}


class FileSerializer(serializers.Serializer[Any]):
    """A file in a version of a project."""

    path = serializers.CharField()
    hash = serializers.CharField(help_text="SHA-256 of the source.")
    source = serializers.CharField()  # type: ignore[assignment]


class Checkpoints(UserScopedView, mixins.ListModelMixin, viewsets.GenericViewSet[Checkpoint]):
    """List the accepted versions, newest first."""

    costly = ("create",)
    lookup_url_kwarg = "version"
    lookup_value_converter = "int"
    body_example = '{"edits": [{"op": …}, …]}'
    queryset = Checkpoint.objects.none()
    serializer_class = CheckpointSerializer
    ordering = ["-version"]

    def get_queryset(self) -> QuerySet[Checkpoint]:
        """Return the user's versions."""
        rows = Checkpoint.objects.filter(user=self.memory_user())
        return defer_large(rows, "parent", keep=["verdict"])

    @operations.write(DECISIONS, [waiting.WAIT], request=ProposalSerializer)
    def create(self, request: Request, user_id: str) -> Response:
        """Propose edits or files, which the gate accepts or rejects.

        200 with the new version; 422 with the verdict if the gate rejects the proposal, in which
        case the head stays unchanged; 202 with the run if the gate has not decided in time.
        """
        limit = waiting.seconds(request, default=PROPOSAL_WAIT_SECONDS)
        proposal = validated(ProposalSerializer, request.data)
        user = self.memory_user()
        base = user.head
        if "version" in proposal:
            base = Checkpoint.objects.filter(user=user, version=proposal["version"]).first()
            if base is None:
                raise NamesNothing("version", f"This user has no version {proposal['version']}.")
        return propose(
            self,
            user,
            lambda: proposal["edits"],
            limit,
            considered=proposal["considered"],
            files=proposal["files"],
            base=base,
        )

    @operations.read(responses=CheckpointDetailSerializer)
    def retrieve(self, request: Request, user_id: str, version: int) -> Response:
        """Return the version with its files, edits and verdict."""
        return Response(CheckpointDetailSerializer(_version(self.memory_user(), version)).data)


def propose(
    view: IdempotentView,
    user: MemoryUser,
    edits: Callable[[], list[dict[str, Any]]],
    limit: float,
    *,
    considered: Sequence[int] = (),
    files: Mapping[str, str | None] | None = None,
    base: Checkpoint | None = None,
    expects: Callable[[], Mapping[str, str]] = dict,
) -> Response:
    """Queue the proposal, wait up to `limit` seconds for the gate, and return the response.

    `edits` returns the edits, or raises if the current state does not allow them; the edits must
    settle the entries in `considered`. `files` are whole files, based on the version `base`.
    `expects` returns the hashes that the project's files must still have, keyed by path, or raises
    if the request's precondition fails. Raises ContentRefused if the workspace's content policy
    does not simply store what is in the edits, or new in the files.
    """

    def queue() -> Run:
        proposed = edits()
        if policy := principal_of(view.request).workspace.content_policy:
            new_lines = _new_lines(base or user.head, files or {})
            content_policy.refuse_sensitive(policy, {"edits": proposed, "files": new_lines})
        return runs.queue(
            user,
            RunKind.PROPOSAL,
            RunTrigger.API,
            checkpoint=base or user.head,
            input={
                "edits": proposed,
                "considered": list(considered),
                "files": dict(files or {}),
                "expects": dict(expects()),
            },
        )

    return answer_run(view, user, queue, DecisionSerializer, limit)


def _new_lines(base: Checkpoint | None, files: Mapping[str, str | None]) -> dict[str, str]:
    """Return the lines of each file that its version in `base` does not have."""
    known = checkpoints.read_files(base, files.keys()) if base else {}
    return {
        path: "\n".join(line for line in (source or "").splitlines() if line not in known_lines)
        for path, source in files.items()
        for known_lines in [set(known.get(path, "").splitlines())]
    }


def _version(user: MemoryUser, version: int) -> Checkpoint:
    """Return a version of the user's project.

    Raises Http404 if there is no such version, and BeingRedacted (503) during a redaction.
    """
    past_states.refuse_being_redacted(user)
    checkpoint = Checkpoint.objects.filter(user=user, version=version).first()
    if checkpoint is None:
        raise Http404(f"This user has no version {version}.")
    return checkpoint


class CheckpointFile(UserScopedView):
    """One file in one version of a user's project."""

    @operations.read(
        responses=FileSerializer,
        parameters=[OpenApiParameter("path", str, OpenApiParameter.PATH)],
    )
    def get(self, request: Request, user_id: str, version: int, path: str = "") -> Response:
        """Return the file's source."""
        checkpoint = _version(self.memory_user(), version)
        if path not in checkpoint.tree:
            raise Http404(f"Version {version} has no file {path!r}.")
        return Response(
            {
                "path": path,
                "hash": checkpoint.tree[path],
                "source": checkpoints.read_file(checkpoint, path),
            }
        )

"""`/v1/users/{user_id}/documents/`: uploading documents, reading them and redacting them."""

import hashlib
import io
import unicodedata
from collections.abc import Mapping
from typing import IO, Any, cast
from zoneinfo import ZoneInfo

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.core.files.uploadhandler import MemoryFileUploadHandler
from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet
from django.http import Http404, HttpResponse
from django.http.multipartparser import MultiPartParser, MultiPartParserError
from django.urls import reverse
from django.utils import timezone
from django.utils.http import content_disposition_header
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema_field
from rest_framework import mixins, serializers, viewsets
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response

from memory.kernel.admission import quotas
from memory.kernel.admission.rates import ENTRIES
from memory.kernel.http import operations, throttles, waiting
from memory.kernel.http.authentication import principal_of
from memory.kernel.http.errors import PayloadTooLarge
from memory.kernel.http.parsers import read_body
from memory.kernel.http.serializers import DayStartField, StrictSerializer, validated
from memory.kernel.http.user_scope import UserScopedView
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope
from memory.kernel.texts import MAX_REASON
from memory.log import documents
from memory.log.models.documents import Document
from memory.log.models.redactions import Redaction
from memory.privacy import redaction
from memory.privacy.api.redactions import RedactionSerializer, WhySerializer

FILE = "file"
MISSING = "Send one file in the field `file`, with its name."


class Upload(dict[str, Any]):
    """The fields of an upload, the file by its name and hash, and the file's content."""

    content = b""


class _InMemory(MemoryFileUploadHandler):
    """Keeps uploads of any size in memory: the body, which has a limit, is there already."""

    def handle_raw_input(self, *arguments: Any, **options: Any) -> None:
        """Take all files."""
        self.activated = True


class UploadParser(BaseParser):
    """Parses a form with one file."""

    media_type = "multipart/form-data"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Upload:
        """Return the fields; raises a ParseError that describes what is wrong."""
        body = read_body(stream, parser_context or {})
        meta = {"CONTENT_TYPE": media_type, "CONTENT_LENGTH": len(body)}
        try:
            parser = MultiPartParser(meta, io.BytesIO(body), [_InMemory()], "utf-8")
            fields, files = parser.parse()
        except RequestDataTooBig:
            raise PayloadTooLarge() from None
        except (MultiPartParserError, SuspiciousOperation) as error:
            raise ParseError(f"The form cannot be read: {error}") from None
        sent = [(name, file) for name, many in files.lists() for file in many]
        upload = Upload(fields.dict())
        for name, file in sent:
            if name != FILE or len(sent) > 1:
                raise ParseError(MISSING)
            upload.content = file.read()
            digest = hashlib.sha256(upload.content).hexdigest()
            upload[FILE] = {"name": unicodedata.normalize("NFC", str(file.name)), "sha256": digest}
        return upload


@extend_schema_field({"type": "string", "format": "binary"})
class _FileField(serializers.Field[Any, Any, Any, Any]):
    """A file, by the name and hash that the parser has found."""

    def to_internal_value(self, data: Any) -> Any:
        """Return the file; raises ValidationError for a field without a file."""
        if not isinstance(data, dict):
            raise serializers.ValidationError(MISSING)
        return data

    def to_representation(self, value: Any) -> Any:
        """Return the value; no answer has this field."""
        return value


class NewDocumentSerializer(StrictSerializer):
    """A document to be uploaded."""

    file = _FileField(
        help_text="The document, with its name: PDF, DOCX, XLSX, PPTX, HTML, EML, MBOX, Markdown or"
        " text.",
        error_messages={"required": MISSING},
    )
    occurred_at = DayStartField(
        required=False,
        help_text="When the content was said or was true; a time without a UTC offset is"
        " interpreted in the user's time zone, and a day means its start. Default: now.",
    )


class DocumentErrorSerializer(serializers.Serializer[Any]):
    """Why nothing of a document is in the log, and what to do about it."""

    code = serializers.ChoiceField(choices=list(documents.REFUSALS))
    field = serializers.CharField(help_text="The field of the upload: `file`.")
    detail = serializers.CharField()
    fix = serializers.CharField()


class DocumentSerializer(serializers.ModelSerializer[Document]):
    """An uploaded document, and the entries that hold its text."""

    state = serializers.ChoiceField(
        choices=["waiting", "done", "failed"],
        help_text="waiting: to be converted; done: the text is in the log; failed: see `error`.",
    )
    error = serializers.SerializerMethodField(help_text="Why the document failed; else null.")
    is_duplicate = serializers.SerializerMethodField(
        help_text="True only in the answer to an upload of a file that was uploaded before: nothing"
        " was added."
    )
    is_stored = serializers.BooleanField(
        help_text="Whether the original can be read. It is not kept if the document failed, in a"
        " workspace with a content policy, and after a redaction of a part of the text."
    )

    class Meta:
        model = Document
        fields = [
            *("id", "name", "state", "media_type", "size", "sha256", "pages", "characters"),
            *("first_seq", "last_seq", "is_stored", "is_duplicate", "error"),
            *("occurred_at", "created_at", "finished_at"),
        ]

    @extend_schema_field(DocumentErrorSerializer(allow_null=True))
    def get_error(self, row: Document) -> dict[str, str] | None:
        """Return why the document failed."""
        if not row.error:
            return None
        fix = documents.REFUSALS[row.error][1]
        return {"code": row.error, "field": FILE, "detail": row.detail, "fix": fix}

    def get_is_duplicate(self, row: Document) -> bool:
        """Return whether this is the answer to an upload that added nothing."""
        return bool(self.context.get("is_duplicate"))


class Documents(UserScopedView, mixins.ListModelMixin, viewsets.GenericViewSet[Document]):
    """List a user's documents, newest first."""

    # Needs `manage`, because redacted content cannot be restored.
    scopes = {"destroy": Scope.MANAGE}
    of_merged = ["destroy"]
    costly = ("create",)
    queryset = Document.objects.none()
    serializer_class = DocumentSerializer
    parser_classes = [UploadParser]
    lookup_url_kwarg = "document_id"
    lookup_value_converter = "uuid"
    ordering = ["-created_at", "-id"]

    def get_queryset(self) -> QuerySet[Document]:
        """Return the user's documents."""
        return _rows(self.memory_user())

    @operations.write(
        {200: DocumentSerializer, 202: DocumentSerializer},
        [waiting.WAIT],
        request={"multipart/form-data": NewDocumentSerializer},
    )
    def create(self, request: Request, user_id: str) -> Response:
        """Upload a document, whose text is then appended to the user's log as messages.

        202 with the document, which is converted soon; with `?wait=`, once that is done or after
        that many seconds. 200 if the same file was uploaded before: nothing is added then. A
        document that failed may be uploaded again.
        """
        limit = waiting.seconds(request, default=0)
        user, principal, upload = (
            self.memory_user(),
            principal_of(request),
            cast("Any", request.data),
        )
        with timezone.override(ZoneInfo(user.time_zone)):
            fields = validated(NewDocumentSerializer, upload)

        def add() -> tuple[Document, bool]:
            throttles.take(request, ENTRIES, 1)
            quotas.check_entries(principal.workspace, user, 1)
            return documents.add(
                user,
                fields[FILE]["name"],
                upload.content,
                by=str(principal),
                occurred_at=fields.get("occurred_at"),
            )

        row, is_new = self.once(add, user)
        if limit and row.due_at is not None:
            done = Document.objects.filter(pk=row.pk, due_at=None)
            waiting.until(done.exists, limit, workspace_pk=user.workspace_id)
        answer = DocumentSerializer(find(user, row.pk), context={"is_duplicate": not is_new}).data
        if not is_new:
            return Response(answer)
        return operations.accepted(answer, reverse("document-detail", args=[user_id, row.pk]))

    @operations.read(responses=DocumentSerializer)
    def retrieve(self, request: Request, user_id: str, document_id: Any) -> Response:
        """Return the document, and how far its conversion is."""
        return Response(DocumentSerializer(find(self.memory_user(), document_id)).data)

    @operations.write(
        {
            202: RedactionSerializer,
            204: OpenApiResponse(description="Nothing of the document was in the log."),
        },
        [
            OpenApiParameter(
                "reason",
                {"type": "string", "minLength": 1, "maxLength": MAX_REASON, "pattern": r"\S"},
                description="The reason for the redaction, which stays on record; at most 2000"
                " characters.",
            ),
        ],
    )
    def destroy(self, request: Request, user_id: str, document_id: Any) -> Response:
        """Redact the document: delete its file, its text, and everything derived from it.

        202 with the redaction, as for an entry. Requires the scope `manage`.
        """
        reason = validated(WhySerializer, request.query_params.dict())["reason"]
        user = self.memory_user()

        def redact() -> Any:
            row, by = find(user, document_id), str(principal_of(request))
            entry = redaction.redact_document(row, by=by, reason=reason)
            return entry and Redaction.objects.get(user=user, seq=entry.seq)

        done = self.once(redact, user)
        if done is None:
            return Response(status=204)
        location = reverse("redaction", args=[user_id, done.seq])
        return operations.accepted(RedactionSerializer(done).data, location)


class DocumentContent(UserScopedView):
    """The original of a document."""

    @operations.read(
        responses={
            (200, "application/octet-stream"): OpenApiResponse(
                bytes, "The file as it was uploaded. It is not checked: treat it as untrusted."
            )
        },
    )
    def get(self, request: Request, user_id: str, document_id: Any) -> HttpResponse:
        """Return the file as it was uploaded."""
        row = find(self.memory_user(), document_id)
        file = Document.objects.values_list("file", flat=True).get(pk=row.pk)
        if file is None:
            raise Http404("The original of this document is not stored: see `is_stored`.")
        response = HttpResponse(bytes(file), content_type="application/octet-stream")
        response["Content-Disposition"] = content_disposition_header(True, row.name) or "attachment"
        response["Cache-Control"] = "private, no-store"
        return response


def find(user: MemoryUser, document_id: Any) -> Document:
    """Return a user's document; raises Http404 if there is none with this id."""
    row = _rows(user).filter(pk=document_id).first()
    if row is None:
        raise Http404("This user has no such document.")
    return row


def _rows(user: MemoryUser) -> QuerySet[Document]:
    is_stored = ExpressionWrapper(Q(file__isnull=False), BooleanField())
    return Document.objects.filter(user=user).annotate(is_stored=is_stored)

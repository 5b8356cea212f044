"""`export/`, `git/` and `subject-access/`: a user's project, and all data about the user."""

import functools
import zlib
from collections.abc import Callable, Iterable
from tempfile import SpooledTemporaryFile

import structlog
from django.conf import settings
from django.http import FileResponse, HttpResponse, HttpResponseBase
from django.utils.http import parse_etags
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import ParseError, PermissionDenied
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from memory.export import archive, fetching, git, subject
from memory.kernel.admission.slots import download
from memory.kernel.http import operations
from memory.kernel.http.authentication import PasswordAuthentication, principal_of
from memory.kernel.http.errors import PayloadTooLarge
from memory.kernel.http.user_scope import UserScopedView
from memory.kernel.models.workspaces import Scope
from memory.versions.api.moments import AS_OF, KnownView
from memory.versions.past_states import refuse_being_redacted

logger = structlog.get_logger(__name__)

RECEIVE = "git-receive-pack"
READ_ONLY = (
    "This repository is read-only. Propose changes instead: POST .../checkpoints/ with the files."
)


class AnyAccepted(DefaultContentNegotiation):
    """Ignores the Accept header: the content comes in only one format, and errors are JSON."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """Return the first renderer, which is used for errors."""
        first = next(iter(renderers))
        return first, first.media_type


class Export(KnownView):
    """A user's project, as a zip."""

    costly = ("get",)
    content_negotiation_class = AnyAccepted

    @operations.read(
        parameters=[AS_OF],
        responses={
            (200, "application/zip"): OpenApiResponse(
                bytes, "Source, tests, and the library that they need; see docs/export.md."
            ),
            304: OpenApiResponse(description="The content matches `If-None-Match`."),
        },
    )
    def get(self, request: Request, user_id: str) -> HttpResponseBase:
        """Return the files of the newest version, or of an earlier version."""
        snapshot = self.snapshot()
        etag = archive.etag(snapshot.checkpoint)
        if {etag, "*"} & set(parse_etags(request.headers.get("If-None-Match", ""))):
            return HttpResponse(status=304, headers={"ETag": etag})
        make = functools.partial(archive.download, snapshot.user, snapshot.checkpoint)
        return download(snapshot.user.workspace_id, make)


class SubjectAccess(UserScopedView):
    """All stored data about the user, as a zip."""

    # Needs `manage` because subject access reveals more than any other request: prompts,
    # deliveries, and the reasons for redactions.
    scopes = {"get": Scope.MANAGE}
    costly = ("get",)
    content_negotiation_class = AnyAccepted

    @operations.read(
        responses={
            (200, "application/zip"): OpenApiResponse(
                bytes, "JSON Lines files with a README; see docs/subject-access.md."
            ),
            503: OpenApiResponse(description="A redaction is in progress. Try again."),
        },
    )
    def get(self, request: Request, user_id: str) -> HttpResponseBase:
        """Return all stored data about the user, as of the same point in time.

        Requires the scope `manage`. For a long log, it may take minutes for the first byte to
        arrive.
        """
        user = self.memory_user()
        answer = download(user.workspace_id, functools.partial(subject.download, user))
        logger.info("subject_access", user=user.pk, by=str(principal_of(request)))
        return answer


class _GitView(UserScopedView):
    """Base class for git's endpoints. Errors are plain text because git shows them verbatim."""

    authentication_classes = [PasswordAuthentication]
    content_negotiation_class = AnyAccepted
    reads_only = True

    def handle_exception(self, exc: Exception) -> HttpResponse:  # type: ignore[override]
        """Return an error as plain text."""
        answer = super().handle_exception(exc)
        detail = str(answer.data["detail"])
        response = HttpResponse(f"{detail}\n", "text/plain; charset=utf-8", answer.status_code)
        for name in ("WWW-Authenticate", "Allow", "Retry-After"):
            if name in answer:
                response[name] = answer[name]
        return response

    def sent(
        self, form: str, answer: Callable[[git.History, fetching.Write], None]
    ) -> HttpResponseBase:
        """Return a response containing what `answer` writes for the history of the user's project.

        Raises BeingRedacted while a redaction is in progress.
        """
        user = self.memory_user()
        refuse_being_redacted(user)

        def make() -> HttpResponseBase:
            history = git.history_of(user)
            return _sent(form, lambda write: answer(history, write))

        return download(user.workspace_id, make)


@extend_schema(exclude=True)
class GitRefs(_GitView):
    """The refs of a user's git repository."""

    costly = ("get",)

    @operations.read(None, [OpenApiParameter("service")], exclude=True)
    def get(self, request: Request, user_id: str) -> HttpResponseBase:
        """Return the refs and their commits, which `git clone` and `git fetch` request first."""
        service = request.query_params.get("service")
        if service == RECEIVE:
            self.memory_user()
            raise PermissionDenied(READ_ONLY)
        if service != fetching.SERVICE:
            raise ParseError(f"Use git: this URL requires service={fetching.SERVICE}.")
        return self.sent("advertisement", fetching.advertise)


@extend_schema(exclude=True)
class GitUploadPack(_GitView):
    """The objects of a user's git repository that a client does not have yet."""

    costly = ("post",)

    def post(self, request: Request, user_id: str) -> HttpResponseBase:
        """Return the objects that a client requests, using git's protocol."""
        if request.content_type != f"application/x-{fetching.SERVICE}-request":
            raise ParseError("Use git: this URL accepts only git's own requests.")
        body = _body(request)

        def answer(history: git.History, write: fetching.Write) -> None:
            try:
                fetching.answer(history, body, write)
            except fetching.BadRequest as error:
                raise ParseError(str(error)) from None

        return self.sent("result", answer)


@extend_schema(exclude=True)
class GitReceivePack(_GitView):
    """The URL that git pushes to; pushes are rejected."""

    def post(self, request: Request, user_id: str) -> HttpResponseBase:
        """Reject the push."""
        self.memory_user()
        raise PermissionDenied(READ_ONLY)


def _sent(form: str, write: Callable[[fetching.Write], None]) -> FileResponse:
    spool = SpooledTemporaryFile(max_size=archive.IN_MEMORY)  # noqa: SIM115 the response closes it
    try:
        write(spool.write)
    except BaseException:
        spool.close()
        raise
    size = spool.tell()
    spool.seek(0)
    response = FileResponse(spool, content_type=f"application/x-{fetching.SERVICE}-{form}")
    response["Content-Length"] = str(size)
    response["Cache-Control"] = "no-cache, max-age=0, must-revalidate"
    return response


def _body(request: Request) -> bytes:
    """Return the request's decompressed body.

    Raises ParseError if the body is compressed with anything but gzip, and PayloadTooLarge if the
    decompressed body is too large.
    """
    body: bytes = request.body
    if request.headers.get("Content-Encoding", "identity") == "identity":
        return body
    if request.headers["Content-Encoding"] not in ("gzip", "x-gzip"):
        raise ParseError("Compress the body with gzip or not at all.")
    limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    unpacking = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        content = unpacking.decompress(body, limit + 1)
    except zlib.error:
        raise ParseError("The body is not gzip, although its Content-Encoding says so.") from None
    if len(content) > limit:
        raise PayloadTooLarge
    return content

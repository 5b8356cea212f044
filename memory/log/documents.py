"""Documents: uploaded files, whose text becomes entries of the log.

An upload is stored as a row, which is work: a worker has the file converted in a container of its
own (`workers.documents`), and appends its text, cut into messages that name their page and offset,
in the transaction that ends the work. So a worker may be killed at any line. The file holds the
same text as the entries: when one of them is cleared, the file goes, too.
"""

import datetime
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from memory.kernel.admission import quotas
from memory.kernel.admission.refusals import LimitExceeded
from memory.kernel.models.idempotency import IdempotencyKey
from memory.kernel.models.users import MemoryUser
from memory.kernel.refused import Refused
from memory.kernel.settings.environment import SENSITIVE
from memory.kernel.texts import one_line, split_text
from memory.kernel.work import leases
from memory.kernel.work.hints import hint
from memory.log import content_policy, entry_log
from memory.log.models.documents import Document
from memory.log.models.entries import EntryKind, LogEntry, Trust

# Maximum number of characters per entry.
ENTRY_CHARACTERS = 4000
MAX_NAME = 255
# In an entry's metadata, where in which document it stands.
PLACE = "document"

# Why nothing of a document is in the log, by code, and what to do about it.
EMPTY, TOO_LARGE = "empty", "too_large"
REFUSALS: Mapping[str, tuple[str, str]] = {
    EMPTY: ("The file is empty.", "Upload one with content."),
    TOO_LARGE: ("The file is too large.", "Upload it in parts."),
    "no_text": (
        "The file has no text, as a scan has none.",
        "Upload it after text recognition (OCR).",
    ),
    "encrypted": ("The file is encrypted.", "Upload it without a password."),
    "broken": ("The file is damaged, or not of its type.", "Save it anew, and upload that."),
    "wrong_type": (
        "The content does not match the ending of the name.",
        "Upload it under a name with the right ending.",
    ),
    "unsupported_type": (
        "Files of this type cannot be read.",
        "Upload a PDF, DOCX, XLSX, PPTX, HTML, EML, MBOX, Markdown or text file.",
    ),
    "unpacks_too_large": ("The file is too large when unpacked.", "Upload it in parts."),
    "too_many_pages": ("The file has too many pages.", "Upload it in parts."),
    "too_long": ("The file has too much text.", "Upload it in parts."),
    "too_many_attachments": (
        "A mail has too many attachments.",
        "Upload the attachments by themselves.",
    ),
    "timeout": ("Reading the file takes too long.", "Upload it in parts."),
    "out_of_memory": ("Reading the file takes too much memory.", "Upload it in parts."),
    "crashed": ("The file makes the converter crash.", "Save it anew, and upload that."),
    "unavailable": ("The converter failed again and again.", "Upload the file again later."),
    "content_refused": (
        "The workspace's content policy refuses what is in the file.",
        "Take it out, and upload the rest.",
    ),
    "not_admitted": ("The log did not admit the text.", "Do as the detail says."),
}


class DocumentRefused(Refused):
    """A document of which nothing can enter the log; `code` is a key of REFUSALS."""

    def __init__(self, code: str) -> None:
        what, fix = REFUSALS[code]
        super().__init__(f"{what} {fix}")
        self.code = code
        self.status = 413 if code == TOO_LARGE else 422
        self.errors = {"file": [str(self)]}


@dataclass(frozen=True)
class Page:
    """The text of one page, slide, sheet or message; `number` is None where there are no pages."""

    number: int | None
    text: str


@dataclass(frozen=True)
class ConvertedDocument:
    """A document's media type, as its content has it, and its pages that have text."""

    media_type: str
    pages: Sequence[Page]


def add(
    user: MemoryUser,
    name: str,
    content: bytes,
    *,
    by: str,
    occurred_at: datetime.datetime | None = None,
) -> tuple[Document, bool]:
    """Store an upload, to be converted soon; return its row and whether it is new.

    The same file is not added twice, unless it failed before. Raises DocumentRefused if it is empty
    or too large, and ContentRefused if the content policy does not allow its name.
    """
    if not content:
        raise DocumentRefused(EMPTY)
    if len(content) > settings.UAC_DOCUMENT_BYTES:
        raise DocumentRefused(TOO_LARGE)
    digest, now = hashlib.sha256(content).hexdigest(), timezone.now()
    name = _admitted_name(user, name)
    with transaction.atomic():
        MemoryUser.objects.locked(user.pk)
        earlier = Document.objects.filter(user=user, sha256=digest).first()
        if earlier is not None and not earlier.error:
            return earlier, False
        if earlier is not None:
            earlier.delete()
        row = Document.objects.create(
            user=user,
            name=name,
            size=len(content),
            sha256=digest,
            file=content,
            by=by,
            occurred_at=occurred_at,
            created_at=now,
            due_at=now,
            hinted_at=now,
        )
        hint("documents", str(row.pk), workspace_pk=user.workspace_id, user_pk=user.pk)
    return row, True


def _admitted_name(user: MemoryUser, name: str) -> str:
    policy = user.workspace.content_policy
    inspection = content_policy.Inspection(policy, content_policy.deadline(policy))
    admitted: str = inspection.value(name, "file")
    if inspection.refused:
        raise content_policy.ContentRefused({0: inspection.refused}, is_batch=False)
    return admitted[:MAX_NAME]


def waiting() -> QuerySet[Document]:
    """Select the documents that are not converted yet."""
    return Document.objects.filter(due_at__isnull=False)


def finish(row: Document, converted: ConvertedDocument) -> None:
    """Append a converted document's text to the log and end the work, or note why that fails.

    The original is kept unless the workspace has a content policy, which its text alone has passed.
    Raises LeaseLost if the caller has lost the lease, and Postponed while the workspace has too
    many pending entries.
    """
    user = MemoryUser.objects.select_related("workspace").get(pk=row.user_id)
    drafts = list(_drafts(row, converted.pages))
    try:
        with transaction.atomic():
            quotas.check_entries(user.workspace, user, len(drafts))
            entries = entry_log.append(user, drafts, source=row.by)
            leases.release(
                row,
                media_type=converted.media_type,
                pages=max((page.number or 0 for page in converted.pages), default=0) or None,
                characters=sum(len(page.text) for page in converted.pages),
                first_seq=entries[0].seq,
                last_seq=entries[-1].seq,
                due_at=None,
                finished_at=timezone.now(),
                attempts=0,
                last_error="",
                **({"file": None} if user.workspace.content_policy else {}),
            )
    except content_policy.ContentRefused as refused:
        fail(row, "content_refused", _describe(refused, drafts))
    except Refused as refused:
        fail(row, "not_admitted", str(refused))
    except LimitExceeded as exceeded:
        if exceeded.wait is not None:
            raise leases.Postponed(exceeded.detail, counts=False) from exceeded
        fail(row, "not_admitted", exceeded.detail)


def fail(row: Document, code: str, detail: str = "") -> None:
    """End the work on a document of which nothing can enter the log."""
    leases.release(
        row,
        file=None,
        error=code,
        detail=detail or REFUSALS[code][0],
        due_at=None,
        finished_at=timezone.now(),
        last_error="",
    )


def _drafts(row: Document, pages: Iterable[Page]) -> Iterator[entry_log.Draft]:
    """Yield the entries: one session, in which each entry names its page and the offset there."""
    for page in pages:
        offset = 0
        for piece in split_text(page.text, ENTRY_CHARACTERS):
            if text := piece.strip():
                start = offset + len(piece) - len(piece.lstrip())
                place = {"name": row.name, "page": page.number, "offset": start}
                yield entry_log.Draft(
                    kind=EntryKind.MESSAGE,
                    content=text,
                    metadata={PLACE: place},
                    session_id=f"document-{row.pk}",
                    occurred_at=row.occurred_at or row.created_at,
                    trust=Trust.DOCUMENT,
                )
            offset += len(piece)


def _describe(refused: content_policy.ContentRefused, drafts: Sequence[entry_log.Draft]) -> str:
    """Name the kinds of what the content policy refuses, and the first page of each."""
    first: dict[str, str] = {}
    for index, findings in refused.found.items():
        for one in findings:
            first.setdefault(one.kind, _place((drafts[index].metadata or {})[PLACE]))
    kinds = "; ".join(f"{SENSITIVE[kind]} ({place})" for kind, place in first.items())
    return f"The workspace's content policy does not allow what is in the file: {kinds}."


# -- Removing ----------------------------------------------------------------------------------


def select_behind(user_pk: int, seqs: Collection[int]) -> list[Document]:
    """Return the documents whose text is, in part or as a whole, in these entries of a user."""
    if not seqs:
        return []
    near = Document.objects.filter(user=user_pk, first_seq__lte=max(seqs), last_seq__gte=min(seqs))
    return [row for row in near.order_by("first_seq") if not set(_seqs(row)).isdisjoint(seqs)]


def is_whole(row: Document, seqs: Collection[int]) -> bool:
    """Return whether nothing of a document's text would be left without these entries."""
    entries = LogEntry.objects.filter(user=row.user_id, seq__in=_seqs(row), redacted_at=None)
    return not entries.exclude(seq__in=seqs).exists()


def _seqs(row: Document) -> range:
    return range(row.first_seq or 0, (row.last_seq or -1) + 1)


def remove_files(user_pk: int, seqs: Collection[int]) -> None:
    """Remove the files with the text of these entries, which the caller has cleared.

    A document of which no text is left is deleted. The caller has locked the user's row.
    """
    for row in select_behind(user_pk, seqs):
        if is_whole(row, seqs):
            forget(row)
        else:
            _forget_requests(row)
            Document.objects.filter(pk=row.pk).update(file=None, sha256="")


def forget(row: Document) -> None:
    """Delete a document's row; its text, if it is in the log, is none of this."""
    _forget_requests(row)
    Document.objects.filter(pk=row.pk).delete()


def _forget_requests(row: Document) -> None:
    """Clear the hashes of the requests with a document, from which a short one can be guessed."""
    keys = IdempotencyKey.objects.filter(user=row.user_id, reference__pk=str(row.pk))
    keys.update(fingerprint="")


# -- Evidence ----------------------------------------------------------------------------------


def places_of(user_pk: int, entries: Iterable[LogEntry]) -> dict[int, str]:
    """Map entries that come from documents to where they stand there: "page 3 of lease.pdf".

    A fact stands where the entries that it is derived from do.
    """
    of_documents = [entry for entry in entries if entry.trust == Trust.DOCUMENT]
    places = {entry.seq: place for entry in of_documents if (place := place_of(entry))}
    others = [entry for entry in of_documents if entry.seq not in places]
    wanted = {seq for entry in others for seq in entry.derived_from}
    if wanted:
        rows = LogEntry.objects.filter(user=user_pk, seq__in=wanted, trust=Trust.DOCUMENT)
        behind = {row.seq: place_of(row) for row in rows.only("seq", "trust", "metadata")}
        for entry in others:
            known = [behind[seq] for seq in entry.derived_from if behind.get(seq)]
            if known:
                places[entry.seq] = ", ".join(dict.fromkeys(known))
    return places


def place_of(entry: LogEntry) -> str:
    """Return where in a document an entry stands; "" if it comes from none, or was cleared."""
    place = (entry.metadata or {}).get(PLACE) if entry.trust == Trust.DOCUMENT else None
    return _place(place) if isinstance(place, Mapping) else ""


def _place(place: Mapping[str, Any]) -> str:
    name, page = one_line(str(place.get("name") or "a document"), MAX_NAME), place.get("page")
    return f"page {page} of {name}" if type(page) is int else name

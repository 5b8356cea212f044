"""Subject access: everything stored about a person, as a zip of JSON Lines files with a README.

The erasure registry determines the contents: each of its models has a part here or is listed in
LEFT_OUT, and a part contains all columns except those it leaves out for a stated reason. The zip is
written to a file row by row, in one snapshot; docs/subject-access.md describes its format.
"""

import datetime
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import IO, Any

from django.db import models
from django.http import FileResponse
from django.utils import timezone

from memory.alerts.models.alerts import Alert, AlertEvent, AlertFeedback, PausedConstraint
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt, WebhookEndpoint
from memory.constraints.models.backtests import Backtest, BacktestUser
from memory.constraints.models.forecasts import Forecast
from memory.export.archive import file_name
from memory.kernel.database.snapshots import snapshot
from memory.kernel.encryption import EncryptionError
from memory.kernel.models.idempotency import IdempotencyKey
from memory.kernel.models.pauses import Pause
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.llm import llm_calls
from memory.llm.models import LlmCall
from memory.log import copies
from memory.log.models.entries import EntryOutcome, LogEntry
from memory.log.models.merges import CopiedEntries, Merge
from memory.log.models.redactions import Redaction
from memory.privacy import erasure_registry, redaction
from memory.privacy.models import UserErasure
from memory.recall.models import SearchBlock, SearchIndex, SearchSegment
from memory.versions.history import BeingRedacted, refuse_being_redacted
from memory.versions.models.checkpoints import Blob, Bytecode, Checkpoint, RecordLocation
from memory.versions.models.runs import Run

_WORK = "the server's internal data about processing the row"
_WHOSE = "the same person in every row"
_NUMBER = "the row's number in the database; nothing else in this archive refers to it"
_PLACE = "the machine that did the work; not data about the person"
_LEASE = dict.fromkeys(
    ("run_after", "hinted_at", "lease_owner", "lease_expires_at", "token", "attempts"), _WORK
)
# For each of these models, the field that identifies its rows in exported references; references to
# other models are exported as primary keys.
_NAMES: Mapping[type[models.Model], str] = {
    Checkpoint: "version",
    Lane: "name",
    MemoryUser: "user_id",
    Merge: "merged__user_id",
    WebhookEndpoint: "url",
    Workspace: "name",
}


@dataclass(frozen=True)
class SubjectPart:
    """A part of the export: the rows of one model that belong to a person.

    `what` describes the rows in the README. `left_out` maps each column that is not exported to the
    reason. `order` lists the columns that rows are sorted by. `chunk` rows are read at a time.
    """

    name: str
    what: str
    left_out: Mapping[str, str] = field(default_factory=dict)
    order: Sequence[str] = ("pk",)
    chunk: int = 500


# Models whose rows are not exported, and why.
LEFT_OUT: Mapping[type[models.Model], str] = {
    Bytecode: "the project's files in compiled form: their source is in files.jsonl",
    SearchIndex: _WORK,
    UserErasure: "an erased user has no data left to export",
    SearchSegment: "part of the search index, derived from log.jsonl: the entries that it covers",
    SearchBlock: "part of the search index, derived from log.jsonl: hashes of its words",
}

PARTS: Mapping[type[models.Model], SubjectPart] = {
    MemoryUser: SubjectPart(
        "person",
        "the person: the product's id, the time zone, and the product's metadata",
        {"id": _NUMBER, **dict.fromkeys(("alerts_version", "constraints_changed_at"), _WORK)},
    ),
    LogEntry: SubjectPart(
        "log",
        "all messages and other entries, in order; a redacted entry has no content",
        {"user": _WHOSE},
        order=("seq",),
    ),
    EntryOutcome: SubjectPart(
        "outcomes", "the outcome of each entry", {"id": _NUMBER, "user": _WHOSE}, order=("seq",)
    ),
    Redaction: SubjectPart(
        "redactions",
        "what was redacted, when and why",
        {"id": _NUMBER, "user": _WHOSE, **_LEASE},
        order=("seq",),
    ),
    Merge: SubjectPart(
        "merges",
        "the users who were merged into this person, and when",
        {"id": _NUMBER, "user": _WHOSE, **_LEASE},
    ),
    CopiedEntries: SubjectPart(
        "copied-entries",
        "the numbers of the entries copied from merged users, and of their copies",
        {"id": _NUMBER},
    ),
    Checkpoint: SubjectPart(
        "versions",
        "every version of the project: its files (path and hash), and its changes with the"
        " entries that caused them",
        {"id": _NUMBER, "user": _WHOSE},
        order=("version",),
        chunk=20,
    ),
    Blob: SubjectPart(
        "files",
        "the content of every file of every version, by its hash; empty if it was redacted",
        {"id": _NUMBER, "user": _WHOSE},
        chunk=50,
    ),
    RecordLocation: SubjectPart(
        "records",
        "every current and former record: its name, and the file that contains it",
        {"id": _NUMBER, "user": _WHOSE},
    ),
    Run: SubjectPart(
        "runs",
        "every question, query, proposal and check: its input and its result",
        {"user": _WHOSE, "host": _PLACE, **_LEASE},
        order=("queued_at", "pk"),
        chunk=50,
    ),
    Alert: SubjectPart(
        "alerts", "the alerts and their state", {"user": _WHOSE}, order=("opened_at", "pk")
    ),
    AlertEvent: SubjectPart(
        "alert-events",
        "the history of each alert, with who acted; also the entries that were rejected",
        order=("seq",),
    ),
    AlertFeedback: SubjectPart("alert-feedback", "the feedback on each alert", {"id": _NUMBER}),
    Pause: SubjectPart("pauses", "when staff paused the work for this person", {"user": _WHOSE}),
    PausedConstraint: SubjectPart(
        "paused-constraints",
        "constraints that were paused because they were too noisy",
        {"user": _WHOSE},
    ),
    Forecast: SubjectPart(
        "forecast", "the forecast of future alerts", {"id": _NUMBER, "user": _WHOSE, **_LEASE}
    ),
    Backtest: SubjectPart(
        "backtests",
        "backtests of the person's own constraints",
        {"user": _WHOSE, **_LEASE, "cursor": _WORK},
    ),
    BacktestUser: SubjectPart(
        "backtest-results",
        "the results of backtests, with the alerts that constraints would have raised",
        {"user": _WHOSE},
    ),
    Delivery: SubjectPart(
        "deliveries",
        "messages about alerts and rejected entries, and the URLs that they were sent to",
        _LEASE,
        order=("created_at", "pk"),
    ),
    DeliveryAttempt: SubjectPart(
        "delivery-attempts", "every delivery attempt, with the response", {"id": _NUMBER}
    ),
    LlmCall: SubjectPart(
        "model-calls",
        "every call to a language model: its time, model and usage, and its prompt and answer if"
        " they are stored",
        {"user": _WHOSE},
        order=("started_at", "pk"),
        chunk=20,
    ),
    IdempotencyKey: SubjectPart(
        "requests",
        "the Idempotency-Keys of the product's write requests",
        {"id": _NUMBER, "user": _WHOSE},
    ),
    Lane: SubjectPart(
        "work",
        "whether entries are waiting to be processed",
        {"id": _NUMBER, "user": _WHOSE, **_LEASE},
    ),
}


def columns(model: type[models.Model]) -> list[str]:
    """Return the columns of a model that are exported."""
    left_out = PARTS[model].left_out
    return [one.name for one in model._meta.concrete_fields if one.name not in left_out]


def rows(user: MemoryUser, model: type[models.Model]) -> Iterator[dict[str, Any]]:
    """Yield the person's rows of one model in order, each as column → value."""
    part = PARTS[model]
    found = erasure_registry.rows_of(model, user).order_by(*part.order)
    names = columns(model)
    lookups = [_lookup(model, name) for name in names]
    for values in found.values_list(*lookups).iterator(chunk_size=part.chunk):
        row = dict(zip(names, values, strict=True))
        if model is LlmCall:
            row |= {name: _opened(row[name]) for name in ("prompt", "answer")}
        yield row


def _lookup(model: type[models.Model], name: str) -> str:
    related = model._meta.get_field(name).related_model
    shown = _NAMES.get(related) if isinstance(related, type) else None
    return f"{name}__{shown}" if shown else name


def _opened(token: bytes | memoryview | None) -> Any:
    try:
        return llm_calls.opened(token)
    except EncryptionError as error:
        return {"unreadable": str(error)}


def write(user: MemoryUser) -> IO[bytes]:
    """Write the zip to a temporary file, and return the file positioned at its beginning.

    Raises BeingRedacted while the data may still contain redacted content.
    """
    spool = TemporaryFile()  # noqa: SIM115 the caller closes it
    try:
        with snapshot(), zipfile.ZipFile(spool, "w", zipfile.ZIP_DEFLATED) as archive:
            person = MemoryUser.objects.select_related("head", "workspace").get(pk=user.pk)
            _write_person(archive, person, "")
            for other in copies.merged_into(person):
                _write_person(archive, other, f"merged/{other.public_id}/")
    except BaseException:
        spool.close()
        raise
    spool.seek(0)
    return spool


def download(user: MemoryUser) -> FileResponse:
    """Return a response that serves the zip as a download; like `write`, raises BeingRedacted."""
    content = write(user)
    response = FileResponse(
        content,
        as_attachment=True,
        filename=file_name(user, "subject-access"),
        content_type="application/zip",
    )
    response["Cache-Control"] = "private, no-store"
    return response


def _write_person(archive: zipfile.ZipFile, user: MemoryUser, folder: str) -> None:
    refuse_being_redacted(user)
    if redaction.waiting().filter(user=user).exists():
        raise BeingRedacted
    counts = {}
    for model, part in PARTS.items():
        with archive.open(f"{folder}{part.name}.jsonl", "w", force_zip64=True) as file:
            number = 0
            for number, row in enumerate(rows(user, model), 1):  # noqa: B007 counted
                line = json.dumps(row, default=_told, ensure_ascii=False)
                file.write(line.encode(errors="replace") + b"\n")
            counts[part.name] = number
    _write_project(archive, user, folder)
    archive.writestr(f"{folder}README.md", _readme(user, counts))


def _write_project(archive: zipfile.ZipFile, user: MemoryUser, folder: str) -> None:
    """Write the newest version's files in their directories, loading one at a time into memory."""
    if user.head is None:
        return
    for path, hash_ in sorted(user.head.tree.items()):
        content = Blob.objects.get(user=user, hash=hash_).content
        if content is not None:
            archive.writestr(f"{folder}project/{path}", content)


def _told(value: object) -> str:
    """Convert a value without a JSON type (date, UUID, decimal, bytes) to text; bytes to hex."""
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    return str(value)


def _readme(user: MemoryUser, counts: Mapping[str, int]) -> str:
    made = timezone.now().astimezone(datetime.UTC)
    lines = [
        f"# Stored data about {user.user_id}",
        "",
        f"As of {made:%Y-%m-%d %H:%M} UTC, from the workspace {user.workspace.name}. All files"
        " reflect the same point in time.",
        "",
        "Each `.jsonl` file has one row per line, as JSON. An entry is identified by its `seq`, a"
        " version of the project by its number, an alert or a run by its id, and a file by its"
        " hash. `project/` contains the files of the newest version, which any editor can open.",
        "",
        "| file | content | rows |",
        "|---|---|---|",
        *(f"| `{one.name}.jsonl` | {one.what} | {counts[one.name]} |" for one in PARTS.values()),
        "| `project/` | the current memory, as Python source |"
        f" {(len(user.head.tree) if user.head else 0)} files |",
        "",
        "## Not included",
        "",
        *(f"- {model._meta.verbose_name_plural}: {why}" for model, why in LEFT_OUT.items()),
        *(
            f"- from `{part.name}.jsonl`, {', '.join(f'`{name}`' for name in names)}: {why}"
            for part in PARTS.values()
            for why, names in _by_reason(part).items()
        ),
        "",
    ]
    return "\n".join(lines)


def _by_reason(part: SubjectPart) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, why in part.left_out.items():
        found.setdefault(why, []).append(name)
    return found

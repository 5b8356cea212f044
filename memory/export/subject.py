"""Subject access: everything stored about a person, as a zip of JSON Lines files with a README.

The models determine the contents (`memory.kernel.models.privacy`): each has a file here or a reason
for having none, and a file contains all columns except those left out for a stated reason. The zip
is written row by row, in one snapshot; docs/subject-access.md describes its format.
"""

import datetime
import json
import zipfile
from collections.abc import Iterator, Mapping
from tempfile import TemporaryFile
from typing import IO, Any

from django.db import models
from django.http import FileResponse
from django.utils import timezone

from memory.constraints import backtests
from memory.export.archive import NOT_IN_FILE_NAMES, file_name
from memory.kernel.database.snapshots import snapshot
from memory.kernel.encryption import EncryptionError
from memory.kernel.models.privacy import Export, left_out, models_about_users, privacy_of
from memory.kernel.models.users import MemoryUser
from memory.llm import llm_calls
from memory.llm.models import LlmCall
from memory.log import copies
from memory.log.models.documents import Document
from memory.privacy import erasure_registry, redaction
from memory.versions.models.checkpoints import Blob
from memory.versions.past_states import BeingRedacted, refuse_being_redacted

# These results are parts of rows that belong to nobody.
RESULTS = Export(
    "backtest-results",
    "the alerts that workspace constraints would have raised about the person in backtests",
)


def exports() -> dict[type[models.Model], Export]:
    """Return the models whose rows are exported, each with its file."""
    parts = ((model, privacy_of(model).export) for model in models_about_users())
    return {model: export for model, export in parts if isinstance(export, Export)}


def columns(model: type[models.Model]) -> list[str]:
    """Return the columns of a model that are exported."""
    reasons = left_out(model)
    return [one.name for one in model._meta.concrete_fields if one.name not in reasons]


def rows(user: MemoryUser, model: type[models.Model]) -> Iterator[dict[str, Any]]:
    """Yield the person's rows of one model in order, each as column → value."""
    part = exports()[model]
    objects = erasure_registry.rows_of(model, user).order_by(*part.order)
    names = columns(model)
    lookups = [_lookup(model, name) for name in names]
    for values in objects.values_list(*lookups).iterator(chunk_size=part.chunk):
        row = dict(zip(names, values, strict=True))
        if model is LlmCall:
            row |= {name: _opened(row[name]) for name in ("prompt", "answer")}
        yield row


def _lookup(model: type[models.Model], name: str) -> str:
    related = model._meta.get_field(name).related_model
    named_by = privacy_of(related).named_by if isinstance(related, type) else ""
    return f"{name}__{named_by}" if named_by else name


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
    parts = {part.name: rows(user, model) for model, part in exports().items()}
    parts[RESULTS.name] = _backtest_results(user)
    counts = {
        name: _write_rows(archive, f"{folder}{name}.jsonl", part) for name, part in parts.items()
    }
    _write_project(archive, user, folder)
    _write_documents(archive, user, folder)
    archive.writestr(f"{folder}README.md", _readme(user, counts))


def _backtest_results(user: MemoryUser) -> Iterator[dict[str, Any]]:
    """Yield the person's results in backtests of workspace constraints, which are about others."""
    for backtest in (
        backtests.select_backtests(user).filter(version__isnull=False).iterator(chunk_size=1)
    ):
        if result := backtest.report["users"][str(user.pk)]:
            about = {name: getattr(backtest, name) for name in ("id", "constraint", "created_at")}
            yield about | result


def _write_rows(archive: zipfile.ZipFile, path: str, rows: Iterator[dict[str, Any]]) -> int:
    """Write rows to a file in the zip, one per line, and return their number."""
    number = 0
    with archive.open(path, "w", force_zip64=True) as file:
        for number, row in enumerate(rows, 1):  # noqa: B007 counted
            line = json.dumps(row, default=_to_json, ensure_ascii=False)
            file.write(line.encode(errors="replace") + b"\n")
    return number


def _write_project(archive: zipfile.ZipFile, user: MemoryUser, folder: str) -> None:
    """Write the newest version's files in their directories, loading one at a time into memory."""
    if user.head is None:
        return
    for path, hash_ in sorted(user.head.tree.items()):
        content = Blob.objects.get(user=user, hash=hash_).content
        if content is not None:
            archive.writestr(f"{folder}project/{path}", content)


def _write_documents(archive: zipfile.ZipFile, user: MemoryUser, folder: str) -> None:
    """Write the stored documents, loading one at a time into memory."""
    stored = Document.objects.filter(user=user, file__isnull=False).order_by("created_at", "pk")
    for pk, name in list(stored.values_list("pk", "name")):
        file = Document.objects.values_list("file", flat=True).get(pk=pk)
        path = f"{folder}documents/{pk}/{NOT_IN_FILE_NAMES.sub('_', name)}"
        archive.writestr(path, bytes(file or b""))


def _to_json(value: object) -> str:
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
        *(
            f"| `{one.name}.jsonl` | {one.description} | {counts[one.name]} |"
            for one in [*exports().values(), RESULTS]
        ),
        "| `project/` | the current memory, as Python source |"
        f" {(len(user.head.tree) if user.head else 0)} files |",
        "",
        "## Not included",
        "",
        *(
            f"- {model._meta.verbose_name_plural}: {privacy_of(model).export}"
            for model in models_about_users()
            if model not in exports()
        ),
        *(
            f"- from `{part.name}.jsonl`, {', '.join(f'`{name}`' for name in names)}: {why}"
            for model, part in exports().items()
            for why, names in _by_reason(model).items()
        ),
        "",
    ]
    return "\n".join(lines)


def _by_reason(model: type[models.Model]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, why in left_out(model).items():
        names.setdefault(why, []).append(name)
    return names

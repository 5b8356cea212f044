"""A version as a zip: the same bytes on every server that runs the same release."""

import hashlib
import re
import zipfile
from tempfile import SpooledTemporaryFile
from typing import IO

from django.http import FileResponse

from memory.export.files import files_of, surroundings
from memory.kernel.canonical import canonical_json
from memory.kernel.models.users import MemoryUser
from memory.versions.checkpoints import AnyState

# A zip larger than this number of bytes is written to a file on disk.
IN_MEMORY = 1024 * 1024
# The earliest date that a zip can store, used for every file, since modification times are
# irrelevant here.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644
# Characters that one of the usual file systems does not take, and how much of a user's id a zip's
# name has: at most 240 bytes, of 255.
NOT_IN_FILE_NAMES = re.compile(r'[\\/:*?"<>|%]')
MAX_NAME = 60


def etag(checkpoint: AnyState | None) -> str:
    """Return the ETag of a version's zip, without building it."""
    parts = {path: hashlib.sha256(text).hexdigest() for path, text in surroundings().items()}
    content = canonical_json([parts, checkpoint.tree if checkpoint else {}])
    return f'"{hashlib.sha256(content.encode()).hexdigest()[:32]}"'


def write_zip(checkpoint: AnyState | None) -> tuple[IO[bytes], int]:
    """Return a version's zip, positioned at its start, and its size in bytes."""
    spool = SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 the response closes it
    with zipfile.ZipFile(spool, "w") as archive:
        for path, content in files_of(checkpoint).items():
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # created on Unix: `external_attr` holds Unix permissions
            entry.external_attr = _MODE << 16
            archive.writestr(entry, content)
    size = spool.tell()
    spool.seek(0)
    return spool, size


def file_name(user: MemoryUser, suffix: str) -> str:
    """Return the name of a zip about a user, which every file system takes."""
    return f"{NOT_IN_FILE_NAMES.sub('_', user.user_id)[:MAX_NAME]}-{suffix}.zip"


def download(user: MemoryUser, checkpoint: AnyState | None) -> FileResponse:
    """Return the HTTP response that downloads a version of the user's project."""
    content, size = write_zip(checkpoint)
    name = file_name(user, f"v{checkpoint.version if checkpoint else 0}")
    response = FileResponse(
        content, as_attachment=True, filename=name, content_type="application/zip"
    )
    response["Content-Length"] = str(size)
    response["ETag"] = etag(checkpoint)
    response["Cache-Control"] = "private, no-cache"
    return response

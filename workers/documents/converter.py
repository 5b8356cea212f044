"""Convert documents to text, in a confined program besides the sandboxes.

The parsers read files that anybody may have made, so they run in a container of their own, which
gets one document and is discarded afterwards. What it returns is checked as a sandbox's response.
"""

import base64
import time
from collections.abc import Mapping
from typing import Any

from django.conf import settings

from memory.kernel.work import leases
from memory.log import documents
from memory.log.documents import (
    REFUSALS,
    TOO_LARGE,
    ConvertedDocument,
    DocumentRefused,
    Page,
)
from memory.log.models.documents import Document
from sandbox_image.uac import protocol
from workers.sandbox.exchange import read_message
from workers.sandbox.interface import Program
from workers.sandbox.limits import DEFAULT_SHAPE
from workers.sandbox.metrics import measured
from workers.sandbox.program_images import convert_image_name
from workers.sandbox.results import SandboxError
from workers.sandbox.runner import configured_runner

# Seconds to wait for a response, beside twice the processor time that a conversion may take.
MORE_SECONDS = 10.0
MAX_ANSWER_BYTES = 16 * 1024 * 1024
MODULE = "convert_image.converter"
# Attempts after which a document fails if the converter does; the waits between them add up to
# about ten minutes.
MAX_ATTEMPTS = 10
_OFFICE = "application/vnd.openxmlformats-officedocument."
MEDIA_TYPES = {
    *("application/pdf", "text/html", "message/rfc822", "application/mbox"),
    *("text/plain", "text/markdown", f"{_OFFICE}wordprocessingml.document"),
    *(f"{_OFFICE}spreadsheetml.sheet", f"{_OFFICE}presentationml.presentation"),
}


def convert(row: Document) -> None:
    """Convert a document that the caller has claimed, and append its text to the log.

    Everything is written in one transaction: a worker that is killed has written nothing.
    """
    if row.attempts > MAX_ATTEMPTS:
        documents.fail(row, "unavailable")
        return
    try:
        converted = convert_document(row.name, bytes(row.file or b""))
    except DocumentRefused as refused:
        documents.fail(row, refused.code)
    except SandboxError as error:
        raise leases.Postponed(str(error)) from error
    else:
        documents.finish(row, converted)


@measured("documents")
def convert_document(name: str, content: bytes) -> ConvertedDocument:
    """Return the text of a document, which is of the type that its content and name agree on.

    Raises DocumentRefused if it has none for us, and SandboxError with `infrastructure` set if the
    converter was unavailable or failed.
    """
    request = {
        "name": protocol.storable(name),
        "content": base64.b64encode(content).decode(),
        "limits": {
            "pages": settings.UAC_DOCUMENT_PAGES,
            "characters": settings.UAC_DOCUMENT_CHARACTERS,
            "seconds": settings.UAC_DOCUMENT_SECONDS,
        },
    }
    program = Program(convert_image_name(), "UAC_CONVERT_IMAGE", MODULE)
    deadline = time.monotonic() + 2 * settings.UAC_DOCUMENT_SECONDS + MORE_SECONDS
    try:
        data = protocol.encode_frame(request)
    except protocol.FrameTooLargeError:
        raise DocumentRefused(TOO_LARGE) from None
    try:
        with configured_runner().open_channel(program, DEFAULT_SHAPE, deadline) as channel:
            channel.send(data, deadline)
            answer = read_message(channel, MAX_ANSWER_BYTES, deadline)
        if answer["outcome"] in REFUSALS:
            raise DocumentRefused(answer["outcome"])
        if answer["media_type"] not in MEDIA_TYPES:
            raise TypeError("the media type is none that the converter reads")
        pages = [_page(part) for part in answer["parts"]]
        if not pages or sum(len(page.text) for page in pages) > settings.UAC_DOCUMENT_CHARACTERS:
            raise TypeError("there is no text, or too much")
        return ConvertedDocument(answer["media_type"], pages)
    except (protocol.ProtocolError, KeyError, TypeError) as error:
        raise SandboxError(
            "protocol_error",
            f"the converter's response is invalid: {error!r}",
            infrastructure=True,
        ) from error
    except (EOFError, TimeoutError, OSError) as error:
        raise SandboxError.unavailable(f"the converter did not respond: {error!r}") from error


def _page(part: Mapping[str, Any]) -> Page:
    number, text = part["page"], part["text"]
    is_number = number is None or (
        type(number) is int and 1 <= number <= settings.UAC_DOCUMENT_PAGES
    )
    if not is_number or not isinstance(text, str) or not text.strip():
        raise TypeError("a part is not a page with text")
    return Page(number, protocol.storable(text))

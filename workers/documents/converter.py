"""Convert documents to text, in a confined program besides the sandboxes.

The parsers read files that anybody may have made, so they run in a container of their own, which
gets one document and is discarded afterwards. What it returns is checked as a sandbox's response.
"""

import base64
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandbox_image.uac import protocol
from workers.sandbox.exchange import read_message
from workers.sandbox.interface import Program
from workers.sandbox.limits import DEFAULT_SHAPE
from workers.sandbox.metrics import measured
from workers.sandbox.program_images import convert_image_name
from workers.sandbox.results import SandboxError
from workers.sandbox.runner import configured_runner

# Seconds to wait for a response: more than a conversion may take under its own CPU time limit.
DEADLINE_SECONDS = 60.0
MAX_ANSWER_BYTES = 16 * 1024 * 1024
MODULE = "convert_image.converter"

# Why a document has no text, by the converter's outcome; each message says what to do.
REFUSALS = {
    "empty": "the file is empty: upload one with content",
    "no_text": "the file has no text, as a scan has none: upload it after text recognition (OCR)",
    "encrypted": "the file is encrypted: upload it without a password",
    "broken": "the file is damaged, or not of its type: save it anew and upload that",
    "wrong_type": "the content does not match the ending of the name: correct the name",
    "unsupported_type": "files of this type cannot be read: upload a PDF, DOCX, XLSX, PPTX, HTML,"
    " EML, MBOX, Markdown or text file",
    "unpacks_too_large": "the file is too large when unpacked: upload it in parts",
    "too_many_pages": "the file has too many pages: upload it in parts",
    "too_long": "the file has too much text: upload it in parts",
    "too_many_attachments": "a mail has too many attachments: upload these by themselves",
    "timeout": "reading the file takes too long: upload it in parts",
    "out_of_memory": "reading the file takes too much memory: upload it in parts",
    "crashed": "the file makes the converter crash: save it anew and upload that",
}


class DocumentRefused(Exception):
    """A document without text for us; `code` is a key of REFUSALS."""

    def __init__(self, code: str) -> None:
        super().__init__(REFUSALS[code])
        self.code = code


@dataclass(frozen=True)
class Page:
    """The text of one page, slide, sheet or message; `number` is None where there are no pages."""

    number: int | None
    text: str


@dataclass(frozen=True)
class ConvertedDocument:
    """A document's media type, as its content has it, and its pages that have text."""

    media_type: str
    pages: list[Page]


@measured("documents")
def convert_document(name: str, content: bytes) -> ConvertedDocument:
    """Return the text of a document, which is of the type that its content and name agree on.

    Raises DocumentRefused if it has none for us, and SandboxError with `infrastructure` set if the
    converter was unavailable or failed.
    """
    request = {"name": protocol.storable(name), "content": base64.b64encode(content).decode()}
    program = Program(convert_image_name(), "UAC_CONVERT_IMAGE", MODULE)
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        data = protocol.encode_frame(request)
    except protocol.FrameTooLargeError as error:
        raise SandboxError("input_limit", f"the document is too large: {error}") from None
    try:
        with configured_runner().open_channel(program, DEFAULT_SHAPE, deadline) as channel:
            channel.send(data, deadline)
            answer = read_message(channel, MAX_ANSWER_BYTES, deadline)
        if answer["outcome"] in REFUSALS:
            raise DocumentRefused(answer["outcome"])
        if not isinstance(answer["media_type"], str):
            raise TypeError("the media type is not text")
        return ConvertedDocument(answer["media_type"], [_page(part) for part in answer["parts"]])
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
    is_number = number is None or (type(number) is int and number >= 1)
    if not is_number or not isinstance(text, str):
        raise TypeError(f"{part!r:.200} is not a page")
    return Page(number, text)

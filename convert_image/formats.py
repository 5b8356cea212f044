"""The text of documents by their format. The content decides; the name's ending must agree."""

import email
import email.policy
import io
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.message import EmailMessage, Message, MIMEPart
from html.parser import HTMLParser
from pathlib import PurePosixPath
from typing import IO
from xml.etree.ElementTree import Element

import openpyxl
from defusedxml import ElementTree
from pypdf import PdfReader
from pypdf.errors import DependencyError, FileNotDecryptedError, LimitReachedError

MAX_MEMBERS = 10_000
MAX_UNPACKED_BYTES = 128 * 1024 * 1024
MAX_MAIL_DEPTH = 3
MAX_ATTACHMENTS = 50

OLE = bytes.fromhex("d0cf11e0a1b11ae1")  # old Office files, and encrypted new ones
ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")
HTML_START = re.compile(
    rb"\s*(?:<!--.{0,1000}?-->\s*)?<(?:!doctype html|html)\b", re.IGNORECASE | re.DOTALL
)
HEADER = re.compile(rb"[!-9;-~]{1,100}:[ \t]")
ENVELOPE = re.compile(rb"(?:\A|(?<=\n))From [^\n]*\n")
# Control characters except tab and newline, and lone surrogates: PostgreSQL cannot store some.
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
SLIDES = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
REFERENCE = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"

PDF = "application/pdf"
_OFFICE = "application/vnd.openxmlformats-officedocument."
DOCX = f"{_OFFICE}wordprocessingml.document"
XLSX = f"{_OFFICE}spreadsheetml.sheet"
PPTX = f"{_OFFICE}presentationml.presentation"
HTML, MAIL, MBOX = "text/html", "message/rfc822", "application/mbox"
TEXT, MARKDOWN = "text/plain", "text/markdown"
BY_ENDING = {
    ".pdf": PDF,
    ".docx": DOCX,
    ".xlsx": XLSX,
    ".pptx": PPTX,
    ".html": HTML,
    ".htm": HTML,
    ".eml": MAIL,
    ".mbox": MBOX,
    ".md": MARKDOWN,
    ".txt": TEXT,
}
TEXTS = (HTML, MAIL, MBOX, MARKDOWN, TEXT)


@dataclass(frozen=True)
class Limits:
    """The most pages, and characters of text, that a document may have."""

    pages: int
    characters: int


class Unreadable(Exception):
    """A document without text for us; `outcome` is the reason."""

    def __init__(self, outcome: str) -> None:
        super().__init__(outcome)
        self.outcome = outcome


@dataclass(frozen=True)
class Part:
    """The text of one page, slide, sheet or message; `page` is None where there are no pages."""

    page: int | None
    text: str


def convert(name: str, content: bytes, limits: Limits, depth: int = 0) -> tuple[str, list[Part]]:
    """Return the document's media type and its parts with text; raise Unreadable if it has none.

    `depth` is the number of mails that the document is attached within. Raises whatever the parsers
    do with a malformed file.
    """
    if not content.strip(b"\0 \t\r\n"):
        raise Unreadable("empty")
    media_type = _detect(name, content)
    parts, characters = [], 0
    for part in READERS[media_type](content, limits, depth):
        if part.page is not None and part.page > limits.pages:
            raise Unreadable("too_many_pages")
        text = UNPRINTABLE.sub("", part.text.replace("\r\n", "\n").replace("\r", "\n")).strip()
        characters += len(text)
        if characters > limits.characters:
            raise Unreadable("too_long")
        if text:
            parts.append(Part(part.page, text))
    if not parts:
        raise Unreadable("no_text")
    return media_type, parts


def _detect(name: str, content: bytes) -> str:
    named = BY_ENDING.get(PurePosixPath(name.lower()).suffix)
    found = _detect_binary(content)
    if found is None:
        if named in TEXTS:
            return named
        found = HTML if HTML_START.match(content) else TEXT
    if named not in (None, found):
        raise Unreadable("wrong_type")
    return found


def _detect_binary(content: bytes) -> str | None:
    """Return the media type of a binary format; None for text."""
    if b"%PDF-" in content[:1024]:
        return PDF
    if content.startswith(OLE):
        raise Unreadable("encrypted" if ENCRYPTED_PACKAGE in content else "unsupported_type")
    if content.startswith(b"PK"):
        names = _open_archive(content).namelist()
        mains = {"word/document.xml": DOCX, "xl/workbook.xml": XLSX, "ppt/presentation.xml": PPTX}
        for main, media_type in mains.items():
            if main in names:
                return media_type
        raise Unreadable("unsupported_type")
    if not content.startswith((b"\xff\xfe", b"\xfe\xff")) and b"\0" in content:
        raise Unreadable("unsupported_type")
    return None


def _open_archive(content: bytes) -> zipfile.ZipFile:
    """Open an archive whose members are not too many or too large when unpacked.

    zipfile never unpacks more of a member than the size that the directory states.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except zipfile.BadZipFile:
        raise Unreadable("broken") from None
    members = archive.infolist()
    if len(members) > MAX_MEMBERS or sum(one.file_size for one in members) > MAX_UNPACKED_BYTES:
        raise Unreadable("unpacks_too_large")
    if any(one.flag_bits & 1 for one in members):
        raise Unreadable("encrypted")
    return archive


def _read_pdf(content: bytes, limits: Limits, depth: int) -> Iterator[Part]:
    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("encrypted")
        for number, page in enumerate(reader.pages, 1):
            yield Part(number, page.extract_text())
    except (DependencyError, FileNotDecryptedError):
        raise Unreadable("encrypted") from None
    except LimitReachedError:
        raise Unreadable("unpacks_too_large") from None


def _read_docx(content: bytes, limits: Limits, depth: int) -> Iterator[Part]:
    """Read the text and the notes. A page ends where the program that saved the file ended it."""
    archive = _open_archive(content)
    pages: list[list[str]] = [[]]
    for text in _word_texts(_parse(archive, "word/document.xml")):
        if text == "\f":
            pages.append([])
        else:
            pages[-1].append(text)
    for number, page in enumerate(pages, 1):
        yield Part(number if len(pages) > 1 else None, "".join(page))
    for name in ("word/footnotes.xml", "word/endnotes.xml"):
        if name in archive.namelist():
            yield Part(None, "".join(_word_texts(_parse(archive, name))))


def _word_texts(root: Element) -> Iterator[str]:
    """Yield the texts in order, "\\n" after each paragraph and "\\f" where a page ends."""
    for element, is_end in _walk(root):
        tag = element.tag.removeprefix(WORD)
        if is_end:
            if tag == "p":
                yield "\n"
        elif tag == "t":
            yield element.text or ""
        elif tag == "tab":
            yield "\t"
        elif tag == "lastRenderedPageBreak":
            yield "\f"
        elif tag == "br":
            # A manual page break is followed by a rendered one in files that have been laid out.
            yield "\n"


def _read_xlsx(content: bytes, limits: Limits, depth: int) -> Iterator[Part]:
    """Read the sheets' cells with the values that were computed last; a sheet is a page."""
    _open_archive(content)
    workbook = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
    for number, sheet in enumerate(workbook.worksheets, 1):
        sheet.reset_dimensions()  # the file may state any
        lines, characters = [sheet.title], 0
        for row in sheet.iter_rows(values_only=True):
            line = "\t".join("" if value is None else str(value) for value in row).rstrip()
            characters += len(line)
            if characters > limits.characters:
                raise Unreadable("too_long")
            if line:
                lines.append(line)
        yield Part(number, "\n".join(lines) if len(lines) > 1 else "")


def _read_pptx(content: bytes, limits: Limits, depth: int) -> Iterator[Part]:
    """Read the slides in the order in which they are shown; a slide is a page."""
    archive = _open_archive(content)
    links = {
        link.get("Id"): link.get("Target", "")
        for link in _parse(archive, "ppt/_rels/presentation.xml.rels")
    }
    shown = _parse(archive, "ppt/presentation.xml").iter(f"{SLIDES}sldId")
    for number, slide in enumerate(shown, 1):
        target = links[slide.get(REFERENCE)]
        path = target.removeprefix("/") if target.startswith("/") else f"ppt/{target}"
        texts = []
        for element, is_end in _walk(_parse(archive, path)):
            tag = element.tag.removeprefix(DRAWING)
            if is_end and tag == "p":
                texts.append("\n")
            elif not is_end and tag == "t":
                texts.append(element.text or "")
        yield Part(number, "".join(texts))


def _walk(root: Element) -> Iterator[tuple[Element, bool]]:
    """Yield each element at its start and (True) its end; without recursion, for any depth."""
    pending = [(root, False)]
    while pending:
        element, is_end = pending.pop()
        yield element, is_end
        if not is_end and element.tag != FALLBACK:
            pending.append((element, True))
            pending.extend((child, False) for child in reversed(element))


def _parse(archive: zipfile.ZipFile, name: str) -> Element:
    """Parse a member as XML; entities, which could expand without end, are refused."""
    member: IO[bytes]
    with archive.open(name) as member:
        root: Element = ElementTree.parse(member, forbid_dtd=True).getroot()
    return root


class _HTMLText(HTMLParser):
    SKIPPED = frozenset({"script", "style", "template", "noscript", "svg"})
    BLOCKS = frozenset(
        {
            *("address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figure"),
            *("footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main"),
            *("nav", "ol", "p", "pre", "section", "table", "title", "tr", "ul"),
        }
    )

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self._skipping: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.SKIPPED:
            self._skipping.append(tag)
        self._separate(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._skipping:
            del self._skipping[self._skipping.index(tag) :]
        self._separate(tag)

    def handle_data(self, data: str) -> None:
        if not self._skipping:
            self.texts.append(re.sub(r"\s+", " ", data))

    def _separate(self, tag: str) -> None:
        if tag in self.BLOCKS:
            self.texts.append("\n")
        elif tag in ("td", "th"):
            self.texts.append("\t")


def _html_text(text: str) -> str:
    parser = _HTMLText()
    parser.feed(text)
    parser.close()
    lines = (line.strip() for line in "".join(parser.texts).split("\n"))
    return "\n".join(line for line in lines if line)


def _read_html(content: bytes, limits: Limits, depth: int) -> Iterator[Part]:
    yield Part(None, _html_text(_decode(content)))


def _read_text(content: bytes, limits: Limits, depth: int) -> Iterator[Part]:
    yield Part(None, _decode(content))


def _decode(content: bytes) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace")


def _read_mail(content: bytes, limits: Limits, depth: int) -> Iterator[Part]:
    """Read a mail, or those of a mailbox; a message is a page."""
    ends = [match.span() for match in ENVELOPE.finditer(content)]
    starts = [end for _, end in ends] if content.startswith(b"From ") else [0]
    stops = [start for start, _ in ends][1:] if len(starts) == len(ends) else []
    for number, start in enumerate(starts, 1):
        source = content[start : (stops[number - 1] if number <= len(stops) else None)]
        if not HEADER.match(source):
            raise Unreadable("wrong_type")
        message = email.message_from_bytes(source, policy=email.policy.default)
        yield Part(number, "\n".join(_message_texts(message, limits, depth)))


def _message_texts(message: EmailMessage, limits: Limits, depth: int) -> Iterator[str]:
    for name in ("From", "To", "Cc", "Date", "Subject"):
        if message[name]:
            yield f"{name}: {message[name]}"
    body = message.get_body(("plain", "html"))
    if body is not None:
        text = _decode_body(body)
        yield "\n" + (_html_text(text) if body.get_content_subtype() == "html" else text)
    for number, attachment in enumerate(message.iter_attachments(), 1):
        if number > MAX_ATTACHMENTS:
            raise Unreadable("too_many_attachments")
        yield _attachment_text(attachment, limits, depth + 1)


def _decode_body(body: MIMEPart) -> str:
    payload = body.get_payload(decode=True)
    assert isinstance(payload, bytes)
    try:
        return payload.decode(body.get_content_charset() or "utf-8")
    except (LookupError, UnicodeDecodeError):
        return _decode(payload)


def _attachment_text(attachment: EmailMessage, limits: Limits, depth: int) -> str:
    """Return the text of an attachment, or why it has none, below its name."""
    is_mail = attachment.get_content_type() == MAIL
    name = attachment.get_filename() or ("message.eml" if is_mail else "")
    try:
        if depth > MAX_MAIL_DEPTH:
            raise Unreadable("nested_too_deeply")
        content: object = attachment.get_payload(decode=True)
        if attachment.is_multipart() and isinstance(inner := attachment.get_payload(0), Message):
            content = inner.as_bytes()
        if not isinstance(content, bytes):
            raise Unreadable("empty")
        _, parts = convert(name, content, limits, depth)
    except Unreadable as error:
        if error.outcome == "too_long":
            raise
        return f"\n[Attachment {name}: not read, {error.outcome}]"
    return "\n".join([f"\n[Attachment {name}]", *(part.text for part in parts)])


READERS: dict[str, Callable[[bytes, Limits, int], Iterator[Part]]] = {
    PDF: _read_pdf,
    DOCX: _read_docx,
    XLSX: _read_xlsx,
    PPTX: _read_pptx,
    HTML: _read_html,
    MAIL: _read_mail,
    MBOX: _read_mail,
    TEXT: _read_text,
    MARKDOWN: _read_text,
}

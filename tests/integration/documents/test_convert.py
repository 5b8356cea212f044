"""Documents become text with page numbers, and hostile ones harm nobody."""

import datetime
import io
from collections.abc import Iterator
from email.message import EmailMessage

import openpyxl
import pypdf
import pytest
from django.conf import settings
from django.test import override_settings

from convert_image import formats
from memory.log.documents import DocumentRefused, Page
from tests.integration.documents.files import archive, docx, paragraph, pdf, pptx
from tests.integration.sandbox.conftest import sandbox_error
from workers.documents import converter
from workers.documents.converter import convert_document
from workers.sandbox.build import ensure_convert_image, ensure_image

BREAK = "<w:p><w:r><w:lastRenderedPageBreak/></w:r></w:p>"


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)], autouse=True)
def runner(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every way to convert documents in turn."""
    if request.param == "docker":
        ensure_convert_image(ensure_image())
    with override_settings(UAC_SANDBOX_RUNNER=request.param):
        yield request.param


def pages(name: str, content: bytes) -> list[Page]:
    return list(convert_document(name, content).pages)


def refusal(name: str, content: bytes) -> str:
    with pytest.raises(DocumentRefused) as caught:
        convert_document(name, content)
    return caught.value.code


def workbook() -> bytes:
    book = openpyxl.Workbook()
    book.active.append(["rent due", datetime.date(2026, 12, 1), 950])
    book.create_sheet("Notes").append(["no pets"])
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def mail(subject: str, text: str, *attachments: tuple[str, bytes]) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["Subject"] = "ada@example.com", subject
    message.set_content(text)
    for name, content in attachments:
        message.add_attachment(content, "application", "octet-stream", filename=name)
    return message


def test_pages_of_a_pdf_have_their_numbers() -> None:
    found = convert_document("lease.pdf", pdf(["The rent is 950 euros", "", "No pets"]))

    assert found.media_type == formats.PDF
    assert found.pages == [Page(1, "The rent is 950 euros"), Page(3, "No pets")]


def test_pages_of_a_docx_are_those_of_its_last_layout() -> None:
    assert pages("a.docx", docx(paragraph("one") + BREAK + paragraph("two"))) == [
        Page(1, "one"),
        Page(2, "two"),
    ]
    assert pages("a.docx", docx(paragraph("one") + paragraph("two"))) == [Page(None, "one\ntwo")]


def test_sheets_are_pages_and_dates_are_dates() -> None:
    assert pages("a.xlsx", workbook()) == [
        Page(1, "Sheet\nrent due\t2026-12-01 00:00:00\t950"),
        Page(2, "Notes\nno pets"),
    ]


def test_slides_are_in_the_order_in_which_they_are_shown() -> None:
    assert pages("a.pptx", pptx(["first", "second"])) == [Page(1, "first"), Page(2, "second")]


def test_html_has_no_scripts_and_no_styles() -> None:
    source = b"<!doctype html><style>p{}</style><p>Rent &amp; bills</p><script>alert(1)</script>ok"

    assert pages("page.html", source) == [Page(None, "Rent & bills\nok")]


def test_mail_has_its_head_and_its_attachments() -> None:
    source = mail("Lease", "See below.", ("lease.pdf", pdf(["No pets"])), ("x.bin", b"\0\1"))

    (page,) = pages("a.eml", source.as_bytes())

    assert page.number == 1
    assert page.text.split("\n") == [
        *("From: ada@example.com", "Subject: Lease", "", "See below.", ""),
        *("", "[Attachment lease.pdf]", "No pets"),
        *("", "[Attachment x.bin: not read, unsupported_type]"),
    ]


def test_messages_of_a_mailbox_are_pages() -> None:
    source = b"".join(
        b"From ada Mon Nov 30 2026\n" + mail(name, name).as_bytes() + b"\n" for name in ("A", "B")
    )

    assert [(page.number, page.text.split("\n")[1]) for page in pages("a.mbox", source)] == [
        (1, "Subject: A"),
        (2, "Subject: B"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("chat.txt", b"\xef\xbb\xbfAda: hi\r\nBo: hi", "Ada: hi\nBo: hi"),
        ("notes.md", b"# Notes", "# Notes"),
        ("a.txt", "Grüße".encode("utf-16"), "Grüße"),
        ("a.txt", "Grüße".encode("cp1252"), "Grüße"),
        ("a.txt", b"bell\x07 and escape\x1b", "bell and escape"),
        ("../../etc/passwd", b"only a name", "only a name"),
    ],
)
def test_text_is_decoded_and_can_be_stored(name: str, content: bytes, text: str) -> None:
    assert pages(name, content) == [Page(None, text)]


def encrypted_pdf() -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf(["secret"])))
    writer.encrypt("password", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def nested_zip() -> bytes:
    return archive({"word/document.xml": b"\0" * (formats.MAX_UNPACKED_BYTES + 1)})


ENTITIES = '<!DOCTYPE d [<!ENTITY a "ha"><!ENTITY b "&a;&a;"><!ENTITY c "&b;&b;">]>'


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.pdf", b"", "empty"),
        ("a.txt", b" \n\0", "empty"),
        ("scan.pdf", pdf(["", ""]), "no_text"),
        ("a.pdf", encrypted_pdf(), "encrypted"),
        ("a.docx", formats.OLE + formats.ENCRYPTED_PACKAGE, "encrypted"),
        ("a.doc", formats.OLE + b"Word", "unsupported_type"),
        ("a.zip", archive({"a": "b"}), "unsupported_type"),
        ("a.png", b"\x89PNG\r\n\x1a\n\0\0", "unsupported_type"),
        ("a.pdf", b"plain text", "wrong_type"),
        ("a.docx", pdf(["text"]), "wrong_type"),
        ("a.eml", b"no header at all", "wrong_type"),
        ("a.docx", b"PK\x03\x04 broken", "broken"),
        ("a.docx", docx("<w:p>"), "broken"),
        ("a.docx", docx(paragraph("&c;"), ENTITIES), "broken"),
        ("a.docx", nested_zip(), "unpacks_too_large"),
        ("a.docx", archive({"word/document.xml": "", **dict.fromkeys(map(str, range(10_001)), "")}),
         "unpacks_too_large"),
        ("a.pdf", pdf(["a"] * 501), "too_many_pages"),
        ("a.txt", b"x" * 500_001, "too_long"),
        ("a.eml", mail("A", "b", *[("a.txt", b"c")] * 51).as_bytes(), "too_many_attachments"),
    ],
)  # fmt: skip
def test_document_without_text_for_us_has_its_reason(name: str, content: bytes, code: str) -> None:
    assert refusal(name, content) == code
    assert convert_document("next.txt", b"next").pages == [Page(None, "next")]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (pdf(["a"], kids="2 0 R"), "broken"),  # a page tree that contains itself
        (pdf(["a"], kids="4 0 R " + "2 0 R " * 50, count=10**9), "broken"),
        # A stream as long as itself.
        (pdf(["a"]).replace(b"/Length 32", b"/Length 5 0 R"), "unpacks_too_large"),
        (pdf(["a"])[:200], "broken"),
    ],
)
def test_malformed_pdf_is_refused(content: bytes, code: str) -> None:
    assert refusal("a.pdf", content) == code


def test_mails_within_mails_end() -> None:
    message = mail("0", "innermost")
    for number in range(1, 30):
        outer = mail(str(number), f"level {number}")
        outer.add_attachment(message)
        message = outer

    (page,) = pages("a.eml", message.as_bytes())

    assert "level 29" in page.text
    assert "nested_too_deeply" in page.text
    assert "innermost" not in page.text


def test_deep_html_and_xml_end() -> None:
    assert pages("a.html", b"<div>" * 100_000 + b"text") == [Page(None, "text")]
    body = "<w:p>" * 5_000 + "<w:r><w:t>text</w:t></w:r>" + "</w:p>" * 5_000
    assert pages("a.docx", docx(body)) == [Page(None, "text")]


def test_converter_that_does_not_answer_or_answers_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(converter, "MAX_ANSWER_BYTES", 100)
        with sandbox_error("protocol_error", infrastructure=True):
            convert_document("a.txt", b"x" * 1000)
    monkeypatch.setattr(converter, "MORE_SECONDS", -2 * settings.UAC_DOCUMENT_SECONDS)
    with sandbox_error(infrastructure=True):
        convert_document("a.txt", b"x")


def test_an_answer_beyond_the_limits_is_no_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits hold even if the converter, which the file may have taken over, ignores them."""

    def answer(*parts: object, media_type: object = "text/plain") -> None:
        message = {"outcome": "ok", "media_type": media_type, "parts": list(parts)}
        monkeypatch.setattr(converter, "read_message", lambda *_: message)
        with sandbox_error("protocol_error", infrastructure=True):
            convert_document("a.txt", b"x")

    answer()
    answer({"page": None, "text": ""})
    answer({"page": 0, "text": "x"})
    answer({"page": True, "text": "x"})
    answer({"page": settings.UAC_DOCUMENT_PAGES + 1, "text": "x"})
    answer({"page": None, "text": "x" * (settings.UAC_DOCUMENT_CHARACTERS + 1)})
    answer({"page": None, "text": "x"}, media_type="text/html; charset=x")
    answer({"page": None})

"""Small documents, made by hand."""

import io
import zipfile
from collections.abc import Mapping, Sequence

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
SLIDES = "http://schemas.openxmlformats.org/presentationml/2006/main"
LINKS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def pdf(pages: Sequence[str], *, kids: str | None = None, count: int | None = None) -> bytes:
    """Return a PDF with a line of text a page; `kids` and `count` replace those of its tree."""
    numbers = [4 + 2 * index for index in range(len(pages))]
    listed = kids or " ".join(f"{number} 0 R" for number in numbers)
    objects = {
        1: "<< /Type /Catalog /Pages 2 0 R >>",
        2: f"<< /Type /Pages /Kids [{listed}] /Count {count or len(pages)} >>",
        3: "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    }
    for number, text in zip(numbers, pages, strict=True):
        drawn = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
        objects[number] = (
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {number + 1} 0 R"
            " /Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects[number + 1] = f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream"
    out = io.BytesIO(b"%PDF-1.4\n")
    out.seek(0, io.SEEK_END)
    places = []
    for number, source in sorted(objects.items()):
        places.append(out.tell())
        out.write(f"{number} 0 obj\n{source}\nendobj\n".encode())
    start = out.tell()
    lines = "".join(f"{place:010} 00000 n \n" for place in places)
    out.write(f"xref\n0 {len(places) + 1}\n0000000000 65535 f \n{lines}".encode())
    out.write(f"trailer << /Size {len(places) + 1} /Root 1 0 R >>\n".encode())
    out.write(f"startxref\n{start}\n%%EOF\n".encode())
    return out.getvalue()


def archive(members: Mapping[str, str | bytes]) -> bytes:
    """Return a compressed ZIP archive with these members."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in members.items():
            written.writestr(name, content)
    return out.getvalue()


def docx(body: str, prologue: str = "") -> bytes:
    """Return a DOCX whose body is this XML."""
    document = f'{prologue}<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
    return archive({"word/document.xml": document})


def paragraph(text: str) -> str:
    """Return a paragraph of a DOCX."""
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def pptx(slides: Sequence[str]) -> bytes:
    """Return a PPTX whose files are numbered in the opposite order of its slides."""
    numbers = list(range(len(slides), 0, -1))
    ids = "".join(f'<p:sldId id="{256 + n}" r:id="r{n}"/>' for n in numbers)
    links = "".join(f'<Relationship Id="r{n}" Target="slides/slide{n}.xml"/>' for n in numbers)
    return archive(
        {
            "ppt/presentation.xml": f'<p:presentation xmlns:p="{SLIDES}" xmlns:r="{OFFICE}">'
            f"<p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
            "ppt/_rels/presentation.xml.rels": f'<Relationships xmlns="{LINKS}">{links}'
            "</Relationships>",
            **{
                f"ppt/slides/slide{n}.xml": f'<a:p xmlns:a="{DRAWING}"><a:r><a:t>{text}</a:t>'
                "</a:r></a:p>"
                for n, text in zip(numbers, slides, strict=True)
            },
        }
    )

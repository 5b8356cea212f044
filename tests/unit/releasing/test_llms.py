"""`llms.txt` is the index of the documentation."""

from pathlib import Path

from releasing import llms

DOCS = llms.ROOT / "docs"


def test_it_is_up_to_date() -> None:
    assert llms.FILE.read_text() == llms.text(), "run `make generate`"


def test_it_leads_to_every_page() -> None:
    named = {Path(path) for _, path in llms._LINKS.findall(llms.text())}

    assert {page.relative_to(llms.ROOT) for page in DOCS.glob("*.md")} - named == {
        Path("docs/README.md")
    }
    assert all((llms.ROOT / path).exists() for path in named)

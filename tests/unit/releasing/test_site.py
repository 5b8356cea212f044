"""The documentation as a site: pages, navigation, and links that lead to pages of the site."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from releasing.llms import ROOT
from releasing.site import stage


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    stage(folder)
    return folder / "pages"


def test_navigation_has_every_document(pages: Path) -> None:
    configuration = json.loads((pages.parent / "mkdocs.yml").read_text())
    named = set(_paths(configuration["nav"]))

    documents = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")}
    assert documents <= named
    assert all((pages / path).is_file() for path in named)


def test_what_the_pages_link_is_on_the_site(pages: Path) -> None:
    links = [
        (page, path)
        for page in pages.rglob("*.md")
        for path in re.findall(r"\]\((?!http|#)([^)#\s]+)", page.read_text())
    ]

    assert len(links) > 100, "the pattern finds links"
    gone = [(page.name, path) for page, path in links if not (page.parent / path).exists()]
    assert not gone


def _paths(nav: Any) -> list[str]:
    """Return all paths of a navigation."""
    if isinstance(nav, str):
        return [nav]
    parts = nav if isinstance(nav, list) else nav.values()
    return [path for part in parts for path in _paths(part)]

"""Read CHANGELOG.md; print a version's changes: `python -m releasing.changelog 1.2.0`.

A release's notes are made of it where nothing is installed.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parent.parent / "CHANGELOG.md"
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Section:
    """The changes of one version, or those that are not released."""

    heading: str
    text: str


def sections(changelog: str) -> dict[str, Section]:
    """Return the sections by their versions, the newest first; "Unreleased" is one, too."""
    _, *parts = _SECTION.split(changelog)  # a heading and its text, in turn
    return {
        heading.split()[0].strip("[]"): Section(heading, text.strip())
        for heading, text in zip(parts[::2], parts[1::2], strict=True)
    }


if __name__ == "__main__":
    [version] = sys.argv[1:]
    print(sections(FILE.read_text())[version].text)

"""Write `llms.txt`, the index of the documentation for language models (llmstxt.org)."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "llms.txt"
_LINKS = re.compile(r"\[([^]]+)\]\(([^)]+)\)")
_ROW = re.compile(r"^\| (\[.+\]\(.+\)) \| (.+) \|$")


def sections() -> list[tuple[str, list[tuple[Path, str]]]]:
    """Return the sections of docs/README.md: title, and each page's path with what it is about."""
    found: list[tuple[str, list[tuple[Path, str]]]] = []
    for line in (ROOT / "docs" / "README.md").read_text().splitlines():
        if line.startswith("## "):
            found.append((line.removeprefix("## "), []))
        elif row := _ROW.fullmatch(line):
            content = _LINKS.sub(r"\1", row[2])
            for _, path in _LINKS.findall(row[1]):
                target = (ROOT / "docs" / path).resolve().relative_to(ROOT)
                found[-1][1].append((target, content))
    return found


def text() -> str:
    """Return the file's text."""
    lines = [
        "# UaC – User as Code",
        "",
        "> A server that remembers the users of AI agents: a log, which becomes typed Python"
        " records; exact queries over them, and constraints that raise alerts with evidence.",
    ]
    for title, pages in sections():
        lines += ["", f"## {title}", ""]
        lines += [f"- [{page.stem}]({page}): {content}" for page, content in pages]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    FILE.write_text(text())

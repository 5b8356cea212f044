"""Write `llms.txt`, the index of the documentation for language models (llmstxt.org)."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "llms.txt"
_LINKS = re.compile(r"\[([^]]+)\]\(([^)]+)\)")
_ROW = re.compile(r"^\| (\[.+\]\(.+\)) \| (.+) \|$")


def text() -> str:
    """Return the file's text, made of the index in docs/README.md."""
    index = (ROOT / "docs" / "README.md").read_text()
    lines = [
        "# UaC – User as Code",
        "",
        "> A server that remembers the users of AI agents: a log, which becomes typed Python"
        " records; exact queries over them, and constraints that raise alerts with evidence.",
    ]
    for line in index.splitlines():
        if line.startswith("## "):
            lines += ["", line, ""]
        elif row := _ROW.fullmatch(line):
            content = _LINKS.sub(r"\1", row[2])
            for _, path in _LINKS.findall(row[1]):
                target = (ROOT / "docs" / path).resolve().relative_to(ROOT)
                lines.append(f"- [{target.stem}]({target}): {content}")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    FILE.write_text(text())

"""The code in documents: extracted from the page, and pasted into Python's own prompt."""

import doctest
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from tests.waiting import scaled

# These replace `>>> ` and `... `: nothing else prints them.
NEXT, MORE = "\x1e", "\x1f"
PROMPTS = f"import sys; sys.ps1, sys.ps2 = {NEXT!r}, {MORE!r}"


# First line of a block that is a program of its own, and is not pasted.
PROGRAM = "# agent.py\n"


def blocks(text: str, language: str = "python") -> list[str]:
    """Return a page's blocks of a language, in order."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [block for its, block in found if its == language]


def prompted(text: str) -> str:
    """Return the Python of a page that is pasted into the prompt."""
    return "\n".join(block for block in blocks(text) if not block.startswith(PROGRAM))


@dataclass(frozen=True)
class Step:
    """A pasted statement, Python's answer, and the answer that the page shows."""

    source: str
    answer: str
    shown: str

    def __str__(self) -> str:
        return f"{self.source}\nanswered:\n{self.answer}shown:\n{self.shown}"

    @property
    def as_shown(self) -> bool:
        compared = doctest.OutputChecker()
        return compared.check_output(self.shown, self.answer, doctest.ELLIPSIS)


def requests_in(text: str) -> list[tuple[str, str, object]]:
    """Return the requests on a page: method, path after `/v1/`, and body or None.

    A request is a line of a block without a language, with a body in JSON that may continue below
    it.
    """
    found = []
    for block in blocks(text, ""):
        for shown in re.split(r"^(?=GET |POST )", block, flags=re.MULTILINE):
            request = re.match(r"(GET|POST) /v1/(\S+)(?:\s+(\{.*\}))?", shown, re.DOTALL)
            if request is not None:
                body = json.loads(request[3]) if request[3] else None
                found.append((request[1], request[2], body))
    return found


def wait_longer(text: str) -> str:
    """Return a page whose requests wait as long as a busy machine may take."""
    return text.replace("wait=30", "wait=50")


def pasted(text: str, environment: Mapping[str, str], python: str = sys.executable) -> list[Step]:
    """Paste a text into Python's prompt, line by line; return each statement with its answer."""
    ran = subprocess.run(
        [python, "-X", "utf8", "-u", "-q", "-i", "-c", PROMPTS],
        env={**os.environ, **environment},
        input=f"{text}\n",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=scaled(600),
    )
    # One prompt for each line, and one for the end: the output of a line comes before the next
    # prompt.
    _, *told = re.split(f"([{NEXT}{MORE}])", ran.stdout)
    printed, prompts = told[1::2], told[2::2]
    lines = text.splitlines()
    assert len(prompts) >= len(lines), ran.stdout
    steps, source = [], ""
    for number, line in enumerate(lines):
        if line.startswith("#") and not source:
            assert lines[number - 1], f"an answer, but right under no statement: {line}"
            continue
        source += f"{line}\n"
        if prompts[number] == NEXT:
            if source.strip():
                shown = itertools.takewhile(lambda one: one.startswith("#"), lines[number + 1 :])
                comment = "".join(f"{one[2:]}\n" for one in shown)
                steps.append(Step(source, printed[number], comment))
            source = ""
    return steps

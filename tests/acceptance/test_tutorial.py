"""The tutorial and the recipes are followed, step by step, beside a demo that is running."""

import doctest
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.test_demo import demo, output_of
from tests.llm_server import KEY, llm_server, said
from tests.system import new_client
from tests.waiting import scaled
from uac_site.embedded.system import System

DOCS = Path(__file__).parents[2] / "docs"
TUTORIAL = (DOCS / "tutorial.md").read_text()
PROGRAM = "# agent.py\n"
# Stand for `>>> ` and `... `: nothing else prints them.
NEXT, MORE = "\x1e", "\x1f"
PROMPTS = f"import sys; sys.ps1, sys.ps2 = {NEXT!r}, {MORE!r}"


def blocks(text: str) -> list[str]:
    """The blocks of Python in their order."""
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A statement that was pasted, what Python answered, and what the page says it answers."""

    source: str
    answer: str
    shown: str

    def __str__(self) -> str:
        return f"{self.source}\nanswered:\n{self.answer}shown:\n{self.shown}"

    @property
    def as_shown(self) -> bool:
        compared = doctest.OutputChecker()
        return compared.check_output(self.shown, self.answer, doctest.ELLIPSIS)


def pasted(text: str, environment: Mapping[str, str]) -> list[Step]:
    """Paste a text into Python's prompt, line for line; returns each statement with its answer."""
    ran = subprocess.run(
        [sys.executable, "-X", "utf8", "-u", "-q", "-i", "-c", PROMPTS],
        env={**os.environ, **environment},
        input=f"{text}\n",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=scaled(600),
    )
    # A prompt for each line, and one for the end: what was printed after a line comes before the
    # next prompt.
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


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    """What `make demo` runs, and the two variables that one is to set."""
    with tempfile.TemporaryDirectory(prefix="uac-test-tutorial-") as parent:
        Path(parent).chmod(0o755)
        docker = os.environ.get("DOCKER_HOST", "")
        with demo(Path(parent) / "data", DOCKER_HOST=docker) as process:
            try:
                assert process.stdout is not None
                lines = []
                for line in process.stdout:
                    lines.append(line)
                    if "Running until Ctrl-C" in line:
                        break
                shown = "".join(lines)
                variables = dict(re.findall(r"^ *export (UAC_\w+)=(\S+)$", shown, re.MULTILINE))
                assert variables.keys() == {"UAC_URL", "UAC_KEY"}, shown
                yield variables
            finally:
                process.send_signal(signal.SIGINT)
                output_of(process)


PASTED = """\
def half(number):
    return number / 2


half(3)
# 1.5
half(4)
# 2.5
for number in (1, 2):
    number
print("one\\n\\ntwo, and more")
# one
#
# two...
"""


def test_what_differs_from_what_is_shown_or_cannot_be_pasted_is_noticed() -> None:
    steps = pasted(PASTED, {})

    assert [(step.source, step.as_shown) for step in steps] == [
        ("def half(number):\n    return number / 2\n\n", True),
        ("half(3)\n", True),
        ("half(4)\n", False),
        # A blank line is missing after the block.
        ('for number in (1, 2):\n    number\nprint("one\\n\\ntwo, and more")\n', False),
    ]
    assert "SyntaxError" in steps[-1].answer


# A whole demo is told first, which takes minutes where the machine is busy.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["tutorial.md", "how-to.md"])
def test_every_step_answers_as_it_is_shown(server: dict[str, str], name: str) -> None:
    # Given a page, and a server as the page has one start it
    found = [block for block in blocks((DOCS / name).read_text()) if not block.startswith(PROGRAM)]
    # When its Python is pasted into the prompt, one block after the other
    steps = pasted("\n".join(found), server)
    # Then each statement answers what is shown
    assert len(steps) >= 25
    wrong = [step for step in steps if not step.as_shown]
    assert not wrong, "\n".join(map(str, wrong))


def test_the_agent_of_the_tutorial_remembers_what_was_said(system: System) -> None:
    [loop] = [block for block in blocks(TUTORIAL) if block.startswith(PROGRAM)]
    client = new_client(system, "agent of the tutorial")
    assert client.post("users/", {"user_id": "tutorial"})[0] == 201

    with llm_server(said("Noted."), said("On Friday.")) as model:
        ran = subprocess.run(
            [sys.executable, "-c", loop],
            env={
                "UAC_URL": system.base_url,
                "UAC_KEY": client.key,
                "MODEL_URL": model.openai_url,
                "MODEL_KEY": KEY,
                "MODEL": "the-model",
            },
            input="My flight to Rome is on Friday.\nWhen is that flight?\n\n",
            capture_output=True,
            text=True,
            check=True,
            timeout=scaled(120),
        )

    assert ran.stdout == "> Noted.\n> On Friday.\n> "
    first, second = (request.body["messages"] for request in model.requests)
    assert "Rome" not in first[0]["content"]
    # The second question brings up what was said before the first.
    assert "My flight to Rome is on Friday. [1]" in second[0]["content"]
    assert second[1] == {"role": "user", "content": "When is that flight?"}
    logged = client.get("users/tutorial/entries/")[1]["results"]
    assert [(entry["role"], entry["content"]) for entry in logged] == [
        ("user", "My flight to Rome is on Friday."),
        ("assistant", "Noted."),
        ("user", "When is that flight?"),
        ("assistant", "On Friday."),
    ]

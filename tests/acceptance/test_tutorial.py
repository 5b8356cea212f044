"""README, tutorial and recipes are followed, step by step, against a running demo."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import userascode
from userascode import record

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.acceptance.test_demo import demo, output_of, output_until_it_runs, variables_in
from tests.llm_server import KEY, llm_server, said
from tests.snippets import PROGRAM, blocks, pasted, prompted, requests_in, wait_longer
from tests.system import create_person, new_client
from tests.waiting import scaled

CHECKOUT = Path(__file__).parents[2]
TUTORIAL = (CHECKOUT / "docs" / "tutorial.md").read_text()


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    """The server that `make demo` runs, and the two variables that the reader has to set."""
    with tempfile.TemporaryDirectory(prefix="uac-test-tutorial-") as parent:
        Path(parent).chmod(0o755)
        docker = os.environ.get("DOCKER_HOST", "")
        with demo(Path(parent) / "data", DOCKER_HOST=docker, UAC_MAX_WAIT_SECONDS="50") as process:
            try:
                yield variables_in(output_until_it_runs(process))
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


def test_step_that_differs_or_cannot_be_pasted_is_noticed() -> None:
    steps = pasted(PASTED, {})

    assert [(step.source, step.as_shown) for step in steps] == [
        ("def half(number):\n    return number / 2\n\n", True),
        ("half(3)\n", True),
        ("half(4)\n", False),
        # The blank line after the block is missing.
        ('for number in (1, 2):\n    number\nprint("one\\n\\ntwo, and more")\n', False),
    ]
    assert "SyntaxError" in steps[-1].answer


# A whole demo is told first, which takes minutes where the machine is busy.
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("page", "least"),
    [
        ("README.md", 9),
        ("docs/tutorial.md", 25),
        ("docs/how-to.md", 29),
        ("docs/api.md", 5),
        ("docs/python-client.md", 6),
        ("clients/python/README.md", 5),
        ("integrations/skills/integrate-memory/SKILL.md", 9),
    ],
)
def test_every_step_answers_as_it_is_shown(server: dict[str, str], page: str, least: int) -> None:
    # Given a page, and a server as the page has one start it
    text = wait_longer((CHECKOUT / page).read_text())
    # When its Python is pasted into the prompt, one block after the other
    steps = pasted(prompted(text), server)
    # Then each statement answers what is shown
    assert len(steps) >= least
    wrong = [step for step in steps if not step.as_shown]
    assert not wrong, "\n".join(map(str, wrong))


# These pages come after the README, which creates the user that they query.
@pytest.mark.timeout(900)
def test_the_requests_that_the_pages_show_are_answered(server: dict[str, str]) -> None:
    client = Client(server["UAC_URL"], server["UAC_KEY"])
    answers = {}
    for page in sorted((CHECKOUT / "docs").glob("*.md")):
        for method, path, body in requests_in(page.read_text()):
            status, answer = client.request(method, path, body)
            assert 200 <= status < 300, f"{page.name}: {method} {path} answered {status}: {answer}"
            answers[path] = answer

    assert len(answers) >= 7
    assert answers["users/ada/query/"]["value"] == 2100
    assert "Rome" in answers["users/ada/context/"]["text"]


def run_commands(commands: str, folder: Path, **environment: str) -> str:
    """Run a page's commands in a folder, by the programs of this checkout; return their output."""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["sh", "-e", "-c", commands],
        env={**os.environ, **environment, "PATH": programs},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(300),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.timeout(900)
def test_constraint_of_the_skill_passes_the_gate_and_alerts(
    server: dict[str, str], tmp_path: Path
) -> None:
    # Given a user with a lease that ends soon, and the files of the skill as it shows them
    page = (CHECKOUT / "integrations" / "skills" / "write-a-constraint" / "SKILL.md").read_text()
    client = userascode.Client(server["UAC_URL"], server["UAC_KEY"])
    client.users.create("tenant")
    lease = record("home", "Lease", flat="Elm Street", ends_on="2026-05-31")
    client.user("tenant").add(lease, wait=50)
    files = blocks(page)
    assert len(files) == 2
    (tmp_path / "rules").mkdir()
    for source in files:
        [name] = re.findall(r"^# (rules/\w+\.py)$", source, re.MULTILINE)
        (tmp_path / name).write_text(source)
    # When its commands are run
    output = run_commands("".join(blocks(page, "sh")), tmp_path, **server, USER_ID="tenant")
    # Then they show classes and library, and the constraint is live and would alert
    assert 'Collection("home.leases", Lease)' in output
    assert "deadline_window: " in output
    assert "Elm Street: the lease ends on 2026-05-31" in output


# A program that git would otherwise ask for the key.
ASKPASS = """#!/bin/sh
echo "$UAC_KEY"
"""


@pytest.mark.timeout(900)
def test_commands_of_the_export_page_work(server: dict[str, str], tmp_path: Path) -> None:
    [commands] = [
        one for one in blocks((CHECKOUT / "docs" / "export.md").read_text(), "") if "curl" in one
    ]
    askpass = tmp_path / "askpass"
    askpass.write_text(ASKPASS)
    askpass.chmod(0o700)

    output = run_commands(commands, tmp_path, **server, GIT_ASKPASS=str(askpass))

    assert " passed in " in output
    assert (tmp_path / "ada.zip").stat().st_size > 0


def test_the_agent_of_the_tutorial_remembers_what_was_said(system: System) -> None:
    [loop] = [block for block in blocks(TUTORIAL) if block.startswith(PROGRAM)]
    client = new_client(system, "agent of the tutorial")
    create_person(client, "tutorial")

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
    # The second question recalls what was said before the first.
    assert "My flight to Rome is on Friday. [1]" in second[0]["content"]
    assert second[1] == {"role": "user", "content": "When is that flight?"}
    logged = client.get("users/tutorial/entries/")[1]["results"]
    assert [(entry["role"], entry["content"]) for entry in logged] == [
        ("user", "My flight to Rome is on Friday."),
        ("assistant", "Noted."),
        ("user", "When is that flight?"),
        ("assistant", "On Friday."),
    ]

"""What the README shows works as it is shown, and what the documents name is there."""

import os
import re
import subprocess
import sys
from pathlib import Path

from benchmarks import plots
from tests.system import LATE, Person, new_client, record
from tests.waiting import polled, scaled
from uac_site.embedded.system import System

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
PATHS = r"`((?:uac_site|memory|workers|sandbox_image|benchmarks|tests|docs)/[\w./-]+)`"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_twenty_lines_tell_count_and_hear_what_was_noticed(system: System) -> None:
    # Given somebody else in the workspace of whom there is an alert
    program, *_ = blocks("python")
    client = new_client(system, "readme")
    assert client.post("users/", {"user_id": "grace"})[0] == 201
    grace = Person(client, "grace")
    grace.log(record("Task", "report", domain="work", name="The report", days=3))
    grace.request("PUT", "constraints/late/?wait=100", LATE, status=200)
    polled(lambda: grace.alerts("open"), bool)
    # When the program is run
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "UAC_URL": system.base_url, "UAC_KEY": client.key},
        capture_output=True,
        text=True,
        check=True,
        timeout=scaled(240),
    )
    # Then it says what the README promises
    assert ran.stdout.splitlines() == ["2100", "warning The report is 3 days late ['report']"]
    entries = client.get("users/ada/entries/")[1]["results"]
    assert [entry["kind"] for entry in entries] == ["record", "record", "message"]


def test_the_agent_and_the_constraint_are_those_that_the_tutorial_runs_and_has_judged() -> None:
    _, agent, constraint = blocks("python")

    assert f"```python\n{agent}```" in TUTORIAL
    assert constraint in TUTORIAL
    lines = [line for line in agent.splitlines() if line and not line.startswith("#")]
    assert len(lines) == 20


def test_the_numbers_are_those_that_were_measured() -> None:
    for document in plots.DOCUMENTS:
        assert plots.table() in document.read_text(), f"{document.name}: make plots"


def test_every_variable_of_the_tables_is_read_by_the_settings() -> None:
    settings = (ROOT / "uac_site" / "settings.py").read_text()
    shown = README + (ROOT / "docs" / "settings.md").read_text()
    documented = re.findall(r"^\| `([A-Z_]+)`", shown, re.MULTILINE)

    assert len(documented) >= 40
    for name in documented:
        assert f'"{name}"' in settings or name.startswith("OTEL_"), name


def test_every_file_that_the_documents_name_is_there() -> None:
    for document in DOCUMENTS:
        text = document.read_text()
        for path in re.findall(PATHS, text):
            assert (ROOT / path).exists(), f"{document.name} names {path}"
        for path in re.findall(r"\]\((?!http|#)([^)#]+)(?:#[^)]*)?\)", text):
            assert (document.parent / path).exists(), f"{document.name} links {path}"
        for path in re.findall(r'src(?:set)?="([^"]+)"', text):
            assert (document.parent / path).exists(), f"{document.name} shows {path}"


def test_every_place_that_the_documents_link_is_there() -> None:
    for document in DOCUMENTS:
        for path, place in re.findall(r"\]\((?!http)([^)#]*)#([^)]+)\)", document.read_text()):
            text = ((document.parent / path) if path else document).read_text()
            titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            places = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
            assert place in places, f"{document.name} links {path}#{place}"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


def test_what_to_do_about_each_alarm_is_in_the_runbook() -> None:
    rules = (ROOT / "docs" / "alarms.rules.yml").read_text()
    theirs = re.findall(r"- alert: (\w+)", rules)
    source = (ROOT / "memory" / "alarms.py").read_text()
    ours = re.findall(r'Problem\(\s*f?"([^{"]+?)(?:\{[^"]*)?"', source)
    runbook = (ROOT / "docs" / "operations.md").read_text()
    named = "\n".join(re.findall(r"^\| (`.*?) \|", runbook, re.MULTILINE))

    assert len(theirs) >= 11
    assert len(ours) >= 10
    for name in theirs:
        assert f"`{name}`" in named, name
    for name in ours:
        assert f"`{name}" in named, name

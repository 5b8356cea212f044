"""Everything that the README and the documents name exists; `test_tutorial` runs their examples."""

import re
from pathlib import Path

from benchmarks import plots

ROOT = Path(__file__).parents[2]
SKILLS = sorted((ROOT / "integrations" / "skills").glob("*/SKILL.md"))
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *SKILLS]
PATHS = r"`((?:uac_site|memory|workers|sandbox_image|benchmarks|tests|docs)/[\w./-]+)`"


def test_the_numbers_are_those_that_were_measured() -> None:
    assert plots.DOCUMENTS
    for document, benchmarks in plots.DOCUMENTS.items():
        assert plots.table(benchmarks) in document.read_text(), f"{document.name}: make plots"


def test_every_file_that_the_documents_name_is_there() -> None:
    named = [path for document in DOCUMENTS for path in re.findall(PATHS, document.read_text())]
    assert len(named) > 10, "the pattern finds paths"
    for document in DOCUMENTS:
        text = document.read_text()
        for path in re.findall(PATHS, text):
            assert (ROOT / path).exists(), f"{document.name} names {path}"
        for path in re.findall(r"\]\((?!http|#)([^)#]+)(?:#[^)]*)?\)", text):
            assert (document.parent / path).exists(), f"{document.name} links {path}"
        for path in re.findall(r'src(?:set)?="([^"]+)"', text):
            assert (document.parent / path).exists(), f"{document.name} shows {path}"


def test_every_place_that_the_documents_link_is_there() -> None:
    links = [
        (document, path, place)
        for document in DOCUMENTS
        for path, place in re.findall(r"\]\((?!http)([^)#]*)#([^)]+)\)", document.read_text())
    ]
    assert len(links) > 10, "the pattern finds links"
    for document, path, place in links:
        text = ((document.parent / path) if path else document).read_text()
        titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        places = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
        assert place in places, f"{document.name} links {path}#{place}"


def test_agents_find_each_skill_by_its_name_and_description() -> None:
    integrations = (ROOT / "docs" / "integrations.md").read_text()
    assert SKILLS
    for skill in SKILLS:
        front_matter = skill.read_text().split("---\n")[1]
        said = dict(line.split(": ", 1) for line in front_matter.splitlines())
        # Limits of the format: agentskills.io/specification.
        assert said["name"] == skill.parent.name
        assert re.fullmatch(r"[a-z0-9-]{1,64}", said["name"])
        assert 1 <= len(said["description"]) <= 1024
        # A colon in a plain text of YAML would begin a mapping.
        assert ": " not in said["description"]
        assert f"({Path('..') / skill.relative_to(ROOT)})" in integrations


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


def test_runbook_says_what_to_do_about_each_alarm() -> None:
    rules = (ROOT / "docs" / "alarms.rules.yml").read_text()
    theirs = re.findall(r"- alert: (\w+)", rules)
    source = (ROOT / "memory" / "operations" / "alarms.py").read_text()
    ours = re.findall(r'AlarmCondition\(\s*f?"([^{"]+?)(?:\{[^"]*)?"', source)
    runbook = (ROOT / "docs" / "operations.md").read_text()
    named = "\n".join(re.findall(r"^\| (`.*?) \|", runbook, re.MULTILINE))

    assert len(theirs) == 3
    measured = (ROOT / "docs" / "metrics.md").read_text()
    for metric in re.findall(r"uac_[a-z_]+", rules):
        assert f"`{metric}`" in measured, metric
    assert len(ours) >= 10
    for name in theirs:
        assert f"`{name}`" in runbook, name
    for name in ours:
        assert f"`{name}" in named, name

"""What the README shows works as it is shown."""

import json
import os
import re
import subprocess
from pathlib import Path

from benchmarks.harness import Client
from tests.acceptance.conftest import Person, record
from uac_site.embedded.system import System

README = (Path(__file__).parents[2] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_the_first_calls_answer_as_promised(system: System, client: Client) -> None:
    (script,) = blocks("bash")

    ran = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", script],
        env={**os.environ, "UAC_URL": system.base_url, "UAC_KEY": client.key},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    created, appended, answer, manifest, alerts = map(json.loads, ran.stdout.splitlines())
    assert created["user_id"] == "ada"
    assert (appended["logged"], appended["checkpointed"]) == (2, 2)
    assert (answer["value"], answer["type"]) == (2100, "int")
    assert "trips: 2 Trip(to, on:date, cost:int)" in manifest["text"]
    assert alerts["results"] == []


def test_the_constraint_passes_the_gate_and_speaks(person: Person) -> None:
    source, tests = blocks("python")
    person.log(
        record("Allergy", "p", domain="health", allergen="penicillin", drug_class="penicillin"),
        record("Medication", "i", domain="health", name="Ibuprofen", drug_class="nsaid"),
    )

    decision = person.request(
        "PUT",
        "constraints/drug_allergy/?wait=30",
        {"source": source, "tests": tests},
        status=200,
    )

    assert decision["accepted"], decision
    assert person.alerts() == []


def test_every_variable_of_the_table_is_read_by_the_settings() -> None:
    settings = (Path(__file__).parents[2] / "uac_site" / "settings.py").read_text()
    documented = re.findall(r"^\| `([A-Z_]+)` \|", README, re.MULTILINE)

    assert len(documented) >= 7
    for name in documented:
        assert f'"{name}"' in settings, name


def test_every_file_that_the_documents_name_is_there() -> None:
    root = Path(__file__).parents[2]
    for document in ("README.md", "ARCHITECTURE.md", "THREAT_MODEL.md"):
        text = (root / document).read_text()
        for path in re.findall(r"`((?:uac_site|memory|workers|sandbox_image|docs)/[\w./]+)`", text):
            assert (root / path).exists(), f"{document} names {path}"
        for path in re.findall(r"\]\((?!http)([^)#]+)\)", text):
            assert (root / path).exists(), f"{document} links {path}"

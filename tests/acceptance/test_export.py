"""A project leaves one server process and returns, by git, as a zip, and by hand."""

import base64
import os
import shutil
import subprocess
import urllib.request
from pathlib import Path

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.integration.export.conftest import OVERLAP, OVERLAP_TESTS, assert_green
from tests.system import Person, create_person, record


def test_a_clone_runs_and_its_zip_becomes_the_same_project(
    system: System, client: Client, person: Person, tmp_path: Path
) -> None:
    # Given a person with records, a constraint and an alert,
    person.log(
        record("Trip", "rome", domain="travel", to="Rome", on="2026-05-02", cost=840),
        record("Passport", "p-1", domain="travel", number="X1", expires="2026-05-01"),
    )
    person.write_constraint("overlap", {"source": OVERLAP, "tests": OVERLAP_TESTS})
    # when the project is cloned from the server,
    key = client.key
    login = base64.b64encode(f"git:{key}".encode()).decode()
    login = f"http.extraHeader=Authorization: Basic {login}"
    address = f"{system.base_url}/v1/users/{person.user_id}/git"
    cloned = subprocess.run(
        ["git", "-c", login, "clone", address, tmp_path / "clone"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert cloned.returncode == 0, cloned.stderr
    # then it runs by itself.
    assert_green(tmp_path / "clone")
    # And when its zip is given to somebody else,
    too = create_person(client, f"{person.user_id}-too")
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/zip"}

    def ask(path: str, body: bytes | None = None) -> bytes:
        url = f"{system.base_url}/v1/users/{path}"
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            assert answer.status == 200
            content: bytes = answer.read()
            return content

    content = ask(f"{person.user_id}/export/")
    ask(f"{too.user_id}/import/?wait=100", content)
    # or the clone itself, with git's own files, to a third
    third = create_person(client, f"{person.user_id}-cloned")
    archive = shutil.make_archive(str(tmp_path / "clone"), "zip", tmp_path / "clone")
    ask(f"{third.user_id}/import/?wait=100", Path(archive).read_bytes())
    # then what it knows, they know.
    for other in (too, third):
        for name in ("trips", "passports"):
            one, two = (p.get(f"state/travel/{name}/")["records"] for p in (person, other))
            assert [r["fields"] for r in one] == [r["fields"] for r in two]
        assert other.file("constraints/overlap.py") == OVERLAP

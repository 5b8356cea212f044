"""An export is imported unchanged: the same records, the same alerts, the same files."""

import io
import json
import os
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.alerts.models.alerts import Alert, AlertState
from memory.export import archive
from memory.integrations import imports
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.operations.verification import problems
from memory.project import render
from memory.recall import retrieval
from memory.versions.models.runs import Run, RunTrigger
from tests.integration.export.conftest import assert_green, record, run_python
from tests.integration.imports.prototype import PROTOTYPE, RUN
from tests.steps import settle_records
from tests.unit.project.examples import rich_project
from tests.unit.project.support import trips_project
from workers import tasks

pytestmark = pytest.mark.django_db

SOURCES = re.compile(r"sources=\([0-9, ]*\)")


@pytest.fixture
def eve(workspace: Workspace) -> MemoryUser:
    """A user without any entries."""
    return create_user(workspace, "eve", time_zone="Europe/Berlin", metadata=None)


def zip_of(user: MemoryUser) -> bytes:
    user.refresh_from_db()
    content, _ = archive.write_zip(user.head)
    with content:
        return content.read()


def files_in(content: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        return {name: opened.read(name).decode() for name in opened.namelist()}


def take(user: MemoryUser, files: Mapping[str, str]) -> Run:
    """Import files; return the finished run, which must be accepted."""
    run = imports.queue(user, files, RunTrigger.API)
    tasks.work("runs", str(run.pk))
    run.refresh_from_db()
    user.refresh_from_db()
    assert run.outcome == "ok", (run.error, run.output)
    return run


def dump(user: MemoryUser) -> dict[str, Any]:
    """Return everything that is known, except the entries behind it."""
    found: dict[str, Any] = {"schema": retrieval.schema(user.head)}
    for domain, told in found["schema"].items():
        for held in told["collections"] | told["singletons"]:
            page: int | None = 1
            while page:
                result = retrieval.records(user.head, domain, held, page)
                for one in result.records:
                    assert one.pop("sources")
                    found[f"{domain}.{held}.{one['key']}"] = one
                page = result.next
    return found


def unpack(content: bytes, folder: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        opened.extractall(folder)


def alerts_of(user: MemoryUser) -> list[tuple[str, ...]]:
    found = Alert.objects.filter(user=user, state=AlertState.OPEN).order_by("fingerprint")
    return [(one.fingerprint, one.state, one.severity, one.message) for one in found]


def test_a_lived_project_is_the_same_in_another_users_memory(
    lived: MemoryUser, eve: MemoryUser, api: APIClient, work: Callable[[], None], say: Any
) -> None:
    # Given somebody with an alert,
    say(record("Trip", "nice", to="Nice", on="2026-12-24", cost=5))
    assert [told[-1] for told in alerts_of(lived)] == ["Nice: X1 is over"]
    # when the zip is imported for somebody else,
    content = zip_of(lived)
    answer = api.post("/v1/users/eve/import/?wait=0", content, content_type="application/zip")
    assert answer.status_code == 202, answer.content
    work()
    run = Run.objects.get(pk=answer.data["id"])
    assert run.outcome == "ok", run.error
    eve.refresh_from_db()
    # then what is known is the same, record for record, and so are the alerts,
    assert dump(eve) == dump(lived)
    assert alerts_of(eve) == alerts_of(lived)
    assert list(problems(eve)) == []
    # the files are the same but for the entries that records cite, which are of another log,
    again, first = files_in(zip_of(eve)), files_in(content)
    assert {path: SOURCES.sub("", text) for path, text in again.items()} == {
        path: SOURCES.sub("", text) for path, text in first.items()
    }
    assert run.output is not None
    assert run.output["import"]["notes"][0]["place"] == "sources"
    # and a second trip changes nothing at all.
    bob = create_user(eve.workspace, "bob", time_zone="UTC", metadata=None)
    take(bob, imports.read_zip(zip_of(eve)))
    assert zip_of(bob) == zip_of(eve)


def test_rich_project_comes_back_unchanged(
    user: MemoryUser, eve: MemoryUser, tmp_path: Path
) -> None:
    # Given a project that uses everything, in somebody's memory,
    take(user, render(rich_project()))
    # when its zip is unpacked,
    content = zip_of(user)
    unpack(content, tmp_path)
    # then it runs by itself,
    assert_green(tmp_path)
    # and the folder, with what Python has left in it, makes the same zip again.
    take(eve, imports.read_folder(tmp_path))
    assert zip_of(eve) == content
    assert dump(eve) == dump(user)
    assert list(problems(eve)) == []


def test_a_large_project_comes_back_byte_for_byte(user: MemoryUser, eve: MemoryUser) -> None:
    take(user, render(trips_project(2_000)))
    content = zip_of(user)
    assert "domains/travel/trips_0004.py" in files_in(content)
    take(eve, imports.read_zip(content))
    assert zip_of(eve) == content
    assert eve.locations.filter(retired_version=None).count() == 2_000


def test_prototype_loads_unmodified_and_gives_its_four_critical_alerts(
    user: MemoryUser, tmp_path: Path
) -> None:
    # Given a project in the form of the paper's prototype, which is imported unmodified,
    run = take(user, PROTOTYPE)
    assert run.output is not None
    notes = run.output["import"]["notes"]
    left_out = {"constraints/drugs.py", "constraints/journeys.py", "constraints/payments.py"}
    assert {(note["kind"], note["place"]) for note in notes} == {("left_out", p) for p in left_out}
    # when it is exported,
    unpack(zip_of(user), tmp_path)
    assert_green(tmp_path)
    # then its constraints run there unmodified, and find what they found on the imported files.
    (tmp_path / "constraints").mkdir()
    for path in left_out:
        (tmp_path / path).write_text(PROTOTYPE[path])
    done = run_python(tmp_path, "-c", RUN)
    assert done.returncode == 0, done.stderr
    alerts = json.loads(done.stdout)
    assert [(one["severity"], one["source"], one["message"]) for one in alerts] == [
        ("critical", "drugs", "Bactrim"),
        ("critical", "journeys", "P-7 expires before the return from Lisbon"),
        ("critical", "journeys", "P-7 expires before the return from Oslo"),
        ("critical", "payments", "Landlord"),
    ]


def test_project_edited_by_hand_is_executed(lived: MemoryUser, eve: MemoryUser) -> None:
    # Given an exported project in which somebody has computed a list,
    files = imports.read_zip(zip_of(lived))
    files["domains/travel/state.py"] += "\ntrips += [trip for trip in [] if trip]\n"
    # when it is imported, then what it holds is the same.
    take(eve, files)
    assert dump(eve)["travel.trips.rome"] == dump(lived)["travel.trips.rome"]


def test_import_does_not_overwrite_records(lived: MemoryUser, eve: MemoryUser) -> None:
    files = imports.read_zip(zip_of(lived))
    run = imports.queue(lived, files, RunTrigger.API)
    tasks.work("runs", str(run.pk))
    run.refresh_from_db()
    assert run.outcome == "rejected"
    assert "already has a domain 'travel'" in str(run.output)
    # A constraint that fails its tests does not get around the gate.
    files["tests/test_overlap.py"] = files["tests/test_overlap.py"].replace("== 1", "== 2")
    run = imports.queue(eve, files, RunTrigger.API)
    tasks.work("runs", str(run.pk))
    run.refresh_from_db()
    assert run.outcome == "rejected"
    eve.refresh_from_db()
    assert eve.head is None


def test_zip_of_a_clone_is_imported(lived: MemoryUser, eve: MemoryUser, tmp_path: Path) -> None:
    # Given a folder as a clone leaves it, packed with the folder itself,
    unpack(zip_of(lived), tmp_path / "ada")
    (tmp_path / "ada/.git/hooks").mkdir(parents=True)
    (tmp_path / "ada/.git/hooks/evil.py").write_text("1 / 0")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive_:
        for path in sorted((tmp_path / "ada").rglob("*")):
            archive_.write(path, path.relative_to(tmp_path))
    # when it is imported, then what is known is the same.
    (tmp_path / "ada.zip").write_bytes(packed.getvalue())
    take(eve, imports.read_folder(tmp_path / "ada.zip"))
    assert dump(eve) == dump(lived)


DATA = Path(os.environ.get("UAC_DATA_DIR", "")) / "llm_modules.jsonl"


@pytest.mark.skipif(not DATA.is_file(), reason="UAC_DATA_DIR has no llm_modules.jsonl")
@pytest.mark.parametrize("number", range(0, 100, 20))
def test_states_that_a_model_wrote_come_back_byte_for_byte(
    user: MemoryUser, eve: MemoryUser, tmp_path: Path, number: int
) -> None:
    # Given a recorded module of typed state that executes,
    cases = [json.loads(line) for line in DATA.read_text().splitlines()]
    case = [case for case in cases if case["ok"]][number]
    take(user, {"memory.py": case["code"]})
    # when it is exported, it runs by itself, and comes back.
    content = zip_of(user)
    unpack(content, tmp_path)
    assert_green(tmp_path)
    take(eve, imports.read_zip(content))
    assert zip_of(eve) == content
    assert dump(eve) == dump(user)


def test_original_names_and_values_set_aside_come_along(
    user: MemoryUser, eve: MemoryUser, api: APIClient, work: Callable[[], None], say: Any
) -> None:
    contacts: list[dict[str, Any]] = [
        {"First Name": "Ida", "due": "2026-05-31", "hourly": {"08:00": 4.1}, "tags": [1]},
        {"First Name": 7, "due": "TBD", "hourly": {"08:00": "n/a"}, "tags": ["x", 2]},
    ]
    for number, data in enumerate(contacts):
        say(record("Contact", str(number), **data))
    content = zip_of(user)

    answer = api.post("/v1/users/eve/import/?wait=0", content, content_type="application/zip")
    work()

    run = Run.objects.get(pk=answer.data["id"])
    assert run.outcome == "ok", run.error
    again, first = files_in(zip_of(eve)), files_in(content)
    assert 'metadata={"name": "First Name"}' in first["domains/travel/schema.py"]
    assert "set_aside={" in first["domains/travel/state.py"]
    assert {path: SOURCES.sub("", text) for path, text in again.items()} == {
        path: SOURCES.sub("", text) for path, text in first.items()
    }
    # The same payload finds the same fields.
    seqs = settle_records(
        eve, {"domain": "travel", "type": "Contact", "data": {"First Name": "Bo"}}
    )
    assert 'first_name="Bo"' in files_in(zip_of(eve))["domains/travel/state.py"], seqs

"""The command `userascode` against a whole server."""

import dataclasses
import datetime
import importlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from userascode import Client, record, render_classes
from userascode.cli import main

from deploy.embedded.system import System
from tests.api_tour import RULE, TESTS, key_of
from tests.unit.clients.test_imports import AT, CHATGPT, CLAUDE

Run = Callable[..., Result]


@pytest.fixture
def key(system: System) -> str:
    return key_of(system, "command line")


@pytest.fixture
def run(system: System, key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run the command in a home of its own, after a login."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("UAC_URL", "UAC_KEY"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str, status: int = 0) -> Result:
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == status, result.output
        return result

    run("login", "--url", system.base_url, "--key", key)
    return run


def test_login_keeps_the_key_for_the_user_alone(run: Run, tmp_path: Path, key: str) -> None:
    [kept] = tmp_path.rglob("login.json")

    assert kept.stat().st_mode & 0o777 == 0o600
    assert json.loads(kept.read_text())["key"] == key


def test_a_wrong_key_is_refused(run: Run, system: System) -> None:
    refused = run("login", "--url", system.base_url, "--key", "uac_wrong", status=1)

    assert refused.output.startswith("Error: ")


def test_added_records_are_found(run: Run, system: System, key: str, tmp_path: Path) -> None:
    # Given a user, and records by the command line
    run("users", "create", "cli", "--time-zone", "Asia/Tokyo")
    task = ("--record", "work.Task", "--set", "name=report", "--set", "days=3", "--wait", "60")
    run("add", "cli", *task)
    run("add", "cli", "The report is for Grace.")
    lapsed = ("--set", "name=old", "--set", "days=9", "--valid-until", "2020-01-31")
    run("add", "cli", "--record", "work.Task", *lapsed, "--wait", "60")
    listed = [json.loads(line) for line in run("--json", "users", "list").output.splitlines()]
    # When they are asked for
    value = run("query", "cli", "[task.days for task in tasks]")
    found = run("--json", "search", "cli", "Grace")
    context = run("context", "cli", "Who is the report for?", "--tokens", "500")
    # Then the answers are there
    assert ("cli", "Asia/Tokyo") in [(user["user_id"], user["time_zone"]) for user in listed]
    assert json.loads(value.output) == [3]
    assert json.loads(found.output.splitlines()[0])["seq"] == 2
    assert "Grace" in context.output
    # And a constraint is pushed, tried, pulled, and alerts
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "late.py").write_text(RULE)
    (rules / "test_late.py").write_text(TESTS)
    run("constraints", "push", "cli", str(rules))
    tried = run("--json", "constraints", "test", "cli", "late")
    run("constraints", "pull", "cli", str(tmp_path / "pulled"))
    followed = run("alerts", "cli", "--follow", "--after", "0", "--count", "1")
    assert json.loads(tried.output)["message"] == "report is 3 days late"
    assert (tmp_path / "pulled" / "late.py").read_text() == RULE
    assert "report is 3 days late" in followed.output


def test_a_document_is_added_once_and_found(run: Run, tmp_path: Path) -> None:
    lease, scan = tmp_path / "lease.txt", tmp_path / "scan.pdf"
    lease.write_text("Pets are allowed in the flat.")
    scan.write_bytes(b"%PDF-1.7 torn off")
    run("users", "create", "tenant")

    added = json.loads(run("--json", "add", "tenant", "--file", str(lease)).output)
    again = json.loads(run("--json", "add", "tenant", "--file", str(lease)).output)
    hit = json.loads(run("--json", "search", "tenant", "pets").output.splitlines()[0])
    broken = json.loads(run("--json", "add", "tenant", "--file", str(scan), status=1).output)

    assert (added["id"], added["first_seq"]) == (again["id"], again["first_seq"])
    assert (added["is_duplicate"], again["is_duplicate"]) == (False, True)
    assert hit["seq"] == added["first_seq"]
    assert broken["error"]["code"] == "broken"
    assert "lease.txt" in run("search", "tenant", "pets").output

    run("documents", "redact", "tenant", added["id"], "--reason", "moved out")

    listed = run("--json", "documents", "list", "tenant").output
    assert "lease.txt" not in listed
    assert "scan.pdf" in listed


def test_a_value_that_was_set_aside_is_told(run: Run) -> None:
    run("users", "create", "bo")
    trip = ("--record", "travel.Trip", "--set", "to=Rome")
    run("add", "bo", *trip, "--set", "cost=3", "--wait", "60")

    told = run("add", "bo", *trip, "--set", "cost=cheap", "--wait", "60").stderr

    assert told.startswith("2: set aside: cost. ")


def test_pulled_classes_read_the_records(
    run: Run, system: System, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = Client(system.base_url, key).user("cli-pull")
    Client(system.base_url, key).users.create("cli-pull")
    user.add(record("travel", "Trip", to="Rome", cost=1200, starts="2026-12-30"), wait=60)

    run("pull", "cli-pull", str(tmp_path / "pulled_classes.py"))

    monkeypatch.syspath_prepend(tmp_path)
    [trip] = importlib.import_module("pulled_classes").Memory(user).trips
    assert (trip.to, trip.cost, trip.starts) == ("Rome", 1200, datetime.date(2026, 12, 30))


def test_classes_are_prescribed(run: Run, system: System, key: str, tmp_path: Path) -> None:
    @dataclasses.dataclass
    class Service:
        cost: float

    file = tmp_path / "garage.py"
    file.write_text(render_classes(Service))
    client = Client(system.base_url, key)
    client.users.create("cli-schema")

    run("schema", "push", str(file))

    user = client.user("cli-schema")
    user.add(record("garage", "Service", "s", cost=80), wait=60)
    assert user.state().domains["garage"].classes == {"Service": {"cost": "float"}}


def test_a_folder_is_imported_for_a_new_user(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pets.py").write_text(
        "from dataclasses import dataclass\n\n\n@dataclass\nclass Pet:\n    name: str\n\n\n"
        "pets = [Pet('Rex')]\n"
    )

    run("import", str(folder), "--user", "cli-import")

    assert json.loads(run("query", "cli-import", "pets[0].name").output) == "Rex"


def test_an_export_is_imported_once(run: Run, system: System, key: str, tmp_path: Path) -> None:
    # Given an import that was interrupted after the first of two conversations
    user = Client(system.base_url, key).user("cli-export")
    first, both = tmp_path / "first.json", tmp_path / "both.json"
    first.write_text(json.dumps([CHATGPT]))
    both.write_text(json.dumps([CHATGPT, CLAUDE]))
    planned = run("import", str(both), "--user", "cli-export", "--dry-run").output
    assert "entries: 4 (2 assistant, 2 user)" in planned
    assert "1 attachments" in planned
    run("import", str(first), "--user", "cli-export")
    # When it is repeated, twice
    second = run("import", str(both), "--user", "cli-export").output
    third = run("import", str(both), "--user", "cli-export").output
    # Then each message is there once, as it was said
    assert "added: 2, there before: 2, verified: 4" in second
    assert "added: 0, there before: 4, verified: 4" in third
    entries = [(entry.role, entry.content, entry.occurred_at) for entry in user.entries.list()]
    at = datetime.datetime.fromisoformat(AT)
    assert (
        entries
        == [
            ("user", "When do I fly to Rome?", at),
            ("assistant", "On Friday.", at),
        ]
        * 2
    )


def test_an_import_brings_back_nothing_that_was_redacted(
    run: Run, system: System, key: str, tmp_path: Path
) -> None:
    user = Client(system.base_url, key).user("cli-redacted")
    export = tmp_path / "export.json"
    export.write_text(json.dumps([CLAUDE]))
    run("import", str(export), "--user", "cli-redacted")
    user.entries.redact(1, reason="asked for")

    again = run("import", str(export), "--user", "cli-redacted").output

    assert "not taken over: 1 attachments, 1 blocks of type thinking, 1 redacted entries" in again
    assert "added: 0, there before: 1, verified: 1" in again
    assert [entry.content for entry in user.entries.list()][:2] == [None, "On Friday."]


@pytest.mark.parametrize("command", [("query", "nobody", "1"), ("add", "nobody", "Hello.")])
def test_an_error_is_one_line_with_the_fix(run: Run, command: tuple[str, ...]) -> None:
    failed = run(*command, status=1)

    assert failed.output.startswith("Error: ")
    assert "Traceback" not in failed.output
    # The fix is a command, too.
    assert "userascode users create" in failed.output

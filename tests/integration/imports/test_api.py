"""Imports over HTTP and on the command line: answers, and immediate refusals."""

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.versions.models.runs import Run
from workers import tasks

pytestmark = pytest.mark.django_db

URL = "/v1/users/ada/import/"
MODULE = """
from dataclasses import dataclass

@dataclass
class Trip:
    to: str

trips = [Trip("Rome")]
"""


def test_an_import_answers_with_the_version_and_a_report(
    api: APIClient, user: MemoryUser, request_worker: None
) -> None:
    answer = api.post(URL, {"files": {"travel.py": MODULE}}, format="json")
    assert answer.status_code == 200, answer.content
    assert answer.data["accepted"]
    assert answer.data["version"] == 1
    assert answer.data["report"]["counts"] == {"objects": 1, "records": 1, "classes": 1}
    state = api.get("/v1/users/ada/state/travel/trips/").data
    assert [record["fields"] for record in state["records"]] == [{"to": "Rome"}]


def test_an_import_that_is_refused_says_why(
    api: APIClient, user: MemoryUser, request_worker: None
) -> None:
    answer = api.post(URL, {"files": {"travel.py": "1 / 0"}}, format="json")
    assert answer.status_code == 422
    assert answer.data["version"] is None
    (check,) = answer.data["verdict"]["checks"]
    (found,) = check["findings"]
    assert (found["path"], found["line"]) == ("travel.py", 1)
    assert found["message"] == "ZeroDivisionError: division by zero"


def test_import_without_waiting_returns_the_run(api: APIClient, user: MemoryUser) -> None:
    answer = api.post(f"{URL}?wait=0", {"files": {"travel.py": MODULE}}, format="json")
    assert answer.status_code == 202
    assert answer.data["kind"] == "import"
    tasks.work("runs", answer.data["id"])
    assert api.get(f"/v1/runs/{answer.data['id']}/").data["outcome"] == "ok"


def test_a_repeated_request_imports_once(
    api: APIClient, user: MemoryUser, request_worker: None
) -> None:
    for _ in range(2):
        answer = api.post(
            URL, {"files": {"a.py": MODULE}}, format="json", headers={"Idempotency-Key": "k"}
        )
        assert (answer.status_code, answer.data["version"]) == (200, 1)
    assert Run.objects.filter(user=user, kind="import").count() == 1


# The files of a request, and a part of the message.
NO_PROJECTS: dict[str, tuple[Any, str]] = {
    "nothing": ({}, "no Python file"),
    "traversal": ({"../../etc/cron.py": "x = 1"}, "not a valid path within a project"),
    "absolute": ({"/etc/a.py": "x = 1"}, "not a valid path within a project"),
    "up and down": ({"a/../b.py": "x = 1"}, "not a valid path within a project"),
    "backslash": ({"a\\b.py": "x = 1"}, "not a valid path within a project"),
    "empty folder": ({"a//b.py": "x = 1"}, "not a valid path within a project"),
    "another type": ({"a.txt": "x = 1"}, "not a Python file"),
    "no name": ({".py": "x = 1"}, "not a valid path"),
    "deep": ({"/".join("a" * 12) + ".py": "x"}, "is too long: a path may have at most"),
    "many": ({f"m{n}.py": "" for n in range(501)}, "The project has 501 files"),
    "large file": ({"a.py": "#" * (2 * 1024 * 1024 + 1)}, "at most"),
    "large": ({f"m{n}.py": "#" * (1024 * 1024) for n in range(7)}, "The project has 7340032 bytes"),
    "no text": ({"a.py": 1}, "Send a string"),
    "a list": (["a.py"], "Send an object"),
}


@pytest.mark.parametrize(("files", "message"), NO_PROJECTS.values(), ids=NO_PROJECTS)
def test_files_that_are_no_project_are_refused_at_once(
    api: APIClient, user: MemoryUser, files: Any, message: str
) -> None:
    answer = api.post(URL, {"files": files}, format="json")
    assert answer.status_code == 400
    assert message in json.dumps(answer.data)
    assert not Run.objects.filter(user=user).exists()


def test_another_workspaces_user_does_not_exist(api: APIClient) -> None:
    assert api.post(URL, {"files": {"a.py": MODULE}}, format="json").status_code == 404


# The command


@pytest.fixture
def command(request_worker: None) -> Callable[..., Any]:
    """Run `manage.py import_project`; return its output."""

    def do(folder: Path, user: str = "ada", **options: Any) -> Any:
        out = StringIO()
        call_command("import_project", str(folder), user, stdout=out, **options)
        return json.loads(out.getvalue())

    return do


def test_a_folder_is_imported(
    command: Callable[..., Any], user: MemoryUser, tmp_path: Path
) -> None:
    (tmp_path / "domains" / "travel").mkdir(parents=True)
    (tmp_path / "domains" / "travel" / "state.py").write_text(MODULE)
    (tmp_path / "README.md").write_text("not Python")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "hook.py").write_text("1 / 0")
    said = command(tmp_path)
    assert said["version"] == 1
    assert said["modules"] == {"domains/travel/state.py": "travel"}


def test_single_file_is_imported(
    command: Callable[..., Any], user: MemoryUser, tmp_path: Path
) -> None:
    (tmp_path / "travel.py").write_text(MODULE)
    assert command(tmp_path / "travel.py")["modules"] == {"travel.py": "travel"}


@pytest.mark.parametrize("target", ["/etc", "/etc/passwd", "missing"])
def test_links_are_not_followed(
    command: Callable[..., Any], user: MemoryUser, tmp_path: Path, target: str
) -> None:
    (tmp_path / "travel.py").write_text(MODULE)
    (tmp_path / "link.py").symlink_to(target)
    with pytest.raises(CommandError, match=r"link\.py is a symbolic link"):
        command(tmp_path)
    assert not Run.objects.filter(user=user).exists()


def test_failed_import_ends_the_command_with_the_reason(
    command: Callable[..., Any], user: MemoryUser, tmp_path: Path
) -> None:
    (tmp_path / "travel.py").write_text("1 / 0")
    with pytest.raises(CommandError, match=r"not imported: .*division by zero"):
        command(tmp_path)
    with pytest.raises(CommandError, match="there is no user 'bob'"):
        command(tmp_path, "bob")
    with pytest.raises(CommandError, match="neither a folder nor a file"):
        command(tmp_path / "missing")
    (tmp_path / "travel.py").write_bytes(b"\xff\xfe")
    with pytest.raises(CommandError, match="not encoded in UTF-8"):
        command(tmp_path)

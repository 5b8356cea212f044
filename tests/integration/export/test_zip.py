"""A version as a zip: its content, when it is sent again, and who is refused."""

import io
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from memory.kernel.workspaces import create_key
from memory.privacy import redaction
from memory.versions.models.runs import Run
from tests.integration.export.conftest import assert_green, record

pytestmark = pytest.mark.django_db

URL = "/v1/users/ada/export/"


def content_of(response: Any) -> bytes:
    assert response.status_code == 200, response
    assert response["Content-Type"] == "application/zip"
    found = b"".join(response.streaming_content)
    assert len(found) == int(response["Content-Length"])
    return found


def files_of(response: Any) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(content_of(response))) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_zip_has_files_of_the_version_and_library(lived: MemoryUser, api: APIClient) -> None:
    response = api.get(URL, HTTP_ACCEPT="application/zip")
    assert response["Content-Disposition"] == 'attachment; filename="ada-v5.zip"'
    files = files_of(response)
    assert lived.head is not None
    assert set(files) == {
        *lived.head.tree,
        *(
            f"uac/{name}.py"
            for name in ("__init__", "alerts", "dates", "reckoning", "records", "testing")
        ),
        *("uac/py.typed", "uac/test_project.py"),
        *("README.md", ".gitignore", "pyproject.toml"),
    }
    # The server's protocol with its sandboxes is not included.
    assert "protocol" not in files["uac/__init__.py"]


def test_the_same_version_is_the_same_bytes_and_is_not_sent_again(
    lived: MemoryUser, api: APIClient, say: Callable[..., None]
) -> None:
    first = api.get(URL)
    content = content_of(first)
    assert content_of(api.get(f"{URL}?as_of=v5")) == content
    assert api.get(URL, HTTP_IF_NONE_MATCH=f'"x", {first["ETag"]}').status_code == 304
    for url in (URL, f"{URL}?as_of=v5"):
        head: Any = api.head(url)
        assert (head.status_code, head["ETag"]) == (200, first["ETag"])
        assert not [*head.streaming_content]  # to its end, where it is closed
    # What changed is.
    say(record("Trip", "bonn", to="Bonn", on="2026-03-01", cost=90))
    again = api.get(URL, HTTP_IF_NONE_MATCH=first["ETag"])
    assert again["ETag"] != first["ETag"]
    assert "Bonn" in files_of(again)["domains/travel/state.py"]


def test_an_earlier_version_is_as_it_was(lived: MemoryUser, api: APIClient) -> None:
    assert "Oslo" not in files_of(api.get(URL))["domains/travel/state.py"]
    then = files_of(api.get(f"{URL}?as_of=v2"))
    assert "Oslo" in then["domains/travel/state.py"]
    assert "constraints/overlap.py" not in then
    assert "Oslo" in files_of(api.get(f"{URL}?as_of=3"))["domains/travel/state.py"]


def test_empty_project_runs(user: MemoryUser, api: APIClient, tmp_path: Any) -> None:
    with zipfile.ZipFile(io.BytesIO(content_of(api.get(URL)))) as archive:
        archive.extractall(tmp_path)
    assert not (tmp_path / "domains").exists()
    assert_green(tmp_path)


def test_records_alone_are_a_project_that_runs(
    user: MemoryUser, api: APIClient, say: Callable[..., None], tmp_path: Any
) -> None:
    say(record("Trip", "rome", to="Rome", on="2026-05-02", cost=840))
    with zipfile.ZipFile(io.BytesIO(content_of(api.get(URL)))) as archive:
        archive.extractall(tmp_path)
    assert_green(tmp_path)


def test_missing_version_is_not_found(
    lived: MemoryUser, api: APIClient, workspace: Workspace
) -> None:
    for query, status in (
        ("as_of=v9", 404),
        ("as_of=2999-01-01T00:00:00Z", 404),
        ("asof=v1", 400),
    ):
        answer = api.get(f"{URL}?{query}")
        assert answer.status_code == status, query
        assert answer["Content-Type"] == "application/problem+json"
    assert api.post(URL).status_code == 405
    stranger = create_key(Workspace.objects.create(name="other"), "k")[1]
    writer = create_key(workspace, "k", [Scope.WRITE])[1]
    for key, status in ((stranger, 404), (writer, 403), ("uac_00_x", 401)):
        answer = APIClient().get(URL, HTTP_AUTHORIZATION=f"Bearer {key}")
        assert answer.status_code == status
    assert APIClient().get(URL).status_code == 401
    # The password for git is accepted only by git's addresses.
    assert APIClient().get(URL, HTTP_AUTHORIZATION="Basic eDp5").status_code == 401


def test_a_version_that_rests_on_what_was_redacted_is_gone(
    lived: MemoryUser, api: APIClient, work: Callable[[], None]
) -> None:
    redaction.redact(lived, [3], by="key:test", reason="A mistake.")
    assert api.get(URL).status_code == 503
    work()
    assert api.get(f"{URL}?as_of=v1").status_code == 200
    answer = api.get(f"{URL}?as_of=v2")
    assert answer.status_code == 410
    assert "was redacted later" in answer.json()["detail"]
    assert "Oslo" not in str(files_of(api.get(URL)))


# Zips that come in


def packed(**files: Any) -> bytes:
    spool = io.BytesIO()
    with zipfile.ZipFile(spool, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return spool.getvalue()


def with_link() -> bytes:
    spool = io.BytesIO()
    with zipfile.ZipFile(spool, "w") as archive:
        link = zipfile.ZipInfo("a.py")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    return spool.getvalue()


def twice() -> bytes:
    spool = io.BytesIO()
    with zipfile.ZipFile(spool, "w") as archive:
        archive.writestr("a.py", "x = 1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.py", "x = 2")
    return spool.getvalue()


def damaged() -> bytes:
    content = bytearray(packed(**{"a.py": "x = 1\n" * 100}))
    content[40] ^= 0xFF
    return bytes(content)


def encrypted() -> bytes:
    content = bytearray(packed(**{"a.py": "x = 1"}))
    content[6] |= 1  # the flag, in both of its places
    content[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: b"", "is required", id="empty"),
        pytest.param(lambda: b"import os", "cannot be read", id="no zip"),
        pytest.param(lambda: packed(**{"a.py": "x"})[:-10], "cannot be read", id="cut off"),
        pytest.param(damaged, "cannot be read", id="damaged"),
        pytest.param(encrypted, "an unsupported format", id="encrypted"),
        pytest.param(with_link, "symbolic link", id="link"),
        pytest.param(twice, "twice", id="twice"),
        pytest.param(packed, "no Python file", id="nothing in it"),
        pytest.param(lambda: packed(**{"README.md": "hi"}), "no Python file", id="no Python in it"),
        pytest.param(lambda: packed(**{"../a.py": "x"}), "not a valid path within", id="up"),
        pytest.param(
            lambda: packed(**{"/etc/a.py": "x"}), "not a valid path within", id="absolute"
        ),
        pytest.param(lambda: packed(**{"a\\b.py": "x"}), "not a valid path within", id="backslash"),
        pytest.param(
            lambda: packed(**{"a.py": b"\xff\xfe"}), "not encoded in UTF-8", id="no UTF-8"
        ),
        pytest.param(lambda: packed(**{"a.py": " " * (3 << 20)}), "too large", id="large file"),
        pytest.param(
            lambda: packed(**{f"m{n}.py": " " * (2 << 20) for n in range(200)}),
            "too large",
            id="bomb",
        ),
        pytest.param(
            lambda: packed(**{f"m{n}.py": "" for n in range(501)}), "too large", id="many"
        ),
        pytest.param(
            lambda: packed(**{f"m{n}.txt": "" for n in range(20_001)}), "entries", id="many others"
        ),
    ],
)
def test_zips_that_are_no_project_are_refused_at_once(
    user: MemoryUser, api: APIClient, make: Callable[[], bytes], message: str
) -> None:
    answer = api.post("/v1/users/ada/import/", make(), content_type="application/zip")
    assert answer.status_code == 400, answer.content
    assert message in str(answer.json())
    assert not Run.objects.filter(user=user).exists()


def test_other_media_types_are_refused(user: MemoryUser, api: APIClient) -> None:
    answer = api.post("/v1/users/ada/import/", b"PK", content_type="application/x-tar")
    assert answer.status_code == 415
    assert "application/json, application/zip" in answer.json()["detail"]


def test_a_zip_that_is_sent_again_is_imported_once(user: MemoryUser, api: APIClient) -> None:
    content = packed(**{"a.py": "x = 1"})
    for _ in range(2):
        answer = api.post(
            "/v1/users/ada/import/?wait=0",
            content,
            content_type="application/zip",
            headers={"Idempotency-Key": "k"},
        )
        assert answer.status_code == 202
    assert Run.objects.filter(user=user, kind="import").count() == 1

"""Answers of git's addresses to any client, also to requests that are not git's."""

import base64
import gzip
from typing import Any

import pytest
from django.conf import LazySettings
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.workspaces import create_key
from tests.integration.export.conftest import record

pytestmark = pytest.mark.django_db

REFS = "/v1/users/ada/git/info/refs"
PACK = "/v1/users/ada/git/git-upload-pack"
TYPE = "application/x-git-upload-pack-request"


@pytest.fixture
def lived(lived_once: MemoryUser) -> MemoryUser:
    """A person with five versions, which nobody has fetched yet."""
    return MemoryUser.objects.get(pk=lived_once.pk)


@pytest.fixture
def user(lived: MemoryUser) -> MemoryUser:
    return lived


@pytest.fixture
def workspace(lived: MemoryUser) -> Workspace:
    return lived.workspace


def line(text: str) -> bytes:
    return f"{len(text) + 4:04x}{text}".encode()


def text_of(response: Any) -> str:
    parts = response.streaming_content if response.streaming else [response.content]
    return b"".join(parts).decode("latin-1")


def head_of(api: APIClient) -> str:
    """Return the id of the newest commit."""
    return text_of(api.get(f"{REFS}?service=git-upload-pack")).split("0000", 1)[1][4:44]


def test_refs_are_told_as_git_expects_them(lived: MemoryUser, api: APIClient) -> None:
    response = api.get(f"{REFS}?service=git-upload-pack", HTTP_GIT_PROTOCOL="version=2")
    assert response.status_code == 200
    assert response["Content-Type"] == "application/x-git-upload-pack-advertisement"
    assert "no-cache" in response["Cache-Control"]
    told = text_of(response)
    assert told.startswith("001e# service=git-upload-pack\n0000")
    assert [f"refs/tags/v{n}\n" in told for n in range(1, 7)] == [True] * 5 + [False]
    assert api.head(f"{REFS}?service=git-upload-pack").status_code == 200


@pytest.mark.parametrize("packed", [False, True])
def test_a_body_may_be_compressed(lived: MemoryUser, api: APIClient, packed: bool) -> None:
    body = line(f"want {head_of(api)} side-band-64k ofs-delta\n") + b"0000" + line("done\n")
    headers = {"Content-Encoding": "gzip"} if packed else {}
    body = gzip.compress(body) if packed else body
    response = api.post(PACK, body, content_type=TYPE, headers=headers)
    assert response.status_code == 200
    assert response["Content-Type"] == "application/x-git-upload-pack-result"
    assert text_of(response).startswith("0008NAK\n")


def test_a_client_without_side_bands_gets_the_pack_alone(lived: MemoryUser, api: APIClient) -> None:
    body = line(f"want {head_of(api)}\n") + b"0000" + line("done\n")
    told = text_of(api.post(PACK, body, content_type=TYPE))
    assert told.startswith("0008NAK\nPACK\0\0\0\2")


def test_common_version_is_acknowledged_once(lived: MemoryUser, api: APIClient, say: Any) -> None:
    known = head_of(api)
    say(record("Trip", "bonn", to="Bonn", on="2026-03-01", cost=90))
    body = line(f"want {head_of(api)}\n") + b"0000" + line(f"have {known}\n")
    assert text_of(api.post(PACK, body + b"0000", content_type=TYPE)) == f"0031ACK {known}\n"
    told = text_of(api.post(PACK, body + line("done\n"), content_type=TYPE))
    # A commit, at most five folders, a file and the manifest.
    assert told.startswith(f"0031ACK {known}\nPACK\0\0\0\2")
    assert told[len(f"0031ACK {known}\n") + 11] <= "\x08"


def test_missing_version_is_an_error_that_git_shows(lived: MemoryUser, api: APIClient) -> None:
    body = line(f"want {'1' * 40}\n") + b"0000" + line("done\n")
    told = text_of(api.post(PACK, body, content_type=TYPE))
    assert told[4:].startswith("ERR the commit 1111")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"0000", id="nothing wanted"),
        pytest.param(b"zzzz", id="no length"),
        pytest.param(b"0003", id="too short a length"),
        pytest.param(b"ffffwant", id="cut off"),
        pytest.param(line("want\n") + b"0000", id="no id"),
        pytest.param(line("push me\n") + b"0000", id="another command"),
        pytest.param(line(f"want {'1' * 40}\n"), id="no end"),
        pytest.param(line("deepen x\n") + b"0000", id="no depth"),
        pytest.param(line("want \xff\n") + b"0000", id="no ASCII"),
        pytest.param(b"{}" * 1000, id="JSON"),
    ],
)
def test_invalid_git_request_is_refused(lived: MemoryUser, api: APIClient, body: bytes) -> None:
    response = api.post(PACK, body, content_type=TYPE)
    told = text_of(response)
    # An invalid id counts as an unknown one.
    assert response.status_code == 400 or told[4:].startswith("ERR "), told
    if response.status_code == 400:
        assert response["Content-Type"].startswith("text/plain")
        assert told.startswith("This is not a valid git request: ")


@pytest.mark.parametrize("depth", ["0", "-1", "1", "99999999999999999999"])
def test_any_depth_is_answered(lived: MemoryUser, api: APIClient, depth: str) -> None:
    body = line(f"want {head_of(api)} shallow\n") + line(f"deepen {depth}\n") + b"0000"
    response = api.post(PACK, body + line("done\n"), content_type=TYPE)
    assert response.status_code in (200, 400)
    assert text_of(response)


def test_compressed_bodies_are_bounded(
    lived: MemoryUser, api: APIClient, settings: LazySettings
) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10_000
    bomb = gzip.compress(b"0" * 1_000_000)
    for body, encoding, status in (
        (bomb, "gzip", 413),
        (b"0" * 20_000, "identity", 413),
        (b"no gzip", "gzip", 400),
        (b"0000", "br", 400),
    ):
        response = api.post(PACK, body, content_type=TYPE, HTTP_CONTENT_ENCODING=encoding)
        assert response.status_code == status, (encoding, response.content)
        assert response["Content-Type"].startswith("text/plain")


def test_other_services_methods_and_types_are_refused(lived: MemoryUser, api: APIClient) -> None:
    for method, path, status in (
        ("get", REFS, 400),
        ("get", f"{REFS}?service=git-upload-archive", 400),
        ("get", f"{REFS}?service=git-receive-pack", 403),
        ("get", f"{REFS}?service=git-upload-pack&x=1", 400),
        ("get", PACK, 405),
        ("post", REFS, 405),
        ("post", "/v1/users/ada/git/git-receive-pack", 403),
        ("get", "/v1/users/ada/git/HEAD", 404),
        ("get", "/v1/users/ada/git/objects/info/packs", 404),
    ):
        assert getattr(api, method)(path).status_code == status, (method, path)
    answer = api.post(PACK, b"0000", content_type="application/json")
    assert answer.status_code == 400


def test_the_key_is_the_password_of_any_name(lived: MemoryUser, workspace: Workspace) -> None:
    key = create_key(workspace, "k")[1]
    other = create_key(Workspace.objects.create(name="other"), "k")[1]

    def ask(header: str | None, path: str = f"{REFS}?service=git-upload-pack") -> Any:
        return APIClient().get(path, headers={"Authorization": header} if header else {})

    def basic(login: str) -> str:
        return "Basic " + base64.b64encode(login.encode()).decode()

    assert ask(basic(f"git:{key}")).status_code == 200
    assert ask(basic(f":{key}")).status_code == 200
    assert ask(f"Bearer {key}").status_code == 200
    for header in (
        None,
        basic(key),
        basic(f"{key}:"),
        basic("git:uac_00_wrong"),
        "Basic",
        "Basic ???",
        "Basic /w==",
        "Digest x",
    ):
        refused = ask(header)
        assert refused.status_code == 401, header
        assert refused["WWW-Authenticate"].startswith("Basic ")
    # Whether another workspace has such a user is not revealed, whatever is requested.
    for path in (f"{REFS}?service=git-upload-pack", f"{REFS}?service=git-receive-pack"):
        stranger = ask(basic(f"git:{other}"), path)
        assert stranger.status_code == 404
        assert text_of(stranger) == text_of(
            ask(basic(f"git:{other}"), path.replace("ada", "nobody"))
        )

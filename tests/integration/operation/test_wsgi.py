"""A guard before Django: clients that send forms to the staff's pages slowly hold few threads."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from pytest_django.fixtures import Settings


def test_forms_for_the_staff_leave_threads_to_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    from uac_site import wsgi  # which begins to serve: not before a test asks for it

    answered: list[str] = []

    def answer(method: str, path: str) -> str:
        statuses: list[str] = []
        environ = {"REQUEST_METHOD": method, "PATH_INFO": path}
        list(wsgi.application(environ, lambda status, *rest: statuses.append(status)))  # type: ignore[arg-type]
        return statuses[0]

    def as_django(environ: Any, start_response: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        answered.append(path)
        if path == "/admin/login/" and len(answered) < 4:
            assert answer("POST", path) == "200 OK"  # while this one is still sent
        elif path == "/admin/login/":
            # When as many are being sent as may be
            assert answer("POST", "/admin/memory/alert/") == "503 Service Unavailable"
            # Then the API is there for everybody, and the staff can look at everything
            assert answer("POST", "/v1/users/") == "200 OK"
            assert answer("GET", "/admin/") == "200 OK"
        start_response("200 OK", [])
        return []

    monkeypatch.setattr(wsgi, "_answer", as_django)
    assert answer("POST", "/admin/login/") == "200 OK"
    assert answer("POST", "/admin/memory/alert/") == "200 OK"
    assert answered.count("/admin/login/") == 4


def test_a_form_that_is_too_large_is_not_read(settings: Settings) -> None:
    from uac_site import wsgi

    statuses: list[str] = []
    for length in (str(settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1), "1e9", "-1"):
        environ = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": "/admin/login/",
            "CONTENT_LENGTH": length,  # and no stream to read from
        }
        told = wsgi.application(environ, lambda status, *rest: statuses.append(status))  # type: ignore[arg-type]
        assert b"at most" in b"".join(told)
    assert statuses == ["413 Content Too Large"] * 3


@pytest.mark.django_db
def test_uploaded_file_is_not_stored(client: Client, tmp_path: Path, settings: Settings) -> None:
    settings.FILE_UPLOAD_TEMP_DIR = str(tmp_path / "there is none")
    content = SimpleUploadedFile("large", b"x" * 3 * settings.FILE_UPLOAD_MAX_MEMORY_SIZE)

    answer = client.post("/admin/login/", {"login": "x", "password": "y", "file": content})

    assert answer.status_code == 200
    assert answer.wsgi_request.POST["login"] == "x"
    assert not answer.wsgi_request.FILES

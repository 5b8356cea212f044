"""What comes before Django: who sends a form to the staff's pages slowly keeps few threads."""

from collections.abc import Iterable
from typing import Any

import pytest


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
        if path == "/admin/login/" and len(answered) < wsgi.ADMIN_BODIES:
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
    assert answered.count("/admin/login/") == wsgi.ADMIN_BODIES

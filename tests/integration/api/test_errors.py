"""Errors have one form everywhere, and documented types."""

import re
from typing import Any

import pytest
from django.conf import settings
from django.db import DatabaseError, connection
from django.test import Client
from rest_framework.test import APIClient

from memory.kernel.http.problems import CONTENT_TYPE, NAMESPACE, PROBLEMS
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from tests.conftest import new_client

pytestmark = pytest.mark.django_db


def problem(response: Any, status: int, name: str) -> dict[str, Any]:
    """Return the details of an error, checked for completeness, of this kind."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == CONTENT_TYPE
    told: dict[str, Any] = response.json()
    assert told["type"] == NAMESPACE + name
    assert told["status"] == status
    assert told["title"]
    assert told["detail"]
    assert told["request_id"] == response["X-Request-Id"]
    return told


def test_the_documented_types_are_those_of_the_code() -> None:
    text = (settings.BASE_DIR / "docs" / "api.md").read_text()

    rows = re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \| (.*) \|$", text, re.MULTILINE)

    assert rows == [(one.name, str(one.status), one.meaning) for one in PROBLEMS]


@pytest.mark.parametrize("path", ["/docs/nothing", "/nowhere", "/v2/users/", "/static/nothing.css"])
def test_where_there_is_nothing(path: str) -> None:
    problem(Client().get(path), 404, "not-found")


def test_below_the_api_there_is_nothing_without_a_key_either(api: APIClient) -> None:
    problem(Client().get("/v1/nowhere/"), 401, "no-key")
    problem(api.get("/v1/nowhere/"), 404, "not-found")


@pytest.mark.parametrize(
    ("request_of", "status", "name"),
    [
        (lambda api: api.post("/v1/users/", {"user_id": "no\tid"}), 400, "invalid-fields"),
        (lambda api: api.get("/v1/users/?cursor=nonsense"), 400, "invalid-fields"),
        (
            lambda api: api.post("/v1/users/", b"{", content_type="application/json"),
            400,
            "malformed-request",
        ),
        (lambda api: api.get("/v1/webhooks/"), 403, "not-allowed"),
        (lambda api: api.put("/v1/users/", {}), 405, "method-not-allowed"),
        (lambda api: api.get("/v1/users/", HTTP_ACCEPT="text/html"), 406, "not-acceptable"),
        (lambda api: api.post("/v1/users/", {"user_id": "ada"}), 409, "conflict"),
        (
            lambda api: api.patch("/v1/users/ada/", {}, HTTP_IF_MATCH='"another"'),
            412,
            "changed",
        ),
        (
            lambda api: api.get("/v1/users/ada/", HTTP_IF_MATCH='"another"'),
            412,
            "changed",
        ),
        (
            lambda api: api.post("/v1/users/", b"<a/>", content_type="text/xml"),
            415,
            "unsupported-media-type",
        ),
    ],
)
def test_api_problem_has_its_type(
    api: APIClient, user: MemoryUser, request_of: Any, status: int, name: str
) -> None:
    told = problem(request_of(api), status, name)

    assert ("errors" in told) == (name == "invalid-fields")


def test_a_fault_of_ours(api: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("memory.users.api.create_user", fail)
    api.raise_request_exception = False

    told = problem(api.post("/v1/users/", {"user_id": "bob"}), 500, "server-error")

    assert "secret" not in str(told)


def test_health_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Client().head("/livez").status_code == 200
    refused = Client().post("/readyz")
    problem(refused, 405, "method-not-allowed")
    assert refused["Allow"] == "GET, HEAD"

    def cursor() -> None:
        raise DatabaseError

    monkeypatch.setattr(connection, "cursor", cursor)
    told = problem(Client().get("/readyz"), 503, "unavailable")
    assert told["database"] == "does not answer"


def test_a_request_is_called_what_its_caller_calls_it(api: APIClient) -> None:
    named = api.get("/v1/users/", HTTP_X_REQUEST_ID="order-17.3")
    unnamed = api.get("/v1/users/", HTTP_X_REQUEST_ID="a line\tof log")

    assert named["X-Request-Id"] == "order-17.3"
    assert re.fullmatch(r"[0-9a-f-]{36}", unnamed["X-Request-Id"])


def test_mem0s_addresses_keep_the_form_of_mem0(workspace: Workspace) -> None:
    refused = new_client(workspace, scheme="Token").get("/mem0/v1/memories/nothing/")

    assert refused.status_code == 404
    assert refused["Content-Type"] == "application/json"
    assert refused.json()["detail"]

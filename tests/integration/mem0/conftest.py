"""Requests below /mem0/, with a key of the workspace."""

import json
from typing import Any, Protocol

import pytest
from rest_framework.test import APIClient

from memory.kernel.models.workspaces import Scope, Workspace
from tests.conftest import new_client


class Call(Protocol):
    """Send a request below /mem0/, and return the body of its answer, which has this status."""

    def __call__(self, method: str, path: str, body: Any = None, *, status: int = 200) -> Any: ...


def client_of(workspace: Workspace, *scopes: Scope) -> APIClient:
    """Return a client with a new key, sent as mem0's client does."""
    return new_client(workspace, *scopes, scheme="Token")


def caller(client: APIClient) -> Call:
    def call(method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        response = client.generic(
            method,
            f"/mem0/{path}",
            "" if body is None else json.dumps(body),
            content_type="application/json",
        )
        assert response.status_code == status, response.content[:1000]
        assert response["Content-Type"] == "application/json"
        return response.json()

    return call


@pytest.fixture
def call(workspace: Workspace) -> Call:
    return caller(client_of(workspace))

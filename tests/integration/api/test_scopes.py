"""The scope that a key needs for each operation: with any other, nothing is read or done."""

import re

import pytest

from memory.kernel.http.openapi import operations
from memory.kernel.models.workspaces import Scope, Workspace
from tests.conftest import new_client
from tests.integration.api.test_openapi import generated

pytestmark = pytest.mark.django_db

# Operations that only read although they are POSTs, by the end of their path.
READING = ("ask", "context", "query", "run", "search")
MANAGING = {
    "delete /v1/users/{user_id}",
    "delete /v1/users/{user_id}/documents/{document_id}",
    "delete /v1/users/{user_id}/entries/{seq}",
    "get /v1/users/{user_id}/entries/{seq}/redaction",
    "get /v1/users/{user_id}/subject-access",
    "patch /v1/constraints/{name}",
    "post /v1/backtests/{backtest_id}/cancel",
    "post /v1/constraints/{name}/versions/{number}/approve",
    "post /v1/constraints/{name}/versions/{number}/backtests",
    "post /v1/users/{user_id}/backtests",
    "post /v1/users/{user_id}/merge",
    "post /v1/users/{user_id}/outcomes/reopen",
    "put /v1/schema",
}
# What a placeholder in a path is replaced by, if not "x".
PARTS = {"seq": "1", "version": "1", "number": "1", "user_id": "ada"}
UUID = "00000000-0000-0000-0000-000000000000"


def scope_for(method: str, path: str) -> Scope:
    if f"{method} {path}" in MANAGING or path.startswith("/v1/webhooks"):
        return Scope.MANAGE
    reads = method == "get" or path.endswith(READING)
    return Scope.READ if reads else Scope.WRITE


def test_each_operation_is_refused_to_keys_without_its_scope(workspace: Workspace) -> None:
    clients = {scope: new_client(workspace, scope) for scope in Scope}
    wrong = []
    for path, method, _ in operations(generated()):
        address = re.sub(r"{(\w+)}", lambda part: PARTS.get(part[1], UUID), path)
        for scope, client in clients.items():
            response = getattr(client, method)(f"{address}/", {})
            if (response.status_code == 403) != (scope != scope_for(method, path)):
                wrong.append((method, path, scope, response.status_code))
    assert wrong == []

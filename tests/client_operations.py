"""Every operation of the API, as the Python client offers it."""

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from userascode import AsyncClient, Client
from userascode._async.transport import AsyncPages
from userascode._sync.transport import Pages
from userascode.base import Model

# Operation → method: of the client, or after `user.` of one user.
METHODS: Mapping[str, str] = {
    "GET /v1/alerts": "alerts.list",
    "GET /v1/alerts/{alert_id}": "alerts.get",
    "POST /v1/alerts/{alert_id}/acknowledge": "alerts.acknowledge",
    "POST /v1/alerts/{alert_id}/feedback": "alerts.give_feedback",
    "POST /v1/alerts/{alert_id}/reopen": "alerts.reopen",
    "POST /v1/alerts/{alert_id}/resolve": "alerts.resolve",
    "POST /v1/alerts/{alert_id}/snooze": "alerts.snooze",
    "GET /v1/backtests": "backtests.list",
    "GET /v1/backtests/{backtest_id}": "backtests.get",
    "POST /v1/backtests/{backtest_id}/cancel": "backtests.cancel",
    "GET /v1/constraint-library": "constraints.library",
    "GET /v1/constraint-library/{name}": "constraints.library_constraint",
    "GET /v1/constraint-precision": "constraints.precision",
    "GET /v1/constraints": "constraints.list",
    "POST /v1/constraints": "constraints.create",
    "GET /v1/constraints/{name}": "constraints.get",
    "PATCH /v1/constraints/{name}": "constraints.change",
    "GET /v1/constraints/{name}/coverage": "constraints.coverage",
    "POST /v1/constraints/{name}/versions": "constraints.add_version",
    "GET /v1/constraints/{name}/versions/{number}": "constraints.version",
    "POST /v1/constraints/{name}/versions/{number}/approve": "constraints.approve",
    "POST /v1/constraints/{name}/versions/{number}/backtests": "constraints.backtest",
    "GET /v1/erasures/{erasure_id}": "erasures.get",
    "GET /v1/events": "alerts.feed",
    "GET /v1/paused-constraints": "constraints.paused",
    "POST /v1/paused-constraints/{paused_id}/resume": "constraints.resume",
    "GET /v1/runs/{run_id}": "runs.get",
    "POST /v1/runs/{run_id}/cancel": "runs.cancel",
    "POST /v1/runs/{run_id}/retry": "runs.retry",
    "GET /v1/schema": "schema.get",
    "PUT /v1/schema": "schema.put",
    "GET /v1/users": "users.list",
    "POST /v1/users": "users.create",
    "GET /v1/users/{user_id}": "user.details",
    "PATCH /v1/users/{user_id}": "user.change",
    "DELETE /v1/users/{user_id}": "user.erase",
    "GET /v1/users/{user_id}/alerts": "user.alerts.list",
    "POST /v1/users/{user_id}/ask": "user.ask",
    "POST /v1/users/{user_id}/backtests": "user.backtest",
    "GET /v1/users/{user_id}/checkpoints": "user.checkpoints.list",
    "POST /v1/users/{user_id}/checkpoints": "user.checkpoints.propose",
    "GET /v1/users/{user_id}/checkpoints/{version}": "user.checkpoints.get",
    "GET /v1/users/{user_id}/checkpoints/{version}/files/{path}": "user.checkpoints.file",
    "GET /v1/users/{user_id}/checkpoints/{version}/restore": "user.checkpoints.preview_restore",
    "POST /v1/users/{user_id}/checkpoints/{version}/restore": "user.checkpoints.restore",
    "GET /v1/users/{user_id}/constraints": "user.constraints.list",
    "GET /v1/users/{user_id}/constraints/{name}": "user.constraints.get",
    "PUT /v1/users/{user_id}/constraints/{name}": "user.constraints.put",
    "DELETE /v1/users/{user_id}/constraints/{name}": "user.constraints.delete",
    "POST /v1/users/{user_id}/constraints/{name}/run": "user.constraints.run",
    "POST /v1/users/{user_id}/context": "user.context",
    "GET /v1/users/{user_id}/diff": "user.diff",
    "GET /v1/users/{user_id}/documents": "user.documents.list",
    "POST /v1/users/{user_id}/documents": "user.documents.add",
    "GET /v1/users/{user_id}/documents/{document_id}": "user.documents.get",
    "DELETE /v1/users/{user_id}/documents/{document_id}": "user.documents.redact",
    "GET /v1/users/{user_id}/documents/{document_id}/content": "user.documents.content",
    "GET /v1/users/{user_id}/entries": "user.entries.list",
    "POST /v1/users/{user_id}/entries": "user.add",
    "GET /v1/users/{user_id}/entries/{seq}": "user.entries.get",
    "DELETE /v1/users/{user_id}/entries/{seq}": "user.entries.redact",
    "GET /v1/users/{user_id}/entries/{seq}/redaction": "user.entries.redaction_preview",
    "GET /v1/users/{user_id}/events": "user.alerts.feed",
    "GET /v1/users/{user_id}/export": "user.export",
    "GET /v1/users/{user_id}/forecast": "user.forecast",
    "POST /v1/users/{user_id}/import": "user.import_project",
    "GET /v1/users/{user_id}/manifest": "user.manifest",
    "GET /v1/users/{user_id}/merge": "user.merged",
    "POST /v1/users/{user_id}/merge": "user.merge",
    "POST /v1/users/{user_id}/outcomes/reopen": "user.entries.reopen",
    "POST /v1/users/{user_id}/query": "user.query",
    "GET /v1/users/{user_id}/redactions/{seq}": "user.entries.redaction",
    "GET /v1/users/{user_id}/runs": "user.runs",
    "POST /v1/users/{user_id}/search": "user.search",
    "GET /v1/users/{user_id}/state": "user.state",
    "GET /v1/users/{user_id}/state/{domain}/{collection}": "user.records",
    "GET /v1/users/{user_id}/subject-access": "user.subject_access",
    "GET /v1/webhooks": "webhooks.list",
    "POST /v1/webhooks": "webhooks.create",
    "GET /v1/webhooks/{endpoint_id}": "webhooks.get",
    "PATCH /v1/webhooks/{endpoint_id}": "webhooks.change",
    "DELETE /v1/webhooks/{endpoint_id}": "webhooks.delete",
    "GET /v1/webhooks/{endpoint_id}/deliveries": "webhooks.deliveries",
    "GET /v1/webhooks/{endpoint_id}/deliveries/{delivery_id}": "webhooks.delivery",
    "POST /v1/webhooks/{endpoint_id}/deliveries/{delivery_id}/replay": "webhooks.replay_delivery",
    "POST /v1/webhooks/{endpoint_id}/replay": "webhooks.replay",
    "POST /v1/webhooks/{endpoint_id}/rotate-secret": "webhooks.rotate_secret",
    "POST /v1/webhooks/{endpoint_id}/test": "webhooks.test",
}
# Names of the API that are none in Python, or mean something else there.
RENAMED = {"from": "from_user", "in": "corpora", "path": "name"}


def argument(operation: str, name: str) -> str:
    """Return the name of the argument for a parameter or field of the API."""
    if operation.endswith("/import") and name == "files":
        return "project"
    return RENAMED.get(name, name)


def method(client: Client | AsyncClient, operation: str, user_id: str) -> Callable[..., Any]:
    """Return the client's method for an operation."""
    target: Any = client
    for part in METHODS[operation].split("."):
        target = target.user(user_id) if part == "user" else getattr(target, part)
    bound: Callable[..., Any] = target
    return bound


def call(
    client: Client | AsyncClient, operation: str, values: Mapping[str, Any], body: Any = None
) -> Any:
    """Call an operation with the API's names; return the answer as JSON, or bytes.

    The body of an upload is the text of the file.
    """
    values = {name: value for name, value in values.items() if name != "cursor"}
    user_id = str(values.pop("user_id", "ada")) if "{user_id}" in operation else ""
    do = method(client, operation, user_id)
    positional: list[Any] = []
    if operation.endswith("/entries") and operation.startswith("POST"):
        positional = body.get("entries", [body])
    elif operation.endswith("/documents") and operation.startswith("POST"):
        values["file"] = ("lease.txt", body.encode())
    elif operation.endswith("/state/{domain}/{collection}"):
        positional = [f"{values.pop('domain')}.{values.pop('collection')}"]
    else:
        values |= body or {}
    named = {argument(operation, name): value for name, value in values.items()}
    if named.get("wait") == "0":  # the server's, where the client waits to the end by itself
        named.pop("wait")
        named["timeout"] = 0
    answer = do(*positional, **named)
    if isinstance(client, AsyncClient):
        return asyncio.run(_collected(client, answer))
    if isinstance(answer, Pages):
        return _page(answer, answer.all())
    return _plain(answer)


async def _collected(client: AsyncClient, answer: Any) -> Any:
    async with client:
        if isinstance(answer, AsyncPages):
            return _page(answer, await answer.all())
        return _plain(await answer)


def _page(pages: Pages[Any] | AsyncPages[Any], items: list[Any]) -> dict[str, Any]:
    return {pages._results: [_plain(item) for item in items]}


def _plain(answer: Any) -> Any:
    if isinstance(answer, Model):
        return json.loads(answer.model_dump_json(by_alias=True, exclude_unset=True))
    return answer


def arguments_of(operation: str) -> set[str]:
    """Return the names of the arguments that an operation's method takes."""
    do = method(Client("http://uac.example", "key"), operation, "ada")
    return set(inspect.signature(do).parameters)

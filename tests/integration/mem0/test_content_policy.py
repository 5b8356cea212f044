"""What a workspace keeps out also stays out by mem0's calls."""

import json
from typing import Any

import pytest

from memory.kernel.models.workspaces import Workspace
from memory.log.models.entries import LogEntry
from tests.integration.mem0.conftest import client_of

pytestmark = pytest.mark.django_db

# Written in parts, so that nobody takes this file for a leak.
SECRET = "AKIA" + "IOSFODNN7EXAMPLE"
TOLD = "content: masked"


def send(workspace: Workspace, method: str, path: str, **body: Any) -> Any:
    path = f"/mem0/{path}"
    text = json.dumps(body)
    return client_of(workspace).generic(method, path, text, content_type="application/json")


def add(workspace: Workspace, text: str, **fields: Any) -> Any:
    messages = [{"role": "user", "content": text}]
    return send(workspace, "POST", "v3/memories/add/", messages=messages, user_id="ada", **fields)


@pytest.mark.parametrize("infer", [True, False])
def test_additions_and_updates_are_masked(workspace: Workspace, infer: bool) -> None:
    Workspace.objects.update(content_secret="masked")

    added = add(workspace, f"It is {SECRET}.", infer=infer)
    memory = LogEntry.objects.get()

    assert TOLD in added["Warning"]
    assert memory.content == "It is [masked: secret]."
    if not infer:
        updated = send(workspace, "PUT", f"v1/memories/{memory.pk}/", text=f"No, {SECRET}.")
        assert TOLD in updated["Warning"]
        assert updated.json()["memory"] == "No, [masked: secret]."


def test_refusals_say_what_was_found(workspace: Workspace) -> None:
    Workspace.objects.update(content_secret="refused")

    answer = add(workspace, f"It is {SECRET}.")

    assert answer.status_code == 422
    assert "content (secret)" in answer.json()["detail"]
    assert SECRET not in answer.content.decode()
    assert LogEntry.objects.count() == 0

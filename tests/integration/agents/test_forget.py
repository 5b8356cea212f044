"""The tool `forget`: what would be removed is shown first, and only that is removed."""

from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from mcp_types import CallToolResult
from rest_framework.test import APIClient

from memory.integrations.mcp import tools
from memory.integrations.mcp.api import Api, Json
from memory.integrations.mcp.tools import Caller
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope
from memory.kernel.workspaces import create_key
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, LogEntry
from tests.integration.redaction.conftest import MARKER, Say, api, found, say

pytestmark = pytest.mark.django_db

__all__ = ["api", "say"]

Forget = Callable[..., CallToolResult]


class Server(httpx2.BaseTransport):
    """The server in this process, on the database connection of the test."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = APIClient().generic(
            request.method,
            request.url.raw_path.decode(),
            request.read().decode(),
            content_type="application/json",
            headers=dict(request.headers),
        )
        return httpx2.Response(answer.status_code, content=answer.content)


class ApiOfThisThread(Api):
    """An API whose requests are made at once."""

    async def _call(
        self, method: str, address: str, body: Json | None, parameters: Mapping[str, object]
    ) -> Json:
        return self._send(method, address, body, parameters)


def finish(call: Coroutine[Any, Any, CallToolResult]) -> CallToolResult:
    """Run a call that waits for nothing, without an event loop: Django refuses to work in one."""
    with pytest.raises(StopIteration) as ended:
        call.send(None)
    result: CallToolResult = ended.value.value
    return result


def make_forget(user: MemoryUser, *scopes: Scope) -> Forget:
    """Return the tool for a connection that is bound to a user, with such a key."""
    _, key = create_key(user.workspace, "agent", [*scopes])
    client = httpx2.Client(transport=Server())
    headers = {"Authorization": f"Bearer {key}"}
    api = ApiOfThisThread(client, "http://testserver", headers, ThreadPoolExecutor())
    caller = Caller(api, user.user_id)
    return lambda **given: finish(tools.call(caller, "forget", given))


@pytest.fixture
def forget(user: MemoryUser) -> Forget:
    return make_forget(user, Scope.READ, Scope.WRITE, Scope.MANAGE)


def answer_of(result: CallToolResult) -> Any:
    assert not result.is_error, result.content
    return result.structured_content


def derive_fact(user: MemoryUser, seq: int) -> int:
    draft = Draft(kind=EntryKind.FACT, content=f"She takes {MARKER}.", derived_from=[seq])
    (entry,) = entry_log.append(user, [draft], source="memorize")
    return entry.seq


def test_what_goes_is_shown_and_then_removed(
    forget: Forget, user: MemoryUser, say: Say, work: Callable[[], None]
) -> None:
    # Given an entry with a record and a fact derived from it
    seq = say("Medication", "a", name=MARKER)
    fact = derive_fact(user, seq)
    # When it shall be forgotten, then both and the record are shown, and nothing is removed
    shown = answer_of(forget(entry=seq))
    assert shown["removed"] is False
    gone = shown["would_remove"]
    assert gone["entries"] == [entry["seq"] for entry in shown["entries"]] == [seq, fact]
    assert shown["entries_without_text"] == 0
    assert MARKER in shown["entries"][1]["content"]
    assert gone["records"] == [
        {"domain": "health", "collection": "medications", "key": "a", "effect": "removed"}
    ]
    assert answer_of(forget(entry=seq, confirm="guessed"))["removed"] is False
    assert not LogEntry.objects.exclude(redacted_at=None).exists()
    # When that is confirmed, then it is gone, and cannot be forgotten again
    done = answer_of(forget(entry=seq, confirm=shown["confirm"], reason="asked to"))
    assert (done["entries"], done["reason"]) == ([seq, fact], "asked to")
    work()
    assert found() == []
    assert forget(entry=seq).is_error


def test_everything_that_goes_can_be_read_page_by_page(
    forget: Forget, user: MemoryUser, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    seq = say("Medication", "a", name="Aspirin")
    texts = [f"{number}: {'x' * 400}" for number in range(60)]
    drafts = [Draft(kind=EntryKind.FACT, content=one, derived_from=[seq]) for one in texts]
    entry_log.append(user, drafts, source="memorize")

    shown: list[Any] = []
    sent: list[str] = []
    send = ApiOfThisThread._send

    def note(api: ApiOfThisThread, method: str, address: str, *rest: Any) -> Json:
        sent.append(address)
        return send(api, method, address, *rest)

    monkeypatch.setattr(ApiOfThisThread, "_send", note)
    answer = answer_of(forget(entry=seq))
    assert sent == [f"users/ada/entries/{seq}/redaction/", "users/ada/entries/"]
    while True:
        shown += answer["entries"]
        if "how_to_get_the_rest" not in answer:
            break
        assert f"offset {len(shown)}" in answer["how_to_get_the_rest"]
        answer = answer_of(forget(entry=seq, offset=len(shown)))

    assert [entry["content"] for entry in shown] == [None, *texts]


def test_a_code_is_good_for_what_was_shown(forget: Forget, user: MemoryUser, say: Say) -> None:
    first, second = say("Medication", "a", name="Aspirin"), say("Medication", "b", name="Ibuprofen")
    code = answer_of(forget(entry=first))["confirm"]

    assert answer_of(forget(entry=second, confirm=code))["removed"] is False
    derive_fact(user, first)
    assert answer_of(forget(entry=first, confirm=code))["removed"] is False
    assert not LogEntry.objects.exclude(redacted_at=None).exists()


def test_it_needs_a_key_that_may_redact(forget: Forget, user: MemoryUser, say: Say) -> None:
    seq = say("Medication", "a", name=MARKER)

    refused = make_forget(user, Scope.READ, Scope.WRITE)(entry=seq)

    assert refused.is_error
    assert refused.structured_content is not None
    assert refused.structured_content["status"] == 403
    assert forget(entry=seq + 1).is_error


def test_what_it_was_derived_from_remains_and_is_named(
    forget: Forget, user: MemoryUser, say: Say
) -> None:
    seq = say("Medication", "a", name=MARKER)
    fact = derive_fact(user, seq)

    gone = answer_of(forget(entry=fact))["would_remove"]

    assert gone["entries"] == [fact]
    assert (gone["sources"], gone["records"]) == ([seq], [])

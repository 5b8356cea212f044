"""Unsupported calls below /mem0/ get a clear error, and write nothing."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from memory.kernel.users import create_user
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, LogEntry
from tests.integration.api.bad_input.conftest import nothing_written
from tests.integration.mem0.conftest import Call, caller, client_of

pytestmark = pytest.mark.django_db

ADDING, SEARCH, LIST = "v3/memories/add/", "v3/memories/search/", "v3/memories/"
UNKNOWN = "00000000-0000-4000-8000-000000000000"
ADD = {"messages": [{"role": "user", "content": "x"}], "user_id": "ada"}
FIND = {"query": "x", "filters": {"user_id": "ada"}}


@pytest.fixture
def memory(user: MemoryUser) -> str:
    """The id of one of Ada's memories."""
    (entry,) = entry_log.append(user, [Draft(kind=EntryKind.FACT, content="x")], source="test")
    return str(entry.pk)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "v1/feedback/", {"memory_id": "x", "feedback": "POSITIVE"}),
        ("PUT", "v1/batch/", {"memories": [{"memory_id": UNKNOWN, "text": "x"}]}),
        ("DELETE", "v2/entities/user/ada/", None),
        ("GET", f"v1/event/{UNKNOWN}/", None),
        ("PATCH", "api/v1/orgs/organizations/x/projects/y/", {"custom_instructions": "x"}),
    ],
)
def test_another_call_says_what_there_is(
    call: Call, memory: str, method: str, path: str, body: Any
) -> None:
    with nothing_written():
        answer = call(method, path, body, status=404)

    assert "this server has add, search" in answer["detail"]


# Their clients raise a ValidationError for this status, not a failure to try again later.
@pytest.mark.parametrize(
    ("method", "path", "body", "reason"),
    [
        ("POST", ADDING, {**ADD, "custom_instructions": "x"}, "custom_instructions"),
        ("POST", ADDING, {**ADD, "expiration_date": "2030-01-01"}, "expire"),
        ("POST", SEARCH, {**FIND, "categories": ["food"]}, "categories"),
        ("POST", LIST, {"filters": {"user_id": "ada", "categories": {"in": ["x"]}}}, "categories"),
        ("POST", SEARCH, {**FIND, "filters": {"user_id": "ada", "feedback": "x"}}, "feedback"),
        ("DELETE", "v1/memories/?user_id=*", None, "user"),
        ("DELETE", "v1/memories/?agent_id=*", None, "user"),
        ("DELETE", "v1/memories/?user_id=ada&run_id=", None, "run_id"),
        ("DELETE", "v1/memories/?filters={'user_id':'ada','run_id':None}", None, "run_id"),
        ("DELETE", "v1/memories/?user_id=", None, "user_id"),
    ],
)
def test_unmappable_call_is_refused_with_the_reason(
    call: Call, memory: str, method: str, path: str, body: Any, reason: str
) -> None:
    with nothing_written():
        answer = call(method, path, body, status=400)

    assert reason in answer["detail"]


def test_an_update_that_cannot_be_mapped_says_why(call: Call, memory: str) -> None:
    for body in ({"timestamp": 1}, {"text": "y", "expiration_date": "2030-01-01"}):
        with nothing_written():
            answer = call("PUT", f"v1/memories/{memory}/", body, status=400)
        assert any(name in answer["detail"] for name in body)


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("POST", ADDING, None, ["messages: This field is required."]),
        ("POST", ADDING, {}, ["messages"]),
        ("POST", ADDING, {"user_id": "ada", "messages": []}, ["messages"]),
        ("POST", ADDING, {"messages": ADD["messages"]}, ["user_id: Send the id of the user"]),
        ("POST", ADDING, {**ADD, "user_id": "a\tb"}, ["user_id", "control characters"]),
        ("POST", ADDING, {**ADD, "user_id": True}, ["user_id", "string"]),
        ("POST", ADDING, {**ADD, "user_id": 5.5}, ["user_id", "string"]),
        ("POST", ADDING, {**ADD, "imutable": True}, ["imutable: Unknown field"]),
        ("POST", ADDING, {**ADD, "infer": "no"}, ["infer", "true or false"]),
        ("POST", ADDING, {**ADD, "timestamp": 10**15}, ["timestamp", "seconds"]),
        ("POST", ADDING, {**ADD, "metadata": ["x"]}, ["metadata"]),
        ("POST", ADDING, {**ADD, "filters": {"x": "y"}}, ["filters", "x"]),
        ("POST", ADDING, {**ADD, "messages": ["x", 5]}, ["messages.1", "object"]),
        (
            "POST",
            ADDING,
            {**ADD, "messages": [{"role": "user", "content": "x"}, {"role": "r" * 33}]},
            ["messages.1.role", "32 characters"],
        ),
        ("POST", ADDING, {**ADD, "messages": [{"role": "user", "content": None}]}, ["messages"]),
        ("POST", SEARCH, None, ["query"]),
        ("POST", SEARCH, {"query": "x"}, ["filters.user_id"]),
        ("POST", SEARCH, {**FIND, "query": ""}, ["query"]),
        ("POST", SEARCH, {**FIND, "top_k": 0}, ["top_k"]),
        ("POST", SEARCH, {**FIND, "limit": 3}, ["limit: Unknown field"]),
        (
            "POST",
            SEARCH,
            {**FIND, "filters": {"user_id": "ada", "speaker": "x"}},
            ["speaker", "run_id"],
        ),
        (
            "POST",
            SEARCH,
            {**FIND, "filters": {"user_id": "ada", "run_id": {">=": "x"}}},
            ["filters.run_id", "unknown operator"],
        ),
        ("POST", SEARCH, {**FIND, "filters": {"user_id": "ada", "AND": "x"}}, ["filters.AND"]),
        ("POST", SEARCH, {**FIND, "filters": {"user_id": 5.5}}, ["user_id"]),
        ("POST", LIST, None, ["filters.user_id"]),
        ("POST", "v3/memories/?page=0", {"filters": {"user_id": "ada"}}, ["page"]),
        ("POST", "v3/memories/?page_size=5000", {"filters": {"user_id": "ada"}}, ["page_size"]),
        ("POST", "v3/memories/?sort=x", {"filters": {"user_id": "ada"}}, ["sort"]),
        (
            "POST",
            LIST,
            {"filters": {"user_id": "ada"}, "start_date": "soon"},
            ["start_date", "Give a day"],
        ),
        ("DELETE", "v1/memories/", None, ["user_id"]),
        ("DELETE", "v1/memories/?filters=%7B%27user_id", None, ["filters"]),
        ("DELETE", "v1/memories/?filters=__import__(%27os%27)", None, ["filters"]),
    ],
)
def test_invalid_field_is_named(
    call: Call, memory: str, method: str, path: str, body: Any, words: list[str]
) -> None:
    with nothing_written():
        answer = call(method, path, body, status=400)

    for word in words:
        assert word in answer["detail"]


def test_an_update_of_nothing_is_refused(call: Call, memory: str) -> None:
    with nothing_written():
        assert "text" in call("PUT", f"v1/memories/{memory}/", status=400)["detail"]
        call("PUT", f"v1/memories/{memory}/", {"text": ""}, status=400)


@pytest.mark.parametrize(
    "memory_id",
    ["x", UNKNOWN, "a%2Fb", "%2Fhistory", "..%2F..", "%00", "%25", "a" * 3000, "%C3%28"],
)
def test_an_id_of_nothing_is_not_found(call: Call, memory: str, memory_id: str) -> None:
    with nothing_written():
        for method, suffix in (("GET", ""), ("PUT", ""), ("DELETE", ""), ("GET", "history/")):
            body = {"text": "y"} if method == "PUT" else None
            call(method, f"v1/memories/{memory_id}/{suffix}", body, status=404)


def test_no_id_is_no_deletion_of_everything(call: Call, memory: str) -> None:
    with nothing_written():
        call("DELETE", "v1/memories//", status=404)


def test_a_message_or_a_record_is_no_memory(call: Call, user: MemoryUser) -> None:
    drafts = [
        Draft(kind=EntryKind.MESSAGE, content="x"),
        Draft(kind=EntryKind.RECORD, data={"type": "Trip", "data": {}}),
    ]
    for entry in entry_log.append(user, drafts, source="test"):
        call("GET", f"v1/memories/{entry.pk}/", status=404)
        call("DELETE", f"v1/memories/{entry.pk}/", status=404)

    assert not LogEntry.objects.filter(redacted_at__isnull=False).exists()


def test_another_workspaces_memories_are_not_there(memory: str) -> None:
    other = Workspace.objects.create(name="other")
    create_user(other, "ada", metadata=None)
    stranger = caller(client_of(other))

    with nothing_written():
        for method, body in (("GET", None), ("PUT", {"text": "y"}), ("DELETE", None)):
            theirs = stranger(method, f"v1/memories/{memory}/", body, status=404)
            nobodys = stranger(method, f"v1/memories/{UNKNOWN}/", body, status=404)
            assert theirs["detail"].replace(memory, UNKNOWN) == nobodys["detail"]
        stranger("GET", f"v1/memories/{memory}/history/", status=404)
        assert stranger("POST", SEARCH, FIND)["results"] == []
        assert stranger("DELETE", "v1/memories/?user_id=ada")["deleted"] == 0


@pytest.mark.parametrize("header", [None, "Token uac_0_0", "Bearer x", "Token", "Basic eDp5"])
def test_call_without_a_key_is_refused(header: str | None) -> None:
    client = APIClient()
    if header:
        client.credentials(HTTP_AUTHORIZATION=header)

    for path in ("v1/ping/", "v1/memories/x/", "v1/exports/", "nothing/"):
        answer = caller(client)("GET", path, status=401)
        assert "Authorization: Token uac_" in answer["detail"]


def test_a_key_that_may_read_cannot_write(user: MemoryUser, memory: str) -> None:
    reader = caller(client_of(user.workspace, Scope.READ))

    with nothing_written():
        reader("GET", f"v1/memories/{memory}/")
        assert reader("POST", SEARCH, FIND)["results"]
        assert reader("POST", LIST, {"filters": {"user_id": "ada"}})["count"] == 1
        reader("POST", ADDING, ADD, status=403)
        reader("PUT", f"v1/memories/{memory}/", {"text": "y"}, status=403)
        reader("DELETE", f"v1/memories/{memory}/", status=403)
        reader("DELETE", "v1/memories/?user_id=ada", status=403)


def test_methods_and_bodies_that_are_not_taken(call: Call, user: MemoryUser) -> None:
    client = client_of(user.workspace)

    assert "it allows" in call("GET", ADDING, status=405)["detail"]
    address = "/mem0/v3/memories/add/"
    assert client.post(address, "a=b", content_type="text/plain").status_code == 415
    broken = client.generic("POST", address, "{", content_type="application/json")
    assert broken.status_code == 400
    assert "not valid JSON" in broken.json()["detail"]

"""API keys: who may call, their scopes, and the isolation of workspaces."""

import base64
import datetime
import io
import json
from typing import Any

import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.utils import timezone
from rest_framework.test import APIClient

from memory.kernel.admin.api_keys import ApiKeyForm
from memory.kernel.http.openapi import EXAMPLES, operations
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import ApiKey, Scope, Workspace
from memory.kernel.users import create_user
from memory.kernel.workspaces import NotReplaced, create_key, replace_key
from memory.log import entry_log
from memory.log.models.entries import EntryKind
from tests.conftest import new_client
from tests.integration.api.test_openapi import generated

pytestmark = pytest.mark.django_db


def client(text: str) -> APIClient:
    made = APIClient()
    made.credentials(HTTP_AUTHORIZATION=text)
    return made


def test_the_secret_counts_and_not_the_prefix(workspace: Workspace) -> None:
    _, text = create_key(workspace, "a")

    assert client(f"Bearer {text}").get("/v1/users/").status_code == 200
    assert client(f"Bearer {text[:-1]}").get("/v1/users/").status_code == 401
    assert client(f"Bearer {text}x").get("/v1/users/").status_code == 401


def test_the_secret_is_not_in_the_database(workspace: Workspace) -> None:
    key, text = create_key(workspace, "a")

    stored = " ".join(str(value) for value in ApiKey.objects.filter(pk=key.pk).values()[0].values())
    assert text.split("_", 2)[2] not in stored


def test_a_revoked_or_expired_key_is_refused(workspace: Workspace) -> None:
    revoked, revoked_text = create_key(workspace, "a")
    ApiKey.objects.filter(pk=revoked.pk).update(revoked_at=timezone.now())
    past = timezone.now() - datetime.timedelta(seconds=1)
    _, expired_text = create_key(workspace, "b", expires_at=past)

    assert client(f"Bearer {revoked_text}").get("/v1/users/").status_code == 401
    assert client(f"Bearer {expired_text}").get("/v1/users/").status_code == 401


def test_two_workspaces_may_have_users_of_the_same_id(api: APIClient, user: MemoryUser) -> None:
    other = Workspace.objects.create(name="other")
    create_user(other, "ada", metadata={"of": "other"})

    assert [row["metadata"] for row in api.get("/v1/users/").data["results"]] == [{}]


# A key for certain users sees only a part of these lists.
LISTS = ("/v1/users", "/v1/alerts", "/v1/backtests", "/v1/events", "/v1/paused-constraints")


# -- Keys for certain users ----------------------------------------------------------------------


@pytest.fixture
def bob(user: MemoryUser) -> MemoryUser:
    """Another user of the same workspace."""
    return create_user(user.workspace, "bob", metadata=None)


@pytest.fixture
def of_bob(bob: MemoryUser) -> APIClient:
    """A client whose key has every scope, for bob alone."""
    return new_client(bob.workspace, *Scope, user_pks=[bob.pk])


@pytest.mark.parametrize("caller", ["of_bob", "stranger"])
def test_other_keys_do_not_find_a_user(
    user: MemoryUser, bob: MemoryUser, request: pytest.FixtureRequest, caller: str
) -> None:
    """Each operation is called as in the document's example, also by another workspace."""
    calling: APIClient = request.getfixturevalue(caller)
    examples = json.loads(EXAMPLES.read_text())
    for path, method, operation in operations(generated()):
        example = examples[f"{method.upper()} {path}"]
        places = {item["name"]: item["in"] for item in operation.get("parameters", [])}
        given = {**example["parameters"], "user_id": "ada"}
        names = {name: str(value) for name, value in given.items() if places.get(name) == "path"}
        query = {name: value for name, value in given.items() if places.get(name) == "query"}
        if (method == "get" and path in LISTS) or "constraint-library" in path:
            continue
        if caller == "stranger" and "user_id" not in names:
            continue  # it may do so where it is at home

        answer = calling.generic(
            method.upper(),
            path.format_map(names),
            json.dumps(example.get("body", {})),
            content_type="application/json",
            query_params=query if "user_id" in names else {},
        )

        assert answer.status_code == 404, f"{method} {path}: {answer.content!r}"
    assert MemoryUser.objects.filter(erased_at=None).count() == 2


def test_a_key_for_certain_users_reads_and_writes_of_them(
    user: MemoryUser, bob: MemoryUser, of_bob: APIClient
) -> None:
    said = {"kind": "message", "content": "hello"}

    assert of_bob.post("/v1/users/bob/entries/", said).status_code == 202
    assert of_bob.patch("/v1/users/bob/", {"metadata": {"n": 1}}).status_code == 200
    assert [row["user_id"] for row in of_bob.get("/v1/users/").data["results"]] == ["bob"]
    assert of_bob.get("/v1/events/?after=0").data["results"] == []
    assert of_bob.get("/v1/constraint-library/").status_code == 200
    assert of_bob.post("/v1/users/bob/merge/", {"from": "ada"}).status_code == 404
    ada = of_bob.post("/v1/users/ada/entries/", said)
    nobody = of_bob.post("/v1/users/nobody/entries/", said)
    assert ada.status_code == nobody.status_code == 404
    assert ada.data["detail"] == nobody.data["detail"]


def test_restricted_key_holds_for_mem0(user: MemoryUser, bob: MemoryUser, api: APIClient) -> None:
    mem0 = new_client(bob.workspace, *Scope, scheme="Token", user_pks=[bob.pk])
    (told,) = entry_log.append(
        user, [entry_log.Draft(kind=EntryKind.FACT, content="Ada likes tea.")], source="test"
    )
    address = f"/mem0/v1/memories/{told.pk}/"

    assert mem0.get(address).status_code == 404
    assert mem0.put(address, {"text": "coffee"}).status_code == 404
    assert mem0.delete(address).status_code == 404
    assert mem0.get(f"{address}history/").status_code == 404
    found = mem0.post("/mem0/v3/memories/search/", {"query": "tea", "filters": {"user_id": "ada"}})
    assert found.data["results"] == []
    added = {"messages": [{"role": "user", "content": "x"}], "user_id": "ada"}
    assert mem0.post("/mem0/v3/memories/add/", added).status_code == 404
    assert mem0.post("/mem0/v3/memories/add/", {**added, "user_id": "new"}).status_code == 404
    assert mem0.post("/mem0/v3/memories/add/", {**added, "user_id": "bob"}).status_code == 202
    names = [row["name"] for row in mem0.get("/mem0/v1/entities/").data["results"]]
    assert names == ["bob"]
    told.refresh_from_db()
    assert told.content == "Ada likes tea."


def test_a_key_for_a_user_who_was_erased_is_for_nobody_of_that_name(
    user: MemoryUser, bob: MemoryUser, of_bob: APIClient
) -> None:
    assert of_bob.delete("/v1/users/bob/?reason=asked").status_code == 202
    create_user(user.workspace, "bob", metadata=None)

    assert of_bob.get("/v1/users/bob/").status_code == 404


# -- Replacement and expiry ----------------------------------------------------------------------


def test_replaced_key_holds_for_a_while(user: MemoryUser, bob: MemoryUser) -> None:
    old, old_text = create_key(user.workspace, "backend", [Scope.READ], user_pks=[bob.pk])

    new, new_text = replace_key(old, datetime.timedelta(hours=2))

    assert (new.name, new.scopes, new.user_pks) == (old.name, old.scopes, old.user_pks)
    assert new.replaces == old
    for text in (old_text, new_text):
        assert client(f"Bearer {text}").get("/v1/users/bob/").status_code == 200
        assert client(f"Bearer {text}").get("/v1/users/ada/").status_code == 404
    with time_machine.travel(timezone.now() + datetime.timedelta(hours=3)):
        assert client(f"Bearer {old_text}").get("/v1/users/").status_code == 401
        assert client(f"Bearer {new_text}").get("/v1/users/").status_code == 200


def test_a_replaced_key_holds_no_longer_than_it_would_have(workspace: Workspace) -> None:
    end = timezone.now() + datetime.timedelta(hours=1)
    old, _ = create_key(workspace, "a", expires_at=end)

    new, _ = replace_key(old)

    old.refresh_from_db()
    assert old.expires_at == new.expires_at == end


def commanded(*arguments: str) -> str:
    """Return the text of the key that the command made."""
    out = io.StringIO()
    call_command("create_key", *arguments, stdout=out)
    return str(json.loads(out.getvalue())["api_key"])


def test_the_command_makes_and_replaces_keys(user: MemoryUser, bob: MemoryUser) -> None:
    name = user.workspace.name
    text = commanded(name, "--scope", "read", "--user", "bob", "--expires-days", "1")

    reader = client(f"Bearer {text}")
    assert reader.get("/v1/users/bob/").status_code == 200
    assert reader.get("/v1/users/ada/").status_code == 404
    assert reader.patch("/v1/users/bob/", {}).status_code == 403
    again = commanded(name, "--replace", text.split("_")[1], "--overlap-hours", "0")
    assert reader.get("/v1/users/bob/").status_code == 401
    assert client(f"Bearer {again}").get("/v1/users/bob/").status_code == 200


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere"], "no workspace 'nowhere'"),
        (["W", "--user", "eve"], r"These user_ids do not exist in workspace .*: eve\."),
        (["W", "--expires-days", "0"], "must be greater than 0"),
        (["W", "--replace", "012345678901"], "no valid key uac_012345678901_"),
        (["W", "--replace", "012345678901", "--scope", "read"], "--replace"),
    ],
)
def test_the_command_says_what_is_wrong(
    workspace: Workspace, arguments: list[str], told: str
) -> None:
    with pytest.raises(CommandError, match=told):
        commanded(*[workspace.name if one == "W" else one for one in arguments])

    assert not ApiKey.objects.exists()


def test_a_key_is_replaced_once_and_only_while_it_holds(workspace: Workspace) -> None:
    old, _ = create_key(workspace, "a")
    new, _ = replace_key(old)

    with pytest.raises(NotReplaced, match=f"uac_{new.prefix}_… has already replaced"):
        replace_key(old)
    ApiKey.objects.filter(pk=new.pk).update(revoked_at=timezone.now())
    replace_key(old)  # its successor is no more

    expired, _ = create_key(workspace, "b", expires_at=timezone.now())
    with pytest.raises(NotReplaced, match="expired"):
        replace_key(expired)
    with pytest.raises(CommandError, match="expired"):
        commanded(workspace.name, "--replace", expired.prefix)
    ApiKey.objects.update(revoked_at=timezone.now())
    with pytest.raises(NotReplaced, match="revoked"):
        replace_key(new)


def test_a_key_for_certain_users_stays_one_in_the_admin(bob: MemoryUser) -> None:
    key, _ = create_key(bob.workspace, "device", [Scope.READ], user_pks=[bob.pk])
    said = {"workspace": bob.workspace_id, "name": "device of bob", "scopes": ["read"]}

    emptied = ApiKeyForm({**said, "users": ""}, instance=ApiKey.objects.get(pk=key.pk))
    assert "name at least one user, or revoke the key" in str(emptied.errors["users"])

    # After his erasure the field is empty, and a changed name gives access to nobody.
    MemoryUser.objects.filter(pk=bob.pk).update(erased_at=timezone.now())
    renamed = ApiKeyForm({**said, "users": ""}, instance=ApiKey.objects.get(pk=key.pk))
    assert renamed.is_valid(), renamed.errors
    renamed.save()
    key.refresh_from_db()
    assert (key.name, key.user_pks) == ("device of bob", [bob.pk])


def test_restricted_key_gets_no_replay(api: APIClient, bob: MemoryUser, of_bob: APIClient) -> None:
    entry = {"kind": "message", "content": "x"}
    named: Any = {"HTTP_IDEMPOTENCY_KEY": "order-1"}

    first = api.post("/v1/users/bob/entries/", entry, **named)
    again = api.post("/v1/users/bob/entries/", entry, **named)
    of_device = of_bob.post("/v1/users/bob/entries/", entry, **named)

    assert (first.status_code, again["Idempotent-Replayed"]) == (202, "true")
    assert of_device.status_code == 422


def test_brackets_in_brackets_are_no_cursor(api: APIClient) -> None:
    cursor = base64.urlsafe_b64encode(b"[" * 3000).decode()

    answer = api.get("/v1/constraint-library/", {"cursor": cursor})

    assert answer.status_code == 400
    assert "cursor" in answer.data["errors"]

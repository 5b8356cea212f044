"""User ids as other products use them, in bodies and percent-encoded in paths."""

import io
import json
import re
import zipfile
from typing import Any
from urllib.parse import quote, unquote

import pytest
from django.test import Client
from django.urls import URLPattern
from rest_framework.test import APIClient

from memory.kernel.models.users import USER_ENDPOINTS, USER_ID_IN_PATH, MemoryUser
from memory.kernel.models.workspaces import ApiKey, Scope, Workspace
from memory.kernel.users import create_user
from memory.urls import USER, urlpatterns
from tests.conftest import new_client

pytestmark = pytest.mark.django_db

IDS = [
    "Anna Maria O'Brien",
    "auth0|5f7c8ec7c33c6c004bbafe82",
    "CN=Müller,OU=Vertrieb,O=Beispiel AG",
    "https://idp.example.com/tenants/42?sub=7#me",
    "arn:aws:iam::123456789012:user/Development/product_1234/*",
    "dXNlcjoxMjM=",
    "Ευγενία",
    "山田太郎",
    "محمد علی\u200cزاده",
    "नमस्ते",
    "👩🏽‍🚀",
    "100%",
    "a%2Fb",
    "a+b@example.com",
    "a/b/",
    "/a//b",
    "\\\\host\\user",
    "{a}",
    "<b>\"'&",
    "entries",
    "git/hub",
    "org/users/7",
    "~.../...",
    "x" * 256,
    "名" * 256,
]
_UNUSABLE = re.compile(r'["\\/:*?<>|]')


@pytest.mark.parametrize("user_id", IDS)
def test_an_id_in_every_kind_of_path(workspace: Workspace, user_id: str) -> None:
    api = new_client(workspace, Scope.READ, Scope.WRITE, Scope.MANAGE)
    path = f"/v1/users/{quote(user_id, safe='')}/"

    made = api.post("/v1/users/", {"user_id": user_id})
    assert made.status_code == 201, made.json()
    assert made.json()["user_id"] == user_id
    record = {"kind": "record", "domain": "work", "type": "Trip", "key": "t1", "data": {"n": 1}}
    told = api.post(f"{path}entries/", record)
    assert told.status_code == 202

    # Each address that an answer names leads to what it names.
    assert api.get(made["Location"]).json()["user_id"] == user_id
    assert api.get(told["Location"]).json()["seq"] == 1
    assert api.get(path).json()["entries"]["total"] == 1
    assert api.get(f"{path}entries/1/").json()["data"]["key"] == "t1"
    page = api.get(f"{path}entries/?page_size=1")
    assert [entry["seq"] for entry in page.json()["results"]] == [1]
    found = api.post(f"{path}search/", {"query": "trip"}).json()
    assert [hit["seq"] for hit in found["hits"]] == [1]
    assert api.get(f"{path}constraints/entries/").status_code == 404
    assert user_id in [row["user_id"] for row in api.get("/v1/users/").json()["results"]]
    # A name of a file that every system takes
    export: Any = api.get(f"{path}export/")
    assert export.status_code == 200
    assert not _UNUSABLE.search(_file_name(export))
    assert zipfile.ZipFile(io.BytesIO(b"".join(export.streaming_content))).testzip() is None
    # And the user alone is erased.
    assert api.delete(f"{path}?reason=asked").status_code == 202
    assert api.get(path).status_code == 404


def _file_name(response: Any) -> str:
    found = re.search(r"filename(?:\*=utf-8''|=\")([^\"]+)", response["Content-Disposition"])
    assert found is not None
    return unquote(found[1])


def test_ids_that_resemble_each_other_are_different_users(api: APIClient) -> None:
    names = ["a/b", "a%2Fb", "a b", "a+b", "a", "b", "A/B", "ａ", "a/b/"]
    for name in names:
        assert api.post("/v1/users/", {"user_id": name}).status_code == 201
        fact = {"kind": "fact", "content": name}
        path = f"/v1/users/{quote(name, safe='')}/entries/"
        assert api.post(path, fact).status_code == 202

    for name in names:
        told = api.get(f"/v1/users/{quote(name, safe='')}/entries/").json()["results"]
        assert [entry["content"] for entry in told] == [name]


def test_an_id_with_a_slash_cannot_be_taken_for_an_endpoint(api: APIClient) -> None:
    below = re.compile(rf"{re.escape(USER)}([a-z-]+)")
    routes = [str(one.pattern) for one in urlpatterns if isinstance(one, URLPattern)]
    served = {match[1] for route in routes if (match := below.match(route))}
    # Besides those of the agents' server
    assert served | {"mcp"} == set(USER_ENDPOINTS)

    for name in USER_ENDPOINTS:
        assert api.post("/v1/users/", {"user_id": f"ada/{name}"}).status_code == 400
        assert api.post("/v1/users/", {"user_id": f"ada/{name}/1"}).status_code == 400
        assert not re.fullmatch(USER_ID_IN_PATH, f"ada/{name}")


def test_a_misspelt_endpoint_is_no_user(api: APIClient, user: MemoryUser) -> None:
    for method in ("get", "post", "put", "delete"):
        answer = getattr(api, method)("/v1/users/ada/entrys/")
        assert answer.status_code == 404
        assert "openapi.json" in answer.json()["detail"]


def test_restricted_key_learns_nothing_of_an_id(workspace: Workspace, user: MemoryUser) -> None:
    create_user(workspace, "team/eve", metadata=None)
    client = new_client(workspace)
    ApiKey.objects.update(user_pks=[user.pk])

    theirs, nobodys = (client.get(f"/v1/users/team%2F{name}/") for name in ("eve", "nobody"))

    assert theirs.status_code == nobodys.status_code == 404
    assert theirs.json()["detail"] == nobodys.json()["detail"]


def test_the_erased_keep_a_name_that_nobody_may_have(
    workspace: Workspace, api: APIClient, user: MemoryUser
) -> None:
    manager = new_client(workspace, Scope.READ, Scope.WRITE, Scope.MANAGE)
    manager.delete("/v1/users/ada/?reason=asked")
    erased = MemoryUser.everybody.get(pk=user.pk).user_id

    assert api.post("/v1/users/", {"user_id": erased}).status_code == 400
    assert api.post("/v1/users/", {"user_id": "ada"}).status_code == 201


def test_erasure_reason_repeats_no_form_of_the_id(
    workspace: Workspace,
) -> None:
    create_user(workspace, "Ren\u00e9", metadata=None)
    manager = new_client(workspace, Scope.READ, Scope.WRITE, Scope.MANAGE)

    answer = manager.delete(
        f"/v1/users/{quote('Ren' + chr(0xE9))}/?reason={quote('Rene' + chr(0x301))}"
    )

    assert answer.status_code in (400, 409, 422), answer.json()


def test_in_the_admin(admin_client: Client, workspace: Workspace) -> None:
    for name in ("<b>O'Brien</b>", "a/b c", "山田太郎", "{{ x }}", "%s%(name)s"):
        user = create_user(workspace, name, metadata=None)
        page = admin_client.get(f"/admin/memory/memoryuser/{user.pk}/change/", follow=True)
        assert page.status_code == 200
        assert "<b>O'Brien" not in page.content.decode()
        found = admin_client.get("/admin/memory/memoryuser/", {"q": name})
        assert found.status_code == 200


def test_admin_makes_keys_for_ids_with_spaces(admin_client: Client, workspace: Workspace) -> None:
    names = ["Anna Maria O'Brien", "山田 太郎"]
    users = [create_user(workspace, name, metadata=None) for name in names]

    form = {"workspace": workspace.pk, "name": "k", "scopes": ["read"], "users": "\r\n".join(names)}
    answer = admin_client.post("/admin/memory/apikey/add/", form)

    assert answer.status_code in (200, 302)
    key = ApiKey.objects.get(name="k")
    assert key.user_pks == sorted(user.pk for user in users), json.dumps(key.user_pks)

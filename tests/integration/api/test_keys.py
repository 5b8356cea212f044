"""API keys: who may call, what they may do, and that workspaces do not see each other."""

import datetime

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from memory.models import ApiKey, MemoryUser, Workspace
from memory.models.workspaces import Scope
from memory.users import create_user
from memory.workspaces import create_key

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


def test_a_key_that_may_read_cannot_write(user: MemoryUser) -> None:
    _, text = create_key(user.workspace, "reader", [Scope.READ])
    reader = client(f"Bearer {text}")

    assert reader.get("/v1/users/ada/").status_code == 200
    assert reader.post("/v1/users/", {"user_id": "bob"}).status_code == 403
    assert reader.post("/v1/users/ada/entries/", {"kind": "message"}).status_code == 403
    assert not MemoryUser.objects.filter(user_id="bob").exists()
    # A query reads: it is refused for want of a state, not of a scope.
    assert reader.post("/v1/users/ada/query/", {"code": "1"}).status_code == 409


@pytest.mark.parametrize(
    "path",
    [
        "",
        "entries/",
        "entries/1/",
        "checkpoints/",
        "checkpoints/1/",
        "checkpoints/1/files/manifest.py",
        "manifest/",
        "state/",
        "state/travel/trips/",
        "constraints/",
        "constraints/x/",
        "alerts/",
        "runs/",
    ],
)
def test_a_user_of_another_workspace_is_not_there(user: MemoryUser, path: str) -> None:
    other = Workspace.objects.create(name="other")
    _, text = create_key(other, "a")
    stranger = client(f"Bearer {text}")

    theirs = stranger.get(f"/v1/users/ada/{path}")
    nobody = stranger.get(f"/v1/users/nobody/{path}")

    assert theirs.status_code == nobody.status_code == 404
    assert theirs.data == nobody.data


def test_two_workspaces_may_have_users_of_the_same_id(api: APIClient, user: MemoryUser) -> None:
    other = Workspace.objects.create(name="other")
    create_user(other, "ada", metadata={"of": "other"})

    assert [row["metadata"] for row in api.get("/v1/users/").data["results"]] == [{}]

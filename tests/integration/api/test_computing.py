"""Answers that a web process computes itself: a few at a time, and never all for one workspace."""

import pytest
from rest_framework.test import APIClient

from memory.kernel.admission import slots
from memory.kernel.admission.slots import Slots
from memory.kernel.http import parsers
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from memory.kernel.users import create_user
from tests.conftest import new_client
from tests.factories import make_checkpoint
from tests.slots import free_slots

pytestmark = pytest.mark.django_db

DIFF = "/v1/users/ada/diff/?since=v1"


def test_computation_past_the_limit_is_refused_and_other_workspaces_answered(
    api: APIClient, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_checkpoint(user)
    with slots.COMPUTING.hold(-1):
        assert api.get(DIFF).status_code == 200
    with slots.COMPUTING.hold(user.workspace_id), slots.COMPUTING.hold(-1):
        refused = api.get(DIFF)

    assert refused.status_code == 429
    assert refused["Retry-After"] == "1"
    assert refused.json()["limit"] == "max_computing"
    assert api.get(DIFF).status_code == 200


DOWNLOADS = (
    "/v1/users/ada/export/",
    "/v1/users/ada/subject-access/",
    "/v1/users/ada/git/info/refs?service=git-upload-pack",
)


def test_slow_downloads_leave_threads(user: MemoryUser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "DOWNLOADS", free_slots(slots.DOWNLOADS, 4))
    # Given somebody who reads nothing of what he has asked for
    make_checkpoint(user)
    slow = new_client(user.workspace, Scope.READ, Scope.MANAGE)
    unread = [slow.get(DOWNLOADS[0]) for _ in range(2)]
    assert [answer.status_code for answer in unread] == [200, 200]
    # When he asks for more, he is to come back, and is answered otherwise
    for address in DOWNLOADS:
        refused = slow.get(address)
        assert (refused.status_code, refused["Retry-After"]) == (429, "10")
    assert slow.get("/v1/users/ada/").status_code == 200
    # And others are sent theirs
    other = Workspace.objects.create(name="other")
    make_checkpoint(create_user(other, "ada", metadata=None))
    assert new_client(other).get(DOWNLOADS[0]).status_code == 200
    # Until what he was sent is read
    assert unread.pop().getvalue()
    assert slow.get(DOWNLOADS[0]).status_code == 200


def test_a_download_that_fails_keeps_no_place(
    api: APIClient, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "DOWNLOADS", free_slots(slots.DOWNLOADS, 4))
    make_checkpoint(user)

    def fail(*what: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("memory.export.api.export.archive.download", fail)
        for _ in range(5):
            with pytest.raises(OSError, match="the disk is full"):
                api.get(DOWNLOADS[0])

    assert api.get(DOWNLOADS[0]).status_code == 200


def test_a_workspace_leaves_places_to_others() -> None:
    places = Slots(12)
    of_one = [places.take(1) for _ in range(12)]
    of_two = [places.take(2) for _ in range(12)]
    assert sum(place.__enter__() for place in of_one) == 8
    assert sum(place.__enter__() for place in of_two) == 3

    for place in (*of_one, *of_two):
        place.__exit__(None, None, None)

    with places.take(3) as admitted:
        assert admitted


def test_slow_uploads_leave_threads_to_others(
    api: APIClient, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {"kind": "message", "role": "user", "content": "x" * parsers.BUFFERED_BYTES}
    monkeypatch.setattr(slots, "BODIES", free_slots(slots.BODIES, 2))
    with slots.BODIES.take(user.workspace_id):
        refused = api.post("/v1/users/ada/entries/", large)
        small = api.post("/v1/users/ada/entries/", {**large, "content": "x"})
    with slots.BODIES.take(-1):  # somebody else's leaves a place
        monkeypatch.setattr(slots, "BODIES", free_slots(slots.BODIES, 3))
        taken = api.post("/v1/users/ada/entries/", large)

    assert (refused.status_code, refused.json()["limit"]) == (429, "max_bodies")
    assert refused["Retry-After"] == "1"
    assert small.status_code == taken.status_code == 202

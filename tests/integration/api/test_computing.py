"""Answers that a web process computes itself: a few at a time, and of no workspace all of them."""

import pytest
from rest_framework.test import APIClient

from memory.api import computing, parsers
from memory.api.places import Places
from memory.models import MemoryUser
from tests.factories import make_checkpoint

pytestmark = pytest.mark.django_db

DIFF = "/v1/users/ada/diff/?since=v1"


def test_one_too_many_is_to_come_back_and_another_workspace_is_answered(
    api: APIClient, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_checkpoint(user)
    monkeypatch.setattr(computing, "_places", Places(2))
    with computing.computing(-1):
        assert api.get(DIFF).status_code == 200
    with computing.computing(user.workspace_id), computing.computing(-1):
        refused = api.get(DIFF)

    assert refused.status_code == 429
    assert refused["Retry-After"] == "1"
    assert refused.json()["limit"] == "max_computing"
    assert api.get(DIFF).status_code == 200


def test_a_workspace_leaves_places_to_others() -> None:
    places = Places(12)
    of_one = [places.take(1) for _ in range(12)]
    of_two = [places.take(2) for _ in range(12)]
    assert sum(place.__enter__() for place in of_one) == 8
    assert sum(place.__enter__() for place in of_two) == 3

    for place in (*of_one, *of_two):
        place.__exit__(None, None, None)

    with places.take(3) as admitted:
        assert admitted


def test_who_sends_large_bodies_slowly_leaves_threads_to_others(
    api: APIClient, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {"kind": "message", "role": "user", "content": "x" * parsers.BUFFERED_BYTES}
    monkeypatch.setattr(parsers, "_readers", Places(2, factor=1))
    with parsers._readers.take(user.workspace_id):
        refused = api.post("/v1/users/ada/entries/", large)
        small = api.post("/v1/users/ada/entries/", {**large, "content": "x"})
    with parsers._readers.take(-1):  # somebody else's leaves a place
        monkeypatch.setattr(parsers, "_readers", Places(3, factor=1))
        taken = api.post("/v1/users/ada/entries/", large)

    assert (refused.status_code, refused.json()["limit"]) == (429, "max_bodies")
    assert refused["Retry-After"] == "1"
    assert small.status_code == taken.status_code == 202

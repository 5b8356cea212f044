"""A workspace whose requests use more than its share of a processor waits for others."""

from itertools import count
from types import SimpleNamespace

import pytest
from rest_framework.test import APIClient

from memory.kernel.admission import refusals, shares
from memory.kernel.http import throttles
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log.models.entries import LogEntry
from tests.conftest import new_client

pytestmark = pytest.mark.django_db

ENTRIES = "/v1/users/ada/entries/"


def said(text: str) -> dict[str, str]:
    return {"kind": "message", "role": "user", "content": text}


@pytest.fixture
def other(user: MemoryUser) -> APIClient:
    """A client of another workspace, with a user of its own."""
    workspace = Workspace.objects.create(name="other")
    create_user(workspace, "eve", time_zone="UTC", metadata=None)
    return new_client(workspace)


@pytest.fixture(autouse=True)
def waited(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let each request use 7 ms of the workspace's hundredth of a processor; return the waits."""
    Workspace.objects.filter(pk=workspace.pk).update(processor_percent=1)
    waited: list[float] = []
    stopped = SimpleNamespace(monotonic=lambda: 1000.0, sleep=waited.append)
    monkeypatch.setattr(shares, "time", stopped)
    monkeypatch.setattr(shares, "BURST_SECONDS", 0.0)
    monkeypatch.setattr(shares, "MAX_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(shares, "_shares", shares.ProcessorShares())
    monkeypatch.setattr(throttles, "time", SimpleNamespace(thread_time=count(0, 0.007).__next__))
    return waited


def test_request_past_the_share_is_refused_and_does_nothing(
    api: APIClient, other: APIClient, workspace: Workspace
) -> None:
    assert other.get("/v1/users/eve/manifest/").status_code == 200
    assert api.post(ENTRIES, said("1 + 1")).status_code == 202
    refused = api.post(ENTRIES, said("1 + 2"))

    assert (refused.status_code, refused["Retry-After"]) == (429, "1")
    assert refused.json()["limit"] == "processor_percent"
    assert LogEntry.objects.count() == 1
    assert (str(workspace.public_id), "processor_percent", 1) in set(refusals.counters())
    # And others are not held back
    assert [other.get("/v1/users/eve/manifest/").status_code for _ in range(3)] == [200] * 3


def test_without_others_there_is_no_limit(api: APIClient, user: MemoryUser) -> None:
    assert [api.post(ENTRIES, said(str(n))).status_code for n in range(3)] == [202] * 3


def test_requests_that_fail_count_as_well(api: APIClient, other: APIClient) -> None:
    assert other.get("/v1/users/eve/manifest/").status_code == 200
    assert api.post(ENTRIES, {"kind": 1}).status_code == 400
    assert api.post(ENTRIES, said("1")).status_code == 429


def test_a_request_waits_for_its_share(
    api: APIClient, other: APIClient, waited: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "MAX_WAIT_SECONDS", 1.0)
    assert other.get("/v1/users/eve/manifest/").status_code == 200
    for number in range(2):
        assert api.post(ENTRIES, said(str(number))).status_code == 202
    assert waited == [pytest.approx(0.7)]


def test_at_a_hundred_percent_there_is_no_limit(
    api: APIClient, other: APIClient, workspace: Workspace
) -> None:
    Workspace.objects.filter(pk=workspace.pk).update(processor_percent=100)
    assert other.get("/v1/users/eve/manifest/").status_code == 200
    assert [api.post(ENTRIES, said(str(n))).status_code for n in range(3)] == [202] * 3

"""Rates: a workspace's requests and entries per minute, over all processes."""

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.kernel.admission import rates, refusals
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.work import hints
from tests.conftest import new_client
from tests.integration.operation.test_hints import hanging_redis, impatient, no_redis
from tests.waiting import scaled

__all__ = ["hanging_redis", "impatient", "no_redis"]

pytestmark = pytest.mark.django_db

ENTRIES = "/v1/users/ada/entries/"
MESSAGE = {"kind": "message", "role": "user", "content": "I fly to Rome on Monday."}


@pytest.fixture(autouse=True)
def nothing_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that holds no permits yet."""
    monkeypatch.setattr(rates, "_held", {})


def allow(workspace: Workspace, **chosen: int) -> None:
    Workspace.objects.filter(pk=workspace.pk).update(**chosen)


def parameters(header: str, name: str) -> dict[str, int]:
    """Return the parameters of a rate in a RateLimit header."""
    (item,) = (item for item in header.split(", ") if item.startswith(f'"{name}"'))
    return {key: int(value) for key, value in (part.split("=") for part in item.split(";")[1:])}


def test_request_past_the_rate_is_refused_with_retry_after(
    api: APIClient, user: MemoryUser, workspace: Workspace
) -> None:
    allow(workspace, writes_per_minute=3)
    began = time.monotonic()
    assert [api.post(ENTRIES, MESSAGE).status_code for _ in range(3)] == [202] * 3

    refused = api.post(ENTRIES, MESSAGE)

    assert refused.status_code == 429
    assert refused["Content-Type"] == "application/problem+json"
    wait = int(refused["Retry-After"])
    assert 20 - (time.monotonic() - began) <= wait <= 20
    assert refused.json() == {
        "type": "urn:uac:problem:too-many-requests",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "A rate limit of this workspace is exceeded (writes_per_minute: 3). Try again in"
        f" {wait} s.",
        "limit": "writes_per_minute",
        "request_id": refused["X-Request-Id"],
    }
    assert api.get(ENTRIES).json()["results"][-1]["seq"] == 3
    assert (str(workspace.public_id), "writes_per_minute", 1) in set(refusals.counters())


def test_request_after_retry_after_is_served(
    api: APIClient, user: MemoryUser, workspace: Workspace
) -> None:
    allow(workspace, writes_per_minute=30)
    while (refused := api.post(ENTRIES, MESSAGE)).status_code != 429:
        assert refused.status_code == 202

    time.sleep(int(refused["Retry-After"]))

    assert api.post(ENTRIES, MESSAGE).status_code == 202


def test_answers_tell_how_the_rate_stands(
    api: APIClient, user: MemoryUser, workspace: Workspace
) -> None:
    allow(workspace, writes_per_minute=10, entries_per_minute=100)

    answer = api.post(ENTRIES, {"entries": [MESSAGE] * 30})

    assert answer["RateLimit-Policy"] == (
        '"writes_per_minute";q=10;w=60, "entries_per_minute";q=100;w=60'
    )
    writes = parameters(answer["RateLimit"], "writes_per_minute")
    entries = parameters(answer["RateLimit"], "entries_per_minute")
    assert (writes["r"], writes["t"]) == (9, 6)
    assert (entries["r"], entries["t"]) == (70, 18)


@pytest.mark.parametrize(
    ("method", "path", "limit"),
    [
        ("get", "users/ada/", "reads_per_minute"),
        ("post", "users/ada/entries/", "writes_per_minute"),
        ("patch", "users/ada/", "writes_per_minute"),
        ("delete", "users/ada/entries/1/", None),  # the key may not manage: that is told first
        ("post", "users/ada/query/", "costly_per_minute"),
        ("post", "users/ada/ask/", "costly_per_minute"),
        ("post", "users/ada/search/", "costly_per_minute"),
        ("post", "users/ada/context/", "costly_per_minute"),
        ("post", "users/ada/import/", "costly_per_minute"),
        ("post", "users/ada/checkpoints/", "costly_per_minute"),
        ("get", "users/ada/checkpoints/", "reads_per_minute"),
        ("put", "users/ada/constraints/late/", "costly_per_minute"),
        ("post", "users/ada/checkpoints/1/restore/", "costly_per_minute"),
        ("get", "users/ada/export/", "costly_per_minute"),
        ("post", "constraints/", "costly_per_minute"),
        ("get", "nothing/", "reads_per_minute"),
    ],
)
def test_each_kind_of_request_has_its_rate(
    api: APIClient,
    user: MemoryUser,
    workspace: Workspace,
    method: str,
    path: str,
    limit: str | None,
) -> None:
    allow(workspace, reads_per_minute=1, writes_per_minute=1, costly_per_minute=1)
    send = getattr(api, method)

    first, second = send(f"/v1/{path}", {}), send(f"/v1/{path}", {})

    assert first.status_code != 429
    assert second.status_code == (429 if limit else 403)
    assert second.json().get("limit") == limit


def test_git_is_told_in_words(api: APIClient, user: MemoryUser, workspace: Workspace) -> None:
    allow(workspace, costly_per_minute=1)
    url = "/v1/users/ada/git/info/refs?service=git-upload-pack"

    began = time.monotonic()
    answers = [api.get(url) for _ in range(2)]

    assert answers[1].status_code == 429
    assert 60 - (time.monotonic() - began) <= int(answers[1]["Retry-After"]) <= 60
    assert (
        "A rate limit of this workspace is exceeded (costly_per_minute: 1)"
        in answers[1].content.decode()
    )


def test_entries_count_one_by_one_and_no_batch_is_too_large_for_a_full_rate(
    api: APIClient, user: MemoryUser, workspace: Workspace
) -> None:
    allow(workspace, entries_per_minute=10)

    began = time.monotonic()
    large = api.post(ENTRIES, {"entries": [MESSAGE] * 25})
    after = api.post(ENTRIES, MESSAGE)

    assert large.status_code == 202
    assert after.status_code == 429
    assert after.json()["limit"] == "entries_per_minute"
    # The permits are given back.
    assert 96 - (time.monotonic() - began) <= int(after["Retry-After"]) <= 96


def test_workspace_without_rates_inherits_the_servers(
    api: APIClient, user: MemoryUser, settings: Settings
) -> None:
    settings.UAC_READS_PER_MINUTE = 2

    assert [api.get("/v1/users/").status_code for _ in range(3)] == [200, 200, 429]


PROCESS = """
import sys, uuid
import django; django.setup()
from memory.kernel.admission import rates
from memory.kernel.models.workspaces import Workspace
rates.QUICK_SECONDS = 30
workspace = Workspace(public_id=uuid.UUID(sys.argv[1]), writes_per_minute=int(sys.argv[2]))
given = sum(rates.take(workspace, rates.WRITES).wait is None for _ in range(int(sys.argv[3])))
print(given)
"""


def test_several_processes_share_a_rate() -> None:
    public_id, rate = str(uuid.uuid4()), 600
    began = time.monotonic()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, public_id, str(rate), "400"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    given = [int(process.communicate(timeout=scaled(240))[0]) for process in processes]

    refilled = (time.monotonic() - began) * rate / 60
    unused = len(processes) * rate // rates.SHARE  # what each may have taken in advance
    assert rate - unused <= sum(given) <= rate + refilled
    assert max(given) < rate


class Counting:
    """Counts the requests to Redis."""

    def __init__(self, client: Any) -> None:
        self.client, self.asked = client, 0

    def register_script(self, text: str) -> Any:
        self.asked += 1
        return self.client.register_script(text)


def test_hardly_a_request_asks_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(public_id=uuid.uuid4(), reads_per_minute=6000)
    client = Counting(hints.redis_client())
    monkeypatch.setattr(rates, "redis_client", lambda **options: client)

    began = time.monotonic()
    standings = [rates.take(workspace, "reads_per_minute") for _ in range(1000)]
    refilled = (time.monotonic() - began) * 100

    assert all(standing.wait is None for standing in standings)
    assert client.asked <= 1000 / 60 + 1
    assert 4990 <= standings[-1].left <= 5000 + refilled


def test_without_redis_a_process_goes_by_a_rate_of_its_own(
    api: APIClient, user: MemoryUser, workspace: Workspace, no_redis: None
) -> None:
    allow(workspace, reads_per_minute=3)

    codes = [api.get("/v1/users/").status_code for _ in range(4)]

    assert codes == [200, 200, 200, 429]


def test_a_redis_that_hangs_keeps_no_request(
    api: APIClient, user: MemoryUser, hanging_redis: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a slow machine Redis would be asked again before all requests are answered.
    monkeypatch.setattr(rates, "SILENT_SECONDS", 600.0)
    client = Counting(hints.redis_client(patience=hints.QUICK_SECONDS))
    monkeypatch.setattr(rates, "redis_client", lambda **options: client)

    codes = [api.get("/v1/users/").status_code for _ in range(20)]

    assert codes == [200] * 20
    assert client.asked == 1  # which cost a quarter of a second


@pytest.fixture
def emptied() -> Iterator[None]:
    yield
    hints.redis_client().script_flush()


def test_a_redis_that_was_emptied_begins_anew(
    api: APIClient, user: MemoryUser, workspace: Workspace, emptied: None
) -> None:
    allow(workspace, reads_per_minute=1)
    assert [api.get("/v1/users/").status_code for _ in range(2)] == [200, 429]

    hints.redis_client().flushdb()
    hints.redis_client().script_flush()

    assert api.get("/v1/users/").status_code == 200


@pytest.mark.parametrize(("owed", "status"), [(0, 200), (60, 429)], ids=["full", "empty"])
def test_a_clock_of_redis_that_was_set_back_leaves_the_bucket_as_it_was(
    api: APIClient, user: MemoryUser, workspace: Workspace, owed: int, status: int
) -> None:
    """Redis wrote this when its clock was an hour ahead."""
    allow(workspace, reads_per_minute=600)
    client = hints.redis_client()
    seconds, _ = client.time()
    ahead = (int(seconds) + 3600) * 1_000_000
    key = f"rate:{workspace.public_id}:reads_per_minute:600"
    client.set(key, f"{ahead + owed * 1_000_000} {ahead}")

    assert api.get("/v1/users/").status_code == status

    # The bucket fills as usual: nobody waits for an hour.
    time.sleep(0.3)
    assert api.get("/v1/users/").status_code == 200


def test_below_mem0_the_same_holds(user: MemoryUser, workspace: Workspace) -> None:
    allow(workspace, writes_per_minute=1, costly_per_minute=1)
    mem0 = new_client(workspace, scheme="Token")
    told = {"messages": [{"role": "user", "content": "I like tea."}], "user_id": "ada"}
    asked = {"query": "tea", "filters": {"user_id": "ada"}}

    added = [mem0.post("/mem0/v3/memories/add/", told) for _ in range(2)]
    began = time.monotonic()
    found = [mem0.post("/mem0/v3/memories/search/", asked) for _ in range(2)]

    assert [answer.status_code for answer in added] == [202, 429]
    assert [answer.status_code for answer in found] == [200, 429]
    assert "Try again in" in added[1].json()["detail"]
    assert 60 - (time.monotonic() - began) <= int(found[1]["Retry-After"]) <= 60

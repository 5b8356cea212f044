"""Long operations: shown at one address, and cancelled or retried where that makes sense."""

from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.test import override_settings
from rest_framework.test import APIClient

from memory.alerts.models.webhooks import WebhookEndpoint
from memory.kernel.models.idempotency import IdempotencyKey
from memory.kernel.models.users import MemoryUser
from memory.kernel.work import leases
from memory.privacy.models import UserErasure
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus, RunTrigger
from memory.versions.runs import NotToBeCancelled, Result, cancel, claim, finish, queue

pytestmark = pytest.mark.django_db

TRIP = {"kind": "record", "domain": "travel", "type": "Trip", "key": "rome", "data": {"to": "Rome"}}
KEY: dict[str, Any] = {"HTTP_IDEMPOTENCY_KEY": "ada's own"}


@pytest.fixture
def run(api: APIClient, user: MemoryUser, work: Callable[[], None]) -> Run:
    """A query that waits for a sandbox."""
    api.post("/v1/users/ada/entries/", TRIP)
    work()
    asked = api.post("/v1/users/ada/query/?wait=0", {"code": "1 + 1"})
    assert asked.status_code == 202
    assert int(asked["Retry-After"]) >= 1
    told = api.get(asked["Location"]).data
    assert (told["id"], told["finished_at"]) == (asked.data["id"], None)
    return Run.objects.get(pk=asked.data["id"])


def test_a_run_that_was_cancelled_changes_nothing_any_more(api: APIClient, run: Run) -> None:
    claimed = claim(str(run.pk))
    assert claimed is not None

    first = api.post(f"/v1/runs/{run.pk}/cancel/", **KEY)
    again = api.post(f"/v1/runs/{run.pk}/cancel/", **KEY)

    assert (first.status_code, again.status_code) == (200, 200)
    assert again["Idempotent-Replayed"] == "true"
    assert (first.data["status"], first.data["outcome"]) == ("done", "cancelled")
    assert first.data["finished_at"]
    with pytest.raises(leases.LeaseLost):
        finish(claimed, Result(outcome=RunOutcome.OK, output={"value": 2}))
    assert api.post(f"/v1/runs/{run.pk}/cancel/").status_code == 409


def test_a_run_that_was_done_just_now_is_not_cancelled(run: Run) -> None:
    claimed = claim(str(run.pk))
    assert claimed is not None
    finish(claimed, Result(outcome=RunOutcome.OK, output={"value": 2}))

    with pytest.raises(NotToBeCancelled):
        cancel(run, by="key:x")  # which was read before

    run.refresh_from_db()
    assert run.outcome == RunOutcome.OK


def test_run_of_the_server_is_not_cancelled(api: APIClient, run: Run) -> None:
    own = queue(run.user, RunKind.CONSTRAINTS, RunTrigger.DAILY, checkpoint=run.user.head)

    assert api.post(f"/v1/runs/{own.pk}/cancel/").status_code == 409

    own.refresh_from_db()
    assert own.status == RunStatus.QUEUED


def test_abandoned_run_is_retried(api: APIClient, run: Run, work: Callable[[], None]) -> None:
    assert api.post(f"/v1/runs/{run.pk}/retry/").status_code == 409
    claimed = claim(str(run.pk))
    assert claimed is not None
    finish(claimed, Result(outcome=RunOutcome.ABANDONED))

    again = api.post(f"/v1/runs/{run.pk}/retry/")

    assert again.status_code == 202
    work()
    assert api.get(again["Location"]).data["output"]["value"] == 2


def test_repeated_erasure_request_keeps_no_name(
    manager: APIClient,
) -> None:
    manager.post("/v1/users/", {"user_id": "grace"})

    first = manager.delete("/v1/users/grace/?reason=asked", **KEY)
    again = manager.delete("/v1/users/grace/?reason=asked", **KEY)
    other = manager.delete("/v1/users/grace/?reason=other", **KEY)

    assert first.status_code == again.status_code == 202
    assert first.data["id"] == again.data["id"]
    assert again["Idempotent-Replayed"] == "true"
    assert other.status_code == 422
    assert manager.get(first["Location"]).data["id"] == first.data["id"]
    assert UserErasure.objects.count() == 1
    (kept,) = IdempotencyKey.objects.values()
    assert "grace" not in str(kept)


def test_a_redaction_and_a_merge_are_told_of(manager: APIClient, user: MemoryUser) -> None:
    manager.post("/v1/users/ada/entries/", {"kind": "message", "content": "a secret"})
    manager.post("/v1/users/", {"user_id": "anonymous"})

    merged = manager.post("/v1/users/ada/merge/", {"from": "anonymous"})
    redacted = manager.delete("/v1/users/ada/entries/1/", **KEY)

    assert manager.delete("/v1/users/ada/entries/1/", **KEY)["Idempotent-Replayed"] == "true"
    assert manager.get(redacted["Location"]).data == redacted.data
    assert manager.get(merged["Location"]).data == merged.data
    assert manager.get("/v1/users/ada/merge/").status_code == 404
    assert manager.get("/v1/users/ada/redactions/1/").status_code == 404


def test_a_secret_is_told_to_its_own_request_again_and_to_no_other(manager: APIClient) -> None:
    body = {"url": "https://example.com/hook"}
    with override_settings(UAC_ENCRYPTION_KEYS=[Fernet.generate_key().decode()]):
        first = manager.post("/v1/webhooks/", body, **KEY)
        again = manager.post("/v1/webhooks/", body, **KEY)
        rotated = manager.post(f"{first['Location']}rotate-secret/", {})
        late = manager.post("/v1/webhooks/", body, **KEY)

    assert first.status_code == again.status_code == late.status_code == 201
    assert first.data["secret"] == again.data["secret"] != rotated.data["secret"]
    assert late.data["secret"] is None
    assert WebhookEndpoint.objects.count() == 1
    assert first.data["secret"] not in str(list(IdempotencyKey.objects.values()))

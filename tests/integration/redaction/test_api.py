"""`DELETE …/entries/{seq}/`: permissions, answers, and refusals."""

from collections.abc import Callable

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, LogEntry
from tests.integration.redaction.conftest import MARKER, USER, Say

pytestmark = pytest.mark.django_db

ENTRY = f"{USER}entries/1/"


@pytest.fixture
def said(user: MemoryUser) -> LogEntry:
    """The entry to redact."""
    (entry,) = entry_log.append(
        user, [Draft(kind=EntryKind.MESSAGE, content=MARKER)], source="test"
    )
    return entry


def test_redaction_reports_its_cascade_and_progress(
    api: APIClient, user: MemoryUser, say: Say, work: Callable[[], None]
) -> None:
    say("Medication", "a", name=MARKER)
    entry_log.append(
        user, [Draft(kind=EntryKind.FACT, content=MARKER, derived_from=[1])], source="memorize"
    )

    answer = api.delete(f"{ENTRY}?reason=asked+for+by+mail")

    assert answer.status_code == 202
    told = answer.data
    assert (told["seq"], told["asked"], told["entries"]) == (3, [1], [1, 2])
    assert (told["state"], told["version"], told["reason"]) == (
        *("under_way", None, "asked for by mail"),
    )
    assert told["by"].startswith("key:")
    work()
    done = api.delete(ENTRY).data
    assert (done["seq"], done["state"], done["version"], done["records"]) == (3, "done", 2, 1)
    entry = api.get(ENTRY).data
    assert (entry["content"], entry["source"], entry["state"]) == (None, None, "dismissed")
    assert entry["redacted_at"] is not None
    of_log = api.get(f"{USER}entries/3/").data
    assert (of_log["kind"], of_log["state"]) == ("redaction", "covered")
    assert of_log["data"]["entries"] == [1, 2]


def test_a_redacted_entry_is_not_logged_again_under_its_key(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    message = {"kind": "message", "content": MARKER, "idempotency_key": "k"}
    api.post(f"{USER}entries/", message)
    api.delete(ENTRY)
    work()

    again = api.post(f"{USER}entries/", {"entries": [message, {**message, "idempotency_key": "l"}]})

    [redacted, new] = again.data["entries"]
    assert (redacted["seq"], redacted["content"], redacted["state"]) == (1, None, "dismissed")
    assert redacted["redacted_at"] is not None
    assert (new["seq"], new["content"]) == (3, MARKER)


def test_requests_with_keys_are_forgotten_if_they_brought_it_and_remembered_if_not(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    # Given requests with an Idempotency-Key, and a run that read what one of them brought
    def bring(key: str) -> int:
        data = {"name": MARKER if key == "a" else "Aspirin"}
        entry = {"kind": "record", "domain": "health", "type": "Medication", "data": data}
        answer = api.post(f"{USER}entries/", {**entry, "key": key}, HTTP_IDEMPOTENCY_KEY=key)
        work()
        return int(answer.status_code)

    assert [bring("a"), bring("b")] == [202, 202]
    api.post(f"{USER}query/?wait=0", {"code": "len(medications)"})
    work()

    # When the entry of the first one is redacted, which reads the keys once
    api.delete(ENTRY)
    with CaptureQueriesContext(connection) as queries:
        work()
    keys = 'FROM "memory_idempotencykey"'
    assert sum(one["sql"].startswith("SELECT") and keys in one["sql"] for one in queries) == 1

    # Then that is done, and its request is refused if it comes again, the other one answered
    assert api.delete(ENTRY).data["state"] == "done"
    assert [bring("a"), bring("b")] == [422, 202]
    assert LogEntry.objects.filter(user=user).count() == 3


def test_impossible_redaction_says_why(api: APIClient, said: LogEntry) -> None:
    assert api.delete(f"{USER}entries/2/").status_code == 404
    assert api.delete(f"{USER}entries/0/").status_code == 404
    assert api.delete(f"{USER}entries/{2**63}/").status_code == 404
    assert api.delete("/v1/users/nobody/entries/1/").status_code == 404
    assert api.delete(f"{ENTRY}?why=x").status_code == 400
    long = api.delete(f"{ENTRY}?reason={'x' * 2001}")
    assert (long.status_code, list(long.data["errors"])) == (400, ["reason"])
    assert api.delete(f"{ENTRY}?reason=%00").status_code == 400
    said.refresh_from_db()
    assert said.redacted_at is None

    told = api.delete(ENTRY).data["seq"]
    refused = api.delete(f"{USER}entries/{told}/")
    assert refused.status_code == 409
    assert "cannot itself be redacted" in refused.data["detail"]


def test_preview_of_an_impossible_redaction_is_refused_as_the_redaction_is(
    api: APIClient, said: LogEntry, work: Callable[[], None]
) -> None:
    told = api.delete(ENTRY).data["seq"]
    work()

    for seq, status in ((told, 409), (told + 1, 404), (2**63, 404)):
        refused = api.get(f"{USER}entries/{seq}/redaction/")
        assert (refused.status_code, refused.data["type"]) == (
            status,
            api.delete(f"{USER}entries/{seq}/").data["type"],
        )


def test_key_redacts_nothing_of_another_workspace(api: APIClient, said: LogEntry) -> None:
    other = Workspace.objects.create(name="other")
    theirs = create_user(other, "bob", metadata=None)
    entry_log.append(theirs, [Draft(kind=EntryKind.MESSAGE, content="theirs")], source="test")

    assert api.delete("/v1/users/bob/entries/1/").status_code == 404

    assert not LogEntry.objects.filter(user=theirs, redacted_at__isnull=False).exists()

"""`Idempotency-Key`: a repeated write gets the same answer, and is done once."""

import datetime
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.utils import timezone
from rest_framework.test import APIClient

from memory.alerts.models.alerts import Alert
from memory.kernel.models.idempotency import IdempotencyKey
from memory.kernel.models.users import MemoryUser
from memory.kernel.work import idempotency
from memory.log.models.entries import LogEntry
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run
from tests.constraints import make_rule
from tests.integration.alerts.test_life import finding, record, run_finds
from tests.rivals import Rival, run_at_once
from tests.waiting import eventually
from workers.service import dispatching

ENTRIES = "/v1/users/ada/entries/"
MESSAGE = {"kind": "message", "content": "I fly to Rome on Monday."}
TRIP = {"kind": "record", "domain": "travel", "type": "Trip", "data": {"to": "Rome"}}
REPLAYED = "Idempotent-Replayed"

KEY: dict[str, Any] = {"HTTP_IDEMPOTENCY_KEY": "8e03978e-40d5-43dd-bc93-6894a57f9324"}


def same(first: Any, again: Any) -> bool:
    """Return whether a second answer replays that of the first request, and is marked so."""
    assert REPLAYED not in first
    assert again[REPLAYED] == "true"
    return (first.status_code, first.data) == (again.status_code, again.data)


@pytest.mark.django_db
class TestReplay:
    """The same request once more."""

    def test_append_is_done_once(self, api: APIClient, user: MemoryUser) -> None:
        body = {"entries": [MESSAGE, TRIP, MESSAGE]}

        first = api.post(ENTRIES, body, **KEY)
        again = api.post(ENTRIES, body, **KEY)

        assert first.status_code == 202
        assert same(first, again)
        assert LogEntry.objects.count() == 3

    def test_after_a_lost_answer_shows_how_far_the_same_entries_have_come(
        self, api: APIClient, user: MemoryUser, work: Callable[[], None]
    ) -> None:
        api.post(ENTRIES, TRIP, **KEY)
        work()

        again = api.post(f"{ENTRIES}?wait=5", TRIP, **KEY)

        assert again[REPLAYED] == "true"
        assert (again.status_code, again.data["covered"]) == (202, 1)
        assert again.data["entries"][0]["state"] == "covered"
        assert LogEntry.objects.count() == 1

    def test_proposal_is_the_same_run(
        self, api: APIClient, user: MemoryUser, work: Callable[[], None]
    ) -> None:
        url = "/v1/users/ada/checkpoints/"
        body = {"edits": [{"op": "define_class", "domain": "travel", "name": "Trip"}]}

        first = api.post(f"{url}?wait=0", body, **KEY)
        work()
        again = api.post(f"{url}?wait=0", body, **KEY)

        assert first.status_code == 202
        assert (again.status_code, again.data["version"]) == (200, 1)
        assert again.data["id"] == str(Run.objects.get().pk)
        assert again[REPLAYED] == "true"
        assert Checkpoint.objects.count() == 1

    def test_constraint_deletion_succeeds_once_it_is_gone(
        self, api: APIClient, user: MemoryUser, work: Callable[[], None]
    ) -> None:
        url = "/v1/users/ada/constraints/rule/?wait=0"
        api.post(ENTRIES, TRIP)
        work()
        rule = make_rule(
            "rule", "travel.Trip", 'trip.to == "Oslo"', "far", fires='to="Oslo"', silent='to="Rome"'
        )
        api.put(url, rule, HTTP_IDEMPOTENCY_KEY="put")
        work()
        assert api.put(url, rule, HTTP_IDEMPOTENCY_KEY="put").data["accepted"], "written once"
        first = api.delete(url, **KEY)
        work()

        again = api.delete(url, **KEY)

        assert first.status_code == 202
        assert (again.status_code, again.data["version"]) == (200, 3)
        assert again[REPLAYED] == "true"
        assert api.delete(url).status_code == 404

    @pytest.mark.parametrize(
        ("step", "body"), [("acknowledge", {"note": "seen"}), ("resolve", {"reason": "told"})]
    )
    def test_alert_action_is_taken_once(
        self, api: APIClient, user: MemoryUser, step: str, body: dict[str, Any]
    ) -> None:
        run_finds(user, finding(record("m-1", 41)))
        alert = Alert.objects.get(user=user)

        first = api.post(f"/v1/alerts/{alert.pk}/{step}/", body, **KEY)
        again = api.post(f"/v1/alerts/{alert.pk}/{step}/", body, **KEY)

        assert first.status_code == 200
        assert same(first, again)
        assert alert.events.count() == 2

    def test_replay_may_differ_in_spaces_and_wait(self, api: APIClient, user: MemoryUser) -> None:
        api.post(
            ENTRIES, b'{"kind":"message","content":"x"}', content_type="application/json", **KEY
        )

        again = api.post(
            f"{ENTRIES}?wait=0",
            b'{ "content": "x", "kind": "message" }',
            content_type="application/json",
            **KEY,
        )

        assert (again.status_code, again[REPLAYED]) == (202, "true")


@pytest.mark.django_db
class TestReuse:
    """The same key with a different request."""

    @pytest.mark.parametrize(
        ("method", "path", "body"),
        [
            ("post", ENTRIES, {**MESSAGE, "content": "other"}),
            ("post", ENTRIES, {**MESSAGE, "metadata": {"n": 1.0}}),
            ("post", "/v1/users/eve/entries/", MESSAGE),
            ("post", "/v1/users/", {"user_id": "bob"}),
            ("patch", "/v1/users/ada/", {"metadata": {}}),
        ],
    )
    def test_is_refused_and_changes_nothing(
        self, api: APIClient, user: MemoryUser, method: str, path: str, body: dict[str, Any]
    ) -> None:
        api.post("/v1/users/", {"user_id": "eve"})
        api.post(ENTRIES, MESSAGE, **KEY)

        other = getattr(api, method)(path, body, **KEY)

        assert other.status_code == 422
        assert other["Content-Type"] == "application/problem+json"
        assert KEY["HTTP_IDEMPOTENCY_KEY"] in other.data["detail"]
        assert "new key" in other.data["detail"]
        assert LogEntry.objects.count() == 1
        assert MemoryUser.objects.count() == 2

    def test_by_another_workspace_is_its_own_affair(
        self, api: APIClient, user: MemoryUser, stranger: APIClient
    ) -> None:
        assert api.post("/v1/users/", {"user_id": "bob"}, **KEY).status_code == 201
        theirs = stranger.post("/v1/users/", {"user_id": "bob"}, **KEY)

        assert (theirs.status_code, REPLAYED in theirs) == (201, False)

    def test_after_a_refusal_is_free(self, api: APIClient, user: MemoryUser) -> None:
        assert api.post(ENTRIES, {"kind": "message"}, **KEY).status_code == 400
        assert api.post("/v1/users/nobody/entries/", MESSAGE, **KEY).status_code == 404
        assert api.post("/v1/users/", {"user_id": "ada"}, **KEY).status_code == 409

        assert api.post(ENTRIES, MESSAGE, **KEY).status_code == 202

    def test_after_a_fault_of_ours_is_free_and_the_fault_left_nothing(
        self, api: APIClient, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*args: Any, **kwargs: Any) -> None:
            raise RuntimeError("the process was killed here")

        api.raise_request_exception = False
        with monkeypatch.context() as patched:
            patched.setattr(IdempotencyKey, "save", broken)
            failed = api.post(ENTRIES, MESSAGE, **KEY)

        assert failed.status_code == 500
        assert failed["Content-Type"] == "application/problem+json"
        assert not LogEntry.objects.exists()
        user.refresh_from_db()
        assert user.last_seq == 0

        mended = api.post(ENTRIES, MESSAGE, **KEY)
        assert (mended.status_code, REPLAYED in mended) == (202, False)
        assert mended.data["entries"][0]["seq"] == 1


@pytest.mark.django_db
class TestKey:
    """The format of a key, and the requests that honour it."""

    @pytest.mark.parametrize("key", ["", " ", "k" * 256, "a\tb", "a\x00", "a\x7f", "\xe9", "🔑"])
    def test_that_is_malformed_is_refused(self, api: APIClient, user: MemoryUser, key: str) -> None:
        response = api.post(ENTRIES, MESSAGE, HTTP_IDEMPOTENCY_KEY=key)

        assert response.status_code == 400
        assert list(response.data["errors"]) == ["Idempotency-Key"]
        assert "255" in str(response.data["errors"])
        assert not LogEntry.objects.exists()

    @pytest.mark.parametrize("key", ["k", '"8e03978e"', "order 7", "k" * 255, "~!@"])
    def test_that_is_printable_is_taken(self, api: APIClient, user: MemoryUser, key: str) -> None:
        first = api.post(ENTRIES, MESSAGE, HTTP_IDEMPOTENCY_KEY=key)

        assert same(first, api.post(ENTRIES, MESSAGE, HTTP_IDEMPOTENCY_KEY=key))

    def test_is_not_needed_for_a_query(
        self, api: APIClient, user: MemoryUser, work: Callable[[], None]
    ) -> None:
        api.post(ENTRIES, TRIP)
        work()
        url = "/v1/users/ada/query/?wait=0"

        first = api.post(url, {"code": "1"})
        again = api.post(url, {"code": "1"})

        assert first.status_code == again.status_code == 202
        assert first.data["id"] != again.data["id"]
        assert not IdempotencyKey.objects.exists()

    def test_entry_key_counts_across_requests(self, api: APIClient, user: MemoryUser) -> None:
        named = {**MESSAGE, "idempotency_key": "m-1"}
        first = api.post(ENTRIES, named, HTTP_IDEMPOTENCY_KEY="request-1")

        other = api.post(ENTRIES, {"entries": [named, TRIP]}, HTTP_IDEMPOTENCY_KEY="request-2")

        assert REPLAYED not in other
        assert [entry["seq"] for entry in other.data["entries"]] == [1, 2]
        again = api.post(ENTRIES, {"entries": [named, TRIP]}, HTTP_IDEMPOTENCY_KEY="request-2")
        assert same(other, again)
        assert same(first, api.post(ENTRIES, named, HTTP_IDEMPOTENCY_KEY="request-1"))

    def test_clash_of_entry_keys_frees_request_key(self, api: APIClient, user: MemoryUser) -> None:
        api.post(ENTRIES, {**MESSAGE, "idempotency_key": "m-1"})

        clash = {**MESSAGE, "content": "other", "idempotency_key": "m-1"}
        assert api.post(ENTRIES, clash, **KEY).status_code == 422

        assert api.post(ENTRIES, MESSAGE, **KEY).status_code == 202

    def test_keys_are_forgotten_after_a_week(self, api: APIClient, user: MemoryUser) -> None:
        for number in range(5):
            api.post(ENTRIES, MESSAGE, HTTP_IDEMPOTENCY_KEY=f"old-{number}")
        long_ago = timezone.now() - idempotency.KEPT - datetime.timedelta(seconds=1)
        IdempotencyKey.objects.update(created_at=long_ago)
        api.post(ENTRIES, MESSAGE, HTTP_IDEMPOTENCY_KEY="young")

        assert idempotency.purge(3) == 3
        assert dispatching.dispatch()["forgotten"] == 2

        assert IdempotencyKey.objects.get().key == "young"
        assert api.post(ENTRIES, MESSAGE, HTTP_IDEMPOTENCY_KEY="old-0").status_code == 202
        assert LogEntry.objects.count() == 7


@pytest.fixture
def locked_user(live_database: str, user: MemoryUser) -> Iterator[psycopg.Connection[Any]]:
    """Another transaction holds the user's row, so appends wait for it."""
    url = "postgres://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format(**connection.settings_dict)
    with closing(psycopg.connect(url)) as other:
        other.execute("SELECT 1 FROM memory_memoryuser WHERE id = %s FOR UPDATE", [user.pk])
        yield other


def test_while_the_first_request_is_at_it_the_second_is_told_to_wait(
    api: APIClient, user: MemoryUser, locked_user: psycopg.Connection[Any]
) -> None:
    answers: list[Any] = []
    thread = Rival(lambda: answers.append(api.post(ENTRIES, MESSAGE, **KEY)))
    thread.start()
    assert eventually(_advisory_locks), "the first request never began"

    second = api.post(ENTRIES, MESSAGE, **KEY)

    assert second.status_code == 409
    assert second["Retry-After"] == "1"
    assert second["Content-Type"] == "application/problem+json"
    assert KEY["HTTP_IDEMPOTENCY_KEY"] in second.data["detail"]
    locked_user.rollback()
    thread.join()
    assert thread.error is None
    (first,) = answers
    assert first.status_code == 202
    assert same(first, api.post(ENTRIES, MESSAGE, **KEY))
    assert LogEntry.objects.count() == 1


def _advisory_locks() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return int(cursor.fetchone()[0])


def test_twenty_at_once_append_exactly_once(
    live_database: str, api: APIClient, user: MemoryUser
) -> None:
    answers: list[Any] = []

    def until_answered() -> None:
        while (response := api.post(ENTRIES, {"entries": [MESSAGE] * 3}, **KEY)).status_code == 409:
            time.sleep(0.01)
        answers.append(response)

    run_at_once(*[until_answered] * 20)

    assert Counter(answer.status_code for answer in answers) == {202: 20}
    assert sum(REPLAYED not in answer for answer in answers) == 1
    assert {str(answer.data["entries"]) for answer in answers} == {str(answers[0].data["entries"])}
    assert LogEntry.objects.count() == 3

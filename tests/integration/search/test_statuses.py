"""A hit says whether it still holds; what no longer holds is found only if history is asked for."""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryKind
from memory.privacy.redaction import redact
from tests.integration.search.conftest import Say

pytestmark = pytest.mark.django_db

Tell = Callable[..., list[int]]
Search = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def tell(api: APIClient, user: MemoryUser, work: Callable[[], None]) -> Tell:
    """Append typed entries, settle them, and return their numbers."""

    def do(*entries: dict[str, Any]) -> list[int]:
        response = api.post("/v1/users/ada/entries/", {"entries": list(entries)})
        assert response.status_code == 202, response.data
        work()
        return [entry["seq"] for entry in response.data["entries"]]

    return do


@pytest.fixture
def search(api: APIClient, user: MemoryUser) -> Search:
    def do(query: str, **more: Any) -> list[dict[str, Any]]:
        response = api.post("/v1/users/ada/search/", {"query": query, **more})
        assert response.status_code == 200, response.data
        hits: list[dict[str, Any]] = response.json()["hits"]
        return hits

    return do


def record(type_: str, key: str | None, /, **data: Any) -> dict[str, Any]:
    # Each has its own session, so that none is found because of its neighbour.
    named = {} if key is None else {"key": key}
    place = {"kind": "record", "domain": "home", "type": type_, **named}
    return {**place, "session_id": str(data), "data": data}


def retired(type_: str, key: str) -> dict[str, Any]:
    return {"kind": "record", "domain": "home", "type": type_, "key": key, "retired": True}


def told(hits: list[dict[str, Any]]) -> list[tuple[int, str | None, int | None]]:
    return [(hit["seq"], hit["status"], hit["replaced_by"] or hit["retired_by"]) for hit in hits]


def by_seq(hits: list[dict[str, Any]]) -> dict[int, tuple[str | None, int | None]]:
    return {seq: (status, by) for seq, status, by in told(hits)}


class TestRecords:
    def test_replaced_values_are_left_out(self, tell: Tell, search: Search) -> None:
        tell(record("Server", "web", ssh_port=22))
        tell(record("Server", "web", ssh_port=2222))

        assert told(search("Which ssh port has the server web?")) == [(2, "current", None)]
        assert search("22") == []

    def test_history_comes_after_what_is_current(self, tell: Tell, search: Search) -> None:
        tell(record("Server", "web", ssh_port=22))
        tell(record("Server", "web", ssh_port=2222))
        query = "Does the server web have the ssh port 22?"  # which entry 1 says

        hits = search(query, include="history")
        (first,) = search(query, include=["history"], top_k=1)

        assert told(hits) == [(2, "current", None), (1, "replaced", 2)]
        assert (hits[1]["replaced_by"], hits[1]["retired_by"]) == (2, None)
        assert first["seq"] == 2

    def test_entry_with_one_standing_value_is_current(self, tell: Tell, search: Search) -> None:
        tell(record("Server", "web", os="Debian", ssh_port=22))
        tell(record("Server", "web", ssh_port=2222))
        assert by_seq(search("server web")) == {1: ("current", None), 2: ("current", None)}

        tell(record("Server", "web", os="Fedora"))

        assert by_seq(search("server web", include="history")) == {
            1: ("replaced", 3),
            2: ("current", None),
            3: ("current", None),
        }

    def test_a_value_that_was_said_again_stands(self, tell: Tell, search: Search) -> None:
        tell(record("Server", "web", ssh_port=22), record("Server", "web", ssh_port=22))

        assert by_seq(search("server web")) == {1: ("current", None), 2: ("current", None)}

    def test_entries_without_a_key_are_separate_records(self, tell: Tell, search: Search) -> None:
        tell(record("Server", None, ssh_port=22), record("Server", None, ssh_port=2222))

        assert by_seq(search("server")) == {1: ("current", None), 2: ("current", None)}

    def test_key_of_another_class_is_another_record(self, tell: Tell, search: Search) -> None:
        tell(record("Server", "a", port=22), record("Printer", "a", port=631))
        tell(record("Printer", "a", port=632), retired("Server", "a"))

        assert by_seq(search("server printer port a", include="history")) == {
            1: ("retired", 4),
            2: ("replaced", 3),
            3: ("current", None),
            4: ("current", None),
        }

    def test_retired_record_is_left_out(self, tell: Tell, search: Search) -> None:
        tell(record("Medication", "m1", name="metoprolol", dose="50 mg"))
        tell(record("Medication", "m1", dose="100 mg"), record("Medication", "m2", name="aspirin"))
        tell(retired("Medication", "m1"))

        assert search("metoprolol") == []
        assert by_seq(search("medication m1")) == {3: ("current", None), 4: ("current", None)}
        hits = search("medication m1 metoprolol", include="history")
        assert by_seq(hits) == {
            1: ("retired", 4),
            2: ("retired", 4),
            3: ("current", None),
            4: ("current", None),
        }
        seqs = [hit["seq"] for hit in hits]
        assert seqs.index(4) < min(seqs.index(1), seqs.index(2))
        assert next(hit["retired_by"] for hit in hits if hit["seq"] == 1) == 4

    def test_late_entry_is_replaced_by_a_later_one(self, tell: Tell, search: Search) -> None:
        tell({**record("Home", "h", town="Ghent"), "occurred_at": "2026-03-01T00:00:00Z"})
        tell({**record("Home", "h", town="Lyon"), "occurred_at": "2024-01-01T00:00:00Z"})

        assert by_seq(search("home town", include="history")) == {
            1: ("current", None),
            2: ("replaced", 1),
        }

    def test_an_edit_based_on_a_fact_replaces_what_it_sets(
        self, api: APIClient, tell: Tell, say: Say, search: Search, work: Callable[[], None]
    ) -> None:
        tell(record("Server", "web", ssh_port=22))
        tell(record("Server", "mail", ssh_port=22, os="Debian"))
        fact = say("Both servers listen on 2222 now", EntryKind.FACT).seq
        place = {"op": "update", "domain": "home", "collection": "servers", "sources": [fact]}
        edits = [{**place, "key": key, "fields": {"ssh_port": 2222}} for key in ("web", "mail")]
        assert api.post("/v1/users/ada/checkpoints/?wait=0", {"edits": edits}).status_code == 202
        work()

        found = by_seq(search("server ssh port", include="history"))

        assert found == {1: ("replaced", fact), 2: ("current", None), fact: ("current", None)}

    def test_entry_outside_the_state_has_no_status(
        self, api: APIClient, tell: Tell, search: Search, work: Callable[[], None]
    ) -> None:
        tell(record("Server", "web", ssh_port=22))
        assert api.post("/v1/users/ada/entries/", record("Server", "web", ssh_port=2222))

        assert by_seq(search("server web")) == {1: ("current", None), 2: (None, None)}
        work()
        assert by_seq(search("server web")) == {2: ("current", None)}

    def test_if_what_replaced_it_is_redacted_it_is_current_again(
        self, user: MemoryUser, tell: Tell, search: Search, work: Callable[[], None]
    ) -> None:
        tell(record("Server", "web", ssh_port=22))
        tell(record("Server", "web", ssh_port=2222))
        redact(user, [2], by="tests", reason="")
        work()

        assert told(search("server web", include="history")) == [(1, "current", None)]

    def test_if_what_replaced_it_is_rolled_back_it_is_current_again(
        self, api: APIClient, tell: Tell, search: Search, work: Callable[[], None]
    ) -> None:
        tell(record("Server", "web", ssh_port=22))
        tell(record("Server", "web", ssh_port=2222))
        restored = api.post("/v1/users/ada/checkpoints/1/restore/", {"reopen": False})
        assert restored.status_code in (200, 201), restored.data

        assert by_seq(search("server web")) == {1: ("current", None), 2: (None, None)}

    def test_an_earlier_moment_has_the_statuses_of_then(self, tell: Tell, search: Search) -> None:
        tell(record("Server", "web", ssh_port=22))
        tell(record("Server", "web", ssh_port=23), record("Server", "web", ssh_port=24))
        tell(retired("Server", "web"))

        def as_of(moment: str) -> dict[int, tuple[str | None, int | None]]:
            return by_seq(search("server web", include="history", as_of=moment))

        assert as_of("1") == {1: ("current", None)}
        # Entries 2 and 3 were processed together.
        assert as_of("2") == {1: ("replaced", 2), 2: ("current", None)}
        assert as_of("v2") == {1: ("replaced", 3), 2: ("replaced", 3), 3: ("current", None)}
        assert as_of("4") == {
            **dict.fromkeys((1, 2, 3), ("retired", 4)),
            4: ("current", None),
        }
        assert told(search("server web", as_of="3")) == [(3, "current", None)]


class TestFacts:
    @pytest.fixture
    def corrected(self, say: Say) -> None:
        """A fact, and two corrections of it."""
        fact = say("Ada drinks tea", EntryKind.FACT, session_id="a").seq
        for what in ("coffee", "water"):
            text = f"Ada drinks {what}"
            say(text, EntryKind.CORRECTION, derived_from=[fact], session_id=what)

    def test_only_the_newest_correction_is_found(self, corrected: None, search: Search) -> None:
        assert told(search("Ada drinks tea")) == [(3, "current", None)]

    def test_history_says_what_replaced_what(self, corrected: None, search: Search) -> None:
        hits = search("Does Ada drink tea?", include="history")

        assert by_seq(hits) == {
            1: ("replaced", 3),
            2: ("replaced", 3),
            3: ("current", None),
        }
        assert hits[0]["seq"] == 3

    def test_earlier_moment_has_its_correction(self, corrected: None, search: Search) -> None:
        assert told(search("Ada drinks", as_of="2")) == [(2, "current", None)]
        assert told(search("Ada drinks", as_of="1")) == [(1, "current", None)]

    def test_if_a_correction_is_redacted_the_one_before_is_current(
        self, user: MemoryUser, corrected: None, search: Search
    ) -> None:
        redact(user, [3], by="tests", reason="")

        assert told(search("Ada drinks")) == [(2, "current", None)]

    def test_a_message_has_no_status(self, say: Say, search: Search) -> None:
        say("I drink tea")

        assert told(search("tea")) == [(1, None, None)]

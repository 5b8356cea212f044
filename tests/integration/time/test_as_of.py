"""The state at an earlier moment, the changes since, and the return to it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from memory.alerts.models.alerts import Alert
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.work import leases
from memory.log.models.entries import EntryOutcome, LogEntry, Outcome
from memory.operations import verification
from memory.privacy import redaction
from memory.versions import checkpoints
from memory.versions.checkpoints import Decision
from memory.versions.models.checkpoints import Checkpoint, RecordLocation
from memory.versions.models.runs import Run
from tests.edits import rename_field
from tests.factories import redacted
from tests.integration.alerts.test_duplicates import OURS
from tests.integration.alerts.test_life import finding, run_finds
from tests.integration.commits.conftest import BUDGET, BUDGET_TESTS, trip
from tests.steps import not_none

pytestmark = pytest.mark.django_db

USER = "/v1/users/ada/"
Say = Callable[..., int]
Work = Callable[[], None]


@pytest.fixture
def say(api: APIClient, user: MemoryUser, work: Work) -> Say:
    """Append one trip and settle it, one version each; return its number."""

    def do(to: str, **values: Any) -> int:
        values = {"key": to.lower(), "cost": 100, "on": "2026-05-02", **values}
        entries = [{"kind": "record", **trip(to, **values)}]
        answer = api.post(f"{USER}entries/", {"entries": entries})
        assert answer.status_code == 202, answer.data
        work()
        user.refresh_from_db()
        return int(answer.data["entries"][0]["seq"])

    return do


def ask(api: APIClient, work: Work, code: str, **body: Any) -> Any:
    """Return the value of a query."""
    queued = api.post(f"{USER}query/?wait=0", {"code": code, **body})
    if queued.status_code == 200:  # which was asked before
        return queued.data["value"]
    assert queued.status_code == 202, queued.data
    work()
    run = api.get(f"/v1/runs/{queued.data['id']}/").data
    assert run["outcome"] == "ok", run["error"]
    return run["output"]["value"]


def pending(api: APIClient, *moments: str) -> list[list[int]]:
    """Return the entries that were pending as of each of these moments."""
    states = [api.get(f"{USER}state/", {"as_of": moment}).data for moment in moments]
    return [state["as_of"]["pending"] for state in states]


def cover(user: MemoryUser, *seqs: int) -> None:
    """Settle messages as a model does that has found their facts."""
    lane = not_none(leases.claim(Lane.objects.filter(user=user, name="structure")))
    checkpoints.commit(lane, user, None, [Decision(seq, Outcome.COVERED) for seq in seqs])


def test_a_query_is_answered_with_what_was_known_then(api: APIClient, say: Say, work: Work) -> None:
    first = say("Rome")
    between = timezone.now().isoformat()
    second = say("Oslo")

    count = "len(trips)"
    assert ask(api, work, count) == 2
    for moment in (str(first), "v1", between):
        assert ask(api, work, count, as_of=moment) == 1, moment
    assert ask(api, work, count, as_of=str(second)) == 2


def test_every_read_takes_it(api: APIClient, say: Say) -> None:
    first = say("Rome")
    say("Oslo")

    for path in ("manifest/", "state/", "state/travel/trips/"):
        now = api.get(f"{USER}{path}").data
        then = api.get(f"{USER}{path}?as_of={first}").data
        assert (now["version"], now["as_of"]) == (2, None)
        assert (then["version"], then["as_of"]["seq"]) == (1, first)
    assert [
        record["key"] for record in api.get(f"{USER}state/travel/trips/?as_of=v1").data["records"]
    ] == ["rome"]
    assert api.get(f"{USER}constraints/?as_of=v1").data["results"] == []


def test_entry_settled_before_version_1_is_settled(
    api: APIClient, user: MemoryUser, say: Say
) -> None:
    """For example, messages whose facts a model has extracted before the first checkpoint."""
    said = {"kind": "message", "role": "user", "content": "I was in Rome.", "session_id": "s"}
    api.post(f"{USER}entries/", {"entries": [said]})
    waiting = timezone.now().isoformat()
    cover(user, 1)
    settled = timezone.now().isoformat()
    say("Rome")

    assert pending(api, waiting, settled, "v1", "2") == [[1], [], [], []]


def test_entry_settled_later_is_pending_then(api: APIClient, user: MemoryUser, say: Say) -> None:
    """For example, messages that a model is working on: the version does not contain them."""
    said = {"kind": "message", "role": "user", "content": "I was in Oslo.", "session_id": "s"}
    api.post(f"{USER}entries/", {"entries": [said]})
    say("Rome")
    api.post(f"{USER}entries/", {"entries": [said]})
    waiting = timezone.now().isoformat()
    cover(user, 1, 3)
    settled = timezone.now().isoformat()

    found = pending(api, "v1", "2", "3", waiting, settled)
    assert found == [[1], [1], [1, 3], [1, 3], []]


def test_entry_settled_at_once_is_not_pending_as_of_itself(
    api: APIClient, user: MemoryUser, say: Say, work: Work
) -> None:
    """For example, a typed entry that was rejected, and a redaction with its unread message."""
    say("Rome")
    wrong = {"kind": "record", **trip("Oslo"), "type": "Hotel", "collection": "trips"}
    api.post(f"{USER}entries/", {"entries": [wrong]})
    work()
    assert api.get(f"{USER}entries/2/").data["state"] == "rejected"
    said = {"kind": "message", "role": "user", "content": "I was in Oslo.", "session_id": "s"}
    api.post(f"{USER}entries/", {"entries": [said]})
    redaction.redact(user, [3], by="staff:eve", reason="asked for")
    work()
    say("Bonn")

    assert pending(api, "1", "2", "4", "5") == [[], [], [], []]


def test_the_clock_of_a_query_can_be_set(api: APIClient, say: Say, work: Work) -> None:
    say("Rome")

    assert ask(api, work, "today", at="2031-02-03") == {"$date": "2031-02-03"}
    at = "2026-03-29T00:30:00+00:00"  # half an hour before the clocks of Berlin go forward
    assert ask(api, work, "now.isoformat()", at=at) == "2026-03-29T01:30:00+01:00"
    assert ask(api, work, "len(trips)", at="0001-01-01") == 1


@pytest.mark.parametrize("as_of", ["0", "3", "v0", "v9", "yesterday", "2026-13-01T00:00:00Z",
                                   "2020-01-01T00:00:00", "2020-01-01T00:00:00Z",
                                   "2999-01-01T00:00:00Z", "-1", "9" * 30])  # fmt: skip
def test_a_moment_that_was_never_known_is_refused(api: APIClient, say: Say, as_of: str) -> None:
    say("Rome")

    for answer in (
        api.get(f"{USER}state/", {"as_of": as_of}),
        api.get(f"{USER}diff/", {"since": as_of}),
        api.post(f"{USER}query/", {"code": "1", "as_of": as_of}),
    ):
        # For a well-formed moment, the answer is that it does not exist.
        assert answer.status_code in (400, 404)
        assert set(answer.data["errors"]) <= {"as_of", "since"}
        assert answer.data["errors"]


@pytest.mark.parametrize(
    "at",
    [
        "tomorrow",
        "2026-02-30",
        "2026-01-01T25:00:00",
        "10000-01-01",
        "0001-01-01T00:00:00+05:00",
        "9999-12-31T23:00:00-05:00",
    ],
)
def test_a_clock_that_cannot_be_set_so(api: APIClient, say: Say, at: str) -> None:
    say("Rome")

    answer = api.post(f"{USER}query/", {"code": "1", "at": at})

    assert answer.status_code == 400
    assert list(answer.data["errors"]) == ["at"]


def test_before_the_first_version_nothing_can_be_asked(api: APIClient, user: MemoryUser) -> None:
    said = {"kind": "message", "role": "user", "content": "Hello."}
    api.post(f"{USER}entries/", {"entries": [said]})

    assert api.post(f"{USER}query/", {"code": "1", "as_of": "1"}).status_code == 409
    then = api.get(f"{USER}state/?as_of=1").data
    assert (then["version"], then["domains"], then["as_of"]["pending"]) == (None, {}, [1])


def test_state_redacted_since_is_gone(api: APIClient, user: MemoryUser, say: Say) -> None:
    first = say("Rome")
    say("Oslo")
    redacted(user, first, timezone.now())

    for answer in (
        api.get(f"{USER}state/?as_of={first}"),
        api.get(f"{USER}diff/?since=v1"),
        api.post(f"{USER}query/", {"code": "1", "as_of": "v2"}),
        api.post(f"{USER}checkpoints/1/restore/", {}),
    ):
        assert answer.status_code == 410
        assert "redacted" in answer.data["detail"]
    assert api.get(f"{USER}state/").status_code == 200


def test_state_as_of_redacted_entry_is_gone(api: APIClient, user: MemoryUser, say: Say) -> None:
    """Even if no version relies on it: three came at once, and the second was redacted."""
    say("Rome")
    bonn, oslo = (
        {"kind": "record", **trip(to, key=to.lower(), cost=1, on="2026-06-01")}
        for to in ("Bonn", "Oslo")
    )
    api.post(f"{USER}entries/", {"entries": [bonn, oslo]})
    redacted(user, 2, timezone.now())

    answer = api.get(f"{USER}state/?as_of=2")

    assert answer.status_code == 410
    assert "entry 2" in answer.data["detail"].lower()
    assert api.get(f"{USER}state/?as_of=3").data["version"] == 1


def test_a_difference_names_the_entries_that_caused_it(api: APIClient, say: Say) -> None:
    say("Rome")
    say("Oslo")
    changed = say("Rome", cost=150)  # the same key: an update
    added = say("Bonn")

    found = api.get(f"{USER}diff/?since=v2").data

    assert [(one["key"], one["before"], one["entries"]) for one in found["added"]] == [
        ("bonn", None, [added])
    ]
    (update,) = found["changed"]
    assert (update["key"], update["entries"]) == ("rome", [changed])
    assert update["before"]["fields"]["cost"] == 100
    assert update["after"]["fields"]["cost"] == 150
    assert found["retired"] == []
    assert (found["since"]["version"], found["until"]) == (2, None)
    # In the opposite direction.
    back = api.get(f"{USER}diff/?since=v4&until=v2").data
    assert [one["key"] for one in back["retired"]] == ["bonn"]
    assert back["added"] == []


def test_records_of_a_class_that_gets_a_field_have_not_changed(api: APIClient, say: Say) -> None:
    say("Rome")
    say("Oslo", hotel="Bristol")

    found = api.get(f"{USER}diff/?since=v1").data

    assert [one["key"] for one in found["added"]] == ["oslo"]
    assert (found["changed"], found["files"]) == ([], ["domains/travel/schema.py"])
    back = api.get(f"{USER}diff/?since=v2&until=v1").data
    assert (back["changed"], [one["key"] for one in back["retired"]]) == ([], ["oslo"])


def test_renamed_field_names_its_entry(api: APIClient, say: Say, work: Work) -> None:
    say("Rome")
    why = say("Oslo")
    edit = rename_field("travel.Trip.cost", "price", why)
    proposed = api.post(f"{USER}checkpoints/?wait=0", {"edits": [edit]})
    assert proposed.status_code == 202, proposed.data
    work()

    found = api.get(f"{USER}diff/?since=v2").data

    assert [(one["key"], one["entries"]) for one in found["changed"]] == [
        ("oslo", [why]),
        ("rome", [why]),
    ]


def test_an_earlier_version_is_restored_and_the_log_stays(
    api: APIClient, user: MemoryUser, say: Say, work: Work
) -> None:
    say("Rome")
    mistaken = say("Oslo")
    hashes = list(LogEntry.objects.filter(user=user).values_list("hash", flat=True))

    answer = api.post(
        f"{USER}checkpoints/1/restore/", {"reason": "Oslo was a joke", "reopen": False}
    )

    assert answer.status_code == 201
    assert (answer.data["version"], answer.data["origin"]) == (3, "restored")
    assert answer.data["files"] == Checkpoint.objects.get(user=user, version=1).tree
    assert [one["key"] for one in api.get(f"{USER}state/travel/trips/").data["records"]] == ["rome"]
    outcome = EntryOutcome.objects.get(user=user, seq=mistaken)
    assert outcome.outcome == Outcome.DISMISSED
    assert "Oslo was a joke" in outcome.reason
    assert list(LogEntry.objects.filter(user=user).values_list("hash", flat=True)) == hashes
    assert list(verification.problems(user)) == []
    # The user continues from there.
    say("Bonn")
    assert ask(api, work, "[t.to for t in trips]") == ["Rome", "Bonn"]
    assert ask(api, work, "len(trips)", as_of="v2") == 2


def test_entry_undone_later_is_not_pending_in_its_version(api: APIClient, say: Say) -> None:
    say("Rome")
    say("Oslo")
    api.post(f"{USER}checkpoints/1/restore/", {"reopen": False})

    assert pending(api, "v1", "v2", "v3") == [[], [], []]


def test_restore_is_undone_by_restoring_again(api: APIClient, user: MemoryUser, say: Say) -> None:
    # Given Oslo in v2, undone in v3, and Bonn in v4
    say("Rome")
    oslo = say("Oslo")
    api.post(f"{USER}checkpoints/1/restore/", {"reopen": False})
    bonn = say("Bonn")

    def outcomes() -> dict[int, str]:
        rows = EntryOutcome.objects.filter(user=user, seq__in=[oslo, bonn])
        return dict(rows.values_list("seq", "outcome"))

    # When v2 comes back, and then v4: each entry counts where its record is there
    for version, expected in (
        (2, {oslo: Outcome.COVERED, bonn: Outcome.DISMISSED}),
        (4, {oslo: Outcome.DISMISSED, bonn: Outcome.COVERED}),
    ):
        back = api.post(f"{USER}checkpoints/{version}/restore/", {"reopen": False})
        assert back.status_code == 201
        assert outcomes() == expected


def test_reopened_entries_are_worked_on_again_under_their_keys(
    api: APIClient, user: MemoryUser, say: Say, work: Work
) -> None:
    say("Rome")
    say("Oslo")
    say("Rome", cost=150)
    before = api.get(f"{USER}state/travel/trips/").data["records"]

    told = api.get(f"{USER}checkpoints/1/restore/").data
    assert told == {
        "records": [{"domain": "travel", "collection": "trips", "key": "oslo"}],
        "alerts": [],
        "may_resolve": [],
        "entries": [2, 3],
    }

    answer = api.post(f"{USER}checkpoints/1/restore/", {})
    assert answer.status_code == 201
    assert api.get(f"{USER}").data["entries"]["pending"] == 2
    work()

    assert api.get(f"{USER}state/travel/trips/").data["records"] == before
    assert api.get(f"{USER}").data["entries"]["covered"] == 3
    assert list(verification.problems(user)) == []


def test_alerts_on_changed_records_may_resolve(api: APIClient, user: MemoryUser, say: Say) -> None:
    say("Rome")
    say("Rome", cost=150)
    say("Oslo")
    say("Bonn")
    trips = {"class": "Trip", "domain": "travel", "collection": "trips", "sources": [1]}
    keys = ("rome", "oslo", "bonn")
    findings = [finding({**trips, "key": key}, message=key, constraint=OURS) for key in keys]
    run_finds(user, *findings, version=4, completed=[OURS], existing=[OURS])

    for version, resolve, may in ((1, ["bonn", "oslo"], ["rome"]), (3, ["bonn"], [])):
        told = api.get(f"{USER}checkpoints/{version}/restore/").data
        assert sorted(alert["message"] for alert in told["alerts"]) == resolve
        assert [alert["message"] for alert in told["may_resolve"]] == may


def test_undone_key_may_be_used_again(api: APIClient, user: MemoryUser, say: Say) -> None:
    say("Rome")
    say("Oslo")

    api.post(f"{USER}checkpoints/1/restore/", {"reopen": False})

    oslo = RecordLocation.objects.get(user=user, key="oslo")
    assert (oslo.added_version, oslo.retired_version) == (2, 3)
    again = say("Oslo")
    assert EntryOutcome.objects.get(user=user, seq=again).outcome == Outcome.COVERED
    oslo.refresh_from_db()
    assert (oslo.added_version, oslo.retired_version) == (2, None)


def test_restore_empties_the_answer_cache(api: APIClient, say: Say, work: Work) -> None:
    say("Rome")
    say("Oslo")
    assert ask(api, work, "len(trips)", as_of="v1") == 1
    # Given an answer that code of a later version had a hand in
    assert Run.objects.exclude(answer_key="").update(output={"value": 42, "type": "int"}) == 1
    assert ask(api, work, "len(trips)", as_of="v1") == 42

    assert api.post(f"{USER}checkpoints/1/restore/", {}).status_code == 201

    assert ask(api, work, "len(trips)", as_of="v1") == 1


def test_alerts_follow_a_restored_version(
    api: APIClient, user: MemoryUser, say: Say, work: Work
) -> None:
    say("Rome")
    body = {"source": BUDGET, "tests": BUDGET_TESTS.replace("cost=", "on=TODAY, cost=")}
    put = api.put(f"{USER}constraints/budget/?wait=0", body)
    assert put.status_code == 202, put.data
    work()
    say("Oslo", cost=2000)
    assert Alert.objects.get(user=user).state == "open"

    (resolving,) = api.get(f"{USER}checkpoints/2/restore/").data["alerts"]
    assert resolving["message"] == "Oslo costs 2000"
    api.post(f"{USER}checkpoints/2/restore/", {"reopen": False})
    work()

    assert Alert.objects.get(user=user).state == "resolved"


def test_restoring_the_newest_version_is_refused(api: APIClient, say: Say) -> None:
    say("Rome")

    assert api.post(f"{USER}checkpoints/1/restore/", {}).status_code == 409
    assert api.post(f"{USER}checkpoints/7/restore/", {}).status_code == 404
    assert api.post(f"{USER}checkpoints/1/restore/", {"version": 1}).status_code == 400
    assert Checkpoint.objects.count() == 1

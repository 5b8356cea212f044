"""An anonymous user is merged into a known one: every entry once, and no repeated notifications."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.alerts import alert_actions, paused_constraints, reconcile
from memory.alerts.alert_actions import AlertNotOpen
from memory.alerts.models.alerts import Alert, AlertEvent, AlertState, PausedConstraint
from memory.integrations import merging
from memory.integrations.merging import MergeRefused
from memory.kernel.admin.links import link
from memory.kernel.admission import quotas
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from memory.kernel.users import UserMerged, create_user
from memory.kernel.work import leases
from memory.kernel.workspaces import create_key
from memory.log import copies, entry_log, lanes
from memory.log.entry_log import Draft
from memory.log.models.entries import (
    PAYLOAD_FIELDS,
    EntryKind,
    EntryOutcome,
    LogEntry,
    Outcome,
    Trust,
)
from memory.log.models.merges import CopiedEntries, Merge
from memory.log.models.redactions import Redaction
from memory.operations.verification import problems
from memory.privacy import redaction
from memory.versions import checkpoints, runs
from memory.versions.checkpoints import Decision
from memory.versions.models.checkpoints import Checkpoint, Origin
from memory.versions.models.runs import Run, RunKind, RunTrigger
from memory.versions.past_states import BeingRedacted
from tests.conftest import new_client
from tests.factories import make_run, reject
from tests.integration.admin.conftest import act
from tests.integration.alerts.test_life import finding, record
from tests.integration.commits.conftest import trip
from tests.integration.merging.conftest import contents
from workers import tasks
from workers.service import dispatching

pytestmark = pytest.mark.django_db

Fields = Callable[[str], dict[str, Any]]


def told(user: MemoryUser, *drafts: Draft) -> list[LogEntry]:
    return entry_log.append(user, drafts, source="key:x")


def said(content: str, **fields: Any) -> Draft:
    return Draft(kind=EntryKind.MESSAGE, content=content, **fields)


def fact(content: str, *sources: int) -> Draft:
    return Draft(kind=EntryKind.FACT, content=content, derived_from=sources)


def typed(to: str, **fields: Any) -> Draft:
    return Draft(kind=EntryKind.RECORD, data=trip(to, **fields))


def settled(user: MemoryUser, seq: int, outcome: Outcome, reason: str = "") -> None:
    EntryOutcome.objects.create(user=user, seq=seq, outcome=outcome, reason=reason)


def merged(user: MemoryUser, other: MemoryUser) -> Merge:
    """Merge, and do all the copying."""
    row = merging.merge(user, other, by="key:x")
    while merging.waiting().filter(pk=row.pk).exists():
        tasks.work("merges", row.pk)
    row.refresh_from_db()
    user.refresh_from_db()
    other.refresh_from_db()
    return row


def outcomes(user: MemoryUser) -> dict[int, tuple[str, str]]:
    rows = EntryOutcome.objects.filter(user=user).values_list("seq", "outcome", "reason")
    return {seq: (outcome, reason) for seq, outcome, reason in rows}


def sound(*users: MemoryUser) -> bool:
    found = [(str(user), str(problem)) for user in users for problem in problems(user)]
    assert found == []
    return True


def test_a_copy_comes_from_where_the_entry_came_from(user: MemoryUser, anon: MemoryUser) -> None:
    told(anon, said("Rome.", role="assistant"), said("Rome.", trust=Trust.DOCUMENT))

    merged(user, anon)

    copied = LogEntry.objects.filter(user=user).order_by("seq")
    assert [entry.trust for entry in copied] == ["model", "document"]


def test_entries_follow_in_order_as_they_were(user: MemoryUser, anon: MemoryUser) -> None:
    moment = datetime.datetime(2025, 1, 2, tzinfo=datetime.UTC)
    told(user, said("I am Ada"))
    original, *_ = told(
        anon,
        said("hello", occurred_at=moment, session_id="s", role="user", speaker="?",
             agent_id="a", metadata={"page": 1}, idempotency_key="k1"),
        said("bye"),
    )  # fmt: skip

    row = merged(user, anon)

    assert contents(user) == ["I am Ada", "hello", "bye"]
    copy = LogEntry.objects.get(user=user, seq=2)
    for name in (*PAYLOAD_FIELDS, "kind", "occurred_at"):
        assert getattr(copy, name) == getattr(original, name), name
    assert copy.recorded_at > original.recorded_at
    assert contents(anon) == ["hello", "bye"]  # nothing of it changed
    assert (row.copied, row.cursor_seq, row.due_at) == (2, 2, None)
    assert anon.merged_into == user
    assert list(CopiedEntries.objects.values_list("from_seq", "seq", "number")) == [(1, 2, 2)]
    assert sound(user, anon)


def test_repeated_merge_copies_nothing_more(user: MemoryUser, anon: MemoryUser) -> None:
    told(anon, said("hello"))
    row = merged(user, anon)

    assert merging.merge(user, anon, by="key:y").pk == row.pk
    tasks.work("merges", row.pk)

    assert contents(user) == ["hello"]


def test_facts_of_copied_messages_are_not_made_again(user: MemoryUser, anon: MemoryUser) -> None:
    told(user, said("mine"))
    told(anon, said("I live in Rome"), fact("Lives in Rome", 1), said("ok"), said("later"))
    correction = Draft(kind=EntryKind.CORRECTION, content="Lives in Oslo", derived_from=[2])
    told(anon, correction)
    settled(anon, 1, Outcome.COVERED)
    settled(anon, 2, Outcome.COVERED)
    settled(anon, 3, Outcome.DISMISSED, "says nothing lasting")

    merged(user, anon)

    assert contents(user) == [
        "mine", "I live in Rome", "Lives in Rome", "ok", "later", "Lives in Oslo",
    ]  # fmt: skip
    by_seq = {entry.seq: entry for entry in LogEntry.objects.filter(user=user)}
    assert (by_seq[3].derived_from, by_seq[6].derived_from) == ([2], [3])
    # The facts are to reach this project; the message behind them was paid for.
    assert outcomes(user) == {
        2: ("covered", ""),
        4: ("dismissed", "says nothing lasting"),
    }
    lane = Lane.objects.get(user=user, name=LaneName.STRUCTURE)
    assert (lane.waiting, lane.due_at is not None) == (4, True)
    assert sound(user, anon)


def test_message_settled_by_agent_is_pending_again(user: MemoryUser, anon: MemoryUser) -> None:
    told(anon, said("Rome in May"), said("and Oslo"), fact("Oslo in May", 2), said("hm"))
    version = Checkpoint.objects.create(
        user=anon, version=1, tree={}, outline={"domains": [], "constraints": []}, seen_seq=4,
        origin=Origin.PROPOSED, edits=[{"op": "add", "sources": [1, 2]}],
        verdict={"accepted": True},
    )  # fmt: skip
    for seq in (1, 2, 4):
        EntryOutcome.objects.create(user=anon, seq=seq, outcome=Outcome.COVERED, checkpoint=version)

    merged(user, anon)

    # No entry has what it made of entry 1; 2 has a fact, and 4 contained nothing.
    assert outcomes(user) == {2: ("covered", ""), 4: ("covered", "")}


def test_typed_entries_of_both_become_one_project(
    user: MemoryUser, anon: MemoryUser, work: Callable[[], None], fields_of: Fields
) -> None:
    told(user, typed("Rome", key="rome"))
    told(anon, typed("Oslo", key="oslo"), typed("Bonn"), typed("Pisa", key="trip-2"))
    work()

    merged(user, anon)
    work()

    # The key that the server made from a number follows the number.
    trips = fields_of("travel.trips")
    assert {key: one["to"] for key, one in trips.items()} == {
        "rome": "Rome", "oslo": "Oslo", "trip-3": "Pisa",
    }  # fmt: skip
    assert entry_log.coverage(user).pending == 0
    assert sound(user, anon)


def test_a_key_that_both_used_stays_the_known_users_with_a_reason(
    user: MemoryUser, anon: MemoryUser, work: Callable[[], None], fields_of: Fields
) -> None:
    told(user, typed("Rome", key="next"), typed("Same", key="same"))
    told(anon, typed("Oslo", key="next"), typed("Paris", key="other"), typed("Same", key="same"))
    told(anon, typed("London", key="other"))
    told(anon, Draft(kind=EntryKind.RECORD, data={**trip("x", key="next"), "retired": True}))
    work()

    merged(user, anon)
    work()

    trips = {key: one["to"] for key, one in fields_of("travel.trips").items()}
    assert trips == {"next": "Rome", "other": "London", "same": "Same"}
    reason = (
        "travel.trips.next is ada's own record: anon-123's record with the same key did not"
        " overwrite it; append an entry that says which of the two is right"
    )
    rejected = {seq: told for seq, told in outcomes(user).items() if told[0] == "rejected"}
    assert rejected == {3: ("rejected", reason), 7: ("rejected", reason)}
    told(user, typed("Oslo", key="next"))
    work()
    assert fields_of("travel.trips")["next"]["to"] == "Oslo"  # his own entry may
    assert sound(user, anon)


def test_rejected_entry_stays_rejected_after_the_merge(
    api: APIClient, user: MemoryUser, anon: MemoryUser, work: Callable[[], None]
) -> None:
    reject(anon)

    merged(user, anon)
    work()

    rejected = api.get("/v1/events/?after=0").data["rejected"]
    named = [(one["user_id"], [entry["seq"] for entry in one["entries"]]) for one in rejected]
    assert named == [("anon-123", [1]), ("ada", [1])]
    assert sound(user, anon)


def test_entry_with_one_key_in_both_logs_is_copied_once(user: MemoryUser, anon: MemoryUser) -> None:
    told(user, said("hello", idempotency_key="a"), said("mine", idempotency_key="b"))
    told(anon, said("hello", idempotency_key="a"), said("other", idempotency_key="b"))
    told(anon, fact("Greets", 1))

    row = merged(user, anon)

    assert contents(user) == ["hello", "mine", "other", "Greets"]
    by_seq = {entry.seq: entry for entry in LogEntry.objects.filter(user=user)}
    assert by_seq[3].idempotency_key is None
    assert by_seq[4].derived_from == [1]
    assert copies.became(row, [1, 2, 3]) == {1: 1, 2: 3, 3: 4}
    assert row.copied == 2
    # Repeating an anonymous request for the known user adds nothing.
    other = create_user(user.workspace, "anon-2", metadata=None)
    told(other, said("again", idempotency_key="c"))
    merged(user, other)
    (entry,) = told(user, said("again", idempotency_key="c"))
    assert entry.seq == 5
    assert sound(user, anon)


@pytest.mark.parametrize("size", [200, 1])
def test_what_was_redacted_is_not_brought_back_under_its_key_and_what_is_skipped_is_named(
    user: MemoryUser,
    anon: MemoryUser,
    work: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    size: int,
) -> None:
    monkeypatch.setattr(merging, "BATCH", size)
    told(user, said("hello", idempotency_key="a"))
    redaction.redact(user, [1], by="key:x", reason="")
    work()
    told(anon, said("something else", idempotency_key="a"), said("other"))
    told(anon, fact("Greets", 1), fact("Others", 2))
    told(anon, Draft(kind=EntryKind.CORRECTION, content="Greets often", derived_from=[3]))

    row = merged(user, anon)

    assert contents(user) == [None, None, "other", "Others"]
    assert (row.copied, row.skipped) == (2, [1, 3, 5])
    answer = new_client(user.workspace, *Scope).get("/v1/users/anon-123/merge/").data
    assert (answer["copied"], answer["skipped"]) == (2, [1, 3, 5])
    assert sound(user, anon)
    # They are no copies of what was redacted: a repeated redaction does not reach them.
    redaction.redact(user, [1], by="key:x", reason="")
    assert contents(anon) == ["something else", "other", "Greets", "Others", "Greets often"]


def test_merged_user_is_closed_and_names_the_other(user: MemoryUser, anon: MemoryUser) -> None:
    told(anon, said("hello"), typed("Oslo", key="oslo"))
    merging.merge(user, anon, by="key:x")

    with pytest.raises(UserMerged, match="anon-123 was merged into ada: use that user instead"):
        told(anon, said("more"))
    tasks.work("records", anon.pk)

    anon.refresh_from_db()
    assert anon.head is None
    assert not Lane.objects.filter(user=anon, due_at__isnull=False).exists()


def test_worker_on_the_merged_user_loses_its_claim(user: MemoryUser, anon: MemoryUser) -> None:
    told(anon, typed("Oslo", key="oslo"))
    lane = leases.claim(lanes.due(LaneName.RECORDS))
    assert lane is not None
    run = runs.queue(anon, RunKind.QUERY, RunTrigger.API, checkpoint=None)

    merging.merge(user, anon, by="key:x")

    with pytest.raises(leases.LeaseLost), transaction.atomic():
        checkpoints.commit(lane, anon, None, [Decision(1, Outcome.COVERED)])
    run.refresh_from_db()
    assert (run.status, run.outcome) == ("done", "superseded")
    assert run.error is not None
    assert "anon-123 was merged into ada: use that user." in run.error["message"]


def test_run_queued_during_merge_is_closed(user: MemoryUser, anon: MemoryUser) -> None:
    """Given a request that read the user before the merge, and stored its run afterwards."""
    told(anon, typed("Oslo", key="oslo"))
    merging.merge(user, anon, by="key:x")
    late = runs.queue(anon, RunKind.QUERY, RunTrigger.API, checkpoint=None)
    other = runs.queue(user, RunKind.QUERY, RunTrigger.API, checkpoint=None)

    assert dispatching.dispatch()["merged"] == 1

    late.refresh_from_db()
    other.refresh_from_db()
    assert (late.status, late.outcome, other.status) == ("done", "superseded", "queued")
    assert late.error is not None
    assert "anon-123 was merged into ada: use that user." in late.error["message"]
    assert dispatching.dispatch()["merged"] == 0


def open_alert(user: MemoryUser, *keys: str, version: int = 1) -> None:
    checkpoint = user.checkpoints.filter(version=version).first()
    assert checkpoint is not None
    run = make_run(checkpoint)
    found = [finding(record(key)) for key in keys]
    reconcile.apply(
        run, found, completed=["constraints/allergy.py"], existing=["constraints/allergy.py"]
    )


def alerts_of(user: MemoryUser) -> list[tuple[str, bool]]:
    rows = Alert.objects.filter(user=user).order_by("opened_at", "fingerprint")
    return [(alert.state, alert.holds_back) for alert in rows]


@pytest.fixture
def with_versions(user: MemoryUser, anon: MemoryUser, work: Callable[[], None]) -> None:
    for person in (user, anon):
        told(person, typed("Rome", key=f"of-{person}"))
    work()
    user.refresh_from_db()
    anon.refresh_from_db()


@pytest.mark.parametrize(
    ("before", "after", "events"),
    [
        ("open", ("open", False), ["opened"]),
        ("acknowledged", ("acknowledged", False), ["opened", "acknowledged"]),
        ("snoozed", ("snoozed", False), ["opened", "snoozed"]),
        ("resolved", ("resolved", True), ["opened", "resolved"]),
    ],
)
def test_an_alert_resolves_there_and_stands_here_as_it_was_left(
    user: MemoryUser,
    anon: MemoryUser,
    with_versions: None,
    before: str,
    after: tuple[str, bool],
    events: list[str],
) -> None:
    open_alert(anon, "m-1")
    alert = Alert.objects.get(user=anon)
    if before == "acknowledged":
        alert_actions.acknowledge(alert, actor="key:x")
    elif before == "snoozed":
        alert_actions.snooze(
            alert, actor="key:x", until=timezone.now() + datetime.timedelta(days=1)
        )
    elif before == "resolved":
        alert_actions.resolve(alert, actor="key:x", reason="done")

    merged(user, anon)
    open_alert(user, "m-1")
    open_alert(user, "m-1")

    assert alerts_of(anon) == [("resolved", False)]
    assert alerts_of(user) == [after]
    told_of = AlertEvent.objects.filter(alert__user=user).order_by("seq")
    assert [event.kind for event in told_of] == events
    if before != "resolved":
        last = AlertEvent.objects.filter(alert__user=anon).latest("seq")
        assert (last.kind, last.detail) == ("resolved", {"reason": "merged into ada"})
    if before == "open":
        with pytest.raises(AlertNotOpen):
            alert_actions.acknowledge(alert, actor="key:x")
    # Gone and found again, it is new.
    open_alert(user)
    open_alert(user, "m-1")
    assert Alert.objects.get(user=user, state=AlertState.OPEN)
    assert sound(user, anon)


def test_alert_of_both_users_is_one_alert(
    user: MemoryUser, anon: MemoryUser, with_versions: None
) -> None:
    open_alert(user, "m-1")
    open_alert(anon, "m-1")
    alert_actions.acknowledge(Alert.objects.get(user=anon), actor="key:x")

    merged(user, anon)
    open_alert(user, "m-1")

    assert alerts_of(user) == [("open", False)]
    assert [event.kind for event in AlertEvent.objects.filter(alert__user=user)] == ["opened"]


def test_redacting_either_side_takes_the_other_along(
    user: MemoryUser, anon: MemoryUser, work: Callable[[], None]
) -> None:
    told(user, said("mine"))
    told(anon, said("secret"), fact("Keeps a secret", 1), said("more"), said("last"))
    merged(user, anon)
    told(user, fact("Told of later", 2))  # of the copy alone

    redaction.redact(anon, [1], by="key:x", reason="asked for")
    assert contents(anon) == [None, None, "more", "last", None]
    assert contents(user) == ["mine", None, None, "more", "last", None, None]

    redaction.redact(user, [4], by="key:x", reason="")
    assert contents(anon)[:4] == [None, None, None, "last"]
    assert Redaction.objects.filter(user=anon).count() == 2
    assert redaction.redact(user, [4], by="key:x", reason="").seq == 8  # once
    work()
    assert not redaction.waiting().exists()
    assert sound(user, anon)


def test_preview_of_a_redaction_names_what_goes_on_either_side(
    user: MemoryUser, anon: MemoryUser, work: Callable[[], None]
) -> None:
    told(user, said("mine"))
    told(anon, typed("Rome", key="a"), fact("Flies to Rome", 1))
    work()
    merged(user, anon)
    work()
    api = new_client(user.workspace, *Scope)

    record = {"domain": "travel", "collection": "trips", "key": "a", "effect": "removed"}
    here, there = (
        {"entries": entries, "sources": [], "records": [record], "constraints": []}
        for entries in ([2, 3], [1, 2])
    )
    of_copy = api.get(f"/v1/users/{user.user_id}/entries/2/redaction/").data
    assert of_copy == {**here, "elsewhere": [{**there, "user_id": anon.user_id}]}
    of_original = api.get(f"/v1/users/{anon.user_id}/entries/1/redaction/").data
    assert of_original == {**there, "elsewhere": [{**here, "user_id": user.user_id}]}

    # A key for one user learns nothing of the other.
    _, text = create_key(user.workspace, "bound", [*Scope], user_pks=[user.pk])
    only_here = APIClient(headers={"Authorization": f"Bearer {text}"}).get(
        f"/v1/users/{user.user_id}/entries/2/redaction/"
    )
    assert only_here.data == {**here, "elsewhere": []}

    api.delete(f"/v1/users/{user.user_id}/entries/2/")
    rows = Redaction.objects.order_by("user_id")
    assert {row.user_id: row.entries for row in rows} == {user.pk: [2, 3], anon.pk: [1, 2]}
    work()
    again = api.get(f"/v1/users/{user.user_id}/entries/2/redaction/").data
    assert (again["entries"], again["elsewhere"]) == ([], [])


def test_staff_see_what_a_redaction_takes_along_on_the_other_side(
    admin_client: Client, user: MemoryUser, anon: MemoryUser
) -> None:
    told(anon, said("secret"), fact("Keeps a secret", 1))
    merged(user, anon)

    page = act(admin_client, "redact", LogEntry.objects.get(user=user, seq=1))

    assert [person["user"] for person in page.context["people"]] == [link(user), link(anon)]
    shown_of_both = [str(person["entries"]) for person in page.context["people"]]
    assert ["#2" in entries for entries in shown_of_both] == [False, True]


def test_entries_of_a_merged_user_stay_settled_after_a_redaction(
    user: MemoryUser, anon: MemoryUser, settings: Settings, work: Callable[[], None]
) -> None:
    settings.UAC_LLM_MODEL = "openai:any"
    told(anon, typed("Rome", key="a"), said("one"), said("two"), typed("Oslo", key="b"))
    merged(user, anon)
    work()

    redaction.redact(anon, [2], by="key:x", reason="")
    work()
    redaction.redact(anon, [1], by="key:x", reason="")
    work()

    assert not Lane.objects.filter(user=anon, due_at__isnull=False).exists()
    quotas._count_at[quotas.PENDING] = 0.0
    quotas.count_when_due()
    quotas._believed.clear()
    assert quotas.usage_of(user.workspace).pending_structure <= user.last_seq
    assert quotas.usage_of(user.workspace).pending_records == 0
    assert sound(user, anon)


def test_a_constraint_of_a_merged_user_that_is_resumed_runs_no_more(
    user: MemoryUser, anon: MemoryUser, work: Callable[[], None]
) -> None:
    told(anon, typed("Rome", key="a"))
    work()
    paused = PausedConstraint.objects.create(
        user=anon, constraint="constraints/a.py", reason="x", paused_at=timezone.now()
    )
    merged(user, anon)
    assert anon.head is not None
    before = Run.objects.filter(user=anon).count()

    paused_constraints.resume(paused, actor="staff:eve", reason="")

    assert Run.objects.filter(user=anon).count() == before  # nobody would do it
    paused.refresh_from_db()
    assert paused.resumed_by == "staff:eve"


def test_how_an_alert_stood_that_rests_on_what_was_redacted_is_forgotten(
    user: MemoryUser, anon: MemoryUser, with_versions: None, work: Callable[[], None]
) -> None:
    open_alert(anon, "m-1")
    open_alert(anon, "m-1", "m-2")
    Alert.objects.filter(user=anon).update(entries=[1])
    row = merged(user, anon)
    assert len(row.alerts) == 2

    redaction.redact(user, copies.became(row, [1]).values(), by="key:x", reason="")
    work()

    row.refresh_from_db()
    assert row.alerts == {}


def test_a_merge_that_begins_while_somebody_redacts_is_heeded(
    user: MemoryUser, anon: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(anon, said("secret"))
    lock, rivals = copies.lock, [lambda: merged(user, anon)]

    def lock_after_a_rival(pks: Any) -> Any:
        if rivals:
            rivals.pop()()
        return lock(pks)

    monkeypatch.setattr(copies, "lock", lock_after_a_rival)
    redaction.redact(anon, [1], by="key:x", reason="")

    assert contents(user) == [None, None]
    assert contents(anon) == [None, None]


def test_a_chain_of_merges_is_redacted_from_end_to_end(
    user: MemoryUser, anon: MemoryUser, work: Callable[[], None]
) -> None:
    eve = create_user(user.workspace, "eve", metadata=None)
    told(user, said("mine"))
    told(anon, said("secret"))
    merged(user, anon)
    merged(eve, user)
    with pytest.raises(UserMerged, match="anon-123 was merged into eve"):
        told(anon, said("more"))

    redaction.redact(anon, [1], by="key:x", reason="")
    work()

    assert contents(eve) == ["mine", None, None]
    assert contents(user) == ["mine", None, None]
    assert sound(user, anon, eve)


def test_redacted_entry_is_not_copied(user: MemoryUser, anon: MemoryUser) -> None:
    told(anon, said("a"), said("secret"), said("c"))
    redaction.redact(anon, [2], by="key:x", reason="")
    with pytest.raises(BeingRedacted):
        merging.merge(user, anon, by="key:x")
    with pytest.raises(BeingRedacted):
        merging.merge(anon, user, by="key:x")
    tasks.work("redactions", anon.pk)

    row = merged(user, anon)

    assert contents(user) == ["a", "c"]
    assert (row.copied, row.last_seq) == (2, 4)
    assert sound(user, anon)


def test_entry_redacted_during_the_copy_is_not_copied(
    user: MemoryUser, anon: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "BATCH", 1)
    monkeypatch.setattr(merging, "MAX_BATCHES", 1)
    monkeypatch.setattr(tasks, "TURN_SECONDS", 0)
    told(anon, said("a"), said("b"), said("secret"), said("d"))
    row = merging.merge(user, anon, by="key:x")
    tasks.work("merges", row.pk)
    redaction.redact(anon, [1, 3], by="key:x", reason="")

    merged(user, anon)

    assert contents(user) == [None, None, "b", "d"]
    assert sound(user, anon)


def test_invalid_merge_is_refused(user: MemoryUser, anon: MemoryUser) -> None:
    def refused(into: MemoryUser, other: MemoryUser) -> str:
        with pytest.raises(MergeRefused) as raised:
            merging.merge(into, other, by="key:x")
        return str(raised.value)

    bob = create_user(user.workspace, "bob", metadata=None)
    foreign = create_user(Workspace.objects.create(name="other"), "eve", metadata=None)
    assert refused(user, user) == "ada cannot be merged into itself: name another user."
    assert refused(user, foreign) == "eve belongs to another workspace."
    told(anon, said("hello"))
    row = merging.merge(user, anon, by="key:x")
    assert refused(bob, anon) == "anon-123 was already merged into ada."
    assert refused(anon, bob) == "anon-123 was merged into ada: merge bob into that user."
    assert refused(anon, user) == "anon-123 was merged into ada: merge ada into that user."
    assert refused(bob, user) == (
        "anon-123 is still being merged into ada. Try again when that merge is done."
    )
    tasks.work("merges", row.pk)
    merged(bob, user)
    assert refused(anon, bob) == "anon-123 was merged into bob: merge bob into that user."
    assert contents(bob) == ["hello"]


def test_an_imported_project_is_not_lost_silently(user: MemoryUser, anon: MemoryUser) -> None:
    told(anon, fact("a project was imported"))
    Checkpoint.objects.create(
        user=anon, version=1, tree={}, outline={}, seen_seq=1, origin=Origin.IMPORTED, edits=[],
        verdict={"accepted": True},
    )  # fmt: skip

    with pytest.raises(MergeRefused, match="and its records are not in the log: export"):
        merging.merge(user, anon, by="key:x")

    anon.refresh_from_db()
    assert anon.merged_into is None


def test_over_http(api: APIClient, user: MemoryUser, anon: MemoryUser) -> None:
    told(anon, said("hello"))
    address = "/v1/users/ada/merge/"
    assert api.post(address, {"from": "anon-123"}).status_code == 403
    api = new_client(user.workspace, *Scope)
    bodies: list[Any] = [{}, {"from": ""}, {"from": []}, {"from": "anon-123", "more": 1}, [], "x"]
    for body in bodies:
        assert api.post(address, body).status_code == 400, body
    for nobody in ("nobody", "no body", "\u0000", "x" * 200):
        assert api.post(address, {"from": nobody}).status_code in (400, 404), nobody
    assert api.post("/v1/users/nobody/merge/", {"from": "anon-123"}).status_code == 404
    assert api.post(address, {"from": "ada"}).status_code == 409

    answer = api.post(address, {"from": "anon-123"}, HTTP_IDEMPOTENCY_KEY="m1")
    again = api.post(address, {"from": "anon-123"}, HTTP_IDEMPOTENCY_KEY="m1")

    assert answer.status_code == 202, answer.data
    told_of = {"from": "anon-123", "into": "ada", "state": "under_way", "entries": 1, "copied": 0}
    assert {name: answer.data[name] for name in told_of} == told_of
    assert again.headers["Idempotent-Replayed"] == "true"
    tasks.work("merges", Merge.objects.get().pk)
    assert api.post(address, {"from": "anon-123"}).data["state"] == "done"
    closed = "anon-123 was merged into ada: use that user instead."
    for method, path, sent in [
        ("post", "entries/", {"kind": "message", "content": "x"}),
        ("patch", "", {"time_zone": "UTC"}),
        ("post", "query/", {"code": "1"}),
    ]:
        refused = getattr(api, method)(f"/v1/users/anon-123/{path}", sent)
        assert (refused.status_code, refused.data["detail"]) == (409, closed), path
    seen = api.get("/v1/users/anon-123/").data
    assert (seen["merged_into"], seen["entries"]["total"]) == ("ada", 1)
    assert api.get("/v1/users/ada/").data["merged_into"] is None
    entries = {"messages": [{"role": "user", "content": "hi"}], "user_id": "anon-123"}
    assert api.post("/mem0/v3/memories/add/", entries).status_code in (400, 401, 409)
    gone = api.delete("/v1/users/anon-123/entries/1/")
    assert gone.status_code == 202
    assert contents(user) == [None, None]
    assert Run.objects.count() == 0

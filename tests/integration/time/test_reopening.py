"""Outcomes are taken back: entries that were settled wrongly are processed again."""

import datetime
from collections.abc import Callable, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from memory import checkpoints, log, reopening
from memory.checkpoints import Decision
from memory.log import Draft
from memory.models import Checkpoint, EntryOutcome, Lane, LlmCall, MemoryUser
from memory.models.log import EntryKind
from memory.models.runs import RunKind, RunTrigger
from memory.models.workspaces import Scope
from memory.operations.verification import problems
from memory.reopening import REMEMBERED_ANEW, NothingToReopen, Selection
from memory.temporal import rollback
from memory.work import lanes, leases, runs
from memory.workspaces import create_key
from workers import tasks

pytestmark = pytest.mark.django_db

REOPEN = "/v1/users/ada/outcomes/reopen/"


def dismiss(*seqs: int) -> dict[str, Any]:
    return {"op": "dismiss", "reason": "small talk", "sources": list(seqs)}


@pytest.fixture
def settle(user: MemoryUser) -> Callable[..., Checkpoint | None]:
    """Have a language model settle entries by edits."""

    def do(*edits: dict[str, Any], considered: Sequence[int]) -> Checkpoint | None:
        user.refresh_from_db()
        run = runs.queue(
            user,
            RunKind.PROPOSAL,
            RunTrigger.MODEL,
            checkpoint=user.head,
            input={"edits": list(edits), "considered": list(considered)},
        )
        tasks.execute_run(str(run.pk))
        run.refresh_from_db()
        assert run.outcome == "ok", run.error
        user.refresh_from_db()
        return user.head

    return do


@pytest.fixture
def told(user: MemoryUser, settle: Callable[..., Checkpoint | None]) -> MemoryUser:
    """Three facts of two sessions that a model has settled: a note, and two that it dismissed.

    There are also a message with the fact that was found in it, and a typed entry.
    """
    facts = [("I have a dog, Rex.", "s"), ("I moved to Bern.", "s"), ("Hello!", "t")]
    drafts = [
        Draft(kind=EntryKind.FACT, content=text, session_id=session) for text, session in facts
    ]
    log.append(user, drafts, source="test")
    note = {"op": "note", "text": "has a dog, Rex", "sources": [1]}
    settle(note, dismiss(2), considered=[1, 2])
    settle(dismiss(3), considered=[3])
    log.append(user, [Draft(kind=EntryKind.MESSAGE, content="I sing.")], source="test")
    sings = Draft(kind=EntryKind.FACT, content="The user sings.", derived_from=[4])
    log.append(user, [sings], source="memorize")
    settle({"op": "note", "text": "sings", "sources": [4, 5]}, considered=[4, 5])
    pet = {"domain": "pets", "type": "Dog", "key": "rex", "data": {"name": "Rex"}}
    log.append(user, [Draft(kind=EntryKind.RECORD, data=pet)], source="test")
    tasks.checkpoint_records(user.pk)
    user.refresh_from_db()
    return user


def outcomes(user: MemoryUser) -> dict[int, str]:
    return dict(EntryOutcome.objects.filter(user=user).values_list("seq", "outcome"))


BEFORE = {
    1: "covered",
    2: "dismissed",
    3: "dismissed",
    4: "covered",
    5: "covered",
    6: "covered",
}


@pytest.mark.parametrize(
    ("selection", "seqs"),
    [
        (Selection(entries=[2, 6, 99]), {2}),
        (Selection(session_id="s"), {1, 2}),
        (Selection(session_id="s", outcomes=["dismissed"]), {2}),
        (Selection(), {1, 2, 3, 4}),
        # The fact of a message is found again with it; by itself it is processed again.
        (Selection(entries=[4]), {4}),
        (Selection(entries=[5]), {5}),
    ],
)
def test_what_is_chosen_is_pending_again(
    told: MemoryUser, selection: Selection, seqs: set[int]
) -> None:
    head = told.head
    assert head is not None
    # When it is reopened
    done = reopening.reopen(told, selection, by="me", reason="wrong")
    # Then it waits, and the model's lane is due
    facts = {5} if 4 in seqs else set()
    assert (set(done.entries), set(done.dismissed)) == (seqs, facts)
    kept = {seq: outcome for seq, outcome in BEFORE.items() if seq not in seqs}
    assert outcomes(told) == {**kept, **dict.fromkeys(facts, "dismissed")}
    assert Lane.objects.get(user=told, name="structure").due_at is not None
    assert list(problems(told)) == []
    # And a version with the same files says by whom and why
    told.refresh_from_db()
    assert told.head is not None
    assert done.checkpoint == told.head
    assert (told.head.version, told.head.tree) == (head.version + 1, head.tree)
    assert told.head.verdict["reopened"]["by"] == "me"
    if facts:
        assert EntryOutcome.objects.get(user=told, seq=5).reason == REMEMBERED_ANEW


def test_it_says_which_versions_had_settled_what_is_reopened(
    user: MemoryUser, settle: Callable[..., Checkpoint | None]
) -> None:
    # Given a version of a fact, a message that was remembered while that was the newest, and the
    # version of the fact that was found in it
    log.append(user, [Draft(kind=EntryKind.FACT, content="I have a dog.")], source="test")
    settle({"op": "note", "text": "has a dog", "sources": [1]}, considered=[1])
    log.append(user, [Draft(kind=EntryKind.MESSAGE, content="I sing.")], source="test")
    lane = leases.claim(Lane.objects.filter(user=user, name="structure"))
    assert lane is not None
    user.refresh_from_db()
    checkpoints.decide(lane, user, [Decision(2, "covered")])
    lanes.release(lane)
    sings = Draft(kind=EntryKind.FACT, content="The user sings.", derived_from=[2])
    log.append(user, [sings], source="memorize")
    settle({"op": "note", "text": "sings", "sources": [3]}, considered=[3])
    # When the message is reopened, then it is the second version's work that is undone
    done = reopening.reopen(user, Selection(entries=[2]), by="me")
    assert done.checkpoint is not None
    assert done.checkpoint.verdict["reopened"]["versions"] == [2]


def test_reopening_is_undone_by_the_return_to_the_version_before(
    told: MemoryUser, settle: Callable[..., Checkpoint | None]
) -> None:
    # Given entries that were reopened, of which one was settled otherwise since
    head = told.head
    assert head is not None
    reopening.reopen(told, Selection(), by="me")
    settle(dismiss(1), considered=[1])
    # When somebody goes back to the version before
    rollback.restore(told, head.version, reopen=False, by="me")
    # Then all is as it was
    assert outcomes(told) == BEFORE
    assert list(problems(told)) == []
    told.refresh_from_db()
    # And there is nothing more to go back to
    with pytest.raises(rollback.NothingToRestore):
        rollback.restore(told, head.version, reopen=False, by="me")


def test_what_was_remembered_together_is_reopened_together(
    user: MemoryUser, settle: Callable[..., Checkpoint | None]
) -> None:
    # Given a fact of two messages, and one that corrects it
    said = [Draft(kind=EntryKind.MESSAGE, content=text) for text in ("I sing.", "In a choir.")]
    log.append(user, [*said, Draft(kind=EntryKind.MESSAGE, content="No more.")], source="test")
    facts = [("She sings in a choir.", [1, 2]), ("She sings no more.", [3, 4])]
    drafts = [Draft(kind=EntryKind.FACT, content=text, derived_from=seqs) for text, seqs in facts]
    log.append(user, drafts, source="memorize")
    settle(dismiss(1, 2, 3, 4, 5), considered=[1, 2, 3, 4, 5])
    # When one of the messages is reopened
    done = reopening.reopen(user, Selection(entries=[1]), by="me")
    # Then so is the other, and what corrects the fact stays
    assert (set(done.entries), set(done.dismissed)) == ({1, 2}, {4})
    # And a fact that is reopened by its number takes none along
    done = reopening.reopen(user, Selection(entries=[4]), by="me")
    assert (set(done.entries), set(done.dismissed)) == ({4}, set())


def test_the_return_to_a_reopening_undoes_none(
    told: MemoryUser, settle: Callable[..., Checkpoint | None]
) -> None:
    # Given an entry that was reopened and waits, and a return to the version that says so
    done = reopening.reopen(told, Selection(entries=[2]), by="me", reason="secret")
    assert done.checkpoint is not None
    for key in ("bo", "kim"):
        pet = {"domain": "pets", "type": "Dog", "key": key, "data": {"name": key}}
        log.append(told, [Draft(kind=EntryKind.RECORD, data=pet)], source="test")
        tasks.checkpoint_records(told.pk)
        told.refresh_from_db()
        rollback.restore(told, done.checkpoint.version, reopen=False, by="me")
    # Then it waits still
    assert 2 not in outcomes(told)
    assert list(problems(told)) == []
    # And the reason stands where a redaction finds it, alone
    assert "reason" not in done.checkpoint.verdict["reopened"]


def test_what_an_earlier_version_does_not_hold_is_dismissed_and_not_covered(
    told: MemoryUser,
) -> None:
    reopening.reopen(told, Selection(entries=[5]), by="me")

    rollback.restore(told, 1, reopen=False, by="me")

    row = EntryOutcome.objects.get(user=told, seq=5)
    assert (row.outcome, row.reason) == ("dismissed", "excluded by the rollback to version 1")
    assert list(problems(told)) == []


def test_what_a_model_settled_since_a_day(told: MemoryUser) -> None:
    # Given calls of two models, before what was decided
    now = timezone.now()
    EntryOutcome.objects.filter(user=told, seq__in=[1, 2]).update(
        decided_at=now - datetime.timedelta(days=3)
    )
    for model, days in (("openai:a", 4), ("openai:b", 1)):
        LlmCall.objects.create(
            workspace=told.workspace,
            user=told,
            purpose="structure",
            work="00000000-0000-0000-0000-000000000001",
            turn=1,
            attempt=days,
            model=model,
            prompt_hash="",
            reserved_tokens=0,
            started_at=now - datetime.timedelta(days=days),
            expires_at=now,
        )

    def seqs(**chosen: Any) -> set[int]:
        return {one.seq for one in reopening.select(told, Selection(**chosen))}

    # Then each has settled what came after its call and before the other's
    assert seqs(model="openai:a") == {1, 2}
    assert seqs(model="openai:b") == {3, 4, 5}
    assert seqs(model="openai:a", since=now - datetime.timedelta(days=2)) == set()
    assert seqs(until=now - datetime.timedelta(days=2)) == {1, 2}


def test_nothing_is_reopened_twice(told: MemoryUser) -> None:
    reopening.reopen(told, Selection(entries=[2]), by="me")
    with pytest.raises(NothingToReopen):
        reopening.reopen(told, Selection(entries=[2]), by="me")


def test_it_is_reopened_over_the_api(api: APIClient, told: MemoryUser) -> None:
    assert api.post(REOPEN, {"entries": [3]}).status_code == 403  # it takes the scope manage
    _, text = create_key(told.workspace, "manager", scopes=[Scope.MANAGE])
    api.credentials(HTTP_AUTHORIZATION=f"Bearer {text}")
    refused = api.post(REOPEN, {"reason": "all of it"})
    assert refused.status_code == 400
    assert "Select the entries" in str(refused.data)

    answer = api.post(REOPEN, {"session_id": "s", "reason": "wrong"})
    assert answer.status_code == 200
    assert answer.data == {"entries": [1, 2], "dismissed": [], "version": 4}
    assert api.post(REOPEN, {"entries": [1]}).status_code == 409


def test_a_moment_without_an_offset_is_one_where_the_user_lives(told: MemoryUser) -> None:
    MemoryUser.objects.filter(pk=told.pk).update(time_zone="Pacific/Kiritimati")  # UTC+14
    _, text = create_key(told.workspace, "manager", scopes=[Scope.MANAGE])
    api = APIClient(HTTP_AUTHORIZATION=f"Bearer {text}")
    now = timezone.localtime(timezone=ZoneInfo("Pacific/Kiritimati")).replace(tzinfo=None)
    hour = datetime.timedelta(hours=1)

    assert api.post(REOPEN, {"until": (now - hour).isoformat()}).status_code == 409
    assert api.post(REOPEN, {"since": (now - hour).isoformat()}).status_code == 200

"""Outcomes are taken back: entries that were settled wrongly are processed again."""

import datetime
from collections.abc import Callable, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.models.workspaces import Scope
from memory.kernel.work import leases
from memory.kernel.workspaces import create_key
from memory.llm import reopening
from memory.llm.reopening import REMEMBERED_ANEW, NothingToReopen, Selection
from memory.log import entry_log, lanes
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, EntryOutcome
from memory.operations.verification import problems
from memory.versions import checkpoints, rollback
from memory.versions.checkpoints import Decision
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import RunTrigger
from tests.edits import dismiss, note
from tests.factories import make_session
from tests.steps import append_texts, head_of, not_none, propose, settle_records

pytestmark = pytest.mark.django_db

REOPEN = "/v1/users/ada/outcomes/reopen/"


Settle = Callable[..., Checkpoint | None]


@pytest.fixture
def settle(user: MemoryUser) -> Settle:
    """Have a language model settle entries by edits."""

    def do(*edits: dict[str, Any], considered: Sequence[int]) -> Checkpoint | None:
        run = propose(user, *edits, considered=considered, trigger=RunTrigger.MODEL)
        assert run.outcome == "ok", run.error
        return user.head

    return do


@pytest.fixture
def told(user: MemoryUser, settle: Settle) -> MemoryUser:
    """Three facts of two sessions that a model has settled: a note, and two that it dismissed.

    There are also a message with the fact that was found in it, and a typed entry.
    """
    append_texts(
        user, "I have a dog, Rex.", "I moved to Bern.", kind=EntryKind.FACT, session_id="s"
    )
    append_texts(user, "Hello!", kind=EntryKind.FACT, session_id="t")
    settle(note("has a dog, Rex", 1), dismiss(2), considered=[1, 2])
    settle(dismiss(3), considered=[3])
    append_texts(user, "I sing.")
    sings = Draft(kind=EntryKind.FACT, content="The user sings.", derived_from=[4])
    entry_log.append(user, [sings], source="memorize")
    settle(note("sings", 4, 5), considered=[4, 5])
    settle_records(user, {"domain": "pets", "type": "Dog", "key": "rex", "data": {"name": "Rex"}})
    return user


def outcomes(user: MemoryUser) -> dict[int, str]:
    return dict(EntryOutcome.objects.filter(user=user).values_list("seq", "outcome"))


BEFORE = {**dict.fromkeys(range(1, 7), "covered"), 2: "dismissed", 3: "dismissed"}


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
def test_reopened_entries_are_pending_again(
    told: MemoryUser, selection: Selection, seqs: set[int]
) -> None:
    head = head_of(told)
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


def test_verdict_names_the_settling_versions(user: MemoryUser, settle: Settle) -> None:
    # Given a version of a fact, a message that was remembered while that was the newest, and the
    # version of the fact that was found in it
    append_texts(user, "I have a dog.", kind=EntryKind.FACT)
    settle(note("has a dog", 1), considered=[1])
    append_texts(user, "I sing.")
    lane = not_none(leases.claim(Lane.objects.filter(user=user, name="structure")))
    user.refresh_from_db()
    checkpoints.commit(lane, user, None, [Decision(2, "covered")])
    lanes.release(lane)
    sings = Draft(kind=EntryKind.FACT, content="The user sings.", derived_from=[2])
    entry_log.append(user, [sings], source="memorize")
    settle(note("sings", 3), considered=[3])
    # When the message is reopened, then it is the second version's work that is undone
    done = reopening.reopen(user, Selection(entries=[2]), by="me")
    assert not_none(done.checkpoint).verdict["reopened"]["versions"] == [2]


def test_restore_undoes_a_reopening(told: MemoryUser, settle: Settle) -> None:
    # Given entries that were reopened, of which one was settled otherwise since
    head = head_of(told)
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


def test_entries_settled_together_are_reopened_together(user: MemoryUser, settle: Settle) -> None:
    # Given a fact of two messages, and one that corrects it
    append_texts(user, "I sing.", "In a choir.", "No more.")
    facts = [("She sings in a choir.", [1, 2]), ("She sings no more.", [3, 4])]
    drafts = [Draft(kind=EntryKind.FACT, content=text, derived_from=seqs) for text, seqs in facts]
    entry_log.append(user, drafts, source="memorize")
    settle(dismiss(1, 2, 3, 4, 5), considered=[1, 2, 3, 4, 5])
    # When one of the messages is reopened
    done = reopening.reopen(user, Selection(entries=[1]), by="me")
    # Then so is the other, and what corrects the fact stays
    assert (set(done.entries), set(done.dismissed)) == ({1, 2}, {4})
    # And a fact that is reopened by its number takes none along
    done = reopening.reopen(user, Selection(entries=[4]), by="me")
    assert (set(done.entries), set(done.dismissed)) == ({4}, set())


def test_the_return_to_a_reopening_undoes_none(told: MemoryUser) -> None:
    # Given an entry that was reopened and waits, and a return to the version that says so
    done = reopening.reopen(told, Selection(entries=[2]), by="me", reason="secret")
    assert done.checkpoint is not None
    for key in ("bo", "kim"):
        pet = {"domain": "pets", "type": "Dog", "key": key, "data": {"name": key}}
        settle_records(told, pet)
        rollback.restore(told, done.checkpoint.version, reopen=False, by="me")
    # Then it waits still
    assert 2 not in outcomes(told)
    assert list(problems(told)) == []
    # And the reason stands where a redaction finds it, alone
    assert "reason" not in done.checkpoint.verdict["reopened"]


def test_entries_excluded_by_rollback_are_dismissed(
    told: MemoryUser,
) -> None:
    reopening.reopen(told, Selection(entries=[5]), by="me")

    rollback.restore(told, 1, reopen=False, by="me")

    row = EntryOutcome.objects.get(user=told, seq=5)
    assert (row.outcome, row.reason) == ("dismissed", "excluded by the rollback to version 1")
    assert list(problems(told)) == []


def test_entries_are_selected_by_model_and_time(told: MemoryUser) -> None:
    # Given calls of two models, before what was decided
    now = timezone.now()
    EntryOutcome.objects.filter(user=told, seq__in=[1, 2]).update(
        decided_at=now - datetime.timedelta(days=3)
    )
    for model, days in (("openai:a", 4), ("openai:b", 1)):
        make_session(told, model=model, at=now - datetime.timedelta(days=days))

    def seqs(**chosen: Any) -> set[int]:
        return {one.seq for one in reopening.select(told, Selection(**chosen))}

    # Then each has settled what came after its call and before the other's
    assert seqs(model="openai:a") == {1, 2}
    assert seqs(model="openai:b") == {3, 4, 5}
    assert seqs(model="openai:a", since=now - datetime.timedelta(days=2)) == set()
    assert seqs(until=now - datetime.timedelta(days=2)) == {1, 2}


def test_entry_is_not_reopened_twice(told: MemoryUser) -> None:
    reopening.reopen(told, Selection(entries=[2]), by="me")
    with pytest.raises(NothingToReopen):
        reopening.reopen(told, Selection(entries=[2]), by="me")


def test_entries_are_reopened_over_the_api(api: APIClient, told: MemoryUser) -> None:
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

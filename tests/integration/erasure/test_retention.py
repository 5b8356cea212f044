"""Retention limits of a workspace: messages, runs, calls of language models."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from django.core.exceptions import ValidationError
from django.utils import timezone

from memory.alerts.models.alerts import Alert, AlertState, Severity
from memory.integrations import merging
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings import overrides
from memory.kernel.users import create_user
from memory.llm.models import LlmCall, LlmOutcome, LlmPurpose
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry, Outcome
from memory.operations.verification import problems
from memory.privacy import redaction, retention
from memory.versions import past_states, redactions
from memory.versions.checkpoints import Redacted
from memory.versions.models.runs import Run, RunStatus
from tests.factories import make_checkpoint, make_run
from tests.integration.erasure.conftest import found
from workers import tasks
from workers.service import dispatching

pytestmark = pytest.mark.django_db

WORDS = "Wolframite"
Aged = Callable[..., Any]


def keep(workspace: Workspace, **days: int) -> None:
    Workspace.objects.filter(pk=workspace.pk).update(
        **{f"keep_{name}_days": number for name, number in days.items()}
    )
    workspace.refresh_from_db()


def ago(days: float) -> datetime.datetime:
    return timezone.now() - datetime.timedelta(days=days)


def say(
    user: MemoryUser,
    monkeypatch: pytest.MonkeyPatch,
    *,
    days: float,
    kind: EntryKind = EntryKind.MESSAGE,
    derived_from: tuple[int, ...] = (),
    decided: bool = True,
) -> LogEntry:
    """Append an entry that was recorded so many days ago."""
    now = ago(days)
    with monkeypatch.context() as then:
        then.setattr("memory.log.entry_log.timezone.now", lambda: now)
        draft = Draft(kind=kind, content=WORDS, derived_from=derived_from)
        (entry,) = entry_log.append(user, [draft], source="test")
    if decided:
        EntryOutcome.objects.create(user=user, seq=entry.seq, outcome=Outcome.COVERED)
    return entry


def test_old_messages_lose_their_words(user: MemoryUser, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(user.workspace, messages=30)
    old = say(user, monkeypatch, days=31)
    fact = say(user, monkeypatch, days=31, kind=EntryKind.FACT, derived_from=(old.seq,))
    young = say(user, monkeypatch, days=29)

    assert retention.purge(100) == 1

    for entry in (old, fact, young):
        entry.refresh_from_db()
    assert (old.content, old.source, old.salt) == (None, None, None)
    assert old.redacted_at is not None
    assert fact.content == young.content == WORDS
    assert EntryOutcome.objects.get(user=user, seq=old.seq).outcome == Outcome.COVERED
    assert LogEntry.objects.filter(user=user).count() == 3  # nothing was noted
    assert list(problems(user)) == []


def test_an_expired_message_is_not_logged_again_under_its_key(user: MemoryUser) -> None:
    keep(user.workspace, messages=30)
    draft = Draft(kind=EntryKind.MESSAGE, content=WORDS, idempotency_key="k")
    with time_machine.travel(ago(31)):
        (old,) = entry_log.append(user, [draft], source="test")
        EntryOutcome.objects.create(user=user, seq=old.seq, outcome=Outcome.COVERED)
    assert retention.purge(100) == 1

    (again,) = entry_log.append(user, [draft], source="test")

    assert (again.seq, again.content) == (old.seq, None)
    assert LogEntry.objects.filter(user=user).count() == 1
    # What another user said under the same key is copied all the same: it may be something else.
    anon = create_user(user.workspace, "anon", metadata=None)
    entry_log.append(anon, [draft], source="test")
    row = merging.merge(user, anon, by="key:x")
    tasks.work("merges", row.pk)
    copy = LogEntry.objects.get(user=user, seq=2)
    assert (copy.content, copy.idempotency_key) == (WORDS, None)


def test_retention_frees_the_quota(user: MemoryUser, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(user.workspace, messages=30)
    old = say(user, monkeypatch, days=31)
    say(user, monkeypatch, days=29)
    user.refresh_from_db()
    checkpoint = make_checkpoint(user, seen_seq=2)
    size = user.log_bytes

    assert retention.purge(100) == 1

    past_states.refuse_redacted(checkpoint)
    for asked in ("v1", "1", "2"):
        assert past_states.read_as_of(user, asked).seq in (1, 2)
    assert redactions.redacted_among(user, [1, 2]) == []
    user.refresh_from_db()
    assert user.log_bytes == size // 2
    # And whoever redacts it takes what was made of it, though its words are gone.
    fact = say(user, monkeypatch, days=1, kind=EntryKind.FACT, derived_from=(old.seq,))
    told = redaction.redact(user, [old.seq], by="key:x", reason="")
    assert told.data is not None
    assert told.data["entries"] == [old.seq, fact.seq]
    with pytest.raises(Redacted):
        past_states.refuse_redacted(checkpoint)
    assert redaction.redact(user, [old.seq], by="key:x", reason="").seq == told.seq


def test_messages_of_merged_users_expire(user: MemoryUser, monkeypatch: pytest.MonkeyPatch) -> None:
    anon = create_user(user.workspace, "anon", metadata=None)
    entry = say(anon, monkeypatch, days=31, decided=False)
    keep(user.workspace, messages=30)
    row = merging.merge(user, anon, by="key:x")
    assert retention.purge_workspace(user.workspace, 100) == 0  # it is to be copied

    while merging.waiting().filter(pk=row.pk).exists():
        tasks.work("merges", row.pk)

    assert retention.purge_workspace(user.workspace, 100) == 1
    entry.refresh_from_db()
    assert entry.content is None
    assert list(problems(anon)) == []


def test_pending_messages_do_not_expire(user: MemoryUser, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(user.workspace, messages=30)
    entry = say(user, monkeypatch, days=31, decided=False)
    assert retention.purge_workspace(user.workspace, 100) == 0

    EntryOutcome.objects.create(user=user, seq=entry.seq, outcome=Outcome.COVERED)

    assert retention.purge_workspace(user.workspace, 100) == 1


def test_oldest_messages_expire_in_batches(
    user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(user.workspace, messages=1)
    for days in (5, 4, 3):
        say(user, monkeypatch, days=days)

    assert [retention.purge_workspace(user.workspace, 2) for _ in range(3)] == [2, 1, 0]
    assert not [place for place in found(WORDS) if "logentry" in place]


def test_each_workspace_has_its_own_and_for_ever_is_the_default(
    user: MemoryUser, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    say(user, monkeypatch, days=5000)
    assert retention.purge_workspace(user.workspace, 100) == 0

    settings.UAC_KEEP_MESSAGES_DAYS = 30
    keep(user.workspace, messages=0)
    assert retention.purge_workspace(user.workspace, 100) == 0
    Workspace.objects.update(keep_messages_days=None)
    user.workspace.refresh_from_db()

    assert retention.purge_workspace(user.workspace, 100) == 1


def test_old_runs_go_but_not_what_a_live_alert_was_found_by(user: MemoryUser) -> None:
    keep(user.workspace, runs=30)
    checkpoint = make_checkpoint(user)

    def run(days: float, status: str = RunStatus.DONE) -> Run:
        ended: dict[str, Any] = {"status": status, "outcome": "ok", "finished_at": ago(days)}
        return make_run(checkpoint, **(ended if status == RunStatus.DONE else {}))

    old, young, waiting = run(31), run(29), run(31, RunStatus.QUEUED)
    behind = {state: run(31) for state in (AlertState.OPEN, AlertState.RESOLVED)}
    for state, one in behind.items():
        Alert.objects.create(
            user=user,
            constraint="constraints/a.py",
            fingerprint=state,
            severity=Severity.INFO,
            message="x",
            state=state,
            opened_at=ago(40),
            changed_at=ago(40),
            resolved_at=ago(40) if state == AlertState.RESOLVED else None,
            last_run=one,
        )

    assert retention.purge_workspace(user.workspace, 100) == 2

    left = set(Run.objects.values_list("pk", flat=True))
    assert left == {young.pk, waiting.pk, behind[AlertState.OPEN].pk}
    assert old.pk not in left
    assert Alert.objects.get(state=AlertState.RESOLVED).last_run is None


def test_old_calls_of_language_models_go_after_ninety_days(user: MemoryUser) -> None:
    def call(days: float, outcome: str = LlmOutcome.OK) -> LlmCall:
        return LlmCall.objects.create(
            workspace=user.workspace,
            user=user,
            purpose=LlmPurpose.STRUCTURE,
            work=user.public_id,
            turn=1,
            attempt=1,
            model="openai:x",
            prompt_hash="",
            outcome=outcome,
            reserved_tokens=1,
            started_at=ago(days),
            expires_at=ago(days),
            finished_at=None if outcome == LlmOutcome.STARTED else ago(days),
        )

    old, young, going_on = call(91), call(89), call(91, LlmOutcome.STARTED)

    assert retention.purge_workspace(user.workspace, 100) == 1

    assert set(LlmCall.objects.all()) == {young, going_on}
    assert old not in LlmCall.objects.all()


def test_the_dispatcher_does_it(user: MemoryUser, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(user.workspace, messages=1)
    say(user, monkeypatch, days=2)

    assert dispatching.dispatch()["outlived"] == 1


@pytest.mark.parametrize(
    ("name", "days"),
    [("keep_runs_days", 7), ("keep_messages_days", 36_526), ("keep_llm_calls_days", 10**6)],
)
def test_periods_that_nobody_can_mean_are_refused(
    workspace: Workspace, settings: Any, name: str, days: int
) -> None:
    setattr(workspace, name, days)
    with pytest.raises(ValidationError) as refused:
        workspace.full_clean()
    assert list(refused.value.message_dict) == [name]
    assert "0 means for ever" in str(refused.value)

    setattr(settings, f"UAC_{name.upper()}", days)
    [(wrong, told)] = overrides.validate_server_settings().items()
    assert wrong == f"UAC_{name.upper()}"
    assert told.startswith(f"{wrong} must be between ")

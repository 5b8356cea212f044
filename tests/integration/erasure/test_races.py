"""Erasures while others write, and by workers that are killed."""

import datetime
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from rest_framework.test import APIClient

from memory.kernel.models.hosts import SandboxHost
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings.language_models import Usage
from memory.kernel.users import create_user, is_erased
from memory.kernel.work import leases
from memory.llm import llm_calls
from memory.llm.llm_calls import Attempt, CallSession, Ending
from memory.llm.models import LlmCall, LlmOutcome, LlmPurpose
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind
from memory.privacy import erasure_registry, user_erasure
from memory.privacy.models import UserErasure
from memory.versions import runs
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run, RunKind, RunTrigger
from tests.integration.erasure.conftest import MARKER, finish, found, go_on
from tests.rivals import run_at_once, run_until_killed
from tests.waiting import eventually, scaled
from workers import tasks
from workers.commits import on_head

JustBefore = Callable[[object, str, Callable[[], object]], None]


def append(user: MemoryUser, key: str = "a") -> None:
    data = {"domain": "health", "type": "Medication", "key": key, "data": {"name": MARKER}}
    entry_log.append(user, [Draft(kind=EntryKind.RECORD, data=data)], source="test")


def erase(user: MemoryUser) -> None:
    user_erasure.ask(user, by="test", reason="asked for")


def erase_at_once(user: MemoryUser) -> None:
    erase(user)
    finish(user)


def test_a_checkpoint_that_is_being_made_does_not_come(
    live_database: str, user: MemoryUser, just_before: JustBefore
) -> None:
    append(user)
    just_before(on_head, "_commit", lambda: erase(user))

    tasks.work("records", user.pk)
    row = finish(user)

    assert row.due_at is None
    assert not Checkpoint.objects.filter(user=user).exists()
    assert found() == []


def test_an_answer_that_is_being_computed_is_not_kept(
    live_database: str, user: MemoryUser, just_before: JustBefore
) -> None:
    append(user)
    tasks.work("records", user.pk)
    user.refresh_from_db()
    code = f"[one.name for one in medications if one.name == {MARKER!r}]"
    run = runs.queue(
        user, RunKind.QUERY, RunTrigger.API, checkpoint=user.head, input={"code": code}
    )
    just_before(runs, "finish", lambda: erase_at_once(user))

    tasks.work("runs", str(run.pk))
    row = finish(user)

    assert row.due_at is None
    assert not Run.objects.filter(user=user).exists()
    assert found() == []


def test_a_request_that_waits_for_an_answer_is_told_that_there_is_no_such_user(
    live_database: str, user: MemoryUser, api: APIClient, settings: Any
) -> None:
    settings.UAC_MAX_WAIT_SECONDS = 3600.0
    append(user)
    tasks.work("records", user.pk)
    answers: list[Any] = []

    def ask() -> None:
        answers.append(api.post("/v1/users/ada/query/?wait=3600", {"code": f"'{MARKER}'"}))
        connection.close()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    assert eventually(lambda: Run.objects.filter(kind="query").exists(), 200)

    erase(user)
    finish(user)

    asking.join(scaled(200))
    assert not asking.is_alive(), "it was not woken"
    (answer,) = answers
    assert answer.status_code in (404, 503), answer.data
    assert found() == []


def test_an_answer_of_a_language_model_that_comes_late_is_not_kept(
    live_database: str, user: MemoryUser, settings: Any
) -> None:
    settings.UAC_ENCRYPTION_KEYS = ["0" * 43 + "="]
    Lane.objects.filter(user=user, name=LaneName.STRUCTURE).update(due_at=user.created_at)
    lane = leases.claim(Lane.objects.filter(user=user, name=LaneName.STRUCTURE))
    work = CallSession(workspace=user.workspace, purpose=LlmPurpose.STRUCTURE, user=user, lane=lane)
    attempt = Attempt(
        model="openai:x",
        turn=1,
        attempt=1,
        prompt={"messages": [MARKER]},
        most=Usage(input_tokens=1, output_tokens=1),
        seconds=60,
    )
    call = llm_calls.start(work, attempt, keep_content=True)

    erase(user)
    finish(user)
    ending = Ending(
        outcome=LlmOutcome.OK, seconds=1, error=MARKER, answer={"text": MARKER}, answered_by="x"
    )
    llm_calls.finish(call, ending, keep_content=True)

    row = LlmCall.objects.get()
    assert (row.prompt, row.answer, row.error, row.prompt_hash) == (None, None, "", "")
    with pytest.raises(leases.LeaseLost):
        llm_calls.start(work, attempt, keep_content=True)
    assert found() == []


def test_rows_of_an_open_transaction_are_erased(live_database: str, user: MemoryUser) -> None:
    """The transaction cannot see yet that the user is erased, so the database lets it write."""
    append(user)
    tasks.work("records", user.pk)
    user.refresh_from_db()
    wrote, may_end = threading.Event(), threading.Event()

    def write() -> None:
        with transaction.atomic():
            held = {"user": user, "kind": RunKind.QUERY, "trigger": RunTrigger.API}
            Run.objects.create(**held, checkpoint=None, instant=user.created_at, stdout=MARKER)
            wrote.set()
            assert may_end.wait(scaled(240))
        connection.close()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert wrote.wait(scaled(240))
        erase(user)

        row = go_on(user)
        assert row.due_at is not None, "somebody may still write"
    finally:
        may_end.set()
        writer.join()

    row = finish(user)
    assert row.due_at is None
    assert found() == []


def test_later_write_is_refused_by_the_database(live_database: str, user: MemoryUser) -> None:
    erase(user)

    with pytest.raises(DatabaseError, match="this user was erased") as refused:
        Run.objects.create(
            user=user, kind=RunKind.QUERY, trigger=RunTrigger.API, instant=user.created_at
        )

    assert is_erased(refused.value)


def test_asked_for_by_several_at_once_it_is_done_once(live_database: str, user: MemoryUser) -> None:
    append(user)
    told = []

    def run() -> None:
        told.append(user_erasure.ask(user, by="test", reason="asked for").pk)
        tasks.work("erasures", str(told[0]))

    run_at_once(*[run] * 4)
    row = finish(user)

    assert set(told) == {row.pk}
    assert row.counts["log_entries"] == 1
    assert found() == []


KILLED = """
import os, signal, sys
import django
django.setup()
from memory.privacy import user_erasure as erasing; from memory.kernel.work import leases
after = int(sys.argv[2])
write = leases.write
def counted(*arguments, **columns):
    global after
    after -= 1
    if not after:
        os.kill(os.getpid(), signal.SIGKILL)
    write(*arguments, **columns)
leases.write = counted
erasing.BATCH = 2
from workers import tasks
from workers.commits import on_head
tasks.work("erasures", sys.argv[1])
"""


def test_killed_at_any_batch_another_worker_goes_on(live_database: str, user: MemoryUser) -> None:
    for key in "abcde":
        append(user, key)
        tasks.work("records", user.pk)
    before = {
        model: erasure_registry.rows_of(model, user).count()
        for model in erasure_registry.sort_models()
        if model not in (MemoryUser, UserErasure)
    }
    erase(user)
    row = UserErasure.objects.get()

    for after in (1, 4, 9):
        run_until_killed(KILLED, row.pk, after)
        row.refresh_from_db()
        assert row.due_at is not None
        UserErasure.objects.update(lease_expires_at=None)  # his lease expires
    row = finish(user)

    assert row.due_at is None
    assert found() == []
    for model, number in before.items():
        name = str(model._meta.verbose_name_plural).replace(" ", "_")
        assert row.counts.get(name, 0) == number, name


def test_erasure_waits_until_hosts_hold_nothing(live_database: str, user: MemoryUser) -> None:
    for name in ("one", "two"):
        SandboxHost.objects.create(
            name=name, started_at=user.created_at, seen_at="3000-01-01T00Z", threads=1
        )
    erase(user)

    assert user_erasure.asked_of("one") == user_erasure.asked_of("two") == [user.pk]
    user_erasure.kept_nothing("one", [user.pk])
    assert go_on(user).due_at is not None
    assert (user_erasure.asked_of("one"), user_erasure.asked_of("two")) == ([], [user.pk])
    user_erasure.kept_nothing("two", [user.pk])

    assert finish(user).due_at is None


def test_a_host_that_was_killed_is_waited_for_until_its_sandboxes_are_removed(
    live_database: str, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a slow machine it would fail permanently before the check.
    monkeypatch.setattr(user_erasure, "GONE", datetime.timedelta(hours=1))
    SandboxHost.objects.create(
        name="dead",
        started_at=user.created_at,
        seen_at=user.created_at - 10 * user_erasure.GONE,
        threads=1,
    )
    erase(user)
    assert go_on(user).due_at is not None

    UserErasure.objects.update(created_at=user.created_at - 10 * user_erasure.GONE)

    assert finish(user).due_at is None


def test_users_of_several_workspaces_are_erased_side_by_side(live_database: str) -> None:
    people = [
        create_user(Workspace.objects.create(name=f"w{number}"), "ada", metadata=None)
        for number in range(3)
    ]
    for one in people:
        append(one)
        erase(one)

    assert [finish(one).due_at for one in people] == [None] * 3
    assert found() == []

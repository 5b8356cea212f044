"""A lease that expires while a language model answers, and workers of a model that is stopped."""

import functools
import threading
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings.language_models import Usage
from memory.kernel.users import create_user
from memory.kernel.work import leases
from memory.llm import lane_status, llm_calls, track_records
from memory.llm.llm_calls import Attempt
from memory.llm.llm_calls import CallSession as Calls
from memory.llm.models import LlmCall, LlmPurpose
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind
from memory.operations.verification import problems
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run
from tests.factories import make_session
from tests.integration.admin.test_llm import change
from tests.integration.authoring.conftest import (
    Meanwhile,
    Say,
    Work,
    edits,
    finishes,
    meanwhile,
    quick,
    say,
    taking_notes,
    work,
)
from tests.llm_server import KEY, Reply, Request, llm_server, status
from tests.rivals import Rival, at_once, at_the_lock
from tests.waiting import eventually, scaled
from workers import tasks

__all__ = ["meanwhile", "quick", "say", "work"]


@pytest.mark.django_db
def test_entries_structured_by_a_successor_are_not_proposed_again(
    user: MemoryUser, say: Say, work: Work, meanwhile: Meanwhile
) -> None:
    # Given a fact, and a model that answers so late that another worker does all of it
    (told,) = say("The user likes tea.", kind=EntryKind.FACT)
    note = {"op": "note", "text": "Likes tea.", "sources": [told]}

    def successor() -> None:
        lane = Lane.objects.filter(user=user, name=LaneName.STRUCTURE)
        lane.update(lease_expires_at=timezone.now())
        tasks.work("structure", user.pk)

    meanwhile(successor)
    # When the late answer comes
    server = work(edits(note), edits(note), finishes())
    # Then it is neither gone on with nor proposed
    assert len(server.requests) == 3
    assert Run.objects.filter(user=user).count() == 1
    assert Checkpoint.objects.filter(user=user).count() == 1
    assert entry_log.coverage(user).covered == 1
    assert list(problems(user)) == []


def test_workers_that_claim_at_once_after_the_stop_make_no_call(
    live_database: str, workspace: Workspace, settings: Settings
) -> None:
    # Given users whose entries wait for a model that is stopped
    settings.UAC_LLM_JUDGED_MINIMUM = 2
    people = [
        create_user(workspace, name, time_zone="UTC", metadata=None) for name in ("ada", "ben")
    ]
    for person in people:
        make_session(person, refusals=4)
        fact = Draft(kind=EntryKind.FACT, content="tea", metadata={"urgent": True})
        entry_log.append(person, [fact], source="test")
    with llm_server(script=taking_notes) as server:
        settings.UAC_LLM_MODEL = "openai:the-model"
        settings.UAC_LLM_BASE_URL = server.url_of("openai")
        # When two workers come at the same time, each twice
        acts = [functools.partial(tasks.work, "structure", person.pk) for person in people]
        rivals = at_once(*acts, *acts)
    # Then nobody calls it, all of it waits, and each lane says why
    assert [rival.error for rival in rivals] == [None] * 4
    assert server.requests == []
    assert LlmCall.objects.count() == len(people)
    for person in people:
        assert entry_log.coverage(person).pending == 1
        lane = Lane.objects.get(user=person, name=LaneName.STRUCTURE)
        assert lane.last_error.startswith(track_records.STOPPED)
        assert (lane.attempts, lane.lease_expires_at) == (0, None)


def test_staff_who_save_the_limits_and_a_call_that_begins_do_not_wait_for_each_other(
    live_database: str,
    workspace: Workspace,
    user: MemoryUser,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a lane that is worked on, and somebody of the staff at the workspace's limits
    settings.UAC_LLM_MODEL = "openai:the-model"
    settings.UAC_LLM_API_KEY = KEY
    Lane.objects.filter(user=user, name=LaneName.STRUCTURE).update(due_at=timezone.now())
    lane = leases.claim(Lane.objects.filter(user=user, name=LaneName.STRUCTURE))
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    answers: list[Any] = []
    with at_the_lock(
        lambda: answers.append(change(client, workspace, llm_refused_percent="90"))
    ) as staff:
        # When a call begins, and the limits are saved once its lane is locked
        check = leases.check

        def checked(row: LeasedWork) -> None:
            check(row)
            staff.start_and_wait_for_lock()

        monkeypatch.setattr(leases, "check", checked)
        calls = Calls(workspace=workspace, purpose=LlmPurpose.STRUCTURE, user=user, lane=lane)
        most = Usage(input_tokens=1, output_tokens=1)
        attempt = Attempt(
            model="openai:the-model", turn=1, attempt=1, prompt={}, most=most, seconds=60
        )
        llm_calls.start(calls, attempt, keep_content=False)
    # Then both are done
    assert staff.error is None
    assert answers[0].status_code == 302
    workspace.refresh_from_db()
    assert workspace.llm_refused_percent == 90


@pytest.mark.parametrize(("slow_seconds", "begun"), [(0.0, True), (1000.0, False)])
def test_calls_that_hang_hold_up_no_other_users_first_call(
    live_database: str,
    workspace: Workspace,
    settings: Settings,
    slow_seconds: float,
    begun: bool,
) -> None:
    # Given two thirds of the users who may be worked on at a time, whose calls hang, and more who
    # wait
    settings.UAC_LLM_CONCURRENCY = 6
    settings.UAC_LLM_SLOW_SECONDS = slow_seconds
    settings.UAC_LLM_ATTEMPTS = 1
    names = ["hang1", "hang2", "hang3", "hang4", "five", "six", "seven"]
    people = {name: create_user(workspace, name, time_zone="UTC", metadata=None) for name in names}
    for name, person in people.items():
        fact = Draft(kind=EntryKind.FACT, content=f"{name} likes tea", metadata={"urgent": True})
        entry_log.append(person, [fact], source="test")
    end = threading.Event()

    def answer(request: Request) -> Reply:
        end.wait(scaled(60))
        return status(400)

    def asked() -> list[str]:
        return [name for one in server.requests for name in names if f"{name} likes" in one.text]

    def come(*chosen: str) -> list[Rival]:
        rivals = [
            Rival(functools.partial(tasks.work, "structure", people[name].pk)) for name in chosen
        ]
        for rival in rivals:
            rival.start()
        return rivals

    with llm_server(script=answer) as server:
        settings.UAC_LLM_MODEL = "openai:the-model"
        settings.UAC_LLM_BASE_URL = server.url_of("openai")
        rivals = come(*names[:4])
        try:
            assert eventually(lambda: len(server.requests) == 4)
            assert sorted(asked()) == names[:4]
            # When workers come for the others, while no call has ended
            late = come("five")
            if begun:
                assert eventually(lambda: len(server.requests) == 5)
                late += come("six")
                assert eventually(lambda: len(server.requests) == 6)
            # Then their first calls are begun, in their order, if those before are slow; and never
            # are there more at a time than there may be
            last = come("seven")
            for rival in last if begun else [*late, *last]:
                rival.join(scaled(60))
                assert not rival.is_alive()
            assert asked()[4:] == (["five", "six"] if begun else [])
            assert LlmCall.objects.filter(outcome="started").count() == len(server.requests)
            told = lane_status.read_status(people["seven"])
            working = 6 if begun else 4
            ahead = 0 if begun else 2
            assert (told.state, told.reason) == (
                lane_status.LaneState.DUE,
                f"waiting for its turn: {ahead} ahead in the queue, {working} users are being"
                " processed",
            )
        finally:
            end.set()
            for rival in [*rivals, *late]:
                rival.join(scaled(60))
    assert all(rival.error is None for rival in [*rivals, *late, *last])

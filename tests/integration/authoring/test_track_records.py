"""A model that was stopped for its track record is not called, and nothing is lost."""

import datetime

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.kernel.models.users import LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.kernel.work import leases
from memory.llm import llm_turns, reopening, track_records
from memory.llm.models import LlmCall
from memory.llm.reopening import Selection
from memory.log import lanes
from memory.log.entry_log import coverage
from memory.log.models.entries import EntryKind
from memory.versions import rollback
from memory.versions.models.runs import Run, RunKind, RunOutcome
from tests.edits import dismiss, note
from tests.factories import make_session
from tests.integration.authoring.conftest import (
    LaneNow,
    Meanwhile,
    Say,
    Work,
    asked,
    begins,
    edits,
    finishes,
    numbers_in,
    refuses,
    taking_notes,
)
from tests.llm_server import Reply, Request, status
from tests.steps import head_of, not_none

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def strict(settings: Settings) -> None:
    """Two sessions are enough to judge a model."""
    settings.UAC_LLM_JUDGED_MINIMUM = 2


@pytest.fixture
def other(workspace: Workspace) -> MemoryUser:
    """Another user of the workspace."""
    return create_user(workspace, "ben", time_zone="UTC", metadata=None)


@pytest.fixture
def tea(say: Say) -> int:
    """A fact that waits."""
    return say("The user likes tea.", kind=EntryKind.FACT)[0]


def inventing(request: Request) -> Reply:
    """A model that invents facts."""
    if not begins(request):
        return finishes()
    return edits(note("the moon is made of green cheese", *numbers_in(asked(request))))


def refused(user: MemoryUser, times: int) -> None:
    """Make `times` sessions in which the gate refused the model's edits."""
    for number in range(times):
        at = timezone.now() - datetime.timedelta(minutes=times - number)
        make_session(user, refusals=4, at=at)


def assert_waits(user: MemoryUser, entries: int) -> None:
    counts = coverage(user)
    assert (counts.pending, counts.total) == (entries, entries)


def test_a_model_that_is_refused_again_and_again_is_stopped_and_goes_on_by_the_staff(
    user: MemoryUser, workspace: Workspace, tea: int, work: Work, lane: LaneNow, api: APIClient
) -> None:
    # Given a model whose proposals are refused
    for _ in range(2):
        assert len(work(script=inventing).requests) > 1
    # Which is kept as soon as the last of these sessions has ended
    workspace.refresh_from_db()
    assert list(workspace.llm_stops or {}) == ["openai:the-model"]
    # When there is more to do
    attempts = lane().attempts
    server = work(script=inventing)
    # Then no call is made, the entry waits, and the lane and the API say why
    assert server.requests == []
    assert_waits(user, 1)
    assert lane().last_error.startswith(
        "Stopped by its track record: openai:the-model: after all attempts"
    )
    assert lane().attempts == attempts
    assert lane().run_after > timezone.now()
    told = api.get("/v1/users/ada/").json()["structure"]
    assert (told["state"], told["waiting"]) == ("stopped", 1)
    assert told["reason"] == lane().last_error
    # When the staff let it go on, then it works again, and is judged anew
    track_records.resume(workspace, by="staff:eve", reason="the prompt was wrong")
    assert len(work(script=taking_notes).requests) == 2
    assert coverage(user).covered == 1
    found = track_records.read(Workspace.objects.get(pk=workspace.pk), "openai:the-model")
    assert (found.sessions, found.accepted) == (1, 1)


@pytest.mark.parametrize("how", ["provider", "filter", "budget"])
def test_a_session_that_is_cut_off_is_not_refused_by_the_gate(
    user: MemoryUser, workspace: Workspace, tea: int, work: Work, settings: Settings, how: str
) -> None:
    # Given a model whose proposal the gate refuses once
    settings.UAC_LLM_ATTEMPTS = 1

    def script(request: Request) -> Reply:
        if len(request.body["messages"]) < 6:
            if how == "budget" and not begins(request):
                settings.UAC_LLM_TOKENS_PER_DAY = 0
            return inventing(request)
        return status(503) if how == "provider" else refuses("")

    # When it gets no answer, or none can be asked for, to mend it
    server = work(script=script)
    # Then the session does not count
    assert len(server.requests) == (2 if how == "budget" else 3)
    assert Run.objects.get(user=user, kind=RunKind.PROPOSAL).outcome == RunOutcome.REJECTED
    assert track_records.read(workspace, "openai:the-model").sessions == 0


def test_a_version_is_that_of_the_session_alone_whose_edits_it_has(
    user: MemoryUser, workspace: Workspace, tea: int, say: Say, work: Work
) -> None:
    # Given a version, and a later session that dismisses its entry, which changes no file
    work(script=taking_notes)
    (greeting,) = say("Hello!", kind=EntryKind.FACT)
    work(edits(dismiss(greeting)), finishes())
    # Then both sessions are accepted, and the version is of the first
    assert LlmCall.objects.filter(checkpoint=user.head).values("work").distinct().count() == 1
    found = track_records.read(workspace, "openai:the-model")
    assert (found.sessions, found.refused, found.accepted) == (2, 0, 1)
    # And by what the second settled it is not undone
    reopening.reopen(user, Selection(entries=[greeting]), by="staff:eve")
    assert track_records.read(workspace, "openai:the-model").undone == 0
    reopening.reopen(user, Selection(entries=[1]), by="staff:eve")
    assert track_records.read(workspace, "openai:the-model").undone == 1


def test_another_model_goes_on_by_itself(
    user: MemoryUser, workspace: Workspace, tea: int, work: Work
) -> None:
    # Given a model that is stopped
    refused(user, 2)
    assert work(script=taking_notes).requests == []
    # When the workspace chooses another
    Workspace.objects.filter(pk=workspace.pk).update(llm_model="openai:better")
    server = work(script=taking_notes)
    # Then that one is called
    assert {request.model for request in server.requests} == {"better"}
    assert coverage(user).covered == 1


def test_messages_are_not_memorized_by_a_model_that_is_stopped(
    user: MemoryUser, other: MemoryUser, say: Say, work: Work
) -> None:
    say("I like tea.")
    refused(other, 2)

    assert work(script=taking_notes).requests == []
    assert_waits(user, 1)
    assert not LlmCall.objects.filter(user=user).exists()


def test_another_workspace_is_not_stopped(say: Say, work: Work) -> None:
    elsewhere = Workspace.objects.create(name="elsewhere")
    refused(create_user(elsewhere, "eve", time_zone="UTC", metadata=None), 2)
    say("The user likes tea.", kind=EntryKind.FACT)

    assert len(work(script=taking_notes).requests) == 2


def test_session_stopped_in_the_middle_makes_no_further_call(
    user: MemoryUser, other: MemoryUser, tea: int, work: Work, meanwhile: Meanwhile, lane: LaneNow
) -> None:
    # Given a session during whose first call the model is stopped by what it did elsewhere
    refused(user, 1)
    meanwhile(lambda: refused(other, 1))
    # Then that call was the last, and nothing is lost
    assert len(work(script=taking_notes).requests) == 1
    assert_waits(user, 1)
    assert lane().last_error.startswith(track_records.STOPPED)
    assert (lane().attempts, lane().lease_expires_at) == (0, None)


def test_the_refusal_that_reaches_the_limit_is_the_last_though_its_worker_goes_on(
    user: MemoryUser, other: MemoryUser, say: Say, work: Work
) -> None:
    # Given two entries, which are tried by themselves after they were refused together
    say("The user likes tea.", "The user likes milk.", kind=EntryKind.FACT)
    refused(other, 1)
    # When the first try is refused, which makes two sessions
    server = work(script=inventing)
    # Then the smaller ones are not tried
    assert sum(begins(request) for request in server.requests) == 1
    assert_waits(user, 2)


def test_while_somebody_works_on_the_lane_the_reason_is_not_written_over(
    user: MemoryUser, workspace: Workspace, say: Say, settings: Settings, lane: LaneNow
) -> None:
    settings.UAC_LLM_MODEL = "openai:the-model"
    say("The user likes tea.", kind=EntryKind.FACT, metadata={"urgent": True})
    refused(user, 3)
    held = not_none(leases.claim(lanes.due(LaneName.STRUCTURE).filter(user=user)))

    due = lanes.due(LaneName.STRUCTURE).filter(user=user)
    assert llm_turns.claim(due, workspace.pk) is None

    assert (lane().last_error, lane().token) == ("", held.token)


@pytest.mark.parametrize("how", ["restored", "reopened"])
def test_a_model_whose_edits_are_undone_is_stopped(
    user: MemoryUser, workspace: Workspace, say: Say, work: Work, how: str
) -> None:
    # Given three versions of the model, each of an entry of its own
    for drink in ("tea", "milk", "wine"):
        say(f"The user likes {drink}.", kind=EntryKind.FACT)
        work(script=taking_notes)
    assert head_of(user).version == 3
    # When the staff go back before two of them, or have their entries worked on anew
    if how == "restored":
        rollback.restore(user, 1, reopen=True, by="staff:eve")
    else:
        reopening.reopen(user, Selection(entries=[2, 3]), by="staff:eve")
    # Then the share of two in three stops it
    found = track_records.read(workspace, "openai:the-model")
    assert (found.sessions, found.accepted, found.undone) == (3, 3, 2)
    assert work(script=taking_notes).requests == []
    assert coverage(user).pending == 2

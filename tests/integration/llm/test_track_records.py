"""The track record of a model in a workspace: which sessions count, and when it stops."""

import datetime
import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
import time_machine
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from pytest_django import DjangoAssertNumQueries
from pytest_django.fixtures import Settings

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.llm import track_records
from memory.llm.models import LlmCall
from memory.llm.track_records import TrackRecord
from memory.privacy import retention
from memory.versions.models.checkpoints import Checkpoint, Origin
from tests.factories import make_checkpoint, make_session
from tests.llm_server import KEY
from tests.steps import not_none

pytestmark = pytest.mark.django_db

MODEL = "openai:the-model"
NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)
Sessions: TypeAlias = Callable[..., list[LlmCall]]


@pytest.fixture(autouse=True)
def server_settings(settings: Settings) -> Iterator[None]:
    settings.UAC_LLM_MODEL = MODEL
    settings.UAC_LLM_API_KEY = KEY
    settings.UAC_LLM_JUDGED_SESSIONS = 10
    settings.UAC_LLM_JUDGED_DAYS = 7
    settings.UAC_LLM_JUDGED_MINIMUM = 4
    settings.UAC_LLM_REFUSED_PERCENT = 50
    settings.UAC_LLM_UNDONE_PERCENT = 50
    with time_machine.travel(NOW, tick=False):
        yield


@pytest.fixture
def sessions(user: MemoryUser) -> Sessions:
    """Store sessions, a minute apart up to now.

    `r` was refused, `a` accepted with a version, `d` without one, `-` not judged.
    """

    def do(
        ended: str, *, of: MemoryUser | None = None, before: int = 0, **fields: Any
    ) -> list[LlmCall]:
        whose = of or user
        found = []
        for number, how in enumerate(ended):
            version = Checkpoint.objects.filter(user=whose).count() + 1
            made = make_checkpoint(whose, version, origin=Origin.LLM) if how == "a" else None
            at = NOW - (len(ended) - number + before) * MINUTE
            refusals = 4 if how == "r" else 0
            done = how == "d"
            found.append(
                make_session(whose, made=made, accepted=done, at=at, refusals=refusals, **fields)
            )
        return found

    return do


@pytest.fixture
def record(workspace: Workspace) -> Callable[..., TrackRecord]:
    """Read the record of the model."""

    def do(model: str = MODEL) -> TrackRecord:
        return track_records.read(Workspace.objects.get(pk=workspace.pk), model)

    return do


@pytest.fixture
def reason(workspace: Workspace) -> Callable[[], str | None]:
    """Return why the workspace's model is stopped."""
    return lambda: track_records.why_stopped(Workspace.objects.get(pk=workspace.pk))


Record: TypeAlias = Callable[..., TrackRecord]
Reason: TypeAlias = Callable[[], str | None]


# -- What counts -------------------------------------------------------------------------------


def test_unused_model_has_an_empty_record(record: Record, reason: Reason) -> None:
    assert record() == TrackRecord(model=MODEL)
    assert reason() is None


def test_a_session_is_refused_only_if_nothing_of_it_was_accepted(
    user: MemoryUser, sessions: Sessions, record: Record
) -> None:
    # Given a session that was refused, and one that was refused twice before it was accepted
    sessions("r", before=1)
    made = make_checkpoint(user, origin=Origin.LLM)
    make_session(user, refusals=2, made=made, at=NOW - MINUTE)
    # Then sessions and proposals are told apart
    found = record()
    assert (found.sessions, found.refused, found.accepted) == (2, 1, 1)
    assert (found.proposals, found.proposals_refused) == (7, 6)
    assert found.refused_percent == 50


def test_session_without_judgement_does_not_count(sessions: Sessions, record: Record) -> None:
    sessions("--a-r-")

    assert (record().sessions, record().refused) == (2, 1)


def test_outcome_of_a_session_is_stored_with_its_calls(
    user: MemoryUser, sessions: Sessions, record: Record
) -> None:
    # Given a session of two questions, and another one
    first, other = sessions("--")
    later = LlmCall.objects.get(pk=first.pk)
    later.pk, later.turn = uuid.uuid4(), 2
    later.save(force_insert=True)
    # When it is accepted
    checkpoint = make_checkpoint(user)
    track_records.note_accepted(str(first.work), 3, checkpoint)
    # Then both of its calls lead to the version, and it counts once
    for call in (first, later, other):
        call.refresh_from_db()
    assert [one.checkpoint for one in (first, later, other)] == [checkpoint, checkpoint, None]
    assert [one.accepted for one in (first, later, other)] == [True, None, None]
    assert (record().sessions, record().accepted, record().proposals_refused) == (1, 1, 3)


# -- The window --------------------------------------------------------------------------------


def test_only_the_last_sessions_count(sessions: Sessions, record: Record) -> None:
    sessions("rrrrr", before=10)
    sessions("aaaaaaaaaa")

    assert (record().sessions, record().refused) == (10, 0)


def test_only_days_before_the_newest_session_count(sessions: Sessions, record: Record) -> None:
    # Given two sessions just outside of the seven days before the newest, and one just inside
    week = 7 * 24 * 60
    sessions("rr", before=week + 1)
    sessions("r", before=week - 1)
    sessions("a")

    assert (record().sessions, record().refused) == (2, 1)


def test_a_model_that_was_stopped_stays_so_however_long(sessions: Sessions, reason: Reason) -> None:
    sessions("rrrr")

    with time_machine.travel(NOW + datetime.timedelta(days=60), tick=False):
        assert reason() is not None


# -- The limits --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ended", "stops"),
    [
        ("rrr", False),  # fewer than the minimum
        ("rr--", False),
        ("rrrr", True),
        ("rraa", False),  # at the limit, and not above it
        ("rrraa", True),
        ("rraaa", False),
    ],
)
def test_a_model_is_stopped_above_the_limit_and_not_before_the_minimum(
    sessions: Sessions, reason: Reason, ended: str, stops: bool
) -> None:
    sessions(ended)

    assert (reason() is not None) == stops


def test_reason_names_share_limit_and_fix(sessions: Sessions, reason: Reason) -> None:
    sessions("rrra")

    for figure in ("openai:the-model", "75 %", "last 4 sessions", "limit 50 %", "another model"):
        assert figure in str(reason())


@pytest.mark.parametrize(
    ("ended", "own", "stops"),
    [
        ("rrr", {"llm_judged_minimum": 3}, True),
        ("rrrr", {"llm_judged_minimum": 5}, False),
        ("rrra", {"llm_refused_percent": 75}, False),
        ("raaa", {"llm_refused_percent": 20}, True),
        ("raaaaa", {"llm_judged_sessions": 5, "llm_refused_percent": 0}, False),
        ("rrrr", {"llm_refused_percent": 100}, False),
    ],
)
def test_a_workspace_may_have_limits_of_its_own(
    workspace: Workspace,
    sessions: Sessions,
    reason: Reason,
    ended: str,
    own: dict[str, int],
    stops: bool,
) -> None:
    sessions(ended)
    Workspace.objects.filter(pk=workspace.pk).update(**own)

    assert (reason() is not None) == stops


@pytest.mark.parametrize(
    ("own", "field"),
    [
        ({"llm_refused_percent": 101}, "llm_refused_percent"),
        ({"llm_judged_minimum": 0}, "llm_judged_minimum"),
        ({"llm_judged_minimum": 11}, "llm_judged_minimum"),
        ({"llm_judged_sessions": 3}, "llm_judged_sessions"),
        ({"llm_judged_days": 91}, "llm_judged_days"),
    ],
)
def test_limits_that_contradict_themselves_are_refused(
    workspace: Workspace, own: dict[str, int], field: str
) -> None:
    for name, value in own.items():
        setattr(workspace, name, value)

    with pytest.raises(ValidationError) as refused:
        workspace.clean()

    assert list(refused.value.message_dict) == [field]


# -- Whose record ------------------------------------------------------------------------------


def test_each_model_has_its_own_record(
    sessions: Sessions, record: Record, reason: Reason, settings: Settings
) -> None:
    # Given a user on whom two models worked by turns
    sessions("rr", model="openai:bad", before=20)
    sessions("aa", before=15)
    sessions("rr", model="openai:bad", before=10)
    sessions("aa")
    # Then nothing of the one is told of the other
    assert record("openai:bad").refused == 4
    assert (record().refused, record().accepted) == (0, 4)
    assert reason() is None
    # And the one is stopped as soon as it is chosen
    settings.UAC_LLM_MODEL = "openai:bad"
    assert reason() is not None


def test_each_workspace_has_its_own_record(sessions: Sessions, reason: Reason) -> None:
    other = Workspace.objects.create(name="other")
    sessions("rrrr", of=create_user(other, "ada", time_zone="UTC", metadata=None))
    sessions("aaaa")

    assert reason() is None
    assert track_records.why_stopped(other) is not None


# -- What was undone ---------------------------------------------------------------------------


def returned(user: MemoryUser, version: int) -> None:
    """A rollback to an earlier version."""
    newest = Checkpoint.objects.filter(user=user).count()
    told = {"version": version, "by": "eve", "reason": "", "reopened": False}
    made = make_checkpoint(
        user, newest + 1, origin=Origin.RESTORED, verdict={"accepted": True, "restored": told}
    )
    MemoryUser.objects.filter(pk=user.pk).update(head=made)


def reopened(user: MemoryUser, *versions: int) -> None:
    """A version that reopened entries that these sessions had settled.

    It also reopened one that was settled when version 1 was the newest.
    """
    newest = Checkpoint.objects.filter(user=user).count()
    outcomes = [[number, "covered", version] for number, version in enumerate(versions, 1)]
    outcomes.append([99, "covered", 1])
    told = {"version": newest, "by": "eve", "reason": "", "reopened": True}
    reopened = {"by": "eve", "outcomes": outcomes, "versions": list(versions)}
    verdict = {"accepted": True, "restored": told, "reopened": reopened}
    make_checkpoint(user, newest + 1, origin=Origin.RESTORED, verdict=verdict)


@pytest.mark.parametrize(
    ("happens", "undone"),
    [
        ([], 0),
        ([(returned, 2)], 3),
        ([(returned, 1)], 4),
        ([(returned, 1), (returned, 5)], 4),  # though the return was undone
        ([(returned, 3), (returned, 4)], 2),
        ([(reopened, 2, 4)], 2),
        ([(reopened, 2, 4), (returned, 5)], 2),  # though the reopening was undone
        ([(reopened, 2), (returned, 3)], 3),
        ([(returned, 3), (reopened, 2)], 3),
    ],
)
def test_accepted_edits_are_undone_by_a_return_or_a_reopening(
    user: MemoryUser, sessions: Sessions, record: Record, happens: list[Any], undone: int
) -> None:
    sessions("aaaaa")

    for does, *versions in happens:
        does(user, *versions)

    assert (record().accepted, record().undone) == (5, undone)
    assert record().undone_percent == 20 * undone


def test_a_model_is_stopped_by_what_was_undone(
    user: MemoryUser, sessions: Sessions, reason: Reason
) -> None:
    sessions("aaaa")
    reopened(user, 1, 2)
    assert reason() is None
    reopened(user, 3)
    told = "75 % of the last 4 accepted edits were undone (limit 50 %)"
    assert told in str(reason())


# -- Going on ----------------------------------------------------------------------------------


def test_resumed_model_is_judged_anew(
    workspace: Workspace, sessions: Sessions, record: Record, reason: Reason
) -> None:
    # Given two models that were stopped
    sessions("rrrr", model="openai:other", before=10)
    sessions("rrrr")
    # When the staff let the one go on that is chosen
    assert track_records.resume(workspace, by="staff:eve", reason="prompts mended") == MODEL
    # Then what was before does not count, and the other is as it was
    assert reason() is None
    assert record().sessions == 0
    assert record("openai:other").refused == 4
    told = track_records.resumption(Workspace.objects.get(pk=workspace.pk), MODEL)
    assert told == {"at": NOW.isoformat(), "by": "staff:eve", "reason": "prompts mended"}
    # And it is stopped again by what comes later
    sessions("rrrr", before=-10)
    assert reason() is not None


def judged(workspace: Workspace) -> str | None:
    """Judge the workspace's model, as a worker that claims a user's entries does."""
    with transaction.atomic():
        return track_records.judge(Workspace.objects.select_for_update().get(pk=workspace.pk))


@pytest.mark.parametrize("how", ["retention", "erasure"])
def test_a_stop_lasts_though_the_record_is_deleted(
    workspace: Workspace,
    user: MemoryUser,
    sessions: Sessions,
    record: Record,
    reason: Reason,
    settings: Settings,
    how: str,
) -> None:
    # Given a model that was stopped
    sessions("rrrr")
    told = not_none(judged(workspace))
    # When what it was stopped for is gone
    settings.UAC_KEEP_LLM_CALLS_DAYS = 30
    with time_machine.travel(NOW + datetime.timedelta(days=31), tick=False):
        if how == "retention":
            retention.purge_workspace(workspace, 1000)
        else:
            LlmCall.objects.filter(user=user).update(user=None)
        # Then it is stopped all the same, for whoever asks
        assert record().sessions == 0
        assert (record().stopped, reason(), judged(workspace)) == (told, told, told)
        # And goes on when the staff say so
        track_records.resume(workspace, by="staff:eve", reason="prompts mended")
        assert (reason(), judged(workspace)) == (None, None)


def test_stop_lasts_though_a_limit_is_changed(
    workspace: Workspace, sessions: Sessions, reason: Reason
) -> None:
    # Given a model that was stopped, and has a better record by now
    sessions("rrra", before=10)
    stop = not_none(judged(workspace))
    sessions("aaa")

    Workspace.objects.filter(pk=workspace.pk).update(llm_refused_percent=60)

    assert (reason(), judged(workspace)) == (stop, stop)


def test_workspace_without_a_model_resumes_none(workspace: Workspace, settings: Settings) -> None:
    settings.UAC_LLM_MODEL = ""

    assert track_records.resume(workspace, by="staff:eve", reason="why not") is None
    assert track_records.why_stopped(workspace) is None


# -- What it costs -----------------------------------------------------------------------------


# Rows of a workspace with a long history: other purposes, later questions, and sessions in which
# nothing was judged.
MANY = """
INSERT INTO memory_llmcall (id, workspace_id, user_id, purpose, work, turn, attempt, model,
    answered_by, prompt_hash, instructions, outcome, error, reserved_tokens, started_at, expires_at,
    finished_at)
SELECT gen_random_uuid(), %(workspace)s, %(user)s,
    CASE WHEN n %% 3 = 0 THEN 'memorize' ELSE 'structure' END, gen_random_uuid(), 1 + n %% 10, 1,
    CASE WHEN n %% 2 = 0 THEN 'openai:the-model' ELSE 'openai:other' END, '', repeat('0', 64), '',
    'ok', '', 0, %(now)s - make_interval(mins => 60 + n), %(now)s, %(now)s
FROM generate_series(1, 20000) n
"""


def test_track_record_is_read_by_two_statements_and_by_indexes(
    workspace: Workspace,
    user: MemoryUser,
    sessions: Sessions,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    # Given many calls
    sessions("ra" * 5)
    with connection.cursor() as cursor:
        cursor.execute(MANY, {"workspace": workspace.pk, "user": user.pk, "now": NOW})
    # When the record is read
    with django_assert_num_queries(2) as asked:
        found = track_records.read(workspace, MODEL)
    assert (found.refused, found.accepted) == (5, 5)
    # Then an index leads to the sessions; which one, the statistics decide, which a test has not
    for query in asked.captured_queries:
        plan = explained(query["sql"])
        assert "on memory_llmcall" in plan, plan
        assert "Seq Scan on memory_llmcall" not in plan, plan


def explained(statement: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN ANALYZE {statement}")
        return "\n".join(line for (line,) in cursor.fetchall())


def test_failures_for_one_user_do_not_stop_the_model(
    workspace: Workspace, sessions: Sessions, record: Record, reason: Reason
) -> None:
    ben, eve, kim = (
        create_user(workspace, name, time_zone="UTC", metadata=None)
        for name in ("ben", "eve", "kim")
    )
    # Given a user with most of the sessions, all refused, and two others without trouble
    sessions("rrrrrrrr", before=2)
    for other in (ben, eve):
        sessions("a", of=other)
    # Then no more than a fifth of a window is the user's
    assert (record().refused, record().sessions) == (2, 4)
    assert reason() is None
    # And if it fails for others, too, it stops
    sessions("r", of=kim)
    assert "refused 60 % of the last 5 sessions (limit 50 %)" in str(reason())

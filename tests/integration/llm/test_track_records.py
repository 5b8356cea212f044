"""The track record of a model in a workspace: which sessions count, and when it stops."""

import datetime
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
import time_machine
from django.core.exceptions import ValidationError
from django.db import connection
from pytest_django import DjangoAssertNumQueries
from pytest_django.fixtures import Settings

from memory import states, track_record_settings, track_records
from memory.models import Checkpoint, Lane, LlmCall, MemoryUser, Run, Workspace
from memory.models.checkpoints import Origin
from memory.models.llm import LlmPurpose
from memory.models.runs import RunKind, RunOutcome, RunStatus, RunTrigger
from memory.models.users import LaneName
from memory.track_records import TrackRecord
from memory.users import create_user
from tests.factories import make_checkpoint, make_session
from tests.llm_server import KEY

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
    """Store sessions, a minute apart up to now: `r` was refused, `a` accepted, `-` not judged."""

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
            found.append(make_session(whose, made=made, at=at, refusals=refusals, **fields))
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
    """Say why the workspace's model is stopped."""
    return lambda: track_records.why_stopped(Workspace.objects.get(pk=workspace.pk))


Record: TypeAlias = Callable[..., TrackRecord]
Reason: TypeAlias = Callable[[], str | None]


# -- What counts -------------------------------------------------------------------------------


def test_of_a_model_that_has_done_nothing_there_is_no_record(
    record: Record, reason: Reason
) -> None:
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


def test_a_session_in_which_nothing_was_judged_counts_for_nothing(
    sessions: Sessions, record: Record
) -> None:
    sessions("--a-r-")

    assert (record().sessions, record().refused) == (2, 1)


def test_a_version_counts_though_the_worker_was_killed_before_it_credited_the_calls(
    sessions: Sessions, record: Record
) -> None:
    sessions("aa")
    LlmCall.objects.update(checkpoint=None)

    assert (record().sessions, record().accepted) == (2, 2)


def test_a_check_that_passed_is_no_accepted_proposal(
    user: MemoryUser, sessions: Sessions, record: Record
) -> None:
    sessions("r")
    run = Run.objects.create(
        user=user,
        kind=RunKind.PROPOSAL,
        trigger=RunTrigger.MODEL,
        instant=NOW,
        status=RunStatus.DONE,
        outcome=RunOutcome.OK,
        output={"version": None},
    )
    Run.objects.filter(pk=run.pk).update(queued_at=NOW)

    assert (record().refused, record().accepted) == (1, 0)


def test_what_others_propose_is_not_the_models(
    user: MemoryUser, sessions: Sessions, record: Record
) -> None:
    sessions("-")
    Run.objects.create(
        user=user,
        kind=RunKind.PROPOSAL,
        trigger=RunTrigger.API,
        instant=NOW,
        status=RunStatus.DONE,
        outcome=RunOutcome.REJECTED,
    )

    assert record().sessions == 0


def test_a_session_that_goes_on_does_not_count_yet(
    user: MemoryUser, workspace: Workspace, sessions: Sessions, record: Record
) -> None:
    # Given a worker at the newest session, which was refused once so far
    sessions("rr")
    held = Lane.objects.filter(user=user, name=LaneName.STRUCTURE)
    held.update(lease_expires_at=NOW + MINUTE, lease_owner="somebody")
    # Then it is judged when it is over, or when its worker begins the next
    assert record().sessions == 1
    assert track_records.read(workspace, MODEL, ended_for=user).sessions == 2
    held.update(lease_expires_at=NOW)
    assert record().sessions == 2


@pytest.mark.parametrize(
    ("field", "other"),
    [("purpose", LlmPurpose.MEMORIZE), ("turn", 2), ("attempt", 2)],
)
def test_other_calls_begin_no_session(
    sessions: Sessions, record: Record, field: str, other: Any
) -> None:
    sessions("r")
    LlmCall.objects.update(**{field: other})

    assert record().sessions == 0


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


def test_the_reason_names_the_share_the_limit_and_what_to_do(
    sessions: Sessions, reason: Reason
) -> None:
    sessions("rrra")

    assert reason() == (
        "Stopped by its track record: openai:the-model: the gate refused 75 % of the last 4"
        " proposals in the end (limit 50 %). Entries wait until the staff let it go on, or choose"
        " another model for the workspace."
    )


def test_with_limits_of_100_percent_nothing_is_asked(
    sessions: Sessions,
    reason: Reason,
    settings: Settings,
    workspace: Workspace,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    sessions("rrrr")
    settings.UAC_LLM_REFUSED_PERCENT = settings.UAC_LLM_UNDONE_PERCENT = 100

    with django_assert_num_queries(0):
        assert track_records.why_stopped(workspace) is None


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


def test_each_workspace_has_its_own_record(
    workspace: Workspace, sessions: Sessions, reason: Reason
) -> None:
    other = Workspace.objects.create(name="other")
    sessions("rrrr", of=create_user(other, "ada", time_zone="UTC", metadata=None))
    sessions("aaaa")

    assert reason() is None
    assert track_records.why_stopped(other) is not None


def test_one_user_on_whom_it_fails_does_not_stop_it_for_the_others(
    workspace: Workspace, sessions: Sessions, record: Record, reason: Reason
) -> None:
    # Given a user with most of the sessions, all refused, and two others without trouble
    sessions("rrrrrrrr", before=2)
    for name in ("ben", "eve"):
        sessions("a", of=create_user(workspace, name, time_zone="UTC", metadata=None))
    # Then each user's share counts alike
    assert (record().refused, record().sessions) == (8, 10)
    assert round(record().refused_percent) == 33
    assert reason() is None


# -- What was undone ---------------------------------------------------------------------------


def returned(user: MemoryUser, version: int) -> None:
    """A return to an earlier version."""
    newest = Checkpoint.objects.filter(user=user).count()
    told = {"version": version, "by": "eve", "reason": "", "reopened": False}
    made = make_checkpoint(
        user, newest + 1, origin=Origin.RESTORED, verdict={"accepted": True, "restored": told}
    )
    MemoryUser.objects.filter(pk=user.pk).update(head=made)


def reopened(user: MemoryUser, *versions: int) -> None:
    """A version by which entries were reopened that these had settled."""
    newest = Checkpoint.objects.filter(user=user).count()
    outcomes = [[number, "covered", version] for number, version in enumerate(versions, 1)]
    outcomes.append([99, "dismissed", 1])
    told = {"version": newest, "by": "eve", "reason": "", "reopened": True}
    verdict = {"accepted": True, "restored": told, "reopened": {"by": "eve", "outcomes": outcomes}}
    make_checkpoint(user, newest + 1, origin=Origin.RESTORED, verdict=verdict)


@pytest.mark.parametrize(
    ("happens", "undone"),
    [
        ([], 0),
        ([(returned, 2)], 3),
        ([(returned, 1)], 4),
        ([(returned, 1), (returned, 5)], 0),  # the return was undone
        ([(returned, 3), (returned, 4)], 1),
        ([(reopened, 2, 4)], 2),  # what was dismissed at version 1 was no edit
        ([(reopened, 2, 4), (returned, 5)], 0),  # the reopening was undone
        ([(reopened, 2), (returned, 3)], 2),
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


def test_what_was_left_out_is_what_the_lineage_of_the_newest_version_lacks(
    workspace: Workspace, sessions: Sessions, settings: Settings
) -> None:
    settings.UAC_LLM_JUDGED_SESSIONS = 100
    limits = track_record_settings.holding(workspace.chosen_track_record)
    for first, second in itertools.product(range(1, 5), range(1, 6)):
        # Given two returns, one after the other
        name = f"{first}-{second}"
        user = create_user(workspace, name, time_zone="UTC", metadata=None)
        sessions("aaaa", of=user)
        returned(user, first)
        returned(user, second)
        # Then both ways of reading them agree
        held = states.lineage(Checkpoint.objects.get(user=user, version=6))
        out = {version for version in range(1, 5) if not any(a <= version <= b for a, b in held)}
        found = track_records._sessions(workspace, MODEL, limits, None)
        assert {one.made for one in found if one.undone and one.user == user.pk} == out, name


def test_a_model_is_stopped_by_what_was_undone(
    user: MemoryUser, sessions: Sessions, reason: Reason
) -> None:
    sessions("aaaa")
    reopened(user, 1, 2)
    assert reason() is None
    reopened(user, 3)
    assert "75 % of the last 4 accepted edits were undone (limit 50 %)" in str(reason())


def test_what_time_brings_undoes_nothing(
    user: MemoryUser, sessions: Sessions, record: Record
) -> None:
    sessions("aaaa")
    make_checkpoint(user, 5, origin=Origin.REDACTION)
    make_checkpoint(user, 6, origin=Origin.RECORDS)

    assert record().undone == 0


# -- Going on ----------------------------------------------------------------------------------


def test_who_lets_a_model_go_on_has_it_judged_anew(
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


def test_where_no_model_is_chosen_none_goes_on(workspace: Workspace, settings: Settings) -> None:
    settings.UAC_LLM_MODEL = ""

    assert track_records.resume(workspace, by="staff:eve", reason="why not") is None
    assert track_records.why_stopped(workspace) is None


# -- What it costs -----------------------------------------------------------------------------


# As a workspace leaves them that has been at work for long: other purposes, later questions.
MANY = """
INSERT INTO memory_llmcall (id, workspace_id, user_id, purpose, work, turn, attempt, model,
    answered_by, prompt_hash, outcome, error, reserved_tokens, started_at, expires_at)
SELECT gen_random_uuid(), %(workspace)s, %(user)s,
    CASE WHEN n %% 3 = 0 THEN 'memorize' ELSE 'structure' END, gen_random_uuid(), 1 + n %% 10, 1,
    CASE WHEN n %% 2 = 0 THEN 'openai:the-model' ELSE 'openai:other' END, '', repeat('0', 64),
    'ok', '', 0, %(now)s - make_interval(mins => 60 + n), %(now)s
FROM generate_series(1, 20000) n;
INSERT INTO memory_run (id, user_id, kind, trigger, asked_by, instant, input, answer_key, status,
    outcome, output, stdout, runner, host, timings, queued_at, run_after, lease_owner, token,
    attempts, last_error)
SELECT gen_random_uuid(), %(user)s, CASE WHEN n %% 4 = 0 THEN 'proposal' ELSE 'query' END,
    CASE WHEN n %% 4 = 0 THEN 'model' ELSE 'api' END, '', %(now)s, '{}', '', 'done', 'ok', '{}',
    '', '', '', '{}', %(now)s - make_interval(mins => 60 + n), %(now)s, '', 0, 0, ''
FROM generate_series(1, 20000) n;
ANALYZE memory_llmcall, memory_run, memory_checkpoint
"""


def test_it_is_read_by_one_statement_in_indexes_of_its_own(
    workspace: Workspace,
    user: MemoryUser,
    sessions: Sessions,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    # Given many calls and runs
    sessions("ra" * 5)
    with connection.cursor() as cursor:
        for statement in MANY.split(";\n"):
            cursor.execute(statement, {"workspace": workspace.pk, "user": user.pk, "now": NOW})
    # When the record is read
    with django_assert_num_queries(1) as asked:
        found = track_records.read(workspace, MODEL)
    assert (found.refused, found.accepted) == (5, 5)
    # Then it looks at no more than the first calls of sessions, and what was judged in them
    plan = explained(asked.captured_queries[0]["sql"])
    assert not re.search(r"Seq Scan on memory_(llmcall|run)", plan), plan
    assert "llm_call_of_workspace" not in plan, plan
    for index in ("llm_call_first_of_model", "llm_call_first_of_user", "run_of_model"):
        assert index in plan, plan


def explained(statement: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN ANALYZE {statement}")
        return "\n".join(line for (line,) in cursor.fetchall())

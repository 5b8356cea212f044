"""Alarms: raised and cleared once, whoever looks, and sent to their subscribers."""

import datetime
import json
from collections.abc import Collection, Iterator

import pytest
import structlog
import time_machine
from django.contrib.auth.models import Permission, User
from django.core import mail
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.test.utils import override_settings
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory.alerts.models.staff_mail import StaffSubscription
from memory.kernel.models.hosts import SandboxHost
from memory.kernel.models.operations import Alarm, Heartbeat
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings.language_models import Usage
from memory.kernel.users import create_user
from memory.kernel.work import hosts
from memory.kernel.work.hints import HINT_SECONDS, redis_client
from memory.llm import llm_calls, llm_failures, llm_turns, track_records
from memory.llm.llm_calls import Attempt, CallSession, Ending
from memory.llm.models import LlmOutcome, LlmPurpose
from memory.log import entry_log, lanes
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind
from memory.operations import alarms
from tests.factories import make_session
from tests.llm_server import KEY
from workers.metrics import server_metrics

pytestmark = pytest.mark.django_db

MINUTE = datetime.timedelta(minutes=1)


def later(minutes: float) -> time_machine.travel:
    return time_machine.travel(timezone.now() + minutes * MINUTE, tick=True)


def names() -> set[str]:
    return {problem.name for problem in alarms.problems()}


def raised() -> list[str]:
    return sorted(alarm.name for alarm in alarms.raised())


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recently active dispatcher, a sandbox worker, and queues left by other tests."""
    monkeypatch.setattr(hosts, "SILENT", MINUTE)  # however long a test takes
    redis_client().flushdb()
    all_beat()


def all_beat() -> None:
    alarms.beat(alarms.DISPATCHER)
    host_beat("one")


def host_beat(name: str) -> None:
    hosts.beat(name, started_at=timezone.now(), threads=1, report={})


def waiting_for(user: MemoryUser, minutes: float) -> None:
    entry_log.append(user, [Draft(kind=EntryKind.RECORD, data={"type": "Trip"})], source="t")
    since = timezone.now() - minutes * MINUTE
    Lane.objects.filter(user=user, name=LaneName.RECORDS).update(due_at=since, run_after=since)


def failing(user: MemoryUser, times: int) -> None:
    waiting_for(user, 0)
    Lane.objects.filter(user=user, name=LaneName.RECORDS).update(attempts=times)


def broken() -> Iterator[alarms.AlarmCondition]:
    raise ValueError("a name as long as no column")


def test_healthy_server_raises_no_alarm(healthy: None, user: MemoryUser) -> None:
    waiting_for(user, 4)

    assert names() == set()


def test_a_look_that_fails_is_told_and_hides_nothing_else(
    healthy: None, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting_for(user, 6)

    monkeypatch.setattr(alarms, "LOOKS", {**alarms.LOOKS, "sandbox hosts": broken})

    first, second = sorted(alarms.problems(), key=lambda problem: problem.name)

    assert (first.name, second.name) == ("look: sandbox hosts", "waiting: records")
    assert "failed (ValueError)" in first.detail


def test_alarm_that_cannot_be_checked_is_not_cleared(
    healthy: None, user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting_for(user, 6)
    alarms.evaluate()
    assert raised() == ["waiting: records"]

    with monkeypatch.context() as patch, later(60):
        alarms.beat(alarms.DISPATCHER)
        patch.setattr(alarms, "LOOKS", {"kinds of work": broken})
        alarms.evaluate()
        assert raised() == ["look: kinds of work", "waiting: records"]

    with later(120):
        alarms.evaluate()
    assert "look: kinds of work" not in raised()


def test_missing_database_skips_the_looks(healthy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> Iterator[alarms.AlarmCondition]:
        raise OperationalError("the connection is closed")

    monkeypatch.setattr(alarms, "LOOKS", {"gone": gone, **alarms.LOOKS})

    with pytest.raises(OperationalError):
        list(alarms.problems())


def test_work_that_waits_too_long_is_told_with_its_queue(healthy: None, user: MemoryUser) -> None:
    waiting_for(user, 6)

    [problem] = alarms.problems()

    assert problem.name == "waiting: records"
    assert "typed records: 1 waiting, the oldest for 6 min" in problem.detail
    assert "the sandbox queue" in problem.detail


def test_work_that_stands_back_may_wait_longer(
    healthy: None, user: MemoryUser, settings: Settings
) -> None:
    settings.UAC_LLM_MODEL = "openai:any"
    since = timezone.now() - 60 * MINUTE
    Lane.objects.filter(user=user, name=LaneName.STRUCTURE).update(due_at=since, run_after=since)

    assert names() == set()
    settings.UAC_ALARM_BACKGROUND_SECONDS = 3000
    assert names() == {"waiting: structure"}


def test_failing_work_raises_an_alarm(healthy: None, user: MemoryUser, settings: Settings) -> None:
    failing(user, settings.UAC_STUCK_ATTEMPTS)

    assert names() == {"failing: records"}


def test_a_dispatcher_that_is_silent(healthy: None) -> None:
    Heartbeat.objects.filter(name=alarms.DISPATCHER).update(at=timezone.now() - 2 * MINUTE)

    assert names() == {"dispatcher"}


def test_no_sandbox_worker_is_told_after_a_minute(healthy: None) -> None:
    SandboxHost.objects.all().delete()
    alarms.evaluate()
    assert raised() == []

    with later(2):
        alarms.beat(alarms.DISPATCHER)
        alarms.evaluate()
        assert raised() == ["sandbox hosts"]


def test_a_sandbox_worker_that_was_killed_and_one_that_was_taken_away(healthy: None) -> None:
    for name, minutes in (("killed", 5), ("taken away", 90)):
        host_beat(name)
        SandboxHost.objects.filter(name=name).update(seen_at=timezone.now() - minutes * MINUTE)

    assert names() == {"sandbox host killed"}


@pytest.fixture
def model(settings: Settings) -> str:
    """The name of the language model of all workspaces."""
    settings.UAC_LLM_MODEL = "openai:m"
    settings.UAC_LLM_API_KEY = KEY
    return "openai:m"


def called(
    user: MemoryUser, purpose: LlmPurpose, model: str, outcome: LlmOutcome, minutes: float
) -> None:
    most = Usage(input_tokens=1, output_tokens=1)
    attempt = Attempt(model=model, turn=1, attempt=1, prompt={}, most=most, seconds=9)
    work = CallSession(workspace=user.workspace, purpose=purpose)
    with later(-minutes):
        call = llm_calls.start(work, attempt, keep_content=False)
        llm_calls.finish(call, Ending(outcome=outcome, seconds=1), keep_content=False)


def ended(
    user: MemoryUser, outcome: LlmOutcome, *, minutes: float = 0, model: str = "openai:m"
) -> None:
    """Store a call for the user with this outcome, so many minutes ago.

    Its work waits, if the call failed.
    """
    called(user, LlmPurpose.MEMORIZE, model, outcome, minutes)
    waits = outcome != LlmOutcome.OK
    Lane.objects.filter(user=user, name=LaneName.STRUCTURE).update(
        due_at=timezone.now() if waits else None,
        run_after=timezone.now() + 60 * MINUTE,
        last_error="it was refused" if waits else "",
    )


@pytest.mark.parametrize("outcome", llm_failures.UNUSABLE)
def test_a_model_that_somebody_has_to_mend_is_told_at_once(
    healthy: None, user: MemoryUser, model: str, outcome: LlmOutcome
) -> None:
    ended(user, LlmOutcome.OK, minutes=500)
    ended(user, outcome, minutes=400)

    [problem] = alarms.problems()

    assert problem.name == "model: openai:m"
    assert outcome.label in problem.detail
    assert problem.patience == 0
    # until a call comes to something
    ended(user, LlmOutcome.OK)
    assert names() == set()


def test_a_provider_that_is_not_reached_is_told_after_a_while_and_as_long_as_work_waits(
    healthy: None, user: MemoryUser, model: str, settings: Settings
) -> None:
    ended(user, LlmOutcome.UNAVAILABLE, minutes=120)

    [problem] = alarms.problems()

    assert problem.patience == settings.UAC_ALARM_WAITING_SECONDS
    Lane.objects.filter(user=user, name=LaneName.STRUCTURE).update(due_at=None)
    assert names() == set()


def test_model_failure_is_one_alarm(healthy: None, user: MemoryUser, model: str) -> None:
    other = create_user(Workspace.objects.create(name="other"), "bob", time_zone="UTC", metadata={})
    ended(user, LlmOutcome.WRONG_KEY)
    ended(other, LlmOutcome.RATE_LIMITED)

    [problem] = alarms.problems()

    assert "2 workspaces" in problem.detail
    for outcome in (LlmOutcome.WRONG_KEY, LlmOutcome.RATE_LIMITED):
        assert str(outcome.label) in problem.detail
    assert problem.patience == 0


def test_model_no_longer_used_raises_no_alarm(
    healthy: None, user: MemoryUser, model: str, settings: Settings
) -> None:
    ended(user, LlmOutcome.UNKNOWN_MODEL, model="openai:old")
    assert names() == set()

    ended(user, LlmOutcome.UNKNOWN_MODEL)
    settings.UAC_LLM_MODEL = ""
    assert names() == set()


def embedding_ended(user: MemoryUser, outcome: LlmOutcome) -> None:
    """Store a call for vectors with this outcome."""
    called(user, LlmPurpose.EMBED, "openai:e", outcome, minutes=0)


def test_a_provider_of_embeddings_that_fails_again_and_again_is_told(
    healthy: None, user: MemoryUser, settings: Settings
) -> None:
    settings.UAC_EMBEDDINGS = "openai:e"
    for _ in range(2):
        embedding_ended(user, LlmOutcome.TIMEOUT)
        assert names() == set()
    embedding_ended(user, LlmOutcome.UNAVAILABLE)

    [problem] = alarms.problems()

    assert problem.name == "embeddings"
    assert "openai:e" in problem.detail
    assert str(LlmOutcome.TIMEOUT.label) in problem.detail
    assert problem.patience == settings.UAC_ALARM_WAITING_SECONDS
    # until one is answered
    embedding_ended(user, LlmOutcome.OK)
    assert names() == set()


def test_a_key_for_embeddings_that_is_refused_is_told_at_once_and_for_a_while(
    healthy: None, user: MemoryUser, settings: Settings
) -> None:
    settings.UAC_EMBEDDINGS = "openai:e"
    embedding_ended(user, LlmOutcome.WRONG_KEY)

    [problem] = alarms.problems()

    assert (problem.name, problem.patience) == ("embeddings", 0)
    with later(16):
        alarms.beat(alarms.DISPATCHER)
        assert "embeddings" not in names()
    settings.UAC_EMBEDDINGS = "wordllama"
    assert names() == set()


def test_rejected_prompt_raises_no_alarm(healthy: None, user: MemoryUser, model: str) -> None:
    for outcome in (LlmOutcome.TOO_LONG, LlmOutcome.REFUSED, LlmOutcome.REJECTED):
        ended(user, outcome)

    assert names() == set()


def test_connections_of_which_few_are_left(healthy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    used, most = alarms.connections()
    assert 1 <= used < most

    monkeypatch.setattr(alarms, "CONNECTIONS", used / most / 2)
    assert names() == {"connections"}


@pytest.fixture
def queue() -> Iterator[str]:
    """A queue of the workers with hints in it, emptied afterwards."""
    redis_client().delete("llm")
    yield "llm"
    redis_client().delete("llm")


def hint(minutes: float) -> str:
    expires = timezone.now() - minutes * MINUTE + datetime.timedelta(seconds=HINT_SECONDS)
    return json.dumps({"headers": {"expires": expires.isoformat()}})


def test_a_queue_from_which_nobody_takes(healthy: None, queue: str) -> None:
    redis_client().lpush(queue, hint(6), hint(1))

    [problem] = alarms.problems()

    assert problem.name == "queue: llm"
    assert "has 2 wake-up notifications, the oldest sent 6 min ago" in problem.detail


def test_an_alarm_is_raised_once_and_cleared_once(
    healthy: None, user: MemoryUser, settings: Settings
) -> None:
    failing(user, settings.UAC_STUCK_ATTEMPTS)
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            alarms.evaluate()
        assert raised() == ["failing: records"]

        Lane.objects.filter(user=user).update(attempts=0)
        alarms.evaluate()
        assert raised() == ["failing: records"]  # what comes and goes is told once
        with later(2):
            for _ in range(3):
                all_beat()
                alarms.evaluate()

    assert raised() == []
    assert [(line["event"], line["log_level"], line["alarm"]) for line in lines] == [
        ("alarm_raised", "error", "failing: records"),
        ("alarm_cleared", "warning", "failing: records"),
    ]


def subscribe(
    name: str = "eve", *, operations: bool = True, may: Collection[str] = ("view_alarm",)
) -> None:
    """Have a member of the staff subscribe."""
    eve = User.objects.create(username=name, email=f"{name}@example.org", is_staff=True)
    eve.user_permissions.set(Permission.objects.filter(codename__in=may))
    StaffSubscription.objects.create(staff=eve, operations=operations)


def test_subscriber_is_mailed_when_an_alarm_is_raised_and_cleared(
    healthy: None, user: MemoryUser, settings: Settings
) -> None:
    subscribe()
    subscribe("indifferent", operations=False)
    subscribe("forbidden", may=[])
    settings.UAC_BASE_URL = "https://uac.example.org"
    failing(user, settings.UAC_STUCK_ATTEMPTS)

    for _ in range(3):
        alarms.evaluate()
        alarms.send_mails()

    [told] = mail.outbox
    assert told.recipients() == ["eve@example.org"]
    assert told.subject == "[UaC] ALARM: failing: records"
    assert "typed records: 1 failed 5 times or more" in told.body
    assert "https://uac.example.org/admin/memory/alarm/work/" in told.body

    Lane.objects.filter(user=user).update(attempts=0)
    with later(2):
        all_beat()
        for _ in range(3):
            alarms.evaluate()
            alarms.send_mails()

    assert [one.subject for one in mail.outbox[1:]] == ["[UaC] cleared: failing: records"]


def test_undeliverable_alarm_mail_is_retried(
    healthy: None, user: MemoryUser, settings: Settings
) -> None:
    subscribe()
    failing(user, settings.UAC_STUCK_ATTEMPTS)
    alarms.evaluate()
    smtp = "django.core.mail.backends.smtp.EmailBackend"
    # It is retried after a second, which must not pass meanwhile.
    with time_machine.travel(timezone.now(), tick=False):
        with override_settings(EMAIL_BACKEND=smtp, EMAIL_HOST="127.0.0.1", EMAIL_PORT=1):
            alarms.send_mails()
        alarm = Alarm.objects.get()
        assert (alarm.is_notified, alarm.attempts) == (False, 1)
        assert "ConnectionRefusedError" in alarm.last_error

        alarms.send_mails()
        assert mail.outbox == []  # not before its time
    with later(1):
        alarms.send_mails()

    assert len(mail.outbox) == 1
    assert Alarm.objects.get().is_notified


def test_processes_check_alarms_one_at_a_time(healthy: None, settings: Settings) -> None:
    settings.UAC_ALARM_SECONDS = 15

    assert [alarms.take_turn() for _ in range(3)] == [True, False, False]

    Heartbeat.objects.filter(name=alarms.WATCH).update(at=timezone.now() - MINUTE)
    assert [alarms.take_turn() for _ in range(3)] == [True, False, False]


def test_health_and_metrics_report_what_the_checks_find(
    healthy: None, user: MemoryUser, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("health")
    waiting_for(user, 6)
    failing(create_user(user.workspace, "bob", time_zone="UTC", metadata=None), 5)

    with pytest.raises(CommandError):
        call_command("health")
    assert [line.partition(": ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "waiting",
        "failing",
    ]

    alarms.evaluate()
    gauges = {
        tuple(sample.labels.values())
        for metric in server_metrics.READS[1]()
        for sample in metric.samples
        if sample.name == "uac_alarm"
    }
    assert gauges == {("waiting: records", "critical"), ("failing: records", "warning")}


@pytest.fixture
def refused(user: MemoryUser, model: str, settings: Settings) -> list[MemoryUser]:
    """Two users whose entries wait, since the gate refused all of the model's proposals."""
    settings.UAC_LLM_JUDGED_MINIMUM = 2
    people = [user, create_user(user.workspace, "bob", time_zone="UTC", metadata=None)]
    for one in people:
        make_session(one, model=model, refusals=4, at=timezone.now() - 5 * MINUTE)
    for one in people:
        fact = Draft(kind=EntryKind.FACT, content="tea", metadata={"urgent": True})
        entry_log.append(one, [fact], source="t")
        due = lanes.due(LaneName.STRUCTURE).filter(user=one)
        assert llm_turns.claim(due, user.workspace_id) is None
    return people


def test_stopped_model_raises_one_alarm(healthy: None, refused: list[MemoryUser]) -> None:
    # Given two users who wait because their workspace's model is stopped
    workspace = refused[0].workspace
    subscribe()
    # Then there is one alarm, and one mail
    for _ in range(3):
        alarms.evaluate()
        alarms.send_mails()
    [problem] = alarms.problems()
    assert problem.name == f"stopped: workspace {workspace.pk}, openai:m"
    assert problem.detail.startswith(f"{workspace}: Stopped by its track record: openai:m: after")
    assert [one.subject for one in mail.outbox] == [f"[UaC] ALARM: {problem.name}"]
    # And it is over when the staff let the model go on
    track_records.resume(workspace, by="staff:eve", reason="mended")
    assert names() == set()

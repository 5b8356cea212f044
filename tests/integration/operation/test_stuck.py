"""Stuck work of every kind: its display, and retrying it."""

import datetime

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone

from memory.alerts.delivery import delivery_attempts, outbox, webhook_endpoints
from memory.alerts.models.staff_mail import StaffSubscription
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt, DeliveryState, WebhookEndpoint
from memory.constraints.models.backtests import Backtest, BacktestState
from memory.constraints.models.forecasts import Forecast
from memory.kernel.models.leased import LeasedWork, MortalWork
from memory.kernel.models.operations import Alarm
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.work import leases, stuck
from memory.kernel.work.kinds import KINDS
from memory.kernel.work.stuck import WorkStatus
from memory.log import entry_log, lanes
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind
from memory.versions import runs
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus
from tests.factories import make_checkpoint, make_run
from workers.service import dispatching

pytestmark = pytest.mark.django_db

HOUR = datetime.timedelta(hours=1)


def status_of(name: str) -> WorkStatus:
    return next(one for one in stuck.work_statuses() if one.kind.name == name)


def appended(user: MemoryUser) -> Lane:
    entry_log.append(user, [Draft(kind=EntryKind.RECORD, data={"type": "Trip"})], source="t")
    return Lane.objects.get(user=user, name=LaneName.RECORDS)


def failed(row: LeasedWork, times: int) -> None:
    type(row)._default_manager.filter(pk=row.pk).update(attempts=times, last_error="no sandbox")


def test_every_kind_of_leased_work_is_told_of() -> None:
    kinds = {kind.model for kind in KINDS.values()}
    leased = {model for model in apps.get_models() if issubclass(model, LeasedWork)}

    assert kinds == leased - {Alarm}  # which tells of the others
    mortal = {kind.model for kind in KINDS.values() if kind.mortal}
    assert mortal == {model for model in kinds if issubclass(model, MortalWork)}


def test_work_waits_from_when_a_worker_could_begin(user: MemoryUser) -> None:
    lane = appended(user)
    now = timezone.now()
    Lane.objects.filter(pk=lane.pk).update(due_at=now - 3 * HOUR, run_after=now - HOUR)

    one = status_of("records")

    assert (one.waiting, one.held, one.failing, one.dead) == (1, 0, 0, 0)
    assert 3600 <= one.oldest < 3660


def test_held_and_postponed_work_is_not_waiting(
    user: MemoryUser,
) -> None:
    appended(user)
    lane = leases.claim(Lane.objects.filter(user=user, name=LaneName.RECORDS))
    assert lane is not None
    held = status_of("records")

    leases.fail(lane, "no sandbox", until=timezone.now() + HOUR)
    backing_off = status_of("records")

    assert (held.waiting, held.held, held.oldest) == (0, 1, 0)
    assert (backing_off.waiting, backing_off.held) == (0, 0)


def test_a_lane_waits_since_its_oldest_entry_came(user: MemoryUser) -> None:
    appended(user)
    lane = leases.claim(Lane.objects.filter(user=user, name=LaneName.RECORDS))
    assert lane is not None
    newer = entry_log.append(
        user, [Draft(kind=EntryKind.RECORD, data={"type": "Trip"})], source="t"
    )[0]
    lane.cursor_seq = 1

    assert lanes.release(lane) is True

    lane.refresh_from_db()
    assert lane.due_at == newer.recorded_at


def test_failing_work_is_found_and_retried(
    user: MemoryUser,
) -> None:
    lane = appended(user)
    failed(lane, settings.UAC_STUCK_ATTEMPTS)
    Lane.objects.filter(pk=lane.pk).update(run_after=timezone.now() + HOUR)
    kind = KINDS["records"]

    [found] = stuck.find_stuck(kind, 10)
    assert (found.owner, found.is_dead, found.error) == (user, False, "no sandbox")
    assert found.again_at is not None
    assert found.again_at > timezone.now()
    assert stuck.try_again(kind, [lane.pk]) == 1

    assert leases.claim(kind.work()) == lane


@pytest.mark.parametrize(
    ("kind", "name"),
    [(RunKind.QUERY, "runs"), (RunKind.ASK, "questions")],
    ids=str,
)
def test_abandoned_run_is_dead_until_retried(user: MemoryUser, kind: RunKind, name: str) -> None:
    run = given_up(user, kind)
    assert status_of(name).dead == 1
    assert status_of("questions" if name == "runs" else "runs").dead == 0

    [found] = stuck.find_stuck(KINDS[name], 10)
    assert found.is_dead
    assert stuck.try_again(KINDS[name], [run.pk]) == 1

    run.refresh_from_db()
    assert (run.status, run.outcome, run.attempts) == (RunStatus.QUEUED, "", 0)
    assert runs.claim(str(run.pk)) == run
    assert status_of(name).dead == 0


def given_up(user: MemoryUser, kind: RunKind = RunKind.QUERY) -> Run:
    """Return a run that was given up after its last attempt."""
    run = make_run(make_checkpoint(user), kind=kind)
    failed(run, settings.UAC_MAX_ATTEMPTS)
    assert dispatching.abandon_hopeless_runs() == 1
    return run


def test_a_run_that_was_dismissed_stays_given_up(user: MemoryUser) -> None:
    run = given_up(user)

    assert stuck.dismiss(KINDS["runs"], [run.pk]) == 1

    run.refresh_from_db()
    assert run.outcome == RunOutcome.ABANDONED
    assert stuck.find_stuck(KINDS["runs"], 10) == []


def test_a_run_that_was_redacted_is_not_tried_again(user: MemoryUser) -> None:
    run = given_up(user)
    Run.objects.filter(pk=run.pk).update(error={"type": "redacted"}, input={"redacted": True})

    assert stuck.try_again(KINDS["runs"], [run.pk]) == 0

    run.refresh_from_db()
    assert run.status == RunStatus.DONE


def test_a_webhook_message_that_was_given_up_is_sent_again(user: MemoryUser) -> None:
    message = given_up_after_its_last_try(make_message(user))
    assert status_of("deliveries").dead == 1

    assert stuck.try_again(KINDS["deliveries"], [message.pk]) == 1

    message.refresh_from_db()
    assert (message.state, message.dead_since) == (DeliveryState.PENDING, None)
    assert status_of("deliveries").dead == 0
    assert status_of("deliveries").waiting == 0  # for its endpoint, which fails, and no worker
    webhook_endpoints.enable(message.endpoint)
    assert status_of("deliveries").waiting == 1


def test_a_message_that_was_redacted_is_no_dead_letter(user: MemoryUser) -> None:
    message = given_up_after_its_last_try(make_message(user))

    outbox.redact(user, [message.pk])

    assert status_of("deliveries").dead == 0


def make_message(user: MemoryUser, *, enabled: bool = True) -> Delivery:
    endpoint = WebhookEndpoint.objects.create(
        workspace=user.workspace, url="https://hooks.example/", secret=b"none", enabled=enabled
    )
    return Delivery.objects.create(endpoint=endpoint, type="alert.opened", payload="{}")


def given_up_after_its_last_try(message: Delivery) -> Delivery:
    Delivery.objects.filter(pk=message.pk).update(attempts=50)
    claimed = delivery_attempts.claim(str(message.endpoint_id))
    assert claimed is not None
    attempt = DeliveryAttempt(delivery=claimed, at=timezone.now(), seconds=1, error="500")
    delivery_attempts.record(attempt)
    message.refresh_from_db()
    assert message.state == DeliveryState.GIVEN_UP
    return message


def test_messages_to_an_endpoint_that_is_disabled_do_not_wait(user: MemoryUser) -> None:
    make_message(user, enabled=False)

    assert status_of("deliveries").waiting == 0


def test_a_forecast_that_was_given_up_is_made_again(user: MemoryUser) -> None:
    MemoryUser.objects.filter(pk=user.pk).update(head=make_checkpoint(user))
    forecast = Forecast.objects.create(user=user, dead_since=timezone.now(), last_error="killed")

    assert stuck.try_again(KINDS["forecasts"], [forecast.pk]) == 1

    assert leases.claim(KINDS["forecasts"].work()) == forecast
    assert status_of("forecasts").dead == 0


def test_a_backtest_that_was_given_up_goes_on(user: MemoryUser) -> None:
    dead = Backtest.objects.create(
        workspace=user.workspace,
        user=user,
        constraint="constraints/late.py",
        source_hash="f" * 64,
        days=30,
        most_users=1,
        until=timezone.now(),
        state=BacktestState.FAILED,
        dead_since=timezone.now(),
        finished_at=timezone.now(),
        created_by="t",
    )

    assert stuck.try_again(KINDS["backtests"], [dead.pk]) == 1

    dead.refresh_from_db()
    assert (dead.state, dead.dead_since) == (BacktestState.RUNNING, None)


def test_a_spent_budget_is_no_failure(user: MemoryUser) -> None:
    lane = leases.claim(Lane.objects.filter(user=user, name=LaneName.STRUCTURE))
    assert lane is not None

    leases.fail(lane, "the budget of the day is spent", counts=False)

    lane.refresh_from_db()
    assert lane.attempts == 0


def test_subscriptions_that_fail_are_found_by_whose_they_are() -> None:
    eve = User.objects.create(username="eve", email="eve@example.org", is_staff=True)
    StaffSubscription.objects.create(
        staff=eve, mode="daily", digest_due_at=timezone.now(), attempts=9, last_error="refused"
    )

    [found] = stuck.find_stuck(KINDS["mails"], 10)

    assert (found.owner, found.error) == (eve, "refused")

"""Hints are sent in turn by workspace, and queues without a consumer stay bounded."""

import datetime
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from django.utils import timezone

from memory.constraints import applicability
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.kernel.work import hints
from memory.kernel.work.hints import redis_client, send_hint
from memory.kernel.work.kinds import KINDS, WorkKind
from memory.versions.models.runs import Run
from tests.factories import make_checkpoint
from tests.hints import read_hints
from tests.steps import append_records
from uac_site import celery
from uac_site.celery import app
from workers.service import dispatching
from workers.service.dispatching import in_turn

QUEUES = ("sandbox", "default", "llm")


@pytest.fixture(autouse=True)
def kind(monkeypatch: pytest.MonkeyPatch) -> WorkKind:
    """A kind of work for which the task of this module is called."""
    kind = WorkKind(
        "turns", "test", "default", "memory.log.lanes:due_with_records", "", key="user_id"
    )
    monkeypatch.setitem(cast("dict[str, WorkKind]", KINDS), kind.name, kind)
    return kind


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Empty the queues; no hint expires during a test."""
    monkeypatch.setattr(hints, "HINT_SECONDS", 600)
    _clear()
    yield
    _clear()


def _clear() -> None:
    redis_client().delete(*QUEUES)


def waiting(queue: str) -> list[Any]:
    """Return the first argument of each hint in a queue, oldest first."""
    return [hint.key for hint in read_hints(queue)]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> int:
    """Shorten the queues; return their maximum length."""
    monkeypatch.setattr(celery, "MAX_WAITING", 50)
    return 50 + celery.EVERY


def test_queue_that_nobody_takes_from_stays_bounded(short: int) -> None:
    for number in range(5 * short):
        send_hint("turns", str(number))

    left = waiting("default")
    assert len(left) <= short
    assert left[-1] == str(5 * short - 1)  # it is the oldest that go


def test_ticks_of_beat_do_not_pile_up(short: int) -> None:
    for _ in range(3 * short):
        app.send_task("workers.dispatch", expires=10)

    assert len(read_hints("default")) <= short


@pytest.mark.django_db
def test_the_hint_of_an_append_is_its_workspaces(
    user: MemoryUser, django_capture_on_commit_callbacks: Callable[..., object]
) -> None:
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[attr-defined]
        append_records(user, {"type": "Trip", "data": {"to": "Rome"}})

    [hint] = read_hints("sandbox")
    assert (hint.workspace, hint.user) == (user.workspace_id, user.pk)


def users_of(name: str, number: int) -> list[MemoryUser]:
    workspace = Workspace.objects.create(name=f"{name} {uuid.uuid4()}")
    return [create_user(workspace, f"u{one}", metadata=None) for one in range(number)]


def have_due(users: list[MemoryUser], minutes: int) -> None:
    since = timezone.now() - datetime.timedelta(minutes=minutes)
    Lane.objects.filter(user__in=users, name="records").update(due_at=since, run_after=since)


@pytest.mark.django_db
def test_rows_are_taken_in_turn_by_workspace_and_of_each_the_oldest_first() -> None:
    much, little = users_of("much", 20), users_of("little", 3)
    have_due(little, 1)
    for number, user in enumerate(much):
        have_due([user], 100 - number)

    taken = in_turn(
        Lane.objects.filter(due_at__isnull=False), "run_after", 8, workspace="user__workspace"
    )

    found = [Lane.objects.get(pk=pk).user for pk in taken]
    assert [one.workspace for one in found[:6]] == [much[0].workspace, little[0].workspace] * 3
    assert [one for one in found if one in much] == much[:5]
    assert list(taken.values()) == [one.workspace_id for one in found]


@pytest.mark.django_db
def test_a_tick_tells_of_the_few_although_many_have_waited_longer(kind: WorkKind) -> None:
    much, little = users_of("much", 20), users_of("little", 3)
    have_due(much, 100)
    have_due(little, 1)

    assert dispatching.hint_work(replace(kind, most=8)) == 8
    hinted = Lane.objects.filter(hinted_at__isnull=False)
    assert hinted.filter(user__in=little).count() == 3
    assert set(waiting("default")) >= {user.pk for user in little}
    assert len(waiting("default")) == 8


@pytest.mark.django_db
def test_the_clock_strikes_for_each_workspace_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatching, "BATCH", 6)
    monkeypatch.setattr(applicability, "wants_constraints_run", lambda head: True)
    much, little = users_of("much", 20), users_of("little", 3)
    for user in (*much, *little):
        user.head = make_checkpoint(user)
        minutes = 100 if user in much else 1
        user.constraints_due_at = timezone.now() - datetime.timedelta(minutes=minutes)
        user.save()

    assert dispatching.queue_runs_by_the_clock() == 6

    assert Run.objects.filter(user__in=little).count() == 3

"""Hints are sent in turn by workspace, and queues without a consumer stay bounded."""

import ast
import datetime
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from django.utils import timezone

from memory.constraints import scheduling
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.kernel.work import hints
from memory.kernel.work.hints import IN_FRONT, redis_client, send_hint
from memory.kernel.work.kinds import KINDS, WorkKind
from memory.versions.models.runs import Run
from tests.factories import make_checkpoint
from tests.integration.work.test_consuming import started
from tests.steps import append_records
from tests.waiting import scaled
from uac_site import broker
from uac_site.celery import app
from workers.service import dispatching
from workers.service.dispatching import in_turn

BEHIND = "\x06\x169"
MUCH, LITTLE = 1_000_001, 1_000_002  # workspaces
QUEUES = ("sandbox", "default", "llm")

_order: list[str] = []
_done = threading.Semaphore(0)


@app.task(name="workers.turns")
def task(name: str) -> None:
    _order.append(name)
    _done.release()


@pytest.fixture(autouse=True)
def kind(monkeypatch: pytest.MonkeyPatch) -> WorkKind:
    """A kind of work for which the task of this module is called."""
    kind = WorkKind("turns", "test", "default", "memory.log.lanes:with_records", "", key="user_id")
    monkeypatch.setitem(cast("dict[str, WorkKind]", KINDS), kind.name, kind)
    return kind


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Empty the queues; Redis counts as up, and no hint expires during a test."""
    monkeypatch.setattr(hints, "_silent_until", 0.0)
    monkeypatch.setattr(hints, "HINT_SECONDS", 600)
    _clear()
    yield
    _clear()


def _clear() -> None:
    keys = [queue + suffix for queue in QUEUES for suffix in ("", BEHIND)]
    redis_client().delete(*keys, *redis_client().keys("front:*"))


def waiting(queue: str) -> list[Any]:
    """Return the first argument of each hint in a queue, oldest first."""
    messages: list[bytes] = redis_client().lrange(queue, 0, -1)  # type: ignore[assignment]
    found = [json.loads(message) for message in reversed(messages)]
    return [ast.literal_eval(message["headers"]["argsrepr"])[0] for message in found]


def send(*names: str, workspace: int) -> None:
    for name in names:
        send_hint("turns", name, workspace_pk=workspace)


def test_of_a_workspace_a_few_hints_wait_in_front_and_the_rest_behind_all() -> None:
    names = [f"m{number}" for number in range(IN_FRONT + 5)]

    send(*names, workspace=MUCH)
    send("l", workspace=LITTLE)

    assert waiting("default") == [*names[:IN_FRONT], "l"]
    assert waiting("default" + BEHIND) == names[IN_FRONT:]


def test_what_a_worker_has_taken_makes_room_in_front() -> None:
    send(*map(str, range(IN_FRONT + 1)), workspace=MUCH)
    place = f"front:default:{MUCH}"

    hints.taken(place)
    send("next", "one more", workspace=MUCH)

    assert waiting("default")[-1] == "next"
    assert waiting("default" + BEHIND) == [str(IN_FRONT), "one more"]


def test_places_that_nobody_gives_back_are_free_again_when_their_hints_are_worthless() -> None:
    send(*map(str, range(IN_FRONT + 1)), workspace=MUCH)

    seconds = int(str(redis_client().ttl(f"front:default:{MUCH}")))
    assert 0 < seconds <= hints.HINT_SECONDS
    for _ in range(IN_FRONT + 3):
        hints.taken(f"front:default:{MUCH}")
    assert not redis_client().exists(f"front:default:{MUCH}")


def test_a_worker_takes_what_is_in_front_first_and_gives_the_places_back() -> None:
    _order.clear()
    much = [f"m{number}" for number in range(IN_FRONT + 10)]
    send(*much, workspace=MUCH)
    send("l", workspace=LITTLE)

    with started(1, "default"):
        for _ in range(len(much) + 1):
            assert _done.acquire(timeout=scaled(60))

    assert _order == [*much[:IN_FRONT], "l", *much[IN_FRONT:]]
    assert not redis_client().exists(f"front:default:{MUCH}", f"front:default:{LITTLE}")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> int:
    """Shorten the queues; return their maximum length."""
    monkeypatch.setattr(broker, "MAX_WAITING", 50)
    return 50 + broker.EVERY


@pytest.mark.parametrize("workspace", [None, MUCH])
def test_a_queue_that_nobody_takes_from_does_not_grow_without_end(
    short: int, workspace: int | None
) -> None:
    for number in range(5 * short):
        send_hint("turns", str(number), workspace_pk=workspace)

    left = waiting("default") + waiting("default" + BEHIND)
    assert len(left) <= 2 * short
    assert left[-1] == str(5 * short - 1)  # it is the oldest that go


def test_nor_do_the_ticks_of_beat_pile_up(short: int) -> None:
    for _ in range(3 * short):
        app.send_task("workers.dispatch", expires=10)

    assert len(redis_client().lrange("default", 0, -1)) <= short


@pytest.mark.django_db
def test_the_hint_of_an_append_is_its_workspaces(
    user: MemoryUser, django_capture_on_commit_callbacks: Callable[..., object]
) -> None:
    for _ in range(IN_FRONT + 3):
        with django_capture_on_commit_callbacks(execute=True):  # type: ignore[attr-defined]
            append_records(user, {"type": "Trip", "data": {"to": "Rome"}})

    assert waiting("sandbox") == [user.pk] * IN_FRONT
    assert waiting("sandbox" + BEHIND) == [user.pk] * 3


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
    monkeypatch.setattr(scheduling, "wants_constraints_run", lambda head: True)
    much, little = users_of("much", 20), users_of("little", 3)
    for user in (*much, *little):
        user.head = make_checkpoint(user)
        minutes = 100 if user in much else 1
        user.constraints_due_at = timezone.now() - datetime.timedelta(minutes=minutes)
        user.save()

    assert dispatching.queue_runs_by_the_clock() == 6

    assert Run.objects.filter(user__in=little).count() == 3


@pytest.mark.django_db
def test_two_dispatchers_tell_of_a_row_once(
    monkeypatch: pytest.MonkeyPatch, kind: WorkKind
) -> None:
    monkeypatch.setattr(dispatching, "HINT_AGAIN", datetime.timedelta(hours=1))
    users = users_of("much", 5)
    have_due(users, 1)

    assert [dispatching.hint_work(kind) for _ in range(2)] == [5, 0]

"""Hints of a user go to one live host, and those that wait there are left to the others."""

import datetime
import uuid
from collections.abc import Iterator

import pytest
from django.db import InterfaceError
from django.utils import timezone
from prometheus_client import REGISTRY
from pytest_django import DjangoAssertNumQueries, DjangoCaptureOnCommitCallbacks
from pytest_django.fixtures import Settings

from memory.kernel.models.hosts import SandboxHost
from memory.kernel.models.users import MemoryUser
from memory.kernel.work import hints, hosts, leases
from memory.versions import runs
from memory.versions.models.runs import Run, RunKind, RunTrigger
from memory.versions.runs import queue
from tests.factories import make_checkpoint, make_run
from tests.hints import read_hints
from tests.integration.sandbox.engine import engine_at
from tests.steps import not_none
from workers.sandbox import docker, runner
from workers.service import dispatching
from workers.service.hosting import Host, take_over


def there(*names: str) -> None:
    for name in names:
        hosts.beat(name, started_at=timezone.now(), threads=2, report={"fresh": 3})


@pytest.mark.django_db
@pytest.mark.parametrize("names", [[], ["one"]])
def test_without_a_choice_everything_goes_to_the_shared_queue(names: list[str]) -> None:
    there(*names)

    assert {hosts.route(user) for user in range(50)} == {"sandbox"}


@pytest.mark.django_db
def test_users_are_routed_to_the_queues_of_the_live_hosts() -> None:
    there("one", "two")

    assert {hosts.route(user) for user in range(50)} == {"sandbox.one", "sandbox.two"}


@pytest.mark.django_db
def test_a_host_that_fell_silent_gets_nothing_until_it_speaks_again() -> None:
    there("one", "two", "three")
    silent = SandboxHost.objects.filter(name="two")
    silent.update(seen_at=timezone.now() - hosts.SILENT - datetime.timedelta(seconds=1))
    assert {hosts.route(user) for user in range(50)} == {"sandbox.one", "sandbox.three"}

    there("two")
    hosts._believed_until = 0.0
    assert "sandbox.two" in {hosts.route(user) for user in range(50)}


@pytest.mark.django_db
@pytest.mark.parametrize(("seconds", "is_freed"), [(5, False), (9, True)])
def test_work_of_a_silent_host_is_freed_before_its_lease_ends(
    user: MemoryUser, seconds: int, is_freed: bool
) -> None:
    report = {hosts.PROCESS: leases.process_name()}
    hosts.beat("one", started_at=timezone.now(), threads=2, report=report)
    held = make_run(make_checkpoint(user))
    lost = not_none(runs.claim(str(held.pk)))
    silence = datetime.timedelta(seconds=seconds)
    SandboxHost.objects.update(seen_at=timezone.now() - silence)

    assert dispatching.dispatch()["orphaned"] == is_freed

    successor = runs.claim(str(held.pk))
    assert bool(successor) == is_freed
    if successor:
        with pytest.raises(leases.LeaseLost):
            leases.check(lost)


@pytest.mark.django_db
def test_work_of_other_processes_stays_theirs_when_a_host_falls_silent(user: MemoryUser) -> None:
    longer = {hosts.PROCESS: f"{leases.process_name()}0"}
    hosts.beat("one", started_at=timezone.now(), threads=2, report=longer)
    SandboxHost.objects.update(seen_at=timezone.now() - 2 * hosts.SILENT)
    held = make_run(make_checkpoint(user))
    not_none(runs.claim(str(held.pk)))

    assert dispatching.dispatch()["orphaned"] == 0
    assert runs.claim(str(held.pk)) is None


@pytest.mark.django_db
def test_a_host_that_left_gets_nothing() -> None:
    there("one", "two", "three")
    hosts.leave("two")

    assert {hosts.route(user) for user in range(50)} == {"sandbox.one", "sandbox.three"}
    assert not SandboxHost.objects.filter(name="two").exists()


@pytest.mark.django_db
def test_many_hints_ask_the_database_once(
    django_assert_num_queries: DjangoAssertNumQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "BELIEVED_SECONDS", 60.0)
    there("one", "two")

    with django_assert_num_queries(1):
        for user in range(50):
            hosts.route(user)


@pytest.mark.django_db
def test_missing_database_leads_to_the_shared_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise InterfaceError("gone")

    monkeypatch.setattr(hosts, "live", fail)

    assert hosts.route(1) == "sandbox"


@pytest.mark.django_db
def test_a_host_that_was_killed_long_ago_is_forgotten() -> None:
    there("one", "two")
    SandboxHost.objects.filter(name="two").update(
        seen_at=timezone.now() - hosts.FORGOTTEN - datetime.timedelta(seconds=1)
    )

    hosts.leave("one")

    assert not SandboxHost.objects.exists()


@pytest.mark.django_db
def test_a_queued_run_is_announced_to_its_users_host(
    user: MemoryUser, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    there("one", "two")
    chosen = hosts.queue_of(hosts.choose(["one", "two"], user.pk))
    hints.redis_client().delete(chosen)

    with django_capture_on_commit_callbacks(execute=True):
        queue(user, RunKind.QUERY, RunTrigger.API, checkpoint=make_checkpoint(user))

    assert len(read_hints(chosen)) == 1
    assert Run.objects.get().host == ""
    hints.redis_client().delete(chosen)


@pytest.fixture
def queues() -> Iterator[tuple[str, str]]:
    """Queues of two hosts, not used by other tests; hints moved from them are removed again."""
    client = hints.redis_client()
    names = hosts.queue_of(uuid.uuid4().hex), hosts.queue_of(uuid.uuid4().hex)
    client.delete("sandbox")
    yield names
    client.delete(*names, "sandbox")


def push(queue: str, *messages: str) -> None:
    hints.redis_client().lpush(queue, *messages)


def content(queue: str) -> list[bytes]:
    """Return the messages that wait in the queue, oldest first."""
    waiting: list[bytes] = hints.redis_client().lrange(queue, 0, -1)  # type: ignore[assignment]
    return waiting[::-1]


def test_hints_waiting_twice_are_shared_in_order(
    queues: tuple[str, str],
) -> None:
    first, second = queues
    push(first, "a", "b")
    push(second, "x")
    waiting = take_over(queues, {})
    assert content("sandbox") == []

    push(first, "c")
    take_over(queues, waiting)

    assert sorted(content("sandbox")) == [b"a", b"b", b"x"]
    assert [one for one in content("sandbox") if one != b"x"] == [b"a", b"b"]
    assert content(first) == [b"c"]
    assert content(second) == []


def test_hints_taken_by_their_host_meanwhile_are_not_shared(queues: tuple[str, str]) -> None:
    first, _ = queues
    push(first, "a", "b")
    waiting = take_over(queues, {})

    hints.redis_client().rpop(first)
    push(first, "c")
    take_over(queues, waiting)

    assert content("sandbox") == [b"b"]
    assert content(first) == [b"c"]


@pytest.mark.parametrize(
    ("chosen", "node", "name"),
    [
        ("", "celery@machine-1", "celery@machine-1"),
        ("", "celery@a b:c", "celery@a-b-c"),
        ("rack/7", "celery@machine-1", "rack-7"),
        ("", "n" * 300, "n" * 100),
    ],
)
def test_a_host_is_named_by_the_setting_or_its_node(
    settings: Settings, chosen: str, node: str, name: str
) -> None:
    settings.UAC_SANDBOX_HOST = chosen

    host = Host(node)

    assert host.name == name
    assert host.queue == f"sandbox.{name}"


@pytest.mark.django_db
def test_a_host_that_takes_no_work_gets_none_and_its_users_go_to_another() -> None:
    there("one", "two")
    hosts.beat("two", started_at=timezone.now(), threads=2, report={hosts.PROBLEM: "no engine"})
    assert {hosts.route(user) for user in range(50)} == {"sandbox"}

    there("two")
    hosts._believed_until = 0.0
    assert {hosts.route(user) for user in range(50)} == {"sandbox.one", "sandbox.two"}


@pytest.mark.django_db
def test_host_reports_an_engine_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host("worker")
    with engine_at("unix:///nowhere.sock"), monkeypatch.context() as patch:
        patch.setattr(runner, "problem", docker.problem)
        host._beat(threads=2)

    told = SandboxHost.objects.get(name="worker").report[hosts.PROBLEM]
    assert "the Docker engine does not answer" in told
    assert usable(host) == (False, 0)

    host._beat(threads=2)  # the process runner, of which nothing is known that could fail
    assert hosts.PROBLEM not in SandboxHost.objects.get(name="worker").report
    assert usable(host) == (True, 1)


def usable(host: Host) -> tuple[bool, float | None]:
    """Return whether the host takes work, and the metric that says so."""
    return host.usable, REGISTRY.get_sample_value("uac_sandbox_usable")

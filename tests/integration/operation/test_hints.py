"""Hints and signals may be lost: senders and receivers continue without Redis."""

import socket
import threading
import uuid
from collections.abc import Iterator

import pytest
import redis
from celery import current_app
from django.test import RequestFactory
from kombu.exceptions import OperationalError
from pytest_django.fixtures import DjangoCaptureOnCommitCallbacks, Settings
from structlog.testing import capture_logs

from deploy.embedded.process import free_port
from memory.kernel.admission import rates, refusals
from memory.kernel.models.users import MemoryUser
from memory.kernel.work import hints
from memory.kernel.work.hints import QUICK_SECONDS
from memory.versions import runs
from memory.versions.models.runs import RunKind, RunOutcome
from tests.factories import make_checkpoint, make_run
from tests.hints import read_hints
from tests.steps import not_none
from tests.waiting import scaled
from uac_site import health


@pytest.fixture
def no_redis(settings: Settings) -> Iterator[None]:
    """Point the server at a port where nobody listens."""
    settings.REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"
    hints.redis_client.cache_clear()
    yield
    hints.redis_client.cache_clear()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Wait for Redis for even less time than a server does, and less than other tests do."""
    monkeypatch.setattr(hints, "PATIENCE_SECONDS", 0.2)
    for module in (hints, rates, refusals):
        monkeypatch.setattr(module, "QUICK_SECONDS", QUICK_SECONDS)
    hints.redis_client.cache_clear()
    yield
    hints.redis_client.cache_clear()


def test_a_signal_wakes_who_waits_even_if_it_comes_first_and_goes_by_itself() -> None:
    run = uuid.uuid4()
    hints.signal_done(run)
    assert 0 < int(str(hints.redis_client().ttl(f"done:{run}"))) <= hints.SIGNAL_SECONDS

    hints.wait_done(run, 30)
    hints.wait_done(run, 30)  # whoever comes later is not kept waiting either

    assert hints.redis_client().llen(f"done:{run}") == 1
    assert 0 < int(str(hints.redis_client().ttl(f"done:{run}"))) <= hints.SIGNAL_SECONDS


def test_signal_wakes_all_waiting_requests() -> None:
    run = uuid.uuid4()
    waiting = [threading.Thread(target=hints.wait_done, args=(run, 3600)) for _ in range(3)]
    for one in waiting:
        one.start()

    hints.signal_done(run)

    for one in waiting:
        one.join(scaled(60))
        assert not one.is_alive()


def test_a_wait_lasts_longer_than_the_clients_default_patience(impatient: None) -> None:
    run = uuid.uuid4()
    # This client is patient: the signal arrives, however busy the machine is.
    patient = hints.redis_client(patience=30.0)
    late = threading.Timer(hints.PATIENCE_SECONDS + 0.3, patient.lpush, [f"done:{run}", "1"])
    late.start()

    hints.wait_done(run, 60)

    assert patient.exists(f"done:{run}")  # nobody gave up before it came
    late.join()
    patient.delete(f"done:{run}")


@pytest.mark.timeout(60)
def test_without_redis_signals_and_waits_end_at_once(no_redis: None) -> None:
    with pytest.raises(redis.ConnectionError):
        hints.redis_client().ping()

    with capture_logs() as logs:
        hints.signal_done(uuid.uuid4())
        hints.wait_done(uuid.uuid4(), 3600)  # longer than this test may take

    assert [entry["event"] for entry in logs] == ["signal_not_sent", "wait_failed"]


@pytest.fixture
def hanging_redis(settings: Settings, impatient: None) -> Iterator[socket.socket]:
    """Point the server at a Redis that accepts connections and never answers; return its socket."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings.REDIS_URL = f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        hints.redis_client.cache_clear()
        yield server


def count_connections(server: socket.socket) -> int:
    """Return how many connections arrived since the last call."""
    server.setblocking(False)
    count = 0
    while True:
        try:
            connection, _ = server.accept()
        except BlockingIOError:
            return count
        connection.close()
        count += 1


@pytest.mark.timeout(60)
def test_a_redis_that_hangs_costs_a_moment_and_not_a_thread(hanging_redis: socket.socket) -> None:
    with pytest.raises(redis.TimeoutError):
        hints.redis_client().ping()

    with capture_logs() as logs:
        for _ in range(1000):  # only the first one costs a moment
            hints.signal_done(uuid.uuid4())
        hints.wait_done(uuid.uuid4(), 1)

    assert [entry["event"] for entry in logs] == ["signal_not_sent", "wait_failed"]
    # The ping, the first signal and the wait have each asked once.
    assert count_connections(hanging_redis) == 3


@pytest.mark.parametrize("error", [OperationalError, redis.ConnectionError, OSError])
def test_a_broker_that_does_not_answer_is_no_error_and_the_next_requests_do_not_pay_again(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    asked: list[str] = []

    def refuse(task: str, **options: object) -> None:
        asked.append(task)
        raise error("gone")

    monkeypatch.setattr(current_app, "send_task", refuse)
    for _ in range(3):
        hints.send_hint("mails", 1)

    assert asked == ["workers.mails"]


@pytest.mark.django_db
def test_the_server_is_ready_without_redis_and_says_so(no_redis: None) -> None:
    response = health.ready(RequestFactory().get("/readyz"))

    assert response.status_code == 200
    assert b'"redis": "does not answer"' in response.content


@pytest.mark.django_db
@pytest.mark.parametrize(("kind", "queue"), [(RunKind.ASK, "llm"), (RunKind.QUERY, "sandbox")])
def test_retried_run_is_announced_to_workers_of_its_kind(
    user: MemoryUser,
    kind: RunKind,
    queue: str,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    run = make_run(make_checkpoint(user), kind=kind)
    runs.finish(not_none(runs.claim(str(run.pk))), runs.Result(outcome=RunOutcome.ABANDONED))
    run.refresh_from_db()
    hints.redis_client().delete("llm", "sandbox")

    with django_capture_on_commit_callbacks(execute=True):
        runs.retry(run)

    assert {name: len(read_hints(name)) for name in ("llm", "sandbox")} == {
        "llm": int(queue == "llm"),
        "sandbox": int(queue == "sandbox"),
    }
    hints.redis_client().delete("llm", "sandbox")

"""Calls from several threads and processes, some of which are killed."""

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.utils import timezone

from memory.kernel.models.workspaces import Workspace
from memory.llm.models import LlmCall, LlmOutcome, LlmSpending
from tests.integration.llm.conftest import QUESTION, Connect
from tests.llm_server import KEY, LlmServer, Request, Said, hangs, llm_server, said
from tests.rivals import run_at_once
from tests.services import SERVICES
from tests.waiting import eventually, scaled
from workers.llm.metered import MeteredModel
from workers.service import dispatching

Caller = Callable[..., "subprocess.Popen[str]"]


def runtime_url(database: str) -> str:
    return urlsplit(SERVICES.postgres.runtime_url)._replace(path=f"/{database}").geturl()


@pytest.fixture
def caller(live_database: str, workspace: Workspace) -> Iterator[Caller]:
    """Start a process that calls the workspace's model. Redis is not available to any of them."""
    started: list[subprocess.Popen[str]] = []

    def start(server: LlmServer, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.llm.caller", str(workspace.pk), *arguments],
            env={
                **os.environ,
                "DATABASE_URL": runtime_url(live_database),
                "REDIS_URL": "redis://127.0.0.1:1/0",
                "UAC_ENVIRONMENT": "development",
                "UAC_LLM_MODEL": "openai:the-model",
                "UAC_LLM_BASE_URL": server.openai_url,
                "UAC_LLM_API_KEY": KEY,
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_call_of_killed_worker_frees_its_place(caller: Caller, workspace: Workspace) -> None:
    Workspace.objects.filter(pk=workspace.pk).update(llm_concurrency=1)
    with llm_server(hangs(), said("Hello.")) as server:
        killed = caller(server)
        assert eventually(lambda: server.requests)
        killed.kill()
        killed.wait()

        call = LlmCall.objects.get()
        assert (call.outcome, call.purpose) == (LlmOutcome.STARTED, "check")
        assert call.reserved_tokens > 8192
        assert call.finished_at is None
        LlmCall.objects.update(expires_at=timezone.now())
        assert call.prompt_hash

        dispatching.dispatch()
        output, errors = caller(server).communicate(timeout=scaled(240))

    assert output == "Hello.\n", errors
    outcomes = LlmCall.objects.order_by("started_at").values_list("outcome", flat=True)
    assert list(outcomes) == [LlmOutcome.INTERRUPTED, LlmOutcome.OK]
    assert LlmSpending.objects.get(outcome="interrupted").presumed_tokens == call.reserved_tokens


def test_the_limit_of_calls_at_a_time_is_one_for_all_processes(
    caller: Caller, workspace: Workspace, tmp_path: Path
) -> None:
    Workspace.objects.filter(pk=workspace.pk).update(llm_concurrency=2)

    together = threading.Barrier(2, timeout=scaled(240))

    def meet(request: Request) -> Said:
        together.wait()
        # Until the two others have called, too, and wait for their turn.
        assert eventually(lambda: len(list(tmp_path.iterdir())) == 2 or server.most_at_once > 2)
        return said("Hello.")

    with llm_server(script=meet) as server:
        processes = [
            caller(server, UAC_LLM_TURN_SECONDS="240", REFUSALS=str(tmp_path)) for _ in range(4)
        ]
        ended = [process.communicate(timeout=scaled(240)) for process in processes]

        assert [output for output, _ in ended] == ["Hello.\n"] * 4, ended
        assert len(server.requests) == 4
        assert server.most_at_once == 2
    assert LlmSpending.objects.get().calls == 4


def test_a_budget_is_one_for_all_processes(caller: Caller, workspace: Workspace) -> None:
    Workspace.objects.filter(pk=workspace.pk).update(llm_tokens_per_day=15_000)
    with llm_server(script=lambda request: said("Hello.", tokens=(4000, 1000))) as server:
        processes = [caller(server, UAC_LLM_OUTPUT_TOKENS="4900") for _ in range(4)]
        ended = [process.communicate(timeout=scaled(240)) for process in processes]

        # Each reserves nearly 5000 and uses as much: there is room for three, whoever they are.
        assert sorted(output for output, _ in ended) == ["", *["Hello.\n"] * 3], ended
        assert len(server.requests) == 3
    refused = [errors for output, errors in ended if not output]
    assert all("BudgetExhausted: The budget (tokens per day) is 15,000" in told for told in refused)
    assert LlmSpending.objects.get().input_tokens == 12_000


def test_a_process_that_has_asked_may_fork_and_both_may_ask(caller: Caller) -> None:
    with llm_server(said("parent"), said("child"), said("parent again")) as server:
        output, errors = caller(server, "fork").communicate(timeout=scaled(240))

    assert output.split("\n") == ["parent", "child", "parent again", ""], errors
    assert LlmCall.objects.filter(outcome=LlmOutcome.OK).count() == 3


def test_answer_survives_database_restart(live_database: str, connect: Connect) -> None:
    def restarted(request: Request) -> Said:
        with psycopg.connect(SERVICES.postgres.superuser_url, autocommit=True) as superuser:
            superuser.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [live_database],
            )
        return said("Noted.")

    with llm_server(script=restarted) as server:
        assert connect(server).complete(QUESTION).text == "Noted."

    call = LlmCall.objects.get()
    assert (call.outcome, call.input_tokens) == (LlmOutcome.OK, 100)
    assert LlmSpending.objects.get().calls == 1


def test_threads_ask_side_by_side(live_database: str, connect: Connect) -> None:
    together = threading.Barrier(4, timeout=scaled(100))
    answers: list[str] = []

    def meet(request: Request) -> Said:
        together.wait()
        return said("Noted.")

    def ask(model: MeteredModel) -> None:
        for _ in range(5):
            answers.append(model.complete(QUESTION).text)

    with llm_server(script=meet) as server:
        models = [connect(server) for _ in range(4)]
        run_at_once(*(functools.partial(ask, model) for model in models))
        assert server.most_at_once == 4
    assert answers == ["Noted."] * 20
    spending = LlmSpending.objects.get()
    assert (spending.calls, spending.input_tokens) == (20, 2000)


@pytest.mark.parametrize("module", ["uac_site.wsgi", "workers.tasks", "workers.llm.metered"])
def test_providers_are_loaded_by_the_first_call(module: str, live_database: str) -> None:
    code = (
        f"import django; django.setup(); import sys, {module};"
        "print([name for name in sys.modules if name.partition('.')[0] in"
        " ('pydantic_ai', 'openai', 'anthropic', 'httpx2') or name.startswith('google.genai')])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "UAC_ENVIRONMENT": "development",
            "DATABASE_URL": runtime_url(live_database),
        },
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=scaled(240),
        check=False,
    )

    assert ended.stdout.splitlines()[-1:] == ["[]"], ended.stderr

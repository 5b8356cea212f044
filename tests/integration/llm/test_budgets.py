"""Limits on a workspace's spending and concurrent calls: nothing is sent beyond them."""

import datetime
import itertools
import time
from decimal import Decimal
from typing import Any
from unittest.mock import Mock

import pytest
import time_machine
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings.language_models import NotConfigured, Usage
from memory.llm import llm_budgets, llm_calls, llm_spending
from memory.llm.llm_budgets import BudgetExhausted, TooManyCalls
from memory.llm.llm_calls import Attempt, CallSession, Ending
from memory.llm.models import LlmCall, LlmOutcome, LlmPurpose, LlmSpending
from tests.integration.llm.conftest import NOON, QUESTION, Ask, Connect
from tests.llm_server import Said, hangs, llm_server, said, status
from tests.waiting import eventually
from workers.llm.interface import ProviderUnavailable, TimedOut
from workers.service import dispatching

pytestmark = pytest.mark.django_db

# Maximum tokens of a question of these tests; the answer may have 1000.
MAX_TOKENS = 1100


def budget(workspace: Workspace, **fields: Any) -> None:
    Workspace.objects.filter(pk=workspace.pk).update(**{f"llm_{k}": v for k, v in fields.items()})


def taking(tokens: int) -> Said:
    return said("Noted.", tokens=(tokens - 100, 100))


def attempt(tokens: int = 1000, **fields: Any) -> Attempt:
    values: dict[str, Any] = {
        "model": "openai:the-model",
        "turn": 1,
        "attempt": 1,
        "prompt": {},
        "most": Usage(input_tokens=0, output_tokens=tokens),
        "seconds": 60.0,
    }
    return Attempt(**{**values, **fields})


@pytest.fixture
def work(workspace: Workspace) -> CallSession:
    return CallSession(workspace=workspace, purpose=LlmPurpose.STRUCTURE)


def start(work: CallSession, tokens: int = 1000) -> LlmCall:
    return llm_calls.start(work, attempt(tokens), keep_content=False)


def end(call: LlmCall, tokens: int) -> None:
    usage = Usage(input_tokens=tokens, output_tokens=0)
    ending = Ending(outcome=LlmOutcome.OK, seconds=1, usage=usage)
    assert llm_calls.finish(call, ending, keep_content=False)


@pytest.mark.parametrize(
    ("time", "until"),
    [
        ("day", datetime.datetime(2026, 3, 31, tzinfo=datetime.UTC)),
        ("month", datetime.datetime(2026, 4, 1, tzinfo=datetime.UTC)),
    ],
)
def test_calls_stop_when_the_tokens_are_spent_and_go_on_afterwards(
    connect: Connect, workspace: Workspace, time: str, until: datetime.datetime
) -> None:
    budget(workspace, **{f"tokens_per_{time}": 5000})
    with (
        time_machine.travel(NOON, tick=False) as clock,
        llm_server(taking(4500), taking(200)) as server,
    ):
        model = connect(server)
        model.complete(QUESTION)

        with pytest.raises(BudgetExhausted) as raised:
            model.complete(QUESTION)

        assert len(server.requests) == 1
        assert raised.value.until == until
        told = f"The budget (tokens per {time}) is 5,000, of which 4,500 has been spent"
        assert str(raised.value).startswith(told)
        assert f"{until:%Y-%m-%d} 00:00 UTC" in str(raised.value)
        assert told in str(llm_budgets.why_stopped(Workspace.objects.get(pk=workspace.pk)))
        assert LlmCall.objects.count() == 1

        clock.move_to(until - datetime.timedelta(seconds=1))
        with pytest.raises(BudgetExhausted):
            model.complete(QUESTION)
        clock.move_to(until)
        assert llm_budgets.why_stopped(Workspace.objects.get(pk=workspace.pk)) is None
        model.complete(QUESTION)


@pytest.mark.parametrize("time", ["day", "month"])
def test_calls_stop_once_money_is_spent(connect: Connect, workspace: Workspace, time: str) -> None:
    # An answer of a thousand tokens costs at most a cent.
    budget(workspace, **{f"cost_per_{time}": Decimal("0.05")})
    with llm_server(said("Noted.", tokens=(0, 4500)), said("never")) as server:
        model = connect(server)
        model.complete(QUESTION)

        with pytest.raises(
            BudgetExhausted, match=rf"cost per {time}\) is 0.05.*, of which 0.0450 has been spent"
        ):
            model.complete(QUESTION)

        assert len(server.requests) == 1


def test_a_budget_of_nothing_lets_nothing_pass(connect: Connect, workspace: Workspace) -> None:
    budget(workspace, tokens_per_day=0)
    with llm_server(said("never")) as server:
        with pytest.raises(BudgetExhausted, match="Raise it") as raised:
            connect(server).complete(QUESTION)

        assert server.requests == []
    assert raised.value.until is None


def test_server_budget_holds_per_workspace(settings: Settings, work: CallSession) -> None:
    settings.UAC_LLM_TOKENS_PER_DAY = 2000
    other = Workspace.objects.create(name="other")
    generous = Workspace.objects.create(name="generous", llm_tokens_per_day=1_000_000)
    end(start(work), 1500)

    with pytest.raises(BudgetExhausted):
        start(work)
    start(CallSession(workspace=other, purpose=LlmPurpose.STRUCTURE))
    start(CallSession(workspace=generous, purpose=LlmPurpose.STRUCTURE), 100_000)


def test_a_budget_that_is_raised_holds_at_once(connect: Connect, workspace: Workspace) -> None:
    budget(workspace, tokens_per_day=5000)
    with llm_server(taking(5000), said("Noted.")) as server:
        model = connect(server)
        model.complete(QUESTION)
        with pytest.raises(BudgetExhausted):
            model.complete(QUESTION)

        budget(workspace, tokens_per_day=10_000)

        assert model.complete(QUESTION).text == "Noted."


def test_attempts_that_fail_are_within_the_budget_too(
    connect: Connect, workspace: Workspace, settings: Settings
) -> None:
    """A call without an answer may have been processed.

    Without a usage report it counts as the maximum.
    """
    settings.UAC_LLM_TIMEOUT_SECONDS = 1.0
    settings.UAC_LLM_ATTEMPTS = 10
    budget(workspace, tokens_per_day=3 * MAX_TOKENS)
    with llm_server(*[hangs()] * 10) as server:
        with pytest.raises(BudgetExhausted):
            connect(server).complete(QUESTION)

        assert eventually(lambda: len(server.requests) == 3)
    reserved = LlmCall.objects.values_list("reserved_tokens", flat=True)[0]
    assert LlmSpending.objects.get().presumed_tokens == 3 * reserved <= 3 * MAX_TOKENS


def test_errors_of_the_provider_take_nothing(ask: Ask, workspace: Workspace) -> None:
    budget(workspace, tokens_per_day=MAX_TOKENS)
    with pytest.raises(ProviderUnavailable):
        ask(*[status(500)] * 3)

    day, month = llm_spending.spent(workspace, timezone.now())
    assert (day.calls, day.used_tokens, month.used_tokens) == (3, 0, 0)


def test_budget_reserved_by_running_calls_is_not_given_twice(work: CallSession) -> None:
    budget(work.workspace, tokens_per_day=2500)
    first, second = start(work), start(work)

    with pytest.raises(TooManyCalls, match="reserved for calls in progress"):
        start(work)
    end(first, 10)
    third = start(work)
    end(second, 1000)
    end(third, 1000)

    with pytest.raises(BudgetExhausted):
        start(work)


def test_money_cannot_be_limited_without_a_price(work: CallSession, settings: Settings) -> None:
    budget(work.workspace, cost_per_day=Decimal(1))
    settings.UAC_LLM_PRICES = ""

    with pytest.raises(NotConfigured, match="price of openai:the-model is unknown"):
        start(work)

    assert not LlmCall.objects.exists()


def test_no_more_calls_than_allowed_are_under_way(work: CallSession) -> None:
    budget(work.workspace, concurrency=2)
    other = Workspace.objects.create(name="other")
    first, _ = start(work), start(work)

    with pytest.raises(TooManyCalls, match=r"workspace has its maximum number of calls .*: 2 "):
        start(work)
    start(CallSession(workspace=other, purpose=LlmPurpose.STRUCTURE))
    end(first, 10)
    start(work)


@pytest.mark.parametrize(
    ("concurrency", "slow_seconds", "begun"),
    [(6, 0.0, 6), (6, 1000.0, 4), (2, 0.0, 2), (1, 0.0, 1)],
    ids=["all slow", "none slow", "too few to keep one", "one"],
)
def test_calls_that_hang_let_others_begin_but_never_more_than_allowed(
    work: CallSession, settings: Settings, concurrency: int, slow_seconds: float, begun: int
) -> None:
    budget(work.workspace, concurrency=concurrency)
    settings.UAC_LLM_SLOW_SECONDS = slow_seconds
    for _ in range(begun):
        start(work)

    with pytest.raises(
        TooManyCalls, match=rf"This workspace has its maximum number of calls .*: {begun} "
    ):
        start(work)
    assert LlmCall.objects.count() == begun


def test_a_call_waits_for_its_turn_and_not_for_ever(
    connect: Connect, work: CallSession, settings: Settings
) -> None:
    budget(work.workspace, concurrency=1)
    settings.UAC_LLM_TURN_SECONDS = 0.3
    start(work)
    with llm_server(said("never")) as server:
        with pytest.raises(TooManyCalls):
            connect(server).complete(QUESTION)

        assert server.requests == []
    assert LlmCall.objects.count() == 1


def test_work_that_has_begun_waits_longer_for_its_turn_than_what_may_begin_later(
    connect: Connect, work: CallSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given work that has begun, and another's call for longer than a first question waits
    budget(work.workspace, concurrency=1)
    settings.UAC_LLM_TURN_SECONDS = 0.3
    with llm_server(said("first"), said("second")) as server:
        model = connect(server)
        model.complete(QUESTION)
        other, waits, sleep = start(work), itertools.count(), time.sleep

        def asleep(seconds: float) -> None:
            sleep(seconds)
            if next(waits) == 6:
                end(other, 10)

        monkeypatch.setattr("workers.llm.metered.time.sleep", asleep)
        # When it asks on, then it gets its turn
        assert model.complete(QUESTION).message.text == "second"


def test_call_of_a_lost_worker_is_closed_as_interrupted(
    work: CallSession,
) -> None:
    budget(work.workspace, concurrency=1, tokens_per_day=2500)
    with time_machine.travel(NOON, tick=False) as clock:
        call = start(work)
        assert call.standing == LlmOutcome.STARTED

        clock.shift(60 + llm_calls.GRACE.total_seconds() - 1)
        assert dispatching.dispatch()["interrupted"] == 0
        clock.shift(1)
        assert LlmCall.objects.get().standing == LlmOutcome.INTERRUPTED
        # Its slot is free already; the tokens that it may have used stay reserved.
        second = start(work)
        assert dispatching.dispatch()["interrupted"] == 1
        end(second, 100)

        call.refresh_from_db()
        assert (call.outcome, call.input_tokens, call.cost) == (LlmOutcome.INTERRUPTED, None, None)
        assert "The worker exited during the call" in call.error
        assert LlmSpending.objects.get(outcome="interrupted").presumed_tokens == 1000
        assert llm_spending.spent(work.workspace, NOON)[0].used_tokens == 1100
        assert dispatching.dispatch()["interrupted"] == 0


def test_an_answer_that_comes_after_the_call_was_closed_changes_nothing(work: CallSession) -> None:
    with time_machine.travel(NOON, tick=False) as clock:
        call = start(work)
        clock.shift(100)
        assert llm_calls.close_interrupted(10) == 1
        before = list(LlmSpending.objects.values())

        late = Ending(
            outcome=LlmOutcome.OK, seconds=100, usage=Usage(input_tokens=5, output_tokens=5)
        )
        assert not llm_calls.finish(call, late, keep_content=False)

    assert LlmCall.objects.get().outcome == LlmOutcome.INTERRUPTED
    assert list(LlmSpending.objects.values()) == before


def test_worker_stopped_during_a_call_notes_it(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = Mock(side_effect=SystemExit)
    monkeypatch.setattr("workers.llm.metered.ProviderModel.complete", stopped)
    with pytest.raises(SystemExit):
        ask()

    call = LlmCall.objects.get()
    assert call.outcome == LlmOutcome.INTERRUPTED
    assert call.finished_at is not None
    assert LlmSpending.objects.get().presumed_tokens == call.reserved_tokens


def test_a_call_over_midnight_belongs_to_the_day_of_its_beginning(work: CallSession) -> None:
    moment = datetime.datetime(2026, 3, 31, 23, 59, 59, tzinfo=datetime.UTC)
    with time_machine.travel(moment, tick=False) as at:
        call = start(work)
        at.shift(2)
        end(call, 700)

        day, month = llm_spending.spent(work.workspace, timezone.now())
    assert LlmSpending.objects.get().day == datetime.date(2026, 3, 31)
    assert (day.used_tokens, month.used_tokens) == (0, 0)


def test_erasing_a_call_gives_no_budget_back(work: CallSession) -> None:
    end(start(work), 700)

    LlmCall.objects.all().delete()

    assert llm_spending.spent(work.workspace, timezone.now())[0].used_tokens == 700


def test_the_timeout_is_told_as_such_when_the_budget_has_room(ask: Ask, settings: Settings) -> None:
    settings.UAC_LLM_TIMEOUT_SECONDS, settings.UAC_LLM_ATTEMPTS = 0.5, 2
    with pytest.raises(TimedOut):
        ask(hangs(), hangs())

    assert LlmSpending.objects.get().calls == 2

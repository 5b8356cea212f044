"""A provider that misbehaves: messages, cost, and whether the call is retried."""

import json
from decimal import Decimal
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from deploy.embedded.process import free_port
from memory.llm.models import LlmCall, LlmOutcome, LlmSpending
from tests.integration.llm.conftest import PROTOCOLS, QUESTION, REMEMBER, Ask, Connect, answer_calls
from tests.llm_server import (
    KEY,
    Called,
    Misbehaviour,
    Protocol,
    Reply,
    Said,
    called,
    drops,
    hangs,
    llm_server,
    raw,
    said,
    status,
)
from tests.steps import not_none
from tests.waiting import scaled
from workers.llm import adapter
from workers.llm.interface import (
    CallFailed,
    ConnectionLost,
    EmptyAnswer,
    InvalidAnswer,
    ModelRefused,
    NoCredit,
    ProviderUnavailable,
    RateLimited,
    RequestRejected,
    TimedOut,
    Truncated,
    UnknownModel,
    WrongKey,
)

pytestmark = pytest.mark.django_db

HTML = raw("<html><body>Sign in to the hotel's network</body></html>", "text/html")
BROKEN = raw('{"id": "chatcmpl-1", "choices": [{"mess')
DRIPS = Misbehaviour(200, b"{" + b" " * 600 + b"}", {"content-type": "application/json"}, drip=0.05)
ELSEWHERE = Misbehaviour(302, b"", {"location": "http://127.0.0.1:1/"})

# Temporary failures, which are retried.
PASSING: list[tuple[Reply, type[CallFailed]]] = [
    (status(429), RateLimited),
    (status(500), ProviderUnavailable),
    (status(502), ProviderUnavailable),
    (status(503), ProviderUnavailable),
    (status(529), ProviderUnavailable),
    (HTML, InvalidAnswer),
    (BROKEN, InvalidAnswer),
    (raw("{}"), InvalidAnswer),
    (raw("null"), InvalidAnswer),
    (raw("[1, 2]"), InvalidAnswer),
    (raw("data: {}\n\n", "text/event-stream"), InvalidAnswer),
    (ELSEWHERE, InvalidAnswer),
    (drops(), ConnectionLost),
    (said("", tokens=(100, 0)), EmptyAnswer),
    (said(" \n", tokens=(100, 3)), EmptyAnswer),
]
# Failures that would recur.
FINAL: list[tuple[Reply, type[CallFailed]]] = [
    (status(400), RequestRejected),
    (status(401), WrongKey),
    (status(402), NoCredit),
    (status(403), WrongKey),
    (status(404), UnknownModel),
    (status(422), RequestRejected),
    (said("I cannot", finish="refusal"), ModelRefused),
    (said("Your dog is", finish="length"), Truncated),
    (called("remember", {"fact": "Your d"}, finish="length"), Truncated),
]
FREE = {RateLimited, ProviderUnavailable, RequestRejected, WrongKey, NoCredit, UnknownModel}


def name_of(value: Any) -> str | None:
    if isinstance(value, Misbehaviour):
        return f"{value.status}-{value.body[:12].decode()}"
    return value.__name__ if isinstance(value, type) else None


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("reply", "failure"), PASSING, ids=name_of)
def test_transient_failure_is_retried_and_each_attempt_recorded(
    connect: Connect, protocol: Protocol, reply: Reply, failure: type[CallFailed]
) -> None:
    with llm_server(reply, reply, reply, said("too late")) as server:
        with pytest.raises(failure) as raised:
            connect(server, protocol).complete(QUESTION, [REMEMBER])

        assert len(server.requests) == 3
    calls = list(LlmCall.objects.order_by("attempt"))
    assert [call.attempt for call in calls] == [1, 2, 3]
    assert {call.outcome for call in calls} == {failure.outcome}
    assert {call.prompt_hash for call in calls} == {calls[0].prompt_hash}
    assert calls[-1].error == str(raised.value)
    assert failure.summary in calls[-1].error
    assert all(call.finished_at and call.seconds is not None for call in calls)
    told = isinstance(reply, Misbehaviour)
    assert {call.input_tokens for call in calls} == {None if told else 100}
    spending = LlmSpending.objects.get()
    assert (spending.calls, spending.outcome) == (3, failure.outcome)
    # A call that may have been processed and was not reported counts as the maximum.
    presumed = 0 if failure in FREE or not told else sum(call.reserved_tokens for call in calls)
    assert spending.presumed_tokens == presumed


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("reply", "failure"), FINAL, ids=name_of)
def test_permanent_failure_is_not_retried(
    connect: Connect, protocol: Protocol, reply: Reply, failure: type[CallFailed]
) -> None:
    with llm_server(reply, said("never")) as server:
        with pytest.raises(failure) as raised:
            connect(server, protocol).complete(QUESTION, [REMEMBER])

        assert len(server.requests) == 1
    call = LlmCall.objects.get()
    assert (call.outcome, call.error) == (failure.outcome, str(raised.value))
    answered = failure in (ModelRefused, Truncated)
    assert call.input_tokens == (100 if answered else None)
    # 100 at 2 and 20 at 10, per million tokens.
    assert call.cost == (Decimal("0.0004") if answered else None)
    assert LlmSpending.objects.get().presumed_tokens == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_failure_is_told_in_the_words_of_the_provider(connect: Connect, protocol: Protocol) -> None:
    with llm_server(status(400)) as server, pytest.raises(RequestRejected) as raised:
        connect(server, protocol).complete(QUESTION, [REMEMBER])

    assert "status_code: 400" in str(raised.value)
    assert "{" not in str(raised.value)  # as the body has that the words are from


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_call_succeeds_after_transient_failures(ask: Ask, protocol: Protocol) -> None:
    _, answer = ask(status(500), drops(), said("Noted."), protocol=protocol)

    assert answer.text == "Noted."
    outcomes = LlmCall.objects.order_by("attempt").values_list("outcome", flat=True)
    assert list(outcomes) == [LlmOutcome.UNAVAILABLE, LlmOutcome.CONNECTION_LOST, LlmOutcome.OK]


def test_truncated_tool_call_is_reported_to_the_model_as_json(connect: Connect) -> None:
    """The server refuses calls in its history that are no JSON, as some do."""
    with llm_server(called("remember", '{"fact": "Rex'), said("Sorry.")) as server:
        model = connect(server)
        first = model.complete(QUESTION, [REMEMBER])
        [call] = first.tool_calls
        second = answer_calls(model, first, call.problem, failed=True)

    assert (call.arguments, call.text) == ({}, '{"fact": "Rex')
    assert "The arguments are not valid JSON (Unterminated string" in call.problem
    assert second.text == "Sorry."
    [_, assistant, _] = server.requests[1].body["messages"][1:]
    sent = json.loads(assistant["tool_calls"][0]["function"]["arguments"])
    assert sent == {"unreadable": '{"fact": "Rex'}
    assert LlmCall.objects.get(turn=1).outcome == LlmOutcome.INVALID_CALL


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("reply", [hangs(), DRIPS], ids=["silent", "byte by byte"])
def test_provider_that_does_not_answer_in_time_is_abandoned(
    ask: Ask, settings: Settings, protocol: Protocol, reply: Reply
) -> None:
    settings.UAC_LLM_TIMEOUT_SECONDS = 1.0
    settings.UAC_LLM_ATTEMPTS = 1
    with pytest.raises(TimedOut):
        ask(reply, protocol=protocol)

    call = LlmCall.objects.get()
    assert call.outcome == LlmOutcome.TIMEOUT
    assert 0.9 < not_none(call.seconds) < scaled(20)  # less than the answer takes
    assert LlmSpending.objects.get().presumed_tokens == call.reserved_tokens > 1000


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_unreachable_provider_costs_no_tokens(
    connect: Connect, settings: Settings, protocol: Protocol
) -> None:
    with llm_server() as server:
        model = connect(server, protocol)
    settings.UAC_LLM_BASE_URL = f"http://127.0.0.1:{free_port()}"
    settings.UAC_LLM_ATTEMPTS = 2

    with pytest.raises(ConnectionLost):
        model.complete(QUESTION)

    assert [call.outcome for call in LlmCall.objects.all()] == ["connection_lost"] * 2
    assert LlmSpending.objects.get().presumed_tokens == 0


def test_a_download_in_place_of_an_answer_is_not_read_to_its_end(
    ask: Ask, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "MAX_RESPONSE_BYTES", 1000)
    settings.UAC_LLM_ATTEMPTS = 1
    with pytest.raises(InvalidAnswer, match="larger than"):
        ask(said("x" * 2000))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_key_is_not_in_what_is_told(ask: Ask, protocol: Protocol) -> None:
    refusal = status(401, f"Incorrect API key provided: {KEY}")
    with pytest.raises(WrongKey) as raised:
        ask(refusal, protocol=protocol)

    assert "Incorrect API key provided" in str(raised.value)
    assert KEY not in str(raised.value)
    assert KEY not in LlmCall.objects.get().error


# In Anthropic's protocol tokens are always reported.
@pytest.mark.parametrize("protocol", ["openai", "google"])
def test_tokens_that_are_not_told_are_presumed(ask: Ask, protocol: Protocol) -> None:
    _, answer = ask(said("Noted.", tokens=None), protocol=protocol)
    assert answer.usage is None

    call = LlmCall.objects.get()
    assert (call.outcome, call.input_tokens, call.cost) == (LlmOutcome.OK, None, None)
    assert LlmSpending.objects.get().presumed_tokens == call.reserved_tokens


@pytest.mark.parametrize("tokens", [(-1000, 20), (100, -20), (10**30, 20)])
def test_nonsense_gives_no_budget_back(ask: Ask, tokens: tuple[int, int]) -> None:
    ask(said("Noted.", tokens=tokens))

    spending = LlmSpending.objects.get()
    assert (spending.input_tokens, spending.output_tokens) == (0, 0)
    assert spending.presumed_tokens == LlmCall.objects.get().reserved_tokens


def test_model_without_price_has_unknown_cost(connect: Connect, settings: Settings) -> None:
    with llm_server(said("Noted.")) as server:
        model = connect(server)
        settings.UAC_LLM_PRICES = ""
        model.complete(QUESTION)

    call = LlmCall.objects.get()
    assert (call.input_tokens, call.output_tokens, call.cost) == (100, 20, None)
    spending = LlmSpending.objects.get()
    assert (spending.input_tokens, spending.cost) == (100, Decimal(0))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_half_a_character_stops_nothing(connect: Connect, protocol: Protocol) -> None:
    half = Said(text="Cut \ud83d", calls=(Called("remember", {"fact": "\ud83d"}),))
    with llm_server(half, said("Sorry."), status(400, "no \ud83d \0")) as server:
        model = connect(server, protocol)
        first = model.complete(QUESTION, [REMEMBER])
        [call] = first.tool_calls
        second = answer_calls(model, first, call.problem, failed=True)
        with pytest.raises(RequestRejected):
            model.complete(QUESTION)

    assert first.text == "Cut ?"
    assert "half of a character" in call.problem
    assert second.text == "Sorry."
    assert LlmCall.objects.filter(outcome=LlmOutcome.REJECTED).exists()


# -- Waiting -----------------------------------------------------------------------------------


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds to wait between attempts; no time passes."""
    waited: list[float] = []
    monkeypatch.setattr("workers.llm.metered.time.sleep", waited.append)
    return waited


def test_the_wait_doubles_and_is_drawn(ask: Ask, settings: Settings, waits: list[float]) -> None:
    settings.UAC_LLM_BACKOFF_SECONDS, settings.UAC_LLM_BACKOFF_SECONDS_MOST = 1.0, 5.0
    settings.UAC_LLM_ATTEMPTS = 6
    drawn = set()
    for _ in range(3):
        with pytest.raises(ProviderUnavailable):
            ask(*[status(500)] * 6)
        assert len(waits) == 5
        for wait, longest in zip(waits, (1, 2, 4, 5, 5), strict=True):
            assert longest / 2 <= wait <= longest
        drawn.add(tuple(waits))
        waits.clear()
    assert len(drawn) == 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_short_retry_after_is_respected(ask: Ask, protocol: Protocol, waits: list[float]) -> None:
    ask(status(429, retry_after="7"), said("Noted."), protocol=protocol)

    [wait] = waits
    assert 7 < wait < 7.2


@pytest.mark.parametrize("code", [429, 503])
def test_long_retry_after_is_raised(connect: Connect, waits: list[float], code: int) -> None:
    with llm_server(status(code, retry_after="3600"), said("never")) as server:
        with pytest.raises(CallFailed) as raised:
            connect(server).complete(QUESTION)

        assert len(server.requests) == 1
    assert raised.value.retry_after == 3600
    assert waits == []

"""Answers of a model, in each provider's own protocol, and the row that every call leaves."""

from decimal import Decimal

import pytest

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.llm.models import LlmCall, LlmOutcome, LlmPurpose, LlmSpending
from tests.integration.llm.conftest import PROTOCOLS, QUESTION, REMEMBER, Connect, answer_calls
from tests.llm_server import KEY, Called, Protocol, Said, called, llm_server, said
from tests.steps import not_none
from workers.llm.interface import Assistant, Tool, ToolResult, User

pytestmark = [pytest.mark.django_db, pytest.mark.parametrize("protocol", PROTOCOLS)]


def test_text_is_answered_and_accounted_for(
    connect: Connect, protocol: Protocol, workspace: Workspace, user: MemoryUser
) -> None:
    with llm_server(said("Noted.", tokens=(1000, 50), cached_tokens=400)) as server:
        answer = connect(server, protocol).complete(QUESTION, [REMEMBER])

    assert answer.text == "Noted."
    assert answer.tool_calls == ()
    [request] = server.requests
    assert request.protocol == protocol
    assert request.model == "the-model"
    assert request.tools == ["remember"]
    assert "You remember." in request.text
    assert "My dog is called Rex." in request.text
    assert KEY in " ".join(request.headers.values())
    call = LlmCall.objects.get()
    assert (call.workspace, call.user, call.purpose) == (workspace, user, LlmPurpose.MEMORIZE)
    assert (call.model, call.turn, call.attempt) == (f"{protocol}:the-model", 1, 1)
    assert call.answered_by.startswith("the-model-")
    assert call.outcome == LlmOutcome.OK
    assert (call.input_tokens, call.output_tokens, call.cache_read_tokens) == (1000, 50, 400)
    # 600 at 2, 400 at 1, 50 at 10, per million tokens.
    assert call.cost == Decimal("0.0021")
    assert not_none(call.seconds) > 0
    assert call.finished_at is not None
    assert (call.prompt, call.answer, call.error) == (None, None, "")
    spending = LlmSpending.objects.get()
    assert (spending.calls, spending.input_tokens, spending.output_tokens) == (1, 1000, 50)
    assert (spending.cost, spending.presumed_tokens) == (Decimal("0.0021"), 0)


def test_a_conversation_works_through_tools(connect: Connect, protocol: Protocol) -> None:
    recall = Tool("recall", "Recall.", {"type": "object", "properties": {}})
    both = Said(
        text="Let me see.",
        calls=(Called("remember", {"fact": "dog: Rex", "day": 3}), Called("recall", {})),
    )
    with llm_server(both, called("remember", {"fact": "again"}), said("Done.")) as server:
        model = connect(server, protocol)
        tools = [REMEMBER, recall]

        first = model.complete(QUESTION, tools)
        results = [
            ToolResult(first.tool_calls[0], "remembered as 17"),
            ToolResult(first.tool_calls[1], "there is nothing", failed=True),
        ]
        second = model.complete([*QUESTION, first.message, *results], tools)
        third = model.complete(
            [
                *QUESTION,
                first.message,
                *results,
                second.message,
                ToolResult(second.tool_calls[0], "yes"),
                User("Finish."),
            ],
            tools,
        )

    assert first.text == "Let me see."
    assert [(call.name, call.arguments, call.problem) for call in first.tool_calls] == [
        ("remember", {"fact": "dog: Rex", "day": 3}, ""),
        ("recall", {}, ""),
    ]
    assert third.text == "Done."
    told = server.requests[1].results
    assert "remembered as 17" in told[0]
    assert "there is nothing" in told[1]
    assert "Finish." in server.requests[2].text
    calls = LlmCall.objects.order_by("turn")
    assert [(call.turn, call.attempt) for call in calls] == [(1, 1), (2, 1), (3, 1)]
    assert len({call.work for call in calls}) == 1
    assert len({call.prompt_hash for call in calls}) == 3


def test_conversation_is_identified_by_its_words(connect: Connect, protocol: Protocol) -> None:
    """Another process, or another provider, can therefore continue a conversation."""
    with llm_server(called("remember", {"fact": "x"}), said("Done.")) as server:
        model = connect(server, protocol)
        first = model.complete(QUESTION, [REMEMBER])
        told = Assistant(first.text, first.tool_calls)

        answer = model.complete(
            [*QUESTION, told, ToolResult(first.tool_calls[0], "yes")], [REMEMBER]
        )

    assert answer.text == "Done."


def test_the_same_question_has_the_same_hash(connect: Connect, protocol: Protocol) -> None:
    with llm_server(said("a"), said("b"), said("c")) as server:
        for tools in ([REMEMBER], [REMEMBER], []):
            connect(server, protocol).complete(QUESTION, tools)

    hashes = LlmCall.objects.order_by("started_at").values_list("prompt_hash", flat=True)
    assert hashes[0] == hashes[1] != hashes[2]
    assert len(set(LlmCall.objects.values_list("work"))) == 3


def test_a_tool_may_be_required(connect: Connect, protocol: Protocol) -> None:
    with llm_server(called("remember", {"fact": "x"})) as server:
        connect(server, protocol).complete(QUESTION, [REMEMBER], tool_choice="required")

    body = server.requests[0].body
    match protocol:
        case "openai":
            assert body["tool_choice"] == "required"
        case "anthropic":
            assert body["tool_choice"]["type"] == "any"
        case "google":
            assert body["toolConfig"]["functionCallingConfig"]["mode"] == "ANY"


def test_the_answer_is_limited(connect: Connect, protocol: Protocol) -> None:
    with llm_server(said("a"), said("b")) as server:
        model = connect(server, protocol)
        model.complete(QUESTION)
        model.complete(QUESTION, max_output_tokens=77)

    bodies = [request.body for request in server.requests]
    if protocol == "google":
        limits = [body["generationConfig"]["maxOutputTokens"] for body in bodies]
    else:
        limits = [body["max_tokens"] for body in bodies]
    assert limits == [1000, 77]


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (called("remember", {"fct": "x"}), "$: 'fact' is a required property"),
        (called("remember", {"fact": 3}), "$.fact: 3 is not of type 'string'"),
        (called("forget", {"fact": "x"}), "There is no tool 'forget'. The tools are: remember."),
    ],
)
def test_a_call_that_cannot_be_carried_out_is_answered_with_what_is_wrong(
    connect: Connect, protocol: Protocol, reply: Said, problem: str
) -> None:
    with llm_server(reply, said("Sorry.")) as server:
        model = connect(server, protocol)
        first = model.complete(QUESTION, [REMEMBER])
        [call] = first.tool_calls
        second = answer_calls(model, first, call.problem, failed=True)

    assert problem in call.problem
    assert problem.split()[0] in server.requests[1].results[0]
    assert second.text == "Sorry."
    row = LlmCall.objects.get(turn=1)
    assert row.outcome == LlmOutcome.INVALID_CALL
    assert problem in row.error
    assert (row.input_tokens, row.output_tokens) == (100, 20)


def test_repeated_prompt_parts_are_marked_for_caching(connect: Connect, protocol: Protocol) -> None:
    # If the provider wants marks for caching: the tools, the instructions and the end of each turn.
    with llm_server(called("remember", {"fact": "Rex"}), said("Noted.")) as server:
        model = connect(server, protocol)
        first = model.complete(QUESTION, [REMEMBER])
        answer_calls(model, first, "yes")

    assert len(server.requests) == 2
    for request in server.requests:
        if protocol != "anthropic":
            assert "cache_control" not in request.text
            continue
        body = request.body
        marked = [body["tools"][-1], body["system"][-1], body["messages"][-1]["content"][-1]]
        assert [one["cache_control"]["type"] for one in marked] == ["ephemeral"] * 3

"""Vectors of a provider, by HTTP: what is sent, what fails, and the effect on a search."""

import datetime
import ipaddress
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import time_machine
from django.utils import timezone
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.integrations.mcp import results
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.outgoing import connections, destinations
from memory.kernel.settings.language_models import Usage
from memory.kernel.users import create_user
from memory.kernel.work import leases
from memory.llm import llm_budgets, llm_calls, llm_failures, llm_spending
from memory.llm.models import LlmCall, LlmOutcome, LlmPurpose, LlmSpending
from memory.log import entry_log
from memory.log.models.entries import EntryKind
from memory.operations import alarms, verification
from memory.recall.models import SearchBlock, SearchIndex
from memory.recall.search import announcing, embeddings, index_maintenance, vectors
from memory.recall.search.embeddings import provider_api, question_cache, remote
from memory.recall.search.embeddings.interface import Embedder, EmbeddingFailed
from memory.recall.search.finding import find
from memory.recall.search.results import Meaning
from tests.embeddings_server import (
    DIMENSIONS,
    EmbeddingsRequest,
    EmbeddingsScript,
    EmbeddingsServer,
    embedded,
    embeddings_server,
    vector,
)
from tests.integration.search.conftest import (
    NOON,
    Find,
    Say,
    SayAll,
    index_all,
    leased,
    redact,
    segments_of,
    texts,
)
from tests.llm_server import Misbehaviour, drops, hangs, raw, status
from tests.waiting import scaled
from tests.webhook_receiver import certificate, tls
from uac_site import checks

pytestmark = pytest.mark.django_db

Use = Callable[..., None]
Serve = Callable[..., EmbeddingsServer]
KEY = "sk-of-embeddings"
MODEL = "openai:m"


@pytest.fixture(autouse=True)
def fresh(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget other tests, wait only where needed, and let no day end."""
    settings.UAC_EMBEDDINGS_API_KEY = KEY
    settings.UAC_EMBEDDINGS_QUERY_SECONDS = 20.0
    settings.UAC_EMBEDDINGS_TIMEOUT_SECONDS = 20.0
    settings.UAC_LLM_BACKOFF_SECONDS = 0.01
    monkeypatch.setattr(question_cache, "REST_SECONDS", 0.0)
    question_cache.forget_recent()
    with time_machine.travel(NOON, tick=True):
        yield
    question_cache.forget_recent()


@pytest.fixture
def use(settings: Settings) -> Use:
    """Use a model of the server."""

    def do(server: EmbeddingsServer, model: str = MODEL) -> None:
        settings.UAC_EMBEDDINGS = model
        settings.UAC_EMBEDDINGS_BASE_URL = server.openai_url

    return do


@pytest.fixture
def serve(use: Use) -> Iterator[Serve]:
    """Start a server and use its model."""
    with ExitStack() as servers:

        def do(
            script: EmbeddingsScript = embedded, *first: Misbehaviour, **named: str
        ) -> EmbeddingsServer:
            server = servers.enter_context(embeddings_server(script, *first))
            use(server, **named)
            return server

        yield do


def embedder_of(user: MemoryUser) -> Embedder:
    model = embeddings.embedder(user)
    assert model is not None
    return model


def again(user: MemoryUser) -> None:
    """Have the index retried, as when its wait is over."""
    SearchIndex.objects.filter(user=user).update(run_after=timezone.now())
    index_all(user)


def models_of(user: MemoryUser) -> list[str]:
    """Return the models of the segments' vectors."""
    found = []
    for row in segments_of(user):
        block = SearchBlock.objects.get(segment=row, number=row.blocks + 1)
        found.append(vectors.kind_of(bytes(block.data))[0])
    return found


def problems_of(user: MemoryUser) -> list[str]:
    user.refresh_from_db()
    return list(verification._search_problems(user))


def outcomes() -> list[str]:
    calls = LlmCall.objects.filter(purpose=LlmPurpose.EMBED)
    return list(calls.order_by("started_at").values_list("outcome", flat=True))


# -- What is sent ----------------------------------------------------------------------------------


def test_related_entry_without_a_common_word_is_found_indexed_or_not(
    eager: None, user: MemoryUser, say: Say, search: Find, serve: Serve
) -> None:
    server = serve()
    say("My puppy sleeps", session_id="a")
    say("The engine is loud", session_id="b")
    live = search("hound")
    index_all(user)
    indexed = search("hound")

    assert texts(live)[0] == texts(indexed)[0] == "My puppy sleeps"
    assert live.meaning == indexed.meaning == Meaning(MODEL, 2, None)
    request = server.requests[0]
    assert request.body == {"model": "m", "input": ["hound"], "encoding_format": "float"}
    assert request.headers["authorization"] == f"Bearer {KEY}"


def test_a_server_without_keys_and_other_dimensions(
    say: Say, search: Find, serve: Serve, settings: Settings
) -> None:
    settings.UAC_EMBEDDINGS_API_KEY = ""
    settings.UAC_EMBEDDINGS_DIMENSIONS = 4
    server = serve()
    say("My puppy sleeps")
    found = search("hound")

    assert found.meaning == Meaning(f"{MODEL}@4", 1, None)
    assert {request.body["dimensions"] for request in server.requests} == {4}
    assert all("authorization" not in request.headers for request in server.requests)


def test_texts_are_sent_in_batches_by_number_and_by_characters(
    user: MemoryUser, serve: Serve, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.UAC_EMBEDDINGS_BATCH = 3
    monkeypatch.setattr(remote, "BATCH_CHARACTERS", 100)
    short = [f"puppy {number}" for number in range(7)]
    long = [f"kitten {'x' * 60} {number}" for number in range(2)]
    server = serve()
    made = embedder_of(user).embed([*short, *long, "", "  ", *short])

    assert [len(request.texts) for request in server.requests] == [3, 3, 2, 1]
    expected = np.array([vector(text) for text in [*short, *long]], np.float32)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.allclose(made[:9], expected)
    assert not made[9:11].any()
    assert np.allclose(made[11:], expected[:7])  # what is the same is sent once


def test_the_order_is_that_of_the_indexes(user: MemoryUser, serve: Serve) -> None:
    def backwards(request: EmbeddingsRequest) -> Misbehaviour:
        data = json.loads(embedded(request).body)["data"]
        return embedded(request, data=data[::-1])

    serve(backwards)
    dog, car = embedder_of(user).embed(["dog", "car"])

    assert dog @ np.array(vector("puppy")) == pytest.approx(1)
    assert car @ np.array(vector("wheel")) == pytest.approx(1)


def test_question_and_log_tail_are_sent_once(say: Say, search: Find, serve: Serve) -> None:
    server = serve()
    say("My puppy sleeps")
    for _ in range(3):
        assert search("hound").meaning.compared == 1
    say("My kitten sleeps")
    search("hound")

    assert server.texts == ["hound", "My puppy sleeps", "My kitten sleeps"]


# -- Records and budgets ---------------------------------------------------------------------------


def test_a_call_is_on_record_without_anything_of_the_texts(
    user: MemoryUser,
    say: Say,
    search: Find,
    serve: Serve,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings.UAC_LLM_KEEP_CONTENT = True
    settings.UAC_LLM_PRICES = json.dumps({MODEL: {"input": 2, "output": 0}})

    def echo(request: EmbeddingsRequest) -> Misbehaviour:
        said = f"{request.texts} of {request.headers['authorization']}"
        return embedded(request) if "hound" in request.texts else status(400, said)

    serve(echo)
    with caplog.at_level("DEBUG"):
        say("my secret puppy")
        found = search("hound")
        search("hound")

    question, tail, *_ = LlmCall.objects.order_by("started_at")
    assert (question.user, question.workspace) == (user, user.workspace)
    assert (question.purpose, question.model, question.outcome) == (LlmPurpose.EMBED, MODEL, "ok")
    assert (question.input_tokens, question.cost) == (1, Decimal("0.000002"))
    assert tail.outcome == LlmOutcome.REJECTED
    spending = LlmSpending.objects.get(outcome=LlmOutcome.OK)
    assert (spending.purpose, spending.input_tokens) == (LlmPurpose.EMBED, 1)
    for call in LlmCall.objects.all():
        assert (call.prompt, call.answer) == (None, None)
    told = [str(vars(call)) for call in LlmCall.objects.all()]
    for text in (*told, caplog.text, str(found.meaning)):
        assert "secret" not in text
        assert KEY not in text
    # The rows of two texts of equal length are the same: no hash tells one from the other.
    serve()
    question_cache.forget_recent()
    search("abcde")
    search("fghij")
    second, _, first = LlmCall.objects.order_by("-started_at")[:3]
    assert first.prompt_hash == second.prompt_hash


def test_the_key_is_in_no_representation(user: MemoryUser, serve: Serve) -> None:
    serve()
    assert KEY not in repr(embeddings.embedder(user))


def test_when_the_budget_is_spent_words_go_on_and_vectors_come_the_next_day(
    eager: None, user: MemoryUser, say: Say, search: Find, serve: Serve, settings: Settings
) -> None:
    settings.UAC_EMBEDDINGS_TOKENS_PER_DAY = 2
    server = serve()
    with time_machine.travel(NOON, tick=True) as clock:
        say("My puppy sleeps", session_id="a")
        say("my kitten " * 5, session_id="b")
        assert search("puppy").meaning.problem is not None
        with pytest.raises(EmbeddingFailed, match=r"budget \(tokens per day\) is 2"):
            index_all(user)
        sent = len(server.requests)
        found = search("puppy sleeps")
        assert texts(found) == ["My puppy sleeps"]
        assert "budget (tokens per day)" in (found.meaning.problem or "")
        assert len(server.requests) == sent
        assert [one.name for one in alarms._check_embeddings()] == ["embeddings"]

        settings.UAC_EMBEDDINGS_TOKENS_PER_DAY = 1000
        clock.shift(datetime.timedelta(days=1))
        again(user)
        assert search("hound").meaning == Meaning(MODEL, 2, None)


def test_embeddings_and_language_models_have_budgets_apart(
    user: MemoryUser, say: Say, search: Find, serve: Serve, settings: Settings
) -> None:
    settings.UAC_LLM_TOKENS_PER_DAY = 1000
    settings.UAC_LLM_CONCURRENCY = 1
    settings.UAC_EMBEDDINGS_TOKENS_PER_DAY = 100

    def call_of_a_model() -> None:
        most = Usage(input_tokens=0, output_tokens=999)
        attempt = llm_calls.Attempt(
            model="openai:llm", turn=1, attempt=1, prompt={}, most=most, seconds=60
        )
        work = llm_calls.CallSession(workspace=user.workspace, purpose=LlmPurpose.QUERY)
        llm_calls.start(work, attempt, keep_content=False)

    serve()
    say("My puppy sleeps")
    search("cat")
    call_of_a_model()  # all that is left, in one call, and what embeddings took is none of it
    assert search("hound").meaning.problem is None
    with pytest.raises(llm_budgets.TooManyCalls):
        call_of_a_model()

    of_models, _ = llm_spending.spent(user.workspace, timezone.now())
    of_embeddings, _ = llm_spending.spent(user.workspace, timezone.now(), llm_spending.EMBEDDINGS)
    assert (of_models.calls, of_models.reserved_tokens) == (0, 999)
    assert (of_embeddings.calls, of_embeddings.reserved_tokens) == (3, 0)
    assert of_embeddings.tokens == 5


# -- What a provider may do ------------------------------------------------------------------------


def numbers(*values: Any) -> EmbeddingsScript:
    return lambda request: embedded(request, [list(values)] * len(request.texts))


def data(change: Callable[[list[Any]], Any]) -> EmbeddingsScript:
    def script(request: EmbeddingsRequest) -> Misbehaviour:
        return embedded(request, data=change(json.loads(embedded(request).body)["data"]))

    return script


NO_ANSWERS: dict[str, EmbeddingsScript] = {
    "not a number": numbers(1.0, float("nan")),
    "infinite": numbers(1.0, float("inf")),
    "too large": numbers(1.0, 1e300),
    "words": numbers("one", "two"),
    "nothing": numbers(),
    "nested": numbers([1.0], [2.0]),
    "base64": lambda request: embedded(request, ["AAAA"]),
    "too few": data(lambda found: found[:-1]),
    "too many": data(lambda found: [*found, *found]),
    "twice the same": data(lambda found: [{**one, "index": 0} for one in [*found, *found][:2]]),
    "other indexes": data(lambda found: [{**one, "index": one["index"] + 1} for one in found]),
    "no indexes": data(lambda found: [{"embedding": one["embedding"]} for one in found]),
    "no list": data(lambda found: {"0": found}),
    "no object": lambda _: raw("[]"),
    "a page": lambda _: raw("<html>Welcome</html>", "text/html"),
    "moved": lambda _: status(302, location="/elsewhere"),
}
BAD: dict[str, tuple[EmbeddingsScript, LlmOutcome]] = {
    **{name: (script, LlmOutcome.INVALID_ANSWER) for name, script in NO_ANSWERS.items()},
    "cut off": (lambda _: drops(), LlmOutcome.CONNECTION_LOST),
    "failed": (lambda _: status(500), LlmOutcome.UNAVAILABLE),
    "too much": (lambda _: status(429), LlmOutcome.RATE_LIMITED),
    "no credit": (
        lambda _: Misbehaviour(429, b'{"error": {"code": "insufficient_quota"}}'),
        LlmOutcome.NO_CREDIT,
    ),
    "wrong key": (lambda _: status(401), LlmOutcome.WRONG_KEY),
    "no such model": (lambda _: status(404), LlmOutcome.UNKNOWN_MODEL),
    "refused": (lambda _: status(400), LlmOutcome.REJECTED),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_provider_leaves_the_words_and_its_vectors_come_later(
    eager: None, user: MemoryUser, say: Say, search: Find, serve: Serve, name: str
) -> None:
    script, outcome = BAD[name]
    is_bad = True

    def answer(request: EmbeddingsRequest) -> Misbehaviour:
        return script(request) if is_bad else embedded(request)

    serve(answer)
    say("My puppy sleeps")
    found = search("puppy")
    assert texts(found) == ["My puppy sleeps"]
    assert (found.meaning.model, found.meaning.compared) == (None, 0)
    assert MODEL in (found.meaning.problem or "")
    assert outcomes() == [outcome]  # whoever searches is in a hurry

    with pytest.raises(EmbeddingFailed):
        index_all(user)
    assert set(outcomes()) == {outcome}
    assert (len(segments_of(user)), models_of(user)) == (1, [""])
    assert texts(search("puppy")) == ["My puppy sleeps"]
    [problem] = alarms._check_embeddings()
    assert str(outcome.label) in problem.detail
    assert "Users whose logs are waiting for embeddings: 1. " in problem.detail
    assert (problem.patience == 0) == (outcome in llm_failures.UNUSABLE)

    is_bad = False
    again(user)
    found = search("hound")

    assert (texts(found), found.meaning) == (["My puppy sleeps"], Meaning(MODEL, 1, None))
    assert list(alarms._check_embeddings()) == []
    assert not announcing.waiting().exists()


def test_a_provider_that_is_not_there(
    eager: None, user: MemoryUser, say: Say, search: Find, use: Use
) -> None:
    with embeddings_server() as server:
        use(server)
    say("My puppy sleeps")

    assert texts(search("puppy")) == ["My puppy sleeps"]
    with pytest.raises(EmbeddingFailed, match="cannot be reached"):
        index_all(user)

    assert outcomes()[0] == LlmOutcome.CONNECTION_LOST
    # Nothing is reserved for requests that were never sent.
    assert sum(LlmSpending.objects.values_list("presumed_tokens", flat=True)) == 0


@pytest.mark.parametrize(
    "reply", [hangs(600), Misbehaviour(body=b"{" * 10_000, drip=0.05)], ids=["never", "drips"]
)
def test_search_does_not_wait_for_a_late_provider(
    say: Say, search: Find, serve: Serve, settings: Settings, reply: Misbehaviour
) -> None:
    settings.UAC_EMBEDDINGS_QUERY_SECONDS = 0.3
    serve(lambda _: reply)
    say("My puppy sleeps")
    with time_machine.travel(NOON, tick=True):
        before = timezone.now()
        found = search("puppy")
        took = (timezone.now() - before).total_seconds()

    assert texts(found) == ["My puppy sleeps"]
    assert "did not respond in time" in (found.meaning.problem or "")
    assert took < scaled(5)
    assert outcomes() == [LlmOutcome.TIMEOUT]
    # It may have processed the request.
    assert LlmSpending.objects.get().presumed_tokens > 0


def user_of(workspace: Workspace) -> MemoryUser:
    """Another user, with two messages."""
    made = create_user(workspace, "eve", time_zone="UTC", metadata=None)
    drafts = [
        entry_log.Draft(kind=EntryKind.MESSAGE, content=said, occurred_at=NOON)
        for said in ("The engine is loud", "The wheel is flat")
    ]
    entry_log.append(made, drafts, source="test")
    return made


@pytest.fixture
def other(user: MemoryUser) -> MemoryUser:
    """A user of another workspace."""
    return user_of(Workspace.objects.create(name="other"))


@pytest.fixture
def at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not retry a failed provider within the test."""
    monkeypatch.setattr(question_cache, "REST_SECONDS", 3600.0)


def test_a_spent_budget_stops_the_searches_of_its_workspace_alone(
    user: MemoryUser,
    other: MemoryUser,
    say: Say,
    serve: Serve,
    settings: Settings,
    at_rest: None,
) -> None:
    settings.UAC_EMBEDDINGS_TOKENS_PER_DAY = 40
    neighbour = user_of(user.workspace)
    server = serve()
    say("My puppy sleeps")
    first = find(user, "hound " * 30)
    of_neighbour = find(neighbour, "wheel")
    sent = len(server.requests)
    of_other = find(other, "wheel")

    assert "budget (tokens per day) is 40" in (first.meaning.problem or "")
    assert of_neighbour.meaning.problem == first.meaning.problem
    assert sent == 0
    assert of_other.meaning == Meaning(MODEL, 2, None)


@pytest.mark.parametrize("reply", [status(400), status(500), raw("[]")])
@pytest.mark.parametrize("is_question", [True, False])
def test_a_text_that_is_refused_stops_the_searches_of_its_user_alone(
    user: MemoryUser,
    other: MemoryUser,
    say: Say,
    serve: Serve,
    at_rest: None,
    reply: Misbehaviour,
    is_question: bool,
) -> None:
    def script(request: EmbeddingsRequest) -> Misbehaviour:
        return reply if "poison" in request.texts else embedded(request)

    server = serve(script)
    say("My puppy sleeps" if is_question else "poison")
    asked = find(user, "poison" if is_question else "hound")
    assert asked.meaning.problem is not None
    sent = len(server.requests)
    find(user, "cat" if is_question else "hound")
    assert len(server.requests) == sent
    found = find(other, "wheel")

    assert found.meaning == Meaning(MODEL, 2, None)


def test_a_provider_that_has_failed_is_left_alone_by_all(
    user: MemoryUser, other: MemoryUser, serve: Serve, at_rest: None
) -> None:
    server = serve(lambda _: status(503))
    find(user, "hound")
    found = find(other, "wheel")

    assert len(server.requests) == 1
    assert "has failed or is overloaded" in (found.meaning.problem or "")


def test_failing_text_of_the_tail_stops_no_questions(
    say: Say, search: Find, serve: Serve, at_rest: None
) -> None:
    def script(request: EmbeddingsRequest) -> Misbehaviour:
        return status(503) if request.texts == ["My puppy sleeps"] else embedded(request)

    server = serve(script)
    say("My puppy sleeps")
    for question in ("hound", "cat"):
        assert search(question).meaning.model == MODEL

    assert server.texts == ["hound", "My puppy sleeps", "cat"]


def test_question_is_embedded_although_the_tail_fails(say: Say, search: Find, serve: Serve) -> None:
    def script(request: EmbeddingsRequest) -> Misbehaviour:
        return embedded(request) if request.texts == ["puppy"] else status(500)

    serve(script)
    say("a puppy")
    found = search("puppy")

    assert texts(found) == ["a puppy"]
    assert found.meaning == Meaning(
        MODEL,
        0,
        "1 passages were searched by words only: they have no vectors from this model yet.",
    )


@pytest.mark.parametrize("is_trusted", [True, False])
def test_texts_are_sent_to_whoever_has_the_certificate_of_the_name(
    say: Say,
    search: Find,
    serve: Serve,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_trusted: bool,
) -> None:
    path = certificate(tmp_path, "models.example" if is_trusted else "others.example", days=3650)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    here = [ipaddress.ip_address("127.0.0.1")]
    monkeypatch.setattr(destinations, "look_up", lambda *arguments: here)
    connections._tls.cache_clear()
    server = serve()
    server.encrypt(tls(path))
    port = server.url.rpartition(":")[2]
    settings.UAC_EMBEDDINGS_BASE_URL = f"https://models.example:{port}/v1/"
    say("a puppy")
    found = search("puppy")
    connections._tls.cache_clear()

    assert texts(found) == ["a puppy"]
    assert found.meaning.compared == (1 if is_trusted else 0)
    assert {one.headers["host"] for one in server.requests} == (
        {f"models.example:{port}"} if is_trusted else set()
    )
    if not is_trusted:
        assert "SSLCertVerificationError" in (found.meaning.problem or "")


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds to wait between attempts; no time passes."""
    waited: list[float] = []
    monkeypatch.setattr("memory.recall.search.embeddings.remote.time.sleep", waited.append)
    return waited


def test_an_index_is_tried_again_as_the_provider_says(
    eager: None,
    user: MemoryUser,
    say: Say,
    search: Find,
    serve: Serve,
    settings: Settings,
    waits: list[float],
) -> None:
    settings.UAC_LLM_BACKOFF_SECONDS, settings.UAC_LLM_BACKOFF_SECONDS_MOST = 1.0, 30.0
    settings.UAC_LLM_ATTEMPTS = 4
    first = (status(429, retry_after="7"), status(503), drops())
    serve(embedded, *first)
    say("My puppy sleeps")
    index_all(user)

    assert 7 <= waits[0] <= 7.2
    assert 1 <= waits[1] <= 2
    assert 2 <= waits[2] <= 4
    assert outcomes() == ["rate_limited", "unavailable", "connection_lost", "ok"]
    assert models_of(user) == [MODEL]
    assert list(LlmCall.objects.order_by("attempt").values_list("attempt", flat=True)) == [
        *range(1, 5)
    ]


@pytest.mark.parametrize(
    ("reply", "attempts"),
    [
        (status(503), 3),
        (status(429, retry_after="31"), 1),
        (status(429, retry_after="Mon, 02 Mar 2026 12:05:00 GMT"), 1),
        (status(401), 1),
    ],
)
def test_attempts_end(
    user: MemoryUser,
    serve: Serve,
    settings: Settings,
    waits: list[float],
    reply: Misbehaviour,
    attempts: int,
) -> None:
    settings.UAC_LLM_BACKOFF_SECONDS_MOST = 30.0
    server = serve(lambda _: reply)
    with pytest.raises(EmbeddingFailed):
        embedder_of(user).embed(["puppy"])

    assert (len(server.requests), len(waits)) == (attempts, attempts - 1)


@pytest.mark.parametrize(("reply", "attempts"), [(status(500), 3), (status(400), 1)])
def test_a_provider_that_refuses_everything_is_asked_for_no_text_apart(
    user: MemoryUser, serve: Serve, waits: list[float], reply: Misbehaviour, attempts: int
) -> None:
    server = serve(lambda _: reply)
    with pytest.raises(EmbeddingFailed):
        embedder_of(user).embed(["puppy", "kitten"])

    assert server.texts == [*["puppy", "kitten"] * attempts, remote.PROBE]


@pytest.mark.parametrize("reply", [status(400), status(500), raw("[]")], ids=["400", "500", "[]"])
def test_a_text_that_is_always_refused_keeps_no_other_from_its_vector(
    eager: None,
    user: MemoryUser,
    say_all: SayAll,
    search: Find,
    use: Use,
    waits: list[float],
    reply: Misbehaviour,
) -> None:
    said = [f"my puppy {number}" for number in range(20)]
    said[13] = "a poison for my puppy"

    def script(request: EmbeddingsRequest) -> Misbehaviour:
        return reply if said[13] in request.texts else embedded(request)

    with embeddings_server(script) as server:
        use(server)
        say_all(said)
        index_all(user)
        sent = len(server.requests)
        again(user)
        assert len(server.requests) == sent  # it is not paid for again
        found = search("hound", top_k=100)

    assert models_of(user) == [MODEL]
    assert not announcing.waiting().exists()
    assert set(texts(found)) == set(said) - {said[13]}
    assert texts(search("poison"))[0] == said[13]  # it is found by its words


def test_text_too_long_is_embedded_by_its_beginning(user: MemoryUser, serve: Serve) -> None:
    def script(request: EmbeddingsRequest) -> Misbehaviour:
        is_long = any(len(text) > 1000 for text in request.texts)
        return status(413) if is_long else embedded(request)

    server = serve(script)
    long, short = embedder_of(user).embed([("puppy " * 1000).strip(), "kitten"])

    assert long @ np.array(vector("dog")) > 0.99
    assert short @ np.array(vector("cat")) == pytest.approx(1)
    *_, beginning, last = server.texts
    assert (len(beginning), last) == (remote.SHORTEST_BEGINNING, "kitten")


def test_wrong_dimensions_are_refused(user: MemoryUser, serve: Serve, settings: Settings) -> None:
    settings.UAC_EMBEDDINGS_DIMENSIONS = 4
    serve(numbers(1.0, 0.0))
    with pytest.raises(EmbeddingFailed, match="vectors with 2 dimensions, not 4"):
        embedder_of(user).embed(["puppy"])


def test_other_dimensions_than_the_index_has_leave_the_words(
    eager: None, user: MemoryUser, say: Say, search: Find, serve: Serve
) -> None:
    serve()
    say("My puppy sleeps")
    index_all(user)
    question_cache.forget_recent()
    serve(numbers(1.0, 0.0))
    found = search("puppy")
    index_all(user)

    assert texts(found) == ["My puppy sleeps"]
    assert found.meaning.compared == 0
    assert f"vectors of {DIMENSIONS} dimensions, but {MODEL} returns 2" in (
        found.meaning.problem or ""
    )


def test_no_more_indexes_are_embedded_at_a_time_than_leave_threads_for_other_work(
    eager: None, user: MemoryUser, say: Say, serve: Serve
) -> None:
    server = serve()
    say("My puppy sleeps")
    for _ in range(remote.MAX_INDEXING):
        remote._indexing.acquire()
    try:
        index_all(user)
    finally:
        for _ in range(remote.MAX_INDEXING):
            remote._indexing.release()
    # It has its words, is no failure, and is retried when there may be a slot.
    assert (models_of(user), server.requests) == ([""], [])
    waiting = announcing.waiting().get()
    assert (waiting.attempts, waiting.last_error) == (0, "")
    assert not announcing.waiting().filter(leases.free(timezone.now())).exists()
    least, most = (
        datetime.timedelta(seconds=seconds) for seconds in index_maintenance.BUSY_SECONDS
    )
    assert NOON + least <= waiting.run_after <= timezone.now() + most
    again(user)
    assert models_of(user) == [MODEL]


# -- Large segments --------------------------------------------------------------------------------


@pytest.fixture
def steps_of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_maintenance, "STEP_PASSAGES", 10)


def test_a_large_segment_keeps_what_was_embedded_before_a_failure(
    user: MemoryUser, say_all: SayAll, search: Find, serve: Serve, steps_of_ten: None
) -> None:
    is_down = False

    def script(request: EmbeddingsRequest) -> Misbehaviour:
        return status(503) if is_down or len(server.texts) > 40 else embedded(request)

    said = [f"a puppy called {number}" for number in range(announcing.TAIL + 1)]
    server = serve(script)
    say_all(said)
    with pytest.raises(EmbeddingFailed):
        index_all(user)
    (row,) = segments_of(user)
    kept = SearchBlock.objects.filter(segment=row, number__gt=row.blocks + 1)
    assert kept.count() == 4
    assert search("puppy").meaning.compared == 0  # but by words
    assert problems_of(user) == []
    assert server.texts[:40] == said[:40]
    server = serve()
    again(user)
    found = search("hound", top_k=1000)

    assert server.texts == [*said[40:], "hound"]
    assert found.meaning == Meaning(MODEL, len(said), None)
    assert len(found.hits) == len(said)
    (row,) = segments_of(user)
    assert not SearchBlock.objects.filter(segment=row, number__gt=row.blocks + 1).exists()


def test_partial_vectors_of_another_model_are_discarded(
    user: MemoryUser, say_all: SayAll, search: Find, serve: Serve, steps_of_ten: None
) -> None:
    server: EmbeddingsServer = serve(
        lambda one: embedded(one) if len(server.texts) < 25 else status(503)
    )
    say_all(["a puppy"] * 3 + [f"a kitten {number}" for number in range(announcing.TAIL)])
    with pytest.raises(EmbeddingFailed):
        index_all(user)
    server = serve(model="openai:n")
    again(user)

    assert models_of(user) == ["openai:n"]
    assert len(server.texts) >= announcing.TAIL


def test_a_redaction_takes_along_what_was_embedded_so_far(
    user: MemoryUser, say: Say, say_all: SayAll, serve: Serve, steps_of_ten: None
) -> None:
    server: EmbeddingsServer = serve(
        lambda one: embedded(one) if len(server.texts) < 25 else status(503)
    )
    secret = say("my secret puppy")
    say_all([f"a kitten {number}" for number in range(announcing.TAIL)])
    with pytest.raises(EmbeddingFailed):
        index_all(user)
    assert SearchBlock.objects.filter(segment__user=user, number__gt=2).exists()
    redact(secret)

    assert not SearchBlock.objects.filter(segment__user=user).exists()


def test_question_of_leased_work_is_not_sent_without_the_lease(
    eager: None, user: MemoryUser, say: Say, serve: Serve
) -> None:
    server = serve()
    say("My puppy sleeps", session_id="a")
    index_all(user)
    work = leased(user)
    sent = len(server.requests)
    assert texts(find(user, "hound", lease=work)) == ["My puppy sleeps"]
    SearchIndex.objects.filter(user=user).update(**leases.REVOKED)
    with pytest.raises(leases.LeaseLost):
        find(user, "cat", lease=work)
    assert len(server.requests) == sent + 1


@pytest.mark.parametrize("is_large", [True, False])
def test_entry_redacted_between_two_calls_is_not_sent(
    eager: None,
    user: MemoryUser,
    say: Say,
    serve: Serve,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    is_large: bool,
) -> None:
    settings.UAC_EMBEDDINGS_BATCH = 1
    if is_large:
        monkeypatch.setattr(index_maintenance, "STEP_PASSAGES", 2)
    server = serve()
    say("My puppy sleeps", session_id="a")
    secret = say("my secret", session_id="b")
    say("The engine is loud", session_id="c")
    post = provider_api.request_embeddings

    def redact_then(*arguments: Any) -> Any:
        answer = post(*arguments)
        if len(server.requests) == 1:
            redact(secret)
        return answer

    monkeypatch.setattr(remote, "request_embeddings", redact_then)
    index_all(user)
    assert len(server.requests) == 1
    again(user)

    assert "my secret" not in server.texts
    assert models_of(user) == [MODEL]


# -- Another model ---------------------------------------------------------------------------------


STATIC = "wordllama/l2_supercat_256"
CARS = [f"a car called {number}" for number in range(announcing.TAIL)]


def fill(user: MemoryUser, say_all: SayAll) -> None:
    say_all(CARS)
    index_all(user)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"UAC_EMBEDDINGS": "openai:new-er"}, "openai:new-er"),
        ({"UAC_EMBEDDINGS_DIMENSIONS": 5}, "openai:old@5"),
    ],
)
def test_words_answer_until_the_log_is_embedded_anew_and_say_so(
    user: MemoryUser,
    say: Say,
    say_all: SayAll,
    search: Find,
    serve: Serve,
    settings: Settings,
    change: dict[str, Any],
    name: str,
) -> None:
    serve(model="openai:old")
    say("my puppy")
    fill(user, say_all)
    for setting, value in change.items():
        setattr(settings, setting, value)
    question_cache.forget_recent()
    between = search("car", top_k=1)

    assert between.meaning == Meaning(
        name,
        0,
        f"{announcing.TAIL + 1} passages were searched by words only: they have no vectors from"
        " this model yet.",
    )
    assert len(between.hits) == 1
    assert SearchIndex.objects.filter(user=user, due_at__isnull=False).exists()

    index_all(user)
    question_cache.forget_recent()
    after = search("hound", top_k=1)
    assert after.meaning == Meaning(name, announcing.TAIL + 1, None)
    assert texts(after) == ["my puppy"]


def test_a_question_goes_to_no_provider_that_is_not_named(
    user: MemoryUser, say_all: SayAll, search: Find, serve: Serve, settings: Settings
) -> None:
    server = serve()
    fill(user, say_all)
    sent = len(server.requests)
    settings.UAC_EMBEDDINGS = "wordllama"
    found = search("car", top_k=1)

    assert len(server.requests) == sent
    assert found.meaning.compared == 0


def test_an_installed_model_answers_though_the_new_one_fails(
    user: MemoryUser, say_all: SayAll, search: Find, serve: Serve, use: Use
) -> None:
    server = serve(lambda request: status(503), model="wordllama")
    fill(user, say_all)
    use(server, "openai:new-er")
    with pytest.raises(EmbeddingFailed):
        index_all(user)
    found = search("wheel", top_k=1)

    assert (found.meaning.model, found.meaning.compared) == (STATIC, announcing.TAIL)
    assert "openai:new-er has failed" in (found.meaning.problem or "")
    assert models_of(user) == [STATIC]


def test_segments_of_two_models_are_scored_each_by_its_own_on_one_scale(
    user: MemoryUser, say_all: SayAll, search: Find, serve: Serve, use: Use
) -> None:
    def fill_with_few(about: str) -> None:
        say_all([f"a tree called {number}" for number in range(announcing.TAIL - 3)])
        say_all([f"a {about} called {number}" for number in range(3)])

    server = serve(model="wordllama")
    fill_with_few("dog")
    index_all(user)
    use(server, "openai:new-er")
    fill_with_few("puppy")
    assert index_maintenance._step(leased(user))  # the first segment is still that of the old model
    assert models_of(user) == [STATIC, "openai:new-er"]
    found = search("hound", top_k=6)

    assert found.meaning.compared == 2 * announcing.TAIL
    assert found.meaning.problem is None
    assert found.meaning.model in (f"{STATIC} and openai:new-er", f"openai:new-er and {STATIC}")
    assert sorted(texts(found)) == [
        f"a {about} called {number}" for about in ("dog", "puppy") for number in range(3)
    ]


# -- What the answers say --------------------------------------------------------------------------


def test_search_and_context_say_what_meaning_did(api: APIClient, say: Say, serve: Serve) -> None:
    def ask(path: str) -> Any:
        response = api.post(f"/v1/users/ada/{path}/", {"query": "hound"})
        assert response.status_code == 200
        return response.json()["meaning"]

    is_down = False
    serve(lambda one: status(503) if is_down else embedded(one))
    say("My puppy sleeps")
    for path in ("search", "context"):
        assert ask(path) == {"model": MODEL, "compared": 1, "problem": None}
    is_down = True
    question_cache.forget_recent()
    for path in ("search", "context"):
        assert ask(path) == {
            "model": None,
            "compared": 0,
            "problem": f"{MODEL} has failed or is overloaded (status 503).",
        }
    assert api.post("/v1/users/ada/context/", {}).json()["meaning"] is None


def test_an_agent_reads_behind_a_context_what_kept_a_model_from_it() -> None:
    context = {"text": "What is known.", "meaning": {"problem": "m has failed."}}

    assert results.text_of(context) == "What is known.\n\n(Search: m has failed.)"
    for meaning in (None, {"problem": None}):
        assert results.text_of({**context, "meaning": meaning}) == "What is known."


def test_an_agent_reads_behind_a_context_what_it_had_no_room_for() -> None:
    left_out = {"manifest": 0, "alerts": 1, "state": 3, "facts": 0, "archive": 12}
    parts = [{"name": name, "left_out": number} for name, number in left_out.items()]

    told = results.text_of({"text": "What is known.", "parts": parts, "meaning": None})

    assert told == (
        "What is known.\n\n(Lines left out because of the size limit: 1 of the alerts, 3 of the"
        " records, 12 of the messages.)"
    )


def test_context_passages_are_not_sent(api: APIClient, say: Say, serve: Serve) -> None:
    server = serve()
    say("My puppy sleeps")
    api.post("/v1/users/ada/context/", {"query": "hound"})

    assert server.texts == ["hound", "My puppy sleeps"]


# -- Settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"UAC_EMBEDDINGS": "openai:"}, "UAC_EMBEDDINGS"),
        ({"UAC_EMBEDDINGS": "openai:a@b"}, "UAC_EMBEDDINGS"),
        ({"UAC_EMBEDDINGS": "cohere:embed"}, "UAC_EMBEDDINGS"),
        ({"UAC_EMBEDDINGS_API_KEY": ""}, "UAC_EMBEDDINGS_API_KEY"),
        ({"UAC_EMBEDDINGS_API_KEY": "sk-\n"}, "UAC_EMBEDDINGS_API_KEY"),
        ({"UAC_EMBEDDINGS_BASE_URL": "https://key@models/v1"}, "UAC_EMBEDDINGS_BASE_URL"),
        ({"UAC_EMBEDDINGS_DIMENSIONS": 0}, "UAC_EMBEDDINGS_DIMENSIONS"),
        ({"UAC_EMBEDDINGS_BATCH": 2049}, "UAC_EMBEDDINGS_BATCH"),
        ({"UAC_EMBEDDINGS_TIMEOUT_SECONDS": 0.0}, "UAC_EMBEDDINGS_TIMEOUT_SECONDS"),
        ({"UAC_EMBEDDINGS_QUERY_SECONDS": 61.0}, "UAC_EMBEDDINGS_QUERY_SECONDS"),
        ({"UAC_EMBEDDINGS_TOKENS_PER_DAY": 10}, "UAC_EMBEDDINGS_TOKENS_PER_DAY"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_named(
    settings: Settings, fields: dict[str, Any], name: str
) -> None:
    settings.UAC_EMBEDDINGS = MODEL
    settings.UAC_EMBEDDINGS_BASE_URL = ""
    assert checks.validate_server_settings() == {}
    for field, value in fields.items():
        setattr(settings, field, value)

    assert list(checks.validate_server_settings()) == [name]
    assert KEY not in str(checks.validate_server_settings())

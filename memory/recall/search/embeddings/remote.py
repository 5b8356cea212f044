"""Embeddings from a provider, over HTTP (`memory.recall.search.embeddings.provider_api`).

Every attempt is recorded like a language model call (`memory.llm.llm_calls`), but embeddings have a
budget of their own. Only the number and total length of the texts are recorded, because texts are
people's own words, and a short text could be guessed even from its hash.

Indexing is patient: it works in batches and retries each of them, and a text that the provider
rejects doesn't keep the others from being embedded. Searches are hurried: they make one attempt
within UAC_EMBEDDINGS_QUERY_SECONDS, and no attempts for a short while after a failure, so that a
hanging provider doesn't tie up every thread that serves searches.
"""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import structlog
from django.conf import settings

from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings import language_models
from memory.kernel.settings.language_models import Budget, Connection, LanguageModelError, Usage
from memory.llm import llm_calls, llm_spans
from memory.llm.llm_calls import Attempt, CallSession, Ending
from memory.llm.models import LlmOutcome, LlmPurpose
from memory.recall.search.embeddings.interface import EmbedderBusy, EmbeddingFailed, Floats
from memory.recall.search.embeddings.provider_api import (
    CallFailed,
    read_usage,
    read_vectors,
    request_embeddings,
)
from memory.recall.search.embeddings.question_cache import recent_failures, recent_vectors

logger = structlog.get_logger(__name__)

PROVIDER = "openai"
PREFIX = f"{PROVIDER}:"
# Maximum number of characters embedded per text; the rest of a longer text is ignored.
MAX_CHARACTERS = 8000
# If a text is rejected, ever shorter beginnings of it are tried, down to this many characters. The
# probe, which every model accepts, shows whether the provider rejects just that text or everything.
SHORTEST_BEGINNING = 500
PROBE = "text"
# The maximum number of characters in a batch, unless a single text is longer.
BATCH_CHARACTERS = 100_000
# A lower bound on the number of bytes per token, for any text.
BYTES_PER_TOKEN = 3
# The maximum number of concurrent calls per workspace.
MAX_CALLS = 64
# Maximum number of a process's threads that may embed texts for indexes simultaneously: if a
# provider hangs, some threads must remain free for the other work in the queue.
MAX_INDEXING = 4


def validate(named: str) -> str | None:
    """Return what is wrong with a model's name, or None if it is valid."""
    model = named.removeprefix(PREFIX)
    # The index has 200 bytes for the model's name and its number of dimensions.
    if not 0 < len(model.encode()) <= 180 or model != model.strip() or not model.isprintable():
        return f"Write the model's name after {PREFIX}, as in {PREFIX}text-embedding-3-small."
    if "@" in model:
        return (
            "A model's name must not contain @: set the number of dimensions with"
            " UAC_EMBEDDINGS_DIMENSIONS."
        )
    return None


def validate_server_settings() -> dict[str, str]:
    """Map each invalid setting's name to what is wrong with it."""
    problems: dict[str, str] = {}
    url, key = settings.UAC_EMBEDDINGS_BASE_URL, settings.UAC_EMBEDDINGS_API_KEY
    if url and (problem := language_models.wrong_url(url)):
        problems["UAC_EMBEDDINGS_BASE_URL"] = problem
    if not all("!" <= character <= "~" for character in key):
        problems["UAC_EMBEDDINGS_API_KEY"] = "A key may only contain visible ASCII characters."
    elif not key and not url and settings.UAC_EMBEDDINGS.startswith(PREFIX):
        problems["UAC_EMBEDDINGS_API_KEY"] = (
            f"{PROVIDER} requires an API key: set it, or set UAC_EMBEDDINGS_BASE_URL to the URL of"
            " a server that requires none."
        )
    return problems


def make(
    named: str, user: MemoryUser, *, hurried: bool = False, lease: LeasedWork | None = None
) -> "RemoteEmbedder":
    """Return the model with this name (`openai:…`), using the configured connection."""
    connection = Connection(
        provider=PROVIDER,
        model=named.removeprefix(PREFIX),
        base_url=settings.UAC_EMBEDDINGS_BASE_URL or language_models.PROVIDERS[PROVIDER],
        api_key=settings.UAC_EMBEDDINGS_API_KEY,
    )
    return RemoteEmbedder(connection, settings.UAC_EMBEDDINGS_DIMENSIONS, user, hurried, lease)


@dataclass(frozen=True)
class RemoteEmbedder:
    """A provider's model, used on behalf of one user, whose workspace pays for it.

    `lease` is the leased work that the texts belong to: once the lease is lost, no more texts are
    sent.
    """

    connection: Connection
    dimensions: int | None
    user: MemoryUser = field(repr=False)
    hurried: bool
    lease: LeasedWork | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The provider, model and, if configured, dimensions, all of which affect the vectors."""
        name = self.connection.name
        return f"{name}@{self.dimensions}" if self.dimensions else name

    def embed(self, texts: Sequence[str], *, is_question: bool = False) -> Floats:
        """Return a unit vector for each text, or a zero vector for a text that can't be embedded.

        A text can't be embedded if it is blank or if the provider persistently rejects it. Holds no
        transaction while waiting. Raises EmbeddingFailed or LeaseLost.
        """
        clean = [_clean(text) for text in texts]
        vectors = recent_vectors.get(self._cache_key, clean) if self.hurried else {}
        missing = [text for text in dict.fromkeys(clean) if text.strip() and text not in vectors]
        if missing:
            vectors |= (
                self._ask_in_a_hurry(missing, is_question)
                if self.hurried
                else self._ask_in_turn(missing)
            )
        sizes = {len(vector) for vector in vectors.values()}
        if len(sizes) > 1:
            raise EmbeddingFailed(
                f"{self.name} returns vectors with {' and '.join(map(str, sorted(sizes)))}"
                " dimensions:"
                " set UAC_EMBEDDINGS_DIMENSIONS."
            )
        nothing = np.zeros(sizes.pop() if sizes else self.dimensions or 0, np.float32)
        rows = [vectors.get(text, nothing) for text in clean]
        return np.stack(rows) if rows else np.zeros((0, len(nothing)), np.float32)

    @property
    def _cache_key(self) -> str:
        return f"{self.connection.base_url} {self.name}"

    def _ask_in_a_hurry(self, texts: Sequence[str], is_question: bool) -> dict[str, Floats]:
        """Make one attempt, unless a similar one has just failed, and cache the vectors."""
        # A question may succeed where a log's tail, which is longer, fails.
        kind = f"{self._cache_key} {is_question}"
        of_workspace = f"{kind} workspace {self.user.workspace_id}"
        of_user = f"{kind} user {self.user.pk}"
        for scope in (kind, of_workspace, of_user):
            if reason := recent_failures.reason(scope):
                raise EmbeddingFailed(reason)
        work = self._work()
        deadline = time.monotonic() + settings.UAC_EMBEDDINGS_QUERY_SECONDS
        vectors: dict[str, Floats] = {}
        for turn, batch in enumerate(_batches(texts), 1):
            try:
                seconds = deadline - time.monotonic()
                if seconds <= 0:
                    raise CallFailed(LlmOutcome.TIMEOUT, self.name)
                made = dict(zip(batch, self._attempt(work, turn, 1, batch, seconds), strict=True))
            except CallFailed as failure:
                # If there are several batches, the later ones get only the remaining time.
                is_late = failure.outcome == LlmOutcome.TIMEOUT and turn > 1
                is_own = failure.may_be_of_texts or is_late
                recent_failures.rest(of_user if is_own else kind, str(failure))
                raise EmbeddingFailed(str(failure)) from failure
            except EmbeddingFailed as error:
                recent_failures.rest(of_workspace, str(error))
                raise
            recent_vectors.keep(self._cache_key, made)
            vectors |= made
        return vectors

    def _ask_in_turn(self, texts: Sequence[str]) -> dict[str, Floats]:
        if not _indexing.acquire(blocking=False):
            raise EmbedderBusy(
                f"{MAX_INDEXING} threads of this process are already embedding other indexes."
            )
        try:
            work = self._work()
            return {
                text: vector
                for turn, batch in enumerate(_batches(texts), 1)
                for text, vector in zip(
                    batch, self._embed_patiently(work, turn, batch), strict=True
                )
            }
        finally:
            _indexing.release()

    def _work(self) -> CallSession:
        return CallSession(
            workspace=Workspace(pk=self.user.workspace_id),
            purpose=LlmPurpose.EMBED,
            user=self.user,
            lease=self.lease,
        )

    def _embed_patiently(self, work: CallSession, turn: int, texts: Sequence[str]) -> list[Floats]:
        """Return a batch's vectors; rejected texts don't keep the others from being embedded."""
        try:
            return self._try_again(work, turn, texts)
        except CallFailed as failure:
            if not failure.may_be_of_texts:
                raise EmbeddingFailed(str(failure)) from failure
            self._probe(work, turn, failure)
            return self._embed_apart(work, turn, texts, failure)

    def _embed_apart(
        self, work: CallSession, turn: int, texts: Sequence[str], refused: CallFailed
    ) -> list[Floats]:
        """Return the vectors of texts that were rejected as a batch: embed each half separately.

        A single text is cut down to its beginning, or gets a zero vector.
        """
        first, half = texts[0], len(texts) // 2
        parts: list[Sequence[str]]
        if half:
            parts = [texts[:half], texts[half:]]
        elif len(first) > SHORTEST_BEGINNING:
            parts = [[first[: max(len(first) // 4, SHORTEST_BEGINNING)]]]
        else:
            nothing = np.zeros_like(self._probe(work, turn, refused))
            logger.warning("text_without_vector", user=self.user.pk, reason=str(refused))
            return [nothing]
        vectors: list[Floats] = []
        for part in parts:
            try:
                vectors += self._try_again(work, turn, part)
            except CallFailed as failure:
                if not failure.may_be_of_texts:
                    raise EmbeddingFailed(str(failure)) from failure
                vectors += self._embed_apart(work, turn, part, failure)
        return vectors

    def _probe(self, work: CallSession, turn: int, refused: CallFailed) -> Floats:
        """Return the vector of a text that every model accepts.

        Raises EmbeddingFailed if even this text is rejected, which means that the rejected texts
        are not to blame.
        """
        try:
            made = self._attempt(work, turn, 1, [PROBE], settings.UAC_EMBEDDINGS_TIMEOUT_SECONDS)
        except CallFailed:
            raise EmbeddingFailed(str(refused)) from refused
        vector: Floats = made[0]
        return vector

    def _try_again(self, work: CallSession, turn: int, texts: Sequence[str]) -> list[Floats]:
        """Retry until the call succeeds, or raise CallFailed once retrying is pointless."""
        seconds = settings.UAC_EMBEDDINGS_TIMEOUT_SECONDS
        attempt = 0
        while True:
            attempt += 1
            try:
                return list(self._attempt(work, turn, attempt, texts, seconds))
            except CallFailed as failure:
                wait = None
                if failure.passing:
                    wait = llm_calls.pause_before_next(attempt, failure.retry_after)
                if wait is None:
                    raise
            time.sleep(wait)

    def _attempt(
        self, work: CallSession, turn: int, attempt: int, texts: Sequence[str], seconds: float
    ) -> Floats:
        """Make one call and record its result, even if it fails."""
        about = {"texts": len(texts), "characters": sum(map(len, texts))}
        most = Usage(input_tokens=sum(map(_tokens, texts)), output_tokens=0)
        try:
            call = llm_calls.start(
                work,
                Attempt(
                    model=self.connection.name,
                    turn=turn,
                    attempt=attempt,
                    prompt=about,
                    most=most,
                    seconds=seconds,
                ),
                keep_content=False,
                budget=_budget(),
            )
        except LanguageModelError as error:
            raise EmbeddingFailed(f"{self.name}, embeddings: {error}") from error
        started = time.perf_counter()
        outcome, problem, unsent = (
            LlmOutcome.INTERRUPTED,
            "The process was stopped during the call.",
            False,
        )
        usage = None
        try:
            with llm_spans.model_span("embeddings", call.model, purpose=call.purpose) as span:
                answer = request_embeddings(
                    self.connection, self._body(texts), seconds, len(texts), self.name
                )
                usage = read_usage(answer)
                llm_spans.note_answer(span, "", usage)
                made = read_vectors(answer, len(texts), self.dimensions, self.name)
            outcome, problem = LlmOutcome.OK, ""
        except CallFailed as failure:
            outcome, problem, unsent = failure.outcome, str(failure), failure.unsent
            raise
        finally:
            took = time.perf_counter() - started
            llm_calls.finish(
                call,
                Ending(outcome=outcome, seconds=took, usage=usage, error=problem, unsent=unsent),
                keep_content=False,
            )
            logger.info(
                "embeddings_call",
                call=str(call.pk),
                model=call.model,
                attempt=attempt,
                outcome=outcome,
                seconds=round(took, 3),
                tokens=usage.tokens if usage else None,
                **about,
            )
        return made

    def _body(self, texts: Sequence[str]) -> bytes:
        body: dict[str, Any] = {
            "model": self.connection.model,
            "input": list(texts),
            "encoding_format": "float",
        }
        if self.dimensions:
            body["dimensions"] = self.dimensions
        return json.dumps(body).encode()


def _budget() -> Budget:
    return Budget(
        concurrency=MAX_CALLS,
        tokens_per_day=settings.UAC_EMBEDDINGS_TOKENS_PER_DAY,
        tokens_per_month=None,
        cost_per_day=None,
        cost_per_month=None,
    )


def _clean(text: str) -> str:
    # JSON may contain lone surrogates, which are not valid Unicode.
    return text[:MAX_CHARACTERS].encode("utf-8", "replace").decode()


def _tokens(text: str) -> int:
    return 1 + len(text.encode()) // BYTES_PER_TOKEN


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        is_full = len(batch) >= settings.UAC_EMBEDDINGS_BATCH
        if batch and (is_full or characters + len(text) > BATCH_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(text)
        characters += len(text)
    if batch:
        yield batch


_indexing = threading.BoundedSemaphore(MAX_INDEXING)

"""Embeddings of a provider over HTTP: `POST {base URL}/embeddings`, OpenAI's protocol.

Every attempt is a row among the calls of language models (`memory.llm.llm_calls`), with a budget of
its own. The row holds only the number and length of the texts: they are people's words, one by one,
and a short one can be guessed from its hash.

Indexing is patient: it works in batches, retries each, and a text that the provider refuses does
not keep the others from their vectors. Searches are hurried: one attempt within
UAC_EMBEDDINGS_QUERY_SECONDS, and none for a moment after a failure, so that a provider that hangs
does not occupy every thread that answers searches.
"""

import email.utils
import hashlib
import http.client
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import structlog
from django.conf import settings
from django.utils import timezone

from memory.delivery import connections, destinations
from memory.llm import language_models, llm_calls
from memory.llm.language_models import Budget, Connection, LanguageModelError, Usage
from memory.llm.llm_calls import Attempt, CallSession, Ending
from memory.models import MemoryUser, Workspace
from memory.models.leased import LeasedWork
from memory.models.llm import LlmOutcome, LlmPurpose
from memory.operations import tracing
from memory.recall.search.embeddings.interface import EmbedderBusy, EmbeddingFailed, Floats

logger = structlog.get_logger(__name__)

PROVIDER = "openai"
PREFIX = f"{PROVIDER}:"
# Of a longer text only the beginning is embedded.
MAX_CHARACTERS = 8000
# A refused text is retried with ever shorter beginnings, down to this many characters; and a text
# that every model accepts tells whether the provider refuses the text, or everything.
SHORTEST_BEGINNING = 500
PROBE = "text"
# Characters sent at a time, but at least one text.
BATCH_CHARACTERS = 100_000
# As many numbers as any model gives a text.
MAX_DIMENSIONS = 16_384
# A lower bound of the bytes per token in any text sent.
BYTES_PER_TOKEN = 3
# Limits of a response, fixed and per text, whose numbers are written out in decimal.
ANSWER_BYTES, ANSWER_BYTES_OF_TEXT = 1024 * 1024, 24 * MAX_DIMENSIONS
# Concurrent calls of one workspace.
MAX_CALLS = 64
# So many threads of a process embed indexes at a time: a provider that hangs must leave threads for
# the other work of the queue.
MAX_INDEXING = 4
# After a question or tail that could not be embedded, no other is sent for this many seconds: for
# anybody if the provider failed, else for the user or workspace whose text or budget it was.
REST_SECONDS = 10.0
# Vectors of questions and of tails of logs that a process caches.
RECENT_BYTES = 16 * 1024 * 1024


def validate(named: str) -> str | None:
    """Return the problem of a model's name, None if it is valid."""
    model = named.removeprefix(PREFIX)
    # The index stores the name with the dimensions in 200 bytes.
    if not 0 < len(model.encode()) <= 180 or model != model.strip() or not model.isprintable():
        return f"Name a model after {PREFIX}, such as {PREFIX}text-embedding-3-small."
    if "@" in model:
        return (
            "A model's name has no @: how many numbers a vector has is UAC_EMBEDDINGS_DIMENSIONS."
        )
    return None


def validate_server_settings() -> dict[str, str]:
    """Return which of the settings are wrong, and what is wrong with them, by their names."""
    found: dict[str, str] = {}
    url, key = settings.UAC_EMBEDDINGS_BASE_URL, settings.UAC_EMBEDDINGS_API_KEY
    if url and (problem := language_models.wrong_url(url)):
        found["UAC_EMBEDDINGS_BASE_URL"] = problem
    if not all("!" <= character <= "~" for character in key):
        found["UAC_EMBEDDINGS_API_KEY"] = "A key consists of visible ASCII characters."
    elif not key and not url and settings.UAC_EMBEDDINGS.startswith(PREFIX):
        found["UAC_EMBEDDINGS_API_KEY"] = (
            f"{PROVIDER} wants an API key: set it, or UAC_EMBEDDINGS_BASE_URL to the address of a"
            " server that wants none."
        )
    return found


def make(
    named: str, user: MemoryUser, *, hurried: bool = False, lease: LeasedWork | None = None
) -> "RemoteEmbedder":
    """Return the model of this name (`openai:…`) with the configured connection."""
    dimensions = settings.UAC_EMBEDDINGS_DIMENSIONS
    return _make(named.removeprefix(PREFIX), dimensions, user, hurried, lease)


def make_earlier(name: str, named: str, user: MemoryUser) -> "RemoteEmbedder | None":
    """Return the model `named`, for questions, if its vectors have this name; otherwise None.

    It may have had other dimensions than those configured now.
    """
    if name == named:
        return _make(named.removeprefix(PREFIX), None, user, hurried=True)
    base, _, dimensions = name.rpartition("@")
    if base != named or not dimensions.isdecimal():
        return None
    return _make(named.removeprefix(PREFIX), int(dimensions), user, hurried=True)


def _make(
    model: str,
    dimensions: int | None,
    user: MemoryUser,
    hurried: bool,
    lease: LeasedWork | None = None,
) -> "RemoteEmbedder":
    connection = Connection(
        provider=PROVIDER,
        model=model,
        base_url=settings.UAC_EMBEDDINGS_BASE_URL or language_models.PROVIDERS[PROVIDER],
        api_key=settings.UAC_EMBEDDINGS_API_KEY,
    )
    return RemoteEmbedder(connection, dimensions, user, hurried, lease)


@dataclass(frozen=True)
class RemoteEmbedder:
    """A provider's model, used on behalf of one user, whose workspace pays.

    `lease` is the work that the texts belong to: once it is lost, they are not sent any more.
    """

    connection: Connection
    dimensions: int | None
    user: MemoryUser = field(repr=False)
    hurried: bool
    lease: LeasedWork | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """Provider and model, with the dimensions if configured, since these change vectors."""
        name = self.connection.name
        return f"{name}@{self.dimensions}" if self.dimensions else name

    def embed(self, texts: Sequence[str], *, is_question: bool = False) -> Floats:
        """Return a vector of length 1 for each text.

        It is of length 0 for a text without words, or one that the provider always refuses. Holds
        no transaction while it waits. Raises EmbeddingFailed; LeaseLost.
        """
        clean = [_clean(text) for text in texts]
        known = _recent.get(self._place, clean) if self.hurried else {}
        missing = [text for text in dict.fromkeys(clean) if text.strip() and text not in known]
        if missing:
            known |= (
                self._ask_in_a_hurry(missing, is_question)
                if self.hurried
                else self._ask_in_turn(missing)
            )
        sizes = {len(vector) for vector in known.values()}
        if len(sizes) > 1:
            raise EmbeddingFailed(
                f"{self.name} gives vectors of {' and of '.join(map(str, sorted(sizes)))} numbers:"
                " set UAC_EMBEDDINGS_DIMENSIONS."
            )
        nothing = np.zeros(sizes.pop() if sizes else self.dimensions or 0, np.float32)
        found = [known.get(text, nothing) for text in clean]
        return np.stack(found) if found else np.zeros((0, len(nothing)), np.float32)

    @property
    def _place(self) -> str:
        return f"{self.connection.base_url} {self.name}"

    def _ask_in_a_hurry(self, texts: Sequence[str], is_question: bool) -> dict[str, Floats]:
        """Ask once, unless the same failed a moment ago; cache the vectors."""
        # A question may succeed where the tail of a log, which is longer, does not.
        kind = f"{self._place} {is_question}"
        of_workspace = f"{kind} workspace {self.user.workspace_id}"
        of_user = f"{kind} user {self.user.pk}"
        for place in (kind, of_workspace, of_user):
            if reason := _resting.reason(place):
                raise EmbeddingFailed(reason)
        work = self._work()
        deadline = time.monotonic() + settings.UAC_EMBEDDINGS_QUERY_SECONDS
        found: dict[str, Floats] = {}
        for turn, batch in enumerate(_batches(texts), 1):
            try:
                seconds = deadline - time.monotonic()
                if seconds <= 0:
                    raise _CallFailed(LlmOutcome.TIMEOUT, self.name)
                made = dict(zip(batch, self._attempt(work, turn, 1, batch, seconds), strict=True))
            except _CallFailed as failure:
                # The last batches of many texts have less than the whole time.
                is_late = failure.outcome == LlmOutcome.TIMEOUT and turn > 1
                is_own = failure.may_be_of_texts or is_late
                _resting.rest(of_user if is_own else kind, str(failure))
                raise EmbeddingFailed(str(failure)) from failure
            except EmbeddingFailed as error:
                _resting.rest(of_workspace, str(error))
                raise
            _recent.keep(self._place, made)
            found |= made
        return found

    def _ask_in_turn(self, texts: Sequence[str]) -> dict[str, Floats]:
        if not _indexing.acquire(blocking=False):
            raise EmbedderBusy(f"{MAX_INDEXING} threads of this process embed other indexes.")
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
        """Return the vectors of a batch; refused texts are embedded apart from the rest."""
        try:
            return self._try_again(work, turn, texts)
        except _CallFailed as failure:
            if not failure.may_be_of_texts:
                raise EmbeddingFailed(str(failure)) from failure
            self._probe(work, turn, failure)
            return self._embed_apart(work, turn, texts, failure)

    def _embed_apart(
        self, work: CallSession, turn: int, texts: Sequence[str], refused: "_CallFailed"
    ) -> list[Floats]:
        """Return the vectors of texts that were refused together, by embedding each half.

        A single text is replaced by its beginning, or gets a vector of length 0.
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
        found: list[Floats] = []
        for part in parts:
            try:
                found += self._try_again(work, turn, part)
            except _CallFailed as failure:
                if not failure.may_be_of_texts:
                    raise EmbeddingFailed(str(failure)) from failure
                found += self._embed_apart(work, turn, part, failure)
        return found

    def _probe(self, work: CallSession, turn: int, refused: "_CallFailed") -> Floats:
        """Return the vector of an acceptable text; EmbeddingFailed if even that is refused.

        In that case the texts are not to blame.
        """
        try:
            made = self._attempt(work, turn, 1, [PROBE], settings.UAC_EMBEDDINGS_TIMEOUT_SECONDS)
        except _CallFailed:
            raise EmbeddingFailed(str(refused)) from refused
        vector: Floats = made[0]
        return vector

    def _try_again(self, work: CallSession, turn: int, texts: Sequence[str]) -> list[Floats]:
        """Retry until there is an answer, or no hope of one; raises _CallFailed."""
        seconds = settings.UAC_EMBEDDINGS_TIMEOUT_SECONDS
        attempt = 0
        while True:
            attempt += 1
            try:
                return list(self._attempt(work, turn, attempt, texts, seconds))
            except _CallFailed as failure:
                wait = None
                if failure.passing:
                    wait = llm_calls.pause_before_next(attempt, failure.retry_after)
                if wait is None:
                    raise
            time.sleep(wait)

    def _attempt(
        self, work: CallSession, turn: int, attempt: int, texts: Sequence[str], seconds: float
    ) -> Floats:
        """Ask once, and record the result, whatever it is."""
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
        outcome, problem, unsent = LlmOutcome.INTERRUPTED, "It was stopped during the call.", False
        usage = None
        try:
            with tracing.span("embeddings", model=call.model):
                answer = _post(self.connection, self._body(texts), seconds, len(texts), self.name)
                usage = _usage(answer)
                made = _read(answer, len(texts), self.dimensions, self.name)
            outcome, problem = LlmOutcome.OK, ""
        except _CallFailed as failure:
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


# -- One call --------------------------------------------------------------------------------------

_SUMMARIES = {
    LlmOutcome.TIMEOUT: "did not answer in time",
    LlmOutcome.CONNECTION_LOST: "cannot be reached, or dropped the connection",
    LlmOutcome.RATE_LIMITED: "takes no more calls with this key for the moment",
    LlmOutcome.UNAVAILABLE: "has failed or is overloaded",
    LlmOutcome.WRONG_KEY: "refuses the key: check UAC_EMBEDDINGS_API_KEY",
    LlmOutcome.NO_CREDIT: "says that the account has no credit or quota left",
    LlmOutcome.UNKNOWN_MODEL: "is not known there: check UAC_EMBEDDINGS and"
    " UAC_EMBEDDINGS_BASE_URL",
    LlmOutcome.REJECTED: "refuses the request",
    LlmOutcome.INVALID_ANSWER: "answers something else than embeddings",
}
_STATUSES = {
    401: LlmOutcome.WRONG_KEY,
    402: LlmOutcome.NO_CREDIT,
    403: LlmOutcome.WRONG_KEY,
    404: LlmOutcome.UNKNOWN_MODEL,
    408: LlmOutcome.UNAVAILABLE,
    409: LlmOutcome.UNAVAILABLE,
    425: LlmOutcome.UNAVAILABLE,
    429: LlmOutcome.RATE_LIMITED,
}
_PASSING = (
    LlmOutcome.TIMEOUT,
    LlmOutcome.CONNECTION_LOST,
    LlmOutcome.RATE_LIMITED,
    LlmOutcome.UNAVAILABLE,
)
# Other texts may succeed.
_OF_TEXTS = (LlmOutcome.REJECTED, LlmOutcome.INVALID_ANSWER)


def _summary(outcome: LlmOutcome, name: str, detail: str = "") -> str:
    return f"{name} {_SUMMARIES[outcome]}" + (f" ({detail})." if detail else ".")


class _CallFailed(Exception):
    """A call that returned no vectors. The message is ours: a provider's may quote texts."""

    def __init__(
        self,
        outcome: LlmOutcome,
        name: str,
        detail: str = "",
        *,
        retry_after: float | None = None,
        unsent: bool = False,
        passing: bool | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(_summary(outcome, name, detail))
        self.outcome = outcome
        self.status = status
        self.retry_after = retry_after
        self.unsent = unsent
        self.passing = outcome in _PASSING if passing is None else passing

    @property
    def may_be_of_texts(self) -> bool:
        """Tell whether other texts may succeed. On some texts servers fail instead of refusing."""
        has_failed = self.status == 500 and self.retry_after is None
        return self.outcome in _OF_TEXTS or has_failed


def _post(
    connection: Connection, body: bytes, seconds: float, number: int, name: str
) -> Mapping[str, Any]:
    """Return the response as JSON; raises _CallFailed."""
    deadline = time.monotonic() + seconds
    parts = urlsplit(connection.base_url)
    host, port = parts.hostname or "", parts.port or destinations.PORTS[parts.scheme]
    try:
        found = destinations.look_up(host, port, seconds)
        plain, _ = connections.connect(found, port, deadline)
    except (destinations.NotFound, TimeoutError, OSError) as error:
        is_late = isinstance(error, TimeoutError | connections.Late)
        outcome = LlmOutcome.TIMEOUT if is_late else LlmOutcome.CONNECTION_LOST
        raise _CallFailed(outcome, name, type(error).__name__, unsent=True) from error
    try:
        with plain:
            is_encrypted = parts.scheme == "https"
            secured = connections.encrypt(plain, host, deadline) if is_encrypted else plain
            with secured:
                most = ANSWER_BYTES + number * ANSWER_BYTES_OF_TEXT
                wire = connections.Wire(secured, deadline, most)
                status, retry_after, answer = _exchange(wire, connection, body, parts.path, host)
    except (TimeoutError, connections.Late) as error:
        raise _CallFailed(LlmOutcome.TIMEOUT, name, f"{seconds:.1f} s") from error
    except connections.TooLong as error:
        raise _CallFailed(LlmOutcome.INVALID_ANSWER, name, "it is too long") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _CallFailed(LlmOutcome.CONNECTION_LOST, name, type(error).__name__) from error
    if status != 200:
        raise _refused(status, retry_after, answer, name)
    try:
        payload = json.loads(answer)
    except (ValueError, RecursionError):
        payload = None
    if not isinstance(payload, dict):
        # A proxy that answers in the provider's place may be gone in a moment.
        raise _CallFailed(LlmOutcome.INVALID_ANSWER, name, "it is no JSON object", passing=True)
    return payload


def _exchange(
    wire: connections.Wire, connection: Connection, body: bytes, path: str, host: str
) -> tuple[int, str, bytes]:
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "Connection": "close",
        "Host": urlsplit(connection.base_url).netloc,
    }
    if connection.api_key:
        headers["Authorization"] = f"Bearer {connection.api_key}"
    client = http.client.HTTPConnection(host)
    client.sock = wire
    client.request("POST", f"{path.rstrip('/')}/embeddings", body, headers)
    response = client.getresponse()
    return response.status, response.getheader("Retry-After", ""), response.read()


def _refused(status: int, retry_after: str, answer: bytes, name: str) -> _CallFailed:
    outcome = _STATUSES.get(status)
    if outcome is None and 400 <= status < 500:
        outcome = LlmOutcome.REJECTED
    elif outcome is None:
        outcome = LlmOutcome.UNAVAILABLE if status >= 500 else LlmOutcome.INVALID_ANSWER
    if outcome == LlmOutcome.RATE_LIMITED and b'"insufficient_quota"' in answer:
        outcome = LlmOutcome.NO_CREDIT
    wait = _seconds(retry_after)
    return _CallFailed(outcome, name, f"status {status}", retry_after=wait, status=status)


def _seconds(retry_after: str) -> float | None:
    """Return Retry-After in seconds; None if it cannot be read."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            moment = email.utils.parsedate_to_datetime(retry_after)
            seconds = (moment - timezone.now()).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(seconds, 0.0) if seconds < 10**9 else None


def _usage(answer: Mapping[str, Any]) -> Usage | None:
    """Return the tokens that the provider reports; None if there are none, or nonsense."""
    told = answer.get("usage")
    tokens = told.get("prompt_tokens") if isinstance(told, dict) else None
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not 0 <= tokens < 10**12:
        return None
    return Usage(input_tokens=tokens, output_tokens=0)


def _read(answer: Mapping[str, Any], number: int, dimensions: int | None, name: str) -> Floats:
    """Return the vectors of a response, each of length 1, in the order of the texts."""

    def wrong(detail: str) -> _CallFailed:
        return _CallFailed(LlmOutcome.INVALID_ANSWER, name, detail)

    data = answer.get("data")
    if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
        raise wrong("it has no data")
    if len(data) != number:
        raise wrong(f"{len(data)} vectors for {number} texts")
    placed = {one["index"]: one.get("embedding") for one in data if type(one.get("index")) is int}
    if set(placed) != set(range(number)):
        raise wrong("its indexes are not those of the texts")
    try:
        with np.errstate(over="ignore"):
            found = np.array([placed[place] for place in range(number)], np.float32)
    except (ValueError, TypeError, OverflowError):
        raise wrong("a vector is no list of numbers, or longer than another") from None
    if found.ndim != 2 or not 0 < found.shape[1] <= MAX_DIMENSIONS:
        raise wrong("a vector is no list of numbers")
    if dimensions is not None and found.shape[1] != dimensions:
        raise wrong(f"vectors of {found.shape[1]} numbers, not of {dimensions}")
    lengths = np.linalg.norm(found.astype(np.float64), axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise wrong("a vector is not finite")
    unit: Floats = (found / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return unit


# -- Caches for hurried requests -------------------------------------------------------------------


class _Resting:
    """Recent failures and their reasons: the same is not tried again for a moment."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, str]] = {}

    def rest(self, place: str, reason: str) -> None:
        now = time.monotonic()
        # Replaced as a whole: other threads read it meanwhile.
        kept = {of: one for of, one in self._until.items() if one[0] > now}
        self._until = {**kept, place: (now + REST_SECONDS, reason)}

    def reason(self, place: str) -> str | None:
        until, reason = self._until.get(place, (0.0, ""))
        return reason if time.monotonic() < until else None

    def clear(self) -> None:
        self._until = {}


class _Recent:
    """Cached vectors of questions and of entries not indexed yet, by the digest of their texts.

    A vector is returned to a caller that has its text; nobody has the text of a redacted entry.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._vectors: OrderedDict[bytes, Floats] = OrderedDict()
        self._bytes = 0

    def get(self, place: str, texts: Sequence[str]) -> dict[str, Floats]:
        found = {}
        with self._lock:
            for text in texts:
                if (vector := self._vectors.get(digest := _digest(place, text))) is not None:
                    self._vectors.move_to_end(digest)
                    found[text] = vector
        return found

    def keep(self, place: str, made: Mapping[str, Floats]) -> None:
        with self._lock:
            for text, vector in made.items():
                gone = self._vectors.pop(_digest(place, text), None)
                self._bytes += vector.nbytes - (0 if gone is None else gone.nbytes)
                self._vectors[_digest(place, text)] = vector.copy()
            while self._bytes > RECENT_BYTES:
                _, oldest = self._vectors.popitem(last=False)
                self._bytes -= oldest.nbytes

    def clear(self) -> None:
        with self._lock:
            self._vectors.clear()
            self._bytes = 0


def _digest(place: str, text: str) -> bytes:
    return hashlib.sha256(f"{place}\0{text}".encode()).digest()


_indexing = threading.BoundedSemaphore(MAX_INDEXING)
_resting = _Resting()
_recent = _Recent()


def forget_recent() -> None:
    """Clear the recent failures and cached vectors."""
    _resting.clear()
    _recent.clear()

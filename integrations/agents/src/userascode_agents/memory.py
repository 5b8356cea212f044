"""The memory of one user in one conversation: all that the adapters do, without a framework.

`brief` and `remember_turn` run unasked with each turn: if they fail, they log it, and the agent
goes on without its memory. The tools answer a model in text, also about what went wrong.
"""

import hashlib
import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

from userascode import Client, UserAsCodeError, fact, models, problems
from userascode.errors import ConnectionFailed
from userascode.params import NewTextEntry, Turn

logger = logging.getLogger("userascode_agents")

# Seconds for a request that an answer waits for.
TIMEOUT = 10.0
# Limits of the API: for a question, for an entry, and for the turns before a question.
MAX_QUERY = 10_000
MAX_ENTRY = 1_000_000
MAX_TURNS, MAX_TURN = 8, 4_000
# Maximum number of forecasts and of alerts in a text, and of characters in a tool's answer.
MAX_FORECASTS = 5
MAX_ALERTS = 20
MAX_ANSWER = 8_000

INSTRUCTIONS = (
    "You have a memory of the user. If an open alert below matters and the user does not know of it"
    " yet in this conversation, mention it, even if the user has not asked. To count, add up or"
    " compare, call `compute` instead of estimating."
)
FORECASTS = "Alerts to come if nothing changes but the date"

# Seconds for which an agent does not wait again for a server that could not be reached.
PAUSE = 30.0

Result = TypeVar("Result")

# Until when which server is not asked, on the monotonic clock, and why.
_unreachable: WeakKeyDictionary[Client, tuple[float, ConnectionFailed]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Message:
    """What the user or the assistant said. Tool calls, their results and prompts are not said."""

    role: Literal["user", "assistant"]
    text: str


@cache
def default_client() -> Client:
    """Return a client of the server that `UAC_URL` and `UAC_KEY` name, shared by all memories."""
    return Client(timeout=TIMEOUT)


class Memory:
    """What a server remembers of one user, for one conversation (`session_id`) with an agent.

    A memory is cheap: create one for each conversation. It may be shared by threads. An unknown
    user is created. Without a `session_id`, the conversation ends with this object.
    """

    def __init__(
        self,
        user_id: str,
        *,
        session_id: str | None = None,
        agent_id: str | None = None,
        tokens: int = 1500,
        client: Client | None = None,
    ) -> None:
        self.user_id = user_id
        self.session_id = session_id or str(uuid.uuid4())
        self.agent_id = agent_id
        self.tokens = tokens
        self.client = client or default_client()
        self.user = self.client.user(user_id)
        # The last turn and its brief: an agent may call its model several times in a turn.
        self._brief = ("", "")

    # -- Unasked, with each turn -------------------------------------------------------------------

    def brief(self, messages: Sequence[Message], turn_id: str = "") -> str:
        """Return what the model should know for its answer to the newest message of the user.

        It has the open alerts, what comes up, and what matters for the message. It is empty if the
        memory fails, or if the user has said nothing. In the same turn, it stays the same. A
        `turn_id` names a turn whose messages come without those before them: only by it can the
        same words be told from those of an earlier turn.
        """
        asked = list(messages)
        while asked and asked[-1].role != "user":
            asked.pop()
        if not asked:
            return ""
        *_, turn = _keys(self.session_id + turn_id, asked)
        if self._brief[0] != turn:
            try:
                text = self._compose(asked[-1].text, asked[:-1])
            except Exception as error:
                _log(f"A turn of user {self.user_id} has no memory", error)
                text = ""
            self._brief = (turn, text)
        return self._brief[1]

    def remember_turn(self, messages: Sequence[Message], turn_id: str = "") -> None:
        """Append the last turn to the log of the user: what it said last, and the answers.

        `messages` is the conversation as the agent has it. The same turn of the same conversation
        is appended once, however often this is called. `turn_id` is as in `brief`.
        """
        start = _start_of_turn(messages)
        keys = list(_keys(self.session_id + turn_id, messages))[start:]
        entries = [
            self._entry({"kind": "message", "content": one.text, "role": one.role}, key)
            for one, key in zip(messages[start:], keys, strict=True)
        ]
        try:
            if entries:
                self.send(lambda: self.user.add(*entries), is_urgent=True)
        except Exception as error:
            _log(f"A turn of user {self.user_id} is not remembered", error)

    # -- Tools -------------------------------------------------------------------------------------

    @property
    def tools(self) -> list[Callable[..., str]]:
        """The tools for a model, which a framework describes by their docstrings."""
        return [self.remember, self.recall, self.compute, self.alerts]

    def remember(self, text: str) -> str:
        """Remember a fact about the user that must not be lost. What is said is remembered anyway.

        Args:
            text: One self-contained statement, such as "Ada is allergic to penicillin".
        """
        key = f"fact:{_digest([self.session_id, text])}"

        def append() -> str:
            appended = self.send(lambda: self.user.add(self._entry(fact(text), key)))
            return f"Remembered as entry {appended.entries[0].seq}."

        return _answered(append)

    def recall(self, query: str) -> str:
        """Find what was said or recorded about the user, by words and by meaning.

        Args:
            query: A question or words. Ask for one thing at a time.
        """

        def search() -> str:
            hits = self.send(lambda: self.user.search(query[:MAX_QUERY], top_k=10)).hits
            return "\n".join(map(_line_of_hit, hits)) or "Nothing was found."

        return _answered(search)

    def compute(self, code: str) -> str:
        """Compute an exact answer from the user's records with Python, and return its evidence.

        Use it to count, add up, compare or list. Collections are lists of records, available under
        their names, such as `trips`; `today`, `date`, `timedelta` and `Counter` are available too.

        Args:
            code: An expression, such as `sum(trip.cost for trip in trips if trip.to == "Rome")`.
        """

        def query() -> str:
            answer = self.send(lambda: self.user.query(code, timeout=60))
            whole = answer.model_dump(mode="json", by_alias=True)
            parts = ("value", "evidence", "ties", "set_aside", "lapsed")
            shown = {name: whole[name] for name in parts}
            return _json({name: part for name, part in shown.items() if part or name == "value"})

        return _answered(query)

    def alerts(self) -> str:
        """List what is wrong or due for the user now, and what will be if nothing changes."""

        def read() -> str:
            alerts = self.send(lambda: self.user.alerts.list(state="open", page_size=500).all())
            lines = [
                f"{alert.severity}: {alert.message} {_numbers(alert.entries)}" for alert in alerts
            ]
            if len(lines) > MAX_ALERTS:
                lines[MAX_ALERTS:] = [f"… and {len(lines) - MAX_ALERTS} more"]
            to_come = _forecasts(self.user.forecast())
            return "\n".join([*(lines or ["There is no open alert."]), *to_come])

        return _answered(read)

    # -- Requests ----------------------------------------------------------------------------------

    def _compose(self, question: str, before: Sequence[Message]) -> str:
        turns: list[Turn] = [
            {"role": one.role, "content": one.text[:MAX_TURN]} for one in before[-MAX_TURNS:]
        ]
        context = self.send(
            lambda: self.user.context(question[:MAX_QUERY], messages=turns, tokens=self.tokens)
        )
        lines = _forecasts(self.user.forecast())
        return "\n\n".join(filter(None, [INSTRUCTIONS, context.text, "\n".join(lines)]))

    def _entry(self, entry: NewTextEntry, key: str) -> NewTextEntry:
        entry["content"] = entry["content"][:MAX_ENTRY]
        entry["session_id"] = self.session_id
        entry["idempotency_key"] = key
        if self.agent_id is not None:
            entry["agent_id"] = self.agent_id
        return entry

    def send(self, request: Callable[[], Result], *, is_urgent: bool = False) -> Result:
        """Send a request; if the user is unknown, create it and send the request again.

        Unless the request is urgent, raises ConnectionFailed at once if the server could not be
        reached a moment ago: an agent that waits for each request in turn answers nobody.
        """
        until, failure = _unreachable.get(self.client, (0.0, None))
        if failure and not is_urgent and time.monotonic() < until:
            raise failure
        try:
            return request()
        except problems.NotFound:
            with suppress(problems.Conflict):  # somebody else was faster
                self.client.users.create(self.user_id)
        except ConnectionFailed as error:
            _unreachable[self.client] = (time.monotonic() + PAUSE, error)
            raise
        return request()


def _start_of_turn(messages: Sequence[Message]) -> int:
    """Return where the last turn begins: with the user's last messages."""
    start = len(messages)
    while start and messages[start - 1].role == "assistant":
        start -= 1
    while start and messages[start - 1].role == "user":
        start -= 1
    return start


def _keys(start: str, messages: Sequence[Message]) -> Iterator[str]:
    """Yield a key for each message, by `start` and all that was said before it."""
    key = start
    for one in messages:
        key = _digest([key, one.role, one.text])
        yield key


def _digest(parts: list[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _log(failure: str, error: Exception) -> None:
    """Log what does not happen and why; the traceback only if the error was not foreseen."""
    is_foreseen = isinstance(error, UserAsCodeError)
    logger.warning("%s: %s", failure, error, exc_info=None if is_foreseen else error)


def _answered(tool: Callable[[], str]) -> str:
    """Return a tool's answer in a size for a model, or what it should change if it failed."""
    try:
        answer = tool()
    except UserAsCodeError as error:
        logger.info("a tool of the memory failed: %s", error)
        return f"Error: {error}"
    return answer if len(answer) <= MAX_ANSWER else f"{answer[:MAX_ANSWER]}… (cut: ask for less)"


def _line_of_hit(hit: models.Hit) -> str:
    author = hit.speaker or hit.role or hit.kind
    is_old = "" if hit.status in (None, "current") else f" ({hit.status})"
    return f"[{hit.seq}] {hit.occurred_at:%Y-%m-%d} {author}: {hit.text}{is_old}"


def _forecasts(forecast: models.Forecast) -> list[str]:
    """Return a title and a line for each of the next alerts to open."""
    opening = [event for event in forecast.events if event.kind == "opens"][:MAX_FORECASTS]
    lines = [
        f"- {event.day or event.at.isoformat()}: {_name(event.constraint)} ({event.severity})"
        f" about {', '.join(event.records) or 'no record'}"
        for event in opening
    ]
    return [f"{FORECASTS}:", *lines] if lines else []


def _name(path: str) -> str:
    """Return a constraint's name, of its path."""
    return path.rpartition("/")[2].removesuffix(".py")


def _numbers(entries: Sequence[int]) -> str:
    return f"[{', '.join(map(str, entries))}]"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)

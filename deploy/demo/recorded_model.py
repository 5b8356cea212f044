"""A stand-in that replays recordings, so that the demo works without a language model key.

It is not a model. It only knows the conversations in `recordings`, one per file: the messages, the
facts in them, and the tool calls that bring these facts into the project. It rejects any question
that shows other entries. Numbers and dates in a recording are filled in on replay:

    {seq:words}    the number of the entry, among those shown, that contains these words
    {date:+45}     45 days after the first entry shown, e.g. 2026-05-02; {day:+45}: e.g. 2 May 2026
    {file:path}    the text of a file in the recordings' directory
"""

import datetime
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.embedded.http import serve_json

NAME = "openai:recorded-for-the-demo"
FOLDER = Path(__file__).parent / "recordings"

LIMIT = "the demo's recorded model knows only the demo's messages"
UNKNOWN = f"{LIMIT}; set UAC_LLM_MODEL and UAC_LLM_API_KEY to use a real one. It does not know: "

# The line that precedes the entries in a question; `workers.authoring.prompts.entry` formats each
# entry.
_QUESTION = re.compile(r"^(?:Messages to remember|Entries to bring into it):$", re.MULTILINE)
# An entry without a day is of the day of the one above it.
_ENTRY = re.compile(r"^\[(\d+)\] \((?:\w+, )?(?:(\d{4}-\d\d-\d\d) )?[^)]*\) (.*)$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{(date|day|seq|file):([^{}]+)\}")
# The average for English text; the provider's own token counts aren't known.
_CHARACTERS_PER_TOKEN = 4


class UnknownQuestion(Exception):
    """No recording matches the question; the message says which texts are unknown."""


@dataclass(frozen=True)
class Recording:
    """A recorded conversation, as stored in its file."""

    messages: Sequence[str]
    # Each fact has `text` and `sources`.
    facts: Sequence[Mapping[str, Any]]
    # The tool calls in each response except the last one, which only finishes the work.
    work: Sequence[Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Shown:
    """An entry shown in a question."""

    seq: int
    day: datetime.date
    text: str


def recordings(folder: Path = FOLDER) -> list[Recording]:
    """Return all recordings."""
    documents = (json.loads(path.read_text()) for path in sorted(folder.glob("*.json")))
    return [Recording(one["messages"], one["facts"], one["work"]) for one in documents]


def answer(request: Mapping[str, Any], recorded: Sequence[Recording]) -> list[dict[str, Any]]:
    """Return the next tool calls in a chat completion, each a `name` with `arguments`.

    Raises UnknownQuestion if the question shows an entry that isn't in any recording, or only some
    of a recording's entries.
    """
    messages = request["messages"]
    question = next(_text(one) for one in messages if one["role"] == "user")
    turn = sum(one["role"] == "assistant" for one in messages)
    shown = _shown(question)
    tools = {tool["function"]["name"] for tool in request.get("tools", [])}
    if "remember" in tools:
        facts = [
            _filled(fact, entries)
            for recording, entries in _matching(shown, recorded, lambda one: one.messages)
            for fact in recording.facts
        ]
        return [{"name": "remember", "arguments": {"facts": facts}}]
    matching = _matching(shown, recorded, lambda one: [fact["text"] for fact in one.facts])
    calls = [
        _filled(call, entries)
        for recording, entries in matching
        for call in (recording.work[turn] if turn < len(recording.work) else [])
    ]
    return calls or [{"name": "finish", "arguments": {}}]


@contextmanager
def recorded_model(*more: Recording) -> Iterator[str]:
    """Serve recorded responses on a 127.0.0.1 port until the context ends; yield the base URL.

    `more` are recordings that are known besides those of the demo.
    """
    recorded = [*recordings(), *more]

    def respond(body: bytes) -> tuple[int, Any]:
        try:
            return 200, _completion(body, answer(json.loads(body), recorded))
        except (UnknownQuestion, ValueError, LookupError, TypeError, StopIteration) as error:
            known_error = isinstance(error, UnknownQuestion)
            message = str(error) if known_error else f"not understood: {error!r}"
            return 400, {"error": {"message": message, "type": "invalid_request_error"}}

    with serve_json(respond) as url:
        yield url


def _shown(question: str) -> list[Shown]:
    entries_text = _QUESTION.split(question)[-1]
    entries: list[Shown] = []
    for seq, written, text in _ENTRY.findall(entries_text):
        day = datetime.date.fromisoformat(written) if written else entries[-1].day
        entries.append(Shown(int(seq), day, text))
    if not entries:
        raise UnknownQuestion(f"{UNKNOWN}a question without entries.")
    return entries


def _matching(
    shown: Sequence[Shown],
    recorded: Sequence[Recording],
    texts_of: Callable[[Recording], Sequence[str]],
) -> list[tuple[Recording, list[Shown]]]:
    """Return the recordings that the shown entries belong to, each with its shown entries."""
    left, matches = list(shown), []
    while left:
        first = left[0]
        for recording in recorded:
            texts = [_filled(text, [first]) for text in texts_of(recording)]
            entries = [one for one in left if one.text in texts]
            if first.text in texts and len(entries) == len(texts):
                matches.append((recording, entries))
                left = [one for one in left if one not in entries]
                break
        else:
            raise UnknownQuestion(f"{UNKNOWN}{first.text!r}.")
    return matches


def _filled(value: Any, entries: Sequence[Shown]) -> Any:
    """Fill in the placeholders; a string that is a single `seq` placeholder becomes a number."""
    match value:
        case str():
            if (whole := _PLACEHOLDER.fullmatch(value)) and whole[1] == "seq":
                return _seq(whole[2], entries)
            return _PLACEHOLDER.sub(lambda match: _meaning(match[1], match[2], entries), value)
        case list():
            return [_filled(item, entries) for item in value]
        case dict():
            return {name: _filled(item, entries) for name, item in value.items()}
    return value


def _meaning(kind: str, text: str, entries: Sequence[Shown]) -> str:
    if kind == "seq":
        return str(_seq(text, entries))
    if kind == "file":
        return (FOLDER / text).read_text()
    date = entries[0].day + datetime.timedelta(days=int(text))
    return str(date) if kind == "date" else f"{date.day} {date:%B %Y}"


def _seq(words: str, entries: Sequence[Shown]) -> int:
    (seq,) = [one.seq for one in entries if words in one.text]
    return seq


def _completion(body: bytes, calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the response in the format of OpenAI's API."""
    tool_calls = [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for number, call in enumerate(calls)
    ]
    sent = len(body) // _CHARACTERS_PER_TOKEN
    received = len(json.dumps(tool_calls)) // _CHARACTERS_PER_TOKEN
    return {
        "id": "recorded",
        "object": "chat.completion",
        "created": 0,
        "model": NAME.partition(":")[2],
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {"role": "assistant", "content": None, "tool_calls": tool_calls},
            }
        ],
        "usage": {
            "prompt_tokens": sent,
            "completion_tokens": received,
            "total_tokens": sent + received,
        },
    }


def _text(message: Mapping[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)

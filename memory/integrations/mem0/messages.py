"""Messages as chat SDKs and frameworks dump them, as the text that the log keeps.

A message's content may be text, one part or a list of parts; next to it, there may be tool calls, a
refusal or a transcript. What is no text (an image, a file) is named by its kind and address; its
data is not kept. A message with nothing of all that is left out, and the rest of the conversation
is kept.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rest_framework import serializers

from memory.log.api.entry_serializers import MAX_TEXT

# The maximum number of messages that can be added at once, and of characters of a role or a name.
MAX_MESSAGES = 1000
MAX_ROLE = 32
MAX_NAME = 200
MAX_URL = 500
# What the log says instead of data that is no text.
NOT_KEPT = "not kept"
# Other frameworks' names for roles, which they send as a message's `type`.
_ROLES = {"human": "user", "ai": "assistant"}


@dataclass(frozen=True)
class Message:
    """A message's text and speaker; `asides` names tool calls and files, which nobody said."""

    role: str
    name: str | None
    speech: str
    asides: str

    @property
    def text(self) -> str:
        """The whole text."""
        return "\n".join(filter(None, (self.speech, self.asides)))


@dataclass(frozen=True)
class Conversation:
    """The messages that have text, and what was left out: a sentence for each."""

    messages: list[Message] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class ConversationField(serializers.Field[Conversation, Any, Any, Any]):
    """A list of messages, or one message, or its text alone."""

    def to_internal_value(self, data: Any) -> Conversation:
        """Return the messages; raises ValidationError naming the index of what is none."""
        given = data if isinstance(data, list) else [data]
        if len(given) > MAX_MESSAGES:
            raise serializers.ValidationError(f"Send at most {MAX_MESSAGES} messages at once.")
        read = Conversation()
        for index, one in enumerate(given):
            try:
                message = _message(one)
            except serializers.ValidationError as error:
                raise serializers.ValidationError({str(index): error.detail}) from None
            if message.text:
                read.messages.append(message)
            else:
                read.left_out.append(f"messages[{index}]: left out, since it has no text")
            if f": {NOT_KEPT}]" in message.asides:
                read.left_out.append(f"messages[{index}]: only text and addresses are kept")
        if not read.messages:
            raise serializers.ValidationError(
                "No message has text: send `content` in at least one."
            )
        return read


def _message(given: Any) -> Message:
    if isinstance(given, str):
        given = {"content": given}
    if not isinstance(given, dict):
        raise serializers.ValidationError("Send an object with role and content, or a string.")
    role = given.get("role") or given.get("type") or "user"
    name = given.get("name") or None
    for label, value, most in (("role", role, MAX_ROLE), ("name", name or "", MAX_NAME)):
        if not isinstance(value, str) or len(value) > most:
            raise serializers.ValidationError({label: [f"Send at most {most} characters."]})
    parts = list(_parts(given))
    text = "\n".join(text for text, is_aside in parts if not is_aside)
    asides = "\n".join(text for text, is_aside in parts if is_aside)
    message = Message(_ROLES.get(role, role), name, text, asides)
    if len(message.text) > MAX_TEXT:
        raise serializers.ValidationError({"content": [f"Send at most {MAX_TEXT} characters."]})
    return message


def _parts(message: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield a message's texts, and whether each is an aside."""
    content = message.get("content")
    parts = list(_content(content))
    for other in ("refusal", "reasoning_content"):
        if not parts and isinstance(message.get(other), str):
            parts = list(_content(message[other]))
    audio = message.get("audio")
    if not parts and isinstance(audio, dict):
        parts = list(_content(audio.get("transcript")))
    yield from parts
    calls = message.get("tool_calls") or message.get("function_call") or []
    for call in calls if isinstance(calls, list) else [calls]:
        yield _call(call), True


def _content(content: Any) -> Iterator[tuple[str, bool]]:
    """Yield the texts of a message's content, in order."""
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            if part.strip():
                yield part, False
        elif isinstance(part, dict):
            yield from _part(part)
        elif part is not None:
            yield json.dumps(part, ensure_ascii=False), False


def _part(part: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    for name in ("text", "refusal", "thinking", "reasoning"):
        if isinstance(part.get(name), str):
            yield from _content(part[name])
            return
    kind = part.get("type") or next(iter(part), "part")
    inner = part.get(kind) if isinstance(kind, str) else None
    held = inner if isinstance(inner, dict) else part
    match str(kind).replace("-", "_"):
        case "tool_use" | "toolUse" | "tool_call" | "function_call":
            yield _call(held), True
        case "tool_result" | "toolResult":
            results = [held[name] for name in ("content", "result", "output") if name in held]
            for result in results:
                is_text = isinstance(result, str | list)
                yield from _content(result if is_text else json.dumps(result, ensure_ascii=False))
        case "json":
            yield json.dumps(inner, ensure_ascii=False), False
        case _:
            yield f"[{str(kind)[:50]}: {_address(part) or NOT_KEPT}]", True


def _call(call: Any) -> str:
    """Return a tool call as it would be written: `[get_weather({"city": "Paris"})]`."""
    held = call.get("function", call) if isinstance(call, dict) else call
    if not isinstance(held, dict):
        return f"[{json.dumps(call, ensure_ascii=False)}]"
    given: Any = next((held[name] for name in ("arguments", "args", "input") if name in held), {})
    written = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return f"[{held.get('name') or 'tool'}({written})]"


def _address(part: Any) -> str:
    """Return the web address in a part, if there is one; data in the part itself is no address."""
    if isinstance(part, dict):
        return next(filter(None, map(_address, part.values())), "")
    is_address = isinstance(part, str) and part.startswith(("http://", "https://"))
    return part[:MAX_URL] if is_address else ""

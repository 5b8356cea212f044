"""Hooks of coding agents: context for each prompt, the exchange into the log, alerts as notices.

A host runs `userascode hook` with a JSON object on standard input, and reads one from standard
output. An agent must not wait for its memory, nor fail with it: see `userascode.cli`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from userascode._sync.user import User
from userascode.entries import message

Moment = Literal["start", "prompt", "answer"]

# Limits of the API: for a question and for an entry.
MAX_QUERY = 10_000
MAX_ENTRY = 1_000_000
TOKENS = 1500


@dataclass(frozen=True)
class Host:
    """What a coding agent calls its events and the fields of their input and output."""

    moments: Mapping[str, Moment]
    session: str
    answer: str
    # Where context goes: beside the event's name in an object of its own, or into a plain field.
    context: str
    is_nested: bool
    # The field of a notice that the person sees; empty if the host shows none.
    notice: str


# Claude Code's form, which Codex has taken over.
_CLAUDE = Host(
    moments={"SessionStart": "start", "UserPromptSubmit": "prompt", "Stop": "answer"},
    session="session_id",
    answer="last_assistant_message",
    context="additionalContext",
    is_nested=True,
    notice="systemMessage",
)
HOSTS: Mapping[str, Host] = {
    "claude-code": _CLAUDE,
    "codex": _CLAUDE,
    "cursor": Host(
        moments={
            "sessionStart": "start",
            "beforeSubmitPrompt": "prompt",
            "afterAgentResponse": "answer",
        },
        session="conversation_id",
        answer="text",
        context="additional_context",
        is_nested=False,
        notice="",
    ),
}


def respond(user: User, host: Host, event: Mapping[str, Any]) -> dict[str, Any]:
    """Do what an event asks for; return the host's output, which is empty if there is none.

    The start of a session gets context and a notice of the open alerts; a prompt is remembered and
    gets context for it; an answer is remembered. Other events are ignored.
    """
    name = str(event.get("hook_event_name"))
    moment = host.moments.get(name)
    said = str(event.get(host.answer if moment == "answer" else "prompt") or "")
    if moment == "start":
        return _output(host, name, user.context(tokens=TOKENS).text, _notice(user))
    if moment is None or not said.strip():
        return {}
    role = "user" if moment == "prompt" else "assistant"
    context = ""
    try:
        # The context of a prompt does not contain the prompt itself.
        if moment == "prompt":
            context = user.context(said[:MAX_QUERY], tokens=TOKENS).text
    finally:
        session = str(event.get(host.session) or "") or None
        user.add(message(said[:MAX_ENTRY], role, session_id=session))
    return _output(host, name, context, "") if context else {}


def _notice(user: User) -> str:
    alerts = user.alerts.list(state="open").all()
    return "\n".join(f"{alert.severity}: {alert.message}" for alert in alerts)


def _output(host: Host, name: str, context: str, notice: str) -> dict[str, Any]:
    fields = {host.context: context}
    output: dict[str, Any] = (
        {"hookSpecificOutput": {"hookEventName": name, **fields}} if host.is_nested else fields
    )
    return {**output, host.notice: notice} if host.notice and notice else output

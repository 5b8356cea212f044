"""What the exports of other products mean: entries of the log, and parts that are not taken over.

Where a format was taken from: mem0, Graphiti, Letta and LangGraph from their code (`Memory.get_all`
and `SQLiteManager`; `EpisodicNode`; `agent_file.py`; `Item.dict`); Zep from its API reference. The
account exports of ChatGPT and Claude are not documented by their makers: their fields are those
that exports have.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import PurePath
from typing import Any, NamedTuple, TypeAlias

from pydantic import TypeAdapter

from userascode.imports.reading import UnreadableExport, Value
from userascode.params import NewTextEntry

Json: TypeAlias = Mapping[str, Any]


class Skipped(NamedTuple):
    """A part of an export that is not taken over."""

    part: str


Item: TypeAlias = "NewTextEntry | Skipped"

# "Ada (user): Hello", as Graphiti writes messages.
_ACTOR = re.compile(
    r"(?P<speaker>[^:\n()]{1,80}?)\s*(?:\((?P<role>\w+)\))?\s*:\s+(?P<text>.+)", re.DOTALL
)
_TIME = TypeAdapter(datetime)
# What a reader raises at a value that is not as its format says.
_MALFORMATIONS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_ROLES = {"human": "user", "user": "user", "assistant": "assistant", "ai": "assistant"}


def items_of(values: Iterable[Value]) -> Iterator[Item]:
    """Yield the entries of an export in its order, and a Skipped for each part without one."""
    for file, value in values:
        if value is None:
            yield Skipped(f"files *{PurePath(file).suffix or PurePath(file).name}")
        elif isinstance(value, UnreadableExport):
            yield Skipped(f"malformed files: {value}")
        elif reader := _reader_of(value):
            yield from _sound(f"values in {file}", reader(value))
        else:
            yield Skipped(f"unknown values in {file}")


def _sound(parts: str, items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items of a part of an export; from where it is malformed on, it is left out."""
    try:
        yield from items
    except _MALFORMATIONS:
        yield Skipped(f"malformed {parts}")


def _reader_of(value: Any) -> "Callable[[Json], Iterator[Item]] | None":
    if not isinstance(value, Mapping):
        return None
    return next((reader for names, reader in FORMATS if names <= value.keys()), None)


def entry(
    kind: str,
    content: str,
    source: str,
    identity: Iterable[Any],
    at: Any = None,
    **fields: str | None,
) -> NewTextEntry:
    """Return an entry whose key follows from what it is and says: a second import adds nothing."""
    given = {name: value for name, value in fields.items() if value}
    made: Any = {"kind": kind, "content": _storable(content).strip()}
    if at:
        made["occurred_at"] = _TIME.validate_python(at).isoformat()
    made |= {name: _storable(str(value))[:200] for name, value in given.items()}
    # From what the export has: how we normalize it may change between versions of this package.
    raw = json.dumps([*identity, kind, content, at, given], sort_keys=True)
    key = hashlib.sha256(raw.encode()).hexdigest()[:40]
    result: NewTextEntry = made | {"idempotency_key": f"import:{source}:{key}"}
    return result


def _storable(text: str) -> str:
    """Return a text without NUL, and with � for halves of characters: the log takes neither."""
    return text.replace("\0", "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# -- Accounts of assistants ------------------------------------------------------------------------


def read_chatgpt(conversation: Json) -> Iterator[Item]:
    """Read a conversation of a ChatGPT account: the branch that was open last."""
    nodes: Json = conversation["mapping"]
    current, branch = str(conversation["current_node"]), list[str]()
    while current in nodes and current not in branch:
        branch.append(current)
        current = str(nodes[current].get("parent"))
    session = conversation.get("conversation_id") or conversation.get("id")
    for name in reversed(branch):
        if message := nodes[name].get("message"):
            yield from _sound("messages", _read_chatgpt_message(message, session))
    for name in nodes.keys() - set(branch):
        if nodes[name].get("message"):
            yield Skipped("messages on branches that were left")


def _read_chatgpt_message(message: Json, session: str | None) -> Iterator[Item]:
    role, content = message["author"]["role"], message.get("content") or {}
    kind = content.get("content_type", "unknown")
    if role not in _ROLES:
        yield Skipped(f"messages of role {role}")
    elif message.get("recipient", "all") != "all":
        yield Skipped("messages to tools")
    elif (message.get("metadata") or {}).get("is_visually_hidden_from_conversation"):
        yield Skipped("hidden messages")
    elif kind not in ("text", "multimodal_text"):
        yield Skipped(f"messages of type {kind}")
    else:
        texts = []
        for part in content.get("parts") or ():
            if part is None:
                yield Skipped("malformed parts of messages")
                continue
            text = part if isinstance(part, str) else part.get("text")
            if text is None:
                yield Skipped(f"{part.get('content_type', 'unknown')} in messages")
            elif text.strip():
                texts.append(text)
        if texts:
            yield entry(
                "message",
                "\n".join(texts),
                "chatgpt",
                [message["id"]],
                message.get("create_time"),
                role=role,
                session_id=session,
            )


def read_claude(conversation: Json) -> Iterator[Item]:
    """Read a conversation of a Claude account."""
    for message in conversation["chat_messages"]:
        yield from _sound("messages", _read_claude_message(message, conversation.get("uuid")))


def _read_claude_message(message: Json, session: str | None) -> Iterator[Item]:
    blocks = message.get("content") or []
    texts = [block.get("text") or "" for block in blocks if block.get("type") == "text"]
    for block in blocks:
        if block.get("type") != "text":
            yield Skipped(f"blocks of type {block.get('type')}")
    for part in ("attachments", "files"):
        for _ in message.get(part) or ():
            yield Skipped(part)
    text = "\n".join(filter(None, texts)) or message.get("text") or ""
    if text.strip():
        yield entry(
            "message",
            text,
            "claude",
            [message["uuid"]],
            message.get("created_at"),
            role=_ROLES.get(message["sender"], message["sender"]),
            session_id=session,
        )


# -- Other memories --------------------------------------------------------------------------------


def read_mem0(memory: Json) -> Iterator[Item]:
    """Read a memory of mem0, as `get_all` and its exports have it."""
    yield entry(
        "fact",
        memory["memory"],
        "mem0",
        [memory["id"]],
        memory.get("created_at"),
        session_id=memory.get("run_id"),
        agent_id=memory.get("agent_id"),
    )
    for part in sorted({"metadata", "categories"} & {name for name in memory if memory[name]}):
        yield Skipped(f"{part} of memories")


def read_mem0_history(row: Json) -> Iterator[Item]:
    """Read a row of the history of mem0's open-source store: each wording that a memory had."""
    if row.get("event") == "DELETE" or not row.get("new_memory"):
        yield Skipped("deletions in the history")
        return
    identity = [row["memory_id"], row["id"]]
    at = row.get("updated_at") or row.get("created_at")
    kind = "correction" if row.get("event") == "UPDATE" else "fact"
    yield entry(kind, row["new_memory"], "mem0", identity, at, speaker=row.get("actor_id"))


def read_episode(episode: Json) -> Iterator[Item]:
    """Read an episode of Graphiti or Zep."""
    at = episode.get("valid_at") or episode.get("created_at")
    session = episode.get("thread_id") or episode.get("session_id") or episode.get("group_id")
    text, role, speaker = episode["content"], episode.get("role_type"), episode.get("role")
    if episode.get("source") == "message" and not role and (said := _ACTOR.match(text)):
        text, speaker, role = said["text"], said["speaker"], said["role"]
        role = role or speaker
    yield entry(
        "message",
        text,
        "zep",
        [episode["uuid"]],
        at,
        role=_ROLES.get(str(role).lower()) if role else None,
        speaker=None if str(speaker).lower() in _ROLES else speaker,
        session_id=session,
    )
    if episode.get("entity_edges"):
        yield Skipped("edges of the graph")


def read_zep_message(message: Json) -> Iterator[Item]:
    """Read a message of a thread of Zep."""
    yield entry(
        "message",
        message["content"],
        "zep",
        [message["uuid"]],
        message.get("created_at"),
        role=_ROLES.get(message["role"], message["role"]),
        speaker=message.get("name"),
    )


def read_letta(file: Json) -> Iterator[Item]:
    """Read an agent file of Letta: its blocks are facts, and its messages what was said."""
    for block in file["blocks"]:
        yield from _sound("blocks", _read_letta_block(block, file.get("created_at")))
    for agent in file["agents"]:
        for message in agent.get("messages") or ():
            yield from _sound("messages", _read_letta_message(message, agent))
    for part in ("files", "sources", "groups", "tools", "mcp_servers"):
        for _ in file.get(part) or ():
            yield Skipped(part)


def _read_letta_block(block: Json, at: Any) -> Iterator[Item]:
    if block.get("label") == "persona":
        yield Skipped("blocks about the agent")
    elif (block.get("value") or "").strip():
        yield entry("fact", block["value"], "letta", [block["id"], block.get("label")], at)


def _read_letta_message(message: Json, agent: Json) -> Iterator[Item]:
    content = message.get("content") or ""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts = [_unpacked(block.get("text") or "") for block in blocks if block["type"] == "text"]
    for call in message.get("tool_calls") or ():
        if call["function"]["name"] == "send_message":
            texts.append(json.loads(call["function"]["arguments"]).get("message"))
        else:
            yield Skipped("calls of tools")
    text = "\n".join(filter(None, texts))
    if message["role"] not in _ROLES or None in texts:
        yield Skipped(f"messages of role {message['role']}, or of the system")
    elif text.strip():
        yield entry(
            "message",
            text,
            "letta",
            [agent.get("name"), message["id"], message.get("created_at")],
            message.get("created_at"),
            role=message["role"],
            speaker=message.get("name"),
            agent_id=agent.get("name"),
        )


def _unpacked(text: str) -> str | None:
    """Return what was said in a message that Letta packed; None if the system sent it."""
    try:
        packed = json.loads(text)
    except ValueError:
        return text
    if not isinstance(packed, dict) or "type" not in packed:
        return text
    return str(packed["message"]) if packed["type"] == "user_message" else None


def read_store_item(item: Json) -> Iterator[Item]:
    """Read an item of a store of LangGraph, such as those of LangMem."""
    content = item["value"].get("content", item["value"])
    text = content.get("content") if isinstance(content, Mapping) else content
    identity = [*item["namespace"], item["key"]]
    yield entry(
        "fact",
        text if isinstance(text, str) else json.dumps(content, ensure_ascii=False),
        "langmem",
        identity,
        item.get("updated_at") or item.get("created_at"),
    )


def _each(name: str, reader: Callable[[Json], Iterator[Item]]) -> Callable[[Json], Iterator[Item]]:
    """Return a reader of an object that has a list."""

    def read(value: Json) -> Iterator[Item]:
        for one in value[name]:
            yield from _sound(name, reader(one))

    return read


# Names that an object of a format has → what reads it. The first that fits counts.
FORMATS: tuple[tuple[set[str], Callable[[Json], Iterator[Item]]], ...] = (
    ({"mapping", "current_node"}, read_chatgpt),
    ({"chat_messages"}, read_claude),
    ({"agents", "blocks"}, read_letta),
    ({"namespace", "key", "value"}, read_store_item),
    ({"episodes"}, _each("episodes", read_episode)),
    ({"uuid", "content", "source"}, read_episode),
    ({"uuid", "content", "role"}, read_zep_message),
    ({"messages"}, _each("messages", read_zep_message)),
    ({"table", "memory_id", "new_memory"}, read_mem0_history),
    ({"id", "memory"}, read_mem0),
    ({"results"}, _each("results", read_mem0)),
)

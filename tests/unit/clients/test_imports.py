"""Exports of other products, in invented samples of their formats, become entries of the log."""

import io
import json
import sqlite3
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from userascode.imports.formats import Skipped, items_of
from userascode.imports.reading import UnreadableExport, values_of
from userascode.imports.running import NothingToImport, Report

AT = "2026-03-01T10:00:00+00:00"


def node(name: str, parent: str | None, role: str, *parts: Any, **fields: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": list(parts)}
    message = {
        "id": name,
        "author": {"role": role},
        "content": content,
        "create_time": 1772359200.0,
    }
    return {"id": name, "parent": parent, "children": [], "message": message | fields}


# A question that was edited: its first wording is on a branch that was left.
CHATGPT = {
    "conversation_id": "c-1",
    "title": "Rome",
    "current_node": "e",
    "mapping": {
        "root": {"id": "root", "parent": None, "children": ["a", "b"], "message": None},
        "a": node("a", "root", "user", "When do I fly?"),
        "b": node("b", "root", "user", "When do I fly to Rome?", {"content_type": "image"}),
        "c": node("c", "b", "assistant", "search()", recipient="browser"),
        "d": node("d", "c", "tool", "On Friday."),
        "e": node("e", "d", "assistant", "On Friday."),
    },
}
CLAUDE = {
    "uuid": "k-1",
    "name": "Rome",
    "chat_messages": [
        {
            "uuid": "m-1",
            "sender": "human",
            "text": "When do I fly to Rome?",
            "content": [],
            "created_at": AT,
            "attachments": [{"file_name": "ticket.pdf", "extracted_content": "…"}],
        },
        {
            "uuid": "m-2",
            "sender": "assistant",
            "text": "",
            "content": [{"type": "thinking"}, {"type": "text", "text": "On Friday."}],
            "created_at": AT,
        },
    ],
}
MEM0 = {
    "results": [
        {"id": "1", "memory": "Likes tea", "created_at": AT, "agent_id": "clerk", "hash": "x"},
        {"id": "2", "memory": "Lives in Bonn", "created_at": AT, "metadata": {"a": 1}},
    ]
}
GRAPHITI = [
    {
        "uuid": "1",
        "name": "turn",
        "group_id": "g",
        "source": "message",
        "content": "Ada (user): Hello: it's me.",
        "valid_at": AT,
        "entity_edges": ["x"],
    },
    {
        "uuid": "2",
        "group_id": "g",
        "source": "message",
        "content": "assistant: Hi.",
        "valid_at": AT,
    },
    {"uuid": "3", "group_id": "g", "source": "text", "content": "Note: buy tea.", "valid_at": AT},
]
ZEP = {
    "messages": [
        {"uuid": "1", "role": "user", "name": "Ada", "content": "Hello", "created_at": AT},
        {"uuid": "2", "role": "assistant", "content": "Hi", "created_at": AT},
    ]
}
LETTA = {
    "agents": [
        {
            "name": "sam",
            "messages": [
                {
                    "id": "message-0",
                    "role": "user",
                    "created_at": AT,
                    "content": [
                        {"type": "text", "text": '{"type": "user_message", "message": "Hello"}'}
                    ],
                },
                {
                    "id": "message-1",
                    "role": "user",
                    "created_at": AT,
                    "content": [{"type": "text", "text": '{"type": "heartbeat", "reason": "x"}'}],
                },
                {
                    "id": "message-2",
                    "role": "assistant",
                    "created_at": AT,
                    "content": [],
                    "tool_calls": [
                        {"function": {"name": "send_message", "arguments": '{"message": "Hi"}'}}
                    ],
                },
            ],
        }
    ],
    "blocks": [
        {"id": "block-0", "label": "human", "value": "Name: Ada"},
        {"id": "block-1", "label": "persona", "value": "I am Sam."},
    ],
    "tools": [{"id": "tool-0"}],
    "created_at": AT,
}
LANGMEM = [
    {
        "namespace": ["memories", "ada"],
        "key": "1",
        "value": {"kind": "Memory", "content": {"content": "Likes tea"}},
        "created_at": AT,
        "updated_at": AT,
    },
    {
        "namespace": ["profile", "ada"],
        "key": "2",
        "value": {"kind": "Profile", "content": {"name": "Ada"}},
        "created_at": AT,
        "updated_at": AT,
    },
]
QUESTION, ANSWER = ("user", "When do I fly to Rome?"), ("assistant", "On Friday.")
# Export → its entries, as author or kind with the text, and the parts that are not taken over.
EXPORTS: dict[str, tuple[Any, list[tuple[str, str]], dict[str, int]]] = {
    "chatgpt": (
        [CHATGPT],
        [QUESTION, ANSWER],
        {
            "image in messages": 1,
            "messages of role tool": 1,
            "messages to tools": 1,
            "messages on branches that were left": 1,
        },
    ),
    "claude": ([CLAUDE], [QUESTION, ANSWER], {"attachments": 1, "blocks of type thinking": 1}),
    "mem0": (
        MEM0,
        [("fact", "Likes tea"), ("fact", "Lives in Bonn")],
        {"metadata of memories": 1},
    ),
    "graphiti": (
        GRAPHITI,
        [("user", "Hello: it's me."), ("assistant", "Hi."), ("message", "Note: buy tea.")],
        {"edges of the graph": 1},
    ),
    "zep": (ZEP, [("user", "Hello"), ("assistant", "Hi")], {}),
    "letta": (
        LETTA,
        [("fact", "Name: Ada"), ("user", "Hello"), ("assistant", "Hi")],
        {"blocks about the agent": 1, "messages of role user, or of the system": 1, "tools": 1},
    ),
    "langmem": (LANGMEM, [("fact", "Likes tea"), ("fact", '{"name": "Ada"}')], {}),
    "unknown": ([{"a": 1}, 2], [], {"unknown values in export.json": 2}),
}


def read(path: Path) -> tuple[list[Any], Counter[str]]:
    items = list(items_of(values_of(path)))
    skipped = Counter(item.part for item in items if isinstance(item, Skipped))
    return [item for item in items if not isinstance(item, Skipped)], skipped


def write(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_becomes_entries_and_names_what_it_leaves_out(name: str, tmp_path: Path) -> None:
    value, expected, left_out = EXPORTS[name]
    entries, skipped = read(write(tmp_path / "export.json", value))

    assert [(one.get("role") or one["kind"], one["content"]) for one in entries] == expected
    assert skipped == left_out
    # With the time of the original, and a key of its own that is the same each time
    assert {one["occurred_at"] for one in entries} <= {AT}
    keys = [one["idempotency_key"] for one in entries]
    assert len(set(keys)) == len(keys)
    assert [one["idempotency_key"] for one in read(tmp_path / "export.json")[0]] == keys


def test_speakers_sessions_and_agents_are_kept(tmp_path: Path) -> None:
    said, *_ = read(write(tmp_path / "graphiti.json", GRAPHITI))[0]
    asked, _ = read(write(tmp_path / "chatgpt.json", [CHATGPT]))[0]
    memory, _ = read(write(tmp_path / "mem0.json", MEM0))[0]

    assert (said["speaker"], said["session_id"]) == ("Ada", "g")
    assert asked["session_id"] == "c-1"
    assert memory["agent_id"] == "clerk"


def test_the_history_of_mem0s_store_is_read(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE history (id, memory_id, new_memory, event, created_at)")
        rows = [
            ("1", "m", "Lives in Bonn", "ADD", AT),
            ("2", "m", "Lives in Rome", "UPDATE", AT),
            ("3", "n", None, "DELETE", AT),
        ]
        database.executemany("INSERT INTO history VALUES (?, ?, ?, ?, ?)", rows)

    entries, skipped = read(path)

    assert [(one["kind"], one["content"]) for one in entries] == [
        ("fact", "Lives in Bonn"),
        ("correction", "Lives in Rome"),
    ]
    assert skipped == {"deletions in the history": 1}


def as_array(values: list[Any]) -> str:
    return json.dumps(values, indent=1)


def as_lines(values: list[Any]) -> str:
    return "\n".join(map(json.dumps, values))


@pytest.mark.parametrize("written", [as_array, as_lines])
def test_values_are_read_one_by_one(
    tmp_path: Path, written: Callable[[list[Any]], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given values that are split by what is read at a time, small ones and a large one
    monkeypatch.setattr("userascode.imports.reading.CHUNK", 7)
    values: list[Any] = [{"a": "[{,"}, [1, [2]], "x" * 500, 12345678, {"b": None}]
    path = tmp_path / "export.json"
    path.write_text(written(values))

    assert [value for _, value in values_of(path)] == values


def test_a_large_export_is_not_held_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from userascode.imports import reading

    endless = io.StringIO("[" + '{"a": 1},' * 100_000)
    values = reading._values(endless, "export.json")

    assert [next(values).value for _ in range(3)] == [{"a": 1}] * 3
    assert endless.tell() <= reading.CHUNK


def test_an_export_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps([CLAUDE])[:-40])

    with pytest.raises(UnreadableExport):
        read(path)


def test_a_zip_and_a_folder_have_their_files_read_or_named(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "conversations.json", [CLAUDE])
    (folder / "photo.png").write_bytes(b"\x89PNG")
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        for path in folder.iterdir():
            archive.write(path, path.name)

    for source in (folder, tmp_path / "export.zip"):
        entries, skipped = read(source)
        assert len(entries) == 2
        assert skipped["files *.png"] == 1


def test_an_export_without_entries_is_refused(tmp_path: Path) -> None:
    report = Report()

    with pytest.raises(NothingToImport, match="2 unknown values"):
        list(report.count(items_of(values_of(write(tmp_path / "export.json", [{"a": 1}, 2])))))

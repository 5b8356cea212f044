"""Exports of other products, in invented samples of their formats, become entries of the log."""

import hashlib
import io
import json
import sqlite3
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from userascode.cli import main
from userascode.imports.formats import Skipped, items_of
from userascode.imports.reading import UnreadableExport, values_of
from userascode.imports.running import NothingToImport, Report, import_items
from userascode.problems import ContentRefused

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


def test_a_key_follows_from_what_the_export_has(tmp_path: Path) -> None:
    """Whatever becomes of spaces, NUL and notations of time: other keys would import twice."""
    memory = {"id": "1", "memory": " Likes\0 tea ", "created_at": "2026-03-01T10:00:00Z"}
    [entry], _ = read(write(tmp_path / "mem0.json", {"results": [memory | {"run_id": " r\0"}]}))

    assert (entry["content"], entry["occurred_at"]) == ("Likes tea", AT)
    raw = ["1", "fact", memory["memory"], memory["created_at"], {"session_id": " r\0"}]
    digest = hashlib.sha256(json.dumps(raw).encode()).hexdigest()
    assert entry["idempotency_key"] == f"import:mem0:{digest[:40]}"


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


# A message whose parts do not have the form that its format says → what is left out.
MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "time out of range": ({"create_time": 1e20}, "malformed messages"),
    "time that is none": ({"create_time": "yesterday"}, "malformed messages"),
    "no author": ({"author": None}, "malformed messages"),
    "no id": ({"id": None, "author": {}}, "malformed messages"),
    "part that is no text": (
        {"content": {"content_type": "text", "parts": [7]}},
        "malformed messages",
    ),
    "part that is null": (
        {"content": {"content_type": "text", "parts": [None]}},
        "malformed parts of messages",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_message_is_left_out_and_the_others_are_not(name: str, tmp_path: Path) -> None:
    fields, part = MALFORMED[name]
    nodes = {
        "a": node("a", None, "user", "First"),
        "b": node("b", "a", "user", "Second", **fields),
        "c": node("c", "b", "user", "Third"),
    }
    export = [{"mapping": None, "current_node": "c"}, {"mapping": nodes, "current_node": "c"}]

    entries, skipped = read(write(tmp_path / "export.json", export))

    assert [one["content"] for one in entries] == ["First", "Third"]
    assert skipped == {part: 1, "malformed values in export.json": 1}


def test_a_malformed_memory_is_left_out_and_the_others_are_not(tmp_path: Path) -> None:
    memories = [{"id": "1"}, {"id": "2", "memory": 3}, None, {"id": "4", "memory": "Likes tea"}]

    entries, skipped = read(write(tmp_path / "export.json", {"results": memories}))

    assert [one["content"] for one in entries] == ["Likes tea"]
    assert skipped == {"malformed results": 3}


def test_half_a_character_does_not_cost_the_message(tmp_path: Path) -> None:
    halves = node("a", None, "user", "\ud83d and \ud83d\ude00")
    export = [{"mapping": {"a": halves}, "current_node": "a"}]

    [said], _ = read(write(tmp_path / "export.json", export))

    assert said["content"] == "\ufffd and \U0001f600"


def test_a_damaged_file_among_others_is_named(tmp_path: Path) -> None:
    # Given a zip in which a byte of one file was changed, and a folder with damaged files
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("a.json", json.dumps([{"a": "needle"}]))
        archive.writestr("b.json", json.dumps([CLAUDE]))
    damaged = (tmp_path / "export.zip").read_bytes().replace(b"needle", b"noodle", 1)
    (tmp_path / "export.zip").write_bytes(damaged)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.json").write_bytes(b'["\xff"]')
    (folder / "b.db").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    (folder / "c.json").write_text("[" * 100_000)
    write(folder / "d.json", [CLAUDE])

    for source, names in (
        (tmp_path / "export.zip", ["a.json"]),
        (folder, ["a.json", "b.db", "c.json"]),
    ):
        entries, skipped = read(source)
        assert len(entries) == 2
        found = sorted(part for part in skipped if part.startswith("malformed files"))
        assert [part.split()[2] for part in found] == names


@pytest.mark.parametrize("is_cut_off", [True, False])
def test_a_damaged_zip_is_refused(tmp_path: Path, is_cut_off: bool) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", json.dumps([CLAUDE]))
    whole = path.read_bytes()
    path.write_bytes(whole[:-30] if is_cut_off else whole.replace(b"PK\1\2", b"PKxx"))

    with pytest.raises(UnreadableExport, match=r"export\.zip"):
        read(path)


def test_a_database_with_text_of_another_encoding_is_read(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE history (id PRIMARY KEY, memory_id, new_memory) WITHOUT ROWID"
        )
        database.execute("INSERT INTO history VALUES ('1', 'm', CAST(x'436166e9' AS TEXT))")

    [remembered], _ = read(path)

    assert remembered["content"] == "Caf\ufffd"


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


def run(*arguments: str, status: int = 0) -> str:
    """Run the command without a server; a request would end with another status."""
    result = CliRunner().invoke(main, ["import", *arguments, "--user", "ada"])
    assert result.exit_code == status, result.output
    return result.output


@pytest.mark.parametrize("is_zip", [False, True])
def test_an_export_with_python_in_it_is_an_export(tmp_path: Path, is_zip: bool) -> None:
    source = tmp_path / "export"
    source.mkdir()
    write(source / "conversations.json", [CLAUDE])
    (source / "attachment.py").write_text("print()")
    if is_zip:
        with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
            for path in source.iterdir():
                archive.write(path, path.name)
        source = tmp_path / "export.zip"

    planned = run(str(source), "--dry-run")

    assert "entries: 2" in planned
    assert "1 files *.py" in planned


@pytest.mark.parametrize("name", ["manifest.py", "domains/pets/state.py", "pets.py"])
def test_a_dry_run_of_a_project_sends_nothing(tmp_path: Path, name: str) -> None:
    # Given a project; if it has files of ours, data in the form of an export is no matter
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("pets = []")
    write(tmp_path / "data.json", {"a": 1} if name == "pets.py" else [CLAUDE])

    planned = run(str(tmp_path), "--dry-run")

    assert planned.splitlines() == ["a project of 1 Python files:", name]


def test_python_that_is_no_text_is_refused_before_any_request(tmp_path: Path) -> None:
    (tmp_path / "pets.py").write_bytes(b"\xff")

    assert run(str(tmp_path), status=1).startswith("Error: 'utf-8' codec can't decode")


class GuardedLog:
    """The log of a user, on a server whose content policy refuses and masks."""

    def __init__(self) -> None:
        self.logged: list[Any] = []
        self.entries = SimpleNamespace(list=lambda page_size: self.logged)

    def details(self) -> Any:
        return SimpleNamespace(entries=SimpleNamespace(total=0))

    def add(self, *new: Any) -> Any:
        found = {
            str(index): {"content": ["It has a secret."]}
            for index, one in enumerate(new)
            if "refused" in one["content"]
        }
        if found:
            # At most two are named at a time.
            errors = dict(list(found.items())[:2])
            told = {"entries": errors} if len(new) > 1 else errors["0"]
            answer: Any = SimpleNamespace(errors=told, type="", status=422, detail="")
            answer.request_id = answer.limit = None
            raise ContentRefused(answer)
        first = len(self.logged) + 1
        added = [
            SimpleNamespace(
                seq=first + index,
                content=one["content"].replace("secret", "[masked: secret]"),
                idempotency_key=one["idempotency_key"],
                redacted_at=None,
            )
            for index, one in enumerate(new)
        ]
        self.logged += added
        masked = [one for one in added if "masked" in one.content]
        return SimpleNamespace(entries=added, masked=masked)


@pytest.mark.parametrize("others", [[], ["a", "a secret", "b"]])
def test_what_the_content_policy_keeps_out_is_counted(others: list[str]) -> None:
    texts = ["refused", *others, *["refused"] * (4 if others else 0)]
    items: Any = [
        {"kind": "message", "content": text, "idempotency_key": str(number)}
        for number, text in enumerate(texts)
    ]
    log: Any = GuardedLog()

    *_, report = import_items(log, items)

    assert [one.content for one in log.logged] == [
        text.replace("secret", "[masked: secret]") for text in others
    ]
    assert (report.added, report.verified) == (len(others), len(others))
    assert report.skipped == {
        "entries with secrets or personal data, refused": texts.count("refused"),
        **({"secrets or personal data, masked": 1} if others else {}),
    }

"""A context contains the answer to a question that shares no word with it."""

from collections.abc import Callable
from typing import Any

import pytest

from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log.models.entries import EntryKind, LogEntry
from tests.conftest import new_client
from tests.paraphrases import TEXT, read_people

pytestmark = pytest.mark.django_db


def test_context_contains_nearly_all_answering_records_of_ten_people(
    settings: Any, workspace: Workspace, work: Callable[[], None]
) -> None:
    settings.UAC_EMBEDDINGS = "wordllama"
    api = new_client(workspace)
    held: dict[str, list[bool]] = {EntryKind.RECORD: [], EntryKind.MESSAGE: []}
    english = [one for one in read_people(TEXT.read_text()) if one.original is None]
    for number, person in enumerate(english):
        address = f"/v1/users/person-{number}/"
        create_user(workspace, f"person-{number}", time_zone="UTC", metadata=None)
        entries = [statement_of(entry) for entry in person.entries]
        assert api.post(f"{address}entries/", {"entries": entries}).status_code == 202
        work()
        for entry, question in zip(person.entries, person.questions, strict=True):
            block = api.post(f"{address}context/", {"query": question}).data["text"]
            held[entry.kind].append(answer_in(entry) in block)

    assert len(held[EntryKind.RECORD]) >= 100
    assert share(held[EntryKind.RECORD]) >= 0.95
    assert share(held[EntryKind.MESSAGE]) >= 0.9


def statement_of(entry: LogEntry) -> dict[str, Any]:
    at = {"kind": entry.kind, "occurred_at": entry.occurred_at.isoformat()}
    if entry.kind == EntryKind.RECORD:
        return {**at, **(entry.data or {})}
    return {**at, "content": entry.content, "role": entry.role}


def answer_in(entry: LogEntry) -> str:
    """Return the part of an entry to look for: the value of its first field, or its beginning."""
    if entry.kind == EntryKind.RECORD:
        return str(next(iter((entry.data or {})["data"].values())))
    return (entry.content or "")[:40]


def share(found: list[bool]) -> float:
    return sum(found) / len(found)

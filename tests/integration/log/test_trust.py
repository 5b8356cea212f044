"""The trust class of an entry: where it comes from, given or by its role, and never changed."""

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from memory.kernel.models.users import MemoryUser
from memory.log import entry_log
from memory.log.entry_log import Draft, IdempotencyConflict
from memory.log.models.entries import PAYLOAD_FIELDS, EntryKind, LogEntry, Trust
from memory.operations.verification import problems
from sandbox_image.uac.records import TRUST_CLASSES

pytestmark = pytest.mark.django_db


def append(user: MemoryUser, **fields: object) -> LogEntry:
    draft = Draft(kind=EntryKind.MESSAGE, content="Rome.", **fields)  # type: ignore[arg-type]
    (entry,) = entry_log.append(user, [draft], source="test")
    entry.refresh_from_db()
    return entry


@pytest.mark.parametrize(
    ("role", "trust"),
    [
        (None, Trust.USER),
        ("user", Trust.USER),
        ("nurse", Trust.USER),
        ("assistant", Trust.MODEL),
        ("Model", Trust.MODEL),
        ("tool", Trust.TOOL),
        ("system", Trust.TOOL),
    ],
)
def test_the_role_decides_unless_the_class_is_given(
    user: MemoryUser, role: str | None, trust: Trust
) -> None:
    assert append(user, role=role).trust == trust
    assert append(user, role=role, trust=Trust.DOCUMENT).trust == Trust.DOCUMENT


def test_an_entry_repeated_with_another_class_is_another_entry(user: MemoryUser) -> None:
    first = append(user, trust=Trust.TOOL, idempotency_key="k")

    assert append(user, idempotency_key="k") == first
    assert append(user, trust=Trust.TOOL, idempotency_key="k") == first
    with pytest.raises(IdempotencyConflict):
        append(user, trust=Trust.USER, idempotency_key="k")


def test_the_class_cannot_be_changed_not_even_by_a_redaction(user: MemoryUser) -> None:
    entry = append(user, trust=Trust.DOCUMENT)
    redacted = {**dict.fromkeys((*PAYLOAD_FIELDS, "salt")), "redacted_at": timezone.now()}

    for change in ({"trust": Trust.USER}, {**redacted, "trust": Trust.USER}):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            LogEntry.objects.filter(pk=entry.pk).update(**change)

    LogEntry.objects.filter(pk=entry.pk).update(**redacted)
    entry.refresh_from_db()
    assert entry.trust == Trust.DOCUMENT


def test_the_hash_covers_the_class(user: MemoryUser) -> None:
    entry = append(user, trust=Trust.DOCUMENT)
    assert list(problems(user)) == []

    entry.trust = Trust.USER

    assert entry_log.payload_hash(entry) != bytes(entry.payload_hash)


def test_an_entry_of_an_older_server_is_the_users(
    user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a server that knows no column `trust`
    columns = [name for name in entry_log.COLUMNS if name != "trust"]
    before, after = (
        ", ".join(map(entry_log._read, names)) for names in (entry_log.COLUMNS, columns)
    )
    older = entry_log.APPEND.replace(", ".join(entry_log.COLUMNS), ", ".join(columns))
    monkeypatch.setattr(entry_log, "APPEND", older.replace(before, after))
    # When it appends an entry
    entry = append(user, role="user")
    # Then its hash is valid for this server, too
    assert entry.trust == Trust.USER
    assert list(problems(user)) == []


def test_what_rests_on_several_entries_has_the_least_trusted_class() -> None:
    assert entry_log.least_trusted([]) == Trust.USER
    assert entry_log.least_trusted(["user", "document", "tool"]) == Trust.DOCUMENT
    assert entry_log.least_trusted(["document", "model", "user"]) == Trust.MODEL


def test_the_sandbox_has_the_same_classes_in_the_same_order() -> None:
    assert tuple(Trust.values) == TRUST_CLASSES

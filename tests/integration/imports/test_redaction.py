"""Redacting the entry of an import removes everything imported by it."""

from collections.abc import Callable

import pytest

from memory.kernel.models.users import MemoryUser
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind
from memory.log.models.redactions import Redaction
from memory.operations.verification import problems
from memory.privacy import redaction
from tests.integration.imports.conftest import Import
from tests.integration.imports.test_imports import PAPER
from tests.integration.redaction.conftest import MARKER, found

pytestmark = pytest.mark.django_db

Records = Callable[[str], dict[str, dict[str, object]]]


def test_an_import_is_redacted_with_its_records(
    import_files: Import, user: MemoryUser, work: Callable[[], None], fields_of: Records
) -> None:
    # Given an import, and a record of another entry
    import_files({path: text.replace("Tokyo", MARKER) for path, text in PAPER.items()})
    own = {"domain": "travel", "type": "Stay", "key": "a", "data": {"where": "Bonn"}}
    entry_log.append(user, [Draft(kind=EntryKind.RECORD, data=own)], source="test")
    work()

    # When the entry of the import is redacted
    redaction.redact(user, [1], by="test", reason="")
    work()

    # Then only the other record is left
    assert found() == []
    assert list(fields_of("travel.stays")) == ["a"]
    assert fields_of("travel.trips") == {}
    user.refresh_from_db()
    assert Redaction.objects.get(user=user).records == 3
    assert list(problems(user)) == []

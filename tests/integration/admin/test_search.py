"""The search in the header: over people, alerts, records, entries and runs."""

from typing import Any

import pytest
from django.test import Client

from memory.alerts.models.alerts import Alert
from memory.kernel.models.users import MemoryUser
from memory.kernel.staff.models import StaffAudit
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry, Outcome
from memory.versions.models.checkpoints import RecordLocation
from tests.factories import make_checkpoint
from tests.integration.admin.conftest import Rows, Staff, list_url, shown, text_of

pytestmark = pytest.mark.django_db


def found(client: Client, query: str) -> dict[str, list[Any]]:
    """Return the rows that a search finds, by the names of their kinds."""
    groups = client.get("/admin/search/", {"q": query}).context["found"]
    return {group["name"]: group["rows"] for group in groups if group["rows"]}


@pytest.fixture
def prescribed(rows: Rows) -> RecordLocation:
    """A record whose key does not name what its typed entry says."""
    location: RecordLocation = rows[RecordLocation]
    entry_log.append(
        location.user,
        [
            Draft(
                kind=EntryKind.RECORD,
                data={"type": "Drug", "key": location.key, "data": {"name": "amoxicillin"}},
            )
        ],
        source="key:abc",
    )
    return location


def test_records_are_found_by_their_text(admin_client: Client, prescribed: RecordLocation) -> None:
    groups = found(admin_client, "amoxicillin")

    assert len(groups["Log entries"]) == 1
    assert len(groups["Records"]) == 1
    for model in (LogEntry, RecordLocation):
        listed = admin_client.get(list_url(model), {"q": "amoxicillin"}).context["cl"].queryset
        assert len(listed) == 1


@pytest.mark.parametrize("has_key", [True, False], ids=["key", "generated key"])
def test_records_made_from_facts_are_found_by_the_facts(
    admin_client: Client, staff: Staff, rows: Rows, has_key: bool
) -> None:
    location: RecordLocation = rows[RecordLocation]
    user = location.user
    for text in ("lease of the studio in Kantstraße", "lease of a car"):
        entry_log.append(user, [Draft(kind=EntryKind.FACT, content=text)], source="key:abc")
    user.refresh_from_db()
    seq = user.last_seq - 1
    edit = {"op": "add", "domain": location.domain, "class_name": "Drug", "sources": [seq]}
    other = {**edit, "key": "car", "sources": [seq + 1]}
    key = location.key if has_key else f"drug-{seq}"
    RecordLocation.objects.filter(pk=location.pk).update(key=key)
    made = make_checkpoint(user, 3, edits=[{**edit, **({"key": key} if has_key else {})}, other])
    for covered in (seq, seq + 1):
        EntryOutcome.objects.update_or_create(
            user=user, seq=covered, defaults={"outcome": Outcome.COVERED, "checkpoint": made}
        )

    assert len(found(admin_client, "studio in kantstraße")["Records"]) == 1
    assert "Records" not in found(admin_client, "lease of a car")
    assert "Records" not in found(staff("view_recordlocation"), "Kantstraße")


def test_search_finds_people_and_alerts_audited(admin_client: Client, rows: Rows) -> None:
    assert set(found(admin_client, rows[MemoryUser].user_id)) >= {"Users", "Alerts", "Log entries"}
    assert found(admin_client, rows[Alert].message)["Alerts"]

    assert set(StaffAudit.objects.filter(what="search").values_list("model", flat=True)) >= {
        "memoryuser",
        "alert",
        "logentry",
    }


def test_people_are_found_by_their_names(
    admin_client: Client, staff: Staff, user: MemoryUser
) -> None:
    MemoryUser.objects.filter(pk=user.pk).update(metadata={"name": "Júlia Zhang"})

    assert len(found(admin_client, "júlia zhang")["Users"]) == 1
    assert found(staff("view_memoryuser"), "júlia zhang") == {}


def test_alerts_are_found_by_the_name_of_their_person(
    admin_client: Client, staff: Staff, rows: Rows
) -> None:
    MemoryUser.objects.filter(pk=rows[MemoryUser].pk).update(metadata={"name": "Chloé Okafor"})

    assert len(found(admin_client, "okafor chloé")["Alerts"]) == 1
    assert found(staff("view_alert"), "okafor") == {}


def test_search_names_lists_it_leaves_out(staff: Staff, prescribed: RecordLocation) -> None:
    client = staff("view_memoryuser", "view_logentry", "view_recordlocation")

    words = shown(client.get("/admin/search/", {"q": "amoxicillin"}))

    assert found(client, "amoxicillin") == {}
    assert "What people said is not searched" in words
    assert "Your account sees no alerts, no runs." in words


def test_nothing_found_says_what_was_searched(admin_client: Client, rows: Rows) -> None:
    words = shown(admin_client.get("/admin/search/", {"q": "xyzzy"}))

    assert "Nothing matches “ xyzzy ” among:" in words
    assert "Search: xyzzy" in words
    page = text_of(admin_client.get("/admin/search/", {"q": 'xy"zzy'}))
    assert 'name="q" value="xy&quot;zzy"' in page
    assert "Alerts, by user id, name, constraint or message" in words
    assert "Enter a word" in shown(admin_client.get("/admin/search/"))


def test_a_misspelt_word_is_answered_by_words_of_alerts(
    admin_client: Client, staff: Staff, rows: Rows
) -> None:
    Alert.objects.update(message="Amoxicillin despite a severe penicillin allergy")

    words = shown(admin_client.get("/admin/search/", {"q": "Penicilin"}))

    assert "Did you mean penicillin ?" in words
    masked = shown(staff("view_alert").get("/admin/search/", {"q": "Penicilin"}))
    assert "Did you mean" not in masked

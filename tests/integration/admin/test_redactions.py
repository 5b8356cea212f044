"""Staff redact entries: they see what else is affected, give a reason, and are audited."""

import re

import pytest
from django.test import Client

from memory.log.models.entries import LogEntry
from memory.log.models.merges import Merge
from memory.log.models.redactions import Redaction
from tests.integration.admin.conftest import (
    Rows,
    Staff,
    act,
    list_url,
    messages_of,
    offered,
    page_url,
    shown,
    text_of,
)

pytestmark = pytest.mark.django_db


def test_cascade_is_shown_before_the_redaction(admin_client: Client, rows: Rows) -> None:
    entry = rows[LogEntry]

    page = shown(act(admin_client, "redact", entry))

    assert "Entries: #1" in page
    assert "Alerts based on them" in page
    assert not LogEntry.objects.filter(redacted_at__isnull=False).exists()


def test_entries_that_a_redaction_leaves_though_they_may_say_the_same_are_named(
    admin_client: Client, rows: Rows
) -> None:
    message = rows[LogEntry]
    Redaction.objects.all().delete()
    fact = LogEntry.objects.get(user=message.user, derived_from__contains=[message.seq])

    asked = act(admin_client, "redact", fact)
    assert f"Not redacted: #{message.seq}" in shown(asked)
    assert "Not redacted" not in shown(act(admin_client, "redact", message))

    # They are chosen there, and the page then says what goes with them.
    [form] = re.findall(r'<form method="post" class="form-row.*?</form>', text_of(asked), re.DOTALL)
    keys = re.findall(r'name="_selected_action" value="([^"]*)"', form)
    assert keys == [str(fact.pk), str(message.pk)]
    assert "confirmed" not in form
    again = admin_client.post(list_url(LogEntry), {"action": "redact", "_selected_action": keys})
    assert again.context["chosen"] == [str(message.pk), str(fact.pk)]
    assert "Not redacted" not in shown(again)
    assert not LogEntry.objects.filter(redacted_at__isnull=False).exists()


def test_redaction_needs_confirmation_and_reason(admin_client: Client, rows: Rows) -> None:
    entry = rows[LogEntry]
    Redaction.objects.all().delete()
    Merge.objects.all().delete()

    refused = act(admin_client, "redact", entry, confirmed="1", note="  ")
    assert messages_of(refused) == ["Nothing was done: give a reason."]
    assert not LogEntry.objects.filter(redacted_at__isnull=False).exists()

    done = act(admin_client, "redact", entry, confirmed="1", note="asked for by mail")

    # One entry was derived from the other.
    assert "Redacted 2 entries in the log of ada" in " ".join(messages_of(done))
    row = Redaction.objects.get()
    assert (row.asked, row.by, row.reason) == ([entry.seq], "staff:admin", "asked for by mail")
    told = LogEntry.objects.get(user=entry.user, seq=row.seq)
    assert (told.kind, told.source) == ("redaction", "staff:admin")
    page = shown(admin_client.get(page_url(row)))
    assert "asked for by mail" in page
    assert "waiting" in page
    assert "Content: (redacted)" in shown(admin_client.get(page_url(entry)))
    # The redaction's own entry has no content: its link says what it is.
    listed = text_of(admin_client.get(list_url(LogEntry)))
    assert re.search(rf"{page_url(told)}[^>]*>(<[^>]*>)*redaction", listed)


def test_there_is_a_way_back(admin_client: Client, rows: Rows) -> None:
    entry = rows[LogEntry]
    Redaction.objects.all().delete()

    asked = text_of(act(admin_client, "redact", entry))
    asked_there = text_of(act(admin_client, "redact", entry, from_page="1"))

    assert f'<a href="{list_url(LogEntry)}" class="button cancel-link">Cancel</a>' in asked
    assert f'<a href="{page_url(entry)}" class="button cancel-link">Cancel</a>' in asked_there
    assert '<button type="submit" class="button dangerous">Redact</button>' in asked


def test_page_of_entry_offers_redaction_once(admin_client: Client, rows: Rows) -> None:
    entry = rows[LogEntry]
    assert offered(admin_client.get(page_url(entry))) == ["redact"]

    Redaction.objects.all().delete()
    done = act(admin_client, "redact", entry, confirmed="1", note="why", from_page="1")

    assert done.redirect_chain[-1][0] == page_url(entry)
    assert offered(admin_client.get(page_url(entry))) == []


def test_viewer_cannot_redact(staff: Staff, rows: Rows) -> None:
    act(staff("view_logentry"), "redact", rows[LogEntry], confirmed="1", note="why")

    assert not LogEntry.objects.filter(redacted_at__isnull=False).exists()

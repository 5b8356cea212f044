"""The way from an alert over records and facts to the message, and back."""

import datetime
import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from memory.alerts import reconcile
from memory.alerts.findings import ConstraintFinding
from memory.alerts.models.alerts import Alert, AlertKind, Severity
from memory.constraints.models.workspace_constraints import WorkspaceConstraint
from memory.kernel.models.users import MemoryUser
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, LogEntry, Trust
from memory.privacy import redaction
from memory.versions import runs
from memory.versions.models.checkpoints import RecordLocation
from memory.versions.models.runs import Run, RunKind, RunTrigger
from tests.factories import make_run
from tests.integration.admin.conftest import page_url, shown, text_of
from tests.integration.commits.conftest import trip
from workers import tasks

pytestmark = pytest.mark.django_db

RULE = "constraints/late.py"
# 23:30 in the evening, by the clock of the user in Berlin.
SAID_AT = datetime.datetime(2026, 3, 14, 22, 30, tzinfo=datetime.UTC)


def log_records(user: MemoryUser, *statements: dict[str, Any]) -> list[int]:
    """Append typed entries and settle them; return their numbers."""
    drafts = [Draft(kind=EntryKind.RECORD, data=statement) for statement in statements]
    seqs = [entry.seq for entry in entry_log.append(user, drafts, source="test")]
    tasks.work("records", user.pk)
    user.refresh_from_db()
    return seqs


def say(user: MemoryUser, words: str, fact: str) -> tuple[LogEntry, LogEntry]:
    """Append a message and the fact that a model found in it."""
    message = Draft(kind=EntryKind.MESSAGE, content=words, role="user", occurred_at=SAID_AT)
    [said] = entry_log.append(user, [message], source="test")
    found = Draft(kind=EntryKind.FACT, content=fact, derived_from=[said.seq])
    return said, entry_log.append(user, [found], source="test")[0]


def propose(user: MemoryUser, *edits: dict[str, Any]) -> Run:
    """Have the gate decide on edits, as on those of a model."""
    user.refresh_from_db()
    body = {"edits": list(edits), "considered": []}
    run = runs.queue(user, RunKind.PROPOSAL, RunTrigger.API, checkpoint=user.head, input=body)
    tasks.work("runs", str(run.pk))
    run.refresh_from_db()
    user.refresh_from_db()
    return run


def open_alert(user: MemoryUser, key: str, *, sources: list[int]) -> Alert:
    """Have a constraint raise an alert about a trip."""
    assert user.head is not None
    run = make_run(user.head, runner="docker")
    evidence = {
        "class": "Trip",
        "domain": "travel",
        "collection": "trips",
        "key": key,
        "sources": sources,
    }
    finding = ConstraintFinding(
        constraint=RULE, severity=Severity.CRITICAL, message="Too dear", evidence=[evidence]
    )
    reconcile.apply(run, [finding], completed=[RULE], existing=[RULE])
    return Alert.objects.get(user=user)


def location(user: MemoryUser, key: str) -> RecordLocation:
    return RecordLocation.objects.get(user=user, key=key)


def rows_of(response: Any) -> list[list[str]]:
    """Return the table of a record's fields: name, value, entries."""
    [table] = re.findall(r'<table class="fields">(.*?)</table>', text_of(response), re.DOTALL)
    rows = re.findall(r"<tr>(.*?)</tr>", table.partition("<tbody>")[2], re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[html.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in row] for row in cells]


def test_a_fact_of_a_message_is_followed_both_ways(admin_client: Client, user: MemoryUser) -> None:
    # Given a record that rests on a fact, which was derived from a message
    log_records(user, trip("Rome", key="rome", cost=1))
    said, fact = say(user, "It cost 1200 in the end!", "The trip to Rome cost 1200.")
    update = {"op": "update", "domain": "travel", "collection": "trips", "key": "rome"}
    another = {"op": "add", "domain": "travel", "class_name": "Trip", "sources": [fact.seq]}
    run = propose(
        user,
        {**update, "fields": {"cost": 1200}, "sources": [fact.seq]},
        {**another, "fields": {"to": "Rome", "cost": 1200}},
    )
    assert run.outcome == "ok", run.output
    # And an alert about that record
    alert = open_alert(user, "rome", sources=[1, fact.seq])

    # Then the alert leads from the quoted message to the fact and to the record with its fields
    page = admin_client.get(page_url(alert))
    words = shown(page)
    quoted = f"#{said.seq} message by user , 2026-03-14 23:30 (Europe/Berlin): It cost 1200"
    chain = [
        *("#1 typed record", quoted, f"#{fact.seq} fact : The trip to Rome cost 1200."),
        *("Trip rome in travel.trips", "to Rome , cost 1200"),
    ]
    assert [part for part in chain if part not in words] == [], words
    places = [words.index(part) for part in chain]
    assert places == sorted(places)
    assert "to: Rome" not in words  # the record says what the entry said
    for row in (location(user, "rome"), said, fact):
        assert f'href="{page_url(row)}"' in text_of(page)
    # And the message leads to the alert, as does the fact
    for entry in (said, fact):
        assert f'href="{page_url(alert)}"' in text_of(admin_client.get(page_url(entry)))
    # And the record shows which entry each of its fields is from, and what was said
    record = admin_client.get(page_url(location(user, "rome")))
    assert rows_of(record) == [["to", "Rome", "#1"], ["cost", "1200", f"#{fact.seq}"]]
    [added] = RecordLocation.objects.exclude(key="rome")  # its edit names no collection, and no key
    first, *_ = rows_of(admin_client.get(page_url(added)))
    assert first == ["to", "Rome", f"#{fact.seq}"]
    assert quoted in shown(record)


def test_evidence_says_where_it_comes_from(admin_client: Client, user: MemoryUser) -> None:
    # Given a record of which one entry is the person's and one a document's
    log_records(user, trip("Rome", key="rome", cost=1))
    scanned = Draft(
        kind=EntryKind.RECORD, data=trip("Rome", key="rome", cost=2), trust=Trust.DOCUMENT
    )
    entry_log.append(user, [scanned], source="test")
    tasks.work("records", user.pk)
    user.refresh_from_db()
    # When an alert rests on it
    alert = open_alert(user, "rome", sources=[1, 2])
    # Then its page names the document
    assert shown(admin_client.get(page_url(alert))).count("from a document") == 1


def test_message_behind_nothing_has_no_alert(admin_client: Client, user: MemoryUser) -> None:
    [seq] = log_records(user, trip("Rome", key="rome"))
    alert = open_alert(user, "rome", sources=[seq])
    said, _ = say(user, "Hello", "The user says hello.")

    assert page_url(alert) not in text_of(admin_client.get(page_url(said)))


def test_record_beside_redacted_one_is_shown(admin_client: Client, user: MemoryUser) -> None:
    # Given two records of one version, of which one is redacted
    secret, kept = log_records(user, trip("Rome", key="rome"), trip("Oslo", key="oslo"))
    redaction.redact(user, [secret], reason="asked for", by="test")
    tasks.work("redactions", user.pk)

    record = admin_client.get(page_url(location(user, "oslo")))

    assert ["to", "Oslo", f"#{kept}"] in rows_of(record)


def test_a_record_that_is_retired_shows_what_it_was(admin_client: Client, user: MemoryUser) -> None:
    [first] = log_records(user, trip("Rome", key="rome", note=None))
    log_records(user, {**trip(key="rome"), "data": {}, "retired": True})

    page = admin_client.get(page_url(location(user, "rome")))

    assert rows_of(page) == [["to", "Rome", f"#{first}"], ["note", "–", ""]]
    assert "retired" in shown(page)


def test_a_record_of_which_no_version_tells_says_so(admin_client: Client, user: MemoryUser) -> None:
    log_records(user, trip("Rome", key="rome"))
    RecordLocation.objects.filter(user=user).update(path="domains/travel/trips_9.py")

    page = admin_client.get(page_url(location(user, "rome")))

    assert "no stored version contains the record" in shown(page)


def test_alert_page_begins_with_evidence(admin_client: Client, user: MemoryUser) -> None:
    [seq] = log_records(user, trip("Rome", key="rome"))
    alert = open_alert(user, "rome", sources=[seq])
    Alert.objects.filter(pk=alert.pk).update(opened_at=SAID_AT)

    page = admin_client.get(page_url(alert))

    words = shown(page).rpartition("Critical · ada · ")[2].partition("history")[0]
    assert words.count("Too dear") == 1
    assert words.count("2026-03-14 23:30 (Europe/Berlin)") == 1
    assert re.search("User: ada Workspace: .* Opened: .* Escalates: .* Owner: nobody", words)
    above = text_of(page).partition("<template")[0]  # which the script puts into the list
    badges = re.findall(r'<span class="badge[^"]*">(critical|open)</span>', above)
    assert badges == ["critical", "open"]
    assert words.index("Trip rome") < words.index("Constraint")


@pytest.mark.parametrize(
    ("kind", "headline"),
    [
        (AlertKind.CONSTRAINT_ERROR, "could not be checked: it watches nothing until"),
        (AlertKind.CONSTRAINT_PAUSED, "is paused, since it raised too many alerts"),
    ],
)
def test_alert_about_a_constraint_begins_in_plain_words(
    admin_client: Client, populate: Callable[..., Any], kind: AlertKind, headline: str
) -> None:
    alert = populate()[Alert]
    message = "workspace/constraints/safe.py failed at line 10: ZeroDivisionError: by zero."
    rule = WorkspaceConstraint.objects.create(
        workspace=alert.user.workspace, name="safe", description="Drugs must be safe."
    )
    Alert.objects.filter(pk=alert.pk).update(
        constraint=rule.path, kind=kind, message=message, evidence=[]
    )

    page = admin_client.get(page_url(alert))

    assert page.context["subtitle"].startswith(f"<bdi>“Drugs must be safe” {headline}")
    assert message in shown(page)
    assert "cited no records" not in shown(page)
    for address in (f"/admin/memory/alert/?id={alert.pk}", "/admin/"):
        assert f"“workspace/safe” {headline}" in shown(admin_client.get(address))
        assert message not in shown(admin_client.get(address))


def test_source_is_folded(admin_client: Client, populate: Callable[..., Any]) -> None:
    page = text_of(admin_client.get(page_url(populate()[Alert])))

    _, _, constraint = page.partition("field-rule")
    before, _, _ = constraint.partition("<pre")
    assert before.count("<details>") == 1
    assert "<details open" not in page


def test_records_need_view_content(staff: Callable[..., Client], user: MemoryUser) -> None:
    log_records(user, trip("Rome", key="rome"))
    client = staff("view_recordlocation")

    words = shown(client.get(page_url(location(user, "rome"))))

    assert "Rome" not in words
    assert "State: active" in words

"""Every screen: it renders, it links, it stays cheap, and users' texts cannot attack it."""

import html
import re
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.staticfiles import finders
from django.db.models import Model
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from memory.alerts.models.alerts import (
    Alert,
    AlertEvent,
    AlertFeedback,
    AlertState,
    EventCounter,
    PausedConstraint,
    Severity,
)
from memory.alerts.models.staff_mail import MailCursor, StaffSubscription
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt, WebhookEndpoint
from memory.constraints.models.backtests import Backtest
from memory.kernel.models.hosts import SandboxHost
from memory.kernel.models.idempotency import IdempotencyKey
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.models.workspaces import ApiKey, Workspace
from memory.kernel.users import create_user
from memory.llm.models import LlmCall, LlmSpending
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry
from memory.versions.models.checkpoints import Blob, Bytecode, Checkpoint, RecordLocation
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus, RunTrigger
from tests.factories import make_checkpoint
from tests.integration.admin.conftest import (
    CONSTRAINT,
    MODELS,
    Populate,
    Rows,
    links_in,
    list_url,
    name_of,
    page_url,
    shown,
    text_of,
)

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def made(populate_once: Populate) -> Rows:
    """Rows of one person, the same for all tests here."""
    return populate_once(company="workspace")


def test_every_model_has_a_screen() -> None:
    registered = {model for model in admin.site._registry if model._meta.app_label == "memory"}

    assert registered == set(MODELS)


def test_the_front_page_names_the_product(admin_client: Client) -> None:
    page = text_of(admin_client.get("/admin/"))

    assert "UaC: User as Code" in page
    assert "Django administration" not in page


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_the_list_shows_its_rows(admin_client: Client, rows: Rows, model: type[Model]) -> None:
    page = text_of(admin_client.get(list_url(model)))

    assert page_url(rows[model]) in links_in(page)
    assert " object (" not in page
    assert re.findall(r"<a\b[^>]*>\s*<a\b", page) == []  # no link is within another


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_the_page_of_a_row_is_readable(
    admin_client: Client, rows: Rows, model: type[Model]
) -> None:
    page = text_of(admin_client.get(page_url(rows[model])))

    assert " object (" not in page
    assert "memory/admin.css" in page


# -- The way from an alert to what was said, and back ------------------------------------------


def test_alert_page_links_its_origins(admin_client: Client, rows: Rows) -> None:
    response = admin_client.get(page_url(rows[Alert]))

    links = links_in(text_of(response))
    for model in (MemoryUser, LogEntry, Run, Checkpoint):
        assert page_url(rows[model]) in links
    words = shown(response)
    assert "Drug Aspirin in health.drugs" in words
    assert f"{CONSTRAINT} in v2" in words
    assert "yield critical('Aspirin')" in words
    assert "severity: critical" in words  # the history's first step


def test_entry_page_links_version_and_alerts(admin_client: Client, rows: Rows) -> None:
    links = links_in(text_of(admin_client.get(page_url(rows[LogEntry]))))

    for model in (MemoryUser, Checkpoint, Alert, ApiKey):
        assert page_url(rows[model]) in links
    beside = LogEntry.objects.get(user=rows[MemoryUser], seq=2)
    assert page_url(beside) in links


def test_a_rejected_entry_says_why(admin_client: Client, populate: Populate) -> None:
    user = populate("no such field", "bob")[MemoryUser]
    entry = LogEntry.objects.get(user=user, seq=2)

    assert "rejected at v2 no such field" in shown(admin_client.get(page_url(entry)))


def test_a_redacted_entry_says_only_that(admin_client: Client, rows: Rows) -> None:
    entry = rows[LogEntry]
    LogEntry.objects.filter(pk=entry.pk).update(
        redacted_at=timezone.now(),
        data=None,
        source=None,
        idempotency_key=None,
        salt=None,
    )

    for address in (page_url(entry), list_url(LogEntry), page_url(rows[Alert])):
        assert "(redacted)" in shown(admin_client.get(address))


def test_a_version_leads_to_its_entries_runs_and_files(admin_client: Client, rows: Rows) -> None:
    response = admin_client.get(page_url(rows[Checkpoint]))
    files = reverse("admin:memory_checkpoint_project", args=[rows[Checkpoint].pk])

    links = links_in(text_of(response))
    assert page_url(rows[LogEntry]) in links
    assert files in links
    assert page_url(rows[Checkpoint].parent) in links
    assert f"{list_url(Run)}?checkpoint__id__exact={rows[Checkpoint].pk}" in links
    words = shown(response)
    assert f"{CONSTRAINT} new" in words
    assert "add Drug Aspirin in health (from #1)" in words
    assert "passed execution" in words


WARNING = "development Computed by the process runner"


@pytest.mark.parametrize("model", [Run, Alert])
def test_results_of_the_process_runner_are_marked(
    admin_client: Client, rows: Rows, model: type[Model]
) -> None:
    page = page_url(rows[model])
    assert shown(admin_client.get(page)).count(WARNING) == 1

    Run.objects.filter(pk=rows[Run].pk).update(runner="docker")
    words = shown(admin_client.get(page))
    assert WARNING not in words
    assert "docker" in words


@pytest.mark.parametrize(("runner", "warns"), [("process", True), ("docker", False)])
def test_a_version_tells_where_the_gate_ran(
    admin_client: Client, rows: Rows, runner: str, warns: bool
) -> None:
    checkpoint = make_checkpoint(
        rows[MemoryUser], 3, verdict={"accepted": True, "checks": [], "runner": runner}
    )

    words = shown(admin_client.get(page_url(checkpoint)))
    assert (WARNING in words) is warns
    assert runner in words


def test_a_run_leads_to_its_alerts(admin_client: Client, rows: Rows) -> None:
    response = admin_client.get(page_url(rows[Run]))

    links = links_in(text_of(response))
    assert page_url(rows[Alert]) in links
    assert f"{list_url(Alert)}?last_run__id__exact={rows[Run].pk}" in links
    words = shown(response)
    assert f"ZeroDivisionError : Aspirin {CONSTRAINT}, line 3" in words
    assert "loaded the project into a sandbox 0.000 s 0.100 s other work 0.100 s 0.100 s" in words
    assert "19.1" in words  # megabytes


@pytest.mark.parametrize("path", ["/nope", "/admin/nope/"])
def test_a_browser_gets_a_page_for_an_unknown_address(admin_client: Client, path: str) -> None:
    page = admin_client.get(path, headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})

    assert page.status_code == 404
    assert page["Content-Type"].startswith("text/html")
    assert "There is no such page" in page.content.decode()
    if not path.startswith("/admin/"):
        for accepted in ("*/*", "application/json"):
            answer = admin_client.get(path, headers={"Accept": accepted})
            assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")


@pytest.mark.parametrize(("model", "name"), [("user", "Staff accounts"), ("group", "Roles")])
def test_accounts_and_roles_are_not_called_users_and_groups(
    admin_client: Client, model: str, name: str
) -> None:
    for page in ("changelist", "add"):
        words = shown(admin_client.get(reverse(f"admin:auth_{model}_{page}")))
        assert f"Home › {name}" in words
        assert "› Authentication and Authorization" not in words
    assert f"Add {name[:-1].lower()} | UaC" in words


def test_many_records_behind_an_answer_are_folded_and_linked(
    admin_client: Client, rows: Rows
) -> None:
    location, run = rows[RecordLocation], rows[Run]

    def page(keys: list[str]) -> str:
        records = {
            "class": "Drug",
            "domain": location.domain,
            "collection": location.collection,
            "keys": keys,
            "sources": [[1]] * len(keys),
        }
        output = {
            "value": 2,
            "type": "int",
            "evidence": {"scope": "read", "count": len(keys), "records": [records]},
        }
        made = Run.objects.create(
            user=run.user,
            kind=RunKind.QUERY,
            trigger=RunTrigger.API,
            instant=run.instant,
            checkpoint=run.checkpoint,
            input={"code": "x"},
            output=output,
        )
        return text_of(admin_client.get(page_url(made)))

    few, many = page([location.key]), page([location.key, *map(str, range(9))])

    assert page_url(location) in few
    assert page_url(location) in many
    assert "<details open><summary>Based on 1 record" in few
    assert "<details><summary>Based on 10 records" in many


UNKNOWN = "00000000-0000-0000-0000-000000000000"
TRIPS = {
    "class": "Trip",
    "domain": "travel",
    "collection": "trips",
    "keys": ["a"],
    "sources": [[1]],
}
LATE = {"path": "constraints/late.py", "severity": "warning", "message": "It is late."}
EVIDENCE = {"scope": "selected", "count": 30, "records": [TRIPS], "collections": []}


@pytest.mark.parametrize(
    ("kind", "input", "output", "words"),
    [
        (
            RunKind.QUERY,
            {"code": "1 + 1"},
            {"value": 2, "type": "int"},
            "1 + 1 Open in the console Output: int 2",
        ),
        (
            RunKind.QUERY,
            {"code": "x"},
            {"value": 2, "type": "int", "evidence": EVIDENCE},
            "int 2 Based on 30 records selected by the code travel.trips 'a' and 29 more #1",
        ),
        (
            RunKind.ASK,
            {"question": "How many trips?"},
            {
                "known": True,
                "reason": "As told.",
                "value": 2,
                "type": "int",
                "code": "len(trips)",
                "evidence": None,
                "query": UNKNOWN,
                "queries": [],
            },
            "How many trips? Output: int 2 As told. len(trips) the query",
        ),
        (
            RunKind.ASK,
            {"question": "A dog?"},
            {"known": False, "reason": "No pets.", "queries": []},
            "A dog? Output: not known No pets.",
        ),
        (
            RunKind.PROPOSAL,
            {"edits": [{"op": "delete_constraint", "name": "allergy", "sources": []}]},
            {"version": None, "verdict": {"checks": []}},
            "delete constraint allergy",
        ),
        (RunKind.PROPOSAL, {"edits": []}, {"version": 7, "verdict": {"checks": []}}, "became v7"),
        (
            RunKind.PROPOSAL,
            {"edits": [{"op": "note", "text": "x", "sources": [1]}], "dry_run": True},
            {"version": None, "verdict": {"checks": [], "alerts": [], "day": "2026-03-01"}},
            "test run: nothing is stored note x (from #1)",
        ),
        (
            RunKind.PROPOSAL,
            {"edits": [], "dry_run": True},
            {"version": None, "verdict": {"checks": [], "alerts": [LATE], "day": "2026-03-01"}},
            "the version's findings Output: – 1 finding as of 2026-03-01 warning It is late.",
        ),
        (RunKind.CONSTRAINTS, {}, None, "all constraints in this version Output: –"),
        (
            RunKind.CONSTRAINT,
            {"constraint": "constraints/late.py"},
            {"applies": True, "reasons": [], "alerts": [LATE]},
            "constraints/late.py Output: 1 finding warning It is late.",
        ),
        (
            RunKind.CONSTRAINT,
            {"constraint": "constraints/late.py"},
            {"applies": True, "reasons": [], "alerts": []},
            "constraints/late.py Output: no alerts",
        ),
        (
            RunKind.CONSTRAINT,
            {"constraint": "workspace/constraints/late.py"},
            {
                "constraint": "workspace/constraints/late.py",
                "applies": False,
                "reasons": ["no class Task"],
                "alerts": [],
            },
            "Output: not executed workspace/constraints/late.py : no class Task",
        ),
        (
            RunKind.IMPORT,
            {"files": {"trips.py": "x"}},
            {"version": 3, "verdict": {"checks": []}, "import": {"files": 1}},
            'trips.py Output: became v3 – { "files": 1 }',
        ),
    ],
)
def test_every_kind_of_run_shows_what_went_in_and_out(
    admin_client: Client, rows: Rows, kind: RunKind, input: Any, output: Any, words: str
) -> None:
    run = Run.objects.create(
        user=rows[MemoryUser],
        checkpoint=rows[Checkpoint] if kind == RunKind.CONSTRAINTS else None,
        kind=kind,
        trigger=RunTrigger.API,
        instant=timezone.now(),
        input=input,
        output=output,
        status=RunStatus.DONE,
        outcome=RunOutcome.OK,
        finished_at=timezone.now(),
    )

    assert words in shown(admin_client.get(page_url(run)))


def test_failed_trial_is_not_called_silent(admin_client: Client, rows: Rows) -> None:
    run = Run.objects.create(
        user=rows[MemoryUser],
        kind=RunKind.CONSTRAINT,
        trigger=RunTrigger.API,
        instant=timezone.now(),
        input={"constraint": "constraints/late.py"},
        output={"applies": True, "reasons": [], "alerts": []},
        error={"type": "ZeroDivisionError", "message": "by zero", "path": None, "line": None},
        status=RunStatus.DONE,
        outcome=RunOutcome.USER_ERROR,
        finished_at=timezone.now(),
    )

    words = shown(admin_client.get(page_url(run)))

    assert "ZeroDivisionError" in words
    assert "constraints/late.py Output: –" in words


def test_a_user_leads_to_exactly_the_pending_and_the_rejected_entries(
    admin_client: Client, rows: Rows, populate: Populate
) -> None:
    populate("Another", "bob")
    user = rows[MemoryUser]
    links = links_in(text_of(admin_client.get(page_url(user))))

    def follow(model: type[Model], query: str) -> list[Any]:
        address = f"{list_url(model)}?user__id__exact={user.pk}&{query}"
        assert address in links
        return list(admin_client.get(address).context["cl"].result_list)

    assert [entry.seq for entry in follow(LogEntry, "outcome=pending")] == [3]
    assert [outcome.seq for outcome in follow(EntryOutcome, "outcome__exact=rejected")] == [2]
    assert [outcome.seq for outcome in follow(EntryOutcome, "outcome__exact=covered")] == [1]
    assert follow(RecordLocation, "retired=no") == [rows[RecordLocation]]
    assert follow(Alert, "state__in=open%2Cacknowledged%2Csnoozed") == [rows[Alert]]


@pytest.mark.parametrize(
    ("model", "query", "found"),
    [
        (LogEntry, "outcome=pending", 1),
        (LogEntry, "outcome=rejected", 1),
        (LogEntry, "outcome=covered", 1),
        (LogEntry, "outcome=dismissed", 0),
        (Lane, "state=yes", 2),
        (Lane, "state=no", 0),
        (PausedConstraint, "resumed=yes", 0),
        (PausedConstraint, "resumed=no", 1),
        (ApiKey, "revoked=no", 1),
        (ApiKey, "revoked=yes", 0),
        (RecordLocation, "retired=yes", 0),
        (RecordLocation, "retired=no", 1),
    ],
)
def test_the_filters_keep_what_they_say(
    admin_client: Client, rows: Rows, model: type[Model], query: str, found: int
) -> None:
    response = admin_client.get(f"{list_url(model)}?{query}")

    assert response.context["cl"].result_count == found


@pytest.mark.parametrize(
    ("model", "fitting"),
    [
        (Alert, ["ada", "Aspirin", "allergy"]),
        (AlertEvent, ["ada", "constraints"]),
        (AlertFeedback, ["ada"]),
        (ApiKey, ["Aspirin"]),
        (Backtest, ["of_ada"]),
        (Blob, ["ada"]),
        (Bytecode, ["ada", "allergy"]),
        (Checkpoint, ["ada"]),
        (Delivery, ["ada", "hooks-of-ada"]),
        (DeliveryAttempt, ["ada", "hooks-of-ada"]),
        (EntryOutcome, ["ada", "Aspirin"]),
        (EventCounter, ["workspace"]),
        (Lane, ["ada"]),
        (LlmCall, ["ada"]),
        (LlmSpending, ["model-of-ada"]),
        (LogEntry, ["ada", "Aspirin"]),
        (MailCursor, ["staff-ada", "workspace"]),
        (MemoryUser, ["ada"]),
        (PausedConstraint, ["ada", "other"]),
        (RecordLocation, ["ada", "Aspirin", "drugs"]),
        (IdempotencyKey, ["ada", "ada:Aspirin"]),
        (Run, ["ada"]),
        (SandboxHost, ["host of ada"]),
        (StaffSubscription, ["staff-ada", "eve@example.org"]),
        (WebhookEndpoint, ["hooks-of-ada", "workspace"]),
        (Workspace, ["workspace"]),
    ],
    ids=str,
)
def test_searching_finds_what_fits_and_nothing_else(
    admin_client: Client, rows: Rows, model: type[Model], fitting: list[str]
) -> None:
    for word in fitting:
        response = admin_client.get(list_url(model), {"q": word})
        assert response.context["cl"].result_count > 0, word
    response = admin_client.get(list_url(model), {"q": "xyzzy"})
    assert response.context["cl"].result_count == 0
    assert "No rows match." in text_of(response)


@pytest.mark.parametrize("model", [LlmCall, LogEntry, Run], ids=name_of)
def test_a_whole_id_finds_its_row(admin_client: Client, rows: Rows, model: type[Model]) -> None:
    response = admin_client.get(list_url(model), {"q": str(rows[model].pk)})

    assert list(response.context["cl"].result_list) == [rows[model]]


def test_alerts_are_ordered_by_state_and_severity(admin_client: Client, rows: Rows) -> None:
    def alert(message: str, severity: Severity, state: AlertState) -> None:
        Alert.objects.create(
            user=rows[MemoryUser],
            constraint=CONSTRAINT,
            fingerprint=message,
            severity=severity,
            state=state,
            message=message,
            opened_at=timezone.now(),
            changed_at=timezone.now(),
            resolved_at=timezone.now() if state == AlertState.RESOLVED else None,
        )

    alert("resolved critical", Severity.CRITICAL, AlertState.RESOLVED)
    alert("open info", Severity.INFO, AlertState.OPEN)
    alert("acknowledged critical", Severity.CRITICAL, AlertState.ACKNOWLEDGED)
    alert("open warning", Severity.WARNING, AlertState.OPEN)

    response = admin_client.get(list_url(Alert))

    assert [alert.message for alert in response.context["cl"].result_list] == [
        "Aspirin",
        "open warning",
        "open info",
        "acknowledged critical",
        "resolved critical",
    ]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("staff:eve", "from eve (staff)"),
        ("merge", "from a merge with another user"),
        ("key:<b>\u202e", "through the API key (uac_<b>\\u202e_…)"),
        ("something else", "something else"),
        (None, "–"),
    ],
)
def test_entry_without_key_names_its_source(
    admin_client: Client, workspace: Workspace, source: str | None, told: str
) -> None:
    user = create_user(workspace, "bob", time_zone="UTC", metadata={})
    entry = LogEntry.objects.create(
        user=user,
        seq=1,
        kind=EntryKind.MESSAGE,
        occurred_at=timezone.now(),
        recorded_at=timezone.now(),
        source=source,
        payload_hash=b"",
        hash=b"",
    )

    assert f"Origin: {told}" in html.unescape(shown(admin_client.get(page_url(entry))))


def test_icons_that_browsers_request_exist(client: Client) -> None:
    answer = client.get("/favicon.ico")

    assert answer.status_code == 302
    path = answer["Location"].removeprefix("/static/")
    assert finders.find(path)

"""One person's memory with a row of every model, in the words that a test chooses."""

import copy
import datetime
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import pytest
import time_machine
from django.apps import apps
from django.contrib.auth.models import Permission, User
from django.db.models import Model
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory.alerts import reconcile
from memory.alerts.delivery import staff_mail
from memory.alerts.findings import ConstraintFinding
from memory.alerts.models.alerts import (
    Alert,
    AlertEvent,
    AlertFeedback,
    EventCounter,
    Judge,
    PausedConstraint,
    Severity,
    Verdict,
)
from memory.alerts.models.staff_mail import MailCursor, StaffSubscription
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt, WebhookEndpoint
from memory.constraints import workspace_constraints
from memory.constraints.models.backtests import Backtest
from memory.constraints.models.forecasts import Forecast
from memory.constraints.models.workspace_constraints import (
    VersionState,
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.integrations.mcp.models import AgentConnection
from memory.kernel.canonical import sha256
from memory.kernel.models.hosts import SandboxHost
from memory.kernel.models.idempotency import IdempotencyKey
from memory.kernel.models.operations import Alarm, Heartbeat
from memory.kernel.models.pauses import Pause
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import ApiKey, Workspace, WorkspaceUse
from memory.kernel.settings.language_models import Usage
from memory.kernel.staff.models import AuditKind, StaffAccess, StaffAudit
from memory.kernel.users import create_user
from memory.kernel.work import hosts
from memory.kernel.workspaces import create_key
from memory.llm import llm_calls, track_records
from memory.llm.llm_calls import Attempt, CallSession, Ending
from memory.llm.models import LlmCall, LlmOutcome, LlmPurpose, LlmSpending
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.documents import Document
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry, Outcome
from memory.log.models.merges import CopiedEntries, Merge
from memory.log.models.redactions import Redaction
from memory.privacy.models import UserErasure
from memory.recall.models import SearchBlock, SearchIndex, SearchSegment
from memory.versions.models.checkpoints import Blob, Bytecode, Checkpoint, Origin, RecordLocation
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus, RunTrigger

Rows: TypeAlias = Mapping[type[Model], Any]
Say: TypeAlias = Callable[..., Checkpoint]
Populate: TypeAlias = Callable[..., Rows]
Staff: TypeAlias = Callable[..., Client]

CONSTRAINT = "constraints/allergy.py"

# Every model has a screen.
MODELS: list[type[Model]] = list(apps.get_app_config("memory").get_models())
# Models whose rows the staff change by hand.
EDITABLE = {
    ApiKey,
    MemoryUser,
    StaffSubscription,
    WebhookEndpoint,
    Workspace,
    WorkspaceConstraint,
}
IMMUTABLE = [model for model in MODELS if model not in EDITABLE]


def name_of(model: type[Model]) -> str:
    return model.__name__


def list_url(model: type[Model]) -> str:
    return reverse(f"admin:memory_{model._meta.model_name}_changelist")


def add_url(model: type[Model]) -> str:
    return reverse(f"admin:memory_{model._meta.model_name}_add")


def page_url(row: Model) -> str:
    return reverse(f"admin:memory_{row._meta.model_name}_change", args=[row.pk])


def delete_url(row: Model) -> str:
    return reverse(f"admin:memory_{row._meta.model_name}_delete", args=[row.pk])


def act(client: Client, action: str, *rows: Model, **fields: str) -> Any:
    """Apply an action to rows of a list, with these values in the form that asks for it."""
    return client.post(
        list_url(type(rows[0])),
        {"action": action, "_selected_action": [str(row.pk) for row in rows], **fields},
        follow=True,
    )


def rows_at(client: Client, address: str) -> list[Any]:
    """Follow a link to a list and return all the rows that it selects."""
    response = client.get(address)
    assert response.status_code == 200, address
    return list(response.context["cl"].queryset)


def links_in(page: str) -> list[str]:
    return [html.unescape(address) for address in re.findall(r'href="([^"]+)"', page)]


def messages_of(response: Any) -> list[str]:
    """Return the messages of a page, without whose rows they are about and how to undo them."""
    undo = re.compile(r"\s*<input[^>]*>|<button[^>]*>Undo</button>|<span>For .*</span>")
    return [undo.sub("", str(message)).strip() for message in response.context["messages"]]


def offered(response: Any) -> list[str]:
    """Return the actions whose buttons are enabled on a row's page."""
    tools = response.context["tools"]
    return [one["name"] for tool in tools for one in tool["buttons"] if one["fits"]]


def text_of(response: Any) -> str:
    assert response.status_code == 200
    return str(response.content.decode())


def shown(response: Any) -> str:
    """Return the page's text as a reader sees it, without markup."""
    page = re.sub(r'<span class="[a-z]">(.*?)</span>|</?mark>', r"\1", text_of(response))
    page = re.sub(r"<[^>]+>", " ", page)
    return " ".join(html.unescape(page).split())


@pytest.fixture
def admin_user(db: None) -> User:
    """A superuser, logged in without a password, since hashing takes time."""
    return User.objects.create(username="admin", is_staff=True, is_superuser=True)


@pytest.fixture
def stopped() -> Iterator[None]:
    """A clock that stands still, so that no minute, hour or day ends during a test."""
    with time_machine.travel(timezone.now(), tick=False):
        yield


@pytest.fixture
def nobody_waits(settings: Settings) -> None:
    """Pages answer at once: the tests do the work themselves."""
    settings.UAC_MAX_WAIT_SECONDS = 0


@pytest.fixture
def populate(workspace: Workspace) -> Populate:
    """Make a person with a row of every model; `text` is put wherever content may be."""
    return lambda text="Aspirin", user_id="ada": _populate(workspace, text, user_id)


@pytest.fixture(scope="module")
def made(populate_once: Populate) -> Rows:
    """Rows of one person, the same for all tests of a file."""
    return populate_once()


@pytest.fixture
def rows(made: Rows) -> Rows:
    """The same rows, for a test that changes them."""
    return copy.deepcopy(made)


@pytest.fixture
def workspace(request: pytest.FixtureRequest, workspace: Workspace) -> Workspace:
    """The workspace of those rows, where a test has them."""
    if not {"made", "rows"} <= set(request.fixturenames):
        return workspace
    found: Workspace = request.getfixturevalue("rows")[Workspace]
    return found


@pytest.fixture(scope="module")
def populate_once(populate_module: Callable[[Callable[[], Rows]], Rows]) -> Populate:
    """Make rows as `populate` does, in a workspace of their own, for all tests of a file."""

    def populate(text: str = "Aspirin", user_id: str = "ada", company: str = "Company") -> Rows:
        return populate_module(
            lambda: _populate(Workspace.objects.create(name=company), text, user_id)
        )

    return populate


@pytest.fixture
def staff() -> Staff:
    """Log in as a member of the staff with these permissions, such as `view_alert`.

    With `workspaces` she sees only these, otherwise all.
    """

    def log_in(*permissions: str, workspaces: Iterable[Workspace] | None = None) -> Client:
        user = User.objects.create(username="eve", is_staff=True)
        access = StaffAccess.objects.create(user=user, all_workspaces=workspaces is None)
        access.workspaces.set(workspaces or [])
        chosen = Permission.objects.filter(
            content_type__app_label="memory", codename__in=permissions
        )
        assert chosen.count() == len(permissions)
        user.user_permissions.set(chosen)
        client = Client()
        client.force_login(user)
        return client

    return log_in


def _populate(workspace: Workspace, text: str, user_id: str) -> Rows:
    user = create_user(
        workspace, user_id, time_zone="Europe/Berlin", metadata={"note": text, text: "note"}
    )
    key, _ = create_key(workspace, text[:100])
    entries = _entries(user, text, source=f"key:{key.prefix}")
    checkpoint = _checkpoint(user, text)
    outcomes = [
        EntryOutcome.objects.create(
            user=user, seq=seq, outcome=outcome, checkpoint=checkpoint, reason=reason
        )
        for seq, outcome, reason in [(1, Outcome.COVERED, ""), (2, Outcome.REJECTED, text)]
    ]
    location = RecordLocation.objects.create(
        user=user,
        domain="health",
        collection="drugs",
        key=text,
        path="domains/health/state.py",
        added_version=1,
    )
    run = _run(checkpoint, text)
    reconcile.apply(
        run,
        [
            ConstraintFinding(
                constraint=CONSTRAINT,
                severity=Severity.CRITICAL,
                message=text,
                evidence=[_evidence(text)],
            )
        ],
        completed=[CONSTRAINT],
        existing=[CONSTRAINT],
    )
    alert = Alert.objects.get(user=user)
    judged = AlertFeedback.objects.create(
        alert=alert,
        judge=Judge.STAFF,
        verdict=Verdict.USEFUL,
        note=text,
        actor=text[:200],
        at=timezone.now(),
    )
    paused = PausedConstraint.objects.create(
        user=user,
        constraint="constraints/other.py",
        reason=text,
        paused_at=timezone.now(),
        paused_by="constraints",
    )
    pause = Pause.objects.create(
        workspace=workspace,
        user=user,
        reason=text,
        paused_at=timezone.now(),
        paused_by=text[:200],
        resumed_at=timezone.now(),
    )
    subscription = _subscription(workspace, user_id)
    MemoryUser.objects.filter(pk=user.pk).update(head=checkpoint, constraints_due_at=timezone.now())
    Lane.objects.filter(user=user, name=LaneName.RECORDS).update(
        due_at=timezone.now(), attempts=3, last_error=text
    )
    user.refresh_from_db()
    forecast = _forecast(user, checkpoint, text)
    idempotency_key = IdempotencyKey.objects.create(
        workspace=workspace,
        user=user,
        key=f"{user_id}:{text}"[:255],
        fingerprint=sha256(text),
        reference=[1],
    )
    document = Document.objects.create(
        user=user,
        name=text[:255],
        size=len(text),
        sha256=sha256(text),
        file=text.encode(errors="replace"),
        by=f"key:{key.prefix}",
        error="not_admitted",
        detail=text,
        created_at=timezone.now(),
        due_at=timezone.now(),
        last_error=text,
    )
    call = _call(user, run, text)
    hosts.beat(
        f"host of {user_id}",
        started_at=timezone.now(),
        threads=2,
        report={"runner": "docker", "image": text, "fresh": 3, "leases": 1},
    )
    constraint = _workspace_constraint(workspace, text, user_id)
    use, _ = WorkspaceUse.objects.get_or_create(workspace=workspace)
    return {
        WorkspaceUse: use,
        WorkspaceConstraint: constraint,
        WorkspaceConstraintVersion: constraint.versions.get(),
        Workspace: workspace,
        ApiKey: key,
        MemoryUser: user,
        LogEntry: entries[0],
        Document: document,
        EntryOutcome: outcomes[1],
        Forecast: forecast,
        Lane: user.lanes.get(name=LaneName.RECORDS),
        Blob: user.blobs.get(hash=sha256(_source(text))),
        Bytecode: user.bytecode.get(),
        Checkpoint: checkpoint,
        RecordLocation: location,
        IdempotencyKey: idempotency_key,
        Run: run,
        LlmCall: call,
        LlmSpending: LlmSpending.objects.get(workspace=workspace, model=call.model),
        SandboxHost: SandboxHost.objects.get(name=f"host of {user_id}"),
        Alert: alert,
        AlertFeedback: judged,
        Pause: pause,
        PausedConstraint: paused,
        StaffAccess: _access(subscription.staff, workspace),
        StaffAudit: StaffAudit.objects.create(
            staff_id=subscription.staff.pk,
            staff_name=subscription.staff.username,
            kind=AuditKind.VIEW,
            what="page",
            model="alert",
            row=str(alert.pk),
            person=user.public_id,
            workspace=workspace,
        ),
        StaffSubscription: subscription,
        MailCursor: subscription.cursors.get(),
        AlertEvent: alert.events.get(),
        EventCounter: EventCounter.objects.get(workspace=workspace),
        **_webhook(workspace, alert, text, user_id),
        **_backtest(user, constraint, text),
        **_search_index(user, text),
        Alarm: Alarm.objects.create(name=f"about {user_id}", detail=text, last_error=text),
        Heartbeat: Heartbeat.objects.create(name=f"of {user_id}", at=timezone.now()),
        UserErasure: UserErasure.objects.create(
            user=user,
            by=f"staff:{text}"[:200],
            reason=text,
            created_at=timezone.now(),
            due_at=timezone.now(),
            counts={text: 1},
            hosts=[text[:100]],
            last_error=text,
        ),
        **_merge(user, text),
        AgentConnection: AgentConnection.objects.create(
            user=user,
            client_name=f"client of {user_id}"[:100],
            client_id="x",
            redirect_uri="https://chat.example/callback",
            audience=f"https://uac.example/{text}"[:500],
            scopes=["read"],
            code_challenge="x",
            code_digest="x",
        ),
        Redaction: Redaction.objects.create(
            user=user,
            seq=3,
            asked=[1],
            entries=[1, 2],
            by="staff:eve",
            reason=text,
            created_at=timezone.now(),
            due_at=timezone.now(),
            problem=text,
            last_error=text,
        ),
    }


def _search_index(user: MemoryUser, text: str) -> Rows:
    segment = SearchSegment.objects.create(
        user=user, first_seq=1, last_seq=4, version=1, blocks=1, postings=9
    )
    return {
        SearchIndex: SearchIndex.objects.create(user=user, due_at=timezone.now(), last_error=text),
        SearchSegment: segment,
        SearchBlock: SearchBlock.objects.create(segment=segment, number=0, data=text.encode()),
    }


def _merge(user: MemoryUser, text: str) -> Rows:
    # Into itself: only the row is needed.
    merge = Merge.objects.create(
        user=user,
        merged=user,
        by="key:x",
        created_at=timezone.now(),
        last_seq=2,
        copied=1,
        left_behind=[text[:300]],
        alerts={text: {"alert": text, "state": "open", "until": None}},
        due_at=timezone.now(),
        last_error=text,
    )
    copied = CopiedEntries.objects.create(merge=merge, from_seq=1, seq=2, number=1)
    return {Merge: merge, CopiedEntries: copied}


def _forecast(user: MemoryUser, checkpoint: Checkpoint, text: str) -> Forecast:
    now = timezone.now()
    later = now + datetime.timedelta(days=9)
    event = {
        "at": later.isoformat(),
        "day": later.date().isoformat(),
        "kind": "opens",
        "constraint": text,
        "severity": "warning",
        "fingerprint": "f" * 64,
        "key": text,
        "records": [text],
        "error": text,
    }
    return Forecast.objects.create(
        user=user,
        checkpoint=checkpoint,
        computed_at=now,
        start=now,
        horizon_days=365,
        known_until=now + datetime.timedelta(days=365),
        results={text: {"error": {"type": text, "message": text}, "until": None}},
        timeline=[event],
        next_change=later,
        wakes_at=later,
        timings={"seconds": 0.1},
        last_error=text,
    )


def _backtest(user: MemoryUser, constraint: WorkspaceConstraint, text: str) -> dict[Any, Any]:
    problem = {"at": timezone.now().isoformat(), "version": 2, "kind": "error", "message": text}
    finding = {
        "fingerprint": "f" * 64,
        "severity": Severity.CRITICAL,
        "message": text,
        "evidence": [_evidence(text)],
        "entries": [1],
        "opened_at": timezone.now().isoformat(),
        "day": timezone.now().date().isoformat(),
        "version": 2,
        "resolved_at": None,
    }
    result = {"alerts": 1, "findings": [finding], "problems": [problem]}
    backtest = Backtest.objects.create(
        workspace=user.workspace,
        version=constraint.versions.get(),
        constraint=constraint.path,
        source_hash="f" * 64,
        days=365,
        most_users=200,
        until=timezone.now(),
        reason=text,
        last_error=text,
        created_by=text,
        report={"checked": 1, "users": {str(user.pk): result}},
    )
    return {Backtest: backtest}


def _subscription(workspace: Workspace, name: str) -> StaffSubscription:
    staff = User.objects.create(
        username=f"staff-{name}", email="eve@example.org", is_staff=True, is_superuser=True
    )
    subscription = StaffSubscription(staff=staff, workspace=workspace)
    staff_mail.start(subscription, timezone.now())
    return subscription


def _access(staff: User, workspace: Workspace) -> StaffAccess:
    access = StaffAccess.objects.create(user=staff)
    access.workspaces.add(workspace)
    return access


def _webhook(workspace: Workspace, alert: Alert, text: str, user_id: str) -> dict[Any, Any]:
    """Store a message that has failed, for an endpoint that is disabled."""
    endpoint = WebhookEndpoint.objects.create(
        workspace=workspace,
        url=f"https://hooks-of-{user_id}.example/",
        enabled=False,
        secret=b"no token",
    )
    delivery = Delivery.objects.create(
        endpoint=endpoint,
        event=alert.events.get(),
        alert=alert,
        seq=1,
        type="alert.opened",
        payload=json.dumps({"message": text}),
        last_error=text,
    )
    attempt = DeliveryAttempt.objects.create(
        delivery=delivery, at=timezone.now(), seconds=1, status=500, error=text, answer=text
    )
    return {
        WebhookEndpoint: endpoint,
        Delivery: delivery,
        DeliveryAttempt: attempt,
    }


def _entries(user: MemoryUser, text: str, source: str) -> list[LogEntry]:
    """Append an entry that is covered, one that is rejected, and one that stays pending."""
    data = {"domain": "health", "type": "Drug", "key": text, "data": {"name": text, text: [text]}}
    drafts = [
        Draft(kind=EntryKind.RECORD, data=data, idempotency_key=text),
        Draft(kind=EntryKind.RECORD, data=data),
        Draft(
            kind=EntryKind.MESSAGE,
            content=text,
            role=text[:32],
            speaker=text,
            session_id=text,
            agent_id=text,
            metadata={text: text},
            derived_from=[1],
        ),
    ]
    return entry_log.append(user, drafts, source=source)


def _checkpoint(user: MemoryUser, text: str) -> Checkpoint:
    source = _source(text)
    Blob.objects.create(user=user, hash=sha256(source), content=source)
    Bytecode.objects.create(
        user=user, path=CONSTRAINT, source_hash=sha256(source), image_digest="image", code=b"code"
    )
    parent = Checkpoint.objects.create(
        user=user,
        version=1,
        tree={},
        outline={
            "domains": [],
            "constraints": [],
            "tests": [text],
        },
        seen_seq=0,
        origin=Origin.PROPOSED,
        edits=[
            {"op": "write_constraint", "name": text, "source": source, "tests_source": source},
        ],
        verdict={"accepted": True},
    )
    return Checkpoint.objects.create(
        user=user,
        version=2,
        parent=parent,
        tree={CONSTRAINT: sha256(source)},
        outline={
            "domains": [],
            "constraints": [["allergy", text]],
            "tests": [text],
        },
        seen_seq=3,
        origin=Origin.RECORDS,
        edits=[
            {
                "op": "add",
                "domain": "health",
                "collection": "drugs",
                "class_name": "Drug",
                "key": text,
                "fields": {"name": text},
                "sources": [1],
            },
            {"op": "note", "text": text, "sources": [1]},
        ],
        verdict={
            "accepted": True,
            "checks": [
                {"name": "policy", "passed": True, "findings": []},
                {
                    "name": "execution",
                    "passed": True,
                    "findings": [{"path": text, "line": 3, "message": text}],
                },
            ],
            "counts": {"records_added": 1, "files_changed": 2},
            "runner": "process",
            "timings": {"total": 0.25},
        },
    )


def _source(text: str) -> str:
    return f"# {text}\ndef check(today):\n    yield critical({text!r})\n"


def _run(checkpoint: Checkpoint, text: str) -> Run:
    error = {
        "type": "ZeroDivisionError",
        "message": text,
        "path": CONSTRAINT,
        "line": 3,
        "traceback": text,
    }
    return Run.objects.create(
        user=checkpoint.user,
        kind=RunKind.CONSTRAINTS,
        trigger=RunTrigger.CHECKPOINT,
        checkpoint=checkpoint,
        instant=timezone.now(),
        input={"code": text},
        status=RunStatus.DONE,
        outcome=RunOutcome.USER_ERROR,
        finished_at=timezone.now(),
        output={
            "constraints": [
                {"path": CONSTRAINT, "seconds": 0.1, "error": error, "alerts": []},
                {
                    "path": "constraints/other.py",
                    "seconds": 0.1,
                    "error": None,
                    "alerts": [{"severity": "critical", "message": text}],
                },
            ]
        },
        error=error,
        stdout=text,
        runner="process",
        timings={"load": 0.1, "total": 0.2},
        memory_bytes=20_000_000,
        last_error=text,
    )


def _call(user: MemoryUser, run: Run, text: str) -> LlmCall:
    work = CallSession(
        workspace=user.workspace,
        purpose=LlmPurpose.STRUCTURE,
        user=user,
        lane=user.lanes.get(name=LaneName.STRUCTURE),
        run=run,
    )
    attempt = Attempt(
        model=f"openai:model-of-{user.user_id}",
        turn=1,
        attempt=1,
        prompt={"messages": [text]},
        most=Usage(input_tokens=200, output_tokens=1000),
        seconds=60,
    )
    call = llm_calls.start(work, attempt, keep_content=False)
    ending = Ending(
        outcome=LlmOutcome.REFUSED,
        seconds=1.5,
        usage=Usage(input_tokens=120, output_tokens=30),
        error=text,
        answered_by=text,
    )
    llm_calls.finish(call, ending, keep_content=False)
    assert run.checkpoint is not None
    track_records.note_accepted(str(work.id), 0, run.checkpoint)
    call.refresh_from_db()
    return call


def _workspace_constraint(workspace: Workspace, text: str, user_id: str) -> WorkspaceConstraint:
    constraint = workspace_constraints.create(
        workspace,
        f"of_{user_id}".replace("-", "_"),
        source=_source(text),
        tests=_source(text),
        description=text,
        by=text,
    )
    finding = {"path": text, "line": 3, "message": text, "fix": text}
    constraint.versions.update(
        state=VersionState.REFUSED,
        verdict={
            "accepted": False,
            "reason": text,
            "checks": [{"name": "policy", "passed": False, "findings": [finding]}],
            "runner": "process",
            "timings": {"total": 0.25},
        },
        last_error=text,
    )
    return constraint


def _evidence(text: str) -> dict[str, Any]:
    return {
        "class": "Drug",
        "domain": "health",
        "collection": "drugs",
        "key": text,
        "sources": [1],
    }


@pytest.fixture
def say(user: MemoryUser, work: Callable[[], None]) -> Say:
    """Append typed entries and process them; return the resulting version."""

    def do(*entries: dict[str, Any], occurred_at: datetime.datetime | None = None) -> Checkpoint:
        drafts = [
            Draft(kind=EntryKind.RECORD, data=data, occurred_at=occurred_at) for data in entries
        ]
        entry_log.append(user, drafts, source="test")
        work()
        user.refresh_from_db()
        assert user.head is not None
        return user.head

    return do

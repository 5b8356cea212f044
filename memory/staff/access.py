"""Access control of the staff: permissions of roles, visible workspaces, and visible content.

Three questions, each answered in one place: what a role may do (`ROLES`, which every migration
writes into Django's groups), which workspaces an account sees (`seen_by`, which every list of the
admin uses), and whether it sees what people said (`sees_content`).
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from django.apps import apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, Permission, User
from django.db import DEFAULT_DB_ALIAS
from django.db.models import Model, QuerySet
from django.db.models.functions import Coalesce

from memory.models import (
    Alarm,
    Alert,
    AlertEvent,
    AlertFeedback,
    ApiKey,
    Backtest,
    BacktestFinding,
    BacktestUser,
    Blob,
    Bytecode,
    Checkpoint,
    CopiedEntries,
    Delivery,
    DeliveryAttempt,
    EntryOutcome,
    EventCounter,
    Forecast,
    Heartbeat,
    IdempotencyKey,
    Lane,
    LlmCall,
    LlmSpending,
    LogEntry,
    MailCursor,
    MemoryUser,
    Merge,
    Pause,
    PausedConstraint,
    RecordLocation,
    Redaction,
    Run,
    SandboxHost,
    SearchBlock,
    SearchIndex,
    SearchSegment,
    StaffAccess,
    StaffAudit,
    StaffSubscription,
    UserErasure,
    WebhookEndpoint,
    Workspace,
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
    WorkspaceUse,
)

Row = TypeVar("Row", bound=Model)
Staff = AbstractBaseUser | AnonymousUser

CONTENT = "memory.view_content"
PROMPTS = "memory.view_llmcall_content"
SUBJECT_ACCESS = "memory.subject_access"
GRANT_MANAGE = "memory.grant_manage"

# -- Roles -------------------------------------------------------------------------------------

# `view_*` does not include these models: a role must name them.
_ON_STAFF = (StaffAccess, StaffAudit)
_EVERY_LIST = "view_*"


@dataclass(frozen=True, kw_only=True)
class Role:
    """A group of the staff: its purpose, and its permissions (of the app `memory`)."""

    name: str
    summary: str
    permissions: tuple[str, ...]

    def codenames(self) -> Iterator[str]:
        """Yield every permission; `view_*` stands for all models except those about the staff."""
        for permission in self.permissions:
            if permission != _EVERY_LIST:
                yield permission
                continue
            for model in apps.get_app_config("memory").get_models():
                if model not in _ON_STAFF:
                    yield f"view_{model._meta.model_name}"


ROLES = (
    Role(
        name="viewer",
        summary="Sees lists, states, counts and times. What people said is hidden.",
        permissions=(_EVERY_LIST,),
    ),
    Role(
        name="operator",
        summary="Sees what people said, and keeps the service running: handles alerts, paused"
        " constraints, failing, permanently failed and paused work, webhooks, API keys, e-mail"
        " subscriptions and users' time zones.",
        permissions=(
            _EVERY_LIST,
            "view_content",
            *("change_alert", "change_pausedconstraint", "change_memoryuser", "change_pause"),
            *("change_lane", "change_run", "change_forecast", "change_searchindex"),
            "change_entryoutcome",
            *("change_backtest", "change_merge", "change_redaction", "change_usererasure"),
            *("change_workspaceconstraintversion", "change_delivery"),
            *("add_webhookendpoint", "change_webhookendpoint"),
            *("add_apikey", "change_apikey"),
            *("add_staffsubscription", "change_staffsubscription"),
        ),
    ),
    Role(
        name="engineer",
        summary="Sees what people said and what was sent to language models; writes, tests and"
        " approves constraints, restores versions, repeats runs and sets up workspaces.",
        permissions=(
            _EVERY_LIST,
            "view_content",
            "view_llmcall_content",
            *("add_workspaceconstraint", "change_workspaceconstraint"),
            *("change_workspaceconstraintversion", "approve_workspaceconstraint"),
            *("change_backtest", "change_checkpoint", "change_entryoutcome", "change_run"),
            *("add_workspace", "change_workspace"),
        ),
    ),
    Role(
        name="privacy officer",
        summary="Sees what people said and what was sent to language models; redacts entries,"
        " erases users, downloads all stored data about a person and reads the audit of the"
        " staff.",
        permissions=(
            _EVERY_LIST,
            "view_content",
            "view_llmcall_content",
            *("change_logentry", "erase_memoryuser", "subject_access"),
            *("change_redaction", "change_usererasure"),
            *("view_staffaudit", "view_staffaccess"),
        ),
    ),
)


def as_table() -> str:
    """Return the roles as a Markdown table, for docs/staff.md."""
    lines = ["| role | purpose | permissions |", "|---|---|---|"]
    for role in ROLES:
        names = ", ".join(f"`{name}`" for name in role.permissions)
        lines.append(f"| {role.name} | {role.summary} | {names} |")
    return "\n".join(lines)


def write_roles(using: str = DEFAULT_DB_ALIAS) -> None:
    """Update the groups of the roles to match `ROLES`; other groups are left alone.

    It runs after every migration, so that a role gets the permissions that later versions add.
    Missing permissions are created.
    """
    create_permissions(apps.get_app_config("memory"), verbosity=0, using=using)
    known = {
        permission.codename: permission
        for permission in Permission.objects.using(using).filter(content_type__app_label="memory")
    }
    for role in ROLES:
        group, _ = Group.objects.using(using).get_or_create(name=role.name)
        group.permissions.set([known[name] for name in role.codenames()])


def after_migration(*, using: str, **told: Any) -> None:
    """Write the roles, unless the migration went back to a version without roles."""
    try:
        told.get("apps", apps).get_model("memory", StaffAccess._meta.model_name)
    except LookupError:
        return
    write_roles(using)


# -- Workspaces --------------------------------------------------------------------------------

ITSELF = "pk"


@dataclass(frozen=True)
class RowPath:
    """The lookups that lead from a model's rows to their workspace, and to the person they concern.

    None means that the rows belong to no workspace, or do not concern a person. `otherwise` is a
    second lookup, for rows in which `person` leads to nobody.
    """

    workspace: str | None
    person: str | None = None
    otherwise: str | None = None

    @property
    def public_id(self) -> str | Coalesce | None:
        """The public id of the user, as a lookup or an expression."""
        if self.person is None:
            return None
        if self.otherwise is not None:
            return Coalesce(f"{self.person}__public_id", f"{self.otherwise}__public_id")
        return "public_id" if self.person == ITSELF else f"{self.person}__public_id"


def _of_user(path: str = "user") -> RowPath:
    return RowPath(workspace=f"{path}__workspace", person=path)


# Rows of the server itself: whoever may see such rows at all sees all of them.
_NOBODYS = RowPath(workspace=None)
_WORKSPACES = RowPath(workspace="workspace")

PLACES: dict[type[Model], RowPath] = {
    Workspace: RowPath(workspace=ITSELF),
    MemoryUser: RowPath(workspace="workspace", person=ITSELF),
    **dict.fromkeys(
        [
            *(Alert, Blob, Bytecode, Checkpoint, EntryOutcome, Forecast, Lane, LogEntry, Merge),
            *(PausedConstraint, RecordLocation, Redaction, Run, SearchIndex, SearchSegment),
            UserErasure,
        ],
        _of_user(),
    ),
    AlertFeedback: _of_user("alert__user"),
    AlertEvent: RowPath("workspace", person="alert__user", otherwise="user"),
    CopiedEntries: _of_user("merge__user"),
    SearchBlock: _of_user("segment__user"),
    BacktestUser: _of_user(),
    BacktestFinding: _of_user("result__user"),
    # Some of these rows do not concern a user.
    **dict.fromkeys(
        [Backtest, IdempotencyKey, LlmCall, Pause], RowPath("workspace", person="user")
    ),
    Delivery: RowPath("endpoint__workspace", person="alert__user", otherwise="event__user"),
    DeliveryAttempt: RowPath(
        "delivery__endpoint__workspace",
        person="delivery__alert__user",
        otherwise="delivery__event__user",
    ),
    **dict.fromkeys(
        [
            *(ApiKey, EventCounter, LlmSpending, MailCursor, StaffAudit, StaffSubscription),
            *(WebhookEndpoint, WorkspaceConstraint, WorkspaceUse),
        ],
        _WORKSPACES,
    ),
    WorkspaceConstraintVersion: RowPath("constraint__workspace"),
    **dict.fromkeys([Alarm, Heartbeat, SandboxHost, StaffAccess], _NOBODYS),
}

_CACHE = "_workspaces_seen"


def workspaces_of(staff: Staff) -> Collection[int] | None:
    """Return the keys of the workspaces that an account sees; None for all.

    Superusers see all; anybody else without a row of `StaffAccess` sees none. The rows are
    read once per instance of an account, that is, once per request.
    """
    if not isinstance(staff, User) or not staff.is_active:
        return ()
    if staff.is_superuser:
        return None
    if not hasattr(staff, _CACHE):
        rows = StaffAccess.objects.filter(user=staff).values_list("all_workspaces", "workspaces")
        found = list(rows)
        everything = any(is_all for is_all, _ in found)
        chosen = tuple(pk for _, pk in found if pk is not None)
        setattr(staff, _CACHE, None if everything else chosen)
    seen: Collection[int] | None = getattr(staff, _CACHE)
    return seen


def sees_all(staff: Staff) -> bool:
    """Return whether an account sees every workspace."""
    return workspaces_of(staff) is None


def seen_by(staff: Staff, rows: QuerySet[Row]) -> QuerySet[Row]:
    """Keep the rows that an account sees. Raises KeyError for a model that is not in PLACES."""
    place, chosen = PLACES[rows.model], workspaces_of(staff)
    if place.workspace is None or chosen is None:
        return rows
    return rows.filter(**{f"{place.workspace}__in": chosen})


# -- Content -----------------------------------------------------------------------------------


def sees_content(staff: Staff) -> bool:
    """Return whether an account sees what people said and what was derived from it."""
    return isinstance(staff, User) and staff.has_perm(CONTENT)

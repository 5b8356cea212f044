"""Access control for staff: role permissions, visible workspaces, and visible content.

Each of three questions is answered in a single place: what a role may do (`ROLES`, which are
written to Django's groups after every migration), which workspaces an account can see (`seen_by`,
used by every list in the admin), and whether it can see what people said (`sees_content`).
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

from memory.kernel.models.privacy import owner_paths, workspace_path
from memory.kernel.models.workspaces import Workspace
from memory.kernel.staff.models import StaffAccess, StaffAudit
from memory.kernel.texts import visible

Row = TypeVar("Row", bound=Model)
Staff = AbstractBaseUser | AnonymousUser

CONTENT = "memory.view_content"
PROMPTS = "memory.view_llmcall_content"
SUBJECT_ACCESS = "memory.subject_access"
GRANT_MANAGE = "memory.grant_manage"

# -- Roles -------------------------------------------------------------------------------------

# `view_*` doesn't include these models about staff: a role must list their permissions explicitly.
_ON_STAFF = (StaffAccess, StaffAudit)
_EVERY_LIST = "view_*"


@dataclass(frozen=True, kw_only=True)
class Role:
    """A staff role, stored as a Django group: its purpose and its permissions."""

    name: str
    summary: str
    permissions: tuple[str, ...]

    def codenames(self) -> Iterator[str]:
        """Yield the codenames of the role's permissions, with `view_*` expanded.

        `view_*` stands for viewing all models except those about staff.
        """
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
        summary="Sees lists, states, counts and timestamps. What people said is hidden.",
        permissions=(_EVERY_LIST,),
    ),
    Role(
        name="operator",
        summary="Sees what people said, and keeps the service running: handles alerts, paused"
        " constraints, failing, permanently failed and paused work, webhooks, API keys, MCP"
        " clients, e-mail subscriptions and users' time zones.",
        permissions=(
            _EVERY_LIST,
            "view_content",
            *("change_alert", "change_pausedconstraint", "change_memoryuser", "change_pause"),
            *("change_lane", "change_run", "change_forecast", "change_searchindex"),
            *("change_entryoutcome", "change_document"),
            *("change_backtest", "change_merge", "change_redaction", "change_usererasure"),
            *("change_workspaceconstraintversion", "change_delivery"),
            *("add_webhookendpoint", "change_webhookendpoint"),
            *("add_apikey", "change_apikey"),
            *("add_agentconnection", "change_agentconnection"),
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
        " erases users, downloads all stored data about a person and reads the staff audit.",
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


def summary_of(group_name: str) -> str:
    """Return what the role with this name is for, or "" for a group that is no role."""
    return next((role.summary for role in ROLES if role.name == group_name), "")


def render_roles() -> str:
    """Return the roles as the Markdown table in docs/staff.md."""
    lines = ["| role | purpose | permissions |", "|---|---|---|"]
    for role in ROLES:
        names = ", ".join(f"`{name}`" for name in role.permissions)
        lines.append(f"| {role.name} | {role.summary} | {names} |")
    return "\n".join(lines)


def write_roles(using: str = DEFAULT_DB_ALIAS) -> None:
    """Update Django's groups to match `ROLES`; groups that aren't roles are left alone.

    This runs after every migration, so that roles gain the permissions that later releases add.
    Missing permissions are created.
    """
    create_permissions(apps.get_app_config("memory"), verbosity=0, using=using)
    permissions = {
        permission.codename: permission
        for permission in Permission.objects.using(using).filter(content_type__app_label="memory")
    }
    for role in ROLES:
        group, _ = Group.objects.using(using).get_or_create(name=role.name)
        group.permissions.set([permissions[name] for name in role.codenames()])


def after_migration(*, using: str, **options: Any) -> None:
    """Write the roles, unless the database was migrated back to before roles existed."""
    try:
        options.get("apps", apps).get_model("memory", StaffAccess._meta.model_name)
    except LookupError:
        return
    write_roles(using)


# -- Visible workspaces ------------------------------------------------------------------------


def owner_id_of(model: type[Model]) -> str | Coalesce | None:
    """Return the public id of the user that a model's rows are about, as a lookup or expression."""
    paths = [f"{path}__public_id".removeprefix("pk__") for path in owner_paths(model)]
    return Coalesce(*paths) if len(paths) > 1 else next(iter(paths), None)


_CACHE = "_workspaces_seen"
# Maximum number of workspaces that `scope_of` names.
MAX_NAMED = 3


def workspaces_of(staff: Staff) -> Collection[int] | None:
    """Return the primary keys of the workspaces an account can see; None means all of them.

    Superusers see all workspaces; other accounts see only those granted by their `StaffAccess`
    rows. These rows are read once per account instance, that is, once per request.
    """
    if not isinstance(staff, User) or not staff.is_active:
        return ()
    if staff.is_superuser:
        return None
    if not hasattr(staff, _CACHE):
        rows = StaffAccess.objects.filter(user=staff).values_list("all_workspaces", "workspaces")
        memberships = list(rows)
        everything = any(is_all for is_all, _ in memberships)
        chosen = tuple(pk for _, pk in memberships if pk is not None)
        setattr(staff, _CACHE, None if everything else chosen)
    seen: Collection[int] | None = getattr(staff, _CACHE)
    return seen


def sees_all(staff: Staff) -> bool:
    """Return whether an account can see every workspace."""
    return workspaces_of(staff) is None


def scope_of(staff: Staff) -> str:
    """Return in words which workspaces an account sees, and whether it sees what people said."""
    chosen = workspaces_of(staff)
    scope = "all workspaces"
    if chosen is not None:
        rows = Workspace.objects.filter(pk__in=chosen).order_by("name")
        names = list(rows.values_list("name", flat=True)[:MAX_NAMED])
        more = [f"{len(chosen) - len(names)} more"] if len(chosen) > len(names) else []
        scope = ", ".join([*map(visible, names), *more]) or "no workspace"
    return f"sees {scope}{'' if sees_content(staff) else ', without content'}"


def seen_by(staff: Staff, rows: QuerySet[Row]) -> QuerySet[Row]:
    """Filter rows to those an account can see; it sees all rows that belong to no workspace."""
    path, chosen = workspace_path(rows.model), workspaces_of(staff)
    return rows if path is None or chosen is None else rows.filter(**{f"{path}__in": chosen})


# -- Visible content ---------------------------------------------------------------------------


def sees_content(staff: Staff) -> bool:
    """Return whether an account may see what people said and anything derived from it."""
    return isinstance(staff, User) and staff.has_perm(CONTENT)

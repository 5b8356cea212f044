"""MCP clients: the page on which staff approve one, and the list on which they revoke it."""

from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone

from memory.integrations.mcp import connections, requests
from memory.integrations.mcp.connections import Kind
from memory.integrations.mcp.models import AgentConnection
from memory.integrations.mcp.requests import AccessRequest
from memory.kernel.admin.actions import report
from memory.kernel.admin.base import ReadOnlyAdmin
from memory.kernel.admin.columns import plain_column
from memory.kernel.admin.display import badge
from memory.kernel.admin.filters import presence_filter
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from memory.kernel.staff import access, audit, recent_sign_in
from memory.kernel.staff.models import AuditKind

# What each scope lets a client do: it has the tools alone.
ACCESS = {
    Scope.READ: "read",
    Scope.WRITE: "write",
    Scope.MANAGE: "forget: remove entries for good, with everything derived from them",
}


class ApprovalForm(forms.Form):
    """Which user's memory the client may access, and what it may do there."""

    workspace = forms.ModelChoiceField(Workspace.objects.none())
    user_id = forms.CharField(label="User", help_text="The client sees this user's memory only.")
    scopes = forms.MultipleChoiceField(widget=forms.CheckboxSelectMultiple, label="Access")

    def __init__(
        self, request: HttpRequest, wanted: AccessRequest, grantable: Collection[Scope]
    ) -> None:
        super().__init__(request.POST if request.method == "POST" else None)
        workspaces = access.seen_by(request.user, Workspace.objects.all())
        fields: Any = self.fields
        fields["workspace"].queryset = workspaces
        fields["workspace"].initial = workspaces.first()
        fields["user_id"].initial = wanted["user_id"]
        fields["user_id"].disabled = wanted["user_id"] is not None
        offered = [scope for scope in grantable if scope in wanted["scopes"]]
        fields["scopes"].choices = [(scope, ACCESS[scope]) for scope in offered]
        fields["scopes"].initial = [scope for scope in offered if scope != Scope.MANAGE]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if "workspace" in cleaned and "user_id" in cleaned:
            users = MemoryUser.objects.filter(workspace=cleaned["workspace"], erased_at=None)
            cleaned["user"] = users.filter(user_id=cleaned["user_id"]).first()
            if cleaned["user"] is None:
                self.add_error("user_id", "There is no such user in this workspace.")
        return cleaned


def approve_client(request: HttpRequest) -> HttpResponse:
    """Ask a staff member whether an MCP client may access a user's memory; send it the answer.

    Whoever approves it must be allowed to see content, since the client will.
    """
    wanted = requests.read(request.GET.get("request", ""))
    staff = request.user
    grantable = connections.find_grantable(staff) if isinstance(staff, User) else []
    if not grantable:
        raise PermissionDenied("Your account may not let MCP clients into a user's memory.")
    if wanted is None:
        raise PermissionDenied("This request is invalid or has expired: connect the client again.")
    if "deny" in request.POST:
        return _return_to_client(request, wanted, "Denied", error="access_denied")
    form = ApprovalForm(request, wanted, grantable)
    if form.is_valid():
        recent_sign_in.require(request)
        code = _approve(staff, wanted, form.cleaned_data)
        return _return_to_client(request, wanted, "Approved", code=code)
    return _page(request, wanted, "Connect an MCP client?", form=form)


def _approve(staff: Any, wanted: AccessRequest, given: dict[str, Any]) -> str:
    assert isinstance(staff, User)
    with transaction.atomic():
        connection, code = connections.approve(
            given["user"],
            client_id=wanted["client_id"],
            client_name=wanted["client_name"],
            redirect_uri=wanted["redirect_uri"],
            code_challenge=wanted["code_challenge"],
            audience=wanted["audience"],
            scopes=given["scopes"],
            staff=staff,
        )
        rows = AgentConnection.objects.filter(pk=connection.pk)
        audit.note(staff, AuditKind.ADD, audit.subject_of(rows), "approve")
    return code


def _return_to_client(
    request: HttpRequest, wanted: AccessRequest, title: str, **answer: str
) -> HttpResponse:
    # A page that leads there: the content security policy forbids that a form is redirected to
    # another site, and browsers ask before they open an app.
    return _page(request, wanted, title, answer_url=requests.answer_url(wanted, **answer))


def _page(
    request: HttpRequest, wanted: AccessRequest, title: str, **context: object
) -> TemplateResponse:
    return TemplateResponse(
        request,
        "admin/memory/approve_client.html",
        {
            **admin.site.each_context(request),
            "title": title,
            "client_name": wanted["client_name"],
            "destination": _destination_of(wanted["redirect_uri"]),
            **context,
        },
        headers={"Cache-Control": "no-store"},
    )


def _destination_of(redirect_uri: str) -> str:
    """Return the site or app that receives the client's access."""
    parts = urlsplit(redirect_uri)
    if parts.hostname in ("localhost", "127.0.0.1", "::1"):
        return "a program on your own computer"
    return str(parts.hostname) if parts.scheme == "https" else f"the app for {parts.scheme}: links"


@admin.register(AgentConnection)
class AgentConnectionAdmin(ReadOnlyAdmin[AgentConnection]):
    """MCP clients that have, or had, access to a user's memory."""

    list_display = [
        *("client_name", "user", "standing", "may", "approved_by", "created_at", "refreshed_at"),
    ]
    list_filter = [
        presence_filter("revoked", "revoked_at", filled="revoked", empty="not revoked"),
    ]
    search_fields = ["client_name", "user__user_id"]
    search_help_text = "Search by client or user id."
    actions = ["revoke"]
    consequences = {"revoke": "The clients lose access at once. They can be approved again."}
    asking = dangerous = ["revoke"]
    when_empty = "No MCP client has signed in yet."
    fields = [
        *("client_name", "user", "standing", "may", "audience", "redirect_uri"),
        *("approved_by", "created_at", "refreshed_at", "revoked_at"),
    ]

    def actions_for(self, row: AgentConnection) -> Collection[str]:
        return [] if row.revoked_at else ["revoke"]

    @plain_column("state")
    def standing(self, row: AgentConnection) -> str:
        if row.revoked_at:
            return badge("revoked")
        kind = Kind.CODE if row.refreshed_at is None else Kind.REFRESH
        return badge("valid" if timezone.now() < connections.expiry_of(row, kind) else "expired")

    @plain_column("scopes")
    def may(self, row: AgentConnection) -> str:
        return ", ".join(row.scopes)

    @admin.action(description="Revoke access", permissions=["operate"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[AgentConnection]) -> None:
        chosen = queryset.count()
        number = connections.revoke(queryset)
        report(request, "connection", number, chosen, "revoked", "already revoked")

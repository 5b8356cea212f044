"""MCP clients that staff have let into one user's memory."""

import uuid

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models

from memory.kernel.models import privacy
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope


class AgentConnection(models.Model):
    """An MCP client's access to one user's memory; see `memory.integrations.mcp.connections`.

    Only keyed hashes of its code and tokens are stored. `refreshed_at` is when the client last got
    tokens; until then, the client has only the code.
    """

    # Random, since it is a part of each code and token.
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(MemoryUser, on_delete=models.CASCADE, related_name="agent_connections")
    client_name = models.CharField(
        "client", max_length=100, help_text="As the client calls itself."
    )
    client_id = models.TextField("client ID", editable=False)
    redirect_uri = models.CharField(
        "redirect URI", max_length=500, help_text="Where the browser went after the approval."
    )
    audience = models.TextField(help_text="The MCP address that the tokens are for.")
    scopes = ArrayField(models.CharField(max_length=16, choices=Scope.choices))
    approved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.SET_NULL,
        null=True,
        related_name="+",
        help_text="The tokens end when this account is deactivated.",
    )
    created_at = models.DateTimeField("approved at", auto_now_add=True)
    code_challenge = models.CharField(max_length=128, editable=False)
    code_digest = models.CharField(max_length=64, editable=False)
    access_digest = models.CharField(max_length=64, default="", editable=False)
    refresh_digest = models.CharField(max_length=64, default="", editable=False)
    previous_refresh_digest = models.CharField(max_length=64, default="", editable=False)
    refreshed_at = models.DateTimeField(
        null=True, editable=False, help_text="When the client last got tokens."
    )
    revoked_at = models.DateTimeField(null=True, editable=False)

    class Privacy:
        erase = privacy.Erase.DELETE
        # An address that is bound to a user contains the user's id.
        content = ("audience", "client_id")
        plain = (
            *("client_name", "redirect_uri", "scopes", "code_challenge"),
            *("code_digest", "access_digest", "refresh_digest", "previous_refresh_digest"),
        )
        export = "access that staff gave to a program, without anything that the person said"
        section = privacy.Section.ACCESS
        named_by = "client_name"

    class Meta:
        ordering = ["-created_at"]
        verbose_name = "MCP connection"

    def __str__(self) -> str:
        return f"{self.client_name} for {self.user}"

"""Tenants and the keys with which their backends call us."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models

from memory.models.alert_settings import AlertSettings
from memory.models.fields import validate_time_zone
from memory.models.limits import SandboxSettings
from memory.models.llm_settings import LlmSettings
from memory.models.structure_settings import StructureSettings


class Workspace(SandboxSettings, LlmSettings, StructureSettings, AlertSettings):
    """A tenant: owns API keys, users, limits and the settings of its language model."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    name = models.CharField(max_length=100, unique=True)
    time_zone = models.CharField(
        max_length=64,
        default="UTC",
        validators=[validate_time_zone],
        help_text="Of users who are created without one, such as Europe/Berlin.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Scope(models.TextChoices):
    """What a key may do."""

    READ = "read", "read"
    WRITE = "write", "write"
    # Of what concerns all users at once.
    MANAGE = "manage", "manage webhooks and workspace constraints"


class ApiKey(models.Model):
    """A key of one workspace. Only a keyed hash of its secret is kept: see `memory.workspaces`."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=100, help_text="What uses this key.")
    prefix = models.CharField(max_length=12, unique=True, editable=False)
    digest = models.CharField(max_length=64, editable=False)
    scopes = ArrayField(models.CharField(max_length=16, choices=Scope.choices))
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["workspace", "name"]
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.name} (uac_{self.prefix}_…)"

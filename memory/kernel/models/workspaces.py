"""Workspaces (the tenants) and the API keys of their backends."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models

from memory.kernel.models import privacy
from memory.kernel.models.fields import validate_time_zone
from memory.kernel.models.llm_settings import LlmSettings
from memory.kernel.models.overrides import SettingsOverrides


class Workspace(SettingsOverrides, LlmSettings):
    """A tenant, with its own API keys, users, limits and language model settings."""

    public_id = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    name = models.CharField(max_length=100, unique=True)
    time_zone = models.CharField(
        max_length=64,
        default="UTC",
        validators=[validate_time_zone],
        help_text="The time zone for users created without one, such as Europe/Berlin.",
    )
    users_by_entry = models.BooleanField(
        "create users with their first entry",
        default=False,
        help_text="Whether an entry for an unknown user_id creates the user.",
    )
    name_field = models.CharField(
        "metadata field with people's names",
        max_length=100,
        default="",
        blank=True,
        help_text="The field of a user's metadata that staff see beside the id, such as name.",
    )
    schema = models.JSONField(
        "prescribed classes",
        default=dict,
        editable=False,
        help_text="The classes that users' projects get: the source of a schema for each domain.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Privacy:
        erase = privacy.Erase.NOTHING
        section = privacy.Section.ACCESS
        named_by = "name"

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class WorkspaceUse(models.Model):
    """A workspace's usage when it was last counted: see `memory.kernel.admission.quotas`."""

    workspace = models.OneToOneField(
        Workspace, on_delete=models.CASCADE, primary_key=True, related_name="use"
    )
    users = models.BigIntegerField(default=0)
    entries = models.BigIntegerField(default=0)
    log_bytes = models.BigIntegerField(default=0)
    pending_records = models.BigIntegerField(default=0)
    pending_structure = models.BigIntegerField(default=0)

    class Privacy:
        erase = privacy.Erase.NOTHING
        section = privacy.Section.MACHINERY

    class Meta:
        ordering = ["workspace"]
        verbose_name = verbose_name_plural = "workspace usage"

    def __str__(self) -> str:
        return str(self.workspace)


class Scope(models.TextChoices):
    """The actions that an API key allows."""

    READ = "read", "read"
    WRITE = "write", "write"
    # For actions that affect all users at once or can't be undone.
    MANAGE = "manage", "manage webhooks and workspace constraints; redact entries; erase users"


class ApiKey(models.Model):
    """A workspace's API key. Only a keyed hash is stored: see `memory.kernel.workspaces`."""

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=100, help_text="The component that uses this key.")
    prefix = models.CharField(max_length=12, unique=True, editable=False)
    digest = models.CharField(max_length=64, editable=False)
    scopes = ArrayField(models.CharField(max_length=16, choices=Scope.choices))
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    # Users' primary keys rather than their names: an erased user's name may later be given to
    # another user.
    user_pks = ArrayField(
        models.BigIntegerField(),
        null=True,
        blank=True,
        editable=False,
        help_text="The users that the key is limited to; empty if it allows all users.",
    )
    replaces = models.ForeignKey(
        "self",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        editable=False,
        related_name="replaced_by",
        help_text="The key that this key replaces.",
    )
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Privacy:
        erase = privacy.Erase.NOTHING
        section = privacy.Section.ACCESS

    class Meta:
        ordering = ["workspace", "name"]
        verbose_name = "API key"
        # A key with the scope `manage` can erase, redact and approve, even if the person creating
        # it lacks the roles for that. So granting this scope requires a permission.
        permissions = [("grant_manage", "Can give API keys the scope manage")]

    def __str__(self) -> str:
        return f"{self.name} (uac_{self.prefix}_…)"

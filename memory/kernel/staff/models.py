"""Staff: the workspaces each staff member may see, and an audit trail of their actions."""

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from memory.kernel.models import privacy
from memory.kernel.models.workspaces import Workspace


class StaffAccess(models.Model):
    """The workspaces a staff member may see; without a row, they see none.

    See `memory.kernel.staff.access`.
    """

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="access"
    )
    all_workspaces = models.BooleanField(
        default=False,
        help_text="Includes workspaces that are created later. Superusers always see all"
        " workspaces.",
    )
    workspaces = models.ManyToManyField(
        Workspace,
        blank=True,
        related_name="staff",
        help_text="The workspaces the account can see, unless it can see all of them. If none are"
        " selected, the account cannot see any user's data.",
    )

    class Privacy:
        erase = privacy.Erase.NOTHING
        section = privacy.Section.ACCESS

    class Meta:
        ordering = ["user"]
        verbose_name = "access to workspaces"
        verbose_name_plural = "access to workspaces"
        permissions = [("view_content", "Can see what people said and what was derived from it")]

    def __str__(self) -> str:
        return f"access of {self.user}"


class AuditKind(models.TextChoices):
    """The kinds of audited actions."""

    LOGIN = "login", "logged in"
    LOGOUT = "logout", "logged out"
    VIEW = "view", "viewed"
    ACT = "act", "acted on"
    ADD = "add", "added"
    CHANGE = "change", "changed"
    DOWNLOAD = "download", "downloaded"


class StaffAudit(models.Model):
    """One audited action by a staff member: see `memory.kernel.staff.audit`.

    The database doesn't allow rows to be changed or deleted. A row contains neither content nor the
    name of a remembered person, so it is kept when that person is erased. It has no foreign key to
    an account, since accounts may be deleted.
    """

    at = models.DateTimeField(db_default=Now())
    staff_id = models.BigIntegerField("account id")
    staff_name = models.CharField("staff", max_length=150)
    kind = models.CharField(max_length=16, choices=AuditKind.choices)
    what = models.CharField("action", max_length=100, blank=True)
    model = models.CharField("kind of row", max_length=100, blank=True)
    row = models.CharField(
        max_length=100, blank=True, help_text="The row's key, if the action concerned one row."
    )
    number = models.BigIntegerField("rows", default=1)
    person = models.UUIDField(
        null=True, help_text="The user's public id, if the action concerned one user."
    )
    workspace = models.ForeignKey(Workspace, null=True, on_delete=models.PROTECT, related_name="+")
    request_id = models.CharField(max_length=100, blank=True)

    class Privacy:
        erase = privacy.Erase.NOTHING
        section = privacy.Section.ACCESS

    class Meta:
        ordering = ["-id"]
        verbose_name = "audit entry"
        verbose_name_plural = "audit entries"
        indexes = [
            models.Index(fields=["at"], name="audit_at"),
            models.Index(fields=["staff_name", "id"], name="audit_staff"),
            models.Index(fields=["person", "id"], name="audit_person"),
        ]

    def __str__(self) -> str:
        return f"audit entry {self.pk}"

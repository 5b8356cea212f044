"""Constraints that a product's engineers write for all users in a workspace, and their versions."""

from __future__ import annotations

import uuid

from django.db import models

from memory.kernel.models import privacy
from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.workspaces import Workspace
from memory.project.paths import FOLDER, constraint_path, constraint_tests_path


class VersionState(models.TextChoices):
    """The progress of a constraint version."""

    CHECKING = "checking", "being checked"
    REFUSED = "refused", "refused"
    PASSED = "passed", "passed, not approved"
    APPROVED = "approved", "approved"


class WorkspaceConstraint(models.Model):
    """A constraint for all users in a workspace whose projects match its shapes."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="constraints")
    name = models.CharField(max_length=100, help_text="A valid Python name, such as drug_allergy.")
    description = models.CharField(max_length=1000, blank=True, default="")
    percentage = models.PositiveSmallIntegerField(
        default=0,
        help_text="Rollout percentage: the percentage of users with the constraint enabled."
        " Raising it only adds users.",
    )
    enabled = models.BooleanField(
        default=True, help_text="If this is not set, the constraint does not run for any user."
    )
    live = models.ForeignKey(
        "WorkspaceConstraintVersion",
        null=True,
        blank=True,
        editable=False,
        on_delete=models.PROTECT,
        related_name="+",
        help_text="The approved version that is live.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=200, editable=False)
    changed_at = models.DateTimeField(null=True, editable=False)
    changed_by = models.CharField(
        max_length=200,
        blank=True,
        default="",
        editable=False,
        help_text="Who last changed the constraint.",
    )

    class Privacy:
        erase = privacy.Erase.NOTHING
        section = privacy.Section.CONSTRAINTS

    class Meta:
        ordering = ["workspace", "name"]
        permissions = [("approve_workspaceconstraint", "Can approve and enable constraints")]
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "name"], name="constraint_name_in_workspace"
            ),
            models.CheckConstraint(
                condition=models.Q(percentage__lte=100), name="constraint_percentage"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> str:
        """The source's path, as seen next to a user's project and named in alerts."""
        return constraint_path(self.name, FOLDER)

    @property
    def tests_path(self) -> str:
        """The path to the constraint's tests."""
        return constraint_tests_path(self.name, FOLDER)


class WorkspaceConstraintVersion(LeasedWork):
    """An immutable version of a constraint and its tests; once judged, it can be approved."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    constraint = models.ForeignKey(
        WorkspaceConstraint, on_delete=models.CASCADE, related_name="versions"
    )
    number = models.PositiveIntegerField()
    source = models.TextField()
    source_hash = models.CharField(max_length=64)
    tests = models.TextField()
    state = models.CharField(
        max_length=16, choices=VersionState.choices, default=VersionState.CHECKING
    )
    verdict = models.JSONField(
        null=True, help_text="The checks that were run, each with its findings."
    )
    # The bytecode was compiled by one particular sandbox image. Any other image has to compile the
    # source itself.
    bytecode = models.TextField(blank=True, default="")
    image_digest = models.CharField(max_length=100, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=200)
    judged_at = models.DateTimeField(null=True)
    approved_at = models.DateTimeField(null=True)
    approved_by = models.CharField(max_length=200, blank=True, default="")

    LARGE = ("source", "tests", "verdict", "bytecode")

    class Privacy:
        erase = privacy.Erase.NOTHING
        content = ("source", "source_hash", "tests", "verdict", "bytecode", "created_by")
        section = privacy.Section.CONSTRAINTS

    class Meta:
        ordering = ["constraint", "-number"]
        constraints = [
            models.UniqueConstraint(
                fields=["constraint", "number"], name="version_number_of_constraint"
            ),
        ]
        indexes = [
            models.Index(
                fields=["run_after"],
                name="constraint_version_unjudged",
                condition=models.Q(state="checking"),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.constraint.name} v{self.number}"

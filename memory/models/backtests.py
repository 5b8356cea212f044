"""Backtests of a constraint over the past states of users: see `memory.temporal.backtests`."""

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from memory.models.alerts import Severity
from memory.models.fields import ExactJSONField
from memory.models.leased import MortalWork
from memory.models.log import By
from memory.models.users import MemoryUser
from memory.models.workspace_constraints import WorkspaceConstraintVersion
from memory.models.workspaces import Workspace


class BacktestState(models.TextChoices):
    """The progress of a backtest."""

    WAITING = "waiting", "waiting"
    RUNNING = "running", "under way"
    FINISHED = "finished", "finished"
    CANCELLED = "cancelled", "cancelled"
    FAILED = "failed", "failed"


GOING_ON = [BacktestState.WAITING, BacktestState.RUNNING]


class Backtest(MortalWork):
    """A backtest of one constraint (a workspace version or a user's own) over users' histories."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="backtests")
    version = models.ForeignKey(
        WorkspaceConstraintVersion,
        null=True,
        on_delete=models.CASCADE,
        related_name="backtests",
        help_text="Empty for a user's own constraint.",
    )
    user = models.ForeignKey(
        MemoryUser,
        null=True,
        on_delete=models.CASCADE,
        related_name="backtests",
        help_text="The user who owns the constraint; empty for a workspace constraint.",
    )
    constraint = models.CharField(max_length=300, help_text="Path of the constraint's source.")
    source_hash = models.CharField(max_length=64)
    days = models.PositiveIntegerField(help_text="How many days the backtest covers.")
    most_users = models.PositiveIntegerField(
        help_text="The sample size, used if the constraint applies to more users."
    )
    by = models.CharField(
        max_length=16,
        choices=By.choices,
        default=By.RECORDED,
        db_default=By.RECORDED,
        help_text="Whether entries count from when they were recorded, or from their own times.",
    )
    until = models.DateTimeField(help_text="The end of the period.")
    state = models.CharField(
        max_length=16, choices=BacktestState.choices, default=BacktestState.WAITING
    )
    reason = models.CharField(
        max_length=300,
        blank=True,
        default="",
        help_text="Why the backtest was cancelled or failed.",
    )
    # Users are matched against the shape in the order of a hash; this is the hash of the user who
    # was matched last.
    cursor = models.CharField(max_length=32, blank=True, default="")
    picked = models.BooleanField(default=False, help_text="Whether the users have been selected.")
    looked_at = models.PositiveIntegerField(
        default=0, help_text="How many users were checked against what the constraint requires."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=200)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["version"], condition=Q(state__in=GOING_ON), name="one_backtest_of_version"
            ),
            models.UniqueConstraint(
                fields=["user", "constraint"],
                condition=Q(state__in=GOING_ON),
                name="one_backtest_of_own",
            ),
        ]
        indexes = [
            models.Index(
                fields=["dead_since"],
                name="backtest_dead",
                condition=models.Q(dead_since__isnull=False),
            ),
            models.Index(
                fields=["run_after"], name="backtest_due", condition=Q(state__in=GOING_ON)
            ),
        ]

    def __str__(self) -> str:
        return f"backtest of {self.version or self.constraint}"


class UserState(models.TextChoices):
    """The state of one user's part of a backtest."""

    WAITING = "waiting", "waiting"
    DONE = "done", "done"
    FAILED = "failed", "failed"


class BacktestUser(models.Model):
    """The result of a backtest for one user."""

    backtest = models.ForeignKey(Backtest, on_delete=models.CASCADE, related_name="users")
    user = models.ForeignKey(MemoryUser, on_delete=models.CASCADE, related_name="+")
    state = models.CharField(max_length=16, choices=UserState.choices, default=UserState.WAITING)
    since = models.DateTimeField(null=True, help_text="The beginning of the evaluated period.")
    known_until = models.DateTimeField(
        null=True,
        help_text="The end of the evaluated period; empty if the whole period was evaluated.",
    )
    versions = models.PositiveIntegerField(
        default=0, help_text="How many versions lie within the period."
    )
    looks = models.PositiveIntegerField(
        default=0, help_text="How many of these versions differ in what the constraint reads."
    )
    problems = ExactJSONField(
        default=list, help_text="Where the constraint would have failed or been too noisy."
    )
    problem_count = models.PositiveIntegerField(default=0)
    left_out = models.PositiveIntegerField(default=0, help_text="How many findings were not kept.")
    error = models.TextField(
        blank=True, default="", help_text="Why the user could not be evaluated."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["backtest", "user"], name="user_of_backtest"),
        ]

    def __str__(self) -> str:
        return f"{self.user} in backtest {str(self.backtest_id)[:8]}"


class BacktestFinding(models.Model):
    """An alert that the constraint would have opened."""

    result = models.ForeignKey(BacktestUser, on_delete=models.CASCADE, related_name="findings")
    fingerprint = models.CharField(max_length=64, help_text="Computed as for an alert.")
    severity = models.CharField(
        max_length=16, choices=Severity.choices, help_text="The highest severity of the alert."
    )
    message = models.TextField(help_text="The message when the alert opened.")
    evidence = models.JSONField(default=list, help_text="The evidence when the alert opened.")
    entries = ArrayField(models.BigIntegerField(), default=list)
    opened_at = models.DateTimeField()
    day = models.DateField(help_text="The day on which the alert opened, in the user's time zone.")
    version = models.IntegerField(
        help_text="The version of the user's project when the alert opened."
    )
    changes = ExactJSONField(
        default=list, help_text="When the severity or the evidence changed, with the version."
    )
    resolved_at = models.DateTimeField(
        null=True, help_text="Empty if the alert would still be open at the end."
    )
    resolved_version = models.IntegerField(null=True)

    class Meta:
        indexes = [models.Index(fields=["result", "opened_at"], name="finding_of_backtest")]

    def __str__(self) -> str:
        return f"{self.severity}: {self.message}"

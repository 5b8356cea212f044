"""Backtests, which run a constraint on users' past states: see `memory.constraints.backtests`."""

import uuid

from django.db import models
from django.db.models import Q

from memory.constraints.models.workspace_constraints import WorkspaceConstraintVersion
from memory.kernel.models import privacy
from memory.kernel.models.fields import exactly_if, index_if_set
from memory.kernel.models.leased import MortalWork
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.log.models.entries import By


class BacktestState(models.TextChoices):
    """A backtest's progress."""

    WAITING = "waiting", "waiting"
    RUNNING = "running", "under way"
    FINISHED = "finished", "finished"
    CANCELLED = "cancelled", "cancelled"
    FAILED = "failed", "failed"


GOING_ON = [BacktestState.WAITING, BacktestState.RUNNING]


class Backtest(MortalWork):
    """A backtest of one constraint against users' histories.

    The constraint is either a version of a workspace constraint or a user's own constraint. Each of
    them has one backtest, which another one replaces. See `memory.constraints.backtests` for the
    report's format.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="backtests")
    version = models.ForeignKey(
        WorkspaceConstraintVersion,
        null=True,
        on_delete=models.CASCADE,
        related_name="backtests",
        help_text="The version of the workspace constraint; empty for a user's own constraint.",
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
        help_text="The maximum number of users. If the constraint applies to more, a sample of this"
        " size is used."
    )
    by = models.CharField(
        max_length=16,
        choices=By.choices,
        default=By.RECORDED,
        help_text="Whether entries take effect when they were recorded or when they occurred.",
    )
    until = models.DateTimeField(help_text="The end of the period that the backtest covers.")
    state = models.CharField(
        max_length=16, choices=BacktestState.choices, default=BacktestState.WAITING
    )
    reason = models.CharField(
        max_length=300,
        blank=True,
        default="",
        help_text="Why the backtest was cancelled or failed.",
    )
    report = models.JSONField(
        default=dict,
        help_text="How many users were checked for records with the shape that the constraint"
        " requires, and each selected user's result; empty until users are selected.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=200)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    LARGE = ("report",)

    class Privacy:
        erase = privacy.Erase.DELETE
        content = ("constraint", "source_hash", "reason", "created_by", "report")
        export = privacy.Export("backtests", "backtests of the person's own constraints")
        section = privacy.Section.CONSTRAINTS

    class Meta:
        ordering = ["-created_at"]
        constraints = [
            models.UniqueConstraint(fields=["version"], name="one_backtest_of_version"),
            models.UniqueConstraint(fields=["user", "constraint"], name="one_backtest_of_own"),
            exactly_if(Q(state__in=GOING_ON), Q(finished_at=None), name="backtest_finished"),
        ]
        indexes = [
            index_if_set("dead_since", "backtest_dead"),
            models.Index(
                fields=["run_after"], name="backtest_due", condition=Q(state__in=GOING_ON)
            ),
        ]

    def __str__(self) -> str:
        return f"backtest of {self.version or self.constraint}"

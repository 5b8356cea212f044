"""Runs: all executions of users' projects."""

import uuid
from typing import Self

from django.contrib.postgres.fields import ArrayField
from django.db import models

from memory.kernel.models import privacy
from memory.kernel.models.fields import ExactJSONField, exactly_if, index_if_set
from memory.kernel.models.leased import MortalWork
from memory.kernel.models.users import MemoryUser
from memory.versions.models.checkpoints import Checkpoint


class RunKind(models.TextChoices):
    """The kinds of runs."""

    CONSTRAINTS = "constraints", "constraints"
    CONSTRAINT = "constraint", "trial of one constraint"
    QUERY = "query", "query"
    ASK = "ask", "question"
    PROPOSAL = "proposal", "proposal"
    IMPORT = "import", "import"
    OUTLOOK = "outlook", "outlook of alerts"


# Runs of these kinds are executed by language model workers, all others by sandbox workers.
BY_MODEL = (RunKind.ASK,)
# Runs of these kinds can be run again.
REPEATABLE = (RunKind.QUERY, RunKind.CONSTRAINT, RunKind.CONSTRAINTS)


class RunTrigger(models.TextChoices):
    """Why a run was queued."""

    API = "api", "API request"
    CHECKPOINT = "checkpoint", "new checkpoint"
    DAILY = "daily", "daily"
    INSTANT = "instant", "every few minutes"
    FORECAST = "forecast", "forecast"
    WORKSPACE = "workspace", "workspace constraints changed"
    COMMAND = "command", "command line"
    MODEL = "model", "language model"
    RESUMED = "resumed", "constraint resumed"
    STAFF = "staff", "staff"


# Somebody is waiting for runs with these triggers; each workspace can have only a limited number of
# them at a time.
ASKED_FOR = (RunTrigger.API, RunTrigger.STAFF)


class RunStatus(models.TextChoices):
    """A run's progress."""

    QUEUED = "queued", "queued"
    RUNNING = "running", "running"
    DONE = "done", "done"


class RunOutcome(models.TextChoices):
    """A run's outcome. Outcomes from a sandbox have the same names as in the sandbox protocol."""

    OK = "ok", "ok"
    REJECTED = "rejected", "rejected by the gate"
    SUPERSEDED = "superseded", "superseded by a newer version"
    CANCELLED = "cancelled", "cancelled"
    USER_ERROR = "user_error", "error in the user's code"
    TIMEOUT = "timeout", "time limit"
    OUT_OF_MEMORY = "out_of_memory", "memory limit"
    OUTPUT_LIMIT = "output_limit", "output limit"
    RESULT_LIMIT = "result_limit", "result limit"
    ALERT_LIMIT = "alert_limit", "too many alerts at once"
    KILLED = "killed", "killed"
    INPUT_LIMIT = "input_limit", "project too large"
    PROTOCOL_ERROR = "protocol_error", "invalid response from the sandbox"
    MODEL_ERROR = "model_error", "language model found no answer"
    ABANDONED = "abandoned", "failed permanently after repeated server errors"


class RunQuerySet(models.QuerySet["Run"]):
    """Run queries."""

    def unfinished(self) -> Self:
        """Select the runs that are queued or running."""
        return self.exclude(status=RunStatus.DONE)


class Run(MortalWork):
    """One execution: first a row in the queue, then a row in the history.

    See `memory.versions.runs`.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    user = models.ForeignKey(MemoryUser, on_delete=models.CASCADE, related_name="runs")
    kind = models.CharField(max_length=16, choices=RunKind.choices)
    trigger = models.CharField(max_length=16, choices=RunTrigger.choices)
    asked_by = models.CharField(
        max_length=200,
        blank=True,
        default="",
        help_text="The staff member who requested the run, if any.",
    )
    checkpoint = models.ForeignKey(
        Checkpoint, null=True, on_delete=models.PROTECT, related_name="runs"
    )
    instant = models.DateTimeField(help_text="The evaluation time of the run.")
    input = ExactJSONField(default=dict)

    answer_key = models.CharField(
        max_length=64,
        blank=True,
        default="",
        help_text="The key under which the query's answer is cached: see"
        " `memory.recall.answer_cache`.",
    )

    status = models.CharField(max_length=16, choices=RunStatus.choices, default=RunStatus.QUEUED)
    outcome = models.CharField(max_length=16, choices=RunOutcome.choices, blank=True, default="")
    output = ExactJSONField(null=True)
    error = models.JSONField(null=True)
    stdout = models.TextField(blank=True, default="")
    runner = models.CharField(max_length=32, blank=True, default="")
    host = models.CharField(
        max_length=100, blank=True, default="", help_text="The worker that executed the run."
    )
    timings = models.JSONField(default=dict, help_text="How many seconds each stage took.")
    memory_bytes = models.BigIntegerField(null=True)
    test_gaps = ArrayField(
        models.TextField(),
        default=list,
        help_text="The constraints that the gate refused because of gaps in their tests.",
    )

    queued_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    objects = RunQuerySet.as_manager()

    LARGE = ("input", "output", "error", "stdout")

    class Privacy:
        erase = privacy.Erase.DELETE
        content = ("input", "output", "error", "stdout", "test_gaps")
        plain = ("asked_by", "answer_key", "runner", "host", "timings")
        export = privacy.Export(
            "runs",
            "every question, query, proposal and check: its input and its result",
            order=("queued_at", "pk"),
            chunk=50,
            without={"host": "the machine that did the work; not data about the person"},
        )
        section = privacy.Section.PEOPLE

    class Meta:
        ordering = ["-queued_at"]
        constraints = [
            exactly_if(
                models.Q(status="done"), models.Q(finished_at__isnull=False), name="run_finished"
            ),
            exactly_if(models.Q(status="done"), ~models.Q(outcome=""), name="run_outcome"),
            models.CheckConstraint(
                condition=~models.Q(kind="constraints") | models.Q(checkpoint__isnull=False),
                name="run_of_constraints",
            ),
        ]
        indexes = [
            index_if_set("dead_since", "run_dead"),
            models.Index(fields=["user", "-queued_at"], name="run_of_user"),
            models.Index(
                fields=["run_after"],
                name="run_unfinished",
                condition=~models.Q(status="done"),
            ),
            # Used to count the runs somebody is waiting for; their number is limited per workspace.
            models.Index(
                fields=["user"],
                name="run_waited_for",
                condition=models.Q(trigger__in=["api", "staff"]) & ~models.Q(status="done"),
            ),
            models.Index(
                fields=["user", "asked_by", "-queued_at"],
                name="run_of_staff",
                condition=~models.Q(asked_by=""),
            ),
            # Used to count recent outcomes with an index-only scan.
            models.Index(
                fields=["finished_at"],
                include=["outcome", "user"],
                name="run_ended",
                condition=models.Q(status="done"),
            ),
            models.Index(fields=["-queued_at"], name="run_newest"),
            models.Index(
                fields=["checkpoint", "answer_key"],
                name="run_answer",
                condition=models.Q(outcome="ok") & ~models.Q(answer_key=""),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {str(self.id)[:8]}"

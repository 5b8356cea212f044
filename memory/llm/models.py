"""Language model calls and their cost. See `memory.llm.llm_calls`."""

import uuid

from django.db import models
from django.utils import timezone

from memory.kernel.models import privacy
from memory.kernel.models.fields import exactly_if
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run


class LlmPurpose(models.TextChoices):
    """The purpose of a language model call."""

    MEMORIZE = "memorize", "memorize: messages to facts"
    STRUCTURE = "structure", "structure: facts to records"
    QUERY = "query", "answer a question"
    CHECK = "check", "test the settings"
    EMBED = "embed", "embed texts for search"


class LlmOutcome(models.TextChoices):
    """The outcome of a language model call, or `started` while it is in progress."""

    STARTED = "started", "under way"
    OK = "ok", "answered"
    INVALID_CALL = "invalid_call", "answered with a tool call that cannot be carried out"
    TRUNCATED = "truncated", "answer cut off at the token limit"
    EMPTY = "empty", "empty answer"
    REFUSED = "refused", "refused by the model or its filter"
    RATE_LIMITED = "rate_limited", "provider's rate limit reached"
    UNAVAILABLE = "unavailable", "provider failed or overloaded"
    TIMEOUT = "timeout", "no response in time"
    CONNECTION_LOST = "connection_lost", "no connection, or connection lost"
    INVALID_ANSWER = "invalid_answer", "unreadable answer"
    WRONG_KEY = "wrong_key", "API key rejected"
    NO_CREDIT = "no_credit", "provider's credit or quota exhausted"
    UNKNOWN_MODEL = "unknown_model", "model or address unknown to the provider"
    TOO_LONG = "too_long", "prompt longer than the model's context"
    REJECTED = "rejected", "request rejected by the provider"
    INTERRUPTED = "interrupted", "interrupted: the worker exited"


class LlmCall(models.Model):
    """One attempt at a language model call; the row is stored before the request is sent.

    While its outcome is `started`, the call reserves the most it may spend, and counts as one of
    the workspace's concurrent calls until it expires.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="llm_calls")
    user = models.ForeignKey(
        MemoryUser, null=True, on_delete=models.SET_NULL, related_name="llm_calls"
    )
    purpose = models.CharField(max_length=16, choices=LlmPurpose.choices)
    work = models.UUIDField(
        help_text="The id of the task that the call was made for; all of its calls share this id."
    )
    turn = models.IntegerField(help_text="The request's number within the task.")
    attempt = models.IntegerField(help_text="The attempt's number for this request.")
    lane = models.ForeignKey(Lane, null=True, on_delete=models.SET_NULL, related_name="llm_calls")
    run = models.ForeignKey(Run, null=True, on_delete=models.SET_NULL, related_name="llm_calls")
    checkpoint = models.ForeignKey(
        Checkpoint,
        null=True,
        on_delete=models.SET_NULL,
        related_name="llm_calls",
        help_text="The version of the project that resulted from the call.",
    )
    # A session's result, stored with the session's first call: see `memory.llm.track_records`.
    accepted = models.BooleanField(
        null=True,
        help_text="Whether the gate accepted the session's proposals; empty if the session was not"
        " judged, or was interrupted.",
    )
    refusals = models.IntegerField(
        null=True, help_text="How many of the session's proposals the gate refused."
    )

    model = models.CharField(
        max_length=220, help_text="The provider and model that were requested."
    )
    answered_by = models.CharField(
        max_length=200,
        blank=True,
        default="",
        help_text="The name of the model that answered, as reported by the provider.",
    )
    prompt_hash = models.CharField(
        max_length=64, help_text="SHA-256 of the messages and tools that were sent."
    )
    instructions = models.CharField(
        max_length=12,
        blank=True,
        default="",
        help_text="The version of the instructions that were sent: the beginning of their SHA-256.",
    )
    outcome = models.CharField(
        max_length=16, choices=LlmOutcome.choices, default=LlmOutcome.STARTED
    )
    error = models.TextField(blank=True, default="")

    # NULL if the provider did not report the number.
    input_tokens = models.BigIntegerField(null=True)
    output_tokens = models.BigIntegerField(null=True)
    cache_read_tokens = models.BigIntegerField(
        null=True, help_text="How many of the input tokens the provider read from its cache."
    )
    cache_write_tokens = models.BigIntegerField(
        null=True, help_text="How many of the input tokens the provider wrote to its cache."
    )
    cost = models.DecimalField(
        null=True,
        max_digits=20,
        decimal_places=8,
        help_text="The cost of the call; empty if the price or the number of tokens is unknown.",
    )
    reserved_tokens = models.BigIntegerField(
        help_text="The maximum number of tokens that the call may use."
    )
    reserved_cost = models.DecimalField(null=True, max_digits=20, decimal_places=8)

    started_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(
        help_text="A call still unfinished at this time counts as interrupted, because its worker"
        " must have exited."
    )
    finished_at = models.DateTimeField(null=True)
    seconds = models.FloatField(null=True, help_text="Seconds from the request to the response.")

    # Fernet tokens containing compressed JSON; NULL unless the server keeps content.
    prompt = models.BinaryField(null=True)
    answer = models.BinaryField(null=True)

    LARGE = ("prompt", "answer")

    class Privacy:
        erase = privacy.Erase.REDACT
        # A short prompt can be guessed from its unkeyed hash, and errors may quote the request.
        content = ("prompt", "answer", "prompt_hash", "error")
        on_record = ("answered_by",)
        plain = ("model", "instructions")
        export = privacy.Export(
            "model-calls",
            "every call to a language model: its time, model and usage, and its prompt and answer"
            " if they are stored",
            order=("started_at", "pk"),
            chunk=20,
        )
        section = privacy.Section.LANGUAGE_MODELS

    class Meta:
        ordering = ["-started_at"]
        verbose_name = "model call"
        permissions = [("view_llmcall_content", "Can read prompts and answers of model calls")]
        constraints = [
            exactly_if(
                models.Q(outcome="started"), models.Q(finished_at=None), name="call_finished"
            ),
        ]
        indexes = [
            models.Index(fields=["-started_at"], name="llm_call_age"),
            models.Index(fields=["workspace", "-started_at"], name="llm_call_of_workspace"),
            models.Index(fields=["work"], name="llm_call_of_work"),
            # Finds the first call of each judged session.
            models.Index(
                fields=["workspace", "model", "-started_at"],
                name="llm_call_judged_of_model",
                condition=models.Q(accepted__isnull=False),
            ),
            models.Index(
                fields=["workspace", "expires_at"],
                name="llm_call_under_way",
                condition=models.Q(outcome="started"),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.purpose} {str(self.id)[:8]}"

    @property
    def standing(self) -> LlmOutcome:
        """The outcome; `interrupted` once the call has expired, even if that isn't recorded yet."""
        if self.outcome == LlmOutcome.STARTED and self.expires_at <= timezone.now():
            return LlmOutcome.INTERRUPTED
        return LlmOutcome(self.outcome)


class LlmSpending(models.Model):
    """The ledger of each day's spending on finished calls, used to check budgets.

    A row is kept even after the calls that it sums up have been erased.
    """

    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="llm_spending")
    day = models.DateField(help_text="The day the calls began, in UTC.")
    model = models.CharField(max_length=220)
    purpose = models.CharField(max_length=16, choices=LlmPurpose.choices)
    outcome = models.CharField(max_length=16, choices=LlmOutcome.choices)
    calls = models.BigIntegerField(default=0)
    seconds = models.FloatField(default=0)
    input_tokens = models.BigIntegerField(default=0)
    output_tokens = models.BigIntegerField(default=0)
    cost = models.DecimalField(default=0, max_digits=20, decimal_places=8)
    presumed_tokens = models.BigIntegerField(
        default=0,
        help_text="Tokens presumed to have been used by calls without a usage report from the"
        " provider, such as calls that timed out.",
    )
    presumed_cost = models.DecimalField(default=0, max_digits=20, decimal_places=8)

    class Privacy:
        erase = privacy.Erase.NOTHING
        section = privacy.Section.LANGUAGE_MODELS

    class Meta:
        ordering = ["-day", "workspace", "model"]
        verbose_name = "model spending"
        verbose_name_plural = "model spending"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "day", "model", "purpose", "outcome"],
                name="llm_spending_cell",
            )
        ]
        indexes = [models.Index(fields=["-day", "workspace", "model"], name="llm_spending_days")]

    def __str__(self) -> str:
        return f"{self.day} {self.model} {self.purpose} {self.outcome}"

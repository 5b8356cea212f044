"""A workspace's overrides of the language model settings.

See `memory.kernel.settings.language_models`.
"""

from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models

from memory.kernel.settings import language_models


class LlmSettings(models.Model):
    """A workspace's overrides of the server's language model settings and budget.

    A blank field inherits the server's setting. A change applies from the next call on.
    """

    llm_model = models.CharField(
        "model",
        max_length=200,
        blank=True,
        default="",
        help_text="Provider and model, such as openai:gpt-5-mini, anthropic:claude-sonnet-4-5 or"
        " google:gemini-2.5-flash. For Ollama, vLLM and other servers with an"
        " OpenAI-compatible API, enter openai: followed by the model's name on that server, and"
        " set the base URL.",
    )
    llm_base_url = models.CharField(
        "base URL",
        max_length=500,
        blank=True,
        default="",
        help_text="The base URL of the provider's API, such as http://ollama:11434/v1, if it is not"
        " the default one. The server's own API key is never sent to this URL.",
    )
    # A Fernet token: see `memory.kernel.encryption`.
    llm_api_key = models.BinaryField("API key", null=True, editable=False)
    llm_concurrency = models.PositiveIntegerField(
        "concurrent calls",
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="The maximum number of concurrent calls to the model, across all workers.",
    )
    llm_tokens_per_day = models.PositiveBigIntegerField(
        "tokens per day",
        null=True,
        blank=True,
        help_text="The maximum number of input and output tokens per day, from midnight to midnight"
        " UTC. 0 allows no calls.",
    )
    llm_tokens_per_month = models.PositiveBigIntegerField(
        "tokens per month",
        null=True,
        blank=True,
        help_text="The maximum number of input and output tokens per calendar month (UTC).",
    )
    llm_cost_per_day = models.DecimalField(
        "cost per day",
        null=True,
        blank=True,
        max_digits=12,
        decimal_places=2,
        validators=[MinValueValidator(0)],
        help_text="The maximum cost per day, from midnight to midnight UTC, in the currency of the"
        " server's price list.",
    )
    llm_cost_per_month = models.DecimalField(
        "cost per month",
        null=True,
        blank=True,
        max_digits=12,
        decimal_places=2,
        validators=[MinValueValidator(0)],
        help_text="The maximum cost per calendar month (UTC), in the currency of the server's price"
        " list.",
    )

    class Meta:
        abstract = True

    @property
    def chosen_llm(self) -> language_models.Chosen:
        """The workspace's overrides; an empty string or None inherits the server's setting."""
        return language_models.Chosen(
            model=self.llm_model,
            base_url=self.llm_base_url,
            api_key=bytes(self.llm_api_key) if self.llm_api_key else None,
            concurrency=self.llm_concurrency,
            tokens_per_day=self.llm_tokens_per_day,
            tokens_per_month=self.llm_tokens_per_month,
            cost_per_day=self.llm_cost_per_day,
            cost_per_month=self.llm_cost_per_month,
        )

    def clean(self) -> None:
        """Reject overrides that are invalid or don't work together."""
        super().clean()
        if problems := language_models.validate_overrides(self.chosen_llm):
            raise ValidationError({f"llm_{name}": problem for name, problem in problems.items()})

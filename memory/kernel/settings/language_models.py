"""A workspace's language model: its connection, its prices and its budget.

The operator's settings (`UAC_LLM_…`) apply to all workspaces; a workspace may override them.
`workers.llm` makes the calls to the model; `memory.llm.llm_calls` records the calls and their cost.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from django.conf import settings

from memory.kernel import encryption

# The base URL of each provider's API, used unless another base URL is set.
PROVIDERS = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "google": "https://generativelanguage.googleapis.com",
}
PER_MILLION = Decimal(1_000_000)

Value = TypeVar("Value")


class LanguageModelError(Exception):
    """A language model failed to do its task; the message tells staff why."""


class NotConfigured(LanguageModelError):
    """No call can be made with the current settings; somebody has to change them."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """One workspace's overrides; an empty value inherits the server's setting.

    `api_key` is encrypted.
    """

    model: str = ""
    base_url: str = ""
    api_key: bytes | None = None
    concurrency: int | None = None
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None
    cost_per_day: Decimal | None = None
    cost_per_month: Decimal | None = None


@dataclass(frozen=True, kw_only=True)
class Connection:
    """A model and its API endpoint. If `api_key` is empty, no key is sent."""

    provider: str
    model: str
    base_url: str
    api_key: str = field(repr=False)

    @property
    def name(self) -> str:
        """The name `provider:model`, as used in the settings, the price list and recorded calls."""
        return f"{self.provider}:{self.model}"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits on spending per day and month (UTC), and on concurrent calls; None means no limit."""

    concurrency: int
    tokens_per_day: int | None
    tokens_per_month: int | None
    cost_per_day: Decimal | None
    cost_per_month: Decimal | None

    @property
    def beside_slow(self) -> int:
        """The number of call slots that can be used only while slow calls occupy other slots."""
        return self.concurrency // 3

    def has_room(self, under_way: int, slow: int) -> bool:
        """Return whether a call may start while `under_way` are running, `slow` of them slow."""
        return under_way - min(slow, self.beside_slow) < self.concurrency - self.beside_slow

    @property
    def limits_cost(self) -> bool:
        """Return whether the budget limits the cost, which requires the model to have a price."""
        return self.cost_per_day is not None or self.cost_per_month is not None


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The tokens used by a call; `input_tokens` includes those read from or written to a cache."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def tokens(self) -> int:
        """The tokens that count against a budget."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, kw_only=True)
class Price:
    """A model's prices per million tokens."""

    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal

    def cost(self, usage: Usage) -> Decimal:
        """Return the cost of these tokens."""
        fresh = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        total = (
            max(fresh, 0) * self.input
            + usage.cache_read_tokens * self.cache_read
            + usage.cache_write_tokens * self.cache_write
            + usage.output_tokens * self.output
        )
        return total / PER_MILLION


def connection(chosen: Chosen) -> Connection:
    """Return the model and endpoint to use with these overrides.

    Raises NotConfigured if the model or a required key is missing. The server's key goes only to
    the server's own endpoint: a workspace that overrides the provider or base URL must bring its
    own key.
    """
    provider, model, base_url, servers = _target(chosen)
    if chosen.api_key is not None:
        try:
            api_key = encryption.decrypt(chosen.api_key).decode()
        except encryption.EncryptionError as error:
            raise NotConfigured(f"The workspace's API key cannot be decrypted. {error}") from None
    else:
        api_key = settings.UAC_LLM_API_KEY if servers else ""
    if not api_key and not base_url:
        raise NotConfigured(_key_missing(provider, servers=servers))
    return Connection(
        provider=provider, model=model, base_url=base_url or PROVIDERS[provider], api_key=api_key
    )


def budget(chosen: Chosen) -> Budget:
    """Return the budget to use with these overrides."""
    return Budget(
        concurrency=_or(chosen.concurrency, settings.UAC_LLM_CONCURRENCY),
        tokens_per_day=_or(chosen.tokens_per_day, settings.UAC_LLM_TOKENS_PER_DAY),
        tokens_per_month=_or(chosen.tokens_per_month, settings.UAC_LLM_TOKENS_PER_MONTH),
        cost_per_day=_or(chosen.cost_per_day, _decimal(settings.UAC_LLM_COST_PER_DAY)),
        cost_per_month=_or(chosen.cost_per_month, _decimal(settings.UAC_LLM_COST_PER_MONTH)),
    )


def price(name: str) -> Price | None:
    """Return the prices of this model (`provider:model`), or None if they are unknown.

    The server's price list overrides the providers' own prices.
    """
    return own_price(name) or _list_price(name)


def own_price(name: str) -> Price | None:
    """Return the prices of a model in the server's price list, or None if it is not in the list.

    Embedding models have no others: web processes call them, and must not load all providers'.
    """
    return _prices(settings.UAC_LLM_PRICES).get(name)


@functools.lru_cache(maxsize=64)
def _list_price(name: str) -> Price | None:
    """Return the provider's list price, the highest one if it depends on the prompt's length.

    The first call takes up to a second, and 100 MB.
    """
    from genai_prices import Usage as PricedUsage
    from genai_prices import calc_price
    from genai_prices.types import TieredPrices

    provider, _, model = name.partition(":")
    if provider not in PROVIDERS:
        return None
    try:
        listed = calc_price(PricedUsage(), model, provider_id=provider).model_price
    except LookupError:
        return None

    def dearest(of_tokens: Decimal | TieredPrices | None) -> Decimal | None:
        if isinstance(of_tokens, TieredPrices):
            return max([of_tokens.base, *(tier.price for tier in of_tokens.tiers)])
        return of_tokens

    sent, received = dearest(listed.input_mtok), dearest(listed.output_mtok)
    if sent is None or received is None:
        return None
    return Price(
        input=sent,
        output=received,
        cache_read=_or(dearest(listed.cache_read_mtok), sent),
        cache_write=_or(dearest(listed.cache_write_mtok), sent),
    )


def price_missing(name: str) -> str:
    """Explain that a model's cost cannot be limited because the model has no price."""
    return (
        f"The price of {name} is unknown, so its cost cannot be limited. Add it to the server's"
        " price list (UAC_LLM_PRICES)."
    )


def validate_overrides(chosen: Chosen) -> dict[str, str]:
    """Map each invalid override's name to its problem and what to choose instead."""
    errors: dict[str, str] = {}
    if chosen.base_url and (problem := wrong_url(chosen.base_url)):
        errors["base_url"] = problem
    if chosen.model and (problem := _wrong_name(chosen.model)):
        errors["model"] = problem
    if errors:
        return errors
    most = settings.UAC_LLM_OUTPUT_TOKENS
    for name in ("tokens_per_day", "tokens_per_month"):
        tokens = getattr(chosen, name)
        if tokens and tokens <= most:
            errors[name] = (
                f"A single answer may use {most} tokens. Choose a higher limit, or 0 to allow no"
                " calls."
            )
    if not chosen.model and not settings.UAC_LLM_MODEL:
        if chosen.base_url or chosen.api_key:
            errors["model"] = "The server has no language model (UAC_LLM_MODEL). Choose a model."
        return errors
    provider, model, base_url, servers = _target(chosen)
    has_key = chosen.api_key is not None or (servers and settings.UAC_LLM_API_KEY)
    if chosen.model and not has_key and not base_url:
        errors["model"] = _key_missing(provider, servers=servers)
    name = f"{provider}:{model}"
    if budget(chosen).limits_cost and price(name) is None:
        costs = [
            cost for cost in ("cost_per_day", "cost_per_month") if getattr(chosen, cost) is not None
        ]
        if costs or chosen.model:
            errors[costs[0] if costs else "model"] = price_missing(name)
    return errors


def validate_server_settings() -> dict[str, str]:
    """Map each invalid server setting's name to its problem."""
    errors = encryption.validate_server_settings()
    if settings.UAC_LLM_MODEL and (problem := _wrong_name(settings.UAC_LLM_MODEL)):
        errors["UAC_LLM_MODEL"] = problem
    if settings.UAC_LLM_BASE_URL and (problem := wrong_url(settings.UAC_LLM_BASE_URL)):
        errors["UAC_LLM_BASE_URL"] = problem
    if (folder := settings.UAC_LLM_INSTRUCTIONS) and not Path(folder).is_dir():
        errors["UAC_LLM_INSTRUCTIONS"] = f"There is no folder {folder}."
    try:
        _prices(settings.UAC_LLM_PRICES)
    except ValueError as error:
        errors["UAC_LLM_PRICES"] = str(error)
    else:
        limited = settings.UAC_LLM_COST_PER_DAY, settings.UAC_LLM_COST_PER_MONTH
        model = settings.UAC_LLM_MODEL
        if limited != (None, None) and model and price(model) is None:
            errors["UAC_LLM_PRICES"] = price_missing(model)
    if settings.UAC_LLM_KEEP_CONTENT and not encryption.available():
        errors["UAC_LLM_KEEP_CONTENT"] = (
            "Prompts and answers can only be stored encrypted. Set UAC_ENCRYPTION_KEYS."
        )
    return errors


def _target(chosen: Chosen) -> tuple[str, str, str, bool]:
    """Return the provider, model and base URL, and whether this is the server's own endpoint."""
    name = chosen.model or settings.UAC_LLM_MODEL
    if not name:
        raise NotConfigured(
            "No language model is configured. Set UAC_LLM_MODEL, or choose a model for the"
            " workspace."
        )
    if problem := _wrong_name(name):
        raise NotConfigured(f"{name}: {problem}")
    provider, _, model = name.partition(":")
    same_provider = provider == settings.UAC_LLM_MODEL.partition(":")[0]
    own_url = chosen.base_url and chosen.base_url != settings.UAC_LLM_BASE_URL
    servers = bool(same_provider and not own_url)
    return (
        provider,
        model,
        chosen.base_url or (settings.UAC_LLM_BASE_URL if servers else ""),
        servers,
    )


def _wrong_name(name: str) -> str | None:
    provider, colon, model = name.partition(":")
    sound = 0 < len(model) <= 200 and model == model.strip() and model.isprintable()
    if provider not in PROVIDERS or not colon or not sound:
        return (
            f"Give a provider ({', '.join(PROVIDERS)}) and a model, separated by a colon, such as"
            " openai:gpt-5-mini."
        )
    return None


def wrong_url(url: str) -> str | None:
    """Return the problem with a base URL; None if it is valid."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if (
        parts.scheme not in ("http", "https")
        or not host
        or parts.username is not None
        or parts.query
        or parts.fragment
        or any(character.isspace() or not character.isprintable() for character in url)
    ):
        return (
            "Give a URL that begins with https:// or http://, without credentials or a query, such"
            " as http://ollama:11434/v1."
        )
    return None


def _key_missing(provider: str, *, servers: bool) -> str:
    if servers:
        return (
            f"{provider} requires an API key. Set UAC_LLM_API_KEY, or give the workspace its own"
            " key."
        )
    return (
        f"{provider} requires an API key, and the server's own key is not sent to another"
        " provider. Give the workspace its own key."
    )


@functools.lru_cache(maxsize=4)
def _prices(text: str) -> Mapping[str, Price]:
    """Parse the price list; raises a ValueError that describes the problem."""
    if not text:
        return {}
    try:
        table = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    except json.JSONDecodeError as error:
        raise ValueError(f"It is not valid JSON: {error}.") from None
    if not isinstance(table, dict):
        raise ValueError("It must be a JSON object: model → prices.")
    return {name: _read_price(name, entry) for name, entry in table.items()}


def _read_price(name: str, entry: object) -> Price:
    kinds = ("input", "output", "cache_read", "cache_write")
    try:
        if not isinstance(entry, dict) or set(entry) - set(kinds):
            raise ValueError(name)
        values = {key: Decimal(value) for key, value in entry.items()}
        if not all(value.is_finite() and value >= 0 for value in values.values()):
            raise ValueError(name)
        return Price(
            input=values["input"],
            output=values["output"],
            cache_read=values.get("cache_read", values["input"]),
            cache_write=values.get("cache_write", values["input"]),
        )
    except (ValueError, TypeError, KeyError, InvalidOperation):
        raise ValueError(
            f"{name}: give the prices per million tokens as numbers, named input and output, and"
            " also cache_read and cache_write if these differ from input."
        ) from None


def _or(own: Value | None, everywhere: Value) -> Value:
    return everywhere if own is None else own


def _decimal(value: float | None) -> Decimal | None:
    return None if value is None else Decimal(str(value))

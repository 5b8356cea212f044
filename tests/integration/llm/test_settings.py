"""The model and the key of a workspace, and values that cannot be chosen."""

import json
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.exceptions import ValidationError
from pytest_django.fixtures import Settings

from memory.kernel import encryption
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings import language_models, overrides
from memory.kernel.settings.language_models import NotConfigured, Usage
from memory.llm.models import LlmCall
from tests.integration.llm.conftest import QUESTION, Ask, Connect
from tests.llm_server import KEY, llm_server, said

pytestmark = pytest.mark.django_db

Choose = Callable[..., Workspace]


@pytest.fixture
def choose(workspace: Workspace) -> Choose:
    """Change the workspace's overrides, as the staff's form does."""

    def change(*, key: str | None = None, **fields: Any) -> Workspace:
        for name, value in fields.items():
            setattr(workspace, f"llm_{name}", value)
        if key is not None:
            workspace.llm_api_key = encryption.encrypt(key.encode())
        workspace.full_clean()
        workspace.save()
        return workspace

    return change


@pytest.fixture(autouse=True)
def server_settings(settings: Settings, quick: None) -> None:
    settings.UAC_LLM_MODEL = "openai:gpt-5-mini"
    settings.UAC_LLM_BASE_URL = ""
    settings.UAC_LLM_API_KEY = KEY


def reached(workspace: Workspace) -> tuple[str, str, str]:
    connection = language_models.connection(workspace.chosen_llm)
    return connection.name, connection.base_url, connection.api_key


def test_without_a_choice_the_servers_model_works(workspace: Workspace) -> None:
    assert reached(workspace) == ("openai:gpt-5-mini", "https://api.openai.com/v1", KEY)


def test_another_model_of_the_same_provider_works_with_the_servers_key(choose: Choose) -> None:
    assert reached(choose(model="openai:gpt-5")) == (
        *("openai:gpt-5", "https://api.openai.com/v1", KEY),
    )


def test_a_workspace_has_a_provider_and_a_key_of_its_own(choose: Choose) -> None:
    workspace = choose(model="anthropic:claude-sonnet-4-5", key="sk-own")

    assert reached(workspace) == (
        *("anthropic:claude-sonnet-4-5", "https://api.anthropic.com", "sk-own"),
    )
    workspace.refresh_from_db()
    assert b"sk-own" not in bytes(workspace.llm_api_key or b"")


def test_server_key_goes_to_its_own_address_alone(choose: Choose, connect: Connect) -> None:
    with llm_server(said("stolen")) as thief, llm_server() as server:
        model = connect(server)
        choose(model="openai:gpt-5", base_url=thief.openai_url)
        model.complete(QUESTION)

    [request] = thief.requests
    assert KEY not in str(request.headers)
    assert server.requests == []


def test_a_server_of_ones_own_needs_no_key(choose: Choose, settings: Settings) -> None:
    settings.UAC_LLM_API_KEY = ""

    workspace = choose(model="openai:qwen3:8b", base_url="http://ollama:11434/v1")

    assert reached(workspace) == ("openai:qwen3:8b", "http://ollama:11434/v1", "")


def test_a_change_holds_from_the_next_call_on(choose: Choose, connect: Connect) -> None:
    with llm_server(said("one")) as first, llm_server(said("two")) as second:
        model = connect(first, "openai")
        assert model.complete(QUESTION).text == "one"
        choose(model="anthropic:other", base_url=second.url, key="sk-own")
        assert model.complete(QUESTION).text == "two"

    assert second.requests[0].protocol == "anthropic"
    assert "sk-own" in str(second.requests[0].headers)
    called = LlmCall.objects.order_by("turn").values_list("model", flat=True)
    assert list(called) == ["openai:the-model", "anthropic:other"]


@pytest.mark.parametrize(
    ("chosen", "field", "told"),
    [
        ({"model": "gpt-5"}, "model", "Give a provider (openai, anthropic, google) and a model"),
        ({"model": "openai:"}, "model", "Give a provider"),
        ({"model": "mistral:large"}, "model", "Give a provider"),
        ({"model": "openai: x"}, "model", "Give a provider"),
        ({"base_url": "ollama:11434"}, "base_url", "begins with https:// or http://"),
        ({"base_url": "file:///etc/passwd"}, "base_url", "begins with https:// or http://"),
        ({"base_url": "https://user:pw@models/v1"}, "base_url", "without credentials"),
        ({"base_url": "https://models/v1?key=x"}, "base_url", "or a query"),
        ({"base_url": "https://[::1/v1"}, "base_url", "begins with https:// or http://"),
        ({"base_url": "https://models:port/"}, "base_url", "begins with https:// or http://"),
        ({"base_url": "https://mod els/"}, "base_url", "begins with https:// or http://"),
        ({"model": "anthropic:x"}, "model", "the server's own key is not sent to another provider"),
        ({"concurrency": 0}, "concurrency", "greater than or equal to 1"),
        ({"tokens_per_day": 500}, "tokens_per_day", "A single answer may use 1000 tokens"),
        ({"tokens_per_month": 1000}, "tokens_per_month", "or 0 to allow no calls"),
        (
            {"model": "openai:x", "cost_per_day": Decimal(1)},
            "cost_per_day",
            "The price of openai:x is unknown",
        ),
        ({"cost_per_month": Decimal(-1)}, "cost_per_month", "greater than or equal to 0"),
    ],
)
def test_unusable_setting_is_refused(
    choose: Choose, chosen: dict[str, Any], field: str, told: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        choose(**chosen)

    assert told in str(raised.value.message_dict[f"llm_{field}"])


def test_model_without_price_is_refused_under_budget(choose: Choose, settings: Settings) -> None:
    settings.UAC_LLM_COST_PER_DAY = 1.0
    settings.UAC_LLM_PRICES = '{"openai:gpt-5-mini": {"input": 0.25, "output": 2}}'
    choose(tokens_per_day=5000)

    with pytest.raises(ValidationError, match="price of openai:of-nobody is unknown"):
        choose(model="openai:of-nobody")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"UAC_LLM_MODEL": ""}, "No language model is configured. Set UAC_LLM_MODEL"),
        ({"UAC_LLM_API_KEY": ""}, "openai requires an API key. Set UAC_LLM_API_KEY"),
        ({"UAC_LLM_MODEL": "gpt"}, "gpt: Give a provider"),
    ],
)
def test_missing_setting_is_named(
    connect: Connect, settings: Settings, changed: dict[str, str], told: str
) -> None:
    with llm_server() as server:
        model = connect(server)
    settings.UAC_LLM_BASE_URL = ""
    for name, value in changed.items():
        setattr(settings, name, value)

    with pytest.raises(NotConfigured, match=told):
        model.complete(QUESTION)

    assert not LlmCall.objects.exists()


@pytest.mark.parametrize(
    ("name", "value"), [("UAC_LLM_WINDOW_CHARACTERS", 0), ("UAC_LLM_TURN_SECONDS", -1.0)]
)
def test_settings_without_an_end_are_refused(settings: Settings, name: str, value: float) -> None:
    assert name not in overrides.validate_server_settings()
    setattr(settings, name, value)
    assert "must be at least" in overrides.validate_server_settings()[name]


def test_a_key_that_cannot_be_decrypted_is_named(choose: Choose, settings: Settings) -> None:
    workspace = choose(key="sk-own")
    settings.UAC_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]

    with pytest.raises(NotConfigured, match=r"API key cannot be decrypted\. None of the UAC"):
        reached(workspace)


def test_missing_provider_is_named(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai.models.anthropic", None)
    with pytest.raises(NotConfigured) as raised:
        ask(protocol="anthropic")

    assert "install userascode-server[anthropic]" in str(raised.value)
    assert "userascode-server[anthropic]" in LlmCall.objects.get().error


def test_prices_are_exact(settings: Settings) -> None:
    settings.UAC_LLM_PRICES = json.dumps(
        {
            "openai:a": {"input": 0.1, "output": "0.7", "cache_read": 0.01, "cache_write": 0.2},
            "openai:b": {"input": 3, "output": 0},
        }
    )
    usage = Usage(
        input_tokens=1000, output_tokens=10, cache_read_tokens=300, cache_write_tokens=200
    )
    first, second = language_models.price("openai:a"), language_models.price("openai:b")

    assert first
    assert first.cost(usage) == Decimal("0.0001")
    assert second
    assert second.cost(usage) == Decimal("0.003")
    assert language_models.price("openai:c") is None


def test_a_known_model_has_its_list_price_unless_the_server_sets_another(
    settings: Settings,
) -> None:
    settings.UAC_LLM_PRICES = ""
    listed = language_models.price("openai:gpt-5-mini")
    tiered = language_models.price("anthropic:claude-sonnet-4-5")
    settings.UAC_LLM_PRICES = '{"openai:gpt-5-mini": {"input": 7, "output": 8}}'

    assert listed
    assert (listed.input, listed.output, listed.cache_read) == (
        Decimal("0.25"),
        Decimal(2),
        Decimal("0.025"),
    )
    assert tiered
    assert tiered.input > Decimal(3)  # of long prompts, so that no budget is exceeded
    overridden = language_models.price("openai:gpt-5-mini")
    assert overridden
    assert (overridden.input, overridden.output) == (Decimal(7), Decimal(8))
    assert language_models.own_price("anthropic:claude-sonnet-4-5") is None

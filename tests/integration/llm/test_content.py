"""Prompts and answers are kept encrypted, with replaceable keys, or not at all."""

from io import StringIO

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from memory.kernel import encryption
from memory.kernel.models.workspaces import Workspace
from memory.llm import llm_calls
from memory.llm.models import LlmCall
from tests.integration.llm.conftest import QUESTION, REMEMBER, Ask, Connect, answer_calls
from tests.llm_server import called, llm_server, said, status
from workers.llm.interface import ModelRefused, ProviderUnavailable

pytestmark = pytest.mark.django_db


@pytest.fixture
def kept(settings: Settings, quick: None) -> None:
    settings.UAC_LLM_KEEP_CONTENT = True


def new_key() -> str:
    return Fernet.generate_key().decode()


def raw_columns() -> list[bytes]:
    rows = LlmCall.objects.values_list("prompt", "answer")
    return [bytes(column) for row in rows for column in row if column is not None]


def test_by_default_nothing_is_kept(ask: Ask) -> None:
    ask(said("Noted."))

    assert raw_columns() == []
    assert llm_calls.content(LlmCall.objects.get()) == (None, None)


def test_stored_content_is_encrypted_for_the_key(connect: Connect, kept: None) -> None:
    with llm_server(called("remember", {"fact": "dog: Rex"}), said("Noted.")) as server:
        model = connect(server)
        first = model.complete(QUESTION, [REMEMBER])
        answer_calls(model, first, "yes")

    assert len(raw_columns()) == 4
    # With a space, which no ciphertext has: "Rex" alone occurs in one by chance.
    assert not any(b"g: Rex" in column or b"Noted." in column for column in raw_columns())
    assert not any(b"called Rex" in column for column in raw_columns())
    prompt, answer = llm_calls.content(LlmCall.objects.get(turn=1))
    assert prompt["messages"] == [
        {"role": "system", "text": "You remember."},
        {"role": "user", "text": "My dog is called Rex."},
    ]
    assert prompt["tools"][0]["name"] == "remember"
    [call] = answer["tool_calls"]
    assert (call["name"], call["arguments"]) == ("remember", '{"fact": "dog: Rex"}')
    prompt, answer = llm_calls.content(LlmCall.objects.get(turn=2))
    assert [message["role"] for message in prompt["messages"]] == [
        *("system", "user", "assistant", "tool"),
    ]
    assert answer["text"] == "Noted."


def test_prompts_of_failed_calls_are_kept(connect: Connect, kept: None, settings: Settings) -> None:
    settings.UAC_LLM_ATTEMPTS = 1
    with llm_server(said("I will not.", finish="refusal"), status(500)) as server:
        with pytest.raises(ModelRefused):
            connect(server, "anthropic").complete(QUESTION)
        with pytest.raises(ProviderUnavailable):
            connect(server, "anthropic").complete(QUESTION)

    _, answer = llm_calls.content(LlmCall.objects.get(outcome="refused"))
    assert answer == {"role": "assistant", "text": "I will not."}
    prompt, answer = llm_calls.content(LlmCall.objects.get(outcome="unavailable"))
    assert prompt["messages"]
    assert answer is None


def test_a_new_key_encrypts_and_the_old_one_still_decrypts(
    ask: Ask, kept: None, settings: Settings, workspace: Workspace
) -> None:
    [old] = settings.UAC_ENCRYPTION_KEYS
    workspace.llm_api_key = encryption.encrypt(b"sk-own")
    workspace.save()
    ask(said("Noted."))
    before = llm_calls.content(LlmCall.objects.get())
    new = new_key()

    settings.UAC_ENCRYPTION_KEYS = [new, old]
    assert llm_calls.content(LlmCall.objects.get()) == before
    output = StringIO()
    call_command("reencrypt", stdout=output)
    settings.UAC_ENCRYPTION_KEYS = [new]

    assert output.getvalue() == "3 re-encrypted, 0 not decrypted\n"
    assert llm_calls.content(LlmCall.objects.get()) == before
    workspace.refresh_from_db()
    assert encryption.decrypt(bytes(workspace.llm_api_key or b"")) == b"sk-own"


def test_undecryptable_content_is_left_unchanged(ask: Ask, kept: None, settings: Settings) -> None:
    ask(said("Noted."))
    before = raw_columns()
    settings.UAC_ENCRYPTION_KEYS = [new_key()]

    with pytest.raises(encryption.EncryptionError, match="add the key"):
        llm_calls.content(LlmCall.objects.get())
    with pytest.raises(CommandError, match="do not remove any key"):
        call_command("reencrypt", stdout=StringIO(), stderr=StringIO())

    assert raw_columns() == before

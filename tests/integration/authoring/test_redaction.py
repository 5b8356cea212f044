"""An entry redacted while a model works on it has no effect, and leaves no trace."""

import pytest

from memory.kernel.models.users import MemoryUser
from memory.llm.models import LlmCall
from memory.log.models.entries import EntryKind
from memory.operations.verification import problems
from memory.privacy import redaction
from memory.versions.models.runs import Run
from tests.edits import note
from tests.integration.authoring.conftest import (
    Meanwhile,
    Say,
    Work,
    edits,
    facts,
    finishes,
    remembers,
)
from tests.integration.redaction.conftest import MARKER, found
from workers import tasks

pytestmark = pytest.mark.django_db


def redact(user: MemoryUser, *seqs: int) -> None:
    redaction.redact(user, seqs, by="test", reason="")


def test_a_message_that_is_redacted_while_it_is_remembered_becomes_no_fact(
    user: MemoryUser, say: Say, work: Work, meanwhile: Meanwhile
) -> None:
    said, other = say(f"I take {MARKER}.", "I like tea.")
    meanwhile(lambda: redact(user, said))

    work(remembers((f"The user takes {MARKER}.", [said]), ("The user likes tea.", [other])))
    tasks.work("redactions", user.pk)

    assert facts() == []
    assert found() == []
    # The other message is remembered at the next try.
    work(remembers(("The user likes tea.", [other])), edits(), finishes())
    assert [fact.content for fact in facts()] == ["The user likes tea."]
    assert list(problems(user)) == []


@pytest.mark.parametrize("at_once", [False, True], ids=["later", "at once"])
def test_a_fact_that_is_redacted_while_it_is_structured_is_not_proposed(
    user: MemoryUser, say: Say, work: Work, meanwhile: Meanwhile, at_once: bool
) -> None:
    (told,) = say(f"The user takes {MARKER}.", kind=EntryKind.FACT)

    def redacted() -> None:
        redact(user, told)
        if at_once:  # and everything is gone before the model has answered
            tasks.work("redactions", user.pk)

    meanwhile(redacted)
    server = work(edits(note(f"Takes {MARKER}.", told)), finishes())
    tasks.work("redactions", user.pk)

    assert len(server.requests) == 1  # nobody pays for more
    assert not Run.objects.filter(user=user).exists()
    assert found() == []
    call = LlmCall.objects.get(user=user)
    assert (call.prompt, call.answer, call.prompt_hash) == (None, None, "")
    assert call.input_tokens


def test_a_model_may_not_cite_what_was_redacted(user: MemoryUser, say: Say, work: Work) -> None:
    gone, told = say("x", "The user likes tea.", kind=EntryKind.FACT)
    redact(user, gone)
    tasks.work("redactions", user.pk)

    cites, right = note("Likes tea.", gone, told), note("Likes tea.", told)
    server = work(edits(cites), finishes(), edits(right), finishes())

    assert "1 is not among the entries shown" in str(server.requests[1].results)

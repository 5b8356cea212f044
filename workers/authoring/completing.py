"""Complete a follow-up question: a language model rewrites it as a standalone question.

The rewritten question is only ever used as a search query, no matter what the earlier turns say.
"""

from typing import Any

from memory.llm.llm_calls import CallSession
from memory.llm.models import LlmPurpose
from memory.recall.search.followups import MAX_COMPLETED
from memory.versions.models.runs import Run
from workers.authoring import answering, prompts
from workers.authoring.conversation import Conversation
from workers.authoring.settling import NotSettled
from workers.authoring.tools import COMPLETE_TOOLS


def execute(run: Run) -> None:
    """Have a language model complete the run's question, and store the result."""
    answering.store(run, lambda: _complete(run))


def _complete(run: Run) -> dict[str, Any]:
    """Ask the model once and return the run's output.

    There is no second attempt: somebody is waiting for the answer, and a plain keyword search is
    good enough as a fallback.
    """
    work = CallSession(
        workspace=run.user.workspace, purpose=LlmPurpose.QUERY, user=run.user, run=run
    )
    conversation = Conversation(work, run)
    conversation.start(prompts.COMPLETE, prompts.question(run))
    for call in conversation.ask(COMPLETE_TOOLS):
        sentence = "" if call.problem else " ".join(call.arguments["question"].split())
        if 0 < len(sentence) <= MAX_COMPLETED:
            return {"question": sentence}
    raise NotSettled(
        "The language model did not complete the question: it called no tool, returned nothing,"
        f" or returned more than {MAX_COMPLETED} characters."
    )

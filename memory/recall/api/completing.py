"""`complete_by`: how a follow-up question is completed from the preceding turns.

Words of the turns complete the question immediately. A language model takes longer, and a web
process never calls one itself: the request waits for a run that does. If the model doesn't respond,
the search still succeeds.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from memory.kernel import pauses
from memory.kernel.admission.refusals import LimitExceeded
from memory.kernel.http import waiting
from memory.kernel.models.users import MemoryUser
from memory.llm import llm_budgets
from memory.recall.api.turns import input_of, turns_of
from memory.recall.search.followups import MODEL, WORDS, Question, complete, may_depend
from memory.recall.search.question_dates import QuestionDates, relative_dates_of
from memory.versions import runs
from memory.versions.api.runs import wait_for
from memory.versions.models.runs import RunKind, RunOutcome, RunStatus, RunTrigger

CHOICES = [
    (WORDS, "words of the turns, without a model"),
    (MODEL, "the workspace's language model"),
]
# Someone is waiting for the search, so this wait is no longer than the wait for a query.
WAIT_SECONDS = 10.0
WAIT = OpenApiParameter(
    "wait",
    waiting.SECONDS,
    description="Seconds to wait for the language model to complete the question.",
)
COMPLETE_BY = (
    "How a question that depends on `messages` is completed. Words of the newest turns are added"
    " to a short question, with less weight than its own. The language model restates the question"
    f" in full, which takes time (at most `?wait=` seconds, {WAIT_SECONDS:g} by default) and costs"
    " tokens; if the model fails, words complete the question, and `completion` says why the model"
    " failed."
)
TAKEN_AS = (
    "The question as completed from `messages`; null if it was complete and is used unchanged."
)


class QuestionDatesSerializer(serializers.Serializer[QuestionDates]):
    """The period that a question's relative dates mean, such as "last week", with all readings."""

    first = serializers.DateField(help_text="The period's first day, in the user's time zone.")
    last = serializers.DateField(help_text="Its last day.")


DATES = (
    "The period that the question names relative to today (`yesterday`, `la semana pasada`), which"
    " is searched for as if it had been written as dates; null if there is none."
)


class CompleteByField(serializers.ChoiceField):
    """A field that selects how a follow-up question is completed."""

    def __init__(self) -> None:
        super().__init__(choices=CHOICES, default=WORDS, help_text=COMPLETE_BY)


class CompletionSerializer(serializers.Serializer[Question]):
    """The way in which a follow-up question was completed."""

    by = serializers.ChoiceField(
        choices=CHOICES,
        source="completed_by",
        allow_null=True,
        help_text="Null if the question was used unchanged.",
    )
    problem = serializers.CharField(
        allow_null=True,
        help_text="Why the language model did not complete the question even though the request"
        " asked it to; otherwise null.",
    )


def complete_question(request: Request, user: MemoryUser, data: Mapping[str, Any]) -> Question:
    """Return a validated body's `query`, completed in the requested way, with its relative dates.

    If the language model fails for any reason, words complete the question instead. Read the user's
    data only after this call, because some of the data may be redacted while the model works.
    """
    question = _complete(request, user, data)
    return replace(question, dates=relative_dates_of(question.sentence or question.text, user))


def _complete(request: Request, user: MemoryUser, data: Mapping[str, Any]) -> Question:
    text = data["query"]
    limit = waiting.seconds(request, default=WAIT_SECONDS)
    turns = turns_of(data)
    by_words = complete(text, turns)
    if data["complete_by"] == WORDS or not may_depend(text, turns):
        return by_words
    try:
        sentence = _ask_model(user, {"question": text, **input_of(turns)}, limit)
    except _NotCompleted as problem:
        return replace(by_words, problem=str(problem))
    is_same = sentence == " ".join(text.split())
    return Question(text, sentence="" if is_same else sentence)


class _NotCompleted(Exception):
    """The language model did not complete the question; the message explains why."""


def _ask_model(user: MemoryUser, input: dict[str, Any], limit: float) -> str:
    """Have the language model complete the question; raises _NotCompleted on failure."""
    if reason := llm_budgets.why_stopped(user.workspace):
        raise _NotCompleted(reason)
    if pauses.find_pause(user):
        raise _NotCompleted("Staff have paused work for this user.")
    try:
        run = runs.queue(user, RunKind.FOLLOW_UP, RunTrigger.API, checkpoint=None, input=input)
    except LimitExceeded as full:
        raise _NotCompleted(str(full)) from None
    run = wait_for(run, limit)
    if run.status != RunStatus.DONE:
        with contextlib.suppress(runs.NotToBeCancelled):
            runs.cancel(run, by="the request, which stopped waiting")
        raise _NotCompleted(f"The language model did not respond in time (limit: {limit:g} s).")
    if run.outcome != RunOutcome.OK or run.output is None:  # a redaction may have cleared it
        raise _NotCompleted(
            (run.error or {}).get("message", "The content was redacted in the meantime.")
        )
    sentence: str = run.output["question"]
    return sentence

"""Questions in requests: completed by the turns before them, and with their relative dates."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rest_framework import serializers

from memory.kernel.models.users import MemoryUser
from memory.recall.api.turns import turns_of
from memory.recall.search.followups import Question, complete
from memory.recall.search.question_dates import QuestionDates, relative_dates_of

TAKEN_AS = (
    "The question as completed with words of `messages`, which have less weight than its own; null"
    " if it is used unchanged."
)
DATES = (
    "The period that the question names relative to today (`yesterday`, `la semana pasada`), which"
    " is searched for as if it had been written as dates; null if there is none."
)


class QuestionDatesSerializer(serializers.Serializer[QuestionDates]):
    """The period that a question's relative dates mean, such as "last week", with all readings."""

    first = serializers.DateField(help_text="The period's first day, in the user's time zone.")
    last = serializers.DateField(help_text="Its last day.")


def complete_question(user: MemoryUser, data: Mapping[str, Any]) -> Question:
    """Return a validated body's `query`, completed from its turns, with its relative dates."""
    question = complete(data["query"], turns_of(data))
    return replace(question, dates=relative_dates_of(question.text, user))

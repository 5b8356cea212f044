"""`messages`: the conversation that precedes a question and that the question may refer to."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rest_framework import serializers

from memory.kernel.http.serializers import StrictSerializer
from memory.recall.search.followups import ASSISTANT, USER, Turn, shortened

MAX_MESSAGES = 50
MAX_BYTES = 64 * 1024


class TurnSerializer(StrictSerializer):
    """One turn: what the user or the assistant said before the question."""

    role = serializers.ChoiceField(choices=[USER, ASSISTANT])
    content = serializers.CharField(allow_blank=True)


class TurnsField(serializers.ListField):
    """The turns before a question, oldest first, limited in number and size."""

    child = TurnSerializer()

    def __init__(self) -> None:
        help_text = (
            "The conversation before the question, oldest first, without the question itself. It"
            ' gives context to a question such as "And in May?" or "When was she there?". At most'
            f" {MAX_MESSAGES} messages, whose contents have at most {MAX_BYTES} bytes in total."
        )
        super().__init__(required=False, max_length=MAX_MESSAGES, help_text=help_text)

    def to_internal_value(self, data: Any) -> list[Any]:
        """Return the turns; raises ValidationError if there are too many or they are too long."""
        # Check the length first, so that the turns in an overlong list are not validated.
        if isinstance(data, list) and len(data) > MAX_MESSAGES:
            raise serializers.ValidationError(
                f"Send only the newest {MAX_MESSAGES} messages, not {len(data)}."
            )
        turns = super().to_internal_value(data)
        size = sum(len(one["content"].encode("utf-8", "surrogatepass")) for one in turns)
        if size > MAX_BYTES:
            raise serializers.ValidationError(
                f"The contents may have at most {MAX_BYTES} bytes in total; these have {size}."
                " Leave out the oldest messages, or shorten them."
            )
        return turns


def turns_of(data: Mapping[str, Any]) -> Sequence[Turn]:
    """Return the turns in a validated body."""
    return [Turn(**one) for one in data.get("messages", [])]


def input_of(turns: Sequence[Turn]) -> dict[str, Any]:
    """Return the newest turns as the input for a language model run."""
    newest = [asdict(one) for one in shortened(turns)]
    return {"messages": newest} if newest else {}

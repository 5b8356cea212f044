"""The parameters `as_of`, `by` and `at`, for reading the past."""

import datetime
from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from memory.kernel import instants
from memory.kernel.admission import slots
from memory.kernel.http.errors import Incompatible, NamesNothing
from memory.kernel.http.serializers import numbers
from memory.kernel.http.user_scope import UserScopedView
from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import By
from memory.versions import past_states
from memory.versions.past_states import KnownState

# The schema of a query parameter that is a moment.
MOMENT = {"type": "string", "format": "moment"}
AS_OF = OpenApiParameter(
    "as_of",
    MOMENT,
    description="Use what was known as of an entry (its number, such as 120), a version (v7), a"
    " day (2026-03-01: at its end, or now if it is today) or a point in time (2026-03-01T09:00,"
    " interpreted in the user's time zone unless it has a UTC offset), instead of what is known"
    " now.",
)
BY = OpenApiParameter(
    "by",
    str,
    enum=[one.value for one in By],
    description="`recorded` (default): what was known at that time. `occurred`: what was true at"
    " that time according to the typed entries' own times (`occurred_at`); `as_of` must then be a"
    " day or a point in time; default: now.",
)


class ByField(serializers.ChoiceField):
    """The body field `by`: whether the past is read by recorded or by occurred time."""

    def __init__(self, **options: Any) -> None:
        described: dict[str, Any] = {"help_text": BY.description, "required": False}
        super().__init__(choices=By.choices, **{**described, **options})


class AsOfSerializer(serializers.Serializer[KnownState]):
    """The state that a response is based on: its newest entry, version and pending entries."""

    seq = serializers.IntegerField(help_text="The number of the newest entry that was known.")
    version = serializers.IntegerField(allow_null=True)
    by = serializers.ChoiceField(
        choices=By.choices,
        help_text="`recorded`: what was known. `occurred`: what was true according to the entries'"
        " own times (`occurred_at`).",
    )
    moment = serializers.DateTimeField(
        allow_null=True, help_text="The requested point in time, if one was requested."
    )
    computed = serializers.BooleanField(
        help_text="Whether the state was computed for this request (from the entries up to `seq`,"
        " or from the entries ordered by their own times) rather than stored as a version."
    )
    pending_count = serializers.IntegerField(
        help_text="The number of entries that the version did not contain yet."
    )
    pending = numbers("The numbers of the first 1000 entries that the version did not contain yet.")
    left_out = numbers(
        "The numbers of the entries that are left out because, when entries are ordered by their"
        " own times, they contradict other entries."
    )


class KnownView(UserScopedView):
    """Base class for views of what is, or was, known about a user."""

    def snapshot(self) -> KnownState:
        """Return the state that `?as_of=` and `?by=` select; by default, the current state."""
        read_by(self.request.query_params)
        return read_state(self.memory_user(), self.request.query_params)


def read_by(data: Mapping[str, Any]) -> By:
    """Return the clock that `?by=` names; raises ValidationError if there is no such clock."""
    try:
        return By(data.get("by", By.RECORDED))
    except ValueError:
        raise serializers.ValidationError({"by": [f"Choose one of {', '.join(By)}."]}) from None


def read_state(user: MemoryUser, data: Mapping[str, Any]) -> KnownState:
    """Return the state that `as_of` and `by` in `data` select; by default, the current state."""
    if data.get("by") == By.OCCURRED:
        return read_state_as_of(user, data.get("as_of"), "as_of", By.OCCURRED)
    return (
        read_state_as_of(user, data["as_of"], "as_of") if "as_of" in data else past_states.now(user)
    )


def read_state_as_of(
    user: MemoryUser,
    text: str | None,
    parameter: str,
    by: str = By.RECORDED,
    *,
    at_start: bool = False,
) -> KnownState:
    """Return what was known, or what was true, at a given point in time.

    A day means its end or, with `at_start`, the time just before its start. Each error names the
    parameter: ValidationError if the value is malformed, NamesNothing if there is no such entry,
    version or point in time, and Incompatible if the value cannot be used with `by`.
    """
    try:
        if by == By.OCCURRED:
            snapshot = past_states.read_by_occurred(user, text, at_start=at_start)
        else:
            snapshot = past_states.read_as_of(user, text or "", at_start=at_start)
    except past_states.UnknownMoment as error:
        raise NamesNothing(parameter, str(error)) from None
    except past_states.NotByOccurred as error:
        raise Incompatible(parameter, str(error)) from None
    except instants.BadMoment as error:
        raise serializers.ValidationError({parameter: [str(error)]}) from None
    if snapshot.is_computed:
        with slots.COMPUTING.hold(user.workspace_id):
            _ = snapshot.checkpoint
    return snapshot


def instant_of(user: MemoryUser, text: str) -> datetime.datetime:
    """Return the point in time that `at` specifies; a day means its end in the user's time zone."""
    try:
        return instants.span_of(user, text).last
    except instants.BadMoment as error:
        raise serializers.ValidationError({"at": [str(error)]}) from None

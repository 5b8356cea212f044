"""Reading the past: what `as_of` and `at` mean in requests."""

import datetime
from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from memory import history
from memory.api.errors import NamesNothing
from memory.api.users import UserScopedView
from memory.history import Known
from memory.models import MemoryUser

AS_OF = OpenApiParameter(
    "as_of",
    str,
    description="What was known as of an entry's number (120), a version (v7) or a moment"
    " (2026-03-01T09:00:00+01:00), instead of now.",
)


class AsOfSerializer(serializers.Serializer[Known]):
    """What was known: up to which entry, in which version, and what this did not hold yet."""

    seq = serializers.IntegerField(help_text="The newest entry that was known.")
    version = serializers.IntegerField(allow_null=True)
    pending_count = serializers.IntegerField(help_text="Entries that the version did not hold yet.")
    pending = serializers.ListField(
        child=serializers.IntegerField(), help_text="Their numbers, the first 1000."
    )


class KnownView(UserScopedView):
    """A view of what is, or was, known of a user."""

    def known(self) -> Known:
        """Return what `?as_of=` asks for, by default what is known now."""
        return known_of(self.memory_user(), self.request.query_params)


def known_of(user: MemoryUser, asked: Mapping[str, Any]) -> Known:
    """Return what was known as of `as_of` in what is asked; without it, what is known now."""
    return known_as_of(user, asked["as_of"], "as_of") if "as_of" in asked else history.now(user)


def known_as_of(user: MemoryUser, text: str, parameter: str) -> Known:
    """Return what was known; ValidationError that names the parameter."""
    try:
        return history.as_of(user, text)
    except history.UnknownMoment as error:
        raise NamesNothing(parameter, str(error)) from None
    except history.BadMoment as error:
        raise serializers.ValidationError({parameter: [str(error)]}) from None


def instant_of(user: MemoryUser, text: str) -> datetime.datetime:
    """Return the moment that `at` names, of a day its noon where the user lives."""
    try:
        return history.instant_of(user, text)
    except history.BadMoment as error:
        raise serializers.ValidationError({"at": [str(error)]}) from None

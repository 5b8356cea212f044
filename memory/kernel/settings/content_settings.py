"""Settings for what happens to secrets and personal data in new content."""

from collections.abc import Mapping
from importlib.util import find_spec

from django.conf import settings

from memory.kernel.settings import environment

_NEEDED = "needs Presidio, which this server lacks: install the extra `personal-data`."


def validate_overrides(actions: Mapping[str, str]) -> dict[str, str]:
    """Map each field whose action needs what is not installed to the problem."""
    return dict.fromkeys(_without_finder(actions), f"It {_NEEDED}")


def validate_server_settings() -> dict[str, str]:
    """Map each server setting whose action needs what is not installed to the problem."""
    names = {field: one.name for field, one in environment.CONTENT.overridable.items()}
    actions = {field: getattr(settings, name) for field, name in names.items()}
    return {names[field]: _NEEDED for field in _without_finder(actions)}


def _without_finder(actions: Mapping[str, str]) -> list[str]:
    """Return the fields of content that is not simply stored and cannot be found."""
    if find_spec("presidio_analyzer") is not None:
        return []
    simple = (None, "", environment.STORED)
    return [
        field
        for field, action in actions.items()
        if field != "content_secret" and action not in simple
    ]

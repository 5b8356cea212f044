"""Settings for what happens to secrets and personal data in new content."""

from collections.abc import Mapping
from importlib.util import find_spec

from django.conf import settings

from memory.kernel.settings import environment

_NEEDED = "needs Presidio, which this server lacks: install the extra `personal-data`."


def validate_overrides(actions: Mapping[str, str]) -> dict[str, str]:
    """Map each field whose action needs what is not installed to the problem."""
    return {f"content_{kind}": f"It {_NEEDED}" for kind in _without_finder(actions)}


def validate_server_settings() -> dict[str, str]:
    """Map each server setting whose action needs what is not installed to the problem."""
    names = {f"content_{kind}": f"UAC_CONTENT_{kind.upper()}" for kind in environment.SENSITIVE}
    actions = {field: getattr(settings, name) for field, name in names.items()}
    return {names[f"content_{kind}"]: _NEEDED for kind in _without_finder(actions)}


def _without_finder(actions: Mapping[str, str]) -> list[str]:
    """Return the kinds of content that are not simply stored and cannot be found."""
    if find_spec("presidio_analyzer") is not None:
        return []
    kinds = {field.removeprefix("content_"): action for field, action in actions.items()}
    simple = (None, "", environment.STORED)
    return [kind for kind, action in kinds.items() if kind != "secret" and action not in simple]

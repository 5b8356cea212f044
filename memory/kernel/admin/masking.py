"""Masking for staff who may not see content.

Models declare which columns hold content, screens which of their methods show some; whatever is not
declared is hidden (`memory.kernel.admin.columns`). States, counts, timestamps and links are shown.
What people said is hidden, along with everything computed from it, record and constraint names,
which may reveal it, and errors, which may quote it.

Whether content is hidden is set at the start of every admin request; until then, it is hidden.
Functions that show a row within another's page use `content` for what they quote.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.db.models import Model
from django.utils.safestring import SafeString

from memory.kernel.models.privacy import masked_columns
from memory.kernel.models.users import MemoryUser
from memory.kernel.texts import shortened

HIDDEN = "(hidden)"

_hidden: ContextVar[bool] = ContextVar("hidden", default=True)


@contextmanager
def hiding(is_hidden: bool) -> Iterator[None]:
    """Hide or show content within the `with` block."""
    token = _hidden.set(is_hidden)
    try:
        yield
    finally:
        _hidden.reset(token)


def is_hidden() -> bool:
    """Return whether content is hidden in the current request."""
    return _hidden.get()


def content(shown: SafeString | str) -> SafeString | str:
    """Return `shown`, which reveals content, or a placeholder if content is hidden."""
    return HIDDEN if is_hidden() else shown


def name_of(row: Model) -> str:
    """Return a row's name, or its kind and key if the name may reveal hidden content.

    A user's id isn't content; the name before it is.
    """
    if isinstance(row, MemoryUser):
        called = person_name(row)
        return f"{called} · {row}" if called else str(row)
    if is_hidden() and row._meta.app_label == "memory" and masked_columns(type(row)):
        return f"{row._meta.verbose_name} {str(row.pk)[:8]}"
    return str(row)


def person_name(user: MemoryUser) -> str:
    """Return a person's name, from the metadata field that the workspace has chosen.

    It is "" if content is hidden. Nothing is read for it: it is "" unless the row was read with its
    workspace and metadata.
    """
    workspace: Any = MemoryUser._meta.get_field("workspace")
    if is_hidden() or not workspace.is_cached(user) or "metadata" in user.get_deferred_fields():
        return ""
    value = user.metadata.get(user.workspace.name_field) if isinstance(user.metadata, dict) else ""
    return shortened(value, 100) if isinstance(value, str) else ""

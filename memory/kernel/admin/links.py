"""Links to row pages and lists."""

from typing import Any, TypeAlias
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.admin.utils import quote
from django.db import models
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from memory.kernel.admin import masking
from memory.kernel.admin.display import NOTHING, inline

Key: TypeAlias = int | str | UUID

MAX_LINKS = 100


def list_url(model: type[models.Model] | str, /, **filters: Any) -> str:
    """Return the URL of a list page with these filters; a later slice's model is given by name."""
    name = model if isinstance(model, str) else model._meta.model_name
    url = reverse(f"admin:memory_{name}_changelist")
    return f"{url}?{urlencode(filters)}" if filters else url


def page_url(row: models.Model) -> str:
    """Return the URL of the row's page."""
    return url_of_key(type(row), row.pk)


def link(row: models.Model | None, text: str | None = None) -> SafeString | str:
    """Return a link to the row's page; its text is the row's short name, if it has one."""
    if row is None:
        return NOTHING
    text = text or getattr(row, "short_name", None) or masking.name_of(row)
    return format_html('<a href="{}">{}</a>', page_url(row), inline(text))


def link_by_content(row: models.Model, text: str) -> SafeString | str:
    """Return a link to the row whose text is content; if that is hidden, its short name is."""
    return link(row, None if masking.is_hidden() else text)


def link_to_key(model: type[models.Model], key: Key | None, text: str) -> SafeString | str:
    """Return a link to the page of the row with this primary key."""
    if key is None:
        return inline(text)
    return format_html('<a href="{}">{}</a>', url_of_key(model, key), inline(text))


def link_to_list(model: type[models.Model] | str, text: str, **filters: Any) -> SafeString:
    """Return a link to the model's list page with these filters."""
    return format_html('<a href="{}">{}</a>', list_url(model, **filters), text)


def url_of_key(model: type[models.Model], key: Key) -> str:
    """Return the URL of the page of the row with this primary key."""
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
    return reverse(name, args=[quote(key)])

"""A person with a redacted entry, and the proof that nothing of it is left."""

from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from rest_framework.test import APIClient

from memory.kernel.models.workspaces import Scope, Workspace
from tests.conftest import new_client
from tests.rows import as_text

# The text that nobody may find again.
MARKER = "Wolframite"
USER = "/v1/users/ada/"

Say = Callable[..., int]


@pytest.fixture
def api(workspace: Workspace) -> APIClient:
    """A client of the API whose key may redact."""
    return new_client(workspace, Scope.READ, Scope.WRITE, Scope.MANAGE)


@pytest.fixture
def say(api: APIClient, user: Any, work: Callable[[], None]) -> Say:
    """Append a typed entry and settle it, one version each; return its number."""

    def do(type: str, key: str, **data: Any) -> int:
        entry = {"kind": "record", "domain": "health", "type": type, "key": key, "data": data}
        answer = api.post(f"{USER}entries/", entry)
        assert answer.status_code == 202, answer.data
        work()
        user.refresh_from_db()
        return int(answer.data["entries"][0]["seq"])

    return do


def found(marker: str = MARKER) -> list[str]:
    """Yield where the marker is in the database: table and column, and the row as text.

    Every column of every table is searched, compressed bytes also after decompression; upper and
    lower case are the same.
    """
    places = []
    with connection.cursor() as cursor:
        for model in apps.get_models(include_auto_created=True):
            if model._meta.app_label != "memory":
                continue
            for field in model._meta.concrete_fields:
                cursor.execute(f'SELECT "{field.column}" FROM "{model._meta.db_table}"')
                texts = [as_text(value) for (value,) in cursor.fetchall()]
                places += [
                    f"{model.__name__}.{field.name}: {text[:300]}"
                    for text in texts
                    if marker.lower() in text.lower()
                ]
    return places

"""Files in, a version or a refusal out: what the tests of imports speak in."""

from collections.abc import Callable
from typing import Any

import pytest

from memory import imports, retrieval
from memory.models import MemoryUser, Run
from memory.models.runs import RunTrigger
from workers import tasks

Import = Callable[[dict[str, str] | str], Run]
Fields = Callable[[str], dict[str, Any]]


@pytest.fixture
def import_files(user: MemoryUser) -> Import:
    """Import files, or one module, and return the finished run."""

    def do(files: dict[str, str] | str) -> Run:
        named = {"memory.py": files} if isinstance(files, str) else files
        run = imports.queue(user, named, RunTrigger.API)
        tasks.execute_run(str(run.pk))
        run.refresh_from_db()
        user.refresh_from_db()
        return run

    return do


@pytest.fixture
def fields_of(user: MemoryUser) -> Fields:
    """Return key → fields (typed JSON) of a collection or singleton `domain.name`."""

    def do(name: str) -> dict[str, Any]:
        user.refresh_from_db()
        domain, _, collection = name.partition(".")
        found: dict[str, Any] = {}
        page: int | None = 1
        while page:
            result = retrieval.records(user, domain, collection, page)
            found |= {record["key"]: record["fields"] for record in result.records}
            page = result.next
        return found

    return do


def report(run: Run) -> Any:
    """What the import did besides."""
    assert run.output is not None
    return run.output["import"]

"""Helpers of the import tests: files in, a version or a refusal out."""

from collections.abc import Callable
from typing import Any

import pytest

from memory.integrations import imports
from memory.kernel.models.users import MemoryUser
from memory.versions.models.runs import Run, RunTrigger
from workers import tasks

Import = Callable[..., Run]


@pytest.fixture
def import_files(user: MemoryUser) -> Import:
    """Import files, or one module, with that outcome, and return the finished run."""

    def do(files: dict[str, str] | str, outcome: str = "ok") -> Run:
        named = {"memory.py": files} if isinstance(files, str) else files
        run = imports.queue(user, named, RunTrigger.API)
        tasks.work("runs", str(run.pk))
        run.refresh_from_db()
        user.refresh_from_db()
        assert run.outcome == outcome, run.error or run.output
        return run

    return do


def report(run: Run) -> Any:
    assert run.output is not None
    return run.output["import"]

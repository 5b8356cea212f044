"""Helpers of the import tests: files in, a version or a refusal out."""

from collections.abc import Callable
from typing import Any

import pytest

from memory import imports
from memory.models import MemoryUser, Run
from memory.models.runs import RunTrigger
from workers import tasks

Import = Callable[[dict[str, str] | str], Run]


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


def report(run: Run) -> Any:
    """Return the import's report in the run's output."""
    assert run.output is not None
    return run.output["import"]

"""A process that calls the language model of a workspace: `python -m … caller WORKSPACE_PK [fork]`.

It prints how each of its calls ended. With `fork` it calls, forks, and its child calls, too. When
it has to wait for its turn, it leaves a file in the folder REFUSALS of the environment.
"""

import os
import sys
from pathlib import Path
from typing import Any

import django


def main(workspace_pk: str, how: str = "") -> None:
    """Call once, or once before a fork and once after it."""
    if folder := os.environ.get("REFUSALS"):
        _report_refusals(Path(folder))
    _ask(workspace_pk)
    if how != "fork":
        return
    from django.db import connections

    connections.close_all()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _ask(workspace_pk)
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    _ask(workspace_pk)


def _report_refusals(folder: Path) -> None:
    from memory.llm import llm_budgets, llm_calls

    start = llm_calls.start

    def report(*arguments: Any, **options: Any) -> Any:
        try:
            return start(*arguments, **options)
        except llm_budgets.TooManyCalls:
            (folder / str(os.getpid())).touch()
            raise

    llm_calls.start = report


def _ask(workspace_pk: str) -> None:
    from memory.kernel.models.workspaces import Workspace
    from memory.llm.llm_calls import CallSession
    from memory.llm.models import LlmPurpose
    from workers.llm.interface import User
    from workers.llm.metered import MeteredModel

    workspace = Workspace.objects.get(pk=int(workspace_pk))
    model = MeteredModel(CallSession(workspace=workspace, purpose=LlmPurpose.CHECK))
    print(model.complete([User("Hello?")]).text)


if __name__ == "__main__":
    django.setup()
    main(*sys.argv[1:])

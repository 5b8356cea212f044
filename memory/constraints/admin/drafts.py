"""Drafts of constraints: what the form of a new one starts with.

A draft that begins with a query from the console has the query as a comment; a person writes the
constraint.
"""

import uuid

from django.contrib import admin
from django.http import HttpRequest

from memory.kernel.admin.display import visible
from memory.versions.admin.staff_runs import may_ask
from memory.versions.models.runs import Run, RunKind

_CHECK = '''\
def check({parameters}) -> Iterator[Alert]:
    """Describe in one line what must not happen."""
{query}    for one in {records}:
        if False:  # the condition that must not occur
            yield warning(f"{{one.key}} …", evidence=[one])
'''
_OF_USER = """\
import datetime
from collections.abc import Iterator

from uac import Alert, warning


"""
_OF_WORKSPACE = """\
import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uac import Alert, Record, warning


@dataclass(kw_only=True)
class Item(Record):
    pass  # name the class of the records, and declare the fields that you need


"""
_TESTS = """\
import datetime

from constraints import my_rule
from uac.testing import run_check

TODAY = datetime.date(2026, 1, 1)


def test_fires() -> None:
    assert len(run_check(my_rule, today=TODAY)) == 1


def test_does_not_fire() -> None:
    assert run_check(my_rule, today=TODAY) == []
"""


def query_of(request: HttpRequest, parameter: str) -> Run | None:
    """Return the query identified by a URL parameter, if the staff member may see it."""
    try:
        key = uuid.UUID(request.GET.get(parameter, ""))
    except ValueError:
        return None
    # The run's own screen decides who may see it.
    run: Run | None = admin.site.get_model_admin(Run).get_object(request, str(key))
    return run if run is not None and run.kind == RunKind.QUERY and may_ask(request) else None


def initial_of(request: HttpRequest) -> dict[str, str]:
    """Return the initial form values for a constraint started from a query in the console."""
    run = query_of(request, "from_query")
    return (
        {"source": visible(draft_workspace_constraint(run)), "description": ""}
        if run is not None
        else {}
    )


def draft_workspace_constraint(run: Run) -> str:
    """Return a draft of a workspace constraint that begins with a query."""
    check = _CHECK.format(
        parameters="today: datetime.date, items: Sequence[Item]",
        query=_as_comment(run),
        records="items",
    )
    return _OF_WORKSPACE + check


def draft_own_constraint(run: Run | None) -> dict[str, str]:
    """Return a draft of one user's constraint: its name, source and tests."""
    check = _CHECK.format(parameters="today: datetime.date", query=_as_comment(run), records="[]")
    return {"name": "my_rule", "source": _OF_USER + check, "tests": _TESTS}


def _as_comment(run: Run | None) -> str:
    code = str(run.input.get("code", "")) if run is not None else ""
    lines = [f"    # {line}".rstrip() for line in code.splitlines()]
    return "\n".join(["    # Begins with this query:", *lines, ""]) if lines else ""

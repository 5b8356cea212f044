"""Running a query or constraints again, as an action of the staff."""

from django.contrib import messages
from django.http import HttpRequest

from memory.kernel.admin.actions import staff_of
from memory.kernel.admin.display import visible
from memory.recall import queries
from memory.versions.admin.staff_runs import REFUSED
from memory.versions.models.runs import Run


def run_again(request: HttpRequest, run: Run) -> Run | None:
    """Queue a run again and return the new one, or show why it can't be repeated."""
    try:
        again = queries.run_again(run, staff=staff_of(request))
    except (*REFUSED, queries.NotAgain) as error:
        messages.error(request, f"Nothing was done: {visible(str(error))}")
        return None
    messages.success(request, "The run was queued again. Reload this page to see its result.")
    return again

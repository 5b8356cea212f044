"""What later slices add to what earlier ones do.

Functions are named by text ("package.module:name"), as in `memory.kernel.work.kinds`, and called in
the transaction of the caller.
"""

from collections.abc import Callable
from functools import cache
from pkgutil import resolve_name
from typing import Any

# With the user and the new entries, at the end of an append.
APPENDED = ("memory.recall.search.announcing:appended",)
# With the work, the user, the decisions about entries, and the time. The last may lock the
# workspace's event counter, so these come last.
DECIDED = ("memory.alerts.alert_events:record_entries",)
# With a version: whether a run of its constraints could change an alert.
CONCERNED = ("memory.constraints.applicability:wants_constraints_run",)
# With the user and the numbers of typed entries that a request has waited for: returns fields to
# add to the response.
SETTLED = ("memory.constraints.widening:to_json",)
# With the user, the records that a rollback would remove, those that it would change, and the paths
# of the constraints that it would keep: returns the alerts that it will resolve, and may resolve.
PREVIEWED = ("memory.alerts.rollback_preview:affected_alerts",)
# With the user, once an earlier version has been restored.
RESTORED = ("memory.recall.answer_cache:forget",)


def later(name: str) -> Callable[..., Any]:
    """Return the function of a later slice that has this name; it is looked up when called."""

    def function(*arguments: Any, **options: Any) -> Any:
        return resolve_name(name)(*arguments, **options)

    return function


def call(names: tuple[str, ...], *arguments: Any) -> list[Any]:
    """Call the functions with these names, in this order; return their results."""
    return [function(*arguments) for function in _resolved(names)]


@cache
def _resolved(names: tuple[str, ...]) -> list[Any]:
    return [resolve_name(name) for name in names]

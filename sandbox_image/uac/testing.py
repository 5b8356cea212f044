"""What the tests of a constraint use: run its check on a state of the test's own."""

import datetime
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import NoReturn

from .alerts import Alert
from .records import Record, resolve_references_with


def run_check(
    module: ModuleType,
    *,
    today: datetime.date | None = None,
    now: datetime.datetime | None = None,
    **state: object,
) -> list[Alert]:
    """The alerts of the constraint `module` when the state it imports is `state`, and no other.

    `run_check(expiring_passport, today=date(2026, 1, 1), trips=[Trip(…)])`: what the constraint
    imports from the state of a domain is replaced by the name it has there; collections not given
    are empty and single records not given may not be used. The module is as before afterwards.
    TypeError for a name that the constraint does not import, a missing `today` or `now`, or when
    the constraint yields something else than alerts.
    """
    with _replaced(module, state):
        return call_check(module, today=today, now=now)


def call_check(
    module: ModuleType, *, today: datetime.date | None, now: datetime.datetime | None
) -> list[Alert]:
    """Call the `check` of a constraint with what its parameters ask for; return its alerts."""
    check = getattr(module, "check", None)
    if not inspect.isfunction(check):
        raise TypeError(
            f"{module.__name__} has no check: define"
            " def check(today: datetime.date) -> Iterator[Alert]"
        )
    if today is None and now is not None:
        today = now.date()
    arguments: dict[str, object] = {}
    for name in inspect.signature(check).parameters:
        value = {"today": today, "now": now}.get(name)
        if name not in ("today", "now"):
            raise TypeError(f"check has a parameter {name!r}: it may have today, now or neither")
        if value is None:
            raise TypeError(f"check asks for {name}: give {name}=…")
        arguments[name] = value
    found = check(**arguments)
    if not hasattr(found, "__iter__"):
        raise TypeError(
            f"check returned {type(found).__name__}: yield alerts, or return a list of them"
        )
    alerts = []
    for alert in found:
        if not isinstance(alert, Alert):
            raise TypeError(
                f"check yielded {type(alert).__name__}: yield info(…), warning(…) or critical(…)"
            )
        alerts.append(alert)
    return alerts


@contextmanager
def _replaced(module: ModuleType, state: dict[str, object]) -> Iterator[None]:
    imported = _imported_state(module)
    if unknown := sorted(state.keys() - imported.keys()):
        raise TypeError(
            f"{module.__name__} imports no state named {', '.join(unknown)}; it imports"
            f" {', '.join(sorted(imported)) or 'none'}. Name the state as the constraint does"
        )
    for name, value in imported.items():
        if name in state:
            replacement = state[name]
        else:
            replacement = [] if isinstance(value, list) else _NotGiven(name)
        setattr(module, name, replacement)
    records: dict[str, list[Record]] = {}
    for value in state.values():
        for record in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(record, Record):
                records.setdefault(record.key, []).append(record)
    previous = resolve_references_with(lambda key: records.get(key, ()))
    try:
        yield
    finally:
        resolve_references_with(previous)
        for name, value in imported.items():
            setattr(module, name, value)


def _imported_state(module: ModuleType) -> dict[str, object]:
    """What the module's globals hold of any domain's state, by their name in the module."""
    state_objects = {
        id(value)
        for name, other in list(sys.modules.items())
        if name.startswith("domains.") and name.endswith(".state")
        for value in vars(other).values()
        if isinstance(value, (list, Record))
    }
    return {name: value for name, value in vars(module).items() if id(value) in state_objects}


class _NotGiven:
    """Stands for a single record that a test did not give."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> NoReturn:
        raise TypeError(f"the constraint uses {self._name}: give {self._name}=… to run_check")

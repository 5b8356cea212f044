"""Tools for testing constraints: run a constraint's check on state provided by the test."""

import datetime
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import MappingProxyType, ModuleType
from typing import NoReturn, get_args

from .alerts import Alert, TooManyAlertsError, room_for
from .reckoning import live_in
from .records import Record, TrustClass, classify_entries, resolve_references_with


def run_check(
    module: ModuleType,
    *,
    today: datetime.date | None = None,
    now: datetime.datetime | None = None,
    time_zone: str | None = None,
    trust: Mapping[int, TrustClass] | None = None,
    **state: object,
) -> list[Alert]:
    """Run a constraint's check with exactly this state; return the alerts.

    For example: `run_check(expiring_passport, today=date(2026, 1, 1), trips=[Trip(…)])`. Each
    argument in `state` replaces what the constraint imports under the same name from a domain's
    state. Collections that aren't given are empty; a single record that isn't given raises
    TypeError when it is used. You can also pass state that the constraint doesn't import:
    `Ref.get()` finds records in it. The module is left unchanged. `user_zone()` returns
    `time_zone`, or else the time zone of `now`, or else UTC. `trust` maps the numbers of entries to
    their classes: `trust_of()` takes the others for the person's own. A workspace constraint
    doesn't import any state; pass the records for its check's parameters by name. Parameters that
    aren't given get no records. Raises TypeError if `state` contains a name that the constraint
    neither imports nor takes and that no domain has, if the check takes a `today` or `now` that is
    missing, or if it yields anything other than alerts.
    """
    taken = {name: state.get(name, ()) for name in shapes_taken(module)}
    imported = {name: value for name, value in state.items() if name not in taken}
    zone = time_zone or getattr(getattr(now, "tzinfo", None), "key", None) or "UTC"
    with _replaced(module, imported, taken), _living_in(zone), _classified(trust or {}):
        alerts = call_check(module, today=today, now=now, records=taken)
    same_evidence.extend(_that_count_as_one(alerts))
    return alerts


# For each `run_check` call that returned two different alerts that count as one: the messages of
# these alerts.
same_evidence: list[list[str]] = []
_MAX_MESSAGE = 200


def _that_count_as_one(alerts: Sequence[Alert]) -> Iterator[list[str]]:
    """Yield, at most once, the messages of two different alerts that would count as one.

    Alerts count as one if they have no key and the same evidence.
    """
    by_records: dict[frozenset[int], Alert] = {}
    for alert in alerts:
        # Compare the records by identity, since many records may have the same key in a test.
        records = frozenset(map(id, alert.evidence))
        other = alert if alert.key is not None else by_records.setdefault(records, alert)
        if other.message != alert.message or other.severity != alert.severity:
            yield [other.message[:_MAX_MESSAGE], alert.message[:_MAX_MESSAGE]]
            return


@contextmanager
def _living_in(time_zone: str) -> Iterator[None]:
    previous = live_in(time_zone)
    try:
        yield
    finally:
        live_in(previous)


@contextmanager
def _classified(classes: Mapping[int, TrustClass]) -> Iterator[None]:
    previous = classify_entries(classes)
    try:
        yield
    finally:
        classify_entries(previous)


def shapes_taken(module: ModuleType) -> list[str]:
    """Return the names of a check's parameters that take records, as in `trips: Sequence[Trip]`."""
    check = getattr(module, "check", None)
    if not inspect.isfunction(check):
        return []
    return [
        name
        for name, parameter in inspect.signature(check).parameters.items()
        if any(
            isinstance(shape, type) and issubclass(shape, Record)
            for shape in get_args(parameter.annotation)
        )
    ]


def call_check(
    module: ModuleType,
    *,
    today: datetime.date | None,
    now: datetime.datetime | None,
    most: int | None = None,
    records: Mapping[str, object] = MappingProxyType({}),
) -> list[Alert]:
    """Call a constraint's `check` with the arguments that it takes; return its alerts.

    `records` maps the names of a workspace constraint's parameters (except the time) to the
    arguments. Raises TooManyAlertsError as soon as there are more than `most` alerts.
    """
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
        if name not in ("today", "now"):
            if name not in records:
                raise TypeError(f"check has a parameter {name!r}: only today and now are allowed")
            arguments[name] = records[name]
            continue
        value = today if name == "today" else now
        if value is None:
            raise TypeError(f"check takes {name}: pass {name}=… to run_check")
        arguments[name] = value
    alerts: list[Alert] = []
    room: AbstractContextManager[None] = nullcontext() if most is None else room_for(most)
    with room:
        reported = check(**arguments)
        if not hasattr(reported, "__iter__"):
            raise TypeError(
                f"check returned {type(reported).__name__}: yield alerts, or return a list of them"
            )
        for alert in reported:
            if not isinstance(alert, Alert):
                raise TypeError(
                    f"check yielded {type(alert).__name__}: yield info(…), warning(…) or"
                    " critical(…)"
                )
            if len(alerts) == most:
                raise TooManyAlertsError(alerts)
            alerts.append(alert)
    return alerts


@contextmanager
def _replaced(
    module: ModuleType, state: Mapping[str, object], taken: Mapping[str, object]
) -> Iterator[None]:
    imported = _imported_state(module)
    in_project = {name for _, name, _ in _state_of_project()}
    if unknown := sorted(state.keys() - imported.keys() - in_project):
        available = sorted({*imported, *shapes_taken(module)})
        locations = [location for name in unknown for location in _places_of(state[name])]
        raise TypeError(
            f"{module.__name__} neither imports nor takes {', '.join(unknown)}; it uses"
            f" {', '.join(available) or 'nothing'}. Name the state as the constraint does"
            + "".join(f"; {location}" for location in dict.fromkeys(locations))
        )
    for name, value in imported.items():
        if name in state:
            replacement = state[name]
        else:
            replacement = [] if isinstance(value, list) else _NotGiven(name)
        setattr(module, name, replacement)
    records: dict[str, list[Record]] = {}
    for value in [*state.values(), *taken.values()]:
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
    """Return the state that a module imports from any domain, keyed by name in the module."""
    state_objects = {id(value) for _, _, value in _state_of_project()}
    return {name: value for name, value in vars(module).items() if id(value) in state_objects}


def _state_of_project() -> Iterator[tuple[ModuleType, str, object]]:
    """Yield each collection and single record in the loaded domains, with its module and name."""
    for name, module in list(sys.modules.items()):
        if name.startswith("domains.") and name.endswith(".state"):
            for held, value in list(vars(module).items()):
                if isinstance(value, (list, Record)):
                    yield module, held, value


def _places_of(given: object) -> Iterator[str]:
    """Yield where the state keeps records of the same classes as those given.

    For example: "Person is in people.people".
    """
    records = given if isinstance(given, (list, tuple)) else [given]
    classes = {type(record) for record in records if isinstance(record, Record)}
    for module, name, value in _state_of_project():
        (held,) = get_args(vars(module).get("__annotations__", {}).get(name)) or (type(value),)
        if held in classes:
            yield f"{held.__name__} is in {module.__name__.split('.')[1]}.{name}"


class _NotGiven:
    """Stands in for a single record that a test didn't pass; raises TypeError when it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> NoReturn:
        raise TypeError(f"the constraint uses {self._name}: pass {self._name}=… to run_check")

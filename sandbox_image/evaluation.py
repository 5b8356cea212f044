"""Run queries, constraints, tests and dumps on the loaded project.

All user code here runs in a forked child process.
"""

import ast
import collections
import dataclasses
import datetime
import decimal
import enum
import gc
import inspect
import itertools
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple, cast
from zoneinfo import ZoneInfo

from . import determinism
from .child import Limits
from .endings import VALUE, keep_value
from .errors import QUERY, describe
from .forecasting import Forecaster, Horizon, Told, wording_of
from .loader import Project, collections_of, names_in, remember_source, selected
from .selection import Meanings, Place, Selection
from .set_aside import MAX_NAMED, find_set_aside
from .ties import Ties
from .traces import Traces
from .tracing import can_follow
from .uac import (
    PartialDate,
    Record,
    add_months,
    birthday,
    full_months,
    has_lapsed,
    hours_between,
    original_data,
    protocol,
    reckoning,
    records,
    trust_of,
    user_zone,
)
from .uac.alerts import Alert, TooManyAlertsError, info
from .uac.records import LAPSES_AFTER
from .uac.testing import call_check, same_evidence
from .values import AlertLimitError, NotAValueError, encode
from .workspace import Binding, shaped

HELPERS = {
    "datetime": datetime,
    "date": datetime.date,
    "timedelta": datetime.timedelta,
    "Decimal": decimal.Decimal,
    "Counter": collections.Counter,
    "defaultdict": collections.defaultdict,
    "math": math,
    "statistics": statistics,
    "re": re,
    "itertools": itertools,
    "PartialDate": PartialDate,
    "add_months": add_months,
    "birthday": birthday,
    "full_months": full_months,
    "has_lapsed": has_lapsed,
    "hours_between": hours_between,
    "original_data": original_data,
    "trust_of": trust_of,
    "user_zone": user_zone,
}


_NOTHING: Mapping[Any, Any] = {}

# Maximum number of records touched in a rehearsal: any more would cost more time than they save.
REHEARSED_RECORDS = 2000
# Maximum number of records listed as evidence for an answer: of records that the answer is based
# on, and of records that were merely read.
MAX_EVIDENCE = 1000
MAX_READ = 100
# When a constraint exceeds its alert limit: maximum number of alerts quoted, and maximum length of
# each quoted message.
QUOTED = 3
QUOTED_CHARACTERS = 500


class Instant(NamedTuple):
    """The time as of which user code is evaluated, in the user's time zone."""

    local: datetime.datetime  # with the UTC offset at that time
    time_zone: str

    @classmethod
    def parse(cls, now: str, time_zone: str) -> "Instant":
        """Build an instant from an ISO 8601 timestamp with a UTC offset and a time zone name.

        Raises ValueError if the timestamp has no offset.
        """
        local = datetime.datetime.fromisoformat(now)
        if local.tzinfo is None:
            raise ValueError("now has no UTC offset")
        return cls(local, time_zone)

    @property
    def today(self) -> datetime.date:
        """The date in the user's time zone."""
        return self.local.date()

    @property
    def now(self) -> datetime.datetime:
        """The evaluation time in the user's time zone.

        The time zone file is read only when this is used, since most constraints don't need it.
        """
        return self.local.astimezone(ZoneInfo(self.time_zone))


class Evaluation:
    """The loaded project as seen by user code and the host, and the operations on it."""

    def __init__(self, project: Project) -> None:
        self.project = project
        # These are built on first use, since most evaluations never need them.
        self._by_key: dict[str, list[Record]] | None = None
        self._names: dict[str, Any] | None = None
        self._traces: Traces | None = None
        self._placed: dict[int, tuple[str, str]] | None = None
        self._referred: dict[int, Record] = {}  # records found through references, by their id()
        self._meant: Meanings | None = None
        self._singles: set[Place] = set()
        self._lapsing_lists: list[tuple[list[Any], list[Any]]] | None = None
        records.resolve_references_with(self._records_with_key)

    def prepare(self) -> None:
        """Build the indexes that each child would otherwise have to build after the fork."""
        # Ignore errors in the state: any evaluation that uses it will report them.
        with suppress(Exception):
            self._index()
            self._namespace()
            self._places()
            self._meanings()
            self._lapsing()
            self.shares_processes()

    def shares_processes(self) -> bool:
        """Return whether constraints may share a process.

        They may if any change that a constraint makes to the project would be detected.
        """
        if self._traces is None:
            try:
                modules = [self.project.module(file.path) for file in self.project.in_domains()]
                self._traces = Traces(modules)
            except Exception:
                return False
        return self._traces.complete

    def make_ready(self) -> None:
        """Prepare a process that has been forked to run user code."""
        if self._traces is not None:
            self._traces.watch()

    def is_as_before(self) -> bool:
        """Return whether the code run in this process definitely changed nothing in the project."""
        return self._traces is not None and self._traces.complete and not self._traces.left()

    def rehearse(self, instant: Instant, limits: Limits) -> list[Any]:
        """Do what most evaluations do, but only with the first records of the state."""
        first_records = list(
            itertools.islice(itertools.chain(*self._index().values()), REHEARSED_RECORDS)
        )
        gc.get_referents(*first_records)
        for path in selected(self.project.files, "constraints", None):
            if (module := sys.modules.get(self.project.files[path].module)) is not None:
                functions = [one for one in vars(module).values() if inspect.isfunction(one)]
                gc.get_referents(*functions, *(one.__code__ for one in functions))
        # If there are any records, cite one as evidence, so that evidence lookup is rehearsed, too.
        check = ModuleType("rehearsal")
        vars(check)["check"] = _rehearsed(first_records[:1])
        alerts = [self._alert(alert) for alert in call_check(check, today=None, now=instant.now)]
        return [self.evaluate("[date(2026, 1, 1), 1.5, 'text']", instant, limits), alerts]

    def evaluate(self, code: str, instant: Instant, limits: Limits) -> dict[str, Any]:
        """Run a query; return its value, the value's type, its evidence, and the ties it hides.

        Lapsed records are left out, unless the code asks for them. Raises NoValueError if the
        code's last statement has no value.
        """
        reckoning.live_in(instant.time_zone)
        remember_source(QUERY, code)
        tree = ast.parse(code, QUERY)
        names = self._namespace() | {"__name__": "__query__"}
        names |= {"today": instant.today, "now": instant.now}
        meanings = self._meanings()
        last = tree.body[-1] if tree.body else None
        no_value = keep_value(tree)
        selection = Selection(tree, meanings, self._singles, self._places())
        ties = Ties(tree)
        names |= selection.names | ties.names
        compiled = compile(tree, QUERY, "exec")
        lapsed = [] if _asks_for_lapsed(compiled) else self._lapsed(selection, instant.today)
        with self._without_lapsed(compiled, instant.today):
            # Copy these lists of records before the code can change them.
            read = {location: list(self._held(*location)) for location in selection.read}
            exec(compiled, names)  # nosec B102 # this is what the sandbox is for
            value, held = names.get(VALUE), list[Record]()
            if value is None and no_value is not None:
                raise no_value
            try:
                encoded = encode(
                    value, max_bytes=limits.result_bytes, max_depth=limits.result_depth, held=held
                )
            except NotAValueError as error:
                error.line = last.lineno if last else None
                raise
        return {
            "value": encoded,
            "type": protocol.storable(type(value).__name__),
            "evidence": {**self._rests_on(selection, held, read), "lapsed": lapsed},
            "ties": ties.found,
        }

    def _rests_on(
        self,
        selection: Selection,
        held: Sequence[Record],
        read: Mapping[Place, Sequence[object]],
    ) -> dict[str, Any]:
        """Return the evidence for a query's answer: up to MAX_EVIDENCE or MAX_READ records."""
        rests_on: list[object]
        most, referred = MAX_EVIDENCE, self._referred.values()
        if any(id(one) in self._places() for one in held):
            scope, rests_on = "value", list(held)
        elif selection.met:
            beside = (one for location in selection.beside for one in read[location])
            scope, rests_on = "selected", [*selection.records, *beside, *referred]
        else:
            scope, most = "read", MAX_READ
            rests_on = [*itertools.chain(*read.values()), *referred]
        unique = {id(one): cast("Record", one) for one in rests_on if id(one) in self._places()}
        # All records that were read: those that a query selects have a value in what it reads.
        placed = (
            (*location, one)
            for location, held in read.items()
            for one in held
            if isinstance(one, Record)
        )
        return {
            "scope": scope,
            "count": len(unique),
            "records": self._named(unique.values(), most),
            "collections": [
                {"domain": domain, "collection": name, "count": len(members)}
                for (domain, name), members in read.items()
            ],
            "set_aside": find_set_aside(placed, selection.names_read),
        }

    def _named(self, records: Iterable[Record], most: int) -> list[dict[str, Any]]:
        """Count the records by class, domain and collection, with keys and sources of the first."""
        counts: collections.Counter[tuple[str, str, str]] = collections.Counter()
        columns: dict[tuple[str, str, str], tuple[list[str], list[list[int]]]] = {}
        for number, one in enumerate(records):
            group = (type(one).__name__, *self._places()[id(one)])
            counts[group] += 1
            keys, sources = columns.setdefault(group, ([], []))
            # The code may have changed the record in a way that makes it invalid.
            if number < most and protocol.are_sources(one.sources) and isinstance(one.key, str):
                keys.append(protocol.storable(one.key))
                sources.append(list(one.sources))
        return [
            {
                "class": class_name,
                "domain": domain,
                "collection": collection,
                "count": counts[class_name, domain, collection],
                "keys": keys,
                "sources": sources,
            }
            for (class_name, domain, collection), (keys, sources) in columns.items()
        ]

    def run_constraint(
        self, path: str, instant: Instant, limits: Limits, bound: Mapping[str, Binding]
    ) -> dict[str, Any]:
        """Run one constraint and return its alerts.

        `bound` says which records a workspace constraint gets. Raises AlertLimitError, which
        includes a few of the alerts, if there are too many.
        """
        determinism.start_again()  # another constraint may already have run in this process
        reckoning.live_in(instant.time_zone)
        with suppress(Exception):  # errors in the state are reported when evidence is looked up
            self._places()  # index the records before the constraint can add any
        started = time.perf_counter()
        module = self.project.module(path)
        asks_for_now = takes_now(module)
        with self._without_lapsed(self.project.files[path].code, instant.today):
            given = shaped(module, bound, self._held)
            result: dict[str, Any] = {"left_out": given.left_out, "takes_now": asks_for_now}
            try:
                alerts = call_check(
                    module,
                    today=instant.today,
                    now=instant.now if asks_for_now else None,
                    most=limits.alerts,
                    records=given.arguments,
                )
            except TooManyAlertsError as error:
                seconds = time.perf_counter() - started
                result |= {"alerts": _gravest(error.alerts), "seconds": seconds}
                raise AlertLimitError(str(error), result) from None
        result["alerts"] = [self._alert(alert, given.originals) for alert in alerts]
        return {**result, "seconds": time.perf_counter() - started}

    def forecast_constraint(
        self,
        path: str,
        horizon: Horizon,
        limits: Limits,
        bound: Mapping[str, Binding],
        seconds: float,
    ) -> dict[str, Any]:
        """Return when a constraint's findings will change within the horizon; see `forecasting.py`.

        The forecast stops after `seconds`.
        """
        reckoning.live_in(horizon.time_zone)
        shares = self.shares_processes()
        self.make_ready()
        with suppress(Exception):  # as in `run_constraint`
            self._places()
        module = self.project.module(path)
        code = self.project.files[path].code
        own = Traces([module])
        given = shaped(module, bound, self._held)

        def call(today: Any, now: Any) -> Sequence[Alert]:
            nonlocal module, given
            determinism.start_again()
            if not own.complete:  # the module might keep state between calls undetected
                del sys.modules[module.__name__]
                module = self.project.module(path)
            with self._without_lapsed(code, today):
                if bound:
                    given = shaped(module, bound, self._held)
                records = given.arguments
                return call_check(module, today=today, now=now, most=limits.alerts, records=records)

        def summarize(alert: Alert) -> Told:
            summary = self._alert(alert, given.originals)
            records = {
                (one["domain"], one["collection"], one["key"]) for one in summary["evidence"]
            }
            return (
                summary["key"],
                tuple(sorted(records)),
                "" if records else wording_of(alert.message),
            )

        def is_unharmed() -> bool:
            return shares and self.is_as_before() and not (own.complete and own.left())

        forecaster = Forecaster(
            call, summarize, is_unharmed, follows=self._can_follow(path), seconds=seconds
        )
        local = Instant(horizon.start, horizon.time_zone)
        if takes_now(module):
            forecast = forecaster.moments(horizon)
        elif "today" in inspect.signature(module.check).parameters or self._leaves_out(code):
            end = horizon.end.astimezone(ZoneInfo(horizon.time_zone)).date()
            forecast = forecaster.days(local.now.date(), end)
        else:
            forecast = forecaster.once(horizon.start)
        return {"takes_now": takes_now(module), **forecast.to_json()}

    def _can_follow(self, path: str) -> bool:
        """Return whether all uses of a traced datetime by constraint and schemas are recorded."""
        files = [
            file
            for file in self.project.files.values()
            if file.path == path or re.fullmatch(r"domains/\w+/schema\.py", file.path)
        ]
        return all(file.code is not None and can_follow(file.code) for file in files)

    def run_test_file(self, path: str) -> list[dict[str, Any]]:
        """Run the tests in one file; return their results in file order."""
        module = self.project.module(path)
        tests = [
            (name, value)
            for name, value in vars(module).items()
            if name.startswith("test_")
            and inspect.isfunction(value)
            and value.__module__ == module.__name__
        ]
        results = []
        for name, test in tests:
            error = None
            same_evidence.clear()
            try:
                test()
            except (Exception, KeyboardInterrupt) as raised:
                if isinstance(raised, MemoryError):
                    raise
                error = describe(raised, self.project.files)
            same = same_evidence[0] if same_evidence else None
            results.append({"name": f"{path}::{name}", "error": error, "same_evidence": same})
        return results

    def dump(self, paths: Sequence[str] | None, limits: Limits) -> dict[str, Any]:
        """Return the number of records in each collection, and the records in the files at `paths`.

        If `paths` is None, the records in all state files are returned.
        """
        counts = {
            domain: {name: len(members) for name, members in self._state(module).items()}
            for domain, module in self._state_modules()
        }
        wanted = {
            path: self._own_records(path)
            for path in (self.project.files if paths is None else paths)
            if _is_state(path) or paths is not None
        }
        encoded = encode(wanted, max_bytes=limits.result_bytes, max_depth=limits.result_depth + 3)
        return {"counts": counts, "records": encoded}

    def _own_records(self, path: str) -> dict[str, list[object]]:
        """Return the records defined in a state file or shard itself, by collection.

        Records imported from other shards are excluded.
        """
        module = self.project.module(path)
        package = module.__name__.rpartition(".")[0]
        elsewhere = {
            id(record)
            for file in self.project.in_domains()
            if _is_shard(file.path) and file.path != path and file.module.startswith(package + ".")
            for members in collections_of(self.project.module(file.path)).values()
            for record in members
        }
        return {
            name: [record for record in members if id(record) not in elsewhere]
            for name, members in self._state(module).items()
        }

    def _state_modules(self) -> Iterator[tuple[str, ModuleType]]:
        for file in self.project.in_domains():
            if file.path.count("/") == 2 and file.path.endswith("/state.py"):
                yield file.path.split("/")[1], self.project.module(file.path)

    def _state(self, module: ModuleType) -> dict[str, list[object]]:
        """Return a module's collections, plus each of its single records as a one-element list."""
        singles: dict[str, list[object]] = {
            name: [value]
            for name, value in vars(module).items()
            if dataclasses.is_dataclass(value) and not isinstance(value, type)
        }
        return {**collections_of(module), **singles}

    def _held(self, domain: str, name: str) -> list[object]:
        """Return a collection's or singleton's records; raise LookupError if it doesn't exist."""
        return self._state(self.project.module(f"domains/{domain}/state.py"))[name]

    def _namespace(self) -> dict[str, Any]:
        """Return the names that a query can use, and their values.

        A name defined by several domains is available only as an attribute of each domain.
        """
        if self._names is not None:
            return self._names
        domains: dict[str, dict[str, object]] = {}
        for file in self.project.in_domains():
            if file.path.count("/") == 2:
                names = domains.setdefault(file.path.split("/")[1], {})
                module = self.project.module(file.path)
                if file.path.endswith("/schema.py"):
                    names |= _classes(module)
                elif file.path.endswith("/state.py"):
                    singles = self._state(module).keys() - collections_of(module).keys()
                    names |= {name: getattr(module, name) for name in singles}
                    names |= collections_of(module)
        uses = collections.Counter(name for names in domains.values() for name in names)
        unique = {
            name: value
            for names in domains.values()
            for name, value in names.items()
            if uses[name] == 1
        }
        in_domains = {name: _domain(name, domains[name]) for name in domains}
        self._names = {**HELPERS, **unique, **in_domains}
        return self._names

    def _meanings(self) -> Meanings:
        """Return which of the state's collections each name in a query refers to."""
        if self._meant is None:
            domains: dict[str, dict[str, list[Place]]] = {}
            collections: dict[str, list[Place]] = {}
            for domain, module in self._state_modules():
                locations = {name: [(domain, name)] for name in self._state(module)}
                several = collections_of(module)
                self._singles |= {(domain, name) for name in locations if name not in several}
                every = [location for members in locations.values() for location in members]
                domains[domain] = {"": locations.get(domain, every), **locations}
                for name in locations:
                    collections.setdefault(name, []).append((domain, name))
            unique = {
                name: {"": members} for name, members in collections.items() if len(members) == 1
            }
            self._meant = {**unique, **domains}
        return self._meant

    def _records_with_key(self, key: str) -> Iterable[Record]:
        for record in self._index().get(key, ()):
            self._referred[id(record)] = record
            yield record
            del self._referred[id(record)]  # the caller rejected this record and wants the next one

    def _index(self) -> dict[str, list[Record]]:
        if self._by_key is None:
            self._by_key = {}
            for _, module in self._state_modules():
                for members in self._state(module).values():
                    for record in members:
                        if isinstance(record, Record):
                            self._by_key.setdefault(record.key, []).append(record)
        return self._by_key

    def _places(self) -> dict[int, tuple[str, str]]:
        """Return the domain and collection of every record, keyed by the record's `id()`."""
        if self._placed is None:
            self._placed = {}
            for domain, module in self._state_modules():
                for collection, members in self._state(module).items():
                    location = (domain, collection)
                    self._placed |= {
                        id(one): location for one in members if isinstance(one, Record)
                    }
        return self._placed

    def _lapsing(self) -> list[tuple[list[Any], list[Any]]]:
        """Return the collections whose records may lapse, each with all of its records."""
        if self._lapsing_lists is None:
            lists = [
                members
                for _, module in self._state_modules()
                for members in collections_of(module).values()
                if any(
                    LAPSES_AFTER in getattr(kind, "__dataclass_fields__", ())
                    for kind in {*map(type, members)}
                )
            ]
            if lists:
                names = self._namespace().values()
                lists += [value for value in names if isinstance(value, _DomainAndCollection)]
            self._lapsing_lists = [(members, list(members)) for members in lists]
        return self._lapsing_lists

    def _leaves_out(self, code: CodeType | None) -> bool:
        """Return whether records are left out for this code once they have lapsed."""
        return code is not None and not _asks_for_lapsed(code) and bool(self._lapsing())

    @contextmanager
    def _without_lapsed(self, code: CodeType | None, today: Any) -> Iterator[None]:
        """Leave the records that have lapsed out of their collections while this code runs.

        If `today` is traced, it records when the next of them lapses.
        """
        lists = self._lapsing() if self._leaves_out(code) else []
        for members, every in lists:
            members[:] = [one for one in every if not has_lapsed(one, today)]
        try:
            yield
        finally:
            for members, every in lists:
                members[:] = every

    def _lapsed(self, selection: Selection, today: datetime.date) -> list[dict[str, Any]]:
        """Count and name the lapsed records among those that a query reads, by collection."""
        found: list[dict[str, Any]] = []
        for domain, name in selection.read:
            lapsed = [one for one in self._held(domain, name) if has_lapsed(one, today)]
            if lapsed:
                keys = [one.key for one in lapsed[:MAX_NAMED] if isinstance(one, Record)]
                count = len(lapsed)
                found.append({"domain": domain, "collection": name, "count": count, "keys": keys})
        return found

    def _alert(self, alert: Alert, originals: Mapping[int, Record] = _NOTHING) -> dict[str, Any]:
        """Return an alert as an object for the host.

        `originals` maps the ids of copied records to the originals, which are named as evidence.
        """
        evidence = [self._evidence(originals.get(id(one), one)) for one in alert.evidence]
        return {
            "severity": str(alert.severity),
            "message": protocol.storable(alert.message),
            "key": alert.key if alert.key is None else protocol.storable(alert.key),
            "evidence": evidence,
        }

    def _evidence(self, record: Record) -> dict[str, Any]:
        """Return a record as evidence; raise NotAValueError unless it is intact in the state."""
        if (location := self._places().get(id(record))) is None:
            raise NotAValueError(
                f"the evidence {type(record).__name__} {record.key!r} is not a record in the"
                " state: use the records themselves, not copies of them"
            )
        if not protocol.are_sources(record.sources) or not isinstance(record.key, str):
            raise NotAValueError(
                f"the evidence {type(record).__name__} {record.key!r} has sources that are not"
                " entry numbers, or a key that is not text: do not change either of them"
            )
        domain, collection = location
        return {
            "class": type(record).__name__,
            "domain": domain,
            "collection": collection,
            "key": protocol.storable(record.key),
            "sources": list(record.sources),
        }


def _asks_for_lapsed(code: CodeType) -> bool:
    """Return whether code decides for itself which records have lapsed, so that it gets all."""
    return not {LAPSES_AFTER, has_lapsed.__name__}.isdisjoint(names_in(code))


def takes_now(module: ModuleType) -> bool:
    """Return whether a constraint's check takes the time (`now`) and not just the day."""
    code = getattr(getattr(module, "check", None), "__code__", None)
    if not isinstance(code, CodeType):
        return True  # `call_check` will report that there is no valid check
    return "now" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _gravest(alerts: Sequence[Alert]) -> list[dict[str, Any]]:
    """Return a few of a constraint's alerts when it raised too many, most severe first.

    They have the same form as in answers, but no evidence.
    """
    ranks = list(protocol.SEVERITIES)
    ordered = sorted(alerts, key=lambda alert: -ranks.index(alert.severity))
    return [
        {
            "severity": str(alert.severity),
            "message": protocol.storable(alert.message[:QUOTED_CHARACTERS]),
            "key": f"{number} of too many",
            "evidence": [],
        }
        for number, alert in enumerate(ordered[:QUOTED], 1)
    ]


def _rehearsed(evidence: list[Record]) -> Callable[[datetime.date], Iterator[Alert]]:
    def check(today: datetime.date) -> Iterator[Alert]:
        yield info(f"rehearsal of {today}", key="rehearsal", evidence=evidence)

    return check


class _DomainAndCollection(list[Any]):
    """A domain that shares its name with one of its collections, such as `notes.notes`."""


def _domain(name: str, names: dict[str, object]) -> object:
    same = names.get(name)
    domain = _DomainAndCollection(same) if isinstance(same, list) else SimpleNamespace()
    vars(domain).update(names)
    return domain


def _classes(module: ModuleType) -> dict[str, object]:
    """Return the record classes, structures and enums that a schema defines."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and (dataclasses.is_dataclass(value) or issubclass(value, enum.Enum))
    }


def _is_shard(path: str) -> bool:
    return re.fullmatch(r"domains/\w+/\w+_[0-9]{4,}\.py", path) is not None


def _is_state(path: str) -> bool:
    return _is_shard(path) or re.fullmatch(r"domains/\w+/state\.py", path) is not None

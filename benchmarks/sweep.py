"""Measure the cost of forecasting: a tick of beat, a year against a day, and repeated forecasts.

- A tick with 1,000, 10,000 and 100,000 users, of whom a hundred or none are due, timed in turn in
  three databases on one server; and the database pages that its statements read, a number that
  other work on the machine does not affect. The users have versions, runs, alerts and forecasts; a
  tenth of them wait for a language model that is not configured.
- Forecasts for a day and for a year, in turn, of twenty constraints on 500 records, half of which
  take no day: once where all can be followed, once where something changes almost daily, and once
  where the constraints that take the day cannot be followed, so that they are called for every day.
- The calls that are repeated when one record changes in a project of ten domains, each with two
  constraints.
"""

import datetime
import logging
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from benchmarks.harness import Row, embedded_server, migrate, parser, report
from tests.integration.time.simulated_year import settle, standing_still
from tests.integration.time.year_people import START

if TYPE_CHECKING:
    from memory.kernel.models.users import MemoryUser
    from memory.project import Project

RECORDS = 500
CONSTRAINTS = 20
DOMAINS = 10
DAY = datetime.timedelta(days=1)
YEAR = 365 * DAY

HEAD = """\
import datetime
from collections.abc import Iterator
from uac import Alert, critical, info, warning
from domains.{domain}.state import contracts


"""
FOLLOWED = (
    HEAD
    + """\
def check(today: datetime.date) -> Iterator[Alert]:
    for contract in contracts:
        if contract.kind == {kind}:
            left = (contract.ends_on - today).days
            if 0 <= left <= 30:
                yield (critical if left <= 7 else warning)(f"{{left}} days", evidence=[contract])
"""
)
# Here, an `except` might hide how the day is used, so the constraint cannot be followed.
NOT_FOLLOWED = FOLLOWED.replace(
    "left = (contract", "try:\n                left = (contract"
).replace(
    "            if 0 <=",
    "            except OverflowError:\n                continue\n            if 0 <=",
)
TIMELESS = (
    HEAD
    + """\
def check() -> Iterator[Alert]:
    for contract in contracts:
        if contract.kind == {kind} and contract.ends_on.year < 2020:
            yield info("ended long ago", evidence=[contract])
"""
)

# -- A tick of beat -------------------------------------------------------------------------------


@contextmanager
def databases(owner_url: str, sizes: Sequence[int]) -> Iterator[dict[int, str]]:
    """Clone the database once per size, with that many users; yield the clones' names by size."""
    import psycopg
    from django.db import connection

    first = connection.settings_dict["NAME"]
    connection.close()
    names = {size: f"sweep_{size}" for size in sizes}
    address = urlsplit(owner_url)._replace(path="/postgres").geturl()
    with psycopg.connect(address, autocommit=True) as owner:
        for name in names.values():
            owner.execute(f"CREATE DATABASE {name} TEMPLATE {first}")
    for size, name in names.items():
        switch(name)
        populate(size)
        connection.close()
        with psycopg.connect(urlsplit(owner_url)._replace(path=f"/{name}").geturl()) as owner:
            owner.autocommit = True
            owner.execute("VACUUM ANALYZE")  # autovacuum would do this after so many new rows
    try:
        yield names
    finally:
        switch(first)


def switch(name: str) -> None:
    """Switch Django to the named database on the same server."""
    from django.db import connection

    connection.close()
    connection.settings_dict["NAME"] = name
    connection.ensure_connection()


def populate(size: int) -> None:
    """Copy the only user, with all related rows, until there are `size` users, none of them due."""
    from django.db import connection

    from memory.alerts.models.alerts import Alert
    from memory.constraints.models.forecasts import Forecast
    from memory.kernel.models.users import Lane, MemoryUser
    from memory.versions.models.checkpoints import Checkpoint
    from memory.versions.models.runs import Run

    original = MemoryUser.objects.get()
    new_id = "gen_random_uuid()"
    named = {"public_id": new_id, "user_id": "'person-' || number", "head_id": "NULL"}
    with connection.cursor() as cursor:

        def copy(model: Any, sources: str, where: str, **own: str) -> None:
            columns = {
                f'"{field.column}"': own.get(field.column, f'original."{field.column}"')
                for field in model._meta.concrete_fields
                if field.column in own or not field.primary_key
            }
            table = model._meta.db_table
            cursor.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(columns.values())}"
                f" FROM {table} AS original, {sources} WHERE {where}"
            )

        only = f"original.id = {original.pk}"
        copy(MemoryUser, f"generate_series(2, {size}) AS number", only, **named)
        copy(
            Checkpoint,
            "memory_memoryuser AS person",
            f"original.id = {original.head_id} AND person.id <> {original.pk}",
            user_id="person.id",
            parent_id="NULL",
        )
        version = f"memory_checkpoint AS version WHERE version.user_id <> {original.pk}"
        for model, own in (
            (Lane, {}),
            (Run, {"id": new_id, "checkpoint_id": "version.id"}),
            (Alert, {"id": new_id, "last_run_id": "NULL"}),
            (Forecast, {"checkpoint_id": "version.id"}),
        ):
            sources, _, where = version.partition(" WHERE ")
            where += f" AND original.user_id = {original.pk} ORDER BY version.id"
            copy(model, sources, where, user_id="version.user_id", **own)
        cursor.execute(
            "UPDATE memory_memoryuser AS person SET head_id = version.id,"
            " constraints_due_at = now() + (person.id % 180 + 1) * interval '1 day'"
            f" FROM {version} AND version.user_id = person.id"
        )
        cursor.execute(
            "UPDATE memory_forecast AS forecast SET wakes_at = person.constraints_due_at"
            " FROM memory_memoryuser AS person WHERE person.id = forecast.user_id"
        )
        cursor.execute(
            "UPDATE memory_alert SET escalate_at = now() + (user_id % 30 + 1) * interval '1 day'"
        )
        cursor.execute(
            "UPDATE memory_lane SET due_at = now() - interval '1 day', waiting = 1"
            " WHERE name = 'structure' AND user_id % 10 = 0"
        )


def make_due(number: int) -> None:
    """Make `number` users due, and make sure that nothing else is."""
    from memory.constraints.models.forecasts import Forecast
    from memory.kernel.models.users import MemoryUser
    from memory.versions.models.runs import Run, RunOutcome, RunStatus

    now = datetime.datetime.now(datetime.UTC)
    ended = {"status": RunStatus.DONE, "outcome": RunOutcome.OK, "finished_at": now}
    Run.objects.exclude(status=RunStatus.DONE).update(**ended)
    # These exist even in the smallest database.
    names = [f"person-{10 * n}" for n in range(1, number + 1)]
    MemoryUser.objects.filter(user_id__in=names).update(constraints_due_at=now)
    Forecast.objects.filter(user__user_id__in=names).update(wakes_at=now)


def ticks(names: Mapping[int, str], rounds: int) -> tuple[list[Row], dict[str, Any]]:
    """Time ticks in each database in turn, and count the database pages that they read."""
    from workers.service.dispatching import dispatch

    some = min(names) // 10
    times: dict[int, dict[int, list[float]]] = {some: defaultdict(list), 0: defaultdict(list)}
    for number in range(rounds + 1):
        for size, name in names.items():
            switch(name)
            for due, measured in times.items():
                make_due(due)
                started = time.perf_counter()
                found = dispatch()
                seconds = time.perf_counter() - started
                assert found["daily"] == due, found
                if number:  # the first round only warms up
                    measured[size].append(1000 * seconds)
    rows, figures = [], {}
    for due, measured in times.items():
        medians = {size: statistics.median(found) for size, found in measured.items()}
        rows.append(_row(f"tick, {due} due: ms", medians))
        figures["tick_growth" if due else "idle_tick_growth"] = rows[-1]["large / small"]
    pages: dict[str, dict[int, float]] = defaultdict(lambda: dict.fromkeys(names, 0))
    for size, name in names.items():
        switch(name)
        make_due(some)
        for statement, number in pages_read(dispatch):
            pages[statement][size] += number
    total = {size: sum(found[size] for found in pages.values()) for size in names}
    rows.append(_row(f"tick, {some} due: pages", total))
    figures["pages_growth"] = rows[-1]["large / small"]
    rows += [
        _row(f"… {statement}", found)
        for statement, found in pages.items()
        if max(found.values()) > 10
    ]
    return rows, figures


def pages_read(work: Callable[[], object]) -> Iterator[tuple[str, int]]:
    """Do the work; yield for each SELECT its table and condition, and how many pages it read."""
    from django.db import connection

    read: list[tuple[str, int]] = []

    def explained(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("SELECT"):
            with context["connection"].connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", params)
                plan = cursor.fetchone()[0][0]["Plan"]
            table = sql.partition(' FROM "')[2].partition('"')[0]
            condition = sql.partition(" WHERE ")[2].replace(f'"{table}".', "")
            pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            read.append((f"{table.removeprefix('memory_')}: {condition[:50]}", pages))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explained):
        work()
    yield from read


def _row(what: str, values: Mapping[int, float]) -> Row:
    small, middle, large = (values[size] for size in sorted(values))
    return {
        "measured": what,
        "small": round(small, 2),
        "middle": round(middle, 2),
        "large": round(large, 2),
        "large / small": round(large / small, 3) if small else None,
    }


# -- Forecasts for a year against forecasts for a day ---------------------------------------------


def files(source: str, days_apart: float) -> dict[str, str]:
    """Return a project whose records have dates around START that are `days_apart` days apart."""
    dates = [START.date() + (n - RECORDS // 2) * days_apart * DAY for n in range(RECORDS)]
    state = "".join(
        f'    Contract(key="c-{n}", kind={n % (CONSTRAINTS // 2)},'
        f" ends_on=datetime.date({day.year}, {day.month}, {day.day}), sources=({n + 1},)),\n"
        for n, day in enumerate(dates)
    )
    return {
        "domains/__init__.py": "",
        "domains/home/__init__.py": "",
        "domains/home/schema.py": "import datetime\nfrom dataclasses import dataclass\n"
        "from uac import Record\n\n\n@dataclass(kw_only=True)\nclass Contract(Record):\n"
        "    kind: int\n    ends_on: datetime.date\n",
        "domains/home/state.py": "import datetime\nfrom domains.home.schema import Contract\n\n"
        f"contracts: list[Contract] = [\n{state}]\n",
        "constraints/__init__.py": "",
        **{
            f"constraints/{name}_{kind}.py": text.format(domain="home", kind=kind)
            for kind in range(CONSTRAINTS // 2)
            for name, text in (("day", source), ("timeless", TIMELESS))
        },
    }


def years(rounds: int) -> tuple[list[Row], dict[str, Any]]:
    """Time forecasts for a day and for a year, in turn, in sandboxes with the project loaded."""
    from workers.sandbox.limits import Limits
    from workers.sandbox.runner import open_sandbox

    # Generous limits, so that the whole year is forecast however busy the machine is.
    limits = Limits(wall_seconds=60, cpu_seconds=60, total_seconds=90)
    variants = {
        "followed": files(FOLLOWED, 7.3),  # the records' dates span ten years
        "changes daily": files(FOLLOWED, 0.8),
        "not followed": files(NOT_FOLLOWED, 7.3),
    }
    rows: list[Row] = []
    figures: dict[str, float] = {}
    for name, project in variants.items():
        paths = [path for path in project if path.count("_") == 1 and "constraints/" in path]
        assert len(paths) == CONSTRAINTS
        times: dict[str, list[float]] = {"a day": [], "a year": []}
        calls = dict.fromkeys(times, 0)
        with open_sandbox() as sandbox:
            sandbox.load(project)
            for number in range(rounds + 1):
                for what, span in (("a day", DAY), ("a year", YEAR)):
                    started = time.perf_counter()
                    found = sandbox.forecast(
                        paths,
                        now=START,
                        until=START + span,
                        time_zone="Europe/Berlin",
                        limits=limits,
                    ).results
                    seconds = time.perf_counter() - started
                    assert all(one.error is None and one.until is None for one in found)
                    calls[what] = sum(one.calls for one in found)
                    if number:
                        times[what].append(1000 * seconds)
        day, year = (statistics.median(found) for found in times.values())
        rows.append(_pair(f"{name}: ms of a day, of a year", day, year))
        rows.append(_pair(f"{name}: calls", calls["a day"], calls["a year"]))
        figures |= {f"year_vs_day {name}": round(year / day, 1), f"ms_of_a_year {name}": year}
    named = {key.replace(" ", "_"): round(value, 1) for key, value in figures.items()}
    return rows, {"year_vs_day": named.pop("year_vs_day_followed"), **named}


def _pair(what: str, small: float, large: float) -> Row:
    return {
        "measured": what,
        "small": round(small, 2),
        "middle": "",
        "large": round(large, 2),
        "large / small": round(large / small, 3),
    }


# -- Forecasts repeated after a change -------------------------------------------------------------


def home(changed: int | None = None) -> "Project":
    """Return a project of ten domains, each with a contract and two constraints.

    The contract in the domain with the number `changed`, if any, is extended.
    """
    from memory.project import Project, RecordEntry, WriteConstraint, apply, compile_record

    project = Project.empty()
    for number in range(DOMAINS):
        end = START.date() + (20 + 7 * number + (30 if number == changed else 0)) * DAY
        data = {"kind": 0, "ends_on": end.isoformat()}
        domain = f"domain{number}"
        entry = RecordEntry(seq=1, domain=domain, type="Contract", key="flat", data=data)
        for edit in compile_record(project, entry):
            apply(project, edit)
        for name, source in (("notice", FOLLOWED), ("timeless", TIMELESS)):
            text = source.format(domain=domain, kind=0)
            apply(project, WriteConstraint(f"{domain}_{name}", text, "", sources=(1,)))
    return project


def reuse(user: "MemoryUser") -> tuple[list[Row], dict[str, Any]]:
    """Have a forecast made, and made again after one record has changed; compare the calls."""
    from memory.constraints.models.forecasts import Forecast

    timings = []
    for number, project in enumerate([home(), home(changed=3)]):
        with standing_still(START + number * DAY) as year:
            settle([(user, project)])
            year.work()
            year.tick(START + number * DAY)
            user.refresh_from_db()
        made = Forecast.objects.get(user=user)
        assert made.checkpoint_id == user.head_id, made.last_error
        assert made.due_at is None, made.last_error
        timings.append(made.timings)
    first, again = timings
    figures = {
        "forecast_reuse": round(again["calls"] / first["calls"], 3),
        "looked_at_again": again["looked_at"],
        "looked_at_first": first["looked_at"],
    }
    row = _pair("one record changes: calls again, at first", again["calls"], first["calls"])
    return [{**row, "large / small": None}], figures


def main() -> None:
    """Run the benchmark and report the results."""
    asked = parser(__doc__, users=(100_000, 2_000), rounds=(11, 1)).parse_args()
    sizes = (asked.users // 100, asked.users // 10, asked.users)
    logging.disable(logging.INFO)
    with embedded_server() as services:
        from memory.kernel.models.workspaces import Workspace
        from memory.kernel.users import create_user

        migrate(services)
        workspace = Workspace.objects.create(name="sweep")
        user = create_user(workspace, "person-1", time_zone="Europe/Berlin", metadata=None)
        reused, figures = reuse(user)
        with databases(services.postgres.owner_url, sizes) as names:
            rows, growth = ticks(names, asked.rounds)
        compared, more = years(asked.rounds)
    settings = {"sizes": sizes, "rounds": asked.rounds, "records": RECORDS}
    report(
        "sweep",
        settings=settings,
        rows=[*rows, *compared, *reused],
        figures={**growth, **more, **figures},
        path=asked.json,
    )


if __name__ == "__main__":
    main()

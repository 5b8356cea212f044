"""Constraints of a workspace get copies of a user's records, in the shapes that they declare."""

import datetime
from collections.abc import Mapping
from typing import Any

from tests.integration.sandbox.conftest import NOW, PROJECT
from tests.steps import not_none
from workers.sandbox.client import Sandbox
from workers.sandbox.limits import DEFAULT_LIMITS, Limits
from workers.sandbox.results import ConstraintResult

PATH = "workspace/constraints/soon.py"
TESTS = "workspace/tests/test_soon.py"
SOURCE = """\
import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uac import Alert, Record, warning

@dataclass(kw_only=True)
class Trip(Record):
    title: str
    on: datetime.date
    mode: str = "unknown"

def check(
    today: datetime.date, trips: Sequence[Trip], passes: Sequence[Trip] = ()
) -> Iterator[Alert]:
    for trip in trips:
        if (trip.on - today).days < 7:
            yield warning(f"{trip.title} by {trip.mode}", evidence=[trip])
    for trip in passes:
        yield warning(f"pass {trip.title} {trip.mode}", evidence=[trip])
"""
TEST_SOURCE = """\
import datetime
from uac.testing import run_check
from workspace.constraints import soon

def test_soon() -> None:
    day = datetime.date(2026, 1, 1)
    trips = [soon.Trip(key="t", title="Rome", on=day)]
    assert len(run_check(soon, today=day, trips=trips)) == 1
"""
TRIPS: dict[str, Any] = {
    "domain": "travel",
    "name": "trips",
    "class": "Trip",
    "fields": {"title": "name", "on": "on", "mode": "mode"},
    "not_none": ["on"],
}
PASSPORT: dict[str, Any] = {
    "domain": "travel",
    "name": "passport",
    "class": "Passport",
    "fields": {"title": "number", "on": "number"},
    "not_none": [],
}
BINDINGS = {PATH: {"trips": [TRIPS], "passes": []}}


def run(
    sandbox: Sandbox, bindings: dict[str, Any] | None = None, limits: Limits = DEFAULT_LIMITS
) -> dict[str, ConstraintResult]:
    found = sandbox.run_constraints(
        now=NOW, time_zone="Europe/Berlin", bindings=bindings, limits=limits
    )
    return {result.path: result for result in found.results}


def load(sandbox: Sandbox, source: str = SOURCE, project: Mapping[str, str] = PROJECT) -> None:
    sandbox.load(project)
    sandbox.load({PATH: source, TESTS: TEST_SOURCE})


def test_workspace_constraint_gets_copies_and_cites_the_users_records(sandbox: Sandbox) -> None:
    load(sandbox)

    found = run(sandbox, BINDINGS)

    assert list(found) == ["constraints/today.py", PATH]
    result = found[PATH]
    assert result.error is None
    # An enum member is passed as its text; two of three trips have no day.
    assert [alert.message for alert in result.alerts] == ["Rome by train"]
    (evidence,) = result.alerts[0].evidence
    assert (evidence.class_name, evidence.domain, evidence.collection, evidence.key) == (
        *("Trip", "travel", "trips"),
        "t-1",
    )
    assert evidence.sources == (2, 3)
    assert result.left_out == 2


def test_a_singleton_is_a_record_too(sandbox: Sandbox) -> None:
    load(sandbox)

    result = run(sandbox, {PATH: {"trips": [], "passes": [PASSPORT]}})[PATH]

    assert [alert.message for alert in result.alerts] == ["pass X1 unknown"]
    assert result.alerts[0].evidence[0].collection == "passport"


def test_without_bindings_only_the_projects_own_run(sandbox: Sandbox) -> None:
    load(sandbox)

    assert list(run(sandbox)) == ["constraints/today.py"]
    assert [one.name for one in sandbox.run_tests().results] == [
        "tests/test_today.py::test_speaks",
        "tests/test_today.py::test_is_silent",
    ]
    assert [one.name for one in sandbox.run_tests([TESTS]).results] == [f"{TESTS}::test_soon"]


def test_failing_workspace_constraint_harms_no_other(sandbox: Sandbox) -> None:
    load(sandbox, SOURCE.replace("if (trip.on", "while True: pass\n        if (trip.on"))
    other = "workspace/constraints/other.py"
    sandbox.load({other: "this is no Python", "workspace/constraints/gone.py": "raise OSError"})

    found = run(
        sandbox,
        {**BINDINGS, other: {}, "workspace/constraints/gone.py": {}},
        # The endless one uses all of it, and the others must finish within it.
        limits=Limits(wall_seconds=1.5),
    )

    assert found["constraints/today.py"].error is None
    assert len(found["constraints/today.py"].alerts) == 0
    errors = {path: one.error.type for path, one in found.items() if one.error is not None}
    assert errors == {
        PATH: "timeout",
        other: "SyntaxError",
        "workspace/constraints/gone.py": "OSError",
    }


def test_no_method_of_the_users_classes_stands_between(sandbox: Sandbox) -> None:
    schema = PROJECT["domains/travel/schema.py"].replace(
        "    on: datetime.date | None = None\n",
        "    on: datetime.date | None = None\n\n"
        "    def __getattribute__(self, name: str) -> object:\n"
        "        return 'forged' if name == 'name' else object.__getattribute__(self, name)\n\n",
    )
    load(sandbox, project={**PROJECT, "domains/travel/schema.py": schema})

    result = run(sandbox, BINDINGS)[PATH]

    assert [alert.message for alert in result.alerts] == ["Rome by train"]


def test_changes_of_copies_do_not_reach_the_records(sandbox: Sandbox) -> None:
    # Given one that changes what it was given, before another one that reads the same
    source = SOURCE.replace(
        "        if (trip.on", "        trip.title = 'changed'\n        if (trip.on"
    )
    load(sandbox, source)
    other = PATH.replace("soon", "zoo")
    sandbox.load({other: SOURCE})

    found = run(sandbox, {**BINDINGS, other: BINDINGS[PATH]})

    assert found[PATH].alerts[0].message == "changed by train"
    assert found[other].alerts[0].message == "Rome by train"


def test_a_new_shape_object_is_no_evidence(sandbox: Sandbox) -> None:
    source = SOURCE.replace(
        "evidence=[trip])", "evidence=[Trip(key='t-1', title='', on=today)])", 1
    )
    load(sandbox, source)

    result = run(sandbox, BINDINGS)[PATH]

    assert "not a record in the state" in not_none(result.error).message


def test_a_changed_set_of_files_is_loaded_by_the_next_run(sandbox: Sandbox) -> None:
    load(sandbox)
    assert [alert.message for alert in run(sandbox, BINDINGS)[PATH].alerts] == ["Rome by train"]

    sandbox.prepare({PATH: SOURCE.replace(" by ", " with ")}, removed=[TESTS])
    assert [alert.message for alert in run(sandbox, BINDINGS)[PATH].alerts] == ["Rome with train"]

    sandbox.prepare(removed=[PATH])
    assert list(run(sandbox)) == ["constraints/today.py"]


def test_the_day_is_the_users(sandbox: Sandbox) -> None:
    # Given 23:30 UTC on the first of March, which is the second in Berlin
    source = SOURCE.replace(".days < 7", " == datetime.timedelta(days=-1)")
    load(sandbox, source)

    assert datetime.date(2026, 3, 1) == NOW.date()
    assert len(run(sandbox, BINDINGS)[PATH].alerts) == 1


def test_copying_records_needs_no_separate_process(
    sandbox: Sandbox,
) -> None:
    source = SOURCE.replace("import datetime", "import datetime\nimport os", 1)
    source = source.replace("{trip.title}", "{os.getpid()} {trip.title}", 1)
    load(sandbox, source)
    other = PATH.replace("soon", "zoo")
    sandbox.load({other: source})

    found = run(sandbox, {**BINDINGS, other: BINDINGS[PATH]})

    (first,), (second,) = found[PATH].alerts, found[other].alerts
    assert first.message.split()[0] == second.message.split()[0]


def test_changes_of_a_record_are_not_seen_by_the_next_constraint(sandbox: Sandbox) -> None:
    # Given one that got past the policy and reaches the user's own records
    source = SOURCE.replace(
        "    for trip in trips:",
        "    from domains.travel import state\n"
        "    state.trips[0].name = 'forged'\n"
        "    for trip in trips:",
        1,
    )
    load(sandbox, source)
    other = PATH.replace("soon", "zoo")
    sandbox.load({other: SOURCE})

    found = run(sandbox, {**BINDINGS, other: BINDINGS[PATH]})

    assert [alert.message for alert in found[other].alerts] == ["Rome by train"]


def test_workspace_constraints_share_no_process_with_the_projects_own(sandbox: Sandbox) -> None:
    tells = "import os\nfrom uac import Alert, info\n\ndef check() -> list[Alert]:\n"
    tells += '    return [info(str(os.getpid()), key="pid")]\n'
    own = {"constraints/one.py": tells, "constraints/two.py": tells}
    load(sandbox, source=tells, project={**PROJECT, **own})

    found = run(sandbox, {PATH: {}})

    processes = {path: found[path].alerts[0].message for path in (*own, PATH)}
    assert processes[PATH] not in [processes[path] for path in own]

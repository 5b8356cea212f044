"""A live constraint that fails: whoever relies on it learns that it does not work, and why."""

import datetime
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.alerts import alert_actions
from memory.alerts.models.alerts import Alert, AlertKind, AlertState
from memory.kernel.models.users import MemoryUser
from memory.project.errors import RunError
from memory.recall import context, retrieval
from memory.recall.search.followups import Question
from memory.versions import past_states
from tests.factories import make_run
from tests.integration.commits.conftest import BUDGET, BUDGET_TESTS, Append, Work, trip
from tests.steps import head_of
from workers import tasks
from workers.execution import constraints

pytestmark = pytest.mark.django_db

URL = "/v1/users/ada/constraints/"
CRITICAL = BUDGET.replace("warning", "critical")
MENDED = CRITICAL.replace("if trip.cost > 1000", "if trip.cost is not None and trip.cost > 1000")
# The type checker skips functions without annotations.
UNTYPED = CRITICAL.replace("for trip in trips:", "for trip in list[Any](trips):").replace(
    "import datetime\n", "import datetime\nfrom typing import Any\n"
)

Put = Callable[..., Any]


@pytest.fixture
def put(api: APIClient, checkpoint: Append, work: Work) -> Put:
    """Send the constraint as an agent does, and return the gate's decision."""
    checkpoint(trip(key="a", cost=900))

    def do(source: str = CRITICAL, tests: str = BUDGET_TESTS, status: int = 200) -> Any:
        body = {"source": source, "tests": tests}
        # A repeated request with the same key is answered with the decision, once there is one.
        key = {"Idempotency-Key": uuid.uuid4().hex}
        assert api.put(f"{URL}budget/?wait=0", body, format="json", headers=key).status_code == 202
        work()
        answer = api.put(f"{URL}budget/?wait=0", body, format="json", headers=key)
        assert answer.status_code == status, answer.data
        return answer.data

    return do


@pytest.fixture
def failing(checkpoint: Append, work: Work, put: Put) -> int:
    """Make the constraint fail by a record without the field; return that record's entry."""
    put()
    (seq,) = checkpoint(trip("Oslo", key="b"))
    work()
    return seq


def failure_of(api: APIClient) -> Any:
    (listed,) = api.get(URL).data["results"]
    detail = api.get(f"{URL}budget/").data
    assert detail["failing"] == listed["failing"]
    return detail["failing"]


def test_a_constraint_that_runs_does_not_fail(api: APIClient, user: MemoryUser, put: Put) -> None:
    put()
    assert failure_of(api) is None
    assert "FAILS" not in retrieval.manifest(user).text


def test_api_has_time_error_and_entries_of_failure(api: APIClient, failing: int) -> None:
    alert = Alert.objects.get(kind=AlertKind.CONSTRAINT_ERROR)

    told = failure_of(api)

    assert told["since"] == alert.opened_at.isoformat().replace("+00:00", "Z")
    assert told["entries"] == [failing]
    assert told["message"] == alert.message
    assert "constraints/budget.py failed at line 10: TypeError" in told["message"]


def test_the_alert_names_the_record_and_the_field(failing: int) -> None:
    alert = Alert.objects.get(kind=AlertKind.CONSTRAINT_ERROR)
    assert "travel.trips 'b' has no cost" in alert.message
    assert "test for None first." in alert.message


@pytest.mark.parametrize(("source", "severity"), [(BUDGET, "warning"), (CRITICAL, "critical")])
def test_the_alert_is_as_grave_as_what_the_constraint_watches_over(
    put: Put, checkpoint: Append, work: Work, source: str, severity: str
) -> None:
    put(source)
    checkpoint(trip("Oslo", key="b"))
    work()
    assert Alert.objects.get(kind=AlertKind.CONSTRAINT_ERROR).severity == severity


@pytest.mark.usefixtures("failing")
def test_agents_are_told_that_constraint_fails(
    user: MemoryUser,
) -> None:
    user.refresh_from_db()
    for text in (
        retrieval.manifest(user).text,
        context.compose(past_states.now(user), Question("What does Oslo cost?"), 2000).text,
    ):
        assert "  budget: FAILS: constraints/budget.py failed" in text
        assert "critical: constraints/budget.py failed at line 10" in text


@pytest.mark.usefixtures("failing")
def test_resolving_the_alert_by_hand_mends_nothing(
    api: APIClient, checkpoint: Append, work: Work, user: MemoryUser
) -> None:
    alert = Alert.objects.get(kind=AlertKind.CONSTRAINT_ERROR)
    alert_actions.resolve(alert, actor="staff", reason="seen")
    assert failure_of(api) is not None
    assert "FAILS" in retrieval.manifest(user).text

    checkpoint({**trip(key="b"), "data": {"cost": 20}})
    work()

    assert failure_of(api) is None
    assert "FAILS" not in retrieval.manifest(user).text


@pytest.mark.usefixtures("failing")
def test_a_mended_constraint_fails_no_more_and_the_danger_alerts(
    api: APIClient, put: Put, checkpoint: Append, work: Work
) -> None:
    checkpoint(trip("Lima", key="c", cost=5000))
    work()
    assert not Alert.objects.filter(kind=AlertKind.FINDING).exists()

    verdict = put(MENDED)

    assert verdict["accepted"]
    assert failure_of(api) is None
    assert Alert.objects.get(kind=AlertKind.FINDING).state == AlertState.OPEN


@pytest.mark.usefixtures("failing")
def test_the_same_text_again_is_checked_as_a_new_one_while_it_fails(put: Put) -> None:
    refused = put(status=422)

    (types,) = (check for check in refused["verdict"]["checks"] if check["name"] == "types")
    (found,) = types["findings"]
    assert (found["path"], found["line"]) == ("constraints/budget.py", 10)
    assert "None" in found["message"]


def test_same_text_without_error_is_noted(put: Put, checkpoint: Append, work: Work) -> None:
    put(UNTYPED)
    checkpoint(trip("Oslo", key="b"))
    work()

    again = put(UNTYPED)

    assert again["accepted"]
    (note,) = again["notes"]
    assert note.startswith("constraints/budget.py: TypeError: ")
    assert note.endswith("raises no new alerts until you fix it")


def test_the_same_text_of_a_constraint_that_runs_has_no_note(put: Put) -> None:
    put()
    assert put()["notes"] == []


TWICE = CRITICAL.replace(
    "            yield",
    """            if trip.cost > BOUND:
                yield warning(f"{trip.to} may cost {trip.cost}", evidence=[trip])
            yield""",
).replace("import Alert, critical", "import Alert, critical, warning")
TWICE_TESTS = BUDGET_TESTS.replace(
    '[alert.evidence[0].key for alert in found] == ["a"]',
    '{alert.evidence[0].key for alert in found} == {"a"}',
)


@pytest.mark.parametrize(
    ("source", "cost", "told"),
    [
        # of the state alone, of the tests alone, and of both
        (TWICE.replace("BOUND", "2000"), 5000, "“Lima may cost 5000” and “Lima costs 5000”"),
        (TWICE.replace("BOUND", "1000"), 10, "“Rome may cost 1001” and “Rome costs 1001”"),
        (TWICE.replace("BOUND", "1000"), 5000, "“Rome may cost 1001” and “Rome costs 1001”"),
    ],
)
def test_two_alerts_that_count_as_one_are_noted_and_refuse_nothing(
    put: Put, checkpoint: Append, source: str, cost: int, told: str
) -> None:
    checkpoint(trip("Lima", key="c", cost=cost))

    accepted = put(source, TWICE_TESTS)

    assert accepted["accepted"]
    (note,) = [one for one in accepted["notes"] if "same evidence" in one]
    assert "two alerts from the same check have the same evidence: only the more severe" in note
    assert told in note
    assert note.endswith("give each alert a key=…")


def test_alerts_that_have_keys_are_not_noted(put: Put, checkpoint: Append) -> None:
    checkpoint(trip("Lima", key="c", cost=5000))
    keyed = TWICE.replace("BOUND", "1000").replace("[trip])", "[trip], key=trip.key)", 1)
    assert put(keyed, TWICE_TESTS)["notes"] == []


def test_records_of_a_test_that_have_the_same_key_are_others(put: Put) -> None:
    trips = 'trips=[Trip(key="a", to="Rome", cost=1001), Trip(key="a", to="Oslo", cost=2000)]'
    tests = BUDGET_TESTS.replace('trips=[Trip(key="a", to="Rome", cost=1001)]', trips).replace(
        '== ["a"]', '== ["a", "a"]'
    )
    assert put(CRITICAL, tests)["notes"] == []


def test_broken_project_fails_every_constraint(api: APIClient, put: Put, user: MemoryUser) -> None:
    put()
    run = make_run(head_of(user))

    constraints.report_failure(run, RunError(type="killed", message="the sandbox was killed"))

    failure = failure_of(api)
    assert failure["message"].startswith("project failed: killed: the sandbox was killed.")
    assert failure["entries"] == []
    assert "  budget: FAILS: project failed" in retrieval.manifest(user).text


@pytest.mark.usefixtures("failing")
def test_an_earlier_version_is_not_told_to_fail(api: APIClient) -> None:
    assert api.get(f"{URL}budget/?as_of=v2").data["failing"] is None


def test_without_a_new_entry_none_is_to_blame(api: APIClient, put: Put, user: MemoryUser) -> None:
    """A constraint may fail merely because of the day."""
    later = CRITICAL.replace(
        "for trip in trips:", "for trip in trips:\n        1 // (2031 - today.year)"
    )
    put(later)
    user.refresh_from_db()
    new_year = datetime.datetime(2031, 1, 2, tzinfo=datetime.UTC)

    tasks.work("runs", str(make_run(head_of(user), instant=new_year).pk))

    failure = failure_of(api)
    assert "ZeroDivisionError" in failure["message"]
    assert "None" not in failure["message"]
    assert failure["entries"] == []

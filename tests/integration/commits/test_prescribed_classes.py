"""Classes that a workspace prescribes: its users' next versions have them, whoever writes them."""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Scope, Workspace
from memory.operations.verification import problems
from tests.conftest import new_client
from tests.integration.commits.conftest import Append, Propose, Say, Source, trip
from workers.authoring.workbench import Workbench

pytestmark = pytest.mark.django_db

SCHEMA = """\
import enum
from dataclasses import dataclass

from uac import PartialDate, Record


class Mode(enum.Enum):
    TRAIN = "train"
    PLANE = "plane"


@dataclass(kw_only=True)
class Trip(Record):
    to: str
    cost: float | None = None
    mode: Mode = Mode.TRAIN
    starts: PartialDate
"""

Prescribe = Callable[..., Any]


@pytest.fixture
def api(workspace: Workspace) -> APIClient:
    """An API client whose key may prescribe."""
    return new_client(workspace, Scope.READ, Scope.MANAGE)


@pytest.fixture
def prescribe(api: APIClient, user: MemoryUser) -> Prescribe:
    """Prescribe a schema for the domain `travel`; return the answer."""

    def do(source: str = SCHEMA, *, status: int = 200, domain: str = "travel") -> Any:
        response = api.put("/v1/schema/", {"modules": {domain: source}}, format="json")
        assert response.status_code == status, response.content
        user.refresh_from_db()
        return response.json()

    return do


def test_what_is_prescribed_is_returned_and_replaced(prescribe: Prescribe, api: APIClient) -> None:
    assert api.get("/v1/schema/").json() == {"modules": {}}
    assert prescribe() == {"modules": {"travel": SCHEMA}}
    assert api.get("/v1/schema/").json() == {"modules": {"travel": SCHEMA}}

    assert api.put("/v1/schema/", {"modules": {}}, format="json").json() == {"modules": {}}


def test_a_new_users_records_have_the_prescribed_types(
    prescribe: Prescribe, checkpoint: Append, source_of: Source
) -> None:
    prescribe()

    checkpoint(trip(key="t", cost=840, mode="plane", starts="2026-05"))

    assert "cost: float | None = None" in source_of("domains/travel/schema.py")
    state = source_of("domains/travel/state.py")
    assert "mode=Mode.PLANE" in state
    assert 'starts=PartialDate("2026-05")' in state


def test_a_user_with_a_project_gets_them_with_the_next_version_beside_the_own_classes(
    user: MemoryUser, prescribe: Prescribe, checkpoint: Append, source_of: Source
) -> None:
    checkpoint(trip(key="t", cost=840, hotel="Roma"))
    prescribe()

    checkpoint({"domain": "work", "type": "Task", "key": "a", "data": {"name": "a"}})

    assert user.head is not None
    assert user.head.version == 2
    schema = source_of("domains/travel/schema.py")
    for line in (
        "hotel: str",
        "cost: float | None = None",
        "mode: Mode = Mode.TRAIN",
        "starts: PartialDate | None = None",
    ):
        assert line in schema, schema
    assert list(problems(user)) == []

    # And nothing is added twice.
    checkpoint({"domain": "work", "type": "Task", "key": "b", "data": {"name": "b"}})
    assert source_of("domains/travel/schema.py") == schema


def test_a_proposal_may_use_a_class_that_only_the_workspace_has(
    prescribe: Prescribe, say: Say, propose: Propose, source_of: Source
) -> None:
    prescribe()
    (seq,) = say("I go to Rome in May 2026.")

    fields = {"to": "Rome", "starts": "2026-05"}
    add = {"op": "add", "domain": "travel", "class_name": "Trip", "fields": fields}
    run = propose({**add, "sources": [seq]})

    assert run.outcome == "ok", run.output
    assert 'Trip(key="trip-1", to="Rome"' in source_of("domains/travel/state.py")


def test_a_model_sees_the_prescribed_classes(user: MemoryUser, prescribe: Prescribe) -> None:
    prescribe()

    domain = Workbench(user, None, lambda *_: []).outline.domains["travel"]

    assert list(domain.classes["Trip"].fields)
    assert list(domain.enums) == ["Mode"]


@pytest.mark.parametrize(
    ("domain", "source", "field", "fix"),
    [
        ("travel", "def f(): pass", "travel", "only imports and classes"),
        ("travel", "class (", "travel", "invalid Python"),
        ("travel", SCHEMA.replace("float", "complex"), "travel", "Trip.cost"),
        ("travel", SCHEMA.replace("mode: Mode ", "mode: Moods "), "travel", "Moods"),
        ("Travel", SCHEMA, None, "Travel"),
    ],
)
def test_what_no_project_can_have_is_refused(
    prescribe: Prescribe, domain: str, source: str, field: str | None, fix: str
) -> None:
    answer = prescribe(source, status=400, domain=domain)

    told = answer["errors"]["modules"]
    [message] = told if field is None else told[field]
    assert fix in message


def test_classes_that_are_valid_no_more_stop_nobodys_versions(
    workspace: Workspace, user: MemoryUser, checkpoint: Append
) -> None:
    Workspace.objects.filter(pk=workspace.pk).update(schema={"travel": "class Trip(:"})
    user.refresh_from_db()

    checkpoint(trip(key="t", cost=840))

    assert user.head is not None
    assert user.head.version == 1

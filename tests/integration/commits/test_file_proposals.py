"""Whole files as a proposal: bring your own model, and lose nothing by it."""

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import REGISTRY
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryOutcome
from memory.operations.verification import problems
from memory.project.edits import MAX_SOURCE
from memory.versions import checkpoints
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run
from tests.edits import retire
from tests.integration.commits.conftest import (
    BUDGET,
    BUDGET_TESTS,
    Append,
    Records,
    Say,
    Source,
    Work,
    findings,
    trip,
)
from tests.steps import head_of, not_none
from workers.commits import proposals

pytestmark = pytest.mark.django_db

STATE = "domains/travel/state.py"
SCHEMA = "domains/travel/schema.py"

Send = Callable[..., Run]


@pytest.fixture
def send(api: APIClient, user: MemoryUser, work: Work) -> Send:
    """Propose files by the API and let the gate decide; return the finished run."""

    def do(files: dict[str, str | None], **body: Any) -> Run:
        url = f"/v1/users/{user.user_id}/checkpoints/?wait=0"
        response = api.post(url, {"files": files, **body}, format="json")
        assert response.status_code == 202, response.content
        work()
        user.refresh_from_db()
        return Run.objects.get(pk=response.json()["id"])

    return do


@pytest.fixture
def told(checkpoint: Append, say: Say) -> int:
    """Two trips, and a later message; return its seq."""
    checkpoint(trip(key="rome", cost=1500), trip("Oslo", key="oslo", cost=10))
    (seq,) = say("We go to Bern, for 700.")
    return seq


def with_bern(state: str, seq: int) -> str:
    line = f'    Trip(key="bern", to="Bern", cost=700, sources=({seq},)),\n]'
    return state[: state.rindex("]")] + line + state[state.rindex("]") + 1 :]


def test_files_become_the_next_version(
    user: MemoryUser, told: int, send: Send, fields_of: Records, source_of: Source
) -> None:
    # Given what an agent wrote: a record more, and a constraint with its tests
    files = {
        STATE: with_bern(source_of(STATE), told),
        "constraints/budget.py": BUDGET,
        "tests/test_budget.py": BUDGET_TESTS,
    }
    # When it proposes its files
    run = send(files, considered=[told])
    # Then they are the head, by edits that say what differs, and the fact is covered
    assert run.outcome == "ok", run.error
    assert [edit["op"] for edit in head_of(user).edits] == ["add", "write_constraint"]
    assert set(fields_of("travel.trips")) == {"rome", "oslo", "bern"}
    assert EntryOutcome.objects.get(user=user, seq=told).outcome == "covered"
    assert list(problems(user)) == []


def test_file_that_lost_a_record_retires_nothing(
    user: MemoryUser, told: int, send: Send, source_of: Source
) -> None:
    # Given a file that was written anew, without one of the records
    before = user.head
    lines = [line for line in source_of(STATE).splitlines() if '"oslo"' not in line]
    # When it is proposed
    run = send({STATE: with_bern("\n".join(lines), told)})
    # Then it is refused with the record's name, and the head stays
    assert run.outcome == "rejected"
    (finding,) = findings(run)
    assert finding["code"] == "record_lost"
    assert "travel.trips.oslo" in finding["message"]
    assert user.head == before


def test_edits_beside_files_say_what_files_cannot(
    say: Say, told: int, send: Send, fields_of: Records, source_of: Source
) -> None:
    # Given an agent that retires a record, since somebody said so, in a file without it
    (off,) = say("The trip to Oslo is off.")
    lines = [line for line in source_of(STATE).splitlines() if '"oslo"' not in line]
    # When both are proposed
    run = send({STATE: with_bern("\n".join(lines), told)}, edits=[retire("travel.trips.oslo", off)])
    # Then they are the head
    assert run.outcome == "ok", run.error
    assert set(fields_of("travel.trips")) == {"rome", "bern"}


def test_files_of_an_older_version_keep_what_came_since(
    user: MemoryUser,
    told: int,
    send: Send,
    checkpoint: Append,
    fields_of: Records,
    source_of: Source,
) -> None:
    # Given files that were read before another trip was told
    state = source_of(STATE)
    version = head_of(user).version
    checkpoint(trip("Riga", key="riga", cost=5))
    # When they are proposed for the version that they are of
    run = send({STATE: with_bern(state, told)}, version=version)
    # Then what came since is still there
    assert run.outcome == "ok", run.error
    assert set(fields_of("travel.trips")) == {"rome", "oslo", "riga", "bern"}


def test_files_are_repaired_and_it_is_told(
    told: int, send: Send, fields_of: Records, source_of: Source
) -> None:
    run = send({STATE: f"```python\n{with_bern(source_of(STATE), told)}\n```"})
    assert run.outcome == "ok", run.error
    assert [(one["code"], one["path"]) for one in findings(run)] == [("repaired", STATE)]
    assert "bern" in fields_of("travel.trips")


def test_findings_and_repairs_are_counted(told: int, send: Send, source_of: Source) -> None:
    def counted() -> list[float]:
        read = REGISTRY.get_sample_value
        refused = {"code": "ungrounded_number", "blocking": "true"}
        return [
            read("uac_gate_findings_total", refused) or 0,
            read("uac_gate_repairs_total", {"name": "surroundings"}) or 0,
        ]

    before = counted()
    ungrounded = with_bern(source_of(STATE), told).replace("cost=700", "cost=800")
    run = send({STATE: f"```python\n{ungrounded}\n```"})

    assert len(findings(run, "ungrounded_number")) == 1
    assert [after - one for after, one in zip(counted(), before, strict=True)] == [1, 1]


def test_file_with_ungrounded_values_is_refused(told: int, send: Send, source_of: Source) -> None:
    run = send({STATE: with_bern(source_of(STATE), told).replace("cost=700", "cost=800")})
    assert run.outcome == "rejected"
    assert [one["code"] for one in findings(run) if one["blocking"]] == ["ungrounded_number"]


def test_unreadable_file_is_named_with_its_line(
    user: MemoryUser, told: int, send: Send, source_of: Source
) -> None:
    before = user.head
    run = send({STATE: source_of(STATE) + "import os\nos.system('true')\n"})
    assert run.outcome == "rejected"
    (finding,) = findings(run)
    assert (finding["code"], finding["path"]) == ("unreadable_file", STATE)
    assert finding["line"] > 1
    assert user.head == before


def test_version_is_read_back_as_it_was_proposed(
    user: MemoryUser, told: int, send: Send, source_of: Source
) -> None:
    # Given all files of the head, as a clone has them
    files = dict(checkpoints.read_files(head_of(user)))
    # When they are proposed with one record more
    run = send({**files, STATE: with_bern(files[STATE], told)})
    # Then one file and the manifest changed
    assert run.outcome == "ok", run.error
    assert not_none(run.output)["verdict"]["counts"]["files_changed"] == 2
    assert source_of(SCHEMA) == files[SCHEMA]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "edits"),
    "no files": ({"files": {}}, "edits"),
    "files that are a list": ({"files": ["x"]}, "files"),
    "a file that is a number": ({"files": {STATE: 1}}, "files"),
    "a file that is too large": ({"files": {STATE: "#" * 1_000_001}}, "files"),
    "too many files": ({"files": {f"constraints/c{n}.py": "" for n in range(1001)}}, "files"),
    "a version without files": ({"edits": [{"op": "dismiss"}], "version": 1}, ""),
    "a version that is text": ({"files": {STATE: ""}, "version": "head"}, "version"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_proposals_name_the_field(api: APIClient, user: MemoryUser, case: str) -> None:
    body, field = BAD[case]
    response = api.post(f"/v1/users/{user.user_id}/checkpoints/", body, format="json")
    assert response.status_code == 400, response.content
    assert field in response.json()["errors"] or not field
    assert not Run.objects.exists()
    assert not Checkpoint.objects.exists()


def test_a_version_that_there_is_not_is_not_found(api: APIClient, user: MemoryUser) -> None:
    body = {"files": {STATE: ""}, "version": 99}
    response = api.post(f"/v1/users/{user.user_id}/checkpoints/", body, format="json")
    assert response.status_code == 404, response.content
    assert "version" in response.json()["errors"]
    assert not Run.objects.exists()


def test_a_file_that_would_take_long_to_parse_is_refused_unread(
    told: int, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a constraint of a megabyte, over which the parser stops all threads for seconds
    monkeypatch.setattr(proposals, "put_right", lambda path, source: pytest.fail("it was read"))
    files = {"constraints/budget.py": "a,\n" * 300_000, "tests/test_budget.py": BUDGET_TESTS}
    # When it is proposed
    run = send(files)
    # Then nobody has looked into it, and it is said why
    assert run.outcome == "rejected"
    assert findings(run)[0]["path"] == "constraints/budget.py"
    assert findings(run)[0]["message"] == "has 900,000 characters: at most 65,536 are allowed"


def test_a_file_that_is_large_for_its_records_may_be_sent_again(
    user: MemoryUser, told: int, send: Send, checkpoint: Append, source_of: Source
) -> None:
    checkpoint(trip("Bergen, " * 20_000, key="bergen", cost=1))
    assert user.head is not None
    large = next(path for path in user.head.tree if len(source_of(path)) > MAX_SOURCE)

    sent = {"constraints/budget.py": BUDGET, "tests/test_budget.py": BUDGET_TESTS}
    run = send({large: source_of(large), **sent})

    assert run.outcome == "ok", run.error
    assert [edit["op"] for edit in head_of(user).edits] == ["write_constraint"]


def test_file_that_grows_by_too_much_is_refused(
    told: int, send: Send, source_of: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposals, "put_right", lambda path, source: pytest.fail("it was read"))
    state = source_of(STATE)

    run = send({STATE: state + "#" * (proposals.MAX_GROWTH + 1)})

    assert run.outcome == "rejected"
    assert f"has {len(state) + 131_073:,} characters" in findings(run)[0]["message"]

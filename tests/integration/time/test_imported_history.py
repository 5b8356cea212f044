"""History imported at once has its past: up to an entry, and by the entries' own times."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.alerts.models.alerts import Alert
from memory.kernel.instants import Span, span_of
from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryOutcome, Outcome
from memory.versions import computed_states
from memory.versions.models.runs import Run, RunKind
from tests.edits import add
from tests.factories import make_checkpoint
from tests.integration.time.test_as_of import ask
from tests.integration.time.test_forecast import NOTICE
from tests.integration.time.test_forecast import settle as settle_rules
from tests.steps import head_of

pytestmark = pytest.mark.django_db

USER = "/v1/users/ada/"
Work = Callable[[], None]


def pill(name: str, day: str, **more: Any) -> dict[str, Any]:
    """Return the entry of a medication, and since when it has been taken."""
    said = {"domain": "health", "type": "Medication", "key": name, "data": {"name": name}}
    return {"kind": "record", "occurred_at": f"{day}T10:00:00Z", **said, **more}


# Loaded in a different order than it occurred in.
HISTORY = [
    pill("ibuprofen", "2025-03-01"),
    pill("aspirin", "2025-01-10", data={"name": "aspirin", "dose": 100}),
    pill("aspirin", "2025-02-01", data={"dose": 75}),
    pill("insulin", "2025-02-10"),
    {**pill("insulin", "2025-04-01"), "retired": True},
]
del HISTORY[-1]["data"]


@pytest.fixture
def loaded(api: APIClient, user: MemoryUser, work: Work) -> MemoryUser:
    """A user whose history was posted in bulk, and settled as one version."""
    assert api.post(f"{USER}entries/", {"entries": HISTORY}).status_code == 202
    work()
    assert head_of(user).version == 1
    return user


def names(answer: Any) -> list[str]:
    return [record["key"] for record in answer.data["records"]]


def test_number_within_a_batch_has_its_state(
    api: APIClient, loaded: MemoryUser, work: Work
) -> None:
    count = "len(medications)"
    assert [ask(api, work, count, as_of=str(seq)) for seq in (1, 2, 3, 5)] == [1, 2, 2, 2]
    assert ask(api, work, "[m.dose for m in medications]", as_of=2) == [None, 100]  # a number
    assert ask(api, work, "[m.dose for m in medications]", as_of=3) == [None, 75]

    then = api.get(f"{USER}state/health/medications/?as_of=2")
    assert names(then) == ["ibuprofen", "aspirin"]
    assert then.data["as_of"] == {
        "seq": 2,
        "version": 1,
        "by": "recorded",
        "moment": None,
        "computed": True,
        "pending_count": 0,
        "pending": [],
        "left_out": [],
    }
    assert "medications: 2" in api.get(f"{USER}manifest/?as_of=2").data["text"]
    assert api.post(f"{USER}context/", {"query": "aspirin", "as_of": 2}).status_code == 200

    changed = api.get(f"{USER}diff/?since=2&until=4").data
    assert [(one["key"], one["entries"]) for one in changed["changed"]] == [("aspirin", [3])]
    assert [(one["key"], one["entries"]) for one in changed["added"]] == [("insulin", [4])]
    gone = api.get(f"{USER}diff/?since=4").data["retired"]
    assert [(one["key"], one["entries"]) for one in gone] == [("insulin", [5])]


def test_state_within_a_foreign_batch_is_refused(api: APIClient, loaded: MemoryUser) -> None:
    said = {"kind": "fact", "content": "She takes insulin."}
    api.post(f"{USER}entries/", {"entries": [said, said]})
    head = head_of(loaded)
    version = make_checkpoint(
        loaded, 2, seen_seq=7, origin="llm", tree=head.tree, outline=head.outline
    )
    EntryOutcome.objects.bulk_create(
        EntryOutcome(user=loaded, seq=seq, outcome=Outcome.COVERED, checkpoint=version)
        for seq in (6, 7)
    )

    answers = [
        api.get(f"{USER}state/?as_of=6"),
        api.get(f"{USER}diff/?since=6"),
        api.post(f"{USER}query/", {"code": "1", "as_of": 6}),
    ]

    for answer in answers:
        assert answer.status_code == 409
        assert answer.data["type"] == "urn:uac:problem:not-computable"
        assert "as of a version (v1 or v2)" in answer.data["detail"]
    assert [api.get(f"{USER}state/?as_of={seq}").data["version"] for seq in (5, 7)] == [1, 2]


def test_state_follows_the_entries_times(api: APIClient, loaded: MemoryUser, work: Work) -> None:
    def state(day: str) -> list[str]:
        return names(api.get(f"{USER}state/health/medications/?by=occurred&as_of={day}"))

    assert state("2025-01-11") == ["aspirin"]
    assert state("2025-02-15") == ["aspirin", "insulin"]
    assert state("2025-03-02") == ["aspirin", "insulin", "ibuprofen"]
    assert state("2025-04-02") == ["aspirin", "ibuprofen"]
    dose = "[m.dose for m in medications if m.name == 'aspirin'][0]"
    assert ask(api, work, dose, by="occurred", as_of="2025-01-11") == 100
    assert ask(api, work, dose, by="occurred", as_of="2025-02-01T12:00") == 75  # in Berlin
    assert ask(api, work, "len(medications)", by="occurred") == 2

    then = api.get(f"{USER}state/?by=occurred&as_of=2025-02-15").data["as_of"]
    assert (then["by"], then["computed"], then["moment"]) == (
        *("occurred", True),
        "2025-02-15T22:59:59.999999+00:00",
    )
    changed = api.get(f"{USER}diff/?by=occurred&since=2025-01-11&until=2025-02-15").data
    assert [(one["key"], one["entries"]) for one in changed["changed"]] == [("aspirin", [3])]
    assert [(one["key"], one["entries"]) for one in changed["added"]] == [("insulin", [4])]
    until_now = api.get(f"{USER}diff/?by=occurred&since=2025-03-02").data
    assert [(one["key"], one["entries"]) for one in until_now["retired"]] == [("insulin", [5])]


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"as_of": "3"}, 422),
        ({"as_of": "v1"}, 422),
        ({"as_of": "someday"}, 400),
        ({"as_of": "2024-01-01T09:00"}, 404),
        ({"as_of": "2999-01-01"}, 404),
    ],
)
def test_by_occurred_time_there_are_days_and_moments_alone(
    api: APIClient, loaded: MemoryUser, asked: dict[str, str], status: int
) -> None:
    for answer, field in (
        (api.get(f"{USER}state/", {"by": "occurred", **asked}), "as_of"),
        (api.get(f"{USER}manifest/", {"by": "occurred", **asked}), "as_of"),
        (api.get(f"{USER}diff/", {"by": "occurred", "since": asked["as_of"]}), "since"),
        (api.post(f"{USER}query/", {"code": "1", "by": "occurred", **asked}), "as_of"),
    ):
        assert (answer.status_code, list(answer.data["errors"])) == (status, [field])


def test_by_names_a_time(api: APIClient, loaded: MemoryUser) -> None:
    for answer in (
        api.get(f"{USER}state/?by=told"),
        api.get(f"{USER}diff/?since=1&by=told"),
        api.post(f"{USER}query/", {"code": "1", "by": "told"}),
    ):
        assert (answer.status_code, list(answer.data["errors"])) == (400, ["by"])


def test_widened_field_is_wide_at_all_times(api: APIClient, loaded: MemoryUser, work: Work) -> None:
    much = pill("codeine", "2024-12-01", data={"name": "codeine", "dose": "as needed"})
    api.post(f"{USER}entries/", much)
    work()
    edit = {
        "op": "widen_field",
        "domain": "health",
        "class_name": "Medication",
        "name": "dose",
        "type": "int | str | None",
    }
    key = {"Idempotency-Key": "widened"}
    api.post(f"{USER}checkpoints/?wait=0", {"edits": [edit]}, headers=key)
    work()
    assert api.post(f"{USER}checkpoints/?wait=0", {"edits": [edit]}, headers=key).data["accepted"]

    doses = "[m.dose for m in medications]"
    assert ask(api, work, doses, by="occurred", as_of="2024-12-31") == ["as needed"]
    assert ask(api, work, doses, by="occurred", as_of="2025-01-11") == ["as needed", 100]
    told = api.get(f"{USER}state/?by=occurred&as_of=2025-01-11").data["as_of"]
    assert told["left_out"] == []


def test_version_of_other_origin_has_no_own_time(api: APIClient, loaded: MemoryUser) -> None:
    rule: dict[str, Any] = {"op": "write_constraint", "name": "x"}
    made = {"proposed": rule, "llm": add("health.Medication", 1)}
    for number, (origin, edit) in enumerate(made.items(), 2):
        assert loaded.head is not None
        loaded.head = make_checkpoint(
            loaded,
            number,
            seen_seq=5,
            origin=origin,
            edits=[edit],
            tree=loaded.head.tree,
            outline=loaded.head.outline,
        )
        loaded.save()
        answer = api.get(f"{USER}state/?by=occurred&as_of=2025-02-15")
        # A constraint changes no record.
        assert answer.status_code == (200 if origin == "proposed" else 409), answer.data

    assert answer.data["type"] == "urn:uac:problem:not-computable"
    assert "Version 3 (language model)" in answer.data["detail"]
    assert "Omit by=occurred" in answer.data["detail"]


def test_state_of_too_many_entries_is_refused(
    api: APIClient, loaded: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computed_states, "MAX_COMPUTED", 2)

    early, late = (
        api.get(f"{USER}state/?by=occurred&as_of={day}") for day in ("2025-02-05", "2025-05-01")
    )

    assert (early.status_code, late.status_code) == (200, 409)
    assert "More than 2 typed entries had occurred by then" in late.data["detail"]


def test_run_as_of_a_day_opens_nothing(api: APIClient, user: MemoryUser, work: Work) -> None:
    settle_rules(user, {"home_notice": NOTICE}, {"home": "2027-04-01"})
    path = f"{USER}constraints/home_notice/run/?wait=0"

    def found(**asked: str) -> list[str]:
        answer = api.post(path, asked)
        assert answer.status_code == 202, answer.data
        work()
        run = api.get(f"/v1/runs/{answer.data['id']}/").data
        assert (run["kind"], run["outcome"]) == ("constraint", "ok"), run["error"]
        return [alert["message"] for alert in run["output"]["alerts"]]

    assert found(at="2027-01-01") == []
    assert found(at="2027-03-12") == ["20 days are left"]
    assert found(as_of="v1", at="2027-03-02") == ["30 days are left"]
    assert not Alert.objects.exists()
    assert api.post(f"{USER}constraints/other/run/", {}).status_code == 404
    run = Run.objects.filter(kind=RunKind.CONSTRAINT).earliest("queued_at")
    assert run.output is not None
    assert (run.output["constraint"], run.output["applies"]) == ("constraints/home_notice.py", True)


def test_times_without_an_offset_are_where_the_user_lives(api: APIClient, user: MemoryUser) -> None:
    """In winter, Berlin is an hour ahead of UTC."""
    api.post(f"{USER}entries/", {**HISTORY[0], "occurred_at": "2025-01-10T10:00:00"})
    assert api.get(f"{USER}entries/1/").data["occurred_at"] == "2025-01-10T09:00:00Z"

    for text, hour in (("2025-01-10T10:00", 9), ("2025-01-10T10:00Z", 10)):
        moment = datetime.datetime(2025, 1, 10, hour, tzinfo=datetime.UTC)
        assert span_of(user, text) == Span(moment, moment)
    assert span_of(user, "2025-01-10").first == datetime.datetime(
        2025, 1, 9, 23, tzinfo=datetime.UTC
    )

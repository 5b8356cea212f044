"""`/v1/alerts/`: findings, with their evidence and history."""

import datetime

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from memory.alerts import feedback
from memory.alerts.findings import failure
from memory.alerts.models.alerts import Alert, Judge, PausedConstraint, Verdict
from memory.kernel.models.users import MemoryUser
from memory.project import Outline
from memory.project.errors import RunError
from tests.factories import make_checkpoint
from tests.integration.alerts.test_life import finding, record, run_finds

pytestmark = pytest.mark.django_db


@pytest.fixture
def alert(user: MemoryUser) -> Alert:
    run_finds(user, finding(record("m-1", 41), record("a-1", 3)))
    return Alert.objects.get(user=user)


def test_an_alert_leads_to_records_and_entries(api: APIClient, alert: Alert) -> None:
    (listed,) = api.get("/v1/users/ada/alerts/?state=open").data["results"]

    assert listed["id"] == str(alert.pk)
    assert listed["user_id"] == "ada"
    assert [item["key"] for item in listed["evidence"]] == ["m-1", "a-1"]
    assert listed["entries"] == [3, 41]
    assert api.get("/v1/alerts/").data["results"] == [listed]
    assert api.get("/v1/alerts/?severity=info").data["results"] == []
    assert api.get("/v1/users/ada/alerts/?state=resolved").data["results"] == []


def test_acknowledgement_and_resolution_keep_their_author(api: APIClient, alert: Alert) -> None:
    seen = api.post(f"/v1/alerts/{alert.pk}/acknowledge/", {"note": "on it"})
    assert (seen.status_code, seen.data["state"]) == (200, "acknowledged")

    closed = api.post(f"/v1/alerts/{alert.pk}/resolve/", {"reason": "told the person"})
    assert (closed.status_code, closed.data["state"]) == (200, "resolved")

    events = api.get(f"/v1/alerts/{alert.pk}/").data["events"]
    assert [event["kind"] for event in events] == ["opened", "acknowledged", "resolved"]
    assert events[1]["detail"] == {"note": "on it"}
    assert events[2]["detail"] == {"reason": "told the person"}
    assert events[2]["actor"].startswith("key:")


def test_a_resolved_alert_cannot_be_acknowledged_or_resolved(api: APIClient, alert: Alert) -> None:
    api.post(f"/v1/alerts/{alert.pk}/resolve/", {"reason": "done"})

    assert api.post(f"/v1/alerts/{alert.pk}/acknowledge/", {}).status_code == 409
    assert api.post(f"/v1/alerts/{alert.pk}/resolve/", {"reason": "again"}).status_code == 409
    assert alert.events.count() == 2


def test_an_alert_of_another_workspace_is_not_there(alert: Alert, stranger: APIClient) -> None:
    assert stranger.get(f"/v1/alerts/{alert.pk}/").status_code == 404
    assert stranger.post(f"/v1/alerts/{alert.pk}/resolve/", {"reason": "x"}).status_code == 404
    assert stranger.get(f"/v1/runs/{alert.last_run_id}/").status_code == 404
    assert stranger.get("/v1/alerts/").data["results"] == []
    alert.refresh_from_db()
    assert alert.state == "open"


# -- Snooze, reopen, feedback ------------------------------------------------------------------


def test_snoozed_until_a_moment_or_until_it_changes(api: APIClient, alert: Alert) -> None:
    until = timezone.now() + datetime.timedelta(days=3)
    address = f"/v1/alerts/{alert.pk}/snooze/"

    dated = api.post(address, {"until": until.isoformat(), "note": "holiday"})
    assert (dated.status_code, dated.data["state"]) == (200, "snoozed")
    assert datetime.datetime.fromisoformat(dated.data["snoozed_until"]) == until
    assert [row["id"] for row in api.get("/v1/alerts/?state=snoozed").data["results"]] == [
        str(alert.pk)
    ]
    assert api.get("/v1/alerts/?state=open").data["results"] == []

    undated = api.post(address, {})
    assert (undated.data["state"], undated.data["snoozed_until"]) == ("snoozed", None)
    assert undated.data["events"][-1]["detail"] == {"until": "it changes", "note": ""}

    back = api.post(f"/v1/alerts/{alert.pk}/reopen/", {"note": "too early"})
    assert (back.status_code, back.data["state"]) == (200, "open")
    assert [event["kind"] for event in back.data["events"]] == [
        "opened",
        "snoozed",
        "snoozed",
        "reopened",
    ]
    assert api.post(f"/v1/alerts/{alert.pk}/reopen/", {}).status_code == 409


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"until": "2020-01-01T00:00:00Z"}, "until", "already passed"),
        ({"until": "2999-01-01T00:00:00Z"}, "until", "366 days"),
        ({"until": "tomorrow"}, "until", "wrong format"),
        ({"until": 5}, "until", "a string"),
        ({"untill": "2027-01-01T00:00:00Z"}, "untill", "Unknown field"),
        ({"note": "x" * 2001}, "note", "2000"),
    ],
)
def test_a_snooze_that_makes_no_sense_is_refused(
    api: APIClient, alert: Alert, body: dict[str, object], field: str, words: str
) -> None:
    refused = api.post(f"/v1/alerts/{alert.pk}/snooze/", body)

    assert refused.status_code == 400
    assert words in str(refused.data["errors"][field])
    assert alert.events.count() == 1


def test_resolved_alert_is_only_reopened(api: APIClient, user: MemoryUser, alert: Alert) -> None:
    api.post(f"/v1/alerts/{alert.pk}/resolve/", {"reason": "done"})

    assert api.post(f"/v1/alerts/{alert.pk}/snooze/", {}).status_code == 409
    assert api.post(f"/v1/alerts/{alert.pk}/reopen/", {}).data["state"] == "open"
    run_finds(user)
    assert api.post(f"/v1/alerts/{alert.pk}/reopen/", {}).status_code == 409


def test_changed_feedback_counts_once(api: APIClient, user: MemoryUser, alert: Alert) -> None:
    address = f"/v1/alerts/{alert.pk}/feedback/"

    api.post(address, {"verdict": "wrong", "note": "no allergy at all"})
    api.post(address, {"verdict": "wrong", "note": "no allergy at all"})
    given = api.post(address, {"verdict": "useful"})
    feedback.give(alert, judge=Judge.STAFF, verdict=Verdict.WRONG, actor="staff:eve")

    assert [(row["judge"], row["verdict"]) for row in given.data["feedback"]] == [
        ("product", "useful")
    ]
    assert [event.kind for event in alert.events.order_by("seq")] == [
        "opened",
        "feedback",
        "feedback",
        "feedback",
    ]
    assert api.get("/v1/constraint-precision/").data["results"] == [
        {"constraint": alert.constraint, "useful": 1, "wrong": 1, "precision": 0.5}
    ]
    run_finds(user)
    assert api.post(address, {"verdict": "wrong"}).status_code == 200
    assert api.get("/v1/constraint-precision/").data["results"][0]["precision"] == 0.0


def test_feedback_is_one_of_two_words_and_about_findings(api: APIClient, user: MemoryUser) -> None:
    error = RunError(type="ZeroDivisionError", message="division by zero", line=7)
    run_finds(user, failure("constraints/allergy.py", error), completed=[])
    address = f"/v1/alerts/{Alert.objects.get(user=user).pk}/feedback/"

    assert "useful" not in api.post(address, {"verdict": "perhaps"}).data["errors"]
    assert api.post(address, {}).status_code == 400
    assert api.post(address, {"verdict": "useful"}).status_code == 409
    assert api.get("/v1/constraint-precision/?x=1").status_code == 400


def test_a_paused_constraint_is_listed_and_resumed(api: APIClient, user: MemoryUser) -> None:
    outline = Outline().with_constraint("allergy", "No allergy.").to_json()
    user.head = make_checkpoint(user, outline=outline)
    user.save()
    user.workspace.alerts_per_constraint = 2
    user.workspace.save()
    run_finds(user, *(finding(record(f"m-{number}")) for number in range(3)))

    (listed,) = api.get("/v1/paused-constraints/?resumed=false&user_id=ada").data["results"]
    assert (listed["constraint"], listed["user_id"]) == ("constraints/allergy.py", "ada")
    assert "3 alerts at once, more than 2" in listed["reason"]
    (constraint,) = api.get("/v1/users/ada/constraints/").data["results"]
    assert constraint["paused"]["id"] == listed["id"]
    assert constraint["feedback"] == {"useful": 0, "wrong": 0, "precision": None}

    address = f"/v1/paused-constraints/{listed['id']}/resume/"
    assert api.post(address, {}).status_code == 400
    resumed = api.post(address, {"reason": "the data were wrong"})
    assert (resumed.status_code, resumed.data["resumed_because"]) == (200, "the data were wrong")
    assert resumed.data["resumed_by"].startswith("key:")
    assert api.post(address, {"reason": "again"}).status_code == 409
    assert api.get("/v1/paused-constraints/?resumed=false").data["results"] == []
    assert len(api.get("/v1/paused-constraints/?resumed=true").data["results"]) == 1
    misspelt = api.get("/v1/paused-constraints/?resumed=yes")
    assert list(misspelt.data["errors"]) == ["resumed"]
    assert api.get("/v1/users/ada/constraints/").data["results"][0]["paused"] is None


def test_another_workspace_sees_and_resumes_nothing(
    user: MemoryUser, alert: Alert, stranger: APIClient
) -> None:
    feedback.give(alert, judge=Judge.STAFF, verdict=Verdict.USEFUL, actor="staff:eve")
    user.workspace.alerts_per_constraint = 2
    user.workspace.save()
    run_finds(user, *(finding(record(f"m-{number}")) for number in range(3)))
    paused = PausedConstraint.objects.get()

    assert stranger.get("/v1/paused-constraints/").data["results"] == []
    assert stranger.get("/v1/constraint-precision/").data["results"] == []
    for address, body in {
        f"/v1/paused-constraints/{paused.pk}/resume/": {"reason": "x"},
        f"/v1/alerts/{alert.pk}/snooze/": {},
        f"/v1/alerts/{alert.pk}/reopen/": {},
        f"/v1/alerts/{alert.pk}/feedback/": {"verdict": "wrong"},
    }.items():
        assert stranger.post(address, body).status_code == 404
    paused.refresh_from_db()
    assert paused.resumed_at is None

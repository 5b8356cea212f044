"""A finding of both a user's own and a workspace's constraint is one alert with two causes."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import hypothesis
import pytest
from django.core import mail
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.test import APIClient

from memory.alerts import (
    alert_actions,
    alert_redaction,
    duplicates,
    feedback,
    handover,
    reconcile,
    transitions,
)
from memory.alerts.delivery import webhook_messages
from memory.alerts.findings import ConstraintFinding
from memory.alerts.models.alerts import (
    LIVE_STATES,
    Alert,
    AlertEvent,
    AlertFeedback,
    AlertKind,
    AlertState,
    Judge,
    PausedConstraint,
    Severity,
    Verdict,
)
from memory.alerts.models.webhooks import Delivery, WebhookEndpoint
from memory.constraints import forecasts
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.texts import REDACTED
from memory.kernel.users import create_user
from memory.log.models.merges import Merge
from memory.operations import verification
from memory.privacy import user_erasure
from memory.recall import retrieval
from memory.versions import rollback
from tests.factories import make_checkpoint, make_run
from tests.integration.alerts.test_life import finding, record
from tests.integration.alerts.test_staff_mail import subscribe, tick
from tests.properties import examples
from workers import tasks
from workers.execution import outlook

pytestmark = pytest.mark.django_db

OWN = "constraints/allergy.py"
OURS = "workspace/constraints/drug_allergy.py"
BOTH = (OWN, OURS)
PENICILLIN = record("m-1", 41)
ASPIRIN = record("m-2", 42)
ALLERGY = record("a-1", 3)


def own(*evidence: dict[str, Any], **fields: Any) -> ConstraintFinding:
    return finding(*(evidence or (PENICILLIN, ALLERGY)), **{"constraint": OWN, **fields})


def ours(*evidence: dict[str, Any], **fields: Any) -> ConstraintFinding:
    told = {"constraint": OURS, "message": "Allergic to m-1"}
    return finding(*(evidence or (PENICILLIN, ALLERGY)), **{**told, **fields})


def run_finds(
    user: MemoryUser,
    *findings: ConstraintFinding,
    completed: Sequence[str] = BOTH,
    existing: Sequence[str] = BOTH,
) -> None:
    checkpoint = user.checkpoints.filter(version=1).first() or make_checkpoint(user, 1)
    assert reconcile.apply(make_run(checkpoint), findings, completed=completed, existing=existing)


def listed(user: MemoryUser) -> Alert:
    """Return the only alert in the user's list."""
    return Alert.objects.listed().get(user=user)


def told(user: MemoryUser) -> list[str]:
    """Return the events of the user's alerts, all of them together."""
    events = AlertEvent.objects.filter(alert__user=user).order_by("seq")
    return list(events.values_list("kind", flat=True))


def causes(alert: Alert) -> list[str]:
    return [cause.constraint for cause in alert.causes]


def test_finding_of_both_is_one_alert_with_two_causes(api: APIClient, user: MemoryUser) -> None:
    run_finds(user, own(), ours())

    [shown] = api.get("/v1/users/ada/alerts/").data["results"]
    assert shown["constraint"] == OWN
    assert [(one["constraint"], one["message"]) for one in shown["causes"]] == [
        (OWN, own().message),
        (OURS, ours().message),
    ]
    assert [one["fingerprint"] for one in shown["causes"]] == [
        own().fingerprint,
        ours().fingerprint,
    ]
    [news] = api.get("/v1/events/", {"after": "0"}).data["results"]
    assert [event["kind"] for event in news["events"]] == ["opened"]
    assert api.get(f"/v1/alerts/{shown['id']}/").data["causes"] == shown["causes"]
    duplicate = Alert.objects.get(user=user, constraint=OURS)
    assert api.get(f"/v1/alerts/{duplicate.pk}/").status_code == 404


def test_another_constraint_that_finds_it_later_is_a_cause_more(user: MemoryUser) -> None:
    run_finds(user, own())
    run_finds(user, own(), ours())

    assert causes(listed(user)) == [OWN, OURS]
    assert told(user) == ["opened", "changed"]
    detail = listed(user).events.get(kind="changed").detail
    assert detail == {"changed": ["causes"], "more": True}


@pytest.mark.parametrize("act", ["acknowledge", "snooze"])
def test_handled_alert_takes_no_duplicate(user: MemoryUser, act: str) -> None:
    """The person who dismissed the alert has not seen the other constraint's finding."""
    run_finds(user, own(message="Costs too much"))
    _do_by_hand(user, act)
    run_finds(user, own(message="Costs too much"), ours(message="Interaction may kill"))

    assert Alert.objects.listed().get(user=user, constraint=OURS).state == AlertState.OPEN
    assert "Interaction may kill" in retrieval.manifest(user).text


@pytest.mark.parametrize(
    "other",
    [
        ours(PENICILLIN, ASPIRIN),
        ours(severity=Severity.WARNING),
        ours(record("m-1", 41, 50), ALLERGY),
        own(constraint="constraints/other.py"),
    ],
    ids=["other records", "less severe", "other entries", "both of the user"],
)
def test_different_findings_are_separate_alerts(user: MemoryUser, other: ConstraintFinding) -> None:
    run_finds(user, own(), other, completed=(*BOTH, "constraints/other.py"))

    assert Alert.objects.listed().filter(user=user).count() == 2
    assert told(user) == ["opened", "opened"]


def test_without_records_nothing_tells_that_it_is_the_same(user: MemoryUser) -> None:
    run_finds(
        user,
        finding(constraint=OWN, key="visa"),
        finding(constraint=OURS, key="visa", message="The visa ends"),
    )

    assert Alert.objects.listed().filter(user=user).count() == 2


ENDS, RECALLED = "The prescription ends in 3 days", "Recalled by the manufacturer: stop taking it"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"message": "Ends on 27 May."}, {"message": "ends on 27 May"}),
        ({"message": ENDS, "key": "k"}, {"message": RECALLED, "key": "k"}),
    ],
    ids=["the same words", "the same key"],
)
def test_same_problem_of_one_record_is_one_alert(
    user: MemoryUser, one: dict[str, str], other: dict[str, str]
) -> None:
    run_finds(user, own(PENICILLIN, **one))
    for _ in range(2):
        run_finds(user, own(PENICILLIN, **one), ours(PENICILLIN, **other))
        assert causes(listed(user)) == [OWN, OURS]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Ends on 27 May.", "ends on 27 may!", True),
        ("Drug-allergy – penicillin", "drug allergy: Penicillin", True),
        ("Ends in 3 days", "Ends in 2 days", False),
        ("It is -3 degrees", "It is 3 degrees", False),
        ("Owes 3.5 €", "Owes 35 €", False),
        ("दवा की कमी", "दवा का कम", False),
    ],
)
def test_the_same_words(one: str, other: str, same: bool) -> None:
    assert duplicates.is_same_message(one, other) == same


@pytest.mark.parametrize("act", ["acknowledge", "snooze", "nothing"])
@pytest.mark.parametrize("severity", [Severity.WARNING, Severity.CRITICAL])
def test_duplicate_opens_when_listed_ends(user: MemoryUser, act: str, severity: Severity) -> None:
    """The other constraint may have more to report, whatever people did with the first alert."""
    run_finds(user, own(severity=Severity.WARNING), ours(severity=Severity.WARNING))
    first = listed(user)
    if act != "nothing":
        _do_by_hand(user, act)

    run_finds(user, ours(severity=severity), existing=[OURS])  # the user's own was deleted
    [live] = Alert.objects.listed().filter(user=user, state__in=LIVE_STATES)
    assert (live.constraint, live.state, live.severity) == (OURS, "open", severity)
    assert live.events.get().detail == {"severity": severity}
    assert first.events.latest("seq").detail == {"reason": "constraint deleted"}

    run_finds(user)
    assert not Alert.objects.filter(user=user, state__in=LIVE_STATES).exists()


def test_a_duplicate_that_names_no_record_any_more_is_listed(user: MemoryUser) -> None:
    run_finds(user, own(), ours(key="k"))
    run_finds(user, own(), finding(constraint=OURS, key="k", message="Something else"))

    assert Alert.objects.listed().get(user=user, constraint=OURS).message == "Something else"


def test_alert_continues_by_a_constraint_that_has_failed(user: MemoryUser) -> None:
    """A failed constraint reports no change: its earlier finding still holds."""
    run_finds(user, own(), ours())
    run_finds(user, completed=[OWN])

    [live] = Alert.objects.listed().filter(user=user, state__in=LIVE_STATES)
    assert (live.constraint, live.state) == (OURS, "open")


def test_a_listed_alert_that_gets_graver_still_tells_all(user: MemoryUser) -> None:
    run_finds(user, own(severity=Severity.INFO), ours(severity=Severity.INFO))
    run_finds(user, own(severity=Severity.CRITICAL), completed=[OWN])

    assert causes(listed(user)) == [OWN, OURS]
    assert told(user) == ["opened", "changed"]


def test_a_duplicate_that_is_found_graver_is_told_by_itself(user: MemoryUser) -> None:
    run_finds(user, own(severity=Severity.WARNING), ours(severity=Severity.WARNING))
    alert_actions.acknowledge(listed(user), actor="key:x")
    run_finds(user, own(severity=Severity.WARNING), ours(severity=Severity.CRITICAL))

    states = Alert.objects.listed().filter(user=user).values_list("constraint", "state")
    assert sorted(states) == [(OWN, "acknowledged"), (OURS, "open")]
    opened = AlertEvent.objects.get(alert__constraint=OURS)
    assert (opened.kind, opened.detail) == ("opened", {"severity": "critical"})


def test_a_cause_less_is_told(user: MemoryUser) -> None:
    run_finds(user, own(), ours())
    run_finds(user, own())

    assert causes(listed(user)) == [OWN]
    assert told(user) == ["opened", "changed"]
    detail = listed(user).events.get(kind="changed").detail
    assert detail == {"changed": ["causes"], "more": False}


def test_resolved_by_hand_both_are_held_back_and_reopened(user: MemoryUser) -> None:
    run_finds(user, own(), ours())
    alert_actions.resolve(listed(user), actor="key:x", reason="known")
    run_finds(user, own(), ours())
    assert not Alert.objects.filter(user=user, state__in=LIVE_STATES).exists()

    alert_actions.reopen(listed(user), actor="key:x")
    assert causes(listed(user)) == [OWN, OURS]
    assert told(user) == ["opened", "resolved", "reopened"]

    run_finds(user)
    assert listed(user).state == AlertState.RESOLVED


def test_a_duplicate_is_neither_escalated_nor_counted(api: APIClient, user: MemoryUser) -> None:
    run_finds(user, own(), ours())
    assert Alert.objects.get(constraint=OURS).escalate_at is None
    Alert.objects.filter(constraint=OWN).update(escalate_at="2020-01-01T00:00Z")

    assert alert_actions.escalate(10) == 1
    assert told(user) == ["opened", "escalated"]
    assert [alert.constraint for alert in retrieval.open_alerts(user)] == [OWN]
    assert ours().message in retrieval.manifest(user).text


@pytest.mark.parametrize("path", BOTH)
def test_alert_is_found_by_each_constraint(api: APIClient, user: MemoryUser, path: str) -> None:
    run_finds(user, own(), ours())
    run_finds(user, own(), ours(), finding(ASPIRIN, constraint="constraints/other.py"))

    found = api.get("/v1/users/ada/alerts/", {"constraint": path}).data["results"]
    assert [one["id"] for one in found] == [str(Alert.objects.get(constraint=OWN).pk)]


@pytest.mark.parametrize("path", BOTH)
def test_subscriber_sees_findings_end(api: APIClient, user: MemoryUser, path: str) -> None:
    """The user's own constraint, which the alert is listed for, is deleted."""
    run_finds(user, own(), ours())
    copy: dict[str, str] = {}
    after = "0"
    for findings, existing in (([own(), ours()], BOTH), ([ours()], [OURS])):
        run_finds(user, *findings, existing=existing)
        news = api.get("/v1/events/", {"constraint": path, "after": after}).data
        copy |= {one["id"]: one["state"] for one in news["results"]}
        after = str(news["next"])

    alert = Alert.objects.get(user=user, constraint=OWN)
    assert copy.pop(str(alert.pk)) == "resolved"
    heirs = Alert.objects.filter(user=user, constraint=OURS) if path == OURS else []
    assert copy == {str(one.pk): "open" for one in heirs}
    # That alert is not among the constraint's current findings.
    found = api.get("/v1/alerts/", {"constraint": path}).data["results"]
    assert [one["constraint"] for one in found] == [path]


def test_a_verdict_stays_with_the_constraint_that_it_was_of(user: MemoryUser) -> None:
    run_finds(user, own(), ours())
    feedback.give(listed(user), judge=Judge.PRODUCT, verdict=Verdict.WRONG, actor="key:x")
    run_finds(user, ours(), existing=[OURS])

    assert feedback.count_verdicts(AlertFeedback.objects.all()).keys() == {OWN}


def test_a_snoozed_alert_puts_off_its_live_duplicate_alone(user: MemoryUser) -> None:
    run_finds(user, own(), ours())
    alert_actions.snooze(listed(user), actor="key:x", until=None)
    assert set(outlook.put_off(user)) == {own().fingerprint, ours().fingerprint}

    run_finds(user, own())
    assert outlook.put_off(user) == [own().fingerprint]


@pytest.mark.parametrize(
    "findings",
    [
        [own(), ours()],
        [own()],
        [own(), ours(severity=Severity.CRITICAL)],
        [own(), ours(ASPIRIN)],
        [own(PENICILLIN, ASPIRIN), ours(ASPIRIN, PENICILLIN)],
        [own(PENICILLIN, ASPIRIN), ours()],
        [own(key="a"), own(key="b")],
        [own(key="a"), own(key="b"), ours(key="c")],
        [own(key="a"), own(key="b"), ours(key="c"), ours(key="d")],
        [own(PENICILLIN), ours(PENICILLIN)],
        [own(PENICILLIN, key="a"), ours(PENICILLIN, key="a")],
        [own(PENICILLIN, key="a"), ours(PENICILLIN, key="b")],
    ],
)
def test_a_forecast_tells_as_many_events_as_there_are_alerts(
    user: MemoryUser, findings: list[ConstraintFinding]
) -> None:
    run_finds(user, *findings)
    events = [
        {
            "at": "2027-05-02T04:00:00+00:00",
            "kind": "opens",
            "constraint": one.constraint,
            "severity": one.severity,
            "fingerprint": one.fingerprint,
            "key": one.key,
            "records": [record["key"] for record in one.evidence],
        }
        for one in findings
    ]

    told = [
        {cause["constraint"] for cause in event["causes"]} for event in forecasts.add_causes(events)
    ]

    listed = Alert.objects.listed().filter(user=user)
    alerts_ = [{cause.constraint for cause in alert.causes} for alert in listed]
    assert sorted(map(sorted, told)) == sorted(map(sorted, alerts_))


@pytest.mark.parametrize(
    "changes",
    [
        {"severity": "info"},
        {"evidence": []},
        {"state": "resolved", "resolved_at": timezone.now(), "escalate_at": None},
    ],
)
def test_uncovered_duplicate_is_reported(user: MemoryUser, changes: dict[str, Any]) -> None:
    run_finds(user, own(), ours())
    assert not [one for one in verification.problems(user) if "is not listed" in str(one)]
    Alert.objects.filter(constraint=OWN).update(**changes)

    [problem] = [one for one in verification.problems(user) if "is not listed" in str(one)]
    assert str(Alert.objects.get(constraint=OURS).pk) in str(problem)


def test_erasure_sends_nothing_of_duplicate(
    user: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This must hold whichever of the two rows is emptied and reported first."""
    WebhookEndpoint.objects.create(workspace=user.workspace, url="https://example.org/")
    run_finds(user, own(), ours())
    monkeypatch.setattr(user_erasure, "BATCH", 1)
    row = user_erasure.ask(user, by="staff:x", reason="asked")
    tasks.work("erasures", str(row.pk))

    payloads = Delivery.objects.values_list("payload", flat=True)
    assert payloads
    for text in (ours().message, own().message, OWN, OURS):
        assert not [payload for payload in payloads if text in payload]


def test_mail_to_the_staff_names_both(user: MemoryUser) -> None:
    subscribe(user.workspace)
    run_finds(user, own(message="Costs too much"), ours(message="Interaction may kill"))
    tick()

    [sent] = mail.outbox
    assert "Costs too much / Interaction may kill" in sent.body
    assert f"{OWN}, {OURS}" in sent.body


def test_alert_shared_with_a_flapping_constraint_stays_open(user: MemoryUser) -> None:
    run_finds(user, own(), ours())
    alert_actions.acknowledge(listed(user), actor="key:x")
    flapping = ours(ASPIRIN, key="k9", severity=Severity.WARNING)
    for _ in range(4):
        run_finds(user, own(), ours(), flapping)
        run_finds(user, own(), ours())
    run_finds(user, flapping)

    assert PausedConstraint.objects.get().constraint == OURS
    critical = Alert.objects.listed().filter(user=user, severity=Severity.CRITICAL)
    live = critical.filter(kind=AlertKind.FINDING, state__in=LIVE_STATES)
    assert [(alert.constraint, alert.state) for alert in live] == [(OURS, "open")]


def test_going_on_by_a_duplicate_opens_nothing_that_could_be_too_much(user: MemoryUser) -> None:
    """If the constraint of many alerts is deleted, none is lost to the limit on openings."""
    user.workspace.openings_per_day = 8
    user.workspace.save()
    records = [record(f"m-{number}", number) for number in range(6)]
    run_finds(user, *(own(one) for one in records), *(ours(one) for one in records))
    run_finds(user, *(ours(one) for one in records), existing=[OURS])

    live = Alert.objects.listed().filter(user=user, kind=AlertKind.FINDING, state__in=LIVE_STATES)
    assert live.count() == 6
    assert not PausedConstraint.objects.exists()


def test_a_paused_constraint_does_not_silence_the_other(user: MemoryUser) -> None:
    user.workspace.alerts_per_constraint = 3
    user.workspace.save()
    run_finds(user, own(severity=Severity.WARNING), ours(severity=Severity.WARNING))
    many = [own(record(f"x-{number}", number)) for number in range(5)]
    run_finds(user, *many, ours(severity=Severity.WARNING))
    assert PausedConstraint.objects.get().constraint == OWN

    run_finds(user, ours(severity=Severity.CRITICAL))
    graver = Alert.objects.listed().get(user=user, severity=Severity.CRITICAL, constraint=OURS)
    assert graver.state == AlertState.OPEN


def test_silenced_duplicate_is_noted_on_listed_alert(
    user: MemoryUser,
) -> None:
    run_finds(user, own(), ours())
    run = make_run(user.checkpoints.get())
    reasons = {own().fingerprint: "entry 4", ours().fingerprint: "entry 4"}
    transitions.record_held_events(user, reasons, run)

    assert listed(user).events.latest("seq").detail["held"] == "entry 4"
    assert told(user) == ["opened", "changed"]


def _merge(user: MemoryUser, merged: MemoryUser, alerts: dict[str, Any]) -> None:
    rest: dict[str, Any] = {"alerts": alerts, "left_behind": [], "last_seq": 0, "due_at": None}
    Merge.objects.create(user=user, merged=merged, by="key:x", created_at=timezone.now(), **rest)


@pytest.mark.parametrize("state", ["acknowledged", "snoozed", "resolved"])
def test_merge_keeps_open_alert_apart_from_handled_one(user: MemoryUser, state: str) -> None:
    """The merged user's own constraint was dealt with; the workspace's had a separate alert."""
    bob = create_user(user.workspace, "bob", time_zone="Europe/Berlin", metadata=None)
    standing = {"alert": str(uuid.uuid4()), "until": None}
    alerts = {
        own().fingerprint: {**standing, "state": state},
        ours().fingerprint: {**standing, "state": "open"},
    }
    _merge(user, bob, alerts)
    for _ in range(2):
        run_finds(user, own(), ours())
        assert Alert.objects.listed().get(user=user, constraint=OURS).state == AlertState.OPEN


@pytest.mark.parametrize("act", ["acknowledge", "snooze", "resolve"])
def test_after_a_merge_what_was_put_away_alike_is_one_alert(user: MemoryUser, act: str) -> None:
    bob = create_user(user.workspace, "bob", time_zone="Europe/Berlin", metadata=None)
    run_finds(bob, own(), ours())
    known = listed(bob)
    _do_by_hand(bob, act)
    _merge(user, bob, handover.hand_over(bob, user))
    for _ in range(2):
        run_finds(user, own(), ours())
        assert causes(listed(user)) == [OWN, OURS]
        assert f"taken over from alert {known.pk} of bob" in str(
            listed(user).events.latest("seq").detail
        )

    alert_actions.reopen(listed(user), actor="key:x")
    duplicate = Alert.objects.get(user=user, constraint=OURS)
    assert (listed(user).state, duplicate.state, outlook.put_off(user)) == ("open", "open", [])
    assert told(user)[2:] == ["reopened"]


def test_redaction_takes_the_words_of_both(user: MemoryUser) -> None:
    run_finds(user, own(), ours())
    alert_redaction.redact(user, [41], None)

    assert {alert.message for alert in Alert.objects.filter(user=user)} == {REDACTED}
    assert told(user) == ["opened", "resolved"]


@pytest.mark.parametrize("resolved", [False, True], ids=["live", "resolved by hand"])
def test_redaction_of_listed_alert_keeps_the_other(user: MemoryUser, resolved: bool) -> None:
    both = [
        own(PENICILLIN, ASPIRIN, key="a", message="Allergic"),
        ours(PENICILLIN, ASPIRIN, key="b", message="Allergic"),
    ]
    run_finds(user, *both)
    run_finds(user, both[0], ours(PENICILLIN, key="b", message="Allergic"))
    if resolved:
        alert_actions.resolve(listed(user), actor="key:x", reason="known")
    alert_redaction.redact(user, [42], None)

    state = "resolved" if resolved else "open"
    for _ in range(2):
        assert Alert.objects.listed().get(user=user, constraint=OURS).state == state
        run_finds(user, ours(PENICILLIN, key="b", message="Allergic"))


def test_a_webhook_names_the_causes(user: MemoryUser) -> None:
    run_finds(user, own(), ours())
    message = webhook_messages.message(user, listed(user).events.get(), ())

    assert f'"constraint":"{OURS}","message":"Allergic to m-1"' in message


def test_going_back_to_a_version_resolves_only_what_no_constraint_finds(user: MemoryUser) -> None:
    make_checkpoint(user, 1)
    user.head = make_checkpoint(user, 2, tree={OWN: "0" * 64})
    user.save()
    run_finds(user, own(), ours(), own(ASPIRIN))

    resolving = rollback.excluded_by_restoring(user, 1).alerts
    assert [alert.evidence[0]["key"] for alert in resolving] == ["m-2"]


def test_staff_see_one_alert_of_both_constraints(admin_client: Client, user: MemoryUser) -> None:
    run_finds(user, own(), ours())
    duplicate = Alert.objects.get(constraint=OURS)

    pages = admin_client.get(reverse("admin:memory_alert_changelist"), {"q": OURS})
    assert list(pages.context["cl"].result_list) == [listed(user)]
    page = admin_client.get(reverse("admin:memory_alert_change", args=[listed(user).pk])).content
    assert OURS.encode() in page
    assert b"Allergic to m-1" in page
    missing = admin_client.get(reverse("admin:memory_alert_change", args=[duplicate.pk]))
    assert missing.status_code == 404


# -- Whatever happens ------------------------------------------------------------------------------

_found = st.tuples(
    st.sampled_from([Severity.INFO, Severity.CRITICAL]),
    st.sampled_from([[PENICILLIN], [PENICILLIN, ASPIRIN]]),
    st.sampled_from([ENDS, RECALLED]),
)
_said = st.dictionaries(st.sampled_from(["a", "b"]), _found, max_size=2)
_alike = _said.map(lambda said: (said, said))
_some = st.sets(st.sampled_from(BOTH), max_size=1)
_runs = st.tuples(_alike | st.tuples(_said, _said), _some, _some)
_by_hand = st.sampled_from(["acknowledge", "snooze", "resolve", "reopen"])


@hypothesis.settings(max_examples=examples(10))
@given(st.lists(_runs | _runs | _by_hand, min_size=2, max_size=8))
def test_every_finding_is_covered_by_a_listed_alert(steps: list[Any]) -> None:
    """After each run, the list has every finding that nobody has dismissed, as it was found."""
    workspace = Workspace.objects.create(name=f"workspace {uuid.uuid4().hex}")
    user = create_user(workspace, "ada", time_zone="Europe/Berlin", metadata=None)
    for step in steps:
        if isinstance(step, str):
            _do_by_hand(user, step)
            continue
        said_by_both, failing, deleted = step
        existing = [path for path in BOTH if path not in deleted]
        findings = [
            finding(*evidence, constraint=path, key=key, severity=severity, message=message)
            for path, said in zip(BOTH, said_by_both, strict=True)
            if path in existing and path not in failing
            for key, (severity, evidence, message) in said.items()
        ]
        completed = [path for path in existing if path not in failing]
        run_finds(user, *findings, completed=completed, existing=existing)
        _check(user, findings)


def _do_by_hand(user: MemoryUser, name: str) -> None:
    alert = Alert.objects.listed().filter(user=user).order_by("-changed_at").first()
    more: dict[str, Any] = {"resolve": {"reason": "known"}, "snooze": {"until": None}}
    try:
        if alert is not None:
            getattr(alert_actions, name)(alert, actor="key:x", **more.get(name, {}))
    except alert_actions.AlertNotOpen:
        pass


def _check(user: MemoryUser, findings: Sequence[ConstraintFinding]) -> None:
    rows = {
        alert.fingerprint: alert
        for alert in Alert.objects.filter(user=user, kind=AlertKind.FINDING).order_by("opened_at")
        if alert.state != AlertState.RESOLVED or alert.holds_back
    }
    paused = {one.constraint for one in PausedConstraint.objects.filter(user=user)}
    keys = {one.fingerprint: one.key for one in findings if one.constraint not in paused}
    for one in findings:
        if one.constraint not in paused:
            row = rows[one.fingerprint]
            assert row.holds_back or (row.severity, _keys(row.evidence)) == (
                one.severity,
                _keys(one.evidence),
            )
    for row in rows.values():
        shown = row.duplicate_of or row
        assert shown.duplicate_of is None
        assert (shown.state in LIVE_STATES) == (row.state in LIVE_STATES)
        assert shown.rank >= row.rank or row.holds_back
        assert {*_keys(shown.evidence)} >= {*_keys(row.evidence)} or row.holds_back
        assert shown.holds_back == row.holds_back
        pair = [keys[one.fingerprint] for one in (shown, row) if one.fingerprint in keys]
        if len(set(pair)) == 2 and len(row.evidence) == 1 and row.state in LIVE_STATES:
            assert duplicates.is_same_message(shown.message, row.message)
    partners = [row.duplicate_of_id for row in rows.values() if row.duplicate_of_id]
    assert len(partners) == len(set(partners))
    for alert in Alert.objects.filter(user=user):
        kinds = list(alert.events.order_by("seq").values_list("kind", flat=True))
        assert bool(kinds) == (alert.duplicate_of is None)
        if kinds:
            assert kinds.count("opened") == 1
            assert kinds[0] == "opened"
            assert (alert.state == AlertState.RESOLVED) == (_last_state(kinds) == "resolved")
    assert not [one for one in verification.problems(user) if "alert" in str(one)]


def _last_state(kinds: Sequence[str]) -> str:
    return [kind for kind in kinds if kind in ("opened", "reopened", "resolved")][-1]


def _keys(evidence: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted(item["key"] for item in evidence)

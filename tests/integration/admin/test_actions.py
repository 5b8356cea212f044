"""Each action of the staff does what it says, reports it, and needs the right permission."""

import datetime
import html
import re
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import time_machine
from django.contrib.admin.models import LogEntry as StaffAction
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory.alerts import alert_actions
from memory.alerts.models.alerts import (
    Alert,
    AlertEvent,
    AlertEventKind,
    AlertKind,
    AlertState,
    PausedConstraint,
    Severity,
)
from memory.alerts.models.staff_mail import StaffSubscription
from memory.alerts.transitions import Step
from memory.kernel.models.pauses import Pause
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry
from memory.log.models.merges import Merge
from memory.log.models.redactions import Redaction
from memory.privacy.models import UserErasure
from memory.versions.models.checkpoints import Checkpoint
from tests.integration.admin.conftest import (
    Populate,
    Rows,
    Staff,
    act,
    add_url,
    list_url,
    messages_of,
    offered,
    page_url,
    shown,
    text_of,
)
from workers import tasks

pytestmark = pytest.mark.django_db


def history(alert: Alert) -> list[tuple[str, str]]:
    return [(event.kind, event.actor) for event in alert.events.order_by("id")]


# -- Alerts ------------------------------------------------------------------------------------


def test_acknowledging_alerts_says_who_saw_them(admin_client: Client, populate: Populate) -> None:
    first, second = populate(user_id="carol")[Alert], populate(user_id="bob")[Alert]

    response = act(admin_client, "acknowledge", first, second)

    assert messages_of(response) == ["2 alerts acknowledged."]
    for alert in (first, second):
        alert.refresh_from_db()
        assert alert.state == AlertState.ACKNOWLEDGED
        assert history(alert) == [("opened", "constraints"), ("acknowledged", "staff:admin")]


def test_acknowledging_twice_changes_nothing_and_says_so(admin_client: Client, rows: Rows) -> None:
    act(admin_client, "acknowledge", rows[Alert])

    response = act(admin_client, "acknowledge", rows[Alert])

    assert messages_of(response) == [
        "1 alert skipped: already acknowledged or resolved, or changed by somebody else since."
    ]
    assert [kind for kind, _ in history(rows[Alert])] == ["opened", "acknowledged"]


def resolve(client: Client, *rows: Model, **fields: str) -> Any:
    """Resolve alerts, and confirm it."""
    return act(client, "resolve", *rows, confirmed="1", **fields)


def test_resolving_asks_first_and_says_what_it_means(admin_client: Client, rows: Rows) -> None:
    asked = act(admin_client, "resolve", rows[Alert], note="told the person", from_page="1")

    assert history(rows[Alert]) == [("opened", "constraints")]
    words = shown(asked)
    assert "Resolve 1 alert?" in words
    assert "Aspirin" in words
    assert "To undo this, use Reopen on the alert’s page." in words
    assert page_url(rows[Alert]) in text_of(asked)  # the way back
    assert 'value="told the person"' in text_of(asked)


def test_more_alerts_than_anybody_reads_are_not_resolved_at_once(
    admin_client: Client, populate: Populate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.alerts.admin.alerts.MAX_LISTED", 1)
    chosen = [populate(user_id=name)[Alert] for name in ("carol", "bob")]

    response = act(admin_client, "resolve", *chosen)

    assert messages_of(response) == ["Nothing was done: select at most 1 alerts."]
    assert not Alert.objects.filter(state=AlertState.RESOLVED).exists()


def test_resolved_alert_is_reopened(admin_client: Client, rows: Rows) -> None:
    resolve(admin_client, rows[Alert])

    response = act(admin_client, "reopen", rows[Alert])

    assert messages_of(response) == ["1 alert reopened."]
    assert Alert.objects.get().state == AlertState.OPEN


def test_resolving_an_alert_closes_it(admin_client: Client, rows: Rows) -> None:
    response = resolve(admin_client, rows[Alert])

    assert messages_of(response) == ["1 alert resolved."]
    alert = Alert.objects.get()
    assert alert.state == AlertState.RESOLVED
    assert alert.resolved_at is not None
    assert history(alert)[-1] == ("resolved", "staff:admin")


def test_resolved_alerts_are_skipped(admin_client: Client, populate: Populate) -> None:
    first, second = populate(user_id="carol")[Alert], populate(user_id="bob")[Alert]
    alert_actions.resolve(first, actor="constraints", reason="no longer reported")

    response = resolve(admin_client, first, second)

    assert messages_of(response) == ["1 alert resolved.", "1 alert skipped: already resolved."]
    assert history(first)[-1] == ("resolved", "constraints")
    assert history(second)[-1] == ("resolved", "staff:admin")


def test_from_its_own_page_one_stays_there(admin_client: Client, rows: Rows) -> None:
    response = act(admin_client, "acknowledge", rows[Alert], from_page="1")

    assert response.redirect_chain == [(page_url(rows[Alert]), 302)]
    assert messages_of(response) == ["1 alert acknowledged."]


def test_the_page_offers_what_makes_sense(admin_client: Client, rows: Rows) -> None:
    """Each button stays in its place, and is disabled where its action makes no sense."""

    def on_page() -> tuple[list[str], list[str]]:
        response = admin_client.get(page_url(rows[Alert]))
        names = [one["name"] for tool in response.context["tools"] for one in tool["buttons"]]
        return names, offered(response)

    snoozes = [f"snooze_{how}" for how in ("for_a_day", "for_a_week", "until_it_changes", "until")]
    always = ["useful", "wrong", "add_note"]
    places, fitting = on_page()
    assert fitting == ["acknowledge", *snoozes, "resolve", *always, "take"]
    act(admin_client, "acknowledge", rows[Alert])
    act(admin_client, "take", rows[Alert])
    assert on_page() == (places, [*snoozes, "resolve", "reopen", *always, "release"])
    act(admin_client, "snooze_for_a_day", rows[Alert])
    assert on_page()[1] == ["acknowledge", "resolve", "reopen", *always, "release"]
    resolve(admin_client, rows[Alert])
    assert on_page() == (places, ["reopen", *always])
    Alert.objects.update(holds_back=False)
    assert on_page()[1] == always


def test_snoozing_until_a_moment_asks_for_one_that_is_to_come(
    admin_client: Client, rows: Rows
) -> None:
    assert "Until ( UTC )" in shown(act(admin_client, "snooze_until", rows[Alert]))
    later = timezone.now() + datetime.timedelta(days=3)

    for until, zone in (("", ""), ("2020-01-01T09:00", ""), (f"{later:%Y-%m-%dT%H:%M}", "Mars")):
        response = act(admin_client, "snooze_until", rows[Alert], until=until, zone=zone)
        assert "Nothing was done" in str(messages_of(response))
    moment = later.replace(second=0, microsecond=0)
    tokyo = moment.astimezone(ZoneInfo("Asia/Tokyo"))
    for zone, local in (("", moment), ("Asia/Tokyo", tokyo)):
        until = f"{local:%Y-%m-%dT%H:%M}"
        response = act(admin_client, "snooze_until", rows[Alert], until=until, zone=zone)
        assert messages_of(response) == ["1 alert snoozed."]
        assert Alert.objects.get().snoozed_until == moment


def test_a_note_is_an_action_of_its_own_and_changes_nothing_else(
    admin_client: Client, rows: Rows
) -> None:
    assert history(rows[Alert]) == [("opened", "constraints")]
    act(admin_client, "add_note", rows[Alert])  # asks for the note
    assert history(rows[Alert]) == [("opened", "constraints")]

    act(admin_client, "add_note", rows[Alert], note="called the doctor")

    assert history(rows[Alert])[-1] == ("noted", "staff:admin")
    assert Alert.objects.get().state == AlertState.OPEN
    assert "called the doctor" in shown(admin_client.get(page_url(rows[Alert])))


def test_who_takes_care_of_an_alert_is_shown_and_filtered(admin_client: Client, rows: Rows) -> None:
    assert messages_of(act(admin_client, "take", rows[Alert])) == ["1 alert taken."]

    assert Alert.objects.get().assigned_to == "admin"
    for owner, number in (("me", 1), ("nobody", 0), ("others", 0)):
        listed = admin_client.get(f"{list_url(Alert)}?owner={owner}").context["cl"].queryset
        assert listed.count() == number


def undo(client: Client, response: Any) -> Any:
    """Press the button *Undo* of the page's only message."""
    (message,) = map(str, response.context["messages"])
    (address,) = re.findall(r'formaction="([^"]*)"', message)
    fields: dict[str, list[str]] = {}
    for name, value in re.findall(r'name="([^"]*)" value="([^"]*)"', message):
        fields.setdefault(name, []).append(value)
    return client.post(html.unescape(address), fields, follow=True)


def states(*alerts: Alert) -> list[str]:
    """Return the alerts' present states, in their order."""
    return [Alert.objects.get(pk=alert.pk).state for alert in alerts]


def test_what_can_be_undone_is_undone_by_the_message(admin_client: Client, rows: Rows) -> None:
    acknowledged = act(admin_client, "acknowledge", rows[Alert], from_page="1")
    assert "1 alert acknowledged. For ada . Undo" in shown(acknowledged)

    response = undo(admin_client, acknowledged)

    assert response.redirect_chain == [(page_url(rows[Alert]), 302)]
    assert Alert.objects.get().state == AlertState.OPEN
    assert AlertEvent.objects.latest("seq").detail["reason"] == "undone"
    (message,) = response.context["messages"]
    assert "Undo" in str(message)


def test_undo_reopens_alerts_that_the_lists_filter_no_longer_shows(
    admin_client: Client, populate: Populate
) -> None:
    first, second = populate(user_id="carol")[Alert], populate(user_id="bob")[Alert]
    chosen = {"action": "acknowledge", "_selected_action": [str(first.pk), str(second.pk)]}
    open_alerts = f"{list_url(Alert)}?state__exact=open&severity__exact={first.severity}"
    both = Alert.objects.filter(pk__in=[first.pk, second.pk])
    response = admin_client.post(open_alerts, chosen, follow=True)
    assert set(both.values_list("state", flat=True)) == {AlertState.ACKNOWLEDGED}

    response = undo(admin_client, response)

    assert messages_of(response) == ["2 alerts reopened."]
    assert set(both.values_list("state", flat=True)) == {AlertState.OPEN}
    assert response.redirect_chain == [(open_alerts, 302)]


def add_notice_of_pause(alert: Alert) -> Alert:
    """Open an alert about a paused constraint for the user of another alert."""
    return Alert.objects.create(
        user=alert.user,
        kind=AlertKind.CONSTRAINT_PAUSED,
        constraint=alert.constraint,
        fingerprint="paused",
        severity=Severity.WARNING,
        message="too noisy",
        opened_at=timezone.now(),
        changed_at=timezone.now(),
    )


@pytest.mark.parametrize("action", ["acknowledge", "snooze_for_a_week"])
def test_undo_restores_every_alert_whatever_its_kind(
    admin_client: Client, rows: Rows, action: str
) -> None:
    both = rows[Alert], add_notice_of_pause(rows[Alert])

    response = undo(admin_client, act(admin_client, action, *both))

    assert messages_of(response) == ["2 alerts reopened."]
    assert states(*both) == [AlertState.OPEN, AlertState.OPEN]


def test_undo_says_of_how_many_alerts_it_undoes_an_act(admin_client: Client, rows: Rows) -> None:
    """A constraint is resumed when the notice of its pause is resolved, and stays so."""
    both = rows[Alert], add_notice_of_pause(rows[Alert])

    response = resolve(admin_client, *both)
    assert "2 alerts resolved. For ada . Undo 1 of 2" in shown(response)
    undo(admin_client, response)

    assert states(*both) == [AlertState.OPEN, AlertState.RESOLVED]


@pytest.mark.parametrize("has_escalated", [True, False])
@pytest.mark.parametrize("action", ["acknowledge", "snooze_for_a_day", "resolve"])
def test_undo_keeps_since_when_an_alert_is_open_and_its_escalation(
    admin_client: Client, rows: Rows, action: str, has_escalated: bool
) -> None:
    opened = timezone.now() - datetime.timedelta(minutes=20)
    Alert.objects.update(severity=Severity.CRITICAL, opened_at=opened, open_since=opened)
    alert = Alert.objects.get()
    alert.escalate_at = opened + datetime.timedelta(hours=1)
    if has_escalated:
        alert.escalate_at, alert.escalated_at = None, opened + datetime.timedelta(minutes=9)
    alert.save()
    news = admin_client.get(f"{list_url(Alert)}pulse/").json()

    undo(admin_client, act(admin_client, action, alert, from_page="1", confirmed="1"))

    assert admin_client.get(f"{list_url(Alert)}pulse/").json() == news
    undone = Alert.objects.get()
    for name in ("state", "open_since", "escalate_at", "escalated_at"):
        assert getattr(undone, name) == getattr(alert, name), name


def test_undo_escalates_an_alert_by_its_last_rise_in_severity(
    admin_client: Client, rows: Rows
) -> None:
    alert, rose = rows[Alert], timezone.now() - datetime.timedelta(minutes=5)
    Alert.objects.update(
        severity=Severity.CRITICAL, open_since=rose - datetime.timedelta(days=3), escalated_at=None
    )
    step = Step(alert.user, "run", at=rose)
    step.add_event(alert, AlertEventKind.CHANGED, changed=["severity"], graver=True)
    step.record()

    undo(admin_client, act(admin_client, "acknowledge", alert, from_page="1"))

    undone = Alert.objects.get()
    assert undone.escalate_at == rose + datetime.timedelta(hours=1)


def test_undo_leaves_what_a_colleague_has_done_since(
    admin_client: Client, populate: Populate
) -> None:
    first, second = populate(user_id="carol")[Alert], populate(user_id="bob")[Alert]
    acknowledged = act(admin_client, "acknowledge", first, second)
    tomorrow = timezone.now() + datetime.timedelta(days=1)
    alert_actions.snooze(first, actor="staff:colleague", until=tomorrow)

    undo(admin_client, acknowledged)

    assert states(first, second) == [AlertState.SNOOZED, AlertState.OPEN]


def test_undo_of_a_reopening_leaves_what_a_colleague_has_done_since(
    admin_client: Client, populate: Populate
) -> None:
    first, second = populate(user_id="carol")[Alert], populate(user_id="bob")[Alert]
    act(admin_client, "acknowledge", first, second)
    reopened = act(admin_client, "reopen", first, second)
    alert_actions.snooze(first, actor="staff:colleague", until=None)

    undo(admin_client, reopened)

    assert states(first, second) == [AlertState.SNOOZED, AlertState.ACKNOWLEDGED]


def test_reopening_gives_an_alert_its_time_until_it_escalates_again(
    admin_client: Client, rows: Rows
) -> None:
    long_ago = timezone.now() - datetime.timedelta(days=3)
    Alert.objects.update(severity=Severity.CRITICAL, open_since=long_ago, escalated_at=long_ago)
    act(admin_client, "acknowledge", rows[Alert])

    act(admin_client, "reopen", rows[Alert])

    alert = Alert.objects.get()
    assert alert.escalated_at is None
    assert alert.escalate_at is not None
    assert alert.escalate_at > timezone.now()


@pytest.mark.parametrize(
    ("action", "days"),
    [("snooze_for_a_day", 1), ("snooze_for_a_week", 7), ("snooze_until_it_changes", None)],
)
def test_snoozing_says_until_when_and_why(
    admin_client: Client, rows: Rows, action: str, days: int | None
) -> None:
    response = act(admin_client, action, rows[Alert], note="  on holiday ")

    assert messages_of(response) == ["1 alert snoozed."]
    alert = Alert.objects.get()
    assert alert.state == AlertState.SNOOZED
    if days is None:
        assert alert.snoozed_until is None
    else:
        assert alert.snoozed_until is not None
        left = alert.snoozed_until - timezone.now()
        assert days - 0.01 < left / datetime.timedelta(days=1) <= days
    assert alert.events.latest("seq").detail["note"] == "on holiday"
    assert history(alert)[-1] == ("snoozed", "staff:admin")

    assert messages_of(act(admin_client, "reopen", alert)) == ["1 alert reopened."]
    assert messages_of(act(admin_client, "reopen", alert)) == [
        "1 alert skipped: already open, no longer found, or changed by somebody else since."
    ]


def test_reason_is_kept_or_filled_in(admin_client: Client, populate: Populate) -> None:
    first, second = populate(user_id="carol")[Alert], populate(user_id="bob")[Alert]

    resolve(admin_client, first, note="told the person", from_page="1")
    resolve(admin_client, second)

    assert first.events.latest("seq").detail == {"reason": "told the person"}
    assert second.events.latest("seq").detail == {"reason": "resolved by staff"}


def test_staff_verdict_counts_as_precision(admin_client: Client, populate: Populate) -> None:
    first, second = populate(user_id="carol"), populate(user_id="bob")

    response = act(admin_client, "wrong", first[Alert], note="no such allergy")

    assert messages_of(response) == ["1 alert marked as wrong."]
    assert first[Alert].feedback.get().actor == "staff:admin"
    page = shown(admin_client.get(page_url(second[Alert])))
    assert "50% (1 of 2)" in page
    assert "50% (1 of 2)" in shown(admin_client.get(page_url(first[Workspace])))
    assert "no such allergy" in shown(admin_client.get(page_url(first[Alert])))
    assert "paused" in shown(admin_client.get(page_url(first[MemoryUser])))


def test_resuming_a_constraint_says_who_and_why(admin_client: Client, rows: Rows) -> None:
    response = act(admin_client, "resume", rows[PausedConstraint], note="looked into it")

    assert messages_of(response) == ["1 constraint resumed."]
    paused = PausedConstraint.objects.get()
    assert (paused.resumed_by, paused.resumed_because) == ("staff:admin", "looked into it")
    assert messages_of(act(admin_client, "resume", paused)) == [
        "1 constraint skipped: already resumed."
    ]


def test_an_alert_about_a_paused_constraint_says_for_whom_and_leads_to_the_pause(
    admin_client: Client, rows: Rows
) -> None:
    paused = rows[PausedConstraint]
    Alert.objects.update(
        kind=AlertKind.CONSTRAINT_PAUSED, constraint=paused.constraint, evidence=[]
    )

    page = admin_client.get(page_url(rows[Alert]))
    assert "For ada alone. Resume the constraint" in shown(page)
    assert f'href="{page_url(paused)}"' in text_of(page)
    assert "cited no records" not in shown(page)

    act(admin_client, "resume", paused)
    assert "The constraint has been resumed." in shown(admin_client.get(page_url(rows[Alert])))


def test_all_times_on_an_alerts_page_are_in_its_users_zone(
    admin_client: Client, rows: Rows
) -> None:
    late = datetime.datetime(2026, 3, 1, 23, 30, tzinfo=datetime.UTC)
    Alert.objects.update(opened_at=late, open_since=late)
    rows[Alert].events.update(at=late)

    words = shown(admin_client.get(page_url(rows[Alert])))

    assert words.count("2026-03-02 00:30") == 3  # the facts, the times and the history
    assert "2026-03-01 23:30:00" not in words


def test_viewer_resumes_nothing(staff: Staff, rows: Rows) -> None:
    act(staff("view_pausedconstraint"), "resume", rows[PausedConstraint])

    assert PausedConstraint.objects.get().resumed_at is None


def test_subscription_needs_an_address_and_starts_now(admin_client: Client, rows: Rows) -> None:
    fields = {
        "enabled": "on",
        "least_severity": "warning",
        "mode": "daily",
        "hour": "7",
        "time_zone": "Europe/Berlin",
    }
    nobody = User.objects.create(username="nobody", is_staff=True)
    refused = admin_client.post(add_url(StaffSubscription), {**fields, "staff": nobody.pk})
    assert "no e-mail address" in shown(refused)

    staff = rows[StaffSubscription].staff
    admin_client.post(add_url(StaffSubscription), {**fields, "staff": staff.pk})

    added = StaffSubscription.objects.get(mode="daily")
    assert added.workspace is None
    assert added.digest_due_at is not None
    assert added.digest_due_at > timezone.now()
    assert added.cursors.get().seq == 1
    for field, value, words in (("hour", "24", "23"), ("time_zone", "Mars/Base", "IANA")):
        wrong = admin_client.post(
            add_url(StaffSubscription), {**fields, "staff": staff.pk, field: value}
        )
        assert words in shown(wrong)


def test_viewer_of_alerts_cannot_act(staff: Staff, rows: Rows) -> None:
    client = staff("view_alert")

    for action in ("acknowledge", "resolve"):
        act(client, action, rows[Alert], confirmed="1")
        act(client, action, rows[Alert], confirmed="1", from_page="1")

    assert history(rows[Alert]) == [("opened", "constraints")]
    assert Alert.objects.get().state == AlertState.OPEN
    assert offered(client.get(page_url(rows[Alert]))) == []


def test_editor_of_alerts_can_act(staff: Staff, rows: Rows) -> None:
    act(staff("view_alert", "change_alert"), "acknowledge", rows[Alert])

    assert history(rows[Alert])[-1] == ("acknowledged", "staff:eve")


# -- Work --------------------------------------------------------------------------------------


def test_trying_again_forgets_the_wait(admin_client: Client, rows: Rows) -> None:
    lane = rows[Lane]
    later = timezone.now() + datetime.timedelta(hours=1)
    Lane.objects.filter(pk=lane.pk).update(run_after=later, hinted_at=timezone.now())

    response = act(admin_client, "try_now", lane)

    assert messages_of(response) == ["1 lane will be retried now."]
    lane.refresh_from_db()
    assert lane.run_after <= timezone.now()
    assert lane.hinted_at is None


def test_where_nothing_waits_nothing_is_tried(admin_client: Client, rows: Rows) -> None:
    idle = Lane.objects.get(user=rows[MemoryUser], name=LaneName.STRUCTURE)
    later = timezone.now() + datetime.timedelta(hours=1)
    Lane.objects.filter(pk=idle.pk).update(run_after=later, due_at=None)

    response = act(admin_client, "try_now", idle)

    assert messages_of(response) == ["1 lane skipped: nothing is pending."]
    assert Lane.objects.get(pk=idle.pk).run_after == later


def test_viewer_of_lanes_cannot_retry(staff: Staff, rows: Rows) -> None:
    later = timezone.now() + datetime.timedelta(hours=1)
    Lane.objects.update(run_after=later)

    act(staff("view_lane"), "try_now", rows[Lane])

    assert set(Lane.objects.values_list("run_after", flat=True)) == {later}


def structure_lane(rows: Rows) -> Lane:
    return Lane.objects.get(user=rows[MemoryUser], name=LaneName.STRUCTURE)


def test_the_model_may_be_told_to_work_now(
    admin_client: Client, rows: Rows, settings: Settings
) -> None:
    settings.UAC_LLM_MODEL, settings.UAC_LLM_API_KEY = "openai:gpt-5-mini", "sk-of-the-server"
    later = timezone.now() + datetime.timedelta(hours=1)
    Lane.objects.update(due_at=later, run_after=later, hinted_at=timezone.now())

    response = act(admin_client, "work_on_it_now", rows[MemoryUser])

    assert messages_of(response) == ["The entries of 1 user will be processed now."]
    lane = structure_lane(rows)
    assert lane.due_at is not None
    assert max(lane.due_at, lane.run_after) <= timezone.now()
    assert lane.hinted_at is None
    records = Lane.objects.get(user=rows[MemoryUser], name=LaneName.RECORDS)
    assert (records.due_at, records.run_after) == (later, later)
    told = StaffAction.objects.get().change_message
    assert told == "Had the language model process the entries now."


def test_stopped_model_is_explained_when_asked_to_work(
    admin_client: Client, rows: Rows, settings: Settings
) -> None:
    settings.UAC_LLM_MODEL = ""

    response = act(admin_client, "work_on_it_now", rows[MemoryUser])

    assert messages_of(response) == [
        "The entries of 1 user will be processed now.",
        "The language model's work is stopped: No language model is configured. Set UAC_LLM_MODEL,"
        " or choose a model for the workspace.",
    ]


def test_where_nothing_was_said_the_model_has_no_work(admin_client: Client, rows: Rows) -> None:
    def on_page() -> list[str]:
        return offered(admin_client.get(page_url(rows[MemoryUser])))

    assert on_page() == ["work_on_it_now", "backtest_constraints", "pause", "erase"]
    Lane.objects.filter(name=LaneName.STRUCTURE).update(due_at=None)
    assert on_page() == ["backtest_constraints", "pause", "erase"]

    response = act(admin_client, "work_on_it_now", rows[MemoryUser])

    assert messages_of(response) == ["1 user skipped: nothing is pending."]
    assert structure_lane(rows).due_at is None
    assert not StaffAction.objects.exists()


@pytest.mark.parametrize("scope", [MemoryUser, Workspace])
def test_the_model_does_not_work_while_work_is_paused(
    admin_client: Client, rows: Rows, scope: type[Model]
) -> None:
    later = timezone.now() + datetime.timedelta(hours=1)
    Lane.objects.update(due_at=later)
    Pause.objects.all().delete()
    act(admin_client, "pause", rows[scope], confirmed="1")

    assert "work_on_it_now" not in offered(admin_client.get(page_url(rows[MemoryUser])))
    response = act(admin_client, "work_on_it_now", rows[MemoryUser])

    assert messages_of(response) == [
        "1 user skipped: paused, so nothing is processed until work is resumed."
    ]
    assert structure_lane(rows).due_at == later
    assert not StaffAction.objects.exists()


def test_viewer_of_users_cannot_start_the_model(staff: Staff, rows: Rows) -> None:
    later = timezone.now() + datetime.timedelta(hours=1)
    Lane.objects.update(due_at=later)

    act(staff("view_memoryuser"), "work_on_it_now", rows[MemoryUser])

    assert structure_lane(rows).due_at == later


# -- Users -------------------------------------------------------------------------------------


@time_machine.travel("2026-03-01T12:00:00Z", tick=False)
def test_the_daily_run_moves_with_the_time_zone(admin_client: Client, rows: Rows) -> None:
    user = rows[MemoryUser]

    response = admin_client.post(
        page_url(user), {"time_zone": "Asia/Tokyo", "metadata": "{}"}, follow=True
    )

    assert any("changed successfully" in message for message in messages_of(response))
    user.refresh_from_db()
    assert user.time_zone == "Asia/Tokyo"
    assert user.metadata == {}
    # Six in the morning in Tokyo.
    assert user.constraints_due_at == datetime.datetime(2026, 3, 1, 21, tzinfo=datetime.UTC)


def test_a_time_zone_that_does_not_exist_is_refused(admin_client: Client, rows: Rows) -> None:
    user = rows[MemoryUser]

    response = admin_client.post(page_url(user), {"time_zone": "Mars/Olympus", "metadata": "{}"})

    assert "is not an IANA time zone" in response.content.decode()
    after = MemoryUser.objects.get(pk=user.pk)
    assert (after.time_zone, after.constraints_due_at, after.metadata) == (
        user.time_zone,
        user.constraints_due_at,
        user.metadata,
    )


def test_audit_of_user_action_has_no_name(admin_client: Client, populate: Populate) -> None:
    user = populate(user_id="lovelace")[MemoryUser]

    admin_client.post(page_url(user), {"time_zone": "Asia/Tokyo", "metadata": "{}"})

    action = StaffAction.objects.get()
    assert action.object_repr == f"user {user.public_id}"
    assert user.user_id not in f"{action.object_repr} {action.change_message}"
    assert action.user.username == "admin"


# -- Versions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("answer", "outcomes"), [({}, []), ({"dismiss": "1"}, ["dismissed"])])
def test_a_version_is_restored_after_it_is_said_what_that_leaves_out(
    admin_client: Client, user: MemoryUser, answer: dict[str, str], outcomes: list[str]
) -> None:
    for number in (1, 2):
        data = {"domain": "travel", "type": "Trip", "key": f"t{number}", "data": {"to": "Rome"}}
        entry_log.append(user, [Draft(kind=EntryKind.RECORD, data=data)], source="test")
        tasks.work("records", user.pk)
    first, second = Checkpoint.objects.filter(user=user).order_by("version")
    [entry] = LogEntry.objects.filter(user=user, seq=2)
    assert offered(admin_client.get(page_url(first))) == ["restore"]
    assert offered(admin_client.get(page_url(second))) == []

    asked = act(admin_client, "restore", first, note="told in error")
    assert "t2 in travel.trips" in shown(asked)
    assert page_url(entry) in text_of(asked)
    assert "admin sees all workspaces" in shown(asked), "who is asked is named as on every page"
    assert 'value="told in error"' in text_of(asked)
    assert Checkpoint.objects.filter(user=user).count() == 2
    response = act(admin_client, "restore", first, confirmed="1", note="told in error", **answer)

    assert messages_of(response) == ["Version 3 has the content of version 1."]
    user.refresh_from_db()
    assert user.head is not None
    assert (user.head.tree, user.head.origin) == (first.tree, "restored")
    restored = user.head.verdict["restored"]
    assert (restored["by"], restored["reason"]) == ("staff:admin", "told in error")
    found = EntryOutcome.objects.filter(user=user, seq=2)
    assert [one.outcome for one in found] == outcomes


def test_the_newest_version_or_several_are_not_restored(admin_client: Client, rows: Rows) -> None:
    user = rows[MemoryUser]
    user.refresh_from_db()
    assert user.head is not None
    before = Checkpoint.objects.count()
    assert before > 1

    one = act(admin_client, "restore", user.head)
    several = act(admin_client, "restore", *Checkpoint.objects.all())

    assert messages_of(one)[0].startswith("Nothing was done: Version")
    assert messages_of(several) == ["Nothing was done: select only one version."]
    assert Checkpoint.objects.count() == before


@pytest.mark.parametrize("model", [Redaction, UserErasure, Merge])
def test_requested_work_is_retried_now(
    admin_client: Client, staff: Staff, rows: Rows, model: type[Redaction | UserErasure | Merge]
) -> None:
    later = timezone.now() + datetime.timedelta(hours=1)
    work = rows[model]
    waiting: Any = model._default_manager.filter(pk=work.pk)
    waiting.update(due_at=timezone.now(), run_after=later, hinted_at=timezone.now())
    assert "try_now" in offered(admin_client.get(page_url(work)))

    act(staff(f"view_{model._meta.model_name}"), "try_now", work)
    assert waiting.get().run_after == later
    response = act(admin_client, "try_now", work)

    assert messages_of(response) == [f"1 {model._meta.verbose_name} will be retried now."]
    assert waiting.get().run_after <= timezone.now()
    assert waiting.get().hinted_at is None
    finished = {"finished_at": timezone.now()} if model is UserErasure else {}
    waiting.update(due_at=None, **finished)
    assert "try_now" not in offered(admin_client.get(page_url(work)))


@pytest.mark.parametrize("model", [MemoryUser, Workspace])
def test_pausing_asks_first_and_is_seen_on_the_page_and_in_lists(
    admin_client: Client, rows: Rows, model: type[MemoryUser | Workspace]
) -> None:
    Pause.objects.all().delete()
    MemoryUser.objects.filter(pk=rows[MemoryUser].pk).update(metadata={"name": "Hugo Blanc"})
    Workspace.objects.update(name_field="name")

    asked = act(admin_client, "pause", rows[model], note="on holiday")
    assert "no alert can open" in shown(asked)
    assert not Pause.objects.exists()
    act(admin_client, "pause", rows[model], note="on holiday", confirmed="1")

    pause = Pause.objects.get()
    assert (pause.reason, pause.paused_by) == ("on holiday", "staff:admin")
    page = shown(admin_client.get(page_url(rows[model])))
    assert re.search("paused since .* by staff:admin ?: on holiday ?. .*o alert can open", page)
    assert "user paused" in shown(admin_client.get(list_url(Alert)))
    [user] = admin_client.get(list_url(MemoryUser)).context["cl"].result_list
    assert user.is_paused
    if model is MemoryUser:
        assert f"({rows[MemoryUser].time_zone}) by staff:admin" in page
        assert "Hugo Blanc" in shown(admin_client.get(list_url(Pause)))

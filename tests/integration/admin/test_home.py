"""The front page: current problems, recent activity, and the rows behind each number."""

import copy
import datetime
import html
import re
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from memory.admin.home import MAX_WORST
from memory.admin.overview import PERIODS, RUN_ENDINGS
from memory.alerts.models.alerts import Alert, AlertState, Severity
from memory.alerts.models.webhooks import WebhookEndpoint
from memory.kernel import pauses
from memory.kernel.models.hosts import SandboxHost
from memory.kernel.models.operations import Alarm, Heartbeat
from memory.kernel.models.pauses import Pause
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.staff.models import StaffAccess, StaffAudit
from memory.llm.models import LlmCall, LlmOutcome, LlmPurpose, LlmSpending
from memory.log.models.entries import EntryOutcome, Outcome
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus, RunTrigger
from tests.factories import make_checkpoint
from tests.integration.admin.conftest import (
    Populate,
    Rows,
    list_url,
    page_url,
    rows_at,
    shown,
    text_of,
)
from tests.integration.admin.test_hostile import HOSTILE

pytestmark = pytest.mark.django_db


@pytest.fixture
def rows(populate: Populate) -> Rows:
    """Rows of one person with work in progress, made for each test: all rows are counted."""
    rows = populate()
    Pause.objects.all().delete()
    return rows


def home(client: Client, period: str = "day") -> Mapping[str, Any]:
    found: Mapping[str, Any] = client.get("/admin/", {"period": period}).context["home"]
    return found


def chart(client: Client, name: str, period: str = "day") -> Any:
    return next(one for one in home(client, period)["charts"] if one.name == name)


def ended(user: MemoryUser, outcome: RunOutcome, ago: datetime.timedelta) -> Run:
    moment = timezone.now() - ago
    return Run.objects.create(
        user=user,
        kind=RunKind.QUERY,
        trigger=RunTrigger.API,
        instant=moment,
        status=RunStatus.DONE,
        outcome=outcome,
        finished_at=moment,
    )


def hours(number: float) -> datetime.timedelta:
    return datetime.timedelta(hours=number)


# -- A new server ------------------------------------------------------------------------------


def test_a_new_server_says_that_there_is_nothing_yet(admin_client: Client) -> None:
    words = shown(admin_client.get("/admin/"))

    for told in (
        "Server OK",
        "No open alerts",
        "The dispatcher has not run yet.",
        "There are no live alerts.",
        "No work is waiting for a worker, and none is stuck.",
        "No sandbox worker is running",
        "Nothing in this period.",
        "The last 24 hours",
        "All times and days are in UTC",
    ):
        assert told in words
    assert 'class="chart"' not in text_of(admin_client.get("/admin/"))


def test_seven_rooms_lead_to_all_lists_and_the_room_of_the_reader_shows_its_own(
    admin_client: Client, staff: Callable[..., Client]
) -> None:
    rooms = admin_client.get("/admin/").context["available_apps"]

    assert len(rooms) == 7
    lists = [row["admin_url"] for room in rooms for row in [*room["models"], *room["machinery"]]]
    assert len(lists) == len(set(lists)) == len(admin.site._registry)
    for room in rooms:
        page = text_of(admin_client.get(room["app_url"]))
        rail = page[page.index('id="rail"') : page.index("</nav>", page.index('id="rail"'))]
        assert all(f'href="{row["admin_url"]}"' in rail for row in room["models"])
    only = staff("view_alert").get("/admin/").context["available_apps"]
    assert [(room["name"], room["app_url"]) for room in only] == [("Alerts", list_url(Alert))]


# -- Now ---------------------------------------------------------------------------------------


def test_problems_come_first_and_link_their_alarm(admin_client: Client) -> None:
    raised = Alarm.objects.create(name="redis", detail=HOSTILE, raised_at=timezone.now())
    Alarm.objects.create(name="over", detail="was", cleared_at=timezone.now())

    page = text_of(admin_client.get("/admin/"))

    assert f"/admin/memory/alarm/{raised.pk}/change/" in page
    assert "Server OK" not in page
    assert "Server: 1 problem" in page
    assert "over</bdi>" not in page
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert page.index("redis") < page.index("Live alerts")


@pytest.mark.usefixtures("stopped")
def test_page_shows_the_last_dispatch(admin_client: Client) -> None:
    Heartbeat.objects.create(name="dispatcher", at=timezone.now() - hours(2))

    assert "The dispatcher last ran 2 h ago." in shown(admin_client.get("/admin/"))


def test_live_alerts_are_counted_by_severity_and_state(admin_client: Client, rows: Rows) -> None:
    for number, state in enumerate([AlertState.ACKNOWLEDGED, AlertState.RESOLVED, AlertState.OPEN]):
        Alert.objects.create(
            user=rows[MemoryUser],
            constraint="constraints/x.py",
            fingerprint=str(number),
            severity=Severity.WARNING,
            state=state,
            message="x",
            opened_at=timezone.now(),
            changed_at=timezone.now(),
            resolved_at=timezone.now() if state == AlertState.RESOLVED else None,
        )

    table = home(admin_client)["alerts"]["rows"]

    assert [(row["severity"], [one.text for one in row["numbers"]]) for row in table] == [
        ("critical", ["1", "0", "0"]),
        ("warning", ["1", "1", "0"]),
        ("info", ["0", "0", "0"]),
    ]
    for row in table:
        for one, of in zip(row["numbers"], ["open", "acknowledged", "snoozed"], strict=True):
            if one.text == "0":
                assert one.url == ""
                continue
            found = rows_at(admin_client, one.url)
            assert len(found) == int(one.text)
            assert {(alert.severity, alert.state) for alert in found} == {(row["severity"], of)}


def test_work_numbers_link_their_rows(admin_client: Client, rows: Rows, settings: Any) -> None:
    # Given lanes of typed records: one waits, one is held, one fails; and a run that failed
    # permanently.
    user = rows[MemoryUser]
    Lane.objects.update(due_at=None)
    lane = Lane.objects.get(user=user, name=LaneName.RECORDS)
    now = timezone.now()
    Lane.objects.filter(pk=lane.pk).update(
        due_at=now - hours(1),
        run_after=now - hours(1),
        attempts=settings.UAC_STUCK_ATTEMPTS,
        lease_owner="",
        lease_expires_at=None,
    )
    dead = ended(user, RunOutcome.ABANDONED, hours(1))
    Run.objects.filter(pk=dead.pk).update(dead_since=now)

    work = {row["title"]: row for row in home(admin_client)["work"]}

    records = work["typed records"]
    assert [one.text for one in records["numbers"]] == ["1", "0", "1", "0"]
    assert records["oldest"].startswith("1 h")
    for place in (0, 2):
        assert rows_at(admin_client, records["numbers"][place].url) == [lane]
    assert work["runs"]["numbers"][3].tone == "bad"
    assert rows_at(admin_client, work["runs"]["numbers"][3].url) == [dead]
    # An unknown status, or one of another kind, does not filter.
    assert dead in rows_at(admin_client, "/admin/memory/run/?work=runs.nothing")
    assert dead in rows_at(admin_client, "/admin/memory/run/?work=records.dead")


def test_work_numbers_equal_their_rows(admin_client: Client, rows: Rows) -> None:
    links = [one for row in home(admin_client)["work"] for one in row["numbers"] if one.url]

    assert len(links) > 3
    assert any(int(link.text) for link in links)
    for link in links:
        assert len(rows_at(admin_client, link.url)) == int(link.text), link.url


def test_a_host_that_takes_no_work_says_why(admin_client: Client, rows: Rows) -> None:
    SandboxHost.objects.filter(pk=rows[SandboxHost].pk).update(
        # It counts as recently seen, however slow the machine is.
        seen_at="3000-01-01T00:00Z",
        report={"runner": "docker", "fresh": 3, "leases": 1, "problem": "no engine"},
    )

    words = shown(admin_client.get("/admin/"))

    assert "host of ada accepts no work no engine docker 2 3 1" in words


# -- Of late -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize("period", PERIODS)
def test_runs_are_counted_by_end_and_outcome(admin_client: Client, rows: Rows, period: str) -> None:
    Run.objects.filter(pk=rows[Run].pk).delete()
    user = rows[MemoryUser]
    step = PERIODS[period].length
    ended(user, RunOutcome.OK, hours(0))
    late = ended(user, RunOutcome.TIMEOUT, step)
    ended(user, RunOutcome.OUT_OF_MEMORY, step)
    ended(user, RunOutcome.OK, step * (PERIODS[period].number + 1))  # before all that

    series = {one.name: one for one in chart(admin_client, "runs", period).series}

    assert list(series) == list(RUN_ENDINGS)
    assert sum(series["ok"].numbers) == 1
    limits = series["sandbox limit exceeded"]
    [place] = [at for at, number in enumerate(limits.numbers) if number]
    assert limits.numbers[place] == 2
    found = rows_at(admin_client, limits.links[place])
    assert len(found) == 2
    assert late in found


def test_every_way_to_end_is_in_one_series() -> None:
    named = [outcome for outcomes in RUN_ENDINGS.values() for outcome in outcomes]

    assert sorted(named) == sorted(RunOutcome)


def test_every_bar_is_the_number_of_rows_it_leads_to(admin_client: Client, rows: Rows) -> None:
    make_checkpoint(rows[MemoryUser], 3)
    now = timezone.now()
    ended(rows[MemoryUser], RunOutcome.REJECTED, hours(0))
    Run.objects.filter(pk=rows[Run].pk).update(finished_at=now)

    led = 0
    for period in PERIODS:
        for name in ("alerts", "runs", "versions"):
            for one in chart(admin_client, name, period).series:
                for number, address in zip(one.numbers, one.links, strict=True):
                    if number:
                        assert len(rows_at(admin_client, address)) == number, address
                        led += 1
    # Alerts; accepted, proposals rejected, entries rejected; runs rejected and failed.
    assert led >= 6 * len(PERIODS)


def test_alerts_are_counted_by_day_and_severity(admin_client: Client, rows: Rows) -> None:
    alert = rows[Alert]
    Alert.objects.filter(pk=alert.pk).update(severity="critical", opened_at=timezone.now())
    late = copy.copy(alert)
    late.pk, late.fingerprint, late.severity = uuid.uuid4(), "f" * 64, Severity.WARNING
    late.opened_at = timezone.now() - hours(30)
    late.save(force_insert=True)

    of_day, of_week = (
        {one.name: one for one in chart(admin_client, "alerts", period).series}
        for period in ("day", "week")
    )

    assert list(of_day) == ["critical", "warning", "info"]
    assert [sum(one.numbers) for one in of_day.values()] == [1, 0, 0]
    assert [sum(one.numbers) for one in of_week.values()] == [1, 1, 0]


def test_rejected_entries_lead_to_their_outcomes(admin_client: Client, rows: Rows) -> None:
    series = {one.name: one for one in chart(admin_client, "versions").series}["entries rejected"]

    [(number, address)] = [
        (number, address)
        for number, address in zip(series.numbers, series.links, strict=True)
        if number
    ]
    assert number == 1
    assert rows_at(admin_client, address) == [rows[EntryOutcome]]
    assert rows[EntryOutcome].outcome == Outcome.REJECTED


@pytest.mark.parametrize("period", PERIODS)
def test_model_calls_are_counted_by_model(admin_client: Client, rows: Rows, period: str) -> None:
    call = rows[LlmCall]
    LlmCall.objects.filter(pk=call.pk).update(cost=Decimal("0.25"))
    LlmSpending.objects.update(cost=Decimal("0.25"))
    listed = LlmCall if period == "day" else LlmSpending

    found = home(admin_client, period)

    [workspace] = found["workspaces"]
    [model] = found["models"]
    for told, name in ((workspace, rows[Workspace].name), (model, call.model)):
        assert name in told["name"]
        assert (told["calls"].text, told["tokens_in"], told["tokens_out"], told["cost"]) == (
            *("1", "120", "30"),
            "0.250000",
        )
        [row] = rows_at(admin_client, told["calls"].url)
        assert isinstance(row, listed)
    tokens = chart(admin_client, "tokens", period)
    assert [sum(one.numbers) for one in tokens.series] == [120, 30]
    assert sum(chart(admin_client, "cost", period).series[0].numbers) == 0.25


@pytest.mark.parametrize("period", PERIODS)
def test_failed_model_calls_have_a_colour_of_their_own(
    admin_client: Client, rows: Rows, period: str
) -> None:
    for model in (LlmCall, LlmSpending):
        model._default_manager.update(outcome=LlmOutcome.UNAVAILABLE)

    answered, failed = chart(admin_client, "calls", period).series

    assert (sum(answered.numbers), sum(failed.numbers)) == (0, 1)
    assert failed.tone == "bad"
    [url] = [link for number, link in zip(failed.numbers, failed.links, strict=True) if number]
    assert len(rows_at(admin_client, url)) == 1


def test_spending_of_others_is_left_out(admin_client: Client, rows: Rows) -> None:
    other = Workspace.objects.create(name="other")
    LlmSpending.objects.create(
        workspace=other,
        day=timezone.now().date(),
        model="m",
        purpose=LlmPurpose.CHECK,
        outcome=LlmOutcome.OK,
        calls=5,
        input_tokens=1_000,
    )

    told = {row["name"]: row for row in home(admin_client, "week")["workspaces"]}

    [row] = rows_at(admin_client, told["<bdi>other</bdi>"]["calls"].url)
    assert row.workspace == other
    assert len(told) == 2


def test_chart_is_bars_and_a_table(admin_client: Client, rows: Rows) -> None:
    ended(rows[MemoryUser], RunOutcome.OK, hours(0))

    runs = chart(admin_client, "runs")
    page = text_of(admin_client.get("/admin/"))

    assert len(runs.steps) == 24
    [ok] = [bar for bar in runs.bars if ", ok: 1" in bar.name]
    assert (ok.tone, ok.y + ok.height) == ("good", pytest.approx(100, abs=0.02))
    # In the chart, and in the table below it.
    assert page.count(f'href="{html.escape(ok.url)}"') == 2


def test_the_period_is_in_the_address_and_anything_else_is_a_day(admin_client: Client) -> None:
    assert len(chart(admin_client, "runs", "month").steps) == 30
    assert home(admin_client, "xyzzy")["period"] == PERIODS["day"]
    assert 'href="?period=week" aria-current="true"' in text_of(
        admin_client.get("/admin/?period=week")
    )


# -- Who sees what -----------------------------------------------------------------------------


def test_viewer_of_runs_sees_runs_alone(staff: Callable[..., Client], rows: Rows) -> None:
    Alarm.objects.create(name="redis", detail="is gone", raised_at=timezone.now())

    client = staff("view_run")

    found = home(client)
    assert [one.name for one in found["charts"]] == ["runs"]
    assert (found["server"], found["alerts"]["total"], found["hosts"]) == ([], 0, [])
    assert {row["title"] for row in found["work"]} <= {"runs", "questions"}
    words = shown(client.get("/admin/"))
    for hidden in ("is gone", "Live alerts", "Sandbox hosts", rows[Workspace].name):
        assert hidden not in words


def test_the_front_page_is_cheap(
    admin_client: Client,
    populate: Populate,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    for number in range(5):
        populate("Aspirin", f"user-{number}")

    for period in PERIODS:
        with django_assert_max_num_queries(20):
            admin_client.get("/admin/", {"period": period})


def test_alert_content_is_masked_or_audited(
    admin_client: Client, staff: Callable[..., Client], populate: Populate
) -> None:
    populate("a secret of hers", "carol")
    Alarm.objects.all().delete()

    assert "a secret of hers" in shown(admin_client.get("/admin/"))
    person = MemoryUser.objects.get(user_id="carol").public_id
    assert StaffAudit.objects.filter(what="front page", person=person, model="pausedconstraint")
    seen = StaffAudit.objects.get(what="front page", model="alert")
    assert (seen.kind, seen.model, seen.person) == (
        "view",
        "alert",
        person,
    )
    words = shown(staff("view_alert", "view_memoryuser").get("/admin/"))
    assert "a secret of hers" not in words
    assert "for carol" in words


# -- It may not say that all is well -----------------------------------------------------------


def test_worst_alerts_come_first(admin_client: Client, rows: Rows) -> None:
    alert = rows[Alert]
    Alert.objects.filter(pk=alert.pk).update(
        severity=Severity.CRITICAL,
        opened_at=timezone.now() - hours(2),
        escalate_at=timezone.now() + hours(1),
    )
    found = home(admin_client)
    assert (found["tone"], found["open"]) == ("bad", [("critical", "1 critical alert")])
    words = shown(admin_client.get("/admin/"))
    assert re.search("open for 2 h ?, escalates in (1 h|59 min)", words), words

    answer = admin_client.post(
        list_url(Alert),
        {"action": "acknowledge", "from_page": "home", "_selected_action": alert.pk},
    )

    assert (answer.status_code, answer["Location"]) == (302, "/admin/")
    alert.refresh_from_db()
    assert alert.state == AlertState.ACKNOWLEDGED
    assert home(admin_client)["open"] == []


def test_alerts_that_escalate_first_come_first_and_the_rest_is_counted(
    admin_client: Client, rows: Rows
) -> None:
    alert = rows[Alert]
    Alert.objects.filter(pk=alert.pk).update(
        severity=Severity.CRITICAL, escalate_at=timezone.now() + hours(1)
    )
    for number in range(MAX_WORST):
        others = Alert.objects.get(pk=alert.pk)
        others.pk, others.fingerprint = uuid.uuid4(), f"{number:064}"
        others.opened_at, others.escalate_at = timezone.now(), timezone.now() + hours(2)
        others.save()

    found = home(admin_client)

    assert found["worst"][0]["key"] == alert.pk
    assert (len(found["worst"]), found["more"]) == (MAX_WORST, "1 critical")
    assert len(admin_client.get(found["more_url"]).context["cl"].result_list) == MAX_WORST + 1


def test_front_page_and_inbox_begin_with_what_has_escalated_or_will_first(
    admin_client: Client, rows: Rows
) -> None:
    now, alert = timezone.now(), rows[Alert]
    keys = [alert.pk, uuid.uuid4(), uuid.uuid4()]
    # The older an alert, the sooner it escalates.
    for number, key in enumerate(keys):
        alert.pk, alert.fingerprint = key, f"{number:064}"
        alert.severity, alert.opened_at = Severity.CRITICAL, now - hours(3 - number)
        alert.escalated_at = None if number else now
        alert.escalate_at = now + hours(number) if number else None
        alert.save()

    inbox = admin_client.get(list_url(Alert))

    assert [one.pk for one in inbox.context["cl"].result_list] == keys
    assert [one["key"] for one in home(admin_client)["worst"]] == keys
    assert re.findall("escalated|escalates in [0-9]+ ?(?:h|min)", shown(inbox)) == [
        *("escalated", "escalates in 59 min", "escalates in 1 h"),
    ]


def test_after_an_act_the_front_page_has_the_same_order(admin_client: Client, rows: Rows) -> None:
    alert = rows[Alert]
    Alert.objects.update(escalate_at=timezone.now() + hours(1))
    alert.refresh_from_db()
    alert.pk, alert.fingerprint, alert.escalate_at = uuid.uuid4(), "f" * 64, None
    alert.save()
    before = [one["key"] for one in home(admin_client)["worst"]]

    chosen = {"action": "acknowledge", "from_page": "home", "_selected_action": before[0]}
    after = admin_client.post(list_url(Alert), {**chosen, "shown": before}, follow=True)

    assert [one["key"] for one in after.context["home"]["worst"]] == before
    assert [one["key"] for one in home(admin_client)["worst"]] == before[1:]


def test_an_endpoint_that_fails_shows_from_the_first_failure(
    admin_client: Client, rows: Rows
) -> None:
    endpoint = rows[WebhookEndpoint]
    began_at = timezone.now() - datetime.timedelta(minutes=24, seconds=9)
    WebhookEndpoint.objects.filter(pk=endpoint.pk).update(enabled=True, failing_since=began_at)

    found = home(admin_client)

    assert found["tone"] == "bad"
    page = shown(admin_client.get("/admin/"))
    assert "have failed for 24 min . Waiting until one succeeds: 1 message." in page
    assert "Server: webhook calls fail" in page
    url = re.search(r'href="([^"]*)"', " ".join(found["failing"]))
    assert url is not None
    listed = admin_client.get(html.unescape(url[1])).context["cl"].queryset
    assert [one.pk for one in listed] == [endpoint.pk]


def test_people_are_named_where_staff_act_on_their_alerts(
    admin_client: Client, staff: Callable[..., Client], rows: Rows
) -> None:
    user, alert = rows[MemoryUser], rows[Alert]
    Workspace.objects.filter(pk=user.workspace_id).update(name_field="name")
    MemoryUser.objects.filter(pk=user.pk).update(metadata={"name": "Ada Lovelace"})
    Alert.objects.filter(pk=alert.pk).update(state=AlertState.OPEN)
    masked = staff("view_alert", "view_memoryuser")

    for address in ("/admin/", list_url(Alert), page_url(alert), f"/admin/search/?q={user}"):
        assert "Ada Lovelace · ada" in shown(admin_client.get(address)), address
        assert "Ada Lovelace" not in shown(masked.get(address)), address


def test_page_is_not_green_where_problems_are_hidden(
    staff: Callable[..., Client],
) -> None:
    assert home(staff("view_run"))["tone"] == "caution"


def test_a_model_that_fails_shows_from_the_first_failure(
    admin_client: Client, staff: Callable[..., Client], rows: Rows
) -> None:
    lane = Lane.objects.get(user=rows[MemoryUser], name=LaneName.STRUCTURE)
    Lane.objects.filter(pk=lane.pk).update(
        due_at=timezone.now(), attempts=1, last_error="The key was refused."
    )

    found = home(admin_client)
    assert found["tone"] == "bad"
    url = re.search(r'href="([^"]*)"', " ".join(found["failing"]))
    assert url is not None
    listed = admin_client.get(html.unescape(url[1])).context["cl"].queryset
    assert [one.pk for one in listed] == [lane.pk]
    person = page_url(rows[MemoryUser])
    assert "Language model failed: The key was refused." in shown(admin_client.get(person))
    hidden = staff("view_lane", "view_memoryuser").get(person)
    assert "Language model failed: (hidden)" in shown(hidden)


def test_a_paused_user_of_a_failing_model_is_told_apart(
    admin_client: Client, populate: Populate
) -> None:
    users = [populate(user_id=name)[MemoryUser] for name in ("ada", "bob", "cyd")]
    lanes = Lane.objects.filter(user__in=users, name=LaneName.STRUCTURE)
    lanes.update(due_at=timezone.now(), attempts=9, last_error="The key was refused.")
    pauses.pause(users[0], by="staff:eve", reason="on holiday")

    page = shown(admin_client.get("/admin/"))

    assert "The language model fails for 3 users (1 of them paused): what they say" in page
    assert "Server: model calls fail" in page


def test_a_model_that_fails_is_one_line_with_its_alarms(admin_client: Client, rows: Rows) -> None:
    lane = Lane.objects.filter(user=rows[MemoryUser], name=LaneName.STRUCTURE)
    lane.update(due_at=timezone.now(), attempts=9, last_error="The key was refused.")
    Alarm.objects.all().delete()
    for name in ("model: openai:clinic-model", "failing: structure"):
        Alarm.objects.create(name=name, detail="calls failed", raised_at=timezone.now())

    found = home(admin_client)

    assert (found["server"], found["problems"]) == ([], 2)
    [line] = found["failing"]
    for alarm in Alarm.objects.all():
        assert page_url(alarm) in line


def test_pauses_are_counted_and_linked(admin_client: Client, rows: Rows) -> None:
    user = rows[MemoryUser]
    pauses.pause(user, by="staff:eve", reason="on holiday")

    links = " ".join(home(admin_client)["paused"])
    assert page_url(user) in links
    assert "1 pause" in links
    assert "1 paused constraint" in links
    assert "resumed=no" in links


def test_account_without_workspaces_is_told_so(staff: Callable[..., Client], rows: Rows) -> None:
    client = staff("view_alert", "view_memoryuser")
    account = User.objects.get(pk=client.session["_auth_user_id"])
    StaffAccess.objects.filter(user=account).delete()

    words = shown(client.get("/admin/"))

    assert "Your account sees no workspace" in words
    assert "sees no workspace, without content" in words
    assert "There are no live alerts" not in words
    assert "No open alerts" not in words
    assert "Nothing in this period" not in words
    listed = shown(client.get(list_url(Alert)))
    assert "Your account sees no workspace" in listed
    assert "No constraint has raised an alert yet" not in listed

"""The time bar of a user's page: past days as the API's `as_of`, coming days as forecast."""

import datetime
import html
from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from memory.alerts.models.alerts import Alert
from memory.constraints.models.forecasts import Forecast
from memory.kernel.models.users import MemoryUser
from memory.kernel.staff.models import StaffAudit
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind
from memory.versions.models.checkpoints import Checkpoint, Origin, RecordLocation
from tests.factories import make_checkpoint
from tests.integration.admin.conftest import Populate, Say, page_url, rows_at, shown, text_of
from tests.integration.commits.conftest import trip

pytestmark = pytest.mark.django_db

NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
# The days on which a trip was booked and became dearer.
BOOKED, DEARER = (datetime.datetime(2020, 5, day, 12, tzinfo=datetime.UTC) for day in (1, 3))


def day(client: Client, user: MemoryUser, **asked: str) -> Any:
    return client.get(reverse("admin:memory_memoryuser_day", args=[user.pk]), asked)


@pytest.fixture
def booked(user: MemoryUser, say: Say) -> MemoryUser:
    """A user with a trip that was booked on one day, and cost more two days later."""
    say(trip("Rome", key="a", cost=100), occurred_at=BOOKED)
    say(trip("Rome", key="a", cost=250), occurred_at=DEARER)
    return user


def test_past_day_shows_its_records_and_files(admin_client: Client, booked: MemoryUser) -> None:
    for on, cost in (("2020-05-01", "100"), ("2020-05-02", "100"), ("2020-05-03", "250")):
        context = day(admin_client, booked, on=on, by="occurred").context["day"]
        [domain] = context["domains"]
        [table] = domain["tables"]
        assert cost in str(table["rows"])
        assert any("state.py" in str(file) and cost in str(file) for file in context["files"])
        assert context["bar"].first == BOOKED.date()
    assert StaffAudit.objects.filter(what="day", person=booked.public_id).count() == 3


def test_day_as_known_then_shows_the_version_of_that_day(
    admin_client: Client, booked: MemoryUser
) -> None:
    context = day(admin_client, booked).context["day"]

    assert (context["known"].version, context["known"].pending_count) == (2, 0)
    checkpoint = Checkpoint.objects.get(user=booked, version=2)
    files = reverse("admin:memory_checkpoint_project", args=[checkpoint.pk])
    assert any(files in str(file) for file in context["files"])
    # Nothing was recorded before today, and the way to what happened earlier is shown.
    bar = context["bar"]
    assert (bar.first, bar.day, bar.earlier) == (bar.today, bar.today, BOOKED.date())
    assert "?on=2020-05-01&by=occurred" in html.unescape(text_of(day(admin_client, booked)))


def test_a_day_before_the_first_recording_is_shown_by_the_entries_own_times(
    admin_client: Client, booked: MemoryUser
) -> None:
    page = day(admin_client, booked, on="2020-05-02")

    bar = page.context["day"]["bar"]
    assert (bar.by, bar.first, bar.day) == ("occurred", BOOKED.date(), datetime.date(2020, 5, 2))
    [domain] = page.context["day"]["domains"]
    assert "100" in str(domain["tables"][0]["rows"])
    assert "Nothing was recorded before" in shown(page)
    assert "nothing to show" not in shown(page)


def test_difference_of_two_days_has_old_and_new_values(
    admin_client: Client, booked: MemoryUser
) -> None:
    asked = {"on": "2020-05-03", "by": "occurred"}
    told = shown(day(admin_client, booked, since="2020-05-02", **asked))
    assert "Trip a in travel.trips was changed (from #2 ): cost changed from 100 to 250" in told
    told = shown(day(admin_client, booked, since="2020-05-01", **asked))
    assert "Trip a in travel.trips was added" in told
    assert "cost is 250" in told


def test_past_day_shows_the_alerts_of_that_day(admin_client: Client, populate: Populate) -> None:
    rows = populate()
    user, alert = rows[MemoryUser], rows[Alert]
    entry_log.append(
        user, [Draft(kind=EntryKind.MESSAGE, content="Hello", occurred_at=BOOKED)], source="test"
    )

    then = day(admin_client, user, on="2020-05-02", by="occurred")
    now = day(admin_client, user)

    assert [page_url(alert) in text_of(page) for page in (then, now)] == [False, True]


@pytest.mark.parametrize("on", ["2020-05-02", None])
def test_only_days_on_which_constraints_ran_have_no_alerts(
    admin_client: Client, booked: MemoryUser, on: str | None
) -> None:
    asked = {"on": on} if on else {}
    words = shown(day(admin_client, booked, by="occurred", **asked))

    assert ("There were no live alerts" in words) == (on is None)
    assert ("Not known: no constraint ran for this user before" in words) == (on is not None)


def test_a_day_that_cannot_be_computed_shows_the_log_up_to_it(
    admin_client: Client, booked: MemoryUser
) -> None:
    imported = make_checkpoint(booked, 3, origin=Origin.IMPORTED)
    MemoryUser.objects.filter(pk=booked.pk).update(head=imported)

    def entries(**asked: str) -> list[str]:
        found = day(admin_client, booked, by="occurred", **asked).context["day"]["entries"]
        return [f"{at} {words}" for at, words in found]

    page = day(admin_client, booked, on="2020-05-02", by="occurred")
    assert "domains" not in page.context["day"]
    assert "errornote" not in text_of(page)
    assert "The records of this day are unknown" in shown(page)
    assert "by=occurred." not in shown(page)
    [entry] = entries(on="2020-05-02")
    assert entry.startswith("2020-05-01")
    assert "cost: 100" in entry
    assert len(entries(on="2020-05-03")) == 2
    [entry] = entries(on="2020-05-03", since="2020-05-02")
    assert "cost: 250" in entry
    # What was known then can be shown only since something was known.
    today = page.context["day"]["bar"].today.isoformat()
    assert "by=recorded" not in text_of(page)
    assert f"?on={today}&by=recorded" in html.unescape(
        text_of(day(admin_client, booked, on=today, by="occurred"))
    )


def test_days_before_the_log_and_no_days_are_refused_or_ignored(
    admin_client: Client, populate: Populate
) -> None:
    user = populate()[MemoryUser]
    for asked in ("1999-01-01", "9999-12-31", "2026-02-31", "x", ""):
        assert day(admin_client, user, on=asked, since=asked).status_code == 200


def test_cards_show_fields_sources_and_the_way_to_other_records(
    admin_client: Client, user: MemoryUser, say: Say
) -> None:
    def big(key: str, fields: int) -> dict[str, Any]:
        data = {f"some_field_{number}": f"value-{number}" for number in range(fields)}
        return {"type": "Big", "key": key, "data": data}

    say(*(big(f"b-{number}", 10) for number in range(6)))
    say({"type": "Small", "key": "s", "data": {"name": "Ada"}})

    response = admin_client.get(page_url(user))

    tables = {
        table["name"]: table
        for domain in response.context["panel"]["day"]["domains"]
        for table in domain["tables"]
    }
    large, small = tables["bigs"], tables["smalls"]
    assert (large["is_wide"], small["is_wide"]) == (True, False)
    assert large["columns"] == [f"some field {number}" for number in range(8)]
    for value in ("value-7", "value-8", "value-9"):
        assert value in text_of(response)
    assert len(large["folded"]) == len(large["rows"]) == 4
    assert not small["folded"]
    assert (large["more"], small["more"]) == (2, 0)
    assert {row.key for row in rows_at(admin_client, large["url"])} == {
        f"b-{number}" for number in range(6)
    }
    assert f'<a href="{html.escape(large["url"])}">2 more</a>' in text_of(response)


def test_cards_and_records_show_times_in_the_users_time_zone(
    admin_client: Client, user: MemoryUser, say: Say
) -> None:
    moment = "2026-12-21T09:00:00+00:00"
    say({"type": "Visit", "key": "v", "data": {"starts_at": moment}})

    [domain] = admin_client.get(page_url(user)).context["panel"]["day"]["domains"]
    card = str(domain["tables"][0]["rows"])
    page = shown(admin_client.get(page_url(RecordLocation.objects.get(user=user))))

    for words in (card, page):
        assert "2026-12-21 10:00" in words
    assert moment not in card


# -- The forecast ----------------------------------------------------------------------------------


def forecast(user: MemoryUser, *events: tuple[str, str, str]) -> Forecast:
    """Store a forecast: when (a day or a moment), what, how severe."""
    timeline: list[dict[str, Any]] = [
        {
            "at": at if "T" in at else f"{at}T05:00:00+00:00",
            "day": None if "T" in at else at,
            "kind": kind,
            "constraint": "constraints/x.py",
            "severity": severity,
            "fingerprint": "f",
            "key": "k",
            "records": [],
            "error": None,
        }
        for at, kind, severity in events
    ]
    return Forecast.objects.create(
        user=user,
        checkpoint=make_checkpoint(user, user.checkpoints.count() + 1),
        computed_at=NOON,
        start=NOON,
        horizon_days=365,
        known_until=NOON + datetime.timedelta(days=365),
        timeline=timeline,
    )


@time_machine.travel(NOON, tick=False)
def test_coming_days_have_the_forecast_up_to_them(admin_client: Client, user: MemoryUser) -> None:
    forecast(
        user,
        ("2026-11-30", "opens", "warning"),
        ("2026-12-24", "resolves", "info"),
        ("2027-06-01", "opens", "critical"),
    )

    response = day(admin_client, user, on="2026-12-24")

    bar = response.context["day"]["bar"]
    assert bar.is_forecast
    assert bar.last == datetime.date(2027, 11, 20)
    assert [mark.css for mark in bar.marks if "foreseen" in mark.css] == [
        "foreseen info",
        "foreseen warning",
        "foreseen critical",
    ]
    assert len(response.context["day"]["events"]) == 2
    assert "An alert about k will be raised on 2026-11-30 warning x" in shown(response)


@time_machine.travel(NOON, tick=False)
def test_day_full_of_events_is_cut(admin_client: Client, user: MemoryUser) -> None:
    forecast(user, *[("2026-12-01", "opens", "info")] * 60)

    events = day(admin_client, user, on="2026-12-01").context["day"]["events"]

    assert (len(events), events[-1]) == (51, "10 more events")


@time_machine.travel(NOON, tick=False)
def test_forecast_event_has_the_alerts_message(
    admin_client: Client, staff: Callable[..., Client], populate: Populate
) -> None:
    rows = populate()
    user, alert = rows[MemoryUser], rows[Alert]
    Alert.objects.filter(pk=alert.pk).update(fingerprint="f", message="It expires")
    Forecast.objects.all().delete()
    MemoryUser.objects.filter(pk=user.pk).update(alerts_instant=None)
    forecast(
        user, ("2026-11-30", "resolves", "warning"), ("2026-12-24T10:00:00+00:00", "opens", "info")
    )

    pages = [admin_client.get(page_url(user)), day(admin_client, user, on="2026-12-24")]

    for page in pages:
        assert "It expires will resolve on 2026-11-30 warning x" in shown(page)
        assert "It expires will be raised on 2026-12-24 10:00 UTC info x" in shown(page)
        linked = f'<a href="{page_url(alert)}"><bdi>It expires</bdi></a> will'
        assert text_of(page).count(linked) == 2

    # Staff without access to alerts see which constraint it is; without access to content not even
    # that.
    sees = "view_memoryuser", "view_forecast"
    without = staff(*sees, "view_content")
    assert "An alert about k will resolve on 2026-11-30 warning x" in shown(
        day(without, user, on="2026-12-24")
    )
    User.objects.filter(username="eve").delete()
    masked = day(staff(*sees, "view_alert"), user, on="2026-12-24")
    assert "(hidden) will resolve on 2026-11-30 warning (hidden)" in shown(masked)
    assert "It expires" not in text_of(masked)


# -- Access ----------------------------------------------------------------------------------------


def test_records_of_a_day_need_content(staff: Callable[..., Client], booked: MemoryUser) -> None:
    sees = "view_memoryuser", "view_checkpoint", "view_recordlocation", "view_logentry"

    masked = day(staff(*sees), booked, on="2020-05-03", since="2020-05-01", by="occurred")

    assert "domains" not in masked.context["day"]
    assert "Rome" not in text_of(masked)


@pytest.mark.parametrize("asked", ["2019-01-01", "tomorrow"])
def test_a_day_without_anything_to_show_is_named(
    admin_client: Client, booked: MemoryUser, asked: str
) -> None:
    assert f"There is nothing to show for {asked} : this is the nearest day" in shown(
        day(admin_client, booked, on=asked, by="occurred")
    )
    assert "nothing to show" not in shown(day(admin_client, booked, on="2020-05-02", by="occurred"))

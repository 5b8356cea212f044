"""What staff send after their session has ended, or from an outdated page, is offered again."""

import datetime
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from memory.alerts.models.alerts import Alert, AlertState
from tests.integration.admin.conftest import Rows, list_url, messages_of, page_url, text_of

pytestmark = pytest.mark.django_db

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def account() -> User:
    return User.objects.create_superuser("ann", password="correct horse")


def fields_of(response: Any) -> dict[str, str]:
    return dict(
        re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', text_of(response))
    )


def note(alert: Alert) -> dict[str, Any]:
    return {"action": "add_note", "_selected_action": str(alert.pk), "note": "called her"}


def test_what_was_sent_after_the_session_is_offered_after_the_login_and_done_once(
    client: Client, account: User, rows: Rows
) -> None:
    alert = rows[Alert]
    client.force_login(account)
    Session.objects.update(expire_date=timezone.now() - datetime.timedelta(hours=1))
    login = client.post(list_url(Alert), note(alert))
    assert login["Location"] == "/admin/login/?next=/admin/not-done/"
    assert "your session has ended" in text_of(client.get(login["Location"]))
    assert alert.events.count() == 1

    name = {"login": "ann", "password": "correct horse"}
    offered = client.post(login["Location"], name, follow=True)

    assert "called her" in text_of(offered)
    assert "Add note now" in text_of(offered)
    for row in (alert, alert.user):
        assert f'href="{page_url(row)}"' in text_of(offered)
    assert alert.events.count() == 1
    sent = {key: value for key, value in fields_of(offered).items() if "csrf" not in key}
    client.post(list_url(Alert), sent)
    assert alert.events.latest("seq").detail == {"note": "called her"}
    assert client.get("/admin/not-done/")["Location"] == "/admin/"


def test_nothing_is_kept_for_whoever_never_logged_in(client: Client, rows: Rows) -> None:
    response = client.post(list_url(Alert), note(rows[Alert]))

    assert response["Location"] == "/admin/login/?next=/admin/"
    assert "Not done: you were not logged in." in text_of(client.get(response["Location"]))
    assert not Session.objects.exists()


def test_a_session_that_was_ended_elsewhere_leads_back_to_the_page(
    client: Client, account: User, rows: Rows
) -> None:
    client.force_login(account)
    Session.objects.all().delete()  # as "Sign Out Other Sessions" does
    page = f"{page_url(rows[Alert])}?_changelist_filters=state%3Dopen"

    def next_after(referer: str) -> str:
        sent = client.post(list_url(Alert), note(rows[Alert]), headers={"Referer": referer})
        return parse_qs(urlsplit(sent["Location"]).query)["next"][0]

    assert next_after(f"http://testserver{page}") == page
    for foreign in ("https://other.example/admin/", "http://testserver.example/admin/", ""):
        assert next_after(foreign) == "/admin/"


def test_a_form_about_no_row_names_none(client: Client, account: User, rows: Rows) -> None:
    client.force_login(account)
    Session.objects.update(expire_date=timezone.now() - datetime.timedelta(hours=1))
    login = client.post(list_url(Alert), {**note(rows[Alert]), "_selected_action": "of no row"})

    name = {"login": "ann", "password": "correct horse"}
    offered = client.post(login["Location"], name, follow=True)

    assert "called her" in text_of(offered)
    assert offered.context["rows"] == []


def test_an_outdated_page_is_offered_again_but_no_page_of_others(account: User, rows: Rows) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(account)
    acknowledge = {**note(rows[Alert]), "action": "acknowledge"}

    ours = client.post(list_url(Alert), acknowledge, headers=SAME_ORIGIN, follow=True)
    foreign = client.post(list_url(Alert), acknowledge, headers={"Sec-Fetch-Site": "cross-site"})

    assert "Acknowledge now" in text_of(ours)
    assert foreign.status_code == 403
    assert "called her" not in foreign.content.decode()
    assert "The page was outdated." in foreign.content.decode()
    assert Alert.objects.get().state == AlertState.OPEN


def test_a_password_is_never_repeated_on_a_page(client: Client) -> None:
    sent = {"old_password": "secret-1", "new_password1": "secret-2"}

    assert "not-done" not in client.post("/admin/password_change/", sent)["Location"]
    assert "secret" not in str(dict(client.session))


def test_pages_that_fail_lead_back(client: Client, account: User) -> None:
    client.force_login(account)

    missing = client.get("/admin/nothing/")

    assert missing.status_code == 404
    assert 'href="/admin/"' in missing.content.decode()
    assert messages_of(client.get("/admin/")) == []

"""Every HTML page has a policy that forbids inline scripts and styles.

No page uses an id twice either, which would make a screen reader name a part after another.
"""

import re
from collections import Counter

import pytest
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from tests.integration.admin.conftest import MODELS, Rows, list_url, name_of, page_url
from uac_site.content_security import POLICY

pytestmark = pytest.mark.django_db

IN_THE_PAGE = re.compile(
    r"<script(?![^>]* (src=|type=\"application/json\"))|<style|<[^>]* (style|on[a-z]+)="
    r"|javascript:",
    re.IGNORECASE,
)
IDS = re.compile(r"<[^>]* id=\"([^\"]+)\"")


@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_no_page_needs_what_the_policy_refuses(
    admin_client: Client, rows: Rows, model: type[Model]
) -> None:
    for address in (list_url(model), page_url(rows[model])):
        answer = admin_client.get(address)
        assert answer["Content-Security-Policy"] == POLICY
        assert IN_THE_PAGE.search(answer.content.decode()) is None, address
        assert repeated_ids(answer.content.decode()) == [], address


def repeated_ids(page: str) -> list[str]:
    return [name for name, number in Counter(IDS.findall(page)).items() if number > 1]


def test_pages_without_a_login_and_of_errors_have_it_too(client: Client, db: None) -> None:
    for address in ("/admin/login/", "/admin/nothing/", "/nothing/"):
        answer = client.get(address, follow=True)
        if answer["Content-Type"].startswith("text/html"):
            assert answer["Content-Security-Policy"] == POLICY, address


def test_other_pages_of_the_admin_do_not_need_it_either(admin_client: Client, rows: Rows) -> None:
    for address in (
        "/admin/",
        "/admin/password_change/",
        reverse("admin:memory_work"),
        reverse("admin:auth_user_add"),
        reverse("admin:auth_group_changelist"),
    ):
        answer = admin_client.get(address)
        assert answer.status_code == 200
        assert answer["Content-Security-Policy"] == POLICY
        assert IN_THE_PAGE.search(answer.content.decode()) is None, address
        assert repeated_ids(answer.content.decode()) == [], address


def test_the_policy_opens_nothing() -> None:
    assert "unsafe" not in POLICY
    assert "*" not in POLICY
    assert "http" not in POLICY


def test_what_is_no_page_has_none(client: Client, db: None) -> None:
    assert "Content-Security-Policy" not in client.get("/livez")

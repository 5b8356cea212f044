"""`/playground/`: a public page, which needs no other server."""

import re
from pathlib import Path

from django.contrib.staticfiles import finders
from django.test import Client

from tests.integration.admin.test_policy import IN_THE_PAGE
from uac_site.content_security import POLICY


def test_the_playground_needs_no_login_and_no_other_server() -> None:
    client = Client()

    page = client.get("/playground/")

    assert page.status_code == 200
    assert page["Content-Security-Policy"] == POLICY
    text = page.content.decode()
    assert 'href="/admin/"' in text
    assert 'data-users="/v1/users/"' in text
    assert IN_THE_PAGE.search(text) is None
    assert not re.search(r"(?:src|href)=\"https?:", text)
    files = re.findall(r'(?:src|href)="/static/([^"]+)"', text)
    assert {"memory/playground.js", "memory/playground.css"} <= set(files)
    for path in files:
        assert finders.find(path), path
    assert client.post("/playground/").status_code == 405


def test_no_field_would_be_sent_in_the_address() -> None:
    # Before its script runs, or without it, a form that is submitted puts named fields there.
    assert not re.search(
        r"<[^>]* name=\"(?!viewport)", Client().get("/playground/").content.decode()
    )


def test_the_reference_leads_to_the_playground() -> None:
    assert 'href="/playground/"' in Client().get("/docs/").content.decode()


def test_nothing_from_the_server_is_shown_as_markup() -> None:
    script = Path(str(finders.find("memory/playground.js"))).read_text(encoding="utf-8")
    assert not re.search(r"(?:inner|outer|insertAdjacent)HTML|document\.write|DOMParser", script)

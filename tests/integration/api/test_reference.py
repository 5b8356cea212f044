"""`/docs/`: the reference of the API as a page, which needs no other server."""

import re

from django.contrib.staticfiles import finders
from django.test import Client

from memory.kernel.http.openapi import operations


def test_the_front_door_leads_to_the_reference_of_the_api() -> None:
    client = Client()
    door = client.get("/")
    assert (door.status_code, door["Location"]) == (302, "/docs/")

    page = client.get("/docs/")

    assert page["Content-Type"].startswith("text/html")
    text = page.content.decode()
    assert 'data-document="/v1/openapi.json"' in text
    # It loads nothing from other servers.
    assert not re.search(r"(?:src|href)=\"https?:", text)
    for path in re.findall(r'(?:src|href)="/static/([^"]+)"', text):
        assert finders.find(path), path
    assert client.post("/docs/").status_code == 405


def test_every_operation_is_summed_up_in_a_sentence() -> None:
    document = Client().get("/v1/openapi.json").json()

    for path, method, operation in operations(document):
        summary = operation["summary"]
        assert 8 <= len(summary) <= 240, f"{method} {path}: {summary!r}"
        assert operation["description"].replace("\n", " ").startswith(summary[:8])

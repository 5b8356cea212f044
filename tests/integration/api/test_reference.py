"""`/docs/`: the reference of the API as a page, which needs no other server."""

import re

from django.test import Client

from memory.kernel.http.openapi import operations


def test_the_front_door_leads_to_the_reference_of_the_api() -> None:
    client = Client()
    door = client.get("/")
    assert (door.status_code, door["Location"]) == (302, "/docs/")

    page = client.get("/docs/")

    assert page["Content-Type"].startswith("text/html")
    text = page.content.decode()
    document = client.get("/v1/openapi.json").json()
    for path, method, operation in operations(document):
        assert f'id="{operation["operationId"]}"' in text, f"{method} {path}"
    # It loads nothing from other servers, and runs no script.
    assert not re.search(r"<script|(?:src|href)=\"https?:", text)
    assert client.post("/docs/").status_code == 405


def test_every_operation_is_summed_up_in_a_sentence() -> None:
    document = Client().get("/v1/openapi.json").json()

    for path, method, operation in operations(document):
        summary = operation["summary"]
        assert 8 <= len(summary) <= 240, f"{method} {path}: {summary!r}"
        assert operation["description"].replace("\n", " ").startswith(summary[:8])

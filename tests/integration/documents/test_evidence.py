"""What comes from a document says from which page, wherever it is shown."""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, Trust
from tests.integration.commits.conftest import trip
from tests.integration.documents.files import pdf
from tests.integration.documents.test_documents import api as api
from tests.integration.documents.test_documents import runner as runner
from tests.integration.documents.test_documents import upload

pytestmark = pytest.mark.django_db

USER = "/v1/users/ada/"
PLACE = "page 2 of tickets [1].pdf"


@pytest.fixture(autouse=True)
def tickets(api: APIClient, user: MemoryUser, work: Callable[[], None]) -> None:
    """Two pages, a fact from both, a record from one, and a message of the person."""
    upload(api, "tickets [1].pdf", pdf(["A ticket to Oslo", "A ticket to Rome"]))
    record = Draft(
        kind=EntryKind.RECORD,
        data=trip("Rome", key="rome", cost=200),
        metadata={"document": {"name": "tickets [1].pdf", "page": 2, "offset": 0}},
        derived_from=[2],
        trust=Trust.DOCUMENT,
    )
    fact = Draft(
        kind=EntryKind.FACT,
        content="Ada has tickets to Rome and Oslo.",
        derived_from=[1, 2],
        trust=Trust.DOCUMENT,
    )
    said = Draft(kind=EntryKind.MESSAGE, content="Oslo is cold.", metadata={"document": {}})
    entry_log.append(user, [record, fact, said], source="test")
    work()


def test_entries_name_their_places(api: APIClient) -> None:
    places = {one["seq"]: one["place"] for one in api.get(f"{USER}entries/").json()["results"]}

    both = f"page 1 of tickets [1].pdf, {PLACE}"
    assert places == {1: "page 1 of tickets [1].pdf", 2: PLACE, 3: PLACE, 4: both, 5: None}
    assert api.get(f"{USER}entries/4/").json()["place"] == both


def test_hits_name_their_places(api: APIClient) -> None:
    hits = api.post(f"{USER}search/", {"query": "Rome ticket"}).json()["hits"]

    places = {hit["seq"]: hit["place"] for hit in hits}
    assert (places[2], places[3]) == (PLACE, PLACE)


def test_answers_name_the_places_of_their_evidence(
    api: APIClient, work: Callable[[], None]
) -> None:
    code = {"code": "[trip for trip in trips if trip.cost > 100]"}
    assert api.post(f"{USER}query/?wait=0", code).status_code == 202
    work()

    evidence = api.post(f"{USER}query/?wait=0", code).json()["evidence"]

    assert evidence["records"][0]["sources"] == [[3]]
    assert evidence["places"] == {"3": PLACE}


def test_a_context_names_places_and_nothing_in_a_name_passes_for_an_entry(api: APIClient) -> None:
    body = {"query": "Which tickets to Rome?"}
    text: str = api.post(f"{USER}context/", body).json()["text"]

    lines: list[Any] = [line for line in text.split("\n") if "Rome" in line and "ticket" in line]
    assert any("from page 2 of tickets 1 .pdf) A ticket to Rome [2]" in line for line in lines)
    assert any("'rome': (from page 2 of tickets 1 .pdf) to: Rome" in line for line in lines)
    assert not any("[1]." in line for line in lines)

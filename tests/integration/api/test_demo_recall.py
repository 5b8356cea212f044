"""The demo person's statements are found by words that she never used."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from deploy.demo import person
from memory.kernel.models.users import MemoryUser

pytestmark = pytest.mark.django_db

DAY = datetime.date(2026, 3, 1)


@pytest.fixture
def maya(api: APIClient, user: MemoryUser, work: Callable[[], None]) -> None:
    """All her typed entries; without her constraints, which would take a while."""
    life = person.life(DAY)
    told = [*life.months, *life.lease, life.prescription, life.booking]
    assert api.post("/v1/users/ada/entries/", {"entries": told}).status_code == 202
    work()


def test_searches_and_prompts_know_what_is_meant(api: APIClient, maya: None) -> None:
    def search(query: str) -> list[str]:
        hits = api.post("/v1/users/ada/search/", {"query": query, "top_k": 5}).data["hits"]
        return [hit["text"] for hit in hits]

    def context(query: str, **more: Any) -> str:
        return str(api.post("/v1/users/ada/context/", {"query": query, **more}).data["text"])

    for query, answer in {
        "medicine": "Medication",
        "allergic": "Allergy",
        "sport": "Workout",
        "trip to Asia": "Trip bangkok",
        **{one.text: one.begins for one in person.recalled()},
    }.items():
        assert any(text.startswith(answer) for text in search(query)), (query, search(query))

    told = context("What medicine may I take?")
    for line in (
        "health.medications 'amoxicillin'",
        "health.medications 'cetirizine'",
        "health.allergies 'penicillin'",
    ):
        assert f"- {line}" in told
    assert "- health.workouts" in context("How much sport does she do?")
    assert "travel.trips 'bangkok'" in context("Is there a trip to Asia?")

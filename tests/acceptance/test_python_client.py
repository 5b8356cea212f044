"""Each operation of the API by the Python client, sync and async, on a whole server."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from userascode import AsyncClient, Client, Problem, StillRunning

from deploy.embedded.system import System
from tests import api_tour
from tests.api_tour import Tour, key_of
from tests.client_operations import METHODS, call
from tests.system import running_system

pytestmark = pytest.mark.timeout(900)


@dataclass
class ClientTour(Tour):
    """The tour of the API, by a client instead of bare requests."""

    is_async: bool = False

    def ask(
        self,
        method: str,
        template: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        least: bool = False,
        **names: Any,
    ) -> Any:
        """Call an operation; return its answer as JSON."""
        operation = f"{method} /v1/{template.removesuffix('/')}"
        values = {**names, **(query or {})}
        caller = AsyncClient if self.is_async else Client
        try:
            answer = call(caller(self.base_url, self.key), operation, values, body)
        except Problem:
            if not least:
                raise
            answer = None
        except StillRunning as running:
            answer = running.progress
        self.examples.setdefault(operation, {"answer": answer})
        return answer


@pytest.fixture(scope="module")
def server() -> Iterator[System]:
    with running_system(environment=api_tour.ENVIRONMENT) as system:
        yield system


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_every_operation_works(
    server: System, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    def new_tour(base_url: str, key: str) -> ClientTour:
        return ClientTour(base_url, key, is_async=is_async)

    monkeypatch.setattr(api_tour, "Tour", new_tour)

    tour = api_tour.take(server.base_url, key_of(server, f"client-{is_async}"))

    assert tour.examples.keys() == METHODS.keys()
    assert json.dumps(tour.examples["GET /v1/users/{user_id}/alerts"]["answer"]).count("late")

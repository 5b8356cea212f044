"""ETags: unchanged answers are not sent again, and changed objects are not overwritten."""

from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.test import override_settings
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from tests.integration.api.test_backtests import OWN_RULE
from tests.integration.api.test_workspace_constraints import log
from tests.integration.work.test_workspace_constraints import rental

pytestmark = pytest.mark.django_db

RULE = {"name": "rule", "source": "def check(today): ...", "tests": "def test(): ..."}


def address_of(kind: str, manager: APIClient) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the address of an existing object, and two changes of it."""
    if kind == "user":
        return "/v1/users/ada/", {"metadata": {"n": 1}}, {"metadata": {"n": 2}}
    if kind == "constraint":
        assert manager.post("/v1/constraints/?wait=0", RULE).status_code == 201
        return "/v1/constraints/rule/", {"percentage": 10}, {"percentage": 20}
    made = manager.post("/v1/webhooks/", {"url": "https://example.com/hook"})
    return made["Location"], {"description": "one"}, {"description": "two"}


@pytest.mark.parametrize("kind", ["user", "constraint", "webhook"])
def test_changed_object_is_not_overwritten(manager: APIClient, user: MemoryUser, kind: str) -> None:
    with override_settings(UAC_ENCRYPTION_KEYS=[Fernet.generate_key().decode()]):
        address, one, two = address_of(kind, manager)
    read = manager.get(address)
    etag = read["ETag"]
    assert manager.get(address, HTTP_IF_NONE_MATCH=etag).status_code == 304
    assert manager.patch(address, one, HTTP_IF_MATCH=etag).status_code == 200

    late = manager.patch(address, two, HTTP_IF_MATCH=etag)

    assert late.status_code == 412
    now = manager.get(address, HTTP_IF_NONE_MATCH=etag)
    assert now.status_code == 200
    assert one.items() <= now.json().items()
    assert manager.patch(address, two, HTTP_IF_MATCH=f'"other", {now["ETag"]}').status_code == 200
    assert manager.patch(address, one, HTTP_IF_MATCH="*").status_code == 200
    assert manager.patch(address, two, HTTP_IF_MATCH="W/" + now["ETag"]).status_code == 412


@pytest.mark.parametrize("kind", ["user", "webhook"])
def test_changed_object_is_not_deleted(manager: APIClient, user: MemoryUser, kind: str) -> None:
    with override_settings(UAC_ENCRYPTION_KEYS=[Fernet.generate_key().decode()]):
        address, one, _ = address_of(kind, manager)
    etag = manager.get(address)["ETag"]
    manager.patch(address, one)

    assert manager.delete(f"{address}{'?reason=x' if kind == 'user' else ''}", HTTP_IF_MATCH=etag)
    assert manager.get(address).status_code == 200

    etag = manager.get(address)["ETag"]
    gone = manager.delete(f"{address}{'?reason=x' if kind == 'user' else ''}", HTTP_IF_MATCH=etag)
    assert gone.status_code in (202, 204)
    assert manager.get(address).status_code == 404


def test_repeated_change_ignores_its_own_effect(manager: APIClient, user: MemoryUser) -> None:
    etag = manager.get("/v1/users/ada/")["ETag"]
    sent: dict[str, Any] = {"HTTP_IF_MATCH": etag, "HTTP_IDEMPOTENCY_KEY": "k"}

    first = manager.patch("/v1/users/ada/", {"metadata": {"n": 1}}, **sent)
    again = manager.patch("/v1/users/ada/", {"metadata": {"n": 1}}, **sent)

    assert (first.status_code, again.status_code) == (200, 200)
    assert again["Idempotent-Replayed"] == "true"


class TestAConstraintOfAUser:
    """The gate writes it later, and detects changes made in between."""

    ADDRESS = "/v1/users/ada/constraints/ended/"

    @pytest.fixture
    def written(self, api: APIClient, user: MemoryUser, work: Callable[[], None]) -> dict[str, str]:
        log(api, user, rental())
        work()
        api.put(f"{self.ADDRESS}?wait=0", OWN_RULE)
        work()
        return OWN_RULE

    def worded(self, written: dict[str, str], word: str) -> dict[str, str]:
        return {**written, "source": written["source"].replace("ended on", word)}

    def test_constraint_changed_meanwhile_is_neither_overwritten_nor_deleted(
        self, api: APIClient, written: dict[str, str], work: Callable[[], None]
    ) -> None:
        etag = api.get(self.ADDRESS)["ETag"]
        wait = f"{self.ADDRESS}?wait=0"
        first = api.put(wait, self.worded(written, "is over since"), HTTP_IF_MATCH=etag)
        assert first.status_code == 202
        work()

        late = [
            api.put(wait, self.worded(written, "was until"), HTTP_IF_MATCH=etag).status_code,
            api.delete(wait, HTTP_IF_MATCH=etag).status_code,
            api.put("/v1/users/ada/constraints/none/", written, HTTP_IF_MATCH="*").status_code,
        ]
        work()

        assert late == [412, 412, 412]
        assert "is over since" in api.get(self.ADDRESS).data["source"]
        assert api.delete(wait, HTTP_IF_MATCH=api.get(self.ADDRESS)["ETag"]).status_code == 202
        work()
        assert api.get(self.ADDRESS).status_code == 404

    def test_gate_accepts_the_first_of_two_concurrent_writes(
        self, api: APIClient, written: dict[str, str], work: Callable[[], None]
    ) -> None:
        etag = api.get(self.ADDRESS)["ETag"]
        both = [
            api.put(f"{self.ADDRESS}?wait=0", self.worded(written, word), HTTP_IF_MATCH=etag)
            for word in ("is over since", "was until")
        ]
        assert [one.status_code for one in both] == [202, 202]
        work()

        first, second = (api.get(one["Location"]).data for one in both)

        assert (first["outcome"], second["outcome"]) == ("ok", "rejected")
        assert [
            finding["code"]
            for check in second["output"]["verdict"]["checks"]
            for finding in check["findings"]
        ] == ["changed_meanwhile"]
        assert "is over since" in api.get(self.ADDRESS).data["source"]

    def test_a_repeated_request_is_not_held_against_its_own_effect(
        self, api: APIClient, written: dict[str, str], work: Callable[[], None]
    ) -> None:
        etag = api.get(self.ADDRESS)["ETag"]
        change = self.worded(written, "is over since")
        asked: dict[str, Any] = {"HTTP_IF_MATCH": etag, "HTTP_IDEMPOTENCY_KEY": "k"}
        api.put(f"{self.ADDRESS}?wait=0", change, **asked)
        work()

        again = api.put(f"{self.ADDRESS}?wait=0", change, **asked)

        assert (again.status_code, again.data["accepted"]) == (200, True)

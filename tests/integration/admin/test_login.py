"""Log-in to the staff's pages: the number of attempts is limited."""

import math
import uuid

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.fixtures import Settings

from memory.kernel.admission import rates
from uac_site.sign_in import guesses

pytestmark = pytest.mark.django_db


def attempt(name: str, password: str, **headers: str) -> tuple[int, bytes]:
    answer = Client().post(
        "/admin/login/",
        {"login": name, "password": password},
        **headers,  # type: ignore[arg-type]
    )
    return answer.status_code, answer.content


@pytest.fixture
def name() -> str:
    """A member of the staff, with a unique name."""
    found = f"staff-{uuid.uuid4()}"
    User.objects.create_superuser(found, password="the right one")
    return found


def test_repeated_failures_delay_the_login(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guesses, "OF_ADDRESS", ("login_address", 3))
    here, there = str(uuid.uuid4()), str(uuid.uuid4())
    # Who succeeds does not count
    for _ in range(5):
        assert attempt(name, "the right one", REMOTE_ADDR=here)[0] == 302
    for _ in range(3):
        assert b"Too many" not in attempt(name, "wrong", REMOTE_ADDR=here)[1]

    status, page = attempt(name, "the right one", REMOTE_ADDR=here)

    assert status == 200
    assert b"Too many attempts" in page
    assert attempt(name, "the right one", REMOTE_ADDR=there)[0] == 302


def test_name_is_limited_over_many_addresses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guesses, "OF_NAME", ("login_name", 3))
    for _ in range(3):
        attempt(name, "wrong", REMOTE_ADDR=str(uuid.uuid4()))

    assert b"Too many" in attempt(name, "the right one", REMOTE_ADDR=str(uuid.uuid4()))[1]


def test_behind_a_proxy_the_address_is_what_the_proxy_says(
    name: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guesses, "OF_ADDRESS", ("login_address", 1))
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    proxy, client, other = (str(uuid.uuid4()) for _ in range(3))
    # What the client says itself stands before what the proxy adds
    attempt(name, "wrong", REMOTE_ADDR=proxy, HTTP_X_FORWARDED_FOR=f"{other}, {client}")

    told = {"REMOTE_ADDR": proxy}
    assert b"Too many" in attempt(name, "x", **told, HTTP_X_FORWARDED_FOR=f"x, {client}")[1]
    assert attempt(name, "the right one", **told, HTTP_X_FORWARDED_FOR=other)[0] == 302


def test_without_redis_a_code_is_accepted_once_and_others_codes_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rates, "_silent_until", math.inf)
    ada, bob = (f"{uuid.uuid4()} 123456" for _ in range(2))

    left = [guesses.count(guesses.OF_USES, text) for text in (ada, bob, ada)]

    assert left == [1, 1, 0]

"""Secrets and personal data are found in any text, and nothing where there are none."""

import itertools
import logging
import math
import time
from collections.abc import Callable

import pytest

from memory.log.sensitive_text import SECRET, CheckTookTooLong, find

PERSONAL = ["email_address", "phone_number", "credit_card", "iban_code", "ip_address"]
# Written in parts, so that nobody takes this file for a leak.
BODY = "MIIEowIBAAKCAQEA\nq83vEjRWeJCrze8SNFZ4\n"
SECRETS = {
    "AWS": "AKIA" + "IOSFODNN7EXAMPLE",
    "GitHub": "ghp_" + "a1B2" * 9,
    "GitHub, fine-grained": "github_pat_" + "11AAAAAAA0" * 4,
    "Slack": "xoxb-" + "123456789012-abcdefghijkl",
    "Stripe": "sk_live_" + "a1B2c3D4e5F6a1B2c3D4e5F6",
    "OpenAI": "sk-proj-" + "a1B2c3D4" * 6,
    "Anthropic": "sk-ant-" + "api03-" + "a1B2c3D4" * 6,
    "Google": "AIza" + "SyD-1234567890abcdefghijklmnopqrstu",
    "this server": "uac_" + "0123456789ab" + "_" + "x" * 43,
    "JWT": ".".join(["eyJ" + "hbGciOiJIUzI1NiJ9", "eyJzdWIiOiJhZGEifQ", "c2ln" * 8]),
    "long JWT": ".".join(["eyJ" + "hbGciOiJIUzI1NiJ9", "a1B2c3D4" * 300, "c2ln" * 8]),
    "private key": "-----BEGIN RSA PRIVATE" + f" KEY-----\n{BODY}-----END RSA PRIVATE KEY-----",
    "private key, cut off": "-----BEGIN PRIVATE" + f" KEY-----\n{BODY * 40}",
}
PROSE = [
    "Ada flies to Rome on 2026-05-02 at 14:30 with 3 bags for 249.90 EUR.",
    "My secret is that I love the token economy; the password is on a note.",
    "Call me tomorrow, room 1204, order 17, version 3.12.4, chapter 10.2.",
    "Ich wohne seit 1999 in der Hauptstraße 12, 10115 Berlin; Kater Momo ist 7 Jahre alt.",
    "import math\ntasks = [Task(key='task-1', due=datetime.date(2026, 5, 1), sources=(1, 20))]",
    "私は2026年5月2日にローマへ行きます。",
    "See https://docs.example.com/guide?page=2#top and std::vector, 5:30 :: 6:30.",
]


def masked(text: str, *kinds: str) -> str:
    """Return the text with stars for what is found."""
    for span in reversed(find(text, kinds, math.inf)):
        text = text[: span.start] + "***" + text[span.end :]
    return text


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("before", ["", "My key is ", "word " * 200])
def test_a_secret_is_found_as_a_whole(name: str, before: str) -> None:
    after = "" if "cut off" in name else " Keep it."
    assert masked(f"{before}{SECRETS[name]}{after}", SECRET) == f"{before}***{after}"


@pytest.mark.parametrize("start", range(400, 1700, 37))
def test_a_secret_is_found_wherever_it_is(start: int) -> None:
    text = "x " * (start // 2)
    assert masked(f"{text}{SECRETS['GitHub']} there", SECRET) == f"{text}*** there"


def test_a_password_in_an_address_is_found() -> None:
    password = "hunter" + "2"
    assert password not in masked(f"It is postgres://ada:{password}@db.example.com/x.", SECRET)


@pytest.mark.parametrize("text", PROSE)
def test_nothing_is_found_in_prose(text: str) -> None:
    assert masked(text, SECRET, *PERSONAL) == text


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("email_address", "ada.rossi+x@example.com"),
        ("email_address", "müller@straße.example.de"),
        ("phone_number", "+49 30 901820"),
        ("phone_number", "(415) 555-2671"),
        ("credit_card", "4111 1111 1111 1111"),
        ("credit_card", "378282246310005"),
        ("iban_code", "DE89 3704 0044 0532 0130 00"),
        ("iban_code", "GB29NWBK60161331926819"),
        ("ip_address", "203.0.113.7"),
        ("ip_address", "2001:db8::8a2e:370:7334"),
    ],
)
def test_personal_data_are_found(kind: str, value: str) -> None:
    assert masked(f"It is {value}, I think.", kind) == "It is ***, I think."
    others = {*PERSONAL, SECRET} - {kind, "phone_number"}
    assert masked(f"It is {value}, I think.", *others) == f"It is {value}, I think."


def test_the_network_and_the_log_are_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a request")

    monkeypatch.setattr("requests.Session.request", refuse)
    with caplog.at_level(logging.DEBUG):
        masked("ada@example.com DE89 3704 0044 0532 0130 00 DE00 0000", *PERSONAL, SECRET)
    assert caplog.records == []


def test_two_kinds_in_one_place_are_one() -> None:
    spans = find("ada@203.0.113.7 or ada@example.com", ["email_address", "ip_address"], math.inf)
    assert [span.start for span in spans] == sorted({span.start for span in spans})
    assert all(first.end <= second.start for first, second in itertools.pairwise(spans))


# Texts over which the libraries' patterns take long.
@pytest.mark.parametrize(
    "text_of",
    [
        lambda n: "sk-" * (n // 3),
        lambda n: "a." * (n // 2) + "@",
        lambda n: "1 " * (n // 2),
        lambda n: "-" * n,
        lambda n: "-----BEGIN RSA PRIVATE" + " KEY-----" + "END " * (n // 4),
        lambda n: ("AKIA" + "IOSFODNN7EXAMPLE") * (n // 20),
        lambda n: "(415) 555-267" * (n // 13),
    ],
)
def test_reading_takes_linear_time(text_of: Callable[[int], str]) -> None:
    def seconds(length: int) -> float:
        text = text_of(length)
        began = time.thread_time()
        find(text, [SECRET, *PERSONAL], math.inf)
        return time.thread_time() - began

    seconds(100)  # loads the libraries
    short, long = (min(seconds(length) for _ in range(3)) for length in (2_000, 8_000))
    assert long < 0.02 or long / short < 9  # quadratic time would grow by 16


def test_what_takes_too_long_is_not_passed_over() -> None:
    with pytest.raises(CheckTookTooLong):
        find("x" * 10_000, [SECRET], time.thread_time() - 1)

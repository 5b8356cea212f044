"""Addresses that a URL may send the server to, and those it may not."""

import ipaddress
import socket
import threading
import time

import pytest
from pytest_django.fixtures import Settings

from memory.kernel.outgoing import destinations
from memory.kernel.outgoing.destinations import AddressRefused, NotFound
from tests.waiting import scaled


@pytest.fixture(autouse=True)
def as_in_production(settings: Settings) -> None:
    settings.UAC_WEBHOOK_ALLOW_HTTP = False
    settings.UAC_WEBHOOK_ALLOWED_NETWORKS = []


@pytest.mark.parametrize(
    ("url", "host", "port", "target", "authority"),
    [
        ("https://a.example", "a.example", 443, "/", "a.example"),
        ("https://A.Example.:443/x?y=1", "a.example", 443, "/x?y=1", "a.example"),
        ("https://a.example:8443/", "a.example", 8443, "/", "a.example:8443"),
        ("https://[2606:4700::1111]/x", "2606:4700::1111", 443, "/x", "[2606:4700::1111]"),
        ("https://8.8.8.8:80/", "8.8.8.8", 80, "/", "8.8.8.8:80"),
    ],
)
def test_a_url_is_taken_apart(url: str, host: str, port: int, target: str, authority: str) -> None:
    found = destinations.parse(url)

    assert (found.scheme, found.host, found.port, found.target) == ("https", host, port, target)
    assert found.authority == authority


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://a.example/", "Use https"),
        ("ftp://a.example/", "begins with https://"),
        ("file:///etc/passwd", "begins with https://"),
        ("gopher://a.example/", "begins with https://"),
        ("//a.example/", "begins with https://"),
        ("a.example", "begins with https://"),
        ("", "visible ASCII"),
        ("https://user:secret@a.example/", "must not contain a user"),
        ("https://@a.example/", "must not contain a user"),
        ("https://a.example\\@b.example/", "visible ASCII"),
        ("https://a.example/#x", "fragment"),
        ("https://a.example/#", "fragment"),
        ("https://a.example:22/", "Use port 443"),
        ("https://a.example:0/", "Use port 443"),
        ("https://a.example:99999/", "Invalid URL"),
        ("https://a.example:x/", "Invalid URL"),
        ("https:///x", "not a valid host name"),
        ("https://-a.example/", "not a valid host name"),
        ("https://[::1%25eth0]/", "no"),
        ("https://[v1.x]/", "no"),
        ("https://a.example/ x", "visible ASCII"),
        ("https://a.example/\r\nHost: b.example", "visible ASCII"),
        ("https://a.\texample/", "visible ASCII"),
        ("https://ä.example/", "xn--"),
        ("https://a.example/" + "x" * 2000, "2000 characters"),
    ],
)
def test_url_that_is_not_public_https_is_refused_with_the_reason(url: str, reason: str) -> None:
    with pytest.raises(AddressRefused, match=reason):
        destinations.parse(url)


@pytest.mark.parametrize(
    ("allow_http", "says"),
    [(False, r"begins with https://\."), (True, r"begins with https:// or http://\.")],
)
def test_missing_scheme_names_the_allowed(settings: Settings, allow_http: bool, says: str) -> None:
    settings.UAC_WEBHOOK_ALLOW_HTTP = allow_http
    for url in ("a.example/hook", "localhost:9000/hook", "ftp://a.example/"):
        with pytest.raises(AddressRefused, match=says):
            destinations.parse(url)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "64:ff9b::808:808"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert destinations.allowed(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "172.16.0.1",
        "192.0.0.192",
        "192.168.1.1",
        "198.18.0.1",
        "203.0.113.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a00:1::",
        "3fff::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "5f00::1",
    ],
)
def test_addresses_that_are_not_of_the_public_internet_are_refused(address: str) -> None:
    assert not destinations.allowed(ipaddress.ip_address(address))


def test_an_operator_can_allow_a_private_network_and_nothing_beside_it(settings: Settings) -> None:
    settings.UAC_WEBHOOK_ALLOWED_NETWORKS = ["10.1.0.0/16", "fd00:1::/32"]

    for address in ("10.1.2.3", "::ffff:10.1.2.3", "fd00:1::5"):
        assert destinations.allowed(ipaddress.ip_address(address))
    for address in ("10.2.0.1", "127.0.0.1", "fd00:2::5"):
        assert not destinations.allowed(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "https://localhost/",
        "https://127.0.0.1/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://169.254.169.254/latest/meta-data/",
    ],
)
def test_every_way_to_write_an_inner_address_leads_nowhere(url: str) -> None:
    with pytest.raises((AddressRefused, NotFound)):
        destinations.addresses(destinations.parse(url), 5)


def test_name_with_one_inner_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = [ipaddress.ip_address(text) for text in ("8.8.8.8", "10.0.0.1")]
    monkeypatch.setattr(destinations, "look_up", lambda *arguments: mixed)

    with pytest.raises(
        AddressRefused, match=r"10\.0\.0\.1, which is not a public internet address"
    ):
        destinations.addresses(destinations.parse("https://a.example/"), 5)


def test_a_resolver_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: [over.wait(3600)][1:])
    began = time.monotonic()

    with pytest.raises(NotFound, match="no response"):
        destinations.look_up("a.example", 443, 0.2)

    over.set()
    assert time.monotonic() - began < scaled(200)

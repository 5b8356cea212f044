"""Checking the URLs that the server is asked to call: only public addresses are allowed.

Checking a host name is not enough: it may resolve to an internal address, or to a different address
on the next look-up. So a caller resolves the name once, has every resulting address checked, and
connects to one of those addresses.
"""

import ipaddress
import queue
import re
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

MAX_URL = 2000
PORTS = {"https": 443, "http": 80}
# Below this port, only 80 and 443 are allowed: nobody receives webhooks on the mail or SSH port.
FIRST_FREE_PORT = 1024

_URL = re.compile(r"[!-~]+")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
# Addresses that some Python versions wrongly consider public: those for protocol assignments, 6to4
# relays, and documentation.
_SPECIAL: list[Network] = [
    ipaddress.ip_network(text) for text in ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")
]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class AddressRefused(Exception):
    """The server must not call this URL; the message says why, and how to fix it."""


class NotFound(Exception):
    """The host name could not be resolved; a later attempt may succeed."""


@dataclass(frozen=True)
class Destination:
    """A parsed URL whose syntax is acceptable; its addresses have not been checked yet."""

    scheme: str
    host: str
    port: int
    target: str  # the path and the query, as sent in the request line

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def parse(url: str) -> Destination:
    """Parse a URL; raises AddressRefused if the server must not call it."""
    if len(url) > MAX_URL:
        raise AddressRefused(f"The URL must have at most {MAX_URL} characters; it has {len(url)}.")
    if not _URL.fullmatch(url) or "\\" in url:
        raise AddressRefused(
            "The URL must consist of visible ASCII characters. Write a host name in another"
            " script as xn--…, and escape other characters with %."
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise AddressRefused(f"Invalid URL: {error}.") from None
    if parts.scheme not in PORTS:
        or_http = " or http://" if settings.UAC_WEBHOOK_ALLOW_HTTP else ""
        raise AddressRefused(f"Give a URL that begins with https://{or_http}.")
    if parts.scheme == "http" and not settings.UAC_WEBHOOK_ALLOW_HTTP:
        raise AddressRefused(
            "Use https; with http, anybody on the network path could read the messages."
        )
    if "@" in parts.netloc:
        raise AddressRefused(
            "The URL must not contain a user name or password: messages are authenticated by"
            " their signature."
        )
    if parts.fragment or url.endswith("#"):
        raise AddressRefused("The URL must not have a fragment (#…): a fragment is never sent.")
    port = PORTS[parts.scheme] if port is None else port
    if port not in PORTS.values() and port < FIRST_FREE_PORT:
        raise AddressRefused(f"Use port 443 or a port from {FIRST_FREE_PORT} up, not {port}.")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Destination(parts.scheme, _host(parts), port, target)


def _host(parts: SplitResult) -> str:
    host = (parts.hostname or "").removesuffix(".")
    if "[" in parts.netloc:
        with suppress(ValueError):
            if "%" not in host:
                return str(ipaddress.IPv6Address(host))
    elif len(host) <= 253 and _HOST.fullmatch(host):
        return host
    raise AddressRefused(f"{host[:100]!r} is not a valid host name.")


def addresses(destination: Destination, seconds: float) -> list[Address]:
    """Resolve the host name once; return its addresses if the server may connect to all of them.

    Raises AddressRefused if any of the addresses is not allowed, and NotFound if the name cannot be
    resolved within `seconds`.
    """
    resolved = look_up(destination.host, destination.port, seconds)
    for address in resolved:
        if not allowed(address):
            named = destination.host == str(address)
            raise AddressRefused(
                (
                    f"{address} is"
                    if named
                    else f"{destination.host} resolves to {address}, which is"
                )
                + " not a public internet address. An operator can allow a private network with"
                " UAC_WEBHOOK_ALLOWED_NETWORKS."
            )
    return resolved


def look_up(host: str, port: int, seconds: float) -> list[Address]:
    """Return the addresses of a host name; raises NotFound if there are none within `seconds`.

    The system's resolver cannot be interrupted, so a look-up that takes too long is abandoned in
    its thread.
    """
    answer: queue.SimpleQueue[list[Address] | str] = queue.SimpleQueue()

    def ask() -> None:
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            # Remove the zone ID (such as %eth0) of a link-local address; other addresses have no
            # zone ID.
            names = dict.fromkeys(str(info[4][0]).partition("%")[0] for info in infos)
            answer.put([ipaddress.ip_address(name) for name in names])
        except (OSError, ValueError) as error:
            answer.put(str(error))

    threading.Thread(target=ask, name="resolver", daemon=True).start()
    try:
        result = answer.get(timeout=max(seconds, 0.001))
    except queue.Empty:
        result = f"no response within {seconds:.0f} s"
    if isinstance(result, str) or not result:
        raise NotFound(f"The name {host} cannot be resolved: {result or 'it has no address'}.")
    return result


def allowed(address: Address) -> bool:
    """Return whether the server may connect to the address.

    If an IPv6 address embeds an IPv4 address, the IPv4 address is checked instead.
    """
    if isinstance(address, ipaddress.IPv6Address):
        inner = _inner(address)
        if inner is not None:
            return allowed(inner)
    if any(address in network for network in allowed_networks()):
        return True
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    if any(address in network for network in _SPECIAL):
        return False
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_private
    )


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that packets for this IPv6 address are delivered to, if any."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def allowed_networks() -> list[Network]:
    """Parse UAC_WEBHOOK_ALLOWED_NETWORKS; raises ValueError if a network in it is invalid."""
    return [ipaddress.ip_network(text) for text in settings.UAC_WEBHOOK_ALLOWED_NETWORKS]

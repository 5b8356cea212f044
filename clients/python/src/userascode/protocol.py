"""What both clients know of the protocol: addresses, headers, retries, errors. No I/O."""

import email.utils
import os
import random
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx
from pydantic import ValidationError

from userascode import problems
from userascode.errors import ConfigurationError, Problem, UnexpectedAnswer
from userascode.models import FailedRun

# Longest wait that a request asks of the server; it stays below what proxies allow.
MAX_WAIT = 25.0
# Seconds between two pages of events if the server did not wait for the next event.
FEED_PAUSE = 1.0
# Seconds before the first repetition of a request that has no answer; doubled each time.
FIRST_DELAY = 0.5
# Answers after which the same request may succeed, if the server says when; those of proxies too.
REPEATED = (429, 502, 503, 504)


@dataclass(frozen=True)
class Request:
    """A request below `/v1/`. Every repetition has the same `Idempotency-Key`."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    # The name and the content of a file, which is sent as a form, with the body as its fields.
    file: tuple[str, bytes] | None = None

    @property
    def wait(self) -> float:
        """Seconds for which the server may hold back its answer."""
        return float(self.query.get("wait", 0))


def read(path: str, **query: Any) -> Request:
    """Return a request that changes nothing."""
    return Request("GET", path, given(query))


def write(
    method: str,
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    content: bytes | None = None,
    file: tuple[str, bytes] | None = None,
    if_match: str | None = None,
    **query: Any,
) -> Request:
    """Return a request that changes something, with an `Idempotency-Key`."""
    headers = given({"Idempotency-Key": str(uuid.uuid4()), "If-Match": if_match})
    sent = None if body is None else given(body)
    return Request(method, path, given(query), sent, content, headers, file)


def ask(path: str, body: Mapping[str, Any]) -> Request:
    """Return a POST that changes nothing, and needs no key to be repeated."""
    return Request("POST", path, {}, given(body))


def named(file: Any) -> tuple[str, bytes]:
    """Return the name and content of a file, which is a Path or already such a pair."""
    if isinstance(file, Path):
        return file.name, file.read_bytes()
    if isinstance(file, tuple):
        return file
    raise TypeError("file: give a pathlib.Path, or a tuple of its name and its bytes")


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def path(*parts: str | int) -> str:
    """Return a path below `/v1/`, each of whose parts may contain any character."""
    return "".join(f"{quote(str(part), safe='')}/" for part in parts)


def options(url: str | None, key: str | None, timeout: float) -> dict[str, Any]:
    """Return the arguments of an httpx client for a server. Raises ConfigurationError."""
    url = url or os.environ.get("UAC_URL")
    key = key or os.environ.get("UAC_KEY")
    if not url or not key:
        missing = (
            "address: pass url= or set UAC_URL" if not url else "key: pass key= or set UAC_KEY"
        )
        raise ConfigurationError(f"There is no {missing}.")
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigurationError(f"{url!r} is no address: it begins with http:// or https://.")
    headers = {"Authorization": f"Bearer {key}", "User-Agent": "userascode-python"}
    return {"base_url": f"{url.rstrip('/')}/v1/", "headers": headers, "timeout": timeout}


def arguments(request: Request, timeout: float) -> dict[str, Any]:
    """Return the arguments of httpx for a request; the server's own wait is added to `timeout`."""
    sent: dict[str, Any] = {"params": dict(request.query), "headers": dict(request.headers)}
    if request.content is not None:
        sent["content"] = request.content
        sent["headers"]["Content-Type"] = "application/zip"
    elif request.file is not None:
        sent |= {"files": {"file": request.file}, "data": request.body}
    elif request.body is not None:
        sent["json"] = request.body
    return {**sent, "timeout": timeout + request.wait}


def local_path(base: httpx.URL, location: str) -> str:
    """Return a `Location` as a path below `/v1/`; the key is sent to no other server."""
    target = base.join(location)
    if target.copy_with(path="/", query=None) != base.copy_with(path="/", query=None):
        raise UnexpectedAnswer(202, f"its Location is at another server: {location}")
    return target.raw_path.decode().removeprefix(base.raw_path.decode())


def delay(answer: httpx.Response | None, attempt: int) -> float | None:
    """Return the seconds before a request is repeated; None if it is final."""
    backoff = FIRST_DELAY * float(2**attempt) * random.uniform(0.5, 1)  # noqa: S311 - spreads the load
    if answer is None:
        return backoff
    is_busy = answer.status_code in REPEATED
    is_in_progress = answer.status_code == 409 and problem_name(answer) == "in-progress"
    if not is_busy and not is_in_progress:
        return None
    return max(backoff, retry_after(answer) or 0)


def retry_after(answer: httpx.Response) -> float | None:
    """Return the seconds of a `Retry-After`, which may be a number or a date."""
    text: str = answer.headers.get("Retry-After", "")
    if text.isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError):
        return None


def problem_name(answer: httpx.Response) -> str:
    """Return the last part of a problem's type; nothing if the answer is no problem."""
    if not answer.headers.get("Content-Type", "").startswith("application/problem+json"):
        return ""
    return str(answer.json().get("type", "")).rpartition(":")[2]


def raise_for_problem(answer: httpx.Response) -> None:
    """Raise the problem that an answer describes; UnexpectedAnswer if it is none of the API's."""
    if answer.is_success or answer.status_code == 304:
        return
    name = problem_name(answer)
    if not name:
        raise UnexpectedAnswer(answer.status_code, answer.text)
    try:
        told = FailedRun.model_validate(answer.json())
    except ValidationError:
        raise UnexpectedAnswer(answer.status_code, answer.text) from None
    raise problems.BY_NAME.get(name, Problem)(told, retry_after(answer))


def cursor_of(url: str | None) -> str | None:
    """Return the cursor in the address of a list's next page."""
    return parse_qs(urlsplit(url).query)["cursor"][0] if url else None

"""Sends requests: repeats what may be repeated, and follows what takes time to its end.

Generated from `_async/transport.py`.
"""

import time
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import httpx
from pydantic import ValidationError

from userascode import protocol
from userascode.base import Model
from userascode.errors import ConnectionFailed, StillRunning, UnexpectedAnswer
from userascode.protocol import Request
from userascode.typed_json import row_of

Answer = TypeVar("Answer", bound=Model)
Item = TypeVar("Item", bound=Model)


class Transport:
    """One server, and one key for it."""

    def __init__(self, http: httpx.Client, timeout: float, patience: float) -> None:
        self.http = http
        self.timeout = timeout
        self.patience = patience

    def fetch(self, request: Request, model: type[Answer]) -> Answer:
        """Send a request; return its answer."""
        return parse(self.send(request), model)

    def finish(self, request: Request, model: type[Answer], timeout: float | None = None) -> Answer:
        """Send a request that starts a run; return its result, which the same request returns.

        The request has an `Idempotency-Key`, so that its repetition starts no other run. Raises
        StillRunning after `timeout` seconds.
        """
        patience = self.patience if timeout is None else timeout
        deadline = time.monotonic() + patience
        query = {**request.query, "wait": min(protocol.MAX_WAIT, patience)}
        waiting = Request(
            request.method, request.path, query, request.body, request.content, request.headers
        )
        answer = self.send(waiting)
        while answer.status_code == 202:
            self.follow(answer, patience, deadline)
            answer = self.send(waiting)
        return parse(answer, model)

    def settle(
        self, request: Request, model: type[Answer], *, wait: bool, timeout: float | None = None
    ) -> Answer:
        """Send a request whose answer is its own progress; with `wait`, return it at the end."""
        return parse(self._settled(request, wait=wait, timeout=timeout), model)

    def settle_if_any(
        self, request: Request, model: type[Answer], *, wait: bool, timeout: float | None = None
    ) -> Answer | None:
        """Like `settle`; return None if the answer is that there is no progress to follow."""
        answer = self._settled(request, wait=wait, timeout=timeout)
        return None if answer.status_code == 204 else parse(answer, model)

    def _settled(self, request: Request, *, wait: bool, timeout: float | None) -> httpx.Response:
        answer = self.send(request)
        if wait and answer.status_code == 202:
            patience = self.patience if timeout is None else timeout
            answer = self.follow(answer, patience, time.monotonic() + patience)
        return answer

    def follow(self, answer: httpx.Response, patience: float, deadline: float) -> httpx.Response:
        """Read what a 202 names until it has ended; return its last state.

        Raises StillRunning at the deadline.
        """
        location = protocol.local_path(self.http.base_url, answer.headers["Location"])
        while not answer.json().get("finished_at"):
            pause = protocol.retry_after(answer) or 1.0
            if time.monotonic() + pause > deadline:
                raise StillRunning(location, answer.json(), patience)
            time.sleep(pause)
            answer = self.send(Request("GET", location))
        return answer

    def send(self, request: Request) -> httpx.Response:
        """Send a request, again where that may help; return an answer that is no error.

        Raises Problem, ConnectionFailed or UnexpectedAnswer.
        """
        deadline = time.monotonic() + self.timeout + request.wait
        attempt = 0
        while True:
            answer, failure = None, None
            try:
                answer = self.http.request(
                    request.method,
                    request.path,
                    **protocol.arguments(request, self.timeout),
                )
            except httpx.TransportError as error:
                failure = error
            pause = protocol.delay(answer, attempt)
            if pause is None or time.monotonic() + pause > deadline:
                break
            time.sleep(pause)
            attempt += 1
        if answer is None:
            raise ConnectionFailed(f"{request.method} {self.http.base_url}: {failure}")
        protocol.raise_for_problem(answer)
        return answer


class Pages(Generic[Item]):
    """A list of the API, read page by page while it is iterated over."""

    def __init__(
        self,
        transport: Transport,
        request: Request,
        page: type[Model],
        results: str = "results",
    ) -> None:
        self._transport = transport
        self._request = request
        self._page = page
        self._results = results

    def __iter__(self) -> Iterator[Item]:
        """Yield all items of all pages."""
        request: Request | None = self._request
        while request is not None:
            page = self._transport.fetch(request, self._page)
            for item in getattr(page, self._results):
                yield item
            request = self._next(getattr(page, "next", None))

    def all(self) -> list[Item]:
        """Return all items of all pages."""
        return [item for item in self]

    def to_frame(self) -> Any:
        """Return all items as a pandas DataFrame; records have a column for each field."""
        import pandas as pd

        items = [item.model_dump(by_alias=True) for item in self.all()]
        return pd.DataFrame([row_of(item) for item in items])

    def _next(self, following: str | int | None) -> Request | None:
        """Return the request for the next page: by its number, or by the cursor in its address."""
        if following is None:
            return None
        is_number = isinstance(following, int)
        name = "page" if is_number else "cursor"
        place = following if isinstance(following, int) else protocol.cursor_of(following)
        return Request("GET", self._request.path, {**self._request.query, name: place})


def parse(answer: httpx.Response, model: type[Answer]) -> Answer:
    """Return an answer as an object, with its ETag."""
    try:
        parsed = model.model_validate_json(answer.content)
    except ValidationError:
        raise UnexpectedAnswer(answer.status_code, answer.text) from None
    parsed._etag = answer.headers.get("ETag")
    return parsed

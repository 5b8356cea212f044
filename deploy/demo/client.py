"""A minimal HTTP client for the demo."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any


class UnexpectedAnswer(RuntimeError):
    """The server responded with a status that the demo doesn't expect."""


@dataclass(frozen=True)
class Client:
    """A client for the API that uses one API key."""

    base_url: str
    api_key: str

    def call(
        self, method: str, path: str, body: object = None, *, expect: tuple[int, ...] = (200,)
    ) -> Any:
        """Send a request to `/v1/` + `path`; return the response's JSON.

        Raises UnexpectedAnswer if the response's status is not in `expect`, and OSError if the
        server is down.
        """
        request = urllib.request.Request(  # noqa: S310 - our own server
            f"{self.base_url}/v1/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.api_key}",
                "Content-Type": "application/json",
            },
        )
        try:
            # This is our own server, too.
            with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310  # nosec B310
                status, content = response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                status, content = error.code, error.read()
        if status not in expect:
            text = content.decode(errors="replace")
            raise UnexpectedAnswer(f"{method} {path} answered {status}: {text[:2000]}")
        return json.loads(content)

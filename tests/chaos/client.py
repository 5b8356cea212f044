"""A single HTTP request with a short timeout."""

import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.waiting import scaled

SECONDS = 15


class Unanswered(Exception):
    """There was no answer, or a server error: the request may have been carried out or not."""


@dataclass(frozen=True)
class Client:
    """A caller of the API with the key of one workspace."""

    base_url: str
    workspace: str
    key: str

    def request(
        self, method: str, path: str, body: Any = None, *, key: str | None = None
    ) -> tuple[int, Any, str]:
        """Send a request; return the status, the decoded answer, and its text.

        `key` is its Idempotency-Key. Raises Unanswered.
        """
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        connection = http.client.HTTPConnection(
            urlsplit(self.base_url).netloc, timeout=scaled(SECONDS)
        )
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, f"/v1/{path}", data, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            if answer.status >= 500:
                raise Unanswered(f"status {answer.status}")
            return answer.status, json.loads(text or "null"), text
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unanswered(type(error).__name__) from error
        finally:
            connection.close()

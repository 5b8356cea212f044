"""The tools' client for version 1 of the API, over HTTP or within this process."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

import httpx2

from memory.kernel.models.users import user_id_fault

# Timeout for API requests; longer than the longest wait that a request can ask for.
TIMEOUT_SECONDS = 90.0

Json: TypeAlias = dict[str, Any]


class RequestRefused(Exception):
    """The API rejected a request or did not respond; the message says what to fix."""

    def __init__(self, text: str, answer: Json | None = None) -> None:
        super().__init__(text)
        self.answer = answer


@dataclass(frozen=True)
class Api:
    """Version 1 of the API, called with one key. Requests run in the executor `threads`."""

    client: httpx2.Client
    base_url: str
    headers: Mapping[str, str]
    threads: Executor

    async def get(self, address: str, **parameters: object) -> Json:
        """Send a GET request, leaving out parameters that are None, and return the response.

        Raises RequestRefused if the API rejects the request or does not respond.
        """
        return await self._call("GET", address, None, parameters)

    async def post(self, address: str, body: Json, **parameters: object) -> Json:
        """Send a POST request and return the response; raises RequestRefused like `get`."""
        return await self._call("POST", address, body, parameters)

    async def delete(self, address: str, **parameters: object) -> Json:
        """Send a DELETE request and return the response; raises RequestRefused like `get`."""
        return await self._call("DELETE", address, None, parameters)

    async def _call(
        self, method: str, address: str, body: Json | None, parameters: Mapping[str, object]
    ) -> Json:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self.threads, self._send, method, address, body, parameters
        )

    def _send(
        self, method: str, address: str, body: Json | None, parameters: Mapping[str, object]
    ) -> Json:
        try:
            # This escapes lone surrogates, so they reach the API, which returns an error that names
            # the field.
            content = None if body is None else json.dumps(body)
        except (RecursionError, ValueError):
            raise RequestRefused("The arguments are nested too deeply.") from None
        given = {name: str(value) for name, value in parameters.items() if value is not None}
        try:
            response = self.client.request(
                method,
                f"{self.base_url}/v1/{address}",
                content=content,
                params=given,
                headers={**self.headers, "Content-Type": "application/json"},
            )
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise RequestRefused(
                f"The UaC server at {self.base_url} is not responding ({error})."
            ) from None
        return _read(response)


def address(*segments: str) -> str:
    """Join these segments into a path below `/v1/`, with a trailing slash.

    A user's id follows `users`; only there may a segment have slashes. Raises RequestRefused if a
    segment would lead to another path or is not printable.
    """
    for before, segment in zip((None, *segments), segments, strict=False):
        if before == "users":
            if fault := user_id_fault(segment):
                raise RequestRefused(f"{segment[:100]!r} is not a valid user_id: {fault}")
        elif segment in ("", ".", "..") or "/" in segment or not segment.isprintable():
            raise RequestRefused(
                f"{segment[:100]!r} is not a valid name or id: use printable characters but no"
                " slash."
            )
    return "".join(f"{quote(segment, safe='')}/" for segment in segments)


def _read(response: httpx2.Response) -> Json:
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise RequestRefused(
            "The response did not come from a UaC server: it is not a JSON object (status"
            f" {response.status_code})."
        )
    if response.status_code >= 400:
        raise RequestRefused(describe_error(answer), answer)
    return answer


def describe_error(answer: Json) -> str:
    """Return an error's text: the problem's detail and invalid fields, or the whole response."""
    if "detail" not in answer or "outcome" in answer or "verdict" in answer:
        return json.dumps(answer, ensure_ascii=False)
    return " ".join([answer["detail"], *_fields(answer.get("errors", {}), "")])


def _fields(errors: Any, name: str) -> Iterator[str]:
    if isinstance(errors, dict):
        for key, inner in errors.items():
            yield from _fields(inner, f"{name}.{key}" if name else key)
    elif isinstance(errors, list):
        for inner in errors:
            yield from _fields(inner, name)
    else:
        yield f"{name}: {errors}"

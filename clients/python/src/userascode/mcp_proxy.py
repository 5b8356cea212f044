"""An MCP server over standard input and output that passes all messages to a UaC server.

It needs the extra `mcp`.
"""

from typing import Any

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import PROTOCOL_VERSION_META_KEY

# Longer than the longest wait of a tool.
TIMEOUT_SECONDS = 120.0


class _Transport(httpx2.AsyncHTTPTransport):
    """A transport for which a server that does not answer is one that answers 503.

    The SDK then refuses the one request instead of ending.
    """

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await super().handle_async_request(request)
        except httpx2.TransportError:
            return httpx2.Response(503, request=request)


async def serve(url: str, key: str) -> None:
    """Serve until the input ends and all is answered. `url` is the server's MCP endpoint."""
    headers = {"Authorization": f"Bearer {key}"}
    unanswered: set[Any] = set()
    async with (
        httpx2.AsyncClient(
            headers=headers, timeout=TIMEOUT_SECONDS, transport=_Transport()
        ) as http,
        streamable_http_client(url, http_client=http) as (from_server, to_server),
        stdio_server() as (from_host, to_host),
        anyio.create_task_group() as group,
    ):

        async def answer() -> None:
            async for received in from_server:
                if not isinstance(received, Exception):
                    await to_host.send(received)
                    if not hasattr(received.message, "method"):
                        unanswered.discard(getattr(received.message, "id", None))

        group.start_soon(answer)
        async for received in from_host:
            if not isinstance(received, Exception):  # such as a line that is no JSON
                if hasattr(received.message, "method") and hasattr(received.message, "id"):
                    unanswered.add(received.message.id)
                await to_server.send(_with_headers(received))
        with anyio.move_on_after(TIMEOUT_SECONDS):
            while unanswered:
                await anyio.sleep(0.05)
        group.cancel_scope.cancel()
        # Otherwise, the writer of the output would wait for more.
        to_host.close()


def _with_headers(received: SessionMessage) -> SessionMessage:
    """Return a message with the headers that the protocol of 2026-07-28 requires over HTTP."""
    message: dict[str, Any] = received.message.model_dump(by_alias=True, exclude_none=True)
    params: dict[str, Any] = message.get("params") or {}
    version = params.get("_meta", {}).get(PROTOCOL_VERSION_META_KEY)
    if version is None:
        return received
    headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: message["method"]}
    name = params.get(NAME_BEARING_METHODS.get(message["method"], ""))
    if isinstance(name, str):
        headers[MCP_NAME_HEADER] = encode_header_value(name)
    return SessionMessage(received.message, ClientMessageMetadata(headers=headers))

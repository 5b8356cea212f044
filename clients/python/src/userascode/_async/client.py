"""The client of a server."""

from types import TracebackType

import httpx
from typing_extensions import Self

from userascode import protocol
from userascode._async.alerts import AsyncAlerts
from userascode._async.transport import AsyncTransport
from userascode._async.user import AsyncUser
from userascode._async.workspace import (
    AsyncBacktests,
    AsyncErasures,
    AsyncRuns,
    AsyncSchema,
    AsyncUsers,
    AsyncWebhooks,
    AsyncWorkspaceConstraints,
)


class AsyncClient:
    """A server, with a key of one of its workspaces. May be shared by asyncio.

    Without `url` and `key`, they are read from `UAC_URL` and `UAC_KEY`. `timeout` is the number of
    seconds for one answer, within which a request is repeated if the server is busy or cannot be
    reached; `patience` is that for an operation that takes long.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 30,
        patience: float = 300,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        options = protocol.options(url, key, timeout)
        self._http = httpx.AsyncClient(**options, transport=transport)
        sender = AsyncTransport(self._http, timeout, patience)
        self._sender = sender
        self.alerts = AsyncAlerts(sender, "")
        self.backtests = AsyncBacktests(sender)
        self.constraints = AsyncWorkspaceConstraints(sender)
        self.erasures = AsyncErasures(sender)
        self.runs = AsyncRuns(sender)
        self.schema = AsyncSchema(sender)
        self.users = AsyncUsers(sender)
        self.webhooks = AsyncWebhooks(sender)

    def user(self, user_id: str) -> AsyncUser:
        """Return what the server remembers of a user. Asks nothing."""
        return AsyncUser(self._sender, user_id)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        """Return the client, which is closed at the end of the block."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections."""
        await self.aclose()

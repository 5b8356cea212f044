"""The client of a server.

Generated from `_async/client.py`.
"""

from types import TracebackType

import httpx
from typing_extensions import Self

from userascode import protocol
from userascode._sync.alerts import Alerts
from userascode._sync.transport import Transport
from userascode._sync.user import User
from userascode._sync.workspace import (
    Backtests,
    Erasures,
    Runs,
    Schema,
    Users,
    Webhooks,
    WorkspaceConstraints,
)


class Client:
    """A server, with a key of one of its workspaces. May be shared by threads.

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
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        options = protocol.options(url, key, timeout)
        self._http = httpx.Client(**options, transport=transport)
        sender = Transport(self._http, timeout, patience)
        self._sender = sender
        self.alerts = Alerts(sender, "")
        self.backtests = Backtests(sender)
        self.constraints = WorkspaceConstraints(sender)
        self.erasures = Erasures(sender)
        self.runs = Runs(sender)
        self.schema = Schema(sender)
        self.users = Users(sender)
        self.webhooks = Webhooks(sender)

    def user(self, user_id: str) -> User:
        """Return what the server remembers of a user. Asks nothing."""
        return User(self._sender, user_id)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        """Return the client, which is closed at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections."""
        self.close()

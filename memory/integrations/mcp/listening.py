"""Notices of alerts over MCP (`subscriptions/listen`): a user's resource `alerts` has changed."""

import asyncio
from contextlib import suppress
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult

from memory.integrations.mcp.events import Full, Streams, Subscription
from memory.integrations.mcp.resources import alerts_uri


async def listen(
    streams: Streams,
    subscription: Subscription,
    context: ServerRequestContext[Any],
    params: SubscriptionsListenRequestParams,
) -> SubscriptionsListenResult:
    """Send notices until the client disconnects or its key is no longer valid.

    Each stream has a bus of its own, which only carries what this caller may see. The stream ends
    at once if the maximum number of streams is open.
    """
    bus = InMemorySubscriptionBus()
    handler = ListenHandler(bus)

    async def publish() -> None:
        async for user_id in streams.users_with_events(subscription):
            await bus.publish(ResourceUpdated(alerts_uri(user_id)))

    publishing = asyncio.create_task(publish())
    publishing.add_done_callback(lambda _: handler.close())
    try:
        result = await handler(context, params)
    finally:
        publishing.cancel()
        with suppress(asyncio.CancelledError, Full):
            await publishing
    return result

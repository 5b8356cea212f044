"""The event feed as a stream: server-sent events, which clients can resume, and notices for MCP.

A stream reads the feed from the database, so it neither misses nor repeats an event, even if a
wake-up notification is lost. One thread listens for all of the process's streams and polls the
database at intervals. A waiting stream occupies no thread. However slow its client is, a stream
keeps only one page of the feed in memory, and streams at the same position share their reads.
"""

import asyncio
import json
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import structlog
from django.conf import settings
from django.db import Error, close_old_connections, connection
from django.db.models import Q, prefetch_related_objects
from starlette.types import Receive, Scope, Send

from memory.alerts import alert_events, entry_events
from memory.alerts.delivery import webhook_messages
from memory.alerts.entry_events import Named
from memory.alerts.models.alerts import Alert, AlertEvent, AlertEventKind
from memory.kernel.models.workspaces import Workspace
from memory.kernel.work import hints

logger = structlog.get_logger(__name__)

# Maximum number of events a stream keeps in memory at a time.
PAGE = 50
# Seconds between checks for new events when no wake-up notification arrives.
LOOK_SECONDS = 2.0
# Resubscribe after this many checks, in case Redis was down the first time.
LOOKS = 30
# A client that reads nothing for this long is presumed to have disconnected.
SEND_SECONDS = 60.0
# How long a client waits before reconnecting.
RETRY_MILLISECONDS = 2000
# The first event of a stream; its id is the position that the stream starts from.
CONNECTED = "connected"


class Full(Exception):
    """The limit on open streams has been reached, either in total or for this workspace."""


@dataclass(frozen=True)
class Subscription:
    """A client's subscription: a workspace's or one user's events, after a given event number.

    The user is identified by primary key, because a later user with the same `user_id` is a
    different person; None means all users in the workspace.
    """

    key: str
    workspace: Workspace
    user: int | None
    after: int


class Streams:
    """The event streams of this process. `threads` run the database queries.

    `is_valid` says whether a stream's key or token is still valid.
    """

    def __init__(self, threads: Executor, is_valid: Callable[[str], Awaitable[bool]]) -> None:
        self._threads = threads
        self._is_valid = is_valid
        # For each workspace, the streams to wake and the newest event number seen.
        self._bells: dict[int, set[asyncio.Event]] = defaultdict(set)
        self._newest: dict[int, int] = {}
        # Feed reads in progress, shared by all streams at the same position.
        self._reading: dict[_Cursor, asyncio.Future[_Page]] = {}
        self._open = 0
        self._stopping = threading.Event()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Wake the streams whenever there are new events, until the block exits."""
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._listen, args=(loop,), name="events", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()

    async def send(
        self, subscription: Subscription, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Respond to a request with events until one side disconnects.

        Raises Full, before anything is sent, if the maximum number of streams is open.
        """
        with self._bell(subscription.workspace) as bell:
            headers = [
                (b"content-type", b"text/event-stream"),
                (b"cache-control", b"no-store"),
                (b"x-accel-buffering", b"no"),
            ]
            await send({"type": "http.response.start", "status": 200, "headers": headers})

            async def speak() -> None:
                async for text in self._texts(subscription, bell):
                    body = {"type": "http.response.body", "body": text.encode(), "more_body": True}
                    async with asyncio.timeout(SEND_SECONDS):
                        await send(body)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

            async def hear() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass

            both = [asyncio.create_task(speak()), asyncio.create_task(hear())]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in both:
                    task.cancel()
                ended = await asyncio.gather(*both, return_exceptions=True)
            if isinstance(ended[0], Exception) and not isinstance(ended[0], TimeoutError):
                raise ended[0]

    async def users_with_events(self, subscription: Subscription) -> AsyncIterator[str]:
        """Yield the user_id of each new event, until the key or token is no longer valid.

        Raises Full, before the first event, if the maximum number of streams is open.
        """
        with self._bell(subscription.workspace) as bell:
            async for page in self._pages(subscription, bell):
                for user_id in page.user_ids if page else ():
                    yield user_id

    async def _texts(self, subscription: Subscription, bell: asyncio.Event) -> AsyncIterator[str]:
        after = subscription.after
        # Clients that parse the data of every event get JSON from the first one on.
        data = json.dumps({"type": CONNECTED, "data": {"after": after}})
        yield f"id: {after}\nevent: {CONNECTED}\nretry: {RETRY_MILLISECONDS}\ndata: {data}\n\n"
        async for page in self._pages(subscription, bell):
            if page is None:
                # Without an empty line, which would end an event: some clients would see one that
                # has no data.
                yield ": nothing new\n"
                continue
            for text in page.texts:
                yield text
        yield 'event: closed\ndata: {"detail": "The API key is no longer valid."}\n\n'

    async def _pages(
        self, subscription: Subscription, bell: asyncio.Event
    ) -> AsyncIterator["_Page | None"]:
        """Yield the pages of the feed, and None whenever a heartbeat is due.

        Ends when the subscription's key or token is no longer valid.
        """
        workspace, after = subscription.workspace.pk, subscription.after
        heartbeat = settings.UAC_EVENT_HEARTBEAT_SECONDS
        looked_at_key = time.monotonic()
        while True:
            if time.monotonic() - looked_at_key >= heartbeat:
                if not await self._is_valid(subscription.key):
                    return
                looked_at_key = time.monotonic()
            page = await self._page((workspace, subscription.user, after))
            yield page
            after = page.next
            if page.texts or self._newest.get(workspace, 0) > after:
                continue
            bell.clear()
            try:
                async with asyncio.timeout(heartbeat):
                    await bell.wait()
            except TimeoutError:
                yield None

    async def _page(self, position: "_Cursor") -> "_Page":
        """Read the page of events after a position, once for all streams at that position."""
        reading = self._reading.get(position)
        if reading is None:
            loop = asyncio.get_running_loop()
            reading = loop.run_in_executor(self._threads, _read, position)
            self._reading[position] = reading
            reading.add_done_callback(lambda _: self._reading.pop(position, None))
        return await asyncio.shield(reading)  # a disconnecting client must not cancel the read

    @contextmanager
    def _bell(self, workspace: Workspace) -> Iterator[asyncio.Event]:
        most = settings.UAC_EVENT_STREAMS
        bells = self._bells[workspace.pk]
        # A workspace may use at most half of the streams, to leave room for others.
        if self._open >= most or len(bells) >= most - most // 2:
            raise Full
        bell = asyncio.Event()
        self._open += 1
        bells.add(bell)
        try:
            yield bell
        finally:
            self._open -= 1
            bells.discard(bell)

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake the streams of workspaces with new events. Runs in its own thread."""
        while not self._stopping.is_set():
            with hints.events_signalled() as wait:
                for _ in range(LOOKS):
                    wait(LOOK_SECONDS)
                    if self._stopping.is_set():
                        break
                    self._look(loop)
        connection.close()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        listened = [pk for pk, bells in tuple(self._bells.items()) if bells]
        if not listened:
            return
        try:
            close_old_connections()
            newest = alert_events.newest_of(listened)
        except Error as error:
            logger.warning("events_not_looked_for", error=type(error).__name__)
            return
        loop.call_soon_threadsafe(self._ring, newest)

    def _ring(self, newest: Mapping[int, int]) -> None:
        for workspace, number in newest.items():
            if self._newest.get(workspace) != number:
                self._newest[workspace] = number
                for bell in self._bells[workspace]:
                    bell.set()


# A workspace, one of its users (None for all users), and the event number to read after.
_Cursor: TypeAlias = tuple[int, int | None, int]


@dataclass(frozen=True)
class _Page:
    texts: Sequence[str]
    user_ids: Sequence[str]
    next: int


def _read(position: _Cursor) -> _Page:
    """Return the next page of events after a position, formatted for sending."""
    close_old_connections()
    workspace, user, after = position
    reach = Q(user__workspace=workspace) if user is None else Q(user=user)
    entries = alert_events.select_entry_events(reach)
    page = alert_events.read(workspace, after, Alert.objects.filter(reach), entries, PAGE)
    prefetch_related_objects(page.events, "alert__user", "alert__duplicates", "user")
    named = entry_events.named_by(page.events)
    texts = [_text(event, named.get(event.pk, ())) for event in page.events]
    user_ids = sorted({event.person.user_id for event in page.events})
    return _Page(texts, user_ids, page.next)


def _text(event: AlertEvent, named: Sequence[Named]) -> str:
    kind = AlertEventKind(event.kind).event_type
    payload = webhook_messages.message(event.person, event, named)
    return f"id: {event.seq}\nevent: {kind}\ndata: {payload}\n\n"

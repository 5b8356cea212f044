"""Redis as Celery's broker, with queues that cannot grow without bound.

A message is a hint: one that waited for long is worthless, and the work that it told of is found by
the dispatcher. So where nobody takes them, the oldest go.
"""

from collections import Counter
from typing import Any

from kombu.transport import redis

# So many of each priority a queue keeps: they take some megabytes.
MOST_WAITING = 10_000
# A queue is shortened with every so many messages that a process puts there.
EVERY = 100


class Channel(redis.Channel):
    """Shortens the queues that it puts messages into."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._put_into: Counter[str] = Counter()

    def _put(self, queue: str, message: dict[str, Any], **options: Any) -> None:
        super()._put(queue, message, **options)
        priority = self._get_message_priority(message, reverse=False)
        key: str = self._q_for_pri(queue, priority)  # type: ignore[attr-defined]
        self._put_into[key] += 1
        if self._put_into[key] % EVERY == 1:
            with self.conn_or_acquire() as client:
                client.ltrim(key, 0, MOST_WAITING - 1)


class Transport(redis.Transport):
    """Redis, with those channels."""

    Channel = Channel

"""Redis as Celery's broker, with queues of limited length.

Messages are hints: a hint that has waited for a long time is worthless, since the dispatcher finds
its work anyway. So if nobody takes the messages, the oldest are dropped.
"""

from collections import Counter
from typing import Any

from kombu.transport import redis

# Maximum number of messages per priority in a queue; this many take a few megabytes.
MAX_WAITING = 10_000
# A process trims a queue whenever it has put this many messages into it.
EVERY = 100


class Channel(redis.Channel):
    """Trims the queues that it puts messages into."""

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
                client.ltrim(key, 0, MAX_WAITING - 1)


class Transport(redis.Transport):
    """Celery's Redis transport, with trimmed queues."""

    Channel = Channel

"""Redis as Celery's broker, with bounded queues.

Messages are wake-up hints: once a hint has waited for a long time, it is worthless, since the
dispatcher finds the work anyway. So if nobody consumes the messages, the oldest ones are dropped.
"""

from collections import Counter
from typing import Any

from kombu.transport import redis

# Maximum number of messages per queue and priority; a full queue takes up a few megabytes.
MAX_WAITING = 10_000
# A process trims a queue every time it has put this many messages into it.
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

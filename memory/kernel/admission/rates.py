"""Rate limits: the requests and entries that a workspace may send per minute, across all processes.

Each rate is a token bucket that holds as many tokens as are allowed per minute, so bursts are
possible. Redis stores when the bucket will be full again (the generic cell rate algorithm), and
when that value was written. A process takes a hundredth of a minute's tokens at a time and counts
them down locally, so few requests query Redis. If Redis does not respond, each process uses its own
local bucket: no request is rejected or delayed because Redis is down.
"""

import math
import threading
import time
from dataclasses import dataclass, field
from functools import lru_cache

import redis
import structlog

from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings import environment
from memory.kernel.work.hints import QUICK_SECONDS, redis_client

logger = structlog.get_logger(__name__)

MINUTE = 60.0
# The names of a workspace's rate limits, which are also the names of its fields.
READS = "reads_per_minute"
WRITES = "writes_per_minute"
COSTLY = "costly_per_minute"
ENTRIES = "entries_per_minute"
# On top of the tokens it needs now, a process takes a minute's tokens divided by SHARE.
SHARE = 100
# Seconds to wait before querying Redis again after it failed to respond.
SILENT_SECONDS = 10.0

# Returns the number of tokens taken, the number of tokens left, and the microseconds until the
# bucket holds the tokens needed. A request for more tokens than a full bucket holds is granted once
# the bucket is full, so that no single request is too large. If Redis's clock was set back, the
# bucket keeps its level.
TAKE = """
local rate, need, more = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local full_at, seen = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (%d+)$')
full_at, seen = tonumber(full_at or now), tonumber(seen or now)
local back = math.max(0, seen - now)
full_at = math.max(now, full_at - back)
local each = 60000000 / rate
local left = rate - (full_at - now) / each
local least = math.min(need, rate)
local taken = 0
if left >= least then
  taken = need + math.max(0, math.min(more, math.floor(left - need)))
  full_at = full_at + taken * each
end
if taken > 0 or back > 0 then
  local lasts = math.ceil((full_at - now) / 1000) + 1
  redis.call('SET', KEYS[1], string.format('%.0f %.0f', full_at, now), 'PX', lasts)
end
return {taken, math.floor(left - taken), taken > 0 and 0 or math.ceil((least - left) * each)}
"""


@dataclass(frozen=True)
class RateStatus:
    """The state of a rate limit after a request for tokens; `wait` is None if they were granted."""

    name: str
    rate: int
    left: int
    wait: float | None = None

    @property
    def full_in(self) -> float:
        """The number of seconds until the bucket is full again."""
        return (self.rate - self.left) * MINUTE / self.rate


@dataclass
class _Held:
    """Tokens that this process has taken but not used, and its local bucket for Redis outages.

    `left` is the shared bucket's level, as last reported by Redis.
    """

    rate: int
    tokens: int = 0
    left: int = 0
    full_at: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


_held: dict[tuple[str, str], _Held] = {}
_silent_until = 0.0


def take(workspace: Workspace, name: str, cost: int = 1) -> RateStatus:
    """Take `cost` tokens from one of the workspace's rate limits, or none if too few are left."""
    rate = int(workspace.effective(environment.QUOTAS)[name])
    key = (str(workspace.public_id), name)
    held = _held.get(key)
    if held is None or held.rate != rate:
        held = _held[key] = _Held(rate)
    with held.lock:
        if held.tokens >= cost:
            held.tokens -= cost
            return RateStatus(name, rate, held.left + held.tokens)
        need = cost - held.tokens
        taken, left, wait = _ask(f"rate:{key[0]}:{name}:{rate}", held, need)
        held.left = left
        if not taken:
            return RateStatus(name, rate, max(0, left + held.tokens), wait)
        held.tokens += taken - cost
        return RateStatus(name, rate, max(0, left + held.tokens))


def left_of(name: str, rate: int, key: str, *, take: bool) -> int:
    """Return the number of tokens left in the bucket of a rate limit that belongs to no workspace.

    If `take` is set, a token is taken first. `key` identifies the caller; Redis learns nothing else
    about the caller.
    """
    _, left, _ = _ask(f"rate:{name}:{key}:{rate}", _bucket_of(name, rate, key), int(take))
    return left


@lru_cache(maxsize=10_000)
def _bucket_of(name: str, rate: int, key: str) -> _Held:
    """Return a caller's local bucket, which counts while Redis is down."""
    return _Held(rate)


def _ask(key: str, held: _Held, need: int) -> tuple[int, int, float]:
    global _silent_until
    if time.monotonic() >= _silent_until:
        try:
            take_tokens = redis_client(patience=QUICK_SECONDS).register_script(TAKE)
            taken, left, wait = take_tokens([key], [held.rate, need, held.rate // SHARE])
            return int(taken), int(left), wait / 1e6
        except redis.RedisError as error:
            _silent_until = time.monotonic() + SILENT_SECONDS
            logger.warning("rates_counted_alone", error=str(error))
    return _alone(held, need)


def _alone(held: _Held, need: int) -> tuple[int, int, float]:
    """Take tokens from this process's local bucket, as the Lua script does in Redis."""
    now, each = time.monotonic(), MINUTE / held.rate
    full_at = max(now, held.full_at)
    left = held.rate - (full_at - now) / each
    least = min(need, held.rate)
    if left < least:
        return 0, math.floor(left), (least - left) * each
    held.full_at = full_at + need * each
    return need, math.floor(left - need), 0.0

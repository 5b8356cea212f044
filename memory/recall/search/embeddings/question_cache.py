"""Per-process caches for hurried requests: recent vectors and recent failures."""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from memory.recall.search.embeddings.interface import Floats

# If embedding a question or a log's tail fails, calls of the same kind are blocked for this many
# seconds: for all users if the provider failed, and otherwise only for the user whose text, or the
# workspace whose budget, caused the failure.
REST_SECONDS = 10.0
# The maximum total size, in bytes, of the vectors that a process caches for questions and for logs'
# tails.
RECENT_BYTES = 16 * 1024 * 1024


class RecentFailures:
    """Recent failures and the reasons for them; similar calls are blocked for REST_SECONDS."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, str]] = {}

    def rest(self, key: str, reason: str) -> None:
        """Block calls with the key `key` for REST_SECONDS and remember the reason."""
        now = time.monotonic()
        # Replace the whole dictionary, because other threads may be reading it.
        kept = {name: one for name, one in self._until.items() if one[0] > now}
        self._until = {**kept, key: (now + REST_SECONDS, reason)}

    def reason(self, key: str) -> str | None:
        """Return why calls with the key `key` are currently blocked, or None if they aren't."""
        until, reason = self._until.get(key, (0.0, ""))
        return reason if time.monotonic() < until else None

    def clear(self) -> None:
        """Forget all failures."""
        self._until = {}


class RecentVectors:
    """Cached vectors for questions and not yet indexed entries, keyed by digests of their texts.

    Only a caller that has a text can get the text's vector, and once an entry is redacted, nobody
    has its text.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._vectors: OrderedDict[bytes, Floats] = OrderedDict()
        self._bytes = 0

    def get(self, scope: str, texts: Sequence[str]) -> dict[str, Floats]:
        """Return whichever vectors are cached for these texts, keyed by text."""
        vectors = {}
        with self._lock:
            for text in texts:
                if (vector := self._vectors.get(digest := _digest(scope, text))) is not None:
                    self._vectors.move_to_end(digest)
                    vectors[text] = vector
        return vectors

    def keep(self, scope: str, made: Mapping[str, Floats]) -> None:
        """Cache vectors, keyed by text; the least recently used ones are evicted to make room."""
        with self._lock:
            for text, vector in made.items():
                gone = self._vectors.pop(_digest(scope, text), None)
                self._bytes += vector.nbytes - (0 if gone is None else gone.nbytes)
                self._vectors[_digest(scope, text)] = vector.copy()
            while self._bytes > RECENT_BYTES:
                _, oldest = self._vectors.popitem(last=False)
                self._bytes -= oldest.nbytes

    def clear(self) -> None:
        """Drop all vectors."""
        with self._lock:
            self._vectors.clear()
            self._bytes = 0


def _digest(scope: str, text: str) -> bytes:
    return hashlib.sha256(f"{scope}\0{text}".encode()).digest()


recent_failures = RecentFailures()
recent_vectors = RecentVectors()


def forget_recent() -> None:
    """Clear the recent failures and cached vectors."""
    recent_failures.clear()
    recent_vectors.clear()

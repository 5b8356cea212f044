"""The channel of bytes to and from the runner in a sandbox."""

from typing import Protocol


class Channel(Protocol):
    """A channel of bytes to and from the runner in a sandbox."""

    def send(self, data: bytes, deadline: float) -> None:
        """Write all data; raise EOFError if the runner is gone, TimeoutError past the deadline."""
        ...

    def receive(self, count: int, deadline: float) -> bytes:
        """Receive `count` bytes, or fewer at the end of the stream.

        Raises TimeoutError past the deadline.
        """
        ...

    def has_ended(self) -> bool:
        """Return whether the runner has exited, without waiting.

        Its remaining output stays readable.
        """
        ...

    def close(self) -> None:
        """Destroy the sandbox with everything in it; may be called again."""
        ...

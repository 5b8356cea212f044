"""The byte channel between this process and the runner in a sandbox."""

from typing import Protocol


class Channel(Protocol):
    """A byte channel between this process and the runner in a sandbox."""

    def send(self, data: bytes, deadline: float) -> None:
        """Send all of the data to the runner.

        Raises EOFError if the runner has exited, and TimeoutError if the deadline passes first.
        """
        ...

    def receive(self, count: int, deadline: float) -> bytes:
        """Receive `count` bytes from the runner, or fewer at the end of the stream.

        Raises TimeoutError if the bytes do not arrive before the deadline.
        """
        ...

    def has_ended(self) -> bool:
        """Return immediately whether the runner has exited.

        Output that the runner has already written can still be read.
        """
        ...

    def close(self) -> None:
        """Destroy the sandbox and everything in it; may be called more than once."""
        ...

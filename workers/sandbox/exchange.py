"""Exchange frames with the runner in a sandbox, over a channel.

A frame's size, nesting depth and number of values are checked before its content is used. If the
runner's response is invalid or late, the runner's sandbox is destroyed.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from sandbox_image.uac import protocol
from sandbox_image.uac.protocol import ProtocolError
from workers.sandbox.results import SandboxError

# Maximum number of JSON escapes in a response: decoding one escape takes as long as decoding dozens
# of plain characters.
MAX_ESCAPES = 1_000_000


class Channel(Protocol):
    """A byte channel between this process and the runner in a sandbox."""

    def send(self, data: bytes, deadline: float) -> None:
        """Send all of the data to the runner.

        Raises EOFError if the runner has exited, and TimeoutError if the deadline passes first.
        """

    def receive(self, count: int, deadline: float) -> bytes:
        """Receive `count` bytes from the runner, or fewer at the end of the stream.

        Raises TimeoutError if the bytes do not arrive before the deadline.
        """

    def has_ended(self) -> bool:
        """Return immediately whether the runner has exited.

        Output that the runner has already written can still be read.
        """

    def close(self) -> None:
        """Destroy the sandbox and everything in it; may be called more than once."""


def read_message(channel: Channel, max_bytes: int, deadline: float) -> dict[str, Any]:
    """Return the next message; raise EOFError, TimeoutError or ProtocolError if there is none."""
    message = protocol.read_frame(lambda count: channel.receive(count, deadline), max_bytes)
    if message is None:
        raise EOFError
    return message


class FrameExchange:
    """Sends requests and receives responses; any failure to do so destroys the sandbox."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._alive = True

    @property
    def alive(self) -> bool:
        """False once the sandbox has failed or been closed."""
        return self._alive and not self.channel.has_ended()

    def close(self) -> None:
        """Destroy the sandbox; may be called more than once."""
        self._alive = False
        self.channel.close()

    def exchange(
        self, request: dict[str, Any] | None, seconds: float, max_bytes: int, max_values: int
    ) -> dict[str, Any]:
        """Send the request, if there is one, in a frame; return the next frame received."""
        if not self._alive:
            raise SandboxError.unavailable("the sandbox has exited: open another one")
        try:  # a request too large for a frame is the caller's error, so the sandbox survives
            data = protocol.encode_frame(request) if request is not None else b""
        except protocol.FrameTooLargeError as error:
            raise SandboxError(
                "input_limit",
                f"the project, or the code to run on it, takes {error.size} bytes when sent to the"
                f" sandbox: at most {error.allowed} are allowed",
            ) from None
        except ProtocolError as error:
            raise SandboxError("protocol_error", str(error)) from None
        deadline = time.monotonic() + seconds
        try:
            self.channel.send(data, deadline)
            message = protocol.read_frame(
                lambda count: self.channel.receive(count, deadline),
                max_bytes,
                max_values,
                MAX_ESCAPES,
            )
        except protocol.TooManyValuesError as error:
            raise SandboxError(
                "result_limit", f"the response has {error}: request less data"
            ) from None
        except TimeoutError:
            raise self.broken("timeout", f"no response within {seconds:g} s") from None
        except EOFError:
            raise self.broken("killed", "the sandbox exited") from None
        except ProtocolError as error:
            raise self.broken("protocol_error", str(error)) from None
        except OSError as error:
            raise self.broken("killed", f"the channel to the sandbox failed: {error}") from error
        except BaseException:
            # After an interruption the stream is out of sync: the next response read would belong
            # to this request.
            self.close()
            raise
        if message is None:
            raise self.broken("killed", "the sandbox exited without a response")
        return message

    def broken(self, outcome: str, message: str) -> SandboxError:
        """Destroy the sandbox, and return the error to raise, with `infrastructure` set."""
        self.close()
        return SandboxError(outcome, message, infrastructure=True)

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Within this context, turn a ProtocolError into a SandboxError and destroy the sandbox."""
        try:
            yield
        except ProtocolError as error:
            raise self.broken("protocol_error", f"the response is invalid: {error}") from error

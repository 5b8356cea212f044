"""Exchange frames with the runner in a sandbox, over a channel.

A frame's size, nesting depth and number of values are checked before its content is used. If the
runner does not answer as it should, or in time, its sandbox is destroyed.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sandbox_image.uac import protocol
from sandbox_image.uac.protocol import ProtocolError
from workers.sandbox.channel import Channel
from workers.sandbox.interface import SandboxError

# Maximum number of escapes in an answer: decoding one takes as long as dozens of plain characters.
MAX_ESCAPES = 1_000_000


class FrameExchange:
    """Sends requests and receives their answers until one fails, which destroys the sandbox."""

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
            raise SandboxError(
                "killed", "the sandbox has ended: open another one", infrastructure=True
            )
        try:  # a request that does not fit in a frame is the caller's error: the sandbox survives
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
            raise SandboxError("result_limit", f"the answer has {error}: ask for less") from None
        except TimeoutError:
            raise self.broken("timeout", f"no answer within {seconds:g} s") from None
        except EOFError:
            raise self.broken("killed", "the sandbox ended") from None
        except ProtocolError as error:
            raise self.broken("protocol_error", str(error)) from None
        except OSError as error:
            raise self.broken("killed", f"the channel to the sandbox failed: {error}") from error
        except BaseException:
            # After an interruption the stream is out of step: the next answer read would belong to
            # this request.
            self.close()
            raise
        if message is None:
            raise self.broken("killed", "the sandbox ended without an answer")
        return message

    def broken(self, outcome: str, message: str) -> SandboxError:
        """Destroy the sandbox, and return the error to raise, with `infrastructure` set."""
        self.close()
        return SandboxError(outcome, message, infrastructure=True)

    @contextmanager
    def checking(self) -> Iterator[None]:
        """In this context, turn a ProtocolError into a SandboxError and destroy the sandbox."""
        try:
            yield
        except ProtocolError as error:
            raise self.broken("protocol_error", f"the answer is invalid: {error}") from error

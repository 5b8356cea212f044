"""The Docker runner: every sandbox is a separate, hardened container.

A container serves one user and is never reused for another. It has no network, no capabilities and
no way to gain any, no writable file system, its own user ID, and few permitted system calls
(`seccomp.json`). Before any code is sent, the runner reports from inside the container whether the
kernel enforces these restrictions: an engine that cannot read the seccomp profile silently runs
containers without a filter.
"""

import contextlib
import datetime
import functools
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, cast

import docker
import structlog
from django.conf import settings
from docker.errors import APIError, ImageNotFound, NotFound

from workers.sandbox import ownership
from workers.sandbox.client import HELLO_BYTES, Sandbox
from workers.sandbox.container_template import container_config, is_gvisor
from workers.sandbox.exchange import read_message
from workers.sandbox.image import default_image
from workers.sandbox.interface import Program
from workers.sandbox.limits import DEFAULT_SHAPE, Shape
from workers.sandbox.results import SandboxError

logger = structlog.get_logger(__name__)

KEEPS_SANDBOXES = True

ENGINE_SECONDS = 30
# If the engine takes longer than this, in seconds, to respond to a ping, it is considered down.
PING_SECONDS = 4
READ_BYTES = 1024 * 1024
LAST_WORDS_BYTES = 4096

# The properties that the runner reports if its container is confined.
CONFINED = {"seccomp": 2, "no_new_privileges": 1, "capabilities": 0}

_thread = threading.local()
# Don't share a client across forks: a child that used its parent's connection would read responses
# meant for the parent.
os.register_at_fork(after_in_child=lambda: _thread.__dict__.clear())


def start(*, hash_seed: int = 0, shape: Shape = DEFAULT_SHAPE) -> Sandbox:
    """Start a fresh container; raise SandboxError if it fails to start or is not confined.

    Closing the sandbox removes the container.
    """
    with _engine_errors():
        image = _image()
    channel = ContainerChannel(image, hash_seed, shape)
    try:
        channel.start()
        sandbox = Sandbox(
            channel,
            runner_name="docker",
            image_digest=_digest_of(image),
            hash_seed=hash_seed,
            memory_bytes=shape.process_memory_bytes,
        )
        check_confined(sandbox.hello)
    except BaseException as error:
        channel.close()
        if isinstance(error, SandboxError):
            raise error.at_start(channel.last_words) from error
        raise
    return sandbox


def check_confined(hello: Mapping[str, Any]) -> None:
    """Raise SandboxError unless the runner reports that its container is confined as requested."""
    expected = CONFINED | {"kernel": "gvisor" if is_gvisor() else "linux"}
    confinement = {name: hello.get(name) for name in expected}
    if confinement != expected:
        raise SandboxError.unavailable(
            f"the container is not confined ({confinement} instead of {expected}), so it"
            " is not used: either the engine or its runtime ignores the seccomp profile, or gVisor"
            " runs without --oci-seccomp, or UAC_SANDBOX_RUNTIME contains a name of gVisor (runsc)"
            " although the runtime is a different one, or is gVisor under a different name"
        )


@contextmanager
def open_channel(program: Program, shape: Shape, deadline: float) -> Iterator["ContainerChannel"]:
    """Start the program in a container of its own; see `Runner.open_channel`."""
    image = image_id(getattr(settings, program.setting) or program.image, setting=program.setting)
    with closing(ContainerChannel(image, 0, shape)) as channel:
        channel.start()
        check_confined(read_message(channel, HELLO_BYTES, deadline))
        yield channel


def image_digest() -> str:
    """Return the digest of the image; raise SandboxError if the engine does not have it."""
    with _engine_errors():
        return _digest_of(_image())


def problem() -> str:
    """Return why the engine cannot be used at the moment; "" if it responds in time."""
    try:
        with _engine_errors():
            client = getattr(_thread, "watched", None)
            if client is None:
                client = _thread.watched = docker.from_env(timeout=PING_SECONDS)
            client.ping()
    except SandboxError as error:
        return error.message
    return ""


def reap() -> int:
    """Remove the containers that killed workers left behind; return how many were removed.

    Most containers exit on their own when their worker's connection closes. The exceptions are
    containers that had not been started yet, and containers whose code kept the runner from seeing
    the end of its input.
    """
    with _engine_errors():
        engine = _engine()
        containers = engine.api.containers(all=True, filters={"label": ownership.LABEL})
        # Use the engine's clock, which set the containers' creation times.
        now = datetime.datetime.fromisoformat(engine.info()["SystemTime"][:19] + "+00:00")
        leftovers = [
            one["Id"] for one in containers if ownership.is_leftover(one, now=now.timestamp())
        ]
        for container in leftovers:
            logger.warning("sandbox_reaped", container=container[:12])
            try:
                engine.api.remove_container(container, force=True, v=True)
            except NotFound:
                pass
            except APIError as error:  # still remove the remaining containers
                logger.warning("sandbox_not_removed", container=container[:12], error=str(error))
                continue
            ownership.abandoned.discard(container)
    return len(leftovers)


class ContainerChannel:
    """A container and the single connection to its standard streams.

    The engine closes the runner's input when the connection is closed, either by `close` or because
    this process was killed. The runner then exits, and the container with it.
    """

    def __init__(self, image: str, hash_seed: int, shape: Shape = DEFAULT_SHAPE) -> None:
        self._image = image
        self._hash_seed = hash_seed
        self._shape = shape
        self._container: str | None = None
        self._stream: socket.SocketIO | None = None
        self._socket: socket.socket | None = None
        self._frames = _Frames()

    @property
    def container(self) -> str:
        """Return the ID of the container."""
        assert self._container is not None
        return self._container

    @property
    def last_words(self) -> str:
        """Return the end of the runner's stderr: a traceback, if the runner failed to start."""
        return self._frames.errors.decode(errors="replace").strip()[-1000:]

    def start(self) -> None:
        """Create and start the container; raise SandboxError if the engine cannot do so."""
        with _engine_errors():
            engine = _engine().api
            config = container_config(self._image, self._hash_seed, self._shape)
            created = engine.create_container_from_config(config)  # type: ignore[no-untyped-call]
            self._container = created["Id"]
            if created.get("Warnings"):  # if the engine cannot apply a limit, it only warns
                raise SandboxError.unavailable(
                    f"the Docker engine cannot apply all limits: {created['Warnings']}"
                )
            # Attach before starting the container, so that no output is missed.
            stream = engine.attach_socket(
                self._container, {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            )
            self._stream = cast("socket.SocketIO", stream)
            # Over TLS, the stream object itself is the socket.
            self._socket = getattr(stream, "_sock", stream)
            engine.start(self._container)

    def send(self, data: bytes, deadline: float) -> None:
        """See `Channel.send`."""
        connection = self._connected(deadline)
        try:
            connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise EOFError from None

    def receive(self, count: int, deadline: float) -> bytes:
        """See `Channel.receive`."""
        while len(self._frames.output) < count:
            try:
                data = self._connected(deadline).recv(READ_BYTES)
            except ConnectionResetError:
                break
            if not data:
                break
            self._frames.feed(data)
        return self._frames.take(count)

    def has_ended(self) -> bool:
        """Return whether the runner is known to have exited, without waiting for it."""
        if self._socket is None:
            return True
        self._socket.settimeout(0)
        try:
            return self._socket.recv(1, socket.MSG_PEEK) == b""
        except (BlockingIOError, ValueError):  # TLS connections do not support peeking
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Remove the container; may be called more than once."""
        # Close the connection first: while the connection is open and unread, the engine may hang
        # when killing the container.
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._socket = None
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self._container is not None:
            container, self._container = self._container, None
            try:
                _engine().api.remove_container(container, force=True, v=True)
            except NotFound:
                pass
            except Exception as error:
                # The container is no longer needed, and `reap` will remove it later.
                ownership.abandoned.add(container)
                logger.warning("sandbox_not_removed", container=container[:12], error=str(error))

    def _connected(self, deadline: float) -> socket.socket:
        """Return the connection's socket, set to time out at the deadline."""
        if self._socket is None:
            raise EOFError
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._socket


class _Frames:
    """Decodes the engine's frames: each has a stream number, a length, and a part of that stream.

    The two streams are standard output and standard error.
    https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerAttach
    """

    def __init__(self) -> None:
        self.output = bytearray()
        self.errors = bytearray()  # only the last LAST_WORDS_BYTES of it
        self._header = bytearray()
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            if not self._left:
                needed = 8 - len(self._header)
                self._header += view[:needed]
                view = view[needed:]
                if len(self._header) == 8:
                    self._stream, self._left = struct.unpack(">BxxxI", self._header)
                    self._header.clear()
                continue
            part, view = view[: self._left], view[self._left :]
            self._left -= len(part)
            if self._stream == 1:
                self.output += part
            else:
                self.errors = (self.errors + part)[-LAST_WORDS_BYTES:]

    def take(self, count: int) -> bytes:
        taken = bytes(self.output[:count])
        del self.output[:count]
        return taken


@functools.cache
def _image() -> str:
    """Return the ID of the sandbox image, which is looked up only once.

    This way, bytecode that this process has compiled stays valid even if the image's name is moved
    to another image.
    """
    return image_id(settings.UAC_SANDBOX_IMAGE or default_image(), setting="UAC_SANDBOX_IMAGE")


def image_id(name: str, *, setting: str) -> str:
    """Return the ID of an image; raise SandboxError if the engine has no image of that name."""
    with _engine_errors():
        try:
            return str(_engine().images.get(name).id)
        except ImageNotFound:
            raise SandboxError.unavailable(
                f"the Docker engine has no image {name}: build it with"
                f" `python -m workers.sandbox.build`, or name another image in {setting}"
            ) from None


def _digest_of(image: str) -> str:
    return f"docker:{image.removeprefix('sha256:')[:32]}"


def _engine() -> docker.DockerClient:
    """Return the current thread's own client of the Docker engine."""
    client = getattr(_thread, "client", None)
    if client is None:
        client = _thread.client = docker.from_env(timeout=ENGINE_SECONDS)
        # Behind a Unix socket there is no HTTP proxy: looking for one in the environment took a
        # third of the time that a request takes here.
        client.api.trust_env = not client.api.base_url.startswith("http+docker:")
    assert isinstance(client, docker.DockerClient)
    return client


@contextmanager
def _engine_errors() -> Iterator[None]:
    """In this context, raise SandboxError if the engine does not respond or rejects a request."""
    try:
        yield
    except APIError as error:
        if isinstance(error, ImageNotFound):
            _image.cache_clear()  # the image may have been removed: look up its ID again next time
        raise SandboxError.unavailable(
            f"the Docker engine rejected a request: {error.explanation}"
        ) from error
    except SandboxError:
        raise
    except Exception as error:  # not only the library's errors: a proxy may have responded
        raise SandboxError.unavailable(f"the Docker engine does not answer: {error}") from error

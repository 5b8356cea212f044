"""The engine behind the proxy, and the part of its API that clients may use."""

import contextlib
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from django.conf import settings

from workers.sandbox.image import default_image
from workers.sandbox.ownership import LABEL
from workers.sandbox.program_images import convert_image_name, typecheck_image_name
from workers.sandbox.proxy_requests import READ_BYTES, Request, RequestDenied, read_head
from workers.sandbox.proxy_template import from_template

# Maximum size of a response from the engine, in bytes, and the response timeout, in seconds.
ANSWER_BYTES = 32 * 1024 * 1024
ENGINE_SECONDS = 60
# Maximum number of containers at any one time.
CONTAINERS = 300

CONTAINER = "([0-9a-f]{64})"
# The parameters that workers use to attach to containers, and the fields that they read when
# listing containers.
ATTACHED = {"stdin": "1", "stdout": "1", "stderr": "1", "stream": "1"}
LISTED = ("Id", "Created", "State", "Labels")
FILTERS = json.dumps({"label": [LABEL]})


@dataclass(frozen=True)
class EngineAnswer:
    """A response from the engine."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Return the parsed body; raise RequestDenied if the body is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise RequestDenied("the engine's response is not JSON", 502) from None

    def only(self, *names: str) -> "EngineAnswer":
        """Return the response with only these fields."""
        if self.status != 200:
            return self
        body = self.json()
        return EngineAnswer(200, json.dumps({name: body.get(name) for name in names}).encode())


class Engine:
    """The engine behind the proxy, and the part of its API that clients may use."""

    def __init__(self, path: str, *, most: int = CONTAINERS) -> None:
        """Use the engine's socket at `path`; allow at most `most` containers at a time."""
        self.path = path
        self._most = most
        self._lock = threading.Lock()
        self._sandboxes: set[str] = set()  # ids of containers known to be sandboxes
        self._begun = 0  # number of sandboxes that the engine is creating
        self._images: set[str] = set()  # all image ids that our image names have referred to

    def answer(self, request: Request) -> EngineAnswer:
        """Carry out the request; raise RequestDenied if no sandbox worker needs it."""
        for method, path, do in _ROUTES:
            if method == request.method and (match := re.fullmatch(path, request.path)):
                return do(self, request, *match.groups())
        raise RequestDenied("no sandbox worker needs this request")

    def ping(self, request: Request) -> EngineAnswer:
        """Ask the engine whether it is up."""
        return self.ask("GET", "/_ping")

    def version(self, request: Request) -> EngineAnswer:
        """Return the engine's versions, from which the client chooses the protocol."""
        names = ("Version", "ApiVersion", "MinAPIVersion", "KernelVersion")
        return self.ask("GET", "/version").only(*names)

    def info(self, request: Request) -> EngineAnswer:
        """Return the time on the engine's clock, by which leftovers are recognized."""
        return self.ask("GET", "/info").only("SystemTime")

    def image(self, request: Request, name: str) -> EngineAnswer:
        """Return the engine's description of one of our images, requested by name or id."""
        if name.replace("%40", "@") not in _image_names() | self._images:
            raise RequestDenied(f"{name} is not a sandbox image")
        answer = self.ask("GET", f"/images/{name}/json").only("Id", "RepoTags")
        if answer.status == 200:
            with self._lock:
                self._images.add(answer.json()["Id"])
        return answer

    def create(self, request: Request) -> EngineAnswer:
        """Create a sandbox from the template and nothing else."""
        if request.query:
            raise RequestDenied(f"create has parameters: {', '.join(request.query)}")
        config = from_template(request.body)
        image = config["Image"]
        if image not in self._images:
            for name in _image_names():
                self.image(request, quote(name, safe="/:"))
            if image not in self._images:
                # Use the engine's wording, so that the worker looks up the image again.
                raise RequestDenied(f"No such image: {image:.80}: it is not a sandbox image", 404)
        if not self._reserve():
            self._list()  # some containers may have been removed without using this proxy
            if not self._reserve():
                raise RequestDenied(f"{self._most} containers already exist", 429)
        made: set[str] = set()
        try:
            answer = self.ask("POST", "/containers/create", json.dumps(config).encode())
            if answer.status == 201:
                made = {answer.json()["Id"]}
        finally:
            with self._lock:
                self._begun -= 1
                self._sandboxes |= made
        return answer

    def start(self, request: Request, container: str) -> EngineAnswer:
        """Start a sandbox exactly as it was created."""
        self._check_is_sandbox(container)
        return self.ask("POST", f"/containers/{container}/start")

    def remove(self, request: Request, container: str) -> EngineAnswer:
        """Remove a sandbox, running or not."""
        self._check_is_sandbox(container)
        answer = self.ask("DELETE", f"/containers/{container}?v=1&force=1")
        if answer.status in (204, 404):
            with self._lock:
                self._sandboxes.discard(container)
        return answer

    def sandboxes(self, request: Request) -> EngineAnswer:
        """List all sandboxes, but none of the engine's other containers."""
        if request.query.get("filters") != FILTERS:
            raise RequestDenied(f"containers may be listed only by the label {LABEL}")
        return self._list()

    def attach(self, request: Request, container: str, client: socket.socket) -> None:
        """Connect a client to a sandbox's standard streams until either side disconnects."""
        if request.query != ATTACHED or request.rest or request.body:
            raise RequestDenied("sandbox workers do not attach in this way")
        self._check_is_sandbox(container)
        with socket.socket(socket.AF_UNIX) as engine:
            engine.settimeout(ENGINE_SECONDS)
            engine.connect(self.path)
            query = "&".join(f"{name}={value}" for name, value in ATTACHED.items())
            engine.sendall(
                f"POST /containers/{container}/attach?{query} HTTP/1.1\r\nHost: engine\r\n"
                "Content-Length: 0\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n".encode()
            )
            head, rest = read_head(engine, time.monotonic() + ENGINE_SECONDS)
            if not head.startswith(b"HTTP/1.1 101 "):
                raise RequestDenied(f"the engine refused to attach: {head[:40]!r}", 502)
            client.sendall(head + rest)
            _relay(client, engine)

    def ask(self, method: str, path: str, body: bytes | None = None) -> EngineAnswer:
        """Send a request to the engine; raise RequestDenied (502) if it does not respond."""
        connection = _EngineConnection(self.path)
        headers = {"Host": "engine"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read(ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise RequestDenied(f"the engine does not respond: {error!r}", 502) from error
        finally:
            connection.close()
        if len(content) > ANSWER_BYTES:
            raise RequestDenied("the engine's response is too large", 502)
        return EngineAnswer(response.status, content)

    def _reserve(self) -> bool:
        """Reserve room for one more sandbox; return False if the limit has been reached."""
        with self._lock:
            if len(self._sandboxes) + self._begun >= self._most:
                return False
            self._begun += 1
            return True

    def _list(self) -> EngineAnswer:
        """List all sandboxes, and remember their ids."""
        with self._lock:
            existing = set(self._sandboxes)
        answer = self.ask("GET", f"/containers/json?all=1&filters={quote(FILTERS)}")
        if answer.status != 200:
            return answer
        listed = [{name: one.get(name) for name in LISTED} for one in answer.json()]
        with self._lock:
            # Sandboxes created since the request was sent are missing from the response; keep their
            # ids.
            self._sandboxes -= existing
            self._sandboxes |= {one["Id"] for one in listed}
        return EngineAnswer(200, json.dumps(listed).encode())

    def _check_is_sandbox(self, container: str) -> None:
        if container in self._sandboxes:
            return
        response = self.ask("GET", f"/containers/{container}/json")
        if response.status == 404:
            raise RequestDenied(f"No such container: {container}", 404)
        if response.status != 200 or LABEL not in (response.json()["Config"]["Labels"] or {}):
            raise RequestDenied(f"{container[:12]} is not a sandbox")
        with self._lock:
            self._sandboxes.add(container)


# All routes except `attach`, whose connection stays open after the response.
ATTACH = f"/containers/{CONTAINER}/attach"
_ROUTES: list[tuple[str, str, Callable[..., EngineAnswer]]] = [
    ("GET", "/_ping", Engine.ping),
    ("GET", "/version", Engine.version),
    ("GET", "/info", Engine.info),
    ("GET", "/images/(.+)/json", Engine.image),
    ("GET", "/containers/json", Engine.sandboxes),
    ("POST", "/containers/create", Engine.create),
    ("POST", f"/containers/{CONTAINER}/start", Engine.start),
    ("DELETE", f"/containers/{CONTAINER}", Engine.remove),
]


def _image_names() -> set[str]:
    return {
        settings.UAC_SANDBOX_IMAGE or default_image(),
        settings.UAC_TYPECHECK_IMAGE or typecheck_image_name(),
        settings.UAC_CONVERT_IMAGE or convert_image_name(),
    }


class _EngineConnection(http.client.HTTPConnection):
    """An HTTP connection over the engine's socket."""

    def __init__(self, path: str) -> None:
        super().__init__("engine", timeout=ENGINE_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _relay(client: socket.socket, engine: socket.socket) -> None:
    """Copy bytes in both directions until the engine closes its end or the client is gone."""

    def carry(source: socket.socket, target: socket.socket) -> bool:
        """Copy until the source ends; return False if reading or writing fails before that."""
        with contextlib.suppress(OSError):
            while data := source.recv(READ_BYTES):
                target.sendall(data)
            return True
        return False

    def upload() -> None:
        with contextlib.suppress(OSError):
            if carry(client, engine):
                engine.shutdown(socket.SHUT_WR)  # so that the runner sees the end of its input
            else:
                engine.shutdown(socket.SHUT_RDWR)

    client.settimeout(None)
    engine.settimeout(None)
    uploading = threading.Thread(target=upload, daemon=True)
    uploading.start()
    carry(engine, client)
    for one in (client, engine):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
    uploading.join()

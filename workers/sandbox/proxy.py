"""A proxy between the sandbox workers and the Docker engine, whose socket is as powerful as root.

    python -m workers.sandbox.proxy --listen /run/engine/engine.sock [--engine /var/run/docker.sock]

A worker that was taken over can ask it for what workers need, and for nothing else: sandboxes from
the one template (`workers.sandbox.docker.container_config`) and its images, and to attach to them,
start, list and remove them. All else is answered 403, with a line of log that says what it was.

Nothing that a client sends reaches the engine as it came. A request is read strictly, one on each
connection; what the engine is asked is written anew: fixed paths and parameters, ids of sandboxes,
and as the body of `create` the template itself, when what was sent turns out to be equal to it.
"""

import argparse
import contextlib
import http.client
import json
import logging
import os
import re
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

from django.conf import settings
from django.utils.log import configure_logging

from workers.sandbox.docker import LABEL, SCRATCH, SCRATCH_OPTIONS, USER_IDS, container_config
from workers.sandbox.image import default_image
from workers.sandbox.interface import MEBIBYTE, Shape
from workers.typecheck.image import typecheck_image_name

logger = logging.getLogger(__name__)

# Maximum size of a request's head, of its body (the template has some 20 KB), and of an engine's
# answer.
HEAD_BYTES = 16 * 1024
BODY_BYTES = 128 * 1024
ANSWER_BYTES = 32 * 1024 * 1024
READ_BYTES = 256 * 1024
# Seconds for a client to send its whole request, and to take its answer; seconds for which the
# unread rest of a refused request is read; seconds for the engine.
CLIENT_SECONDS = 10
DRAIN_SECONDS = 1
ENGINE_SECONDS = 60
# Maximum concurrent connections, most of which are sandboxes at work, and containers.
CONNECTIONS = 400
CONTAINERS = 300

# The API version that the template is written for, and newer ones: older ones differ in meaning.
REQUEST_LINE = re.compile(
    r"([A-Z]{3,7}) (?:/v1\.(?:4[1-9]|[5-9][0-9]))?"
    r"(/(?:[A-Za-z0-9_.:/-]|%40)*)(?:\?([!-~]*))? HTTP/1\.1"
)
HEADER = re.compile(r"([A-Za-z0-9-]+):[ \t]*([\t -~]*)")
CONTAINER = "([0-9a-f]{64})"
# Boot id, namespace, process id (Linux has none above 2**22), and the process's start time.
OWNER = re.compile(r"[0-9a-f-]{36}/pid:\[\d{1,20}\]/\d{1,7}/\d{0,20}", re.ASCII)
# Parameters of an attachment, and the fields that workers read in answers.
ATTACHED = {"stdin": "1", "stdout": "1", "stderr": "1", "stream": "1"}
LISTED = ("Id", "Created", "State", "Labels")
FILTERS = json.dumps({"label": [LABEL]})


class RequestDenied(Exception):
    """A request that is refused, and the status that says so."""

    def __init__(self, reason: str, status: int = 403) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Request:
    """A client's request; `rest` holds bytes that came after it."""

    method: str
    path: str  # without the version of the API
    query: dict[str, str]
    body: bytes
    rest: bytes


@dataclass(frozen=True)
class EngineAnswer:
    """An answer of the engine."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Return the content; raise RequestDenied if it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise RequestDenied("the engine's answer is no JSON", 502) from None

    def only(self, *names: str) -> "EngineAnswer":
        """Return the answer with only these fields."""
        if self.status != 200:
            return self
        found = self.json()
        return EngineAnswer(200, json.dumps({name: found.get(name) for name in names}).encode())


# --- allowed requests


class Engine:
    """The engine behind the proxy, and the part of its API that clients may use."""

    def __init__(self, path: str, *, most: int = CONTAINERS) -> None:
        """Connect to the socket `path`; allow at most `most` containers at one time."""
        self.path = path
        self._most = most
        self._lock = threading.Lock()
        self._sandboxes: set[str] = set()  # known to be sandboxes
        self._begun = 0  # sandboxes that the engine is making
        self._images: set[str] = set()  # ids that the images' names have had

    def answer(self, request: Request) -> EngineAnswer:
        """Carry out the request; raise RequestDenied if no sandbox worker needs it."""
        for method, path, do in _ROUTES:
            if method == request.method and (found := re.fullmatch(path, request.path)):
                return do(self, request, *found.groups())
        raise RequestDenied("no sandbox worker needs it")

    def ping(self, request: Request) -> EngineAnswer:
        """Ask the engine whether it is up."""
        return self.ask("GET", "/_ping")

    def version(self, request: Request) -> EngineAnswer:
        """Return the engine's versions, by which the client chooses its protocol."""
        names = ("Version", "ApiVersion", "MinAPIVersion", "KernelVersion")
        return self.ask("GET", "/version").only(*names)

    def info(self, request: Request) -> EngineAnswer:
        """Return the engine's clock, by which leftovers are recognized."""
        return self.ask("GET", "/info").only("SystemTime")

    def image(self, request: Request, name: str) -> EngineAnswer:
        """Return what the engine has under the name, or the id, of one of our images."""
        if name.replace("%40", "@") not in _image_names() | self._images:
            raise RequestDenied(f"{name} is no image of sandboxes")
        answer = self.ask("GET", f"/images/{name}/json").only("Id", "RepoTags")
        if answer.status == 200:
            with self._lock:
                self._images.add(answer.json()["Id"])
        return answer

    def create(self, request: Request) -> EngineAnswer:
        """Create a sandbox, from the template and from nothing else."""
        if request.query:
            raise RequestDenied(f"parameters of create: {', '.join(request.query)}")
        config = from_template(request.body)
        image = config["Image"]
        if image not in self._images:
            for name in _image_names():
                self.image(request, quote(name, safe="/:"))
            if image not in self._images:
                # In the engine's words, so that the worker looks up the image again.
                raise RequestDenied(
                    f"No such image: {image:.80}: it is none of the sandboxes'", 404
                )
        if not self._reserve():
            self._list()  # some may have been removed without this proxy
            if not self._reserve():
                raise RequestDenied(f"{self._most} containers are there already", 429)
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
        """Start a sandbox, as it was created."""
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
        """List all sandboxes, and nothing else that the engine has."""
        if request.query.get("filters") != FILTERS:
            raise RequestDenied(f"lists what is not labelled {LABEL}")
        return self._list()

    def attach(self, request: Request, container: str, client: socket.socket) -> None:
        """Connect a client with the standard streams of a sandbox until one of them ends."""
        if request.query != ATTACHED or request.rest or request.body:
            raise RequestDenied("attaches in another way than sandbox workers do")
        self._check_is_sandbox(container)
        with socket.socket(socket.AF_UNIX) as engine:
            engine.settimeout(ENGINE_SECONDS)
            engine.connect(self.path)
            query = "&".join(f"{name}={value}" for name, value in ATTACHED.items())
            engine.sendall(
                f"POST /containers/{container}/attach?{query} HTTP/1.1\r\nHost: engine\r\n"
                "Content-Length: 0\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n".encode()
            )
            head, rest = _head(engine, time.monotonic() + ENGINE_SECONDS)
            if not head.startswith(b"HTTP/1.1 101 "):
                raise RequestDenied(f"the engine does not attach: {head[:40]!r}", 502)
            client.sendall(head + rest)
            _relay(client, engine)

    def ask(self, method: str, path: str, body: bytes | None = None) -> EngineAnswer:
        """Ask the engine; raise RequestDenied (502) if it does not answer."""
        connection = _EngineConnection(self.path)
        headers = {"Host": "engine"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read(ANSWER_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise RequestDenied(f"the engine does not answer: {error!r}", 502) from error
        finally:
            connection.close()
        if len(content) > ANSWER_BYTES:
            raise RequestDenied("the engine's answer is too large", 502)
        return EngineAnswer(response.status, content)

    def _reserve(self) -> bool:
        """Reserve room for one more sandbox for the caller; return False if there is none."""
        with self._lock:
            if len(self._sandboxes) + self._begun >= self._most:
                return False
            self._begun += 1
            return True

    def _list(self) -> EngineAnswer:
        """List all sandboxes, and remember them as the known ones."""
        with self._lock:
            known = set(self._sandboxes)
        answer = self.ask("GET", f"/containers/json?all=1&filters={quote(FILTERS)}")
        if answer.status != 200:
            return answer
        listed = [{name: one.get(name) for name in LISTED} for one in answer.json()]
        with self._lock:
            # Sandboxes made since the question are in no answer to it, and stay known.
            self._sandboxes -= known
            self._sandboxes |= {one["Id"] for one in listed}
        return EngineAnswer(200, json.dumps(listed).encode())

    def _check_is_sandbox(self, container: str) -> None:
        if container in self._sandboxes:
            return
        found = self.ask("GET", f"/containers/{container}/json")
        if found.status == 404:
            raise RequestDenied(f"No such container: {container}", 404)
        if found.status != 200 or LABEL not in (found.json()["Config"]["Labels"] or {}):
            raise RequestDenied(f"{container[:12]} is no sandbox")
        with self._lock:
            self._sandboxes.add(container)


# All routes except `attach`, which is no exchange of a question and an answer.
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
    }


class _EngineConnection(http.client.HTTPConnection):
    """HTTP over the engine's socket."""

    def __init__(self, path: str) -> None:
        super().__init__("engine", timeout=ENGINE_SECONDS)
        self._path = path

    def connect(self) -> None:
        """Connect to the engine's socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


# --- the template


def from_template(body: bytes) -> dict[str, Any]:
    """Return the template that the body of a `create` equals; RequestDenied if it equals none.

    Values that differ from sandbox to sandbox (the image's id, user, hash seed, owner, and the
    sizes of memory, processes and scratch) are read, checked against their bounds and put into the
    template.
    """
    given = _parsed(body)
    try:
        host, (seed, *_) = given["HostConfig"], given["Env"]
        user, labels = given["User"], given["Labels"]
        hash_seed = int(_match(r"PYTHONHASHSEED=(\d{1,10})", seed, "Env"))
        user_id = int(_match(r"(\d{5}):\d{5}", user, "User"))
        image = _match(r"(sha256:[0-9a-f]{64})", given["Image"], "Image")
        if list(labels) != [LABEL] or not OWNER.fullmatch(labels[LABEL]):
            raise RequestDenied("create: Labels are not those of a sandbox")
        if user_id not in USER_IDS or hash_seed >= 2**32:
            raise RequestDenied("create: User or hash seed is out of bounds")
        size = re.fullmatch(rf"{re.escape(SCRATCH_OPTIONS)},size=([0-9]{{1,12}})", _scratch(host))
        shape = Shape(
            memory_mib=_within("Memory", host["Memory"] // MEBIBYTE, _most("MEMORY_MIB")),
            # The template adds gVisor's own processes, so subtract them again.
            pids=_within("PidsLimit", host["PidsLimit"] - _pids_added(), _most("PIDS")),
            tmpfs_mib=_within("Tmpfs", int(size[1]) // MEBIBYTE, _most("TMPFS_MIB")) if size else 0,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RequestDenied(f"create: is not the template: {error!r:.100}") from None
    template = container_config(image, hash_seed, shape)
    template |= {"User": f"{user_id}:{user_id}", "Labels": labels}
    if differing := _difference(template, given):
        raise RequestDenied(f"create: {differing} is not as in the template")
    return template


def _parsed(body: bytes) -> dict[str, Any]:
    """Parse a JSON object in which no key comes twice, so that all readers read the same."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise RequestDenied("create: a key comes twice", 400)
        return found

    def no_constant(name: str) -> None:
        raise RequestDenied(f"create: {name} is no JSON", 400)

    try:
        given = json.loads(body.decode(), object_pairs_hook=unique, parse_constant=no_constant)
    except (ValueError, RecursionError):
        raise RequestDenied("create: the body is no JSON", 400) from None
    if not isinstance(given, dict):
        raise RequestDenied("create: the body is no object", 400)
    return given


def _match(pattern: str, text: str, field: str) -> str:
    if (found := re.fullmatch(pattern, text, re.ASCII)) is None:
        raise RequestDenied(f"create: {field} is not that of a sandbox")
    return found[1]


def _within(field: str, number: int, most: int) -> int:
    if type(number) is not int or not 1 <= number <= most:
        raise RequestDenied(f"create: {field} is out of bounds (1 to {most})")
    return number


def _most(name: str) -> int:
    """Return the largest limit that a workspace, or the type checker's sandboxes, may be given."""
    return max(int(getattr(settings, f"UAC_SANDBOX_{name}_MOST")), 1024 * (name == "MEMORY_MIB"))


def _pids_added() -> int:
    return int(container_config("", 0, Shape(pids=0))["HostConfig"]["PidsLimit"])


def _scratch(host: dict[str, Any]) -> str:
    return str(host["Tmpfs"].get(SCRATCH, ""))


def _difference(expected: Any, given: Any, place: str = "") -> str:
    """Return where two JSON values first differ in value or type; "" if they are equal."""
    if isinstance(expected, dict) and isinstance(given, dict):
        for name in sorted({*expected, *given}):
            here = f"{place}.{name:.40}".lstrip(".")
            if name not in expected or name not in given:
                return here
            if differing := _difference(expected[name], given[name], here):
                return differing
        return ""
    # Python treats 1, 1.0 and true as equal, but not every reader does.
    with contextlib.suppress(RecursionError):  # nested as deeply as the parser allows
        if json.dumps(expected, sort_keys=True) == json.dumps(given, sort_keys=True):
            return ""
    return place or "the body"


# --- connections


def _receive(connection: socket.socket, deadline: float) -> bytes:
    """Return the next bytes, empty at the end; raise TimeoutError after the deadline."""
    connection.settimeout(max(deadline - time.monotonic(), 0.001))
    return connection.recv(READ_BYTES)


def _head(connection: socket.socket, deadline: float) -> tuple[bytes, bytes]:
    """Read up to the empty line that ends a head; return it, and the bytes after it."""
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        if len(data) > HEAD_BYTES:
            raise RequestDenied("the head of the request is too large", 431)
        more = _receive(connection, deadline)
        if not more:
            raise EOFError
        data += more
    if end > HEAD_BYTES:
        raise RequestDenied("the head of the request is too large", 431)
    return data[: end + 4], data[end + 4 :]


def read_request(connection: socket.socket) -> Request:
    """Read one request.

    Raises RequestDenied if it is ambiguous in any way, EOFError if none comes.
    """
    deadline = time.monotonic() + CLIENT_SECONDS
    head, rest = _head(connection, deadline)
    try:
        first, *lines = head[:-4].decode("ascii").split("\r\n")
    except UnicodeDecodeError:
        raise RequestDenied("the head of the request is not ASCII", 400) from None
    found = REQUEST_LINE.fullmatch(first)
    if found is None:
        raise RequestDenied(f"{first[:100]!r} is no request that sandbox workers send")
    method, path, query = found.groups()
    if "//" in path or "/." in path or "./" in path:
        raise RequestDenied(f"the path {path[:100]} is not written plainly")
    length = _length(lines)
    while len(rest) < length:
        more = _receive(connection, deadline)
        if not more:
            raise EOFError
        rest += more
    return Request(method, path, _query(query or ""), rest[:length], rest[length:])


def _length(lines: list[str]) -> int:
    headers: dict[str, str] = {}
    for line in lines:
        header = HEADER.fullmatch(line)
        if header is None:
            raise RequestDenied("a header that is none", 400)
        name = header[1].lower()
        if name in headers:
            raise RequestDenied(f"the header {name} comes twice", 400)
        headers[name] = header[2].strip()
    if "transfer-encoding" in headers or "expect" in headers or "trailer" in headers:
        raise RequestDenied("a body whose length is not said before it", 411)
    length = headers.get("content-length", "0")
    if not re.fullmatch(r"\d{1,9}", length, re.ASCII):
        raise RequestDenied("Content-Length is no number", 400)
    if int(length) > BODY_BYTES:
        raise RequestDenied("the body is too large", 413)
    return int(length)


def _query(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), max_num_fields=9)
    except ValueError:
        raise RequestDenied("parameters that cannot be read", 400) from None
    if len({name for name, _ in pairs}) != len(pairs):
        raise RequestDenied("a parameter comes twice", 400)
    return dict(pairs)


class _Connection(socketserver.BaseRequestHandler):
    """A connection of one client, which may make one request."""

    server: "Proxy"

    def handle(self) -> None:
        """Read the request, check it, ask the engine, and answer."""
        asked = ""
        try:
            request = read_request(self.request)
            asked = f"{request.method} {request.path}"
            attached = re.fullmatch(ATTACH, request.path)
            if attached is not None and request.method == "POST":
                self.request.settimeout(CLIENT_SECONDS)
                self.server.engine.attach(request, attached[1], self.request)
                return
            answer = self.server.engine.answer(request)
        except RequestDenied as refusal:
            logger.warning("refused: %s: %s", asked[:200] or "a request", refusal)
            answer = _refusal(refusal)
        except (EOFError, OSError):
            return
        with contextlib.suppress(OSError):
            self._send(answer)

    def _send(self, answer: EngineAnswer) -> None:
        self.request.settimeout(CLIENT_SECONDS)  # for the whole request
        self.request.sendall(_written(answer))
        # Otherwise the unread part of a refused request would reset the connection, and lose the
        # answer.
        self.request.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + DRAIN_SECONDS
        left = BODY_BYTES * 8
        while left > 0 and (data := _receive(self.request, deadline)):
            left -= len(data)


def _refusal(refusal: RequestDenied) -> EngineAnswer:
    return EngineAnswer(refusal.status, json.dumps({"message": str(refusal)}).encode())


def _written(answer: EngineAnswer) -> bytes:
    reason = http.client.responses.get(answer.status, "")
    content = b"" if answer.status == 204 else answer.body
    head = f"HTTP/1.1 {answer.status} {reason}\r\nConnection: close\r\n"
    if answer.status != 204:
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    return f"{head}\r\n".encode() + content


def _relay(client: socket.socket, engine: socket.socket) -> None:
    """Carry bytes both ways until the engine's end is over, or the client is gone."""

    def carry(source: socket.socket, target: socket.socket) -> bool:
        """Copy until the source ends; return whether it did and the target took everything."""
        with contextlib.suppress(OSError):
            while data := source.recv(READ_BYTES):
                target.sendall(data)
            return True
        return False

    def upload() -> None:
        with contextlib.suppress(OSError):
            if carry(client, engine):
                engine.shutdown(socket.SHUT_WR)  # the runner sees the end of its input
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


class Proxy(socketserver.ThreadingUnixStreamServer):
    """A server on its own Unix socket."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: str, engine: Engine, *, connections: int = CONNECTIONS) -> None:
        """Replace whatever was left at this path; only this user may connect."""
        self.engine = engine
        self.room = threading.BoundedSemaphore(connections)
        with contextlib.suppress(FileNotFoundError):
            Path(path).unlink()
        before = os.umask(0o177)
        try:
            super().__init__(path, _Connection)
        finally:
            os.umask(before)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a client in its own thread, or answer that there are too many."""
        if not self.room.acquire(blocking=False):
            refusal = RequestDenied("too many connections", 503)
            logger.warning("refused: a request: %s", refusal)
            with contextlib.suppress(OSError):
                request.setblocking(False)
                request.send(_written(_refusal(refusal)))
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was started
            self.room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a client to the end, and free its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.release()


def main() -> None:
    """Serve until a signal ends it."""
    parser = argparse.ArgumentParser(prog="python -m workers.sandbox.proxy", description=__doc__)
    parser.add_argument("--listen", required=True, help="the path of the socket to make")
    parser.add_argument("--engine", default="/var/run/docker.sock", help="the engine's socket")
    parser.add_argument("--containers", type=int, default=CONTAINERS, help="at one time, at most")
    arguments = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "uac_site.settings")
    configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)
    with Proxy(arguments.listen, Engine(arguments.engine, most=arguments.containers)) as proxy:
        logger.info("listening at %s, for %s", arguments.listen, arguments.engine)
        proxy.serve_forever()


if __name__ == "__main__":
    main()

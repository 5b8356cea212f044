"""The proxy before the Docker engine lets pass what sandboxes need, and nothing else."""

import copy
import datetime
import json
import os
import socket
import socketserver
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import docker as client_library
import pytest
from django.test import override_settings
from docker.errors import APIError

from sandbox_image.uac import protocol
from tests.steps import not_none
from tests.waiting import eventually, scaled
from workers.sandbox import docker, ownership, proxy_requests
from workers.sandbox import proxy as proxying
from workers.sandbox.container_template import container_config
from workers.sandbox.image import default_image
from workers.sandbox.limits import MEBIBYTE, Shape
from workers.sandbox.proxy import Proxy
from workers.sandbox.proxy_engine import Engine
from workers.sandbox.proxy_requests import BODY_BYTES

# The machine's engine itself, wherever other tests have pointed this process.
ENGINE = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")

IMAGE = "sha256:" + "a" * 64
OTHER_IMAGE = "sha256:" + "b" * 64
SANDBOX, DATABASE = "1" * 64, "2" * 64
BOOT = "0" * 8 + "-0000" * 3 + "-" + "0" * 12
NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)

Config = dict[str, Any]


class FakeEngine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Records its requests, and knows some sandboxes, one other container and one image."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: str) -> None:
        self.asked: list[tuple[str, str, bytes]] = []
        self.sandboxes = [SANDBOX]
        self.number = 2
        self.creates = True
        self.takes = 0.0  # seconds to create one
        super().__init__(path, _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeEngine

    def handle(self) -> None:
        self.client_address = ("engine", 0)
        super().handle()

    def log_message(self, *args: Any) -> None:
        pass

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.command, self.path, body))
        status, answer = _said(self.server, self.command, self.path)
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_DELETE = do_HEAD = do_PUT = _answer  # noqa: N815


def _said(engine: FakeEngine, method: str, path: str) -> tuple[int, bytes]:
    if path == f"/images/{default_image()}/json":
        return 200, json.dumps(
            {"Id": IMAGE, "RepoTags": [], "Config": {"Env": ["SECRET"]}}
        ).encode()
    if path.startswith("/images/"):
        return 404, b'{"message": "No such image"}'
    if path.endswith("/json") and path.startswith("/containers/") and path.count("/") == 3:
        labels = {ownership.LABEL: "x"} if path.split("/")[2] in engine.sandboxes else {}
        return 200, json.dumps({"Config": {"Labels": labels}}).encode()
    if path == "/containers/create":
        if not engine.creates:
            return 500, b'{"message": "no space left on device"}'
        time.sleep(engine.takes)
        engine.number += 1
        engine.sandboxes.append(str(engine.number) * 64)
        return 201, json.dumps({"Id": engine.sandboxes[-1], "Warnings": []}).encode()
    if path.startswith("/containers/json"):
        listed = {"State": "running", "Labels": {}, "Created": 1, "Mounts": ["/x"]}
        return 200, json.dumps([{"Id": one, **listed} for one in engine.sandboxes]).encode()
    if method == "DELETE":
        engine.sandboxes.remove(path.split("/")[2].partition("?")[0])
        return 204, b""
    if path == "/info":
        return 200, b'{"SystemTime": "2026-01-01T00:00:00Z", "Name": "the-host"}'
    return 200, b"OK"


@contextmanager
def proxy_to(engine: FakeEngine | str, **limits: int) -> Iterator[str]:
    """Run a proxy to the engine, or that at this path; yield the path of its own socket."""
    address = engine if isinstance(engine, str) else str(engine.server_address)
    with tempfile.TemporaryDirectory(prefix="uac-proxy-") as folder:
        path = f"{folder}/sock"
        containers = limits.pop("containers", 100)
        with Proxy(path, Engine(address, most=containers), **limits) as server:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            try:
                yield path
            finally:
                server.shutdown()


@pytest.fixture
def fake() -> Iterator[FakeEngine]:
    with (
        tempfile.TemporaryDirectory(prefix="uac-engine-") as folder,
        FakeEngine(f"{folder}/sock") as server,
    ):
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def proxy(fake: FakeEngine) -> Iterator[str]:
    with proxy_to(fake) as path:
        yield path


def send(path: str, data: bytes) -> tuple[int, bytes]:
    """Send bytes unchanged; return status and body of the first answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(scaled(30))
        connection.connect(path)
        answer = b""
        with suppress(ConnectionError):  # it was refused before it was read
            connection.sendall(data)
        with suppress(ConnectionError):
            while more := connection.recv(65536):
                answer += more
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def request(method: str, target: str, body: bytes = b"", headers: str = "") -> bytes:
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{method} {target} HTTP/1.1\r\nHost: x\r\n{length}{headers}\r\n".encode() + body


FILTERS = "%7B%22label%22%3A+%5B%22uac.sandbox%22%5D%7D"
LIST = request("GET", f"/v1.41/containers/json?all=1&filters={FILTERS}")


def create(path: str, config: Config | bytes) -> tuple[int, bytes]:
    body = config if isinstance(config, bytes) else json.dumps(config).encode()
    return send(path, request("POST", "/v1.41/containers/create", body))


def template(**changes: Any) -> Config:
    shape = Shape(**changes)
    return json.loads(json.dumps(container_config(IMAGE, 7, shape)))  # type: ignore[no-any-return]


def created(fake: FakeEngine) -> list[bytes]:
    return [body for _, path, body in fake.asked if path == "/containers/create"]


class TestTheTemplate:
    @pytest.mark.parametrize(
        "config",
        [
            template(),
            template(memory_mib=4096),
        ],
        ids=["usual", "largest"],
    )
    def test_passes_and_is_what_the_engine_is_sent(
        self, proxy: str, fake: FakeEngine, config: Config
    ) -> None:
        status, body = create(proxy, config)

        assert (status, json.loads(body)["Id"]) == (201, "3" * 64)
        [sent] = created(fake)
        assert json.loads(sent) == json.loads(json.dumps(config))

    def test_gvisor_template_passes_for_that_runtime(self, proxy: str, fake: FakeEngine) -> None:
        with override_settings(UAC_SANDBOX_RUNTIME="runsc"):
            assert create(proxy, template())[0] == 201
        assert create(proxy, {**template(), "HostConfig": {"Runtime": "runsc"}})[0] == 403
        assert len(created(fake)) == 1


HOST: dict[str, Any] = {
    "Privileged": True,
    "Binds": ["/:/host"],
    "Mounts": [{"Type": "bind", "Source": "/", "Target": "/host"}],
    "VolumesFrom": ["postgres"],
    "NetworkMode": "host",
    "PortBindings": {"80/tcp": [{"HostPort": "80"}]},
    "Devices": [{"PathOnHost": "/dev/sda", "PathInContainer": "/dev/sda"}],
    "DeviceRequests": [{"Count": -1}],
    "DeviceCgroupRules": ["a *:* rwm"],
    "CapAdd": ["SYS_ADMIN"],
    "CapDrop": [],
    "PidMode": "host",
    "IpcMode": "host",
    "UTSMode": "host",
    "UsernsMode": "host",
    "CgroupnsMode": "host",
    "CgroupParent": "/",
    "Runtime": "io.containerd.runc.v2",
    "ReadonlyRootfs": False,
    "MaskedPaths": [],
    "ReadonlyPaths": [],
    "Sysctls": {"kernel.msgmax": "1"},
    "ExtraHosts": ["x:1.2.3.4"],
    "Links": ["postgres:db"],
    "GroupAdd": ["0"],
    "LogConfig": {"Type": "syslog", "Config": {"syslog-address": "tcp://1.2.3.4:5"}},
    "RestartPolicy": {"Name": "always"},
    "AutoRemove": True,
    "OomScoreAdj": -1000,
    "OomKillDisable": True,
    "Ulimits": [],
    "NanoCpus": 0,
    "NanoCpus ": 1,
    "Tmpfs": {"/opt": "rw,exec"},
    "SecurityOpt": ["no-new-privileges:true"],
    "StorageOpt": {"size": "1T"},
    "Init": True,
}
TOP: dict[str, Any] = {
    "User": "0:0",
    "Entrypoint": ["sh"],
    "Cmd": ["sh"],
    "Env": ["PYTHONHASHSEED=0", "LD_PRELOAD=/x"],
    "Image": OTHER_IMAGE,
    "Volumes": {"/var/lib": {}},
    "ExposedPorts": {"80/tcp": {}},
    "NetworkDisabled": False,
    "NetworkingConfig": {"EndpointsConfig": {"data": {}}},
    "Labels": {},
    "Hostname": "database",
    "Tty": True,
    "WorkingDir": "/proc",
    "OnBuild": ["RUN true"],
    "Healthcheck": {"Test": ["CMD", "sh"]},
    "StopSignal": "SIGTERM",
    "hostconfig": {"Privileged": True},
}


def changed(config: Config, *path: str | int, value: Any) -> Config:
    config = copy.deepcopy(config)
    place: Any = config
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return config


class TestWhatDiffers:
    @pytest.mark.parametrize(
        ("path", "value"),
        [
            *((("HostConfig", field), HOST[field]) for field in HOST),
            *(((field,), TOP[field]) for field in TOP),
        ],
        ids=[*HOST, *TOP],
    )
    def test_in_a_field_is_refused(
        self, proxy: str, fake: FakeEngine, path: tuple[str, ...], value: Any
    ) -> None:
        status, body = create(proxy, changed(template(), *path, value=value))

        assert status in (403, 404), body
        assert created(fake) == []

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            (("HostConfig", "SecurityOpt"), ["no-new-privileges:true", "seccomp=unconfined"]),
            (("HostConfig", "SecurityOpt", 1), 'seccomp={"defaultAction": "SCMP_ACT_ALLOW"}'),
            (("HostConfig", "SecurityOpt", 0), "no-new-privileges:false"),
            (("HostConfig", "Memory"), 0),
            (("HostConfig", "Memory"), -1),
            (("HostConfig", "Memory"), 8192 * MEBIBYTE),
            (("HostConfig", "Memory"), 512 * MEBIBYTE),  # and swap as before
            (("HostConfig", "Memory"), float(1024 * MEBIBYTE)),
            (("HostConfig", "Memory"), True),
            (("HostConfig", "PidsLimit"), -1),
            (("HostConfig", "PidsLimit"), 100_000),
            (("HostConfig", "PidsLimit"), None),
            (("HostConfig", "Tmpfs"), {"/tmp": "rw,exec,size=1048576"}),
            (("HostConfig", "CapDrop"), ["ALL", 1]),
            (("HostConfig", "Ulimits", 0, "Hard"), 10**9),
            (("HostConfig", "ReadonlyRootfs"), 1),  # equal to true, to Python alone
            (("HostConfig",), None),
            (("User",), "10000:0"),
            (("User",), "00000:00000"),
            (("User",), "１０００１:10001"),  # digits, to Python's int
            (("Env",), []),
            (("Env", 0), "PYTHONHASHSEED=99999999999"),
            (("Labels",), {ownership.LABEL: "anybody"}),
            (("Labels", ownership.LABEL), f"{BOOT}/pid:[1]/99999999/1"),  # of no process
            (("Labels", ownership.LABEL), f"{BOOT}/pid:[1]/１/1"),
            (("Labels", "com.example"), "x"),
            (("Image",), "postgres:17"),
        ],
    )
    def test_in_a_value_is_refused(
        self, proxy: str, fake: FakeEngine, path: tuple[str | int, ...], value: Any
    ) -> None:
        status, body = create(proxy, changed(template(), *path, value=value))

        assert status == 403, body
        assert created(fake) == []

    def test_the_refusal_and_the_log_name_it(
        self, proxy: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        _, body = create(proxy, changed(template(), "HostConfig", "Privileged", value=True))

        message = "create: HostConfig.Privileged differs from the template"
        assert json.loads(body) == {"message": message}
        assert f"refused: POST /containers/create: {message}" in caplog.text


TEMPLATE = json.dumps(template()).encode()
BODIES = {
    "none": b"",
    "list": b"[]",
    "null": b"null",
    "cut": b"{",
    "NaN": b'{"Image": NaN}',
    "no text": b"\xff\xfe",
    "deep": b"[" * 50_000,
    **{str(n): TEMPLATE[:-1] + b', "x": ' + b"[" * n + b"]" * n + b"}" for n in (100, 900, 970)},
    "twice": TEMPLATE[:-1] + b', "User": "0:0"}',
    "twice first": b'{"HostConfig": {"Privileged": true}, ' + TEMPLATE[1:],
}


class TestBodies:
    @pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
    def test_that_are_no_plain_object_are_refused(
        self, proxy: str, fake: FakeEngine, body: bytes
    ) -> None:
        assert create(proxy, body)[0] in (400, 403)
        assert created(fake) == []

    def test_huge_body_is_refused_unread(self, proxy: str, fake: FakeEngine) -> None:
        data = request("POST", "/containers/create", b"", f"Content-Length: {BODY_BYTES + 1}\r\n")
        assert send(proxy, data)[0] == 413
        assert send(proxy, b"GET /_ping HTTP/1.1\r\n" + b"a: b\r\n" * 10_000 + b"\r\n")[0] in (
            400,
            431,
        )
        assert fake.asked == []


class TestRequests:
    @pytest.mark.parametrize(
        ("method", "target"),
        [
            ("POST", f"/containers/{SANDBOX}/exec"),
            ("POST", f"/exec/{SANDBOX}/start"),
            ("GET", f"/containers/{SANDBOX}/json"),
            ("GET", f"/containers/{SANDBOX}/archive?path=/"),
            ("PUT", f"/containers/{SANDBOX}/archive?path=/"),
            ("GET", f"/containers/{SANDBOX}/export"),
            ("POST", f"/containers/{SANDBOX}/update"),
            ("POST", f"/containers/{SANDBOX}/rename?name=x"),
            ("POST", f"/containers/{DATABASE}/stop"),
            ("POST", f"/containers/{DATABASE}/kill"),
            ("POST", "/containers/prune"),
            ("POST", "/build"),
            ("POST", "/images/create?fromImage=x"),
            ("POST", "/images/load"),
            ("GET", "/images/json"),
            ("GET", "/images/postgres:17/json"),
            ("DELETE", f"/images/{default_image()}"),
            ("POST", "/commit"),
            ("POST", "/volumes/create"),
            ("GET", "/volumes"),
            ("POST", "/networks/create"),
            ("POST", "/swarm/init"),
            ("GET", "/secrets"),
            ("POST", "/plugins/pull"),
            ("POST", "/session"),
            ("POST", "/grpc"),
            ("GET", "/events"),
            ("GET", "/system/df"),
            ("GET", "/containers/json"),
            ("GET", "/containers/json?all=1"),
            ("GET", "/containers/json?filters=%7B%22label%22%3A%5B%22x%22%5D%7D"),
            ("POST", f"/containers/{SANDBOX}/attach?stdin=1"),
            ("POST", "/containers/create?name=postgres"),
            # Only ids are accepted, and only in one spelling.
            ("DELETE", "/containers/postgres"),
            ("DELETE", f"/containers/{SANDBOX[:12]}"),
            ("DELETE", f"/containers/{SANDBOX}/../{DATABASE}"),
            ("DELETE", f"/containers/{SANDBOX}%2f..%2f{DATABASE}"),
            ("POST", f"/containers/{SANDBOX}/start/../../{DATABASE}/exec"),
            ("POST", f"//containers/{SANDBOX}/start"),
            ("POST", f"/./containers/{SANDBOX}/start"),
            ("POST", f"/%63ontainers/{SANDBOX}/start"),
            ("POST", f"/containers/{SANDBOX}/start/"),
            ("POST", f"/containers/{SANDBOX}/start#"),
            ("POST", f"http://engine/containers/{SANDBOX}/start"),
            ("GET", f"/images/{default_image()}/../../containers/{DATABASE}/json"),
            # Older APIs accept a configuration at the start.
            ("POST", f"/v1.18/containers/{SANDBOX}/start"),
            ("POST", f"/v1.41/v1.18/containers/{SANDBOX}/start"),
            ("HEAD", f"/containers/{DATABASE}/archive?path=/"),
            ("OPTIONS", "/_ping"),
            ("get", "/_ping"),
        ],
    )
    def test_that_no_sandbox_worker_sends_are_refused(
        self, proxy: str, fake: FakeEngine, method: str, target: str
    ) -> None:
        status, body = send(proxy, request(method, target))

        assert status in (400, 403), body
        assert fake.asked == []

    @pytest.mark.parametrize(
        ("method", "target"),
        [
            ("POST", f"/containers/{DATABASE}/start"),
            ("DELETE", f"/containers/{DATABASE}?force=True"),
            ("POST", f"/containers/{DATABASE}/attach?stdin=1&stdout=1&stderr=1&stream=1"),
        ],
    )
    def test_about_what_is_no_sandbox_are_refused(
        self, proxy: str, fake: FakeEngine, method: str, target: str
    ) -> None:
        status, body = send(proxy, request(method, target))

        assert (status, body) == (403, b'{"message": "222222222222 is not a sandbox"}')
        assert fake.asked == [("GET", f"/containers/{DATABASE}/json", b"")]

    @pytest.mark.parametrize(
        "data",
        [
            request("POST", "/containers/create", b"", "Transfer-Encoding: chunked\r\n")
            + b"2\r\n{}\r\n0\r\n\r\n",
            request("POST", "/containers/create", b"{}", "Transfer-Encoding: identity\r\n"),
            request("POST", "/containers/create", b"{}", "Content-Length: 3\r\n"),
            request("POST", "/containers/create", b"", "Content-Length: +2\r\n") + b"{}",
            request("POST", "/containers/create", b"", "Content-Length: 0x2\r\n") + b"{}",
            request("GET", "/_ping", b"", "Content-Length : 0\r\n"),
            request("GET", "/_ping", b"", "X: y\r\n continued: z\r\n"),
            request("GET", "/_ping", b"", "X: y\nZ: z\r\n"),
            request("GET", "/_ping", b"", "Expect: 100-continue\r\n"),
            b"GET /_ping HTTP/1.0\r\n\r\n",
            b"GET  /_ping HTTP/1.1\r\n\r\n",
            b"GET /_ping\r\n\r\n",
            b"GET /_ping HTTP/1.1\r\nH\xc3\xb6st: x\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ],
        ids=lambda data: data[:60].decode(errors="replace"),
    )
    def test_that_could_be_read_in_two_ways_are_refused(
        self, proxy: str, fake: FakeEngine, data: bytes
    ) -> None:
        assert send(proxy, data)[0] in (400, 403, 411)
        assert fake.asked == []

    def test_behind_another_one_are_not_read(self, proxy: str, fake: FakeEngine) -> None:
        smuggled = request("POST", f"/containers/{DATABASE}/exec", b"{}")

        assert send(proxy, request("GET", "/_ping") + smuggled) == (200, b"OK")
        assert fake.asked == [("GET", "/_ping", b"")]

    def test_about_sandboxes_are_written_anew(self, proxy: str, fake: FakeEngine) -> None:
        start = request("POST", f"/v1.41/containers/{SANDBOX}/start?x=y", b'{"Binds": ["/:/x"]}')
        assert send(proxy, start)[0] == 200
        remove = request("DELETE", f"/v1.41/containers/{SANDBOX}?v=True&link=True&force=True")
        assert send(proxy, remove)[0] == 204

        assert fake.asked[1:] == [
            ("POST", f"/containers/{SANDBOX}/start", b""),
            ("DELETE", f"/containers/{SANDBOX}?v=1&force=1", b""),
        ]

    def test_learn_no_more_of_the_host_than_they_need(self, proxy: str) -> None:
        assert json.loads(send(proxy, request("GET", "/v1.41/info"))[1]) == {
            "SystemTime": "2026-01-01T00:00:00Z"
        }
        image = json.loads(send(proxy, request("GET", f"/images/{default_image()}/json"))[1])
        assert image == {"Id": IMAGE, "RepoTags": []}
        listed = send(proxy, LIST)
        assert set(json.loads(listed[1])[0]) == {"Id", "State", "Labels", "Created"}


class TestBounds:
    def test_container_limit_holds_until_one_is_removed(self, fake: FakeEngine) -> None:
        with proxy_to(fake, containers=2) as path:
            assert create(path, template())[0] == 201
            assert send(path, LIST)[0] == 200  # and with it one that it did not know
            assert create(path, template())[0] == 429
            assert send(path, request("DELETE", f"/containers/{'3' * 64}"))[0] == 204
            assert create(path, template())[0] == 201
            assert create(path, template())[0] == 429

    def test_containers_gone_without_the_proxy_do_not_count(self, fake: FakeEngine) -> None:
        with proxy_to(fake, containers=2) as path:
            assert [create(path, template())[0] for _ in range(2)] == [201, 201]
            assert create(path, template())[0] == 429
            fake.sandboxes.clear()
            assert [create(path, template())[0] for _ in range(3)] == [201, 201, 429]

    def test_containers_refused_by_engine_do_not_count(self, fake: FakeEngine) -> None:
        with proxy_to(fake, containers=2) as path:
            fake.creates = False
            assert [create(path, template())[0] for _ in range(3)] == [500, 500, 500]
            fake.creates = True
            assert [create(path, template())[0] for _ in range(3)] == [201, 201, 429]

    def test_container_limit_holds_for_concurrent_requests(self, fake: FakeEngine) -> None:
        fake.sandboxes.clear()
        fake.takes = 0.2
        with (
            proxy_to(fake, containers=3) as path,
            ThreadPoolExecutor(8) as threads,
        ):
            said = list(threads.map(lambda _: create(path, template())[0], range(8)))
        assert set(said) == {201, 429}
        assert 1 <= len(fake.sandboxes) <= 3

    def test_connection_limit_refuses_at_once(
        self, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            proxy_requests, "CLIENT_SECONDS", scaled(120)
        )  # the slow one keeps its place so long
        with proxy_to(fake, connections=1) as path:
            with socket.socket(socket.AF_UNIX) as slow:
                slow.connect(path)
                slow.sendall(b"GET /_ping")
                refused = eventually(lambda: send(path, request("GET", "/_ping"))[0] == 503)
            assert refused
            assert eventually(lambda: send(path, request("GET", "/_ping"))[0] == 200)

    def test_dripping_request_is_ended(
        self, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(proxy_requests, "CLIENT_SECONDS", 0.5)
        with (
            proxy_to(fake) as path,
            socket.socket(socket.AF_UNIX) as slow,
        ):
            slow.connect(path)
            ended = time.monotonic() + scaled(60)
            with suppress(ConnectionError):
                slow.sendall(b"GET /_ping HTTP/1.1\r\nX: ")
                while time.monotonic() < ended:
                    slow.sendall(b"y")
                    time.sleep(0.02)
            assert time.monotonic() < ended, "as long as something comes, it is waited for"

    def test_answered_connection_that_stays_is_ended(
        self, fake: FakeEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(proxying, "DRAIN_SECONDS", scaled(120))
        with proxy_to(fake, connections=1) as path:
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(path)
                one.sendall(request("GET", "/_ping"))
                assert one.recv(65536)
                assert send(path, request("GET", "/_ping"))[0] == 503
            assert eventually(lambda: send(path, request("GET", "/_ping"))[0] == 200)

    def test_an_engine_that_is_not_there_is_said_to_be_so(self) -> None:
        with proxy_to("/nowhere") as path:
            status, body = send(path, request("GET", "/_ping"))
        assert status == 502
        assert b"the engine does not respond" in body

    def test_nobody_else_may_connect(self, proxy: str) -> None:
        assert Path(proxy).stat().st_mode & 0o777 == 0o600


@pytest.mark.docker
class TestWithTheEngine:
    @pytest.fixture
    def through(self, docker_image: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        """Send all requests of this process to the engine through a proxy."""
        monkeypatch.setattr(docker, "PING_SECONDS", scaled(60))  # whatever else the machine does
        with proxy_to(ENGINE.removeprefix("unix://")) as path:
            monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
            docker._thread.__dict__.clear()
            yield path
        docker._thread.__dict__.clear()

    def test_a_sandbox_starts_confined_computes_and_is_removed(self, through: str) -> None:
        with docker.start() as sandbox:
            sandbox.load({"domains/__init__.py": ""})
            large = sandbox.evaluate("'x' * 900_000", now=NOW, time_zone="UTC")
            assert large.value == "x" * 900_000
            container = sandbox._frames.channel.container  # type: ignore[attr-defined]
        assert docker.problem() == ""
        with closing(client_library.DockerClient(ENGINE)) as direct:
            listed = {one["Id"] for one in direct.api.containers(all=True)}
        assert container not in listed

    def test_a_client_that_is_gone_takes_its_sandbox_along(self, through: str) -> None:
        """Killed workers do not say goodbye: the end of the connection has to pass the proxy."""
        channel = docker.ContainerChannel(docker._image(), 0)
        channel.start()
        deadline = time.monotonic() + scaled(60)
        assert protocol.read_frame(lambda count: channel.receive(count, deadline), 4096)
        with closing(client_library.DockerClient(ENGINE)) as direct:
            not_none(channel._socket).shutdown(socket.SHUT_RDWR)
            ended = direct.api.wait(channel.container, timeout=int(scaled(60)))
        channel.close()
        assert ended["StatusCode"] == 0

    def test_an_attack_has_no_effect(self, through: str, docker_image: str) -> None:
        with closing(client_library.from_env()) as ours:
            for attack in (
                lambda: ours.containers.run(docker_image, privileged=True),
                lambda: ours.containers.create(docker_image, volumes=["/:/host"]),
                lambda: ours.containers.create(docker_image, network_mode="host"),
                lambda: ours.containers.create(docker_image, name="uac-proxy-attack"),
                lambda: ours.volumes.create("uac-proxy-attack"),
                lambda: ours.networks.create("uac-proxy-attack"),
            ):
                with pytest.raises(APIError) as refused:
                    attack()
                assert refused.value.status_code == 403
        with closing(client_library.DockerClient(ENGINE)) as direct:
            named = {"name": "uac-proxy-attack"}
            assert direct.api.containers(all=True, filters=named) == []
            assert direct.volumes.list(filters=named) == []
            assert direct.networks.list(filters=named) == []

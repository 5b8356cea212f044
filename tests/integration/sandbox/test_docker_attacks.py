"""Attacks from within a container, judged from outside: they did not succeed.

Confinement as a process sees it is in test_docker_confinement.py; here the observer is outside.
"""

import fcntl
import socket
import struct
import termios
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from docker.models.containers import Container

from sandbox_image.uac import protocol
from tests.docker_engine import gateway_of
from tests.integration.sandbox.conftest import NOW, sandbox_error, value_of
from tests.integration.sandbox.containers import Containers, reconfigure
from tests.processes import Process, gone
from tests.steps import not_none
from tests.waiting import eventually
from workers.sandbox import container_template, docker
from workers.sandbox.client import Sandbox
from workers.sandbox.container_template import USER_IDS
from workers.sandbox.docker import ContainerChannel
from workers.sandbox.limits import MEBIBYTE, Limits, Shape, foreign_limits
from workers.sandbox.pool import Pool
from workers.sandbox.pool_stock import PoolLimits
from workers.sandbox.results import SandboxError

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_image")]


@pytest.fixture
def sandbox(mine: Containers) -> Iterator[Sandbox]:
    """A container for one test, removed afterwards whatever was done in it."""
    with docker.start() as one:
        yield one
    assert mine.all() == []


def load(sandbox: Sandbox, code: str, **limits: Any) -> None:
    """Run code in the runner itself, where more can be attacked than in a query."""
    sandbox.load({"domains/a/state.py": code}, limits=Limits(**limits))


def assert_another_works() -> None:
    with docker.start() as other:
        assert value_of(other, "1 + 1") == 2


def channel_of(sandbox: Sandbox) -> ContainerChannel:
    assert isinstance(sandbox._frames.channel, ContainerChannel)
    return sandbox._frames.channel


def runner_of(container: Container) -> Process:
    container.reload()
    return Process.of(container.attrs["State"]["Pid"])


class Watch:
    """The peak memory and processes of a container, sampled repeatedly."""

    def __init__(self, container: Container) -> None:
        self.runner = runner_of(container)
        self._memory = memory_of(self.runner)
        self.seen: set[Process] = set()
        self.most_processes = 0
        self.most_memory = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            # An orphan becomes a child of the runner meanwhile, and is found twice.
            family = {self.runner, *self.runner.descendants()}
            self.seen.update(family)
            self.most_processes = max(self.most_processes, len(family))
            with suppress(OSError):  # it may be gone
                self.most_memory = max(self.most_memory, int(self._memory.read_text()))


def memory_of(process: Process) -> Path:
    """Return the kernel's file with the memory that a process's container uses."""
    for line in Path(f"/proc/{process.pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return Path(f"/sys/fs/cgroup/memory{path}/memory.usage_in_bytes")
        if controllers == "" and Path(f"/sys/fs/cgroup{path}/memory.current").exists():
            return Path(f"/sys/fs/cgroup{path}/memory.current")
    raise AssertionError("the container has no control group for its memory")


# --- network


@pytest.fixture
def listeners() -> Iterator[tuple[int, int, str]]:
    """Listen on the host: a TCP port and a UDP port on every address, and an abstract socket.

    Nobody may connect to them except the test itself, to see that they listen.
    """
    name = f"uac-test-{uuid.uuid4().hex}"
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("", 0))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0{name}")
        abstract.listen()
        for one in (tcp, udp, abstract):
            one.settimeout(0)
        ports = tcp.getsockname()[1], udp.getsockname()[1]
        yield *ports, name
        for accept in (tcp.accept, abstract.accept, lambda: udp.recv(1)):
            with pytest.raises(BlockingIOError):
                accept()
        with socket.create_connection(("127.0.0.1", ports[0])):
            assert eventually(lambda: bool(tcp.accept()))
        with socket.socket(socket.AF_UNIX) as friend:
            friend.connect(f"\0{name}")
            abstract.accept()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as friend:
            friend.sendto(b"x", ("127.0.0.1", ports[1]))
            assert eventually(lambda: bool(udp.recv(1)))


CALL_OUT = """
import socket
reached = []
def attempt(what, call, *arguments):
    try:
        reached.append([what, str(call(*arguments))])
    except OSError:
        pass
def send(address, data):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        return one.sendto(data, address)
def abstract(name):
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect(name)
for address in addresses:
    attempt(address, socket.create_connection, (address, tcp), 0.2)
    attempt("TCP 80 " + address, socket.create_connection, (address, 80), 0.2)
    if not address.startswith("127."):  # of the container's own loopback, if it may have sockets
        attempt("UDP " + address, send, (address, udp), b"x")
        attempt("DNS " + address, send, (address, 53), b"x")
attempt("abstract", abstract, "\\0" + name)
for host in ("example.com", "host.docker.internal", "metadata.google.internal"):
    attempt(host, socket.getaddrinfo, host, 80)
reached
"""


@pytest.mark.parametrize("filtered", [True, False], ids=["filter", "namespace alone"])
def test_sandbox_calls_no_listener(
    filtered: bool,
    listeners: tuple[int, int, str],
    mine: Containers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Code can reach neither the host nor its neighbours.

    The filter prevents it, and without the filter the empty network namespace does.
    """
    tcp, udp, name = listeners
    networks = [network.attrs for network in mine.client.networks.list()]
    gateways = [gateway_of(network) for network in networks if network["IPAM"]["Config"]]
    assert gateways
    addresses = ["127.0.0.1", *gateways, "169.254.169.254", "10.0.0.1", "8.8.8.8"]
    given = f"tcp, udp, name, addresses = {tcp}, {udp}, {name!r}, {addresses!r}\n"
    if not filtered:
        without_a_filter(monkeypatch)
    with docker.start() as sandbox:
        assert sandbox.hello["seccomp"] == (2 if filtered else 0)
        assert value_of(sandbox, given + CALL_OUT, wall_seconds=20) == []


def without_a_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["no-new-privileges:true", "seccomp=unconfined"]
    reconfigure(monkeypatch, lambda config: config["HostConfig"].update(SecurityOpt=options))
    monkeypatch.setattr(docker, "CONFINED", {"no_new_privileges": 1, "capabilities": 0})


# --- processes

BOMB = """
import os
while True:
    try: os.fork()
    except OSError: pass
"""
# Loaded code may allow itself to fork: it runs in the runner itself.
UNBOUND = """
import os, resource, signal, time
allowed = resource.getrlimit(resource.RLIMIT_NPROC)[1]
resource.setrlimit(resource.RLIMIT_NPROC, (allowed, allowed))
"""
DAEMONS = """
for _ in range(10):
    if os.fork() == 0:
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        os.closerange(0, 128)
        if os.fork() == 0:
            while True: time.sleep(60)
        os._exit(0)
while sum(map(str.isdigit, os.listdir("/proc"))) < 1 + 10 + 10:
    time.sleep(0.01)
"""


def test_fork_bomb_in_query_has_no_second_process(sandbox: Sandbox, mine: Containers) -> None:
    with Watch(*mine.all()) as watch, sandbox_error("timeout", infrastructure=False):
        value_of(sandbox, BOMB, wall_seconds=0.5)
    assert watch.most_processes == 2  # the runner, and the query
    assert value_of(sandbox, "1 + 1") == 2
    assert eventually(lambda: gone(watch.seen - {watch.runner}))


def test_fork_bomb_in_loaded_code_is_contained(sandbox: Sandbox, mine: Containers) -> None:
    with Watch(*mine.all()) as watch, sandbox_error("timeout", infrastructure=True):
        load(sandbox, UNBOUND + BOMB, wall_seconds=10)
    assert 2 < watch.most_processes <= 32  # it did explode, within the container
    assert eventually(lambda: gone(watch.seen))
    assert_another_works()


def test_daemons_do_not_see_the_next_request(sandbox: Sandbox, mine: Containers) -> None:
    # The load does not end before all of them exist.
    load(sandbox, UNBOUND + DAEMONS, wall_seconds=60)
    assert len(runner_of(*mine.all()).descendants()) <= 1  # one may wait for the next request
    assert value_of(sandbox, "import os\n{n for n in os.listdir('/proc') if n.isdigit()} == {'1', "
               "str(os.getpid())}")  # fmt: skip


def test_same_user_id_has_processes_left(mine: Containers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts some things by user id, over all containers."""
    monkeypatch.setattr(container_template, "USER_IDS", [USER_IDS[0]])
    with docker.start() as greedy, docker.start() as other:
        container = mine.client.containers.get(channel_of(greedy).container)
        runner = runner_of(container)

        def grab() -> None:
            with pytest.raises(SandboxError):
                load(greedy, UNBOUND + BOMB, wall_seconds=600)  # until it is killed

        thread = threading.Thread(target=grab)
        thread.start()
        assert eventually(lambda: len(runner.descendants()) >= 30)
        for number in range(5):
            assert value_of(other, f"{number}", wall_seconds=60) == number
        assert len(runner.descendants()) >= 30
        container.kill()
        thread.join()


# --- memory


GROW = """
import time
x = []
try:
    while True: x.append(b"x" * 2 ** 20)
except MemoryError:
    time.sleep(1)  # for the watch to see it
    raise
"""


def test_a_memory_bomb_takes_no_more_than_its_limit(sandbox: Sandbox, mine: Containers) -> None:
    allowed = 64 * MEBIBYTE
    with Watch(*mine.all()) as watch, sandbox_error("out_of_memory", infrastructure=False):
        value_of(sandbox, GROW, memory_bytes=allowed, wall_seconds=60)
    assert 32 * MEBIBYTE < watch.most_memory < allowed + 32 * MEBIBYTE  # with the runner's
    assert value_of(sandbox, "1 + 1") == 2


def test_memory_bomb_of_many_is_contained(
    mine: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"Memory": 128 * MEBIBYTE, "MemorySwap": 128 * MEBIBYTE}
    reconfigure(monkeypatch, lambda config: config["HostConfig"].update(small))
    bombs = (
        "for _ in range(8):\n    if os.fork() == 0:\n        x = []\n"
        "        while True: x.append(b'x' * 2 ** 20)\ntime.sleep(99)"
    )
    with docker.start() as sandbox:
        with Watch(*mine.all()) as watch, sandbox_error(infrastructure=True):
            load(sandbox, UNBOUND + bombs, wall_seconds=10)
        assert not sandbox.alive
    assert 64 * MEBIBYTE < watch.most_memory <= 128 * MEBIBYTE
    assert eventually(lambda: gone(watch.seen))
    assert mine.all() == []
    monkeypatch.undo()
    assert_another_works()


# --- floods


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of the data received from containers."""
    sizes: list[int] = []
    feed = docker._Frames.feed

    def counted(self: docker._Frames, data: bytes) -> None:
        sizes.append(len(data))
        feed(self, data)

    monkeypatch.setattr(docker._Frames, "feed", counted)
    return sizes


GIGABYTE_TO = "import os\nfor _ in range(1024): os.write({}, b'x' * 2 ** 20)"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (GIGABYTE_TO.format(1), "output_limit"),
        (GIGABYTE_TO.format(2), "output_limit"),
        (GIGABYTE_TO.format(3), "result_limit"),
        ("while True: print('x' * 2 ** 20)", "output_limit"),
        ("['x' * 2 ** 10] * 2 ** 20", "result_limit"),
        ("'x' * 2 ** 30", "out_of_memory"),
        ("raise ValueError('x' * 2 ** 25)", "user_error"),
    ],
)
def test_gigabyte_of_output_hardly_arrives(
    sandbox: Sandbox, received: list[int], code: str, outcome: str
) -> None:
    with sandbox_error(outcome, infrastructure=False):
        value_of(sandbox, code)
    assert sum(received) < 64 * 1024
    assert value_of(sandbox, "1 + 1") == 2


@pytest.mark.parametrize("descriptor", ["1", "2", "n"])
def test_a_gigabyte_in_place_of_an_answer_is_not_read(
    sandbox: Sandbox, received: list[int], descriptor: str
) -> None:
    """Loaded code can find the runner's own descriptors, and its standard ones."""
    write = GIGABYTE_TO.format(descriptor).replace("\n", "\n        ")
    code = f"for n in range(10, 32):\n    try:\n        {write}\n    except OSError: pass\n"
    if descriptor == "n":
        with sandbox_error("protocol_error", infrastructure=True):
            load(sandbox, code)
        assert not sandbox.alive
    else:
        load(sandbox, code)
        assert value_of(sandbox, "1 + 1") == 2
    assert sum(received) < 4 * MEBIBYTE  # what is read at a time, and what was under way


VALUES = """
import os
def write(data):
    while data: data = data[os.write(3, data):]
write(b'{"outcome":"ok","result":{"type":"list","value":[[]')
for _ in range(400): write(b",{}" * 10_000)
write(b"]}}\\n")
os._exit(0)
"""


def test_an_answer_of_many_values_does_not_exhaust_a_small_container(mine: Containers) -> None:
    """Each value takes twenty times its two bytes in the memory of the runner."""
    shape = Shape(memory_mib=128)
    with docker.start(shape=shape) as sandbox:
        with sandbox_error("result_limit", infrastructure=False):
            sandbox.evaluate(VALUES, now=NOW, time_zone="UTC", limits=foreign_limits(shape))
        assert value_of(sandbox, "1 + 1") == 2


# --- the protocol, and a runner that is not to be trusted

HELLO = """
import json, os, struct, sys, time
def send(message):
    data = json.dumps(message).encode()
    os.write(1, struct.pack(">I", len(data)) + data)
send({{"hello": {version}, "hash_seed": "0", "seccomp": 2, "no_new_privileges": 1,
      "capabilities": 0, "kernel": "linux"}})
"""
ANSWER = """
answer = {"outcome": "ok", "message": "", "error": None, "stdout": "",
          "load_seconds": 0, "seconds": 0, "cpu_seconds": 0, "memory_bytes": 0,
          "result": {"value": "another's", "type": "str",
                     "evidence": {"scope": "read", "count": 0, "records": [], "collections": [],
                                  "set_aside": [], "lapsed": []},
                     "ties": []}}
def read():
    (size,) = struct.unpack(">I", sys.stdin.buffer.read(4))
    return json.loads(sys.stdin.buffer.read(size))
"""


@contextmanager
def impostor(monkeypatch: pytest.MonkeyPatch, code: str) -> Iterator[Sandbox]:
    """A container with a different program, which says hello as the runner does."""
    program = ["python3", "-S", "-c", HELLO.format(version=protocol.VERSION) + ANSWER + code]
    with monkeypatch.context() as patch:
        reconfigure(patch, lambda config: config.update(Entrypoint=program))
        sandbox = docker.start()
    try:
        yield sandbox
    finally:
        sandbox.close()


@pytest.mark.parametrize(
    ("code", "asked"),
    [
        ("send({**answer, 'id': 2}); time.sleep(99)", 1),  # before it was asked anything
        ("send({**answer, 'id': read()['id'] + 1}); time.sleep(99)", 1),
        ("for _ in range(2): read(); send({**answer, 'id': 1})\ntime.sleep(99)", 2),
        ("for _ in range(2): n = read()['id']; send({**answer, 'id': n}); send({**answer, 'id': n})"
         "\ntime.sleep(99)", 2),
    ],
    ids=["too early", "of the next", "of the last", "twice"],
)  # fmt: skip
def test_an_answer_to_another_request_is_believed_by_nobody(
    code: str, asked: int, mine: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with impostor(monkeypatch, code) as sandbox:
        for _ in range(asked - 1):
            assert value_of(sandbox, "1") == "another's"  # an answer in order
        with pytest.raises(SandboxError, match="id is not that of the request") as raised:
            value_of(sandbox, "1")
        assert (raised.value.outcome, raised.value.infrastructure) == ("protocol_error", True)
        assert not sandbox.alive
        assert mine.all() == []


def test_loaded_code_closing_protocol_ends_itself_only(sandbox: Sandbox, mine: Containers) -> None:
    with sandbox_error("killed", infrastructure=True):
        load(sandbox, "import os\nos.closerange(0, 128)")
    assert mine.all() == []
    assert_another_works()


LARGE = {f"domains/a/part_{n}.py": "#" * MEBIBYTE for n in range(24)}


def test_runner_that_reads_nothing_is_left(
    mine: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All buffers on the way to it are full, and more is to be sent."""
    with impostor(monkeypatch, "time.sleep(99)") as sandbox:
        with sandbox_error("timeout", infrastructure=True):
            sandbox.load(LARGE, limits=Limits(wall_seconds=1))
        assert mine.all() == []
    assert_another_works()


def test_runner_that_nobody_reads_ends(mine: Containers, monkeypatch: pytest.MonkeyPatch) -> None:
    """All buffers on the way from it are full, where an engine may hang when it is to kill."""
    with impostor(monkeypatch, "while True: os.write(1, b'x' * 65536)") as sandbox:
        (container,) = mine.all()
        runner = runner_of(container)
        channel = channel_of(sandbox)
        waiting = [-1, 0]
        while waiting[-1] != waiting[-2] or not waiting[-1]:
            time.sleep(0.1)
            answer = fcntl.ioctl(not_none(channel._socket), termios.FIONREAD, bytes(4))
            waiting.append(*struct.unpack("i", answer))
        assert runner.runs
        sandbox.close()
        assert mine.all() == []
        assert eventually(lambda: gone([runner]))


# --- another user

LEAVE = """
import builtins, ctypes, os, sys
marker = {marker!r}
left = []
def attempt(what, call):
    try:
        call()
        left.append(what)
    except (OSError, ValueError):
        pass
for folder in ("/", "/tmp", "/dev/shm", "/dev/mqueue", "/var/tmp", "/run", "/opt/uac", "."):
    attempt(folder, lambda: open(os.path.join(folder, marker), "w").write(marker))
libc = ctypes.CDLL(None, use_errno=True)
def refused(result):
    if result == -1:
        raise OSError(ctypes.get_errno())
attempt("shared memory", lambda: refused(libc.shmget(0x5ac, 4096, 0o1666)))
attempt("semaphores", lambda: refused(libc.semget(0x5ac, 1, 0o1666)))
attempt("messages", lambda: refused(libc.msgget(0x5ac, 0o1666)))
attempt("queue", lambda: refused(libc.syscall(240, b"/" + marker.encode(), 0o102, 0o666, None)))
attempt("key", lambda: refused(libc.syscall(248, b"user", marker.encode(), b"x", 1, -4)))
attempt("host name", lambda: refused(libc.sethostname(marker.encode(), len(marker))))
os.environ["LEFT"] = builtins.left = sys.left = marker
sys.modules[marker] = sys
kept = [marker.encode() * 100]
"""

# Every page of this process, and so of the runner that it was forked from; every file; everything
# else that the kernel shows. The search expression does not match itself.
LOOK = """
import builtins, ctypes, os, re, sys
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # to read one's own memory
pattern = re.compile({pattern!r})
found, pages = [], 0
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps:
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if " r" in line and "[v" not in line:
            memory.seek(start)
            while start < end:
                data = memory.read(min(2 ** 20, end - start))
                start += len(data)
                pages += len(data) // 4096
                if not data: break
                if pattern.search(data): found.append("memory " + line.split()[-1])
for folder, folders, files in os.walk("/"):
    if folder == "/proc":
        folders[:] = ["self", "1"] if os.path.exists("/proc/1") else []
    for name in folders + files:
        path = os.path.join(folder, name)
        if pattern.search(path.encode()): found.append(path)
        if name in files and folder.count("/") < 4 and os.path.isfile(path):
            try:
                with open(path, "rb") as file:
                    if pattern.search(file.read(2 ** 20)): found.append(path)
            except OSError: pass
seen = {{
    "found": found,
    "pages": pages,
    "processes": sorted({{*filter(str.isdigit, os.listdir("/proc"))}} - {{str(os.getpid())}}),
    "shared": [ctypes.CDLL(None).shmget(0x5ac, 0, 0), ctypes.CDLL(None).semget(0x5ac, 0, 0),
               ctypes.CDLL(None).msgget(0x5ac, 0)],
    "environment": sorted(os.environ),
    "left": [hasattr(builtins, "left"), hasattr(sys, "left"), "LEFT" in os.environ],
    "sockets": len(open("/proc/self/net/unix").readlines()) - 1,
    "user": os.getuid(),
}}
seen
"""


def test_a_user_finds_no_trace_of_another(mine: Containers) -> None:
    """One pool serves both users.

    The other leaves no trace, neither while its sandbox exists nor after it is gone.
    """
    marker = f"trace{uuid.uuid4().hex}"
    look = LOOK.format(pattern=f"[{marker[0]}]{marker[1:]}".encode())
    limits = {"wall_seconds": 20, "cpu_seconds": 20}
    pool = Pool(docker, PoolLimits(least=1, most=2, lease_seconds=60, leases=4))
    used: dict[str, set[str]] = {}

    def use(user: str, code: str) -> dict[str, Any]:
        with pool.lease(user) as lease:
            used.setdefault(channel_of(lease.sandbox).container, set()).add(user)
            if not lease.tree:
                load(lease.sandbox, code)
                lease.tree = {"domains/a/state.py": "hash"}
            seen = value_of(lease.sandbox, look, **limits)
            assert isinstance(seen, dict)
            return seen

    try:
        ada = use("ada", LEAVE.format(marker=marker))
        # Loaded content is visible to its own user; nothing else may remain.
        assert any("memory" in where for where in ada["found"])
        assert ada["left"] == [True] * 3
        with pool.lease("ada") as lease:
            assert value_of(lease.sandbox, "from domains.a.state import left\nleft") == []
        meanwhile = use("bob", "x = 1")
        (adas,) = (one for one in mine.all() if used.get(str(one.id)) == {"ada"})
        assert not adas.diff()  # nothing was written to what the engine keeps of it
        with pool.lease("ada") as lease:
            lease.tree = {}
        assert eventually(lambda: adas.id not in {one.id for one in mine.all()})
        afterwards = use("cleo", "x = 1")
        with pool.fresh() as sandbox:
            untouched = value_of(sandbox, look, **limits)
    finally:
        pool.close()
    for seen in (meanwhile, afterwards, untouched):
        assert seen["found"] == []
        assert seen["pages"] > 1000  # it did look
        assert seen["left"] == [False] * 3
        assert seen["environment"] == untouched["environment"]
        assert (seen["processes"], seen["shared"], seen["sockets"]) == (["1"], [-1, -1, -1], 0)
    assert all(len(users) == 1 for users in used.values())
    assert mine.all() == []

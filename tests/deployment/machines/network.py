"""Machines on one computer: network namespaces, and cables between them that can be broken.

Everything is held by descriptors: when this process ends, however it does, the kernel removes
namespaces, devices and addresses.
"""

import ctypes
import fcntl
import itertools
import json
import os
import random
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from deploy.embedded.process import Child, ManagedProcess, die_with_parent, execute

_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_libc = ctypes.CDLL(None, use_errno=True)
# Addresses for tests of networks (RFC 2544), which nothing else uses.
_NETWORK = "198.18"


@dataclass(frozen=True)
class Machine:
    """A network namespace with an address."""

    name: str
    address: str
    _namespace: int

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Let this thread, and processes that it starts, use the machine's network."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _call(_libc.setns, self._namespace, _CLONE_NEWNET)
            try:
                yield
            finally:
                _call(_libc.setns, home, _CLONE_NEWNET)
        finally:
            os.close(home)

    def place(self, process: ManagedProcess) -> ManagedProcess:
        """Make a process run on this machine, now and whenever it is started again."""
        begin, ready = process.begin, process.ready
        assert begin is execute, "another process would fork it, on its own machine"

        def begin_here(process: ManagedProcess, log: IO[bytes]) -> Child:
            with self.entered():
                return begin(process, log)

        def is_ready(process: ManagedProcess) -> bool:
            with self.entered():
                return ready(process)

        process.begin, process.ready = begin_here, is_ready
        return process


class Network:
    """Machines, each with a cable to each other; `outside` is the network of this process."""

    def __init__(self, prefix: str, machines: Sequence[Machine], cables: subprocess.Popen[str]):
        self.addresses = f"{prefix}.0/24"
        self._machines = {machine.name: machine for machine in machines}
        self._places = {machine.name: place for place, machine in enumerate(machines)}
        self._cables = cables

    def __getitem__(self, name: str) -> Machine:
        return self._machines[name]

    def set_link(self, one: str, other: str, *, delay: float = 0.0, loss: float = 0.0) -> None:
        """Set the seconds that packets take, each way, and the share of them that is lost."""
        assert self._cables.stdin is not None
        assert self._cables.stdout is not None
        command = json.dumps([self._places[one], self._places[other], delay, loss])
        print(command, file=self._cables.stdin, flush=True)
        assert self._cables.stdout.readline() == "\n", "the cables' process has ended"

    def cut(self, one: str, other: str) -> None:
        """Lose all packets between two machines, which hear nothing of it."""
        self.set_link(one, other, loss=1.0)

    def cut_off(self, name: str) -> None:
        """Cut a machine off from all others."""
        for other in self._machines.keys() - {name}:
            self.cut(name, other)

    def set_all(self, *, delay: float = 0.0, loss: float = 0.0) -> None:
        """Set all links; without arguments, repair them."""
        for one, other in itertools.combinations(self._machines, 2):
            self.set_link(one, other, delay=delay, loss=loss)


@contextmanager
def connected(*names: str) -> Iterator[Network]:
    """Yield a network of these machines and `outside`, which has the first address."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    prefix, outside = _open_outside()
    devices, machines = [outside], [Machine("outside", f"{prefix}.1", home)]
    try:
        for number, name in enumerate(names, 2):
            machine = Machine(name, f"{prefix}.{number}", _new_namespace())
            machines.append(machine)
            with machine.entered():
                devices.append(_open_device("lan"))
                _run("ip", "link", "set", "lo", "up")
                _address("lan", machine.address)
        program = Path(__file__).with_name("cables.py")
        with subprocess.Popen(
            [sys.executable, str(program), *map(str, devices)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=devices,
            preexec_fn=die_with_parent(signal.SIGKILL),
        ) as cables:
            try:
                yield Network(prefix, machines, cables)
            finally:
                cables.kill()
    finally:
        for descriptor in (*devices, *(machine._namespace for machine in machines)):
            os.close(descriptor)


def _open_outside() -> tuple[str, int]:
    """Return a free network's prefix, and this process's device in it."""
    for third in random.SystemRandom().sample(range(1, 255), 20):
        with suppress(OSError):  # another run has it
            name = f"uac-net-{third}"
            device = _open_device(name)
            _address(name, f"{_NETWORK}.{third}.1")
            return f"{_NETWORK}.{third}", device
    raise RuntimeError("no free network")


def _new_namespace() -> int:
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _call(_libc.unshare, _CLONE_NEWNET)
        try:
            return os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        finally:
            _call(_libc.setns, home, _CLONE_NEWNET)
    finally:
        os.close(home)


def _open_device(name: str) -> int:
    """Make a TUN device in this thread's namespace, which lasts as long as its descriptor."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(
            device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI)
        )
    except OSError:
        os.close(device)
        raise
    return device


def _address(device: str, address: str) -> None:
    _run("ip", "address", "add", f"{address}/24", "dev", device)
    _run("ip", "link", "set", device, "up", "txqueuelen", "2000")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _call(function: object, *arguments: int) -> None:
    assert callable(function)
    if function(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

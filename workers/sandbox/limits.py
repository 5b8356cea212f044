"""Request limits, sandbox shapes, and the allowance that combines the two for a workspace."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from memory.kernel.settings.sandbox_limits import SandboxLimits, process_memory_most

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on one request; exceeding a limit ends the request with the corresponding outcome."""

    wall_seconds: float = 5.0  # time limit per evaluation, constraint or test file
    total_seconds: float = 30.0  # time limit per request, for all of its constraints or test files
    cpu_seconds: int = 5  # CPU time limit per evaluation, constraint or test file
    memory_bytes: int = 256 * MEBIBYTE  # size of the address space, including the loaded project
    stdout_kept_bytes: int = 8 * 1024
    stdout_produced_bytes: int = MEBIBYTE
    result_bytes: int = MEBIBYTE
    result_depth: int = 32
    alerts: int = 100  # maximum number of alerts per constraint


DEFAULT_LIMITS = Limits()
# Maximum total size of the files that one request compiles or reads back, since a response is read
# in one go. A single file may exceed this total: it may be as large as the largest record that the
# API accepts.
COMPILED_BYTES = 2 * MEBIBYTE
DUMPED_BYTES = MEBIBYTE // 2
LOAD_LIMITS = Limits(wall_seconds=30, cpu_seconds=30, memory_bytes=1024 * MEBIBYTE)
COMPILE_LIMITS = DUMP_LIMITS = replace(LOAD_LIMITS, result_bytes=24 * MEBIBYTE)
FOREIGN_LIMITS = Limits(
    wall_seconds=10,
    cpu_seconds=10,
    memory_bytes=512 * MEBIBYTE,
    result_bytes=16 * MEBIBYTE,
    result_depth=150,
)


def parts_of(sizes: Mapping[str, int], most: int) -> list[list[str]]:
    """Group files into parts of at most `most` bytes; a larger file gets a part to itself."""
    parts: list[list[str]] = [[]]
    room = most
    for path, size in sizes.items():
        if size > room and parts[-1]:
            parts.append([])
            room = most
        parts[-1].append(path)
        room -= size
    return parts


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Properties fixed for a sandbox's lifetime; the process runner uses only the memory limit."""

    memory_mib: int = 1024  # memory limit, including swap

    @classmethod
    def from_limits(cls, limits: SandboxLimits) -> "Shape":
        """Return the sandbox shape for these settings."""
        return cls(memory_mib=limits.memory_mib)

    @property
    def process_memory_bytes(self) -> int:
        """Return the memory limit per process in the sandbox, in bytes."""
        return process_memory_most(self.memory_mib) * MEBIBYTE


DEFAULT_SHAPE = Shape()


def foreign_limits(shape: Shape) -> Limits:
    """Return the limits on executing a foreign project in a sandbox of this shape."""
    # The runner needs memory to parse the result.
    result_bytes = min(FOREIGN_LIMITS.result_bytes, shape.process_memory_bytes // 8)
    return replace(FOREIGN_LIMITS, result_bytes=result_bytes)


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """The resources that a user's code may use: limits on each request, and a sandbox shape.

    If `single_use` is set, every use gets a fresh sandbox.
    """

    limits: Limits = DEFAULT_LIMITS
    shape: Shape = DEFAULT_SHAPE
    single_use: bool = False

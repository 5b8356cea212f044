"""Limits of a request, the shape of a container, and a workspace's allowance of both."""

from collections.abc import Mapping
from dataclasses import dataclass

from memory.workspace_settings.sandbox_limits import SandboxLimits, process_memory_most

KIBIBYTE = 1024
MEBIBYTE = 1024 * KIBIBYTE


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one request; exceeding one ends the request with the corresponding outcome."""

    wall_seconds: float = 5.0  # per evaluation, per constraint, per test file
    total_seconds: float = 30.0  # per request: all its constraints or all its test files
    cpu_seconds: int = 5  # for the same work as wall_seconds
    memory_bytes: int = 256 * MEBIBYTE  # address space, including the loaded project
    stdout_kept_bytes: int = 8 * 1024
    stdout_produced_bytes: int = MEBIBYTE
    result_bytes: int = MEBIBYTE
    result_depth: int = 32
    alerts: int = 100  # per constraint

    @classmethod
    def of(cls, limits: SandboxLimits, *, alerts: int) -> "Limits":
        """Return the limits of a request under these settings."""
        return cls(
            wall_seconds=limits.wall_seconds,
            total_seconds=limits.total_seconds,
            cpu_seconds=limits.cpu_seconds,
            memory_bytes=limits.process_memory_mib * MEBIBYTE,
            stdout_produced_bytes=limits.output_kib * KIBIBYTE,
            result_bytes=limits.result_kib * KIBIBYTE,
            result_depth=limits.result_depth,
            alerts=alerts,
        )


DEFAULT_LIMITS = Limits()
# Maximum size of the files compiled, or read back, per request, since an answer is read in one go.
# A single file may be as large as the largest record that a request can hold.
COMPILED_BYTES = 2 * MEBIBYTE
DUMPED_BYTES = MEBIBYTE // 2
COMPILE_LIMITS = Limits(
    wall_seconds=30, cpu_seconds=30, memory_bytes=1024 * MEBIBYTE, result_bytes=24 * MEBIBYTE
)
LOAD_LIMITS = Limits(wall_seconds=30, cpu_seconds=30, memory_bytes=1024 * MEBIBYTE)
DUMP_LIMITS = Limits(
    wall_seconds=30, cpu_seconds=30, memory_bytes=1024 * MEBIBYTE, result_bytes=24 * MEBIBYTE
)

FOREIGN_LIMITS = Limits(
    wall_seconds=10,
    cpu_seconds=10,
    memory_bytes=512 * MEBIBYTE,
    result_bytes=16 * MEBIBYTE,
)


def parts_of(sizes: Mapping[str, int], most: int) -> list[list[str]]:
    """Split files into parts of at most `most` bytes each; a larger file is a part of its own."""
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
    """Properties that a sandbox keeps for life; sandboxes that are processes have none."""

    memory_mib: int = 1024  # including swap
    pids: int = 32
    tmpfs_mib: int = 0  # size of a /tmp; without one, nothing can be written

    @classmethod
    def of(cls, limits: SandboxLimits) -> "Shape":
        """Return the shape of sandboxes under these settings."""
        return cls(memory_mib=limits.memory_mib, pids=limits.pids, tmpfs_mib=limits.tmpfs_mib)

    @property
    def process_memory_bytes(self) -> int:
        """Return the memory limit of one process in the sandbox, in bytes."""
        return process_memory_most(self.memory_mib, self.tmpfs_mib) * MEBIBYTE


DEFAULT_SHAPE = Shape()


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """The resources of a user's code: limits for each request, and the shape of its sandbox.

    If `single_use` is set, every use gets a fresh sandbox.
    """

    limits: Limits = DEFAULT_LIMITS
    shape: Shape = DEFAULT_SHAPE
    single_use: bool = False

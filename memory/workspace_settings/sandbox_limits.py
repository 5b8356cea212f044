"""The limits of sandboxes: the server's defaults and ceilings, and a workspace's overrides.

For each limit the operator's settings name a default (`UAC_SANDBOX_` and the limit's name) and a
ceiling (the same with `_MOST`). A workspace may override it up to the ceiling. Limits depend on
each other; a limit without an override gives way to those with one.
"""

import math
from dataclasses import dataclass

from django.conf import settings

from memory.workspace_settings.overrides import Chosen, by_setting, everywhere, out_of_range

# MiB of a container's memory that are left to the kernel.
RESERVED_MIB = 32


@dataclass(frozen=True, kw_only=True)
class SandboxLimits:
    """The effective limits, in the units that their names tell; see docs/settings.md."""

    wall_seconds: float
    total_seconds: float
    cpu_seconds: int
    process_memory_mib: int
    output_kib: int
    result_kib: int
    result_depth: int
    memory_mib: int
    pids: int
    tmpfs_mib: int


@dataclass(frozen=True)
class Limit:
    """One limit: its unit, and the range in which the server can keep its guarantees."""

    name: str
    unit: str
    least: float
    why_least: str
    greatest: float
    why_greatest: str

    @property
    def setting(self) -> str:
        """The name of the setting with its default."""
        return f"UAC_SANDBOX_{self.name.upper()}"

    @property
    def default(self) -> float:
        """The value of a workspace without an override."""
        return float(getattr(settings, self.setting))

    @property
    def most(self) -> float:
        """The highest value that a workspace may choose."""
        return float(getattr(settings, f"{self.setting}_MOST"))

    @property
    def why_most(self) -> str:
        """The reason why a workspace may not choose more."""
        return f"more is for the operator to allow ({self.setting}_MOST)"

    def amount(self, value: float) -> str:
        """Return a value with its unit."""
        return f"{value:g} {self.unit}".strip()


_LIFE = "a sandbox lives for minutes, and a gate's requests must fit into them"
_INTERPRETER = "the interpreter needs as much to start, compile and answer"
_FRAME = "an answer must fit into one frame of the protocol"
_NUMBER = "more is no size of a machine"

LIMITS = (
    Limit("wall_seconds", "s", 0.1, "a busy machine needs it for nothing at all", 90, _LIFE),
    Limit("total_seconds", "s", 0.1, "a busy machine needs it for nothing at all", 90, _LIFE),
    Limit("cpu_seconds", "s", 1, "the kernel counts whole seconds", 90, _LIFE),
    Limit("process_memory_mib", "MiB", 48, _INTERPRETER, 2**20, _NUMBER),
    Limit("output_kib", "KiB", 1, "the end of it is always kept", 2**15, "nobody reads more"),
    Limit("result_kib", "KiB", 1, "errors take as much", 2**15, _FRAME),
    Limit("result_depth", "levels", 1, "a record has levels", 48, "the protocol nests no deeper"),
    Limit("memory_mib", "MiB", 128, _INTERPRETER, 2**21, _NUMBER),
    Limit("pids", "processes", 4, "the runner, its fork and the engine need them", 2**15, _NUMBER),
    Limit("tmpfs_mib", "MiB", 0, "", 2**20, _NUMBER),
)
BY_NAME = {limit.name: limit for limit in LIMITS}


def process_memory_most(memory_mib: int, tmpfs_mib: int) -> int:
    """Return how much memory one process of such a container may take, in MiB.

    Beside it there is the process that it was forked from, which may have as much, and what is
    written to the tmpfs counts, too. With less than half of the rest for each, Python always
    notices first and raises MemoryError. The kernel kills a container for lack of memory only if
    the machine has none, which is no fault of the user's code.
    """
    return (memory_mib - RESERVED_MIB - tmpfs_mib) // 2


def effective(chosen: Chosen) -> SandboxLimits:
    """Return the effective limits under these overrides; None inherits the server's value."""
    values: dict[str, float] = {}
    for limit in LIMITS:
        own = chosen.get(limit.name)
        values[limit.name] = min(limit.default if own is None else own, limit.most)
    memory_mib, tmpfs_mib = int(values["memory_mib"]), int(values["tmpfs_mib"])
    wall_seconds = min(values["wall_seconds"], values["total_seconds"])
    return SandboxLimits(
        wall_seconds=wall_seconds,
        total_seconds=values["total_seconds"],
        cpu_seconds=min(int(values["cpu_seconds"]), math.ceil(wall_seconds)),
        process_memory_mib=min(
            int(values["process_memory_mib"]), process_memory_most(memory_mib, tmpfs_mib)
        ),
        output_kib=int(values["output_kib"]),
        result_kib=int(values["result_kib"]),
        result_depth=int(values["result_depth"]),
        memory_mib=memory_mib,
        pids=int(values["pids"]),
        tmpfs_mib=tmpfs_mib,
    )


def problems(chosen: Chosen) -> dict[str, str]:
    """Return the problems of these overrides, each with a fix, by name."""
    return out_of_range(LIMITS, chosen) or _contradictions(chosen)


def _contradictions(chosen: Chosen) -> dict[str, str]:
    """Return the overrides that would have no effect or leave nothing for the rest."""
    found: dict[str, str] = {}
    holds = effective(chosen)
    wall, cpu = chosen.get("wall_seconds"), chosen.get("cpu_seconds")
    if wall is not None and wall > holds.wall_seconds:
        found["wall_seconds"] = (
            f"The whole request is stopped after {holds.total_seconds:g} s: choose no more than"
            f" that, or {wall:g} s or more as total_seconds."
        )
    if cpu is not None and cpu > holds.cpu_seconds:
        found["cpu_seconds"] = (
            f"What runs is stopped after {holds.wall_seconds:g} s anyhow: choose at most"
            f" {holds.cpu_seconds} s, or {cpu:g} s or more as wall_seconds."
        )
    rest = process_memory_most(holds.memory_mib, holds.tmpfs_mib)
    process, least = chosen.get("process_memory_mib"), int(BY_NAME["process_memory_mib"].least)
    if rest < least:
        found["memory_mib"] = (
            f"{holds.memory_mib} MiB, of which tmpfs_mib takes {holds.tmpfs_mib}, leave"
            f" {max(rest, 0)} MiB for a process, which needs {least}: choose"
            f" {_container_of(least, holds)} MiB or more, or less as tmpfs_mib."
        )
    elif process is not None and process > rest:
        found["process_memory_mib"] = (
            f"In a container of {holds.memory_mib} MiB (memory_mib) a process may have at most"
            f" {rest}: choose no more than that, or {_container_of(int(process), holds)} MiB or"
            " more as memory_mib."
        )
    return found


def _container_of(process_memory_mib: int, holds: SandboxLimits) -> int:
    """Return the memory of a container in which a process may have this much, in MiB."""
    return 2 * process_memory_mib + RESERVED_MIB + holds.tmpfs_mib


def wrong_settings() -> dict[str, str]:
    """Return the invalid settings, each with its problem, by name."""
    found: dict[str, str] = {}
    for limit in LIMITS:
        if limit.most > limit.greatest:
            found[f"{limit.setting}_MOST"] = (
                f"At most {limit.amount(limit.greatest)}, not {limit.amount(limit.most)}:"
                f" {limit.why_greatest}."
            )
    # Defaults give way to each other, as in a workspace: an operator need not set them all.
    defaults = out_of_range(LIMITS, everywhere(LIMITS)) or _contradictions({})
    return found | by_setting(LIMITS, defaults)

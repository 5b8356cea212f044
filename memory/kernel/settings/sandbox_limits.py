"""Sandbox limits: the server's defaults and ceilings, and a workspace's overrides.

For each limit, the operator sets a default (`UAC_SANDBOX_` followed by the limit's name in
capitals). A workspace may override it with any value up to a ceiling: that of the table of
settings or, for what the socket proxy has to know, the operator's (the same name followed by
`_MOST`). Limits depend on each other: if they conflict, a limit without an override is lowered to
fit the limits that have one.
"""

import math
from dataclasses import dataclass

from django.conf import settings

from memory.kernel.settings import environment, overrides
from memory.kernel.settings.overrides import Overrides

LIMITS = environment.SANDBOXES.overridable
# How much of a container's memory is reserved for the kernel itself.
RESERVED_MIB = 32


@dataclass(frozen=True, kw_only=True)
class SandboxLimits:
    """The limits in effect, each in the unit given in its name."""

    wall_seconds: float
    total_seconds: float
    cpu_seconds: int
    process_memory_mib: int
    output_kib: int
    result_kib: int
    result_depth: int
    memory_mib: int


def ceiling(name: str) -> float:
    """Return the highest value a workspace may choose for this limit."""
    maximum = LIMITS[name].maximum
    return float(getattr(settings, maximum) if isinstance(maximum, str) else maximum or math.inf)


def process_memory_most(memory_mib: int) -> int:
    """Return how much memory, in MiB, a process may use in a container of this size.

    The container also holds the process this one was forked from, which may use as much memory.
    Because each process may use less than half of the memory, Python always reaches its limit first
    and raises MemoryError. So the kernel OOM-kills processes in a container only if the machine
    itself runs out of memory, which is not the fault of the user's code.
    """
    return (memory_mib - RESERVED_MIB) // 2


def effective(own: Overrides) -> SandboxLimits:
    """Return the limits that take effect with these overrides."""
    chosen = overrides.effective(environment.SANDBOXES, own)
    values = {
        name: LIMITS[name].value_type(min(value, ceiling(name))) for name, value in chosen.items()
    }
    wall_seconds = min(values["wall_seconds"], values["total_seconds"])
    most = process_memory_most(values["memory_mib"])
    values["wall_seconds"] = wall_seconds
    values["cpu_seconds"] = min(values["cpu_seconds"], math.ceil(wall_seconds))
    values["process_memory_mib"] = min(values["process_memory_mib"], most)
    return SandboxLimits(**values)


def validate_overrides(own: Overrides) -> dict[str, str]:
    """Map each field with an invalid override to the problem and what to choose instead."""
    return overrides.validate_overrides(environment.SANDBOXES, own) or _contradictions(own)


def _contradictions(chosen: Overrides) -> dict[str, str]:
    """Map limits that have no effect to the problem."""
    problems: dict[str, str] = {}
    holds = effective(chosen)
    wall, cpu = chosen.get("wall_seconds"), chosen.get("cpu_seconds")
    if wall is not None and wall > holds.wall_seconds:
        problems["wall_seconds"] = (
            f"The whole request is stopped after {holds.total_seconds:g} s (total_seconds): choose"
            f" at most {holds.total_seconds:g} s, or set total_seconds to at least {wall:g}."
        )
    if cpu is not None and cpu > holds.cpu_seconds:
        problems["cpu_seconds"] = (
            f"Execution is stopped after {holds.wall_seconds:g} s (wall_seconds): choose at most"
            f" {holds.cpu_seconds} s, or set wall_seconds to at least {cpu:g}."
        )
    rest = process_memory_most(holds.memory_mib)
    process = chosen.get("process_memory_mib")
    if process is not None and process > rest:
        problems["process_memory_mib"] = (
            f"In a container of {holds.memory_mib} MiB (memory_mib), a process may use at most"
            f" {rest} MiB: choose at most {rest} MiB, or set memory_mib to at least"
            f" {2 * int(process) + RESERVED_MIB}."
        )
    return problems


def validate_server_settings() -> dict[str, str]:
    """Map each server limit that contradicts another to the problem, if all are in range.

    As in a workspace, defaults are lowered to fit each other, so operators needn't set all of them.
    """
    if {
        one.name for one in environment.SANDBOXES.settings
    } & overrides.validate_server_settings().keys():
        return {}
    return {LIMITS[field].name: problem for field, problem in _contradictions({}).items()}

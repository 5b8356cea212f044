"""Numeric settings of the server that a workspace may override.

Each is a setting of the operator's and a nullable field of the workspace; NULL inherits the
server's value. The limits of the sandboxes (`memory.workspace_settings.sandbox_limits`) are
validated here, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from django.conf import settings

# Name → override; None inherits the server's setting.
Chosen = Mapping[str, float | None]


class Bounded(Protocol):
    """A bounded number: its range, and the reason for each bound ("" if that is plain)."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def setting(self) -> str: ...  # noqa: D102
    @property
    def default(self) -> float: ...  # noqa: D102
    @property
    def least(self) -> float: ...  # noqa: D102
    @property
    def why_least(self) -> str: ...  # noqa: D102
    @property
    def most(self) -> float: ...  # noqa: D102
    @property
    def why_most(self) -> str: ...  # noqa: D102
    def amount(self, value: float) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class Number:
    """A whole number with a range."""

    name: str
    least: int
    most: int
    why_least: str = ""
    why_most: str = ""

    @property
    def setting(self) -> str:
        """The name of the server's setting."""
        return f"UAC_{self.name.upper()}"

    @property
    def default(self) -> int:
        """The server's value."""
        return int(getattr(settings, self.setting))

    def amount(self, value: float) -> str:
        """Return a value as text."""
        return f"{value:.0f}"


def chosen_of(workspace: object, numbers: Iterable[Number]) -> dict[str, int | None]:
    """Return a workspace's overrides of these numbers."""
    return {number.name: getattr(workspace, number.name) for number in numbers}


def holding(numbers: Iterable[Number], chosen: Chosen) -> dict[str, Any]:
    """Return the effective value of each number under these overrides."""
    found: dict[str, Any] = {}
    for number in numbers:
        own = chosen.get(number.name)
        found[number.name] = number.default if own is None else own
    return found


def everywhere(numbers: Iterable[Bounded]) -> dict[str, float | None]:
    """Return the server's values in the form of overrides."""
    return {number.name: number.default for number in numbers}


def out_of_range(numbers: Iterable[Bounded], chosen: Chosen) -> dict[str, str]:
    """Return the overrides that are out of range, each with a fix, by name."""
    found: dict[str, str] = {}
    for number in numbers:
        own = chosen.get(number.name)
        if own is None or number.least <= own <= number.most:
            continue
        bound, limit, why = (
            ("At least", number.least, number.why_least)
            if own < number.least
            else ("At most", number.most, number.why_most)
        )
        told = f"{bound} {number.amount(limit)}, not {number.amount(own)}"
        found[number.name] = f"{told}: {why}." if why else f"{told}."
    return found


def by_setting(numbers: Iterable[Bounded], problems: Mapping[str, str]) -> dict[str, str]:
    """Return problems keyed by the names of the settings."""
    names = {number.name: number.setting for number in numbers}
    return {names[name]: problem for name, problem in problems.items()}


def wrong_settings(numbers: Sequence[Bounded]) -> dict[str, str]:
    """Return the invalid settings, each with its problem, by name."""
    return by_setting(numbers, out_of_range(numbers, everywhere(numbers)))

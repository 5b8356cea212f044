"""Numbers that hold everywhere on the server unless a workspace has chosen its own.

Each is a field of the workspace, empty for what is as everywhere, and a setting of the operator's.
Those of the sandboxes (`memory.workspace_settings.sandbox_limits`) are judged here, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from django.conf import settings

# Name → what was chosen; None is as everywhere.
Chosen = Mapping[str, float | None]


class Bounded(Protocol):
    """A number, between which values it may lie, and why not beyond them ("" if that is plain)."""

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
    """A whole number of which nothing more has to be known than between which values it lies."""

    name: str
    least: int
    most: int
    why_least: str = ""
    why_most: str = ""

    @property
    def setting(self) -> str:
        """The name of the setting with what holds everywhere."""
        return f"UAC_{self.name.upper()}"

    @property
    def default(self) -> int:
        """What holds everywhere."""
        return int(getattr(settings, self.setting))

    def amount(self, value: float) -> str:
        """Return a value in words."""
        return f"{value:.0f}"


def chosen_of(workspace: object, numbers: Iterable[Number]) -> dict[str, int | None]:
    """Return what a workspace has chosen of these."""
    return {number.name: getattr(workspace, number.name) for number in numbers}


def holding(numbers: Iterable[Number], chosen: Chosen) -> dict[str, Any]:
    """Return the value of each that holds where this was chosen."""
    found: dict[str, Any] = {}
    for number in numbers:
        own = chosen.get(number.name)
        found[number.name] = number.default if own is None else own
    return found


def everywhere(numbers: Iterable[Bounded]) -> dict[str, float | None]:
    """Return what the settings say, as if it had been chosen."""
    return {number.name: number.default for number in numbers}


def out_of_range(numbers: Iterable[Bounded], chosen: Chosen) -> dict[str, str]:
    """Return what of a choice is too little or too much, and what to choose instead, by name."""
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
    """Return problems with numbers by the names of their settings."""
    names = {number.name: number.setting for number in numbers}
    return {names[name]: problem for name, problem in problems.items()}


def wrong_settings(numbers: Sequence[Bounded]) -> dict[str, str]:
    """Return which of the settings are wrong, and what is wrong with them, by their names."""
    return by_setting(numbers, out_of_range(numbers, everywhere(numbers)))

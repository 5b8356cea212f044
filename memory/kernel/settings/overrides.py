"""A workspace's overrides for server settings: which values take effect, and which are valid.

The settings themselves, and the checks for individual values, are in
`memory.kernel.settings.environment`.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from django.conf import settings

from memory.kernel.settings import environment
from memory.kernel.settings.environment import Group, Setting, plain

# Maps each field to its override; None means that the server's setting applies.
Overrides = Mapping[str, float | None]


def effective(group: Group, overrides: Overrides) -> dict[str, Any]:
    """Return the values that take effect with these overrides, keyed by field."""
    values: dict[str, Any] = {}
    for field, setting in group.overridable.items():
        own = overrides.get(field)
        values[field] = getattr(settings, setting.name) if own is None else own
    return values


def validate_overrides(group: Group, overrides: Overrides) -> dict[str, str]:
    """Map each field with an invalid override to the problem and what to choose instead."""
    problems = _validate(group.settings, overrides, lambda setting: setting.field or setting.name)
    return {field: f"It {problem}" for field, problem in problems.items()}


def validate_server_settings() -> dict[str, str]:
    """Map each server setting that is out of range, or none of the choices, to the problem."""
    numbers = [one for one in environment.SETTINGS.values() if one.minimum is not None]
    values = {setting.name: getattr(settings, setting.name) for setting in numbers}
    problems = _validate(numbers, values, lambda setting: setting.name)
    for setting in environment.SETTINGS.values():
        value = getattr(settings, setting.name) if setting.choices else None
        if value is not None and value not in setting.choices:
            problems[setting.name] = f"must be one of {', '.join(setting.choices)}, not {value!r}."
    return {name: f"{name} {problem}" for name, problem in problems.items()}


def _validate(
    numbers: Collection[Setting], values: Overrides, key: Callable[[Setting], str]
) -> dict[str, str]:
    """Map the `key` of each setting with an invalid value to the problem.

    For settings that are not in `values`, the server's value is used. If two settings contradict
    each other, the problem is reported for the lower one, unless only the upper one is in `values`.
    """

    def value_of(setting: Setting) -> float:
        own = values.get(key(setting))
        return float(getattr(settings, setting.name)) if own is None else own

    problems: dict[str, str] = {}
    for setting in numbers:
        value, maximum = values.get(key(setting)), setting.maximum
        if value is not None and not setting.allows(value):
            bound = value_of(environment.SETTINGS[maximum]) if isinstance(maximum, str) else maximum
            problem = setting.explain(value, bound)
            problems[key(setting)] = f"{problem}. {setting.reason}".rstrip()
    for lower in numbers:
        if not isinstance(lower.maximum, str):
            continue
        upper = environment.SETTINGS[lower.maximum]
        low, high = value_of(lower), value_of(upper)
        if low <= high or {key(lower), key(upper)} & problems.keys():
            continue
        if values.get(key(lower)) is not None:
            problems[key(lower)] = f"{lower.explain(low, high)}: {key(upper)} is {plain(high)}."
        elif values.get(key(upper)) is not None:
            problem = f"must be at least {plain(low)}, not {plain(high)}"
            problems[key(upper)] = f"{problem}: {key(lower)} is {plain(low)}."
    return problems

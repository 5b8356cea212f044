"""Unambiguous names, with the modules they are imported from."""

from collections.abc import Mapping

from memory.project.paths import is_own_constraint
from workers.policy.library import LIBRARY

KNOWN_NAMES = {
    **dict.fromkeys(("dataclass", "field"), "dataclasses"),
    **dict.fromkeys(("date", "datetime", "time", "timedelta", "timezone"), "datetime"),
    **dict.fromkeys(("Enum", "IntEnum", "StrEnum", "auto"), "enum"),
    **dict.fromkeys(
        ("Any", "ClassVar", "Dict", "List", "Literal", "Optional", "Set", "Tuple", "Union"),
        "typing",
    ),
    "Decimal": "decimal",
    **dict.fromkeys(("Callable", "Iterable", "Iterator", "Mapping", "Sequence"), "collections.abc"),
}
# Names in our library. Our own messages tell people to use some of these names, as in
# `Iterator[Alert]`.
_OF_CONSTRAINTS = dict.fromkeys(LIBRARY["uac"], "uac")
_OF_TESTS = {**_OF_CONSTRAINTS, **dict.fromkeys(LIBRARY["uac.testing"], "uac.testing")}


def library_of(path: str) -> Mapping[str, str]:
    """Return the names in our library that a project's file may import, with their modules."""
    if is_own_constraint(path):
        return _OF_CONSTRAINTS
    return _OF_TESTS if path.startswith("tests/") else {}


def module_of(name: str) -> str | None:
    """Return the module that constraints and tests import this name from; None if unknown."""
    return {**KNOWN_NAMES, **_OF_TESTS}.get(name)

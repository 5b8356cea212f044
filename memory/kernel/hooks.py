"""What later slices add to what earlier ones do."""

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any


def later(name: str) -> Callable[..., Any]:
    """Return the function of a later slice that has this name ("package.module:function").

    The function is looked up when it is called, as the kinds of work are.
    """

    def function(*arguments: Any, **options: Any) -> Any:
        return resolve_name(name)(*arguments, **options)

    return function

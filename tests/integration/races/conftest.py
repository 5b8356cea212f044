"""Rivals that act between two lines of others' code."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.rivals import Act


@pytest.fixture
def just_before(monkeypatch: pytest.MonkeyPatch) -> Callable[[object, str, Act], None]:
    """Run something, once, in this thread, right before a function of a module is called.

    While it runs, and afterwards, the function is the original.
    """

    def arrange(module: object, name: str, act: Act) -> None:
        real = getattr(module, name)

        def acted(*arguments: Any, **named: Any) -> Any:
            monkeypatch.setattr(module, name, real)
            act()
            return real(*arguments, **named)

        monkeypatch.setattr(module, name, acted)

    return arrange

"""The type checker's answers to code that exceeds its limits."""

import os
import signal
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from typecheck_image import checker


def loop() -> NoReturn:
    while True:
        pass


def fill_memory() -> None:
    bytearray(64 * 1024**3)


def fail() -> NoReturn:
    raise RuntimeError("a fault of the checker itself")


@pytest.mark.parametrize(
    ("does", "outcome"),
    [
        (loop, "timeout"),
        (fill_memory, "out_of_memory"),
        (fail, "crashed"),
        (lambda: os._exit(3), "crashed"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "crashed"),
    ],
)
def test_exceeded_limit_has_its_outcome(
    monkeypatch: pytest.MonkeyPatch, does: Callable[[], Any], outcome: str
) -> None:
    monkeypatch.setattr(checker, "check", lambda files, cache: does())
    monkeypatch.setattr(checker, "CPU_SECONDS", 2)
    monkeypatch.setattr(checker, "MEMORY_BYTES", 4 * 1024**3)

    assert checker.answer({"a.py": ""}, "cache") == {"outcome": outcome, "findings": []}


def test_first_of_very_many_errors_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    error = {"path": "a.py", "line": 1, "code": "misc", "message": "x" * 1000}
    monkeypatch.setattr(checker, "check", lambda files, cache: [error] * 10_000)
    monkeypatch.setattr(checker, "MEMORY_BYTES", 8 * 1024**3)

    answer = checker.answer({}, "cache")

    assert answer == {"outcome": "ok", "findings": [error] * checker.MAX_FINDINGS}

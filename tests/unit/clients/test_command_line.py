"""The command `userascode` with files that it cannot use; nothing is sent."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from userascode.cli import main


def constraint_without_tests(folder: Path) -> list[str]:
    (folder / "rule.py").touch()
    return ["constraints", "push", "ada", str(folder)]


def no_constraint(folder: Path) -> list[str]:
    return ["constraints", "push", "ada", str(folder)]


def schema_of_another_encoding(folder: Path) -> list[str]:
    (folder / "pets.py").write_bytes(b"\xff")
    return ["schema", "push", str(folder / "pets.py")]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (constraint_without_tests, "test_rule.py"),
        (no_constraint, "no file NAME.py"),
        (schema_of_another_encoding, "utf-8"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    command: Callable[[Path], list[str]],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UAC_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("UAC_KEY", "key")

    result = CliRunner().invoke(main, command(tmp_path))

    assert isinstance(result.exception, SystemExit), result.exception
    assert "Error: " in result.output
    assert told in result.output

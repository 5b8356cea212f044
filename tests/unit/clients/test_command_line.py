"""The command `userascode` with files and keyrings that it cannot use; nothing is sent."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner
from userascode import login
from userascode.cli import main

URL = "https://uac.example.com"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the login, in a system without a keyring."""
    monkeypatch.setattr(login, "path", lambda: tmp_path / "login.json")
    monkeypatch.setitem(sys.modules, "keyring", None)
    monkeypatch.delenv("UAC_URL", raising=False)
    monkeypatch.delenv("UAC_KEY", raising=False)
    return tmp_path / "login.json"


@pytest.mark.usefixtures("file")
def test_what_is_not_given_is_the_logins() -> None:
    assert login.load(None, None) == (None, None)

    login.store(URL, "kept")

    assert login.load(None, None) == (URL, "kept")
    assert login.load(f"{URL}/", None) == (f"{URL}/", "kept")
    assert login.load(None, "given") == (URL, "given")


@pytest.mark.usefixtures("file")
def test_the_logins_key_is_for_no_other_address() -> None:
    login.store(URL, "kept")

    assert login.load("https://other.example.com", None) == ("https://other.example.com", None)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "\xff"])
@pytest.mark.parametrize("command", [["users", "list"], ["mcp", "--user", "ada"]])
def test_damaged_login_is_told_and_what_to_do(file: Path, text: str, command: list[str]) -> None:
    file.write_text(text, encoding="latin-1")

    result = CliRunner().invoke(main, command)

    assert (result.exit_code, type(result.exception)) == (1, SystemExit)
    assert "login.json is damaged. Run `userascode login`" in result.output


def test_nothing_is_read_if_all_is_given(file: Path) -> None:
    file.write_text("{")

    assert login.load(URL, "given") == (URL, "given")


def no_password(service: str, url: str) -> None:
    """Answer as a keyring that does not have it."""


def locked(service: str, url: str) -> None:
    raise RuntimeError("the keyring is locked")


@pytest.mark.parametrize(
    ("keyring", "told"),
    [
        (None, "The system's keyring fails"),
        (SimpleNamespace(get_password=locked), "the keyring is locked"),
        (SimpleNamespace(get_password=no_password), f"no key for {URL}"),
    ],
    ids=["gone", "locked", "empty"],
)
def test_keyring_that_no_longer_has_the_key_is_told(
    file: Path, monkeypatch: pytest.MonkeyPatch, keyring: object, told: str
) -> None:
    file.write_text(f'{{"url": "{URL}"}}')
    monkeypatch.setitem(sys.modules, "keyring", keyring)

    with pytest.raises(click.ClickException, match=r"Run `userascode login` again") as raised:
        login.load(None, None)

    assert told in raised.value.message
    assert login.load(None, "given") == (URL, "given")


def test_key_is_in_the_keyring_if_there_is_one(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = dict[tuple[str, str], str]()

    def set_password(service: str, url: str, key: str) -> None:
        passwords[service, url] = key

    def get_password(service: str, url: str) -> str | None:
        return passwords.get((service, url))

    keyring = SimpleNamespace(set_password=set_password, get_password=get_password)
    monkeypatch.setitem(sys.modules, "keyring", keyring)

    assert login.store(URL, "kept") == "the system's keyring"

    assert passwords == {("userascode", URL): "kept"}
    assert "kept" not in file.read_text()
    assert login.load(None, None) == (URL, "kept")


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

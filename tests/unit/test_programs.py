"""`make test-all` names the missing programs, and the packages that provide them."""

from pathlib import Path

import pytest

from tests import programs
from tests.integration.sandbox.engine import NEEDED
from tests.programs import ALWAYS, WITH_ENGINE, WITH_ENGINE_AS_ROOT, missing_programs


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the only one in which programs are searched for."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o700)


@pytest.mark.parametrize(
    ("engine", "root", "needed"),
    [
        (False, True, ALWAYS),
        (True, False, {**ALWAYS, **WITH_ENGINE}),
        (True, True, {**ALWAYS, **WITH_ENGINE, **WITH_ENGINE_AS_ROOT}),
    ],
)
def test_only_what_would_run_is_asked_for(
    bare: Path, engine: bool, root: bool, needed: dict[str, str]
) -> None:
    assert missing_programs(engine=engine, root=root) == needed


def test_each_missing_program_is_named_with_its_package(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(programs, "_engine_answers", lambda: True)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    absent = {"docker-compose", "dockerd", "faketime"}
    installed = {*ALWAYS, *WITH_ENGINE, *WITH_ENGINE_AS_ROOT, "chromium-browser"}
    install(bare, *(installed - absent - {"chromium"}))

    assert programs.main() == 1
    told = capsys.readouterr().err
    assert "not installed: docker-compose, dockerd, faketime." in told
    assert told.endswith("    apt install docker-compose docker.io faketime\n")

    install(bare, *absent)
    assert programs.main() == 0
    assert capsys.readouterr().err == ""


def test_what_tests_look_for_themselves_is_listed() -> None:
    assert {*NEEDED, "dockerd", "containerd", "unshare"} <= WITH_ENGINE_AS_ROOT.keys()

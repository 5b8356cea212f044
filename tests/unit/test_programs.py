"""`make test-all` names the missing programs, and the packages that provide them."""

from pathlib import Path

import pytest

from tests.integration.sandbox.engine import NEEDED
from tests.programs import ALWAYS, WITH_ENGINE, WITH_ENGINE_AS_ROOT, missing_programs


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the only one in which programs are searched for."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


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


def test_programs_that_tests_look_for_are_listed() -> None:
    assert {*NEEDED, "dockerd", "containerd", "unshare"} <= WITH_ENGINE_AS_ROOT.keys()

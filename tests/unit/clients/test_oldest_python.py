"""Packages that promise Python 3.10 use nothing newer.

Only one Python is installed here, so their code is checked for 3.10 instead of being run in it.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OLDEST = "3.10"
PACKAGES = ("clients/python", "integrations/agents")
NEWER = """
import asyncio
import datetime


async def newer() -> None:
    async with asyncio.timeout(1):
        try:
            print(datetime.UTC)
        except* ValueError:
            pass
"""


def check(*paths: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """Check the types of files as for the oldest Python: its syntax and standard library."""
    options = ("--config-file", "", "--python-version", OLDEST, "--ignore-missing-imports")
    examples = ("--exclude", "/examples/")  # they need frameworks that are not installed here
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            *options,
            *examples,
            "--cache-dir",
            str(cache),
            *map(str, paths),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={"MYPYPATH": ":".join(str(ROOT / package / "src") for package in PACKAGES)},
    )


def test_packages_use_nothing_newer(tmp_path: Path) -> None:
    checked = check(*(ROOT / package / "src" for package in PACKAGES), cache=tmp_path)

    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_is_newer_is_found(tmp_path: Path) -> None:
    (tmp_path / "newer.py").write_text(NEWER)

    told = check(tmp_path / "newer.py", cache=tmp_path).stdout

    assert all(error in told for error in ("Exception groups", '"UTC"', '"timeout"')), told


@pytest.mark.parametrize("package", PACKAGES)
def test_it_is_the_oldest_that_a_package_promises(package: str) -> None:
    project = tomllib.loads((ROOT / package / "pyproject.toml").read_text())["project"]

    assert project["requires-python"] == f">={OLDEST}"

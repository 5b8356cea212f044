"""Virtual environments with frameworks of agents, each with its newest release in our range.

They are kept in the user's cache (or in UAC_TEST_VENVS), and made anew each week.
"""

import datetime
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "clients" / "python", ROOT / "integrations" / "agents")


def extra_of(name: str) -> list[str]:
    """Return what an extra of `userascode-agents` installs."""
    project = tomllib.loads((PACKAGES[1] / "pyproject.toml").read_text())["project"]
    found: list[str] = project["optional-dependencies"][name]
    return found


def python_with(requirements: Sequence[str]) -> Path:
    """Return a Python that has these packages, and those that our client needs."""
    client = tomllib.loads((PACKAGES[0] / "pyproject.toml").read_text())["project"]
    wanted = [*requirements, *client["dependencies"]]
    week = datetime.datetime.now(datetime.UTC).strftime("%G-%V")
    name = hashlib.sha256("\n".join([sys.version, week, *wanted]).encode()).hexdigest()[:16]
    default = Path.home() / ".cache" / "userascode-test-venvs"
    parent = Path(os.environ.get("UAC_TEST_VENVS", default))
    parent.mkdir(parents=True, exist_ok=True)
    folder = parent / name
    with (parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
            pip = [folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, *wanted], check=True)
            (folder / "complete").touch()
    return folder / "bin" / "python"


def environment() -> dict[str, str]:
    """Return the variables with which such a Python finds the packages of this checkout."""
    return {"PYTHONPATH": os.pathsep.join(str(package / "src") for package in PACKAGES)}

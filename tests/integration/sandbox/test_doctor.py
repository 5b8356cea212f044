"""`manage.py sandbox doctor` confirms that all is well, or reports what is wrong."""

import io
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from tests.integration.sandbox.containers import Containers, reconfigure
from tests.integration.sandbox.engine import Runtime
from tests.integration.sandbox.test_docker import unconfined
from workers.sandbox import doctor, doctor_outside, image
from workers.sandbox.doctor import CheckResult
from workers.sandbox.doctor_inside import CHECKS_INSIDE
from workers.sandbox.doctor_outside import CHECKS_OUTSIDE

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_image")]

LIMITS = [name for name in CHECKS_INSIDE if name.startswith("limit of ")]
CHECKS = ["runner", "engine", "image", "control groups", "runtime", "start", *CHECKS_INSIDE]
CHECKS += CHECKS_OUTSIDE


@pytest.fixture(autouse=True)
def docker_runner() -> Any:
    with override_settings(UAC_SANDBOX_RUNNER="docker"):
        yield


def examine() -> dict[str, CheckResult]:
    findings = {finding.check: finding for finding in doctor.examine()}
    assert list(findings) == CHECKS  # whatever happens, none is forgotten
    assert all(finding.fix for finding in findings.values() if finding.state == "FAILED")
    return findings


@pytest.fixture
def without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the checks of limits, which take seconds."""

    for name in LIMITS:
        monkeypatch.setitem(CHECKS_INSIDE, name, lambda sandbox: "not looked at")


def failed(findings: dict[str, CheckResult]) -> list[str]:
    return [name for name, finding in findings.items() if finding.state == "FAILED"]


def untried(findings: dict[str, CheckResult]) -> list[str]:
    return [name for name, finding in findings.items() if finding.state == "not tried"]


@pytest.mark.usefixtures("chosen")
def test_doctor_confirms_a_sound_host(runtime: Runtime) -> None:
    out = io.StringIO()
    with Containers() as mine:
        call_command("sandbox", "doctor", "--json", stdout=out)
        assert mine.all() == []
    findings = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [one["check"] for one in findings] == CHECKS
    assert [one for one in findings if one["state"] != "ok"] == []
    assert findings[4]["detail"].split()[0] == (runtime.name or "runc")


def test_failing_check_fails_command_with_its_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.StringIO()
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/engine.sock")
    with pytest.raises(CommandError, match="1 check failed"):
        call_command("sandbox", "doctor", stdout=out)
    assert "FAILED     engine" in out.getvalue()
    assert "start the Docker engine" in out.getvalue()


def test_without_an_engine_nothing_else_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/engine.sock")
    findings = examine()
    assert failed(findings) == ["engine"]
    assert "unix:///nonexistent/engine.sock" in findings["engine"].detail
    assert untried(findings) == CHECKS[2:]


def test_user_without_engine_access_is_told_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/engine.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/engine.sock")
        server.listen()
        (folder / "engine.sock").chmod(0)
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            if os.getuid() == 0:
                os.setuid(65534)
            finding = next(one for one in doctor.examine() if one.check == "engine")
            os.write(write, f"{finding.state} {finding.detail} {finding.fix}".encode())
            os._exit(0)
        os.close(write)
        said = os.read(read, 4096).decode()
        os.close(read)
        os.waitpid(child, 0)
    shutil.rmtree(folder)
    assert said.startswith("FAILED")
    assert "denies this user" in said
    assert "the docker group" in said


@override_settings(UAC_SANDBOX_IMAGE="uac-no-such-image:1", UAC_SANDBOX_RUNTIME="no-such-runtime")
def test_a_missing_image_and_an_unknown_runtime_are_both_found() -> None:
    findings = examine()
    assert failed(findings) == ["image", "runtime"]
    assert "python -m workers.sandbox.build" in findings["image"].fix
    assert "no-such-runtime" in findings["runtime"].detail
    assert "runc" in findings["runtime"].detail  # what there is
    assert "docs/runtimes.md" in findings["runtime"].fix
    assert untried(findings) == CHECKS[5:]


def test_a_filter_that_is_not_in_force_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    reconfigure(monkeypatch, unconfined)
    findings = examine()
    assert failed(findings) == ["start"]
    assert "'seccomp': 0" in findings["start"].detail
    assert "seccomp.json" in findings["start"].fix


@pytest.mark.usefixtures("without_limits")
def test_image_of_other_release_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(image.SOURCES, tmp_path / "sources")
    (tmp_path / "sources" / "runner.py").write_text("changed")
    monkeypatch.setattr("workers.sandbox.doctor_inside.SOURCES", tmp_path / "sources")
    findings = examine()
    assert failed(findings) == ["image's content"]
    assert "runner.py" in findings["image's content"].detail


def with_a_folder_to_write_to(config: dict[str, Any]) -> None:
    config["HostConfig"]["Tmpfs"] |= {"/scratch": "rw,size=1m,mode=1777"}


def with_a_network(config: dict[str, Any]) -> None:
    config["HostConfig"]["NetworkMode"] = "bridge"
    config["NetworkDisabled"] = False


def with_more_system_calls(config: dict[str, Any]) -> None:
    options = config["HostConfig"]["SecurityOpt"]
    profile = json.loads(options[1].removeprefix("seccomp="))
    profile["syscalls"].append({"names": ["socket", "unshare"], "action": "SCMP_ACT_ALLOW"})
    options[1] = f"seccomp={json.dumps(profile)}"


def as_root(config: dict[str, Any]) -> None:
    config["User"] = "0:0"


@pytest.mark.usefixtures("without_limits")
@pytest.mark.parametrize(
    ("change", "checks", "found"),
    [
        (with_a_folder_to_write_to, ["read-only"], "/scratch"),
        (with_a_network, ["network"], "eth0"),
        (with_more_system_calls, ["seccomp"], "IPv4 sockets"),
        (as_root, ["privileges", "read-only", "users and seeds"], "user 0"),
    ],
)
def test_weak_confinement_is_found(
    change: Callable[[dict[str, Any]], None],
    checks: list[str],
    found: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reconfigure(monkeypatch, change)
    findings = examine()
    assert failed(findings) == checks
    assert found in findings[checks[0]].detail


@pytest.mark.usefixtures("without_limits")
def test_ignored_limits_are_found(other_engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_outside, "FORKS", 300)
    with Runtime("runsc-without-limits", other_engine).chosen():
        findings = examine()
    assert failed(findings) == ["container's memory", "container's processes"]

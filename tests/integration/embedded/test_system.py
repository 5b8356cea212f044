"""The whole server as real processes: all start, none dies unnoticed, none is left."""

import io
import json
import os
import shutil
import signal
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from deploy.embedded.process import ManagedProcess, ProcessFailed, free_port
from deploy.embedded.system import System, running_system
from tests.integration.embedded.conftest import AS_ROOT, Supervisors
from tests.processes import Process, gone, me
from tests.waiting import eventually, scaled
from workers.service.process_tuning import BACKGROUND_NICENESS

NAMES = ["postgres", "redis", "web", "sandbox-1", "sandbox-2", "llm-1", "default-1", "beat"]
METRICS_PORT = free_port()


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    environment = {"UAC_METRICS_PORT": str(METRICS_PORT)}
    with running_system(sandbox_workers=2, llm_workers=1, environment=environment) as system:
        yield system


def environment_of(pid: int) -> dict[str, str]:
    pairs = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


def test_every_process_starts_and_the_web_answers(system: System) -> None:
    assert list(system.processes) == NAMES
    assert all(process.running for process in system.processes.values())
    system.check()
    with urllib.request.urlopen(f"{system.base_url}/readyz") as response:
        assert json.load(response) == {"database": "ok", "redis": "ok"}


@pytest.mark.parametrize(
    "path", ["admin/css/base.css", "memory/admin.css", "swagger-ui/swagger-ui.css"]
)
def test_static_files_are_served_from_where_they_are(system: System, path: str) -> None:
    with urllib.request.urlopen(f"{system.base_url}/static/{path}") as response:
        assert response.headers["content-type"] == 'text/css; charset="utf-8"'
        assert response.read()


def test_processes_use_the_systems_services_not_those_of_their_starter(system: System) -> None:
    ours = {
        "DATABASE_URL": system.services.postgres.runtime_url,
        "REDIS_URL": system.services.redis.url,
    }
    for name, value in ours.items():
        assert os.environ[name] != value  # these tests run on services of their own

    for process_name in NAMES[2:]:
        environment = environment_of(system.processes[process_name].pid)
        assert {name: environment[name] for name in ours} == ours


def test_each_worker_that_serves_metrics_has_a_port_of_its_own(system: System) -> None:
    for number, name in enumerate(["sandbox-1", "sandbox-2", "llm-1"]):
        connections = psutil.Process(system.processes[name].pid).net_connections()
        listening = {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}
        assert listening == {METRICS_PORT + number}


def test_requests_and_runs_go_before_what_nobody_waits_for(system: System) -> None:
    def niceness() -> dict[str, int]:
        return {
            name: os.getpriority(os.PRIO_PROCESS, process.pid)
            for name, process in system.processes.items()
        }

    assert eventually(lambda: niceness()["default-1"] == BACKGROUND_NICENESS)
    assert niceness() == {**dict.fromkeys(NAMES, 0), "default-1": BACKGROUND_NICENESS}


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_process_is_noticed_and_can_be_started_again(system: System, name: str) -> None:
    process = system.processes[name]
    killed = process.pid

    os.kill(killed, signal.SIGKILL)

    assert eventually(lambda: process.died)
    with pytest.raises(ProcessFailed, match=rf"{name} exited on its own(.|\n)*{process.log_path}"):
        system.check()
    system.start(name)
    assert process.pid != killed
    system.check()


def test_a_command_has_its_own_variables_and_output_and_its_failure_is_told(system: System) -> None:
    printed = system.manage(
        *(
            "shell",
            "-v",
            "0",
            "-c",
            "import os, sys; print(os.environ['GIVEN']); sys.stderr.write('!')",
        ),
        environment={"GIVEN": "hello"},
    )

    assert printed == "hello\n"
    with pytest.raises(ProcessFailed, match="no_such_command"):
        system.manage("no_such_command")
    # Keys that a command prints stay out of the logs.
    assert not any("hello" in log.read_text() for log in system.data_folder.glob("logs/*.log"))


def test_what_is_unchanged_is_not_prepared_again(folder: Path) -> None:
    def start() -> tuple[System, bool]:
        """Start and stop a server; return it, and whether its database was prepared."""
        with running_system(
            folder, web=False, sandbox_workers=0, default_workers=0, beats=0
        ) as system:
            log = system.data_folder / "logs" / "preparation.log"
            is_prepared = log.exists()
            log.unlink(missing_ok=True)
            return system, is_prepared

    # Given a server that was started
    system, is_prepared = start()
    assert is_prepared
    # When it starts again, then nothing is prepared
    assert not start()[1]
    # But it is if the database is a new one
    shutil.rmtree(system.services.postgres.cluster)
    assert start()[1]


def test_processes_end_with_the_forker(folder: Path) -> None:
    with running_system(folder, web=False, sandbox_workers=0, default_workers=0) as system:
        beat = system.processes["beat"]

        system.forker.process.kill()

        assert eventually(lambda: beat.died)
        with pytest.raises(ProcessFailed, match=r"forker"):
            system.start("beat")


def test_forker_outlives_children_that_fail_at_once_and_mixes_up_no_answers(folder: Path) -> None:
    with running_system(folder, web=False, sandbox_workers=0, default_workers=0, beats=0) as system:

        def exit_code(log: Path, *command: str) -> int:
            process = ManagedProcess(
                name="child",
                command=[sys.executable, "-m", *command],
                log_path=log,
                ready=lambda process: True,
                environment={},
                folder=folder,
            )
            return system.forker.fork(process, io.BytesIO()).wait()

        log = folder.with_name("child.log")
        # It fails before it has begun
        assert exit_code(folder / "missing" / "child.log", "this") == 1
        # and answers to several threads are their own.
        with ThreadPoolExecutor(8) as threads:
            succeeding = [threads.submit(exit_code, log, "this") for _ in range(8)]
            failing = [threads.submit(exit_code, log, "json.tool", "--no") for _ in range(8)]
            assert [child.result() for child in succeeding] == [0] * 8
            assert [child.result() for child in failing] == [2] * 8


def test_a_start_that_fails_says_why_and_leaves_no_process() -> None:
    before = {process.pid for process in me().descendants()}

    with (
        pytest.raises(ProcessFailed, match=r"web exited during startup(.|\n)*UAC_SANDBOX_RUNNER"),
        running_system(environment={"UAC_SANDBOX_RUNNER": "none"}),
    ):
        pytest.fail("it started")

    # Earlier services may have new children of their own.
    assert eventually(lambda: not me().descendants(but=before))


class TestEndOfTheSupervisor:
    """No process outlives the supervisor: neither its own nor their children."""

    @pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
    def test_leaves_no_process(self, packages: Path, folder: Path, end: signal.Signals) -> None:
        supervisors = Supervisors("root" if AS_ROOT else "ordinary user", packages)
        supervisor = supervisors.start(folder, "system")
        family = set(Process.of(supervisor.popen.pid).descendants())
        assert family > set(supervisor.processes)

        supervisor.popen.send_signal(end)

        # SIGTERM ends it properly, after everything has been stopped.
        expected = 128 + end if end == signal.SIGTERM else -end
        assert supervisor.popen.wait(timeout=scaled(60)) == expected
        assert eventually(lambda: gone(family))
        supervisors.end_all()

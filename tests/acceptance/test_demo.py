"""The demo as a newcomer meets it: a process that is started, watched, and interrupted."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import polled
from tests.integration.embedded.conftest import alive, descendants
from tests.llm_server import KEY, llm_server, status
from uac_site.demo import person
from uac_site.demo.client import Client
from uac_site.demo.recorded_model import recorded_model
from uac_site.embedded.process import free_port

CHECKOUT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-u", "-m", "uac_site.demo"]
# Of no other tests that run on this machine meanwhile.
PORT = free_port()

# The demo of somebody who expects one alert more than the sample person's life gives rise to.
EXPECTS_MORE = """
import sys
from uac_site.demo import person, story
from uac_site.demo.__main__ import main

findings = person.findings
person.findings = lambda *days: findings(*days) | {
    person.Finding("drug_allergy", "critical", frozenset({"ibuprofen", "penicillin"}))
}
story._PATIENCE_SECONDS = 3
sys.exit(main())
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A data folder that is kept from start to start."""
    with tempfile.TemporaryDirectory(prefix="uac-test-demo-") as parent:
        Path(parent).chmod(0o755)
        yield Path(parent) / "data"


def demo(
    folder: Path, *arguments: str, program: list[str] = DEMO, **environment: str
) -> subprocess.Popen[str]:
    """Start the demo, where no Docker engine answers unless the environment says otherwise."""
    return subprocess.Popen(
        [*program, "--port", str(PORT), "--data", str(folder), *arguments],
        cwd=CHECKOUT,
        env={**os.environ, "DOCKER_HOST": "unix:///nonexistent/docker.sock", **environment},
        # As a shell in front of somebody starts it: one in the background ignores Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def output_of(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=240)
    return output


def calls_of(model: str, output: str) -> tuple[int, int]:
    """The calls of a model that the demo says were made, and those of them that failed."""
    found = re.search(rf"(\d+) calls of {re.escape(model)}, (\d+) failed:", output)
    assert found is not None, output
    return int(found[1]), int(found[2])


@pytest.fixture(scope="module")
def first(folder: Path) -> str:
    """What the first start prints."""
    process = demo(folder, "--exit")
    output = output_of(process)
    assert process.returncode == 0, output
    return output


class TestFirstStart:
    def test_shows_entries_turning_into_typed_python(self, first: str) -> None:
        assert "logged           entries 1 to 30" in first
        assert re.search(r"checkpoint 1 +typed Python of \d+ entries accepted", first)
        assert re.search(r"checkpoint \d+ +drug_allergy accepted", first)
        assert re.search(r"checkpoint \d+ +passport_validity accepted", first)

    def test_alerts_speak_up_with_their_evidence(self, first: str) -> None:
        assert "CRITICAL: Amoxicillin is a penicillin" in first
        assert "evidence       Medication 'amoxicillin' in health.medications" in first
        assert "evidence       Allergy 'penicillin' in health.allergies" in first
        assert "WARNING: The passport expires on" in first
        assert "evidence       Passport 'passport-se' in travel.passports" in first
        assert re.search(r"log entry \d+ +\S+ +Trip bangkok", first)

    def test_plain_messages_become_facts_a_record_and_a_rule(self, first: str) -> None:
        said = " ".join(first.split())
        read = r"message (\d+) user: I finally read the lease .* 240 euros a month and ends on"
        message = re.search(read, said)
        assert message is not None
        fact = re.search(
            r"fact (\d+) The lease of the user's pottery studio .* ends on \d{4}-\d\d-\d\d\."
            rf" \(from {message[1]}\)",
            said,
        )
        assert fact is not None
        assert "monthly_cost_eur=240" in said
        assert re.search(rf"record Contract pottery-studio: .* \(from {fact[1]}, \d+\)", said)
        assert "constraint notice_period" in said
        assert "| def check(today: datetime.date) -> Iterator[Alert]:" in first
        assert "grounding, types, execution, tests, constraints, mutants" in said
        assert "0 rejected, 0 pending" in said

    def test_the_rule_speaks_of_what_was_said_in_two_conversations(self, first: str) -> None:
        _, _, shown = first.partition("Kantstraße must be cancelled in writing by")
        chain = " ".join(shown.partition("WARNING")[0].split())
        assert "costs 2880 euros" in chain
        assert "evidence Contract 'pottery-studio' in contracts.contracts" in chain
        assert re.search(r"message \d+ \S+ Unless I cancel it in writing three months", chain)
        assert re.search(r"message \d+ \S+ So I won't need the studio", chain)

    def test_says_that_the_answers_were_recorded(self, first: str) -> None:
        assert "language model: none; answers were recorded" in first
        assert calls_of("openai:recorded-for-the-demo", first)[1] == 0
        assert "answers were recorded, and tokens are estimated" in first

    def test_questions_are_answered_exactly(self, first: str) -> None:
        assert first.count("the same as computed from the log entries without the server") == 3
        assert "no answer to" not in first

    def test_says_where_to_look_and_what_not_to_trust(self, first: str) -> None:
        assert re.search(r"admin +http://127\.0\.0\.1:\d+/admin/", first)
        assert re.search(r"log in as +demo / \S{20,}", first)
        assert "sandboxes: the process runner, for lack of Docker (the Docker engine: " in first
        assert first.count("WARNING        Computed by the process runner") >= 3
        assert "WARNING: constraints and queries ran in the process runner" in first

    def test_ends_by_saying_that_all_came(self, first: str) -> None:
        assert first.rstrip().endswith("Exactly the expected alerts and answers came.")


@pytest.mark.docker
def test_in_containers_it_comes_out_the_same_without_a_warning(tmp_path: Path) -> None:
    process = demo(tmp_path / "data", "--exit", DOCKER_HOST=os.environ.get("DOCKER_HOST", ""))
    output = output_of(process)

    assert process.returncode == 0, output
    assert "sandboxes: Docker containers of uac-sandbox:" in output
    assert "CRITICAL: Amoxicillin is a penicillin" in output
    assert "CRITICAL: The lease of the pottery studio in Kantstraße must be cancelled" in output
    assert output.count("the same as computed from the log entries without the server") == 3
    assert "ran in hardened Docker containers" in output
    assert "process runner" not in output
    assert output.rstrip().endswith("Exactly the expected alerts and answers came.")


def test_who_insists_on_docker_gets_nothing_less(tmp_path: Path) -> None:
    process = demo(tmp_path / "data", "--exit", UAC_SANDBOX_RUNNER="docker")
    output = output_of(process)

    assert process.returncode == 1, output
    assert "UAC_SANDBOX_RUNNER is docker: the Docker engine: " in output
    assert "Traceback" not in output
    assert "logged" not in output


def test_a_second_start_resumes_and_loads_nothing_twice(first: str, folder: Path) -> None:
    process = demo(folder, "--exit")
    second = output_of(process)

    assert process.returncode == 0, second
    assert "is remembered since" in second
    assert "logged   " not in second
    assert "0 rejected, 0 pending" in second
    model = "openai:recorded-for-the-demo"
    assert calls_of(model, second) == calls_of(model, first)
    assert second.rstrip().endswith("Exactly the expected alerts and answers came.")


def test_a_model_that_refuses_the_key_is_told_at_once_and_the_next_start_goes_on(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "data"
    # Given a key that the provider does not take
    with llm_server(script=lambda request: status(401, "no such key")) as server:
        wrong = demo(
            folder,
            "--exit",
            UAC_LLM_MODEL="openai:a-real-one",
            UAC_LLM_BASE_URL=server.openai_url,
            UAC_LLM_API_KEY=KEY,
        )
        output = output_of(wrong)
    # Then the demo ends and says so
    assert wrong.returncode == 1, output
    assert "the language model does not work: " in output
    assert "no such key" in output
    assert KEY not in output
    assert "Traceback" not in output
    # When a model answers at the next start
    with recorded_model() as url:
        right = demo(folder, "--exit", UAC_LLM_MODEL="openai:a-real-one", UAC_LLM_BASE_URL=url)
        output = output_of(right)
    # Then what waited is settled, and nothing exact is claimed of what a real model found
    assert right.returncode == 0, output
    assert "language model: openai:a-real-one" in output
    assert "recorded" not in output
    assert "must be cancelled in writing by" in output
    calls, failed = calls_of("openai:a-real-one", output)
    assert calls > failed >= 1
    assert output.rstrip().endswith("came, and what the model found.")


def test_an_alert_that_does_not_come_is_a_failure(first: str, folder: Path) -> None:
    process = demo(folder, "--exit", program=[sys.executable, "-c", EXPECTS_MORE])
    output = output_of(process)

    assert process.returncode == 1, output
    assert "missing: critical alert of drug_allergy on ibuprofen, penicillin" in output
    assert "Exactly the expected alerts and answers came" not in output


@pytest.fixture(scope="module")
def running(first: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo that keeps running, started while somebody else has the port that it tries first."""
    with socket.create_server(("127.0.0.1", PORT)), demo(folder) as process:
        yield process
        process.kill()


@pytest.fixture(scope="module")
def shown(running: subprocess.Popen[str]) -> str:
    """What it prints until all that is left is to keep running."""
    assert running.stdout is not None
    lines = []
    for line in running.stdout:
        lines.append(line)
        if "Running until Ctrl-C" in line:
            return "".join(lines)
    pytest.fail(f"it ended:\n{''.join(lines)}")


class TestRunning:
    """Without --exit, on the data of the first start, until Ctrl-C. In this order."""

    def test_a_busy_port_is_stepped_around(self, shown: str) -> None:
        match = re.search(r"server ready +(http://127\.0\.0\.1:(\d+))", shown)

        assert match is not None
        assert PORT < int(match[2]) < PORT + 100
        with urllib.request.urlopen(f"{match[1]}/readyz") as response:
            assert response.status == 200

    def test_a_second_start_meanwhile_is_refused_and_says_why(
        self, running: subprocess.Popen[str], shown: str, folder: Path
    ) -> None:
        second = demo(folder, "--exit")
        output = output_of(second)

        assert second.returncode == 1
        assert f"in use by another supervisor (process {running.pid})" in output
        assert "Stop that one first" in output
        assert "Traceback" not in output
        assert running.poll() is None

    def test_of_a_message_that_no_recording_knows_the_staff_are_told_why_it_waits(
        self, shown: str
    ) -> None:
        url = re.search(r"server ready +(\S+)", shown)
        key = re.search(r"Bearer (\S+)'", shown)
        assert url is not None
        assert key is not None
        client = Client(url[1], key[1])
        path = f"users/{person.USER_ID}/"

        client.call(
            "POST",
            f"{path}entries/",
            {"kind": "message", "content": "My dog is called Rex."},
            expect=(202,),
        )

        user = polled(
            lambda: client.call("GET", path), lambda user: user["structure"]["state"] == "stopped"
        )
        assert "only knows the demo's messages" in user["structure"]["reason"]
        assert "set UAC_LLM_MODEL" in user["structure"]["reason"]
        assert user["entries"]["pending"] == 1

    def test_ctrl_c_ends_everything(self, running: subprocess.Popen[str], shown: str) -> None:
        family = descendants(running.pid)
        assert len(family) >= 7  # postgres, redis, web, three workers, beat: at the least

        running.send_signal(signal.SIGINT)

        output = output_of(running)
        assert running.returncode == 0, output
        assert "Stopped" in output
        assert "Traceback" not in output
        assert not any(alive(pid) for pid in family)

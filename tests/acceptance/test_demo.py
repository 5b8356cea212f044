"""The demo as a newcomer meets it: a process that is started, watched, and interrupted."""

import functools
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

from deploy.demo import person
from deploy.demo.recorded_model import recorded_model
from deploy.embedded.http import ApiClient
from deploy.embedded.process import free_port
from tests.constraints import make_rule
from tests.llm_server import KEY, llm_server, status
from tests.processes import Process, gone
from tests.waiting import polled, scaled

CHECKOUT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-u", "-m", "deploy.demo"]


# A port that no other tests on this machine use meanwhile.
port = functools.cache(free_port)

# A demo in which the doctor prescribes nothing, so that no alert can come.
NO_PRESCRIPTION = """
import dataclasses
import sys
from deploy.demo import person, story
from deploy.demo.__main__ import main

life = person.life
person.life = lambda day: dataclasses.replace(life(day), prescription=life(day).months[0])
story._PATIENCE_SECONDS = 10
sys.exit(main())
"""


# A demo that waits for an alert practically for ever.
NEVER_GIVES_UP = """
import sys
from deploy.demo import story
from deploy.demo.__main__ import main

story._PATIENCE_SECONDS = 10_000
sys.exit(main())
"""

# A rule that the sample person does not have; it fires for two of her trips.
_DATES = 'departs_on=TODAY, returns_on=TODAY, purpose="work"'
PORTUGAL = make_rule(
    "portugal",
    "travel.Trip",
    'trip.country == "Portugal"',
    "{trip.destination} is far",
    fires=f'destination="Porto", country="Portugal", {_DATES}',
    silent=f'destination="Madrid", country="Spain", {_DATES}',
)


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
        [*program, "--port", str(port()), "--data", str(folder), *arguments],
        cwd=CHECKOUT,
        env={**os.environ, "DOCKER_HOST": "unix:///nonexistent/docker.sock", **environment},
        # As a shell starts it in the foreground: one in the background ignores Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def output_of(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=scaled(800))
    return output


def ended(folder: Path, *, program: list[str] = DEMO, status: int = 0, **environment: str) -> str:
    """Run the demo with --exit; it must end with that status. Return its output."""
    process = demo(folder, "--exit", program=program, **environment)
    output = output_of(process)
    assert process.returncode == status, output
    return output


def output_until_it_runs(process: subprocess.Popen[str]) -> str:
    """Return the output until the demo only keeps running."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "Running until Ctrl-C" in line:
            return "".join(lines)
    pytest.fail(f"it ended:\n{''.join(lines)}")


def variables_in(output: str) -> dict[str, str]:
    """Return the variables that the demo tells the reader to set, in one line to copy."""
    [line] = re.findall(r"^ *export (UAC_URL=\S+ UAC_KEY=\S+)$", output, re.MULTILINE)
    return dict(one.split("=", 1) for one in line.split())


def client_of(output: str) -> ApiClient:
    variables = variables_in(output)
    return ApiClient(variables["UAC_URL"], variables["UAC_KEY"])


@pytest.fixture(scope="module")
def first(folder: Path) -> str:
    return ended(folder)


class TestFirstStart:
    def test_shows_entries_turning_into_typed_python(self, first: str) -> None:
        assert "logged           entries 1 to 30" in first
        assert re.search(r"checkpoint 1 +typed Python from \d+ entries accepted", first)
        # The other entries of the 30 were messages.
        typed = re.search(
            r"entries 31 to 60 .*\n +checkpoint 2 +typed Python from (\d+) entries accepted\n"
            r"(?: +(\d) messages? left for the language model\n)?",
            first,
        )
        assert typed is not None
        assert int(typed[1]) + int(typed[2] or 0) == 30
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
        assert "grounding, types, execution, tests, constraints, holds, mutants" in said
        assert "0 rejected, 0 pending" in said

    def test_the_rule_speaks_of_what_was_said_in_two_conversations(self, first: str) -> None:
        _, _, shown = first.partition("Kantstraße must be cancelled in writing by")
        chain = " ".join(shown.partition("WARNING")[0].split())
        assert "costs 2880 euros" in chain
        assert "evidence Contract 'pottery-studio' in contracts.contracts" in chain
        assert re.search(r"message \d+ \S+ Unless I cancel it in writing three months", chain)
        assert re.search(r"message \d+ \S+ So I won't need the studio", chain)

    def test_says_that_the_answers_were_recorded(self, first: str) -> None:
        assert "language model: none; recorded responses are used" in first

    def test_questions_are_answered_exactly(self, first: str) -> None:
        answers = first.partition("Three questions")[2].partition("Three searches")[0]
        groceries = sum(2890 + (number * number * 173) % 4110 for number in range(22))
        assert f"{groceries / 100:.2f}" in answers
        assert "Portugal: 9, Denmark: 2, Switzerland: 3, Thailand: 14" in answers
        assert "lisbon: 15057, copenhagen: 19695, porto: 11060, zurich: 22666" in answers

    def test_paraphrased_messages_are_found(self, first: str) -> None:
        _, _, shown = first.partition("Three searches, by meaning")
        for question, begins in person.SEARCHES.items():
            assert re.search(rf"{re.escape(question)}\n +entry \d+: {begins}", shown)

    def test_says_where_to_look_and_what_not_to_trust(self, first: str) -> None:
        assert re.search(r"admin +http://127\.0\.0\.1:\d+/admin/", first)
        assert re.search(r"log in as +demo / \S{20,}", first)
        assert (
            "sandboxes: the process runner, since Docker is not available (the Docker engine"
            " failed: " in first
        )
        assert first.count("WARNING        Computed by the process runner") >= 3
        assert "WARNING: constraints and queries ran in the process runner" in first

    def test_ends_by_saying_that_all_came(self, first: str) -> None:
        assert first.rstrip().endswith("All alerts and answers are there.")


@pytest.mark.docker
def test_in_containers_it_comes_out_the_same_without_a_warning(tmp_path: Path) -> None:
    output = ended(tmp_path / "data", DOCKER_HOST=os.environ.get("DOCKER_HOST", ""))

    assert "sandboxes: Docker containers of uac-sandbox:" in output
    assert "CRITICAL: Amoxicillin is a penicillin" in output
    assert "CRITICAL: The lease of the pottery studio in Kantstraße must be cancelled" in output
    assert "ran in hardened Docker containers" in output
    assert "process runner" not in output
    assert output.rstrip().endswith("All alerts and answers are there.")


def test_required_docker_is_not_replaced(tmp_path: Path) -> None:
    output = ended(tmp_path / "data", status=1, UAC_SANDBOX_RUNNER="docker")

    assert "UAC_SANDBOX_RUNNER is docker: the Docker engine failed: " in output
    assert "Traceback" not in output
    assert "logged" not in output


def test_a_second_start_resumes_and_loads_nothing_twice(first: str, folder: Path) -> None:
    second = ended(folder)

    assert "has been remembered since" in second
    assert "logged   " not in second
    assert "0 rejected, 0 pending" in second
    assert second.rstrip().endswith("All alerts and answers are there.")


def test_refused_key_is_reported_and_next_start_resumes(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "data"
    # Given a key that the provider does not take
    with llm_server(script=lambda request: status(401, "no such key")) as server:
        output = ended(
            folder,
            status=1,
            UAC_LLM_MODEL="openai:a-real-one",
            UAC_LLM_BASE_URL=server.openai_url,
            UAC_LLM_API_KEY=KEY,
        )
    # Then the demo ends and says so
    assert "the language model is stopped: " in output
    assert "no such key" in output
    assert KEY not in output
    assert "Traceback" not in output
    # When a model answers at the next start
    with recorded_model() as url:
        output = ended(folder, UAC_LLM_MODEL="openai:a-real-one", UAC_LLM_BASE_URL=url)
    # Then what waited is settled
    assert "language model: openai:a-real-one" in output
    assert "must be cancelled in writing by" in output
    assert output.rstrip().endswith("All alerts and answers are there.")


def test_an_alert_that_does_not_come_is_a_failure(tmp_path: Path) -> None:
    program = [sys.executable, "-c", NO_PRESCRIPTION]
    output = ended(tmp_path / "data", program=program, status=1)

    assert "gave up after waiting 10 s for the alert from drug_allergy" in output
    assert "All alerts and answers are there" not in output


@pytest.fixture(scope="module")
def running(first: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A running demo, started while another program has the port that it tries first."""
    with socket.create_server(("127.0.0.1", port())), demo(folder) as process:
        yield process
        process.kill()


@pytest.fixture(scope="module")
def shown(running: subprocess.Popen[str]) -> str:
    return output_until_it_runs(running)


class TestRunning:
    """The demo without --exit, on the data of the first start, until Ctrl-C.

    The tests run in this order.
    """

    def test_a_busy_port_is_stepped_around(self, shown: str) -> None:
        match = re.search(r"server ready +(http://127\.0\.0\.1:(\d+))", shown)

        assert match is not None
        assert port() < int(match[2]) < port() + 100
        with urllib.request.urlopen(f"{match[1]}/readyz") as response:
            assert response.status == 200

    def test_a_second_start_meanwhile_is_refused_and_says_why(
        self, running: subprocess.Popen[str], shown: str, folder: Path
    ) -> None:
        output = ended(folder, status=1)

        assert f"in use by another supervisor (process {running.pid})" in output
        assert "Stop that one first" in output
        assert "Traceback" not in output
        assert running.poll() is None

    def test_unrecorded_message_waits_with_a_reason(self, shown: str) -> None:
        client = client_of(shown)
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
        assert "knows only the demo's messages" in user["structure"]["reason"]
        assert "set UAC_LLM_MODEL" in user["structure"]["reason"]
        assert user["entries"]["pending"] == 1

    def test_somebody_plays_with_the_sample_person(self, shown: str) -> None:
        client = client_of(shown)
        path = f"users/{person.USER_ID}/"

        client.call("PUT", f"{path}constraints/portugal/?wait=30", PORTUGAL, expect=(200, 202))
        alerts = polled(
            lambda: client.call("GET", f"{path}alerts/?state=open")["results"],
            lambda alerts: len(alerts) == 5,
        )
        by_rule = {alert["constraint"]: alert["id"] for alert in alerts}
        taken_up = by_rule["constraints/drug_allergy.py"]
        client.call("POST", f"alerts/{taken_up}/acknowledge/", {})
        resolved = by_rule["constraints/passport_validity.py"]
        client.call("POST", f"alerts/{resolved}/resolve/", {"reason": "a new one was issued"})
        expense = {"category": "groceries", "amount_cents": 100, "currency": "EUR"}
        bought = {"merchant": "Markthalle", "spent_on": "2026-11-01"}
        client.call(
            "POST",
            f"{path}entries/?wait=30",
            {
                "kind": "record",
                "domain": "finance",
                "type": "Expense",
                "key": "bread",
                "data": expense | bought,
            },
            expect=(202,),
        )

    def test_ctrl_c_ends_everything(self, running: subprocess.Popen[str], shown: str) -> None:
        family = Process.of(running.pid).descendants()
        assert len(family) >= 7  # postgres, redis, web, three workers, beat: at the least

        running.send_signal(signal.SIGINT)

        output = output_of(running)
        assert running.returncode == 0, output
        assert "Stopped" in output
        assert "Traceback" not in output
        assert gone(family)

    def test_the_next_start_shows_all_of_that_and_waits_for_none_of_it(
        self, running: subprocess.Popen[str], folder: Path
    ) -> None:
        assert running.poll() == 0

        output = ended(folder, program=[sys.executable, "-u", "-c", NEVER_GIVES_UP])

        assert "WRONG" not in output
        shown = " ".join(output.partition("All alerts that are not resolved")[2].split())
        assert "there is a severe penicillin allergy (hives) (acknowledged)" in shown
        assert "The passport expires on" not in shown
        assert "WARNING: Lisbon is far" in shown
        assert output.rstrip().endswith("All alerts and answers are there.")

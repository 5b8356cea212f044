"""The image with everything in one container, which `docker run` starts for trying."""

import re
import subprocess
import uuid
from collections.abc import Iterator

import pytest

from benchmarks.harness import Client
from deploy.embedded.process import free_port
from tests.deployment.conftest import health, run
from tests.docker_engine import skip_or_fail
from tests.images import NotMade, server_image, stand_ins
from tests.waiting import eventually

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    tag = f"userascode:test-{uuid.uuid4().hex[:8]}"
    try:
        yield server_image(stand_ins()["BASE"], tag=tag, target="userascode")
    except NotMade as error:
        skip_or_fail(str(error))
    run("docker", "image", "rm", "--force", tag)


@pytest.fixture
def container(image: str) -> Iterator[str]:
    name = f"userascode-{uuid.uuid4().hex[:8]}"
    published = f"--publish=127.0.0.1:{free_port()}:8000"
    run("docker", "run", "--detach", f"--name={name}", published, image)
    yield name
    run("docker", "rm", "--force", "--volumes", name)


def output(container: str) -> str:
    ended = subprocess.run(
        ["docker", "logs", container], capture_output=True, text=True, check=True
    )
    return ended.stdout + ended.stderr


def client_of(container: str) -> Client:
    """Return a client with the key that the container prints, at the port that is published."""
    port = run("docker", "port", container, "8000").rpartition(":")[2].strip()
    key = re.findall(r"UAC_KEY=(\S+)", output(container))[-1]
    return Client(f"http://127.0.0.1:{port}", key)


def test_one_command_runs_the_demo_and_keeps_its_data(container: str) -> None:
    def is_running() -> bool:
        log = output(container)
        assert "unexpected result" not in log, log
        return log.count("Running until") == starts

    # Given a container that has played the demo's story
    starts = 1
    assert eventually(is_running, seconds=600), output(container)
    assert eventually(lambda: health(container) == "healthy", seconds=60)
    status, user = client_of(container).request("GET", "users/", None)
    assert (status, len(user["results"])) == (200, 1)
    # When it is stopped and started again
    run("docker", "stop", "--time=60", container)
    assert run("docker", "inspect", "--format={{.State.ExitCode}}", container).strip() == "143"
    run("docker", "start", container)
    # Then it has not forgotten anybody
    starts = 2
    assert eventually(is_running, seconds=300), output(container)
    assert client_of(container).request("GET", "users/", None)[1] == user

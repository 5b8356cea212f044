"""A server of docker-compose.yml itself: built, started and used as an operator does."""

import http.client
import json
import os
import shutil
import ssl
import subprocess
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from benchmarks.harness import Client
from deploy.embedded.process import free_port
from tests.acceptance.mcp.conftest import writes_the_query
from tests.chaos.journal import Journal
from tests.chaos.model import Model
from tests.docker_engine import gateway_of, skip_or_fail
from tests.images import NotMade, server_image, stand_ins
from tests.llm_server import KEY, LlmServer, Reply, Request, llm_server
from tests.system import PATIENT
from tests.waiting import polled, scaled
from workers.sandbox.build import ensure_image, ensure_typecheck_image
from workers.sandbox.ownership import LABEL

CHECKOUT = Path(__file__).parents[2]
HOST = "localhost"
# For a machine that is busy with other work.
BUILD_SECONDS = 1800
# Services that keep running; `migrate` has ended.
SERVICES = (
    *("balancer", "postgres", "redis", "web", "mcp", "worker-llm", "worker-default"),
    *("worker-sandbox", "beat", "socket-proxy"),
)
OURS = ("web", "mcp", "worker-llm", "worker-default", "worker-sandbox", "beat", "socket-proxy")


@dataclass
class Deployment:
    """A Compose project with its own name, which all of its objects carry."""

    folder: Path
    project: str
    image: str
    port: int
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.port}"

    @property
    def tls(self) -> ssl.SSLContext:
        """Trusts the certificate that was made for it."""
        return ssl.create_default_context(cafile=str(self.folder / "secrets" / "tls.pem"))

    @property
    def command(self) -> list[str]:
        return [
            *("docker-compose", "--project-name", self.project),
            *("--env-file", str(self.folder / ".env")),
            *("--file", str(CHECKOUT / "docker-compose.yml")),
        ]

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables set in the shell instead of in `.env`."""
        return {
            **os.environ,
            **self.variables,
            "UAC_SECRETS": str(self.folder / "secrets"),
            "UAC_ENV_FILE": str(self.folder / "uac.env"),
            "UAC_LISTEN": f"127.0.0.1:{self.port}",
            "COMPOSE_PARALLEL_LIMIT": "8",
            "COMPOSE_HTTP_TIMEOUT": "300",
        }

    def compose(self, *arguments: str) -> str:
        return run(*self.command, *arguments, environment=self.environment)

    def containers(self, service: str) -> list[str]:
        return self.compose("ps", "-q", service).split()

    def one(self, service: str) -> str:
        [container] = self.containers(service)
        return container

    def manage(self, *arguments: str, **environment: str) -> str:
        """Run manage.py as an operator does, in a web process's container."""
        options = [f"--env={name}={value}" for name, value in environment.items()]
        container = self.containers("web")[0]
        return run("docker", "exec", *options, container, "python3", "manage.py", *arguments)

    def left(self) -> list[str]:
        """Return what the engine still has of the project: containers, networks, volumes."""
        label = f"label=com.docker.compose.project={self.project}"
        lists = (("ps", "--all"), ("network", "ls"), ("volume", "ls"))
        filtered = ("--quiet", "--filter", label)
        return [one for words in lists for one in run("docker", *words, *filtered).split()]

    def client(self, workspace: str) -> Client:
        return Client(self.url, json.loads(self.manage("create_workspace", workspace))["api_key"])


def run(*command: str, environment: dict[str, str] | None = None) -> str:
    """Run a program; fail the test with its output if it fails or takes too long."""
    finished = subprocess.run(
        command,
        env=environment,
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(BUILD_SECONDS),
    )
    if finished.returncode != 0:
        said = f"{finished.stdout[-4000:]}\n{finished.stderr[-4000:]}"
        pytest.fail(f"{' '.join(command)[:500]} ended with {finished.returncode}:\n{said}")
    return finished.stdout


def inspected(container: str) -> Any:
    [found] = json.loads(run("docker", "inspect", container))
    return found


def health(container: str) -> str:
    return str(inspected(container)["State"].get("Health", {}).get("Status"))


def sandboxes(deployment: Deployment) -> set[str]:
    """Return the sandboxes that its workers have made, of all on this machine.

    They are recognized by the process namespace in their label, which is a running worker's own.
    """
    asked = [
        subprocess.run(
            ["docker", "exec", worker, "readlink", "/proc/self/ns/pid"],
            capture_output=True,
            text=True,
            check=False,
            timeout=scaled(BUILD_SECONDS),
        )
        for worker in deployment.containers("worker-sandbox")
    ]
    spaces = [one.stdout.strip() for one in asked if one.returncode == 0]
    return {
        one
        for one, label in labelled_sandboxes().items()
        if any(f"/{space}/" in label for space in spaces)
    }


def labelled_sandboxes() -> dict[str, str]:
    """Return all sandboxes of the engine, each with the label of its owner."""
    listed = run(
        *("docker", "ps", "--all", "--no-trunc", f"--filter=label={LABEL}"),
        f'--format={{{{.ID}}}} {{{{.Label "{LABEL}"}}}}',
    )
    return {one: label for one, _, label in (line.partition(" ") for line in listed.splitlines())}


def remove_sandboxes(these: set[str]) -> None:
    """Remove those of these that exist; their workers may be removing them, too."""
    for one in these & labelled_sandboxes().keys():
        subprocess.run(
            ["docker", "rm", "--force", "--volumes", one],
            capture_output=True,
            check=False,
            timeout=scaled(BUILD_SECONDS),
        )


@pytest.fixture(scope="session")
def outside() -> str:
    """An address of this machine that the containers reach like one on the internet."""
    [bridge] = json.loads(run("docker", "network", "inspect", "bridge"))
    return gateway_of(bridge)


@pytest.fixture(scope="package")
def llm(outside: str) -> Iterator[LlmServer]:
    """A model that answers questions, and makes facts and records of visits."""
    understands = Model(Journal(), 1)

    def script(request: Request) -> Reply:
        return (writes_the_query if "query" in request.tools else understands)(request)

    with llm_server(script=script, address=outside) as server:
        yield server


@pytest.fixture(scope="session")
def images() -> dict[str, str]:
    """The images given to Compose, and BASE, from which the server's is built."""
    for program in ("docker-compose", "openssl"):
        if shutil.which(program) is None:
            skip_or_fail(f"not installed: {program}")
    ensure_typecheck_image(ensure_image())
    try:
        return dict(stand_ins())
    except NotMade as error:
        skip_or_fail(str(error))
        raise


@pytest.fixture(scope="package")
def deployment(
    images: dict[str, str], tmp_path_factory: pytest.TempPathFactory, llm: LlmServer
) -> Iterator[Deployment]:
    """A running server without any users."""
    with running(images, llm, tmp_path_factory.mktemp("operator")) as one:
        yield one


@contextmanager
def running(
    images: dict[str, str], llm: LlmServer, folder: Path, *, checkout: Path = CHECKOUT
) -> Iterator[Deployment]:
    """Run the server of a checkout, as its version "first", with the operator's files in a folder.

    In the end remove it, and its images.
    """
    project = f"uac-test-{uuid.uuid4().hex[:12]}"
    variables = {name: image for name, image in images.items() if name != "BASE"}
    tag = f"{project}:first"
    try:
        image = server_image(images["BASE"], tag=tag, folder=checkout, VERSION="first")
        yield from _running(project, image, variables, folder, llm)
    finally:
        ours = run("docker", "image", "ls", "--format={{.Repository}}:{{.Tag}}", project).split()
        if ours:
            run("docker", "rmi", "--force", *ours)


def _running(
    project: str, image: str, variables: dict[str, str], folder: Path, llm: LlmServer
) -> Iterator[Deployment]:
    run(str(CHECKOUT / "deploy" / "prepare"), HOST, str(folder))
    with (folder / "uac.env").open("a") as settings:
        settings.write(
            "UAC_LLM_MODEL=openai:the-model\n"
            f"UAC_LLM_BASE_URL={llm.openai_url}\n"
            "UAC_STRUCTURE_IDLE_SECONDS=3600\nUAC_STRUCTURE_AGE_SECONDS=7200\n"
            "UAC_WEBHOOK_ALLOW_HTTP=true\n"
            f"UAC_WEBHOOK_ALLOWED_NETWORKS={urlsplit(llm.url).hostname}/32\n"
        )
        settings.writelines(f"{name}={value}\n" for name, value in PATIENT.items())
    key, dotenv = folder / "secrets" / "llm_api_key", folder / ".env"
    key.chmod(0o600)
    key.write_text(f"{KEY}\n")
    key.chmod(0o444)
    dotenv.write_text(dotenv.read_text().replace("uac-server:latest", image))
    one = Deployment(folder, project, image, port=free_port(), variables=variables)
    try:
        try:
            one.compose("up", "-d")
        except pytest.fail.Exception as error:
            pytest.fail(f"{error}\n{one.compose('logs', '--tail=40', 'migrate')}")
        _wait_until_healthy(one)
        with _trusting(one):
            yield one
    finally:
        try:
            theirs = sandboxes(one)
        finally:
            one.compose("down", "--volumes", "--remove-orphans", "--timeout", "15")
        remove_sandboxes(theirs)


def _wait_until_healthy(one: Deployment) -> None:
    try:
        for service in SERVICES:
            for container in one.containers(service):
                polled(lambda: health(container), lambda state: state == "healthy", 300)  # noqa: B023
    except AssertionError as error:
        pytest.fail(f"{service}: {error}\n{one.compose('logs', '--tail=30')}")


@contextmanager
def _trusting(one: Deployment) -> Iterator[None]:
    """Let this process trust the deployment's certificate in this context."""
    handler = urllib.request.HTTPSHandler(context=one.tls)
    urllib.request.install_opener(urllib.request.build_opener(handler))
    try:
        yield
    finally:
        # Back to the state without an opener: the next call makes its own.
        urllib.request.install_opener(None)


def ask(
    one: Deployment, method: str, path: str, body: str | None = None, **headers: str
) -> http.client.HTTPResponse:
    """Send a request over a connection that shows every answer unchanged."""
    connection = http.client.HTTPSConnection(HOST, one.port, context=one.tls, timeout=scaled(60))
    connection.request(method, path, body, headers)
    return connection.getresponse()

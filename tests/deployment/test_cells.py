"""Several servers behind one address: requests go to the cell of their key's workspace."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.harness import Client, new_client
from deploy.embedded.process import ManagedProcess, free_port
from deploy.embedded.system import System, web_is_ready
from tests.docker_engine import skip_or_fail
from tests.system import create_person, running_system, task

ROOT = Path(__file__).parents[2]
CONFIGURATION = """
defaults
    mode http
    timeout connect 3s
    timeout client 30s
    timeout server 30s

frontend all
    bind 127.0.0.1:{port}
    {rule}
"""


@pytest.fixture(scope="module")
def cells() -> Iterator[list[System]]:
    with running_system() as first, running_system() as second:
        yield [first, second]


@pytest.fixture(scope="module")
def clients(cells: list[System]) -> list[Client]:
    """A client for each cell, which calls it directly."""
    return [new_client(cell, f"workspace-{number}") for number, cell in enumerate(cells)]


@pytest.fixture(scope="module")
def balanced(
    cells: list[System], clients: list[Client], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Client]]:
    """The same clients, which call the balancer, configured as in docs/scaling.md."""
    skip_or_fail("" if shutil.which("haproxy") else "not installed: haproxy")
    folder, port = tmp_path_factory.mktemp("balancer"), free_port()
    lines = [
        f"uac_{client.key.split('_')[1]} cell-{number}\n"
        for number, client in enumerate(clients, 1)
    ]
    (folder / "cells.map").write_text("".join(lines))
    page = (ROOT / "docs" / "scaling.md").read_text()
    (rule,) = re.findall("```haproxy\n(.*?)```", page, re.DOTALL)
    configuration = CONFIGURATION.format(port=port, rule=rule)
    for number, cell in enumerate(cells, 1):
        address = cell.base_url.removeprefix("http://")
        configuration += f"\nbackend cell-{number}\n    server web {address}\n"
    path = folder / "haproxy.cfg"
    path.write_text(configuration.replace("/etc/haproxy/cells.map", str(folder / "cells.map")))
    process = ManagedProcess(
        name="haproxy",
        command=["haproxy", "-db", "-f", str(path)],
        log_path=folder / "haproxy.log",
        ready=web_is_ready(port),
        environment={"PATH": os.environ["PATH"]},
        folder=folder,
    )
    process.start()
    yield [Client(f"http://127.0.0.1:{port}", client.key) for client in clients]
    process.stop()


@pytest.mark.docker
@pytest.mark.timeout(300)
def test_a_key_leads_to_the_cell_of_its_workspace(
    clients: list[Client], balanced: list[Client]
) -> None:
    for number, client in enumerate(balanced):
        create_person(client, f"person-{number}").log(task("first", days=0))

    for number, (direct, through) in enumerate(zip(clients, balanced, strict=True)):
        for client in (direct, through):
            status, page = client.get("users/")
            assert (status, [user["user_id"] for user in page["results"]]) == (
                200,
                [f"person-{number}"],
            )


@pytest.mark.docker
def test_a_key_of_another_cell_is_unknown(cells: list[System], clients: list[Client]) -> None:
    status, _ = Client(cells[0].base_url, clients[1].key).get("users/")

    assert status == 401

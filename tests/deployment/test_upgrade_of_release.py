"""An upgrade from the previous release, as it was released: under load, no request fails."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.deployment.conftest import CHECKOUT, OURS, Deployment, inspected, run, running
from tests.deployment.upgrading import by_user, contents, loaded, upgrade_under_load
from tests.images import server_image
from tests.llm_server import LlmServer
from tests.releases import find_previous_release

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def release() -> str:
    """The newest release that this checkout comes after."""
    if (tag := find_previous_release(CHECKOUT)) is None:
        pytest.skip(
            "NOT TESTED: the upgrade from the previous release. No commit before this one has a tag"
            " v*, so nothing is released yet. From the first tag on, this test runs."
        )
    return tag


@pytest.fixture(scope="module")
def before(
    release: str, images: dict[str, str], tmp_path_factory: pytest.TempPathFactory, llm: LlmServer
) -> Iterator[Deployment]:
    """A running deployment of that release."""
    folder = tmp_path_factory.mktemp("release")
    archive = folder.with_suffix(".tar")
    run("git", "-C", str(CHECKOUT), "archive", f"--output={archive}", release)
    subprocess.run(["tar", "-xf", str(archive), "-C", str(folder)], check=True)
    with running(images, llm, tmp_path_factory.mktemp("operator"), checkout=folder) as one:
        yield one


def test_upgrade_of_release_fails_no_request(before: Deployment, images: dict[str, str]) -> None:
    load = loaded(before)
    this = server_image(images["BASE"], tag=f"{before.project}:this", VERSION="this")

    upgrade_under_load(before, load, this)

    for name in OURS:
        for container in before.containers(name):
            labels = inspected(container)["Config"]["Labels"]
            assert labels["org.opencontainers.image.version"] == "this", name
    assert contents(load) == by_user(load.acknowledged)
    assert before.manage("verify").splitlines()[-1].endswith(" 0 problems")

"""The image of the containers: its content, and failures to build it."""

import contextlib
import io
import struct
import tarfile
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import docker as engine
import pytest
from docker.errors import ImageNotFound
from docker.models.images import ImageCollection

from tests.steps import not_none
from workers.sandbox import build
from workers.sandbox.build import ImageNotBuilt, ensure_image

pytestmark = pytest.mark.docker

# Nobody listens there: the engine must not contact a registry.
ABSENT = "localhost:1/uac-no-such-base:1"


@pytest.fixture(scope="module")
def client() -> Iterator[engine.DockerClient]:
    with contextlib.closing(engine.from_env()) as one:
        yield one


@pytest.fixture
def another_name(client: engine.DockerClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Build under another name, because the image of this release is in use."""
    name = f"uac-test:{uuid.uuid4().hex}"
    monkeypatch.setattr(build, "default_image", lambda: name)
    yield name
    with contextlib.suppress(ImageNotFound):
        client.images.remove(name, force=True)


@pytest.fixture(scope="module")
def contents(client: engine.DockerClient, docker_image: str) -> Iterator[tarfile.TarFile]:
    """The image's file system."""
    container = client.containers.create(docker_image, network_disabled=True)
    try:
        with tempfile.TemporaryFile() as file:
            for part in cast("Iterator[bytes]", container.export()):
                file.write(part)
            file.seek(0)
            with tarfile.open(fileobj=file) as archive:
                yield archive
    finally:
        container.remove()


def names(archive: tarfile.TarFile) -> set[str]:
    return {name.removeprefix("./") for name in archive.getnames()}


def test_an_image_is_built_once(docker_image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = Mock(side_effect=AssertionError("it is there already"))
    monkeypatch.setattr(ImageCollection, "build", refuse)
    monkeypatch.setattr(ImageCollection, "pull", refuse)
    said: list[str] = []
    assert ensure_image(say=said.append) == docker_image
    assert said == []


def test_image_does_not_run_as_root(client: engine.DockerClient, docker_image: str) -> None:
    config = client.images.get(docker_image).attrs["Config"]
    assert config["User"] == "65534:65534"
    assert not config.get("Volumes")
    assert not config.get("ExposedPorts")


def test_image_contains_the_package_alone(contents: tarfile.TarFile) -> None:
    ours = {name for name in names(contents) if name.startswith("opt/uac/")}
    found = {Path(name).name for name in ours}
    assert {"runner.py", "protocol.py"} <= found
    assert not {"Dockerfile", ".dockerignore"} & found
    compiled = [name for name in ours if name.endswith(".pyc")]
    assert len(compiled) == len([name for name in ours if name.endswith(".py")])
    for name in compiled:  # in the image, not on the host: that never looks at a source again
        file = not_none(contents.extractfile(name))
        _, flags = struct.unpack("<4sI", file.read(8))
        assert flags == 0b01


def test_image_has_no_setuid_program(contents: tarfile.TarFile) -> None:
    privileged = [one.name for one in contents.getmembers() if one.mode & 0o6000 and one.isreg()]
    assert privileged == []


def test_an_image_of_packages_has_no_shell_and_no_package_manager(
    client: engine.DockerClient, docker_image: str, contents: tarfile.TarFile
) -> None:
    history = client.images.get(docker_image).history()
    if not any(layer["Comment"].startswith("Imported from") for layer in history):
        pytest.skip("the image is on a base that was not made of packages")
    programs = {Path(name).name for name in names(contents) if "bin/" in name}
    assert "python3" in programs
    assert not programs & {"sh", "bash", "dash", "busybox", "apt", "apt-get", "dpkg", "pip", "pip3"}
    assert programs <= {one for one in programs if one.startswith(("py", "python"))}
    modules = {name for name in names(contents) if "/site-packages/" in name or "/pip/" in name}
    assert modules == set()


def test_a_base_that_is_named_is_the_base(
    client: engine.DockerClient,
    docker_image: str,
    another_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(build, "_available_base", lambda client: docker_image)
    base = f"uac-test-base:{uuid.uuid4().hex}"
    client.images.build(
        fileobj=io.BytesIO(f"FROM {docker_image}\nLABEL uac.test={base}\n".encode()),
        tag=base,
        rm=True,
        forcerm=True,
    )
    try:
        assert ensure_image() == another_name  # of the ordinary base …
        ordinary = client.images.get(another_name)
        assert "uac.test" not in ordinary.labels
        assert ensure_image(base) == another_name  # … which does not do for the other
        assert client.images.get(another_name).labels["uac.test"] == base
    finally:
        client.images.remove(base, force=True)
    client.images.remove(str(ordinary.id))  # it has lost its name


def test_a_base_that_does_not_exist_is_named(another_name: str) -> None:
    with pytest.raises(ImageNotBuilt, match="uac-no-such-base"):
        ensure_image(ABSENT)


def test_without_packages_the_way_out_is_named(
    client: engine.DockerClient,
    another_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(build, "_available_base", lambda client: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageNotBuilt, match=r"apt-\w+ is not installed.*--base IMAGE"):
        ensure_image()
    with pytest.raises(ImageNotFound):
        client.images.get(another_name)


def test_without_an_engine_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/engine.sock")
    with pytest.raises(ImageNotBuilt, match="the Docker engine"):
        ensure_image()

"""The image of the containers: its content, and failures to build it."""

import contextlib
import io
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import docker as engine
import pytest
from django.test import override_settings
from docker.errors import ImageNotFound
from docker.models.images import ImageCollection

import workers
from tests.steps import not_none
from tests.waiting import scaled
from workers.sandbox import build, docker
from workers.sandbox.build import ImageNotBuilt, ensure_image
from workers.sandbox.image import SOURCES

pytestmark = pytest.mark.docker

ROOT = Path(workers.__file__).parent.parent
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


def test_a_checkout_that_only_its_owner_can_read_makes_an_image_that_works(
    another_name: str, docker_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(SOURCES, tmp_path / "sources")
    for path in (tmp_path / "sources", *(tmp_path / "sources").rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    monkeypatch.setattr(build, "SOURCES", tmp_path / "sources")

    ensure_image(docker_image)  # on a base that is there

    docker._image.cache_clear()
    try:
        with override_settings(UAC_SANDBOX_IMAGE=another_name), docker.start() as sandbox:
            assert sandbox.alive
    finally:
        docker._image.cache_clear()


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


def test_nothing_in_it_gains_the_powers_of_another_user(contents: tarfile.TarFile) -> None:
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


@pytest.mark.parametrize(
    ("base", "status", "printed", "said"),
    [
        (None, 0, "IMAGE\n", ""),
        (ABSENT, 1, "", "was not built"),
    ],
)
def test_the_command_prints_the_name_alone(
    base: str | None,
    status: int,
    printed: str,
    said: str,
    client: engine.DockerClient,
    docker_image: str,
) -> None:
    if base is None and build._has(client, build.BASE_TAG):
        base = build.BASE_TAG  # not made of packages once more, which takes the longest
    arguments = [] if base is None else ["--base", base]
    ran = subprocess.run(
        [sys.executable, "-m", "workers.sandbox.build", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=scaled(240),
        check=False,
    )
    assert ran.returncode == status
    assert ran.stdout == printed.replace("IMAGE", docker_image)
    assert said in ran.stderr

"""Build the images that run users' code: `python -m workers.sandbox.build [--base IMAGE]`.

The sandbox image is built from `sandbox_image/Dockerfile` on a base image with Python. If the
engine neither has the official image with the server's version of Python nor can pull it, a base
image is built from the packages of this Debian or Ubuntu system: it contains an interpreter, its
libraries and the time zone database, but no shell. The images of the type checker and
of the converter of documents are built on the sandbox image.
"""

import argparse
import functools
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TextIO

import docker
from docker.errors import APIError, BuildError, DockerException, ImageNotFound

from workers.sandbox.image import SOURCES, default_image
from workers.sandbox.program_images import CONVERT, TYPECHECK, ProgramImage

BASE_TAG = "uac-python:debian"
ENGINE_SECONDS = 300


class ImageNotBuilt(Exception):
    """An image could not be built; the message gives the reason and the remedy."""


def ensure_image(
    base: str | None = None,
    *,
    renew: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> str:
    """Build this release's sandbox image unless the engine already has it; return its name.

    `base` is an image with Python 3.11 or newer (for the default, see the module's docstring). If
    `base` is given or `renew` is set, the image is always rebuilt, from the newest version of the
    base. Raises ImageNotBuilt if the image cannot be built.
    """
    name = default_image()
    with _engine() as client:
        if renew or base is not None or not _has(client, name):
            base = base or _available_base(client) or _base_of_packages(client, say)
            _build(client, name, SOURCES, {"BASE": base}, say)
    return name


def ensure_typecheck_image(
    base: str, *, renew: bool = False, say: Callable[[str], None] = lambda line: None
) -> str:
    """Build this release's type checker image unless the engine already has it; return its name.

    `base` is the sandbox image. Its Python version must match the server's, because the server's
    mypy is copied into the type checker's image. Raises ImageNotBuilt if the image cannot be built.
    """
    return _ensure_program_image(TYPECHECK, base, {"PYTHON": _python_version()}, renew, say)


def ensure_convert_image(
    base: str, *, renew: bool = False, say: Callable[[str], None] = lambda line: None
) -> str:
    """Build this release's converter image unless the engine already has it; return its name.

    `base` is the sandbox image. Raises ImageNotBuilt if the image cannot be built.
    """
    return _ensure_program_image(CONVERT, base, {}, renew, say)


def _ensure_program_image(
    image: ProgramImage,
    base: str,
    arguments: Mapping[str, str],
    renew: bool,
    say: Callable[[str], None],
) -> str:
    name = image.name()
    with _engine() as client:
        if renew or not _has(client, name):
            with tempfile.TemporaryDirectory(prefix="uac-image-") as folder:
                image.write_context(Path(folder))
                _build(client, name, Path(folder), {"BASE": base, **arguments}, say)
    return name


@contextmanager
def _engine() -> Iterator[docker.DockerClient]:
    """Yield a client of the Docker engine.

    Within the context, ImageNotBuilt is raised if the engine doesn't respond or rejects a request.
    """
    try:
        with closing(docker.from_env(timeout=ENGINE_SECONDS)) as client:
            yield client
    except (DockerException, OSError) as error:
        raise ImageNotBuilt(f"the Docker engine failed: {error}") from error


def _python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _build(
    client: docker.DockerClient,
    name: str,
    folder: Path,
    arguments: Mapping[str, str],
    say: Callable[[str], None],
) -> None:
    base = arguments["BASE"]
    say(f"building {name} on {base}")
    try:
        client.images.build(
            path=str(folder),
            buildargs=dict(arguments),
            tag=name,
            network_mode="none",
            rm=True,
            forcerm=True,
        )
    except BuildError as error:
        lines = [str(line.get("stream") or line.get("error") or "") for line in error.build_log]
        raise ImageNotBuilt(f"with the base {base}: {error}\n{''.join(lines)[-2000:]}") from error


def _has(client: docker.DockerClient, image: str) -> bool:
    try:
        client.images.get(image)
    except ImageNotFound:
        return False
    return True


def _available_base(client: docker.DockerClient) -> str | None:
    """Pull the official image with the server's version of Python; return its name.

    Returns None if it is unavailable. The type checker needs this version.
    """
    base = f"python:{_python_version()}-slim"
    try:
        client.images.pull(base)
    except APIError:
        return base if _has(client, base) else None
    return base


def _base_of_packages(client: docker.DockerClient, say: Callable[[str], None]) -> str:
    """Build a base image from Debian packages and return its name; requires no privileges."""
    say("no registry responds: building a base image from this system's own packages")
    with tempfile.TemporaryDirectory(prefix="uac-image-") as folder:
        root = Path(folder) / "root"
        status_folder = root / "var" / "lib" / "dpkg" / "status.d"
        status_folder.mkdir(parents=True)
        for package in _download(Path(folder)):
            run_program(["dpkg-deb", "--extract", str(package), str(root)])
            # Record the package in the image, in the place where image scanners look for packages.
            (status_folder / package.name.partition("_")[0]).write_text(
                run_program(["dpkg-deb", "--field", str(package)])
            )
        # Packages built for a merged /usr rely on these symlinks, which another package provides.
        for name in ("lib", "lib64", "bin"):
            if (root / "usr" / name).exists() and not (root / name).exists():
                (root / name).symlink_to(f"usr/{name}")
        archive = Path(folder) / "root.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(root, arcname=".", filter=_packed)
        repository, _, tag = BASE_TAG.partition(":")
        client.api.import_image(str(archive), repository=repository, tag=tag)
    return BASE_TAG


def _download(folder: Path) -> list[Path]:
    """Download the Debian packages of Python and its dependencies; return the files' paths."""
    # Use the system's package lists or, if there are none, download our own, which requires no
    # privileges.
    lists = folder / "lists"
    lists.mkdir()
    attempts: list[list[str]] = [[], [f"--option=Dir::State::Lists={lists}"]]
    for options in attempts:
        try:
            if options:
                run_program(["apt-get", *options, "--quiet", "update"])
            (python,) = _dependencies("python3-minimal", r"python3\.\d+-minimal", options)
            version = python.removesuffix("-minimal")
            parts = [python, f"lib{version}-minimal", f"lib{version}-stdlib"]
            libraries = {
                name for part in parts for name in _dependencies(part, r"(lib|zlib)\S+", options)
            }
            packages = ["python3-minimal", *parts, *sorted(libraries - {*parts}), "tzdata"]
            run_program(["apt-get", *options, "--quiet", "download", *packages], folder)
            return sorted(folder.glob("*.deb"))
        except (ImageNotBuilt, ValueError) as error:
            failure = error
    raise ImageNotBuilt(
        "there is no base image with Python, and none can be built from this system's packages:"
        f" {failure}. Specify one of the engine's images:"
        " python -m workers.sandbox.build --base IMAGE"
    )


def _dependencies(package: str, pattern: str, options: Sequence[str]) -> list[str]:
    """Return the names of those of a package's dependencies that match the pattern."""
    listed = run_program(["apt-cache", *options, "depends", "--important", package])
    return [
        name
        for name in re.findall(r"^ *\|?(?:Pre)?Depends: (\S+)$", listed, re.MULTILINE)
        if re.fullmatch(pattern, name)
    ]


def _packed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if entry.name.startswith(("./usr/share/doc", "./usr/share/man", "./usr/share/lintian")):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def run_program(command: list[str], folder: Path | None = None) -> str:
    """Run a program and return its output; raise ImageNotBuilt if it isn't installed or fails."""
    try:
        finished = subprocess.run(  # noqa: S603  # nosec B603 # Debian's tools
            command, cwd=folder, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise ImageNotBuilt(f"{command[0]} is not installed") from None
    if finished.returncode != 0:
        raise ImageNotBuilt(f"{' '.join(command)} failed: {finished.stderr.strip()[-500:]}")
    return finished.stdout


def main() -> int:
    """Build all images and print the name of the sandbox image."""
    parser = argparse.ArgumentParser(prog="python -m workers.sandbox.build", description=__doc__)
    parser.add_argument("--base", help="base image to build on, with Python 3.11 or newer")
    arguments = parser.parse_args()
    say = functools.partial(_write, sys.stderr)
    try:
        name = ensure_image(arguments.base, renew=True, say=say)
        ensure_typecheck_image(name, renew=True, say=say)
        ensure_convert_image(name, renew=True, say=say)
    except ImageNotBuilt as error:
        _write(sys.stderr, f"The sandbox image was not built: {error}")
        return 1
    _write(sys.stdout, name)
    return 0


def _write(stream: TextIO, line: str) -> None:
    stream.write(f"{line}\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())

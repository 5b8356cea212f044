"""Contents of the type checker's image: its own files, and this server's mypy."""

import functools
import hashlib
import shutil
from importlib import metadata
from pathlib import Path

import typecheck_image
from workers.sandbox.image import sources_digest

SOURCES = Path(typecheck_image.__path__[0])
# mypy and its dependencies, none of which a user's project can import.
PACKAGES = ("mypy", "mypy-extensions", "typing-extensions", "pathspec", "librt")


def typecheck_image_name() -> str:
    """Return the name of the type checker image, whose tag is a digest of its contents."""
    return f"uac-typecheck:{_digest()[:16]}"


@functools.cache
def _digest() -> str:
    digest = hashlib.sha256(sources_digest().encode())
    for path in sorted(_files()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    for package in PACKAGES:
        digest.update(f"{package} {metadata.version(package)}\0".encode())
    return digest.hexdigest()


def write_context(folder: Path) -> None:
    """Collect in `folder` the files that the Dockerfile copies, so that nothing is downloaded."""
    own = folder / SOURCES.name
    own.mkdir()
    for path in _files():
        shutil.copyfile(path, (folder if path.name == "Dockerfile" else own) / path.name)
    for package in PACKAGES:
        for file in metadata.files(package) or ():
            if ".." in file.parts or "__pycache__" in file.parts:
                continue  # skip the package's commands, and bytecode that refers to other paths
            target = folder / "packages" / Path(*file.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), target)


def _files() -> list[Path]:
    return [SOURCES / "Dockerfile", *SOURCES.glob("*.py")]

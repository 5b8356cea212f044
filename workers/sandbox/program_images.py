"""Contents of the images beside the sandboxes': a program of ours, and this server's packages."""

import functools
import hashlib
import shutil
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import convert_image
import typecheck_image
from workers.sandbox.image import sources_digest


@dataclass(frozen=True)
class ProgramImage:
    """An image built on the sandbox image from one folder of sources and installed packages."""

    repository: str
    sources: Path
    packages: tuple[str, ...]

    def name(self) -> str:
        """Return the image's name, whose tag is a digest of its contents."""
        return f"{self.repository}:{_digest(self)[:16]}"

    def write_context(self, folder: Path) -> None:
        """Collect in `folder` the files that the Dockerfile copies; nothing is downloaded."""
        own = folder / self.sources.name
        own.mkdir()
        for path in self.files():
            shutil.copyfile(path, (folder if path.name == "Dockerfile" else own) / path.name)
        for package in self.packages:
            for file in metadata.files(package) or ():
                if ".." in file.parts or "__pycache__" in file.parts:
                    continue  # skip the package's commands, and bytecode with other paths
                target = folder / "packages" / Path(*file.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(file.locate()), target)

    def files(self) -> list[Path]:
        """Return the program's own files."""
        return [self.sources / "Dockerfile", *self.sources.glob("*.py")]


# Each with its dependencies, none of which a user's project can import.
TYPECHECK = ProgramImage(
    "uac-typecheck",
    Path(typecheck_image.__path__[0]),
    ("mypy", "mypy-extensions", "typing-extensions", "pathspec", "librt"),
)
CONVERT = ProgramImage(
    "uac-convert",
    Path(convert_image.__path__[0]),
    ("pypdf", "openpyxl", "et-xmlfile", "defusedxml"),
)


def typecheck_image_name() -> str:
    """Return the name of the type checker's image."""
    return TYPECHECK.name()


def convert_image_name() -> str:
    """Return the name of the converter's image."""
    return CONVERT.name()


@functools.cache
def _digest(image: ProgramImage) -> str:
    digest = hashlib.sha256(sources_digest().encode())
    for path in sorted(image.files()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    for package in image.packages:
        digest.update(f"{package} {metadata.version(package)}\0".encode())
    return digest.hexdigest()

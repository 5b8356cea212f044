"""The sandbox image's contents and name. Bytecode is valid only for the image that compiled it."""

import functools
import hashlib
from pathlib import Path

import sandbox_image

# The directory with the code that runs in every sandbox; also the Docker image's build context.
SOURCES = Path(sandbox_image.__path__[0])


@functools.cache
def sources_digest() -> str:
    """Return a hexadecimal digest of the files in `sandbox_image`."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*")):
        if path.suffix == ".py" or path.name == "Dockerfile":
            digest.update(path.relative_to(SOURCES).as_posix().encode() + b"\0")
            digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def default_image() -> str:
    """Return the name of this release's sandbox image, whose tag is a digest of its files."""
    return f"uac-sandbox:{sources_digest()[:16]}"

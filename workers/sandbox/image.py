"""What a sandbox is made of. Bytecode is good for the image that compiled it and for no other."""

import functools
import hashlib
import sys
from pathlib import Path

import sandbox_image


@functools.cache
def image_digest() -> str:
    """Return the digest of what the configured runner's sandboxes are made of.

    Those of the process runner are this interpreter and the files of `sandbox_image`.
    """
    digest = hashlib.sha256(sys.version.encode())
    folder = Path(sandbox_image.__path__[0])
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return f"process:{digest.hexdigest()[:32]}"

"""JSON as text: canonical for hashing and comparing, or exactly as it was given."""

import hashlib
import json
from typing import Any

# Created once: creating an encoder takes longer than encoding an entry.
_EXACT = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_CANONICAL = json.JSONEncoder(separators=(",", ":"), allow_nan=False, sort_keys=True)


def exact_json(value: Any) -> str:
    """Return JSON that keeps the order of keys; raises ValueError for NaN."""
    return _EXACT.encode(value)


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys, no spaces and ASCII only; raises ValueError for NaN."""
    return _CANONICAL.encode(value)


def sha256(text: str) -> str:
    """Return the SHA-256 of the text encoded in UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def git_blob_id(content: bytes) -> str:
    """Return git's id for a file's content, in hexadecimal."""
    head = b"blob %d\0" % len(content)
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest()

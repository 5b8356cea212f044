"""JSON encoding, canonical (for hashing and comparing) or with keys in the given order; hashes."""

import hashlib
import json
from typing import Any

# Create these encoders only once, since creating an encoder takes longer than encoding an entry.
_EXACT = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_UTF8 = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False)
_CANONICAL = json.JSONEncoder(separators=(",", ":"), allow_nan=False, sort_keys=True)


def exact_json(value: Any) -> str:
    """Return the value as JSON with its keys in the given order; raises ValueError for NaN."""
    return _EXACT.encode(value)


def utf8_json(value: Any) -> str:
    """Return exact JSON without escaping non-ASCII characters; raises ValueError for NaN."""
    return _UTF8.encode(value)


def canonical_json(value: Any) -> str:
    """Return the value as ASCII JSON with sorted keys and no spaces; raises ValueError for NaN."""
    return _CANONICAL.encode(value)


def sha256(text: str) -> str:
    """Return the SHA-256 hash of the text's UTF-8 encoding, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def git_blob_id(content: bytes) -> str:
    """Return git's id for a file with this content, in hexadecimal."""
    head = b"blob %d\0" % len(content)
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest()

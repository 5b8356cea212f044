"""JSON as text: one text for one value, for hashing and comparing; or as it was given."""

import hashlib
import json
from typing import Any


def exact_json(value: Any) -> str:
    """Return JSON that keeps the order of keys; raise ValueError for NaN."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys, no spaces and ASCII only; raise ValueError for NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def sha256(text: str) -> str:
    """Return the SHA-256 of the text's UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()

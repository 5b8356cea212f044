"""Number of examples for each property: four times as many in all tests as in the first tier.

`UAC_EXAMPLES=20 pytest tests/unit/project/test_rebuilding.py` tries twenty times as many there.
"""

import os


def examples(number: int) -> int:
    """Return the number of examples where the first tier tries this many."""
    return number * int(os.environ.get("UAC_EXAMPLES", "1"))

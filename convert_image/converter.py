"""Convert documents to text until the input ends: `python -m convert_image.converter`.

A request {"name", "content": base64, "limits": {"pages", "characters", "seconds"}} is answered with
{"outcome": "ok", "media_type", "parts"}, where each part is {"page", "text"}, or with the outcome
that says why there is no text. Nothing is written, and nothing is kept between requests.
"""

import base64
import sys
from typing import Any

from convert_image.formats import Limits, Unreadable, convert
from sandbox_image import programs

MEMORY_BYTES = 768 * 1024 * 1024


def main() -> None:
    """Serve requests; the process runner's `CACHE --prepare` finds nothing to prepare."""
    if "--prepare" not in sys.argv:
        programs.serve(answer)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the document's media type and the text of its pages, or why it has none."""
    limits = request["limits"]
    most = Limits(limits["pages"], limits["characters"])
    return programs.answer_in_fork(
        lambda: _convert(request["name"], base64.b64decode(request["content"]), most),
        limits["seconds"],
        MEMORY_BYTES,
    )


def _convert(name: str, content: bytes, limits: Limits) -> dict[str, Any]:
    try:
        media_type, parts = convert(name, content, limits)
    except Unreadable as error:
        return {"outcome": error.outcome}
    except MemoryError:
        raise
    # The parsers raise whatever a malformed file makes them stumble over.
    except Exception:
        return {"outcome": "broken"}
    return {
        "media_type": media_type,
        "parts": [{"page": part.page, "text": part.text} for part in parts],
    }


if __name__ == "__main__":
    main()

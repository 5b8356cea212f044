"""Automatic reloading of pages about work in progress."""

from django.http import HttpRequest

# A page about work in progress reloads itself at increasing intervals, but only a limited number of
# times, since each view is audited.
_AGAIN_SECONDS, _AGAIN_MOST, _LOOKS = 2, 60, 15


def look_again(request: HttpRequest) -> dict[str, int]:
    """Return the seconds until a page about work in progress reloads, and that reload's number.

    The result is empty once the page has reloaded the maximum number of times.
    """
    text = request.GET.get("look", "")
    look = int(text) if text.isascii() and text.isdigit() and len(text) < 3 else 0
    if look >= _LOOKS:
        return {}
    return {"again_seconds": min(_AGAIN_SECONDS * 2**look, _AGAIN_MOST), "look": look + 1}

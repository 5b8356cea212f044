"""Limits on how many large responses a web process computes at a time.

Computing a response from many records holds the interpreter lock, which all of a process's requests
share. If all slots are taken, further requests are rejected and asked to retry soon, instead of
blocking a thread. No single workspace can take all of the slots.
"""

import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager

from django.http import HttpResponseBase

from memory.kernel.admission.request_slots import Places
from memory.kernel.http.rates import TooMuch

RETRY_SECONDS = 1.0

# At most two responses at a time, one per workspace.
_places = Places(2, factor=1)
# At most four downloads at a time, two per workspace or staff member. Building a download from a
# whole history can take minutes, and sending it to a slow reader takes even longer.
_downloads = Places(4, factor=1)
DOWNLOAD_RETRY_SECONDS = 10.0


@contextmanager
def computing(workspace_pk: int) -> Iterator[None]:
    """Hold a slot while the block computes a response; raises TooMuch if no slot is free."""
    with _places.take(workspace_pk) as admitted:
        if not admitted:
            raise TooMuch(
                "This server is already computing as many large responses as it allows. Try"
                " again in a second.",
                "max_computing",
                RETRY_SECONDS,
            )
        yield


def download(whose: Hashable, make: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    """Return the response that `make` builds from a whole history.

    `whose` identifies the workspace or staff member. The slot stays taken until the response is
    closed, since a slow reader occupies a thread. Raises TooMuch if no slot is free.
    """
    with ExitStack() as place:
        if not place.enter_context(_downloads.take(whose)):
            raise TooMuch(
                "This server is already creating as many zips and clones as it allows. Try again"
                " in ten seconds.",
                "max_downloads",
                DOWNLOAD_RETRY_SECONDS,
            )
        response = make()
        # A response that is never sent is never closed; the finalizer then frees its slot.
        release = weakref.finalize(response, place.pop_all().close)
        response._resource_closers.append(release)  # type: ignore[attr-defined]
    return response

"""Requests whose answer the web process computes itself, from many records: few at a time.

What computes holds the interpreter, which all requests of a process share. Beyond a few of them a
request is refused for a moment, before a thread is kept waiting; a workspace leaves places to
others.
"""

import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager

from django.http import HttpResponseBase

from memory.admission.request_slots import Places
from memory.api.rates import TooMuch

RETRY_SECONDS = 1.0

# Two at a time, and of one workspace one.
_places = Places(2, factor=1)
# What is made out of a whole history may take minutes, and is read as slowly as somebody likes.
# There are four at a time, and of one workspace, or one member of the staff, two.
_downloads = Places(4, factor=1)
DOWNLOAD_RETRY_SECONDS = 10.0


@contextmanager
def computing(workspace_pk: int) -> Iterator[None]:
    """Compute an answer for a workspace in the block; raises TooMuch where others do so already."""
    with _places.take(workspace_pk) as admitted:
        if not admitted:
            raise TooMuch(
                "This server computes as many answers from many records as it does at a time:"
                " come back in a second.",
                "max_computing",
                RETRY_SECONDS,
            )
        yield


def download(whose: Hashable, make: Callable[[], HttpResponseBase]) -> HttpResponseBase:
    """Return the response that `make` makes out of a whole history for a workspace, or a member of
    the staff; raises TooMuch where as many are made, or sent, already.

    It has its place until it is closed: while somebody reads slowly, it keeps a thread.
    """
    with ExitStack() as place:
        if not place.enter_context(_downloads.take(whose)):
            raise TooMuch(
                "This server makes and sends as many zips and clones as it does at a time: come"
                " back in ten seconds.",
                "max_downloads",
                DOWNLOAD_RETRY_SECONDS,
            )
        response = make()
        # One that is not sent after all is not closed by anybody.
        release = weakref.finalize(response, place.pop_all().close)
        response._resource_closers.append(release)  # type: ignore[attr-defined]
    return response

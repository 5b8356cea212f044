"""Requests whose answer the web process computes itself, from many records: few at a time.

What computes holds the interpreter, which all requests of a process share. Beyond a few of them a
request is refused for a moment, before a thread is kept waiting; a workspace leaves places to
others.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from memory.api.places import Places
from memory.api.rates import TooMuch

RETRY_SECONDS = 1.0

# Two at a time, and of one workspace one.
_places = Places(2, factor=1)


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

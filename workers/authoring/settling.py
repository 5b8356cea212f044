"""Settle entries that a language model may fail on, so that one bad entry never blocks a user."""

from collections.abc import Callable, Collection, Mapping, Sequence

from memory.models import LogEntry

# Consecutive single-entry failures before we blame the model instead of the entries.
MAX_SUSPECTS = 3
# That limit grows with each attempt, up to this factor, so that many bad entries in a row do not
# hold up the entries after them forever.
MAX_DOUBT = 10


class NotSettled(Exception):
    """The model produced nothing acceptable for these entries; the message says why."""


def settle(
    pending: Callable[[int, Collection[int]], Sequence[LogEntry]],
    work: Callable[[Sequence[LogEntry]], None],
    reject: Callable[[Mapping[int, str]], None],
    *,
    most: int,
    rounds: int,
    attempt: int = 1,
) -> None:
    """Have `work` settle the pending entries, `most` at a time and at most `rounds` times.

    `pending` takes the maximum number of entries, and the numbers of those to skip. If `work`
    raises NotSettled, fewer entries are tried; an entry that fails alone is skipped, and rejected
    with the reason as soon as another one passes. If none does, nothing is rejected, since the
    fault may be the model's, and NotSettled is raised. `attempt` is 1 at the first attempt at the
    pending entries; later attempts skip more of them.
    """
    size = most
    most_suspects = MAX_SUSPECTS * min(attempt, MAX_DOUBT)
    suspects: dict[int, str] = {}
    last: NotSettled | None = None
    while rounds > 0 and (entries := pending(size, suspects)):
        try:
            work(entries)
        except NotSettled as failure:
            last = failure
            if len(entries) > 1:
                size = len(entries) // 2
                continue
            suspects[entries[0].seq] = str(failure)
            if len(suspects) == most_suspects:
                raise
            continue
        rounds -= 1
        size = min(most, size * 2)
        if suspects:
            reject(suspects)
            suspects, last = {}, None
    if suspects and last:
        raise last

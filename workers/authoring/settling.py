"""Settling entries that a language model may fail on, so that one bad entry never blocks a user."""

from collections.abc import Callable, Collection, Mapping, Sequence

from memory.models import LogEntry

# So many entries that fail by themselves, one after the other with none between them that passes,
# speak against the model and not against the entries.
MOST_SUSPECTS = 3
# That is doubted with each try: so many times as many are passed over in the end, since as many bad
# entries in a row must not keep back for ever what comes after them.
MOST_DOUBT = 10


class NotSettled(Exception):
    """The model came to nothing that can be accepted on these entries; the message says why."""


def settle(
    pending: Callable[[int, Collection[int]], Sequence[LogEntry]],
    work: Callable[[Sequence[LogEntry]], None],
    reject: Callable[[Mapping[int, str]], None],
    *,
    most: int,
    rounds: int,
    attempt: int = 1,
) -> None:
    """Have `work` settle the pending entries, `most` at a time and `rounds` times at most.

    `pending` takes how many entries are wanted at most, and the numbers of those to pass over.
    Where `work` raises NotSettled, fewer are tried; an entry that fails alone is passed over, and
    rejected with the reason as soon as another one passes. Raises NotSettled where none does: then
    nothing is rejected, since it may as well be the model that fails. `attempt` is 1 at the first
    try of what is pending; at later ones more entries are passed over.
    """
    size = most
    most_suspects = MOST_SUSPECTS * min(attempt, MOST_DOUBT)
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

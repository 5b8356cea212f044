"""Settle entries that a language model may fail on, so that a bad entry never blocks a user."""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, auto

from memory.log.models.entries import LogEntry
from workers.llm.interface import CallFailed

# Maximum number of slices, and of windows, settled each time the lane is claimed, so that a user
# with a long backlog doesn't hold up other users.
ROUNDS = 10
# Number of consecutive single-entry failures before we blame the model instead of the entries.
MAX_SUSPECTS = 3
# MAX_SUSPECTS is multiplied by the attempt number, up to this factor, so that many bad entries in a
# row don't hold up the entries after them forever.
MAX_DOUBT = 10


class Blame(Enum):
    """Who is to blame that entries could not be settled."""

    MODEL = auto()  # it did not finish, repeated itself, or sent nothing acceptable
    GATE = auto()  # it refused the edits too often
    CALL = auto()  # the provider could not answer this question
    SERVER = auto()  # our own code failed on the entries


class NotSettled(Exception):
    """The model produced nothing acceptable for these entries; the message gives the reason.

    `call` is the failure of the call to the model, if that is to blame.
    """

    def __init__(
        self, message: str, blame: Blame = Blame.MODEL, *, call: CallFailed | None = None
    ) -> None:
        super().__init__(message)
        self.blame = Blame.CALL if call is not None else blame
        self.call = call


def settle(
    pending: Callable[[int, Collection[int]], Sequence[LogEntry]],
    work: Callable[[Sequence[LogEntry]], None],
    reject: Callable[[Mapping[int, str]], None],
    *,
    most: int,
    attempt: int,
) -> None:
    """Have `work` settle the pending entries, `most` at a time and at most ROUNDS times.

    `pending` takes the maximum number of entries to return and the log numbers of entries to skip.
    If `work` raises NotSettled, it is called again with fewer entries. An entry that fails on its
    own is skipped; as soon as another entry passes, the skipped entry is rejected with the reason.
    If no entry passes, nothing is rejected, since the model may be to blame, and NotSettled is
    raised. `attempt` is how many times these pending entries have been attempted, including this
    time; later attempts skip more entries before giving up.
    """
    size, rounds = most, ROUNDS
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

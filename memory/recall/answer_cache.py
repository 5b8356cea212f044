"""Cached query answers: the same query on the same version always has the same answer.

Sandboxed code gets its clock as an input, and nothing else can differ between two runs of the same
code on the same version. So a query's answer depends only on the version, the code, the user's time
zone, and the current time: the date, since records may lapse, or the exact time if the code uses
it.
"""

import datetime
import re
import unicodedata
from collections.abc import Sequence
from zoneinfo import ZoneInfo

from memory.kernel.canonical import canonical_json, sha256
from memory.kernel.database.statements import Parameter, Statement
from memory.kernel.models.users import MemoryUser
from memory.kernel.texts import with_few_marks
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run, RunKind, RunOutcome

# The version number of the rules for computing and storing answers. Bump it to invalidate all
# cached answers.
RULES = 5
# This pattern also matches inside strings and comments; at worst, a query is rerun even though its
# answer is cached.
_NOW = re.compile(r"\bnow\b")

_EARLIER = Statement(
    lambda: Run.objects.filter(
        checkpoint=Parameter("checkpoint"),
        answer_key=Parameter("key"),
        kind=RunKind.QUERY,
        outcome=RunOutcome.OK,
    ).order_by("-finished_at")[:1]
)


def key_of(
    user: MemoryUser, code: str, instant: datetime.datetime, state_key: Sequence[str | int] = ()
) -> str:
    """Return the cache key for this code at the given time; the key is the same for all versions.

    `state_key` identifies a state that was computed from a version
    (`past_states.KnownState.state_key`); it is empty for the version itself.
    """
    names = unicodedata.normalize("NFKC", with_few_marks(code))  # as Python normalises identifiers
    day = instant.astimezone(ZoneInfo(user.time_zone)).date()
    clock = [user.time_zone, (instant if _NOW.search(names) else day).isoformat()]
    return sha256(canonical_json([RULES, code, clock, *([list(state_key)] if state_key else [])]))


def earlier(checkpoint: Checkpoint, key: str) -> Run | None:
    """Return an earlier run of the same query on this version, or None if there is none."""
    run = _EARLIER.first(checkpoint=checkpoint.pk, key=key)
    if run is not None:
        run.checkpoint = checkpoint
    return run


def forget(user: MemoryUser) -> None:
    """Invalidate all of the user's cached answers."""
    Run.objects.filter(user=user).exclude(answer_key="").update(answer_key="")

"""Cached answers to queries: the same query on the same version has the same answer.

The clock that code in a sandbox sees is an input, and nothing else changes between two runs of the
same code on the same version. So an answer is valid for a version, the code, the user's time zone,
and as much of the current time as the code uses: none of it, the date or the exact time.
"""

import datetime
import re
import unicodedata
from collections.abc import Sequence
from zoneinfo import ZoneInfo

from memory.canonical import canonical_json, sha256
from memory.database.statements import Parameter, Statement
from memory.models import Checkpoint, MemoryUser, Run
from memory.models.runs import RunKind, RunOutcome
from memory.texts import with_few_marks

# The version of the rules for computing and storing answers; a new number invalidates all cached
# answers.
RULES = 3
# These patterns also match inside strings and comments; at worst, a query is then run again
# although its answer is cached.
_NOW, _TODAY = re.compile(r"\bnow\b"), re.compile(r"\btoday\b")

_EARLIER = Statement(
    lambda: Run.objects.filter(
        checkpoint=Parameter("checkpoint"),
        answer_key=Parameter("key"),
        kind=RunKind.QUERY,
        outcome=RunOutcome.OK,
    ).order_by("-finished_at")[:1]
)


def key_of(
    user: MemoryUser, code: str, instant: datetime.datetime, place: Sequence[str | int] = ()
) -> str:
    """Return the cache key for this code at this instant; it is the same for all versions.

    `place` identifies a state computed from a version (`history.Known.place`); it is empty for the
    version itself.
    """
    clock = [user.time_zone]
    names = unicodedata.normalize("NFKC", with_few_marks(code))  # names as Python reads them
    if _NOW.search(names):
        clock += [instant.isoformat()]
    elif _TODAY.search(names):
        clock += [instant.astimezone(ZoneInfo(user.time_zone)).date().isoformat()]
    return sha256(canonical_json([RULES, code, clock, *([list(place)] if place else [])]))


def earlier(checkpoint: Checkpoint, key: str) -> Run | None:
    """Return the run that answered the same query on this version, if there is one."""
    run = _EARLIER.first(checkpoint=checkpoint.pk, key=key)
    if run is not None:
        run.checkpoint = checkpoint
    return run


def forget(user: MemoryUser) -> None:
    """Invalidate all cached answers about the user."""
    Run.objects.filter(user=user).exclude(answer_key="").update(answer_key="")

"""Answers to queries that are given again: one version, asked the same, says the same.

Code in a sandbox is told what it needs to know of the time, and nothing else changes between two
runs of it. So an answer holds for the version, the code, the zone where the user lives and as much
of the moment as the code asks for: none of it, the day there, or all.
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

# What answers say beside the value, and how it is found: another number makes all of them anew.
RULES = 3
# Also in a text or a comment, which costs no more than an evaluation.
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
    """Return what answers to that code at that instant have in common, whatever the version.

    `place` tells a state that is computed from a version from others (`history.Known.place`).
    """
    clock = [user.time_zone]
    names = unicodedata.normalize("NFKC", with_few_marks(code))  # as Python reads them
    if _NOW.search(names):
        clock += [instant.isoformat()]
    elif _TODAY.search(names):
        clock += [instant.astimezone(ZoneInfo(user.time_zone)).date().isoformat()]
    return sha256(canonical_json([RULES, code, clock, *([list(place)] if place else [])]))


def earlier(checkpoint: Checkpoint, key: str) -> Run | None:
    """Return the run that has answered the same about that version, if one has."""
    run = _EARLIER.first(checkpoint=checkpoint.pk, key=key)
    if run is not None:
        run.checkpoint = checkpoint
    return run


def forget(user: MemoryUser) -> None:
    """Have every question about the user answered anew, whatever was answered before."""
    Run.objects.filter(user=user).exclude(answer_key="").update(answer_key="")

"""Track records: a language model whose proposals are refused, or undone, is stopped.

The record of a model in a workspace is read off rows that are there anyway: the first call of each
session, the proposals that the session had judged, and the versions that came of them. So there is
no counter that could be wrong. A session is one try to bring some entries into a project; it counts
as refused if the gate refused a proposal of it and accepted none in the end. One in which nothing
was judged (nobody reached the provider, no sandbox was there, the budget was spent) does not count.
Each user counts alike: one user whom the model fails on, or who wants it to fail, does not stop it
for all others.

The window ends with the newest session and not now, so a model that was stopped stays so until the
staff let it go on, or choose another one.
"""

import datetime
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db import transaction
from django.db.models import (
    BooleanField,
    Count,
    Exists,
    ExpressionWrapper,
    F,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
)
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce, JSONObject
from django.utils import timezone

from memory import language_models, track_record_settings
from memory.language_models import LanguageModelError
from memory.models import Checkpoint, Lane, LlmCall, MemoryUser, Run, Workspace
from memory.models.checkpoints import Origin
from memory.models.llm import LlmPurpose
from memory.models.log import Outcome
from memory.models.runs import RunKind, RunOutcome, RunTrigger
from memory.models.users import LaneName
from memory.track_record_settings import Holding

# What is asked for these purposes writes to users' projects; questions are answered all the same.
AUTHORING = (LlmPurpose.MEMORIZE, LlmPurpose.STRUCTURE)
# A stop begins with this wherever it is told; by it the lanes are found that wait for its end.
STOPPED = "Stopped by its track record: "
# A record changes when the staff undo something or let a model go on: it is looked at again.
AGAIN = datetime.timedelta(minutes=15)


# Of a session after which there was none yet.
_OPEN = datetime.datetime(9999, 1, 1, tzinfo=datetime.UTC)


class Stopped(LanguageModelError):
    """The model makes no more calls for the workspace's users until somebody lets it go on."""


@dataclass(frozen=True)
class _Session:
    """A session that was judged: of whom, how many of its proposals were refused, the version that
    came of it, and whether that was undone."""

    user: int
    refusals: int
    made: int | None
    undone: bool


@dataclass(frozen=True, kw_only=True)
class TrackRecord:
    """What became of a model's last sessions in a workspace: how many were judged, refused in the
    end and accepted, how many of the accepted versions were undone, and how many proposals were
    made and refused in them. The shares are in percent; in them each user counts alike."""

    model: str
    sessions: int = 0
    refused: int = 0
    accepted: int = 0
    undone: int = 0
    proposals: int = 0
    proposals_refused: int = 0
    refused_percent: float = 0.0
    undone_percent: float = 0.0

    def why_stopped(self, limits: Holding) -> str | None:
        """Say why the model is stopped by these limits; None if it is not."""
        told = []
        if (
            self.sessions >= limits.llm_judged_minimum
            and self.refused_percent > limits.llm_refused_percent
        ):
            told.append(
                f"the gate refused {self.refused_percent:.0f} % of the last {self.sessions}"
                f" proposals in the end (limit {limits.llm_refused_percent} %)"
            )
        if (
            self.accepted >= limits.llm_judged_minimum
            and self.undone_percent > limits.llm_undone_percent
        ):
            told.append(
                f"{self.undone_percent:.0f} % of the last {self.accepted} accepted edits were"
                f" undone (limit {limits.llm_undone_percent} %)"
            )
        if not told:
            return None
        return (
            f"{STOPPED}{self.model}: {', and '.join(told)}. Entries wait until the staff let it go"
            " on, or choose another model for the workspace."
        )

    def in_words(self) -> str:
        """Say what the record is, for the staff."""
        if not self.sessions:
            return f"{self.model}: no session was judged yet"
        return (
            f"{self.model}: {self.refused_percent:.0f} % refused in the end ({self.refused} of"
            f" {self.sessions} sessions; {self.proposals_refused} of {self.proposals} proposals),"
            f" {self.undone_percent:.0f} % undone ({self.undone} of {self.accepted} accepted edits)"
        )


def model_of(workspace: Workspace) -> str | None:
    """Return the model that works for a workspace, as calls name it; None if none can."""
    try:
        return language_models.connection(workspace.chosen_llm).name
    except LanguageModelError:
        return None


def why_stopped(
    workspace: Workspace, model: str | None = None, *, ended_for: MemoryUser | None = None
) -> str | None:
    """Say why a model, by default the one chosen, is stopped for a workspace; None if it is not.

    `ended_for` is a user whose last session is over, though his lane is held: by the asker.
    """
    limits = track_record_settings.holding(workspace.chosen_track_record)
    model = model or model_of(workspace)
    if model is None or not limits.may_stop:
        return None
    return read(workspace, model, ended_for=ended_for).why_stopped(limits)


def read(workspace: Workspace, model: str, *, ended_for: MemoryUser | None = None) -> TrackRecord:
    """Return the record of a model in a workspace, by one statement on a bounded number of rows."""
    limits = track_record_settings.holding(workspace.chosen_track_record)
    found = _sessions(workspace, model, limits, ended_for)
    accepted = [one for one in found if one.made is not None]
    refused = [one for one in found if one.made is None]
    gone = [one for one in accepted if one.undone]
    refusals = sum(one.refusals for one in found)
    return TrackRecord(
        model=model,
        sessions=len(found),
        refused=len(refused),
        accepted=len(accepted),
        undone=len(gone),
        proposals=refusals + len(accepted),
        proposals_refused=refusals,
        refused_percent=_percent(refused, found),
        undone_percent=_percent(gone, accepted),
    )


def resume(workspace: Workspace, *, by: str, reason: str) -> str | None:
    """Let the workspace's model go on: it is judged by what it does from now on. Returns its name,
    or None if no model is chosen."""
    model = model_of(workspace)
    if model is None:
        return None
    with transaction.atomic():
        row = Workspace.objects.select_for_update(no_key=True).get(pk=workspace.pk)
        told = {"at": timezone.now().isoformat(), "by": by, "reason": reason}
        row.llm_resumptions = {**(row.llm_resumptions or {}), model: told}
        row.save(update_fields=["llm_resumptions"])
    return model


def resumption(workspace: Workspace, model: str) -> Mapping[str, str] | None:
    """Return since when a model is judged anew, who let it go on and why, if somebody did."""
    found: Mapping[str, str] | None = (workspace.llm_resumptions or {}).get(model)
    return found


def stopped() -> list[tuple[Workspace, str, str]]:
    """Return the workspaces in which entries wait because a model is stopped, with the name of the
    model and the reason."""
    waiting = Lane.objects.filter(
        user__workspace=OuterRef("pk"),
        name=LaneName.STRUCTURE,
        due_at__isnull=False,
        last_error__startswith=STOPPED,
    )
    found = []
    for workspace in Workspace.objects.filter(Exists(waiting)):
        model = model_of(workspace)
        if model and (reason := why_stopped(workspace, model)):
            found.append((workspace, model, reason))
    return found


# -- How it is read ------------------------------------------------------------------------------


def _first_calls() -> QuerySet[LlmCall]:
    """Select the first call of every session."""
    return LlmCall.objects.filter(purpose=LlmPurpose.STRUCTURE, turn=1, attempt=1)


def _sessions(
    workspace: Workspace, model: str, limits: Holding, ended_for: MemoryUser | None
) -> list[_Session]:
    """Return the sessions of the window that have ended and were judged.

    A user has one session at a time: what is proposed from its beginning up to the next one's is of
    this one. The newest one goes on as long as somebody holds the user's lane.
    """
    begun = _first_calls().filter(workspace=workspace, model=model, user__isnull=False)
    if again := resumption(workspace, model):
        begun = begun.filter(started_at__gt=datetime.datetime.fromisoformat(again["at"]))
    newest = begun.order_by("-started_at").values("started_at")[:1]
    later = _first_calls().filter(user=OuterRef("user"), started_at__gt=OuterRef("started_at"))
    held = Lane.objects.filter(
        user=OuterRef("user"), name=LaneName.STRUCTURE, lease_expires_at__gt=timezone.now()
    )
    going_on = Q(until=_OPEN) & Q(Exists(held))
    if ended_for is not None:
        going_on &= ~Q(user=ended_for)
    proposals = Run.objects.filter(
        user=OuterRef("user"),
        kind=RunKind.PROPOSAL,
        trigger=RunTrigger.MODEL,
        queued_at__gte=OuterRef("started_at"),
        queued_at__lt=OuterRef("until"),
    ).order_by()
    refusals = proposals.filter(outcome=RunOutcome.REJECTED).values("user")
    # The version of one that was committed, and not only checked.
    committed = proposals.filter(outcome=RunOutcome.OK).annotate(
        version=Cast(KT("output__version"), IntegerField())
    )
    restored = Checkpoint.objects.filter(
        user=OuterRef("user"), origin=Origin.RESTORED, version__gt=OuterRef("made")
    ).order_by()
    told = JSONObject(
        at="version", to="verdict__restored__version", outcomes="verdict__reopened__outcomes"
    )
    since = Subquery(newest) - datetime.timedelta(days=limits.llm_judged_days)
    rows = (
        begun.filter(started_at__gte=since)
        .order_by("-started_at")
        .annotate(
            until=Coalesce(
                Subquery(later.order_by("started_at").values("started_at")[:1]), Value(_OPEN)
            )
        )
        .annotate(
            refusals=Coalesce(Subquery(refusals.annotate(n=Count("pk")).values("n")), 0),
            made=Coalesce(
                F("checkpoint__version"),
                Subquery(committed.filter(version__isnull=False).values("version")[:1]),
            ),
            goes_on=ExpressionWrapper(going_on, BooleanField()),
        )
        .annotate(restored=ArraySubquery(restored.values(told=told)))
        .values_list("user_id", "refusals", "made", "goes_on", "restored")
    )
    return [
        _Session(user, refusals, made, made is not None and _is_undone(made, restored_later))
        for user, refusals, made, goes_on, restored_later in rows[: limits.llm_judged_sessions]
        if not goes_on and (made is not None or refusals)
    ]


def _is_undone(version: int, restored: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a version was undone by one of those `restored` after it: left out by a return
    to an earlier one, or entries reopened that it had settled; unless that was undone in turn."""
    returns = {one["at"]: one["to"] for one in restored if one["outcomes"] is None}
    reopened = (
        one["at"]
        for one in restored
        if [Outcome.COVERED, version] in [row[1:] for row in one["outcomes"] or ()]
    )
    return _is_left_out(version, returns) or any(not _is_left_out(at, returns) for at in reopened)


def _is_left_out(version: int, returns: Mapping[int, int]) -> bool:
    """Tell whether a version is not among those that the newest one was made of; `returns` has the
    versions that were returns to an earlier one, and to which."""
    last = max(version, *returns) if returns else version
    for at in sorted(returns, reverse=True):
        if at > last:
            continue  # it was left out itself
        if at <= version:
            break
        last = returns[at]
    return version > last


def _percent(some: Sequence[_Session], of: Sequence[_Session]) -> float:
    """Return which share of the sessions these are, as the mean of the users' own shares."""
    whole, part = (Counter(one.user for one in those) for those in (of, some))
    return 100 * sum(part[user] / whole[user] for user in whole) / len(whole) if whole else 0.0

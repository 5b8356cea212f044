"""Track records: a language model is stopped if too many of its sessions are refused or undone.

A session is one attempt to bring some entries into a project. It begins with the call that asks for
edits, or with the call that asks for facts if that call also returns the edits. When a session
ends, its result is recorded on its first call: by the gate, in the transaction that stores what it
accepts, or by the worker, if the gate refused proposals and never accepted one. A session does not
count if no proposal was judged in it, or if it was interrupted (by the provider, a budget, a lost
lease or a stop).

A stop is stored with the workspace, so it lasts, even if calls or users are deleted, until staff
let the model continue or choose another model.
"""

import datetime
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction
from django.db.models import Exists, Func, IntegerField, JSONField, OuterRef, Q, QuerySet, Subquery
from django.db.models.fields.json import KT
from django.db.models.functions import Cast
from django.utils import timezone

from memory.kernel.models.users import Lane, LaneName
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings import language_models
from memory.kernel.settings.language_models import LanguageModelError
from memory.kernel.settings.track_record_settings import EffectiveSettings
from memory.llm.models import LlmCall, LlmPurpose
from memory.versions.models.checkpoints import Checkpoint, Origin

# Calls for these purposes write to users' projects; a stopped model still answers questions.
AUTHORING = (LlmPurpose.MEMORIZE, LlmPurpose.STRUCTURE)
# The beginning of every message about a stopped model; this prefix identifies the lanes that are
# waiting for the stop to end.
STOPPED = "Stopped by its track record: "
# How long a lane waits before the stop is checked again: the track record changes when staff undo
# something or resume a model.
AGAIN = datetime.timedelta(minutes=15)
# The sessions to judge are chosen from LOOKED_AT times as many recent ones. If several users have
# sessions, one user gets at most 1 / USERS_PART of them.
LOOKED_AT = 4
USERS_PART = 5


class Stopped(LanguageModelError):
    """The model must not write to the workspace's projects until staff let it continue."""


@dataclass(frozen=True, kw_only=True)
class TrackRecord:
    """The results of a model's latest sessions in a workspace.

    `refused` counts the sessions that were refused after all attempts, `accepted` those that
    produced a version, and `undone` those whose version was undone. `proposals` and
    `proposals_refused` count the proposals in all sessions. `stopped` is the reason why the model
    is stopped, if it is.
    """

    model: str
    sessions: int = 0
    refused: int = 0
    accepted: int = 0
    undone: int = 0
    proposals: int = 0
    proposals_refused: int = 0
    stopped: str | None = None

    @property
    def refused_percent(self) -> float:
        """The percentage of the sessions that were refused."""
        return _percent(self.refused, self.sessions)

    @property
    def undone_percent(self) -> float:
        """The percentage of the accepted edits that were undone."""
        return _percent(self.undone, self.accepted)

    def exceeded(self, limits: EffectiveSettings) -> list[str]:
        """Describe each limit that the percentages exceed."""
        exceeded = []
        least, most = limits.llm_judged_minimum, limits.llm_refused_percent
        if self.sessions >= least and self.refused_percent > most:
            exceeded.append(
                f"after all attempts, the gate refused {self.refused_percent:.0f} % of the last"
                f" {self.sessions} sessions (limit {most} %)"
            )
        most = limits.llm_undone_percent
        if self.accepted >= least and self.undone_percent > most:
            exceeded.append(
                f"{self.undone_percent:.0f} % of the last {self.accepted} accepted edits were"
                f" undone (limit {most} %)"
            )
        return exceeded

    def in_words(self) -> str:
        """Describe the track record for staff."""
        if not self.sessions:
            return f"{self.model}: no session has been judged yet"
        return (
            f"{self.model}: {self.refused_percent:.0f} % refused after all attempts"
            f" ({self.refused} of {self.sessions} sessions; {self.proposals_refused} of"
            f" {self.proposals} proposals), {self.undone_percent:.0f} % undone ({self.undone} of"
            f" {self.accepted} accepted edits)"
        )


def model_of(workspace: Workspace) -> str | None:
    """Return the workspace's model name, as recorded in calls; None if no model can be used."""
    try:
        return language_models.connection(workspace.chosen_llm).name
    except LanguageModelError:
        return None


def why_stopped(workspace: Workspace, model: str | None = None) -> str | None:
    """Return why a model (by default the workspace's own) is stopped; None if it is not."""
    limits = workspace.track_record_limits
    model = model or model_of(workspace)
    if model is None or not limits.may_stop:
        return None
    return read(workspace, model).stopped


def judge(workspace: Workspace) -> str | None:
    """Judge the workspace's model, and store whether it is stopped; return the reason, if any.

    The caller must have locked the workspace's row, and must pass the instance read under that
    lock.
    """
    model = model_of(workspace)
    if model is None:
        return None
    reason = why_stopped(workspace, model)
    stops = workspace.llm_stops or {}
    if reason is not None and model not in stops:
        at = timezone.now().isoformat()
        workspace.llm_stops = {**stops, model: {"at": at, "reason": reason}}
        workspace.save(update_fields=["llm_stops"])
    return reason


def note_accepted(work: str, refusals: int, made: Checkpoint | None) -> None:
    """Record that the gate accepted a session's proposal after refusing `refusals` others.

    `work` identifies the session, and `made` is the resulting version, if any file changed. Call
    this in the transaction that stores the accepted proposal.
    """
    calls = LlmCall.objects.filter(work=work)
    calls.update(checkpoint=made)
    calls.filter(**_FIRST).update(accepted=True, refusals=refusals)


def note_refused(workspace_pk: int, work: uuid.UUID, refusals: int) -> None:
    """Record that a session has failed after `refusals` refused proposals, and judge the model."""
    with transaction.atomic():
        workspace = Workspace.objects.select_for_update(no_key=True).get(pk=workspace_pk)
        LlmCall.objects.filter(work=work, **_FIRST).update(accepted=False, refusals=refusals)
        judge(workspace)


def read(workspace: Workspace, model: str) -> TrackRecord:
    """Return a model's track record in a workspace, computed from its latest sessions."""
    limits = workspace.track_record_limits
    sessions = _sessions(workspace, model, limits)
    refused = sum(not session["accepted"] for session in sessions)
    refusals = sum(session["refusals"] or 0 for session in sessions)
    record = TrackRecord(
        model=model,
        sessions=len(sessions),
        refused=refused,
        accepted=sum(session["checkpoint"] is not None for session in sessions),
        undone=_count_undone(sessions),
        proposals=refusals + len(sessions) - refused,
        proposals_refused=refusals,
    )
    if stop := (workspace.llm_stops or {}).get(model):
        return replace(record, stopped=stop["reason"])
    if exceeded := record.exceeded(limits):
        reason = (
            f"{STOPPED}{model}: {', and '.join(exceeded)}. Entries wait until staff let the model"
            " continue, or choose another model for the workspace."
        )
        return replace(record, stopped=reason)
    return record


def resume(workspace: Workspace, *, by: str, reason: str) -> str | None:
    """Let the workspace's model continue: from now on, only its new sessions are judged.

    Returns the model's name, or None if no model is set.
    """
    model = model_of(workspace)
    if model is None:
        return None
    with transaction.atomic():
        row = Workspace.objects.select_for_update(no_key=True).get(pk=workspace.pk)
        entry = {"at": timezone.now().isoformat(), "by": by, "reason": reason}
        row.llm_resumptions = {**(row.llm_resumptions or {}), model: entry}
        row.llm_stops = {name: one for name, one in (row.llm_stops or {}).items() if name != model}
        row.save(update_fields=["llm_resumptions", "llm_stops"])
    return model


def resumption(workspace: Workspace, model: str) -> Mapping[str, str] | None:
    """Return when, by whom and why a model was last resumed; None if it was never resumed."""
    entry: Mapping[str, str] | None = (workspace.llm_resumptions or {}).get(model)
    return entry


def stopped() -> list[tuple[Workspace, str, str]]:
    """Return (workspace, model, reason) for workspaces whose entries wait for a stopped model."""
    waiting = Lane.objects.filter(
        user__workspace=OuterRef("pk"),
        name=LaneName.STRUCTURE,
        due_at__isnull=False,
        last_error__startswith=STOPPED,
    )
    rows = []
    for workspace in Workspace.objects.filter(Exists(waiting)):
        model = model_of(workspace)
        if model and (reason := why_stopped(workspace, model)):
            rows.append((workspace, model, reason))
    return rows


# -- Reading a track record -----------------------------------------------------------------------

# Matches the first call of a session.
_FIRST = {"turn": 1, "attempt": 1}


def _judged(workspace: Workspace, model: str) -> QuerySet[LlmCall]:
    """Select the first call of every session judged since the model was resumed.

    Only first calls have a value for `accepted`, so the query needs no filter for first calls; an
    extra filter would make PostgreSQL use another index.
    """
    judged = LlmCall.objects.filter(
        workspace=workspace, model=model, user__isnull=False, accepted__isnull=False
    ).order_by("-started_at")
    if again := resumption(workspace, model):
        judged = judged.filter(started_at__gt=datetime.datetime.fromisoformat(again["at"]))
    return judged


def _sessions(
    workspace: Workspace, model: str, limits: EffectiveSettings
) -> Sequence[Mapping[str, Any]]:
    """Return the latest sessions, from the days before the newest one.

    If several users have sessions, each has at most a fifth of them: one user whose content is
    always refused must not stop the model for all.
    """
    judged = _judged(workspace, model)
    days = datetime.timedelta(days=limits.llm_judged_days)
    number = limits.llm_judged_sessions
    recent = list(
        judged.filter(started_at__gte=Subquery(judged.values("started_at")[:1]) - days).values(
            "pk", "user", "accepted", "refusals", "checkpoint"
        )[: number * LOOKED_AT]
    )
    users = {session["user"] for session in recent}
    most = max(1, number // USERS_PART) if len(users) > 1 else number
    by_user: Counter[object] = Counter()
    sessions = []
    for session in recent:
        by_user[session["user"]] += 1
        if by_user[session["user"]] <= most:
            sessions.append(session)
    return sessions[:number]


def _count_undone(sessions: Sequence[Mapping[str, Any]]) -> int:
    """Return how many of these sessions were undone.

    After the session's version, a rollback went back before it or an entry that it had settled was
    reopened, even if that was undone in turn.
    """
    version = OuterRef("checkpoint__version")
    as_json = Func(version, function="to_jsonb", output_field=JSONField())
    undoing = Checkpoint.objects.filter(
        user=OuterRef("user"), origin=Origin.RESTORED, version__gt=version
    ).alias(restored=Cast(KT("verdict__restored__version"), IntegerField()))
    undone = undoing.filter(
        Q(restored__lt=version) | Q(verdict__reopened__versions__contains=as_json)
    )
    calls = LlmCall.objects.filter(pk__in=[session["pk"] for session in sessions])
    return calls.filter(Exists(undone)).count()


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0

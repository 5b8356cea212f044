"""Track records: a language model is stopped if too many of its sessions are refused or undone.

A session is one attempt to bring some entries into a project. It begins with the call that asks for
edits, or with the call that asks for facts if that call also returns the edits. When a session
ends, its result is recorded on its first call: by the gate, in the transaction that stores what it
accepts, or by the worker, if the gate refused proposals and never accepted one. A session does not
count if no proposal was judged in it, or if it was interrupted (by the provider, a budget, a lost
lease or a stop).

A model that fails for a single user, even one who makes it fail on purpose, is not stopped for
everybody. As long as other users have sessions, at most a fifth of the sessions that are judged
belong to one user. A model is stopped only if the mean over all users also exceeds the limit and,
if several users have sessions, only if sessions from at least three users have been judged.

A stop is stored with the workspace, so it lasts, even if calls or users are deleted, until staff
let the model continue, change a limit, or choose another model.
"""

import datetime
import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery
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
# The sessions to judge (the window) are chosen from LOOKED_AT times as many recent sessions. As
# long as other users have sessions, one user gets at most 1 / USERS_PART of the window.
LOOKED_AT = 4
USERS_PART = 5
# If several users have sessions, a model is stopped only once sessions from at least this many
# users have been judged.
MIN_USERS = 3


class Stopped(LanguageModelError):
    """The model must not write to the workspace's projects until staff let it continue."""


@dataclass(frozen=True)
class _Session:
    """A session that has been judged.

    `refusals` is the number of its refused proposals, and `version` is the version it produced, if
    any. `followed` is True if a rollback or reopening came after that version, and `undone` is True
    if the version was undone.
    """

    user: int
    accepted: bool
    refusals: int
    version: int | None
    followed: bool
    undone: bool = False


@dataclass(frozen=True, kw_only=True)
class TrackRecord:
    """The results of a model's latest sessions in a workspace.

    `refused` counts the sessions that were refused after all attempts, `accepted` those that
    produced a version, and `undone` those whose version was undone. `proposals` and
    `proposals_refused` count the proposals in all sessions. A `…_mean` is the mean of the users'
    percentages, so that each user has the same weight. `stopped` is the reason why the model is
    stopped, if it is.
    """

    model: str
    users: int = 0
    sessions: int = 0
    refused: int = 0
    accepted: int = 0
    undone: int = 0
    proposals: int = 0
    proposals_refused: int = 0
    refused_percent: float = 0.0
    refused_mean: float = 0.0
    undone_percent: float = 0.0
    undone_mean: float = 0.0
    stopped: str | None = None

    def exceeded(self, limits: EffectiveSettings) -> list[str]:
        """Describe each limit that both the percentage and the mean over users exceed."""
        told = []
        least, most = limits.llm_judged_minimum, limits.llm_refused_percent
        if self.sessions >= least and min(self.refused_percent, self.refused_mean) > most:
            told.append(
                f"after all attempts, the gate refused {self.refused_percent:.0f} % of the last"
                f" {self.sessions} sessions (mean over users {self.refused_mean:.0f} %, limit"
                f" {most} %)"
            )
        most = limits.llm_undone_percent
        if self.accepted >= least and min(self.undone_percent, self.undone_mean) > most:
            told.append(
                f"{self.undone_percent:.0f} % of the last {self.accepted} accepted edits were"
                f" undone (mean over users {self.undone_mean:.0f} %, limit {most} %)"
            )
        return told

    def in_words(self) -> str:
        """Describe the track record for staff."""
        if not self.sessions:
            return f"{self.model}: no session has been judged yet"
        return (
            f"{self.model}: {self.refused_percent:.0f} % refused after all attempts"
            f" ({self.refused} of {self.sessions} sessions, mean over users"
            f" {self.refused_mean:.0f} %; {self.proposals_refused} of {self.proposals} proposals),"
            f" {self.undone_percent:.0f} % undone ({self.undone} of {self.accepted} accepted"
            f" edits, mean over users {self.undone_mean:.0f} %)"
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
    return _kept(workspace, model, limits) or read(workspace, model).stopped


def judge(workspace: Workspace) -> str | None:
    """Judge the workspace's model, and store whether it is stopped; return the reason, if any.

    The caller must have locked the workspace's row, and must pass the instance read under that
    lock.
    """
    model = model_of(workspace)
    if model is None:
        return None
    limits = workspace.track_record_limits
    reason = why_stopped(workspace, model)
    stops = dict(workspace.llm_stops or {})
    if reason is None:
        stops.pop(model, None)
    elif _kept(workspace, model, limits) is None:
        at = timezone.now().isoformat()
        stops[model] = {"at": at, "reason": reason, "limits": asdict(limits)}
    if stops != (workspace.llm_stops or {}):
        workspace.llm_stops = stops
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
    """Return a model's track record in a workspace, computed from its latest sessions.

    This takes one SQL statement, plus one if some versions may have been undone, plus one if a
    limit is exceeded but sessions from only a few users have been judged.
    """
    limits = workspace.track_record_limits
    found = _sessions(workspace, model, limits)
    refused = [one for one in found if not one.accepted]
    made = [one for one in found if one.version is not None]
    undone = [one for one in made if one.undone]
    users = {one.user for one in found}
    refusals = sum(one.refusals for one in found)
    record = TrackRecord(
        model=model,
        users=len(users),
        sessions=len(found),
        refused=len(refused),
        accepted=len(made),
        undone=len(undone),
        proposals=refusals + len(found) - len(refused),
        proposals_refused=refusals,
        refused_percent=_percent(len(refused), len(found)),
        refused_mean=_mean(refused, found),
        undone_percent=_percent(len(undone), len(made)),
        undone_mean=_mean(undone, made),
    )
    stopped = _kept(workspace, model, limits)
    told = [] if stopped else record.exceeded(limits)
    if told and not _spares(workspace, model, limits, users):
        stopped = (
            f"{STOPPED}{model}: {', and '.join(told)}. Entries wait until staff let the model"
            " continue, or choose another model for the workspace."
        )
    return replace(record, stopped=stopped)


def resume(workspace: Workspace, *, by: str, reason: str) -> str | None:
    """Let the workspace's model continue: from now on, only its new sessions are judged.

    Returns the model's name, or None if no model is set.
    """
    model = model_of(workspace)
    if model is None:
        return None
    with transaction.atomic():
        row = Workspace.objects.select_for_update(no_key=True).get(pk=workspace.pk)
        told = {"at": timezone.now().isoformat(), "by": by, "reason": reason}
        row.llm_resumptions = {**(row.llm_resumptions or {}), model: told}
        row.llm_stops = {name: one for name, one in (row.llm_stops or {}).items() if name != model}
        row.save(update_fields=["llm_resumptions", "llm_stops"])
    return model


def resumption(workspace: Workspace, model: str) -> Mapping[str, str] | None:
    """Return when, by whom and why a model was last resumed; None if it was never resumed."""
    found: Mapping[str, str] | None = (workspace.llm_resumptions or {}).get(model)
    return found


def stopped() -> list[tuple[Workspace, str, str]]:
    """Return (workspace, model, reason) for workspaces whose entries wait for a stopped model."""
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


# -- Reading a track record -----------------------------------------------------------------------

# Matches the first call of a session.
_FIRST = {"turn": 1, "attempt": 1}


def _kept(workspace: Workspace, model: str, limits: EffectiveSettings) -> str | None:
    """Return the stored stop's reason; None if no stop is stored or the limits have changed."""
    stop = (workspace.llm_stops or {}).get(model)
    return stop["reason"] if stop and stop["limits"] == asdict(limits) else None


def _begun(workspace: Workspace, model: str) -> QuerySet[LlmCall]:
    """Select the first call of every session, judged or not.

    A session that began by asking for facts is included only once it has been judged. There is a
    partial index for each of the two conditions.
    """
    structuring = Q(purpose=LlmPurpose.STRUCTURE, **_FIRST)
    return LlmCall.objects.filter(
        structuring | Q(accepted__isnull=False),
        workspace=workspace,
        model=model,
        user__isnull=False,
    )


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


def _lately(
    calls: QuerySet[LlmCall], judged: QuerySet[LlmCall], limits: EffectiveSettings
) -> QuerySet[LlmCall]:
    """Keep only calls from the `llm_judged_days` days before the newest judged session."""
    days = datetime.timedelta(days=limits.llm_judged_days)
    return calls.filter(started_at__gte=Subquery(judged.values("started_at")[:1]) - days)


def _spares(
    workspace: Workspace, model: str, limits: EffectiveSettings, users: Collection[int]
) -> bool:
    """Return whether the model keeps running although it exceeds a limit.

    This is the case if sessions from too few users have been judged while other users have
    sessions, too.
    """
    if len(users) >= MIN_USERS:
        return False
    others = _begun(workspace, model).exclude(user__in=users)
    return _lately(others, _judged(workspace, model), limits).exists()


def _sessions(workspace: Workspace, model: str, limits: EffectiveSettings) -> list[_Session]:
    """Return the sessions to judge: first each user's newest, up to a user's maximum share.

    If that leaves room in the window, the newest of the remaining sessions fill it.
    """
    judged = _judged(workspace, model)
    restored = Checkpoint.objects.filter(
        user=OuterRef("user"), origin=Origin.RESTORED, version__gt=OuterRef("checkpoint__version")
    )
    rows = (
        _lately(judged, judged, limits)
        .annotate(followed=Exists(restored))
        .values_list("user_id", "accepted", "refusals", "checkpoint__version", "followed")
    )
    part = max(1, limits.llm_judged_sessions // USERS_PART)
    number: Counter[int] = Counter()
    within: list[_Session] = []
    beyond: list[_Session] = []
    most = LOOKED_AT * limits.llm_judged_sessions
    for user, accepted, refusals, version, followed in rows[:most]:
        number[user] += 1
        session = _Session(user, bool(accepted), refusals or 0, version, followed)
        (within if number[user] <= part else beyond).append(session)
    window = [*within, *beyond][: limits.llm_judged_sessions]
    changes = _changes({one.user for one in window if one.followed})
    return [
        replace(one, undone=one.version is not None and _is_undone(one.version, changes[one.user]))
        for one in window
    ]


@dataclass(frozen=True)
class _Changes:
    """The rollbacks and reopenings in a user's history.

    `returns` maps the version of each rollback to the version that it restored. `reopenings` maps
    the version of each reopening to the versions whose entries it reopened.
    """

    returns: dict[int, int] = field(default_factory=dict)
    reopenings: dict[int, Sequence[int]] = field(default_factory=dict)


def _changes(users: Collection[int]) -> Mapping[int, _Changes]:
    found: dict[int, _Changes] = defaultdict(_Changes)
    restored = Checkpoint.objects.filter(user__in=users, origin=Origin.RESTORED).order_by()
    for user, at, to, reopened in restored.values_list(
        "user_id", "version", "verdict__restored__version", "verdict__reopened__versions"
    ):
        if reopened is None:
            found[user].returns[at] = to
        else:
            found[user].reopenings[at] = reopened
    return found


def _is_undone(version: int, changes: _Changes) -> bool:
    """Return whether a later change that is still in effect undid this version.

    A version is undone if a rollback excluded it, or if entries that it settled were reopened.
    """
    return _is_left_out(version, changes.returns) or any(
        version in versions and not _is_left_out(at, changes.returns)
        for at, versions in changes.reopenings.items()
    )


def _is_left_out(version: int, returns: Mapping[int, int]) -> bool:
    """Return whether a rollback has excluded this version from the history of the newest one.

    `returns` maps the version of each rollback to the version that it restored.
    """
    last = max(version, *returns) if returns else version
    for at in sorted(returns, reverse=True):
        if at > last:
            continue  # this rollback was itself excluded
        if at <= version:
            break
        last = returns[at]
    return version > last


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _mean(some: Sequence[_Session], of: Sequence[_Session]) -> float:
    """Return the mean over users of the percentage of each user's sessions that are in `some`."""
    whole, part = (Counter(one.user for one in those) for those in (of, some))
    shares = [_percent(part[user], whole[user]) for user in whole]
    return sum(shares) / len(shares) if shares else 0.0

"""Track records: a language model whose proposals are refused, or undone, is stopped.

A session is one try to bring some entries into a project. What came of it is noted with its first
call when it ends: by the gate, in the transaction of what it accepts, or by the worker, where the
model came to nothing after the gate had refused it. One in which nothing was judged, or that was
cut off (by the provider, a budget, a lost lease, a stop), does not count.

One user whom the model fails on, or who wants it to fail, does not stop it for all others: in the
last sessions a user has a fifth at most while others have some, the mean over the users has to
exceed the limit as well, and of several users three have to be judged.

A stop is kept with the workspace. So it lasts, whatever is deleted meanwhile, until the staff let
the model go on, change a limit, or choose another one.
"""

import datetime
import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet, Subquery
from django.utils import timezone

from memory.llm import language_models
from memory.llm.language_models import LanguageModelError
from memory.models import Checkpoint, Lane, LlmCall, Workspace
from memory.models.checkpoints import Origin
from memory.models.llm import LlmPurpose
from memory.models.users import LaneName
from memory.workspace_settings import track_record_settings
from memory.workspace_settings.track_record_settings import Holding

# What is asked for these purposes writes to users' projects; questions are answered all the same.
AUTHORING = (LlmPurpose.MEMORIZE, LlmPurpose.STRUCTURE)
# A stop begins with this wherever it is told; by it the lanes are found that wait for its end.
STOPPED = "Stopped by its track record: "
# A record changes when the staff undo something or let a model go on: it is looked at again.
AGAIN = datetime.timedelta(minutes=15)
# The window is chosen from so many times as many sessions, and a user has this part of it at most
# while others have some.
LOOKED_AT = 4
USERS_PART = 5
# Of several users so many are judged before a model is stopped.
MIN_USERS = 3


class Stopped(LanguageModelError):
    """The model makes no more calls for the workspace's users until somebody lets it go on."""


@dataclass(frozen=True)
class _Session:
    """A session that was judged: of whom, whether the gate accepted it, how many of its proposals
    were refused before, the version that it made, if it did, whether something was taken back since
    that was there, and whether that has undone it."""

    user: int
    accepted: bool
    refusals: int
    version: int | None
    followed: bool
    undone: bool = False


@dataclass(frozen=True, kw_only=True)
class TrackRecord:
    """What became of a model's last sessions in a workspace: of how many users they are, how many
    were refused in the end, made a version, and had it undone, and how many proposals were made and
    refused in them. Shares are in percent; a mean is that of the users' own shares. `stopped` says
    why the model is stopped, if it is."""

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

    def exceeded(self, limits: Holding) -> list[str]:
        """Say which of the limits are exceeded, by the share and by the mean over the users."""
        told = []
        least, most = limits.llm_judged_minimum, limits.llm_refused_percent
        if self.sessions >= least and min(self.refused_percent, self.refused_mean) > most:
            told.append(
                f"the gate refused {self.refused_percent:.0f} % of the last {self.sessions}"
                f" sessions in the end (mean over users {self.refused_mean:.0f} %, limit {most} %)"
            )
        most = limits.llm_undone_percent
        if self.accepted >= least and min(self.undone_percent, self.undone_mean) > most:
            told.append(
                f"{self.undone_percent:.0f} % of the last {self.accepted} accepted edits were"
                f" undone (mean over users {self.undone_mean:.0f} %, limit {most} %)"
            )
        return told

    def in_words(self) -> str:
        """Say what the record is, for the staff."""
        if not self.sessions:
            return f"{self.model}: no session was judged yet"
        return (
            f"{self.model}: {self.refused_percent:.0f} % refused in the end ({self.refused} of"
            f" {self.sessions} sessions, mean over users {self.refused_mean:.0f} %;"
            f" {self.proposals_refused} of {self.proposals} proposals),"
            f" {self.undone_percent:.0f} % undone ({self.undone} of {self.accepted} accepted edits,"
            f" mean over users {self.undone_mean:.0f} %)"
        )


def model_of(workspace: Workspace) -> str | None:
    """Return the model that works for a workspace, as calls name it; None if none can."""
    try:
        return language_models.connection(workspace.chosen_llm).name
    except LanguageModelError:
        return None


def why_stopped(workspace: Workspace, model: str | None = None) -> str | None:
    """Say why a model, by default the one chosen, is stopped for a workspace; None if it is not."""
    limits = _limits(workspace)
    model = model or model_of(workspace)
    if model is None or not limits.may_stop:
        return None
    return _kept(workspace, model, limits) or read(workspace, model).stopped


def judge(workspace: Workspace) -> str | None:
    """Say why the workspace's model is stopped, and keep that with the workspace.

    Call it under the lock of the workspace's row, with what that holds.
    """
    model = model_of(workspace)
    if model is None:
        return None
    limits = _limits(workspace)
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
    """Note with a session's calls that the gate accepts what it proposes, after so many proposals
    that it refused, and which version it made, if any file has changed.

    Call it in the transaction of what is accepted.
    """
    calls = LlmCall.objects.filter(work=work)
    calls.update(checkpoint=made)
    calls.filter(**_FIRST).update(accepted=True, refusals=refusals)


def note_refused(workspace_pk: int, work: uuid.UUID, refusals: int) -> None:
    """Note that a session has come to nothing after the gate refused so many proposals, and judge
    the model."""
    with transaction.atomic():
        workspace = Workspace.objects.select_for_update(no_key=True).get(pk=workspace_pk)
        LlmCall.objects.filter(work=work, **_FIRST).update(accepted=False, refusals=refusals)
        judge(workspace)


def read(workspace: Workspace, model: str) -> TrackRecord:
    """Return the record of a model in a workspace, from a bounded number of its sessions.

    It takes one statement, one more if some versions may have been undone, and one more if few
    users have exceeded a limit.
    """
    limits = _limits(workspace)
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
            f"{STOPPED}{model}: {', and '.join(told)}. Entries wait until the staff let it go on,"
            " or choose another model for the workspace."
        )
    return replace(record, stopped=stopped)


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
        row.llm_stops = {name: one for name, one in (row.llm_stops or {}).items() if name != model}
        row.save(update_fields=["llm_resumptions", "llm_stops"])
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

# What the first call of a session is told by.
_FIRST = {"purpose": LlmPurpose.STRUCTURE, "turn": 1, "attempt": 1}


def _limits(workspace: Workspace) -> Holding:
    return track_record_settings.holding(workspace.chosen_track_record)


def _kept(workspace: Workspace, model: str, limits: Holding) -> str | None:
    """Return the reason of the stop that is kept, unless it was made by other limits."""
    stop = (workspace.llm_stops or {}).get(model)
    return stop["reason"] if stop and stop["limits"] == asdict(limits) else None


def _begun(workspace: Workspace, model: str) -> QuerySet[LlmCall]:
    """Select the first call of every session."""
    return LlmCall.objects.filter(workspace=workspace, model=model, user__isnull=False, **_FIRST)


def _judged(workspace: Workspace, model: str) -> QuerySet[LlmCall]:
    """Select the first call of every session that was judged since the model was let go on.

    That none but first calls say `accepted` is not asked for: another index would do for that.
    """
    judged = LlmCall.objects.filter(
        workspace=workspace, model=model, user__isnull=False, accepted__isnull=False
    ).order_by("-started_at")
    if again := resumption(workspace, model):
        judged = judged.filter(started_at__gt=datetime.datetime.fromisoformat(again["at"]))
    return judged


def _lately(
    calls: QuerySet[LlmCall], judged: QuerySet[LlmCall], limits: Holding
) -> QuerySet[LlmCall]:
    """Keep the calls in the days before the newest session that was judged."""
    days = datetime.timedelta(days=limits.llm_judged_days)
    return calls.filter(started_at__gte=Subquery(judged.values("started_at")[:1]) - days)


def _spares(workspace: Workspace, model: str, limits: Holding, users: Collection[int]) -> bool:
    """Return whether too few users are judged to stop the model, while others use it."""
    if len(users) >= MIN_USERS:
        return False
    others = _begun(workspace, model).exclude(user__in=users)
    return _lately(others, _judged(workspace, model), limits).exists()


def _sessions(workspace: Workspace, model: str, limits: Holding) -> list[_Session]:
    """Return the sessions of the window: the newest, first as many of each user as is a user's
    part, and then of the others as many as there is room for."""
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
    """What was undone of a user: the versions that were returns to an earlier one, and to which;
    and those by which entries were reopened, and whose versions' they were."""

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
    """Return whether a version was undone by what came after it: left out by a return to an earlier
    one, or entries reopened that it had settled; unless that was undone in turn."""
    return _is_left_out(version, changes.returns) or any(
        version in versions and not _is_left_out(at, changes.returns)
        for at, versions in changes.reopenings.items()
    )


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


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _mean(some: Sequence[_Session], of: Sequence[_Session]) -> float:
    """Return which share of the sessions these are, as the mean of the users' own shares."""
    whole, part = (Counter(one.user for one in those) for those in (of, some))
    shares = [_percent(part[user], whole[user]) for user in whole]
    return sum(shares) / len(shares) if shares else 0.0

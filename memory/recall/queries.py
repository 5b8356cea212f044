"""Queries and other runs requested by API clients or staff."""

import datetime

from memory.kernel.models.users import MemoryUser
from memory.kernel.sent_code import tidied
from memory.kernel.users import refuse_merged
from memory.recall import answer_cache
from memory.versions import past_states, runs
from memory.versions.models.runs import REPEATABLE, Run, RunKind, RunTrigger
from memory.versions.past_states import KnownState, version_of

MAX_CODE = 20_000


class NotAgain(Exception):
    """The run can't be rerun; the message says why."""


def find_cached(snapshot: KnownState, code: str, instant: datetime.datetime) -> Run | None:
    """Return an earlier run that has the query's value, if there is one.

    Raises NoState if there is no version to query.
    """
    return answer_cache.earlier(version_of(snapshot), _cache_key(snapshot, code, instant))


def queue(snapshot: KnownState, code: str, instant: datetime.datetime, *, staff: str = "") -> Run:
    """Queue a run of the code on `snapshot` at the given time.

    What surrounds the code, such as a Markdown fence, is left out (`query_code.tidied`). With
    `staff` set, the run's row records who viewed the data. Raises NoState if there is no version to
    query, and `LimitExceeded` if too many requested runs are already waiting.
    """
    return runs.queue(
        snapshot.user,
        RunKind.QUERY,
        RunTrigger.STAFF if staff else RunTrigger.API,
        checkpoint=version_of(snapshot),
        instant=instant,
        input={"code": tidied(code), "as_of": snapshot.to_json()},
        answer_key=_cache_key(snapshot, code, instant),
        asked_by=staff,
    )


def _cache_key(snapshot: KnownState, code: str, instant: datetime.datetime) -> str:
    return answer_cache.key_of(snapshot.user, tidied(code), instant, snapshot.state_key)


def run_again(run: Run, *, staff: str) -> Run:
    """Rerun a query or a constraint run on behalf of a staff member.

    A query, or a trial run of a single constraint, is rerun on the same version and as of the same
    time; a run of all constraints is rerun on the newest version, as of now. Raises NotAgain if the
    run can't be rerun, `LimitExceeded` if too many requested runs are already waiting, and other
    errors if the user has been merged or if a redaction affects the user or the version.
    """
    user = MemoryUser.objects.filter(pk=run.user_id).select_related("workspace", "head").first()
    if user is None:
        raise NotAgain("The user was erased.")
    refuse_merged(user)
    past_states.refuse_being_redacted(user)
    if run.kind == RunKind.CONSTRAINTS and user.head is not None:
        return runs.queue(
            user, RunKind.CONSTRAINTS, RunTrigger.STAFF, checkpoint=user.head, asked_by=staff
        )
    if run.kind not in REPEATABLE:
        raise NotAgain("Only queries and constraint runs can be rerun.")
    if run.checkpoint is None or not (run.input.get("code") or run.input.get("constraint")):
        raise NotAgain("This run's input was redacted.")
    past_states.refuse_redacted(run.checkpoint)
    key = ""
    if run.kind == RunKind.QUERY:
        # The state is computed in the user's time zone, which may have changed since the first run.
        state_key = past_states.state_key_of(run.input.get("as_of"))
        key = answer_cache.key_of(user, run.input["code"], run.instant, state_key)
    return runs.queue(
        user,
        RunKind(run.kind),
        RunTrigger.STAFF,
        checkpoint=run.checkpoint,
        instant=run.instant,
        input=run.input,
        answer_key=key,
        asked_by=staff,
    )

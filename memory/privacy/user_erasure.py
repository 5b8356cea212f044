"""Erasing a user: all of the user's data is removed, and a record of the erasure remains.

An erasure is requested in one transaction. From then on, nobody can find the user
(`MemoryUser.objects` excludes them), the user_id is replaced with a placeholder, workers doing work
for the user lose their claims, and the database rejects new rows about the user. A worker then
removes all data batch by batch (`memory.privacy.erasure_registry` selects it). It can be killed at
any point: what has been removed stays removed and counted, and another worker removes the rest.

The erasure is complete when no data is left, no transaction that began before the erasure is still
open, and every sandbox host has confirmed that it holds no data about the user.
"""

import datetime
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import structlog
from django.conf import settings
from django.contrib.admin.models import LogEntry as StaffAction
from django.contrib.contenttypes.models import ContentType
from django.db import connection, models, transaction
from django.db.models import CharField, F, Func, Q, QuerySet, Value
from django.db.models.fields.reverse_related import ManyToOneRel
from django.db.models.functions import Cast, Coalesce, Now
from django.utils import timezone

from memory.alerts import transitions
from memory.alerts.delivery import outbox
from memory.alerts.models.alerts import Alert, AlertEvent, AlertEventKind, AlertState
from memory.alerts.models.webhooks import Delivery, DeliveryAttempt
from memory.constraints import backtests
from memory.constraints.models.backtests import Backtest
from memory.kernel.database.timeouts import retry_deadlocks
from memory.kernel.models.hosts import SandboxHost
from memory.kernel.models.leased import LeasedWork
from memory.kernel.models.privacy import Erase, models_about_users, privacy_of
from memory.kernel.models.users import ERASED, MemoryUser
from memory.kernel.users import refuse_merged
from memory.kernel.work import hosts, leases
from memory.kernel.work.hints import hint
from memory.log import copies
from memory.log.models.entries import LogEntry
from memory.privacy import erasure_registry
from memory.privacy.models import UserErasure
from memory.versions import runs
from memory.versions.models.runs import Run

logger = structlog.get_logger(__name__)

ACTOR = "erasure"
# Reasons given by the server itself, which are not checked for the user's id.
RESTORED = "erased before; a restored backup has brought the user back"
OURS = (RESTORED,)
# Number of rows removed per transaction.
BATCH = 1000
# How long to wait before continuing an incomplete erasure.
AGAIN = datetime.timedelta(seconds=1)
# A host that has sent no heartbeat for this long is no longer running, and its sandboxes have
# exited with it or been removed.
GONE = datetime.timedelta(seconds=40)

# Rows of these models are kept: they no longer contain a name, and they record the erasure itself.
_STAY = (MemoryUser, UserErasure)
# These rows of other models are also kept: they report the erasure of an alert without identifying
# anybody.
_ERASED = {
    AlertEvent: Q(kind=AlertEventKind.ERASED),
    Delivery: Q(event__kind=AlertEventKind.ERASED),
    DeliveryAttempt: Q(delivery__event__kind=AlertEventKind.ERASED),
}


class ErasureRefused(ValueError):
    """The user can't be erased; the message says why."""


@retry_deadlocks
def ask(user: MemoryUser, *, by: str, reason: str) -> UserErasure:
    """Erase the user: nobody can find them from now on, and their data will be removed soon.

    Users who were merged into this one are the same person and are erased as well. Returns the
    erasure, or the existing erasure if somebody else has just erased the user. `by` names the
    requester (`key:…`, `staff:…`) and `reason` says why; both stay on record. Raises ErasureRefused
    if the reason is empty or contains a user_id that is to be removed, and UserMerged if the user
    was merged into another one, which must be erased instead.
    """
    if not reason.strip():
        raise ErasureRefused("Give a reason: it stays on record.")
    while True:
        people = _same_person(user)
        with transaction.atomic():
            rows = MemoryUser.everybody.select_for_update(no_key=True).filter(pk__in=people)
            locked = {row.pk: row for row in rows.order_by("pk")}
            if people == _same_person(user):
                return _ask(locked, user.pk, by, reason.strip())


def _same_person(user: MemoryUser) -> set[int]:
    """Return the primary keys of this user and of all users who were merged into this one."""
    return {user.pk, *(other.pk for other in copies.merged_into(user))}


def _ask(people: Mapping[int, MemoryUser], user_pk: int, by: str, reason: str) -> UserErasure:
    """Erase all these users, whose rows must be locked; return the erasure of user `user_pk`."""
    user = people[user_pk]
    if user.erased_at is not None:
        return UserErasure.objects.get(user=user)
    refuse_merged(user)
    now = timezone.now()
    read = unicodedata.normalize("NFC", reason)  # as user_ids are
    left = [person for person in people.values() if person.erased_at is None]
    for person in left:
        name = rf"(?<![A-Za-z0-9]){re.escape(person.user_id)}(?![A-Za-z0-9])"
        if reason not in OURS and re.search(name, read, re.IGNORECASE):
            raise ErasureRefused("The reason stays on record: do not repeat the user_id in it.")
    for person in left:
        _begin(person, by, reason, now)
    return UserErasure.objects.get(user=user)


def _begin(user: MemoryUser, by: str, reason: str, now: datetime.datetime) -> None:
    row = UserErasure.objects.create(
        user=user,
        by=by,
        reason=reason,
        created_at=now,
        due_at=now,
        hinted_at=now,
        hosts=list(SandboxHost.objects.values_list("name", flat=True)),
    )
    _make_nameless(user, now)
    _interrupt(user, now)
    hint("erasures", str(row.pk), workspace_pk=user.workspace_id)
    erased_user = str(user.public_id)
    transaction.on_commit(
        lambda: logger.info("erasure_asked", erased_user=erased_user), robust=True
    )


def _make_nameless(user: MemoryUser, now: datetime.datetime) -> None:
    columns = {
        **erasure_registry.blanks(MemoryUser),
        "user_id": f"{ERASED} {user.public_id}",
        "erased_at": now,
        "log_bytes": 0,
        "head": None,
        "redacting_since": None,
        "constraints_due_at": None,
        "constraints_changed_at": None,
    }
    MemoryUser.everybody.filter(pk=user.pk).update(**columns)
    user.refresh_from_db()


def _interrupt(user: MemoryUser, now: datetime.datetime) -> None:
    """Interrupt workers, close runs, resolve alerts, delete backtests and withdraw messages."""
    runs.close(Run.objects.filter(user=user), "This user was erased.")
    # The erasure of each alert is reported separately, so alerts must no longer refer to each
    # other.
    user.alerts.exclude(duplicate_of=None).update(duplicate_of=None)
    Alert.objects.live().filter(user=user).update(
        state=AlertState.RESOLVED,
        resolved_at=now,
        snoozed_until=None,
        escalate_at=None,
        holds_back=False,
    )
    backtests.erase_results(user)
    _forget_staff_actions(Backtest, user)
    Backtest.objects.filter(user=user).delete()
    for model in models_about_users():
        if issubclass(model, LeasedWork) and model not in (UserErasure, Delivery):
            _take(erasure_registry.rows_of(model, user))
    outbox.withdraw(erasure_registry.rows_of(Delivery, user).values_list("pk", flat=True))


def _take(work: QuerySet[Any]) -> None:
    """Revoke the leases on these rows, and cancel work that is due."""
    due = {"due_at": None} if hasattr(work.model, "due_at") else {}
    work.update(**leases.REVOKED, **due)


def waiting() -> QuerySet[UserErasure]:
    """Select the erasures that are not complete yet."""
    return UserErasure.objects.filter(due_at__isnull=False)


# -- Removing the data -----------------------------------------------------------------------------


def erase(row: UserErasure) -> None:
    """Continue an erasure that the caller has claimed."""
    user = MemoryUser.everybody.get(pk=row.user_id)
    begun = _transactions("pg_snapshot_xmax")
    for model in erasure_registry.sort_models():
        _forget_staff_actions(model, user)
        if model not in _STAY:
            while _take_away(row, user, model):
                pass
    counts = UserErasure.objects.values_list("counts", flat=True).get(pk=row.pk)
    # Try again later if any data is left, or if a transaction that started before the erasure
    # became visible is still open.
    if _transactions("pg_snapshot_xmin") < begun or any(left(user)) or _hosts_left(row):
        again = timezone.now() + AGAIN
        return leases.release(row, run_after=again, hinted_at=None, attempts=0)
    leases.release(row, due_at=None, finished_at=timezone.now(), attempts=0, last_error="")
    logger.info("user_erased", erased_user=str(user.public_id), **counts)
    return None


def _take_away(row: UserErasure, user: MemoryUser, model: type[models.Model]) -> bool:
    """Erase and count some of the user's rows of a model; return whether there may be more."""
    with transaction.atomic():
        # Locks are acquired in the same order everywhere: the user's row first, then other rows.
        MemoryUser.everybody.select_for_update(no_key=True).get(pk=user.pk)
        leases.check(row)
        keys = list(_rest(model, user).order_by("-pk").values_list("pk", flat=True)[:BATCH])
        if not keys:
            return False
        rows = model._base_manager.filter(pk__in=keys)
        if privacy_of(model).erase is Erase.DELETE:
            _delete(model, keys)
        else:
            now = timezone.now()
            also = {"redacted_at": Coalesce("redacted_at", now)} if model is LogEntry else {}
            rows.update(**erasure_registry.blanks(model), **also)
            if model is Alert:
                _announce_erasure(user, keys)
        counts = UserErasure.objects.values_list("counts", flat=True).get(pk=row.pk)
        name = str(model._meta.verbose_name_plural).replace(" ", "_")
        leases.write(row, counts={**counts, name: counts.get(name, 0) + len(keys)})
    return len(keys) == BATCH


def _delete(model: type[models.Model], keys: Collection[Any]) -> None:
    """Delete rows, after setting nullable foreign keys that refer to them to NULL."""
    for relation in model._meta.get_fields(include_hidden=True):
        if isinstance(relation, ManyToOneRel) and relation.on_delete is models.SET_NULL:
            pointing = relation.related_model._base_manager
            name = relation.field.name
            pointing.filter(**{f"{name}__in": keys}).update(**{name: None})
    with connection.cursor() as cursor:
        table, key = model._meta.db_table, model._meta.pk.column
        # The statement contains only our own table and column names.
        statement = f'DELETE FROM "{table}" WHERE "{key}" = ANY(%s)'  # noqa: S608  # nosec B608
        cursor.execute(statement, [list(keys)])


def _rest(model: type[models.Model], user: MemoryUser) -> QuerySet[Any]:
    """Select the user's rows of a model that have yet to be erased."""
    rows = erasure_registry.rows_of(model, user)
    if model in _ERASED:
        rows = rows.exclude(_ERASED[model])
    return (
        rows
        if privacy_of(model).erase is Erase.DELETE
        else rows.filter(erasure_registry.not_blank(model))
    )


def _announce_erasure(user: MemoryUser, keys: Collection[Any]) -> None:
    """Add events to the feed that report the erasure of these alerts."""
    step = transitions.Step(user, ACTOR)
    for alert in Alert.objects.filter(pk__in=keys).order_by("opened_at", "pk"):
        step.add_event(alert, AlertEventKind.ERASED)
    step.record()


def _forget_staff_actions(model: type[models.Model], user: MemoryUser) -> None:
    """Replace row names in the history of staff actions, since such names quote content."""
    keys = (
        erasure_registry.rows_of(model, user)
        .annotate(of_row=Cast("pk", CharField()))
        .values("of_row")
    )
    of_rows = StaffAction.objects.filter(
        content_type=ContentType.objects.get_for_model(model), object_id__in=keys
    )
    of_rows.exclude(object_repr=ERASED).update(object_repr=ERASED, change_message="")


def left(user: MemoryUser) -> Iterator[str]:
    """Yield the names of the models that still have rows of this user to erase."""
    for model in models_about_users():
        if model not in _STAY and _rest(model, user).exists():
            yield str(model._meta.verbose_name_plural)


def _transactions(which: str) -> int:
    """Return the current snapshot's xmin or xmax, which bounds the ids of open transactions."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {which}(pg_current_snapshot())::text::bigint")
        (number,) = cursor.fetchone()
    return int(number)


# -- Removing data from sandboxes ------------------------------------------------------------------


def asked_of(host: str) -> list[int]:
    """Return the primary keys of erased users whose data this host still has to discard."""
    return list(waiting().filter(hosts__contains=[host]).values_list("user_id", flat=True))


def kept_nothing(host: str, users: Collection[int]) -> None:
    """Record that this host no longer holds any data about these users, and never will again."""
    without = Func(
        F("hosts"), Value(host), function="array_remove", output_field=UserErasure.hosts.field
    )
    if users:
        waiting().filter(user__in=users).update(hosts=without)


def _hosts_left(row: UserErasure) -> bool:
    """Return whether any host may still hold data about the user."""
    row.refresh_from_db(fields=["hosts"])
    if not row.hosts:
        return False
    patience = GONE + datetime.timedelta(seconds=settings.UAC_SANDBOX_LEASE_SECONDS)
    if timezone.now() < row.created_at + patience:
        return True
    return SandboxHost.objects.filter(name__in=row.hosts, seen_at__gt=Now() - hosts.SILENT).exists()

"""Celery tasks: one for each kind of work, and the dispatcher's.

A message hints that a row is waiting; the row says what to do. Any task may run twice or be killed
at any line: claims are leases, writes are fenced, and the dispatcher finds unfinished work again.
"""

import time
from pkgutil import resolve_name
from typing import Any

import structlog
from celery import shared_task

from memory.kernel.models.leased import LeasedWork
from memory.kernel.work import leases
from memory.kernel.work.hints import send_hint
from memory.kernel.work.kinds import KINDS, WorkKind
from workers.service import dispatching

logger = structlog.get_logger(__name__)

# Seconds that a thread spends on the same hint before other work gets its turn.
TURN_SECONDS = 5.0


@shared_task(name="workers.dispatch")
def dispatch() -> None:
    """Find the work that no hint has announced."""
    counts = dispatching.dispatch()
    if any(counts.values()):
        logger.info("dispatched", **counts)


def work(name: str, key: str | int) -> None:
    """Claim the work of this kind that a hint is about, if it is still waiting, and do it.

    If there is more of the same, it is done as well, or announced again after TURN_SECONDS.
    """
    kind = KINDS[name]
    ends = time.monotonic() + TURN_SECONDS
    with structlog.contextvars.bound_contextvars(work=name, key=str(key)):
        while (row := _claim(kind, key)) is not None:
            if not _do(kind, row):
                return
            if time.monotonic() > ends:
                _hint_again(kind, key, row)
                return


def _claim(kind: WorkKind, key: str | int) -> LeasedWork | None:
    if kind.claims:
        row: LeasedWork | None = resolve_name(kind.claims)(key)
        return row
    return leases.claim(kind.work().filter(**{kind.key: key}))


def _do(kind: WorkKind, row: LeasedWork) -> bool:
    """Do a piece of work; return whether there may be more of the same."""
    more = False
    try:
        with leases.working(row, hides_errors=kind.hides_errors):
            more = bool(resolve_name(kind.does)(row))
    finally:
        if kind.afterwards:
            resolve_name(kind.afterwards)(row)
    return more


def _hint_again(kind: WorkKind, key: str | int, row: LeasedWork) -> None:
    rows = kind.model._default_manager.filter(pk=row.pk)
    workspace_pk = rows.values_list(kind.workspace, flat=True).first() if kind.workspace else None
    user_pk = int(key) if kind.key == "user_id" else None
    send_hint(kind.name, key, workspace_pk=workspace_pk, user_pk=user_pk)


def _declare(kind: WorkKind) -> None:
    @shared_task(name=kind.task)
    def do(key: Any) -> None:
        work(kind.name, key)


for _kind in KINDS.values():
    _declare(_kind)

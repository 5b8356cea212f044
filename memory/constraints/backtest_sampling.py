"""Sampling: choosing the users whose histories a backtest runs over."""

from itertools import islice
from typing import Any

from django.db import transaction
from django.db.models import CharField, QuerySet, Value
from django.db.models.functions import MD5, Cast, Concat

from memory.constraints.models.backtests import Backtest, BacktestUser
from memory.constraints.models.workspace_constraints import WorkspaceConstraintVersion
from memory.kernel.models.users import MemoryUser
from memory.kernel.work import leases
from memory.project import Outline
from memory.project.shapes import match, needs_of

# How many users to match against a shape at a time.
BATCH = 500


def in_order(version: WorkspaceConstraintVersion) -> QuerySet[Any]:
    """Return the users who have a project, ordered by a hash of the version and the user (`place`).

    The order is deterministic, but can't be influenced by anybody.
    """
    seed = Value(str(version.pk))
    return (
        MemoryUser.objects.filter(workspace=version.constraint.workspace_id, head__isnull=False)
        .annotate(place=MD5(Concat(seed, Cast("public_id", CharField()))))
        .order_by("place")
    )


def pick(backtest: Backtest) -> None:
    """Match users against the version's shapes until enough of them match or none are left.

    Progress is stored after each batch, so that another worker can take over. Raises LeaseLost if
    the worker no longer holds the backtest's lease.
    """
    assert backtest.version is not None
    needs = needs_of(backtest.version.source)
    rest = in_order(backtest.version).filter(place__gt=backtest.cursor)
    room = backtest.most_users - backtest.users.count()
    # Use one query for all batches: ordering by hash has to sort every user anyway.
    order = rest.values_list("pk", "place").iterator(chunk_size=BATCH)
    while not backtest.picked:
        places = dict(islice(order, BATCH if room else 0))
        heads = MemoryUser.objects.filter(pk__in=places, head__isnull=False)
        rows = heads.values_list("pk", "head__outline").iterator(chunk_size=100)
        fits = {pk for pk, outline in rows if match(needs, Outline.from_json(outline)).applies}
        found = [pk for pk in places if pk in fits][:room]
        last = len(places) < BATCH
        if len(found) == room:  # users after the last chosen one don't count as examined
            places = {pk: place for pk, place in places.items() if place <= places[found[-1]]}
        room -= len(found)
        with transaction.atomic():
            backtest.cursor = max(places.values(), default=backtest.cursor)
            backtest.picked = last or not room
            backtest.looked_at += len(places)
            backtest.attempts = 0
            leases.write(
                backtest,
                cursor=backtest.cursor,
                looked_at=backtest.looked_at,
                picked=backtest.picked,
                attempts=0,
            )
            BacktestUser.objects.bulk_create(
                BacktestUser(backtest=backtest, user_id=pk) for pk in found
            )

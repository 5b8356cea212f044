"""Sessions of staff that nobody can use any more."""

import datetime

from django.contrib.sessions.models import Session
from django.utils import timezone

# An expired session is kept so long: what was sent in it is offered again after the next sign-in.
KEPT = datetime.timedelta(days=7)


def purge(limit: int) -> int:
    """Delete up to `limit` sessions that expired long ago; return how many were deleted."""
    old = Session.objects.filter(expire_date__lt=timezone.now() - KEPT)
    keys = list(old.order_by("expire_date").values_list("pk", flat=True)[:limit])
    deleted, _ = Session.objects.filter(pk__in=keys).delete() if keys else (0, {})
    return deleted

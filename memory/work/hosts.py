"""Sandbox hosts: which workers run users' code, and to which of them a user's work goes first.

A host keeps the sandboxes of its last users for a moment, with their projects loaded. So the hints
of one user go to one host, as long as it lives. That is a matter of speed alone: any host may do
any work, and takes what another one does not get to (`workers.service.hosting`).
"""

import datetime
import hashlib
import time
from collections.abc import Collection, Mapping
from typing import Any

from django.db import Error
from django.db.models.functions import Now

from memory.models import SandboxHost

# What any host takes from.
SHARED_QUEUE = "sandbox"

HEARTBEAT_SECONDS = 2.0
# A host that was silent for so long gets no hints of its own any more.
SILENT = datetime.timedelta(seconds=4 * HEARTBEAT_SECONDS)
# A host that was silent for so long is forgotten.
FORGOTTEN = datetime.timedelta(days=1)
# How long a process goes by what it read last: nobody asks the database for every hint.
BELIEVED_SECONDS = 1.0
# What of a host's report says why it takes no work; absent where it does.
PROBLEM = "problem"

_live: Collection[str] = ()
_believed_until = 0.0


def queue_of(host: str) -> str:
    """Name the queue that this host alone takes from."""
    return f"{SHARED_QUEUE}.{host}"


def route(user_pk: int) -> str:
    """Name the queue for a user's work: that of a live host, always the same while it lives.

    The shared one where there is no choice, or the database does not answer.
    """
    try:
        hosts = live()
    except Error:
        return SHARED_QUEUE
    return queue_of(choose(hosts, user_pk)) if len(hosts) > 1 else SHARED_QUEUE


def choose(hosts: Collection[str], user_pk: int) -> str:
    """Return the user's host of these (rendezvous hashing: Thaler and Ravishankar, 1998).

    When a host comes or goes, only users who go to it or were with it move.
    """
    return max(hosts, key=lambda host: hashlib.sha256(f"{host} {user_pk}".encode()).digest())


def live() -> Collection[str]:
    """Return the names of the hosts that were heard of lately and take work, as it was a second ago
    at most."""
    global _live, _believed_until
    if time.monotonic() >= _believed_until:
        spoke = SandboxHost.objects.filter(seen_at__gt=Now() - SILENT)
        hosts = spoke.exclude(report__has_key=PROBLEM)
        _live = tuple(hosts.values_list("name", flat=True))
        _believed_until = time.monotonic() + BELIEVED_SECONDS
    return _live


def others(name: str) -> bool:
    """Tell whether there are hosts beside this one that take work."""
    return any(host != name for host in live())


def beat(
    name: str, *, started_at: datetime.datetime, threads: int, report: Mapping[str, Any]
) -> None:
    """Say that this host is there. All times of it are the database's, but that of its start."""
    host = SandboxHost(
        name=name, started_at=started_at, seen_at=Now(), threads=threads, report=dict(report)
    )
    SandboxHost.objects.bulk_create(
        [host],
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=["started_at", "seen_at", "threads", "report"],
    )


def leave(name: str) -> None:
    """Say that this host is gone, and forget those that were killed long ago."""
    SandboxHost.objects.filter(name=name).delete()
    SandboxHost.objects.filter(seen_at__lt=Now() - FORGOTTEN).delete()

"""Sandbox hosts: the workers that run users' code, and how users are routed to them.

A host keeps its most recent users' sandboxes around for a short while, with their projects loaded,
so a user's hints go to the same host for as long as it is live. This only affects speed: any host
may do any work, and hosts take over work that another host hasn't started
(`workers.service.hosting`).
"""

import datetime
import hashlib
import time
from collections.abc import Collection, Mapping
from typing import Any

from django.conf import settings
from django.db import Error
from django.db.models.functions import Now

from memory.kernel.models.hosts import SandboxHost

# The queue that every host takes work from.
SHARED_QUEUE = "sandbox"

HEARTBEAT_SECONDS = 2.0
# A host that hasn't sent a heartbeat for this long no longer gets hints in its own queue.
SILENT = datetime.timedelta(seconds=4 * HEARTBEAT_SECONDS)
# After a host hasn't sent a heartbeat for this long, its row is deleted.
FORGOTTEN = datetime.timedelta(days=1)
# How many seconds a process caches the list of hosts, rather than querying it for every hint.
BELIEVED_SECONDS = 1.0
# The key in a host's report for the reason why it takes no work; absent if it does take work.
PROBLEM = "problem"
# The key in a host's report for the name of its process in leases.
PROCESS = "process"

# This process's name as a sandbox host; "" if it isn't one.
own = ""

_live: Collection[str] = ()
_believed_until = 0.0


def queue_of(host: str) -> str:
    """Return the name of the queue that only this host takes work from."""
    return f"{SHARED_QUEUE}.{host}"


def route(user_pk: int) -> str:
    """Return the name of the queue for a user's work: that of the host chosen for the user.

    If fewer than two hosts are live, or if the database doesn't respond, this is the shared queue.
    """
    try:
        hosts = live()
    except Error:
        return SHARED_QUEUE
    return queue_of(choose(hosts, user_pk)) if len(hosts) > 1 else SHARED_QUEUE


def choose(hosts: Collection[str], user_pk: int) -> str:
    """Choose a user's host by rendezvous hashing (Thaler and Ravishankar, 1998).

    When a host comes or goes, only the users who move to or from that host are affected.
    """
    return max(hosts, key=lambda host: hashlib.sha256(f"{host} {user_pk}".encode()).digest())


def live() -> Collection[str]:
    """Return the names of live hosts that take work; the list is at most one second old."""
    global _live, _believed_until
    if time.monotonic() >= _believed_until:
        spoke = SandboxHost.objects.filter(seen_at__gt=Now() - SILENT)
        hosts = spoke.exclude(report__has_key=PROBLEM)
        _live = tuple(hosts.values_list("name", flat=True))
        _believed_until = time.monotonic() + BELIEVED_SECONDS
    return _live


def silent_processes() -> list[str]:
    """Return the names of the hosts' processes that have sent no heartbeat lately, as in leases.

    Hosts that have been silent for longer than any lease lasts are left out.
    """
    long = SILENT + datetime.timedelta(seconds=settings.UAC_LEASE_SECONDS)
    silent = SandboxHost.objects.filter(seen_at__lte=Now() - SILENT, seen_at__gt=Now() - long)
    return list(silent.filter(report__has_key=PROCESS).values_list("report__process", flat=True))


def others() -> bool:
    """Return whether any host other than this process takes work."""
    return any(host != own for host in live())


def beat(
    name: str, *, started_at: datetime.datetime, threads: int, report: Mapping[str, Any]
) -> None:
    """Write this host's heartbeat; `seen_at` is set by the database's clock."""
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
    """Delete this host's row, along with those of hosts that were killed long ago."""
    SandboxHost.objects.filter(name=name).delete()
    SandboxHost.objects.filter(seen_at__lt=Now() - FORGOTTEN).delete()

"""Merges while others write, by several at a time, and by workers that are killed."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable

import pytest
from django.db import connection

from memory.integrations import merging
from memory.kernel.models.users import MemoryUser
from memory.kernel.users import UserMerged
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind
from memory.log.models.merges import Merge
from memory.operations.verification import problems
from memory.privacy import redaction
from tests.integration.merging.conftest import contents
from tests.rivals import Rival, at_once, run_at_once
from tests.waiting import scaled
from workers import tasks

pytestmark = pytest.mark.usefixtures("live_database")


def say(user: MemoryUser, *texts: str) -> None:
    entry_log.append(
        user, [Draft(kind=EntryKind.MESSAGE, content=text) for text in texts], source="t"
    )


def finish(row: Merge) -> None:
    while merging.waiting().filter(pk=row.pk).exists():
        Merge.objects.filter(pk=row.pk).update(lease_expires_at=None)
        tasks.work("merges", row.pk)


def test_entry_accepted_during_merge_belongs_to_target(user: MemoryUser, anon: MemoryUser) -> None:
    acknowledged: dict[str, list[str]] = {"anon-123": [], "ada": []}
    reached = threading.Event()

    def write(person: MemoryUser, most: int) -> None:
        for number in range(most):
            text = f"{person} {number}"
            say(person, text)
            acknowledged[str(person)].append(text)
            if len(acknowledged["anon-123"]) == 20:
                reached.set()

    writers = [Rival(lambda: write(anon, 100_000)), Rival(lambda: write(user, 60))]
    for writer in writers:
        writer.start()
    assert reached.wait(scaled(240))
    row = merging.merge(user, anon, by="test")
    finish(row)
    for writer in writers:
        writer.join()

    closed, other = (writer.error for writer in writers)
    assert isinstance(closed, UserMerged)
    assert str(closed) == "anon-123 was merged into ada: use that user instead."
    assert other is None
    told = contents(user)
    for person, texts in acknowledged.items():
        assert [text for text in told if str(text).startswith(person)] == texts
    assert len(told) == sum(map(len, acknowledged.values()))
    assert [*problems(user), *problems(anon)] == []


def test_two_workers_at_once_copy_every_entry_once(
    user: MemoryUser, anon: MemoryUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "BATCH", 3)
    texts = [f"said {number}" for number in range(40)]
    say(anon, *texts)
    row = merging.merge(user, anon, by="test")

    def work() -> None:
        for _ in range(3):
            # As if the lease of the current worker had expired.
            Merge.objects.filter(pk=row.pk).update(lease_expires_at=None)
            tasks.work("merges", row.pk)

    workers = at_once(*[work] * 3)
    finish(row)

    assert [one.error for one in workers] == [None] * 3
    assert contents(user) == texts
    assert [*problems(user), *problems(anon)] == []


def test_both_ways_at_once_one_of_them_wins(user: MemoryUser, anon: MemoryUser) -> None:
    say(user, "ada")
    say(anon, "anon")
    told: list[object] = []

    def merge(into: MemoryUser, other: MemoryUser) -> None:
        try:
            told.append(merging.merge(into, other, by="test"))
        except merging.MergeRefused as error:
            told.append(str(error))

    run_at_once(lambda: merge(user, anon), lambda: merge(anon, user))

    (row,) = Merge.objects.all()
    assert sorted(type(one).__name__ for one in told) == ["Merge", "str"]
    finish(row)
    assert sorted(map(str, contents(row.user))) == ["ada", "anon"]
    assert [*problems(user), *problems(anon)] == []


def test_redacting_both_sides_at_once_does_not_deadlock(user: MemoryUser, anon: MemoryUser) -> None:
    say(anon, *(f"said {number}" for number in range(10)))
    finish(merging.merge(user, anon, by="test"))

    def redact(person: MemoryUser, seqs: Iterable[int]) -> None:
        for seq in seqs:
            redaction.redact(person, [seq], by="test", reason="")

    rivals = at_once(lambda: redact(user, range(1, 11)), lambda: redact(anon, range(10, 0, -1)))
    for person in (user, anon):
        tasks.work("redactions", person.pk)

    assert [rival.error for rival in rivals] == [None, None]
    assert contents(user)[:10] == contents(anon)[:10] == [None] * 10
    assert [*problems(user), *problems(anon)] == []


KILLED = """
import os, signal, sys
import django
django.setup()
from memory.kernel.work import leases; from memory.integrations import merging
from workers import tasks
merging.BATCH = 4
write, left = leases.write, [int(sys.argv[2])]
def killed(row, **columns):
    left[0] -= 1
    if left[0] == 0 and sys.argv[3] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    write(row, **columns)
    if left[0] == 0:  # everything is written, and nothing committed
        os.kill(os.getpid(), signal.SIGKILL)
leases.write = killed
tasks.work("merges", int(sys.argv[1]))
"""


@pytest.mark.parametrize(("batch", "line"), [(1, "before"), (2, "after"), (4, "after")])
def test_a_worker_that_is_killed_leaves_what_another_one_finishes(
    user: MemoryUser, anon: MemoryUser, batch: int, line: str
) -> None:
    texts = [f"said {number}" for number in range(10)]
    say(anon, *texts)
    row = merging.merge(user, anon, by="test")
    settings = connection.settings_dict
    url = "postgres://{USER}:{PASSWORD}@{HOST}:{PORT}/{NAME}".format(**settings)

    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(row.pk), str(batch), line],
        env={**os.environ, "DATABASE_URL": url},
        timeout=scaled(240),
        check=False,
    )

    assert killed.returncode == -signal.SIGKILL
    row.refresh_from_db()
    assert row.due_at is not None
    assert contents(user) == texts[: 4 * (batch - 1)]
    finish(row)
    assert contents(user) == texts
    assert [*problems(user), *problems(anon)] == []

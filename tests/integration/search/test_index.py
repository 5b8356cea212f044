"""The index follows the log, and no search depends on it."""

import random
from itertools import pairwise

import pytest
from django.db import connection

from memory.kernel.models.users import MemoryUser
from memory.kernel.work import leases
from memory.recall.models import SearchBlock, SearchIndex, SearchSegment
from memory.recall.search import announcing, index, index_maintenance, segments
from memory.recall.search.words import identity, terms
from tests.integration.search.conftest import (
    Find,
    Say,
    SayAll,
    index_all,
    leased,
    redact,
    segments_of,
    texts,
)
from workers import tasks

pytestmark = pytest.mark.django_db


def test_long_tail_is_indexed(user: MemoryUser, say_all: SayAll, search: Find) -> None:
    say_all(["a puppy"] * (announcing.TAIL - 1))
    assert not announcing.waiting().exists()

    say_all(["a kitten"])
    assert announcing.waiting().get().user == user
    tasks.work("indexes", user.pk)

    assert not announcing.waiting().exists()
    assert [(one.first_seq, one.last_seq) for one in segments_of(user)] == [(1, announcing.TAIL)]
    assert texts(search("kittens")) == ["a kitten"]


def test_long_texts_are_announced_however_few(user: MemoryUser, say: Say) -> None:
    say("a puppy")
    say("word " * announcing.TAIL_CHARACTERS)

    tasks.work("indexes", user.pk)

    assert [(one.first_seq, one.last_seq) for one in segments_of(user)] == [(1, 2)]


def test_few_segments_cover_the_log(user: MemoryUser, say_all: SayAll, search: Find) -> None:
    for _ in range(40):
        say_all(["a puppy called Toby"] * announcing.TAIL)
        index_all(user)

    rows = segments_of(user)
    assert len(rows) <= 6
    assert rows[0].first_seq == 1
    assert rows[-1].last_seq == 40 * announcing.TAIL
    assert all(a.last_seq + 1 == b.first_seq for a, b in pairwise(rows))
    assert all(a.postings >= 2 * b.postings for a, b in pairwise(rows))
    assert search("Toby").searched["archive"] == 40 * announcing.TAIL
    # What was merged is gone.
    assert SearchBlock.objects.count() == sum(row.blocks + 2 for row in rows)


def test_segments_grow_no_larger_than_their_most(
    user: MemoryUser, say_all: SayAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_maintenance, "MERGE_POSTINGS", 500)
    for _ in range(8):
        say_all(["a puppy"] * announcing.TAIL)
        index_all(user)

    rows = segments_of(user)
    assert len(rows) > 2
    assert max(row.postings for row in rows) <= 500
    assert rows[-1].last_seq == 8 * announcing.TAIL


def test_a_long_log_is_indexed_piece_by_piece(
    user: MemoryUser, say_all: SayAll, search: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_maintenance, "BUILD_ENTRIES", 30)
    say_all([f"puppy number {number}" for number in range(100)])

    (row,) = index_all(user)

    assert (row.first_seq, row.last_seq) == (1, 60)  # what is left is short
    for number in (7, 37, 77):
        assert texts(search(f"number {number}", top_k=1)) == [f"puppy number {number}"]


class Killed(BaseException):
    """An exception that no code catches."""


@pytest.mark.parametrize("step", ["_built", "_write", "_remove", "_plan", "_stored"])
@pytest.mark.parametrize("time", [1, 2])
def test_killed_anywhere_it_goes_on_where_it_was(
    user: MemoryUser,
    say_all: SayAll,
    search: Find,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    time: int,
) -> None:
    for number in range(3):
        say_all([f"puppy {number}"] * announcing.TAIL)
        if number == 0:
            index_all(user)
    calls = 0
    real = getattr(index_maintenance, step)

    def killing(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == time:
            raise Killed
        return real(*arguments)

    monkeypatch.setattr(index_maintenance, step, killing)
    try:
        index_all(user)
    except Killed:
        assert search("puppy").searched["archive"] == 3 * announcing.TAIL
    monkeypatch.setattr(index_maintenance, step, real)
    index_all(user)

    assert calls >= 1
    assert segments_of(user)[-1].last_seq == 3 * announcing.TAIL
    assert search("puppy").searched["archive"] == 3 * announcing.TAIL
    assert not announcing.waiting().exists()


def test_a_late_worker_writes_nothing(user: MemoryUser, say_all: SayAll) -> None:
    say_all(["a puppy"] * announcing.TAIL)
    late = leased(user)
    built = index_maintenance._built(late, (1, announcing.TAIL))
    leased(user)

    with pytest.raises(leases.LeaseLost):
        index_maintenance._write(late, *built)
    assert segments_of(user) == []


def test_entries_appended_while_a_worker_ends_are_indexed(
    user: MemoryUser, say_all: SayAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    say_all(["a puppy"] * announcing.TAIL)
    real = leases.check

    def check(row: SearchIndex) -> None:
        monkeypatch.setattr(leases, "check", real)
        say_all(["a kitten"] * announcing.TAIL)
        real(row)

    monkeypatch.setattr(leases, "check", check)
    index_all(user)

    assert segments_of(user)[-1].last_seq == 2 * announcing.TAIL
    assert not announcing.waiting().exists()


def test_a_failure_is_kept_and_tried_again_later(
    user: MemoryUser, say_all: SayAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    say_all(["a puppy"] * announcing.TAIL)
    monkeypatch.setattr(index_maintenance, "_built", lambda *_: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        tasks.work("indexes", user.pk)

    row = SearchIndex.objects.get(user=user)
    assert "ZeroDivisionError" in row.last_error
    assert row.due_at is not None
    assert row.lease_expires_at is None


@pytest.mark.parametrize("damage", [b"", b"\x01", b"\xff" * 40, b"\x01" + b"\x00" * 60])
def test_a_damaged_block_is_done_without_and_mended(
    user: MemoryUser, say_all: SayAll, search: Find, damage: bytes
) -> None:
    say_all(["a puppy"] * announcing.TAIL)
    index_all(user)
    SearchBlock.objects.all().update(data=damage)

    assert search("puppy").searched["archive"] == announcing.TAIL

    say_all(["a kitten"] * announcing.TAIL)
    index_all(user)
    for block in SearchBlock.objects.filter(number=0):
        assert segments.decode(bytes(block.data), []).seqs[-1] == 2 * announcing.TAIL


def test_segments_of_other_version_are_remade(
    user: MemoryUser, say_all: SayAll, search: Find
) -> None:
    say_all(["a puppy"] * announcing.TAIL)
    index_all(user)
    SearchSegment.objects.update(version=segments.VERSION + 1)

    assert len(search("puppy", top_k=1000).hits) == announcing.TAIL
    (row,) = index_all(user)
    assert row.version == segments.VERSION


# -- Redaction ------------------------------------------------------------------------------------


def test_a_redaction_takes_the_segment_along(
    user: MemoryUser, say: Say, say_all: SayAll, search: Find
) -> None:
    say_all(["a puppy"] * announcing.TAIL * 2)
    index_all(user)
    secret = say("my secret kitten")
    say_all(["a puppy"] * announcing.TAIL)
    index_all(user)
    before = segments_of(user)

    redact(secret)

    left = segments_of(user)
    assert left == [one for one in before if not one.first_seq <= secret.seq <= one.last_seq]
    assert len(left) < len(before)
    assert announcing.waiting().exists()
    assert search("kitten").hits == []
    assert search("puppy").searched["archive"] == 3 * announcing.TAIL

    tasks.work("indexes", user.pk)
    assert holders_of_kitten(user) == 0
    assert segments_of(user)[-1].last_seq == 3 * announcing.TAIL + 1


def test_worker_that_read_redacted_entry_writes_none(
    eager: None, user: MemoryUser, say: Say
) -> None:
    secret = say("my secret kitten")
    lease = leased(user)
    built = index_maintenance._built(lease, (1, 1))

    redact(secret)

    with pytest.raises(leases.LeaseLost):
        index_maintenance._write(lease, *built)
    tasks.work("indexes", user.pk)
    assert holders_of_kitten(user) == 0


def test_a_redaction_before_anything_was_indexed_counts_too(user: MemoryUser, say: Say) -> None:
    secret = say("my secret kitten")
    assert not SearchIndex.objects.filter(user=user).exists()

    redact(secret)

    assert SearchIndex.objects.get(user=user).due_at is not None


def holders_of_kitten(user: MemoryUser) -> int:
    """Count the segments of the user that contain the word."""
    (term,) = terms("kitten")
    found = index.read(user, [identity(term)])
    return sum(identity(term) in one.terms for one in found)


def test_a_search_reads_few_blocks(user: MemoryUser, say_all: SayAll) -> None:
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghij", k=6)) for _ in range(3000)]
    say_all([" ".join(chance.choices(words, k=30)) for _ in range(700)])
    (row,) = index_all(user)
    assert row.blocks >= 6

    with connection.cursor() as cursor:
        cursor.execute(index._READ, [user.pk, segments.VERSION, [7], False, []])
        assert len(cursor.fetchall()) == 2

"""Each check of `manage.py verify` finds its own kind of fault, and disturbs no other check."""

import json
from collections.abc import Iterator

import pytest
from cryptography.fernet import Fernet
from django.db import transaction
from django.test.utils import override_settings
from pytest_django.plugin import DjangoDbBlocker

from memory.alerts import reconcile
from memory.alerts.delivery import webhook_endpoints
from memory.alerts.models.alerts import Alert
from memory.alerts.models.webhooks import Delivery
from memory.integrations import merging
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind
from memory.privacy import redaction
from memory.recall.models import SearchSegment
from memory.recall.search import announcing
from memory.versions.models.runs import Run
from tests.conftest import cloned_database
from tests.factories import make_run, reject
from tests.integration.alerts.test_life import finding, record
from tests.integration.commits.conftest import trip
from tests.integration.operation.test_verify import tamper_with, verify
from workers import tasks

# The rows that the tests below break: two trips, messages of which one is redacted, a sent alert.
GONE = 3
LAST = 2 + announcing.TAIL + 1
ENTRIES = LAST + 1 + 3 + 3


@pytest.fixture(scope="module")
def template(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """A database with a user who has a row of every verified kind."""
    keys = {"UAC_ENCRYPTION_KEYS": [Fernet.generate_key().decode()]}
    with cloned_database(django_db_blocker), django_db_blocker.unblock(), override_settings(**keys):
        _live(create_user(Workspace.objects.create(name="home"), "ada", metadata=None))
        yield


@pytest.fixture
def database(template: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """A copy of it."""
    with cloned_database(django_db_blocker) as name, django_db_blocker.unblock():
        yield name


def _live(user: MemoryUser) -> None:
    webhook_endpoints.create(user.workspace, "https://example.com/")
    for to in ("Rome", "Oslo"):
        data = trip(to, key=to.lower())
        entry_log.append(user, [Draft(kind=EntryKind.RECORD, data=data)], source="test")
        tasks.work("records", user.pk)
    said = [Draft(kind=EntryKind.MESSAGE, content=f"said {n}") for n in range(announcing.TAIL)]
    entry_log.append(user, said, source="test")
    redaction.redact(user, [GONE], by="test", reason="")
    tasks.work("redactions", user.pk)
    announcing.want(user.pk)
    tasks.work("indexes", user.pk)
    user.refresh_from_db()
    assert user.head is not None
    found = finding(record("rome", 1))
    run = make_run(user.head)
    with transaction.atomic():
        reconcile.apply(run, [found], completed=[found.constraint], existing=[])
    # Another user, whose rows could be mixed up with the first one's.
    bob = create_user(user.workspace, "bob", metadata=None)
    entry_log.append(
        bob, [Draft(kind=EntryKind.RECORD, data=trip("Bonn", key="bonn"))], source="test"
    )
    tasks.work("records", bob.pk)
    # And somebody who turned out to be him.
    anon = create_user(user.workspace, "anon", metadata=None)
    entry_log.append(
        anon, [Draft(kind=EntryKind.MESSAGE, content=f"said {n}") for n in "abc"], source="t"
    )
    tasks.work("merges", merging.merge(bob, anon, by="test").pk)
    assert (SearchSegment.objects.count(), Delivery.objects.count()) == (1, 1)
    assert verify() == f"verified 3 users, {ENTRIES} entries: 0 problems\n"


# By the code of a problem: what is done to the database → what is said of it.
FAULTS: dict[str, dict[str, str]] = {
    "outcome": {
        "INSERT INTO memory_entryoutcome (user_id, seq, outcome, reason, set_aside, decided_at)"
        " VALUES ({user}, 99, 'covered', '', '{{}}', now())": (
            "there is an outcome for entry 99, which is not in the log"
        ),
        "UPDATE memory_entryoutcome SET checkpoint_id = (SELECT id FROM memory_checkpoint"
        " WHERE user_id <> {user} LIMIT 1) WHERE seq = 1": (
            "the outcome of entry 1 names another user's version"
        ),
        "DELETE FROM memory_entryoutcome WHERE seq = {last}": (
            "entry {last} is a redaction but has no outcome"
        ),
    },
    "lane": {
        "DELETE FROM memory_lane WHERE user_id = {user} AND name = 'records'": (
            "the lane records is missing: nothing will process its entries"
        ),
        "DELETE FROM memory_entryoutcome WHERE user_id = {user} AND seq = 2": (
            "entry 2 is pending, but the lane records continues after 2"
        ),
        "UPDATE memory_lane SET due_at = NULL WHERE user_id = {user} AND name = 'structure'": (
            "entry 4 is pending, but nothing is due in the lane structure"
        ),
    },
    "file": {
        "UPDATE memory_blob SET git_id = repeat('0', 40)"
        " WHERE user_id = {user} AND hash = '{blob}'": (
            "blob {blob}: the git id of its content is different"
        ),
    },
    "version": {
        "INSERT INTO memory_blob (user_id, hash, content, git_id) VALUES ({user},"
        " encode(sha256('lost'), 'hex'), 'lost', '3f16b27dc5e7e9dab6a2ebc9de174654cd0f209d')": (
            "blob 76f75e6129fe30135bd44d80ab7cc46fdba81907758dc808f3e2517beef2b1e9:"
            " no version uses it"
        ),
        "INSERT INTO memory_bytecode (user_id, path, source_hash, image_digest, code)"
        " VALUES ({user}, 'gone.py', 'abc', 'image', '')": (
            "bytecode of gone.py (abc): no version has that file"
        ),
        "UPDATE memory_checkpoint SET seen_seq = 99 WHERE user_id = {user} AND version = 2": (
            "version 2 has seen entry 99, which is not in the log"
        ),
        "UPDATE memory_checkpoint SET parent_id = NULL WHERE user_id = {user} AND version = 2": (
            "version 2 does not follow version 1"
        ),
    },
    "record": {
        "DELETE FROM memory_recordlocation WHERE user_id = {user} AND key = 'oslo'": (
            "domains/travel/state.py has 2 records of travel.trips, but the index locates 1 there"
        ),
        "UPDATE memory_recordlocation SET added_version = 7 WHERE user_id = {user}"
        " AND key = 'oslo'": (
            "the record travel.trips['oslo'] belongs to a version that does not exist"
        ),
    },
    "run": {
        "UPDATE memory_run SET checkpoint_id = (SELECT id FROM memory_checkpoint"
        " WHERE user_id <> {user} LIMIT 1) WHERE id = '{run}'": (
            "run {run} has another user's version"
        ),
    },
    "alert": {
        "UPDATE memory_alertevent SET kind = 'changed'": (
            "alert {alert} has no event that opened it"
        ),
        "UPDATE memory_run SET user_id = (SELECT id FROM memory_memoryuser"
        " WHERE user_id = 'bob'),"
        " checkpoint_id = (SELECT id FROM memory_checkpoint WHERE user_id <> {user}"
        " LIMIT 1) WHERE id = '{run}'": "alert {alert} was raised by another user's run",
    },
    "redaction": {
        "UPDATE memory_memoryuser SET redacting_since = now() WHERE id = {user}": (
            "the project is blocked by a redaction, but none is in progress"
        ),
        "DELETE FROM memory_redaction": "entry {gone} is redacted, but no redaction names it",
        "UPDATE memory_redaction SET entries = entries || 5::bigint": (
            "entry 5 is named by a redaction but is not redacted"
        ),
        "UPDATE memory_entryoutcome SET outcome = 'covered' WHERE seq = {gone}": (
            "entry {gone} is redacted but was not dismissed"
        ),
        "UPDATE memory_alert SET entries = entries || {gone}::bigint": (
            "alert {alert} reports an entry that was redacted"
        ),
    },
    "search": {
        "WITH other AS (INSERT INTO memory_searchsegment"
        " (user_id, first_seq, last_seq, version, blocks, postings, created_at)"
        " SELECT user_id, 5, 6, version, 0, 0, now() FROM memory_searchsegment RETURNING id)"
        " INSERT INTO memory_searchblock (segment_id, number, data)"
        " SELECT id, number, '' FROM other, generate_series(0, 1) AS number": (
            "the search segments ada #1–{last} and ada #5–6 overlap"
        ),
        "UPDATE memory_searchsegment SET last_seq = 99": (
            "the search segment ada #1–99 covers entries that do not exist"
        ),
        "DELETE FROM memory_searchblock WHERE number = 1": (
            "the search segment ada #1–{last} is missing parts"
        ),
        "DELETE FROM memory_searchblock WHERE number > 1": (  # the vectors
            "the search segment ada #1–{last} is missing parts"
        ),
        "UPDATE memory_searchsegment SET created_at = '2020-01-01'": (
            "the search segment ada #1–{last} contains entry {gone} as it was before its redaction"
        ),
    },
    "merge": {
        "UPDATE memory_memoryuser SET merged_into_id = {user} WHERE user_id = 'anon'": (
            "the user was merged into a different user than the merge record says"
        ),
        "UPDATE memory_merge SET cursor_seq = 2, last_seq = 2": (
            "entry 3 was appended after the merge"
        ),
        "UPDATE memory_copiedentries SET number = 2": "entry 3 was not copied by the merge",
        "UPDATE memory_copiedentries SET seq = 90": (
            "entry 1 was copied as entry 90, which the other log does not have"
        ),
    },
    "event": {
        "UPDATE memory_eventcounter SET last_seq = 2": (
            "the newest event is 1, but the counter is at 2"
        ),
        "WITH moved AS (UPDATE memory_alertevent SET seq = 3 RETURNING 1),"
        " counted AS (UPDATE memory_eventcounter SET last_seq = 3)"
        " UPDATE memory_delivery SET seq = 3": "events 1 to 2 are missing from the feed",
    },
    "delivery": {
        "UPDATE memory_delivery SET seq = 9": "delivery {delivery} does not match its event",
    },
}


@pytest.mark.parametrize(
    ("code", "statement", "problem"),
    [(code, *fault) for code, faults in FAULTS.items() for fault in faults.items()],
)
def test_every_check_finds_what_it_is_for_and_nothing_else(
    database: str, code: str, statement: str, problem: str
) -> None:
    ada = MemoryUser.objects.get(user_id="ada")
    assert ada.head is not None
    names = {
        "user": ada.pk,
        "last": LAST,
        "gone": GONE,
        "blob": ada.head.tree["domains/travel/state.py"],
        "run": Run.objects.get(user=ada).pk,
        "alert": Alert.objects.get().pk,
        "delivery": Delivery.objects.get().pk,
    }

    tamper_with(database, statement.format(**names))

    *told, sums = map(json.loads, verify("--json").partition("FAILED")[0].splitlines())
    whose = {"event": None, "delivery": None, "merge": "anon"}.get(code, "ada")
    expected = {
        "workspace": "home",
        "user": whose,
        "code": code,
        "problem": problem.format(**names),
    }
    assert told == [expected]
    assert sums == {"users": 3, "entries": ENTRIES, "problems": 1}


# What is done to the database → whose problem is found, among others.
REDACTED = {
    "WITH gone AS (UPDATE memory_redaction SET entries = entries || 1::bigint),"
    " settled AS (UPDATE memory_entryoutcome SET outcome = 'dismissed' WHERE seq = 1)"
    " UPDATE memory_logentry SET redacted_at = now(), content = NULL, data = NULL,"
    " metadata = NULL, source = NULL, salt = NULL WHERE seq = 1": (
        "ada",
        "domains/travel/state.py is based on entry 1, which was redacted",
    ),
    "WITH gone AS (UPDATE memory_logentry SET redacted_at = now(), content = NULL,"
    " source = NULL, salt = NULL WHERE seq = 1"
    " AND user_id = (SELECT id FROM memory_memoryuser WHERE user_id = 'anon')"
    " RETURNING user_id)"
    " INSERT INTO memory_redaction (user_id, seq, asked, entries, by, reason, problem, records,"
    " constraints, reopened, created_at, finished_at, run_after, lease_owner, token, attempts,"
    " last_error)"
    " SELECT user_id, 9, '{1}', '{1}', 'x', '', '', 0, 0, 0, now(), now(), now(), '', 0, 0, ''"
    " FROM gone": ("anon", "an entry was redacted, but its copy 2 was not"),
}


@pytest.mark.parametrize(("statement", "found"), REDACTED.items(), ids=["record", "copy"])
def test_row_based_on_redacted_content_is_found(
    database: str, statement: str, found: tuple[str, str]
) -> None:
    tamper_with(database, statement)

    user, problem = found
    assert problem in verify("--user", user)


# What is done to the events of rejected entries → the problem.
OF_REJECTED = {
    "SELECT 1": ": 0 problems",
    "UPDATE memory_alertevent SET seq = 1, workspace_id = (SELECT id FROM memory_workspace"
    " WHERE name = 'other') WHERE kind = 'rejected'": "is in the feed of another workspace",
    "UPDATE memory_delivery SET alert_id = (SELECT id FROM memory_alert LIMIT 1)"
    " WHERE type = 'entry.rejected'": "does not match its event",
}


@pytest.mark.parametrize(("statement", "problem"), OF_REJECTED.items())
def test_rejection_events_are_verified(database: str, statement: str, problem: str) -> None:
    Workspace.objects.create(name="other")
    reject(MemoryUser.objects.get(user_id="ada"))
    assert Delivery.objects.count() == 2

    tamper_with(database, statement)

    assert problem in verify()

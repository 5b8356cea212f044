"""The checker can fail: it names whatever is removed from the system, or inserted into it."""

import copy
import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from deploy.embedded.folder import remove_folder
from tests.chaos.checker import Checker, Database, leaked
from tests.chaos.deployment import Deployment, deployed
from tests.chaos.journal import Journal, Redacted
from tests.chaos.running import rest
from tests.chaos.traffic import Traffic
from tests.waiting import scaled

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A system without faults, at rest after some traffic."""
    folder, journal = tmp_path_factory.mktemp("calm"), Journal()
    with deployed(folder, journal, 1, engine=None) as deployment:
        traffic = Traffic(deployment.clients, journal, seed=1, people=9, seconds=12, pause=1)
        with traffic.flowing():
            deployment.sleep(12)
        rest(deployment, traffic, time.monotonic() + scaled(120))
        for client in deployment.clients.values():
            for alert in client.request("GET", "alerts/?state=open")[1]["results"]:
                path = f"alerts/{alert['id']}/acknowledge/"
                assert client.request("POST", path, {})[0] == 200
                journal.note("seen", (client.workspace, alert["id"]))
        assert journal.seen
        rest(deployment, traffic, time.monotonic() + scaled(120))
        yield deployment
    remove_folder(folder)


@pytest.fixture
def database(system: Deployment) -> Iterator[Database]:
    """A database session without triggers; its changes are undone."""
    with psycopg.connect(system.database_url, row_factory=dict_row) as connection:
        connection.execute("SET session_replication_role = replica")
        yield connection
        connection.rollback()


def violations(database: Database, journal: Journal) -> str:
    return "\n".join(Checker(database, journal).violations())


def test_healthy_system_has_no_violation(system: Deployment, database: Database) -> None:
    assert violations(database, system.journal) == ""


ANY_RECORD = "(SELECT id FROM memory_logentry WHERE kind = 'record' AND seq = 2 LIMIT 1)"
STATE = (
    "hash IN (SELECT c.tree::jsonb->>'domains/money/state.py' FROM memory_checkpoint c"
    " JOIN memory_memoryuser u ON u.head_id = c.id)"
)


# What is named → what was done to the database.
SABOTAGE = {
    "entry 2 is lost": f"DELETE FROM memory_logentry WHERE id = {ANY_RECORD}",
    "entry 2 has another data": (
        f"UPDATE memory_logentry SET data = '{{}}' WHERE id = {ANY_RECORD}"
    ),
    "the chain breaks at": f"UPDATE memory_logentry SET hash = salt WHERE id = {ANY_RECORD}",
    "does not end where the user": "UPDATE memory_memoryuser SET last_seq = last_seq + 1",
    "was never acknowledged, or is there twice": (
        "INSERT INTO memory_logentry SELECT (jsonb_populate_record(e, jsonb_build_object("
        "'id', gen_random_uuid(), 'seq', u.last_seq + 1))).* FROM memory_logentry e"
        " JOIN memory_memoryuser u ON u.id = e.user_id"
        " WHERE e.idempotency_key IS NULL AND e.kind = 'record' LIMIT 1"
    ),
    "entries are pending still": "DELETE FROM memory_entryoutcome WHERE seq = 2",
    "entry 1 is rejected (why not), not covered": (
        "UPDATE memory_entryoutcome SET outcome = 'rejected', reason = 'why not' WHERE seq = 1"
    ),
    "purchases are not as acknowledged": (
        f"UPDATE memory_blob SET content = replace(content, ' tea ', ' coffee ') WHERE {STATE}"
    ),
    "a file is not what": f"UPDATE memory_blob SET content = content || ' ' WHERE {STATE}",
    "the newest version does not run": (
        f"UPDATE memory_blob SET content = content || 'import nothing' WHERE {STATE}"
    ),
    "no version before 2": "DELETE FROM memory_checkpoint WHERE version = 1",
    " found [], not ": (
        'UPDATE memory_run SET output = \'{"constraints": [{"alerts": []}]}\''
        " WHERE output::text LIKE '%for -%'"
    ),
    "was opened 0 times": (
        "INSERT INTO memory_alert SELECT (jsonb_populate_record(a, jsonb_build_object("
        "'id', gen_random_uuid(), 'state', 'resolved', 'resolved_at', now()))).*"
        " FROM memory_alert a"
    ),
    " alerts about p": (
        "INSERT INTO memory_alert SELECT (jsonb_populate_record(a, jsonb_build_object("
        "'id', gen_random_uuid(), 'state', 'resolved', 'resolved_at', now()))).*"
        " FROM memory_alert a"
    ),
    "alerts are open about []": "UPDATE memory_alert SET state = 'resolved', resolved_at = now()",
    " on record": (
        "DELETE FROM memory_llmcall WHERE id ="
        " (SELECT id FROM memory_llmcall ORDER BY user_id LIMIT 1)"
    ),
    "was opened 2 times": (
        "INSERT INTO memory_alertevent SELECT (jsonb_populate_record(e, jsonb_build_object("
        "'id', e.id + 1000000, 'seq', e.seq + 1000000))).* FROM memory_alertevent e"
        " WHERE kind = 'opened'"
    ),
    "is not numbered 1 to": "DELETE FROM memory_alertevent WHERE seq = 1",
    "and nobody knows of it": "DELETE FROM memory_alertevent WHERE kind = 'acknowledged'",
    "memory_entryoutcome: a row of": (
        "UPDATE memory_entryoutcome o SET reason = (SELECT e.data->'data'->>'what'"
        " FROM memory_logentry e WHERE e.user_id <> o.user_id AND e.seq = 1 LIMIT 1)"
    ),
    "webhook messages wait": "UPDATE memory_delivery SET state = 'pending', settled_at = NULL",
}


@pytest.mark.parametrize(("named", "sabotage"), SABOTAGE.items())
def test_sabotage_of_the_database_is_named(
    system: Deployment, database: Database, sabotage: str, named: str
) -> None:
    assert database.execute(sabotage).rowcount > 0

    assert named in violations(database, system.journal)


def test_redacted_derived_entry_has_no_sender(system: Deployment, database: Database) -> None:
    fact = database.execute(
        "INSERT INTO memory_logentry SELECT (jsonb_populate_record(e, jsonb_build_object("
        "'id', gen_random_uuid(), 'seq', u.last_seq + 1, 'kind', 'fact', 'derived_from',"
        " jsonb_build_array(1), 'source', NULL, 'content', NULL, 'data', NULL, 'redacted_at',"
        " now()))).* FROM memory_logentry e JOIN memory_memoryuser u ON u.id = e.user_id"
        " WHERE e.idempotency_key IS NULL AND e.kind = 'record' LIMIT 1"
    )
    assert fact.rowcount == 1

    told = violations(database, system.journal)

    assert "the chain breaks at" in told  # it was put there past the server
    assert "was never acknowledged, or is there twice" not in told


def _message_lost(journal: Journal) -> None:
    lost = journal.called[0].body["data"]["event"]["seq"]
    journal.called = [one for one in journal.called if one.body["data"]["event"]["seq"] != lost]


def _messages_out_of_order(journal: Journal) -> None:
    journal.called.reverse()


def _message_of_another(journal: Journal) -> None:
    told = next(call for call in journal.called if "alert" in call.body["data"])
    body = copy.deepcopy(told.body)
    other = next(one for one in journal.people if one.user_id != body["data"]["user_id"])
    body["data"]["alert"]["message"] += other.canary
    journal.called[journal.called.index(told)] = dataclasses.replace(told, body=body)


def _key_used_twice(journal: Journal) -> None:
    sent = journal.sent[0]
    sent.acknowledged = [*sent.acknowledged, [seq + 1 for seq in sent.acknowledged[0]]]


def _out_of_order(journal: Journal) -> None:
    place = {(one.person, one.writer): one for one in journal.sent if one.turn > 1}
    later = next(iter(place.values()))
    later.turn = 0


def _never_answered(journal: Journal) -> None:
    journal.sent[0].acknowledged = []


def _secret_not_gone(journal: Journal) -> None:
    person = journal.people[0]
    journal.redacted.append(Redacted(person, 1, person.canary, acknowledged=True))


def _wrong_answer(journal: Journal) -> None:
    one = journal.people[0]
    journal.answers[one.workspace, one.user_id] = {"value": [0, 0]}


# What is named → what was done to the journal.
CONTRADICTIONS = {
    "never arrived": _message_lost,
    "came out of order": _messages_out_of_order,
    "tells of": _message_of_another,
    "one key, several sets of entries": _key_used_twice,
    "is out of order": _out_of_order,
    "never acknowledged": _never_answered,
    "is still in": _secret_not_gone,
    "the query answers [0, 0]": _wrong_answer,
}


@pytest.mark.parametrize(("named", "sabotage"), CONTRADICTIONS.items())
def test_difference_from_the_journal_is_named(
    system: Deployment, database: Database, sabotage: Callable[[Journal], None], named: str
) -> None:
    journal = _copied(system.journal)

    sabotage(journal)

    assert named in violations(database, journal)


def _copied(journal: Journal) -> Journal:
    """Return a journal with the same people, whose rows can be changed."""
    copied: Any = copy.copy(journal)
    copied.sent = [dataclasses.replace(one) for one in journal.sent]
    copied.redacted = [dataclasses.replace(one) for one in journal.redacted]
    copied.called, copied.answers = list(journal.called), dict(journal.answers)
    assert isinstance(copied, Journal)
    return copied


def test_a_line_of_a_log_that_quotes_somebody_is_named(system: Deployment, tmp_path: Path) -> None:
    assert list(leaked(system.system.data_folder / "logs")) == []
    (tmp_path / "web.log").write_text(f"well\n{system.journal.people[0].canary} tea\n")

    assert [found[:14] for found in leaked(tmp_path)] == ["web.log line 2"]

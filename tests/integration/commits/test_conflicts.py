"""Conflicts, from the edit through the gate to the alert, and to its resolution."""

import datetime

import pytest

from memory.alerts.models.alerts import Alert, AlertState
from memory.kernel.models.users import MemoryUser
from tests.edits import add, define, retire
from tests.integration.commits.conftest import Propose, Records, Work, checks
from tests.integration.commits.test_proposals import ALL_CHECKS
from tests.steps import append_texts

pytestmark = pytest.mark.django_db

MOVES = [
    define("home.Move", on="datetime.date", said_by="str"),
    add("home.Move", 1, key="Ann-2", on="2026-05-02", said_by="Ann"),
    add("home.Move", 2, key="Bob-3", on="2026-05-03", said_by="Bob"),
]
CONFLICT = {
    "op": "conflict",
    "about": "moving day, May 2 or May 3",
    "records": [
        {"domain": "home", "collection": "moves", "key": key} for key in ("Ann-2", "Bob-3")
    ],
    "sources": [1, 2],
}


@pytest.fixture(autouse=True)
def said(user: MemoryUser) -> None:
    texts = [
        "Ann: We move on May 2, 2026.",
        "Bob: No, we move on May 3, 2026.",
        "Settled: we move on May 2.",
    ]
    # The day of the entry grounds dates, too: it must not be one that a test uses.
    at = datetime.datetime(2026, 5, 1, 12, tzinfo=datetime.UTC)
    append_texts(user, *texts, occurred_at=at)


def test_a_conflict_passes_the_gate_and_is_a_warning_until_it_is_retired(
    user: MemoryUser, propose: Propose, fields_of: Records, work: Work
) -> None:
    run = propose(*MOVES, CONFLICT)
    work()

    assert run.outcome == "ok", run.error
    assert checks(run) == dict.fromkeys(ALL_CHECKS, True)
    assert fields_of("conflicts.conflicts") == {
        "conflict-2": {
            "about": "moving day, May 2 or May 3",
            "records": ["home.moves.Ann-2", "home.moves.Bob-3"],
        }
    }
    alert = Alert.objects.get(user=user)
    assert (alert.severity, alert.message, alert.entries) == (
        "warning",
        "Conflicting statements: moving day, May 2 or May 3",
        [1, 2],
    )

    run = propose(retire("home.moves.Bob-3", 3), retire("conflicts.conflicts.conflict-2", 3))
    work()

    assert run.outcome == "ok", run.error
    alert.refresh_from_db()
    assert alert.state == AlertState.RESOLVED
    assert list(fields_of("home.moves")) == ["Ann-2"]


def test_conflict_needs_values_that_entries_state(propose: Propose) -> None:
    run = propose(*MOVES, {**CONFLICT, "about": "moving day, May 2 or May 7"})

    assert run.outcome == "rejected"
    assert "ungrounded_date" in str(run.output)

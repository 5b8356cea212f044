"""Conflicts, from the edit through the gate to the alert, and to its resolution."""

import datetime
from collections.abc import Callable

import pytest

from memory import log
from memory.models import Alert, MemoryUser
from memory.models.alerts import AlertState
from memory.models.log import EntryKind
from tests.integration.checkpointing.conftest import Records
from tests.integration.checkpointing.test_proposals import ALL_CHECKS, Propose, checks, propose

__all__ = ["propose"]  # the fixture

pytestmark = pytest.mark.django_db

MOVES = [
    {
        "op": "define_class",
        "domain": "home",
        "name": "Move",
        "fields": [{"name": "on", "type": "datetime.date"}, {"name": "said_by", "type": "str"}],
    },
    *(
        {
            "op": "add",
            "domain": "home",
            "class_name": "Move",
            "key": f"{name}-{day}",
            "fields": {"on": f"2026-05-0{day}", "said_by": name},
            "sources": [seq],
        }
        for seq, name, day in [(1, "Ann", 2), (2, "Bob", 3)]
    ),
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
    drafts = [log.Draft(kind=EntryKind.MESSAGE, content=text, occurred_at=at) for text in texts]
    log.append(user, drafts, source="test")


def test_a_conflict_passes_the_gate_and_is_a_warning_until_it_is_retired(
    user: MemoryUser, propose: Propose, fields_of: Records, work: Callable[[], None]
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

    retire = {"op": "retire", "sources": [3]}
    run = propose(
        {**retire, "domain": "home", "collection": "moves", "key": "Bob-3"},
        {**retire, "domain": "conflicts", "collection": "conflicts", "key": "conflict-2"},
    )
    work()

    assert run.outcome == "ok", run.error
    alert.refresh_from_db()
    assert alert.state == AlertState.RESOLVED
    assert list(fields_of("home.moves")) == ["Ann-2"]


def test_what_a_conflict_is_about_is_said_by_somebody(user: MemoryUser, propose: Propose) -> None:
    run = propose(*MOVES, {**CONFLICT, "about": "moving day, May 2 or May 7"})

    assert run.outcome == "rejected"
    assert "ungrounded_date" in str(run.output)

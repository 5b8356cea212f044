"""The database refuses a row that contradicts itself."""

import datetime
from typing import Any

import pytest
from django.apps import apps
from django.db import IntegrityError, models, transaction
from django.db.models import F
from django.db.models.functions import Now

from memory.alerts.models.alerts import Alert
from memory.alerts.models.webhooks import Delivery
from memory.constraints.models.backtests import Backtest
from memory.kernel.models.users import MemoryUser
from memory.llm.models import LlmCall
from memory.log.models.documents import Document
from memory.log.models.entries import EntryOutcome
from memory.log.models.merges import Merge
from memory.log.models.redactions import Redaction
from memory.privacy.models import UserErasure
from memory.recall.models import SearchSegment
from memory.versions.models.runs import Run
from tests.factories import make_checkpoint
from tests.integration.admin.conftest import Rows, populate_once  # noqa: F401 - a fixture

NOW = Now()
LATER = Now() + datetime.timedelta(days=1)

# By constraint: the model, and by contradiction what is made of its rows. Rows are made consistent
# in all other respects.
CONTRADICTIONS: dict[str, tuple[type[models.Model], list[dict[str, Any]]]] = {
    "alert_resolved": (
        Alert,
        [
            {"state": "resolved", "resolved_at": None, "escalate_at": None},
            {"state": "open", "resolved_at": NOW},
        ],
    ),
    "alert_holds_back": (Alert, [{"state": "open", "resolved_at": None, "holds_back": True}]),
    "alert_snoozed": (
        Alert,
        [{"state": "open", "resolved_at": None, "snoozed_until": LATER}],
    ),
    "alert_escalates": (
        Alert,
        [{"state": "acknowledged", "resolved_at": None, "escalate_at": LATER}],
    ),
    "backtest_finished": (
        Backtest,
        [
            {"state": "running", "finished_at": NOW},
            {"state": "waiting", "finished_at": NOW},
            {"state": "finished", "finished_at": None},
            {"state": "failed", "finished_at": None},
            {"state": "cancelled", "finished_at": None},
        ],
    ),
    "call_finished": (
        LlmCall,
        [{"outcome": "started", "finished_at": NOW}, {"outcome": "ok", "finished_at": None}],
    ),
    "delivery_settled": (
        Delivery,
        [
            {"state": "pending", "settled_at": NOW},
            {"state": "delivered", "settled_at": None},
            {"state": "given_up", "settled_at": None},
        ],
    ),
    "document_finished": (Document, [{"due_at": NOW, "finished_at": NOW}]),
    "erasure_finished": (
        UserErasure,
        [{"due_at": NOW, "finished_at": NOW}, {"due_at": None, "finished_at": None}],
    ),
    "merge_complete": (Merge, [{"due_at": None, "finished_at": NOW, "cursor_seq": 1}]),
    "merge_finished": (Merge, [{"due_at": NOW, "finished_at": NOW, "cursor_seq": F("last_seq")}]),
    "outcome_numbered": (EntryOutcome, [{"seq": 0}]),
    "redaction_finished": (Redaction, [{"due_at": NOW, "finished_at": NOW}]),
    "run_finished": (
        Run,
        [
            {"status": "done", "finished_at": None, "outcome": "ok"},
            {"status": "queued", "finished_at": NOW, "outcome": ""},
            {"status": "running", "finished_at": NOW, "outcome": ""},
        ],
    ),
    "run_outcome": (
        Run,
        [
            {"status": "done", "finished_at": NOW, "outcome": ""},
            {"status": "running", "finished_at": None, "outcome": "ok"},
        ],
    ),
    "run_of_constraints": (Run, [{"kind": "constraints", "checkpoint": None}]),
    "segment_covers_entries": (
        SearchSegment,
        [{"first_seq": 0}, {"first_seq": F("last_seq") + 1}],
    ),
}
# Constraints of values, which other tests cover, and of rows that never change.
OTHERS = {"constraint_percentage", "event_of_alert_or_entries", "checkpoint_accepted"}


@pytest.fixture(scope="module")
def rows(populate_once: Any) -> Rows:  # noqa: F811 - the fixture above
    """A row of every model."""
    made: Rows = populate_once()
    return made


@pytest.mark.parametrize(
    ("name", "values"),
    [(name, values) for name, (_, cases) in CONTRADICTIONS.items() for values in cases],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_contradiction_is_refused(rows: Rows, name: str, values: dict[str, Any]) -> None:
    model, _ = CONTRADICTIONS[name]
    row = model._default_manager.filter(pk=rows[model].pk)

    with pytest.raises(IntegrityError, match=f'check constraint "{name}"'), transaction.atomic():
        row.update(**values)


@pytest.mark.parametrize(
    "verdict",
    [
        {},
        {"accepted": False},
        {"accepted": True, "checks": [{"name": "types", "passed": False}]},
    ],
)
def test_a_version_that_the_gate_refused_is_not_stored(rows: Rows, verdict: dict[str, Any]) -> None:
    user = rows[MemoryUser]

    with pytest.raises(IntegrityError, match="checkpoint_accepted"), transaction.atomic():
        make_checkpoint(user, 99, verdict=verdict)


def test_every_constraint_is_tested() -> None:
    checks = {
        constraint.name
        for model in apps.get_app_config("memory").get_models()
        for constraint in model._meta.constraints
        if isinstance(constraint, models.CheckConstraint)
    }
    assert checks == {*CONTRADICTIONS, *OTHERS}

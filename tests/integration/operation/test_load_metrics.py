"""Prometheus metrics of refusals and waiting work."""

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import override_settings
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from deploy.embedded.process import free_port
from memory.kernel.admission import quotas, refusals
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.work import hints
from memory.log import entry_log
from memory.log.models.entries import EntryKind
from memory.versions.models.runs import RunKind
from tests.factories import make_checkpoint, make_run
from workers.metrics import server_metrics
from workers.metrics.serving import Read

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def counted_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(quotas, "_count_at", {quotas.TOTALS: 0.0, quotas.PENDING: 0.0})
    monkeypatch.setattr(connection, "close", lambda: None)  # it is the test's own
    hints.redis_client().delete(refusals.KEY)
    yield
    hints.redis_client.cache_clear()


def served() -> dict[tuple[str, ...], float]:
    """Return metric, workspace and reason or kind → value."""
    registry = CollectorRegistry()
    registry.register(Read(*server_metrics.READS))
    text = generate_latest(registry).decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in ("uac_refused_total", "uac_waiting")
    }


def test_metrics_count_refusals_by_workspace(user: MemoryUser, workspace: Workspace) -> None:
    record = entry_log.Draft(kind=EntryKind.RECORD, data={"type": "Trip", "data": {"to": "Rome"}})
    entry_log.append(user, [record] * 3, source="test")
    make_run(make_checkpoint(user), kind=RunKind.QUERY)
    for _ in range(2):
        with pytest.raises(refusals.LimitExceeded):
            refusals.refuse(workspace, "max_users", "Too much.")
    with pytest.raises(refusals.LimitExceeded):
        refusals.refuse(workspace, "writes_per_minute", "Too much.")
    quotas.count_when_due()

    name = str(workspace.public_id)
    assert served() == {
        ("uac_refused_total", "max_users", name): 2,
        ("uac_refused_total", "writes_per_minute", name): 1,
        ("uac_waiting", "query", name): 1,
        ("uac_waiting", "records", name): 3,
    }


def test_without_redis_the_rest_is_told(user: MemoryUser, workspace: Workspace) -> None:
    make_run(make_checkpoint(user), kind=RunKind.QUERY)
    hints.redis_client.cache_clear()

    with override_settings(REDIS_URL=f"redis://127.0.0.1:{free_port()}/0"):
        with pytest.raises(refusals.LimitExceeded):
            refusals.refuse(workspace, "max_users", "Too much.")
        told = served()

    assert told == {("uac_waiting", "query", str(workspace.public_id)): 1}

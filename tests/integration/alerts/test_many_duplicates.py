"""Among thousands of alerts with duplicates, few rows are read to find some of them."""

import json
from collections.abc import Mapping
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from memory.alerts.models.alerts import Alert
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from tests.integration.alerts.test_duplicates import (
    ALLERGY,
    ASPIRIN,
    OURS,
    OWN,
    PENICILLIN,
    ours,
    own,
    run_finds,
)
from tests.rows import explain
from tests.services import SERVICES

pytestmark = pytest.mark.usefixtures("live_database")

PAIRS = """
INSERT INTO memory_alert (id, user_id, kind, "constraint", fingerprint, severity, message, evidence,
    entries, state, opened_at, changed_at, holds_back, open_since, duplicate_of_id)
SELECT md5(side || n)::uuid, %(user)s, 'finding', path, side || n, 'warning', 'Something',
    %(evidence)s, '{3,41}', 'open', now(), now(), false, now(),
    CASE WHEN side = 'ours' THEN md5('own' || n)::uuid END
FROM (VALUES ('own', %(own)s), ('ours', %(ours)s)) AS pair (side, path),
    generate_series(1, %(number)s) AS n
"""

ANALYZED = "SELECT reltuples::int FROM pg_class WHERE oid = 'memory_alert'::regclass"


def make_pairs(user: MemoryUser, number: int) -> None:
    """Give the user so many alerts, each with a duplicate."""
    evidence = json.dumps([PENICILLIN, ALLERGY])
    told: dict[str, Any] = {
        "user": user.pk,
        "number": number,
        "own": OWN,
        "ours": OURS,
        "evidence": evidence,
    }
    with connection.cursor() as cursor:
        cursor.execute(PAIRS, told)
    # Otherwise the plans depend on what autovacuum has seen. The server's own role may not analyze,
    # which PostgreSQL says in a warning alone; and what is not committed, nobody else counts.
    server, _, _ = SERVICES.postgres.owner_url.rpartition("/")
    database = connection.settings_dict["NAME"]
    with psycopg.connect(f"{server}/{database}", autocommit=True) as owner:
        owner.execute("ANALYZE memory_alert")
        (analyzed,) = owner.execute(ANALYZED).fetchall()
    assert analyzed == (2 * number,)


def rows_per_look(statement: str) -> int:
    """Return how many rows a statement reads at most in one look for an alert's duplicates."""
    looks = [scan for scan in scans(statement) if scan.get("Parent Relationship") == "SubPlan"]
    return int(max(map(_rows_of, looks)))


def scans(statement: str) -> list[Mapping[str, Any]]:
    """Return the steps of a statement's plan that read a table or an index, with their figures."""
    return [step for step in explain(statement) if step["Node Type"].endswith("Scan")]


def _rows_of(scan: Mapping[str, Any]) -> float:
    return float(scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0))


def test_findings_are_looked_up_among_the_callers_alerts_alone(
    api: APIClient, user: MemoryUser, workspace: Workspace
) -> None:
    stranger = create_user(Workspace.objects.create(name="other"), "bob", metadata=None)
    make_pairs(stranger, 3000)
    with transaction.atomic():
        run_finds(user, own(), ours(), own(ASPIRIN))
    alert = Alert.objects.listed().get(user=user, duplicates__constraint=OURS)

    for path in ("/v1/alerts/?", "/v1/events/?after=0&"):
        with CaptureQueriesContext(connection) as asked:
            found = api.get(f"{path}constraint={OURS}").data["results"]
        assert [one["id"] for one in found] == [str(alert.pk)]
        statements = [one["sql"] for one in asked.captured_queries if OURS in one["sql"]]
        assert statements
        # The planner decides which alerts are looked at; for each, its own duplicate alone is read.
        assert max(rows_per_look(one) for one in statements) <= 1

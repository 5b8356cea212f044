"""Fill the tables as on a server that has run for some months, and find scans of whole tables.

SQL statements run by the database's owner write users, entries, versions, runs, alerts, model calls
and webhook messages. Each SQL statement of a page is passed to EXPLAIN, and returned if it reads
many rows of a large table sequentially.
"""

import datetime
import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
from django.apps import apps
from django.contrib import admin
from django.db import connection
from django.urls import reverse

from memory.alerts.models.webhooks import WebhookEndpoint
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace

WORKSPACES = 50

LARGE = (
    *("memory_logentry", "memory_entryoutcome", "memory_memoryuser", "memory_checkpoint"),
    *("memory_run", "memory_alert", "memory_alertevent", "memory_llmcall", "memory_delivery"),
    "memory_lane",
)

# Finds tables with more than a few pages that are not marked all-visible. A few are always empty,
# since tables grow by several pages at a time.
UNSEEN = """
    SELECT relname, relpages, relallvisible
    FROM pg_class LEFT JOIN pg_inherits ON inhrelid = oid
    WHERE coalesce(inhparent, oid) = ANY(%s::regclass[])
        AND relpages - relallvisible > 10 + relpages / 50
"""
OTHERS = """
    SELECT pid, datname, application_name, state, backend_xid, backend_xmin, xact_start, query
    FROM pg_stat_activity WHERE backend_xid IS NOT NULL OR backend_xmin IS NOT NULL
"""

# The statements that fill the tables, in order of dependency. The times that they write are spread
# over the last 90 days, according to the number of each row.
FILL: Sequence[str] = (
    """
    INSERT INTO memory_memoryuser (public_id, workspace_id, user_id, time_zone, metadata,
        created_at, last_seq, last_hash, log_bytes, alerts_version, constraints_due_at)
    SELECT gen_random_uuid(), w.id, 'user-' || n, 'Europe/Berlin', '{}',
        now() - interval '90 days' + n * interval '90 days' / %(users)s, 0,
        decode(repeat('00', 32), 'hex'), 0, 1, now() + n * interval '1 second'
    FROM generate_series(1, %(users)s) n
    JOIN (SELECT id, row_number() OVER (ORDER BY id) AS place FROM memory_workspace) w
        ON w.place = n %% %(workspaces)s + 1
    """,
    """
    INSERT INTO memory_logentry (id, user_id, seq, kind, occurred_at, recorded_at, derived_from,
        content, session_id, role, source, salt, payload_hash, hash)
    SELECT gen_random_uuid(), u.id, s, CASE WHEN s %% 3 = 0 THEN 'fact' ELSE 'message' END,
        at, at, '{}', 'We booked the hotel in Rome from the 3rd to the 7th of May, entry ' || s,
        'trip', 'user', 'key:test', decode(repeat('00', 16), 'hex'),
        decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex')
    FROM (SELECT id, row_number() OVER (ORDER BY id) AS place FROM memory_memoryuser) u
    CROSS JOIN LATERAL generate_series(1, CASE WHEN u.place = 1 THEN %(hot)s
        ELSE %(entries)s / %(users)s END) s
    CROSS JOIN LATERAL (SELECT now() - interval '90 days'
        + s * interval '90 days' / (CASE WHEN u.place = 1 THEN %(hot)s
            ELSE %(entries)s / %(users)s END)
        - (u.place %% 3600) * interval '1 second' AS at) moment
    ORDER BY u.id, s
    """,
    """
    UPDATE memory_memoryuser SET last_seq = CASE WHEN id = (SELECT min(id) FROM memory_memoryuser)
        THEN %(hot)s ELSE %(entries)s / %(users)s END
    """,
    """
    INSERT INTO memory_entryoutcome (user_id, seq, outcome, reason, set_aside, decided_at)
    SELECT user_id, seq, CASE WHEN seq %% 97 = 0 THEN 'rejected' WHEN seq %% 5 = 0 THEN 'dismissed'
        ELSE 'covered' END, '', '{}', recorded_at + interval '1 minute'
    FROM memory_logentry WHERE recorded_at < now() - interval '1 hour'
    """,
    """
    INSERT INTO memory_checkpoint (user_id, version, tree, outline, seen_seq, origin, edits,
        verdict, created_at)
    SELECT u.id, v, '{"manifest.py": "0"}', '{"domains": [], "constraints": {}, "tests": []}', v,
        'records',
        '[]', '{"accepted": true, "checks": []}',
        now() - interval '90 days' + (v * 7919 + u.id) %% 7776000 * interval '1 second'
    FROM memory_memoryuser u CROSS JOIN generate_series(1, 5) v ORDER BY v, u.id
    """,
    """
    UPDATE memory_memoryuser u SET head_id = c.id FROM memory_checkpoint c
    WHERE c.user_id = u.id AND c.version = 5
    """,
    """
    INSERT INTO memory_lane (user_id, name, due_at, cursor_seq, waiting, run_after, lease_owner,
        token, attempts, last_error)
    SELECT u.id, name, CASE WHEN u.id %% 100 = 0 THEN now() END, u.last_seq, 0, now(), '', 0, 0, ''
    FROM memory_memoryuser u CROSS JOIN (VALUES ('records'), ('structure')) names (name)
    """,
    """
    INSERT INTO memory_run (id, user_id, kind, trigger, checkpoint_id, instant, input, answer_key,
        status, outcome, output, stdout, runner, host, timings, queued_at, started_at, finished_at,
        run_after, lease_owner, token, attempts, last_error, asked_by, test_gaps)
    SELECT gen_random_uuid(), u.id, CASE WHEN n %% 4 = 0 THEN 'constraints' ELSE 'query' END, 'api',
        u.head_id, at, '{"code": "1 + 1"}', '', CASE WHEN n %% 2000 = 0 THEN 'queued' ELSE 'done'
        END, CASE WHEN n %% 2000 = 0 THEN '' WHEN n %% 50 = 0 THEN 'timeout' WHEN n %% 31 = 0
        THEN 'rejected' ELSE 'ok' END, json_build_object('value', repeat('x', 400)), '', 'docker',
        'host-1', '{"total": 0.01}', at, at, CASE WHEN n %% 2000 <> 0 THEN at END, at, '', 1, 0, '',
        '', '{}'
    FROM generate_series(1, %(runs)s) n
    JOIN (SELECT id, head_id, row_number() OVER (ORDER BY id) AS place FROM memory_memoryuser) u
        ON u.place = CASE WHEN n %% 100 = 0 THEN 1 ELSE n %% %(users)s + 1 END
    CROSS JOIN LATERAL (SELECT now() - n * interval '45 days' / %(runs)s AS at) moment
    """,
    """
    INSERT INTO memory_alert (id, user_id, kind, "constraint", fingerprint, severity, message,
        evidence, entries, state, opened_at, changed_at, resolved_at, holds_back, open_since)
    SELECT gen_random_uuid(), u.id, 'finding', 'constraints/c' || n || '.py', md5(u.id || '/' || n),
        (ARRAY['info', 'warning', 'critical'])[(u.id + n) %% 3 + 1], 'Something was found', '[]',
        '{1}', CASE WHEN n > 1 THEN 'resolved' ELSE
            (ARRAY['open', 'acknowledged', 'snoozed'])[u.id %% 3 + 1] END,
        at, at, CASE WHEN n > 1 THEN at END, false, at
    FROM (SELECT id, row_number() OVER (ORDER BY id) AS place FROM memory_memoryuser) u
    CROSS JOIN generate_series(1, 4) n
    CROSS JOIN LATERAL (SELECT now() - interval '90 days'
        + (u.place * 4 + n) * interval '90 days' / (%(users)s * 4 + 4) AS at) moment
    """,
    """
    INSERT INTO memory_alertevent (workspace_id, seq, alert_id, entries, kind, at, actor, detail)
    SELECT u.workspace_id, row_number() OVER (PARTITION BY u.workspace_id ORDER BY a.opened_at, k),
        a.id, '{}', k, a.opened_at, 'constraints', '{}'
    FROM memory_alert a JOIN memory_memoryuser u ON u.id = a.user_id
    CROSS JOIN (VALUES ('opened'), ('resolved')) kinds (k)
    WHERE k = 'opened' OR a.state = 'resolved'
    """,
    """
    INSERT INTO memory_delivery (id, endpoint_id, event_id, alert_id, seq, type, payload, state,
        created_at, settled_at, run_after, lease_owner, token, attempts, last_error)
    SELECT gen_random_uuid(), w.id, e.id, e.alert_id, e.seq, 'alert.opened', '{}',
        'delivered', e.at, e.at, e.at, '', 1, 1, ''
    FROM memory_alertevent e JOIN memory_webhookendpoint w ON w.workspace_id = e.workspace_id
    """,
    """
    INSERT INTO memory_llmcall (id, workspace_id, user_id, purpose, work, turn, attempt, model,
        answered_by, instructions, prompt_hash, outcome, error, input_tokens, output_tokens, cost,
        reserved_tokens, started_at, expires_at, finished_at, seconds)
    SELECT gen_random_uuid(), u.workspace_id, u.id, 'structure', gen_random_uuid(), 1, 1,
        'openai:model-' || n %% 3, '', '', 'x', 'ok', '', 900, 120, 0.002, 2000, at, at, at, 1.5
    FROM generate_series(1, %(runs)s) n
    JOIN (SELECT id, workspace_id, row_number() OVER (ORDER BY id) AS place FROM memory_memoryuser)
        u ON u.place = n %% %(users)s + 1
    CROSS JOIN LATERAL (SELECT now() - n * interval '60 days' / %(runs)s AS at) moment
    """,
    """
    INSERT INTO memory_llmspending (workspace_id, day, model, purpose, outcome, calls, seconds,
        input_tokens, output_tokens, cost, presumed_tokens, presumed_cost)
    SELECT workspace_id, (started_at AT TIME ZONE 'UTC')::date, model, purpose, outcome, count(*),
        sum(seconds), sum(input_tokens), sum(output_tokens), sum(cost), 0, 0
    FROM memory_llmcall GROUP BY 1, 2, 3, 4, 5
    """,
)


def fill(owner: psycopg.Connection[Any], users: int, entries: int, runs: int) -> None:
    """Fill the tables, connected as their owner, and update the planner's statistics."""
    numbers = {
        "users": users,
        "entries": entries,
        "runs": runs,
        "workspaces": WORKSPACES,
        # The number of entries that the first user has; this user also has many runs and versions.
        "hot": max(entries // 20, 10),
    }
    for number in range(WORKSPACES):
        workspace = Workspace.objects.create(name=f"workspace {number}")
        WebhookEndpoint.objects.create(workspace=workspace, url="https://example.org/", secret=b"")
    with owner.cursor() as cursor:
        for statement in FILL:
            cursor.execute(statement, numbers)
            cursor.execute("ANALYZE")  # the next statements read the rows that this one wrote
    owner.commit()
    owner.autocommit = True
    tidy(owner)


def tidy(owner: psycopg.Connection[Any], seconds: float = 120) -> None:
    """Mark the tables' pages as all-visible, as autovacuum has done on a server in use.

    Only then does the planner use index-only scans. A transaction that began before the rows were
    committed, such as autovacuum's own scan of a table, prevents this; VACUUM is then repeated.

    Raises TimeoutError if a transaction stays open for too long.
    """
    deadline = time.monotonic() + seconds
    while True:
        owner.execute("VACUUM ANALYZE")
        unseen = owner.execute(UNSEEN, [list(LARGE)]).fetchall()
        if not unseen:
            return
        if time.monotonic() > deadline:
            others = owner.execute(OTHERS).fetchall()
            raise TimeoutError(f"an open transaction prevents VACUUM: {unseen}, {others}")
        time.sleep(0.5)


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and URL of each page to measure."""
    for period in ("day", "week", "month"):
        yield f"home, {period}", f"/admin/?period={period}"
    long_ago = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=60)
    hot, other = (MemoryUser.objects.order_by(order).first() for order in ("pk", "-pk"))
    for what, user in (("a user", other), ("a user with a long log", hot)):
        assert user is not None
        own = [user.pk]
        line = reverse("admin:memory_memoryuser_timeline", args=own)
        yield what, reverse("admin:memory_memoryuser_change", args=own)
        yield f"timeline of {what}", line
        yield f"… two months ago, of {what}", f"{line}?date={long_ago}"
        yield f"day of {what}", reverse("admin:memory_memoryuser_day", args=own)
        yield f"progress of {what}", reverse("admin:memory_memoryuser_progress", args=own)
        yield f"console of {what}", reverse("admin:memory_memoryuser_console", args=own)
        yield f"constraint of {what}", reverse("admin:memory_memoryuser_constraint", args=own)
        yield f"files of {what}", reverse("admin:memory_checkpoint_project", args=[user.head_id])
    yield "work", reverse("admin:memory_work")
    for model in apps.get_app_config("memory").get_models():
        if not admin.site.is_registered(model):
            continue
        name = model._meta.model_name
        yield f"list: {name}", reverse(f"admin:memory_{name}_changelist")
        row = model._default_manager.order_by("pk").first()
        if row is not None:
            yield f"one: {name}", reverse(f"admin:memory_{name}_change", args=[row.pk])


def whole_tables(statements: Sequence[str], few: int) -> list[str]:
    """Execute the statements again; return those that read a large table sequentially.

    Only sequential scans that visit more than `few` rows of a table in `LARGE`, or of all its
    partitions together, are returned.
    """
    found = []
    with connection.cursor() as cursor:
        for statement in statements:
            if not statement.lstrip(" (\n").upper().startswith("SELECT"):
                continue
            # The statement has no parameters, but its text may contain percent signs.
            cursor.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + statement.replace("%", "%%"), [])
            [(plan,)] = cursor.fetchall()
            plan = json.loads(plan) if isinstance(plan, str) else plan
            rows: Counter[str] = Counter()
            for node in nodes(plan[0]["Plan"]):
                if node["Node Type"] == "Seq Scan":
                    rows[re.sub(r"_\d+$", "", node["Relation Name"])] += round(rows_seen(node))
            found += [
                f"{table}: {seen} rows by {statement[:200]}"
                for table, seen in rows.items()
                if table in LARGE and seen > few
            ]
    return found


def nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield all nodes of a query plan."""
    yield plan
    for part in plan.get("Plans", []):
        yield from nodes(part)


def rows_seen(node: Mapping[str, Any]) -> float:
    """Return how many rows a node of a query plan has visited."""
    each = node.get("Actual Rows", 0) + node.get("Rows Removed by Filter", 0)
    return float(each * node.get("Actual Loops", 1))

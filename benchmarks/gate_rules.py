"""Write the recorded rules as edits, and run them on the days of each step."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gate_programs import days_before, satisfies
from benchmarks.gate_recordings import WAIT, Recorded
from benchmarks.harness import Client, Measured, alerts_of, expect, run_on

RULES = '''\
import datetime
from collections.abc import Iterator

from domains.rules.schema import Rule
from domains.rules.state import rules
from uac import Alert, critical, info, warning

NOTICE = datetime.timedelta(days=7)


def deadline_of(rule: Rule) -> datetime.date | None:
    if rule.anchor is None or rule.offset_days is None:
        return rule.deadline
    return rule.anchor + datetime.timedelta(days=rule.offset_days)


def check(today: datetime.date) -> Iterator[Alert]:
    """Each rule alerts while it is active: with a deadline, in the week before it."""
    for rule in rules:
        message, first, last = rule.message, rule.active_from, rule.active_until
        deadline = deadline_of(rule)
        if deadline is not None:
            first = first or deadline - NOTICE
            last = last or deadline
            message = message.replace("{days_remaining}", str((deadline - today).days))
            message = message.replace("{deadline}", deadline.isoformat())
        if (first is not None and today < first) or (last is not None and today > last):
            continue
        if rule.severity == "high":
            yield critical(message, evidence=[rule])
        elif rule.severity == "low":
            yield info(message, evidence=[rule])
        else:
            yield warning(message, evidence=[rule])
'''
RULES_TESTS = """\
import datetime

from constraints import rules
from domains.rules.schema import Rule
from uac.testing import run_check

DAY = datetime.date(2026, 1, 10)
ONE = datetime.timedelta(days=1)


def rule(first: datetime.date | None = None, last: datetime.date | None = None) -> Rule:
    return Rule(
        key="a", severity="high", topic="t", message="m", active_from=first, active_until=last
    )


def due(day: datetime.date) -> Rule:
    return Rule(
        key="b", severity="low", topic="t", message="by {deadline}, {days_remaining} days",
        anchor=day + ONE, offset_days=-1,
    )


def test_speaks_while_active() -> None:
    assert len(run_check(rules, today=DAY, rules=[rule(DAY, DAY)])) == 1
    (alert,) = run_check(rules, today=DAY, rules=[due(DAY + ONE)])
    assert alert.message == "by 2026-01-11, 1 days"


def test_is_silent_before_and_after() -> None:
    for silent in (rule(DAY + ONE), rule(last=DAY - ONE), due(DAY - ONE), due(DAY + 8 * ONE)):
        assert run_check(rules, today=DAY, rules=[silent]) == []
"""
DATES = ("active_from", "active_until", "deadline")
COMPUTED = (*DATES, "anchor", "offset_days", "message")
REASON = "computed by the recorded model from what was said in the sessions cited"
SCHEMA: list[dict[str, Any]] = [
    {
        "op": "define_class",
        "domain": "rules",
        "name": "Rule",
        "collection": "rules",
        "fields": [
            *({"name": name, "type": "str"} for name in ("severity", "topic", "message")),
            *({"name": name, "type": "datetime.date | None"} for name in (*DATES, "anchor")),
            {"name": "offset_days", "type": "int | None"},
        ],
    },
    {"op": "write_constraint", "name": "rules", "source": RULES, "tests_source": RULES_TESTS},
]


def edits_of_step(
    step: Mapping[str, Any], before: Mapping[str, Any], sources: Sequence[int]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the edits that turn the previous rules into those of a step, and the new rules.

    The recording does not show which session a rule comes from. So the edits cite all sessions up
    to this step, and mark the values that the model computed from them as derived.
    """
    now = {}
    for rule in step["ir"]["constraints"]:
        now[rule["id"]] = {
            "severity": rule["severity"],
            "topic": rule["type"],
            "message": rule["message_template"],
            **{name: rule[name] for name in DATES},
            "anchor": rule["deadline_anchor"],
            "offset_days": rule["deadline_offset_days"],
        }
    edits: list[dict[str, Any]] = []
    where = {"domain": "rules", "collection": "rules", "sources": [*sources]}
    for key, fields in now.items():
        written = {"key": key, "fields": fields, "derived": dict.fromkeys(COMPUTED, REASON)}
        if key not in before:
            edits.append({"op": "add", **where, "class_name": "Rule", **written})
        elif fields != before[key]:
            edits.append({"op": "update", **where, **written})
    edits += [
        {"op": "retire", **where, "key": key, "reason": "no longer among the rules"}
        for key in before
        if key not in now
    ]
    state = json.dumps(step["ir"]["state"], ensure_ascii=False)
    note = {"op": "note", "text": state, "sources": [*sources], "derived": {"text": REASON}}
    return [*edits, note], now


def rules(client: Client, recorded: Recorded) -> Measured:
    """Write the recorded rules of every step as edits and run them on the days of the step."""
    rows, problems = [], []
    cases = passed = early = 0
    for case in recorded.services:
        cases += 1
        user_id = f"v3-{case['case_id']}"
        expect(201, client.post("users/", {"user_id": user_id, "time_zone": "UTC"}))
        faults: list[str] = []
        before: dict[str, Any] = {}
        seqs: list[int] = []
        sessions = {session["step"]: session for session in case["sessions"]}
        for index, step in enumerate(case["recorded"]["v3"]):
            session = sessions[step["step"]]
            _, said = client.post(
                f"users/{user_id}/entries/",
                {
                    "kind": "message",
                    "role": "user",
                    "content": session["text"],
                    "occurred_at": f"{session['date']}T09:00:00Z",
                    "session_id": str(session["session_id"]),
                },
            )
            seqs.append(said["entries"][0]["seq"])
            edits, before = edits_of_step(step, before, seqs)
            edits = [*(SCHEMA if index == 0 else []), *edits]
            status, body = client.post(f"users/{user_id}/checkpoints/{WAIT}", {"edits": edits})
            if status != 200:
                faults.append(f"step {step['step']}: {status} {body!r:.300}")
                break
            for day in days_before(case["recorded"]["v3"], index):
                found = alerts_of(run_on(user_id, day))
                if found and not session["expected_alert"]:
                    early += 1
                    faults.append(f"step {step['step']}: an alert on {day}, too early")
                if session["expected_alert"] and not any(
                    satisfies(alert["message"], case["rubric_required"]) for alert in found
                ):
                    faults.append(f"step {step['step']}: no alert on {day} says what it should")
        passed += not faults
        problems += [f"{user_id}: {fault}" for fault in faults]
        rows.append({"module": f"v3 {case['case_id']}", "alerts": "; ".join(faults) or "passed"})
    return rows, {"v3_cases": cases, "v3_passed": passed, "v3_early_alerts": early}, problems

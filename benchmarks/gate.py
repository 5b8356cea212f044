"""What the gate makes of what a real model wrote: imports, repairs, refusals, and rules in time.

Reads from UAC_DATA_DIR:
- `llm_modules.jsonl`: every module is imported by a user of its own, over HTTP. What the project
  holds then is compared, value by value, with what executing the module gives (in a sandbox, read
  by code that the import has nothing to do with).
- `analytical.jsonl`, for the modules whose true records it knows: their faults, found here by
  comparing rows, must be found by the gate's check that nothing is lost.
- `active_service.jsonl`: the recorded programs, imported and run on the day of each step; and the
  recorded rules of the other format, expressed as edits.
"""

import datetime
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import (
    Client,
    alerts_of,
    parser,
    report,
    require_data,
    run_on,
    settings_of,
)
from uac_site.embedded.system import running_system

FILES = ("llm_modules.jsonl", "analytical.jsonl", "active_service.jsonl")
MODULE = "module.py"
WAIT = "?wait=30"


@dataclass(frozen=True)
class Recorded:
    """The cases of the recorded data; modules with known records come first."""

    modules: Sequence[Mapping[str, Any]]
    analytical: Mapping[str, Mapping[str, Any]]
    services: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, limit: int | None) -> "Recorded":
        """Read all files; of modules and services at most the limit."""
        modules, cases, services = (
            [json.loads(line) for line in path.read_text().splitlines()]
            for path in require_data(*FILES)
        )
        analytical = {case["case_id"]: case for case in cases}
        modules.sort(key=lambda case: case["id"] not in analytical)
        return cls(modules[:limit], analytical, services[:limit])


def import_module(client: Client, user_id: str, source: str) -> tuple[int, Any]:
    """Create a user and import one module; return the status and the decision.

    A request that the API refuses at once is returned with its status.
    """
    status, body = client.post("users/", {"user_id": user_id, "time_zone": "UTC"})
    assert status == 201, body
    status, body = client.post(f"users/{user_id}/import/{WAIT}", {"files": {MODULE: source}})
    if status == 202:
        run = client.finished(body["id"])
        output = run["output"] or {}
        body = {
            "accepted": run["outcome"] == "ok",
            "verdict": output.get("verdict"),
            "report": output.get("import"),
            "error": run["error"],
        }
        status = {"ok": 200, "rejected": 422}.get(run["outcome"], 500)
    return status, body


# Results of executing a module


def walk(source: str) -> Any:
    """Execute a module and return its variables, as plain JSON (this runs in a sandbox)."""
    import ast
    import dataclasses
    import enum
    import sys
    import types
    from typing import Any

    module = types.ModuleType("executed")
    sys.modules["executed"] = module
    exec(source, vars(module))
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }

    def plain(value: Any, path: tuple[int, ...]) -> Any:
        if isinstance(value, enum.Enum):
            return {"member": value.name}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            name = type(value).__name__
            if id(value) in path:
                return {"again": name}
            fields = {
                f.name: plain(getattr(value, f.name), (*path, id(value)))
                for f in dataclasses.fields(value)
            }
            return {"class": name, "fields": fields}
        if isinstance(value, dict):
            return {"dict": [[plain(k, path), plain(v, path)] for k, v in value.items()]}
        if isinstance(value, list | tuple):
            return [plain(item, path) for item in value]
        if isinstance(value, set | frozenset):
            return {"set": [plain(item, path) for item in value]}
        if value is None or isinstance(value, bool | int | str):
            return value
        return f"{type(value).__name__} {value}"

    return {
        name: plain(value, ())
        for name, value in vars(module).items()
        if not name.startswith("__")
        and name not in imported
        and not isinstance(value, type | types.FunctionType | types.ModuleType)
    }


def executed(source: str) -> tuple[dict[str, Any] | None, str]:
    """Return a module's variables after executing it in a sandbox, or its error."""
    from workers.sandbox import runner
    from workers.sandbox.interface import MEBIBYTE, Limits, SandboxError

    code = f"import json\nfrom typing import Any\n{inspect.getsource(walk)}\n"
    code += f"json.dumps(walk({source!r}))"
    limits = Limits(result_bytes=16 * MEBIBYTE)
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    try:
        with runner.open_sandbox() as sandbox:
            answer = sandbox.evaluate(code, now=now, time_zone="UTC", limits=limits)
    except SandboxError as error:
        said = f"{error.error.type}: {error.error.message}" if error.error else str(error)
        return None, said
    found: dict[str, Any] = json.loads(str(answer.value))
    return found, ""


# Content of the project


class State:
    """The records of a user's project as the API gives them, references followed."""

    def __init__(self, client: Client, user_id: str) -> None:
        self.holders: dict[str, list[dict[str, Any]]] = {}
        self.records: dict[tuple[str, str], list[dict[str, Any]]] = {}
        _, overview = client.get(f"users/{user_id}/state/")
        for domain, about in overview["domains"].items():
            for name in (*about["collections"], *about["singletons"]):
                page: int | None = 1
                rows = self.holders.setdefault(name, [])
                while page:
                    _, body = client.get(f"users/{user_id}/state/{domain}/{name}/?page={page}")
                    rows += body["records"]
                    page = body["next"]
                for row in rows:
                    self.records.setdefault((row["$record"], row["key"]), []).append(row)

    def plain(self, value: Any, path: tuple[str, ...] = ()) -> Any:
        """Return typed JSON in the form of `walk`."""
        if isinstance(value, list):
            return [self.plain(item, path) for item in value]
        if not isinstance(value, dict):
            return f"float {value}" if isinstance(value, float) else value
        if "$ref" in value:
            (row,) = self.records[value["$ref"], value["key"]]
            return self.plain(row, path)
        if "$record" in value or "$object" in value:
            name = value.get("$record") or value["$object"]
            mark = f"{name} {value.get('key')}"
            if "key" in value and mark in path:
                return {"again": name}
            inner = (*path, mark)
            fields = {field: self.plain(one, inner) for field, one in value["fields"].items()}
            return {"class": name, "fields": fields}
        for tag, kind in (("$date", "date"), ("$time", "time"), ("$decimal", "Decimal")):
            if tag in value:
                return f"{kind} {value[tag]}"
        if "$datetime" in value:
            return f"datetime {value['$datetime'].replace('T', ' ')}"
        if "$enum" in value:
            return {"member": value["$enum"].rpartition(".")[2]}
        if "$int" in value:
            return int(value["$int"])
        raise ValueError(f"{value!r:.100} is unknown here")

    def named(self, name: str) -> Any:
        """Return what a name of the module has become; raise KeyError if it is gone."""
        for variables in self.holders.get("variables", []):
            if name in variables["fields"]:
                return self.plain(variables["fields"][name])
        for holder in (name, name.lower(), f"{name.lower()}_"):
            if holder in self.holders:
                rows = [self.plain(row) for row in self.holders[holder]]
                return rows if len(rows) != 1 else OneOrMany(rows[0])
        for (_, key), rows in self.records.items():
            if key == name:
                return self.plain(rows[0])
        raise KeyError(name)


class OneOrMany:
    """A record that may stand for itself, or for the one-element list that it is in."""

    def __init__(self, row: Any) -> None:
        self.row = row


def differences(expected: Any, found: Any, place: str) -> Iterator[str]:
    """Yield where two plain values differ; changes of form that an import announces are equal."""
    if isinstance(found, OneOrMany):
        found = [found.row] if isinstance(expected, list) else found.row
    if isinstance(expected, dict) and "dict" in expected:
        pairs = expected["dict"]
        if isinstance(found, list) and not all(_is_entry(item) for item in found):
            expected = [value for _, value in pairs]  # a collection with these keys
        elif isinstance(found, list):
            expected = [{"class": "", "fields": {"name": k, "value": v}} for k, v in pairs]
        else:
            expected = {"class": "", "fields": dict(pairs)}
    if isinstance(expected, dict) and "set" in expected:
        expected = sorted(expected["set"], key=lambda item: json.dumps(item, sort_keys=True))
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            yield f"{place}: {len(found)} instead of {len(expected)}"
            return
        for index, (left, right) in enumerate(zip(expected, found, strict=True)):
            yield from differences(left, right, f"{place}[{index}]")
    elif isinstance(expected, dict) and isinstance(found, dict) and "fields" in expected:
        fields = found.get("fields", {})
        if expected["class"].rstrip("_") not in ("", str(found.get("class")).rstrip("_")):
            yield f"{place}: a {found.get('class')} instead of a {expected['class']}"
        for name in expected["fields"].keys() | fields.keys():
            at = name if name in fields else f"{name}_"
            if at not in fields:
                yield f"{place}.{name}: is lost"
            elif name not in expected["fields"] and name.rstrip("_") not in expected["fields"]:
                yield f"{place}.{name}: is new"
            elif name in expected["fields"]:
                yield from differences(expected["fields"][name], fields[at], f"{place}.{name}")
    elif expected != found or type(expected) is not type(found):
        yield f"{place}: {found!r:.60} instead of {expected!r:.60}"


def _is_entry(item: Any) -> bool:
    return isinstance(item, dict) and set(item.get("fields", {})) == {"name", "value"}


def compared(state: State, expected: Mapping[str, Any]) -> list[str]:
    """Return every difference between a module's variables and the project."""
    found = []
    for name, value in expected.items():
        try:
            found += list(differences(value, state.named(name), name))
        except KeyError:
            found.append(f"{name}: is lost")
    return found


# Faults against the true records


def faults(rows: Sequence[Mapping[str, Any]], true: Mapping[Any, Mapping[str, Any]]) -> set[Any]:
    """Return (kind, id) of every true record that is missing, doubled or wrong in these rows."""
    by_id: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_id.setdefault(row.get("id"), []).append(row)
    found = {("record_lost", number) for number in true.keys() - by_id.keys()}
    found |= {("record_unexpected", number) for number in by_id.keys() - true.keys()}
    for number, same in by_id.items():
        if len(same) > 1:
            found.add(("record_doubled", number))
        if number in true and any(row != true[number] for row in same):
            found.add(("record_changed", number))
    return found


def faults_that_the_gate_finds(
    rows: Sequence[Mapping[str, Any]], true: Mapping[Any, Mapping[str, Any]]
) -> set[Any]:
    """Return the same as `faults`, but found by the gate's check of losses."""
    from memory.project import EditError, Project, RecordEntry, apply, compile_record
    from workers.checkpointing.no_loss import losses

    def records(those: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Any, Any]]:
        for row in those:  # each in its own project, since a key may occur twice
            project = Project.empty()
            entry = RecordEntry(1, "data", "Row", str(row.get("id")), "rows", row)
            try:
                for edit in compile_record(project, entry):
                    apply(project, edit)
            except EditError:
                continue
            yield from project.records("data", "rows")

    findings = losses(dict(records(list(true.values()))), list(records(rows)))
    ids = {str(key): key for key in (*true, *(row.get("id") for row in rows))}
    return {(finding.code, ids[finding.record.key]) for finding in findings if finding.record}


def damaged(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return true rows with a fault of every kind inserted."""
    planted = [dict(row) for row in rows]
    changed = planted[0]
    name = next(name for name in changed if name != "id")
    value = changed[name]
    changed[name] = f"{value}x" if isinstance(value, str) else value + 1
    del planted[1]
    planted.append(dict(planted[2]))
    planted.append({**planted[3], "id": -1})
    return planted


def rows_of(state: State) -> list[dict[str, Any]]:
    """Return all records as plain rows, dates as ISO texts."""
    return [
        {name: _row_value(value) for name, value in row["fields"].items()}
        for rows in state.holders.values()
        for row in rows
    ]


def _row_value(value: Any) -> Any:
    return value.get("$date", value) if isinstance(value, dict) else value


# The parts


def modules(
    client: Client, recorded: Recorded
) -> tuple[list[dict[str, Any]], dict[str, Any], list[str]]:
    """Import every module; return a row for each, the figures, and what is wrong."""
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    count: Counter[str] = Counter()
    for index, case in enumerate(recorded.modules):
        true = recorded.analytical.get(case["id"])
        row, wrong = check_module(client, f"module-{index}", case, true, count)
        rows.append(row)
        problems += wrong
    names = (
        "modules",
        "imported",
        "repaired",
        "rejected",
        "false_rejections",
        "silent_changes",
        "crashes",
    )
    figures: dict[str, Any] = {name: count[name] for name in names}
    faulty, planted = count["faulty"], count["planted"]
    every, found = faulty + planted, count["found"]
    figures["wrong_values_found_share"] = found / every if every else None
    figures |= {"wrong_values_of_the_model": faulty, "wrong_values_planted": planted}
    return rows, figures, problems


def check_module(
    client: Client,
    user_id: str,
    case: Mapping[str, Any],
    true: Mapping[str, Any] | None,
    count: Counter[str],
) -> tuple[dict[str, Any], list[str]]:
    """Import one module, and count what came of it; return its row, and what is wrong."""
    status, body = import_module(client, user_id, case["code"])
    runs, _ = executed(case["code"])
    repairs = [
        name for one in (body.get("report") or {}).get("repairs", []) for name in one["repairs"]
    ]
    row: dict[str, Any] = {
        "module": case["id"][:40],
        "executes": runs is not None,
        "status": status,
        "repairs": ", ".join(repairs),
    }
    count["modules"] += 1
    if status == 422:
        count["rejected"] += 1
        row["reason"] = body["verdict"]["reason"][:90]
        if runs is None:
            return row, []
        count["false_rejections"] += 1
        return row, [f"{user_id}: executes, and was refused: {row['reason']}"]
    if status != 200:
        count["crashes"] += 1
        return row, [f"{user_id}: {status} {body!r:.200}"]
    count["imported"] += 1
    count["repaired"] += bool(repairs)
    state = State(client, user_id)
    changed = find_changes(state, case["code"])
    count["silent_changes"] += bool(changed)
    problems = [f"{user_id}: {one}" for one in changed[:3]]
    row["records"] = sum(map(len, state.holders.values()))
    if true is not None:
        row["faults"], excess = check_faults(state, true, count)
        if excess:
            problems.append(f"{user_id}: the gate finds what is no fault: {excess!r:.200}")
    return row, problems


def find_changes(state: State, source: str) -> list[str]:
    """Return where the project differs from what executing the module gives."""
    from workers.checkpointing.repairs import repair

    expected, why = executed(repair(source).source)
    return [f"does not execute: {why}"] if expected is None else compared(state, expected)


def check_faults(
    state: State, true: Mapping[str, Any], count: Counter[str]
) -> tuple[str, set[Any]]:
    """Count the faults of the module and planted ones, and those of them that the gate finds.

    Returns how many of the module's own it finds, and what it finds among planted ones beyond them.
    """
    records = {one["id"]: one for one in true["records"]}
    there = rows_of(state)
    here, gate = faults(there, records), faults_that_the_gate_finds(there, records)
    found = f"{len(here & gate)}/{len(here)}"
    count["faulty"] += len(here)
    count["found"] += len(here & gate)
    wrong = damaged(list(records.values()))
    here, gate = faults(wrong, records), faults_that_the_gate_finds(wrong, records)
    count["planted"] += len(here)
    count["found"] += len(here & gate)
    return found, gate - here


def days_before(steps: Sequence[Mapping[str, Any]], index: int) -> list[str]:
    """Return the days on which a step's state is checked: its own, and the last before the next."""
    days = [steps[index]["date"]]
    if index + 1 < len(steps):
        following = datetime.date.fromisoformat(steps[index + 1]["date"])
        days.append(
            str(max(datetime.date.fromisoformat(days[0]), following - datetime.timedelta(1)))
        )
    return days


def programs(
    client: Client, recorded: Recorded
) -> tuple[list[dict[str, Any]], dict[str, Any], list[str]]:
    """Import the recorded program of every step, and run it on the days of the step.

    An alert is early if it fires before its day with the expected content; on a day without an
    expected one, any other is counted separately: the program may be right to raise it.
    """
    rows: list[dict[str, Any]] = []
    steps = loaded = early = other = on_day = expected_on_day = 0
    for case in recorded.services:
        sessions = {session["step"]: session for session in case["sessions"]}
        for index, step in enumerate(case["recorded"]["v2"]):
            steps += 1
            user_id = f"v2-{case['case_id']}-{step['step']}"
            status, body = import_module(client, user_id, step["raw_response"])
            row = {"module": f"v2 {case['case_id']} {step['step']}", "status": status}
            rows.append(row)
            if status != 200:
                row["reason"] = str((body.get("verdict") or body).get("reason"))[:90]
                continue
            expected = sessions[step["step"]]["expected_alert"]
            ran = [run_on(user_id, day) for day in days_before(case["recorded"]["v2"], index)]
            failed = next((run.error for run in ran if run.outcome != "ok"), None)
            loaded += failed is None
            said = [alert["message"] for run in ran for alert in alerts_of(run)]
            spoke = any(satisfies(message, case["rubric_required"]) for message in said)
            early += spoke and not expected
            other += bool(said) and not spoke and not expected
            expected_on_day += expected
            on_day += expected and bool(alerts_of(ran[0]))
            row["alerts"] = f"{'spoke' if said else 'silent'}, {'expected' if expected else 'not'}"
            row["reason"] = (failed or {}).get("message", "")
    figures = {
        "v2_steps": steps,
        "v2_loaded": loaded,
        "v2_early_alerts": early,
        "v2_other_alerts": other,
        "v2_alerts_on_day": on_day,
        "v2_alerts_expected": expected_on_day,
    }
    return rows, figures, []


# The recorded rules as edits

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
    """Each rule speaks while it is active: with a deadline, in the week before it."""
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
    """Return the edits that lead from the rules before to those of a step, and these rules.

    The recording does not tell which session a rule comes from: they cite all sessions until then,
    and values that the model computed from them are marked as derived.
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
        if key not in before:
            add = {"op": "add", **where, "class_name": "Rule", "key": key, "fields": fields}
            edits.append({**add, "derived": dict.fromkeys(COMPUTED, REASON)})
        elif fields != before[key]:
            update = {"op": "update", **where, "key": key, "fields": fields}
            edits.append({**update, "derived": dict.fromkeys(COMPUTED, REASON)})
    edits += [
        {"op": "retire", **where, "key": key, "reason": "no longer among the rules"}
        for key in before
        if key not in now
    ]
    state = json.dumps(step["ir"]["state"], ensure_ascii=False)
    note = {"op": "note", "text": state, "sources": [*sources], "derived": {"text": REASON}}
    return [*edits, note], now


def rules(
    client: Client, recorded: Recorded
) -> tuple[list[dict[str, Any]], dict[str, Any], list[str]]:
    """Write the recorded rules of every step as edits, and run them on the days of the step."""
    rows, problems = [], []
    cases = passed = early = 0
    for case in recorded.services:
        cases += 1
        user_id = f"v3-{case['case_id']}"
        status, body = client.post("users/", {"user_id": user_id, "time_zone": "UTC"})
        assert status == 201, body
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


def satisfies(message: str, rubric: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a message matches one pattern of every group."""
    return all(
        any(re.search(pattern, message, re.IGNORECASE) for pattern in group)
        for group in rubric.values()
    )


def main() -> None:
    """Run all parts and report."""
    asked = parser(__doc__, limit=(None, 1)).parse_args()
    recorded = Recorded.read(asked.limit)
    rows: list[dict[str, Any]] = []
    figures: dict[str, Any] = {}
    problems: list[str] = []
    with running_system() as system:
        settings_of(system)
        key = json.loads(system.manage("create_workspace", "benchmark"))["api_key"]
        client = Client(system.base_url, key)
        for part in (modules, programs, rules):
            its_rows, its_figures, its_problems = part(client, recorded)
            rows += its_rows
            figures |= its_figures
            problems += its_problems
        figures["early_alerts"] = figures["v2_early_alerts"] + figures["v3_early_alerts"]
        from workers.sandbox.runner import close_pool, runner_name

        settings = {"runner": runner_name()}
        close_pool()
    columns = ("module", "executes", "status", "repairs", "records", "faults", "alerts", "reason")
    rows = [{name: row.get(name, "") for name in columns} for row in rows]
    report(
        "gate", settings=settings, rows=rows, figures=figures, path=asked.json, problems=problems
    )


if __name__ == "__main__":
    main()

"""The gate: what a candidate project must pass to become a checkpoint.

Its work follows the change: files that a change leaves alone were accepted before, byte for byte,
and are neither parsed nor compiled nor checked again. They are executed, since the new version is
one program.
"""

import datetime
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from django.utils import timezone

from memory.canonical import canonical_json, sha256
from memory.models import Checkpoint, MemoryUser
from memory.project import Change, ProjectError, Record, RecordId
from memory.project.legacy import is_legacy
from memory.project.literals import Uses, record_literal
from memory.project.parse import parse_state
from memory.project.typed import encode
from workers.checkpointing.policy import check_policy
from workers.errors import error_json, user_error_json
from workers.projects import allowance_of, bytecode_of, load, loaded
from workers.sandbox import runner
from workers.sandbox.interface import Allowance, ConstraintRun, Limits, Sandbox, SandboxError

# An interpreter that orders its sets and hashes its strings differently must find the same.
OTHER_HASH_SEED = 1
MAX_FINDINGS = 20


class GateUnavailable(Exception):
    """The sandbox could not be had or broke: there is no verdict, and it is worth another try."""


@dataclass(frozen=True)
class Check:
    """One check with what it found; nothing found means passed."""

    name: str
    findings: Sequence[Mapping[str, Any]]

    @property
    def passed(self) -> bool:
        """Whether the candidate passed this check."""
        return not self.findings


@dataclass
class Verdict:
    """What the gate says of a candidate, check by check."""

    checks: list[Check] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    bytecode: dict[str, str] = field(default_factory=dict)
    image_digest: str = ""
    runner: str = ""

    @property
    def accepted(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    @property
    def reason(self) -> str:
        """Say in one line what failed first; empty if nothing did."""
        for check in self.checks:
            for finding in check.findings:
                path = finding.get("path")
                place = f"{path}:{finding.get('line') or 1}: " if path else ""
                return f"{check.name}: {place}{finding['message']}"
        return ""

    def to_json(self) -> dict[str, Any]:
        """Return what is stored with a checkpoint or a refused proposal."""
        return {
            "accepted": self.accepted,
            "reason": self.reason,
            "checks": [
                {
                    "name": check.name,
                    "passed": check.passed,
                    "findings": [dict(finding) for finding in check.findings[:MAX_FINDINGS]],
                }
                for check in self.checks
            ],
            "counts": self.counts,
            "timings": self.timings,
            "runner": self.runner,
        }


def judge(
    user: MemoryUser, parent: Checkpoint | None, change: Change, *, judge_code: bool = False
) -> Verdict:
    """Judge a change of the project at `parent`; raises GateUnavailable.

    With `judge_code`, tests and constraints must pass too. A change made of typed entries goes
    without: a fact is not refused because a constraint cannot cope with it. The constraint's run
    after the checkpoint fails visibly instead.

    The checks run from the cheap to the dear and stop at the first that fails, because those after
    it would speak of its consequences.
    """
    verdict = Verdict()
    # What is kept of another project as it came is no part of this one's program.
    sources = {
        path: text
        for path, text in change.files.items()
        if text is not None and not is_legacy(path)
    }
    verdict.counts = {
        "files_changed": len(change.files),
        "files_parsed": change.files_parsed,
        "files_rendered": change.files_rendered,
        "files_checked": len(sources),
        "records_added": len(change.added),
        "records_updated": len(change.updated),
        "records_retired": len(change.retired),
    }
    verdict.checks.append(Check("policy", list(_policy(sources))))
    if verdict.accepted:
        verdict.checks.append(Check("no loss", list(_loss(change, sources))))
    if not verdict.accepted:
        return verdict
    try:
        _execute(user, parent, change, sources, verdict, judge_code=judge_code)
    except SandboxError as error:
        # Without anybody's code to judge, slowness is the machine's.
        if error.infrastructure or (error.outcome == "timeout" and not judge_code):
            raise GateUnavailable(str(error)) from error
        verdict.checks.append(Check("execution", [_finding(error_json(error))]))
    return verdict


def _policy(sources: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for path, source in sources.items():
        for finding in check_policy(path, source):
            yield {
                "path": finding.path,
                "line": finding.line,
                "code": finding.code,
                "message": finding.message,
            }


def _loss(change: Change, sources: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Records before + added - retired are the records after, by key and with equal values.

    What is compared is what the rendered files say when they are read back, not what the edits
    meant to write.
    """
    before: dict[RecordId, Record] = {}
    after: list[tuple[RecordId, Record]] = []
    for path in change.expected:
        domain = _domain_of(path)
        try:
            state = parse_state(path, sources[path], change.outline.domains[domain])
        except ProjectError as error:
            yield {"path": path, "line": error.line, "message": str(error)}
            return
        for collection, by_key in state.records.items():
            after += [(RecordId(domain, collection, key), one) for key, one in by_key.items()]
        for collection, records in change.previous_records_in(path).items():
            before |= {RecordId(domain, collection, record.key): record for record in records}
    retired = set(change.retired)
    expected = {
        record_id: record for record_id, record in before.items() if record_id not in retired
    }
    expected |= {record_id: placed.record for record_id, placed in change.records.items()}
    yield from losses(expected, after)
    for record_id in change.added:
        if record_id in before:
            yield {"message": f"the record {record_id} would be added a second time"}


def losses(
    expected: Mapping[RecordId, Record], after: Sequence[tuple[RecordId, Record]]
) -> Iterator[dict[str, Any]]:
    """Compare the records that there should be with those that there are: none lost or changed.

    Equal means equal and of equal types, which Python's own comparison is not: 1 == 1.0 == True.
    """
    found: dict[RecordId, list[Record]] = {}
    for record_id, record in after:
        found.setdefault(record_id, []).append(record)
    for record_id in sorted(expected.keys() | found.keys()):
        if record_id not in found:
            yield {"code": "lost", "message": f"the record {record_id} would be lost"}
            continue
        if len(found[record_id]) > 1:
            message = f"the record {record_id} would be there {len(found[record_id])} times"
            yield {"code": "doubled", "message": message}
        if record_id not in expected:
            message = f"the record {record_id} would appear from nowhere"
            yield {"code": "appeared", "message": message}
        elif not all(_same(one, expected[record_id]) for one in found[record_id]):
            message = f"the record {record_id} would change its value"
            yield {"code": "changed", "message": message}


def _same(left: Record, right: Record) -> bool:
    return left == right and record_literal(left, Uses()) == record_literal(right, Uses())


def _execute(
    user: MemoryUser,
    parent: Checkpoint | None,
    change: Change,
    sources: Mapping[str, str],
    verdict: Verdict,
    *,
    judge_code: bool,
) -> None:
    """Compile what changed, load the new version and see that it holds what it should.

    What passes stays resident for a while: its constraints run next.
    """
    started = time.monotonic()
    allowance = allowance_of(user)
    with runner.lease(user.pk, allowance, fresh=True) as lease, ExitStack() as stack:
        # It has executed nothing of anybody's yet, so its bytecode can be trusted.
        sandbox = lease.sandbox
        verdict.runner = sandbox.runner_name
        verdict.image_digest = sandbox.image_digest
        verdict.bytecode = sandbox.compile(sources)
        verdict.counts["files_compiled"] = len(verdict.bytecode)
        compiled = time.monotonic()
        verdict.timings["compile"] = compiled - started

        before = bytecode_of(
            parent, sandbox.image_digest, allowance.shape, without=change.files.keys()
        )
        bytecode = {**before, **verdict.bytecode}
        sandboxes = [sandbox]
        if judge_code:
            other = runner.open_sandbox(hash_seed=OTHER_HASH_SEED, shape=allowance.shape)
            sandboxes.append(stack.enter_context(other))
        for one in sandboxes:
            load(one, parent, bytecode)
        verdict.timings["load"] = time.monotonic() - compiled
        verdict.checks.append(Check("execution", list(_state(sandbox, change))))
        if judge_code and verdict.accepted:
            verdict.checks.append(Check("tests", list(_tests(sandbox, change, allowance.limits))))
        if judge_code and verdict.accepted:
            found = _constraints(sandboxes, user, parent, change, allowance)
            verdict.checks.append(Check("constraints", list(found)))
        if verdict.accepted:
            tree = parent.tree if parent else {}
            kept = {path: tree[path] for path in tree.keys() - change.files.keys()}
            changed = {path: text for path, text in change.files.items() if text is not None}
            lease.tree = {**kept, **{path: sha256(text) for path, text in changed.items()}}
    verdict.timings["total"] = time.monotonic() - started


def _state(sandbox: Sandbox, change: Change) -> Iterator[dict[str, Any]]:
    """The interpreter sees the records that the edits describe, and as many as there should be."""
    dump = sandbox.dump(list(change.expected))
    for domain in change.outline.domains.values():
        counts = {name: collection.count for name, collection in domain.collections.items()}
        counts |= dict.fromkeys(domain.singletons, 1)
        for name, count in counts.items():
            seen = dump.counts.get(domain.name, {}).get(name, 0)
            if seen != count:
                yield {"message": f"{domain.name}.{name} has {seen} records, not {count}"}
    for path in change.expected:
        of_domain = change.outline.domains[_domain_of(path)]
        expected = {
            collection: [encode(record, of_domain) for record in records]
            for collection, records in change.records_in(path).items()
            if records
        }
        seen_records = {name: rows for name, rows in dump.records.get(path, {}).items() if rows}
        if canonical_json(seen_records) != canonical_json(expected):
            yield {"path": path, "message": "its records read otherwise when it is executed"}


def _tests(sandbox: Sandbox, change: Change, limits: Limits) -> Iterator[dict[str, Any]]:
    """Every test passes, and every constraint that is written comes with one."""
    tests = change.outline.tests
    results = sandbox.run_tests(tests, limits=limits).results if tests else ()
    # A file that could not run to its end may well have tests: it has an error, which comes below.
    tested = {result.name.partition("::")[0] for result in results}
    for path in change.files:
        if path.startswith("constraints/") and change.files[path] is not None:
            name = path.removeprefix("constraints/").removesuffix(".py")
            if name != "__init__" and f"tests/test_{name}.py" not in tested:
                yield {
                    "path": f"tests/test_{name}.py",
                    "message": "has no test: add functions named test_… that show the constraint"
                    " speak and be silent",
                }
    for result in results:
        if result.error is not None:
            yield _finding({**user_error_json(result.error), "test": result.name})


def _constraints(
    sandboxes: Sequence[Sandbox],
    user: MemoryUser,
    parent: Checkpoint | None,
    change: Change,
    allowance: Allowance,
) -> Iterator[dict[str, Any]]:
    """No constraint fails that did not before, and all say the same in every order of hashing."""
    if not change.outline.constraints:
        return
    now = timezone.now()
    ran = [
        sandbox.run_constraints(now=now, time_zone=user.time_zone, limits=allowance.limits)
        for sandbox in sandboxes
    ]
    failed = {
        result.path: result.error
        for run in ran
        for result in run.results
        if result.error is not None
    }
    old = [path for path in failed if path not in change.files]
    failed_before = set(_failing(parent, old, user, now, allowance)) if old and parent else set()
    for path, error in failed.items():
        if path not in failed_before:
            yield _finding({**user_error_json(error), "path": path})
    for path in _paths_that_differ(ran):
        if path not in failed:
            yield {
                "path": path,
                "code": "not_deterministic",
                "message": "finds other alerts when sets are ordered otherwise; sort what you"
                " iterate",
            }


def _failing(
    parent: Checkpoint,
    paths: Sequence[str],
    user: MemoryUser,
    now: datetime.datetime,
    allowance: Allowance,
) -> list[str]:
    with loaded(parent, allowance) as sandbox:
        ran = sandbox.run_constraints(
            paths, now=now, time_zone=user.time_zone, limits=allowance.limits
        )
    return [result.path for result in ran.results if result.error is not None]


def _paths_that_differ(ran: Sequence[ConstraintRun]) -> list[str]:
    first, *others = [{result.path: result.alerts for result in run.results} for run in ran]
    return sorted(path for path in first if any(first[path] != other[path] for other in others))


def _domain_of(path: str) -> str:
    return path.split("/")[1]


def _finding(error: Mapping[str, Any]) -> dict[str, Any]:
    return {**error, "message": f"{error['type']}: {error['message']}"}

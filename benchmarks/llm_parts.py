"""The parts of the benchmark `llm`, which run against a server; import this with its settings."""

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import connections
from django.db.models import Sum

from benchmarks import analytical
from benchmarks.answering import Memory, ToolFailed, agrees, answer, compute
from benchmarks.gate_programs import days_before, satisfies
from benchmarks.harness import (
    Client,
    Measured,
    Row,
    alerts_of,
    append,
    expect,
    new_client,
    run_on,
)
from benchmarks.scores import token_f1
from deploy.embedded.system import System
from memory.kernel import encryption
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings.language_models import LanguageModelError
from memory.llm.llm_calls import CallSession
from memory.llm.models import LlmCall, LlmOutcome, LlmPurpose
from memory.log.models.entries import EntryOutcome, LogEntry, Outcome
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run, RunKind, RunOutcome
from workers.llm.interface import User
from workers.llm.metered import MeteredModel

CATEGORIES = {1: "multi_hop", 2: "temporal", 3: "open_domain", 4: "single_hop", 5: "adversarial"}
PATIENCE_SECONDS = 3600
# A user is skipped once the model has failed on them more often than this.
MAX_ATTEMPTS = 3
WARN = "Of what does a memory have to warn its user on this day?"

Case = Mapping[str, Any]


@dataclass(frozen=True)
class Bench:
    """The surroundings of one part of the benchmark: server, workspace of its own, any judge."""

    system: System
    client: Client
    part: str
    workspace: Workspace
    judge: Workspace | None
    problems: list[str] = field(default_factory=list)

    def row(self, case: str, about: str, **values: Any) -> Row:
        """Make a row of the table, print it at once, and return it."""
        columns = dict.fromkeys(("category", "expected", "answer", "early", "score", "judged"), "")
        row = {"part": self.part, "case": case, "about": about, **columns, **values}
        print(json.dumps(row, ensure_ascii=False), flush=True)
        return row

    def memory(self, user_id: str) -> Memory:
        """Return access to a user's memory on the server."""
        users = MemoryUser.objects.select_related("workspace")
        return Memory(self.client, users.get(workspace=self.workspace, user_id=user_id))

    def new_user(self, user_id: str) -> None:
        """Create a user in the time zone UTC."""
        expect(201, self.client.post("users/", {"user_id": user_id, "time_zone": "UTC"}))

    def tell(self, user_id: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """Append messages, and wait until all are settled or the model has failed for good."""
        append(self.client, user_id, messages)
        deadline = time.monotonic() + PATIENCE_SECONDS
        lane = Lane.objects.get(
            user__workspace=self.workspace, user__user_id=user_id, name=LaneName.STRUCTURE
        )
        while True:
            self.system.check()
            user = self.client.get(f"users/{user_id}/")[1]
            if user["entries"]["pending"] == 0:
                return
            standing = user["structure"]
            lane.refresh_from_db()
            for_good = standing["state"] == "stopped" and standing["until"] is None
            if for_good or lane.attempts > MAX_ATTEMPTS or time.monotonic() > deadline:
                self.problems.append(f"{user_id}: not settled: {standing['reason']}")
                return
            time.sleep(1)

    def asked(self, case: str, ask: Callable[[], Any]) -> Any:
        """Return the answer that `ask` gets, or record a problem and return None if it fails."""
        try:
            return ask()
        except (LanguageModelError, ToolFailed, TimeoutError) as error:
            self.problems.append(f"{case}: {error}")
            return None

    def judged(self, case: str, question: str, expected: str, said: str) -> Any:
        """Return whether the judge accepts the answer, or "" if there is no judge."""
        judge = self.judge
        if judge is None:
            return ""
        return bool(said) and self.asked(case, lambda: agrees(judge, question, expected, said))


def side_by_side(do: Callable[[Any], list[Row]], items: Sequence[Any]) -> list[Row]:
    """Apply `do` to all items, concurrently; return the rows in the order of the items.

    As many items are processed at a time as the server allows concurrent calls to the model.
    """

    def one(item: Any) -> list[Row]:
        try:
            return do(item)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(settings.UAC_LLM_CONCURRENCY) as pool:
        return [row for rows in pool.map(one, items) for row in rows]


def locomo(bench: Bench, cases: Sequence[Case]) -> tuple[list[Row], dict[str, Any]]:
    """Send every conversation, then ask every question; return a row per question, and scores."""

    def told(case: Case) -> list[Row]:
        bench.new_user(case["id"])
        for session in case["sessions"]:
            bench.tell(case["id"], session["messages"])
        return []

    def answered(item: tuple[Memory, str, Mapping[str, Any]]) -> list[Row]:
        memory, case, question = item
        text = question["question"]
        said = bench.asked(case, lambda: answer(memory, text)) or ""
        row: Row = {"category": CATEGORIES[question["category"]], "expected": "Not mentioned"}
        if question["category"] != 5:
            row["expected"] = question["answer"]
            row["judged"] = bench.judged(case, text, question["answer"], said)
        score = round(locomo_score(question, said), 3)
        return [bench.row(case, text, **row, answer=said, score=score)]

    side_by_side(told, cases)
    items = []
    for case in cases:
        memory = bench.memory(case["id"])
        items += [(memory, f"{case['id']} {n}", one) for n, one in enumerate(case["questions"])]
    rows = side_by_side(answered, items)
    known = [row for row in rows if row["category"] != "adversarial"]
    figures = {"questions": len(rows), "f1": _mean(known), "judged": _mean(known, "judged")}
    for name in CATEGORIES.values():
        figures[name] = _mean([row for row in rows if row["category"] == name])
    return rows, figures


def analytical_questions(bench: Bench, cases: Sequence[Case]) -> tuple[list[Row], dict[str, Any]]:
    """Load the records of every case and ask its question.

    Returns a row per case, and the number of correct answers.
    """

    def answered(case: Case) -> list[Row]:
        analytical.load(bench.client, case["id"], {case["type"]: case["records"]})
        memory = bench.memory(case["id"])
        value = bench.asked(case["id"], lambda: compute(memory, case["question"]))
        row = {"category": case["answer_kind"], "expected": json.dumps(case["gold"])}
        row["answer"] = json.dumps(value, ensure_ascii=False)[:200]
        score = int(analytical.equals_gold(value, case))
        return [bench.row(case["id"], case["question"], **row, score=score)]

    rows = side_by_side(answered, cases)
    return rows, {"cases": len(rows), "correct": sum(row["score"] for row in rows)}


def services(bench: Bench, cases: Sequence[Case]) -> tuple[list[Row], dict[str, Any]]:
    """Send every case session by session and check its alerts; return a row per session.

    A session scores if the alert that is due on its day is open then, or if no alert is due and
    none is open.
    """

    def told(case: Case) -> list[Row]:
        bench.new_user(case["id"])
        return [_told(bench, case, index) for index in range(len(case["sessions"]))]

    rows = side_by_side(told, cases)
    due = [row for row in rows if row["expected"]]
    early = [row for row in rows if not row["expected"] and not row["score"]]
    not_passed = {row["case"] for row in rows if not row["score"]}
    return rows, {
        "cases": len(cases),
        "passed": len(cases) - len(not_passed),
        "on_day": sum(row["score"] for row in due),
        "early": len(early),
        "judged": _mean(due, "judged"),
    }


def _told(bench: Bench, case: Case, index: int) -> Row:
    session, user_id = case["sessions"][index], case["id"]
    bench.tell(user_id, session["messages"])
    days = days_before(case["sessions"], index)
    has_state = bench.memory(user_id).user.head_id is not None
    found = [alerts_of(run_on(user_id, day)) if has_state else [] for day in days]
    said = [[alert["message"] for alert in alerts] for alerts in found]
    row: Row = {"answer": " | ".join(said[0])}
    if session["due"]:
        row["expected"] = case["expected"]
        row["score"] = int(any(satisfies(message, case["rubric"]) for message in said[0]))
        row["judged"] = bench.judged(user_id, WARN, case["expected"], row["answer"])
    else:
        row["early"] = " | ".join(message for messages in said for message in messages)
        row["score"] = int(not row["early"])
    return bench.row(user_id, session["date"], **row)


PARTS = {
    "locomo": locomo,
    "analytical": analytical_questions,
    "active": services,
    "stories": services,
}


def why_silent() -> str | None:
    """Try the model with one call; return why it does not answer, or None if it does."""
    work = CallSession(workspace=Workspace.objects.create(name="trial"), purpose=LlmPurpose.CHECK)
    try:
        MeteredModel(work).complete([User("Answer with one word: are you there?")])
    except LanguageModelError as error:
        return f"the model does not answer: {error}"
    return None


def measured(system: System, cases: Mapping[str, Sequence[Case]]) -> Measured:
    """Run the parts that have cases; return the rows, figures and problems of all of them."""
    rows: list[Row] = []
    figures: dict[str, Any] = {}
    problems: list[str] = []
    judge = _judge()
    for part, those in cases.items():
        started = time.monotonic()
        client = new_client(system, part)
        workspace = Workspace.objects.get(name=part)
        bench = Bench(system, client, part, workspace, judge)
        its_rows, found = PARTS[part](bench, those)
        found |= {**spent(workspace), "seconds": round(time.monotonic() - started)}
        rows += its_rows
        problems += bench.problems
        figures |= {f"{part}_{name}": value for name, value in found.items()}
    if judge is not None:
        figures |= {f"judge_{name}": value for name, value in _calls(judge).items()}
    return rows, figures, problems


def _judge() -> Workspace | None:
    """Create a workspace whose language model is the judge; return None if no judge is set.

    Raises ValidationError if the workspace's settings are invalid.
    """
    if not (model := os.environ.get("UAC_BENCH_JUDGE_MODEL")):
        return None
    key = os.environ.get("UAC_BENCH_JUDGE_API_KEY")
    judge = Workspace(
        name="judge",
        llm_model=model,
        llm_base_url=os.environ.get("UAC_BENCH_JUDGE_BASE_URL", ""),
        llm_api_key=encryption.encrypt(key.encode()) if key else None,
    )
    judge.full_clean()
    judge.save()
    return judge


def spent(workspace: Workspace) -> dict[str, Any]:
    """Return figures about a workspace: how far its work has got, and its use of the model."""
    entries = LogEntry.objects.filter(user__workspace=workspace).count()
    outcomes = EntryOutcome.objects.filter(user__workspace=workspace)
    proposals = Run.objects.filter(user__workspace=workspace, kind=RunKind.PROPOSAL)
    return {
        "entries": entries,
        "pending": entries - outcomes.count(),
        "rejected": outcomes.filter(outcome=Outcome.REJECTED).count(),
        "checkpoints": Checkpoint.objects.filter(user__workspace=workspace).count(),
        "proposals": proposals.count(),
        "refused": proposals.filter(outcome=RunOutcome.REJECTED).count(),
        **_calls(workspace),
    }


def _calls(workspace: Workspace) -> dict[str, Any]:
    calls = LlmCall.objects.filter(workspace=workspace)
    took = calls.aggregate(sent=Sum("input_tokens"), got=Sum("output_tokens"), cost=Sum("cost"))
    return {
        "calls": calls.count(),
        "calls_wrong": calls.exclude(outcome=LlmOutcome.OK).count(),
        "tokens_in": took["sent"] or 0,
        "tokens_out": took["got"] or 0,
        "cost": "unknown: no price in UAC_LLM_PRICES"
        if took["cost"] is None
        else float(took["cost"]),
    }


def _mean(rows: Sequence[Row], name: str = "score") -> float | str:
    values = [row[name] for row in rows if row[name] not in ("", None)]
    return round(statistics.fmean(values), 4) if values else "absent"


# -- Scoring LOCOMO's answers ----------------------------------------------------------------------


def locomo_score(question: Mapping[str, Any], said: str) -> float:
    """Score an answer from 0 to 1 by LOCOMO's rule for the question's category.

    If the right answer has several parts, separated by commas, the score is the mean of each part's
    best match. In the right answer to an open-domain question, text after a semicolon is a remark
    and does not count.
    """
    category = question["category"]
    if category == 5:
        return float(
            any(no in said.lower() for no in ("not mentioned", "no information available"))
        )
    gold = str(question["answer"])
    if category == 1:
        parts = said.split(",")
        best = (max(token_f1(part, one) for part in parts) for one in gold.split(","))
        return statistics.fmean(best)
    return token_f1(said, gold.partition(";")[0] if category == 3 else gold)

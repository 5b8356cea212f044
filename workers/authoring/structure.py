"""Structure: a language model uses tools to bring entries into the project, like a programmer.

The prompt consists of the manifest, a window of pending entries, and whatever parts of the project
the model opens; none of these parts of the prompt grows with the history. The model's edits are
proposed and judged like anybody else's.
"""

import zoneinfo
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog
from django.conf import settings

from memory.kernel import users
from memory.kernel.models.users import Lane, MemoryUser
from memory.llm import track_records
from memory.llm.llm_calls import CallSession
from memory.llm.models import LlmPurpose
from memory.log import lanes
from memory.log.models.entries import EntryKind, LogEntry
from memory.project import Outline, edit_to_json, manifest_text
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunTrigger
from workers.authoring import prompts
from workers.authoring.conversation import Conversation
from workers.authoring.sandbox_runs import NotJudged, SandboxRuns
from workers.authoring.settling import Blame, NotSettled
from workers.authoring.tools import TOOLS, checked_problem
from workers.authoring.workbench import Shown, ToolFailed, Workbench
from workers.gate.constraint_mutants import BLOCKING_ONCE
from workers.gate.entry_coverage import uncovered
from workers.llm.interface import Tool, ToolCall
from workers.llm.tool_calls import read_call

logger = structlog.get_logger(__name__)

# Maximum number of entries in a window.
MAX_ENTRIES = 40
# Limits per window: model responses, judgements and rejections by the gate, and characters in the
# conversation.
MAX_TURNS = 40
# For a small window, the limit is only this many responses, plus one per entry: a model that
# doesn't understand anything goes through many small windows, since each failure halves the window.
BASE_TURNS = 12
MAX_JUDGED = 12
MAX_REFUSALS = 4
MAX_CHARACTERS = 200_000
# If an entry or the manifest is longer than this, only its beginning is shown, and the model is
# told how to read the rest.
MAX_ENTRY_CHARACTERS = 4000
MAX_MANIFEST_CHARACTERS = 20_000
MAX_TOLD = 6000


@dataclass(frozen=True)
class FirstAnswer:
    """Edits that the model sent along with the facts that they bring into the project.

    `edits` cite the facts by their log numbers; `facts` maps the numbers by which the model knows
    them to these, or to None for a fact that was not appended. A session whose window contains all
    facts starts with these edits. It goes on with the `conversation` of `work` that produced them,
    in which the model has seen `shown` and awaits the results of `calls`; `tools` are those that
    it was offered. `writes_constraints` says whether it asked for the rules of constraints.
    """

    edits: Any
    writes_constraints: bool
    facts: Mapping[int, int | None]
    work: CallSession
    conversation: Conversation
    calls: Sequence[ToolCall]
    tools: Sequence[Tool]
    shown: Shown

    @property
    def numbers(self) -> set[int]:
        """The log numbers of the facts that were appended."""
        return {seq for seq in self.facts.values() if seq is not None}


def pending(lane: Lane, most: int, without: Collection[int]) -> list[LogEntry]:
    """Return the next window: the oldest pending facts and corrections that fit in one question."""
    kinds = [EntryKind.FACT, EntryKind.CORRECTION]
    window: list[LogEntry] = []
    size = 0
    for entry in lanes.pending(lane, min(most, MAX_ENTRIES), kinds=kinds, without=without):
        size += min(len(entry.content or ""), MAX_ENTRY_CHARACTERS)
        if window and size > settings.UAC_LLM_WINDOW_CHARACTERS:
            break
        window.append(entry)
    return window


def structure(
    lane: Lane, user: MemoryUser, entries: Sequence[LogEntry], first: FirstAnswer | None = None
) -> None:
    """Have the model bring the entries into the project in a form that the gate accepts.

    `first` is the model's first response, if it has already given one; it is used only if the
    entries include all of its facts. Raises NotSettled if the model doesn't produce anything
    that the gate accepts, NotJudged if the gate can't judge the edits, LeaseLost if another worker
    has taken over the lane, and LanguageModelError if a call to the model fails.
    """
    if first and not {entry.seq for entry in entries}.issuperset(first.numbers):
        first = None
    _Session(lane, user, entries, first).work()


def describe_project(user: MemoryUser, outline: Outline, runs: SandboxRuns, records: str) -> str:
    """Describe the user's project for a question: manifest, related records and alerts."""
    return prompts.project(user, _manifest(outline), records=records, alerts=runs.alerts(user))


class _Session:
    """A session on one window of entries, from the first question to the checkpoint."""

    def __init__(
        self,
        lane: Lane,
        user: MemoryUser,
        entries: Sequence[LogEntry],
        first: FirstAnswer | None,
    ) -> None:
        if first:
            self._work = replace(first.work, purpose=LlmPurpose.STRUCTURE)
        else:
            self._work = CallSession(
                workspace=user.workspace, purpose=LlmPurpose.STRUCTURE, user=user, lane=lane
            )
        self._conversation = first.conversation if first else Conversation(self._work, lane)
        self._tools = first.tools if first else TOOLS
        self._first = first
        self._lane = lane
        self._user = user
        self._entries = entries
        self._considered = [entry.seq for entry in entries]
        self._runs = SandboxRuns(lane, max(entry.occurred_at for entry in entries))
        shown = Shown({seq for entry in entries for seq in (entry.seq, *entry.derived_from)})
        shown.add(first.shown if first else Shown())
        self._bench = Workbench(user, user.head, self._query, shown)
        self._judged = 0
        self._refusals = 0
        # True once a tool call in the current response has failed: nothing is judged until the
        # model has been told about the failure.
        self._refused = False
        self._done = False

    def work(self) -> None:
        """Converse until the model is done; if the session ends in a rejection, record that."""
        try:
            self._talk()
        except NotSettled as failure:
            if self._refusals and failure.blame != Blame.CALL:
                workspace = self._user.workspace_id
                track_records.note_refused(workspace, self._work.id, self._refusals)
            raise

    def _talk(self) -> None:
        if self._first:
            self._begin(self._first)
            if self._done:
                return
        else:
            self._conversation.start(prompts.STRUCTURE, self._question())
        most = min(MAX_TURNS, BASE_TURNS + len(self._entries))
        for _ in range(most):
            if self._conversation.characters > MAX_CHARACTERS:
                break
            self._carry_out_all(self._conversation.ask(self._tools))
            if self._done:
                return
        raise NotSettled(
            f"structure: the model did not finish within {most} answers or {MAX_CHARACTERS:,}"
            f" characters; last problem: {self._conversation.last_problem}"
        )

    def _begin(self, first: FirstAnswer) -> None:
        """Carry out the edits of the first answer, and have the model told what came of them."""
        arguments = {"edits": first.edits, "finish": not first.writes_constraints}
        result, failed = self._result(read_call("", "edit", arguments, TOOLS))
        further = [entry for entry in self._entries if entry.seq not in first.numbers]
        told = [
            prompts.stored(first.facts),
            result,
            f"Entries to bring in as well:\n{self._lines(further)}" if further else "",
            prompts.CONSTRAINTS if first.writes_constraints else "",
        ]
        self._conversation.continue_as(self._work)
        for call in first.calls:
            self._conversation.answer(call, "\n\n".join(filter(None, told)), failed=failed)

    def _query(self, code: str) -> Any:
        return self._runs.query(self._user, code)

    def _question(self) -> str:
        related = self._bench.related(self._lane, self._entries)
        project = describe_project(self._user, self._bench.outline, self._runs, related.records)
        return prompts.entries(project, self._lines(related.facts), self._lines(self._entries))

    def _lines(self, entries: Iterable[LogEntry]) -> str:
        zone = zoneinfo.ZoneInfo(self._user.time_zone)
        return prompts.lines(((entry, _shown(entry)) for entry in entries), zone)

    def _carry_out_all(self, calls: Iterable[ToolCall]) -> None:
        """Carry out the tool calls in one response, stopping after a call that commits."""
        self._refused = False
        for call in calls:
            self._carry_out(call)
            if self._done:
                return

    def _carry_out(self, call: ToolCall) -> None:
        result, failed = self._result(call)
        self._conversation.answer(call, result, failed=failed)

    def _result(self, call: ToolCall) -> tuple[str, bool]:
        """Carry out a tool call; return its result, and whether it failed."""
        problem = checked_problem(call)
        if not problem:
            try:
                return self._reply(call.name, dict(call.arguments)), False
            except ToolFailed as failure:
                problem = str(failure)
        self._refused = True
        return problem, True

    def _reply(self, name: str, arguments: Mapping[str, Any]) -> str:
        if (text := self._bench.read(name, arguments)) is not None:
            return text
        match name:
            case "edit":
                return self._edit(**arguments)
            case "check":
                return self._judge(commit=False)
            case "finish":
                return self._judge(commit=True)
        if arguments["facts"] or "edits" not in arguments:
            raise ToolFailed("The facts are stored, and stay as they are: send edits, by `edit`.")
        return self._edit(arguments["edits"], finish=True)

    def _edit(self, edits: Sequence[Any] | Mapping[str, Any], finish: bool = False) -> str:
        """Apply edits, and finish if asked to; raise ToolFailed with the reason on failure."""
        reply = self._bench.edit(edits)
        if not finish:
            return reply
        try:
            return self._judge(commit=True)
        except ToolFailed as failure:
            raise ToolFailed(f"{reply} {failure}") from None

    def _judge(self, *, commit: bool) -> str:
        """Have the gate judge the edits; with `commit`, also commit them if the gate accepts them.

        Raises ToolFailed with the findings if the gate rejects the edits, NotSettled if the gate
        has judged or rejected edits too often in this session, and NotJudged if it can't judge
        them.
        """
        if self._refused:
            raise ToolFailed(
                "Nothing was judged or committed, because an earlier call in the same answer"
                " failed: fix that first."
            )
        missing = list(uncovered(self._bench.edits, self._considered, last_seq=self._user.last_seq))
        if missing:
            raise ToolFailed(_not_committed(prompts.findings(missing)))
        if self._judged == MAX_JUDGED:
            raise NotSettled(f"structure: the model did not finish within {MAX_JUDGED} checks")
        self._judged += 1
        run = self._propose(commit=commit)
        if run.outcome == RunOutcome.OK:
            if not commit:
                return _in_order(run)
            version = (run.output or {})["version"]
            number = len(self._entries)
            logger.info("structured", user=self._user.pk, entries=number, version=version)
            self._done = True
            return "Done."
        if run.outcome != RunOutcome.REJECTED:
            raise NotJudged(f"the gate could not judge the edits: {(run.error or {})['message']}")
        self._refusals += 1
        refusal = _refusal(run, sorted(self._bench.edits))
        if self._refusals == MAX_REFUSALS:
            raise NotSettled(
                f"structure: the gate refused the edits {MAX_REFUSALS} times; {refusal}", Blame.GATE
            )
        raise ToolFailed(_not_committed("\n".join([refusal, *self._follow_head()])))

    def _propose(self, *, commit: bool) -> Run:
        return self._runs.complete(
            self._user,
            RunKind.PROPOSAL,
            {
                "edits": [edit_to_json(edit) for _, edit in sorted(self._bench.edits.items())],
                "considered": self._considered,
                "dry_run": not commit,
                # The call session that produced the edits, and how often the gate rejected them.
                "session": {"work": str(self._work.id), "refusals": self._refusals},
            },
        )

    def _follow_head(self) -> list[str]:
        """Switch to the user's newest version if there is a newer one than the session's.

        Returns lines that list, for the model, which of its edits no longer apply.
        """
        user = newest(self._user.pk)
        if user.head_id == self._user.head_id:
            return []
        self._user = user
        return [
            "The project has changed in the meantime.",
            *self._bench.follow(user),
        ]


def newest(user_pk: int) -> MemoryUser:
    """Read the user, along with the workspace and head, from the database."""
    return users.select_head(MemoryUser.objects.select_related("workspace")).get(pk=user_pk)


def unjudged(user: MemoryUser) -> Run | None:
    """Return the model's proposal for this user that hasn't been judged yet, if any."""
    return (
        Run.objects.unfinished()
        .filter(user=user, kind=RunKind.PROPOSAL, trigger=RunTrigger.MODEL)
        .first()
    )


def _manifest(outline: Outline) -> str:
    if not outline.domains:
        return ""
    held = manifest_text(outline, counts=False)
    return _beginning(held, MAX_MANIFEST_CHARACTERS, "look_up searches all of it\n")


def _shown(entry: LogEntry) -> str:
    how = f"read_entry(seq={entry.seq}, start={MAX_ENTRY_CHARACTERS})"
    return _beginning(entry.content or "", MAX_ENTRY_CHARACTERS, how)


def _beginning(text: str, most: int, how: str) -> str:
    rest = len(text) - most
    return text if rest <= 0 else f"{text[:most]}\n... {rest} more characters: {how}"


def _not_committed(message: str) -> str:
    how = 'send only what changes, by number: edit(edits={"2": {...}}, finish=true)'
    return f"Nothing was committed; your edits are kept: {how}. {message}"[:MAX_TOLD]


def _in_order(run: Run) -> str:
    verdict = (run.output or {})["verdict"]
    advice = prompts.advice(verdict, BLOCKING_ONCE)
    begin = (
        "You may finish, or fix the tests first." if advice else "Everything is in order: finish."
    )
    alerts = prompts.alerts(verdict) if verdict["day"] else ""
    return "\n".join(filter(None, [begin, advice, alerts]))[:MAX_TOLD]


def _refusal(run: Run, numbers: Sequence[int]) -> str:
    """Return the gate's findings; `numbers` are those by which the model knows its edits."""
    verdict = (run.output or {}).get("verdict") or {}
    findings = [
        {**finding, "edit": numbers[finding["edit"]]} if "edit" in finding else finding
        for check in verdict.get("checks", [])
        if not check["passed"]
        for finding in check["findings"]
    ]
    text = prompts.findings(findings)
    return f"{text}\n{prompts.alerts(verdict)}" if verdict.get("day") else text

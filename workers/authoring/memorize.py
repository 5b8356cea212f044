"""Memorize: a session's messages become atomic facts, which are appended to the same log.

A slice is a series of pending messages from one session that fits in one question. The facts and
the messages' outcomes are written in one transaction, so a slice is memorized only once, no matter
how many attempts are needed.

If no other entry is waiting to be structured, the same question also asks for the edits that bring
the facts into the project. These edits become the model's first response in the structure session
that follows; until then, they are kept only in memory.
"""

import functools
import itertools
import re
import zoneinfo
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction

from memory.kernel.canonical import canonical_json
from memory.kernel.json_schema import misfit
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.texts import split_text
from memory.language.dates_in_text import absolute_dates, masked
from memory.llm.llm_calls import CallSession
from memory.llm.models import LlmPurpose
from memory.log import entry_log, lanes
from memory.log.models.entries import EntryKind, LogEntry, Outcome, Trust
from memory.project import Record, RecordId
from memory.versions import checkpoints
from memory.versions.checkpoints import Decision
from workers.authoring import prompts, structure
from workers.authoring.conversation import Conversation
from workers.authoring.partial_answers import WrongChange, take_items
from workers.authoring.predicted_numbers import renumber
from workers.authoring.sandbox_runs import NotJudged, SandboxRuns
from workers.authoring.settling import NotSettled
from workers.authoring.short_forms import expand_facts, split_edits
from workers.authoring.tools import (
    EDITS_AS_FOR_EDIT,
    TOOLS,
    all_or_changes,
    checked_problem,
    object_schema,
    text_schema,
)
from workers.authoring.workbench import ToolFailed, Workbench
from workers.findings import Finding
from workers.grounding.values_in_entries import Source, claims_of, ungrounded
from workers.grounding.wording_in_entries import unsaid_texts
from workers.llm.interface import PromptTooLong, RequestRejected, Tool, ToolCall, Truncated

logger = structlog.get_logger(__name__)

# Maximum number of messages in one question.
MAX_MESSAGES = 60
# Maximum number of model responses per question.
MAX_TURNS = 5
# Reason given when a message is dismissed because the model derived no fact from it.
NOTHING_REMEMBERED = "the model found nothing to remember in this message"
MAX_FACT_CHARACTERS = 2000
MAX_FACTS = 300
# Finding code for a citation of an entry that the model was not shown.
UNKNOWN_SOURCE = "unknown_source"
# Limits on the context in a question: the session's earlier messages, and the newest facts.
CONTEXT_MESSAGES = 6
CONTEXT_CHARACTERS = 2000
CONTEXT_FACTS = 10
CONTEXT_FACT_CHARACTERS = 1000

_FACT = object_schema(
    {
        "text": {"type": "string"},
        "sources": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
        "derived": {"type": "string"},
    },
    "text",
    "sources",
)
# A fact as a model writes it: see `workers.authoring.short_forms`.
_SHORT_FACT = {
    "anyOf": [
        text_schema(
            "`[3, 4] One fact.`: the numbers of the messages that state it, and of the remembered"
            " fact that it corrects; then one fact, with names and absolute dates."
        ),
        object_schema(
            {
                "text": {"type": "string"},
                "sources": {"type": "array", "items": {"type": "integer"}},
                "derived": text_schema(
                    "How a number or date in `text` follows from the messages, or, if `text` is a"
                    " complete paraphrase or in another language, a quotation of a message."
                ),
            },
            "text",
        ),
    ]
}
REMEMBER = Tool(
    "remember",
    "Submit all facts from these messages; an empty list if there is nothing to remember.",
    object_schema(
        {"facts": all_or_changes({"type": "array", "maxItems": MAX_FACTS, "items": _SHORT_FACT})},
        "facts",
    ),
)

# The `remember` tool for questions that also ask for edits.
REMEMBER_AND_EDIT = Tool(
    REMEMBER.name,
    "Submit all facts from these messages, and the edits that bring them into the project.",
    object_schema(
        {
            **REMEMBER.parameters["properties"],
            "edits": EDITS_AS_FOR_EDIT,
            "write_constraints": {
                "type": "boolean",
                "description": "Whether a constraint is to be written or changed as well.",
            },
        },
        "facts",
    ),
)
# All tools are offered from the first call on, so that the prompt begins alike in all of them.
_ALL_TOOLS = (REMEMBER_AND_EDIT, *TOOLS)
# The reply to edits before there are facts.
_FACTS_FIRST = "Nothing was done: send the facts first, by `remember`, and their edits with them."
# If asking for facts and edits fails with one of these errors, asking for facts alone may succeed.
TOO_MUCH_AT_ONCE = (Truncated, PromptTooLong, RequestRejected)

_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_RELATIVE = re.compile(
    r"\b(?:today|tonight|yesterday|tomorrow"
    rf"|(?:next|last|this|coming|past)\s+(?:week|weekend|month|year|{_DAY})"
    r"|(?:days?|weeks?|months?|years?)\s+ago)\b",
    re.IGNORECASE,
)
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_QUOTATION = re.compile(r'"[^"]*"|“[^“”]*”|„[^„“”]*[“”]|«[^«»]*»|‘[^‘’]*’')
# What may stand between a date and the relative words that it resolves: "last Friday (2023-07-14)".
_BETWEEN = re.compile(
    r"[\s,:;()–—-]*(?:(?:on|from|in|i\.e\.|that is|the week of)[\s,]+)?"
    rf"(?:{_DAY},?\s+)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Fact:
    """A fact found by the model; `derived` explains how it was inferred if no message states it."""

    text: str
    sources: Sequence[int]
    derived: str = ""


def pending(lane: Lane, most: int, without: Collection[int]) -> list[LogEntry]:
    """Return the next slice: pending messages from the session that has been waiting longest."""
    waiting = lanes.pending(lane, MAX_MESSAGES * 4, kinds=[EntryKind.MESSAGE], without=without)
    if not waiting:
        return []
    session = waiting[0].session_id
    slice_: list[LogEntry] = []
    size = 0
    for entry in waiting:
        if entry.session_id != session:
            continue
        size += len(entry.content or "")
        if slice_ and (size > settings.UAC_LLM_WINDOW_CHARACTERS or len(slice_) == most):
            break
        slice_.append(entry)
    return slice_


def memorize(
    lane: Lane, user: MemoryUser, messages: Sequence[LogEntry]
) -> structure.FirstAnswer | None:
    """Have the model find the facts in a slice and append them to the log.

    Returns any edits that the model sent with the facts, for the structure session that follows.
    Raises NotSettled if the model gives no acceptable facts, LeaseLost if another worker has taken
    over the lane, and LanguageModelError if a call to the model fails.
    """
    work = CallSession(workspace=user.workspace, purpose=LlmPurpose.MEMORIZE, user=user, lane=lane)
    runs = SandboxRuns(lane, max(message.occurred_at for message in messages))
    bench = Workbench(user, user.head, functools.partial(runs.query, user))
    newest = _newest_facts(user)
    related = bench.related(lane, messages, newest)
    by_seq = {fact.seq: fact for fact in [*related.facts, *newest]}
    known_facts = [fact for _, fact in sorted(by_seq.items())]
    remembered = {fact.seq: _source(fact, fact.content or "") for fact in known_facts}
    earlier = _earlier(user, messages[0])
    slice_ = _Slice(user, messages, _lines(user, earlier), _lines(user, known_facts), remembered)
    parts = list(_parts(user, messages, earlier))
    answer = None
    # Ask for edits as well only if no other entry is waiting to be structured.
    combines = settings.UAC_LLM_COMBINE_STEPS and len(parts) == 1
    if combines and not structure.pending(lane, 1, ()):
        try:
            project = structure.describe_project(user, bench.outline, runs, related.records)
        except NotJudged as failure:  # no sandbox worker computed the alerts in time
            logger.warning("facts_without_edits", user=user.pk, error=str(failure))
        else:
            answer = _facts_with_edits(work, lane, slice_, parts[0], project, bench)
    if answer is None:
        facts = [fact for part in parts for fact in _facts(work, lane, slice_, part)]
        answer = _Answer(facts, range(slice_.first, slice_.first + len(facts)))
    appended = _commit(lane, user, messages, answer)
    logger.info(
        "memorized",
        user=user.pk,
        messages=len(messages),
        facts=len(answer.facts),
        derived=sum(bool(fact.derived) for fact in answer.facts),
        edits=bool(answer.edits),
    )
    edits = renumber(answer.edits, slice_.first, appended)
    if answer.conversation is None or not edits or not any(appended.values()):
        return None
    return structure.FirstAnswer(
        edits,
        answer.writes_constraints,
        appended,
        work,
        answer.conversation,
        answer.calls,
        _ALL_TOOLS,
        bench.shown,
    )


@dataclass(frozen=True)
class _Slice:
    """A slice's messages, and the context shown in every question about it.

    `earlier` and `known_facts` contain the session's earlier messages and the remembered facts, as
    text.
    """

    user: MemoryUser
    messages: Sequence[LogEntry]
    earlier: str
    known_facts: str
    remembered: Mapping[int, Source]

    @property
    def first(self) -> int:
        """The log number that the first fact would get now, by which the model refers to it."""
        return self.user.last_seq + 1


@dataclass(frozen=True)
class _Answer:
    """Acceptable facts, and the edits sent with them, if any.

    `numbers` are the facts' predicted log numbers, by which the edits cite them. In the
    `conversation`, the results of `calls` are still due.
    """

    facts: Sequence[Fact]
    numbers: Sequence[int]
    edits: Any = None
    writes_constraints: bool = False
    conversation: Conversation | None = None
    calls: Sequence[ToolCall] = ()


def _facts(work: CallSession, lane: Lane, slice_: _Slice, part: "_Part") -> Sequence[Fact]:
    conversation = Conversation(work, lane)
    question = prompts.messages(
        slice_.user, part.text, slice_.earlier, slice_.known_facts, first=slice_.first
    )
    conversation.start(prompts.MEMORIZE, question)
    return _converse(conversation, slice_, part.sources).facts


def _facts_with_edits(
    work: CallSession, lane: Lane, slice_: _Slice, part: "_Part", project: str, bench: Workbench
) -> _Answer | None:
    """Ask for facts and edits; return None on failure if asking for facts alone may succeed.

    `project` is the description of the project, including its alerts.
    """
    question = prompts.messages(
        slice_.user,
        part.text,
        slice_.earlier,
        slice_.known_facts,
        project=project,
        first=slice_.first,
    )
    conversation = Conversation(work, lane)
    conversation.start(prompts.COMBINED, question)
    try:
        return _converse(conversation, slice_, part.sources, bench)
    except NotSettled as failure:
        if isinstance(failure.call, TOO_MUCH_AT_ONCE):
            return None
        raise


@dataclass
class _Kept:
    """What the model has sent so far: facts and edits, by number, as they were sent.

    `unreadable` are edits that are neither a list nor changes by number, if any.
    """

    first: int
    facts: dict[int, Any] = field(default_factory=dict)
    has_facts: bool = False
    edits_by_number: dict[int, Any] = field(default_factory=dict)
    unreadable: object = None
    writes_constraints: bool = False

    def take(self, calls: Sequence[ToolCall]) -> None:
        """Take over the facts and edits in a response; raise WrongChange if that is impossible."""
        facts = [
            expand_facts(call.arguments["facts"]) for call in calls if "facts" in call.arguments
        ]
        self.facts = take_items(self.facts, facts, self.first, "fact")
        self.has_facts |= bool(facts)
        self.writes_constraints |= any(
            call.arguments.get("write_constraints") is True for call in calls
        )
        edits = [call.arguments["edits"] for call in calls if "edits" in call.arguments]
        if not edits:
            # If all facts were sent anew, the numbers that earlier edits cite mean other facts.
            if any(isinstance(one, list) for one in facts):
                self.edits_by_number = {}
            return
        self.unreadable = next((one for one in edits if not isinstance(one, list | dict)), None)
        if self.unreadable is not None:
            return
        sent = [split_edits(one) for one in edits]
        try:
            self.edits_by_number = take_items(self.edits_by_number, sent, 0, "edit")
        except WrongChange:
            self.unreadable = edits[-1]

    @property
    def edits(self) -> Any:
        """All edits as a list, or what was sent instead of a list."""
        return self.unreadable if self.unreadable is not None else [*self.edits_by_number.values()]


def _converse(
    conversation: Conversation,
    slice_: _Slice,
    sources: Mapping[int, Source],
    bench: Workbench | None = None,
) -> _Answer:
    """Return the facts and edits as soon as all facts are acceptable.

    A refusal keeps what was acceptable, and the model sends only what changes. With a `bench`,
    edits are asked for, too, and are tried out on it, so that a refusal names what is wrong with
    them as well.
    """
    tools = _ALL_TOOLS if bench else (REMEMBER,)
    if bench:
        bench.shown.entries |= {*slice_.remembered, *sources}
    kept = _Kept(slice_.first)
    for _ in range(MAX_TURNS):
        calls = [_checked(call, bench) for call in conversation.ask(tools)]
        if bench:
            calls = [call for call in calls if not _answer_reading(conversation, call, bench)]
        reply = _take(kept, calls) if calls else ""
        if calls and not reply:
            findings = list(_findings(slice_.user, kept.facts, sources, slice_.remembered))
            if not any(finding.blocking for _, finding in findings):
                numbers = sorted(kept.facts)
                zone = zoneinfo.ZoneInfo(slice_.user.time_zone)
                facts = [_dated(_fact(kept.facts[number]), sources, zone) for number in numbers]
                return _Answer(
                    facts, numbers, kept.edits, kept.writes_constraints, conversation, calls
                )
            parts = [
                prompts.findings(one for _, one in findings),
                _edit_problems(kept, slice_, bench) if bench else "",
                _kept_part(kept, findings),
            ]
            reply = "\n".join(filter(None, parts))
        for call in calls:
            conversation.answer(call, call.problem or reply, failed=True)
    raise NotSettled(
        f"memorize: no acceptable facts in {MAX_TURNS} answers; last problem:"
        f" {conversation.last_problem}"
    )


def _answer_reading(conversation: Conversation, call: ToolCall, bench: Workbench) -> bool:
    """Answer a call that only reads, and return whether it is one."""
    if call.problem:
        return False
    try:
        result = bench.read(call.name, call.arguments)
    except ToolFailed as failure:
        conversation.answer(call, str(failure), failed=True)
        return True
    if result is not None:
        conversation.answer(call, result)
    return result is not None


def _edit_problems(kept: _Kept, slice_: _Slice, bench: Workbench) -> str:
    """Return what is wrong with the edits, apart from what the gate finds; "" if nothing is."""
    if kept.unreadable is not None or not kept.edits:
        return ""
    newest = max(message.occurred_at for message in slice_.messages)
    drafts = {
        number: LogEntry(seq=number, content=fact["text"], occurred_at=newest)
        for number, fact in kept.facts.items()
        if not misfit(fact, _FACT)
    }
    return bench.try_out(kept.edits, drafts)


def _checked(call: ToolCall, bench: Workbench | None) -> ToolCall:
    """Return the call with the problem that prevents reading any of it.

    Single facts and edits are judged one by one, so that a faulty one costs no other.
    """
    facts = call.arguments.get("facts")
    if call.name != REMEMBER.name or not isinstance(facts, list | dict):
        return replace(call, problem=checked_problem(call))
    tool = REMEMBER_AND_EDIT if bench else REMEMBER
    shape = {**call.arguments, "facts": [], **({"edits": []} if bench else {})}
    problem = misfit(shape, tool.parameters)
    if len(facts) > MAX_FACTS:
        problem = f"There are {len(facts)} facts: send at most {MAX_FACTS}."
    return replace(call, problem=problem)


def _take(kept: _Kept, calls: Sequence[ToolCall]) -> str:
    """Keep what the calls contain; if that is impossible, return the reason for the model."""
    if any(call.problem for call in calls):
        return "Nothing was kept of this answer, because another call in it failed: send it again."
    if not kept.has_facts and not any("facts" in call.arguments for call in calls):
        return _FACTS_FIRST
    try:
        kept.take(calls)
    except WrongChange as error:
        return str(error)
    return ""


def _kept_part(kept: _Kept, findings: Sequence[tuple[int, Finding]]) -> str:
    """Say what is kept, and how to send the rest."""
    refused = sorted({number for number, finding in findings if finding.blocking})
    parts = [
        f"{len(kept.facts) - len(refused)} of {len(kept.facts)} facts",
        *([f"{len(kept.edits_by_number)} edits"] if kept.edits_by_number else []),
    ]
    return (
        f"Kept: {' and '.join(parts)}. Send only what changes, by number:"
        f' remember(facts={{"{refused[0]}": "its new text"}}), or an object with the attributes'
        " that change, or null to leave a fact out."
    )


def _fact(sent: Mapping[str, Any]) -> Fact:
    return Fact(sent["text"].strip(), sorted(set(sent["sources"])), sent.get("derived", "").strip())


def _findings(
    user: MemoryUser,
    sent: Mapping[int, Any],
    sources: Mapping[int, Source],
    remembered: Mapping[int, Source],
) -> Iterator[tuple[int, Finding]]:
    """Yield the problems with the facts, each with the fact's number.

    Each fact must cite messages in the slice that support it. It may also cite remembered facts
    from the question, since a correction cites the fact that it corrects.
    """
    facts: dict[int, Fact] = {}
    for number, item in sorted(sent.items()):
        if problem := misfit(item, _FACT):
            yield number, Finding(code="malformed", message=f"fact {number}: {problem}")
        else:
            facts[number] = _fact(item)
    for number, fact in facts.items():
        for finding in _form(number, fact, sources, remembered):
            yield number, finding
    all_sources = {**remembered, **sources}
    claims = [
        claims_of(
            RecordId("remember", "facts", str(number)),
            Record(
                "Fact", str(number), {"text": fact.text}, tuple(all_sources.keys() & fact.sources)
            ),
            None,
            {"text": fact.derived} if fact.derived else {},
            ["text"],
        )
        for number, fact in facts.items()
    ]
    for finding in [
        *ungrounded(claims, all_sources, user.time_zone),
        *unsaid_texts(claims, all_sources, user.time_zone),
    ]:
        assert finding.record is not None
        yield int(finding.record.key), finding


def _form(
    number: int, fact: Fact, sources: Mapping[int, Source], remembered: Collection[int]
) -> Iterator[Finding]:
    where = f"fact {number}"
    if not fact.text:
        yield Finding(code="empty", message=f"{where}.text is empty", fix="leave the fact out")
    if len(fact.text) > MAX_FACT_CHARACTERS:
        yield Finding(
            code="too_long",
            message=f"{where}.text has {len(fact.text)} characters",
            fix=f"split it into facts of at most {MAX_FACT_CHARACTERS} characters",
        )
    messages = f"cite some of the messages {min(sources)} to {max(sources)}"
    unknown = [seq for seq in fact.sources if seq not in sources and seq not in remembered]
    for seq in unknown:
        yield Finding(
            code=UNKNOWN_SOURCE,
            message=f"{where}.sources: {seq} is not among the messages and facts shown",
            fix=messages,
        )
    if not unknown and not set(fact.sources) & set(sources):
        yield Finding(
            code="no_message",
            message=f"{where}.sources cites none of these messages",
            fix=f"{messages}, or leave the fact out",
        )
    relative = "" if fact.derived else _unresolved_date(fact.text)
    if relative and _message_with(relative, fact, sources) is None:
        yield Finding(
            code="relative_date",
            message=f"{where}.text has the relative date {relative!r}, unclear when read later",
            fix='write the date, or put it beside these words: "last Friday (2023-07-14)"; if'
            " they belong to a name, say so in `derived`",
        )


def _dated(fact: Fact, sources: Mapping[int, Source], zone: zoneinfo.ZoneInfo) -> Fact:
    """Return a fact; if it has a relative date, with the day on which a message said that."""
    relative = "" if fact.derived else _unresolved_date(fact.text)
    message = _message_with(relative, fact, sources) if relative else None
    if message is None:
        return fact
    return replace(fact, text=f"{fact.text} (said on {message.at.astimezone(zone):%Y-%m-%d})")


def _message_with(words: str, fact: Fact, sources: Mapping[int, Source]) -> Source | None:
    """Return the newest of a fact's messages in which these words are."""
    cited = [sources[seq] for seq in fact.sources if seq in sources]
    saying = [one for one in cited if words.casefold() in one.text.casefold()]
    return max(saying, key=lambda message: message.at, default=None)


def _unresolved_date(text: str) -> str:
    """Return relative words such as "next week" without their date beside them; "" if none.

    Quoted words are part of a quotation, not a date.
    """
    quoted = [match.span() for match in _QUOTATION.finditer(text)]
    dates = [(dated.start, dated.end) for dated in absolute_dates(text)]
    dates += [match.span() for match in _YEAR.finditer(text)]
    for match in _RELATIVE.finditer(masked(text, quoted)):
        gaps = [
            text[match.end() : start] if start >= match.end() else text[end : match.start()]
            for start, end in dates
        ]
        if not any(map(_BETWEEN.fullmatch, gaps)):
            return match[0]
    return ""


def _commit(
    lane: Lane, user: MemoryUser, messages: Sequence[LogEntry], answer: _Answer
) -> dict[int, int | None]:
    """Append the facts and settle the messages; return the facts' log numbers by predicted number.

    If a product's agent has meanwhile settled all messages that a fact cites, the fact is not
    appended and its log number is None.
    """
    facts = answer.facts
    by_seq = {message.seq: message for message in messages}
    with transaction.atomic():
        MemoryUser.objects.locked(user.pk)
        # Entries settled by a product's agent in the meantime keep their outcome.
        mine = by_seq.keys() - entry_log.outcomes(user, by_seq).keys()
        used = {seq for fact in facts for seq in fact.sources}
        decisions = [
            Decision(seq, Outcome.COVERED)
            if seq in used
            else Decision(seq, Outcome.DISMISSED, NOTHING_REMEMBERED)
            for seq in sorted(mine)
        ]
        checkpoints.commit(lane, user, None, decisions)
        own = [bool(mine & set(fact.sources)) for fact in facts]
        drafts = _drafts(list(itertools.compress(facts, own)), by_seq)
        append = functools.partial(entry_log.append, source="memorize", may_refuse=False)
        appended = iter(append(user, drafts) if drafts else [])
    actual = [next(appended).seq if is_own else None for is_own in own]
    return dict(zip(answer.numbers, actual, strict=True))


def _drafts(facts: Sequence[Fact], by_seq: Mapping[int, LogEntry]) -> list[entry_log.Draft]:
    """Return the log entries to append for the facts.

    Each entry carries its messages' session, plus the agent and metadata if they are the same for
    all of its messages.
    """
    session = next(iter(by_seq.values())).session_id
    drafts = []
    for fact in facts:
        messages = [by_seq[seq] for seq in fact.sources if seq in by_seq]
        agents = {message.agent_id for message in messages}
        drafts.append(
            entry_log.Draft(
                kind=EntryKind.FACT,
                occurred_at=max(message.occurred_at for message in messages),
                content=fact.text,
                data={"derived": fact.derived} if fact.derived else None,
                metadata=_shared([message.metadata or {} for message in messages]),
                session_id=session,
                agent_id=agents.pop() if len(agents) == 1 else None,
                derived_from=fact.sources,
                trust=_trust_of(messages),
            )
        )
    return drafts


def _trust_of(messages: Sequence[LogEntry]) -> Trust:
    """Return the class of a fact that these messages state.

    It is the least trusted of them, but a model's words are only its own if nobody else's are
    cited: they are the question that a "yes" answers.
    """
    classes = {Trust(message.trust) for message in messages}
    return entry_log.least_trusted(classes - {Trust.MODEL} or classes)


def _shared(metadata: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the metadata items that are the same for all of the messages."""
    first, *others = (
        {name: canonical_json(value) for name, value in one.items()} for one in metadata
    )
    same = {name for name, text in first.items() if all(one.get(name) == text for one in others)}
    return {name: value for name, value in metadata[0].items() if name in same} or None


def _earlier(user: MemoryUser, first: LogEntry) -> list[LogEntry]:
    """Return the session's messages before `first`, which show what "it" or "there" refers to."""
    if first.session_id is None:
        return []
    before = LogEntry.objects.filter(
        user=user, kind=EntryKind.MESSAGE, session_id=first.session_id, seq__lt=first.seq
    ).order_by("-seq")[:CONTEXT_MESSAGES]
    return _newest(user, before, CONTEXT_CHARACTERS)


def _newest_facts(user: MemoryUser) -> list[LogEntry]:
    """Return the newest facts, oldest first: they tell, for example, which trip "the trip" is."""
    facts = LogEntry.objects.filter(user=user, kind=EntryKind.FACT, redacted_at=None)
    return _newest(user, facts.order_by("-seq")[:CONTEXT_FACTS], CONTEXT_FACT_CHARACTERS)


def _newest(user: MemoryUser, entries: Iterable[LogEntry], most: int) -> list[LogEntry]:
    """Return the newest entries that fit in so many characters, oldest first."""
    newest: list[LogEntry] = []
    size = 0
    for entry in entries:
        size += len(_lines(user, [entry]))
        if size > most:
            break
        newest.insert(0, entry)
    return newest


def _lines(user: MemoryUser, entries: Iterable[LogEntry]) -> str:
    zone = zoneinfo.ZoneInfo(user.time_zone)
    return prompts.lines(((entry, entry.content or "") for entry in entries), zone)


@dataclass(frozen=True)
class _Part:
    """One question for the model: the question's text, and the source for each message in it."""

    text: str
    sources: Mapping[int, Source]


def _parts(
    user: MemoryUser, messages: Sequence[LogEntry], earlier: Sequence[LogEntry]
) -> Iterator[_Part]:
    """Yield one question for all messages, or one for each piece of a single long message.

    `earlier` are the session's messages before them.
    """
    zone = zoneinfo.ZoneInfo(user.time_zone)
    first = messages[0]
    pieces = list(split_text(first.content or "", settings.UAC_LLM_WINDOW_CHARACTERS))
    if len(messages) == 1 and len(pieces) > 1:
        for number, piece in enumerate(pieces, 1):
            text = prompts.entry(first, zone, piece, f"piece {number} of {len(pieces)}")
            yield _Part(text, {first.seq: _source(first, piece)})
    else:
        previous = ["", *(one.content or "" for one in [*earlier, *messages])][len(earlier) :]
        yield _Part(
            prompts.lines(((one, one.content or "") for one in messages), zone),
            {
                one.seq: replace(_source(one, one.content or ""), before=before)
                for one, before in zip(messages, previous, strict=False)
            },
        )


def _source(message: LogEntry, text: str) -> Source:
    return Source(message.seq, text, message.occurred_at, speaker=message.speaker or "")

"""Memorize: a session's messages become atomic facts, which are appended to the same log.

A slice is a series of pending messages from one session that fits in one question. The facts and
the messages' outcomes are written in one transaction, so a slice is memorized only once, no matter
how many attempts are needed.

If no other entry is waiting to be structured, the same question also asks for the edits that bring
the facts into the project. These edits become the model's first response in the structure session
that follows; until then, they are kept only in memory.
"""

import itertools
import re
import zoneinfo
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction

from memory.kernel.canonical import canonical_json
from memory.kernel.json_schema import misfit
from memory.kernel.models.users import Lane, MemoryUser
from memory.llm.llm_calls import CallSession
from memory.llm.models import LlmPurpose
from memory.log import entry_log, lanes
from memory.log.models.entries import EntryKind, LogEntry, Outcome
from memory.project import Record, RecordId
from memory.versions import checkpoints
from memory.versions.checkpoints import Decision
from workers.authoring import prompts, structure
from workers.authoring.conversation import Conversation
from workers.authoring.predicted_numbers import edit_calls
from workers.authoring.sandbox_runs import NotJudged, SandboxRuns
from workers.authoring.settling import NotSettled
from workers.authoring.tools import EDITS, object_schema, text_schema
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
# Limits on the context in a question: the session's earlier messages, and facts already remembered.
CONTEXT_MESSAGES = 6
CONTEXT_FACTS = 20
CONTEXT_CHARACTERS = 2000

_FACT = object_schema(
    {
        "text": text_schema(
            "One fact, with names and absolute dates, that can be understood without the"
            " conversation."
        ),
        "sources": {
            "type": "array",
            "items": {"type": "integer"},
            "minItems": 1,
            "description": "The numbers of the messages that state the fact; for a correction, also"
            " the number of the remembered fact that it corrects.",
        },
        "derived": text_schema(
            "Only if a number or date in `text` follows from the messages without being stated, or"
            " if `text` is a complete paraphrase or in another language: how it follows, with a"
            " quotation of a message."
        ),
    },
    "text",
    "sources",
)
REMEMBER = Tool(
    "remember",
    "Submit all facts from these messages; an empty list if there is nothing to remember.",
    object_schema({"facts": {"type": "array", "maxItems": MAX_FACTS, "items": _FACT}}, "facts"),
)

# The `remember` tool for questions that also ask for edits.
REMEMBER_AND_EDIT = Tool(
    REMEMBER.name,
    "Submit all facts from these messages, and the edits that bring them into the project.",
    object_schema({**REMEMBER.parameters["properties"], "edits": EDITS}, "facts"),
)
# If asking for facts and edits fails with one of these errors, asking for facts alone may succeed.
TOO_MUCH_AT_ONCE = (Truncated, PromptTooLong, RequestRejected)

_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_RELATIVE = re.compile(
    r"\b(?:today|tonight|yesterday|tomorrow"
    rf"|(?:next|last|this|coming|past)\s+(?:week|weekend|month|year|{_DAY})"
    r"|(?:days?|weeks?|months?|years?)\s+ago)\b",
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
    known = _known(user)
    remembered = {fact.seq: _source(fact, fact.content or "") for fact in known}
    slice_ = _Slice(user, messages, _earlier(user, messages[0]), _lines(user, known), remembered)
    parts = list(_parts(user, messages))
    answer = None
    # Ask for edits as well only if no other entry is waiting to be structured.
    combines = settings.UAC_LLM_COMBINE_STEPS and len(parts) == 1
    if combines and not structure.pending(lane, 1, ()):
        answer = _facts_with_edits(work, lane, slice_, parts[0])
    if answer is None:
        answer = _Answer([fact for part in parts for fact in _facts(work, lane, slice_, part)])
    numbers = _commit(lane, user, messages, answer.facts)
    logger.info(
        "memorized",
        user=user.pk,
        messages=len(messages),
        facts=len(answer.facts),
        derived=sum(bool(fact.derived) for fact in answer.facts),
        edits=len(answer.edits),
    )
    appended = [seq for seq in numbers if seq is not None]
    calls = edit_calls(answer.edits, user.last_seq + 1, numbers)
    if not (appended and calls):
        return None
    return structure.FirstAnswer(calls, appended, work, answer.turns)


@dataclass(frozen=True)
class _Slice:
    """A slice's messages, and the context shown in every question about it.

    `earlier` and `known` contain the session's earlier messages and the remembered facts, as text.
    """

    user: MemoryUser
    messages: Sequence[LogEntry]
    earlier: str
    known: str
    remembered: Mapping[int, Source]


@dataclass(frozen=True)
class _Answer:
    """Acceptable facts, the tool calls that included edits, and the number of responses so far."""

    facts: Sequence[Fact]
    edits: Sequence[ToolCall] = ()
    turns: int = 0


def _facts(work: CallSession, lane: Lane, slice_: _Slice, part: "_Part") -> Sequence[Fact]:
    conversation = Conversation(work, lane)
    question = prompts.messages(slice_.user, part.text, slice_.earlier, slice_.known)
    conversation.tell(prompts.MEMORIZE, question)
    return _converse(conversation, REMEMBER, slice_, part.sources).facts


def _facts_with_edits(
    work: CallSession, lane: Lane, slice_: _Slice, part: "_Part"
) -> _Answer | None:
    """Ask for facts and edits; return None on failure if asking for facts alone may succeed.

    The question shows the project's alerts, which a sandbox worker has to compute. If no worker
    does so in time, the result is also None.
    """
    user = slice_.user
    runs = SandboxRuns(lane, max(message.occurred_at for message in slice_.messages))
    try:
        project = structure.describe_project(
            user, runs, (message.content or "" for message in slice_.messages)
        )
    except NotJudged as failure:
        logger.warning("facts_without_edits", user=user.pk, error=str(failure))
        return None
    question = prompts.messages(
        user, part.text, slice_.earlier, slice_.known, project=project, first=user.last_seq + 1
    )
    conversation = Conversation(work, lane)
    conversation.tell(prompts.COMBINED, question)
    try:
        return _converse(conversation, REMEMBER_AND_EDIT, slice_, part.sources)
    except NotSettled as failure:
        if isinstance(failure.call, TOO_MUCH_AT_ONCE):
            return None
        raise


def _converse(
    conversation: Conversation, tool: Tool, slice_: _Slice, sources: Mapping[int, Source]
) -> _Answer:
    """Return the first model response in which all facts are acceptable."""
    for _ in range(MAX_TURNS):
        sent = conversation.ask([tool])
        calls = [_without_edits(call) for call in sent] if tool is REMEMBER_AND_EDIT else sent
        wrong = [call for call in calls if call.problem]
        facts = [fact for call in calls if not call.problem for fact in _read(call)]
        findings = [] if wrong else list(_findings(slice_.user, facts, sources, slice_.remembered))
        if calls and not wrong and not any(finding.blocking for finding in findings):
            edits = [call for call in sent if call.arguments.get("edits")]
            return _Answer(facts, edits, conversation.turns)
        for call in calls:
            told = call.problem or (
                prompts.findings(findings)
                if findings
                else "Nothing was stored, because another call in this turn failed: send all again."
            )
            conversation.answer(call, told, failed=True)
    raise NotSettled(
        f"memorize: no acceptable facts in {MAX_TURNS} answers; last problem:"
        f" {conversation.last_problem}"
    )


def _without_edits(call: ToolCall) -> ToolCall:
    """Return the tool call without its edits, so that faulty edits don't invalidate the facts."""
    if "edits" not in call.arguments:
        return call
    arguments = {name: value for name, value in call.arguments.items() if name != "edits"}
    return replace(call, arguments=arguments, problem=misfit(arguments, REMEMBER.parameters))


def _read(call: ToolCall) -> list[Fact]:
    return [
        Fact(fact["text"].strip(), sorted(set(fact["sources"])), fact.get("derived", "").strip())
        for fact in call.arguments["facts"]
    ]


def _findings(
    user: MemoryUser,
    facts: Sequence[Fact],
    sources: Mapping[int, Source],
    remembered: Mapping[int, Source],
) -> Iterator[Finding]:
    """Yield the problems with the facts: each must cite messages in the slice that support it.

    A fact may also cite remembered facts from the question, since a correction cites the fact that
    it corrects.
    """
    for number, fact in enumerate(facts):
        yield from _form(number, fact, sources, remembered)
    claims = [
        claims_of(
            RecordId("remember", "facts", str(number)),
            Record("Fact", str(number), {"text": fact.text}, tuple(fact.sources)),
            None,
            {"text": fact.derived} if fact.derived else {},
            ["text"],
        )
        for number, fact in enumerate(facts)
    ]
    known = {**remembered, **sources}
    yield from ungrounded(claims, known, user.time_zone)
    yield from unsaid_texts(claims, known, user.time_zone)


def _form(
    number: int, fact: Fact, known: Collection[int], remembered: Collection[int]
) -> Iterator[Finding]:
    where = f"facts[{number}]"
    if not fact.text:
        yield Finding(code="empty", message=f"{where}.text is empty", fix="leave the fact out")
    if len(fact.text) > MAX_FACT_CHARACTERS:
        yield Finding(
            code="too_long",
            message=f"{where}.text has {len(fact.text)} characters",
            fix=f"split it into facts of at most {MAX_FACT_CHARACTERS} characters",
        )
    if not set(fact.sources) & set(known):
        yield Finding(
            code="no_message",
            message=f"{where}.sources cites none of these messages",
            fix=f"cite some of {', '.join(map(str, known))}, or leave the fact out",
        )
    for seq in fact.sources:
        if seq not in known and seq not in remembered:
            yield Finding(
                code="unknown_source",
                message=f"{where}.sources cites {seq}, which is not one of these messages",
                fix=f"cite some of {', '.join(map(str, known))}",
            )
    if (relative := _RELATIVE.search(fact.text)) and not fact.derived:
        yield Finding(
            code="relative_date",
            message=f"{where}.text has the relative date {relative[0]!r}, unclear when read later",
            fix="write the date itself; if the words belong to a name or a quotation, say so in"
            " `derived`",
        )


def _commit(
    lane: Lane, user: MemoryUser, messages: Sequence[LogEntry], facts: Sequence[Fact]
) -> list[int | None]:
    """Append the facts and settle the messages; return the facts' log numbers.

    If a product's agent has meanwhile settled all messages that a fact cites, the fact is not
    appended and its log number is None.
    """
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
        appended = iter(entry_log.append(user, drafts, source="memorize") if drafts else [])
    return [next(appended).seq if is_own else None for is_own in own]


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
            )
        )
    return drafts


def _shared(metadata: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the metadata items that are the same for all of the messages."""
    first, *others = (
        {name: canonical_json(value) for name, value in one.items()} for one in metadata
    )
    same = {name for name, text in first.items() if all(one.get(name) == text for one in others)}
    return {name: value for name, value in metadata[0].items() if name in same} or None


def _earlier(user: MemoryUser, first: LogEntry) -> str:
    """Return the session's messages before `first`, which show what "it" or "there" refers to."""
    if first.session_id is None:
        return ""
    before = LogEntry.objects.filter(
        user=user, kind=EntryKind.MESSAGE, session_id=first.session_id, seq__lt=first.seq
    ).order_by("-seq")[:CONTEXT_MESSAGES]
    return _lines(user, _newest(user, before))


def _known(user: MemoryUser) -> list[LogEntry]:
    """Return the newest facts, so that the model knows, for example, which trip "the trip" is."""
    facts = LogEntry.objects.filter(user=user, kind=EntryKind.FACT, redacted_at=None)
    return _newest(user, facts.order_by("-seq")[:CONTEXT_FACTS])


def _newest(user: MemoryUser, entries: Iterable[LogEntry]) -> list[LogEntry]:
    """Return the newest entries that fit in the context, oldest first."""
    found: list[LogEntry] = []
    size = 0
    for entry in entries:
        size += len(_lines(user, [entry]))
        if size > CONTEXT_CHARACTERS:
            break
        found.insert(0, entry)
    return found


def _lines(user: MemoryUser, entries: Iterable[LogEntry]) -> str:
    zone = zoneinfo.ZoneInfo(user.time_zone)
    return "\n".join(prompts.entry(entry, zone, entry.content or "") for entry in entries)


@dataclass(frozen=True)
class _Part:
    """One question for the model: the question's text, and the source for each message in it."""

    text: str
    sources: Mapping[int, Source]


def _parts(user: MemoryUser, messages: Sequence[LogEntry]) -> Iterator[_Part]:
    """Yield one question for all messages, or one for each piece of a single long message."""
    zone = zoneinfo.ZoneInfo(user.time_zone)
    first = messages[0]
    pieces = list(split(first.content or "", settings.UAC_LLM_WINDOW_CHARACTERS))
    if len(messages) == 1 and len(pieces) > 1:
        for number, piece in enumerate(pieces, 1):
            text = prompts.entry(first, zone, piece, f"piece {number} of {len(pieces)}")
            yield _Part(text, {first.seq: _source(first, piece)})
    else:
        yield _Part(
            "\n".join(prompts.entry(one, zone, one.content or "") for one in messages),
            {one.seq: _source(one, one.content or "") for one in messages},
        )


def _source(message: LogEntry, text: str) -> Source:
    return Source(message.seq, text, message.occurred_at, speaker=message.speaker or "")


def split(text: str, most: int) -> Iterator[str]:
    """Split a text into pieces of at most `most` characters that add up to the whole text.

    A piece ends with a paragraph or, failing that, with a line, a sentence or a word, as long as
    the break falls in the second half of the piece.
    """
    start = 0
    while len(text) - start > most:
        middle, end = start + most // 2, start + most
        found = (text.rfind(mark, middle, end) + len(mark) for mark in ("\n\n", "\n", ". ", " "))
        cut = next((place for place in found if place > middle), end)
        yield text[start:cut]
        start = cut
    yield text[start:]

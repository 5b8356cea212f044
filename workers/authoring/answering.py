"""Answer a question: a language model writes queries and picks the query that gives the answer.

The model never writes the answer itself; the answer is the value computed by the chosen query.
"""

import json
import re
import time
from collections.abc import Mapping
from typing import Any

from django.db import transaction

from memory.kernel.sent_code import tidied
from memory.kernel.settings.language_models import LanguageModelError
from memory.kernel.work import leases
from memory.llm.llm_calls import CallSession
from memory.llm.models import LlmPurpose
from memory.project import manifest_text
from memory.project.errors import RunError
from memory.recall import answer_cache
from memory.versions import past_states, runs
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus, RunTrigger
from workers.authoring import prompts
from workers.authoring.conversation import Conversation
from workers.authoring.settling import NotSettled
from workers.authoring.tools import ANSWER_TOOLS
from workers.authoring.workbench import ToolFailed, Workbench
from workers.llm.interface import CallFailed, ToolCall

# Limits per question: model responses, queries, and characters in the conversation.
MAX_TURNS = 16
MAX_QUERIES = 12
MAX_CHARACTERS = 120_000
MAX_MANIFEST_CHARACTERS = 20_000
# Maximum number of characters of a query's value to show the model.
MAX_VALUE = 4000
# Maximum number of characters of a query's output to show the model.
MAX_PRINTED = 1000
MAX_NOTE = 500
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
# Maximum time to wait for a query, in seconds: short, because somebody is waiting for the answer.
QUERY_SECONDS = 60.0


def execute(run: Run) -> None:
    """Have a language model answer the run's question; store the answer, or why there is none."""
    started = time.monotonic()
    try:
        output = _Session(run).work()
    except NotSettled as failure:
        result = _failed("not_answered", failure.call or failure, infrastructure=False)
    except LanguageModelError as failure:
        result = _failed(type(failure).__name__, failure, infrastructure=True)
    else:
        result = runs.Result(outcome=RunOutcome.OK, output=output)
    timings = {"total": time.monotonic() - started}
    runs.finish(run, runs.Result(**{**vars(result), "timings": timings}))


def _failed(kind: str, failure: BaseException, *, infrastructure: bool) -> runs.Result:
    """Return a failed run's result; the provider's own message is kept separate from ours."""
    message, detail = str(failure)[:1].upper() + str(failure)[1:], ""
    if isinstance(failure, CallFailed):
        message, detail = failure.explanation, failure.provider_said
    error = RunError(
        type=kind, message=message, infrastructure=infrastructure, provider_said=detail
    )
    return runs.Result(outcome=RunOutcome.MODEL_ERROR, error=error)


class _Session:
    """A session on one question, until the model answers it or reports that it can't."""

    def __init__(self, run: Run) -> None:
        assert run.checkpoint is not None
        self._run, self._user = run, run.user
        work = CallSession(
            workspace=run.user.workspace, purpose=LlmPurpose.QUERY, user=run.user, run=run
        )
        self._conversation = Conversation(work, run)
        self._bench = Workbench(
            run.user, past_states.state_of(run), lambda code: self._done(code)["value"]
        )
        self._queries: list[Run] = []
        self._output: dict[str, Any] | None = None

    def work(self) -> dict[str, Any]:
        """Converse until the model answers or reports that it can't; return the run's output.

        Raises NotSettled if the model does neither within the limits, LanguageModelError if a call
        to the model fails or no sandbox is available, and LeaseLost if another worker has taken
        over the run.
        """
        self._conversation.start(prompts.ANSWER, self._question())
        for _ in range(MAX_TURNS):
            if self._conversation.characters > MAX_CHARACTERS:
                break
            for call in self._conversation.ask(ANSWER_TOOLS):
                self._carry_out(call)
                if self._output is not None:
                    return self._output
        raise NotSettled(
            f"The language model found no answer within {MAX_TURNS} turns or {MAX_CHARACTERS:,}"
            " characters: rephrase the question, or ask for less at a time. Last problem:"
            f" {self._conversation.last_problem}"
        )

    def _question(self) -> str:
        outline = self._bench.outline
        manifest = manifest_text(outline, texts=self._bench.describe_texts(outline.domains))
        if len(manifest) > MAX_MANIFEST_CHARACTERS:
            manifest = manifest_text(outline)
        if len(manifest) > MAX_MANIFEST_CHARACTERS:
            manifest = f"{manifest[:MAX_MANIFEST_CHARACTERS]}\n... (open_domain shows the rest)\n"
        return prompts.question(self._run, manifest)

    def _carry_out(self, call: ToolCall) -> None:
        if call.problem:
            self._conversation.answer(call, call.problem, failed=True)
            return
        arguments = call.arguments
        try:
            match call.name:
                case "open_domain":
                    reply = self._bench.open_domain(arguments["domain"])
                case "query":
                    reply = self._query(arguments["code"])
                case "answer":
                    reply = self._answer(
                        arguments.get("query"), arguments.get("code"), arguments.get("note", "")
                    )
                case _:
                    reply = self._not_known(arguments["reason"])
        except ToolFailed as failure:
            self._conversation.answer(call, str(failure), failed=True)
        else:
            self._conversation.answer(call, reply)

    def _query(self, code: str) -> str:
        if len(self._queries) == MAX_QUERIES:
            raise ToolFailed(
                f"The limit of {MAX_QUERIES} queries is reached: call answer or not_known."
            )
        output = self._done(code)
        value = json.dumps(output["value"], ensure_ascii=False)
        if len(value) > MAX_VALUE:
            value = f"{value[:MAX_VALUE]} ... ({len(value)} characters; the answer has all of them)"
        reply = f"Query {len(self._queries)} has the value ({output['type']}): {value}"
        ties = "".join(f"\nA tie: {tie}" for tie in output.get("ties", ()))
        lapsed = "".join(
            f"\nLeft out of {one['domain']}.{one['collection']}, since they have lapsed:"
            f" {one['count']}"
            for one in output["evidence"].get("lapsed", ())
        )
        return reply + ties + lapsed + _printed(self._queries[-1])

    def _answer(self, number: int | None, code: str | None, note: str) -> str:
        if code is not None:
            reply = self._query(code)
            number = len(self._queries)
            value = (self._queries[-1].output or {}).get("value")
            names_text = not {"'", '"'}.isdisjoint(code)
            if value is None or (not value and names_text):
                raise ToolFailed(
                    f"{reply}. The text may be spelled differently in the records: if this is the"
                    f" answer all the same, call answer(query={number})."
                )
        if number is None:
            raise ToolFailed("Name the query whose value is the answer, or give its code.")
        if not 1 <= number <= len(self._queries):
            raise ToolFailed(f"There is no query {number}: 1 to {len(self._queries)} were run.")
        query = self._queries[number - 1]
        if query.outcome != RunOutcome.OK:
            raise ToolFailed(f"Query {number} failed and has no value: run another one.")
        assert query.output is not None
        if not (query.output["evidence"]["count"] or query.output["evidence"]["collections"]):
            raise ToolFailed(
                f"Query {number} reads nothing from the memory: its value is not an answer."
            )
        if invented := self._not_computed(note):
            raise ToolFailed(
                f"The note has the number {invented[0]}, which is in no query's value: compute it,"
                f" or call answer(query={number}) with another note, or none."
            )
        self._output = {
            **self._make_output(is_known=True, reason=" ".join(note.split())[:MAX_NOTE] or None),
            **{name: query.output.get(name) for name in ("value", "type", "evidence", "ties")},
            "code": query.input["code"],
            "query": str(query.pk),
        }
        return "Done."

    def _not_computed(self, note: str) -> list[str]:
        """Return a note's numbers that are not in the question, its dates or a query's value.

        A value counts only if the query reads from the memory: otherwise, it may be invented.
        """
        allowed = [self._run.input["question"]]
        if dates := self._run.input.get("dates"):
            allowed.append(prompts.dates_in_words(dates))
        for query in self._queries:
            output = query.output or {}
            if query.outcome == RunOutcome.OK and output["evidence"]["collections"]:
                allowed += [json.dumps(output["value"], ensure_ascii=False), *output["ties"]]
        computed = {_plain_number(number) for text in allowed for number in _NUMBER.findall(text)}
        return [one for one in _NUMBER.findall(note) if _plain_number(one) not in computed]

    def _not_known(self, reason: str) -> str:
        self._output = {
            **self._make_output(is_known=False, reason=" ".join(reason.split())[:MAX_NOTE]),
            **dict.fromkeys(("value", "type", "evidence", "code", "query")),
            "ties": [],
        }
        return "Done."

    def _make_output(self, *, is_known: bool, reason: str | None) -> dict[str, Any]:
        tried = [
            {"id": str(one.pk), "code": one.input.get("code", ""), "outcome": one.outcome}
            for one in self._queries
        ]
        return {"known": is_known, "reason": reason, "queries": tried}

    def _done(self, code: str) -> Mapping[str, Any]:
        """Run a query on the requested version and return the finished run's output.

        Raises ToolFailed if the query fails, and SandboxAbsent if no sandbox worker can run it.
        """
        run, checkpoint, code = self._run, self._run.checkpoint, tidied(code)
        assert checkpoint is not None
        state_key = past_states.state_key_of(run.input.get("as_of"))
        key = answer_cache.key_of(self._user, code, run.instant, state_key)
        query = answer_cache.earlier(checkpoint, key)
        if query is None:
            with transaction.atomic():
                leases.check(run)  # without the lease, the code may quote redacted content
                query = runs.queue(
                    self._user,
                    RunKind.QUERY,
                    RunTrigger.MODEL,
                    checkpoint=checkpoint,
                    instant=run.instant,
                    input={"code": code, "as_of": run.input.get("as_of")},
                    answer_key=key,
                )
            runs.wait(query, QUERY_SECONDS)
            if query.status != RunStatus.DONE:
                raise SandboxAbsent(
                    f"No sandbox worker ran the model's query within {QUERY_SECONDS:g} s (run"
                    f" {query.pk}). This is not a problem with your question. Ask again. If this"
                    " persists, the server's operator has to check the sandbox workers."
                )
        self._queries.append(query)
        if query.outcome != RunOutcome.OK or query.output is None:
            error = query.error or {}
            if error.get("infrastructure"):
                raise SandboxAbsent(
                    f"The model's query could not be run: {error.get('message')}. This is not a"
                    " problem with your question. Ask again."
                )
            where = f" (line {error['line']})" if error.get("line") else ""
            raise ToolFailed(
                f"Query {len(self._queries)} has failed{where}: {error.get('type')}:"
                f" {error.get('message')}{_printed(query)}"
            )
        output: Mapping[str, Any] = query.output
        return output


def _plain_number(text: str) -> str:
    """Return a number without separators of thousands: "1,200" and "1200" are the same."""
    return re.sub(r",(?=\d{3}\b)", "", text)


def _printed(query: Run) -> str:
    """Return what a query printed, which is no answer, but may show why its value is wrong."""
    printed = query.stdout[-MAX_PRINTED:].strip()
    return f"\nIt printed: {printed}" if printed else ""


class SandboxAbsent(LanguageModelError):
    """No sandbox is available to run the model's query; the question isn't the problem."""

"""Answer questions about long conversations as an agent does, in several ways side by side.

The questions are those of LOCOMO, LongMemEval or BEAM, or aggregate questions about typed records;
benchmarks/answer_data.py says which files in UAC_DATA_DIR these are. For each question, a model
gets a text and the question, in one call, and answers. Only the text differs:

- `context`: what `context/` returns within the budget of tokens;
- `bm25`: the chunks of 300 words that BM25 ranks highest, within the same budget;
- `whole`: the whole conversation.

A fourth way, `ask`, is for questions that count: the server's `ask/` has the model write a query
and returns its value. With `--remember`, each model first remembers the conversations on a server,
so that contexts have its facts and records, and `ask` has something to compute from.

Judges compare each answer with the right one; if the benchmark has a rubric, each point counts. F1
is that of the answers' words. `evidence` is the share of the messages that contain the answer,
according to the benchmark, in the text.

Every text, answer and verdict is written to `--record` at once, so that a run that was stopped goes
on where it was. Models and judges are named as NAME or NAME@BASE_URL; the default URL is
UAC_BENCH_BASE_URL, and the key UAC_BENCH_API_KEY. A run begins with an estimate of its calls,
tokens and costs; without models, the texts are all that is measured.
"""

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from benchmarks.answer_data import NOT_MENTIONED, READERS, Question, Talk
from benchmarks.chat import Model, Prices, agrees
from benchmarks.harness import (
    Client,
    Row,
    append,
    commit,
    end_without_data,
    expect,
    new_client,
    parser,
    report,
    require_data,
    server_environment,
    settings_of,
    settled,
    until_embedded,
)
from benchmarks.retrieval import bm25_scores
from benchmarks.scores import token_f1
from deploy.embedded.system import running_system
from memory.recall.tokens import tokens_in

WAYS = ("context", "bm25", "whole")
ASK = "ask"
CHUNK = 300
# For the estimate: tokens of a prompt besides its text, of an answer and of a verdict; calls and
# tokens of a question that is asked; and tokens sent and returned to remember each token said.
PROMPT, ANSWER, VERDICT = 200, 60, 5
CALLS_ASKED, SENT_ASKED, RETURNED_ASKED = 1.5, 4500, 150
SENT_REMEMBERED, RETURNED_REMEMBERED = 30, 5

READER = """\
You answer a question from what is known about a person or two people, in the text below. Say what
it says, briefly: a phrase or, for a summary or an order, a short text with every point. Resolve
relative dates by the date of their line. If the text does not say it, answer exactly:
Not mentioned in the conversation."""


@dataclass(frozen=True)
class Source:
    """A text to answer from, and the positions of the entries that it is made of."""

    text: str
    entries: frozenset[int]


FindSource = Callable[[str], Source]  # takes a question


class Record:
    """The texts, answers and verdicts so far, one JSON object per line in a file.

    The first line says what they belong to; runs that differ in that must not be mixed.
    """

    def __init__(self, path: Path | None, run: Mapping[str, Any]) -> None:
        self._path, self._lock = path, Lock()
        lines = path.read_text().splitlines() if path and path.exists() else []
        self.rows: dict[str, Row] = {row["id"]: row for row in map(json.loads, lines)}
        if "run" not in self.rows:
            self.keep({"id": "run", **run, "commit": commit()})
        if differing := [name for name in run if self.rows["run"][name] != run[name]]:
            sys.exit(
                f"{path} is the record of another run ({', '.join(differing)}): name a new one"
            )
        self.commit = self.rows["run"]["commit"]

    def keep(self, row: Row) -> None:
        """Add a row, and write it to the file, if there is one, at once."""
        with self._lock:
            self.rows[row["id"]] = row
            if self._path:
                with self._path.open("a") as file:
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")


@dataclass
class Run:
    """What one call of this program measures."""

    talks: Sequence[Talk]
    ways: Sequence[str]
    models: Sequence[Model]
    judges: Sequence[Model]
    tokens: int
    remember: bool
    record: Record
    problems: list[str] = field(default_factory=list)

    def workspaces(self) -> Mapping[str, Model | None]:
        """The server's workspaces: one for each model that it calls, or one for all."""
        if self.remember or ASK in self.ways:
            return {model.name: model for model in self.models}
        return {"shared": None}

    def context_key(self, question: Question, model: str) -> str:
        """The name of a context in the record."""
        return f"{question.id} context for {model if model in self.workspaces() else 'shared'}"

    def questions_of(self, talk: Talk, way: str) -> Sequence[Question]:
        """The questions of a conversation that one way answers."""
        return [one for one in talk.questions if way != ASK or one.counts]


def main() -> None:
    """Run the benchmark, report the results, and write the table as Markdown if asked to."""
    options = parser(__doc__, conversations=(None, 1), limit=(None, 2), tokens=(3000, 1000))
    options.add_argument("--benchmark", choices=READERS, default="locomo")
    options.add_argument("--file", help="the file or folder in UAC_DATA_DIR, by another name")
    options.add_argument("--ways", nargs="+", choices=[*WAYS, ASK], default=list(WAYS))
    options.add_argument("--remember", action="store_true", help="each model remembers first")
    options.add_argument("--models", nargs="+", default=[], help="NAME or NAME@BASE_URL")
    options.add_argument("--judges", nargs="+", default=[], help="the same")
    options.add_argument(
        "--price", nargs="+", default=[], help="NAME=SENT/RETURNED, in dollars per million tokens"
    )
    options.add_argument("--parallel", type=int, default=1, help="calls at a time")
    options.add_argument("--record", type=Path, help="default: answers.jsonl, if there are models")
    options.add_argument("--table", type=Path, help="write the table as Markdown to this file")
    options.add_argument("--estimate", action="store_true", help="only estimate calls and costs")
    options.add_argument(
        "--stand-in", action="store_true", help="mark the results: models or judges are stand-ins"
    )
    asked = options.parse_args()
    run = read_run(asked)
    prices = Prices(asked.price)
    estimate = estimate_of(run, prices)
    print("\n".join(f"estimate: {name} = {value}" for name, value in estimate.items()), flush=True)
    if asked.estimate:
        return
    read_on_server(run)
    sources = sources_of(run)
    answer_all(run, sources, asked.parallel)
    rows = rows_of(run, sources, prices) if run.models else rows_of_texts(run, sources)
    settings = {
        "benchmark": asked.benchmark,
        "conversations": [talk.name for talk in run.talks],
        "questions": sum(len(talk.questions) for talk in run.talks),
        "tokens": run.tokens,
        "remember": run.remember,
        "models": [model.name for model in run.models],
        "judges": [judge.name for judge in run.judges],
        "stand_in": asked.stand_in,
        "commit": run.record.commit,
    }
    report(
        "answers",
        settings=settings,
        rows=rows,
        figures={f"estimated_{name}": value for name, value in estimate.items()},
        path=asked.json,
        problems=run.problems,
    )
    if asked.table:
        asked.table.write_text(markdown(rows, settings))


def read_run(asked: argparse.Namespace) -> Run:
    """Read the conversations and the record; exit if the options do not go together."""
    name, read = READERS[asked.benchmark]
    (path,) = require_data(asked.file or name)
    talks = list(choose(read(path), asked.conversations, asked.limit))
    if not talks:
        end_without_data(f"{path.name} has no conversation")
    if ASK in asked.ways and not (asked.remember or all(talk.is_typed for talk in talks)):
        sys.exit("ask computes from typed records: add --remember, or use --benchmark aggregates")
    if (asked.remember or ASK in asked.ways) and not asked.models:
        sys.exit("only a model remembers and asks: name some with --models")
    described = {"benchmark": asked.benchmark, "tokens": asked.tokens, "remember": asked.remember}
    return Run(
        talks,
        asked.ways,
        [Model.named(one) for one in asked.models],
        [Model.named(one) for one in asked.judges],
        asked.tokens,
        asked.remember,
        Record(asked.record or (Path("answers.jsonl") if asked.models else None), described),
    )


def choose(talks: Iterator[Talk], conversations: int | None, limit: int | None) -> Iterator[Talk]:
    """Yield the first conversations; of each, `limit` questions, one of each category in turn."""
    for number, talk in enumerate(talks):
        if conversations is not None and number >= conversations:
            return
        seen: Counter[str] = Counter()
        turns = []
        for position, question in enumerate(talk.questions):
            turns.append((seen[question.category], position))
            seen[question.category] += 1
        chosen = sorted(position for _, position in sorted(turns)[:limit])
        yield Talk(talk.name, talk.entries, [talk.questions[position] for position in chosen])


# -- What the server returns -----------------------------------------------------------------------


def read_on_server(run: Run) -> None:
    """Record the contexts, and the answers of `ask`, that the record lacks."""
    missing = [
        (talk, workspace)
        for workspace in run.workspaces()
        for talk in run.talks
        if not all(key in run.record.rows for key in _server_keys(run, talk, workspace))
    ]
    if not missing:
        return
    uses_model = any(run.workspaces().values())
    with running_system(
        sandbox_workers=int(uses_model),
        llm_workers=int(uses_model),
        environment=server_environment() if uses_model else {},
    ) as system:
        settings_of(system)
        from benchmarks.model_server import remember, set_model

        clients = {name: new_client(system, name) for name in run.workspaces()}
        for name, model in run.workspaces().items():
            if model is not None:
                set_model(name, model)
        for talk, workspace in missing:
            client = clients[workspace]
            expect(201, client.post("users/", {"user_id": talk.name, "time_zone": "UTC"}))
            if run.remember and not talk.is_typed:
                for session in talk.sessions():
                    remember(system, client, workspace, talk.name, session, run.problems)
            else:
                append(client, talk.name, talk.entries, 250)
            if talk.is_typed:
                settled(client, talk.name, len(talk.entries))
            else:
                until_embedded(client, talk.name, talk.entries[0]["content"][:100])
            read_talk(run, client, talk, workspace)


def _server_keys(run: Run, talk: Talk, workspace: str) -> Iterator[str]:
    """Yield the names of what the server has to return about a conversation."""
    if "context" in run.ways:
        yield from (run.context_key(one, workspace) for one in talk.questions)
    if ASK in run.ways:
        yield from (f"{one.id} {ASK} {workspace}" for one in run.questions_of(talk, ASK))


def read_talk(run: Run, client: Client, talk: Talk, workspace: str) -> None:
    """Record the contexts for a conversation's questions, and the answers of `ask`."""
    for question in talk.questions if "context" in run.ways else ():
        body = {"query": question.text, "tokens": run.tokens}
        context = expect(200, client.post(f"users/{talk.name}/context/", body))
        entries = [seq - 1 for seq in context["entries"]]
        key = run.context_key(question, workspace)
        run.record.keep({"id": key, "text": context["text"], "entries": entries})
    for question in run.questions_of(talk, ASK) if ASK in run.ways else ():
        from benchmarks.model_server import ask

        try:
            value, usage = ask(client, talk.name, question.text)
        except ValueError as error:
            run.problems.append(f"{question.id}, ask, {workspace}: {error}")
            continue
        text = NOT_MENTIONED if value is None else _as_text(value)
        run.record.keep(_answer_row(question, ASK, workspace, text) | usage)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# -- The texts that a model answers from -----------------------------------------------------------


def sources_of(run: Run) -> dict[tuple[str, str, str], Source]:
    """Return the text for each question, way and model that answers from a text."""
    found = {}
    names = [model.name for model in run.models] or ["shared"]
    for talk in run.talks:
        finders = {"bm25": by_bm25(talk, run.tokens), "whole": whole(talk)}
        for way in (way for way in run.ways if way != ASK):
            for question in talk.questions:
                for model in names:
                    key = question.id, way, model
                    if way == "context":
                        row = run.record.rows[run.context_key(question, model)]
                        found[key] = Source(row["text"], frozenset(row["entries"]))
                    else:
                        found[key] = finders[way](question.text)
    return found


def by_bm25(talk: Talk, tokens: int) -> FindSource:
    """Return a function that packs the conversation's best chunks into so many tokens."""
    lines = list(lines_of(talk))
    chunks: list[list[int]] = [[]]
    for position in range(len(lines)):
        size = sum(len(lines[one].split()) for one in [*chunks[-1], position])
        if chunks[-1] and size > CHUNK:
            chunks.append([])
        chunks[-1].append(position)
    texts = ["\n".join(lines[one] for one in chunk) for chunk in chunks]
    costs = list(map(tokens_in, texts))
    score = bm25_scores(texts)

    def find(question: str) -> Source:
        scores, room, kept = score(question), tokens, set[int]()
        for number in sorted(range(len(texts)), key=lambda one: -scores[one]):
            if costs[number] <= room:
                kept.add(number)
                room -= costs[number]
        text = "\n...\n".join(texts[number] for number in sorted(kept))
        return Source(text, frozenset(one for number in kept for one in chunks[number]))

    return find


def whole(talk: Talk) -> FindSource:
    """Return a function that returns the whole conversation."""
    source = Source("\n".join(lines_of(talk)), frozenset(range(len(talk.entries))))
    return lambda _: source


def lines_of(talk: Talk) -> Iterator[str]:
    """Yield a line for each entry: a message with its date and speaker, or a record's fields."""
    for entry in talk.entries:
        if entry["kind"] == "record":
            fields = "; ".join(f"{name}: {value}" for name, value in entry["data"].items())
            yield f"{entry['collection']}: {fields}"
        else:
            who = entry.get("speaker") or entry.get("role")
            yield f"({entry['occurred_at'][:10]}, {who}) {' '.join(entry['content'].split())}"


# -- Answers and verdicts --------------------------------------------------------------------------


def answer_all(run: Run, sources: Mapping[tuple[str, str, str], Source], parallel: int) -> None:
    """Get all answers and verdicts that the record lacks; failed calls become problems."""
    tasks = [
        (question, way, model)
        for way in run.ways
        for talk in run.talks
        for question in run.questions_of(talk, way)
        for model in run.models
    ]

    def do(task: tuple[Question, str, Model]) -> None:
        question, way, model = task
        source = sources.get((question.id, way, model.name))
        try:
            answer_one(run, question, way, source, model)
        except (OSError, ValueError, LookupError) as error:
            name = f"{question.id}, {way}, {model.name}"
            run.problems.append(f"{name}: {type(error).__name__}: {error}")

    with ThreadPoolExecutor(parallel) as pool:
        list(pool.map(do, tasks))


def answer_one(run: Run, question: Question, way: str, source: Source | None, model: Model) -> None:
    """Get a model's answer to a question and each judge's verdict, unless they are recorded."""
    key = f"{question.id} {way} {model.name}"
    row = run.record.rows.get(key)
    if row is None and source is not None:
        day = f"Today is {question.day}.\n" if question.day else ""
        reply = model.ask(READER, f"{source.text}\n\n{day}The question: {question.text}")
        row = _answer_row(question, way, model.name, reply.text)
        row |= {"calls": 1, "sent": reply.sent, "returned": reply.returned}
        run.record.keep(row)
    if row is None:
        return  # `ask` has failed
    for judge in run.judges:
        verdict = f"{key} judged by {judge.name}"
        if verdict not in run.record.rows:
            points = question.rubric or [question.answer]
            score = statistics.mean(
                agrees(judge, question.text, point, row["answer"]) for point in points
            )
            run.record.keep({"id": verdict, "score": score})


def _answer_row(question: Question, way: str, model: str, text: str) -> Row:
    return {
        "id": f"{question.id} {way} {model}",
        "question": question.text,
        "expected": question.answer,
        "answer": text,
        "f1": token_f1(text, question.answer),
    }


# -- The report ------------------------------------------------------------------------------------


def estimate_of(run: Run, prices: Prices) -> dict[str, Any]:
    """Estimate the calls, tokens and costs of a whole run, whatever is recorded of it."""
    calls, sent, returned, points = 0.0, 0.0, 0.0, 0
    for talk in run.talks:
        size = sum(map(tokens_in, lines_of(talk)))
        if run.remember and not talk.is_typed:
            calls += 1.2 * len(list(talk.sessions()))
            sent += SENT_REMEMBERED * size
            returned += RETURNED_REMEMBERED * size
        for way in run.ways:
            questions = run.questions_of(talk, way)
            calls += len(questions) * (CALLS_ASKED if way == ASK else 1)
            text = size if way == "whole" else min(size, run.tokens)
            sent += len(questions) * (SENT_ASKED if way == ASK else text + PROMPT)
            returned += len(questions) * (RETURNED_ASKED if way == ASK else ANSWER)
            points += sum(len(one.rubric) or 1 for one in questions)
    each = [(model, calls, sent, returned) for model in run.models]
    judged = points * len(run.models)
    each += [(one, judged, judged * (PROMPT + 2 * ANSWER), judged * VERDICT) for one in run.judges]
    costs = [prices.cost(model.name, sent, returned) for model, _, sent, returned in each]
    total = sum(cost for cost in costs if cost is not None)
    unknown = [model.name for (model, *_), cost in zip(each, costs, strict=True) if cost is None]
    return {
        "calls": round(sum(one[1] for one in each)),
        "tokens_sent": round(sum(one[2] for one in each)),
        "tokens_returned": round(sum(one[3] for one in each)),
        "dollars": round(total, 2),
        **({"without_price": unknown} if unknown else {}),
    }


def rows_of_texts(run: Run, sources: Mapping[tuple[str, str, str], Source]) -> list[Row]:
    """Return a row for each way with the size of its texts, which needs no model."""
    rows = []
    for way in (way for way in run.ways if way != ASK):
        questions = [one for talk in run.talks for one in talk.questions]
        texts = [sources[one.id, way, "shared"].text for one in questions]
        rows.append(
            {
                "way": way,
                "questions": len(questions),
                "tokens": round(statistics.mean(map(tokens_in, texts))),
                "evidence": evidence_in(questions, way, "shared", sources),
            }
        )
    return rows


def evidence_in(
    questions: Sequence[Question],
    way: str,
    model: str,
    sources: Mapping[tuple[str, str, str], Source],
) -> float | None:
    """Return the share of the evidence that the texts contain, in %: the mean over questions."""
    shares = [
        len(one.evidence & sources[one.id, way, model].entries) / len(one.evidence)
        for one in questions
        if one.evidence and way != ASK
    ]
    return round(100 * statistics.mean(shares), 1) if shares else None


def rows_of(run: Run, sources: Mapping[tuple[str, str, str], Source], prices: Prices) -> list[Row]:
    """Return a row for each model, way and category, and one for all categories.

    If `ask` is one of the ways, the questions that count are a category, too.
    """
    questions = [one for talk in run.talks for one in talk.questions]
    groups = {
        name: [one for one in questions if one.category == name]
        for name in dict.fromkeys(one.category for one in questions)
    }
    if ASK in run.ways:
        groups["counting"] = [one for one in questions if one.counts]
    groups["all"] = questions
    rows = []
    for model in run.models:
        for way in run.ways:
            for category, of_category in groups.items():
                answered = [
                    one for one in of_category if f"{one.id} {way} {model.name}" in run.record.rows
                ]
                if answered:
                    row = {"model": model.name, "way": way, "category": category}
                    scored = scores_of(run, answered, way, model, prices)
                    evidence = evidence_in(answered, way, model.name, sources)
                    rows.append({**row, **scored, "evidence": evidence})
    return rows


def scores_of(
    run: Run, questions: Sequence[Question], way: str, model: Model, prices: Prices
) -> Row:
    """Return the scores, tokens and costs of a model's answers to questions."""
    keys = [f"{one.id} {way} {model.name}" for one in questions]
    answers = [run.record.rows[key] for key in keys]
    row: Row = {"questions": len(questions)}
    for judge in run.judges:
        verdicts = [run.record.rows.get(f"{key} judged by {judge.name}") for key in keys]
        scores = [one["score"] for one in verdicts if one]
        row[f"judge {judge.name}"] = _percent(scores) if scores else None
    row["f1"] = _percent([one["f1"] for one in answers])
    for name in ("calls", "sent", "returned"):
        row[name] = round(statistics.mean(one[name] for one in answers), 1)
    cost = prices.cost(model.name, row["sent"], row["returned"])
    return row | {"dollars": None if cost is None else round(cost, 5)}


def _percent(scores: Sequence[float]) -> float:
    return round(100 * statistics.mean(scores), 1)


def markdown(rows: Sequence[Row], settings: Mapping[str, Any]) -> str:
    """Return the rows as a table for docs/benchmarks.md, with what they were measured with."""
    columns = [one for one in rows[0] if any(row.get(one) is not None for row in rows)]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for row in rows:
        cells = ("" if row.get(one) is None else str(row[one]) for one in columns)
        lines.append("| " + " | ".join(cells) + " |")
    about = (
        f"{settings['benchmark']}, {', '.join(settings['conversations'][:5])}; {settings['tokens']}"
        f" tokens; answers by {', '.join(settings['models']) or 'nobody'}, judged by"
        f" {', '.join(settings['judges']) or 'nobody'}; commit {settings['commit']}."
    )
    if settings["stand_in"]:
        about += (
            " **Stand-ins replaced the models and judges**: do not compare these numbers with those"
            " that others publish."
        )
    return "\n".join([about, "", *lines]) + "\n"


if __name__ == "__main__":
    main()

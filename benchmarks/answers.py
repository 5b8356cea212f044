"""Answer the questions of LOCOMO, LongMemEval or BEAM as an agent does, in several ways.

Each conversation is sent to a server as messages. For each question, a model gets a text and the
question, in one call, and answers. The text differs by way, and nothing else does:

- `context`: what `context/` returns within the budget of tokens;
- `bm25`: the chunks of 300 words that BM25 ranks highest, within the same budget;
- `whole`: the whole conversation.

Judges compare each answer with the right one; if the benchmark has a rubric, each point counts.
Token F1 is computed besides. Every answer and verdict is written to `--record` at once, so that a
run that was stopped goes on where it was. Models and judges are named as NAME or NAME@BASE_URL; the
default URL is UAC_BENCH_BASE_URL, and the key UAC_BENCH_API_KEY. `--estimate` only counts, and so
does a run without models. The files are read from UAC_DATA_DIR.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from benchmarks.answer_data import Asked, Talk, read_talks
from benchmarks.chat import Model
from benchmarks.harness import (
    Client,
    Row,
    append,
    expect,
    new_client,
    parser,
    report,
    require_data,
    settings_of,
    until_embedded,
)
from benchmarks.scores import token_f1
from deploy.embedded.system import running_system

FILES = {"locomo": "locomo.json", "longmemeval": "longmemeval_s.json", "beam": "beam.json"}
WAYS = ("context", "bm25", "whole")
CHUNK = 300
# Tokens that a call takes besides its text, and that an answer has, for the estimate.
PROMPT, ANSWER, VERDICT = 200, 60, 5

READER = """\
You answer a question from what is known about a person or two people, in the text below. Say what
it says, briefly: a phrase or, for a summary or an order, a short text with every point. Resolve
relative dates by the date of their line. If the text does not say it, answer exactly:
Not mentioned in the conversation."""
JUDGE = """\
You compare an answer with the right one, or with a point that a right answer makes. It is correct
if it says the same, in whatever words or format, and nothing that contradicts it; more detail does
no harm. If the right answer is that something was not mentioned, or cannot be known, the answer is
correct only if it says so, too. Reply with one word: correct or wrong."""

Texts = Callable[[str], str]  # takes a question and returns the text to answer it from


def main() -> None:
    """Run the benchmark, report the results, and write the table as Markdown if asked to."""
    made = parser(__doc__, conversations=(None, 1), limit=(None, 2), tokens=(3000, 1000))
    made.add_argument("--benchmark", choices=FILES, default="locomo")
    made.add_argument("--file", help="the file in UAC_DATA_DIR, if it has another name")
    made.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    made.add_argument("--models", nargs="+", default=[], help="NAME or NAME@BASE_URL")
    made.add_argument("--judges", nargs="+", default=[], help="the same")
    made.add_argument("--parallel", type=int, default=1, help="calls at a time")
    made.add_argument("--record", type=Path, default=Path("answers.jsonl"))
    made.add_argument("--table", type=Path, help="write the table as Markdown to this file")
    made.add_argument("--estimate", action="store_true", help="only count calls and tokens")
    asked = made.parse_args()
    (path,) = require_data(asked.file or FILES[asked.benchmark])
    talks = list(choose(read_talks(asked.benchmark, path), asked.conversations, asked.limit))
    record = Record(asked.record)
    with running_system(sandbox_workers=0) as system:
        settings_of(system)
        client = new_client(system, "answers")
        texts = texts_of(client, talks, asked.ways, asked.tokens)
    number = len(asked.models) or 1
    estimate = estimate_of(texts, talks, number, number * len(asked.judges))
    problems: list[str] = []
    if not asked.estimate:
        problems = answer_all(texts, talks, record, asked)
    rows = rows_of(record, asked) or rows_of_texts(texts, asked.ways)
    report(
        "answers",
        settings={
            "benchmark": asked.benchmark,
            "conversations": [talk.name for talk in talks],
            "questions": sum(len(talk.questions) for talk in talks),
            "tokens": asked.tokens,
            "models": asked.models,
            "judges": asked.judges,
            "commit": commit(),
        },
        rows=rows,
        figures=estimate,
        path=asked.json,
        problems=problems,
    )
    if asked.table:
        asked.table.write_text(markdown(rows, asked))


def choose(talks: Iterator[Talk], conversations: int | None, limit: int | None) -> Iterator[Talk]:
    """Yield the first conversations; of each, `limit` questions, one of each category in turn."""
    for number, talk in enumerate(talks):
        if conversations is not None and number >= conversations:
            return
        seen: Counter[str] = Counter()
        turns = []
        for place, question in enumerate(talk.questions):
            turns.append((seen[question.category], place))
            seen[question.category] += 1
        chosen = sorted(place for _, place in sorted(turns)[:limit])
        yield Talk(talk.name, talk.entries, [talk.questions[place] for place in chosen])


# -- The texts that a model answers from -----------------------------------------------------------


def texts_of(
    client: Client, talks: Sequence[Talk], ways: Sequence[str], tokens: int
) -> dict[tuple[str, str], str]:
    """Return the text for each question's id and each way."""
    made: dict[tuple[str, str], str] = {}
    for talk in talks:
        ready = {
            "context": partial(by_context, client, talk, tokens),
            "bm25": partial(by_bm25, talk, tokens),
            "whole": partial(whole, talk),
        }
        for way in ways:
            text_for = ready[way]()
            for question in talk.questions:
                made[question.id, way] = text_for(question.text)
    return made


def by_context(client: Client, talk: Talk, tokens: int) -> Texts:
    """Send the conversation to the server; return a function that gets contexts from it."""
    expect(201, client.post("users/", {"user_id": talk.name, "time_zone": "UTC"}))
    append(client, talk.name, talk.entries)
    until_embedded(client, talk.name, talk.entries[0]["content"][:100])

    def text_for(question: str) -> str:
        body = {"query": question, "tokens": tokens}
        return str(expect(200, client.post(f"users/{talk.name}/context/", body))["text"])

    return text_for


def by_bm25(talk: Talk, tokens: int) -> Texts:
    """Return a function that packs the conversation's best chunks into so many tokens."""
    from benchmarks.retrieval import bm25_scores
    from memory.recall.tokens import tokens_in

    chunks: list[list[str]] = [[]]
    for line in lines_of(talk):
        if chunks[-1] and sum(len(one.split()) for one in [*chunks[-1], line]) > CHUNK:
            chunks.append([])
        chunks[-1].append(line)
    joined = ["\n".join(chunk) for chunk in chunks]
    costs = list(map(tokens_in, joined))
    score = bm25_scores(joined)

    def text_for(question: str) -> str:
        scores, room, kept = score(question), tokens, set[int]()
        for place in sorted(range(len(joined)), key=lambda one: -scores[one]):
            if costs[place] <= room:
                kept.add(place)
                room -= costs[place]
        return "\n...\n".join(joined[place] for place in sorted(kept))

    return text_for


def whole(talk: Talk) -> Texts:
    """Return a function that returns the whole conversation."""
    text = "\n".join(lines_of(talk))
    return lambda _: text


def lines_of(talk: Talk) -> Iterator[str]:
    """Yield a line for each message: its date, who says it, and its text."""
    for entry in talk.entries:
        who = entry.get("speaker") or entry.get("role")
        yield f"({entry['occurred_at'][:10]}, {who}) {' '.join(entry['content'].split())}"


# -- Answers and verdicts --------------------------------------------------------------------------


class Record:
    """The answers and verdicts so far, one JSON object per line in a file."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows: dict[str, Row] = {row["id"]: row for row in map(json.loads, lines)}

    def keep(self, row: Row) -> None:
        """Add a row, and write it to the file at once."""
        with self._lock, self._path.open("a") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            self.rows[row["id"]] = row


def model_of(name: str) -> Model:
    """Return the model with this name: NAME or NAME@BASE_URL."""
    short, _, url = name.partition("@")
    where = url or os.environ.get("UAC_BENCH_BASE_URL", "")
    if not where:
        sys.exit(f"{name}: set UAC_BENCH_BASE_URL, or write NAME@BASE_URL")
    return Model(short, where, os.environ.get("UAC_BENCH_API_KEY", "none"))


def answer_all(
    texts: Mapping[tuple[str, str], str],
    talks: Sequence[Talk],
    record: Record,
    asked: argparse.Namespace,
) -> list[str]:
    """Get all answers and verdicts that the record lacks; return the calls that failed."""
    judges = [model_of(name) for name in asked.judges]
    tasks = [
        (question, way, model_of(name))
        for talk in talks
        for question in talk.questions
        for way in asked.ways
        for name in asked.models
    ]

    def do(task: tuple[Asked, str, Model]) -> list[str]:
        question, way, model = task
        try:
            answer_one(question, way, texts[question.id, way], model, judges, record)
        except (OSError, ValueError, LookupError) as error:
            return [f"{question.id}, {way}, {model.name}: {type(error).__name__}: {error}"]
        return []

    with ThreadPoolExecutor(asked.parallel) as pool:
        return [problem for problems in pool.map(do, tasks) for problem in problems]


def answer_one(
    question: Asked, way: str, text: str, model: Model, judges: Sequence[Model], record: Record
) -> None:
    """Get a model's answer to a question and each judge's verdict, unless they are recorded."""
    name = f"{question.id} {way} {model.name}"
    row = record.rows.get(name)
    if row is None:
        day = f"Today is {question.day}.\n" if question.day else ""
        said = model.ask(READER, f"{text}\n\n{day}The question: {question.text}")
        row = {
            "id": name,
            "way": way,
            "model": model.name,
            "category": question.category,
            "question": question.text,
            "expected": question.answer,
            "answer": said.text,
            "f1": token_f1(said.text, question.answer),
            "sent": said.sent,
            "returned": said.returned,
        }
        record.keep(row)
    for judge in judges:
        key = f"{name} judged by {judge.name}"
        if key not in record.rows:
            points = question.rubric or [question.answer]
            right = [agrees(judge, question.text, point, row["answer"]) for point in points]
            score = statistics.mean(right)
            record.keep({"id": key, "of": name, "judge": judge.name, "score": score})


def agrees(judge: Model, question: str, expected: str, said: str) -> bool:
    """Return whether a judge finds that an answer says what is expected."""
    text = f"The question: {question}\nThe right answer, or a point of it: {expected}\n"
    verdict = judge.ask(JUDGE, f"{text}The answer to judge: {said}").text
    return verdict.casefold().strip(" .*\"'").startswith("correct")


# -- The report ------------------------------------------------------------------------------------


def estimate_of(
    texts: Mapping[tuple[str, str], str], talks: Sequence[Talk], models: int, verdicts: int
) -> dict[str, Any]:
    """Return how many calls and tokens a whole run takes, with `verdicts` for each text."""
    from memory.recall.tokens import tokens_in

    points = {one.id: len(one.rubric) or 1 for talk in talks for one in talk.questions}
    judged = verdicts * sum(points[id_] for id_, _ in texts)
    read = models * sum(math.ceil(tokens_in(text)) + PROMPT for text in texts.values())
    return {
        "calls": models * len(texts) + judged,
        "input_tokens": read + judged * (PROMPT + 2 * ANSWER),
        "output_tokens": models * len(texts) * ANSWER + judged * VERDICT,
    }


def rows_of_texts(texts: Mapping[tuple[str, str], str], ways: Sequence[str]) -> list[Row]:
    """Return a row for each way with the size of its texts, which needs no model."""
    from memory.recall.tokens import tokens_in

    sizes = {way: [tokens_in(text) for (_, of), text in texts.items() if of == way] for way in ways}
    return [
        {"way": way, "texts": len(of), "tokens": round(statistics.mean(of))}
        for way, of in sizes.items()
        if of
    ]


def rows_of(record: Record, asked: argparse.Namespace) -> list[Row]:
    """Return a row for each model, way and category, and one for all categories."""
    answers = [row for row in record.rows.values() if "answer" in row]
    categories = [*dict.fromkeys(row["category"] for row in answers), "all"]
    rows = []
    for model in dict.fromkeys(row["model"] for row in answers):
        for way in asked.ways:
            for category in categories:
                of = [
                    row
                    for row in answers
                    if (row["model"], row["way"]) == (model, way)
                    and category in (row["category"], "all")
                ]
                if of:
                    rows.append(_row(record, asked, model, way, category, of))
    return rows


def _row(
    record: Record,
    asked: argparse.Namespace,
    model: str,
    way: str,
    category: str,
    answers: Sequence[Row],
) -> Row:
    row: Row = {"model": model, "way": way, "category": category, "questions": len(answers)}
    for name in asked.judges:
        judge = name.partition("@")[0]
        verdicts = [record.rows.get(f"{one['id']} judged by {judge}") for one in answers]
        scores = [one["score"] for one in verdicts if one]
        row[f"judge {judge}"] = round(100 * statistics.mean(scores), 1) if scores else None
    row["f1"] = round(100 * statistics.mean(one["f1"] for one in answers), 1)
    for name in ("sent", "returned"):
        row[f"{name}_tokens"] = round(statistics.mean(one[name] for one in answers))
    return row


def markdown(rows: Sequence[Row], asked: argparse.Namespace) -> str:
    """Return the rows as a table for docs/benchmarks.md, with what they were measured with."""
    columns = list(rows[0]) if rows else []
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(str(row.get(one, "")) for one in columns) + " |" for row in rows]
    about = (
        f"{asked.benchmark}, {asked.tokens} tokens, commit {commit()}; answers by"
        f" {', '.join(asked.models)}, judged by {', '.join(asked.judges) or 'nobody'}."
    )
    return "\n".join([about, "", *lines]) + "\n"


def commit() -> str:
    """Return the commit that is measured, with a mark if files differ from it."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    main()

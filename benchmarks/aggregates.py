"""Compare answers to aggregate questions: computed from the state, and from search results.

The questions in `analytical.jsonl` and `ten_domains.json` (in UAC_DATA_DIR) are put to a UaC
server, which runs each question's Python on the typed records, and to mem0 as pip installs it, in
which each record is one memory (`infer=False`, embedded by MiniLM if that is installed). mem0's
results go to a perfect reader: the same Python, run on the records that mem0 found. So its score is
the best that any language model could achieve with these results. mem0 is asked for 20 memories,
its default, and for 100 memories, both without a threshold.
"""

import datetime
import functools
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.analytical import Questions, _parsed, answered, equals_gold
from benchmarks.harness import Row, new_client, parser, report
from benchmarks.mem0_peer import DIMENSIONS, Embed, Peer, by_hash, mem0
from benchmarks.minilm import NOT_INSTALLED, WIDTH, MiniLm, model_folder
from deploy.embedded.system import running_system

TOP = (20, 100)


def main() -> None:
    """Run the benchmark and report the results."""
    asked = parser(__doc__, limit=(None, 2)).parse_args()
    questions = Questions.read(asked.limit)
    with running_system() as system:
        ours = list(answered(new_client(system, "benchmark"), questions))
    logging.disable(logging.WARNING)  # mem0 would log every step
    folder = model_folder()
    embed, dimensions = (by_minilm(folder), WIDTH) if folder else (by_hash, DIMENSIONS)
    with mem0(embed, dimensions) as peer:
        theirs = list(read(peer, questions))
    rows = [_row("UaC", [row["correct"] for row in ours])] + [
        _row(f"mem0, {top} memories, a reader without error", [one[top] for one in theirs])
        for top in TOP
    ]
    figures: dict[str, Any] = {
        "questions": len(ours),
        "uac": sum(row["correct"] for row in ours),
        **{f"mem0_{top}": sum(one[top] for one in theirs) for top in TOP},
    }
    settings = {
        "uac": sorted({row["runner"] for row in ours}),
        "mem0": "2.2, as pip installs it: Qdrant in files, SQLite; without its extra nlp",
        "embeddings": "all-MiniLM-L6-v2" if folder else "by words, without a model",
    }
    report(
        "aggregates",
        settings=settings,
        rows=rows,
        figures=figures,
        path=asked.json,
        problems=[] if folder else [NOT_INSTALLED],
    )


def _row(what: str, correct: Sequence[bool]) -> Row:
    return {
        "what": what,
        "questions": len(correct),
        "correct": sum(correct),
        "percent": round(100 * sum(correct) / len(correct), 1),
    }


def by_minilm(folder: Path) -> Embed:
    """Return a function that embeds texts with MiniLM, each distinct text only once."""
    model = MiniLm(folder)

    @functools.cache
    def one(text: str) -> list[float]:
        return [float(value) for value in model.encode([text])[0]]

    return lambda texts: [one(text) for text in texts]


def read(peer: Peer, questions: Questions) -> Iterator[dict[int, bool]]:
    """Answer each question from mem0's memories; yield the results by number of memories."""
    users: dict[str, str] = {}
    for case in questions.analytical:
        # Several questions may be about the same records, which are added only once.
        text = json.dumps(case["records"])
        if (user := users.get(text)) is None:
            user = users[text] = f"analytical-{len(users)}"
            remember(peer, user, case["type"], case["records"])
        yield correct(peer, user, case, case["type"], case["records"])
    for name, records in questions.state.items():
        remember(peer, "ten-domains", name, records)
    for case in questions.ten_domains:
        kind = case["target_domain"]
        yield correct(peer, "ten-domains", case, kind, questions.state[kind])


def remember(peer: Peer, user: str, kind: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Add each record to mem0 as a memory in words, with its position as metadata."""
    for place, record in enumerate(records):
        said = ", ".join(f"{name} {value}" for name, value in record.items())
        peer.memory.add(
            [{"role": "user", "content": f"{kind}: {said}"}],
            user_id=user,
            infer=False,
            metadata={"kind": kind, "place": place},
        )


def correct(
    peer: Peer, user: str, case: Mapping[str, Any], kind: str, records: Sequence[Mapping[str, Any]]
) -> dict[int, bool]:
    """Return, for each number of memories, whether the question's Python gives the right answer."""
    result = {}
    for top in TOP:
        found = peer.memory.search(
            case["question"], top_k=top, threshold=0.0, filters={"user_id": user}
        )
        places = {
            one["metadata"]["place"] for one in found["results"] if one["metadata"]["kind"] == kind
        }
        data = [_parsed(records[place]) for place in sorted(places)]
        result[top] = equals_gold(value_of(case["query_code"], data), case)
    return result


def value_of(code: str, data: Sequence[Any]) -> Any:
    """Run a question's Python on records; return None if it fails, as it may on an empty list."""
    try:
        value = eval(code, {"date": datetime.date, "data": data})
    except (ArithmeticError, LookupError, ValueError, TypeError, StopIteration):
        return None
    return sorted(value) if isinstance(value, set) else value


if __name__ == "__main__":
    main()

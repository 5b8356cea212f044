"""Compare changed instructions with the old ones: facts, records, refusals and tokens.

The recorded conversations of LOCOMO, in UAC_DATA_DIR, are remembered twice, each time on a server
of its own that has one of the two sets of instructions. `--old` is a commit or a folder; without
it, it is the last commit, so that uncommitted changes are measured. The tokens sent early and late
in a conversation show whether prompts grow with the history.

Models are named as NAME or NAME@BASE_URL; the default URL is UAC_BENCH_BASE_URL, and the key
UAC_BENCH_API_KEY. Without any, nothing is measured; with `--quick`, a stand-in that files every
text by rule shows only what the instructions cost. It counts as read from a cache what a prompt has
in common with the beginning of an earlier one.
"""

import argparse
import bisect
import itertools
import json
import logging
import math
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.chat import Model
from benchmarks.filing_rules import CHARACTERS_PER_TOKEN, answer, lines_in, tokens
from benchmarks.harness import (
    Row,
    commit,
    expect,
    new_client,
    parser,
    report,
    require_data,
    server_environment,
    settings_of,
)
from benchmarks.locomo import Conversation, read_conversations
from deploy.embedded.system import System, running_system
from tests.llm_server import KEY, Request, Said, called, llm_server, said

ROOT = Path(__file__).parent.parent
FOLDER = Path("workers/authoring/instructions")
COMPARED = (
    *("facts", "records", "rejected", "refused", "calls", "failed_calls", "sent"),
    *("uncached", "returned"),
    *("sent_early", "sent_late"),  # per session, in the first and last third of each conversation
)


def main() -> None:
    """Remember the conversations with either set of instructions, and report the differences."""
    line = parser(__doc__, conversations=(None, 1), sessions=(None, 2))
    line.add_argument("--models", nargs="+", default=[], help="NAME or NAME@BASE_URL")
    line.add_argument("--old", default="HEAD", help="the commit or folder of the old instructions")
    line.add_argument("--new", default=str(ROOT / FOLDER), help="those of the new ones")
    asked = line.parse_args()
    (path,) = require_data("locomo.json")
    conversations = [
        one.beginning(asked.sessions) for one in read_conversations(path)[: asked.conversations]
    ]
    rows: list[Row] = []
    problems: list[str] = []
    if not asked.models and not asked.quick:
        problems.append("nothing is measured without --models")
    with tempfile.TemporaryDirectory() as room:
        for name, place in () if problems else (("old", asked.old), ("new", asked.new)):
            folder = instructions_of(place, Path(room) / name)
            # Each server in a process of its own, since Django's settings are those of one server.
            with (
                models_of(asked) as models,
                ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process,
            ):
                measured = process.submit(measure_all, folder, models, conversations).result()
            rows += [{**row, "instructions": name} for row in measured[0]]
            problems += measured[1]
    old, new = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    figures = {
        f"{before['model']}_{name}_change": after[name] - before[name]
        for before, after in zip(old, new, strict=True)
        for name in COMPARED
    }
    report(
        "prompts",
        settings={"old": asked.old, "new": asked.new, "commit": commit()},
        rows=rows,
        figures=figures,
        path=asked.json,
        problems=problems,
    )


@contextmanager
def models_of(asked: argparse.Namespace) -> Iterator[list[Model]]:
    """Yield the models that were named or, with `--quick`, a stand-in if none was."""
    if asked.models:
        yield [Model.named(name) for name in asked.models]
        return
    with llm_server(script=StandIn()) as server:
        yield [Model("stand-in", server.openai_url, KEY)]


class StandIn:
    """A model that remembers every text verbatim and files it by rule.

    The rules are those of `benchmarks.filing_rules`, which estimate the tokens, too.
    """

    def __init__(self) -> None:
        self._prompts: list[str] = []  # in alphabetical order

    def __call__(self, request: Request) -> Said:
        """Answer, and count the tokens that a cache of all earlier prompts would have saved."""
        if "remember" in request.tools:
            facts = [f"[{seq}] {text}" for seq, text in lines_in(request)]
            reply = called("remember", {"facts": facts})
        else:
            reply = answer(request) if "finish" in request.tools else said("yes")
        prompt = json.dumps(
            [request.body.get("tools"), request.body["messages"]], ensure_ascii=False
        )
        sent = round(len(prompt) / CHARACTERS_PER_TOKEN)
        returned = round(tokens([call.arguments for call in reply.calls]))
        cached = self._add(prompt) // CHARACTERS_PER_TOKEN
        return replace(reply, tokens=(sent, returned), cached_tokens=cached)

    def _add(self, prompt: str) -> int:
        """Keep a prompt; return how many characters at its beginning an earlier one has, too."""
        # The one that shares most is a neighbour in alphabetical order.
        place = bisect.bisect(self._prompts, prompt)
        neighbours = self._prompts[max(place - 1, 0) : place + 1]
        self._prompts.insert(place, prompt)
        pairs = [zip(prompt, other, strict=False) for other in neighbours]
        same = [
            sum(1 for _ in itertools.takewhile(lambda two: two[0] == two[1], pair))
            for pair in pairs
        ]
        return max(same, default=0)


def instructions_of(place: str, folder: Path) -> Path:
    """Return the folder of instructions at this path or, written to `folder`, of this commit."""
    if Path(place).is_dir():
        return Path(place).resolve()
    folder.mkdir()
    for name in _git("ls-tree", "--name-only", place, f"{FOLDER}/").split():
        (folder / Path(name).name).write_text(_git("show", f"{place}:{name}"))
    return folder


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def measure_all(
    folder: Path, models: Sequence[Model], conversations: Sequence[Conversation]
) -> tuple[list[Row], list[str]]:
    """Return each model's figures with these instructions, and the problems."""
    problems: list[str] = []
    environment = {**server_environment(), "UAC_LLM_INSTRUCTIONS": str(folder)}
    with running_system(llm_workers=1, environment=environment) as system:
        settings_of(system)
        logging.disable(logging.INFO)  # otherwise every call would be logged
        rows: list[Row] = [
            {"model": model.name, **measure(system, model, conversations, problems)}
            for model in models
        ]
    return rows, problems


def measure(
    system: System, model: Model, conversations: Sequence[Conversation], problems: list[str]
) -> Row:
    """Have a model remember the sessions of all conversations, one by one; return the figures."""
    from benchmarks.model_server import remember, set_model, spent
    from memory.log.models.entries import EntryKind, LogEntry

    workspace = f"prompts-{model.name}"
    client = new_client(system, workspace)
    set_model(workspace, model)
    records = 0
    early, late = list[int](), list[int]()
    for conversation in conversations:
        user_id = conversation.name
        expect(201, client.post("users/", {"user_id": user_id, "time_zone": "UTC"}))
        sent = [spent(workspace)["sent"]]
        for _, turns in itertools.groupby(conversation.turns, key=lambda turn: turn.session):
            messages = [{**turn.entry, "role": "user"} for turn in turns]
            remember(system, client, workspace, user_id, messages, problems)
            sent.append(spent(workspace)["sent"])
        per_session = [after - before for before, after in itertools.pairwise(sent)]
        third = math.ceil(len(per_session) / 3)
        early += per_session[:third]
        late += per_session[-third:]
        records += _count_records(client.get(f"users/{user_id}/state/")[1])
    facts = LogEntry.objects.filter(user__workspace__name=workspace, kind=EntryKind.FACT)
    figures = {
        **spent(workspace),
        "facts": facts.count(),
        "records": records,
        "sent_early": round(statistics.mean(early)),
        "sent_late": round(statistics.mean(late)),
    }
    return {name: figures[name] for name in COMPARED}


def _count_records(state: Any) -> int:
    return sum(
        collection["count"]
        for domain in state["domains"].values()
        for collection in domain["collections"].values()
    )


if __name__ == "__main__":
    main()

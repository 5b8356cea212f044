"""Count the prompt tokens per checkpoint as a user's history grows, in the language model's lane.

The facts in `locomo_facts.json` (in UAC_DATA_DIR) are posted session by session. A scripted model
files each of them by rules, as a record or a note: it opens the domain, looks something up, edits
and finishes. The tokens sent to it are counted over all turns of a checkpoint, and compared with a
single prompt per checkpoint that contains the whole log, or the log's first 30,000 characters.

Then the last sessions of the first conversation are posted for users with 10 and 100 times as much
history: everything before these sessions, repeated, as typed entries.
"""

import calendar
import datetime
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks.analytical import ask
from benchmarks.harness import (
    Client,
    Row,
    append,
    end_without_data,
    expect,
    new_client,
    parser,
    report,
    require_data,
    settings_of,
    settled,
)
from deploy.embedded.system import System, running_system
from tests.llm_server import KEY, Called, LlmServer, Request, Said, called, llm_server

CAP = 30_000
LAST_SESSIONS = 3
BATCH = 1000
CHARACTERS_PER_TOKEN = 4
PATIENCE_SECONDS = 900.0

DOMAIN = "people"
VERBS = {
    "Opinion": "believes considers describes feels felt finds found hopes thinks views",
    "Preference": "appreciates enjoys likes loves prefers values",
    "Plan": "intends plans wants wishes",
    "Possession": "had has owns used uses",
}
CLASS_OF = {verb: name for name, verbs in VERBS.items() for verb in verbs.split()}
FIELDS = {
    **{name: {"person": "str", "what": "str"} for name in VERBS},
    "Event": {"person": "str", "what": "str", "on": "datetime.date"},
}
MONTHS = calendar.month_name[1:]
PERSON = re.compile(r"([A-Z][a-z]+) ((\w+) .+)", re.DOTALL)
DAY = re.compile(rf"\bon ({'|'.join(MONTHS)}) (\d{{1,2}}), (\d{{4}})\b")
# The question whether an edit adds a record that exists; the rules always add another one. Some
# protocols quote a refusal as JSON.
IS_THIS = re.compile(r'if not, \{\\?"(\d+)\\?": \{\\?"new\\?": true\}\}')
ENTRY = re.compile(r"^\[(\d+)\] \([^)]*\) (.*(?:\n    .*)*)", re.MULTILINE)


@dataclass(frozen=True)
class Fact:
    """A recorded fact: its line in the recording, and what is posted as an entry."""

    line: str
    session: str
    at: datetime.datetime
    text: str


@dataclass(frozen=True)
class Checkpoint:
    """The requests sent to the model for one window of entries, until it was committed."""

    entries: int
    turns: int
    tokens: float


def main() -> None:
    """Run the benchmark and report the results."""
    asked = parser(
        __doc__,
        conversations=(2, 1),
        sessions=(None, LAST_SESSIONS + 1),  # how many of each conversation's first sessions
        facts=(None, 10),  # how many facts of each session
        longer=((10, 100), (2,)),  # how many times as long the histories are
    ).parse_args()
    recorded = {
        name: first_facts(facts, asked.sessions, asked.facts)
        for name, facts in itertools.islice(read_facts().items(), asked.conversations)
    }
    if not recorded or len({fact.session for fact in first_of(recorded)[1]}) <= LAST_SESSIONS:
        end_without_data(
            f"locomo_facts.json has no first conversation of more than {LAST_SESSIONS} sessions"
        )
    with llm_server(script=answer) as model:
        environment = {
            "UAC_LLM_MODEL": "openai:rules",
            "UAC_LLM_BASE_URL": model.openai_url,
            "UAC_LLM_API_KEY": KEY,
            "UAC_STRUCTURE_ENTRIES": "1",
            "UAC_CHECKPOINT_BATCH": str(10 * BATCH),
            "UAC_SANDBOX_RUNNER": "docker",
        }
        with running_system(sandbox_workers=2, llm_workers=1, environment=environment) as system:
            settings_of(system)
            rows, figures = measure(system, model, recorded, asked.longer)
    settings = {
        "facts": {name: len(facts) for name, facts in recorded.items()},
        "history": "what was said before the last sessions, over and over, as typed entries",
        "sessions_after_history": LAST_SESSIONS,
        "characters_per_token": CHARACTERS_PER_TOKEN,
    }
    report("tokens", settings=settings, rows=rows, figures=figures, path=asked.json)


def read_facts() -> dict[str, list[Fact]]:
    """Read the facts of each recorded conversation, by the conversation's name."""
    (path,) = require_data("locomo_facts.json")
    recorded = json.loads(path.read_text())
    return {name: [_fact(line) for line in lines] for name, lines in recorded.items()}


def _fact(line: str) -> Fact:
    header, text = line.split("] ", 1)
    session, moment = header.removeprefix("[").split(", ", 1)
    at = datetime.datetime.strptime(moment, "%I:%M %p on %d %B, %Y").replace(tzinfo=datetime.UTC)
    return Fact(line, session, at, text)


def first_facts(facts: Sequence[Fact], sessions: int | None, each: int | None) -> list[Fact]:
    """Return the first `each` facts of each of the first `sessions` sessions; None means all."""
    by_session = itertools.groupby(facts, key=lambda fact: fact.session)
    return [
        fact
        for _, group in itertools.islice(by_session, sessions)
        for fact in itertools.islice(group, each)
    ]


def first_of(recorded: Mapping[str, list[Fact]]) -> tuple[str, list[Fact]]:
    """Return the name and facts of the first conversation."""
    return next(iter(recorded.items()))


# -- The scripted model ------------------------------------------------------------------------


def answer(request: Request) -> Said:
    """Take the next step in filing the entries in the prompt, as a model would."""
    messages = request.body["messages"]
    question = messages[1]["content"]
    entries = lines_in(request)
    done = [
        call["function"]["name"] for message in messages for call in message.get("tool_calls") or []
    ]
    if not done and f"\n{DOMAIN}:\n" in question:
        opened = Called("open_domain", {"domain": DOMAIN})
        sought = next((text for _, text in entries if "what" in filed(text)[2]), None)
        return Said(calls=(opened, *([_look_up(sought)] if sought else [])))
    if "edit" not in done:
        defined = [
            {
                "op": "define_class",
                "domain": DOMAIN,
                "name": name,
                "fields": [{"name": field, "type": type_} for field, type_ in fields.items()],
            }
            for name, fields in FIELDS.items()
            if f"{name}(" not in question
        ]
        return called("edit", {"edits": [*defined, *(_edit(seq, text) for seq, text in entries)]})
    if asked := IS_THIS.findall(request.results[-1]):
        return called("edit", {"edits": {number: {"new": True} for number in asked}})
    if done[-1] == "finish" or "refused" in request.results[-1]:
        raise AssertionError(f"the rules were refused: {request.results[-1]}")
    return called("finish", {})


def lines_in(request: Request) -> list[tuple[int, str]]:
    """Return the number and text of each message to remember or entry to file in a prompt."""
    question = request.body["messages"][1]["content"]
    lines = question.rpartition("Messages to remember:\n")[2]
    lines = lines.rpartition("Entries to bring into it:\n")[2]
    return [(int(seq), text.replace("\n    ", "\n")) for seq, text in ENTRY.findall(lines)]


def filed(text: str) -> tuple[str, str, dict[str, str]]:
    """Return the domain, class and fields of the record in which the rules file a fact."""
    said = PERSON.fullmatch(text)
    if said is None:
        return "notes", "Note", {"text": text}
    person, what, verb = said.groups()
    if day := DAY.search(text):
        on = f"{day[3]}-{MONTHS.index(day[1]) + 1:02}-{int(day[2]):02}"
        return DOMAIN, "Event", {"person": person, "what": what, "on": on}
    if verb in CLASS_OF:
        return DOMAIN, CLASS_OF[verb], {"person": person, "what": what}
    return "notes", "Note", {"text": text}


def _edit(seq: int, text: str) -> dict[str, Any]:
    domain, class_name, fields = filed(text)
    if domain == "notes":
        return {"op": "note", "sources": [seq], **fields}
    return {
        "op": "add",
        "domain": domain,
        "class_name": class_name,
        "fields": fields,
        "sources": [seq],
    }


def _look_up(text: str) -> Called:
    _, _, fields = filed(text)
    longest = max(re.findall(r"\w+", fields["what"]), key=len)
    return Called("look_up", {"domain": DOMAIN, "text": f"{fields['person']} {longest}"})


# -- Replaying the conversations ---------------------------------------------------------------


def measure(
    system: System, model: LlmServer, recorded: Mapping[str, list[Fact]], longer: Sequence[int]
) -> tuple[list[Row], dict[str, Any]]:
    """Replay all conversations, and the end of the first one after longer histories."""
    client = new_client(system, "tokens")
    name_of_first, first = first_of(recorded)
    names = {factor: f"{name_of_first}-{factor}x" for factor in longer}
    last_sessions = list(dict.fromkeys(fact.session for fact in first))[-LAST_SESSIONS:]
    end = [fact for fact in first if fact.session in last_sessions]
    before = first[: -len(end)]
    series = {}
    rows = []
    with ThreadPoolExecutor(1) as aside:
        known = {
            factor: aside.submit(remember, client, name, factor * before)
            for factor, name in names.items()
        }
        for name, facts in recorded.items():
            expect(201, client.post("users/", {"user_id": name, "time_zone": "UTC"}))
            series[name] = replay(client, model, name, facts)
            rows.append(row(name, facts, series[name], []) | left(client, name))
        ratios = {}
        for factor, name in names.items():
            known[factor].result()
            history = factor * before
            checkpoints = replay(client, model, name, end, after=len(history))
            ordinary = series[name_of_first][-len(checkpoints) :]
            assert [one.entries for one in ordinary] == [one.entries for one in checkpoints]
            ratios[f"flatness_{factor}x"] = round(mean(checkpoints) / mean(ordinary), 3)
            counts = left(client, name, len(history))
            rows.append(row(name, end, checkpoints, history) | counts)
    return rows, figures_of(rows, ratios, longer)


def replay(
    client: Client, model: LlmServer, user_id: str, facts: Sequence[Fact], after: int = 0
) -> list[Checkpoint]:
    """Post facts over HTTP, each session after the previous one is settled; return checkpoints.

    `after` is how many entries the log already has.
    """
    asked = len(model.requests)
    told = after
    for session, group in itertools.groupby(facts, key=lambda fact: fact.session):
        entries = [
            {
                "kind": "fact",
                "content": fact.text,
                "session_id": session,
                "occurred_at": fact.at.isoformat(),
            }
            for fact in group
        ]
        append(client, user_id, entries)
        told += len(entries)
        settled(client, user_id, told, PATIENCE_SECONDS)
    checkpoints = list(checkpoints_of(model.requests[asked:]))
    assert sum(one.entries for one in checkpoints) == len(facts), "a window was asked for twice"
    return checkpoints


def remember(client: Client, user_id: str, history: Sequence[Fact]) -> None:
    """Create a user with these facts as typed entries, written to the log without HTTP."""
    from memory.kernel.models.users import MemoryUser
    from memory.log import entry_log
    from memory.log.models.entries import EntryKind

    expect(201, client.post("users/", {"user_id": user_id, "time_zone": "UTC"}))
    user = MemoryUser.objects.get(user_id=user_id)
    drafts = [
        entry_log.Draft(
            kind=EntryKind.RECORD,
            occurred_at=fact.at,
            data={
                "domain": domain,
                "type": class_name,
                "key": f"{class_name}-of-old-{number}".lower(),
                "data": fields,
            },
        )
        for number, fact in enumerate(history)
        for domain, class_name, fields in [filed(fact.text)]
    ]
    for start in range(0, len(drafts), BATCH):
        entry_log.append(user, drafts[start : start + BATCH], source="benchmark")
    settled(client, user_id, len(drafts), PATIENCE_SECONDS)


def checkpoints_of(requests: Sequence[Request]) -> Iterator[Checkpoint]:
    """Yield a checkpoint for each window of entries in the requests to the model.

    A window begins with a request that contains no answer of the model yet.
    """
    starts = [place for place, one in enumerate(requests) if len(one.body["messages"]) == 2]
    for start, end in itertools.pairwise([*starts, len(requests)]):
        bodies = [one.body for one in requests[start:end]]
        sent = sum(tokens(body["messages"]) + tokens(body["tools"]) for body in bodies)
        yield Checkpoint(len(lines_in(requests[start])), len(bodies), sent)


def tokens(sent: Any) -> float:
    """Return roughly how many tokens a value has as JSON."""
    return len(json.dumps(sent, ensure_ascii=False)) / CHARACTERS_PER_TOKEN


def left(client: Client, user_id: str, after: int = 0) -> dict[str, Any]:
    """Return how many entries are pending and rejected, and the share that records cite.

    The share is of the entries with numbers above `after`. It is computed by a query on the
    project, in a sandbox.
    """
    counts = client.get(f"users/{user_id}/")[1]["entries"]
    domains = client.get(f"users/{user_id}/state/")[1]["domains"]
    collections = [f"{name}.{one}" for name in domains for one in domains[name]["collections"]]
    cited = ask(
        client,
        user_id,
        f"({', '.join(collections)},)",
        f"len({{seq for held in data for one in held for seq in one.sources if seq > {after}}})",
    )["value"]
    return {
        "pending": counts["pending"],
        "rejected": counts["rejected"],
        "covered_share": cited / (counts["total"] - after),
    }


# -- Computing the results -------------------------------------------------------------------------


def row(
    name: str,
    facts: Sequence[Fact],
    checkpoints: Sequence[Checkpoint],
    history: Sequence[Fact],
) -> Row:
    """Return the table's row for a conversation whose facts were posted after this history."""
    lines = [fact.line for fact in [*history, *facts]]
    ends = list(itertools.accumulate((one.entries for one in checkpoints), initial=len(history)))
    return {
        "conversation": name,
        "history": len(history),
        "facts": len(facts),
        "checkpoints": len(checkpoints),
        "turns": sum(one.turns for one in checkpoints),
        "tokens": round(mean(checkpoints)),
        **({} if history else flatness(checkpoints)),
        "total": round(sum(one.tokens for one in checkpoints)),
        "regenerate": round(sum(prompt(lines[:end]) for end in ends[1:])),
        "cap": round(sum(prompt(lines[:end], CAP) for end in ends[1:])),
        "within_cap": within(lines, CAP),
    }


def mean(checkpoints: Sequence[Checkpoint]) -> float:
    """Return the mean number of tokens per checkpoint."""
    return sum(one.tokens for one in checkpoints) / len(checkpoints)


def decile(checkpoints: Sequence[Checkpoint], number: int) -> float:
    """Return the mean number of tokens per checkpoint in one tenth of them.

    The tenths are in order of time and numbered from 0.
    """
    start, end = (len(checkpoints) * place // 10 for place in (number, number + 1))
    return mean(checkpoints[start : max(end, start + 1)])


def flatness(checkpoints: Sequence[Checkpoint]) -> dict[str, float]:
    """Return how much larger checkpoints are at the end than near the beginning, in tokens.

    `flatness` is the ratio for all checkpoints; `flatness_full` that for checkpoints with a full
    window only, which all have the same number of entries.
    """
    most = max(one.entries for one in checkpoints)
    full = [one for one in checkpoints if one.entries == most]
    return {
        "second_decile": round(decile(checkpoints, 1)),
        "last_decile": round(decile(checkpoints, 9)),
        "flatness": round(decile(checkpoints, 9) / decile(checkpoints, 1), 3),
        "flatness_full": round(decile(full, 9) / decile(full, 1), 3),
    }


def prompt(lines: Sequence[str], cap: int | None = None) -> float:
    """Return the tokens of a single prompt with the same instructions and the log.

    `cap` is the maximum number of characters of the log; None means no limit.
    """
    from workers.authoring import prompts

    system = {"role": "system", "content": prompts.STRUCTURE}
    return tokens([system, {"role": "user", "content": "\n".join(lines)[:cap]}])


def within(lines: Sequence[str], cap: int) -> int:
    """Return how many facts fit completely within the first `cap` characters."""
    ends = itertools.accumulate(len(line) + 1 for line in lines)
    return sum(end - 1 <= cap for end in ends)


def figures_of(
    rows: Sequence[Mapping[str, Any]], ratios: Mapping[str, float], longer: Sequence[int]
) -> dict[str, Any]:
    """Compute the benchmark's figures from its rows."""
    whole = [one for one in rows if not one["history"]]
    later = [one for one in rows if one["history"]]
    return {
        "flatness": max(one["flatness"] for one in whole),
        "flatness_full": max(one["flatness_full"] for one in whole),
        **ratios,
        "tokens_vs_regenerate": versus(whole, "regenerate"),
        **{
            f"tokens_vs_regenerate_{factor}x": versus([one], "regenerate")
            for factor, one in zip(longer, later, strict=True)
        },
        "tokens_vs_cap": versus(whole, "cap"),
        "covered_share": min(one["covered_share"] for one in rows),
        "covered_share_cap": round(
            sum(one["within_cap"] for one in whole) / sum(one["facts"] for one in whole), 3
        ),
        "pending": sum(one["pending"] for one in rows),
        "rejected": sum(one["rejected"] for one in rows),
    }


def versus(rows: Sequence[Mapping[str, Any]], other: str) -> float:
    """Return the tokens of all checkpoints divided by those in another column of the rows."""
    share: float = sum(one["total"] for one in rows) / sum(one[other] for one in rows)
    return round(share, 4)


if __name__ == "__main__":
    main()

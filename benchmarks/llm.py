"""Test the operator's own language model end to end: its answers, code, alerts and costs.

The model is set by UAC_LLM_MODEL, UAC_LLM_BASE_URL and UAC_LLM_API_KEY, and the data by
UAC_DATA_DIR. Without a model, all parts are reported as `absent`; with `--quick`, a stand-in that
knows no answers replaces it. Every part runs on a complete server:

- `locomo`: long conversations are sent as messages and remembered; then questions about them are
  answered from records and facts. Answers are scored by token F1 as in LOCOMO, but without its
  stemming, so scores are slightly lower. If a conversation does not contain the answer, "not
  mentioned" is correct.
- `analytical`: the model writes Python for each question about typed records. Integers and
  collections must be equal to the right answer, floats may differ by 1 % or 0.01, and texts must
  contain the right answer.
- `active`: sessions are sent one by one, and constraints run on each session's day and on the last
  day before the next session. An alert with the required content must be open on the day on which
  it is due; any alert before that day is early.
- `stories`: the same, but without required content, and mostly with due days that nobody has
  checked. A person has to compare each alert with the expected text: the table contains both.

UAC_BENCH_JUDGE_MODEL (with …_BASE_URL and …_API_KEY) names another model, which compares answers
and alerts with the expected ones. `--limit` bounds the total cost, and the server's own budget,
such as UAC_LLM_TOKENS_PER_DAY, bounds the cost of each part.
"""

import datetime
import json
import logging
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from cryptography.fernet import Fernet

from benchmarks import tokens
from benchmarks.harness import Row, data_file, parser, report, require_data, settings_of
from deploy.embedded.system import System, running_system
from tests.llm_server import KEY, Request, Said, called, llm_server, said

FILES = {
    "locomo": "locomo.json",
    "analytical": "analytical.jsonl",
    "active": "active_service.jsonl",
    "stories": "scenarios.jsonl",
}
NO_MODEL = "set UAC_LLM_MODEL and UAC_LLM_API_KEY, or UAC_LLM_BASE_URL of a server without keys"

# Used to estimate the number of calls; a model whose edits are often refused needs more.
FACTS_PER_MESSAGE = 3.5
FACTS_PER_WINDOW = 40
CALLS_PER_WINDOW = 6
CALLS_PER_QUESTION = 4

Case = dict[str, Any]


# -- Reading the cases and their questions ---------------------------------------------------------


def read_cases(part: str, limit: int | None, only: Sequence[str]) -> list[Case]:
    """Return the cases of a part, each with an `id` and whatever the part needs.

    `limit` is the maximum number of cases; for LOCOMO, also that of sessions per case, and of
    questions per category that these sessions answer. `only` contains ids of cases as in the file;
    if it is empty, all cases are returned.
    """
    path = data_file(FILES[part])
    if path is None:
        return []
    text = path.read_text()
    cases = json.loads(text) if part == "locomo" else list(map(json.loads, text.splitlines()))
    read = {"locomo": conversation, "analytical": _analytical, "active": _active, "stories": _story}
    found = [read[part](case, limit) for case in cases]
    chosen = [case for case in found if not only or case["id"] in only]
    return [{**case, "id": f"{part}-{case['id']}"} for case in chosen[:limit]]


def conversation(sample: Mapping[str, Any], limit: int | None) -> Case:
    """Return a LOCOMO conversation as a case, with `sessions` of messages and with `questions`."""
    talk = sample["conversation"]
    found = (re.fullmatch(r"session_(\d+)", name) for name in talk)
    numbers = sorted(int(match[1]) for match in found if match)[:limit]
    asked: Counter[int] = Counter()
    questions = []
    for question in sample["qa"]:
        said_in = re.findall(r"D:?(\d+):", " ".join(question["evidence"]))
        category = question["category"]
        if set(map(int, said_in)) <= set(numbers) and (not limit or asked[category] < limit):
            asked[category] += 1
            questions.append(question)
    sessions = [{"messages": list(_turns(talk, number))} for number in numbers]
    return {"id": sample["sample_id"], "sessions": sessions, "questions": questions}


def _turns(talk: Mapping[str, Any], number: int) -> Iterator[dict[str, Any]]:
    began = datetime.datetime.strptime(
        f"{talk[f'session_{number}_date_time']} +0000", "%I:%M %p on %d %B, %Y %z"
    )
    for place, turn in enumerate(talk[f"session_{number}"]):
        photo = f" [shows a photo: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
        at = began + datetime.timedelta(seconds=30 * place)
        yield _message(turn["text"] + photo, at.isoformat(), number, speaker=turn["speaker"])


def _message(content: str, occurred_at: str, session: object, **who: str) -> dict[str, Any]:
    said = {"content": content, "occurred_at": occurred_at, "session_id": str(session)}
    return {"kind": "message", **said, **who}


def _analytical(case: Mapping[str, Any], limit: int | None) -> Case:
    return {**case, "id": case["case_id"]}


def _active(case: Mapping[str, Any], limit: int | None) -> Case:
    return {
        "id": case["case_id"],
        "sessions": [_session(one, due=one["expected_alert"]) for one in case["sessions"]],
        "expected": case["expected_alert_message"],
        "rubric": case["rubric_required"],
    }


def _story(case: Mapping[str, Any], limit: int | None) -> Case:
    trigger = case["trigger_session_id"]
    return {
        "id": case["id"],
        "sessions": [_session(one, due=one["session_id"] == trigger) for one in case["sessions"]],
        "expected": case["expected_alert"]["message"],
        "rubric": {},
    }


def _session(session: Mapping[str, Any], *, due: bool) -> dict[str, Any]:
    at = f"{session['date']}T09:00:00Z"
    message = _message(session["text"], at, session["session_id"], role="user")
    return {"date": session["date"], "messages": [message], "due": due}


def calls_expected(part: str, cases: Sequence[Mapping[str, Any]]) -> int:
    """Estimate how many calls to the model a part takes."""
    if part == "analytical":
        return CALLS_PER_QUESTION * len(cases)
    sessions = [session for case in cases for session in case["sessions"]]
    if part != "locomo":
        return len(sessions) * (1 + CALLS_PER_WINDOW)
    facts = FACTS_PER_MESSAGE * sum(len(session["messages"]) for session in sessions)
    windows = math.ceil(facts / FACTS_PER_WINDOW)
    questions = sum(len(case["questions"]) for case in cases)
    return len(sessions) + CALLS_PER_WINDOW * windows + CALLS_PER_QUESTION * questions


# -- The command line and the report ---------------------------------------------------------------


def main() -> None:
    """Run the parts that can be run, and report the results."""
    line = parser(__doc__, limit=(None, 1))  # see `read_cases`
    line.add_argument("--part", action="append", choices=list(FILES), help="default: all parts")
    line.add_argument("--only", default="", help="ids of the cases to run, separated by commas")
    line.add_argument("--estimate", action="store_true", help="only estimate the number of calls")
    options = line.parse_args()
    only = options.only.split(",") if options.only else []
    parts = options.part or list(FILES)
    require_data(*(FILES[part] for part in parts))
    cases = {part: read_cases(part, options.limit, only) for part in parts}
    for part, those in cases.items():
        print(f"{part}: {len(those)} cases, about {calls_expected(part, those)} calls", flush=True)
    if options.estimate:
        return
    rows: list[Row] = []
    figures: dict[str, Any] = {}
    problems: list[str] = []
    missing = [FILES[part] for part, those in cases.items() if not those]
    absent = [f"UAC_DATA_DIR has no cases in {', '.join(missing)}"] if missing else []
    has_model = _has("UAC_LLM_MODEL") and (_has("UAC_LLM_API_KEY") or _has("UAC_LLM_BASE_URL"))
    if not has_model and not options.quick:
        absent.append(NO_MODEL)
    elif any(cases.values()):
        with whole_server(has_model=has_model) as system:
            settings_of(system)
            logging.disable(logging.INFO)  # otherwise every call would be logged
            from benchmarks import llm_parts  # imported here, since it needs the system's settings

            if why := llm_parts.why_silent():
                absent.append(why)
            else:
                present = {part: those for part, those in cases.items() if those}
                rows, figures, problems = llm_parts.measured(system, present)
    figures |= {part: "absent" for part in cases if f"{part}_calls" not in figures}
    if absent:
        figures["absent"] = "; ".join(absent)
    settings = {
        "model": os.environ.get("UAC_LLM_MODEL", ""),
        "judge": os.environ.get("UAC_BENCH_JUDGE_MODEL", ""),
        "limit": options.limit,
        "measured_on": str(datetime.datetime.now(datetime.UTC).date()),
    }
    report(
        "llm", settings=settings, rows=rows, figures=figures, path=options.json, problems=problems
    )


@contextmanager
def whole_server(*, has_model: bool) -> Iterator[System]:
    """Run a server that calls the model set in the environment, or a stand-in if there is none."""
    # The first variables make work due at once and have it found soon; the last one encrypts the
    # judge's API key.
    environment = {
        "UAC_DISPATCH_SECONDS": "0.5",
        "UAC_STRUCTURE_IDLE_SECONDS": "1",
        "UAC_STRUCTURE_AGE_SECONDS": "1",
        "UAC_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
    }
    with ExitStack() as stack:
        if not has_model:
            server = stack.enter_context(llm_server(script=stand_in))
            environment |= {
                "UAC_LLM_MODEL": "openai:stand-in",
                "UAC_LLM_BASE_URL": server.openai_url,
                "UAC_LLM_API_KEY": KEY,
            }
        yield stack.enter_context(running_system(llm_workers=1, environment=environment))


def stand_in(request: Request) -> Said:
    """Answer as a model that remembers every text verbatim, files it by rule, and knows no answers.

    The rules are those of `benchmarks.tokens`.
    """
    if "remember" in request.tools:
        facts = [{"text": text, "sources": [seq]} for seq, text in tokens.lines_in(request)]
        return called("remember", {"facts": facts})
    if "finish" in request.tools:
        return tokens.answer(request)
    if "answer" in request.tools:
        return called("answer", {"text": "Not mentioned"})
    if "compute" in request.tools:
        return called("compute", {"code": "0"})
    return said("yes")


def _has(name: str) -> bool:
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))


if __name__ == "__main__":
    main()

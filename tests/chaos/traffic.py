"""Writers, readers and staff, who continue whatever breaks, and repeat unacknowledged requests."""

import itertools
import json
import random
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.client import Client, Unanswered
from tests.chaos.journal import Entry, Journal, Person, Redacted, Sent, word
from tests.system import message, record
from tests.waiting import scaled

# Statuses that mean "not now": the same request is sent again.
LATER = (409, 429)
WRITERS = 8
READERS = 2
# Seconds for which a request is repeated when everything should be well.
PATIENCE = scaled(120.0)
SIZES = (1, 1, 2, 5, 20, 40)
PURCHASES = "(len(purchases), sum(p.cents for p in purchases))"
# Tries to write a file, which no sandbox allows.
GLUTTON = "open('/tmp/much', 'w').write('x' * 10**7)"


@dataclass
class Hand:
    """A writer's knowledge of what one person was told."""

    turns: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    alive: list[str] = field(default_factory=list)  # keys of purchases that can be changed
    # Entries that nothing else relies on, with the secret in each.
    untouched: list[tuple[int, str]] = field(default_factory=list)


class Traffic:
    """All interaction of the outside world with the server, from a seed."""

    def __init__(
        self,
        clients: Mapping[str, Client],
        journal: Journal,
        *,
        seed: int,
        people: int,
        seconds: float,
        pause: float = 0.0,
    ) -> None:
        """Introduce `people` one after the other, during the first half of `seconds`.

        A writer rests for about `pause` seconds after each request.
        """
        self._clients = clients
        self._journal = journal
        self._seed = seed
        self._seconds = seconds
        self._pause = pause
        self._ended = threading.Event()
        self._deadline = float("inf")
        self._echoes: deque[Sent] = deque(maxlen=50)
        self._lock = threading.Lock()
        choices = random.Random(f"people {seed}")
        workspaces = itertools.cycle(clients)
        self._unborn = deque(
            Person(next(workspaces), f"user-{number}", word(choices, "zq"), number % 6 == 0)
            for number in range(people)
        )
        self._people = people
        self._began = time.monotonic()
        self._threads: list[threading.Thread] = []
        # By role and number, so that each goes on where it was.
        self._choices: dict[tuple[str, int], random.Random] = {}
        self._hands: defaultdict[int, dict[Person, Hand]] = defaultdict(dict)

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Keep everybody at work in this context, and then until everything is acknowledged.

        It may be entered again after that.
        """
        self._began, self._deadline = time.monotonic(), float("inf")
        self._ended.clear()
        self._threads = threads = [
            threading.Thread(target=self._guarded, args=(role, number), name=f"{role}-{number}")
            for role, count in (("writer", WRITERS), ("reader", READERS), ("staff", 1))
            for number in range(1, count + 1)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.end()
            for thread in threads:
                thread.join()

    @property
    def busy(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def end(self) -> None:
        self._deadline = time.monotonic() + PATIENCE
        self._ended.set()

    def remind(self, people: Sequence[tuple[str, str]]) -> None:
        """Send something urgent to these people, (workspace, user_id), so that work resumes."""
        wanted = set(people)
        for person in self._journal.people:
            if (person.workspace, person.user_id) in wanted:
                entry = _message(f"{person.canary} well?", {"urgent": True})
                self._say(self._new(person, 0, self._journal.number(), self._key(), [entry]))

    def ask_all(self, people: Sequence[Person]) -> None:
        """Query everybody's project, for the checker to compare."""
        for person in people:
            self._journal.answers[person.workspace, person.user_id] = self._ask(person)

    def client(self, person: Person) -> Client:
        return self._clients[person.workspace]

    # -- Threads -----------------------------------------------------------------------------------

    def _guarded(self, role: str, number: int) -> None:
        new = random.Random(f"{role} {number} {self._seed}")
        choices = self._choices.setdefault((role, number), new)
        try:
            {"writer": self._write, "reader": self._read, "staff": self._tend}[role](
                number, choices
            )
        except Exception as error:
            self._journal.problem(f"{role} {number} ended: {type(error).__name__}: {error}")
            raise

    def _write(self, number: int, choices: random.Random) -> None:
        hands = self._hands[number]
        person: Person | None = None
        while not self._ended.is_set():
            born = self._someone_new()
            if born is not None:
                self._introduce(born, number, hands)
                continue
            if person is None or choices.random() < 0.4:
                person = self._anybody(choices)
            if person is None:
                time.sleep(0.05)
                continue
            if choices.random() < 0.05 and (echo := self._echo()):
                self._say(echo)
            hand = hands.setdefault(person, Hand())
            if hand.untouched and choices.random() < 0.08:
                self._redact(person, *hand.untouched.pop(0))
                continue
            self._append(person, number, hand, choices)
            self._ended.wait(choices.uniform(0, 2 * self._pause))

    def _someone_new(self) -> Person | None:
        share = (time.monotonic() - self._began) / (self._seconds * 0.5)
        with self._lock:
            introduced = self._people - len(self._unborn)
            if self._unborn and introduced < max(WRITERS, share * self._people):
                return self._unborn.popleft()
        return None

    def _introduce(self, person: Person, number: int, hands: dict[Person, Hand]) -> None:
        """Create the user, and append a first purchase, which fixes the schema."""
        self._journal.expect(person)
        deadline = time.monotonic() + PATIENCE * 3
        while True:
            try:
                status, body, _ = self.client(person).request(
                    "POST", "users/", {"user_id": person.user_id, "time_zone": "Europe/Berlin"}
                )
                if status in (201, 409):  # the answer of the first attempt may have been lost
                    break
                if status not in LATER:
                    self._journal.problem(f"POST users/ answered {status}: {body}")
                    return
            except Unanswered as failure:
                self._journal.count("create", str(failure))
            if time.monotonic() > min(deadline, self._deadline):
                self._journal.problem(f"{person.user_id} could not be created")
                return
            time.sleep(0.2)
        self._journal.count("create")
        hand = hands.setdefault(person, Hand())
        first = _purchase("first", f"{person.canary} tea", 100)
        sent = self._new(person, number, next(hand.turns), self._key(), [first])
        if self._say(sent):
            self._journal.note("people", person)

    def _anybody(self, choices: random.Random) -> Person | None:
        people = self._journal.people
        return choices.choice(people) if people else None

    def _append(self, person: Person, number: int, hand: Hand, choices: random.Random) -> None:
        style = choices.choice(("header", "header", "header", "entries", "both"))
        entries, after = [], []
        for _ in range(choices.choice(SIZES)):
            entry, kept = self._anything(person, hand, choices, style)
            entries.append(entry)
            after.append(kept)
        if style != "header":
            for entry in entries:
                entry["idempotency_key"] = f"entry {self._journal.number()}"
        key = None if style == "entries" else self._key()
        sent = self._new(person, number, next(hand.turns), key, entries)
        if choices.random() < 0.1:
            self._echoes.append(sent)  # another one sends it, too, perhaps at the same moment
        seqs = self._say(sent)
        if not seqs:
            return
        for seq, entry, (kind, secret) in zip(seqs, entries, after, strict=True):
            if secret:
                hand.untouched.append((seq, secret))
            elif kind == "new":
                hand.alive.append(entry["key"])
        if choices.random() < 0.1:  # as after an answer that was lost
            self._say(sent)

    def _anything(
        self, person: Person, hand: Hand, choices: random.Random, style: str
    ) -> tuple[Entry, tuple[str, str]]:
        """Return an entry, its kind, and its secret if it may be redacted."""
        kinds = {"new": 45, "change": 25, "retire": 5, "negative": 6, "clash": 5, "secret": 4}
        if person.talks:
            kinds |= {"chat": 5, "visit": 4, "fact": 2, "correction": 2}
        kind = choices.choices(list(kinds), list(kinds.values()))[0]
        name = f"p{self._journal.number()}"
        what = f'{person.canary} tea \N{HOT BEVERAGE} "{choices.randrange(10**6)}" \\'
        if kind == "secret" and style == "header":
            secret = word(choices, "zx")
            if person.talks and choices.random() < 0.5:
                text = f"{person.canary} visits {secret}"
                return _message(text), (kind, secret)
            return _purchase(name, f"{what} {secret}", 7), (kind, secret)
        if kind == "clash":
            refund = _purchase(name, what, 100) | {"type": "Refund", "collection": "purchases"}
            return refund, (kind, "")
        if kind in ("change", "retire", "negative") and hand.alive:
            key = choices.choice(hand.alive)
            if kind == "retire":
                hand.alive.remove(key)
                return {"kind": "record", "domain": "money", "type": "Purchase", "key": key,
                        "retired": True}, (kind, "")  # fmt: skip
            cents = choices.randrange(10_000)
            return _purchase(key, what, -cents - 1 if kind == "negative" else cents), (kind, "")
        if kind in ("chat", "visit"):
            text = f"{person.canary} visits {word(choices, 'place')}" if kind == "visit" else what
            return _message(text, session=choices.choice("abc")), (kind, "")
        if kind in ("fact", "correction"):
            text = f"{person.canary} visits {word(choices, 'place')}" if kind == "fact" else what
            return {"kind": kind, "content": text}, (kind, "")
        return _purchase(name, what, choices.randrange(10_000)), ("new", "")

    def _new(
        self, person: Person, writer: int, turn: int, key: str | None, entries: Sequence[Entry]
    ) -> Sent:
        sent = Sent(person, writer, turn, key, entries)
        self._journal.note("sent", sent)
        return sent

    def _say(self, sent: Sent) -> list[int]:
        """Send the entries until they are acknowledged; return their numbers, none if given up."""
        path = f"users/{sent.person.user_id}/entries/"
        body = {"entries": list(sent.entries)}

        def forgotten() -> bool:
            gone = {one.seq for one in self._journal.redacted if one.person is sent.person}
            return any(not gone.isdisjoint(seqs) for seqs in sent.acknowledged)

        answer = self._repeated(
            sent.person, "append", "POST", path, body, sent.key, forgotten=forgotten
        )
        if answer is None:
            return []
        seqs = [entry["seq"] for entry in answer["entries"]]
        self._journal.acknowledge(sent, seqs)
        return seqs

    def _redact(self, person: Person, seq: int, secret: str) -> None:
        redacted = Redacted(person, seq, secret)
        self._journal.note("redacted", redacted)
        path = f"users/{person.user_id}/entries/{seq}/"
        if self._repeated(person, "redact", "DELETE", path) is not None:
            redacted.acknowledged = True

    def _repeated(
        self,
        person: Person,
        purpose: str,
        method: str,
        path: str,
        body: Any = None,
        key: str | None = None,
        *,
        forgotten: Callable[[], bool] = lambda: False,
    ) -> Any:
        """Send a request until it is answered 2xx; None, with a problem recorded, if it never is.

        `forgotten` tells whether it may be refused because its result was redacted.
        """
        began = time.monotonic()
        while True:
            failure = ""
            try:
                status, answer, text = self.client(person).request(method, path, body, key=key)
                self._look(person, purpose, text)
                if 200 <= status < 300:
                    self._journal.count(purpose)
                    self._journal.note("waits", time.monotonic() - began)
                    return answer
                failure = f"status {status}"
                if status == 422 and forgotten():
                    return None
                if status not in LATER:
                    self._journal.problem(f"{method} {path} was refused with {status}: {answer}")
                    return None
            except Unanswered as error:
                failure = str(error)
            self._journal.count(purpose, failure)
            if time.monotonic() > self._deadline:
                self._journal.problem(
                    f"{method} {path} was not acknowledged within {PATIENCE:g} s after all was"
                    f" well again: {failure}"
                )
                return None
            time.sleep(0.2)

    def _read(self, number: int, choices: random.Random) -> None:
        while not self._ended.is_set():
            self._ended.wait(choices.uniform(0.1, 1))
            person = self._anybody(choices)
            if person is None:
                continue
            own = f"users/{person.user_id}/"
            purpose, method, path, body = choices.choice(
                (
                    ("query", "POST", "query/?wait=5", {"code": PURCHASES}),
                    ("query", "POST", "query/?wait=5", {"code": GLUTTON}),
                    ("search", "POST", "search/", {"query": "tea of zq visits"}),
                    ("context", "POST", "context/", {"query": "what tea?"}),
                    ("entries", "GET", "entries/?page_size=100", None),
                    ("user", "GET", "", None),
                    ("state", "GET", "state/", None),
                    ("alerts", "GET", "alerts/", None),
                    ("manifest", "GET", "manifest/", None),
                    ("runs", "GET", "runs/", None),
                )
            )
            try:
                status, answer, text = self.client(person).request(method, own + path, body)
            except Unanswered as failure:
                self._journal.count(purpose, str(failure))
                continue
            self._journal.count(purpose)
            self._look(person, purpose, text)
            if status not in (200, 202, 409, 410, 422, 429):
                self._journal.problem(f"{method} {own}{path} answered {status}: {answer}")

    def _tend(self, number: int, choices: random.Random) -> None:
        """Acknowledge or snooze alerts."""
        while not self._ended.is_set():
            time.sleep(choices.uniform(0.2, 1))
            client = choices.choice(list(self._clients.values()))
            try:
                status, page, text = client.request("GET", "alerts/?state=open&page_size=200")
                self._journal.count("alerts")
                own = [p for p in self._journal.owners.values() if p.workspace == client.workspace]
                if strangers := self._journal.strangers(None, text) - {p.canary for p in own}:
                    self._journal.problem(
                        f"{client.workspace} was told of people of others: {strangers}"
                    )
                if status != 200 or not page["results"]:
                    continue
                alert = choices.choice(page["results"])["id"]
                if choices.random() < 0.3:
                    until = time.time() + 2
                    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(until))
                    client.request("POST", f"alerts/{alert}/snooze/", {"until": stamp})
                    continue
                key = self._key()
                status, _, _ = client.request("POST", f"alerts/{alert}/acknowledge/", {}, key=key)
                if status == 200:
                    self._journal.note("seen", (client.workspace, alert))
            except Unanswered as failure:
                self._journal.count("alerts", str(failure))

    def _ask(self, person: Person) -> Any:
        """Query until there is a value."""
        path, body = f"users/{person.user_id}/query/?wait=10", {"code": PURCHASES}
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                status, answer, text = self.client(person).request("POST", path, body)
                self._look(person, path, text)
                if status == 200:
                    return answer
                failure = f"{status}: {json.dumps(answer)[:300]}"
            except Unanswered as error:
                failure = str(error)
            if time.monotonic() > deadline:
                self._journal.problem(f"{path} has no answer: {failure}")
                return None
            time.sleep(0.2)

    def _look(self, person: Person, where: str, text: str) -> None:
        if strangers := self._journal.strangers(person, text):
            self._journal.problem(
                f"{where} of {person.workspace}/{person.user_id} tells of others: {strangers}"
            )

    def _echo(self) -> Sent | None:
        try:
            return self._echoes.popleft()
        except IndexError:
            return None

    def _key(self) -> str:
        return f"chaos-{self._journal.number()}"


def _purchase(key: str, what: str, cents: int) -> Entry:
    return record("Purchase", key, domain="money", what=what, cents=cents)


def _message(
    text: str, metadata: dict[str, Any] | None = None, session: str | None = None
) -> Entry:
    about: Entry = {"metadata": metadata, "session_id": session}
    return message(text) | {name: value for name, value in about.items() if value is not None}

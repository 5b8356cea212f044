"""Concurrent writers, and what must be true of a server afterwards.

The writers post typed entries and messages over HTTP for users in two workspaces, repeat requests,
send entries that contradict the schema, and report purchases that a constraint watches. Afterwards,
every acknowledged entry must be in its user's log as it was sent, the logs must contain nothing
else, and projects, outcomes and alerts must follow from the logs.
"""

import http.client
import itertools
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness import Client, expect, new_client
from deploy.embedded.system import System

WRITERS = 8
WORKSPACES = ("concurrency-a", "concurrency-b")
USERS = 25  # users per workspace, with the same ids in both workspaces
GUARDED = 5  # how many of these users have a constraint

Entry = dict[str, Any]

CONSTRAINT = '''"""Purchases."""

import datetime
from collections.abc import Iterator

from domains.money.state import purchases
from uac import Alert, warning


def check(today: datetime.date) -> Iterator[Alert]:
    """Nobody is paid for buying something."""
    for purchase in purchases:
        if purchase.cents < 0:
            yield warning(f"{purchase.what} for {purchase.cents} cents", evidence=[purchase])
'''
CONSTRAINT_TESTS = '''"""Speaks of negative amounts alone."""

import datetime

from constraints import overpaid
from domains.money.schema import Purchase
from uac.testing import run_check

TODAY = datetime.date(2025, 3, 1)


def purchase(cents: int) -> Purchase:
    """Return a purchase."""
    return Purchase(key="p", what="tea", cents=cents, bought_on=TODAY)


def test_speaks() -> None:
    """A cent less than nothing is too little."""
    assert run_check(overpaid, today=TODAY, purchases=[purchase(-1)])


def test_is_silent() -> None:
    """A gift is none of our business."""
    assert not run_check(overpaid, today=TODAY, purchases=[purchase(0)])
'''
# The body of a request that proposes the constraint.
OVERPAID = {"source": CONSTRAINT, "tests": CONSTRAINT_TESTS}


@dataclass(eq=False)
class User:
    """A user, and the entries that the server has acknowledged, keyed by `seq`."""

    client: Client
    workspace: str
    user_id: str
    guarded: bool
    acknowledged: dict[int, Entry] = field(default_factory=dict)

    def get(self, path: str = "") -> Any:
        """GET a resource of the user; it must exist."""
        return expect(200, self.client.get(f"users/{self.user_id}/{path}"))

    def pages(self, path: str) -> Iterator[Any]:
        """Yield the rows of a list from all of its pages."""
        cursor = ""
        while True:
            page = self.get(f"{path}?page_size=500{cursor}")
            yield from page["results"]
            if page["next"] is None:
                return
            cursor = "&cursor=" + re.split("[?&]cursor=", page["next"])[1].split("&")[0]


class Traffic:
    """Concurrent writers, and the state that their writes must lead to."""

    def __init__(
        self, clients: dict[str, Client], *, users: int, guarded: int, pause: float
    ) -> None:
        self.users = [
            User(client, workspace, f"user-{number}", guarded=number < guarded)
            for workspace, client in clients.items()
            for number in range(users)
        ]
        self.pause = pause  # seconds that each writer pauses after a request
        self.requests = 0
        self.failures: Counter[str] = Counter()  # failed requests, which were sent again, by reason
        self.violations: list[str] = []
        self.seconds = 0.0
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def prepare(self) -> None:
        """Create the users, each with a purchase that fixes the schema, and the constraints."""
        for user in self.users:
            expect(201, user.client.post("users/", {"user_id": user.user_id}))
            self._post(user, [_purchase("first", 100)])
        self.settle()
        for user in self.users:
            if user.guarded:
                path = f"users/{user.user_id}/constraints/overpaid/?wait=30"
                expect(200, user.client.request("PUT", path, OVERPAID))

    @contextmanager
    def flowing(self, writers: int = WRITERS) -> Iterator[None]:
        """Let the writers write during this context; wait until their last request is answered."""
        self._stop.clear()
        threads = [
            threading.Thread(target=self._write, args=(number,), name=f"writer-{number}")
            for number in range(writers)
        ]
        started = time.monotonic()
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
            self.seconds += time.monotonic() - started

    def settle(self, seconds: float = 240) -> None:
        """Wait until every typed entry has an outcome and every alert is as expected."""
        deadline = time.monotonic() + seconds
        for settled in (_is_settled, _has_its_alerts):
            for user in self.users:
                while not settled(user) and time.monotonic() < deadline:
                    time.sleep(0.2)

    def problems(self) -> list[str]:
        """Return a sentence for each deviation from the expected state; call `settle` first."""
        found = list(self.violations)
        for user in self.users:
            found += [
                f"{user.workspace} / {user.user_id}: {problem}"
                for check in (_log_problems, _state_problems, _alert_problems)
                for problem in check(user)
            ]
        return found

    def _write(self, number: int) -> None:
        try:
            choices = random.Random(f"{number} {time.monotonic_ns()}")
            mine: dict[User, list[str]] = {user: [] for user in self.users}
            prefix = f"{number}-{choices.getrandbits(32):x}"
            names = (f"{prefix}-{count}" for count in itertools.count())
            while not self._stop.is_set():
                user = choices.choice(self.users)
                size = choices.choice((1, 1, 1, 8))
                entries = [_anything(choices, mine[user], names) for _ in range(size)]
                self._post(user, entries)
                if choices.random() < 0.1:  # send it again, as if the answer had been lost
                    self._post(user, entries)
                time.sleep(self.pause)
        except Exception as error:
            with self._lock:
                self.violations.append(f"writer {number} ended: {type(error).__name__}: {error}")
            raise

    def _post(self, user: User, entries: Sequence[Entry], patience: float = 120) -> None:
        """Send the entries, and send them again until they are acknowledged."""
        deadline = time.monotonic() + patience
        while True:
            try:
                status, body = user.client.post(
                    f"users/{user.user_id}/entries/", {"entries": entries}
                )
                if status != 202 and status < 500:
                    raise AssertionError(f"refused with {status}: {body}")
                failure = "" if status == 202 else f"status {status}"
            except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
                failure = type(error).__name__
            with self._lock:
                self.requests += 1
                if not failure:
                    self._acknowledged(user, entries, body["entries"])
                    return
                self.failures[failure] += 1
            if time.monotonic() > deadline:
                raise TimeoutError(f"not acknowledged within {patience:g} s: {failure}")
            time.sleep(0.1)

    def _acknowledged(self, user: User, sent: Sequence[Entry], answered: Sequence[Entry]) -> None:
        for entry, answer in zip(sent, answered, strict=True):
            earlier = user.acknowledged.setdefault(answer["seq"], entry)
            if earlier != entry:
                self.violations.append(f"{user.user_id}: {answer['seq']} was given to two entries")


def _anything(choices: random.Random, mine: list[str], names: Iterator[str]) -> Entry:
    """Return a random entry; `mine` are the keys of records that this writer may change."""
    kind = choices.choices(
        ("new", "change", "retire", "watched", "clash", "message", "same"), (50, 15, 5, 2, 5, 20, 3)
    )[0]
    name = next(names)
    if kind == "message":
        return _message(name, f'\N{SNOWMAN} "quoted" \\ {"long " * choices.randrange(50)}')
    if kind == "same":  # other writers may send the same entry at the same moment
        beat = int(time.monotonic() * 4)
        return _message(f"beat {beat}", f"It is {beat}.")
    if kind == "clash":
        # A record of another class in the collection, which is the one thing that is rejected.
        return {**_purchase(name, 100), "type": "Refund", "collection": "purchases"}
    if kind == "watched":
        return _purchase(name, -choices.randrange(1, 100))
    if kind in ("change", "retire") and mine:
        key = choices.choice(mine)
        if kind == "change":
            return _purchase(key, choices.randrange(10_000), edition=name)
        mine.remove(key)
        return {
            "kind": "record",
            "domain": "money",
            "type": "Purchase",
            "key": key,
            "retired": True,
            "idempotency_key": f"retire {key}",
        }
    mine.append(name)
    return _purchase(name, choices.randrange(10_000))


def _purchase(key: str, cents: int, edition: str = "first") -> Entry:
    return {
        "kind": "record",
        "domain": "money",
        "type": "Purchase",
        "key": key,
        "data": {
            "what": f"tea \N{HOT BEVERAGE} {edition}",
            "cents": cents,
            "bought_on": "2025-03-01",
        },
        "idempotency_key": f"purchase {key} {edition}",
    }


def _message(key: str, content: str) -> Entry:
    return {"kind": "message", "role": "user", "content": content, "idempotency_key": key}


def _log_problems(user: User) -> Iterator[str]:
    """Compare the log and the entries' outcomes with the acknowledged entries; yield problems."""
    expected = {seq: _as_logged(entry) for seq, entry in user.acknowledged.items()}
    logged = {
        row["seq"]: {
            name: row[name] for name in ("kind", "content", "data", "idempotency_key", "state")
        }
        for row in user.pages("entries/")
    }
    if list(logged) != list(range(1, len(logged) + 1)):
        yield "the log's numbers have gaps or are out of order"
    for seq in sorted(expected.keys() | logged.keys()):
        if expected.get(seq) != logged.get(seq):
            yield f"entry {seq} must be {expected.get(seq)}, the log has {logged.get(seq)}"
    kinds = Counter(entry["state"] for entry in expected.values())
    outcomes = {
        "total": len(expected),
        "pending": kinds["pending"],
        "covered": kinds["covered"],
        "dismissed": 0,
        "rejected": kinds["rejected"],
    }
    counts = user.get()["entries"]
    if counts != outcomes:
        yield f"outcomes are {counts}, not {outcomes}"


def _as_logged(entry: Entry) -> Entry:
    record = ("domain", "type", "collection", "key", "data", "retired")
    return {
        "kind": entry["kind"],
        "content": entry.get("content"),
        "data": {name: entry[name] for name in record if name in entry} or None,
        "idempotency_key": entry["idempotency_key"],
        "state": _state(entry),
    }


def _state(entry: Entry) -> str:
    if entry["kind"] == "message":
        return "pending"
    return "rejected" if entry["type"] == "Refund" else "covered"


def _purchases(user: User) -> dict[str, Entry]:
    """Return the purchases expected in the project (key → data), as they follow from the log."""
    purchases: dict[str, Entry] = {}
    for _, entry in sorted(user.acknowledged.items()):
        if _state(entry) != "covered":
            continue
        if entry.get("retired"):
            del purchases[entry["key"]]
        else:
            purchases[entry["key"]] = entry["data"]
    return purchases


def _state_problems(user: User) -> Iterator[str]:
    found: dict[str, Entry] = {}
    page: int | None = 1
    while page is not None:
        answer = user.get(f"state/money/purchases/?page={page}")
        for record in answer["records"]:
            fields = record["fields"]
            found[record["key"]] = {**fields, "bought_on": fields["bought_on"]["$date"]}
        page = answer["next"]
    expected = _purchases(user)
    if found != expected:
        differing = [
            key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)
        ]
        yield f"{len(differing)} purchases differ, {sorted(differing)[:3]} among them"
    if answer["count"] != len(expected):
        yield f"the project counts {answer['count']} purchases instead of {len(expected)}"


def _alert_problems(user: User) -> Iterator[str]:
    """Yield a problem unless each watched purchase has had exactly one alert, which is open."""
    watched = {key for key, data in _purchases(user).items() if data["cents"] < 0}
    expected = Counter(watched if user.guarded else ())
    found = Counter(
        record["key"] for alert in user.pages("alerts/") for record in alert["evidence"]
    )
    if found != expected:
        yield f"alerts about {dict(found)}, not {dict(expected)}"
    if any(alert["state"] != "open" for alert in user.pages("alerts/")):
        yield "an alert was resolved that still holds"


def _is_settled(user: User) -> bool:
    messages = sum(entry["kind"] == "message" for entry in user.acknowledged.values())
    return bool(user.get()["entries"]["pending"] == messages)


def _has_its_alerts(user: User) -> bool:
    return not list(_alert_problems(user))


def new_traffic(
    system: System, *, users: int = USERS, guarded: int = GUARDED, pause: float = 0
) -> Traffic:
    """Create two workspaces on the system; return prepared traffic for them."""
    clients = {name: new_client(system, name) for name in WORKSPACES}
    traffic = Traffic(clients, users=users, guarded=guarded, pause=pause)
    traffic.prepare()
    return traffic

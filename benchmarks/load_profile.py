"""The clients for `benchmarks.load`; locust reads this file in a process of its own.

Each of locust's users is a product backend with its own connections. For each request, it picks a
person from any workspace at random; it counts any unexpected answer as a failure.
"""

import itertools
import json
import os
import random
from pathlib import Path
from typing import Any

from locust import FastHttpUser, constant_throughput, task

PROFILE: dict[str, Any] = json.loads(Path(os.environ["UAC_LOAD_PROFILE"]).read_text())
KEYS = 40  # keys per person: new records replace old ones, so that projects do not grow
CODES = 30
WORDS = ("hotel", "Rome", "train", "allergy", "garden", "birthday", "insurance", "dentist")
_numbers = itertools.count()


class Backend(FastHttpUser):
    """A product backend that has people's messages remembered and asks about them."""

    host = PROFILE["host"]
    wait_time = constant_throughput(PROFILE["requests_per_second"] / PROFILE["backends"])
    network_timeout = 60.0
    connection_timeout = 60.0

    def on_start(self) -> None:
        """Start reading each workspace's alerts feed from its beginning."""
        self.seen = dict.fromkeys(PROFILE["keys"], 0)

    def ask(
        self,
        method: str,
        path: str,
        name: str,
        body: Any = None,
        *,
        expected: tuple[int, ...] = (200,),
        key: str = "",
    ) -> Any:
        """Send a request for a randomly chosen person; return the answer, or None if it failed."""
        workspace, user = random.choice(PROFILE["people"])
        key = key or PROFILE["keys"][workspace]
        with self.client.request(
            method,
            f"/v1/{path.format(user=user)}",
            name=name,
            json=body,
            headers={"Authorization": f"Bearer {key}"},
            catch_response=True,
        ) as response:
            if response.status_code not in expected:
                response.failure(f"{response.status_code}: {(response.text or '')[:300]}")
                return None
            if response.status_code not in expected[:1]:
                response.request_meta["name"] = f"{name}, answered later"
            response.success()
            return response.js

    @task(30)
    def message(self) -> None:
        """Append a message."""
        said = f"About the {random.choice(WORDS)} and the {random.choice(WORDS)}: {next(_numbers)}"
        body = {"kind": "message", "role": "user", "session_id": "load", "content": said}
        self.ask("POST", "users/{user}/entries/", "append a message", body, expected=(202,))

    @task(15)
    def record(self) -> None:
        """Append a typed record."""
        number = next(_numbers)
        body = {
            "kind": "record",
            "domain": "money",
            "type": "Purchase",
            "key": f"purchase-{random.randrange(KEYS)}",
            "data": {"what": f"tea {number}", "cents": number % 997 - 5, "bought_on": "2025-03-01"},
        }
        self.ask("POST", "users/{user}/entries/", "append a typed record", body, expected=(202,))

    @task(15)
    def feed(self) -> None:
        """Read new events from the alerts feed."""
        name, key = random.choice(list(PROFILE["keys"].items()))
        answer = self.ask("GET", f"alerts/?after={self.seen[name]}", "alerts feed", key=key)
        if answer:
            self.seen[name] = answer["next"]

    @task(10)
    def told(self) -> None:
        """Fetch the context for a prompt."""
        body = {"query": f"What about the {random.choice(WORDS)}?", "tokens": 1500}
        self.ask("POST", "users/{user}/context/", "context", body)

    @task(10)
    def query(self) -> None:
        """Query the records with Python; status 202 means that the answer comes later."""
        code = f"sum(p.cents for p in purchases) + {random.randrange(CODES)}"
        path = "users/{user}/query/?wait=30"
        self.ask("POST", path, "query", {"code": code}, expected=(200, 202))

    @task(10)
    def search(self) -> None:
        """Search by words."""
        body = {"query": f"{random.choice(WORDS)} {random.choice(WORDS)}", "top_k": 10}
        self.ask("POST", "users/{user}/search/", "search", body)

    @task(10)
    def entries(self) -> None:
        """Read a page of the log's entries."""
        self.ask("GET", "users/{user}/entries/?page_size=50", "list entries")

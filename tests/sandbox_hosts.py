"""Several sandbox hosts: their names, the homes of users, and work for all of them."""

import itertools
from collections import Counter
from typing import Any

from benchmarks.harness import Client
from deploy.embedded.system import System
from memory.kernel.work.hosts import choose
from tests.system import Person, create_person, record, select_rows
from tests.waiting import polled

_numbers = itertools.count()


def list_hosts(system: System) -> dict[str, int]:
    """Return name → threads of the live hosts."""
    return dict(select_rows(system, "SELECT name, threads FROM memory_sandboxhost ORDER BY name"))


def create_people(client: Client, number: int) -> list[Person]:
    """Return so many new users with a project."""
    made = []
    for _ in range(number):
        person = create_person(client, f"traveller-{next(_numbers)}")
        trip = record("Trip", "rome", domain="travel", cost=840)
        polled(
            lambda: person.log(trip, wait=20)[0]["state"],  # noqa: B023 - called at once
            lambda state: state == "covered",
        )
        made.append(person)
    return made


def find_home(system: System, person: Person) -> str:
    """Return the host that the person's work is sent to first."""
    ((key,),) = select_rows(
        system, "SELECT id FROM memory_memoryuser WHERE user_id = %s", person.user_id
    )
    return choose(list_hosts(system), key)


def find_host(system: System, process: str) -> str:
    """Return a worker's name as a host."""
    (name,) = (name for name in list_hosts(system) if name.startswith(f"{process}@"))
    return name


def find_problem(system: System, worker: str) -> Any:
    """Return why a worker takes no work; "" while it does."""
    name = find_host(system, worker)
    ((report,),) = select_rows(
        system, "SELECT report FROM memory_sandboxhost WHERE name = %s", name
    )
    return report.get("problem", "")


def begin_query(person: Person, code: str, *, wait: int = 0) -> tuple[int, Any]:
    """Send a new query: a repeated one would be answered without a host."""
    asked = {"code": f"{code}  # {next(_numbers)}"}
    return person.client.post(f"users/{person.user_id}/query/?wait={wait}", asked)


def find_host_of_run(system: System, run: Any) -> str:
    """Return the host that executed a run, or is executing it."""
    ((name,),) = select_rows(system, "SELECT host FROM memory_run WHERE id = %s", run["id"])
    return str(name)


class Work:
    """Records and queries for all users, sent while hosts fail and return.

    `costs` are those of each user's trips; without them, those of `create_people`.
    """

    def __init__(
        self,
        system: System,
        everybody: list[Person],
        costs: dict[str, list[int]] | None = None,
    ) -> None:
        self.system = system
        self.everybody = everybody
        self.runs: list[str] = []
        self.costs = costs or {person.user_id: [840] for person in everybody}

    def send(self) -> None:
        """Send one record and one query for each; do not wait for the answers."""
        for person in self.everybody:
            self.send_record(person)
            code = f"sum(trip.cost for trip in trips)  # {next(_numbers)}"
            run = person.post("query/?wait=0", {"code": code}, status=202)
            self.runs.append(run["id"])

    def send_record(self, person: Person) -> None:
        """Send one record, without waiting."""
        number = next(_numbers)
        person.log(record("Trip", f"t-{number}", domain="travel", cost=number), wait=0)
        self.costs[person.user_id].append(number)

    def send_until(self, name: str) -> None:
        """Keep sending until this host has done some of it, which first has to make sandboxes."""

        def done() -> Counter[str]:
            self.send()
            return self.hosts()

        polled(done, lambda found: name in found, seconds=180)

    def hosts(self) -> Counter[str]:
        """Wait until every query is answered; return how many each host has answered."""
        statement = "SELECT host, status, outcome FROM memory_run WHERE id = ANY(%s)"
        rows = polled(
            lambda: select_rows(self.system, statement, self.runs),
            lambda rows: all(status == "done" for _, status, _ in rows),
            seconds=120,
        )
        assert len(rows) == len(self.runs)
        assert {outcome for _, _, outcome in rows} == {"ok"}
        return Counter(host for host, _, _ in rows)

    def all_is_there_once(self) -> None:
        """Every record must be in its user's project, once, and no work be left."""
        for person in self.everybody:
            polled(lambda: person.get()["entries"]["pending"], lambda left: not left, 120)  # noqa: B023
            code = f"sorted(trip.cost for trip in trips)  # {next(_numbers)}"
            asked = person.post("query/?wait=0", {"code": code}, status=202)
            answered = person.client.finished(asked["id"])
            assert answered["output"]["value"] == sorted(self.costs[person.user_id])
            versions = select_rows(
                self.system,
                "SELECT count(*), count(DISTINCT version), max(version) FROM memory_checkpoint c"
                " JOIN memory_memoryuser u ON u.id = c.user_id WHERE u.user_id = %s",
                person.user_id,
            )
            ((there, different, newest),) = versions
            assert there == different == newest

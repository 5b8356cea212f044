"""Several sandbox hosts: who they are, who goes to which, and work for all of them."""

import itertools
from collections import Counter
from typing import Any

from benchmarks.harness import Client
from memory.work.hosts import choose
from tests.system import Person, record, select_rows
from tests.waiting import polled
from uac_site.embedded.system import System

_numbers = itertools.count()


def list_hosts(system: System) -> dict[str, int]:
    """Return name → threads of the hosts that are there."""
    return dict(select_rows(system, "SELECT name, threads FROM memory_sandboxhost ORDER BY name"))


def create_people(client: Client, number: int) -> list[Person]:
    """Return so many new users with a project."""
    made = []
    for _ in range(number):
        user_id = f"traveller-{next(_numbers)}"
        status, body = client.post("users/", {"user_id": user_id})
        assert status == 201, body
        person = Person(client, user_id)
        trip = record("Trip", "rome", domain="travel", cost=840)
        polled(
            lambda: person.log(trip, wait=20)[0]["state"],  # noqa: B023 - called at once
            lambda state: state == "covered",
        )
        made.append(person)
    return made


def find_home(system: System, person: Person) -> str:
    """Return the host that the person's work goes to first."""
    ((key,),) = select_rows(
        system, "SELECT id FROM memory_memoryuser WHERE user_id = %s", person.user_id
    )
    return choose(list_hosts(system), key)


def find_host(system: System, process: str) -> str:
    """Return the name as a host of a worker."""
    (name,) = (name for name in list_hosts(system) if name.startswith(f"{process}@"))
    return name


def find_problem(system: System, worker: str) -> Any:
    """Return why a worker takes no work; empty while it does."""
    name = find_host(system, worker)
    ((report,),) = select_rows(
        system, "SELECT report FROM memory_sandboxhost WHERE name = %s", name
    )
    return report.get("problem", "")


def begin_query(person: Person, code: str, *, wait: int = 0) -> tuple[int, Any]:
    """Ask what nobody has asked, which would be answered without a host."""
    asked = {"code": f"{code}  # {next(_numbers)}"}
    return person.client.post(f"users/{person.user_id}/query/?wait={wait}", asked)


def find_host_of_run(system: System, run: Any) -> str:
    """Return the host that a run was done by, or is being done by."""
    ((name,),) = select_rows(system, "SELECT host FROM memory_run WHERE id = %s", run["id"])
    return str(name)


class Work:
    """Records and questions for all users, sent while whatever happens happens.

    `costs` are those of the trips that each user has; without them, of `create_people`.
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
        """One record and one question for each; nobody waits for the answer."""
        for person in self.everybody:
            self.send_record(person)
            code = f"sum(trip.cost for trip in trips)  # {next(_numbers)}"
            run = person.post("query/?wait=0", {"code": code}, status=202)
            self.runs.append(run["id"])

    def send_record(self, person: Person) -> None:
        """One record, which nobody waits for."""
        number = next(_numbers)
        person.log(record("Trip", f"t-{number}", domain="travel", cost=number), wait=0)
        self.costs[person.user_id].append(number)

    def send_until(self, name: str) -> None:
        """Send on until this host has done some of it, which has to make sandboxes first."""

        def done() -> Counter[str]:
            self.send()
            return self.hosts()

        polled(done, lambda found: name in found, seconds=180)

    def hosts(self) -> Counter[str]:
        """Wait until every question is answered; return by which hosts, and how many each."""
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
        """Every record is in its user's project, once, and nothing is left to be done."""
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

"""A workspace with much work does not hold up one that has little."""

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from benchmarks.harness import Client
from tests.llm_server import KEY, LlmServer, Reply, Request, hangs, llm_server, said
from tests.system import Person, message, new_client, record, running_system
from tests.waiting import polled
from uac_site.embedded.system import System

# The tests measure who comes first, not how long it takes: machines may be slow.
pytestmark = pytest.mark.timeout(900)
PATIENCE = 300.0

USERS, ENTRIES = 120, 10
LONG, LONG_ENTRIES = 1, 3000
FEW = 10
CALLS = 4  # of a workspace at one time, none of them being slow


def answered(request: Request) -> Reply:
    """Never answer workspace A; tell the others that there is nothing to remember."""
    return hangs(600) if "busy bee" in request.text else said("done")


@pytest.fixture(scope="module")
def llm() -> Iterator[LlmServer]:
    with llm_server(script=answered) as server:
        yield server


@pytest.fixture(scope="module")
def system(llm: LlmServer) -> Iterator[System]:
    environment = {
        "UAC_SANDBOX_RUNNER": "process",
        "UAC_LLM_MODEL": "openai:the-model",
        "UAC_LLM_BASE_URL": llm.openai_url,
        "UAC_LLM_API_KEY": KEY,
        "UAC_LLM_CONCURRENCY": str(CALLS + CALLS // 2),
        "UAC_LLM_SLOW_SECONDS": "600",  # a third are begun beside slow calls alone
    }
    with running_system(llm_workers=1, environment=environment) as system:
        yield system
        system.check()


def append(client: Client, user_id: str, entries: Sequence[dict[str, Any]]) -> None:
    status, body = client.post(f"users/{user_id}/entries/", {"entries": entries})
    assert status == 202, body


FLOOD = f"""
from memory import log
from memory.models import Workspace
from memory.models.log import EntryKind
from memory.users import create_user

workspace = Workspace.objects.get(name="NAME")
for user in range({USERS}):
    person = create_user(workspace, f"u{{user}}", metadata=None)
    drafts = [
        log.Draft(
            kind=EntryKind.RECORD,
            data={{"domain": "work", "type": "Task", "key": f"t{{n}}", "data": {{"days": n}}}},
        )
        for n in range({LONG_ENTRIES} if user < {LONG} else {ENTRIES})
    ]
    log.append(person, drafts, source="test")
"""


def flood(system: System, workspace: str) -> None:
    """Create many users with some entries each, and one with thousands, as fast as possible."""
    system.manage("shell", "-c", FLOOD.replace("NAME", workspace))


def a_few(client: Client) -> None:
    for number in range(FEW):
        client.post("users/", {"user_id": f"few{number}"})
        append(client, f"few{number}", [record("Task", "t", domain="work", name="t", days=1)])


def covered(system: System, workspace: str) -> tuple[int, int]:
    """Return how many entries of a workspace are covered, and how many there are."""
    with psycopg.connect(system.services.postgres.owner_url) as database:
        found = database.execute(
            "SELECT (SELECT count(*) FROM memory_entryoutcome o JOIN memory_memoryuser u"
            " ON u.id = o.user_id WHERE u.workspace_id = w.id AND o.outcome = 'covered'),"
            " (SELECT sum(last_seq)::int FROM memory_memoryuser u WHERE u.workspace_id = w.id)"
            " FROM memory_workspace w WHERE w.name = %s",
            [workspace],
        ).fetchone()
    assert found is not None
    return found


def rest(system: System, workspace: str) -> float:
    """Return the share of a workspace's users who still have pending entries."""
    with psycopg.connect(system.services.postgres.owner_url) as database:
        found = database.execute(
            "SELECT avg((l.due_at IS NOT NULL)::int)::float FROM memory_lane l"
            " JOIN memory_memoryuser u ON u.id = l.user_id"
            " JOIN memory_workspace w ON w.id = u.workspace_id"
            " WHERE w.name = %s AND l.name = 'records'",
            [workspace],
        ).fetchone()
    assert found is not None
    return float(found[0])


def unsettled_when_it_was_done(system: System, workspace: str, other: str) -> float:
    """Return which share of the other's users had pending entries when this one was done."""
    with psycopg.connect(system.services.postgres.owner_url) as database:
        found = database.execute(
            "SELECT avg((settled < u.last_seq)::int)::float FROM memory_memoryuser u"
            " JOIN memory_workspace w ON w.id = u.workspace_id, LATERAL ("
            "  SELECT count(*) AS settled FROM memory_entryoutcome o WHERE o.user_id = u.id"
            "  AND o.decided_at <= (SELECT max(last.decided_at) FROM memory_entryoutcome last"
            "   JOIN memory_memoryuser p ON p.id = last.user_id"
            "   JOIN memory_workspace v ON v.id = p.workspace_id WHERE v.name = %s)) outcomes"
            " WHERE w.name = %s",
            [workspace, other],
        ).fetchone()
    assert found is not None
    return float(found[0])


def test_ten_entries_are_not_kept_by_thousands_that_waited_before(system: System) -> None:
    new_client(system, "much")
    little = new_client(system, "little")
    system.stop("sandbox-1")
    flood(system, "much")
    a_few(little)

    system.start("sandbox-1")
    polled(lambda: covered(system, "little"), lambda found: found == (FEW, FEW), PATIENCE)

    assert unsettled_when_it_was_done(system, "little", "much") > 0.6
    left = rest(system, "much")  # nor are they forgotten
    polled(lambda: rest(system, "much"), lambda now: now < left or now == 0, PATIENCE)


def test_ten_entries_are_not_kept_by_thousands_that_just_came(system: System) -> None:
    new_client(system, "more")
    little = new_client(system, "less")
    flood(system, "more")

    a_few(little)
    before = rest(system, "more")
    polled(lambda: covered(system, "less"), lambda found: found == (FEW, FEW), PATIENCE)

    assert rest(system, "more") > before - 0.4


def test_no_thread_waits_for_a_workspace_that_has_its_share(system: System, llm: LlmServer) -> None:
    much, little = new_client(system, "many words"), new_client(system, "few words")
    urgent = {"metadata": {"urgent": True}}
    for number in range(3 * CALLS):
        much.post("users/", {"user_id": f"u{number}"})
        append(much, f"u{number}", [{**message("I am a busy bee."), **urgent}])
    polled(lambda: len(llm.requests), lambda asked: asked >= CALLS, PATIENCE)

    little.post("users/", {"user_id": "ada"})
    append(little, "ada", [{**message("My dog is called Rex."), **urgent}])

    polled(lambda: [one for one in llm.requests if "Rex" in one.text], bool, PATIENCE)
    assert sum("busy bee" in one.text for one in llm.requests) == CALLS
    assert Person(little, "ada").get()["structure"]["state"] in ("working", "idle", "stopped")

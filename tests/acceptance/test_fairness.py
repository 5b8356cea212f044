"""A workspace with much work does not hold up one that has little."""

from collections.abc import Iterator

import pytest

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.llm_server import LlmServer, Reply, Request, hangs, llm_server, said
from tests.system import create_person, message, new_client, running_system, select_rows, task
from tests.waiting import polled

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
        **llm.environment,
        "UAC_LLM_CONCURRENCY": str(CALLS + CALLS // 2),
        "UAC_LLM_SLOW_SECONDS": "600",  # a third are begun beside slow calls alone
    }
    with running_system(llm_workers=1, environment=environment) as system:
        yield system
        system.check()


FLOOD = f"""
from memory.log import entry_log
from memory.kernel.models.workspaces import Workspace
from memory.log.models.entries import EntryKind
from memory.kernel.users import create_user

workspace = Workspace.objects.get(name="NAME")
for user in range({USERS}):
    person = create_user(workspace, f"u{{user}}", metadata=None)
    drafts = [
        entry_log.Draft(
            kind=EntryKind.RECORD,
            data={{"domain": "work", "type": "Task", "key": f"t{{n}}", "data": {{"days": n}}}},
        )
        for n in range({LONG_ENTRIES} if user < {LONG} else {ENTRIES})
    ]
    entry_log.append(person, drafts, source="test")
"""


def flood(system: System, workspace: str) -> None:
    """Create many users with some entries each, and one with thousands, as fast as possible."""
    system.manage("shell", "-c", FLOOD.replace("NAME", workspace))


def a_few(client: Client) -> None:
    for number in range(FEW):
        create_person(client, f"few{number}").log(task("t", 1), wait=0)


def covered(system: System, workspace: str) -> tuple[int, int]:
    """Return how many entries of a workspace are covered, and how many there are."""
    [(done, total)] = select_rows(
        system,
        "SELECT (SELECT count(*) FROM memory_entryoutcome o JOIN memory_memoryuser u"
        " ON u.id = o.user_id WHERE u.workspace_id = w.id AND o.outcome = 'covered'),"
        " (SELECT sum(last_seq)::int FROM memory_memoryuser u WHERE u.workspace_id = w.id)"
        " FROM memory_workspace w WHERE w.name = %s",
        workspace,
    )
    return done, total


def rest(system: System, workspace: str) -> float:
    """Return the share of a workspace's users who still have pending entries."""
    [(share,)] = select_rows(
        system,
        "SELECT avg((l.due_at IS NOT NULL)::int)::float FROM memory_lane l"
        " JOIN memory_memoryuser u ON u.id = l.user_id"
        " JOIN memory_workspace w ON w.id = u.workspace_id"
        " WHERE w.name = %s AND l.name = 'records'",
        workspace,
    )
    return float(share)


def unsettled_when_it_was_done(system: System, workspace: str, other: str) -> float:
    """Return which share of the other's users had pending entries when this one was done."""
    [(share,)] = select_rows(
        system,
        "SELECT avg((settled < u.last_seq)::int)::float FROM memory_memoryuser u"
        " JOIN memory_workspace w ON w.id = u.workspace_id, LATERAL ("
        "  SELECT count(*) AS settled FROM memory_entryoutcome o WHERE o.user_id = u.id"
        "  AND o.decided_at <= (SELECT max(last.decided_at) FROM memory_entryoutcome last"
        "   JOIN memory_memoryuser p ON p.id = last.user_id"
        "   JOIN memory_workspace v ON v.id = p.workspace_id WHERE v.name = %s)) outcomes"
        " WHERE w.name = %s",
        workspace,
        other,
    )
    return float(share)


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
        busy = message("I am a busy bee.") | urgent
        create_person(much, f"u{number}").log(busy, wait=0)
    polled(lambda: len(llm.requests), lambda asked: asked >= CALLS, PATIENCE)

    ada = create_person(little)
    ada.log(message("My dog is called Rex.") | urgent, wait=0)

    polled(lambda: [one for one in llm.requests if "Rex" in one.text], bool, PATIENCE)
    assert sum("busy bee" in one.text for one in llm.requests) == CALLS
    assert ada.get()["structure"]["state"] in ("working", "idle", "stopped")

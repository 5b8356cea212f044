"""A workspace's limits, from the admin's form to what the API answers, in real containers."""

import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from django.test import Client, override_settings
from rest_framework.test import APIClient

from memory.alerts.models.alerts import Alert
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings.sandbox_limits import LIMITS, effective
from memory.kernel.users import create_user
from memory.kernel.workspaces import create_key
from memory.project.errors import REMEDY
from memory.versions.models.runs import Run
from tests.integration.admin.conftest import page_url, shown
from tests.integration.commits.conftest import trip
from tests.integration.sandbox.containers import Containers
from tests.steps import not_none
from tests.waiting import eventually
from workers.sandbox import docker, runner
from workers.sandbox.build import ensure_image, ensure_typecheck_image
from workers.sandbox.limits import Shape
from workers.sandbox.pool import Pool
from workers.sandbox.pool_stock import PoolLimits

if TYPE_CHECKING:
    from memory.kernel.models.users import MemoryUser

pytestmark = [pytest.mark.docker, pytest.mark.django_db]

Work = Callable[[], None]

CONSTRAINT = """\
import datetime
from collections.abc import Iterator

from domains.travel.state import trips
from uac import Alert, info


def check(today: datetime.date) -> Iterator[Alert]:
    \"\"\"Cost what it may where there are many trips; its own tests have none of that.\"\"\"
    if len(trips) > 2:
        {line}
    for trip in trips:
        if trip.to == "Atlantis":
            yield info("there is no such place", evidence=[trip])
"""
TESTS = """\
import datetime

from constraints import {name} as rule
from domains.travel.schema import Trip
from uac.testing import run_check

TODAY = datetime.date(2026, 1, 1)


def test_speaks() -> None:
    assert len(run_check(rule, today=TODAY, trips=[Trip(key="t", to="Atlantis")])) == 1


def test_is_silent() -> None:
    assert run_check(rule, today=TODAY, trips=[Trip(key="t", to="Rome")]) == []
"""

Case = tuple[dict[str, Any], str, str, str]


@pytest.fixture(autouse=True)
def mine() -> Iterator[Containers]:
    """Run sandboxes as containers of this test's own."""
    ensure_typecheck_image(ensure_image())
    with override_settings(UAC_SANDBOX_RUNNER="docker"), Containers() as containers:
        yield containers


@pytest.fixture(autouse=True)
def pool(mine: Containers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """Keep sandboxes, as a worker does."""
    kept = Pool(docker, PoolLimits(lease_seconds=60, leases=8), Shape.from_limits(effective({})))
    monkeypatch.setitem(runner._pools, "docker", kept)
    yield kept
    kept.close()
    assert mine.all() == []


class Tenant:
    """A workspace with a user and three trips, used over the API."""

    def __init__(self, work: Work, **chosen: Any) -> None:
        self.work, self.asked = work, 0
        self.workspace = Workspace(name=f"tenant {chosen}", **chosen)
        self.workspace.full_clean()
        self.workspace.save()
        self.user: MemoryUser = create_user(self.workspace, "ada", time_zone="UTC", metadata=None)
        self.api = APIClient()
        self.api.credentials(HTTP_AUTHORIZATION=f"Bearer {create_key(self.workspace, 'k')[1]}")
        self.tell("abc")

    def tell(self, keys: str) -> None:
        """Append trips with these keys, and settle them."""
        entries = [{"kind": "record", **trip(key=key)} for key in keys]
        self.api.post("/v1/users/ada/entries/", {"entries": entries})
        self.work()

    def done(self, response: Any) -> dict[str, Any]:
        assert response.status_code == 202, response.data
        self.work()
        run: dict[str, Any] = self.api.get(f"/v1/runs/{response.data['id']}/").data
        assert (run["status"], run["runner"]) == ("done", "docker"), run["error"]
        return run

    def ask(self, code: str) -> dict[str, Any]:
        self.asked += 1  # the same would be answered without a sandbox
        asked = {"code": f"{code}  # {self.asked}"}
        return self.done(self.api.post("/v1/users/ada/query/?wait=0", asked))

    def propose(self, name: str, line: str, tests: str = TESTS) -> dict[str, Any]:
        """Write a constraint whose function has this line."""
        body = {"source": CONSTRAINT.format(line=line), "tests": tests.format(name=name)}
        return self.done(self.api.put(f"/v1/users/ada/constraints/{name}/?wait=0", body))

    def run_constraints(self) -> Run:
        return Run.objects.filter(user=self.user, kind="constraints").latest("queued_at")


Tenants = Callable[..., Tenant]


@pytest.fixture
def tenant(work: Work) -> Tenants:
    return lambda **chosen: Tenant(work, **chosen)


def busy_for(seconds: float) -> str:
    """Return code that computes on this machine for at least that many seconds."""

    def compute_million() -> float:
        began = time.process_time()
        sum(range(10**6))
        return time.process_time() - began

    fastest = min(compute_million() for _ in range(20))
    return f"sum(range({math.ceil(seconds / fastest)} * 10 ** 6))"


BUSY = busy_for(0.5)  # well beyond the limits of 0.2 s and 0.3 s

QUERIES: list[Case] = [
    ({"wall_seconds": 0.2}, BUSY, "timeout", "took longer than 0.2 s"),
    ({"total_seconds": 0.2}, BUSY, "timeout", "took longer than 0.2 s"),
    (
        {"cpu_seconds": 1},
        f"[{BUSY} for _ in range(6)]",
        "timeout",
        "used more than 1 s of CPU time",
    ),
    (
        {"process_memory_mib": 64},
        "len('x' * 100 * 2 ** 20)",
        "out_of_memory",
        "needed more than 64 MiB of memory",
    ),
    (
        {"memory_mib": 128},
        "len('x' * 100 * 2 ** 20)",
        "out_of_memory",
        "needed more than 48 MiB of memory",
    ),
    ({"output_kib": 1}, "print('x' * 3000) or 1", "output_limit", "printed more than 1 KiB"),
    (
        {"result_kib": 1},
        "'x' * 3000",
        "result_limit",
        "the result is larger than 1 KiB: return a part of it or a count",
    ),
    (
        {"result_depth": 2},
        "[[[[1]]]]",
        "result_limit",
        "the result is nested more than 2 levels deep, or contains itself",
    ),
]


@pytest.mark.parametrize(
    ("chosen", "code", "outcome", "message"), QUERIES, ids=[next(iter(q[0])) for q in QUERIES]
)
def test_a_query_past_a_limit_says_which_and_who_can_raise_it(
    tenant: Tenants,
    admin_client: Client,
    chosen: dict[str, Any],
    code: str,
    outcome: str,
    message: str,
) -> None:
    limited, ordinary = tenant(**chosen), tenant()

    run = limited.ask(code)
    assert run["outcome"] == outcome
    assert (run["error"]["type"], run["error"]["message"]) == (outcome, f"{message} ({REMEDY})")
    words = shown(admin_client.get(page_url(Run.objects.get(pk=run["id"]))))
    assert f"{message} ({REMEDY})" in words

    assert ordinary.ask(code)["outcome"] == "ok"
    # A busy machine may hold up a query for as long as the shortest of the limits.
    assert eventually(lambda: limited.ask("len(trips)")["outcome"] == "ok")


OF_CONSTRAINTS = {"wall_seconds", "process_memory_mib", "output_kib"}
CONSTRAINTS = [case for case in QUERIES if case[0].keys() <= OF_CONSTRAINTS]
assert len(CONSTRAINTS) == len(OF_CONSTRAINTS)


@pytest.mark.parametrize(
    ("chosen", "check", "outcome", "message"),
    CONSTRAINTS,
    ids=[next(iter(c[0])) for c in CONSTRAINTS],
)
def test_a_constraint_past_a_limit_fails_visibly_and_is_not_let_in_anew(
    tenant: Tenants, chosen: dict[str, Any], check: str, outcome: str, message: str
) -> None:
    one = tenant()
    assert one.propose("dear", check)["outcome"] == "ok"
    assert one.run_constraints().outcome == "ok"

    Workspace.objects.filter(pk=one.workspace.pk).update(**chosen)
    one.tell("d")

    run = one.run_constraints()
    assert not_none(run.checkpoint).version == 3  # the entry is in all the same
    assert run.outcome == outcome
    assert not_none(run.error)["message"] == f"{message} ({REMEDY})"
    assert f"{message} ({REMEDY})" in Alert.objects.get(user=one.user).message

    told = f"constraints/another.py:1: {outcome}: {message} ({REMEDY})"
    assert eventually(lambda: told in rejected(one.propose("another", check)))


def rejected(run: dict[str, Any]) -> str:
    """Return the reason for a rejection.

    On a busy machine it may be that another step exceeded the short limit.
    """
    assert run["outcome"] == "rejected"
    return str(run["error"]["message"])


def test_tests_have_the_limits_of_the_workspace_too(tenant: Tenants) -> None:
    tests = f"{TESTS}\n\ndef test_slowly() -> None:\n    assert {BUSY}\n"

    limited = tenant(wall_seconds=0.2)
    told = f"tests/test_rule.py:1: timeout: took longer than 0.2 s ({REMEDY})"
    assert eventually(lambda: told in rejected(limited.propose("rule", "pass", tests)))
    assert tenant().propose("rule", "pass", tests)["outcome"] == "ok"


def test_together_constraints_have_the_time_of_the_whole_run(tenant: Tenants) -> None:
    one = tenant()
    for name in "abc":
        assert one.propose(name, BUSY)["outcome"] == "ok"

    Workspace.objects.update(total_seconds=0.3)
    one.tell("d")

    run = one.run_constraints()
    assert run.outcome == "timeout"
    assert isinstance(run.output, dict)
    last = run.output["constraints"][-1]["error"]
    assert last["message"] == f"not run: the request has used up its 0.3 s ({REMEDY})"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("1 / 0", "user_error"),
        ("10 ** 5000", "result_limit"),  # no setting would let it through
        ("raise SystemExit", "killed"),
    ],
)
def test_unavoidable_error_names_no_remedy(tenant: Tenants, code: str, outcome: str) -> None:
    run = tenant().ask(code)

    assert run["outcome"] == outcome
    assert run["error"]["message"]
    assert REMEDY not in run["error"]["message"]


def test_a_change_in_the_admin_holds_from_the_next_run_on(
    tenant: Tenants, admin_client: Client, mine: Containers, pool: Pool
) -> None:
    one = tenant()
    large = "len('x' * 100 * 2 ** 20)"
    assert one.ask(large)["outcome"] == "ok"
    (before,) = mine.all()

    def choose(**chosen: str) -> None:
        here = {"name": one.workspace.name, "time_zone": one.workspace.time_zone}
        form = {**here, **dict.fromkeys(LIMITS, ""), **chosen}
        assert admin_client.post(page_url(one.workspace), form).status_code == 302

    # A limit that is sent with each request: the kept container continues.
    choose(process_memory_mib="64")
    assert one.ask(large)["outcome"] == "out_of_memory"
    choose()
    assert one.ask(large)["outcome"] == "ok"

    # A limit fixed at a container's creation: a new one replaces it.
    choose(memory_mib="512")
    assert one.ask("len(trips)")["outcome"] == "ok"
    assert eventually(lambda: before.id not in [container.id for container in mine.all()])
    assert eventually(lambda: len(mine.all()) == 1)
    (after,) = mine.all()
    assert after.id != before.id
    host = after.attrs["HostConfig"]
    assert (host["Memory"], host["MemorySwap"]) == (512 * 2**20, 512 * 2**20)
    assert pool.counts.destroyed["changed"] == 1


def test_single_use_container_is_not_reused(tenant: Tenants, mine: Containers, pool: Pool) -> None:
    strict, ordinary = tenant(single_use=True), tenant()
    # Single-use containers of others are removed in the background.
    assert eventually(lambda: len(mine.all()) == 1)
    kept = {container.id for container in mine.all()}
    assert len(kept) == 1  # the ordinary one's

    started = pool.counts.started
    assert [strict.ask("len(trips)")["output"]["value"] for _ in range(2)] == [3, 3]
    assert strict.propose("rule", "pass")["outcome"] == "ok"  # the gate and the run after it
    assert eventually(lambda: {container.id for container in mine.all()} == kept)
    # Two queries; two sandboxes of the gate, whose seeds differ; a run of the constraints.
    assert pool.counts.started == started + 5

    ordinary.ask("len(trips)")
    assert pool.counts.started == started + 5


def test_single_use_ends_kept_containers(tenant: Tenants, mine: Containers, pool: Pool) -> None:
    one = tenant()
    assert one.ask("len(trips)")["outcome"] == "ok"
    assert (len(mine.all()), pool.counts.started, pool.counts.resident) == (1, 1, 1)

    Workspace.objects.update(single_use=True)
    assert one.ask("len(trips)")["output"]["value"] == 3

    assert (pool.counts.started, pool.counts.resident) == (2, 1)
    assert eventually(lambda: mine.all() == [])

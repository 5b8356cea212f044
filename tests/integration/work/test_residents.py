"""A user's sandbox that is kept for a while: what is sent to it, and when it is not used."""

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import Mock

import pytest
from django.utils import timezone

from memory.constraints import workspace_constraints
from memory.kernel.models.users import MemoryUser
from memory.versions import checkpoints, runs
from memory.versions.models.checkpoints import Checkpoint
from memory.versions.models.runs import Run, RunKind, RunTrigger
from tests.factories import make_checkpoint, store_files
from tests.integration.commits.conftest import Append, checkpoint, trip
from tests.integration.work.test_workspace_constraints import (
    PATH,
    SOURCE,
    TESTS,
    judged,
    live,
    rental,
)
from tests.steps import execute, head_of, not_none, propose
from workers import tasks
from workers.execution.loading import LoadPlan, loaded
from workers.sandbox import runner
from workers.sandbox.client import Sandbox
from workers.sandbox.pool import Pool
from workers.sandbox.pool_stock import PoolLimits
from workers.sandbox.results import SandboxError

__all__ = ["checkpoint"]  # the fixture

pytestmark = pytest.mark.django_db


# The files sent and removed by each load of a sandbox, at once or with the next request.
Loads = list[tuple[list[str], list[str]]]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    seen: Loads = []

    def watch(name: str) -> None:
        method = getattr(Sandbox, name)

        def watched(
            self: Sandbox, *arguments: Any, removed: Sequence[str] = (), **options: Any
        ) -> Any:
            seen.append((sorted(options.get("bytecode", ())), list(removed)))
            return method(self, *arguments, removed=removed, **options)

        monkeypatch.setattr(Sandbox, name, watched)

    watch("load")
    watch("prepare")
    return seen


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """Keep sandboxes of this process, as a worker does."""
    limits = PoolLimits(lease_seconds=60, leases=4)
    kept = Pool(runner.configured_runner(), limits)
    monkeypatch.setitem(runner._pools, "process", kept)
    yield kept
    kept.close()


def ask(user: MemoryUser, code: str, version: Checkpoint | None = None) -> Run:
    """Ask about a version, which is the newest unless told otherwise."""
    about = version or head_of(user)
    return execute(
        runs.queue(user, RunKind.QUERY, RunTrigger.API, checkpoint=about, input={"code": code})
    )


def value(run: Run) -> Any:
    assert run.outcome == "ok", run.error
    assert isinstance(run.output, dict)
    return run.output["value"]


def test_sandbox_loaded_by_the_gate_serves_the_next_question(
    user: MemoryUser, checkpoint: Append, pool: Pool, loads: Loads
) -> None:
    checkpoint(trip(key="a"))
    assert len(loads) == 1  # by the gate

    assert value(ask(user, "len(trips)")) == 1
    assert value(ask(user, "trips[0].to")) == "Rome"
    assert len(loads) == 1
    assert pool.counts.resident == 2


def test_a_sandbox_that_ends_before_it_is_leased_is_replaced_by_a_complete_one(
    user: MemoryUser,
    checkpoint: Append,
    pool: Pool,
    loads: Loads,
) -> None:
    checkpoint(trip(key="a"))
    everything = loads[0]
    pool._leases[user.pk].sandbox.close()

    assert value(ask(user, "len(trips)")) == 1
    assert loads == [everything, everything]
    assert pool.counts.destroyed == {"ended": 1}


def test_redacted_version_is_refused_and_the_sandbox_replaced(
    user: MemoryUser, checkpoint: Append, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(trip(key="a"))
    pool._leases[user.pk].sandbox.close()
    user.refresh_from_db()

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "read_modules", Mock(side_effect=checkpoints.Redacted("v1")))
        with pytest.raises(checkpoints.Redacted), loaded(LoadPlan(user, head_of(user))):
            pass

    assert value(ask(user, "len(trips)")) == 1
    assert pool.counts.destroyed == {"ended": 1, "error": 1}


def test_queries_do_not_see_each_other(user: MemoryUser, checkpoint: Append, pool: Pool) -> None:
    checkpoint(trip(key="a"))
    assert value(ask(user, "trips.clear()\nlen(trips)")) == 0
    assert value(ask(user, "len(trips)")) == 1


def test_loading_another_version_sends_only_changed_files(
    user: MemoryUser, checkpoint: Append, pool: Pool, loads: Loads
) -> None:
    checkpoint(trip(key="a"), {"domain": "notes", "type": "Note", "data": {"text": "x"}})
    older = MemoryUser.objects.get(pk=user.pk).head
    checkpoint(trip(key="b"))
    loads.clear()

    assert value(ask(user, "len(trips)", older)) == 1
    assert value(ask(user, "[len(trips), len(notes)]")) == [2, 1]
    changed = ["domains/travel/state.py", "manifest.py"]
    assert loads == [(changed, []), (changed, [])]


def test_after_a_question_that_had_to_be_stopped_everything_is_new(
    user: MemoryUser, checkpoint: Append, pool: Pool, loads: Loads
) -> None:
    checkpoint(trip(key="a"))
    assert ask(user, "'x' * 10 ** 10").outcome == "out_of_memory"

    assert value(ask(user, "len(trips)")) == 1
    assert len(loads) == 2
    assert pool.counts.destroyed == {"stopped": 1}


def test_refused_version_is_never_queried(user: MemoryUser, checkpoint: Append, pool: Pool) -> None:
    checkpoint(trip(key="a"))
    edit = {
        "op": "write_constraint",
        "name": "broken",
        "source": "import datetime\nfrom collections.abc import Iterator\nfrom uac import Alert\n"
        "def check(today: datetime.date) -> Iterator[Alert]:\n    yield from ()\n",
        "tests_source": "def test_it() -> None:\n    raise ValueError\n",
        "sources": [],
    }
    run = propose(user, edit)
    assert run.outcome == "rejected"
    assert not_none(run.error)["message"].startswith("tests: ")

    (lease,) = pool._leases.values()
    assert not [path for path in lease.tree if "broken" in path]
    assert value(ask(user, "len(trips)")) == 1


def run_constraints(user: MemoryUser) -> None:
    run = runs.queue(user, RunKind.CONSTRAINTS, RunTrigger.DAILY, checkpoint=head_of(user))
    assert execute(run).outcome == "ok", run.error


def test_loading_workspace_constraints_sends_only_missing_files(
    user: MemoryUser, checkpoint: Append, pool: Pool, loads: Loads
) -> None:
    live(user.workspace)
    loads.clear()
    checkpoint(rental())
    run_constraints(user)
    run_constraints(user)
    assert value(ask(user, "len(rentals)")) == 1  # which neither needs it nor sends it away
    run_constraints(user)
    assert [paths for paths, _ in loads[1:]] == [[PATH]]


def test_a_sandbox_that_has_executed_other_code_is_not_used(
    user: MemoryUser, checkpoint: Append, pool: Pool, loads: Loads
) -> None:
    """Any change that code makes to the process holding the project ends with that process."""
    constraint = live(user.workspace)
    checkpoint(rental())
    user.refresh_from_db()
    older = user.head
    run_constraints(user)
    assert "other code" not in pool.counts.destroyed

    # A workspace's constraint is changed, and taken away
    workspace_constraints.propose(constraint, source=SOURCE + "# more\n", tests=TESTS, by="x")
    workspace_constraints.approve(judged(constraint), by="x")
    run_constraints(user)
    assert pool.counts.destroyed["other code"] == 1
    workspace_constraints.change(constraint, by="x", enabled=False)
    run_constraints(user)
    assert pool.counts.destroyed["other code"] == 2

    # The user's own project gets a class, and a question is about the version before it
    checkpoint({"domain": "notes", "type": "Note", "data": {"text": "x"}})
    assert value(ask(user, "len(rentals)", older)) == 1
    assert pool.counts.destroyed["other code"] == 3

    # But data may come and go
    assert value(ask(user, "len(notes)")) == 1
    checkpoint({"domain": "notes", "type": "Note", "data": {"text": "y"}})
    assert value(ask(user, "len(notes)")) == 2
    assert pool.counts.destroyed["other code"] == 3


def test_old_bytecode_is_compiled_once(user: MemoryUser, checkpoint: Append, loads: Loads) -> None:
    constraint = live(user.workspace)
    version = constraint.versions.get()
    compiled = version.bytecode
    constraint.versions.update(bytecode="nonsense", image_digest="another")
    checkpoint(rental())

    run_constraints(user)

    version.refresh_from_db()
    assert version.bytecode == compiled


def test_damaged_bytecode_is_compiled_anew(user: MemoryUser, checkpoint: Append) -> None:
    constraint = live(user.workspace)
    constraint.versions.update(bytecode="nonsense")
    checkpoint(rental())
    run = runs.queue(user, RunKind.CONSTRAINTS, RunTrigger.DAILY, checkpoint=head_of(user))

    with pytest.raises(SandboxError, match="damaged"):
        tasks.work("runs", str(run.pk))
    assert constraint.versions.get().bytecode == ""

    run_constraints(user)
    assert constraint.versions.get().bytecode not in ("", "nonsense")


# Code that gets past the policy may change the process in which it is loaded, for good.
MARKING = "import builtins\n\nbuiltins.seen = [*getattr(builtins, 'seen', []), {name!r}]\n"
SCHEMA = """\
from dataclasses import dataclass
from uac import Record


@dataclass(kw_only=True)
class Trip(Record):
    to: str
"""
STATE = "from domains.travel.schema import Trip\n\ntrips: list[Trip] = [{trips}]\n"
SCHEMAS = [SCHEMA, *(SCHEMA + MARKING.format(name=one) for one in "ab")]
STATES = [STATE.format(trips=one) for one in ("", "Trip(key='r', to='Rome')")]


def stored(user: MemoryUser, version: int, schema: str, state: str) -> Checkpoint:
    """Return a version with these files."""
    folder = "domains/travel"
    files = {
        **dict.fromkeys(("domains/__init__.py", f"{folder}/__init__.py"), ""),
        f"{folder}/schema.py": schema,
        f"{folder}/state.py": state,
    }
    return make_checkpoint(user, version, tree=store_files(user, files))


@pytest.mark.parametrize("seed", range(3))
def test_answer_depends_on_tree_and_question_alone(user: MemoryUser, pool: Pool, seed: int) -> None:
    chance = random.Random(seed)
    variants = enumerate(itertools.product(SCHEMAS, STATES), start=1)
    versions = [stored(user, number, *files) for number, files in variants]

    def answer(checkpoint: Checkpoint, question: str) -> Any:
        with loaded(LoadPlan(user, checkpoint)) as sandbox:
            return sandbox.evaluate(question, now=timezone.now(), time_zone="UTC").value

    questions = ["[t.to for t in trips]", "getattr(__import__('builtins'), 'seen', [])"]
    first: dict[tuple[int, str], Any] = {}
    for _ in range(40):
        checkpoint, question = chance.choice(versions), chance.choice(questions)
        told = answer(checkpoint, question)
        # What it answered first is what it answers in a sandbox that has served nobody
        if (checkpoint.version, question) not in first:
            pool.forget(user.pk)
            pool._forgotten.clear()
            first[checkpoint.version, question] = answer(checkpoint, question)
        assert told == first[checkpoint.version, question]
    assert pool.counts.resident > 0
    assert len({str(one) for one in first.values()}) > 2

"""Run a seed from beginning to end: break, heal, wait until all work has ended, check."""

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg.rows import dict_row

from deploy.embedded.process import ProcessFailed
from tests.chaos.checker import WAITING, Checker, leaked
from tests.chaos.deployment import Deployment, deployed, lacking
from tests.chaos.faults import FAULTS, schedule
from tests.chaos.journal import Journal, Person
from tests.chaos.traffic import Traffic
from tests.docker_engine import Engine, running_engine
from tests.waiting import eventually, scaled
from workers.sandbox.build import ensure_image, ensure_typecheck_image


@dataclass(frozen=True)
class Scale:
    """The size of a run: people, seconds with faults, and seconds in which all must come to rest.

    A run with fewer than `entries` entries would show too little.
    """

    people: int
    entries: int
    pause: float  # of a writer after each request, in seconds
    seconds: float
    calm_seconds: float  # in which it goes on when all is well again
    asked: int  # so many are asked what they hold, in a sandbox
    judged: int  # the newest versions of so many go through the gate again
    rest_seconds: float = 240


SHORT = Scale(people=18, entries=100, pause=0.5, seconds=20, calm_seconds=3, asked=6, judged=1)
SEED = Scale(people=48, entries=400, pause=0.7, seconds=36, calm_seconds=5, asked=12, judged=2)


def long_scale(minutes: float) -> Scale:
    """Return a scale of five hundred users, for so many minutes."""
    return Scale(
        people=510,
        entries=round(2000 * minutes),
        pause=2,
        seconds=minutes * 60,
        calm_seconds=10,
        rest_seconds=900,
        asked=60,
        judged=6,
    )


@dataclass
class Outcome:
    seed: int
    violations: Sequence[str] = ()
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    restarts: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    rest_seconds: float = 0.0


def run_seeds(
    seeds: Sequence[int], scale: Scale, *, containers: bool = True, keep: str | None = None
) -> int:
    """Run the seeds, print their results, and return the exit status: 0 without violations."""
    if reason := lacking(containers=containers):
        print(f"chaos: {reason}. (With --processes it does without an engine of its own.)")
        return 2
    faults: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        engine = None
        if containers:
            image = ensure_image()
            images = (image, ensure_typecheck_image(image))
            engine = stack.enter_context(running_engine(*images))
        for seed in seeds:
            print(f"seed {seed}", flush=True)
            outcome = run_seed(seed, scale, engine, Path(keep) if keep else None)
            faults += outcome.faults
            counts += outcome.counts
            _report(outcome)
            if outcome.violations:
                for violation in outcome.violations[1:20]:
                    print(f"  also: {violation}")
                print(f"chaos: seed {seed}: {outcome.violations[0]}", flush=True)
                return 1
    print(f"faults: {_in_words(faults)}")
    print(f"all: {_in_words(counts)}")
    print(f"chaos: {len(seeds)} seeds, 0 violations", flush=True)
    return 0


def run_seed(seed: int, scale: Scale, engine: Engine | None, keep: Path | None = None) -> Outcome:
    journal, outcome = Journal(), Outcome(seed)
    folder = Path(tempfile.mkdtemp(prefix="uac-chaos-"))
    folder.chmod(0o711)
    try:
        with deployed(folder, journal, seed, engine=engine, report=_say) as deployment:
            outcome.faults, outcome.restarts = deployment.faults, deployment.restarts
            violations = _break_and_check(deployment, seed, scale, outcome)
        violations += leaked(folder / "logs")
        if engine is not None and (left := engine.containers()):
            violations.append(f"{len(left)} containers are left after the shutdown")
        outcome.violations = violations
    except ProcessFailed as error:
        outcome.violations = [f"a process failed: {error}"]
    finally:
        outcome.failures = journal.failures
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            journal.write(keep / f"journal-{seed}.jsonl")
            shutil.copytree(folder / "logs", keep / f"logs-{seed}", dirs_exist_ok=True)
            if outcome.violations:  # with the database, which can be started again
                shutil.move(folder, keep / f"data-{seed}")
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _break_and_check(
    deployment: Deployment, seed: int, scale: Scale, outcome: Outcome
) -> list[str]:
    journal = deployment.journal
    traffic = Traffic(
        deployment.clients,
        journal,
        seed=seed,
        people=scale.people,
        seconds=scale.seconds,
        pause=scale.pause,
    )
    choices = random.Random(f"faults {seed}")
    _say("traffic")
    with traffic.flowing():
        began = time.monotonic()
        for at, name in schedule(seed, scale.seconds, containers=deployment.engine is not None):
            deployment.sleep(began + at - time.monotonic())
            FAULTS[name][0](deployment, choices)
            deployment.faults[name] += 1
        deployment.sleep(began + scale.seconds - time.monotonic())
        deployment.heal()
        healed = time.monotonic()
        _say("healed")
        deployment.sleep(scale.calm_seconds)
        # On a slow machine less was sent until now, so the traffic goes on for a while.
        eventually(lambda: _sent_enough(deployment, scale), 60)
        traffic.end()
        while traffic.busy:
            deployment.sleep(0.1)
    _say("all is acknowledged")
    rest(deployment, traffic, healed + scaled(scale.rest_seconds))
    outcome.rest_seconds = time.monotonic() - healed
    _say(f"at rest after {outcome.rest_seconds:.0f} s")
    for row in _waiting(deployment):
        _say(row[:2000])
    sample = choices.sample(journal.people, min(scale.asked, len(journal.people)))
    traffic.ask_all(sample)
    # A query that was answered 202 is asked again, and clocks go on: what they left ends as well.
    rest(deployment, traffic, time.monotonic() + scaled(scale.rest_seconds))
    with psycopg.connect(deployment.database_url, row_factory=dict_row) as database:
        checker = Checker(database, journal)
        violations = checker.violations()
        outcome.counts = checker.counts
    if outcome.counts["entries"] < scale.entries:
        violations.append(f"fewer than {scale.entries} entries were sent: this shows too little")
    outcome.counts["users"] += len(journal.people)
    outcome.counts["requests"] += journal.requests.total()
    outcome.counts["failed requests"] += journal.failures.total()
    _say(f"checked: {len(violations)} violations {violations[:20]}")
    violations += verified(deployment)
    violations += _judged_again(deployment, sample[: scale.judged])
    return violations


def _sent_enough(deployment: Deployment, scale: Scale) -> bool:
    deployment.tend()
    return sum(1 for _ in deployment.journal.entries()) >= scale.entries


def rest(deployment: Deployment, traffic: Traffic, deadline: float) -> None:
    """Wait until no work is left; the checker reports work that does not end.

    Users whose work pauses because the model failed get another message.
    """
    reminded_at = 0.0
    while time.monotonic() < deadline:
        waiting = [
            one for one in WAITING.values() if deployment.sql(f"SELECT 1 FROM {one} LIMIT 1")
        ]
        if not waiting and not _strays(deployment):
            return
        if waiting and time.monotonic() > reminded_at + 10:
            reminded_at = time.monotonic()
            people = deployment.sql(
                "SELECT w.name, u.user_id FROM memory_lane l JOIN memory_memoryuser u"
                " ON u.id = l.user_id JOIN memory_workspace w ON w.id = u.workspace_id"
                " WHERE l.name = 'structure' AND l.due_at IS NOT NULL"
                " AND l.run_after > now() + interval '3 seconds'"
            )
            traffic.remind([(str(workspace), str(user)) for workspace, user in people])
        deployment.sleep(0.5)


def _waiting(deployment: Deployment) -> list[str]:
    """Return what is still waiting, with its rows, for whoever looks for the cause."""
    return [
        f"{what}: {row}"
        for what, rows in WAITING.items()
        for (row,) in deployment.sql(
            f"SELECT to_jsonb(t)::text FROM (SELECT * FROM {rows}) t LIMIT 5"
        )
    ]


def _strays(deployment: Deployment) -> list[str]:
    """Return the containers whose worker is gone."""
    if deployment.engine is None:
        return []
    alive = {str(process.pid) for process in deployment.processes.values()}
    with deployment.engine.client() as client:
        owners = [one["Labels"].get("uac.sandbox", "") for one in client.api.containers(all=True)]
    return [owner for owner in owners if not alive & set(owner.replace("/", ":").split(":"))]


def verified(deployment: Deployment) -> list[str]:
    """Return the problems that the server's own check reports."""
    try:
        told = deployment.system.manage("verify").rstrip()
    except ProcessFailed as error:
        return [f"manage.py verify: {error}"]
    return [] if told.endswith(" 0 problems") else [f"manage.py verify: {told[-500:]}"]


def _judged_again(deployment: Deployment, people: Sequence[Person]) -> Iterator[str]:
    """Have the whole gate judge the newest versions, as projects of new users."""
    for person in people:
        client = deployment.clients[person.workspace]
        rows = deployment.sql(
            "SELECT f.key, b.content FROM memory_memoryuser u JOIN memory_workspace w"
            " ON w.id = u.workspace_id JOIN memory_checkpoint c ON c.id = u.head_id,"
            " jsonb_each_text(c.tree::jsonb) f JOIN memory_blob b ON b.hash = f.value"
            " WHERE b.user_id = u.id AND w.name = %s AND u.user_id = %s",
            person.workspace,
            person.user_id,
        )
        again = f"again-{person.user_id}"
        client.request("POST", "users/", {"user_id": again})
        path = f"users/{again}/import/?wait=0"
        _, run, _ = client.request("POST", path, {"files": dict(rows)})
        deadline = time.monotonic() + scaled(240)
        while run.get("status") != "done" and "id" in run and time.monotonic() < deadline:
            deployment.sleep(0.3)
            _, run, _ = client.request("GET", f"runs/{run['id']}/")
        if run.get("outcome") != "ok":
            yield f"the newest version of {person.user_id} does not pass the gate: {run}"


def _report(outcome: Outcome) -> None:
    print(f"  {_in_words(outcome.counts)}")
    print(f"  faults: {_in_words(outcome.faults)}")
    print(f"  ended by themselves: {_in_words(outcome.restarts) or 'none'}")
    print(f"  failed requests: {_in_words(outcome.failures) or 'none'}")


def _in_words(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def _say(stage: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {stage}", flush=True)

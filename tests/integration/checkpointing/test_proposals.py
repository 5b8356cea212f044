"""Proposed edits and constraints: what passes the gate, what does not, and that the head stays."""

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.test.utils import override_settings
from rest_framework.test import APIClient

from memory import log
from memory.models import Alert, Checkpoint, EntryOutcome, MemoryUser, Run
from memory.models.alerts import AlertKind, AlertState
from memory.models.log import EntryKind
from memory.models.runs import RunKind, RunTrigger
from memory.operations.verification import problems
from memory.work import runs
from tests.conftest import ENDLESS_AMONG_OTHERS
from tests.integration.checkpointing.conftest import Append, Records, trip
from workers import tasks
from workers.checkpointing import apart, citations, gate, mutants
from workers.checkpointing.findings import Verdict

pytestmark = pytest.mark.django_db

BUDGET = """\
import datetime
from collections.abc import Iterator
from uac import Alert, warning
from domains.travel.state import trips


def check(today: datetime.date) -> Iterator[Alert]:
    \"\"\"A trip must not cost more than 1000.\"\"\"
    for trip in trips:
        if trip.cost > 1000:
            yield warning(f"{trip.to} costs {trip.cost}", evidence=[trip])
"""

BUDGET_TESTS = """\
import datetime
from uac.testing import run_check
from constraints import budget
from domains.travel.schema import Trip

TODAY = datetime.date(2026, 1, 1)


def test_speaks() -> None:
    found = run_check(budget, today=TODAY, trips=[Trip(key="a", to="Rome", cost=1001)])
    assert [alert.evidence[0].key for alert in found] == ["a"]


def test_is_silent() -> None:
    assert run_check(budget, today=TODAY, trips=[Trip(key="a", to="Rome", cost=1000)]) == []
"""

ALL_CHECKS = [
    *("coverage", "edits", "policy", "no loss", "grounding", "types", "execution", "tests"),
    *("constraints", "mutants"),
]

Propose = Callable[..., Run]


@pytest.fixture
def propose(user: MemoryUser) -> Propose:
    """Propose edits and let the gate decide; return the finished run."""

    def do(
        *edits: dict[str, Any],
        considered: Sequence[int] = (),
        trigger: RunTrigger = RunTrigger.API,
        **options: Any,
    ) -> Run:
        user.refresh_from_db()
        run = runs.queue(
            user,
            RunKind.PROPOSAL,
            trigger,
            checkpoint=user.head,
            input={"edits": list(edits), "considered": list(considered), **options},
        )
        tasks.execute_run(str(run.pk))
        run.refresh_from_db()
        user.refresh_from_db()
        return run

    return do


def constraint(source: str = BUDGET, tests: str = BUDGET_TESTS, name: str = "budget") -> Any:
    return {"op": "write_constraint", "name": name, "source": source, "tests_source": tests}


def checks(run: Run) -> dict[str, bool]:
    assert run.output is not None
    return {check["name"]: check["passed"] for check in run.output["verdict"]["checks"]}


def test_a_constraint_that_speaks_and_is_silent_goes_live(
    user: MemoryUser, checkpoint: Append, propose: Propose, work: Callable[[], None]
) -> None:
    checkpoint(trip(key="a", cost=1500), trip("Oslo", key="b", cost=10))

    run = propose(constraint())

    assert run.outcome == "ok"
    assert all(checks(run).values())
    assert list(checks(run)) == ALL_CHECKS
    assert user.head is not None
    assert (user.head.version, user.head.origin) == (2, "proposed")

    work()
    alert = Alert.objects.get(user=user)
    assert (alert.severity, alert.message, alert.entries) == ("warning", "Rome costs 1500", [1])


def test_entries_that_take_long_to_read_refuse_the_proposal_that_cites_them(
    user: MemoryUser, propose: Propose, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given an entry that is slow to read, since nearly everything in it may be a number
    monkeypatch.setattr(apart, "CPU_SECONDS", 1)
    said = log.Draft(kind=EntryKind.FACT, content="1/" * 400_000)
    (entry,) = log.append(user, [said], source="test")
    # When an agent proposes much that cites it
    notes = [
        {"op": "note", "text": f"On May 3 of 1997 we had {number} apples.", "sources": [entry.seq]}
        for number in range(100, 140)
    ]
    run = propose(*notes)
    # Then it is told what to do, and the entry waits
    assert run.outcome == "rejected"
    assert not checks(run)["grounding"]
    assert run.error is not None
    assert "takes more than 1 s: propose fewer edits at a time" in run.error["message"]
    assert log.coverage(user).pending == 1


def test_more_text_than_is_read_for_one_proposal_is_not_read(
    user: MemoryUser, propose: Propose, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts = [log.Draft(kind=EntryKind.FACT, content="tea " * 100) for _ in range(10)]
    cited = [entry.seq for entry in log.append(user, drafts, source="test")]
    monkeypatch.setattr(citations, "MAX_CITED_CHARACTERS", 3999)
    monkeypatch.setattr(citations, "Source", lambda *what: pytest.fail("it was read"))

    run = propose({"op": "note", "text": "Tea.", "sources": cited})

    assert run.outcome == "rejected"
    assert run.error is not None
    assert "have 4,000 characters: at most 3,999 are allowed" in run.error["message"]


def test_an_alert_resolves_when_its_cause_is_gone(
    user: MemoryUser, checkpoint: Append, propose: Propose, work: Callable[[], None]
) -> None:
    checkpoint(trip(key="a", cost=1500))
    propose(constraint())
    work()
    checkpoint({**trip(key="a"), "data": {"cost": 900}})
    work()

    assert Alert.objects.get(user=user).state == AlertState.RESOLVED


def with_lines(*lines: str) -> str:
    """Return the constraint with lines before its loop, which its own tests do not reach."""
    return BUDGET.replace("    for trip", "\n".join([*lines, "    for trip"]))


REFUSED = {
    "a test that fails": (
        constraint(BUDGET.replace("> 1000", "> 2000")),
        "tests",
        "AssertionError",
    ),
    "no test": (constraint(tests="import datetime\n"), "policy", "test_"),
    "a syntax error": (constraint(BUDGET.replace("for trip in", "for trip")), "edits", "line 9"),
    "importing os": (constraint("import os\n" + BUDGET), "policy", "os"),
    "reading the clock": (
        constraint(BUDGET.replace("in trips:", "in trips if datetime.date.today() else []:")),
        "policy",
        "today",
    ),
    "no check": (constraint(BUDGET.replace("def check", "def chek")), "policy", "check"),
    "an unknown name": (
        constraint(BUDGET.replace("import trips", "import voyages as trips")),
        "types",
        "voyages",
    ),
    "raising on the state": (
        constraint(with_lines("    assert len(trips) != 2, 'two'")),
        "constraints",
        "AssertionError: two",
    ),
    "an endless loop on the state": (
        constraint(with_lines("    while len(trips) == 2:", "        pass")),
        "constraints",
        "timeout: took longer than 1.5 s",
    ),
    "a flood on the state": (
        constraint(
            with_lines(
                "    for number in range(101 if len(trips) == 2 else 0):",
                "        yield warning('again', key=str(number))",
            )
        ),
        "constraints",
        "more than 100 alerts at once",
    ),
    "depending on the order of a set": (
        constraint(BUDGET.replace('f"{trip.to} costs', "f\"{list(set('abcdefgh'))} {trip.to}")),
        "constraints",
        "iterated in a different order",
    ),
}


@pytest.mark.parametrize(("edit", "check", "word"), REFUSED.values(), ids=REFUSED.keys())
def test_the_gate_refuses_and_the_head_stays(
    user: MemoryUser,
    checkpoint: Append,
    propose: Propose,
    edit: dict[str, Any],
    check: str,
    word: str,
) -> None:
    checkpoint(trip(key="a", cost=1500), trip("Oslo", key="b", cost=10))
    head = user.head

    with override_settings(**(ENDLESS_AMONG_OTHERS if word.startswith("timeout") else {})):
        run = propose(edit)

    assert run.outcome == "rejected"
    assert [name for name, passed in checks(run).items() if not passed] == [check]
    assert word in str(run.output)
    assert run.error is not None
    assert run.error["message"].startswith(check)
    assert user.head == head
    assert Checkpoint.objects.filter(user=user).count() == 1
    assert not Alert.objects.filter(user=user).exists()


def repairs(run: Run) -> list[tuple[str, int, str]]:
    assert run.output is not None
    (edits,) = [one for one in run.output["verdict"]["checks"] if one["name"] == "edits"]
    found = [one for one in edits["findings"] if one["code"] == "repaired"]
    assert not any(one["blocking"] for one in found)
    return [(one["path"], one["edit"], one["message"].rpartition(" ")[2]) for one in found]


def test_code_that_cannot_run_and_means_one_thing_is_repaired(
    user: MemoryUser, checkpoint: Append, propose: Propose, source_of: Callable[[str], str]
) -> None:
    checkpoint(trip(key="a", cost=1500), trip("Oslo", key="b", cost=10))
    note = {"op": "note", "text": "Rome", "sources": [1]}
    fenced = f"Here is the constraint:\n\n```python\n{BUDGET}```\n"
    tests = BUDGET_TESTS.replace("import datetime\n", "").replace("(2026, 1, 1)", "(2026, 01, 01)")

    run = propose(note, constraint(fenced, textwrap.indent(tests, "    ")))

    assert run.outcome == "ok", run.error
    assert repairs(run) == [
        ("constraints/budget.py", 1, "code_fence"),
        ("tests/test_budget.py", 1, "leading_zeros"),
        ("tests/test_budget.py", 1, "indentation"),
        ("tests/test_budget.py", 1, "missing_imports"),
    ]
    # The judged text is the one that is stored, in the tree and among the edits.
    assert source_of("constraints/budget.py") == BUDGET
    assert source_of("tests/test_budget.py") == BUDGET_TESTS
    assert user.head is not None
    assert user.head.edits[1] == constraint()
    assert run.input["edits"][1]["source"] == fenced


def test_what_is_in_order_is_kept_byte_for_byte(
    user: MemoryUser, checkpoint: Append, propose: Propose, source_of: Callable[[str], str]
) -> None:
    checkpoint(trip(key="a", cost=1500))
    odd = BUDGET.replace("import Iterator\n", "import Iterator   # date(2024, 11, 09) ```\n\n\n\n")

    run = propose(constraint(odd))

    assert (run.outcome, repairs(run)) == ("ok", [])
    assert source_of("constraints/budget.py") == odd


def test_what_no_repair_puts_right_is_refused_by_the_lines_that_were_sent(
    user: MemoryUser, checkpoint: Append, propose: Propose
) -> None:
    checkpoint(trip(key="a", cost=1500))
    broken = BUDGET.replace("for trip in", "for trip")

    run = propose(constraint(f"```python\n{broken}```\n", f"```python\n{BUDGET_TESTS}```\n"))

    assert run.outcome == "rejected"
    assert run.error is not None
    assert "budget.source, line 1:" in run.error["message"]
    assert repairs(run) == [("tests/test_budget.py", 0, "code_fence")]


def test_a_constraint_that_raises_later_is_an_error_on_the_run_and_an_alert_for_the_staff(
    user: MemoryUser, checkpoint: Append, propose: Propose, work: Callable[[], None]
) -> None:
    checkpoint(trip(key="a", cost=1500))
    propose(constraint())
    work()

    # A fact is not refused because a constraint cannot cope with it.
    (seq,) = checkpoint(trip("Oslo", key="b", cost=None))
    work()

    assert EntryOutcome.objects.get(user=user, seq=seq).outcome == "covered"
    run = Run.objects.filter(user=user, kind="constraints").latest("queued_at")
    assert run.outcome == "user_error"
    assert run.error is not None
    assert (run.error["type"], run.error["path"], run.error["line"]) == (
        "TypeError",
        "constraints/budget.py",
        10,
    )
    finding = Alert.objects.get(user=user, kind=AlertKind.FINDING)
    failed = Alert.objects.get(user=user, kind=AlertKind.CONSTRAINT_ERROR)
    assert finding.state == AlertState.OPEN
    assert failed.state == AlertState.OPEN
    assert "line 10" in failed.message

    checkpoint({**trip(key="b"), "data": {"cost": 20}})
    work()
    failed.refresh_from_db()
    assert failed.state == AlertState.RESOLVED


def test_a_broken_old_constraint_does_not_keep_a_new_one_out(
    user: MemoryUser, checkpoint: Append, propose: Propose
) -> None:
    checkpoint(trip(key="a", cost=1500))
    propose(constraint())
    checkpoint(trip("Oslo", key="b", cost=None))

    other = constraint(
        BUDGET.replace("trip.cost > 1000", "trip.to == 'Rome'"),
        BUDGET_TESTS.replace("import budget", "import rome as budget").replace(
            'to="Rome", cost=1000', 'to="Oslo", cost=1000'
        ),
        name="rome",
    )
    assert propose(other).outcome == "ok"


def test_deleting_a_constraint_resolves_its_alerts(
    user: MemoryUser, checkpoint: Append, propose: Propose, work: Callable[[], None]
) -> None:
    checkpoint(trip(key="a", cost=1500))
    propose(constraint())
    work()

    run = propose({"op": "delete_constraint", "name": "budget"})
    work()

    assert run.outcome == "ok"
    assert user.head is not None
    assert "constraints/budget.py" not in user.head.tree
    assert "tests/test_budget.py" not in user.head.tree
    assert Alert.objects.get(user=user).state == AlertState.RESOLVED


def test_edits_cover_the_entries_that_they_cite(
    user: MemoryUser, checkpoint: Append, propose: Propose, fields_of: Records
) -> None:
    drafts = [
        log.Draft(kind=EntryKind.MESSAGE, content="I am allergic to penicillin"),
        log.Draft(kind=EntryKind.MESSAGE, content="Nice weather"),
        log.Draft(kind=EntryKind.MESSAGE, content="My doctor is Dr. Who"),
    ]
    log.append(user, drafts, source="test")

    run = propose(
        {
            "op": "define_class",
            "domain": "health",
            "name": "Gravity",
            "kind": "enum",
            "members": {"MILD": "mild", "SEVERE": "severe"},
        },
        {
            "op": "define_class",
            "domain": "health",
            "name": "Allergy",
            "fields": [
                {"name": "allergen", "type": "str"},
                {"name": "severity", "type": "Gravity | None"},
            ],
        },
        {
            "op": "add",
            "domain": "health",
            "class_name": "Allergy",
            "key": "p",
            "fields": {"allergen": "penicillin", "severity": "severe"},
            "sources": [1],
        },
        {"op": "dismiss", "sources": [2], "reason": "small talk"},
    )

    assert run.outcome == "ok", run.output
    assert fields_of("health.allergies")["p"]["severity"] == {
        "$enum": "Gravity.SEVERE",
        "value": "severe",
    }
    outcomes = EntryOutcome.objects.filter(user=user).order_by("seq")
    assert [(row.seq, row.outcome, row.reason) for row in outcomes] == [
        (1, "covered", ""),
        (2, "dismissed", "small talk"),
    ]
    assert log.coverage(user).pending == 1
    assert list(problems(user)) == []


@pytest.mark.parametrize(
    ("check", "edit", "word"),
    [
        ("coverage", {"op": "note", "text": "x", "sources": [9]}, "entry 9"),
        (
            "edits",
            {"op": "retire", "domain": "travel", "collection": "trips", "key": "z", "sources": [1]},
            "z",
        ),
        (
            "edits",
            {
                "op": "update",
                "domain": "travel",
                "collection": "trips",
                "key": "a",
                "fields": {"cots": 1},
                "sources": [1],
            },
            "cots",
        ),
        ("edits", {"op": "delete_constraint", "name": "nothing"}, "nothing"),
    ],
)
def test_an_edit_that_cannot_be_applied_refuses_all_of_them(
    user: MemoryUser,
    checkpoint: Append,
    propose: Propose,
    fields_of: Records,
    check: str,
    edit: dict[str, Any],
    word: str,
) -> None:
    checkpoint(trip(key="a", cost=1500))

    run = propose({"op": "note", "text": "kept only with the rest", "sources": [1]}, edit)

    assert run.outcome == "rejected"
    assert [name for name, passed in checks(run).items() if not passed] == [check]
    assert word in str(run.error)
    assert user.head is not None
    assert user.head.version == 1
    assert list(fields_of("travel.trips")) == ["a"]


def test_the_first_version_may_come_from_a_proposal(user: MemoryUser, propose: Propose) -> None:
    log.append(user, [log.Draft(kind=EntryKind.MESSAGE, content="x")], source="test")

    run = propose({"op": "note", "text": "x", "sources": [1]})

    assert (run.outcome, user.head and user.head.version) == ("ok", 1)


# -- Of a language model ------------------------------------------------------------------------

ROME = {"op": "note", "text": "wants to see Rome", "sources": [1]}


@pytest.fixture
def said(user: MemoryUser) -> None:
    """Two messages that nobody has settled."""
    drafts = [
        log.Draft(kind=EntryKind.MESSAGE, content=text)
        for text in ("I want to see Rome one day", "Nice weather")
    ]
    log.append(user, drafts, source="test")


@pytest.mark.usefixtures("said")
def test_what_a_model_proposes_is_a_version_of_the_model(
    user: MemoryUser, propose: Propose
) -> None:
    dismiss = {"op": "dismiss", "sources": [2], "reason": "small talk"}

    run = propose(ROME, dismiss, considered=[1, 2], trigger=RunTrigger.MODEL)

    assert (run.outcome, user.head and user.head.origin) == ("ok", "llm")
    assert log.coverage(user).pending == 0


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize(("trigger", "pending"), [(RunTrigger.MODEL, 1), (RunTrigger.API, 0)])
def test_a_model_settles_what_it_was_asked_about_alone(
    user: MemoryUser, propose: Propose, trigger: RunTrigger, pending: int
) -> None:
    # Given two entries, of which one was considered, and edits that cite the other too
    dismiss = {"op": "dismiss", "sources": [2], "reason": "small talk"}

    run = propose(ROME, dismiss, considered=[1], trigger=trigger)

    # Then a model may never have seen the other, which waits for its turn
    assert run.outcome == "ok"
    assert log.coverage(user).pending == pending


def refused_as_settled(run: Run, *seqs: int) -> bool:
    assert run.output is not None
    (coverage,) = run.output["verdict"]["checks"]
    found = [(one["code"], one["entry"]) for one in coverage["findings"]]
    return run.outcome == "rejected" and found == [("already_settled", seq) for seq in seqs]


@pytest.mark.usefixtures("said")
def test_a_model_s_second_try_of_the_same_entries_adds_nothing(
    user: MemoryUser, propose: Propose, fields_of: Records
) -> None:
    propose(ROME, considered=[1], trigger=RunTrigger.MODEL)

    again = propose({**ROME, "sources": [1, 2]}, considered=[1, 2], trigger=RunTrigger.MODEL)

    assert refused_as_settled(again, 1)
    assert again.runner == ""  # nothing was executed for it
    assert list(fields_of("notes.notes")) == ["note-1"]
    assert log.coverage(user).pending == 1
    # Other authors may cite settled entries, and say that they considered them.
    assert propose(ROME, considered=[1]).outcome == "ok"


@pytest.mark.usefixtures("said")
def test_of_two_tries_at_a_time_the_second_adds_nothing(
    user: MemoryUser, propose: Propose, fields_of: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = gate.judge

    def overtaken(*args: Any, **options: Any) -> Verdict:
        monkeypatch.setattr(gate, "judge", judge)
        assert propose(ROME, considered=[1], trigger=RunTrigger.MODEL).outcome == "ok"
        return judge(*args, **options)

    monkeypatch.setattr(gate, "judge", overtaken)

    run = propose(ROME, considered=[1], trigger=RunTrigger.MODEL)

    assert refused_as_settled(run, 1)
    assert run.runner != ""  # it had passed the gate by then
    assert user.head is not None
    assert user.head.version == 1
    assert list(fields_of("notes.notes")) == ["note-1"]


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize("trigger", [RunTrigger.API, RunTrigger.MODEL])
def test_a_dry_run_is_judged_and_leaves_nothing(
    user: MemoryUser, propose: Propose, trigger: RunTrigger
) -> None:
    good = propose(ROME, considered=[1], trigger=trigger, dry_run=True)
    bad = propose(
        {**ROME, "text": "wants to see 7 towns"}, considered=[1], trigger=trigger, dry_run=True
    )

    assert (good.outcome, good.error) == ("ok", None)
    assert good.output is not None
    assert (good.output["version"], good.output["verdict"]["accepted"]) == (None, True)
    assert "execution" in checks(good)
    assert (bad.outcome, checks(bad)["grounding"]) == ("rejected", False)
    assert user.head is None
    assert log.coverage(user).pending == 2
    assert propose(ROME, considered=[1], trigger=trigger).outcome == "ok"


# -- Through the API ----------------------------------------------------------------------------


def test_the_api_refuses_malformed_edits_by_their_place(api: APIClient, user: MemoryUser) -> None:
    response = api.post(
        "/v1/users/ada/checkpoints/",
        {"edits": [{"op": "dismiss", "sources": [1], "reason": "x"}, {"op": "explode"}]},
    )

    assert response.status_code == 400
    assert "edits[1]" in str(response.data["errors"])
    assert not Run.objects.exists()


def test_the_api_answers_202_with_the_run_and_then_its_verdict(
    api: APIClient, user: MemoryUser, checkpoint: Append, work: Callable[[], None]
) -> None:
    checkpoint(trip(key="a", cost=1500))

    response = api.put(
        "/v1/users/ada/constraints/budget/?wait=0", {"source": BUDGET, "tests": BUDGET_TESTS}
    )
    assert response.status_code == 202
    work()

    run = api.get(f"/v1/runs/{response.data['id']}/").data
    assert (run["status"], run["outcome"], run["output"]["version"]) == ("done", "ok", 2)
    listed = api.get("/v1/users/ada/constraints/").data["results"]
    assert listed == [
        {
            "name": "budget",
            "path": "constraints/budget.py",
            "summary": "A trip must not cost more than 1000.",
            "applies": True,
            "reasons": [],
            "notes": [],
            "feedback": {"useful": 0, "wrong": 0, "precision": None},
            "paused": None,
            "failing": None,
        }
    ]
    assert api.get("/v1/users/ada/constraints/budget/").data["tests"] == BUDGET_TESTS


def test_the_api_takes_code_that_can_be_repaired(
    api: APIClient,
    user: MemoryUser,
    checkpoint: Append,
    work: Callable[[], None],
) -> None:
    checkpoint(trip(key="a", cost=1500))
    body = {
        "source": f"```python\n{BUDGET}```",
        "tests": textwrap.indent(BUDGET_TESTS, "    "),
    }

    response = api.put("/v1/users/ada/constraints/budget/?wait=0", body)
    work()

    assert response.status_code == 202
    run = Run.objects.get(pk=response.data["id"])
    assert [name for _, _, name in repairs(run)] == ["code_fence", "indentation"]
    kept = api.get("/v1/users/ada/constraints/budget/").data
    assert (kept["source"], kept["tests"]) == (BUDGET, BUDGET_TESTS)


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("budget", {"source": BUDGET}, "tests"),
        ("budget", {"source": BUDGET, "tests": "", "x": 1}, "x"),
        ("class", {"source": BUDGET, "tests": BUDGET_TESTS}, "name"),
        ("a b", {"source": BUDGET, "tests": BUDGET_TESTS}, "name"),
        ("budget", {"source": "x" * 70_000, "tests": BUDGET_TESTS}, "source"),
    ],
)
def test_the_api_refuses_a_malformed_constraint(
    api: APIClient, user: MemoryUser, name: str, body: dict[str, Any], field: str
) -> None:
    response = api.put(f"/v1/users/ada/constraints/{name}/", body)

    assert response.status_code == 400
    assert list(response.data["errors"]) == [field]
    assert not Run.objects.exists()


def test_the_api_reads_versions_and_their_files(
    api: APIClient, user: MemoryUser, checkpoint: Append
) -> None:
    checkpoint(trip(key="a", cost=1500))
    checkpoint(trip(key="b", cost=1600))

    listed = api.get("/v1/users/ada/checkpoints/").data["results"]
    assert [row["version"] for row in listed] == [2, 1]
    version = api.get("/v1/users/ada/checkpoints/1/").data
    assert version["verdict"]["accepted"]
    assert "domains/travel/state.py" in version["files"]
    source = api.get("/v1/users/ada/checkpoints/1/files/domains/travel/state.py").data["source"]
    assert 'key="a"' in source
    assert 'key="b"' not in source
    assert api.get("/v1/users/ada/checkpoints/1/files/etc/passwd").status_code == 404
    assert api.get("/v1/users/ada/checkpoints/9/").status_code == 404


def test_the_api_reads_state_and_manifest(
    api: APIClient, user: MemoryUser, checkpoint: Append
) -> None:
    empty: dict[str, Any] = {"version": None, "as_of": None, "domains": {}}
    assert api.get("/v1/users/ada/state/").data == empty
    checkpoint(trip(key="a", cost=1500))

    state = api.get("/v1/users/ada/state/").data
    assert state["domains"]["travel"]["collections"] == {"trips": {"class": "Trip", "count": 1}}
    assert state["domains"]["travel"]["classes"] == {"Trip": {"to": "str", "cost": "int"}}
    page = api.get("/v1/users/ada/state/travel/trips/").data
    assert (page["count"], page["next"]) == (1, None)
    assert page["records"][0] == {
        "$record": "Trip",
        "key": "a",
        "sources": [1],
        "fields": {"to": "Rome", "cost": 1500},
    }
    assert "trips: 1 Trip(to, cost:int)" in api.get("/v1/users/ada/manifest/").data["text"]
    assert api.get("/v1/users/ada/state/travel/voyages/").status_code == 404
    assert api.get("/v1/users/ada/state/travel/trips/?page=2").status_code == 404
    assert api.get("/v1/users/ada/state/travel/trips/?page=x").status_code == 400


FIRST_HALF = BUDGET.replace("> 1000:", "> 1000 and today < datetime.date(2026, 6, 1):")
TO_THE_DAY = (
    BUDGET_TESTS
    + """

def test_stops_on_the_day() -> None:
    trip = Trip(key="a", to="Rome", cost=1001)
    assert run_check(budget, today=datetime.date(2026, 5, 31), trips=[trip])
    assert run_check(budget, today=datetime.date(2026, 6, 1), trips=[trip]) == []
"""
)


def unnoticed(run: Run) -> list[tuple[int, bool]]:
    assert run.output is not None
    return [
        (finding["line"], finding["blocking"])
        for check in run.output["verdict"]["checks"]
        for finding in check["findings"]
        if finding["code"] == "boundary_unnoticed"
    ]


def test_a_boundary_refuses_a_models_constraint_once(checkpoint: Append, propose: Propose) -> None:
    checkpoint(trip(key="a", cost=10))
    rule = {**constraint(FIRST_HALF), "sources": [1]}
    tests = BUDGET_TESTS.replace("budget", "costs")
    other = {**constraint(FIRST_HALF, tests, name="costs"), "sources": [1]}

    refused = propose(rule, trigger=RunTrigger.MODEL, dry_run=True)
    again = propose(rule, trigger=RunTrigger.MODEL)
    first = propose(other, trigger=RunTrigger.MODEL)
    # If something of a user is redacted, earlier runs are emptied
    Run.objects.filter(pk=first.pk).update(output=None)
    anew = propose(other, trigger=RunTrigger.MODEL)

    assert refused.outcome == first.outcome == anew.outcome == "rejected"
    assert set(unnoticed(refused)) == {(10, True)}
    assert again.outcome == "ok"
    assert set(unnoticed(again)) == {(10, False)}


def test_it_is_said_how_many_boundaries_are_not_told(
    checkpoint: Append, propose: Propose, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given four boundaries that no test notices, and room for three
    checkpoint(trip(key="a", cost=10))
    many = BUDGET.replace(
        "> 1000:", "> 1000 and today.day < 28 and today.month <= 11 and today.year >= 2000:"
    )
    monkeypatch.setattr(mutants, "MAX_BOUNDARIES_TOLD", 99)
    told = propose({**constraint(many), "sources": [1]}, dry_run=True)
    monkeypatch.setattr(mutants, "MAX_BOUNDARIES_TOLD", 3)
    run = propose({**constraint(many), "sources": [1]}, dry_run=True)
    # Then these are told, and how many others there are
    assert len(unnoticed(told)) > 3
    assert run.output is not None
    messages = [
        finding["message"]
        for check in run.output["verdict"]["checks"]
        for finding in check["findings"]
        if finding["code"] == "boundary_unnoticed"
    ]
    assert len(messages) == 3
    assert messages[-1].endswith(f"; {len(unnoticed(told)) - 3} more are not shown")
    assert "more" not in "".join(messages[:-1])


def test_a_test_of_that_very_day_is_all_that_is_asked_for(
    checkpoint: Append, propose: Propose
) -> None:
    checkpoint(trip(key="a", cost=10))

    run = propose({**constraint(FIRST_HALF, TO_THE_DAY), "sources": [1]}, trigger=RunTrigger.MODEL)

    assert run.outcome == "ok", run.error
    assert unnoticed(run) == []


def test_endless_mutants_do_not_hold_up_the_gate(
    checkpoint: Append, propose: Propose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "BOUNDARY_WALL_SECONDS", 0.5)
    checkpoint(trip(key="a", cost=10))
    loops = with_lines("    left = 2", "    while left > 0 and today:", "        left = left - 1")

    run = propose({**constraint(loops), "sources": [1]}, trigger=RunTrigger.MODEL)

    assert run.outcome in ("ok", "rejected")
    assert run.output is not None
    assert run.output["verdict"]["checks"][-1]["name"] == "mutants"

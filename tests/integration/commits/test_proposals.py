"""Proposed edits and constraints: what passes the gate, what does not, and that the head stays."""

import textwrap
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.alerts.models.alerts import Alert, AlertKind, AlertState
from memory.kernel.models.users import MemoryUser
from memory.log import entry_log
from memory.log.models.entries import EntryOutcome
from memory.operations.verification import problems
from memory.versions.models.runs import Run, RunTrigger
from tests.edits import add, define, dismiss, note, retire, update
from tests.integration.commits.conftest import (
    BUDGET,
    BUDGET_TESTS,
    Append,
    Propose,
    Records,
    Say,
    Source,
    Work,
    checks,
    constraint,
    failed_checks,
    findings,
    repairs,
    trip,
    with_lines,
)
from tests.steps import append_texts, head_of, not_none
from workers.findings import Verdict
from workers.gate import checks as gate
from workers.gate import cited_entries, constraint_mutants
from workers.grounding import separate_process

pytestmark = pytest.mark.django_db

ALL_CHECKS = [
    *("coverage", "edits", "policy", "no loss", "grounding", "types", "execution", "tests"),
    *("constraints", "mutants"),
]


def test_a_constraint_that_speaks_and_is_silent_goes_live(
    user: MemoryUser, checkpoint: Append, propose: Propose, work: Work
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
    user: MemoryUser, say: Say, propose: Propose, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given an entry that is slow to read, since nearly everything in it may be a number
    monkeypatch.setattr(separate_process, "CPU_SECONDS", 1)
    (slow,) = say("1/" * 400_000)
    # When an agent proposes much that cites it
    apples = [f"On May 3 of 1997 we had {number} apples." for number in range(100, 140)]
    run = propose(*(note(text, slow) for text in apples))
    # Then it is told what to do, and the entry waits
    assert run.outcome == "rejected"
    assert not checks(run)["grounding"]
    assert "takes more than 1 s: propose fewer edits at a time" in not_none(run.error)["message"]
    assert entry_log.coverage(user).pending == 1


def test_more_text_than_is_read_for_one_proposal_is_not_read(
    say: Say, propose: Propose, monkeypatch: pytest.MonkeyPatch
) -> None:
    cited = say(*["tea " * 100] * 10)
    monkeypatch.setattr(cited_entries, "MAX_CITED_CHARACTERS", 3999)
    monkeypatch.setattr(cited_entries, "Source", lambda *what: pytest.fail("it was read"))

    run = propose({"op": "note", "text": "Tea.", "sources": cited})

    assert run.outcome == "rejected"
    assert "have 4,000 characters: at most 3,999 are allowed" in not_none(run.error)["message"]


def test_an_alert_resolves_when_its_cause_is_gone(
    user: MemoryUser, checkpoint: Append, propose: Propose, work: Work
) -> None:
    checkpoint(trip(key="a", cost=1500))
    propose(constraint())
    work()
    checkpoint({**trip(key="a"), "data": {"cost": 900}})
    work()

    assert Alert.objects.get(user=user).state == AlertState.RESOLVED


def test_code_that_cannot_run_and_means_one_thing_is_repaired(
    user: MemoryUser, checkpoint: Append, propose: Propose, source_of: Source
) -> None:
    checkpoint(trip(key="a", cost=1500), trip("Oslo", key="b", cost=10))
    note = {"op": "note", "text": "Rome", "sources": [1]}
    fenced = f"Here is the constraint:\n\n```python\n{BUDGET}```\n"
    tests = BUDGET_TESTS.replace("import datetime\n", "").replace("(2026, 1, 1)", "(2026, 01, 01)")

    run = propose(note, constraint(fenced, textwrap.indent(tests, "    ")))

    assert run.outcome == "ok", run.error
    assert repairs(run) == [
        ("constraints/budget.py", 1, "surroundings"),
        ("tests/test_budget.py", 1, "surroundings"),
        ("tests/test_budget.py", 1, "leading_zeros"),
        ("tests/test_budget.py", 1, "missing_imports"),
    ]
    # The judged text is the one that is stored, in the tree and among the edits.
    assert source_of("constraints/budget.py") == BUDGET
    assert source_of("tests/test_budget.py") == BUDGET_TESTS
    assert head_of(user).edits[1] == constraint()
    assert run.input["edits"][1]["source"] == fenced


def test_sound_code_is_kept_byte_for_byte(
    checkpoint: Append, propose: Propose, source_of: Source
) -> None:
    checkpoint(trip(key="a", cost=1500))
    odd = BUDGET.replace("import Iterator\n", "import Iterator   # date(2024, 11, 09) ```\n\n\n\n")

    run = propose(constraint(odd))

    assert (run.outcome, repairs(run)) == ("ok", [])
    assert source_of("constraints/budget.py") == odd


def test_unrepairable_code_is_refused_by_its_lines(checkpoint: Append, propose: Propose) -> None:
    checkpoint(trip(key="a", cost=1500))
    broken = BUDGET.replace("for trip in", "for trip")

    run = propose(constraint(f"```python\n{broken}```\n", f"```python\n{BUDGET_TESTS}```\n"))

    assert run.outcome == "rejected"
    assert "budget.source, line 1:" in not_none(run.error)["message"]
    assert repairs(run) == [("tests/test_budget.py", 0, "surroundings")]


def test_a_constraint_that_raises_later_is_an_error_on_the_run_and_an_alert_for_the_staff(
    user: MemoryUser, checkpoint: Append, propose: Propose, work: Work
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


def test_broken_old_constraint_admits_a_new_one(checkpoint: Append, propose: Propose) -> None:
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
    user: MemoryUser, checkpoint: Append, propose: Propose, work: Work
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
    append_texts(user, "I am allergic to penicillin", "Nice weather", "My doctor is Dr. Who")

    run = propose(
        {
            "op": "define_class",
            "domain": "health",
            "name": "Gravity",
            "kind": "enum",
            "members": {"MILD": "mild", "SEVERE": "severe"},
        },
        define("health.Allergy", allergen="str", severity="Gravity | None"),
        add("health.Allergy", 1, key="p", allergen="penicillin", severity="severe"),
        dismiss(2),
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
    assert entry_log.coverage(user).pending == 1
    assert list(problems(user)) == []


@pytest.mark.parametrize(
    ("check", "edit", "word"),
    [
        ("coverage", {"op": "note", "text": "x", "sources": [9]}, "entry 9"),
        ("edits", retire("travel.trips.z", 1), "z"),
        ("edits", update("travel.trips.a", 1, cots=1), "cots"),
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
    assert failed_checks(run) == [check]
    assert word in str(run.error)
    assert head_of(user).version == 1
    assert list(fields_of("travel.trips")) == ["a"]


def test_the_first_version_may_come_from_a_proposal(user: MemoryUser, propose: Propose) -> None:
    append_texts(user, "x")

    run = propose({"op": "note", "text": "x", "sources": [1]})

    assert (run.outcome, user.head and user.head.version) == ("ok", 1)


# -- Of a language model ------------------------------------------------------------------------

ROME = {"op": "note", "text": "wants to see Rome", "sources": [1]}


@pytest.fixture
def said(user: MemoryUser) -> None:
    """Two messages that nobody has settled."""
    append_texts(user, "I want to see Rome one day", "Nice weather")


@pytest.mark.usefixtures("said")
def test_accepted_proposal_of_a_model_has_origin_llm(user: MemoryUser, propose: Propose) -> None:
    run = propose(ROME, dismiss(2), considered=[1, 2], trigger=RunTrigger.MODEL)

    assert (run.outcome, user.head and user.head.origin) == ("ok", "llm")
    assert entry_log.coverage(user).pending == 0


@pytest.mark.usefixtures("said")
@pytest.mark.parametrize(("trigger", "pending"), [(RunTrigger.MODEL, 1), (RunTrigger.API, 0)])
def test_a_model_settles_what_it_was_asked_about_alone(
    user: MemoryUser, propose: Propose, trigger: RunTrigger, pending: int
) -> None:
    # Given two entries, of which one was considered, and edits that cite the other too
    run = propose(ROME, dismiss(2), considered=[1], trigger=trigger)

    # Then a model may never have seen the other, which waits for its turn
    assert run.outcome == "ok"
    assert entry_log.coverage(user).pending == pending


def refused_as_settled(run: Run, *seqs: int) -> bool:
    (coverage,) = not_none(run.output)["verdict"]["checks"]
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
    assert entry_log.coverage(user).pending == 1
    # Other authors may cite settled entries, and say that they considered them.
    assert propose(ROME, considered=[1]).outcome == "ok"


@pytest.mark.usefixtures("said")
def test_second_of_two_concurrent_tries_adds_nothing(
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
    assert head_of(user).version == 1
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
    assert entry_log.coverage(user).pending == 2
    assert propose(ROME, considered=[1], trigger=trigger).outcome == "ok"


# -- Through the API ----------------------------------------------------------------------------


def test_api_returns_run_and_then_verdict(api: APIClient, checkpoint: Append, work: Work) -> None:
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


def test_the_api_reads_state_and_manifest(api: APIClient, checkpoint: Append) -> None:
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


def unnoticed(run: Run) -> list[tuple[int, bool]]:
    return [(one["line"], one["blocking"]) for one in findings(run, "boundary_unnoticed")]


def test_a_boundary_refuses_a_models_constraint_once(checkpoint: Append, propose: Propose) -> None:
    checkpoint(trip(key="a", cost=10))
    rule = {**constraint(FIRST_HALF), "sources": [1]}
    tests = BUDGET_TESTS.replace("budget", "costs")
    other = {**constraint(FIRST_HALF, tests, name="costs"), "sources": [1]}

    refused = propose(rule, trigger=RunTrigger.MODEL, dry_run=True)
    again = propose(rule, trigger=RunTrigger.MODEL)
    first = propose(other, trigger=RunTrigger.MODEL)
    # If something of a user is redacted, earlier runs are emptied
    Run.objects.filter(pk=first.pk).update(output=None, test_gaps=[])
    anew = propose(other, trigger=RunTrigger.MODEL)

    assert refused.outcome == first.outcome == anew.outcome == "rejected"
    assert set(unnoticed(refused)) == {(10, True)}
    assert again.outcome == "ok"
    assert set(unnoticed(again)) == {(10, False)}


def test_test_of_the_boundary_day_suffices(checkpoint: Append, propose: Propose) -> None:
    checkpoint(trip(key="a", cost=10))

    run = propose({**constraint(FIRST_HALF, TO_THE_DAY), "sources": [1]}, trigger=RunTrigger.MODEL)

    assert run.outcome == "ok", run.error
    assert unnoticed(run) == []


def test_endless_mutants_do_not_hold_up_the_gate(
    checkpoint: Append, propose: Propose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constraint_mutants, "BOUNDARY_WALL_SECONDS", 0.5)
    checkpoint(trip(key="a", cost=10))
    loops = with_lines("    left = 2", "    while left > 0 and today:", "        left = left - 1")

    run = propose({**constraint(loops), "sources": [1]}, trigger=RunTrigger.MODEL)

    assert run.outcome in ("ok", "rejected")
    assert not_none(run.output)["verdict"]["checks"][-1]["name"] == "mutants"

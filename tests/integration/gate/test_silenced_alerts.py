"""A model cannot change what it cannot show: values, critical alerts, rules."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from benchmarks.weak_state import DRUG as ALLERGY
from memory.alerts import alert_actions
from memory.alerts.models.alerts import Alert, AlertEvent, AlertEventKind, AlertState
from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryKind
from memory.versions.models.runs import Run, RunTrigger
from tests.constraints import make_rule
from tests.edits import add, retire, update
from tests.integration.commits.conftest import (
    BUDGET,
    BUDGET_TESTS,
    Append,
    Propose,
    Records,
    Work,
    constraint,
    trip,
)
from tests.integration.commits.conftest import findings as all_findings
from tests.steps import append_texts, head_of
from tests.steps import propose as propose_edits
from workers.gate import cited_entries, silenced_alerts

pytestmark = pytest.mark.django_db

ALLERGY_TESTS = """\
import datetime
from constraints import drug_allergy
from domains.health.schema import Allergy, Clearance, Medication
from uac.testing import run_check

DAY = datetime.date(2026, 1, 1)
DRUG = Medication(key="m", name="Amoxicillin", drug_class="penicillin")
ALLERGY = Allergy(key="a", allergen="penicillin", drug_class="penicillin")


def test_speaks() -> None:
    found = run_check(drug_allergy, today=DAY, medications=[DRUG], allergies=[ALLERGY])
    assert [alert.severity for alert in found] == ["critical"]


def test_is_silent() -> None:
    assert run_check(drug_allergy, today=DAY, medications=[DRUG]) == []
    cleared = Clearance(key="c", doctor="Who", drug_class="penicillin")
    found = run_check(
        drug_allergy, today=DAY, medications=[DRUG], allergies=[ALLERGY], clearances=[cleared]
    )
    assert found == []
"""
JAZZ = "Paul likes jazz and cooks pasta"
WHERE = {"domain": "health", "collection": "allergies", "key": "pen"}
PEN = {"record": WHERE}


Say = Callable[[str], int]


def health(kind: str, key: str, **data: Any) -> dict[str, Any]:
    return {"domain": "health", "type": kind, "key": key, "data": data}


@pytest.fixture
def propose(user: MemoryUser) -> Propose:
    """Propose edits as a language model does, unless told otherwise."""
    return functools.partial(propose_edits, user, trigger=RunTrigger.MODEL)


@pytest.fixture
def allergy(user: MemoryUser, checkpoint: Append, propose: Propose, work: Work) -> Alert:
    """A drug that conflicts with an allergy, and its critical alert."""
    checkpoint(
        health("Allergy", "pen", allergen="penicillin", drug_class="penicillin", person="Paul"),
        health("Allergy", "nuts", allergen="peanuts", drug_class=None, person=None),
        health("Medication", "amox", name="Amoxicillin", drug_class="penicillin"),
        health("Clearance", "old", doctor="Dr. Who", drug_class="sulfa"),
    )
    run = propose(constraint(ALLERGY, ALLERGY_TESTS, "drug_allergy"), trigger=RunTrigger.API)
    assert run.outcome == "ok", run.error
    work()
    alert = Alert.objects.get(user=user)
    assert (alert.severity, alert.state) == ("critical", AlertState.OPEN)
    return alert


@pytest.fixture
def say(user: MemoryUser) -> Say:
    """Append a fact that nobody has settled; return its seq."""
    return lambda text: append_texts(user, text, kind=EntryKind.FACT)[0]


def findings(run: Run, *, blocking: bool = True) -> list[dict[str, Any]]:
    return [one for one in all_findings(run) if one["blocking"] is blocking]


def is_open(alert: Alert) -> bool:
    alert.refresh_from_db()
    return alert.state == AlertState.OPEN


# Updates


def test_update_that_no_cited_entry_speaks_of_is_refused(
    allergy: Alert, say: Say, propose: Propose, fields_of: Records, work: Work
) -> None:
    # Given a critical alert about penicillin, and an entry about something else
    jazz = say(JAZZ)
    # When a model changes the class of the allergy on it
    run = propose(update("health.allergies.pen", jazz, drug_class="nsaid"), considered=[jazz])
    work()
    # Then it is refused, with what to mend, and the alert stays
    (finding,) = findings(run)
    assert finding["code"] == "ungrounded_update"
    assert (finding["record"], finding["field"]) == (WHERE, "drug_class")
    assert finding["entry"] == jazz
    assert "cite the entry that supports the change" in finding["fix"]
    assert fields_of("health.allergies")["pen"]["drug_class"] == "penicillin"
    assert is_open(allergy)


def test_rename_hides_no_value(allergy: Alert, say: Say, propose: Propose) -> None:
    # Given a model that moves a value to another field, and leaves nothing in its place
    jazz = say(JAZZ)
    where = {"domain": "health", "class_name": "Allergy", "sources": [jazz]}
    rename = {"op": "rename_field", **where, "name": "drug_class", "new_name": "group"}
    anew = {"op": "add_field", **where, "name": "drug_class", "type": "str | None"}
    run = propose(rename, {**anew, "default": None})
    # Then this is a change of the value
    assert ("ungrounded_update", "drug_class") in {
        (one["code"], one["field"]) for one in findings(run)
    }


def test_rename_without_a_reason_is_refused(
    allergy: Alert, say: Say, propose: Propose, fields_of: Records
) -> None:
    # Given entries about something else, about the record, and with the new name
    jazz, pills, kin = map(say, (JAZZ, "I threw my penicillin away", "She is a relative of mine"))
    where = {"domain": "health", "class_name": "Allergy", "name": "person"}
    rename = {"op": "rename_field", **where, "new_name": "relative"}
    # When a model renames a field and cites the first one
    run = propose({**rename, "sources": [jazz]})
    # Then it is refused, and the record stays as it is
    (finding,) = findings(run)
    assert (finding["code"], finding["field"], finding["entry"]) == (
        "unexplained_rename",
        "person",
        jazz,
    )
    assert fields_of("health.allergies")["pen"]["person"] == "Paul"
    # And with either of the others it is not
    assert propose({**rename, "sources": [pills]}).outcome == "ok"
    back = {**rename, "name": "relative", "new_name": "person"}
    assert propose({**back, "sources": [pills]}).outcome == "ok"
    assert propose({**rename, "sources": [kin]}).outcome == "ok"


def test_new_field_may_get_any_name(allergy: Alert, say: Say, propose: Propose) -> None:
    # Given a model that defines a class, and has second thoughts on the name of a field
    where = {"domain": "music", "sources": [say(JAZZ)]}
    field = {"name": "tune", "type": "str"}
    define = {"op": "define_class", **where, "name": "Taste", "fields": [field]}
    rename = {"op": "rename_field", **where, "class_name": "Taste"}
    likes = {"op": "add", **where, "class_name": "Taste", "key": "jazz", "fields": {"ilk": "jazz"}}
    # Then it needs no reason
    run = propose(define, {**rename, "name": "tune", "new_name": "ilk"}, likes)
    assert run.outcome == "ok", run.error
    # But a field with records gets no new name in two steps either
    where |= {"domain": "health", "class_name": "Allergy"}
    steps = [("person", "jazz"), ("jazz", "group")]
    twice = propose(
        *({"op": "rename_field", **where, "name": name, "new_name": new} for name, new in steps)
    )
    assert [(one["code"], one["field"]) for one in findings(twice)] == [
        ("unexplained_rename", "jazz")
    ]


def test_nested_field_name_hides_no_value(say: Say, propose: Propose) -> None:
    # Given a record that holds an address, which is a class of its own
    lives = say("Ada lives in Elm Street")
    where = {"domain": "people", "sources": [lives]}
    street = {"name": "street", "type": "str | None", "default": None}
    home = {"name": "home", "type": "Address"}
    made = propose(
        {"op": "define_class", **where, "name": "Address", "fields": [street], "kind": "object"},
        {"op": "define_class", **where, "name": "Person", "fields": [home]},
        add("people.Person", lives, key="ada", home={"street": "Elm Street"}),
    )
    assert made.outcome == "ok", made.error
    rename = {"op": "rename_field", **where, "class_name": "Address"}
    jazz = say(JAZZ)
    # When the street gets another name, and another field its name
    anew = {"op": "add_field", **where, "class_name": "Address", "name": "street"}
    hidden = propose(
        {**rename, "name": "street", "new_name": "road"},
        {**anew, "type": "str | None", "default": None, "sources": [jazz]},
    )
    renamed = propose({**rename, "name": "street", "new_name": "road"})
    # Then the one is a change of a value, and the other is none
    assert {one["code"] for one in findings(hidden)} == {"ungrounded_update"}
    assert renamed.outcome == "ok", renamed.error


def test_record_told_anew_keeps_its_values(allergy: Alert, say: Say, propose: Propose) -> None:
    # Given a record that takes the place of another, with another value
    jazz = say(JAZZ)
    gone = retire("health.allergies.pen", jazz)
    told = {"allergen": "penicillin", "drug_class": "nsaid", "person": "Paul"}
    new = add("health.Allergy", jazz, 1, key="new", **told)
    run = propose(gone, new)
    # Then this is an update
    assert ("ungrounded_update", "drug_class") in {
        (one["code"], one["field"]) for one in findings(run)
    }
    # And one with the same values is none
    same = {**new, "fields": {**told, "drug_class": "penicillin"}}
    assert propose(gone, same, dry_run=True, trigger=RunTrigger.API).outcome == "ok"


# Critical alerts


def clearance(*sources: int) -> dict[str, Any]:
    fields = {"doctor": "Dr. Who", "drug_class": "penicillin"}
    return add("health.Clearance", *sources, key="new", **fields)


def test_critical_alert_is_held_until_an_entry_speaks_of_its_evidence(
    allergy: Alert, say: Say, propose: Propose, work: Work
) -> None:
    # Given a record that silences it, of which the entry says something, and not of the drug
    said = say("Dr. Who has given his clearance for jazz")
    run = propose(clearance(said), considered=[said])
    work()
    # Then it is refused, and the alert stays open; its history says so
    (finding,) = findings(run)
    assert finding["code"] == "critical_alert_held"
    assert finding["path"] == "constraints/drug_allergy.py"
    assert finding["fingerprint"] == allergy.fingerprint
    assert "health.allergies.pen" in finding["message"]
    assert is_open(allergy)
    held = AlertEvent.objects.filter(alert=allergy, detail__has_key="held")
    assert held.count() == 1
    # And told once, however often it is tried
    propose(clearance(said), considered=[said])
    assert held.count() == 1


SLEEPLESS = make_rule(
    "sleepless",
    "health.Medication",
    'medication.drug_class == "caffeine"',
    "{medication.name} keeps awake",
    fires='name="Tea", drug_class="caffeine"',
    silent='name="Amoxicillin", drug_class="penicillin"',
    severity="info",
)


def test_code_that_comes_with_the_edits_cannot_forge_the_findings_of_other_constraints(
    allergy: Alert, say: Say, propose: Propose, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given code that, wherever it is loaded, reports what was found before
    find, before = silenced_alerts._find, list[silenced_alerts.FindingsByFingerprint]()

    def forged(
        candidate: silenced_alerts.ModelChange,
        sandbox: Any,
        bindings: Any = None,
        paths: Sequence[str] | None = None,
    ) -> silenced_alerts.FindingsByFingerprint:
        found = find(candidate, sandbox, bindings, paths)
        before.append(found)
        if sandbox is not candidate.sandbox:
            return found
        forgeries = before[0].items()
        return {name: one for name, one in forgeries if paths is None or one.constraint in paths}

    monkeypatch.setattr(silenced_alerts, "_find", forged)
    # When a model sends it with an edit that silences an alert
    said = say("Dr. Who has given his clearance for jazz")
    run = propose(clearance(said), constraint(SLEEPLESS["source"], SLEEPLESS["tests"], "sleepless"))
    # Then the alert is held
    assert "critical_alert_held" in {finding["code"] for finding in findings(run)}


def test_critical_alert_resolves_by_an_entry_that_speaks_of_its_evidence(
    user: MemoryUser, allergy: Alert, say: Say, propose: Propose, work: Work
) -> None:
    said = say("Dr. Who has cleared penicillin for Paul")
    run = propose(clearance(said), considered=[said])
    work()
    # Then the checkpoint says so, and the alert's history
    (finding,) = findings(run, blocking=False)
    assert (finding["code"], finding["entry"]) == ("critical_alert_resolves", said)
    assert finding["fingerprint"] in str(head_of(user).verdict)
    assert not is_open(allergy)
    event = AlertEvent.objects.get(alert=allergy, kind=AlertEventKind.RESOLVED)
    assert event.detail["reason"].startswith(
        "no longer reported: by the language model's version 3"
    )
    assert f"entry {said}" in event.detail["reason"]


def test_api_proposals_may_silence_alerts(
    allergy: Alert, say: Say, propose: Propose, checkpoint: Append, work: Work
) -> None:
    said = say("Dr. Who has given his clearance for jazz")
    # Given what a product's own agent proposes, or a typed entry
    assert propose(clearance(said), dry_run=True, trigger=RunTrigger.API).outcome == "ok"
    checkpoint(health("Allergy", "pen", drug_class="nsaid"))
    work()
    # Then nothing is held
    assert not is_open(allergy)


def test_alert_resolved_by_hand_is_not_held(allergy: Alert, say: Say, propose: Propose) -> None:
    alert_actions.resolve(allergy, actor="staff", reason="known")
    said = say("Dr. Who has given his clearance for jazz")
    assert propose(clearance(said)).outcome == "ok"


# Rules


def rule(source: str = BUDGET, tests: str = BUDGET_TESTS, *sources: int) -> dict[str, Any]:
    return {**constraint(source, tests), "sources": list(sources)}


WEAKER = BUDGET.replace("> 1000", "> 2000"), BUDGET_TESTS.replace("cost=1001", "cost=2001")
HARDLY = BUDGET.replace("> 1000", "> 1100")
MILDER = BUDGET.replace("warning", "info")
CASE = "\n\ndef test_case() -> None:\n    assert run_check(budget, today=TODAY) == []\n"


@pytest.fixture
def budget(user: MemoryUser, checkpoint: Append, propose: Propose, work: Work) -> Alert:
    """A trip that costs too much, and its warning."""
    checkpoint(trip(key="a", cost=1500))
    assert propose(constraint(tests=BUDGET_TESTS + CASE), trigger=RunTrigger.API).outcome == "ok"
    work()
    return Alert.objects.get(user=user)


def test_weaker_rule_is_reported_with_boundary(budget: Alert, say: Say, propose: Propose) -> None:
    weaker = WEAKER[0].replace("> 2000:", "> 2000 and today < datetime.date(2036, 6, 1):")
    run = propose(rule(weaker, WEAKER[1], say(JAZZ)))
    assert {one["code"] for one in findings(run)} == {"weaker_rule", "boundary_unnoticed"}


@pytest.mark.parametrize(
    ("source", "tests", "what"),
    [
        (*WEAKER, "would no longer raise an alert that it raises now: 'Rome costs 1500'"),
        (HARDLY, WEAKER[1] + CASE, "would no longer pass test_speaks as it stands now"),
        (BUDGET, BUDGET_TESTS, "would lose the test test_case"),
        (MILDER, BUDGET_TESTS + CASE, "would no longer raise an alert that it raises now"),
    ],
    ids=["alert", "case that fails", "case that is gone", "severity"],
)
def test_rule_is_written_weaker_only_if_an_entry_asks_for_it(
    budget: Alert, say: Say, propose: Propose, source: str, tests: str, what: str
) -> None:
    # Given a model that writes a rule weaker, on an entry about something else
    jazz = say(JAZZ)
    run = propose(rule(source, tests, jazz))
    # Then it is refused
    (finding,) = findings(run)
    assert (finding["code"], finding["path"]) == ("weaker_rule", "constraints/budget.py")
    assert what in finding["message"]
    # And accepted, and reported, where an entry speaks of it
    asked = say("A trip may cost 2000 from now on")
    run = propose(rule(source, tests, asked))
    assert run.outcome == "ok", run.error
    (finding,) = findings(run, blocking=False)
    assert (finding["code"], finding["entry"]) == ("weaker_rule", asked)


def test_rule_is_deleted_only_on_request(budget: Alert, say: Say, propose: Propose) -> None:
    delete = {"op": "delete_constraint", "name": "budget"}
    run = propose({**delete, "sources": [say(JAZZ)]})
    assert [one["code"] for one in findings(run)] == ["weaker_rule"]
    asked = say("My budget is nobody's business")
    assert propose({**delete, "sources": [asked]}).outcome == "ok"


def test_rule_whose_alert_rests_on_more_is_not_weaker(
    budget: Alert, checkpoint: Append, say: Say, propose: Propose
) -> None:
    checkpoint(trip(key="b", cost=10))
    every = BUDGET.replace("evidence=[trip]", "evidence=trips")
    assert every != BUDGET
    run = propose(rule(every, BUDGET_TESTS + CASE, say(JAZZ)))
    assert (run.outcome, findings(run)) == ("ok", [])
    # But one that rests on another record has lost what it found
    others = "[one for one in trips if one is not trip] or [trip]"
    other = BUDGET.replace("evidence=[trip]", f"evidence={others}")
    run = propose(rule(other, BUDGET_TESTS + CASE, say(JAZZ)))
    assert [one["code"] for one in findings(run)] == ["weaker_rule"]


def test_stricter_rule_needs_no_request(budget: Alert, say: Say, propose: Propose) -> None:
    stricter = BUDGET.replace("> 1000", "> 1000 or trip.to == 'Oslo'")
    edit = rule(stricter, BUDGET_TESTS + CASE, say(JAZZ))
    run = propose(edit)
    assert (run.outcome, findings(run)) == ("ok", [])


def test_rule_that_cites_more_text_than_is_read_is_refused_unread(
    budget: Alert, say: Say, propose: Propose, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a rule, of which nothing has to be grounded, and that cites much
    cited = [say("Lunch! " * 100) for _ in range(10)]
    monkeypatch.setattr(cited_entries, "MAX_CITED_CHARACTERS", 6999)
    monkeypatch.setattr(cited_entries, "Source", lambda *what: pytest.fail("it was read"))
    run = propose(rule(*WEAKER, *cited))
    # Then the model is told to cite less
    (finding,) = findings(run)
    assert finding["code"] == "too_much_to_read"
    assert "have 7,000 characters: at most 6,999 are allowed" in finding["message"]

"""Tests for drug_allergy: when it alerts, when it does not, and the boundary days."""

import datetime

from uac import Alert, PartialDate, Severity
from uac.testing import run_check
from workspace.constraints import drug_allergy

TODAY = datetime.date(2026, 3, 10)

# The drug's class and name, the allergen and its class, and whether there is an alert.
CLASSES = (
    ("penicillin", "Amoxicillin", "penicillin", None, True),
    ("Penicillins", "Amoxicillin", " penicillin ", None, True),
    ("penicillin", "Amoxicillin", "Pen-V", "penicillin", True),
    (None, "Penicillin", "penicillin", None, True),
    ("nsaid", "Ibuprofen", "penicillin", None, False),
    ("", "Ibuprofen", "penicillin", "", False),
    (None, "Ibuprofen", "penicillin", None, False),
)
# The day the drug ends, and whether it is still taken on TODAY.
ENDS = (
    (None, True),
    (datetime.date(2026, 3, 9), False),
    (datetime.date(2026, 3, 10), True),
    (datetime.date(2026, 3, 11), True),
    (PartialDate("2026-02"), False),
    (PartialDate("2026-03"), True),
    (PartialDate("2025"), False),
)


def alerts(medication: drug_allergy.Medication, allergy: drug_allergy.Allergy) -> list[Alert]:
    return run_check(drug_allergy, today=TODAY, medications=[medication], allergies=[allergy])


def amoxicillin() -> drug_allergy.Medication:
    return drug_allergy.Medication(key="m-1", name="Amoxicillin", drug_class="penicillin")


def penicillin() -> drug_allergy.Allergy:
    return drug_allergy.Allergy(key="a-1", allergen="penicillin")


def test_says_which_drug_which_allergy_and_rests_on_both() -> None:
    allergy = drug_allergy.Allergy(
        key="a-1", allergen="penicillin", severity="severe", reaction="hives"
    )
    drug = amoxicillin()
    (alert,) = alerts(drug, allergy)
    assert alert.severity is Severity.CRITICAL
    assert alert.message == (
        "Amoxicillin (class penicillin) conflicts with the allergy to penicillin: severe, hives"
    )
    assert alert.evidence == (drug, allergy)


def test_speaks_or_is_silent_by_class_and_name() -> None:
    for drug_class, name, allergen, allergen_class, speaks in CLASSES:
        found = alerts(
            drug_allergy.Medication(key="m-1", name=name, drug_class=drug_class),
            drug_allergy.Allergy(key="a-1", allergen=allergen, drug_class=allergen_class),
        )
        assert bool(found) is speaks, (name, allergen)


def test_boundary_the_day_on_which_the_drug_ends() -> None:
    for ended_on, speaks in ENDS:
        drug = drug_allergy.Medication(
            key="m-1", name="Amoxicillin", drug_class="penicillin", ended_on=ended_on
        )
        assert bool(alerts(drug, penicillin())) is speaks, ended_on


def test_boundary_the_day_on_which_the_allergy_is_over() -> None:
    for resolved_on, speaks in ((TODAY, True), (datetime.date(2026, 3, 9), False)):
        allergy = drug_allergy.Allergy(key="a", allergen="penicillin", resolved_on=resolved_on)
        assert bool(alerts(amoxicillin(), allergy)) is speaks, resolved_on


def test_a_mild_allergy_is_a_warning() -> None:
    allergy = drug_allergy.Allergy(key="a-1", allergen="penicillin", severity="Mild")
    assert [alert.severity for alert in alerts(amoxicillin(), allergy)] == [Severity.WARNING]


def test_the_name_alone_is_said_once() -> None:
    drug = drug_allergy.Medication(key="m-1", name="Penicillin", drug_class=None)
    (alert,) = alerts(drug, penicillin())
    assert alert.message == "Penicillin conflicts with the allergy to penicillin"


def test_silent_where_the_drug_was_stopped_or_the_allergy_refuted() -> None:
    stopped = drug_allergy.Medication(
        key="m-1", name="Amoxicillin", drug_class="penicillin", status="Discontinued"
    )
    inactive = drug_allergy.Medication(
        key="m-1", name="Amoxicillin", drug_class="penicillin", active=False
    )
    refuted = drug_allergy.Allergy(key="a-1", allergen="penicillin", active=False)
    assert alerts(stopped, penicillin()) == []
    assert alerts(inactive, penicillin()) == []
    assert alerts(amoxicillin(), refuted) == []


def test_the_order_is_that_of_the_keys() -> None:
    drugs = [
        drug_allergy.Medication(key=key, name=key, drug_class="penicillin") for key in ("b", "a")
    ]
    found = run_check(drug_allergy, today=TODAY, medications=drugs, allergies=[penicillin()])
    assert [alert.evidence[0].key for alert in found] == ["a", "b"]


def test_silent_without_records() -> None:
    assert run_check(drug_allergy, today=TODAY) == []

"""The drug allergy constraint alerts when it must, and only then."""

import datetime

from constraints import drug_allergy
from domains.health.schema import Allergy, Medication
from uac import Severity
from uac.testing import run_check

TODAY = datetime.date(2025, 3, 1)


def medication(name: str, drug_class: str) -> Medication:
    """Return a medicine that the person is taking."""
    return Medication(
        key=name.lower(),
        name=name,
        dose="500 mg",
        drug_class=drug_class,
        started_on=TODAY,
        prescribed_by=None,
    )


def allergy(allergen: str, drug_class: str) -> Allergy:
    """Return an allergy."""
    return Allergy(
        key=allergen.lower(),
        allergen=allergen,
        drug_class=drug_class,
        reaction="hives",
        severity="severe",
        noted_on=TODAY,
    )


def test_alerts_on_a_medicine_of_the_class() -> None:
    """Amoxicillin is a penicillin."""
    amoxicillin = medication("Amoxicillin", "penicillin")
    penicillin = allergy("Penicillin", "penicillin")

    alerts = run_check(drug_allergy, today=TODAY, medications=[amoxicillin], allergies=[penicillin])

    assert [alert.severity for alert in alerts] == [Severity.CRITICAL]
    assert list(alerts[0].evidence) == [amoxicillin, penicillin]
    assert "Amoxicillin" in alerts[0].message


def test_does_not_alert_on_other_classes() -> None:
    """Ibuprofen is not a penicillin, and neither is pollen."""
    alerts = run_check(
        drug_allergy,
        today=TODAY,
        medications=[medication("Ibuprofen", "nsaid")],
        allergies=[allergy("Penicillin", "penicillin"), allergy("Birch pollen", "pollen")],
    )

    assert alerts == []


def test_does_not_alert_without_allergies() -> None:
    """Amoxicillin alone is not a finding."""
    alerts = run_check(
        drug_allergy,
        today=TODAY,
        medications=[medication("Amoxicillin", "penicillin")],
        allergies=[],
    )

    assert alerts == []

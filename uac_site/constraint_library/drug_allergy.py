"""A drug that the user takes must not belong to a class that the user is allergic to.

Raises an alert for each current drug and each allergy that names the drug or its class; case and a
plural "s" make no difference. The alert is a warning if the allergy is recorded as mild, and
critical otherwise. A drug is considered current through the day on which the user stops taking it
or, if only the month or year is known, through the end of that month or year.

Needs medications with a name and a class, which may be empty, and allergies with an allergen.

Does not consider drugs of related classes (such as cephalosporins for an allergy to penicillin),
which drug a brand name stands for, or food.
"""

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from uac import Alert, PartialDate, Record, critical, warning

ALSO = {
    "Medication": ("Prescription", "Drug", "Medicine", "MedicationStatement"),
    "Medication.name": ("drug", "drug_name", "medication", "medicine", "title"),
    "Medication.drug_class": ("category", "medication_class", "therapeutic_class", "class"),
    "Medication.ended_on": ("end_date", "ends_on", "stopped_on", "discontinued_on", "until"),
    "Medication.active": ("is_active", "current"),
    "Allergy": ("AllergyIntolerance", "DrugAllergy", "Intolerance"),
    "Allergy.allergen": ("substance", "name", "to", "trigger"),
    "Allergy.drug_class": ("category", "allergen_class", "class"),
    "Allergy.severity": ("level", "criticality"),
    "Allergy.resolved_on": ("ended_on", "end_date"),
    "Allergy.active": ("is_active", "current"),
}

STOPPED = ("stopped", "ended", "discontinued", "completed", "cancelled", "canceled", "inactive")
MILD = ("mild", "low")


@dataclass(kw_only=True)
class Medication(Record):
    """A drug that the user takes, took, or is going to take."""

    name: str
    drug_class: str | None
    ended_on: datetime.date | PartialDate | None = None
    active: bool = True
    status: str = ""


@dataclass(kw_only=True)
class Allergy(Record):
    """A drug or class of drugs that the user is allergic to."""

    allergen: str
    drug_class: str | None = None
    severity: str = ""
    reaction: str = ""
    resolved_on: datetime.date | PartialDate | None = None
    active: bool = True


def check(
    today: datetime.date, medications: Sequence[Medication], allergies: Sequence[Allergy]
) -> Iterator[Alert]:
    """A drug that the user takes must not belong to a class that the user is allergic to."""
    taken = [one for one in medications if is_taken(one, today)]
    had = [one for one in allergies if one.active and not is_over(one.resolved_on, today)]
    for medication in sorted(taken, key=lambda one: one.key):
        for allergy in sorted(had, key=lambda one: one.key):
            common = conflict(medication, allergy)
            if common:
                raised = warning if allergy.severity.strip().casefold() in MILD else critical
                yield raised(message(medication, allergy, common), evidence=[medication, allergy])


def is_taken(medication: Medication, today: datetime.date) -> bool:
    """Return whether the user takes the drug, or is going to take it."""
    stopped = medication.status.strip().casefold() in STOPPED
    return medication.active and not stopped and not is_over(medication.ended_on, today)


def is_over(ended_on: datetime.date | PartialDate | None, today: datetime.date) -> bool:
    """Return whether the end date of something has certainly passed."""
    return ended_on is not None and ended_on < today


def conflict(medication: Medication, allergy: Allergy) -> str:
    """Return the drug name or class that conflicts with the allergy; "" if neither does."""
    names = {plain(allergy.allergen), plain(allergy.drug_class or "")} - {""}
    for name in (medication.drug_class or "", medication.name):
        if plain(name) in names:
            return name.strip()
    return ""


def plain(name: str) -> str:
    """The name, normalised for comparison: "penicillin" for "Penicillins"."""
    return " ".join(name.casefold().split()).rstrip("s")


def message(medication: Medication, allergy: Allergy, common: str) -> str:
    """Describe what the reader needs to know in order to act: drug, class, allergy and reaction."""
    drug = medication.name.strip()
    if plain(common) != plain(drug):
        drug += f" (class {common})"
    details = ", ".join(filter(None, [allergy.severity.strip(), allergy.reaction.strip()]))
    return f"{drug} conflicts with the allergy to {allergy.allergen.strip()}" + (
        f": {details}" if details else ""
    )

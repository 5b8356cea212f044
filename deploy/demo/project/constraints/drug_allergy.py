"""Medicines and allergies."""

import datetime
from collections.abc import Iterator

from domains.health.state import allergies, medications
from uac import Alert, critical


def check(today: datetime.date) -> Iterator[Alert]:
    """A prescribed medicine must not belong to a class of drugs the person is allergic to."""
    for medication in medications:
        for allergy in allergies:
            if allergy.drug_class and medication.drug_class == allergy.drug_class:
                yield critical(
                    f"{medication.name} is a {medication.drug_class}, and there is a "
                    f"{allergy.severity} {allergy.allergen} allergy ({allergy.reaction})",
                    evidence=[medication, allergy],
                )

"""Constraints on one class of records, with tests, for tests to which any sound one will do."""

SOURCE = """\
import datetime
from collections.abc import Iterator
from uac import Alert, {severity}
from domains.{domain}.state import {collection}


def check(today: datetime.date) -> Iterator[Alert]:
    \"\"\"{doc}\"\"\"
    for {record} in {collection}:
        if {condition}:
            yield {severity}(f"{message}", evidence=[{record}])
"""
TESTS = """\
import datetime
from uac.testing import run_check
from constraints import {name}
from domains.{domain}.schema import {class_name}

TODAY = datetime.date(2026, 1, 1)


def test_speaks() -> None:
    found = run_check({name}, today=TODAY, {collection}=[{class_name}(key="a", {fires})])
    assert [alert.evidence[0].key for alert in found] == ["a"]


def test_is_silent() -> None:
    assert run_check({name}, today=TODAY, {collection}=[{class_name}(key="a", {silent})]) == []
"""


def make_rule(
    name: str,
    place: str,
    condition: str,
    message: str,
    *,
    fires: str,
    silent: str,
    severity: str = "warning",
    doc: str = "Report what is unusual.",
) -> dict[str, str]:
    """Return source and tests of a constraint on the records of `domain.Class`.

    Condition and message name the record as its class, in lower case. `fires` and `silent` are
    fields of a record for which it fires, and of one for which it does not.
    """
    domain, _, class_name = place.partition(".")
    record = class_name.lower()
    values = {
        "name": name,
        "domain": domain,
        "class_name": class_name,
        "record": record,
        "collection": f"{record}s",
        "condition": condition,
        "message": message,
        "fires": fires,
        "silent": silent,
        "severity": severity,
        "doc": doc,
    }
    return {"source": SOURCE.format(**values), "tests": TESTS.format(**values)}

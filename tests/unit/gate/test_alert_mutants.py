"""Alert mutants: each alert of a constraint has one, which fails there and nowhere else."""

import ast

import pytest

from workers.gate.alert_mutants import MAX_ALERTS, alert_mutants

HEAD = "from uac import Alert, critical, warning\n\n\n"
CHECK = "def check(today: datetime.date) -> Iterator[Alert]:\n"


def failing(source: str) -> list[tuple[int, str]]:
    """Return for each mutant the line of its alert, and that line with the failure."""
    found = alert_mutants(source)
    for mutant in found:
        assert ast.parse(mutant.source)
        assert mutant.source.count("(1 // 0)") == 1
    return [(one.line, one.source.splitlines()[one.line - 1].strip()) for one in found]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("yield warning('x', key='x')", [(5, "yield (1 // 0)")]),
        ("yield warning(\n        'ä', key='x',\n    )", [(5, "yield (1 // 0)")]),
        ("x = 'ä'; found.append(warning('ä'))", [(5, "x = 'ä'; found.append((1 // 0))")]),
        ("return [critical(one) for one in ones]", [(5, "return [(1 // 0) for one in ones]")]),
        (
            "yield critical('x') if late else warning('y')",
            [(5, "yield (1 // 0) if late else warning('y')"),
             (5, "yield critical('x') if late else (1 // 0)")],
        ),
        ("yield told(trip)", [(5, "yield (1 // 0)")]),
        ("yield Alert(Severity.INFO, 'x')", [(5, "yield (1 // 0)")]),
        ("message = 'warning(x)'  # warning(y)", []),
    ],
)  # fmt: skip
def test_each_alert_has_a_failing_mutant(body: str, expected: list[tuple[int, str]]) -> None:
    assert failing(f"{HEAD}{CHECK}    {body}\n") == expected


def test_values_yielded_elsewhere_are_no_alerts() -> None:
    source = f"{HEAD}def late(trips: list[Trip]) -> Iterator[Trip]:\n    yield trips[0]\n"
    assert alert_mutants(source) == []


def test_only_what_comes_from_the_library_makes_alerts() -> None:
    assert alert_mutants("def warning(text: str) -> None: ...\nwarning('x')\n") == []
    qualified = "import uac\n\nfound = [uac.info('x')]\n"
    assert failing(qualified) == [(3, "found = [(1 // 0)]")]


def test_first_of_very_many_alerts_are_mutated_and_unreached_ones_named() -> None:
    lines = "".join(f"    yield warning('{n}')\n" for n in range(MAX_ALERTS + 5))
    found = alert_mutants(f"{HEAD}{CHECK}{lines}")
    assert len(found) == MAX_ALERTS
    assert found[0].message == "no test reaches the alert on line 5"

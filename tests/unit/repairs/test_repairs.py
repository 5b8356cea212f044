"""Mechanical repairs: unambiguous faults are corrected and named, everything else is unchanged."""

import pytest

from workers.repairs.repair import put_right, repair

DATA = "from dataclasses import dataclass, field\nfrom datetime import date\n\n"


REPAIRED = {
    "fence": ("```python\nx = 1\n```", "x = 1\n", "surroundings"),
    "in prose": ("Sure:\n```py\nx = 1\n```\nDone.", "x = 1\n", "surroundings"),
    "fence that does not close": ("```\nx = 1", "x = 1\n", "surroundings"),
    "zero width": ("\ufeffx = 1\u200b", "x = 1\n", "surroundings"),
    "fragment": ("    x = 1\n    y = 2\n", "x = 1\ny = 2\n", "surroundings"),
    "tabs": ("\tx = 1\n\ty = 2\n", "x = 1\ny = 2\n", "surroundings"),
    "double quotes": ("x = “one”", 'x = "one"\n', "surroundings"),
    "single quotes": ("x = ‘one’", "x = 'one'\n", "surroundings"),
    "zeros": (
        "d = date(2024, 11, 09)\nfrom datetime import date",
        "d = date(2024, 11, 9)\nfrom datetime import date",
        "leading_zeros",
    ),
    "zeros of keywords": (
        "from datetime import date\nd = date(2024, month=08, day=00)",
        "from datetime import date\nd = date(2024, month=8, day=0)",
        "leading_zeros",
    ),
    "octals": (
        "import datetime\nd = datetime.time(0o8, 0o1)",
        "import datetime\nd = datetime.time(8, 1)",
        "impossible_octals",
    ),
}


@pytest.mark.parametrize(("source", "repaired", "name"), REPAIRED.values(), ids=REPAIRED)
def test_a_text_that_is_no_python_is_repaired(source: str, repaired: str, name: str) -> None:
    found = repair(source)
    assert (found.source, found.repairs, found.error) == (repaired, (name,), "")


RUNNABLE = {
    "order of fields": (
        f"{DATA}@dataclass\nclass A:\n    a: int = 1\n    b: int\n\nx = A(b=2)\n",
        "keyword_only",
    ),
    "order of inherited fields": (
        f"{DATA}@dataclass(frozen=True)\nclass A:\n    a: int = 1\n\n"
        "@dataclass(frozen=True)\nclass B(A):\n    b: int\n\nx = A()\n",
        "keyword_only",
    ),
    "imports": (
        "@dataclass\nclass A:\n    on: Optional[date]\n    tags: List[str] = "
        "field(default_factory=list)\n\nx = A(date(2026, 1, 2))\n",
        "missing_imports",
    ),
    "a module, by what follows it": ("x = datetime.date(2026, 1, 2)", "missing_imports"),
    "a class, by its call": (
        '"""Doc."""\nfrom __future__ import annotations\nx = datetime(2026, 1, 2)',
        "missing_imports",
    ),
}


@pytest.mark.parametrize(("source", "name"), RUNNABLE.values(), ids=RUNNABLE)
def test_a_program_that_could_not_run_does_after_its_repair(source: str, name: str) -> None:
    with pytest.raises((TypeError, NameError, ValueError)):
        run(source)
    found = repair(source)
    assert (found.repairs, found.error) == ((name,), "")
    assert "x" in run(found.source)


SIGNATURE = "def check(today: datetime.date) -> Iterator[Alert]:"
WRITTEN = f"""\
{SIGNATURE}
    yield Alert(Severity.INFO, 'x', key='x')
    yield warning('y', key=str(add_months(today, 1)))
"""


def test_a_constraint_is_given_the_imports_of_what_messages_tell_to_write() -> None:
    found = put_right("constraints/x.py", WRITTEN)
    assert found.source == (
        "from uac import Alert\nfrom collections.abc import Iterator\nfrom uac import Severity\n"
        "from uac import add_months\nimport datetime\nfrom uac import warning\n" + WRITTEN
    )
    assert found.repairs == ("missing_imports",)


def test_only_tests_are_given_what_only_tests_may_import() -> None:
    tests = "def test_x() -> None:\n    assert run_check(x, today=date(2026, 1, 1)) == []\n"
    imports = "from datetime import date\nfrom uac.testing import run_check\n"
    assert put_right("tests/test_x.py", tests).source == imports + tests
    assert "uac" not in put_right("constraints/x.py", tests).source


def test_a_project_of_somebody_else_is_given_nothing_of_our_library() -> None:
    assert repair("x = Alert(1)\n").repairs == ()
    assert put_right("domains/travel/schema.py", "x = Alert(1)\n").repairs == ()


def run(source: str) -> dict[str, object]:
    """Execute a source of this file as a module."""
    import sys
    import types

    module = types.ModuleType("repaired_module")
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, "x", "exec", dont_inherit=True), vars(module))
    finally:
        del sys.modules[module.__name__]
    return vars(module)


IN_ORDER = {
    "plain": "x = 1\n",
    "fence in a text": "x = '```python'\n",
    "characters in a text": "x = 'a\u200bb\u00a0“c”，'\n",
    "in a comment": "# ``` “curly” 09\nx = 1\n",
    "a date in a text": "x = 'date(2024, 11, 09)'\n",
    "a function": "def f():\n    return 1\n",
    "real octals": "from datetime import date\nx = date(2024, 0o7, 0o11)\n",
    "a name that is bound": "y = 0\n\ndef f(date):\n    return date\n",
    "in order": f"{DATA}@dataclass\nclass A:\n    a: int\n    b: int = 1\n\nx = A(1)\n",
    "what a class shares": (
        "from dataclasses import dataclass\nfrom typing import ClassVar\n\n"
        "@dataclass\nclass A:\n    a: ClassVar[list[int]] = []\n"
    ),
    "names that a pattern binds": (
        "match [1, {}]:\n    case [date, *field, {**auto}]:\n        x = date, field, auto\n"
    ),
}


@pytest.mark.parametrize("source", IN_ORDER.values(), ids=IN_ORDER)
def test_sound_code_stays_unchanged(source: str) -> None:
    assert repair(source) == repair(repair(source).source)
    assert (repair(source).source, repair(source).repairs) == (source, ())


UNCLEAR = {
    "cut off": ("x = [A(1), A(2", "never closed"),
    "no date: a zip code": ("zip_code = 02139", "leading zeros"),
    "a text that does not end": ("x = 'one", "unterminated"),
    "prose alone": ("I am sorry, I cannot do that.", "invalid syntax"),
    "nothing": ("", ""),
    "a comma too many": ("x = {'a': 1,, 'b': 2}", "invalid syntax"),
    "octals of which one is possible": (
        "from datetime import date\nx = [date(2024, 1, 0o9), date(2024, 1, 0o10)]",
        "octal",
    ),
    "a block without margin": ("if x:\ny = 1", "expected an indented block"),
    "deep": ("(" * 5000, ""),
}


@pytest.mark.parametrize(("source", "error"), UNCLEAR.values(), ids=UNCLEAR)
def test_ambiguous_code_is_left_to_its_author(source: str, error: str) -> None:
    found = repair(source)
    assert found.source == source
    assert error in found.error


def test_positional_calls_keep_the_order_of_fields_a_fault() -> None:
    source = f"{DATA}@dataclass\nclass A:\n    a: int = 1\n    b: int\n\nx = A(1, 2)\n"
    assert repair(source).repairs == ()


def test_all_repairs_that_are_needed_are_named() -> None:
    source = (
        "Here is your module:\n```python\n@dataclass\nclass A:\n    a: int = 1\n    on: date\n\n"
        "x = A(on=date(2024, 02, 09))\n```\n"
    )
    assert set(repair(source).repairs) == {
        "surroundings",
        "leading_zeros",
        "keyword_only",
        "missing_imports",
    }

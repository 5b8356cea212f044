"""Mechanical repairs: unambiguous faults are corrected and named, everything else is unchanged."""

import ast
import textwrap

import pytest

from workers.checkpointing.repairs import put_right, repair

DATA = "from dataclasses import dataclass, field\nfrom datetime import date\n\n"


@pytest.mark.parametrize(
    ("source", "repaired", "name"),
    [
        pytest.param("```python\nx = 1\n```", "x = 1\n", "code_fence", id="fence"),
        pytest.param("Sure:\n```py\nx = 1\n```\nDone.", "x = 1\n", "code_fence", id="in prose"),
        pytest.param("```\nx = 1", "x = 1", "code_fence", id="fence that does not close"),
        pytest.param("x = 1\n```\n", "x = 1\n", "code_fence", id="fence that does not open"),
        pytest.param(
            "```python\nx = 1\n```\nand\n```bash\npip install y\n```\n```python\nz = 2\n```",
            "x = 1\nz = 2\n",
            "code_fence",
            id="several blocks, one of another language",
        ),
        pytest.param("python\nx = 1", "x = 1", "language_tag", id="tag"),
        pytest.param("\ufeffx = 1\u200b", "x = 1", "unseen_characters", id="zero width"),
        pytest.param("x\u00a0=\u00a01", "x = 1", "unseen_characters", id="other spaces"),
        pytest.param("x = 1\0", "x = 1", "unseen_characters", id="null"),
        pytest.param(">>> x = 1\n>>> y = 2", "x = 1\ny = 2", "prompts", id="prompts"),
        pytest.param(
            "Here is the module you asked for:\n\nx = 1\n\nI hope this helps.\n",
            "x = 1\n",
            "prose_around",
            id="prose",
        ),
        pytest.param("    x = 1\n    y = 2\n", "x = 1\ny = 2\n", "indentation", id="fragment"),
        pytest.param("x = 1\n    y = 2\n", "x = 1\ny = 2\n", "indentation", id="cut fragment"),
        pytest.param("\tx = 1\n\ty = 2\n", "x = 1\ny = 2\n", "indentation", id="tabs"),
        pytest.param("x = “one”", 'x = "one"', "typographic_quotes", id="double quotes"),
        pytest.param("x = ‘one’", "x = 'one'", "typographic_quotes", id="single quotes"),
        pytest.param("x = [1， \u22122]", "x = [1, -2]", "wide_punctuation", id="punctuation"),
        pytest.param(
            "d = date(2024, 11, 09)\nfrom datetime import date",
            "d = date(2024, 11, 9)\nfrom datetime import date",
            "leading_zeros",
            id="zeros",
        ),
        pytest.param(
            "from datetime import date\nd = date(2024, month=08, day=00)",
            "from datetime import date\nd = date(2024, month=8, day=0)",
            "leading_zeros",
            id="zeros of keywords",
        ),
        pytest.param(
            "import datetime\nd = datetime.time(0o8, 0o1)",
            "import datetime\nd = datetime.time(8, 1)",
            "impossible_octals",
            id="octals",
        ),
    ],
)
def test_a_text_that_is_no_python_is_repaired(source: str, repaired: str, name: str) -> None:
    found = repair(source)
    assert (found.source, found.repairs, found.error) == (repaired, (name,), "")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        pytest.param(
            f"{DATA}@dataclass\nclass A:\n    a: int = 1\n    b: int\n\nx = A(b=2)\n",
            "keyword_only",
            id="order of fields",
        ),
        pytest.param(
            f"{DATA}@dataclass(frozen=True)\nclass A:\n    a: int = 1\n\n@dataclass\nclass B(A):\n"
            "    b: int\n\nx = A()\n".replace(
                "@dataclass\nclass B", "@dataclass(frozen=True)\nclass B"
            ),
            "keyword_only",
            id="order of inherited fields",
        ),
        pytest.param(
            f"{DATA}@dataclass\nclass A:\n    a: list = []\n    b: dict = {{}}\n\nx = A()\n"
            "x.a.append(1)\nassert A().a == []\n",
            "mutable_defaults",
            id="mutable default",
        ),
        pytest.param(
            f"{DATA}@dataclass\nclass A:\n    date: date | None = None\n"
            "    until: date | None = None\n\nx = A()\n",
            "late_annotations",
            id="a field that hides its type",
        ),
        pytest.param(
            f"{DATA}@dataclass\nclass A:\n    b: list[B]\n\n@dataclass\nclass B:\n    n: int\n\n"
            "x = A([B(1)])\n",
            "late_annotations",
            id="a class that comes later",
        ),
        pytest.param(
            "@dataclass\nclass A:\n    on: Optional[date]\n    tags: List[str] = "
            "field(default_factory=list)\n\nx = A(date(2026, 1, 2))\n",
            "missing_imports",
            id="imports",
        ),
        pytest.param(
            "x = datetime.date(2026, 1, 2)", "missing_imports", id="a module, by what follows it"
        ),
        pytest.param(
            '"""Doc."""\nfrom __future__ import annotations\nx = datetime(2026, 1, 2)',
            "missing_imports",
            id="a class, by its call",
        ),
    ],
)
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


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("x = 1\n", id="plain"),
        pytest.param("x = '```python'\n", id="fence in a text"),
        pytest.param("x = 'a\u200bb\u00a0“c”，'\n", id="characters in a text"),
        pytest.param("# ``` “curly” 09\nx = 1\n", id="in a comment"),
        pytest.param("x = 'date(2024, 11, 09)'\n", id="a date in a text"),
        pytest.param("def f():\n    return 1\n", id="a function"),
        pytest.param("from datetime import date\nx = date(2024, 0o7, 0o11)\n", id="real octals"),
        pytest.param("y = 0\n\ndef f(date):\n    return date\n", id="a name that is bound"),
        pytest.param(
            f"{DATA}@dataclass\nclass A:\n    a: int\n    b: int = 1\n\nx = A(1)\n", id="in order"
        ),
        pytest.param(
            "from dataclasses import dataclass\nfrom typing import ClassVar\n\n"
            "@dataclass\nclass A:\n    a: ClassVar[list[int]] = []\n",
            id="what a class shares",
        ),
        pytest.param(
            "match [1, {}]:\n    case [date, *field, {**auto}]:\n        x = date, field, auto\n",
            id="names that a pattern binds",
        ),
    ],
)
def test_what_is_in_order_stays_as_it_is(source: str) -> None:
    assert repair(source) == repair(repair(source).source)
    assert (repair(source).source, repair(source).repairs) == (source, ())


@pytest.mark.parametrize(
    ("source", "error"),
    [
        pytest.param("x = [A(1), A(2", "never closed", id="cut off"),
        pytest.param("zip_code = 02139", "leading zeros", id="no date: a zip code"),
        pytest.param("x = 'one", "unterminated", id="a text that does not end"),
        pytest.param("I am sorry, I cannot do that.", "invalid syntax", id="prose alone"),
        pytest.param("", "", id="nothing"),
        pytest.param("x = {'a': 1,, 'b': 2}", "invalid syntax", id="a comma too many"),
        pytest.param(
            "from datetime import date\nx = [date(2024, 1, 0o9), date(2024, 1, 0o10)]",
            "octal",
            id="octals of which one is possible",
        ),
        pytest.param("if x:\ny = 1", "expected an indented block", id="a block without margin"),
        pytest.param("(" * 5000, "", id="deep"),
    ],
)
def test_what_could_mean_several_things_is_left_to_its_author(source: str, error: str) -> None:
    found = repair(source)
    assert found.source == source
    assert error in found.error


def test_positional_calls_keep_the_order_of_fields_a_fault() -> None:
    source = f"{DATA}@dataclass\nclass A:\n    a: int = 1\n    b: int\n\nx = A(1, 2)\n"
    assert repair(source).repairs == ()


def test_texts_over_several_lines_keep_their_margins() -> None:
    inner = "'''\n      two\n  three\n'''"
    found = repair(textwrap.indent("x = 1\n", "    ") + f"    y = {inner}\n")
    assert found.repairs == ("indentation",)
    assert ast.literal_eval(ast.parse(found.source).body[1].value) == "\n      two\n  three\n"  # type: ignore[attr-defined]


def test_all_repairs_that_are_needed_are_named() -> None:
    source = (
        "Here is your module:\n```python\n@dataclass\nclass A:\n    a: int = 1\n    on: date\n\n"
        "x = A(on=date(2024, 02, 09))\n```\n"
    )
    assert set(repair(source).repairs) == {
        "code_fence",
        "leading_zeros",
        "keyword_only",
        "missing_imports",
    }

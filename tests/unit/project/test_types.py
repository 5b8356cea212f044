"""Type expressions: one form of each, and which is wider than which."""

import pytest

from memory.project import EditError
from memory.project.types import format_type, is_wider, join, parse_type


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("str", "str"),
        ("date", "datetime.date"),
        ("datetime", "datetime.datetime"),
        ("datetime.datetime", "datetime.datetime"),
        ("Decimal|None", "decimal.Decimal | None"),
        ("None | str", "str | None"),
        ("str | None | str", "str | None"),
        ("Optional[List[str]]", "list[str] | None"),
        ("builtins.list[builtins.int]", "list[int]"),
        ("'Ref[Trip] | None'", "Ref[Trip] | None"),
        ("list['Stop']", "list[Stop]"),
        ("Ref[identity.Passport]", "Ref[identity.Passport]"),
        ("str | object", "str"),
        ("object | None", "object | None"),
        ("None", "None"),
    ],
)
def test_every_way_of_writing_a_type_has_one_canonical_form(written: str, canonical: str) -> None:
    assert format_type(parse_type(written)) == canonical
    assert parse_type(canonical) == parse_type(written)


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "str |", "list", "list[]", "Ref", "Ref[list[str]]", "Ref['Trip']"),
        *("dict[int, int]", "dict[str]", "tuple[int, ...]", "lambda: 0"),
        *("a.b.C", "f()", "str if x else int"),
        *("str\x00", "x" * 4001, "list[" * 24 + "str" + "]" * 24, "'" * 7),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(EditError) as error:
        parse_type(text)
    assert error.value.code == "bad_type"


@pytest.mark.parametrize(
    ("new", "old", "wider"),
    [
        ("str", "str", True),
        ("float", "int", True),
        ("int", "float", False),
        ("int", "bool", False),
        ("str | None", "str", True),
        ("str", "str | None", False),
        ("int | str", "str | int", True),
        ("float | None", "int | None", True),
        ("list[float]", "list[int]", True),
        ("list[int | None]", "list[int]", True),
        ("list[int]", "list[int | None]", False),
        ("list[str]", "list[object]", True),
        ("str | None", "object | None", True),
        ("str", "object | None", False),
        ("object", "str", False),
        ("datetime.datetime", "datetime.date", False),
        ("Ref[A] | Ref[B]", "Ref[A]", True),
        ("Stop", "Other", False),
    ],
)
def test_a_wider_type_holds_all_that_the_other_does(new: str, old: str, wider: bool) -> None:
    assert is_wider(parse_type(new), parse_type(old)) is wider


@pytest.mark.parametrize(
    ("left", "right", "joined"),
    [
        ("int", "float", "float"),
        ("object | None", "int", "int | None"),
        ("int | None", "float", "float | None"),
        ("list[int]", "list[float | None]", "list[float | None]"),
        ("list[int] | None", "list[object]", "list[int] | None"),
        ("int", "str", None),
        ("list[int]", "list[str]", None),
        ("int", "bool", None),
        ("datetime.date", "datetime.datetime", None),
        ("datetime.date", "str", None),
        ("int | str", "str", "int | str"),
        ("int | str", "bool", None),
    ],
)
def test_types_are_joined_without_loss(left: str, right: str, joined: str | None) -> None:
    for one, other in ((left, right), (right, left)):
        found = join(parse_type(one), parse_type(other))
        assert (found and format_type(found)) == joined

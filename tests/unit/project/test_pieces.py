"""A state file is parsed a few lines at a time, and read as if it were parsed as a whole."""

import ast
import itertools

import pytest

from memory.project import parse, render
from memory.project.errors import ProjectError

from .support import trips_project

STATE = "domains/travel/state.py"
HEAD = "from domains.travel.schema import Trip\n"
ITEMS = [
    *("    Trip(1),", "    Trip(", "        2,", "    ),", "    *more,", '    Trip("""'),
    *('    """),', "    -1,", "    (3),", "    3", "    # x,", "    4  # ,"),
    *("]", "]  # end", "    ] + [", ""),
]


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the pieces that Python's parser is given."""
    found: list[int] = []
    whole = ast.parse

    def counted(source: str, *arguments: object, **options: object) -> ast.AST:
        found.append(len(source.strip("\n")))
        return whole(source, *arguments, **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(ast, "parse", counted)
    return found


def test_no_large_file_is_parsed_in_one_go(sizes: list[int]) -> None:
    project = trips_project(300)
    source = render(project)[STATE]
    assert len(source) > 10 * parse.PIECE
    sizes.clear()

    state = parse.parse_state(STATE, source, project.outline.domains["travel"])

    assert len(state.records["trips"]) == 300
    assert max(sizes) < 2 * parse.PIECE


def dumped(body: list[ast.stmt]) -> list[object]:
    """Return the content of a body, and the lines of its items."""
    lists = [
        [item.lineno for item in node.value.elts]
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.List)
    ]
    return [*map(ast.dump, body), lists]


@pytest.mark.parametrize("size", [1, 30])
def test_file_parsed_in_pieces_equals_the_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "PIECE", size)
    in_pieces = 0
    for items in itertools.product(ITEMS, repeat=2):
        for before in ("", "x = Trip(0)\n\n", '"""\nx: list[Trip] = [\n'):
            source = "\n".join([f"{HEAD}{before}trips: list[Trip] = [", *items, "    9,", "]", ""])
            found = parse._parse_lists(source)
            if found:
                in_pieces += 1
                assert dumped(found) == dumped(ast.parse(source).body), source

    assert in_pieces > 50


def test_a_fault_is_told_with_its_line() -> None:
    project = trips_project(310)
    source = render(project)[STATE].replace('key="trip-300"', 'key=""')

    with pytest.raises(ProjectError) as raised:
        parse.parse_state(STATE, source, project.outline.domains["travel"])

    line = next(n for n, text in enumerate(source.split("\n"), 1) if 'key=""' in text)
    assert raised.value.line == line

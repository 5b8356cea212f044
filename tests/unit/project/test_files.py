"""Whole files as edits: every difference becomes an edit, and other differences are refused."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import assume, given

from memory.project import EditError, Project, ProjectError, edit_from_json, edit_to_json, render
from memory.project.files import edits_of_files, read_whole, take_over
from tests.unit.project.examples import rich_project
from tests.unit.project.strategies import projects
from tests.unit.project.support import SILENT, TESTS, add, define, define_enum, project_with, write


def small() -> Project:
    return project_with(
        define_enum("travel", "Mode", TRAIN="train"),
        define("travel", "Trip", {"to": "str", "nights": "int | None"}),
        add("travel", "Trip", "rome", to="Rome", nights=3),
        add("travel", "Trip", "oslo", to="Oslo"),
    )


SOURCES = re.compile(r"sources=\([0-9, ]*\)")
SCHEMA = "domains/travel/schema.py"
STATE = "domains/travel/state.py"


def ops(project: Project, files: dict[str, str | None]) -> list[str]:
    return [edit.op for edit in edits_of_files(project, files)]


@given(projects())
def test_same_files_are_no_edits(project: Project) -> None:
    assert edits_of_files(project, render(project)) == []


def test_files_of_a_whole_project_build_it() -> None:
    # Given all files of a project that uses everything
    wanted = rich_project()
    # When they are proposed to somebody of whom nothing is known
    project = Project.empty()
    edits_of_files(project, render(wanted))
    # Then nothing differs any more, and the records are the same, byte for byte
    assert edits_of_files(project, render(wanted)) == []
    for path, text in render(wanted).items():
        if path.endswith("/state.py") or path.startswith(("constraints/", "tests/")):
            assert project.source(path) == text


@given(projects())
def test_any_project_is_taken_over_as_it_is(project: Project) -> None:
    assume(project.outline.domains or project.outline.constraints)
    # Our constraints import the library, which tells them from those of other projects
    for name in project.outline.constraints:
        project.write_constraint(name, f"import uac\n{SILENT}", TESTS)
    files = render(project)
    # When all files of a project are taken over by somebody of whom nothing is known
    taken = Project.empty()
    edits = take_over(taken, read_whole(files), (7,))
    # Then they are the same, but for the entries that the records cite
    cited = {path: SOURCES.sub("sources=(7,)", text) for path, text in files.items()}
    assert render(taken) == cited
    # And the edits can be kept, as those of any version are
    assert [edit_from_json(edit_to_json(edit)) for edit in edits] == edits


def test_a_class_that_another_domain_has_too_is_the_domains_own() -> None:
    # Given a reference to a class that comes later, of which there is one elsewhere
    wanted = project_with(
        define("health", "Passport", {"number": "int"}),
        define("travel", "Passport", {"number": "int"}),
        define("travel", "Airline", {"passport": "Ref[Passport]"}),
    )
    travel = wanted.outline.domains["travel"]
    classes = dict(reversed(list(travel.classes.items())))
    wanted.set_domain(replace(travel, classes=classes))
    files = render(wanted)

    taken = Project.empty()
    take_over(taken, read_whole(files), (7,))

    assert render(taken) == files


def test_a_project_is_taken_over_in_the_order_that_it_has() -> None:
    # Given lists in another order than their classes, one of them empty, and one more of a class
    wanted = project_with(
        define("travel", "Trip", {"to": "str"}),
        define("travel", "Hotel", {"name": "str"}, collection="hotels"),
        add("travel", "Trip", "rome", to="Rome"),
        {**add("travel", "Trip", "oslo", to="Oslo"), "collection": "past"},
    )
    # When it is taken over, then nothing has moved
    taken = Project.empty()
    take_over(taken, read_whole(render(wanted)), (1,))
    assert render(taken) == render(wanted)
    assert list(taken.outline.domains["travel"].collections) == ["hotels", "trips", "past"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("domains/travel/state.py", "trips = [print()]\n", id="not literal"),
        pytest.param("domains/travel/helper.py", "", id="another file"),
        pytest.param("tests/test_more.py", TESTS, id="a test of nothing"),
        pytest.param("constraints/old.py", "def check(path):\n    return []\n", id="old"),
    ],
)
def test_files_in_another_form_are_not_taken_for_ours(path: str, text: str) -> None:
    with pytest.raises(ProjectError):
        read_whole({**render(small()), path: text})


def test_entries_cited_already_are_not_taken_over_again() -> None:
    project = small()
    with pytest.raises(EditError, match="already has a domain 'travel'"):
        take_over(project, read_whole(render(small())), (1,))
    rules = project_with(write("a", f"import uac\n{SILENT}"))
    with pytest.raises(EditError, match="already has a constraint 'a'"):
        take_over(rules, read_whole(render(rules)), (1,))


def test_edits_say_what_differs() -> None:
    project = small()
    state = render(project)[STATE]
    state = state.replace("nights=3", "nights=4").replace(
        '    Trip(key="oslo"', '    Trip(key="bern", to="Bern", sources=(2,)),\n    Trip(key="oslo"'
    )
    edits = [edit_to_json(edit) for edit in edits_of_files(project, {STATE: state})]
    assert edits == [
        {
            "op": "update",
            "domain": "travel",
            "collection": "trips",
            "key": "rome",
            "fields": {"nights": 4},
            "sources": [1],
        },
        {
            "op": "add",
            "domain": "travel",
            "class_name": "Trip",
            "key": "bern",
            "collection": "trips",
            "fields": {"to": "Bern"},
            "sources": [2],
        },
    ]


def test_schema_grows() -> None:
    project = small()
    files: dict[str, str | None] = dict(render(project))
    schema = str(files[SCHEMA])
    schema = schema.replace(
        "    nights: int | None = None\n",
        "    nights: float | None = None\n    hotel: str | None = None\n",
    ).replace('TRAIN = "train"\n', 'TRAIN = "train"\n    CAR = "car"\n')
    assert ops(project, {SCHEMA: schema}) == ["define_class", "widen_field", "add_field"]


def test_constraints_are_written_and_deleted() -> None:
    project = small()
    source = "def check(today):\n    '''Says nothing.'''\n    return []\n"
    paths = "constraints/quiet.py", "tests/test_quiet.py"
    assert ops(project, {paths[0]: source, paths[1]: TESTS}) == ["write_constraint"]
    assert ops(project, {paths[0]: source}) == []
    assert ops(project, {paths[0]: source + "# more\n"}) == ["write_constraint"]
    assert ops(project, {paths[0]: None}) == ["delete_constraint"]


REFUSED: dict[str, tuple[Callable[[dict[str, str]], dict[str, str | None]], str, str]] = {
    "a record is left out": (
        lambda files: {STATE: without_line(files[STATE], '"oslo"')},
        "record_lost",
        "travel.trips.oslo",
    ),
    "a field is left out": (
        lambda files: {
            SCHEMA: without_line(files[SCHEMA], "nights:"),
            STATE: files[STATE].replace(", nights=3", ""),
        },
        "field_lost",
        "nights",
    ),
    "an enum is left out": (
        lambda files: {SCHEMA: files[SCHEMA].replace("class Mode", "class Other")},
        "class_lost",
        "Mode",
    ),
    "a field is narrowed": (
        lambda files: {SCHEMA: files[SCHEMA].replace("to: str", "to: int")},
        "narrower",
        "Trip.to",
    ),
    "a default differs": (
        lambda files: {SCHEMA: files[SCHEMA].replace("int | None = None", "int | None = 1")},
        "default_changed",
        "nights",
    ),
    "a file is deleted": (lambda files: {STATE: None}, "file_deleted", STATE),
    "a record cites nothing": (
        lambda files: {
            STATE: files[STATE].replace(
                '    Trip(key="oslo"', '    Trip(key="bern", to="Bern"),\n    Trip(key="oslo"'
            )
        },
        "no_sources",
        "sources",
    ),
}


def without_line(text: str, word: str) -> str:
    lines = text.splitlines(keepends=True)
    assert sum(word in line for line in lines) == 1, text
    return "".join(line for line in lines if word not in line)


@pytest.mark.parametrize("case", REFUSED)
def test_change_that_no_edit_expresses_is_refused(case: str) -> None:
    change, code, word = REFUSED[case]
    project = small()
    with pytest.raises(EditError) as refusal:
        edits_of_files(project, change(render(project)))
    assert refusal.value.code == code
    assert word in refusal.value.message


UNREADABLE: dict[str, tuple[dict[str, str | None], str, str]] = {
    "invalid Python": ({STATE: "trips = [\n"}, STATE, "invalid Python"),
    "code in the state": ({STATE: "print(1)\n"}, STATE, "a list of records"),
    "an unknown field": (
        {STATE: 'from domains.travel.schema import Trip\ntrips: list[Trip] = [Trip(key="a", x=1)]'},
        STATE,
        "the fields of Trip",
    ),
    "a domain without a schema": (
        {"domains/food/state.py": ""},
        "domains/food/schema.py",
        "missing",
    ),
    "a shard that nothing goes on in": (
        {"domains/travel/trips_0002.py": ""},
        "domains/travel/trips_0002.py",
        "no collection continues",
    ),
    "no file of a project": ({"setup.py": "x"}, "setup.py", "not among the files"),
    "a path with dots": (
        {"constraints/../x.py": "x"},
        "constraints/../x.py",
        "not among the files",
    ),
    "a constraint without tests": (
        {"constraints/a.py": "x = 1\n"},
        "tests/test_a.py",
        "must both be present",
    ),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_unreadable_files_are_named(case: str) -> None:
    files, path, word = UNREADABLE[case]
    with pytest.raises(ProjectError) as refusal:
        edits_of_files(small(), files)
    assert refusal.value.path == path
    assert word in str(refusal.value)

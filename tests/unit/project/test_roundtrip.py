"""Rendered code is read back as the same project."""

import json

import pytest
from hypothesis import HealthCheck, given, settings

from memory.project import Outline, Project, render
from memory.project.literals import Uses, record_literal
from tests.properties import examples

from .strategies import projects
from .support import Store, add, define, edit, project_with, trip, trips_project


def texts_of_records(project: Project) -> dict[str, list[str]]:
    """Return the records as source: unlike `==`, it tells 1 from 1.0 and True."""
    return {
        f"{domain.name}.{name}": [
            record_literal(record, Uses()) for _, record in project.records(domain.name, name)
        ]
        for domain in project.outline.domains.values()
        for name in domain.holders
    }


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(projects())
def test_any_project_comes_back_from_its_files(project: Project) -> None:
    files = render(project)

    back = Project.from_files(files)

    assert back == project
    assert texts_of_records(back) == texts_of_records(project)
    assert render(back) == files


@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(projects())
def test_any_outline_comes_back_from_json(project: Project) -> None:
    # Key order is lost, as in PostgreSQL's jsonb.
    stored = json.dumps(project.outline.to_json(), sort_keys=True)

    back = Outline.from_json(json.loads(stored))

    assert back == project.outline
    assert back.to_json() == project.outline.to_json()


@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(projects())
def test_any_project_opened_lazily_equals_the_one_read_from_files(project: Project) -> None:
    store = Store(project)

    opened = store.open()

    assert store.reads == []
    assert opened == Project.from_files(store.files)
    assert opened.change().files == {}


def test_an_empty_project_is_a_manifest_alone() -> None:
    assert list(render(Project.empty())) == ["manifest.py"]
    assert Project.from_files(render(Project.empty())) == Project.empty()


def test_five_thousand_records_come_back_in_order() -> None:
    project = trips_project(5_000)

    files = render(project)
    back = Project.from_files(files)

    assert back == project
    assert [record.key for _, record in back.records("travel", "trips")] == [
        f"trip-{number}" for number in range(1, 5_001)
    ]
    assert "domains/travel/trips_0002.py" in files
    assert max(len(text.encode()) for text in files.values()) <= 64 * 1024


def test_projects_that_differ_in_one_value_are_not_equal() -> None:
    one, other = trips_project(2), trips_project(1)
    edit(other, **trip(2, days=29))

    assert one != other


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "quotes \" and ' and \\ backslash",
        "line\nbreak\r\ttab\x0c\x00\x7f\x85",
        "\u2028\u2029 separators",
        "\u202e overrides, \u200b invisible, \ufeff mark",
        "\U0001f600 emoji, \U000e0001 tag, \U0010ffff last",
        "é and e\u0301 are not the same",
        "# type: ignore",
        "{braces} %s",
    ],
)
def test_every_text_survives_and_stays_on_its_line(text: str) -> None:
    project = project_with(define("a", "Thing", {"text": "str"}), add("a", "Thing", "k", text=text))

    files = render(project)

    assert len(files["domains/a/state.py"].splitlines()) == 5
    assert Project.from_files(files) == project


def test_the_same_edits_give_the_same_bytes() -> None:
    assert render(trips_project(300)) == render(trips_project(300))


def test_the_rendered_state_is_the_documented_form() -> None:
    project = project_with(
        define("health", "Medication", {"name": "str", "started_on": "date", "note": "str | None"}),
        add("health", "Medication", "medication-41", name="Amoxicillin", started_on="2025-01-10"),
        {
            **add("health", "Medication", "m", name="Own", started_on="2025-01-10", note='"x"'),
            "collection": "current",
            "singleton": True,
            "sources": [3, 41],
        },
    )

    assert render(project)["domains/health/state.py"] == (
        "import datetime\n"
        "from domains.health.schema import Medication\n"
        "\n"
        "medications: list[Medication] = [\n"
        '    Medication(key="medication-41", name="Amoxicillin", '
        "started_on=datetime.date(2025, 1, 10), sources=(1,)),\n"
        "]\n"
        "\n"
        'current = Medication(key="m", name="Own", started_on=datetime.date(2025, 1, 10), '
        'note="\\"x\\"", sources=(3, 41))\n'
    )

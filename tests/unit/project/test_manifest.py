"""The manifest: small, valid Python, and the same as text for prompts."""

import ast

import pytest

from memory.project import Project, manifest_text, render_manifest
from memory.project.field_texts import describe_texts
from memory.project.manifest import MAX_CLASSES

from .examples import rich_project
from .support import (
    SILENT,
    add,
    define,
    define_enum,
    edit,
    project_with,
    trips_project,
    write,
)


def test_manifest_names_every_domain_class_field_and_count() -> None:
    project = project_with(
        define_enum("travel", "Color", RED=1, BLUE=2),
        define("travel", "Stop", {"town": "str", "fee": "decimal.Decimal"}, kind="object"),
        define(
            "travel",
            "Trip",
            {"to": "str", "on": "datetime.date", "note": "str | None", "at": "list[Stop] | None"},
            collection="trips",
        ),
        {**add("travel", "Trip", "own", to="x", on="2025-01-01"), "collection": "next_trip"}
        | {"singleton": True},
        add("travel", "Trip", "k", to="x", on="2025-01-01"),
        write("never"),
    )

    assert render_manifest(project.outline) == (
        '"""Generated. str unless name:type; ? may be None"""\n'
        "DOMAINS = {\n"
        '"travel": [\n'
        ' "trips: 1 Trip(to, on:date, note?, at:list[Stop]?)",\n'
        ' "next_trip = Trip",\n'
        ' "Stop(town, fee:Decimal)",\n'
        ' "Color = RED | BLUE",\n'
        "],\n"
        "}\n"
        "CONSTRAINTS = {\n"
        ' "never": "Never says anything.",\n'
        "}\n"
    )


def test_as_text_it_names_the_open_alerts_too() -> None:
    text = manifest_text(trips_project(2).outline, [("critical", "Passport expires")])

    assert text == (
        "Domains (str unless name:type; ? may be None):\n"
        "travel:\n"
        "  trips: 2 Trip(to, starts_on:date, days:int)\n"
        "Open alerts:\n"
        "  critical: Passport expires\n"
    )


def test_without_counts_it_stays_the_same_as_records_are_added() -> None:
    few, many = (manifest_text(trips_project(n).outline, counts=False) for n in (2, 30))
    assert few == many
    assert "  trips: Trip(to, starts_on:date, days:int)\n" in few


def test_manifest_quotes_few_or_sample_texts() -> None:
    fields = {"quality": "str | None", "room": "str", "note": "str", "tags": "list[str]"}
    project = project_with(define("sleep", "Night", fields, collection="nights"))
    for number in range(6):
        night = {"quality": ("fair", "good", None)[number % 3], "room": f"R-{number}"}
        added = add("sleep", "Night", f"n{number}", note="x" * 40, tags=["a", "b"], **night)
        edit(project, **added)
    domain = project.outline.domains["sleep"]
    records = list(project.records_of("domains/sleep/state.py")["nights"].values())

    def shown(*, is_whole: bool) -> str:
        texts = {"sleep": describe_texts([(records, is_whole)], domain)}
        return manifest_text(project.outline, texts=texts)

    fields_with_all = 'quality?{"fair", "good"}, room{"R-0", ...}, note, tags:list[str]{"a", "b"}'
    assert f"nights: 6 Night({fields_with_all})\n" in shown(is_whole=True)
    assert 'quality?{"fair", ...}, room{"R-0", ...}' in shown(is_whole=False)


@pytest.mark.parametrize(("many", "listed"), [(12, 12), (13, 1)])
def test_a_dozen_categories_are_all_listed(many: int, listed: int) -> None:
    project = project_with(define("shop", "Sale", {"category": "str"}, collection="sales"))
    for number in range(2 * many):
        edit(project, **add("shop", "Sale", f"s{number}", category=f"c{number % many:02}"))
    domain = project.outline.domains["shop"]
    records = project.records_of("domains/shop/state.py")["sales"].values()

    described = describe_texts([(records, True)], domain)["Sale", "category"]

    assert described.count('"c') == listed


def test_manifest_is_valid_python_whatever_it_names() -> None:
    project = rich_project()
    source = SILENT.replace("Never", 'A "quoted" \\\\ remark, ' * 20)
    edit(project, **write("wordy", source))

    manifest = render_manifest(project.outline)

    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(manifest).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert set(values["DOMAINS"]) == {"identity", "travel"}
    assert values["CONSTRAINTS"]["wordy"].endswith("...")
    assert max(map(len, values["CONSTRAINTS"].values())) == 100


def test_past_a_size_it_gives_names_and_counts_alone() -> None:
    classes = [
        define("big", f"Thing{number}", {"field": "str"}, collection=f"things_of_{number}_")
        for number in range(MAX_CLASSES + 1)
    ]

    small = render_manifest(project_with(*classes[:-1]).outline)
    big = render_manifest(project_with(*classes).outline)

    assert "(field)" in small
    assert "(field)" not in big
    assert "things_of_79_ 0, things_of_80_ 0" in big
    assert ast.literal_eval(big.split("DOMAINS = ")[1])["big"].startswith("things_of_0_ 0, ")


def test_manifest_of_a_hundred_domains_takes_at_most_2500_tokens() -> None:
    classes = [
        define(f"part_of_life_{number}", name, {"field": "str"}, collection=f"{name.lower()}s")
        for number in range(100)
        for name in ("Appointment", "Medication", "Conversation")
    ]
    outline = project_with(*classes).outline

    text = manifest_text(outline)

    assert len(text) / 4 <= 2500
    assert len(render_manifest(outline)) / 4 <= 2500
    for number in range(100):
        line = f"part_of_life_{number}: appointments 0, medications 0, conversations 0\n"
        assert line in text


def test_manifest_of_an_empty_project_is_empty() -> None:
    assert "DOMAINS = {\n}\n" in render_manifest(Project.empty().outline)


def test_a_constraint_that_fails_is_marked_with_its_error() -> None:
    outline = trips_project(2).outline.with_constraint("budget", "Trips are cheap.")
    text = manifest_text(
        outline.with_constraint("visa", "Visas last."), failing={"budget": "Boom."}
    )
    assert "  budget: FAILS: Boom. Its rule: Trips are cheap.\n" in text
    assert "  visa: Visas last.\n" in text

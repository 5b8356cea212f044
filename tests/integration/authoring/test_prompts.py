"""The size of a model's prompt depends on what is new, not on how much there is already."""

import json
from dataclasses import replace

import pytest

from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryKind
from memory.project import DefineClass, FieldSpec, Project, apply
from tests.edits import dismiss
from tests.factories import make_checkpoint
from tests.integration.authoring.conftest import Say, Work, asked, edits, finishes, refuses
from tests.llm_server import called
from tests.steps import settle_records
from workers.authoring import prompts
from workers.findings import Verdict

pytestmark = pytest.mark.django_db

CLASSES = ("Meal", "Trip", "Visit")


def lives(user: MemoryUser, first: int, last: int) -> None:
    """Import typed entries with these numbers, of three classes in turn."""
    statements = [
        {
            "domain": "life",
            "type": CLASSES[number % len(CLASSES)],
            "key": f"record-{number}",
            "data": {"what": f"It was like {number} times before", "number": number},
        }
        for number in range(first, last + 1)
    ]
    settle_records(user, *statements)


def is_told_a_fact(say: Say, work: Work) -> list[str]:
    """Have a model look at the domain, and settle a fact; return the prompt of each turn."""
    (fact,) = say("Ada likes tea.", kind=EntryKind.FACT)
    server = work(
        called("open_domain", {"domain": "life"}),
        called("look_up", {"text": "like before"}),
        edits(dismiss(fact)),
        finishes(),
    )
    return [json.dumps(request.body) for request in server.requests]


def test_ten_times_the_history_is_the_same_prompt(user: MemoryUser, say: Say, work: Work) -> None:
    # Given a history, longer than what one answer shows of it
    lives(user, 1, 150)
    few = is_told_a_fact(say, work)
    # When it becomes ten times as long
    lives(user, 151, 1000)  # less than UAC_CHECKPOINT_BATCH: one turn of a busy worker settles it
    lives(user, 1001, 1500)
    many = is_told_a_fact(say, work)
    # Then all turns are about as long: counts and keys have more digits, and more records match
    assert len(few) == len(many) == 4
    assert " and 20 others" in few[0]
    assert " and 470 others" in many[0]
    for before, after in zip(few, many, strict=True):
        assert len(after) < 1.1 * len(before)


def test_prompts_begin_alike_while_the_schema_stays_the_same(
    user: MemoryUser, say: Say, work: Work
) -> None:
    # Given a project
    lives(user, 1, 30)
    schema = is_told_a_fact(say, work)[0].partition("Some of its records:")[0]
    assert "meals: Meal(" in schema
    # When it has more records, and other entries are asked about
    lives(user, 31, 60)
    (fact,) = say("It was like 47 times before.", kind=EntryKind.FACT)
    server = work(edits(dismiss(fact)), finishes())
    # Then providers can read instructions, tools and schema from their cache
    assert json.dumps(server.requests[0].body).startswith(schema)


def test_a_long_record_is_shown_in_part(user: MemoryUser, say: Say, work: Work) -> None:
    # Given a record with a long text
    novel = {"type": "Book", "key": "novel", "data": {"text": "It was a dark night. " * 5000}}
    settle_records(user, novel)
    (fact,) = say("Ada likes tea.", kind=EntryKind.FACT)
    # When a model looks it up, by its key or otherwise, or opens its domain
    server = work(
        called("look_up", {"key": "novel"}),
        called("look_up", {"text": "night"}),
        called("open_domain", {"domain": "general"}),
        edits(dismiss(fact)),
        finishes(),
    )
    # Then it sees as much as one answer shows
    assert len(server.requests) == 5
    for request in server.requests[1:4]:
        (shown,) = request.results
        assert "It was a dark night." in shown
        assert len(shown) < 8200


def crowded(user: MemoryUser, many: int) -> None:
    """Give the user a version with so many domains and constraints."""
    project = Project.empty()
    for number in range(many):
        fields = (FieldSpec("name", "str"), FieldSpec("begins_on", "datetime.date"))
        apply(project, DefineClass(f"domain{number}x", "Thing", fields, collection="things"))
    constraints = {f"constraint{number}x": "It is so. " * 20 for number in range(many)}
    outline = replace(project.outline, constraints=constraints)
    user.head = make_checkpoint(user, outline=outline.to_json())
    user.save(update_fields=["head"])


@pytest.mark.parametrize("many", [200, 1000])
def test_large_content_leaves_prompt_short(
    user: MemoryUser, say: Say, work: Work, many: int
) -> None:
    # Given much of everything
    crowded(user, many)
    (long,) = say("It is long.\n" * 80_000, kind=EntryKind.FACT)
    say(*(f"Ada likes tea of sort {number}." for number in range(many)), kind=EntryKind.FACT)
    # When a model is asked, which refuses to answer
    server = work(refuses())
    # Then the question is short, and says what it leaves out and how that is had
    question = asked(server.requests[0])
    assert len(question) < 40_000
    assert "domain0x: things\n" in question
    assert "more characters: look_up searches all of it\n" in question
    assert f"more characters: read_entry(seq={long}, start=4000)" in question
    assert question.count("Ada likes tea of sort") == 39


def test_alerts_are_told_in_part() -> None:
    alert = {"path": "constraints/x.py", "severity": "critical", "message": "It is so.\n\n" * 500}
    change = ["2024-12-31", "opens", "warning"]
    coming = {"path": "constraints/x.py", "of": ["a.b:c"], "changes": [change] * 50}
    told = Verdict(day="2024-12-30", alerts=[alert] * 100, coming=[coming] * 100).to_json()

    lines = prompts.alerts(told).splitlines()

    assert lines[0] == "Alerts on 2024-12-30, the day of the newest entry:"
    assert len([line for line in lines if line.startswith("- critical: It is so. It is")]) == 20
    assert lines.count("- x (a.b:c): " + "; ".join(["2024-12-31 opens warning"] * 6)) == 20
    assert max(map(len, lines)) < 400


def test_records_that_share_words_are_shown(user: MemoryUser, say: Say, work: Work) -> None:
    # Given a large collection, and a small one
    lives(user, 1, 60)
    dog = {"domain": "pets", "type": "Dog", "key": "rex", "data": {"name": "Rex", "eats": "fish"}}
    settle_records(user, dog)
    # When a model is asked of entries that speak of some of their records
    (fact,) = say("Rex got sick, as 57 others.", kind=EntryKind.FACT)
    server = work(edits(dismiss(fact)), finishes())
    question = asked(server.requests[0])
    # Then these are shown, with their keys, and the keys of the small collection
    shown = question.partition("Some of its records:\n")[2].partition("\n\n")[0].splitlines()
    assert "pets.dogs has the keys rex" in shown
    records = [line.split()[0] for line in shown if " sources=[" in line]
    assert {*records[:2]} == {"life.meals.record-57", "pets.dogs.rex"}


def test_a_correction_says_what_it_corrects(say: Say, work: Work) -> None:
    say("Ada likes tea.", kind=EntryKind.FACT)
    say("Ada likes coffee.", kind=EntryKind.CORRECTION, derived_from=[1])

    server = work(
        edits(dismiss(1)),
        edits(dismiss(2)),
        finishes(),
    )

    question = server.requests[0].text
    assert "[2] (correction of [1]) Ada likes coffee." in question
    assert "[1] (fact, " in question

"""Facts become edits: corrections, contradictions, backlogs, a project that changes meanwhile."""

import datetime
import re
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.llm.models import LlmCall, LlmPurpose
from memory.log.entry_log import coverage
from memory.log.models.entries import EntryKind
from memory.versions import checkpoints
from memory.versions.models.checkpoints import Checkpoint, Origin
from memory.versions.models.runs import Run, RunKind
from tests.edits import add, define, note, retire, update
from tests.integration.authoring.conftest import (
    TRIP,
    Fields,
    LaneNow,
    Meanwhile,
    Say,
    Work,
    asked,
    begins,
    edits,
    finishes,
    numbers_in,
    refuses,
    taking_notes,
    trip,
)
from tests.integration.authoring.test_misbehaviour import SPEAKS, TESTS, constraint, written
from tests.llm_server import Reply, Request, called
from tests.steps import head_of, settle_records
from workers import tasks
from workers.authoring import structure

pytestmark = pytest.mark.django_db

ALLERGY = define("health.Allergy", allergen="str")


def test_correction_retires_with_its_source(
    user: MemoryUser, say: Say, work: Work, fields_of: Fields
) -> None:
    # Given an allergy, told some time ago
    (told,) = say("The user is allergic to penicillin.", kind=EntryKind.FACT)
    allergy = add("health.Allergy", told, key="penicillin", allergen="penicillin")
    work(edits(ALLERGY, allergy), finishes())
    before = user.head
    # When a correction says that it is none
    (correction,) = say("I am not allergic to penicillin after all.", kind=EntryKind.CORRECTION)
    none = retire("health.allergies.penicillin", correction, reason="not allergic after all")
    server = work(called("look_up", {"text": "penicillin"}), edits(none), finishes())
    # Then the model saw what is known, the record is gone, and the edit says by which entry
    assert "penicillin" in server.requests[1].results[0]
    assert fields_of("health.allergies") == {}
    assert head_of(user).edits == [none]
    # And what was known before stays to be read
    assert before is not None
    assert "penicillin" in checkpoints.read_file(before, "domains/health/state.py")


def test_update_keeps_both_sources(
    user: MemoryUser, say: Say, work: Work, fields_of: Fields
) -> None:
    # Given a trip
    (told,) = say("The user goes to Rome on 2026-05-08.", kind=EntryKind.FACT)
    work(edits(TRIP, trip(told)), finishes())
    # When it is moved
    (moved,) = say("The trip to Rome was moved to 2026-06-08.", kind=EntryKind.FACT)
    work(edits(update("travel.trips.trip-1", moved, starts_on="2026-06-08")), finishes())
    # Then there is one trip, on the new day, that rests on both
    assert fields_of("travel.trips")["trip-1"]["starts_on"] == {"$date": "2026-06-08"}
    assert f"sources=({told}, {moved})" in checkpoints.read_file(
        head_of(user), "domains/travel/state.py"
    )


def test_an_edit_may_finish_at_once(
    user: MemoryUser, fact: int, work: Work, fields_of: Fields
) -> None:
    # Given a trip
    # When the model edits and finishes in one call
    server = work(edits(TRIP, trip(fact), finish=True))
    # Then that was all
    assert len(server.requests) == 1
    assert set(fields_of("travel.trips")) == {"trip-1"}
    assert user.head is not None


def test_refused_edit_keeps_session_open(fact: int, work: Work, fields_of: Fields) -> None:
    lost = {"op": "retire", "domain": "travel", "collection": "trips", "key": "no-such"}
    # When one of the edits is refused, or the gate refuses them all
    server = work(
        edits(TRIP, trip(fact), {**lost, "sources": [fact], "reason": "off"}, finish=True),
        edits({**trip(fact), "key": "b", "fields": {"to": "Rome", "starts_on": "2026-05-09"}},
              finish=True),
        called("edit", {"edits": {"2": None, "3": None}}),
        finishes(),
    )  # fmt: skip
    first, second = (server.requests[number].results[0] for number in (1, 2))
    # Then nothing is judged of the first, and the second is told what was applied and what is wrong
    assert "Applied: 0 to 1." in first
    assert "travel.trips has no record 'no-such'" in first
    assert "Nothing was committed" not in first
    assert "Applied: 3." in second
    assert "Nothing was committed; your edits are kept" in second
    # And both may be mended
    assert set(fields_of("travel.trips")) == {"trip-1"}


def test_parties_that_disagree_both_stay(
    user: MemoryUser, say: Say, work: Work, fields_of: Fields
) -> None:
    # Given two people who say different things of one trip
    first, second = say(
        "Ann says that the trip to Rome begins on 2026-05-08.",
        "Ben says that the trip to Rome begins on 2026-05-09.",
        kind=EntryKind.FACT,
    )
    conflict = {
        "op": "conflict",
        "about": "the day of the trip to Rome",
        "records": [
            {"domain": "travel", "collection": "trips", "key": key} for key in ("ann", "ben")
        ],
        "sources": [first, second],
    }
    # When the model keeps both and marks them
    work(
        edits(
            TRIP,
            {**trip(first), "key": "ann"},
            {**trip(second, starts_on="2026-05-09"), "key": "ben"},
            conflict,
        ),
        finishes(),
    )
    # Then both are there, and a constraint speaks about them
    assert set(fields_of("travel.trips")) == {"ann", "ben"}
    for run in Run.objects.filter(kind=RunKind.CONSTRAINTS):
        tasks.work("runs", str(run.pk))
    (alert,) = user.alerts.all()
    assert "the day of the trip to Rome" in alert.message


def test_backlog_becomes_several_checkpoints_in_order(
    user: MemoryUser, say: Say, work: Work, settings: Settings, lane: LaneNow
) -> None:
    # Given more facts than one question may hold
    settings.UAC_LLM_WINDOW_CHARACTERS = 100
    say(*(f"fact number {number} is told at some length" for number in range(7)), kind="fact")
    # When the model works on them
    server = work(script=taking_notes)
    # Then each was asked once, in the order of the log, and each version has seen so far
    windows = [numbers_in(asked(request)) for request in server.requests if begins(request)]
    assert windows == [[1, 2], [3, 4], [5, 6], [7]]
    assert coverage(user).covered == 7
    assert [one.seen_seq for one in user.checkpoints.order_by("version")] == [2, 4, 6, 7]
    # And what is settled is not looked through again
    assert lane().cursor_seq == 7


def test_long_entry_is_read_on(say: Say, work: Work) -> None:
    # Given a fact that is longer than a question shows
    words = " ".join(f"word{number}" for number in range(3000))
    (seq,) = say(words, kind=EntryKind.FACT)
    # When the model reads on as it is told to
    server = work(
        called("read_entry", {"seq": seq, "start": 4000}),
        called("read_entry", {"seq": seq, "start": 12000}),
        called("read_entry", {"seq": seq, "start": 20000}),
        edits(note("word1 word2", seq)),
        finishes(),
    )
    # Then it has seen all of it
    assert f"read_entry(seq={seq}, start=4000)" in asked(server.requests[0])
    seen = words[:4000] + "".join(
        request.results[0].partition(") ")[2].partition("\n...")[0]
        for request in server.requests[1:4]
    )
    assert seen == words


def test_project_changes_meanwhile(
    user: MemoryUser, fact: int, work: Work, meanwhile: Meanwhile
) -> None:
    # Given typed entries that make a version while the model works
    dog = {"domain": "pets", "type": "Dog", "key": "rex", "data": {"name": "Rex"}}
    meanwhile(lambda: settle_records(user, dog))
    # When it has finished
    work(edits(TRIP, trip(fact)), finishes())
    # Then its edits are on top of that version, and nothing was asked twice
    assert user.head is not None
    assert (user.head.version, user.head.origin) == (2, Origin.LLM)
    assert {"domains/pets/state.py", "domains/travel/state.py"} <= set(user.head.tree)
    assert LlmCall.objects.count() == 2


def test_project_takes_away_what_was_meant(
    user: MemoryUser, fact: int, work: Work, meanwhile: Meanwhile
) -> None:
    # Given a class that somebody else defines, with other fields, while the model works
    oslo = {"domain": "travel", "type": "Trip", "key": "a", "data": {"city": "Oslo"}}
    meanwhile(lambda: settle_records(user, oslo))
    # When it finishes
    server = work(
        edits(TRIP, trip(fact)),
        finishes(),
        called("open_domain", {"domain": "travel"}),
        edits({**trip(fact), "fields": {"city": "Rome"}}),
        finishes(),
    )
    # Then it is told what was lost, sees the new schema, and goes on from there
    told = server.requests[2].results[0]
    assert "has changed in the meantime" in told
    assert "Edit 1 no longer applies" in told
    assert "city" in server.requests[3].results[0]
    assert coverage(user).pending == 0


def test_dry_run_commits_nothing(user: MemoryUser, fact: int, work: Work) -> None:
    # Given a model that checks before it finishes
    versions = []

    def script(request: Request) -> Reply:
        versions.append(Checkpoint.objects.count())
        replies = [edits(TRIP, trip(fact)), called("check", {}), finishes()]
        return replies[len(versions) - 1]

    server = work(script=script)
    # Then the check says that all is in order, and only the end makes a version
    assert "in order" in server.requests[2].results[0]
    assert versions == [0, 0, 0]
    assert user.head is not None


def test_check_tells_the_alerts_of_today(say: Say, work: Work) -> None:
    # Given a model that writes a constraint and checks what it says
    (seq,) = say("The user goes to Rome on 2036-05-08.", kind=EntryKind.FACT)
    server = work(
        edits(TRIP, trip(seq, starts_on="2036-05-08"), constraint(written())),
        called("check", {}),
        finishes(),
    )
    assert "info: The trip to Rome begins on 2036-05-08" in server.requests[2].results[0]


def test_half_of_a_constraint_is_enough(user: MemoryUser, fact: int, say: Say, work: Work) -> None:
    # Given a constraint, of which the model changes the source alone
    work(edits(TRIP, trip(fact), constraint(written())), finishes())
    (more,) = say("The user wants to be warned of trips.", kind=EntryKind.FACT)
    source = written(SPEAKS.replace("info(", "warning(")).replace(
        "import Alert, info", "import Alert, warning"
    )
    half = {"op": "write_constraint", "name": "soon", "source": source, "sources": [more]}
    work(edits(half), finishes())
    # Then its tests are as they were
    assert user.head is not None
    assert "warning(" in checkpoints.read_file(user.head, "constraints/soon.py")
    assert checkpoints.read_file(user.head, "tests/test_soon.py") == TESTS


def test_budget_is_exhausted(
    user: MemoryUser, workspace: Workspace, say: Say, work: Work, lane: LaneNow
) -> None:
    # Given a workspace that may not spend a token
    workspace.llm_tokens_per_day = 0
    workspace.save()
    say("I am going to Rome.")
    # When the model is to work
    server = work(script=taking_notes)
    # Then nobody is asked, the message waits, and the staff read why
    assert server.requests == []
    assert coverage(user).pending == 1
    assert "budget" in lane().last_error
    assert not LlmCall.objects.exists()


def test_calls_of_a_window_share_their_work(user: MemoryUser, say: Say, work: Work) -> None:
    # Given two windows' worth of facts, one after the other
    say("The user likes tea.", kind=EntryKind.FACT)
    work(script=taking_notes)
    say("The user likes coffee.", kind=EntryKind.FACT)
    work(script=taking_notes)
    # Then each version has the calls that made it
    checkpoints = user.checkpoints.all()
    assert len(checkpoints) == 2
    for checkpoint in checkpoints:
        calls = LlmCall.objects.filter(checkpoint=checkpoint)
        assert calls.count() == 2
        assert len({call.work for call in calls}) == 1
        assert {call.purpose for call in calls} == {LlmPurpose.STRUCTURE}


# -- What the model sees of the project ---------------------------------------------------------


@pytest.fixture
def many(user: MemoryUser, say: Say, monkeypatch: pytest.MonkeyPatch) -> MemoryUser:
    """Sixty trips, of which only the newest ten are read in the model's process, and a new fact."""
    monkeypatch.setattr("workers.authoring.workbench.READ_RECORDS", 10)
    cities = ["Rome", "Oslo", "Bern"]
    for_each: dict[str, Any] = {"domain": "travel", "type": "Trip"}
    trips = [
        {"to": cities[number % 3], "nights": number, "on": f"2026-01-{number % 28 + 1:02}"}
        for number in range(60)
    ]
    settle_records(
        user, *({**for_each, "key": f"t{number}", "data": one} for number, one in enumerate(trips))
    )
    say("The user likes tea.", kind=EntryKind.FACT)
    return user


LOOK_UPS: list[tuple[dict[str, Any], list[str]]] = [
    ({"key": "t7"}, ["t7"]),
    ({"text": "oslo", "where": {"nights": 58}}, ["t58"]),
    # Older than the records read at once: found by a query.
    ({"collection": "trips", "where": {"nights": 4}}, ["t4"]),
    ({"domain": "travel", "where": {"on": "2026-01-03", "to": "Bern"}}, ["t2"]),
    ({"text": "bern t5"}, ["t59", "t56", "t53", "t50", "t5"]),
]


@pytest.mark.parametrize(("arguments", "keys"), LOOK_UPS)
def test_records_are_looked_up(
    many: MemoryUser, work: Work, arguments: dict[str, Any], keys: list[str]
) -> None:
    server = work(called("look_up", arguments), refuses())
    found = re.findall(r"^travel\.trips\.(\w+) Trip", server.requests[1].results[0], re.MULTILINE)
    assert found == keys


WRONG_LOOK_UPS: list[tuple[str, dict[str, Any], str]] = [
    ("look_up", {"domain": "health"}, "no domain 'health': use one of travel"),
    ("look_up", {"collection": "trip"}, "no collection 'trip': use one of travel.trips"),
    ("look_up", {"where": {"hotel": "Ritz"}}, "No class searched has hotel"),
    ("look_up", {"key": "t99"}, "No record has the key 't99'"),
    ("open_domain", {"domain": "health"}, "no domain 'health'"),
    ("read_constraint", {"name": "x"}, "no constraint 'x': there are none yet"),
    ("read_entry", {"seq": 99}, "no entry 99"),
    ("edit", {"edits": {"3": None}}, "no edit '3'"),
]


@pytest.mark.parametrize(("tool", "arguments", "told"), WRONG_LOOK_UPS)
def test_wrong_look_ups_name_what_there_is(
    many: MemoryUser, work: Work, tool: str, arguments: dict[str, Any], told: str
) -> None:
    server = work(called(tool, arguments), refuses())
    assert told in server.requests[1].results[0]


def test_many_matches_are_cut_and_it_is_said(many: MemoryUser, work: Work) -> None:
    server = work(called("look_up", {}), refuses())
    result = server.requests[1].results[0]
    assert result.count("travel.trips.") == 20
    assert "and more: only 20 are shown" in result


def test_domain_is_opened(many: MemoryUser, work: Work) -> None:
    server = work(called("open_domain", {"domain": "travel"}), refuses())
    result = server.requests[1].results[0]
    assert "class Trip(Record):" in result
    assert "trips: 60 records; the newest 5 of them" in result
    assert "travel.trips.t59 Trip" in result
    assert result.count("travel.trips.") == 5


def test_edits_are_seen_and_taken_back(user: MemoryUser, fact: int, work: Work) -> None:
    # Given a model that looks at what it has done, and takes some of it back
    server = work(
        edits(TRIP, {**trip(fact), "key": "wrong"}),
        called("look_up", {"text": "Rome"}),
        called("edit", {"edits": {"0": None}}),
        called("look_up", {"text": "Rome"}),
        edits(TRIP, {**trip(fact), "key": "right"}),
        finishes(),
    )
    # Then it sees them, and what cannot be without them goes, too
    assert "wrong" in server.requests[2].results[0]
    assert "edit 1: there is no domain 'travel'" in server.requests[3].results[0]
    assert "No record matches" in server.requests[4].results[0]
    assert [edit.get("key") for edit in head_of(user).edits] == [None, "right"]


def test_class_has_its_collection_at_once(user: MemoryUser, say: Say, work: Work) -> None:
    # Given a model that defines a class of which nobody has told a record yet
    (seq,) = say("The user wants to be warned of trips.", kind=EntryKind.FACT)
    work(edits(TRIP, note("wants to be warned", seq)), finishes())
    # Then a constraint may wait for the first
    state = checkpoints.read_file(head_of(user), "domains/travel/state.py")
    assert "trips: list[Trip] = []" in state


def test_window_is_bounded(settings: Settings, lane: LaneNow, say: Say) -> None:
    # Given one huge fact and many small ones
    settings.UAC_LLM_WINDOW_CHARACTERS = 5000
    say("x" * 500_000, *(f"small {number}" for number in range(100)), kind=EntryKind.FACT)
    # Then a window holds no more than a question may
    entries = structure.pending(lane(), 40, [])
    assert len(entries) == 40
    assert structure.pending(lane(), 40, [entries[0].seq])[0].seq == 2


# -- What the model sees of alerts ---------------------------------------------------------------

DAYS = """\
import datetime
from collections.abc import Iterator
from domains.travel.state import trips
from uac import Alert, critical, warning

NOTICE = datetime.timedelta(days=3)


def check(today: datetime.date) -> Iterator[Alert]:
    \"\"\"A trip comes near.\"\"\"
    for trip in trips:
        if trip.starts_on - NOTICE <= today < trip.starts_on:
            yield warning(f"The trip to {trip.to} is near", evidence=[trip])
        elif trip.starts_on == today:
            yield critical(f"The trip to {trip.to} begins", evidence=[trip])
"""
DAYS_TESTS = """\
import datetime
from constraints import soon
from domains.travel.schema import Trip
from uac.testing import run_check

TRIP = Trip(key="t", to="Rome", starts_on=datetime.date(2026, 3, 10))


def severities(day: int) -> list[str]:
    today = datetime.date(2026, 3, day)
    return [str(alert.severity) for alert in run_check(soon, today=today, trips=[TRIP])]


def test_it_fires_on_its_days() -> None:
    found = [severities(day) for day in (6, 7, 9, 10, 11)]
    assert found == [[], ["warning"], ["warning"], ["critical"], []]
"""
SAID_ON = datetime.datetime(2024, 12, 30, 12, tzinfo=datetime.UTC)


def near(key: str, seq: int, starts_on: str) -> dict[str, Any]:
    return {**trip(seq, starts_on=starts_on), "key": key}


@pytest.fixture
def near_trip(say: Say, work: Work) -> int:
    """A trip from years ago, with a constraint that fires three days before it begins."""
    (seq,) = say("To Rome on 2025-01-03.", kind=EntryKind.FACT, occurred_at=SAID_ON)
    work(edits(TRIP, near("a", seq, "2025-01-03"), constraint(DAYS, DAYS_TESTS)), finishes())
    return seq


def test_check_speaks_of_the_newest_entrys_day(user: MemoryUser, say: Say, work: Work) -> None:
    # Given a fact of years ago, and a model that checks what its constraint says of it
    (seq,) = say("To Rome on 2025-01-03.", kind=EntryKind.FACT, occurred_at=SAID_ON)
    server = work(
        edits(TRIP, near("a", seq, "2025-01-03"), constraint(DAYS, DAYS_TESTS)),
        called("check", {}),
        finishes(),
    )
    # Then it is told the alerts of that day, and on which days they change
    told = server.requests[2].results[0]
    assert "Alerts on 2024-12-30, the day of the newest entry:\nnone" in told
    assert (
        "- soon (travel.trips:a): 2024-12-31 opens warning; 2025-01-03 critical;"
        " 2025-01-04 resolves" in told
    )
    assert user.head is not None


def test_refusals_speak_of_the_newest_entrys_day(say: Say, work: Work) -> None:
    # Given a constraint whose tests leave a boundary open
    (seq,) = say("To Rome on 2025-01-03.", kind=EntryKind.FACT, occurred_at=SAID_ON)
    lax = DAYS_TESTS.replace("(6, 7, 9, 10, 11)", "(6, 8, 9, 10, 11)")
    server = work(
        edits(TRIP, near("a", seq, "2025-01-03"), constraint(DAYS, lax)),
        finishes(),
        called("check", {}),
        finishes(),
    )
    # Then it is told which one, and what the constraint would say
    told = server.requests[2].results[0]
    assert "no test fails with `<` instead of `<=` on line 12" in told
    assert "Alerts on 2024-12-30" in told
    assert "2024-12-31 opens warning" in told
    # And it may leave it, of which it is told again
    told = server.requests[3].results[0]
    assert told.startswith(
        "You may finish, or fix the tests first.\nThere may still be mistakes here:"
    )
    assert "no test fails with `<` instead of `<=` on line 12" in told
    assert len(server.requests) == 4


def test_open_alerts_are_of_newest_entry_day(near_trip: int, say: Say, work: Work) -> None:
    later = SAID_ON + datetime.timedelta(days=2)
    (seq,) = say("The user likes tea.", kind=EntryKind.FACT, occurred_at=later)
    server = work(script=taking_notes)
    question = asked(server.requests[0])
    assert f"[{seq}]" in question
    assert (
        "Alerts on 2025-01-01, the day of the newest entry:\n- warning: The trip to Rome is near"
        in question
    )
    assert "- soon (travel.trips:a): 2025-01-03 critical; 2025-01-04 resolves" in question


def test_open_alerts_follow_the_newest_state(
    user: MemoryUser, near_trip: int, say: Say, work: Work
) -> None:
    # Given an alert that is open, of which no sandbox worker has heard the newest version yet
    later = SAID_ON + datetime.timedelta(days=2)
    (moved,) = say(
        "The trip to Rome is put off to 2025-02-09.", kind=EntryKind.FACT, occurred_at=later
    )
    put_off = update("travel.trips.a", moved, starts_on="2025-02-09")
    # When a model settles it in two edits in a row, of which the second touches another domain
    server = work(edits(put_off), edits(note("put off to 2025-02-09", moved)), finishes())
    assert "The trip to Rome is near" in asked(server.requests[0])
    # Then the next question does not speak of it any more
    say("The user likes tea.", kind=EntryKind.FACT, occurred_at=later)
    assert "is near" not in asked(work(script=taking_notes).requests[0])
    # And the constraints run again on what is newest, once for all versions that were written
    runs_waiting = Run.objects.filter(user=user, kind=RunKind.CONSTRAINTS, status="queued")
    assert [run.checkpoint for run in runs_waiting] == [user.head]


def test_a_widened_field_is_answered_with_the_constraints_that_read_it(
    near_trip: int, say: Say, work: Work
) -> None:
    (seq,) = say("The user may also go to Oslo.", kind=EntryKind.FACT)
    widened = {"widen_field": "travel.Trip.starts_on", "type": "datetime.date | None"}
    others = {"widen_field": "travel.Trip.to", "type": "str | None"}
    server = work(
        edits(widened),
        edits({"add_field": "travel.Trip.cost", "type": "decimal.Decimal | None"}),
        called("edit", {"edits": {"0": others, "2": {"note": seq}}, "finish": True}),
        finishes(),
    )
    told = [request.results[0] for request in server.requests[1:]]
    assert "Trip.starts_on is read by soon" in told[0]
    assert "soon" not in told[1]

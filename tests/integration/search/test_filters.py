"""Filters of a search by properties of entries; contradictory ones are refused."""

import datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import EntryKind, LogEntry
from memory.recall.search.filters import BadFilter, condition
from tests.integration.search.conftest import NOON, Find, Say, SayAll, index_all

pytestmark = pytest.mark.django_db

DAY = datetime.timedelta(days=1)


@pytest.fixture
def entries(say: Say) -> None:
    """Six entries with different properties."""
    say("puppy one", speaker="Ada", metadata={"channel": "mail", "n": 1, "tags": ["a", "b"]})
    say("puppy two", speaker="Bob", metadata={"channel": "Chat", "n": 2.5, "deep": {"er": True}})
    say("puppy three", EntryKind.FACT, session_id=None, occurred_at=NOON + DAY)
    say("puppy four", EntryKind.CORRECTION, occurred_at=NOON + 2 * DAY, metadata={"n": "2"})
    say("puppy five", role="user", agent_id="agent", metadata={"channel": None})
    say("puppy six", speaker="ada%_'\"\\", metadata={"n": [1], "odd.key": "x"})


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"kind": "message"}, {1, 2, 5, 6}),
        ({"kind": {"ne": "message"}}, {3, 4}),
        ({"kind": {"in": ["fact", "correction"]}}, {3, 4}),
        ({"speaker": "Ada"}, {1}),
        ({"speaker": {"ne": "Ada"}}, {2, 3, 4, 5, 6}),
        ({"speaker": {"contains": "ADA"}}, {1, 6}),
        ({"speaker": {"contains": "%_'\"\\"}}, {6}),
        ({"NOT": {"speaker": "Ada"}}, {2, 3, 4, 5, 6}),
        ({"NOT": {"speaker": {"ne": "Ada"}}}, {1}),
        ({"session_id": "one"}, {1, 2, 4, 5, 6}),
        ({"role": "user", "agent_id": "agent", "source": "test"}, {5}),
        ({"seq": {"gt": 2, "lte": 4}}, {3, 4}),
        ({"seq": {"in": [1, 99]}}, {1}),
        ({"occurred_at": {"gte": "2026-03-03"}}, {3, 4}),
        ({"occurred_at": {"gt": "2026-03-03T13:00:00+01:00"}}, {4}),
        ({"occurred_at": "2026-03-03T12:00:00Z"}, {3}),
        ({"occurred_at": "2026-03-03T12:00:00"}, {3}),
        ({"recorded_at": {"lt": "2000-01-01"}}, set()),
        ({"metadata.channel": "mail"}, {1}),
        ({"metadata.channel": {"ne": "mail"}}, {2, 3, 4, 5, 6}),
        ({"metadata.channel": None}, {5}),
        ({"metadata.channel": {"contains": "cha"}}, {2}),
        ({"metadata.tags": {"contains": "a"}}, {1}),
        ({"metadata.n": {"contains": 1}}, {6}),
        ({"metadata.n": {"gte": 1}}, {1, 2}),
        ({"metadata.n": {"lt": 2.5}}, {1}),
        ({"metadata.n": {"gte": "1"}}, {4}),
        ({"metadata.n": {"in": [1, "2"]}}, {1, 4}),
        ({"metadata.deep.er": True}, {2}),
        ({"metadata.none": "x"}, set()),
        ({"AND": [{"kind": "message"}, {"NOT": {"speaker": "Bob"}}]}, {1, 5, 6}),
        ({"OR": [{"speaker": "Ada"}, {"kind": "fact"}], "seq": {"gt": 1}}, {3}),
        ({"NOT": {"OR": [{"speaker": "Ada"}, {"kind": "fact"}]}}, {2, 4, 5, 6}),
    ],
)
def test_filter_selects_matching_entries(
    entries: None, user: MemoryUser, search: Find, filters: dict[str, Any], expected: set[int]
) -> None:
    found = search("puppy", where=condition(filters, "UTC"))

    assert {hit.entry.seq for hit in found.hits} == expected


def test_days_begin_where_the_user_lives(entries: None, search: Find) -> None:
    noon = {"occurred_at": {"lt": "2026-03-03"}}

    assert len(search("puppy", where=condition(noon, "Europe/Berlin")).hits) == 4
    assert len(search("puppy", where=condition(noon, "Etc/GMT+12")).hits) == 4
    assert len(search("puppy", where=condition(noon, "Pacific/Kiritimati")).hits) == 0


@pytest.mark.parametrize(
    ("filters", "named"),
    [
        ({}, "filters"),
        ([], "filters"),
        ("kind", "filters"),
        ({"colour": "red"}, "colour"),
        ({"content": "red"}, "content"),
        ({"metadata": {"eq": {}}}, "metadata"),
        ({"metadata.": "x"}, "metadata."),
        ({"metadata.a..b": "x"}, "metadata.a..b"),
        ({"kind": "massage"}, "message"),
        ({"kind": ["message"]}, "kinds"),
        ({"speaker": {"like": "A"}}, "like"),
        ({"speaker": {}}, "filters.speaker"),
        ({"speaker": 5}, "filters.speaker"),
        ({"speaker": {"gt": "A"}}, "gt"),
        ({"speaker": {"in": "Ada"}}, "in"),
        ({"speaker": {"in": []}}, "in"),
        ({"speaker": {"contains": "a\x00"}}, "filters.speaker"),
        ({"seq": "1"}, "whole number"),
        ({"seq": True}, "whole number"),
        ({"seq": 10**30}, "whole number"),
        ({"seq": {"contains": 1}}, "contains"),
        ({"occurred_at": "yesterday"}, "occurred_at"),
        ({"occurred_at": "2026-02-30"}, "occurred_at"),
        ({"occurred_at": "20260303"}, "occurred_at"),
        ({"occurred_at": {"gt": 5}}, "occurred_at"),
        ({"metadata.n": {"gt": True}}, "gt"),
        ({"metadata.n": {"eq": {"a": 1}}}, "metadata.n"),
        ({"metadata.n": {"gt": None}}, "metadata.n"),
        ({"metadata.n": "x" * 1001}, "metadata.n"),
        ({"AND": {}}, "filters.AND"),
        ({"AND": []}, "filters.AND"),
        ({"OR": [{"kind": "fact"}, {"hue": 1}]}, "filters.OR[1].hue"),
        ({"NOT": [{"kind": "fact"}]}, "filters.NOT"),
        ({"OR": [{"seq": 1}] * 101}, "100 conditions"),
        (
            {"OR": [{"seq": {"in": [1] * 21}}] * 100},
            "`in` lists together may have at most 2000 values",
        ),
    ],
)
def test_contradictory_filter_is_refused(filters: Any, named: str) -> None:
    with pytest.raises(BadFilter) as refused:
        condition(filters, "UTC")

    assert named in str(refused.value)


def test_groups_have_a_depth() -> None:
    filters: dict[str, Any] = {"seq": 1}
    for _ in range(5000):
        filters = {"NOT": filters}

    with pytest.raises(BadFilter, match="deep"):
        condition(filters, "UTC")


@pytest.mark.parametrize("text", ["'; DROP TABLE memory_logentry; --", "%s", "%(x)s", "{}", "\\"])
def test_nothing_sent_is_ever_part_of_a_statement(entries: None, search: Find, text: str) -> None:
    for filters in (
        {"speaker": text},
        {"speaker": {"contains": text}},
        {f"metadata.{text}": text},
        {"metadata.channel": {"contains": text}},
    ):
        found = search("puppy", where=condition(filters, "UTC"))
        assert {hit.entry.seq for hit in found.hits} <= {6}
    assert LogEntry.objects.count() == 6


def test_a_rare_match_is_found_among_many(user: MemoryUser, say: Say, search: Find) -> None:
    for number in range(200):
        say("a puppy and a puppy", session_id=str(number))
    say("puppy " + "and much else besides " * 20, speaker="Zoe", session_id="last")

    found = search("puppy", where=condition({"speaker": "Zoe"}, "UTC"))

    assert [hit.entry.speaker for hit in found.hits] == ["Zoe"]


MANY = {
    "OR": [
        {f"metadata.key{number}": {operator: value}}
        for number, (operator, value) in enumerate(
            25 * [("contains", "x"), ("gt", 5), ("in", ["x", "y"]), ("ne", "x")]
        )
    ]
}


def test_the_metadata_is_parsed_once_whatever_is_asked_of_it(entries: None) -> None:
    # Given as many conditions as there may be
    where = condition(MANY, "UTC")
    assert where.sql.count("pg_input_is_valid") == 1
    # Then the planner does not write what parses into each of them either
    plan = LogEntry.objects.filter(where).explain(verbose=True)
    assert plan.count("pg_input_is_valid") == 1
    assert "pg_input_is_valid" not in condition({"speaker": "Ada"}, "UTC").sql


def test_each_entry_is_read_once_whatever_is_asked_of_it(
    say_all: SayAll, search: Find, eager: None, user: MemoryUser
) -> None:
    # Given a filter that lets nothing through, so that every entry is looked at
    say_all(["puppy"] * 200)
    index_all(user)
    nothing: dict[str, Any] = {"metadata.none": "x"}
    told = []
    for filters in (nothing, {"AND": [nothing, {"OR": MANY["OR"][1:]}]}):
        with CaptureQueriesContext(connection) as asked:
            assert not search("puppy", where=condition(filters, "UTC")).hits
        told.append(sum('AS "parsed"' in query["sql"] for query in asked))
    # Then it takes as few statements as one condition does
    assert told == [3, 3]

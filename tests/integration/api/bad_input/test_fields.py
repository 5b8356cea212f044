"""Bodies with a bad field: each is refused with the field's name and what it should be."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.kernel.http.serializers import MAX_OBJECT_BYTES
from memory.kernel.models.users import MemoryUser
from memory.log.api.entry_serializers import MAX_TEXT
from memory.log.models.entries import LogEntry
from tests.integration.alerts.test_life import finding, record, run_finds
from tests.integration.api.bad_input.conftest import Refused, check_problem, nothing_written

pytestmark = pytest.mark.django_db

ENTRIES = "/v1/users/ada/entries/"
MESSAGE = {"kind": "message", "role": "user", "content": "I fly to Rome on Monday."}
TRIP = {"kind": "record", "domain": "travel", "type": "Trip", "data": {"to": "Rome", "days": 3}}
LONG = "x" * 1_000_000

TEXTS = ("content", "role", "speaker", "agent_id", "session_id", "idempotency_key")
# Without null, "", [] and {}: for an optional field these mean "not given" (test_callers.py).
NO_STRINGS: list[Any] = [5, 1.5, True, ["a"], {"a": 1}]
NO_OBJECTS: list[Any] = [5, True, "x", [1]]
NOTHING: list[Any] = [None, "", []]

# body → the bad fields, with words about them
ENTRY_CASES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({**MESSAGE, "kind": "rumour"}, {"kind": "Choose one of message, fact, record, correction"}),
    ({**MESSAGE, "kind": "redaction"}, {"kind": "Choose one of"}),
    ({**MESSAGE, "kind": LONG}, {"kind": "Choose one of"}),
    ({**MESSAGE, "kind": ""}, {"kind": "Choose one of"}),
    ({"role": "user", "content": "hi"}, {"kind": "required"}),
    ({"kind": "message"}, {"content": "needs `content`"}),
    ({"kind": "fact"}, {"content": "needs `content`"}),
    *(({**MESSAGE, "content": nothing}, {"content": "needs `content`"}) for nothing in (None, "")),
    ({**MESSAGE, "content": []}, {"content": "Send a string"}),
    ({**MESSAGE, "content": "x" * (MAX_TEXT + 1)}, {"content": "1000000 characters"}),
    ({**MESSAGE, "contents": "x"}, {"contents": "Unknown field"}),
    ({**MESSAGE, "content ": "x", "Kind": 1}, {"content ": "Unknown", "Kind": "Unknown"}),
    ({**MESSAGE, "source": "key:me"}, {"source": "Unknown field"}),
    ({**MESSAGE, "type": "Trip"}, {"type": "kind message cannot have `type`"}),
    ({**MESSAGE, "retired": True}, {"retired": "kind message cannot have `retired`"}),
    *(
        ({**MESSAGE, name: value}, {name: "Send a string"})
        for name in TEXTS
        for value in NO_STRINGS
        if (name, value) != ("session_id", 5)  # becomes text
    ),
    *(({**MESSAGE, "kind": value}, {"kind": "Send a string"}) for value in [*NO_STRINGS, None]),
    *(({**MESSAGE, "occurred_at": value}, {"occurred_at": "a string"}) for value in NO_STRINGS),
    *(({**MESSAGE, "metadata": value}, {"metadata": "an object"}) for value in NO_OBJECTS),
    ({**MESSAGE, "metadata": {"x": LONG}}, {"metadata": f"{MAX_OBJECT_BYTES} bytes"}),
    ({**MESSAGE, "role": "r" * 33}, {"role": "32 characters"}),
    ({**MESSAGE, "session_id": LONG}, {"session_id": "200 characters"}),
    ({**MESSAGE, "idempotency_key": "k" * 256}, {"idempotency_key": "255 characters"}),
    *(
        ({**MESSAGE, "occurred_at": value}, {"occurred_at": "valid date and time"})
        for value in [
            "yesterday",
            "2021-11-00",
            "2021-11",
            "2021-11-01T24:61:00Z",
            "2021-11-01T10:00:00+99:00",
            "0001-01-01T00:00:00+14:00",
            LONG,
        ]
    ),
    ({**TRIP, "content": "x"}, {"content": "kind record cannot have `content`"}),
    ({"kind": "record", "data": {}}, {"type": "needs `type`"}),
    ({"kind": "record", "type": "Trip"}, {"data": "needs `data`"}),
    ({"kind": "record"}, {"type": "needs `type`"}),
    ({"kind": "record", "type": "Trip", "retired": True}, {"key": "needs `key`"}),
    *(({**TRIP, "retired": value}, {"retired": "true or false"}) for value in ["yes", 1, 0, "t"]),
    *(({**TRIP, "data": value}, {"data": "an object"}) for value in NO_OBJECTS),
    *(({**TRIP, "data": nothing}, {"data": "needs `data`"}) for nothing in NOTHING),
    ({**TRIP, "type": None}, {"type": "needs `type`"}),
    *(
        ({**TRIP, name: value}, {name: "Send a string"})
        for name in ("type", "domain", "collection", "key")
        for value in NO_STRINGS
        if name != "key" or type(value) is not int  # the number of a record, as text
    ),
    ({**TRIP, "data": {"to": LONG}}, {"data": f"{MAX_OBJECT_BYTES} bytes"}),
    ({**TRIP, "key": "k" * 201}, {"key": "200 characters"}),
    ({**TRIP, "key": LONG}, {"key": "200 characters"}),
    *(
        ({**TRIP, "key": key}, {"key": "control characters"})
        for key in ["a\nb", "a\tb", "\x1b[0m", "\x85"]
    ),
    *(
        ({**TRIP, "type": name}, {"type": word})
        for name, word in [
            ("trip", "write 'Trip'"),
            ("_Trip", "must begin with an upper-case letter"),
            ("__init__", "must begin with an upper-case letter"),
            ("A b", "not a valid Python name"),
            ("Trip\n", "not a valid Python name"),
            ("Trip'):", "not a valid Python name"),
            ("T\u212a", "not a valid Python name"),
            ("", "needs `type`"),
            ("A" * 101, "100 characters"),
            (LONG, "100 characters"),
            ("True", "choose another"),
            ("ValueError", "choose another"),
            ("Record", "choose another"),
        ]
    ),
    *(
        ({**TRIP, field: name}, {field: word})
        for field in ("domain", "collection")
        for name, word in [
            ("Travel Plans", "not a valid Python name"),
            ("Trips", "write 'trips'"),
            ("__init__", "lower case and begin with a letter"),
            ("a.b", "not a valid Python name"),
            ("../a", "not a valid Python name"),
            ("ﬁ", "not a valid Python name"),
            (" ", "not a valid Python name"),
            ("a" * 101, "100 characters"),
            (LONG, "100 characters"),
            ("import", "choose another"),
            ("list", "choose another"),
            ("uac", "choose another"),
            ("trips_0001", "drop the number"),
        ]
    ),
]


def brief(value: Any) -> str:
    return str(value)[:60]


def check_errors(errors: dict[str, Any], wrong: dict[str, str]) -> None:
    assert sorted(errors) == sorted(wrong)
    for name, word in wrong.items():
        assert word in str(errors[name])


DATA = {"to": "Rome", "on": "2026-05-02"}
RECORD = {"kind": "record", "type": "Trip", "data": DATA}
SAID = {"kind": "message", "content": "I fly to Rome."}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({**SAID, "Content ": "I fly to Rome."}, "did you mean content?"),
        ({**RECORD, "ocurred_at": "2026-05-01T10:00:00Z"}, "did you mean occurred_at?"),
        ({"op": "add", "type": "Trip", "data": DATA}, "this body accepts: kind, "),
    ],
    ids=brief,
)
def test_an_unknown_name_is_told_the_known_ones(
    api: APIClient, refused: Refused, body: dict[str, Any], words: str
) -> None:
    refused(api.post(ENTRIES, body), 400, words)


EDIT = {"op": "note", "text": "x", "sources": [1]}
CHECKPOINTS = "/v1/users/ada/checkpoints/"


@pytest.mark.parametrize(
    ("path", "body", "field", "words"),
    [
        (ENTRIES, [SAID], None, '{"entries": [{"kind": "record"'),
        (ENTRIES, "I fly to Rome.", None, '{"kind": "message", "content": "I fly to Rome."}'),
        (ENTRIES, {"edits": [EDIT]}, "edits", "POST /v1/users/{user_id}/checkpoints/"),
        (
            ENTRIES,
            {"messages": [{"role": "user", "content": "x"}]},
            "messages",
            '"kind": "message"',
        ),
        (CHECKPOINTS, EDIT, "edits", '{"edits": [{"op": …}]}'),
        (CHECKPOINTS, [EDIT], None, '{"edits": [{"op": …}, …]}'),
        (CHECKPOINTS, RECORD, "kind", "send this body to POST /v1/users/{user_id}/entries/"),
        (CHECKPOINTS, {"entries": [RECORD]}, "entries", "POST /v1/users/{user_id}/entries/"),
    ],
    ids=brief,
)
def test_misplaced_field_is_refused_with_its_place(
    api: APIClient, refused: Refused, path: str, body: Any, field: str | None, words: str
) -> None:
    response = api.post(path, body)

    refused(response, 400)
    problem = response.json()
    assert words in (str(problem["errors"][field]) if field else problem["detail"])


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"entries": []}, "entries", ["at least one"]),
        ({"entries": 5}, "entries", ["at least one"]),
        ({"entries": MESSAGE}, "entries", ["at least one"]),
        ({"entries": None}, "entries", ["at least one"]),
        ({"entries": [MESSAGE] * 1001}, "entries", ["at most 1000 entries", "1001"]),
        ({"entries": [MESSAGE] * 10_000}, "entries", ["at most 1000 entries", "10000"]),
        ({"entries": [MESSAGE], "wait": 3}, "wait", ["Unknown field", "entries"]),
        ({"entries": [MESSAGE, 1]}, "entries", ["'1'", "Send an object, not an integer"]),
        ({"entries": [[MESSAGE]]}, "entries", ["'0'", "Send an object, not a list"]),
        ({"entries": [MESSAGE, {"kind": "record"}, MESSAGE]}, "entries", ["'1'", "needs `type`"]),
        ({"entries": [{"entries": [MESSAGE]}]}, "entries", ["'0'", "Unknown field"]),
    ],
    ids=brief,
)
def test_many_entries_are_refused_together(
    api: APIClient, refused: Refused, body: dict[str, Any], field: str, words: list[str]
) -> None:
    response = api.post(ENTRIES, body)

    refused(response, 400, *words)
    assert list(response.json()["errors"]) == [field]


def test_texts_at_their_limits_come_back_as_they_were(api: APIClient, user: MemoryUser) -> None:
    padding = MAX_OBJECT_BYTES - len('{"x":""}')
    entry = {
        **MESSAGE,
        "content": "ä" * MAX_TEXT,
        "metadata": {"x": "x" * padding},
        "session_id": " " + "s" * 199,
        "idempotency_key": " k ",
    }

    response = api.post(ENTRIES, {"entries": [entry, {**TRIP, "key": " k ", "data": {"n": -0.0}}]})

    assert response.status_code == 202
    message, trip = response.data["entries"]
    assert {name: message[name] for name in entry} == entry
    assert trip["data"]["key"] == " k "
    assert str(LogEntry.objects.get(seq=2).data["data"]) == "{'n': -0.0}"


USER_RULE = "1 to 256 characters of any script"
USER_CASES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({}, {"user_id": "required"}),
    *(
        ({"user_id": user_id}, {"user_id": USER_RULE})
        for user_id in [
            "",
            " ",
            " ada",
            "ada ",
            "ada\n",
            "a\x01b",
            "a\x7fb",
            "a\u2028b",
            "a\u202eb",
            "a" * 257,
            LONG,
        ]
    ),
    *(({"user_id": name}, {"user_id": "HTTP libraries resolve"}) for name in [".", "..", "a/../b"]),
    ({"user_id": "A\u0308"}, {"user_id": "form NFC"}),
    ({"user_id": "ada/entries"}, {"user_id": "'entries' after a slash"}),
    ({"user_id": "(erased) ada"}, {"user_id": "marks an erased user"}),
    *(({"user_id": value}, {"user_id": "Send a string"}) for value in [*NO_STRINGS, None]),
    ({"user_id": "bob", "name": "Bob"}, {"name": "Unknown field"}),
    *(
        ({"user_id": "bob", "time_zone": zone}, {"time_zone": "not an IANA time zone"})
        for zone in ["Mars/Olympus", "../etc/passwd", "Europe/Berlin ", "+02:00"]
    ),
    ({"user_id": "bob", "time_zone": LONG}, {"time_zone": "64 characters"}),
    *(
        ({"user_id": "bob", "time_zone": value}, {"time_zone": "Send a string"})
        for value in NO_STRINGS
    ),
    *(({"user_id": "bob", "metadata": value}, {"metadata": "an object"}) for value in NO_OBJECTS),
    ({"user_id": "bob", "metadata": {"x": LONG}}, {"metadata": f"{MAX_OBJECT_BYTES} bytes"}),
]


CHANGE_CASES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"user_id": "eve"}, {"user_id": "Unknown field"}),
    ({"time_zone": "nowhere"}, {"time_zone": "not an IANA time zone"}),
    ({"time_zone": LONG}, {"time_zone": "64 characters"}),
    ({"time_zone": "UTC", "metadata": [1]}, {"metadata": "an object, not a list"}),
    ({"metadata": {"x": LONG}}, {"metadata": f"{MAX_OBJECT_BYTES} bytes"}),
]
QUERY_CASES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({}, {"code": "required"}),
    ({"code": ""}, {"code": "blank"}),
    ({"code": 5}, {"code": "Send a string, not an integer"}),
    ({"code": None}, {"code": "Send a string, not null"}),
    ({"code": "x" * 20_001}, {"code": "20000 characters"}),
    ({"code": "1", "wait": 3}, {"wait": "Unknown field"}),
]
RULE = {"source": "x", "tests": "x"}
RULE_CASES: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("Bad", RULE, {"name": "write 'bad'"}),
    ("a%20b", RULE, {"name": "not a valid Python name"}),
    ("%ff", RULE, {"name": "not a valid Python name"}),
    ("__init__", RULE, {"name": "lower case and begin with a letter"}),
    ("list", RULE, {"name": "choose another"}),
    ("x_0001", RULE, {"name": "drop the number"}),
    ("a" * 101, RULE, {"name": "at most 100 are allowed"}),
    ("rule", {}, {"source": "required", "tests": "required"}),
    ("rule", {"tests": "x"}, {"source": "required"}),
    ("rule", {"source": "", "tests": ""}, {"source": "blank", "tests": "blank"}),
    ("rule", {"source": 5, "tests": None}, {"source": "a string", "tests": "a string"}),
    ("rule", {**RULE, "source": "x" * 65_537}, {"source": "65536 characters"}),
    ("rule", {**RULE, "test": "x"}, {"test": "Unknown field"}),
    ("rule", {**RULE, "sources": 5}, {"sources": "Send a list, not an integer"}),
    ("rule", {**RULE, "sources": [1, "2"]}, {"sources": "[1]: Send an integer"}),
    ("rule", {**RULE, "sources": [0]}, {"sources": "greater than or equal to 1"}),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "wrong"),
    [
        *(("post", "users/ada/entries/", *case) for case in ENTRY_CASES),
        *(("post", "users/", *case) for case in USER_CASES),
        *(("patch", "users/ada/", *case) for case in CHANGE_CASES),
        *(("post", "users/ada/query/", *case) for case in QUERY_CASES),
        *(("put", f"users/ada/constraints/{name}/", *case) for name, *case in RULE_CASES),
    ],
    ids=brief,
)
def test_a_body(
    api: APIClient,
    refused: Refused,
    method: str,
    path: str,
    body: dict[str, Any],
    wrong: dict[str, str],
) -> None:
    response = getattr(api, method)(f"/v1/{path}", body)

    refused(response, 400)
    check_errors(response.json()["errors"], wrong)


def test_a_constraint_that_is_not_there_cannot_be_deleted(api: APIClient, refused: Refused) -> None:
    refused(api.delete("/v1/users/ada/constraints/rule/"), 404, "no constraint 'rule'")


ADD = {"op": "add", "domain": "travel", "class_name": "Trip", "fields": {}, "sources": [1]}
DEFINE = {"op": "define_class", "domain": "travel", "name": "Trip"}


@pytest.mark.parametrize(
    ("edits", "word"),
    [
        (5, "Send a list, not an integer"),
        ([], "at least one edit"),
        ([5], "[0]: Send an object, not an integer"),
        ([DEFINE] * 1001, "no more than 1000"),
        ([{}], "edits[0]: op must be one of define_class"),
        ([DEFINE, {"op": "explode"}], "edits[1]: op must be one of define_class"),
        ([{**ADD, "extra": 1}], "add does not take 'extra': it takes domain"),
        ([{**ADD, "fields": {"d": {"$decimal": "1e99999999999999999999"}}}], "add.fields.d"),
    ],
    ids=brief,
)
def test_proposed_edits(api: APIClient, refused: Refused, edits: Any, word: str) -> None:
    response = api.post("/v1/users/ada/checkpoints/", {"edits": edits})

    refused(response, 400, word)
    assert list(response.json()["errors"]) == ["edits"]


@pytest.mark.parametrize(
    ("step", "body", "wrong"),
    [
        ("acknowledge", {"note": 5}, {"note": "Send a string, not an integer"}),
        ("acknowledge", {"note": "x" * 2001}, {"note": "2000 characters"}),
        ("acknowledge", {"reason": "x"}, {"reason": "Unknown field"}),
        ("resolve", {}, {"reason": "required"}),
        ("resolve", {"reason": ""}, {"reason": "blank"}),
        ("resolve", {"reason": None}, {"reason": "Send a string, not null"}),
        ("resolve", {"reason": "x" * 2001}, {"reason": "2000 characters"}),
    ],
)
def test_a_step_in_an_alerts_life(
    api: APIClient, user: MemoryUser, step: str, body: dict[str, Any], wrong: dict[str, str]
) -> None:
    run_finds(user, finding(record("m-1", 41)))
    alert = user.alerts.get()

    with nothing_written():
        response = api.post(f"/v1/alerts/{alert.pk}/{step}/", body)

    check_problem(response, 400)
    check_errors(response.json()["errors"], wrong)

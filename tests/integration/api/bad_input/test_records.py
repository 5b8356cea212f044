"""Typed entries that conflict with others: logged, and set aside or rejected with the reason.

Entries that only look suspicious are kept to the letter.
"""

import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser

pytestmark = pytest.mark.django_db

ENTRIES = "/v1/users/ada/entries/"
Work = Callable[[], None]

# The class Trip before anything goes wrong.
KNOWN = {
    "days": 3,
    "cost": 9.5,
    "to": "Rome",
    "paid": True,
    "tags": ["sea"],
    "hotel": {"name": "Excelsior"},
    "on": "2021-11-01",
    "booked": "2021-10-01T10:00:00Z",
    "seats": [1, 2],
}


def trip(data: Mapping[str, Any], **other: Any) -> dict[str, Any]:
    return {"kind": "record", "domain": "travel", "type": "Trip", "data": data, **other}


# data → the fields whose values are set aside
MISFITS: list[tuple[dict[str, Any], list[str]]] = [
    ({"days": "three"}, ["days"]),
    ({"days": True}, ["days"]),
    ({"to": 5}, ["to"]),
    ({"paid": 1}, ["paid"]),
    ({"tags": [5]}, ["tags[0]"]),
    ({"seats": [1, "two"]}, ["seats[1]"]),
    ({"hotel": {"name": 5}}, ["hotel.name"]),
    ({"on": "2021-11-00"}, ["on"]),
    ({"on": "yesterday"}, ["on"]),
    ({"booked": "2021-11-31T10:00:00Z"}, ["booked"]),
    ({"leg": [[[[[[[[[[[1]]]]]]]]]]]}, ["leg[0]"]),
    # What only looks like a date is text, in a field that nobody has seen yet.
    ({"back": "2021-11-00"}, []),
    ({"stops": ["2021-11-01", "2021-11-31"]}, []),
    # Text that can only mean one value of the field's type is read.
    ({"days": "3"}, []),
    # Any key is a field.
    *(
        ({name: 1}, [])
        for name in ["", " ", "a b", "a-b", "a.b", "1a", "__", "$date", "a\nb", '"', "x" * 101, "€"]
    ),
    ({"x" * 200_000: 1}, []),
    ({"leg": {"a b": 1}}, ["leg"]),
    ({"class": 1, "class_": 2}, []),
    ({"ﬁ": 1, "fi": 2}, []),
]


def test_misfit_value_is_set_aside_and_named(api: APIClient, user: MemoryUser, work: Work) -> None:
    api.post(ENTRIES, trip(KNOWN))
    work()
    batch = [trip({"days": 1}), *(trip(data) for data, _ in MISFITS), trip({"days": 2})]

    answer = api.post(ENTRIES, {"entries": batch})
    assert answer.status_code == 202
    work()

    settled = api.get(f"{ENTRIES}?after=1&page_size=500").data["results"]
    assert {(entry["state"], entry["reason"]) for entry in settled} == {("covered", None)}
    told = [
        (data, entry["set_aside"]) for (data, _), entry in zip(MISFITS, settled[1:-1], strict=True)
    ]
    assert told == MISFITS
    assert len(records(api)) == len(batch) + 1


def test_rejected_batch_leaves_the_head(api: APIClient, user: MemoryUser, work: Work) -> None:
    api.post(ENTRIES, trip(KNOWN))
    work()

    api.post(ENTRIES, trip({"days": 1}, type="Hotel", collection="trips"))
    work()

    assert api.get("/v1/users/ada/").data["head"] == 1
    assert api.get(f"{ENTRIES}2/").data["state"] == "rejected"
    api.post(ENTRIES, trip({"days": 4}))
    work()
    assert api.get("/v1/users/ada/").data["head"] == 2


def records(api: APIClient, collection: str = "trips") -> dict[str, dict[str, Any]]:
    """Return key → fields of a collection's records."""
    found: dict[str, dict[str, Any]] = {}
    page: int | None = 1
    while page:
        answer = api.get(f"/v1/users/ada/state/travel/{collection}/?page={page}").data
        found |= {record["key"]: record["fields"] for record in answer["records"]}
        page = answer["next"]
    return found


def fields_of(api: APIClient, class_name: str = "Trip") -> dict[str, str]:
    """Return field → type of a class."""
    found = api.get("/v1/users/ada/state/").data["domains"]["travel"]["classes"][class_name]
    return dict(found)


def all_taken(api: APIClient, work: Work, entries: list[dict[str, Any]]) -> None:
    assert api.post(ENTRIES, {"entries": entries}).status_code == 202
    work()
    settled = api.get(f"{ENTRIES}?page_size=500").data["results"]
    assert {(entry["state"], entry["reason"]) for entry in settled} == {("covered", None)}


HOSTILE = [
    "",
    " ",
    "'",
    '"',
    "'''",
    '"""',
    "\\",
    "'\\",
    '"\\"',
    "\\N{DASH} \\u0041 \\x41",
    "\n",
    "\r\n",
    "\t",
    "\x1b[31m",
    "\x7f\x85\xa0\u2028\u2029\ufeff\u202e",
    "{x} {} %s %(a)s $a",
    "# -*- coding: latin-1 -*-",
    '""")\nimport os\nos.system("id")\n("""',
    "')] or __import__('os').system('id') or [('",
    "💥\U0010ffff\ufffe\ue000",
    "e\u0301 ≠ \u00e9 ﬁ \u212a",
    "x" * 100_000,
    "</script><script>alert(1)</script>",
]


def test_hostile_text_stays_a_text(api: APIClient, user: MemoryUser, work: Work) -> None:
    all_taken(api, work, [trip({"to": text}, key=str(n)) for n, text in enumerate(HOSTILE)])

    found = records(api)
    for number, text in enumerate(HOSTILE):
        assert found[str(number)]["to"] == text


def test_odd_key_names_its_record(api: APIClient, user: MemoryUser, work: Work) -> None:
    printable = [text[:200] for text in HOSTILE if text and text.isprintable()]
    keys = [*printable, "k" * 200, "ä" * 200, "..", "a/b", "trips[0]", "\u202e", "\ufeff", "\u2028"]

    all_taken(api, work, [trip({"n": n}, key=key) for n, key in enumerate(keys)])
    all_taken(api, work, [trip({"n": -n}, key=key) for n, key in enumerate(keys)])

    assert {key: found["n"] for key, found in records(api).items()} == {
        unicodedata.normalize("NFC", key): -n for n, key in enumerate(keys)
    }


def test_field_may_have_any_free_name(api: APIClient, user: MemoryUser, work: Work) -> None:
    escaped = {
        # keywords, and names of the system
        **{name: f"{name}_" for name in ("class", "None", "True", "import", "lambda")},
        **{name: f"{name}_" for name in ("key", "sources", "Ref", "datetime", "uac")},
        "__init__": "init_",
        "_private": "private_",
        "ﬁeld": "field",
        "T\u212a": "TK",
    }
    free = ["match", "case", "type", "list", "print", "self", "today", "Record", "Alert", "mro"]
    free += ["int", "str", "date", "dataclass", "Ünï", "ключ", "名前", "x" * 100]
    # Two alphabets, one shape: two names.
    free += ["a", "а"]
    names = {**escaped, **{name: name for name in free}}

    all_taken(api, work, [trip({name: n for n, name in enumerate(names)}, key="k")])

    assert records(api)["k"] == {field: n for n, field in enumerate(names.values())}


def test_class_and_place_may_have_any_free_name(
    api: APIClient, user: MemoryUser, work: Work
) -> None:
    classes = ["Match", "Enum", "Dataclass", "Ab", "Ünï", "T_1", "A" * 100]
    domains = ["match", "os", "sys", "self", "test", "tests", "state", "schema", "constraints", "ä"]

    all_taken(
        api,
        work,
        [trip({"n": 1}, type=name) for name in classes]
        + [trip({"n": 1}, domain=name) for name in domains]
        + [
            trip({"n": 1}, collection=name) for name in ("match", "state", "travel", "ä", "a" * 100)
        ],
    )

    assert set(api.get("/v1/users/ada/state/").data["domains"]) == {"travel", *domains}


def test_numbers_come_back_as_they_were(api: APIClient, user: MemoryUser, work: Work) -> None:
    numbers = [1.0, -0.0, 0.1 + 0.2, 1e16, 5e-324, 1.7976931348623157e308, 2**53 - 1, -7]

    all_taken(api, work, [trip({f"n{n}": number}) for n, number in enumerate(numbers)])

    found = [value for fields in records(api).values() for value in fields.values()]
    assert [repr(value) for value in found if value is not None] == [repr(n) for n in numbers]


def test_a_class_of_thousands_of_fields(api: APIClient, user: MemoryUser, work: Work) -> None:
    wide = {f"f{n}": n for n in range(3000)}

    all_taken(api, work, [trip(wide, key="k")])

    assert records(api)["k"] == wide

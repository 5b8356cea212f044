"""What agents' frameworks send for an argument that they leave out: null, "", [] or {}."""

from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.kernel.models.users import MemoryUser
from memory.log.models.entries import LogEntry

pytestmark = pytest.mark.django_db

NOTHING: list[Any] = [None, "", [], {}]
ENTRIES = "/v1/users/ada/entries/"


@pytest.mark.parametrize("nothing", NOTHING, ids=repr)
@pytest.mark.parametrize(
    ("path", "body", "optional"),
    [
        (
            ENTRIES,
            {"kind": "fact", "content": "She is vegan."},
            (
                *("occurred_at", "role", "speaker", "agent_id", "session_id", "idempotency_key"),
                *("domain", "type", "collection", "key", "data", "retired"),
            ),
        ),
        (
            ENTRIES,
            {"kind": "record", "type": "Trip", "data": {"to": "Rome"}},
            ("content", "role", "session_id", "domain", "collection", "key", "retired"),
        ),
        (
            "/v1/users/ada/search/",
            {"query": "Rome"},
            (
                *("messages", "top_k", "words", "in", "filters"),
                *("threshold", "as_of", "explain"),
            ),
        ),
        (
            "/v1/users/ada/context/",
            {"query": "Rome"},
            ("messages", "tokens", "as_of"),
        ),
        ("/v1/users/", {"user_id": "bob"}, ("time_zone", "metadata")),
    ],
    ids=["fact", "record", "search", "context", "user"],
)
def test_an_optional_field_that_is_empty_is_not_given(
    api: APIClient,
    user: MemoryUser,
    path: str,
    body: dict[str, Any],
    optional: tuple[str, ...],
    nothing: Any,
) -> None:
    with_nothing = {**body, **dict.fromkeys(optional, nothing)}
    answer = api.post(path, with_nothing)

    assert answer.status_code in (200, 201, 202), answer.content
    if path == ENTRIES:
        assert [LogEntry.objects.get().seq, LogEntry.objects.get().kind] == [1, body["kind"]]
        expected = api.post(ENTRIES, body)
        own = ("id", "seq", "occurred_at", "recorded_at")
        plain = [{**one.json()["entries"][0], **dict.fromkeys(own)} for one in (answer, expected)]
        assert plain[0] == plain[1]
    elif path != "/v1/users/":
        assert answer.json() == api.post(path, body).json()


def test_empty_values_within_data_are_kept(api: APIClient, user: MemoryUser) -> None:
    data: dict[str, Any] = {"to": "", "with": [], "notes": None, "more": {}}
    record = {"kind": "record", "type": "Trip", "data": data, "metadata": {"x": None}}
    assert api.post(ENTRIES, record).status_code == 202

    entry = LogEntry.objects.get()
    assert (entry.data or {})["data"] == data
    assert entry.metadata == {"x": None}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (ENTRIES, {"kind": None, "content": "x"}, "kind"),
        (ENTRIES, {"kind": "fact", "content": ""}, "content"),
        (ENTRIES, {"kind": "record", "type": "Trip", "data": None}, "data"),
        ("/v1/users/ada/search/", {"query": ""}, "query"),
        ("/v1/users/ada/query/", {"code": None}, "code"),
        ("/v1/users/ada/checkpoints/", {"edits": []}, "edits"),
        ("/v1/users/ada/outcomes/reopen/", {"entries": []}, "entries"),
        # A name that is unknown is unknown whatever its value is.
        ("/v1/users/ada/search/", {"query": "x", "limit": None}, "limit"),
    ],
)
def test_a_required_field_that_is_empty_is_missing(
    manager: APIClient, user: MemoryUser, path: str, body: dict[str, Any], field: str
) -> None:
    answer = manager.post(path, body)
    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == [field]


def test_a_change_keeps_what_is_null_and_clears_what_may_be_empty(
    manager: APIClient, user: MemoryUser, settings: Settings
) -> None:
    settings.UAC_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]  # for the webhook's secret
    user.metadata = {"plan": "pro"}
    user.save()
    assert manager.patch("/v1/users/ada/", {"metadata": None, "time_zone": None}).json()[
        "metadata"
    ] == {"plan": "pro"}
    assert manager.patch("/v1/users/ada/", {"metadata": {}}).json()["metadata"] == {}

    made = manager.post("/v1/webhooks/", {"url": "https://93.184.215.14/", "description": "old"})
    assert made.status_code == 201, made.content
    url = f"/v1/webhooks/{made.json()['id']}/"
    assert manager.patch(url, {"description": None}).json()["description"] == "old"
    assert manager.patch(url, {"description": ""}).json()["description"] == ""


def test_an_edit_reads_empty_options_as_not_given(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    api.post(ENTRIES, {"kind": "fact", "content": "Trip to Rome."})
    empty: dict[str, Any] = {"collection": None, "key": "", "derived": {}, "singleton": None}
    edits = [
        {
            "op": "define_class",
            "domain": "travel",
            "name": "Trip",
            "kind": None,
            "members": {},
            "collection": None,
            "doc": None,
            "sources": [],
            "fields": [
                {"name": "to", "type": "str"},
                # A default of None is a default.
                {"name": "via", "type": "str | None", "default": None},
            ],
        },
        {
            "op": "add",
            "domain": "travel",
            "class_name": "Trip",
            **empty,
            "fields": {"to": "Rome"},
            "sources": [1],
        },
    ]
    assert api.post("/v1/users/ada/checkpoints/?wait=0", {"edits": edits}).status_code == 202
    work()
    (record,) = api.get("/v1/users/ada/state/travel/trips/").json()["records"]
    assert record["fields"] == {"to": "Rome", "via": None}


@pytest.mark.parametrize(
    "address",
    [
        f"{ENTRIES}?after=&kind=&session_id=&page_size=&cursor=",
        "/v1/users/ada/manifest/?as_of=&by=",
        "/v1/users/ada/alerts/?state=&severity=&as_of=&cursor=&page_size=",
        "/v1/alerts/?as_of=&cursor=",
        "/v1/users/ada/runs/?kind=&status=",
        "/v1/users/?cursor=&page_size=",
    ],
)
def test_empty_parameter_is_not_given(api: APIClient, user: MemoryUser, address: str) -> None:
    plain = address.partition("?")[0]
    assert api.get(address).json() == api.get(plain).json()


def test_integer_labels_of_an_entry_are_text(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    trip = {"kind": "record", "type": "Trip", "key": 5, "session_id": 7, "data": {"to": "Rome"}}

    assert api.post(ENTRIES, trip).status_code == 202
    work()

    (record,) = api.get("/v1/users/ada/state/general/trips/").json()["records"]
    assert record["key"] == "5"
    assert api.get(f"{ENTRIES}?session_id=7").json()["results"][0]["session_id"] == "7"


@pytest.mark.parametrize("wait", ["1000", "30.1"])
def test_a_wait_beyond_the_maximum_is_the_maximum(
    api: APIClient, user: MemoryUser, settings: Settings, wait: str
) -> None:
    settings.UAC_MAX_WAIT_SECONDS = 0.01
    trip = {"kind": "record", "type": "Trip", "data": {"to": "Rome"}}

    assert api.post(f"{ENTRIES}?wait={wait}", trip).status_code == 202

"""`/v1/users/{user_id}/query/`: the value exactly as computed."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from memory.kernel.admission import quotas, slots
from memory.kernel.models.users import MemoryUser
from memory.kernel.work import hints
from memory.privacy import redaction
from memory.project.errors import RunError
from memory.versions import runs
from memory.versions.models.runs import Run, RunOutcome
from memory.versions.runs import Result
from tests.integration.commits.conftest import trip
from tests.steps import not_none

pytestmark = pytest.mark.django_db

URL = "/v1/users/ada/query/"
Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def ask(api: APIClient, user: MemoryUser, work: Callable[[], None]) -> Ask:
    """Append three trips; then query, do the work, and return the run."""
    statements = [
        {"kind": "record", **trip("Rome", key="a", cost=840, on="2026-05-02")},
        {"kind": "record", **trip("Oslo", key="b", cost=99.5, on="2026-06-02")},
        {"kind": "record", **trip("Rome", key="c", cost=0, on="2027-01-02")},
    ]
    assert api.post("/v1/users/ada/entries/", {"entries": statements}).status_code == 202
    work()

    def do(code: str) -> dict[str, Any]:
        response = api.post(f"{URL}?wait=0", {"code": code})
        assert response.status_code == 202, response.data
        work()
        run: dict[str, Any] = api.get(f"/v1/runs/{response.data['id']}/").data
        return run

    return do


@pytest.mark.parametrize(
    ("code", "value", "type_name"),
    [
        ("sum(t.cost for t in trips)", 939.5, "float"),
        ("len(travel.trips)", 3, "int"),
        ("sorted({t.to for t in trips})", ["Oslo", "Rome"], "list"),
        ("{t.to for t in trips}", {"$set": ["Oslo", "Rome"]}, "set"),
        ("max(trips, key=lambda t: t.on).on", {"$date": "2027-01-02"}, "date"),
        ("sum(1 for t in trips if t.on.year == 2026)", 2, "int"),
        ("n = 0\nfor t in trips:\n    n += 1\nn", 3, "int"),
        ("Counter(t.to for t in trips)", {"Rome": 2, "Oslo": 1}, "Counter"),
        ("Decimal('1.10') + 1", {"$decimal": "2.10"}, "Decimal"),
        ("2 ** 60", {"$int": str(2**60)}, "int"),
        ("today <= now.date()", True, "bool"),
    ],
)
def test_a_value_is_returned_exactly(ask: Ask, code: str, value: Any, type_name: str) -> None:
    run = ask(code)

    assert (run["status"], run["outcome"], run["error"]) == ("done", "ok", None)
    evidence = run["output"].pop("evidence")
    assert run["output"] == {"value": value, "type": type_name, "ties": []}
    assert evidence["scope"] in ("value", "selected", "read")
    assert run["checkpoint"] == 1
    assert run["runner"] == "process"
    assert run["memory_bytes"] > 0


def test_a_record_comes_with_its_key_and_its_entries(ask: Ask) -> None:
    assert ask("trips[0]")["output"]["value"] == {
        "$record": "Trip",
        "key": "a",
        "sources": [1],
        "fields": {"to": "Rome", "cost": 840, "on": {"$date": "2026-05-02"}},
    }


def test_a_value_names_the_records_that_it_rests_on_and_their_entries(ask: Ask) -> None:
    evidence = ask("sum(t.cost for t in trips if t.on.year == 2026)")["output"]["evidence"]

    trip = {"class": "Trip", "domain": "travel", "collection": "trips"}
    assert evidence == {
        "scope": "selected",
        "count": 2,
        "records": [{**trip, "count": 2, "keys": ["a", "b"], "sources": [[1], [2]]}],
        "collections": [{"domain": "travel", "collection": "trips", "count": 3}],
        "set_aside": [],
        "lapsed": [],
    }


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        ("sum(t.cost for t in trips if t.cost)", ["cost"]),
        ("[t.to for t in trips if t.cost is not None]", ["cost"]),
        ("[t.hotel.stars for t in trips if t.hotel]", ["stars"]),
        ("[t.to for t in trips]", []),
        ("len(trips)", []),
        ("2 + 2", []),
    ],
)
def test_an_answer_names_the_fields_it_reads_that_have_values_set_aside(
    api: APIClient, ask: Ask, work: Callable[[], None], code: str, fields: list[str]
) -> None:
    for data in (
        {"to": "Bari", "cost": "many", "hotel": {"stars": 3}},
        {"to": "Pisa", "cost": "free", "hotel": {"stars": "three"}},
    ):
        entry = {"kind": "record", "domain": "travel", "type": "Trip", "data": data}
        assert api.post("/v1/users/ada/entries/", entry).status_code == 202
    work()

    ask(code)
    answer = api.post(f"{URL}", {"code": code}).data

    assert [one["field"] for one in answer["set_aside"]] == fields
    if fields == ["cost"]:
        assert answer["set_aside"][0] == {
            "domain": "travel",
            "collection": "trips",
            "field": "cost",
            "count": 2,
            "keys": ["trip-4", "trip-5"],
        }


def test_an_answer_counts_its_evidence_and_names_the_first_twenty(
    api: APIClient, user: MemoryUser, work: Callable[[], None]
) -> None:
    trips = [trip("Rome", key=f"t{n}", cost=1) for n in range(45)]
    hotels = [
        {"domain": "travel", "type": "Hotel", "key": f"h{n}", "data": {"cost": 1}} for n in range(3)
    ]
    entries = [{"kind": "record", **one} for one in [*trips, *hotels]]
    assert api.post("/v1/users/ada/entries/", {"entries": entries}).status_code == 202
    work()
    few, many = "sum(h.cost for h in hotels)", "sum(t.cost for t in trips) + len(hotels)"
    for code in (few, many):
        api.post(f"{URL}?wait=0", {"code": code})
        work()

    answer = api.post(URL, {"code": many}).json()
    evidence = answer["evidence"]
    assert (answer["value"], evidence["count"]) == (48, 48)
    counted = {one["collection"]: one["count"] for one in evidence["records"]}
    assert counted == {"trips": 45, "hotels": 3}
    assert sum(len(one["keys"]) for one in evidence["records"]) == 20
    assert all(len(one["keys"]) == len(one["sources"]) for one in evidence["records"])
    # The rest is in the run.
    assert evidence["more"] == f"/v1/runs/{answer['id']}/"
    records = api.get(evidence["more"]).json()["output"]["evidence"]["records"]
    assert sum(len(one["keys"]) for one in records) == 48

    whole = api.post(URL, {"code": few}).json()["evidence"]
    assert (whole["more"], whole["records"][0]["keys"]) == (None, ["h0", "h1", "h2"])


@pytest.fixture
def answered(api: APIClient, ask: Ask, work: Callable[[], None]) -> Ask:
    """Query; if the answer is not immediate, do the work, and query again."""

    def do(code: str, **more: Any) -> dict[str, Any]:
        response = api.post(f"{URL}?wait=0", {"code": code, **more})
        if response.status_code == 202:
            work()
            (run,) = Run.objects.order_by("-queued_at")[:1]
            assert run.status == "done"
            return {"cached": False, "id": str(run.pk)}
        assert response.status_code == 200, response.data
        found: dict[str, Any] = response.data
        return {**found, "id": str(found["id"])}

    return do


def test_the_same_question_is_computed_once_for_a_version(
    api: APIClient, answered: Ask, work: Callable[[], None], user: MemoryUser
) -> None:
    first = answered("len(trips)")
    again = answered("len(trips)")

    assert (first["cached"], again["cached"]) == (False, True)
    assert (again["id"], again["value"], again["type"]) == (first["id"], 3, "int")
    assert again["evidence"]["count"] == 3
    assert again["as_of"] is None

    # There is no answer for another version, and this one's answers remain.
    statement = {"kind": "record", **trip("Bonn", key="d", cost=1, on="2026-05-02")}
    api.post("/v1/users/ada/entries/", {"entries": [statement]})
    work()
    assert answered("len(trips)")["cached"] is False
    assert answered("len(trips)")["value"] == 4
    past = answered("len(trips)", as_of="v1")
    assert (past["cached"], past["value"], past["as_of"]["version"]) == (True, 3, 1)


def test_an_answer_holds_for_its_day_unless_the_code_asks_for_the_time(answered: Ask) -> None:
    of_day = {"code": "today.isoformat()", "at": "2026-03-01T08:00:00+00:00"}
    of_moment = {**of_day, "code": "now.isoformat()"}
    of_nothing = {**of_day, "code": "len(trips)"}
    for asked in (of_day, of_moment, of_nothing):
        assert answered(**asked)["cached"] is False
        assert answered(**asked)["cached"] is True
    later, next_day = "2026-03-01T20:00:00+00:00", "2026-03-02T08:00:00+00:00"
    same_day = answered(of_day["code"], at=later)
    assert (same_day["cached"], same_day["value"]) == (True, "2026-03-01")
    assert same_day["instant"] == "2026-03-01T20:00:00Z"
    assert answered(**{**of_day, "at": next_day})["cached"] is False
    assert answered(**{**of_day, "at": next_day})["value"] == "2026-03-02"
    assert answered(**{**of_moment, "at": later})["cached"] is False
    assert answered(**{**of_nothing, "at": later})["cached"] is True
    assert answered(**{**of_nothing, "at": next_day})["cached"] is False


def test_the_day_of_an_answer_is_that_where_the_user_lives(answered: Ask, user: MemoryUser) -> None:
    asked = {"code": "today.isoformat()", "at": "2026-03-01T20:00:00+00:00"}
    answered(**asked)
    MemoryUser.objects.filter(pk=user.pk).update(time_zone="Asia/Tokyo")

    assert answered(**asked)["cached"] is False
    assert answered(**asked)["value"] == "2026-03-02"


def test_the_time_is_asked_for_however_it_is_written(answered: Ask) -> None:
    fullwidth = "\uff4e\uff4f\uff57.isoformat()"
    answered(fullwidth, at="2026-03-01T08:00:00+00:00")

    assert answered(fullwidth, at="2026-03-01T09:00:00+00:00")["cached"] is False


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59+00:00", "9999-12-31T23:59:59Z"])
def test_moment_past_the_calendar_is_refused(
    api: APIClient, ask: Ask, user: MemoryUser, at: str
) -> None:
    for code in ("1", "today", "now"):
        response = api.post(URL, {"code": code, "at": at})

        assert response.status_code == 400
        assert "at" in response.data["errors"]


def test_a_failure_is_no_answer(answered: Ask) -> None:
    assert answered("1 / 0")["cached"] is False
    assert answered("1 / 0")["cached"] is False


@pytest.mark.parametrize("code", ["1 / 0", "now.isoformat()"])
def test_a_query_repeated_with_its_key_is_not_run_again(
    api: APIClient, ask: Ask, work: Callable[[], None], code: str
) -> None:
    """The rest of the client's wait: neither a failure nor a value of the time is cached."""
    first = api.post(f"{URL}?wait=0", {"code": code}, HTTP_IDEMPOTENCY_KEY="k")
    work()
    again = api.post(f"{URL}?wait=0", {"code": code}, HTTP_IDEMPOTENCY_KEY="k")

    assert (first.status_code, again.status_code) == (202, 422 if code == "1 / 0" else 200)
    assert str(again.data["id"]) == str(first.data["id"])
    assert Run.objects.filter(kind="query").count() == 1


def test_a_query_that_the_server_failed_is_run_again_under_its_key(
    api: APIClient, ask: Ask, work: Callable[[], None]
) -> None:
    def post() -> Any:
        return api.post(f"{URL}?wait=0", {"code": "len(trips)"}, HTTP_IDEMPOTENCY_KEY="k")

    # Given a query whose run the server has closed
    first = post()
    runs.close(Run.objects.filter(pk=first.data["id"]), "The server is going down.")
    # When the request is repeated, as its 503 asks for
    second = post()
    work()
    third = post()
    # Then it is run once more, and that run is the key's
    assert (second.status_code, "Idempotent-Replayed" in second) == (202, False)
    assert second.data["id"] != first.data["id"]
    assert (third.status_code, third.data["value"]) == (200, 3)
    assert (third["Idempotent-Replayed"], str(third.data["id"])) == ("true", second.data["id"])


def test_a_query_that_a_redaction_closed_is_run_again_under_its_key(
    api: APIClient, user: MemoryUser, ask: Ask, work: Callable[[], None]
) -> None:
    def post() -> Any:
        return api.post(f"{URL}?wait=0", {"code": "len(trips)"}, HTTP_IDEMPOTENCY_KEY="k")

    first = post()
    runs.close(Run.objects.filter(pk=first.data["id"]), "An entry is being redacted.")
    redaction.redact(user, [1], by="test", reason="asked for")
    work()
    second = post()

    assert second.status_code in (200, 202), second.data
    assert second.data["id"] != first.data["id"]


def test_a_proposal_that_a_redaction_closed_is_not_queued_again(api: APIClient, ask: Ask) -> None:
    def post() -> Any:
        edits = [{"op": "note", "text": "Rome", "sources": [1]}]
        url = "/v1/users/ada/checkpoints/?wait=0"
        return api.post(url, {"edits": edits}, HTTP_IDEMPOTENCY_KEY="k")

    first = post()
    runs.close(Run.objects.filter(pk=first.data["id"]), "An entry is being redacted.")
    again = post()

    assert (first.status_code, again.status_code) == (202, 503), again.data
    assert str(again.data["id"]) == first.data["id"]


def test_an_abandoned_proposal_is_the_same_run_when_it_is_repeated(
    api: APIClient, ask: Ask, work: Callable[[], None]
) -> None:
    def post() -> Any:
        edits = [{"op": "note", "text": "Rome", "sources": [1]}]
        url = "/v1/users/ada/checkpoints/?wait=0"
        return api.post(url, {"edits": edits}, HTTP_IDEMPOTENCY_KEY="k")

    # Given a proposal that the server gave up
    first = post()
    error = RunError(type="abandoned", message="killed", infrastructure=True)
    result = Result(outcome=RunOutcome.ABANDONED, error=error)
    runs.finish(not_none(runs.claim(first.data["id"])), result)
    # When the request is repeated, then staff have nothing to retry, and it is done once
    again = post()
    assert (again.status_code, again.data["id"]) == (202, first.data["id"])
    assert api.post(f"/v1/runs/{first.data['id']}/retry/").status_code == 409
    work()
    assert (post().status_code, Run.objects.filter(kind="proposal").count()) == (200, 1)


def test_a_key_is_not_for_another_query_even_if_its_answer_is_cached(
    api: APIClient, answered: Ask
) -> None:
    earlier = [answered(code) for code in ("len(trips)", "1 + 1")]

    first = api.post(URL, {"code": "len(trips)"}, HTTP_IDEMPOTENCY_KEY="k")
    again = api.post(URL, {"code": "len(trips)"}, HTTP_IDEMPOTENCY_KEY="k")
    other = api.post(URL, {"code": "1 + 1"}, HTTP_IDEMPOTENCY_KEY="k")

    assert (first.status_code, first.data["cached"]) == (200, True)
    assert str(first.data["id"]) == earlier[0]["id"]
    assert again["Idempotent-Replayed"] == "true"
    assert again.content == first.content
    of_past = [
        api.post(URL, {"code": "len(trips)", "as_of": "v1"}, HTTP_IDEMPOTENCY_KEY="of past").data
        for _ in range(2)
    ]
    assert of_past[0]["cached"] is True
    assert of_past[0] == of_past[1]
    assert (other.status_code, other.data["type"]) == (422, "urn:uac:problem:key-reused")


def test_an_error_names_the_users_own_line(ask: Ask) -> None:
    error = ask("a = 1\nb = 0\na / b")["error"]

    assert (error["type"], error["path"], error["line"]) == ("ZeroDivisionError", "<query>", 3)


def test_a_query_changes_nothing_for_the_next_one(ask: Ask) -> None:
    assert ask("trips.clear()\n0")["outcome"] == "ok"
    assert ask("len(trips)")["output"]["value"] == 3


def test_without_a_state_the_answer_says_so(api: APIClient, user: MemoryUser) -> None:
    response = api.post(URL, {"code": "1"})

    assert response.status_code == 409
    assert "no checkpoint" in response.data["detail"]
    assert not Run.objects.exists()


def test_a_question_costs_few_exchanges_with_the_database(
    api: APIClient,
    ask: Ask,
    django_assert_max_num_queries: DjangoAssertNumQueries,
    django_assert_num_queries: DjangoAssertNumQueries,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a slow machine the counts would be counted again in between.
    monkeypatch.setattr(quotas, "BELIEVED_SECONDS", 600.0)
    ask("len(trips)")

    # The key, the user with the head, an earlier answer, the run; and rows that are seldom read.
    with django_assert_max_num_queries(8):
        api.post(f"{URL}?wait=0", {"code": "len(trips) + 1"})
    with django_assert_num_queries(4):
        api.post(f"{URL}?wait=0", {"code": "len(trips) + 2"})
    with django_assert_num_queries(4):  # and which entries of its evidence come from documents
        api.post(f"{URL}?wait=0", {"code": "len(trips)"})


def test_past_the_cap_requests_do_not_wait(
    api: APIClient, ask: Ask, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(hints, "wait_done", lambda run, seconds: waited.append(seconds))
    with ExitStack() as others:
        while others.enter_context(slots.WAITING.take(-1)):
            pass  # one workspace alone leaves some
        api.post(f"{URL}?wait=2", {"code": "1 + 1"})
        assert waited == [2]
        for workspace_pk in range(-settings.UAC_WAITING_REQUESTS, -1):
            others.enter_context(slots.WAITING.take(workspace_pk))

        waited.clear()
        assert api.post(f"{URL}?wait=30", {"code": "2"}).status_code == 202
        assert waited == []

    api.post(f"{URL}?wait=3", {"code": "1"})
    assert waited == [3]

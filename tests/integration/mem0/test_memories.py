"""Effects of mem0's calls on our log."""

import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries
from pytest_django.fixtures import Settings

from memory.integrations.mem0 import memories
from memory.kernel.models.users import Lane, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.users import create_user
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, LogEntry
from memory.operations.verification import problems
from tests.integration.mem0.conftest import Call, client_of

pytestmark = pytest.mark.django_db


def told(call: Call, *texts: str, **fields: Any) -> list[str]:
    """Add verbatim memories for Ada, and return their ids."""
    messages = [{"role": "user", "content": text} for text in texts]
    body = {"messages": messages, "user_id": "ada", "infer": False, **fields}
    return [one["id"] for one in call("POST", "v3/memories/add/", body)["results"]]


def texts(call: Call, **filters: Any) -> list[str]:
    """Return the matching memories, newest first."""
    body = {"filters": {"user_id": "ada", **filters}}
    return [one["memory"] for one in call("POST", "v3/memories/", body)["results"]]


def found(call: Call, query: str, **filters: Any) -> list[str]:
    body = {"query": query, "filters": {"user_id": "ada", **filters}}
    return [one["memory"] for one in call("POST", "v3/memories/search/", body)["results"]]


def entries(**fields: Any) -> list[LogEntry]:
    return list(LogEntry.objects.filter(user__user_id="ada", **fields).order_by("seq"))


def test_added_messages_create_their_user(call: Call, workspace: Workspace) -> None:
    workspace.time_zone = "Europe/Lisbon"
    workspace.save()

    answer = call(
        "POST",
        "v3/memories/add/",
        {
            "messages": [{"role": "user", "content": "Hello", "name": "Ada"}],
            "filters": {"user_id": "ada", "app_id": "shop"},
            "agent_id": "clerk",
            "run_id": "s1",
            "metadata": {"n": 1},
            "timestamp": 1_767_225_600,
        },
        status=202,
    )

    (entry,) = entries()
    assert entry.user.time_zone == "Europe/Lisbon"
    assert (entry.kind, entry.content, entry.role) == (EntryKind.MESSAGE, "Hello", "user")
    assert (entry.speaker, entry.agent_id, entry.session_id) == ("Ada", "clerk", "s1")
    assert entry.metadata == {"n": 1, "app_id": "shop"}
    assert entry.occurred_at == datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    assert entry.source is not None
    assert entry.source.startswith("key:")
    assert answer["status"] == "PENDING"
    # A message is no memory: a model has yet to find facts in it.
    assert texts(call) == []


def test_a_search_reads_dates_relative_to_today(call: Call, user: MemoryUser) -> None:
    noon = timezone.now().astimezone(ZoneInfo(user.time_zone)).replace(hour=12)
    for days in range(20):
        at = noon - datetime.timedelta(days=days)
        told(call, f"Entry{days}x", timestamp=int(at.timestamp()), run_id=str(days))

    assert found(call, "Was habe ich gestern gemacht?")[0] == "Entry1x"


@pytest.mark.parametrize("infer", [True, False])
def test_repeated_addition_is_done_once(workspace: Workspace, infer: bool) -> None:
    client = client_of(workspace)
    body = {"messages": [{"role": "user", "content": "x"}], "user_id": "ada", "infer": infer}

    def add(**more: Any) -> Any:
        return client.post("/mem0/v3/memories/add/", {**body, **more}, HTTP_IDEMPOTENCY_KEY="k")

    first, again, other = add(), add(), add(run_id="another")

    assert (first.status_code, first.json()) == (again.status_code, again.json())
    assert ("Idempotent-Replayed" in first, again["Idempotent-Replayed"]) == (False, "true")
    assert (other.status_code, "new key" in other.json()["detail"]) == (422, True)
    assert len(entries()) == 1


def test_a_user_of_whom_nothing_can_be_told_is_not_made(call: Call, workspace: Workspace) -> None:
    Workspace.objects.filter(pk=workspace.pk).update(max_entries_per_user=1)

    body = {"messages": [{"role": "user", "content": text} for text in "xy"], "user_id": "ada"}
    call("POST", "v3/memories/add/", body, status=403)

    assert not MemoryUser.objects.exists()


def test_no_model_is_said_by_the_answer(call: Call, user: MemoryUser) -> None:
    body = {"messages": [{"role": "user", "content": "Hello"}], "user_id": "ada"}

    answer = call("POST", "v3/memories/add/", body, status=202)

    assert "UAC_LLM_MODEL" in answer["message"]


def test_stopped_model_is_a_warning(call: Call, user: MemoryUser, settings: Settings) -> None:
    settings.UAC_LLM_MODEL, settings.UAC_LLM_API_KEY = "openai:any", "secret"
    body = {"messages": [{"role": "user", "content": "Hello"}], "user_id": "ada"}
    assert "will process" in call("POST", "v3/memories/add/", body, status=202)["message"]
    later = timezone.now() + datetime.timedelta(hours=1)
    Lane.objects.filter(user=user).update(run_after=later, last_error="The provider refuses.")

    assert "refuses" in call("POST", "v3/memories/add/", body, status=202)["message"]


def test_an_update_is_a_correction_of_the_entry_which_stays(call: Call) -> None:
    tea, _ = told(call, "Likes tea", "Likes milk", metadata={"n": 1}, run_id="s", app_id="x")

    updated = call("PUT", f"v1/memories/{tea}/", {"text": "Likes coffee"})
    call("PUT", f"v1/memories/{tea}/", {"metadata": {"n": 2}})

    first, _, second, third = entries()
    assert (first.kind, first.content) == (EntryKind.FACT, "Likes tea")
    assert (second.kind, second.derived_from) == (EntryKind.CORRECTION, [1])
    assert (third.content, third.derived_from) == ("Likes coffee", [1])
    assert third.metadata == {"n": 2, "app_id": "x"}
    assert (updated["id"], updated["run_id"], updated["app_id"]) == (tea, "s", "x")
    assert updated["created_at"] == first.occurred_at.isoformat()
    assert updated["updated_at"] == second.recorded_at.isoformat()
    assert texts(call) == ["Likes milk", "Likes coffee"]
    assert texts(call, metadata={"n": 1}) == ["Likes milk"]
    assert set(found(call, "tea coffee milk")) == {"Likes coffee", "Likes milk"}
    assert list(problems(first.user)) == []


def test_an_update_that_changes_nothing_appends_nothing(call: Call) -> None:
    (tea,) = told(call, "Likes tea", metadata={"n": 1})

    for body in (
        {"text": "Likes tea"},
        {"metadata": {"n": 1}, "text": "Likes tea"},
        {"expiration_date": None},
    ):
        assert call("PUT", f"v1/memories/{tea}/", body)["memory"] == "Likes tea"

    assert len(entries()) == 1


def test_corrections_that_stand_by_themselves_are_memories(call: Call, user: MemoryUser) -> None:
    draft = Draft(kind=EntryKind.CORRECTION, content="It was Porto.")
    (entry,) = entry_log.append(user, [draft], source="product")

    call("PUT", f"v1/memories/{entry.pk}/", {"text": "It was Faro."})

    assert texts(call) == ["It was Faro."]
    assert [event["new_memory"] for event in call("GET", f"v1/memories/{entry.pk}/history/")] == [
        "It was Porto.",
        "It was Faro.",
    ]
    correction = entries()[1]
    call("GET", f"v1/memories/{correction.pk}/", status=404)


def test_deleted_memory_is_redacted_with_its_earlier_texts(call: Call) -> None:
    tea, _ = told(call, "Likes tea", "Likes milk")
    call("PUT", f"v1/memories/{tea}/", {"text": "Likes coffee"})

    assert call("DELETE", f"v1/memories/{tea}/?delete_linked=true")["message"]

    assert [entry.seq for entry in entries(redacted_at__isnull=False)] == [1, 3]
    assert texts(call) == found(call, "tea coffee milk") == ["Likes milk"]
    for method in ("GET", "DELETE", "PUT"):
        call(method, f"v1/memories/{tea}/", {"text": "x"} if method == "PUT" else None, status=404)
    history = call("GET", f"v1/memories/{tea}/history/")
    assert [event["event"] for event in history] == ["ADD", "UPDATE", "DELETE"]
    assert "tea" not in str(history)
    assert "coffee" not in str(history)
    redaction = entries(kind=EntryKind.REDACTION)[0]
    assert redaction.data is not None
    assert redaction.data["reason"] == "deleted through the mem0 API"
    assert list(problems(redaction.user)) == []


def test_all_memories_of_a_run_or_an_app_are_deleted(call: Call) -> None:
    told(call, "one", run_id="a")
    told(call, "two", run_id="b", app_id="x")
    told(call, "three", run_id="b")

    assert call("DELETE", "v1/memories/?user_id=ada&run_id=b&app_id=x")["deleted"] == 1
    assert texts(call) == ["three", "one"]
    assert call("DELETE", "v1/memories/?user_id=nobody")["deleted"] == 0
    call("DELETE", "v1/memories/?user_id=ada")

    assert texts(call) == []


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["a", "b", "c"]),
        ({"run_id": "r1"}, ["a"]),
        ({"run_id": "*"}, ["a", "b"]),
        ({"run_id": {"in": ["r1", "r2"]}}, ["a", "b"]),
        ({"run_id": {"ne": "r1"}}, ["b", "c"]),
        ({"agent_id": {"icontains": "COOK"}}, ["c"]),
        ({"app_id": "*"}, ["b"]),
        ({"app_id": {"eq": "shop"}}, ["b"]),
        ({"metadata": {"n": {"gte": 2}}}, ["b", "c"]),
        ({"metadata": {"n": 1, "topic": "food"}}, ["a"]),
        ({"OR": [{"run_id": "r1"}, {"agent_id": "the cook"}]}, ["a", "c"]),
        ({"NOT": [{"run_id": "r1"}, {"agent_id": "the cook"}]}, ["b"]),
        ({"NOT": {"run_id": "r1"}}, ["b", "c"]),
        ({"keywords": {"contains": "B"}}, ["b"]),
        ({"created_at": {"gte": "2026-01-01", "lt": "2026-01-02"}}, ["a"]),
        ({"timestamp": {"gt": "2026-01-01T12:00:00Z"}}, ["b", "c"]),
        ({"updated_at": {"lt": "2026-01-02"}}, []),
    ],
    ids=str,
)
def test_filters(call: Call, filters: dict[str, Any], expected: list[str]) -> None:
    (a,) = told(call, "a", run_id="r1", metadata={"n": 1, "topic": "food"}, timestamp=1767225600)
    told(call, "b", run_id="r2", metadata={"n": 2}, app_id="shop")
    told(call, "c", agent_id="the cook", metadata={"n": 3})
    # An updated memory keeps the time at which it was added.
    call("PUT", f"v1/memories/{a}/", {"text": "a changed"})

    for asked in ({"user_id": "ada", **filters}, {"AND": [{"user_id": {"in": ["ada"]}}, filters]}):
        if {} in asked.get("AND", []):
            continue
        listed = call("POST", "v3/memories/", {"filters": asked})["results"]
        assert sorted(one["memory"][0] for one in listed) == expected
        body = {"query": "a b c changed", "filters": asked}
        hits = call("POST", "v3/memories/search/", body)["results"]
        assert {one["memory"][0] for one in hits} <= set(expected)


def test_dates_of_a_list_are_included(call: Call) -> None:
    told(call, "old", timestamp=1767225600)  # 2026-01-01T00:00Z
    body = {"filters": {"user_id": "ada"}, "start_date": "2026-01-01", "end_date": "2026-01-01"}

    assert call("POST", "v3/memories/", body)["count"] == 1
    assert call("POST", "v3/memories/", {**body, "start_date": "2026-01-02"})["count"] == 0
    assert call("POST", "v3/memories/", {**body, "end_date": "9999-12-31"})["count"] == 1


def test_pages(call: Call) -> None:
    told(call, *(str(number) for number in range(5)))
    body = {"filters": {"user_id": "ada"}}

    pages = [call("POST", f"v3/memories/?page={page}&page_size=2", body) for page in (1, 2, 3, 4)]

    assert [[one["memory"] for one in page["results"]] for page in pages] == [
        ["4", "3"],
        ["2", "1"],
        ["0"],
        [],
    ]
    assert [page["count"] for page in pages] == [5] * 4
    assert [bool(page["next"]) for page in pages] == [True, True, False, False]
    assert [bool(page["previous"]) for page in pages] == [False, True, True, True]


def test_a_list_and_a_search_cost_no_query_for_each_memory(
    call: Call, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    ids = told(call, *(f"fact {number}" for number in range(20)))
    for memory_id in ids[:10]:
        call("PUT", f"v1/memories/{memory_id}/", {"text": "fact changed"})

    with django_assert_max_num_queries(8):
        assert len(texts(call)) == 20
    with django_assert_max_num_queries(10):
        assert len(found(call, "fact")) == 10


def test_fields_and_scores_of_a_search(call: Call) -> None:
    told(call, "Likes tea", "Likes green tea", "Likes milk")
    body = {"query": "green tea", "filters": {"user_id": "ada"}, "fields": ["memory", "score"]}

    best, *others = call("POST", "v3/memories/search/", body)["results"]

    assert set(best) == {"id", "memory", "score"}
    assert best["memory"] == "Likes green tea"
    assert all(best["score"] > other["score"] for other in others)
    above = {**body, "threshold": best["score"], "top_k": 1}
    assert len(call("POST", "v3/memories/search/", above)["results"]) == 1


def test_users_of_the_workspace_alone_are_listed(call: Call, user: MemoryUser) -> None:
    create_user(Workspace.objects.create(name="other"), "eve", metadata=None)
    told(call, "one", "two")

    answer = call("GET", "v1/entities/")

    (row,) = answer["results"]
    assert (row["name"], row["type"], row["total_memories"]) == ("ada", "user", 2)
    assert row["id"] == str(user.public_id)


class TestWhatIsTooLargeForAPage:
    """An answer sent at once is held in memory several times, so its size is limited."""

    @pytest.fixture(autouse=True)
    def small_pages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memories, "PAGE_BYTES", 2**20)

    def test_a_page_is_refused_with_the_size_that_fits(self, call: Call) -> None:
        told(call, *(f"{number} {'x' * 400_000}" for number in range(4)))
        body = {"filters": {"user_id": "ada"}}
        narrowed = {"filters": {"user_id": "ada", "created_at": {"gte": "2000-01-01"}}}

        for asked in (body, narrowed):
            refused = call("POST", "v3/memories/", asked, status=400)
            assert "more than 1 MiB" in refused["detail"]
            assert "page_size of 2" in refused["detail"]
            page = call("POST", "v3/memories/?page_size=2&page=2", asked)
            assert [one["memory"][0] for one in page["results"]] == ["1", "0"]

    def test_text_read_before_does_not_count(self, call: Call) -> None:
        ids = told(call, *("x" * 400_000 for _ in range(4)))
        for memory_id in ids:
            call("PUT", f"v1/memories/{memory_id}/", {"text": "short"})

        assert texts(call) == ["short"] * 4

    def test_a_search_ends_where_a_page_does(self, call: Call) -> None:
        told(call, *(f"puppy {number} {'x' * 400_000}" for number in range(4)))

        found = call(
            "POST", "v3/memories/search/", {"query": "puppy", "filters": {"user_id": "ada"}}
        )["results"]

        assert len(found) == 2

    def test_a_long_history_is_refused(self, call: Call) -> None:
        (memory_id,) = told(call, "short")
        for number in range(2):
            call("PUT", f"v1/memories/{memory_id}/", {"text": f"{number}" + "x" * 400_000})

        refused = call("GET", f"v1/memories/{memory_id}/history/", status=400)

        assert "GET /v1/users/{user_id}/entries/" in refused["detail"]
        assert call("GET", f"v1/memories/{memory_id}/")["memory"][0] == "1"

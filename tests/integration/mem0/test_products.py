"""The bodies that mem0's own products send, and what chat SDKs dump as messages."""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import ApiKey, Workspace
from memory.kernel.users import create_user
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, EntryOutcome, LogEntry, Outcome
from tests.integration.mem0.conftest import Call, caller, client_of

pytestmark = pytest.mark.django_db

ADD, SEARCH, LIST = "v3/memories/add/", "v3/memories/search/", "v3/memories/"
SAID = [{"role": "user", "content": "I drink tea."}]

Told: TypeAlias = Callable[..., None]


@pytest.fixture
def told(call: Call) -> Told:
    """Tell memories as such, of Ada unless somebody else is named."""

    def tell(*texts: str, **ids: Any) -> None:
        messages = [{"role": "user", "content": text} for text in texts]
        call("POST", ADD, {"messages": messages, "infer": False, **(ids or {"user_id": "ada"})})

    return tell


@pytest.fixture
def send(workspace: Workspace) -> Callable[..., Any]:
    """POST a body, and return the answer itself."""
    client = client_of(workspace)

    def post(path: str, body: Any) -> Any:
        return client.generic(
            "POST", f"/mem0/{path}", json.dumps(body), content_type="application/json"
        )

    return post


def found(call: Call, **asked: Any) -> list[str]:
    return [one["memory"] for one in call("POST", SEARCH, {"query": "tea", **asked})["results"]]


def listed(call: Call, **filters: Any) -> list[str]:
    return [one["memory"] for one in call("POST", LIST, {"filters": filters})["results"]]


def contents() -> list[tuple[str, str]]:
    """Return the role and text of every entry."""
    return [(one.role or "", one.content or "") for one in LogEntry.objects.order_by("seq")]


# What each product sends for its calls, as captured from its current version.
CLI_ADD = {"messages": SAID, "user_id": "ada", "infer": False, "immutable": True, "source": "CLI"}
CLI_SEARCH = {
    "query": "tea",
    "top_k": 10,
    "threshold": 0.1,
    "filters": {"user_id": "ada"},
    "rerank": True,
    "keyword_search": True,
    "latest_only": True,
    "source": "CLI",
}
CLI_LIST = {"filters": {"AND": [{"user_id": "ada"}]}, "latest_only": True, "source": "CLI"}
STRANDS_ADD = {"messages": SAID, "metadata": None, "infer": False, "source": "STRANDS"}
VERCEL_SEARCH = {"query": "tea", "filters": {"user_id": "ada"}, "top_k": 10, "rerank": True}
NPM_SEARCH = {"query": "tea", "filters": {"user_id": "ada"}, "source": "OPENCLAW"}
# One of every option of the typed clients, as pydantic dumps it
EVERY_NULL = {
    **dict.fromkeys(("filters", "metadata", "infer", "custom_categories", "timestamp")),
    **dict.fromkeys(("custom_instructions", "expiration_date", "structured_data_schema")),
    **dict.fromkeys(("agent_id", "app_id", "run_id", "agent_custom_instructions")),
}


@pytest.mark.parametrize(
    "search", [CLI_SEARCH, VERCEL_SEARCH, NPM_SEARCH], ids=["cli", "vercel", "npm"]
)
def test_a_product_adds_and_finds(send: Callable[..., Any], search: dict[str, Any]) -> None:
    added = send(ADD, CLI_ADD)
    assert added.status_code == 200
    answer = send(SEARCH, search)
    assert answer.status_code == 200
    assert [one["memory"] for one in answer.json()["results"]] == ["I drink tea."]
    listing = send(f"{LIST}?page=1&page_size=100", CLI_LIST)
    assert [one["memory"] for one in listing.json()["results"]] == ["I drink tea."]


@pytest.mark.parametrize(
    "ids", [{"user_id": "ada"}, {"agent_id": "bot"}, {"run_id": "r1"}, {"app_id": "x"}]
)
def test_strands_with_each_of_its_scopes(call: Call, ids: dict[str, str]) -> None:
    call("POST", ADD, {**STRANDS_ADD, **ids})
    # As it sends rendered turns
    turns = [*SAID, {"role": "assistant", "content": "Noted."}]
    call("POST", ADD, {"messages": turns, "infer": True, "source": "STRANDS", **ids}, status=202)

    assert "I drink tea." in found(call, filters=ids, top_k=5)
    (memory,) = call("POST", LIST, {"filters": ids})["results"]
    named = {key: memory[key] for key in ("user_id", "agent_id", "run_id", "app_id")}
    assert {key: value for key, value in named.items() if value} == ids


def test_a_hint_is_ignored_and_named(send: Callable[..., Any]) -> None:
    answer = send(ADD, {**CLI_ADD, "custom_categories": [{"a": "b"}], "version": None})

    assert answer.status_code == 200
    for name in ("source", "immutable", "custom_categories"):
        assert f'299 uac "{name}: ignored' in answer["Warning"]
    assert "version" not in answer["Warning"], "null is not given"
    assert "Warning" not in send(SEARCH, {"query": "tea", "filters": {"user_id": "ada"}})
    assert "rerank" in send(SEARCH, VERCEL_SEARCH)["Warning"]


def test_hints_in_an_address(call: Call, told: Told, workspace: Workspace) -> None:
    told("a", "b")
    client = client_of(workspace)
    first, second = call("POST", LIST, {"filters": {"user_id": "ada"}})["results"]

    got = client.get(f"/mem0/v1/memories/{first['id']}/?source=CLI")
    gone = client.delete(f"/mem0/v1/memories/{second['id']}/?source=CLI&delete_linked=true")
    rest = client.delete("/mem0/v1/memories/?source=CLI&user_id=ada")

    assert [one.status_code for one in (got, gone, rest)] == [200] * 3
    assert "source" in rest["Warning"]
    assert listed(call, user_id="ada") == []


@pytest.mark.parametrize("nothing", [None, "", [], {}], ids=repr)
def test_empty_value_counts_as_not_given(call: Call, told: Told, nothing: Any) -> None:
    body = {"messages": SAID, "user_id": "ada", **dict.fromkeys(EVERY_NULL, nothing)}
    call("POST", ADD, body, status=202)
    told("Tea is nice.")

    everything = {
        **dict.fromkeys(("top_k", "threshold", "metadata", "rerank", "fields"), nothing),
        **dict.fromkeys(("categories", "reference_date", "latest_only", "agent_id"), nothing),
    }
    ids = dict.fromkeys(("agent_id", "run_id", "app_id", "categories", "metadata"), nothing)
    assert "Tea is nice." in found(call, filters={"user_id": "ada", **ids}, **everything)
    assert listed(call, AND=[{"user_id": "ada"}, {"run_id": nothing}], OR=nothing) == [
        "Tea is nice."
    ]
    dates = dict.fromkeys(("start_date", "end_date", "page", "page_size", "fields"), nothing)
    assert call("POST", LIST, {"filters": {"user_id": "ada"}, **dates})["count"] == 1


def test_integers_are_ids(call: Call, told: Told) -> None:
    told("tea of seven", user_id=7, run_id=1, agent_id=0)

    for ids in ({"user_id": 7}, {"user_id": "7"}, {"run_id": 1}, {"agent_id": 0}):
        assert listed(call, **ids) == ["tea of seven"]
    assert listed(call, user_id={"in": [7, 8, None, ""]}) == ["tea of seven"]
    assert found(call, user_id=7) == ["tea of seven"]
    assert call("DELETE", "v1/memories/?user_id=7&run_id=1")["deleted"] == 1


def test_memories_of_several_users(call: Call, told: Told, workspace: Workspace) -> None:
    told("tea of Ada", user_id="ada")
    told("tea of Bob", user_id="bob", agent_id="clerk")
    told("tea of Eve", user_id="eve", agent_id="clerk", run_id="r")

    both = ["tea of Bob", "tea of Ada"]
    assert listed(call, user_id={"in": ["ada", "bob", "nobody"]}) == both
    assert listed(call, user_id=["ada", "bob"]) == both
    assert listed(call, OR=[{"user_id": "ada"}, {"user_id": "bob"}]) == both
    assert listed(
        call, OR=[{"user_id": "ada"}, {"AND": [{"user_id": "bob"}, {"agent_id": "x"}]}]
    ) == ["tea of Ada"]
    assert listed(call, AND=[{"user_id": "ada"}, {"user_id": "bob"}]) == []
    assert listed(call, agent_id="clerk") == ["tea of Eve", "tea of Bob"]
    assert listed(call, OR=[{"user_id": "ada"}, {"run_id": "r"}]) == ["tea of Eve", "tea of Ada"]
    assert listed(call, user_id="*", NOT=[{"user_id": "eve"}]) == both
    assert set(found(call, filters={"user_id": "*"})) == {*both, "tea of Eve"}
    assert len(found(call, filters={"user_id": "*"}, top_k=2)) == 2
    pages = [
        call("POST", f"{LIST}?page={page}&page_size=2", {"filters": {"user_id": "*"}})
        for page in (1, 2)
    ]
    assert [[one["memory"] for one in page["results"]] for page in pages] == [
        ["tea of Eve", "tea of Bob"],
        ["tea of Ada"],
    ]
    assert call("DELETE", "v1/memories/?agent_id=clerk")["deleted"] == 2
    assert listed(call, user_id="*") == ["tea of Ada"]


def test_a_corrected_memory_keeps_its_place_among_several_users(call: Call, told: Told) -> None:
    told("first", user_id="ada")
    told("second", user_id="bob")
    (oldest,) = call("POST", LIST, {"filters": {"user_id": "ada"}})["results"]
    call("PUT", f"v1/memories/{oldest['id']}/", {"text": "first, corrected", "source": "CLI"})

    assert listed(call, user_id={"in": ["ada", "bob"]}) == ["second", "first, corrected"]
    assert listed(call, user_id="*", metadata={"n": 1}) == []


def test_restricted_key_reads_its_users_alone(call: Call, told: Told, workspace: Workspace) -> None:
    told("tea of Ada", user_id="ada", agent_id="clerk")
    told("tea of Bob", user_id="bob", agent_id="clerk")
    client = client_of(workspace)
    theirs = caller(client)
    ada = MemoryUser.objects.get(user_id="ada")
    newest = ApiKey.objects.order_by("-pk").first()
    assert newest is not None
    newest.user_pks = [ada.pk]
    newest.save()

    for filters in (
        {"user_id": {"in": ["ada", "bob"]}},
        {"OR": [{"user_id": "ada"}, {"user_id": "bob"}]},
        {"agent_id": "clerk"},
        {"user_id": "*"},
        {"NOT": {"user_id": "x"}},
    ):
        assert listed(theirs, **filters) == ["tea of Ada"]
        assert found(theirs, filters=filters) == ["tea of Ada"]
    assert theirs("DELETE", "v1/memories/?agent_id=clerk")["deleted"] == 1
    assert listed(call, agent_id="clerk") == ["tea of Bob"]
    for ids in ({"agent_id": "new"}, {"user_id": "new"}):
        theirs("POST", ADD, {"messages": SAID, **ids}, status=404)


def test_filters_of_too_many_users_are_refused(call: Call, workspace: Workspace) -> None:
    for number in range(101):
        create_user(workspace, f"u{number}", metadata=None)

    answer = call("POST", LIST, {"filters": {"user_id": "*"}}, status=400)

    assert "user_id" in answer["detail"]
    names = [f"u{number}" for number in range(100)]
    assert listed(call, user_id={"in": names}) == []


def test_an_agent_of_its_own_is_listed(call: Call) -> None:
    call("POST", ADD, {"messages": SAID, "agent_id": "bot", "infer": False})
    call("POST", ADD, {"messages": SAID, "user_id": "ada", "infer": False})

    rows = {(row["type"], row["name"]) for row in call("GET", "v1/entities/")["results"]}
    assert rows == {("agent", "bot"), ("user", "ada")}
    assert listed(call, agent_id="bot") == listed(call, user_id="ada") == ["I drink tea."]


def test_threshold_0_fills_up_to_top_k(call: Call, told: Told) -> None:
    told("I drink tea.", "My car is red.", "My dog is called Rex.")
    told("Elsewhere", user_id="bob")
    ada = {"user_id": "ada"}

    matching = found(call, filters=ada, query="tea xyzzy")
    filled = found(call, filters=ada, threshold=0, query="tea xyzzy")
    assert filled[: len(matching)] == matching
    assert filled[0] == "I drink tea."
    assert sorted(filled) == ["I drink tea.", "My car is red.", "My dog is called Rex."]
    # Even if nothing matches
    assert len(found(call, filters=ada, threshold=0, query="12345678901")) == 3
    assert len(found(call, filters=ada, threshold=0, top_k=1, query="12345678901")) == 1
    assert len(found(call, filters=ada, threshold=0.0, top_k=2)) == 2
    assert found(call, filters={**ada, "run_id": "r"}, threshold=0) == []


def test_fields_and_page_in_the_body_of_a_list(call: Call, told: Told) -> None:
    told("one", "two", "three")
    body = {"filters": {"user_id": "ada"}, "page": 2, "page_size": 1, "fields": ["memory", "owner"]}

    answer = call("POST", LIST, body)

    assert [{**one, "id": ""} for one in answer["results"]] == [
        {"id": "", "memory": "two", "owner": None}
    ]
    assert "page=3" in answer["next"]
    assert "page=1" in answer["previous"]
    # The next page is the same size.
    path = answer["next"].partition("/mem0/")[2]
    assert [
        one["memory"] for one in call("POST", path, {"filters": body["filters"]})["results"]
    ] == ["one"]


def test_pending_messages_are_found_without_model(call: Call, user: MemoryUser, told: Told) -> None:
    told("Tea is nice.")
    messages = [*SAID, {"role": "assistant", "content": "Green tea?"}]
    answer = call("POST", ADD, {"messages": messages, "user_id": "ada"}, status=202)
    assert "UAC_LLM_MODEL" in answer["message"]

    hits = call("POST", SEARCH, {"query": "tea", "filters": {"user_id": "ada"}})["results"]

    assert {(one["memory"], one.get("status")) for one in hits} == {
        ("Tea is nice.", None),
        ("I drink tea.", "PENDING"),
        ("Green tea?", "PENDING"),
    }
    assert found(call, filters={"user_id": "ada", "agent_id": "x"}) == []
    # A message that a model has dealt with is found by its facts alone.
    for seq in (2, 3):
        EntryOutcome.objects.create(user=user, seq=seq, outcome=Outcome.COVERED)
    fact = Draft(kind=EntryKind.FACT, content="The user drinks tea.", derived_from=[2])
    entry_log.append(user, [fact], source="memorize")
    assert set(found(call, filters={"user_id": "ada"})) == {"Tea is nice.", "The user drinks tea."}


# A conversation as the SDKs dump it: what each message is, and what the log keeps of it.
DUMPS: list[tuple[Any, list[tuple[str, str]]]] = [
    # OpenAI's model_dump()
    (
        {
            "role": "assistant",
            "content": "Hi!",
            "refusal": None,
            "annotations": [],
            "audio": None,
            "function_call": None,
            "tool_calls": None,
        },
        [("assistant", "Hi!")],
    ),
    (
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
                }
            ],
        },
        [("assistant", '[weather({"city": "Paris"})]')],
    ),
    ({"role": "tool", "tool_call_id": "call_1", "content": "18 °C"}, [("tool", "18 °C")]),
    ({"role": "function", "name": "weather", "content": "18 °C"}, [("function", "18 °C")]),
    ({"role": "developer", "content": "Be brief."}, [("developer", "Be brief.")]),
    ({"role": "assistant", "content": None, "refusal": "I can't."}, [("assistant", "I can't.")]),
    (
        {"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "Hello"}},
        [("assistant", "Hello")],
    ),
    (
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
            ],
        },
        [("user", "What is this?\n[image_url: https://example.com/a.png]")],
    ),
    (
        {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        [("user", "Hello")],
    ),
    # Vercel's provider: one object for each part
    (
        {
            "role": "user",
            "content": {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
        },
        [("user", "[image_url: not kept]")],
    ),
    # Anthropic
    (
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t", "name": "weather", "input": {"city": "Paris"}},
            ],
        },
        [("assistant", 'I look.\n[weather({"city": "Paris"})]')],
    ),
    (
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "content": [{"type": "text", "text": "18 °C"}],
                }
            ],
        },
        [("user", "18 °C")],
    ),
    # Strands
    (
        {"role": "user", "content": [{"text": "Hello"}, {"toolUse": {"name": "f", "input": {}}}]},
        [("user", "Hello\n[f({})]")],
    ),
    (
        {
            "role": "user",
            "content": [{"toolResult": {"content": [{"json": {"a": 1}}, {"text": "b"}]}}],
        },
        [("user", '{"a": 1}\nb')],
    ),
    # LangChain
    ({"type": "human", "content": "Hello", "additional_kwargs": {}}, [("user", "Hello")]),
    (
        {"type": "ai", "content": "", "tool_calls": [{"name": "f", "args": {"n": 1}, "id": "1"}]},
        [("assistant", '[f({"n": 1})]')],
    ),
    ("Just text", [("user", "Just text")]),
    ({"content": "No role"}, [("user", "No role")]),
    # No text at all: left out, and nothing else with it
    ({"role": "assistant", "content": None}, []),
    ({"role": "assistant", "content": ""}, []),
    ({"role": "assistant", "content": []}, []),
    ({"role": "assistant"}, []),
]


@pytest.mark.parametrize(("message", "kept"), DUMPS)
def test_a_dumped_message_is_kept_with_its_conversation(
    send: Callable[..., Any], message: Any, kept: list[tuple[str, str]]
) -> None:
    before, after = ({"role": "user", "content": text} for text in ("before", "after"))

    answer = send(ADD, {"messages": [before, message, after], "user_id": "ada"})

    assert answer.status_code == 202, answer.content
    assert contents() == [("user", "before"), *kept, ("user", "after")]
    is_whole = kept and "not kept" not in kept[0][1]
    assert ("messages[1]" in answer.get("Warning", "")) == (not is_whole)


@pytest.mark.parametrize(
    "messages", [SAID, SAID[0], "I drink tea."], ids=["list", "object", "text"]
)
def test_messages_may_be_one_or_text(call: Call, messages: Any) -> None:
    call("POST", ADD, {"messages": messages, "user_id": "ada"}, status=202)

    assert contents() == [("user", "I drink tea.")]


def test_a_tool_call_or_an_image_alone_is_no_memory(call: Call) -> None:
    tool_call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}],
    }
    image = {"role": "user", "content": {"type": "image_url", "image_url": {"url": "data:,x"}}}
    body = {"messages": [tool_call, image, *SAID], "user_id": "ada", "infer": False}

    assert [one["memory"] for one in call("POST", ADD, body)["results"]] == ["I drink tea."]
    call("POST", ADD, {**body, "messages": [tool_call]}, status=400)


def test_a_name_is_the_speaker(call: Call) -> None:
    messages = [{**SAID[0], "name": "Ada", "id": "m1"}, {**SAID[0], "name": None}]
    call("POST", ADD, {"messages": messages, "user_id": "ada"}, status=202)

    assert list(LogEntry.objects.order_by("seq").values_list("speaker", flat=True)) == ["Ada", None]


def test_a_warning_is_a_header_whatever_is_sent(workspace: Workspace) -> None:
    client = client_of(workspace)
    messages = [SAID[0], *({"role": "user", "content": "\r\n"} for _ in range(100))]

    answer = client.post("/mem0/v3/memories/add/", {"messages": messages, "user_id": "ada"})

    assert answer.status_code == 202
    assert len(answer["Warning"]) < 4000

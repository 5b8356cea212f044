"""Arguments as models and frameworks send them."""

import json
from typing import Any

import pytest

from memory.integrations.mcp import arguments
from memory.integrations.mcp.tools import TOOLS, Caller

NOBODY: Any = None
RECORD = {"kind": "record", "type": "Trip", "data": {"to": "Rome", "via": None, "with": []}}


def read(name: str, **sent: Any) -> Any:
    return arguments.read(sent, TOOLS[name].schema(Caller(NOBODY, "ada")))


@pytest.mark.parametrize("nothing", [None, "", [], {}], ids=repr)
def test_an_optional_argument_that_is_empty_is_not_given(nothing: Any) -> None:
    optional = ("messages", "top_k", "words", "corpora", "filters", "as_of")
    assert read("search_memory", query="x", **dict.fromkeys(optional, nothing)) == {"query": "x"}
    # A required one stays, for the error to name.
    assert read("search_memory", query=nothing) == {"query": nothing}


def test_user_content_keeps_its_empty_values() -> None:
    empty = dict.fromkeys(("domain", "key", "content", "metadata", "retired"))
    assert read("add_memory", entries=[{**RECORD, **empty}]) == {"entries": [RECORD]}


@pytest.mark.parametrize(
    ("name", "sent", "expected"),
    [
        ("add_memory", {"entries": json.dumps([RECORD])}, {"entries": [RECORD]}),
        ("add_memory", {"entries": json.dumps(RECORD)}, {"entries": [RECORD]}),
        ("add_memory", {"entries": RECORD}, {"entries": [RECORD]}),
        (
            "add_memory",
            {"entries": [{**RECORD, "data": json.dumps(RECORD["data"])}]},
            {"entries": [RECORD]},
        ),
        ("search_memory", {"top_k": "5"}, {"top_k": 5}),
        ("search_memory", {"top_k": 5.0}, {"top_k": 5}),
        ("search_memory", {"top_k": "5.0"}, {"top_k": 5}),
        ("search_memory", {"threshold": "0.5"}, {"threshold": 0.5}),
        ("search_memory", {"threshold": "1"}, {"threshold": 1}),
        ("search_memory", {"corpora": "facts"}, {"corpora": ["facts"]}),
        ("search_memory", {"corpora": '["facts"]'}, {"corpora": ["facts"]}),
        ("search_memory", {"filters": '{"speaker": ""}'}, {"filters": {"speaker": ""}}),
        (
            "propose_edits",
            {"edits": '[{"op": "add", "sources": "[1]", "singleton": "true", "key": null}]'},
            {"edits": [{"op": "add", "sources": [1], "singleton": True}]},
        ),
        (
            "propose_edits",
            {"edits": [{"op": "define_class", "fields": '[{"name": "a", "type": "str"}]'}]},
            {"edits": [{"op": "define_class", "fields": [{"name": "a", "type": "str"}]}]},
        ),
        # A default is any JSON value; text that is no JSON is itself.
        (
            "propose_edits",
            {"edits": [{"op": "add_field", "default": one} for one in ("0", "none", "null", 5)]},
            {"edits": [{"op": "add_field", "default": one} for one in (0, "none", None, 5)]},
        ),
        ("search_memory", {"query": "x", "top_k": "null", "filters": "{}"}, {"query": "x"}),
        # Text stays text.
        ("run_query", {"code": "5", "as_of": "120"}, {"code": "5", "as_of": "120"}),
        ("run_query", {"code": "[1]", "as_of": 120}, {"code": "[1]", "as_of": 120}),
        ("remember", {"text": '{"a": 1}'}, {"text": '{"a": 1}'}),
        # What is nothing of the kind stays for the error to name.
        ("search_memory", {"top_k": "five"}, {"top_k": "five"}),
        ("search_memory", {"top_k": "[5]"}, {"top_k": "[5]"}),
        ("search_memory", {"top_k": "NaN"}, {"top_k": "NaN"}),
        ("search_memory", {"top_k": 5.5}, {"top_k": 5.5}),
        ("search_memory", {"filters": "[" * 100_000}, {"filters": "[" * 100_000}),
    ],
    ids=lambda value: str(value)[:60],
)
def test_json_text_is_read_where_it_is_no_text(name: str, sent: Any, expected: Any) -> None:
    found = read(name, **sent)
    assert found == expected
    assert [type(one) for one in found.values()] == [type(one) for one in expected.values()]

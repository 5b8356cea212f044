"""Results have a size, and say what was left out and how to get it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.integrations.mcp import results
from memory.integrations.mcp.api import RequestRefused
from memory.integrations.mcp.results import MAX_CHARACTERS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=60) | st.dictionaries(st.text(max_size=30), inner, max_size=60)
    ),
    max_leaves=100,
)


def text_of(result: Any) -> str:
    (content,) = result.content
    return str(content.text)


def size_of(result: Any) -> int:
    """Return a result's characters, as a client gets them."""
    structured = result.structured_content
    return len(text_of(result)) + len(
        json.dumps(structured, ensure_ascii=False) if structured is not None else ""
    )


def shown(value: Any, offset: int = 0) -> Any:
    """Return the result that tells a value."""
    return results.from_answer(
        results.cut({"id": "1", "value": value}, "value", offset, "Or less.")
    )


@pytest.mark.parametrize(
    "value",
    [
        list(range(100_000)),
        [{"to": "Rome", "cost": n} for n in range(9_000)],
        "x" * 600_000,
        '"\\\n' * 200_000,
        "時" * 100_000,
        {f"2026-{n}": n for n in range(50_000)},
        {"a": list(range(50_000)), "b": {"c": "y" * 50_000}, "d": 5},
        {"$set": list(range(50_000))},
        [["x" * 50_000] * 50],
        [[[[["x" * 600_000]]]]],
        {"x" * 600_000: 1},
        {f"{n}" * 1000: 1 for n in range(30)},
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_large_value_is_cut_and_says_so(value: Any) -> None:
    result = shown(value)
    assert size_of(result) <= MAX_CHARACTERS
    told = json.loads(text_of(result))
    assert told["left_out"]
    assert "Or less." in told["how_to_get_the_rest"]
    assert result.structured_content["left_out"]


@given(value=JSON, copies=st.integers(1, 200))
def test_any_value_fits(value: Any, copies: int) -> None:
    result = shown([value] * copies)
    assert size_of(result) <= MAX_CHARACTERS
    if len(json.dumps([value] * copies)) < results.MAX_ANSWER - 100:
        assert result.structured_content == {"id": "1", "value": [value] * copies}


@pytest.mark.parametrize(
    "value",
    [
        [{"to": "Rome", "cost": n} for n in range(2_000)],
        "".join(f"{n}," for n in range(20_000)),
        {f"day {n}": n for n in range(5_000)},
        {"$set": list(range(20_000))},
        [*range(1000), "x" * 20_000, *range(1000)],
    ],
    ids=lambda value: repr(value)[:30],
)
def test_pages_lead_through_the_whole_value(value: Any) -> None:
    pages: list[Any] = []
    offset = 0
    while True:
        answer = shown(value, offset).structured_content
        page = answer["value"]
        pages.append(page.removesuffix("…") if isinstance(page, str) else page)
        cut = [one for one in answer.get("left_out", ()) if one["at"] == "value"]
        if not cut:
            break
        assert (cut[0]["from"], cut[0]["of"] > cut[0]["from"]) == (offset, True)
        offset += max(cut[0]["shown"], 1)
        assert f"offset {offset}." in answer["how_to_get_the_rest"]
    assert len(pages) > 2
    if isinstance(value, str):
        assert "".join(pages) == value
    elif isinstance(value, dict) and "$set" in value:
        assert [one for page in pages for one in page["$set"]] == value["$set"]
    elif isinstance(value, dict):
        assert {name: one for page in pages for name, one in page.items()} == value
    else:
        found = [one for page in pages for one in page]
        assert len(found) == len(value)
        assert [one for one in found if not isinstance(one, str)] == [
            one for one in value if not isinstance(one, str)
        ]


def test_the_text_leaves_out_what_only_programs_need() -> None:
    hit = {"id": "5e0c", "seq": 3, "text": "Rome", "explanation": None, "recorded_at": "x"}
    answer = {"id": "77", "value": None, "stdout": "", "timings": {"total": 1}, "hits": [hit]}
    result = results.from_answer(answer)

    assert json.loads(text_of(result)) == {
        "id": "77",
        "value": None,
        "hits": [{"seq": 3, "text": "Rome"}],
    }
    assert result.structured_content == answer


def test_fields_of_records_that_are_empty_are_shown() -> None:
    trip = {"$record": "Trip", "key": "a", "sources": [], "fields": {"via": None}}
    result = results.from_answer({"records": [trip], "value": [None, ""]})
    assert json.loads(text_of(result)) == {"records": [trip], "value": [None, ""]}


@pytest.mark.parametrize(("characters", "both"), [(5_000, True), (12_000, False), (60_000, False)])
def test_a_context_is_shown_whole_and_once_if_it_is_large(characters: int, both: bool) -> None:
    # A context has the size that its caller asks for.
    result = results.from_answer({"text": "x" * characters, "tokens": characters // 4})
    assert text_of(result) == "x" * characters
    assert (result.structured_content is not None) == both


def test_a_large_manifest_ends_with_a_line_and_how_to_go_on() -> None:
    text = "\n".join(f"collection_{n}: {n} Thing(name)" for n in range(5_000))
    short = results.shorten_text({"text": text}, "Open a domain.")["text"]
    assert len(short) <= MAX_CHARACTERS
    *lines, note = short.split("\n")
    assert lines == text.split("\n")[: len(lines)]
    assert note == f"({5_000 - len(lines)} more lines. Open a domain.)"
    assert results.shorten_text({"text": "a\nb"}, "Open.")["text"] == "a\nb"


def test_an_error_fits_and_names_what_was_ignored() -> None:
    verdict = {"checks": [{"name": "types", "findings": ["wrong " * 50] * 2000}]}
    refused = RequestRefused("too long " * 10_000, {"detail": "No.", "verdict": verdict})
    result = results.from_error(refused, ["toolCallId"])
    assert result.is_error
    assert size_of(result) <= MAX_CHARACTERS
    text = text_of(result)
    assert "No." in text
    assert "toolCallId" in text

"""The tools that a language model uses to work on a project; `workbench` implements them."""

from collections.abc import Mapping
from typing import Any

from memory.kernel.json_schema import misfit
from workers.llm.interface import Tool, ToolCall

_TEXT = {"type": "string"}
# The attributes of an `add` that say which existing record it is about, and that it is about none.
SAME_AS, NEW = "same_as", "new"


def object_schema(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    """Return the JSON schema of an object with these properties and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def text_schema(description: str) -> dict[str, Any]:
    """Return the JSON schema of a string."""
    return {"type": "string", "description": description}


def all_or_changes(items: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a list or, after a refusal, of changes to the items sent before."""
    changes = {"type": "object", "description": "Only what changes, by number."}
    return {"anyOf": [dict(items), changes]}


EDIT = {
    "type": "object",
    "description": "The operation with what it applies to, then its attributes; ? is optional:"
    ' {"define_class": "travel.Trip", "fields": {"to": "str", "on": "datetime.date | None"},'
    ' "kind"?: "object" | "enum", "members"?: {"RED": "red"}, "doc"?}'
    ' · {"add_field": "travel.Trip.cost", "type": "decimal.Decimal | None", "default"?}'
    ' · {"widen_field": "travel.Trip.on", "type": "datetime.date | PartialDate | None"}'
    ' · {"rename_field": "travel.Trip.to", "new_name": "city", "from": 12}'
    ' · {"add": "travel.Trip", "from": 12, "key"?: "rome", "fields": {"to": "Rome"}, "derived"?}'
    ' · several: {"add": "travel.Trip", "fields": ["to", "on"],'
    ' "rows": [[12, "rome", "Rome", "2026-05-02"], [13, "oslo", "Oslo", null]]}, in each row'
    " `from`, `key` and the fields' values"
    ' · {"update": "travel.trips.rome", "from": 12, "fields"?: {}, "append"?: {}, "remove"?: {},'
    ' "derived"?: {}}'
    ' · {"retire": "travel.trips.rome", "from": 12, "reason": ""}'
    ' · {"note": [12, 13]}: a note of each; {"note": "text", "from": 12, "derived"?}'
    ' · {"dismiss": [14, 15], "reason": ""}'
    ' · {"conflict": "what about", "records": ["travel.trips.rome", "travel.trips.oslo"],'
    ' "from": [12, 13]}'
    ' · {"write_constraint": "name", "source": "constraints/<name>.py", "tests_source":'
    ' "tests/test_<name>.py", "from": 12} · {"delete_constraint": "name", "from": 12}.'
    " Types are as in Python, with the module: str, int, float, bool, decimal.Decimal,"
    " datetime.date, datetime.datetime, datetime.time, PartialDate, list[...], ... | None,"
    " Ref[Class], or an enum or object class of the domain; a field with a default is"
    ' {"type": "...", "default": ...}.',
}

EDITS = all_or_changes({"type": "array", "items": EDIT})
EDITS_AS_FOR_EDIT = all_or_changes(
    {"type": "array", "items": {"type": "object", "description": "As for `edit`."}}
)

_OPEN_DOMAIN = Tool(
    "open_domain",
    "Read a domain's classes, and its collections with their newest records.",
    object_schema({"domain": _TEXT}, "domain"),
)

CONSTRAINT_RULES = Tool(
    "constraint_rules",
    "Read the rules for constraints and their tests, with an example; before you write one.",
    object_schema({}),
)

TOOLS = (
    _OPEN_DOMAIN,
    Tool(
        "look_up",
        "Find records by key, by words that they contain, or by field values; newest first.",
        object_schema(
            {
                "domain": _TEXT,
                "collection": _TEXT,
                "key": _TEXT,
                "text": text_schema("Words that a record has to contain, in any order."),
                "where": {"type": "object", "description": "Fields, each with the value to find."},
            }
        ),
    ),
    Tool(
        "read_constraint",
        "Read a constraint and its tests.",
        object_schema({"name": _TEXT}, "name"),
    ),
    CONSTRAINT_RULES,
    Tool(
        "read_entry",
        "Read a log entry in full, such as a message that a fact was derived from.",
        object_schema(
            {
                "seq": {"type": "integer", "minimum": 1},
                "start": {"type": "integer", "minimum": 0, "description": "First character."},
            },
            "seq",
        ),
    ),
    Tool(
        "edit",
        "Apply edits to the project in order. They are numbered from 0, in the order in which they"
        " are sent; each row and each note of a list counts.",
        object_schema(
            {
                "edits": EDITS,
                "finish": {
                    "type": "boolean",
                    "description": "Whether to `finish` at once if all edits are applied.",
                },
            },
            "edits",
        ),
    ),
    Tool("check", "Run all checks and tests, without committing.", object_schema({})),
    Tool("finish", "Run all checks and tests, and commit.", object_schema({})),
)


def checked_problem(call: ToolCall) -> str:
    """Return the problem that prevents carrying out a call.

    Single edits are checked when they are applied, so that a faulty one costs no other.
    """
    if call.name != "edit" or not isinstance(call.arguments.get("edits"), list | dict):
        return call.problem
    tool = next(tool for tool in TOOLS if tool.name == call.name)
    return misfit({**call.arguments, "edits": []}, tool.parameters)


ANSWER_TOOLS = (
    _OPEN_DOMAIN,
    Tool(
        "query",
        "Run Python code on the records and get its value.",
        object_schema(
            {"code": text_schema("An expression, or statements that end with one.")}, "code"
        ),
    ),
    Tool(
        "answer",
        "Give a query's value as the answer: the number of a query that was run, or new code,"
        " which is run now.",
        object_schema(
            {
                "query": {"type": "integer", "minimum": 1},
                "code": text_schema("Code as for query, instead of a number."),
                "note": text_schema("Optional: one sentence, with no numbers but computed ones."),
            }
        ),
    ),
    Tool(
        "not_known",
        "Say that the memory does not hold the answer.",
        object_schema({"reason": text_schema("What is missing, in one sentence.")}, "reason"),
    ),
)

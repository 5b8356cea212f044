"""The tools that a language model uses to work on a project; `workbench` implements them."""

from collections.abc import Mapping
from typing import Any

from memory.kernel.json_schema import misfit
from memory.project.edits import OPERATIONS
from workers.llm.interface import Tool, ToolCall

_TEXT = {"type": "string"}
# The attribute of an `add` that says which existing record it is about, if any.
SAME_AS = "same_as"


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


EDIT = object_schema(
    {
        "op": {
            "type": "string",
            "enum": list(OPERATIONS),
            "description": "define_class(domain, name, fields=[{name, type, default?}], kind?,"
            " doc?, members?) · add_field(domain, class_name, name, type, default?) ·"
            " widen_field(domain, class_name, name, type) · rename_field(domain, class_name, name,"
            " new_name) ·"
            " add(domain, class_name, fields={...}, from, key?, collection?, derived?)"
            " · update(domain, collection, key, from, fields?, append?, remove?, derived?) ·"
            " retire(domain, collection, key, from, reason) · conflict(about, records=[{domain,"
            " collection, key}], from) · note(from, text?, derived?) · dismiss(reason, from) ·"
            " write_constraint(name, source, tests_source, from) · delete_constraint(name, from)",
        },
        "from": {
            "description": "The number, or list of numbers, of the entries that the edit comes"
            " from. A note takes over their text, and so does the field `details` of a new record.",
        },
        "sources": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "As `from`, but nothing is taken over.",
        },
        "domain": text_schema("Such as health, travel, finance."),
        "name": text_schema("The name of the class, field or constraint."),
        "fields": {
            "description": "define_class: a list of {name, type, default?}. add, update: an object"
            " with a value for each field."
        },
        "append": {
            "type": "object",
            "description": "update: what to add to lists and texts, by field.",
        },
        "remove": {
            "type": "object",
            "description": "update: what to take out of lists and texts, by field.",
        },
        "kind": {"type": "string", "enum": ["record", "object", "enum"]},
        "members": {"type": "object", "description": 'The members of an enum: {"RED": "red"}.'},
        "doc": text_schema(
            "For define_class only: one line that says what an object of the class is."
        ),
        "class_name": _TEXT,
        "type": text_schema(
            "As in Python, with the module: str, int, float, bool, decimal.Decimal, datetime.date,"
            " datetime.datetime, datetime.time, PartialDate, list[...], ... | None, Ref[Class], or"
            " an enum or object class of the domain."
        ),
        "default": {},
        "new_name": _TEXT,
        "collection": _TEXT,
        "key": text_schema("The record's key. add can generate one."),
        SAME_AS: {
            "description": "add: the answer when you were asked whether the record exists: its key,"
            " or null for a new one.",
        },
        "derived": {
            "type": "object",
            "description": "Fields whose values follow from the entries without being stated there,"
            " each with the reason; for a paraphrase, a quotation of the entry.",
        },
        "reason": _TEXT,
        "about": text_schema("What the parties disagree on."),
        "records": {"type": "array", "items": {"type": "object"}},
        "text": _TEXT,
        "source": text_schema("The full text of constraints/<name>.py."),
        "tests_source": text_schema("The full text of tests/test_<name>.py."),
    },
    "op",
)

EDITS = all_or_changes({"type": "array", "items": EDIT})

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
        "Apply edits to the project in order; each is an object with `op` and the attributes of"
        " that operation. Edits are numbered from 0, in the order in which they are sent.",
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


COMPLETE_TOOLS = (
    Tool(
        "complete",
        "Rewrite the question so that it can be understood without the earlier turns.",
        object_schema(
            {"question": text_schema("One sentence, in the language of the question.")}, "question"
        ),
    ),
)

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

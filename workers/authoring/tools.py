"""The tools that a language model uses to work on a project; `workbench` implements them."""

from collections.abc import Mapping
from typing import Any

from memory.project.edits import OPERATIONS
from workers.llm.interface import Tool

_TEXT = {"type": "string"}


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


EDIT = object_schema(
    {
        "op": {
            "type": "string",
            "enum": list(OPERATIONS),
            "description": "define_class(domain, name, fields=[{name, type, default?}], kind?,"
            " doc?, members?) · add_field(domain, class_name, name, type, default?) ·"
            " widen_field(domain, class_name, name, type) · rename_field(domain, class_name, name,"
            " new_name) ·"
            " add(domain, class_name, fields={...}, sources, key?, collection?, derived?)"
            " · update(domain, collection, key, fields={...}, sources, derived?) · retire(domain,"
            " collection, key, sources, reason) · conflict(about, records=[{domain, collection,"
            " key}], sources) · note(text, sources, derived?) · dismiss(reason, sources) ·"
            " write_constraint(name, source, tests_source, sources) · delete_constraint(name,"
            " sources)",
        },
        "sources": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "The numbers of the entries that the edit comes from.",
        },
        "domain": text_schema("Such as health, travel, finance."),
        "name": text_schema("The name of the class, field or constraint."),
        "fields": {
            "description": "define_class: a list of {name, type, default?}. add, update: an object"
            " with a value for each field."
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

EDITS = {"type": "array", "items": EDIT, "minItems": 1}

_OPEN_DOMAIN = Tool(
    "open_domain",
    "Read a domain's classes, and its collections with their newest records.",
    object_schema({"domain": _TEXT}, "domain"),
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
        "Apply edits to the project in order. Each edit is an object with `op` and the fields of"
        " that operation.",
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
    Tool(
        "drop_edits",
        "Undo edits that you made, by number.",
        object_schema({"numbers": {"type": "array", "items": {"type": "integer"}}}, "numbers"),
    ),
    Tool("check", "Run all checks and tests, without committing.", object_schema({})),
    Tool("finish", "Run all checks and tests, and commit.", object_schema({})),
)

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

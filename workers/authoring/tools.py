"""The tools that a language model uses to work on a project; `workbench` implements them."""

from collections.abc import Mapping
from typing import Any

from memory.project.edits import OPERATIONS
from workers.llm.interface import Tool

_TEXT = {"type": "string"}


def _object(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


EDIT = {
    "type": "object",
    "properties": {
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
        "domain": _text("Such as health, travel, finance."),
        "name": _text("The name of the class, field or constraint."),
        "fields": {
            "description": "define_class: a list of {name, type, default?}. add, update: an object"
            " with a value for each field."
        },
        "kind": {"type": "string", "enum": ["record", "object", "enum"]},
        "members": {"type": "object", "description": 'The members of an enum: {"RED": "red"}.'},
        "doc": _text("For define_class only: one line that says what an object of the class is."),
        "class_name": _TEXT,
        "type": _text(
            "As in Python, with the module: str, int, float, bool, decimal.Decimal, datetime.date,"
            " datetime.datetime, datetime.time, PartialDate, list[...], ... | None, Ref[Class], or"
            " an enum or object class of the domain."
        ),
        "default": {},
        "new_name": _TEXT,
        "collection": _TEXT,
        "key": _text("The record's key. add can generate one."),
        "derived": {
            "type": "object",
            "description": "Fields whose values follow from the entries without being stated there,"
            " each with the reason; for a paraphrase, a quotation of the entry.",
        },
        "reason": _TEXT,
        "about": _text("What the parties disagree on."),
        "records": {"type": "array", "items": {"type": "object"}},
        "text": _TEXT,
        "source": _text("The full text of constraints/<name>.py."),
        "tests_source": _text("The full text of tests/test_<name>.py."),
    },
    "required": ["op"],
    "additionalProperties": False,
}

EDITS = {"type": "array", "items": EDIT, "minItems": 1}

_OPEN_DOMAIN = Tool(
    "open_domain",
    "Read a domain's classes, and its collections with their newest records.",
    _object({"domain": _TEXT}, "domain"),
)

TOOLS = (
    _OPEN_DOMAIN,
    Tool(
        "look_up",
        "Find records by key, by words that they contain, or by field values; newest first.",
        _object(
            {
                "domain": _TEXT,
                "collection": _TEXT,
                "key": _TEXT,
                "text": _text("Words that a record has to contain, in any order."),
                "where": {"type": "object", "description": "Fields, each with the value to find."},
            }
        ),
    ),
    Tool(
        "read_constraint",
        "Read a constraint and its tests.",
        _object({"name": _TEXT}, "name"),
    ),
    Tool(
        "read_entry",
        "Read a log entry in full, such as a message that a fact was derived from.",
        _object(
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
        _object(
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
        _object({"numbers": {"type": "array", "items": {"type": "integer"}}}, "numbers"),
    ),
    Tool("check", "Run all checks and tests, without committing.", _object({})),
    Tool("finish", "Run all checks and tests, and commit.", _object({})),
)

COMPLETE_TOOLS = (
    Tool(
        "complete",
        "Rewrite the question so that it can be understood without the earlier turns.",
        _object({"question": _text("One sentence, in the language of the question.")}, "question"),
    ),
)

ANSWER_TOOLS = (
    _OPEN_DOMAIN,
    Tool(
        "query",
        "Run Python code on the records and get its value.",
        _object({"code": _text("An expression, or statements that end with one.")}, "code"),
    ),
    Tool(
        "answer",
        "Give a query's value as the answer: the number of a query that was run, or new code,"
        " which is run now.",
        _object(
            {
                "query": {"type": "integer", "minimum": 1},
                "code": _text("Code as for query, instead of a number."),
                "note": _text("Optional: one sentence without numbers."),
            }
        ),
    ),
    Tool(
        "not_known",
        "Say that the memory does not hold the answer.",
        _object({"reason": _text("What is missing, in one sentence.")}, "reason"),
    ),
)

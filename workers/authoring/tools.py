"""The tools with which a language model works on a project; `workbench` carries them out."""

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
            "description": "The numbers of the entries that it comes from.",
        },
        "domain": _text("Such as health, travel, finance."),
        "name": _text("Of the class, field or constraint."),
        "fields": {
            "description": "define_class: a list of {name, type, default?}. add, update: an object"
            " with a value for each field."
        },
        "kind": {"type": "string", "enum": ["record", "object", "enum"]},
        "members": {"type": "object", "description": 'Of an enum: {"RED": "red"}.'},
        "doc": _text("Of define_class alone, one line: what an object of the class is."),
        "class_name": _TEXT,
        "type": _text(
            "As in Python, qualified: str, int, float, bool, decimal.Decimal, datetime.date,"
            " datetime.datetime, datetime.time, PartialDate, list[...], ... | None, Ref[Class], or"
            " an enum or object class of the domain."
        ),
        "default": {},
        "new_name": _TEXT,
        "collection": _TEXT,
        "key": _text("Of the record. add makes one by itself."),
        "derived": {
            "type": "object",
            "description": "Fields whose value follows from what is said and is not said, each with"
            " the reason; of a text in other words, a quotation of the entry.",
        },
        "reason": _TEXT,
        "about": _text("What the parties disagree on."),
        "records": {"type": "array", "items": {"type": "object"}},
        "text": _TEXT,
        "source": _text("Of constraints/<name>.py, all of it."),
        "tests_source": _text("Of tests/test_<name>.py, all of it."),
    },
    "required": ["op"],
    "additionalProperties": False,
}

_OPEN_DOMAIN = Tool(
    "open_domain",
    "Read a domain's classes, and its collections with their newest records.",
    _object({"domain": _TEXT}, "domain"),
)

TOOLS = (
    _OPEN_DOMAIN,
    Tool(
        "look_up",
        "Find records, the newest first: by key, by words that they contain, by fields' values.",
        _object(
            {
                "domain": _TEXT,
                "collection": _TEXT,
                "key": _TEXT,
                "text": _text("Words that a record has to contain, in any order."),
                "where": {"type": "object", "description": "Fields with their values."},
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
        "Read an entry of the log in full, also the messages that a fact was derived from.",
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
        "Apply edits to the project, in their order. Each is an object with `op` and its fields.",
        _object(
            {
                "edits": {"type": "array", "items": EDIT, "minItems": 1},
                "finish": {
                    "type": "boolean",
                    "description": "Whether to `finish` at once, if all of them are applied.",
                },
            },
            "edits",
        ),
    ),
    Tool(
        "drop_edits",
        "Take back edits that you made, by their numbers.",
        _object({"numbers": {"type": "array", "items": {"type": "integer"}}}, "numbers"),
    ),
    Tool("check", "Run all checks and tests, without committing.", _object({})),
    Tool("finish", "Run all checks and tests, and commit.", _object({})),
)

COMPLETE_TOOLS = (
    Tool(
        "complete",
        "Say the question so that it is understood without what was said before it.",
        _object({"question": _text("One sentence, in the language of the question.")}, "question"),
    ),
)

ANSWER_TOOLS = (
    _OPEN_DOMAIN,
    Tool(
        "query",
        "Run Python over the records; you are told its value.",
        _object({"code": _text("An expression, or statements whose last is one.")}, "code"),
    ),
    Tool(
        "answer",
        "Give the value of a query as the answer: of one that was run, by its number, or of new"
        " code, which is run now.",
        _object(
            {
                "query": {"type": "integer", "minimum": 1},
                "code": _text("As in query, in place of its number."),
                "note": _text("Without numbers, in one sentence, if at all."),
            }
        ),
    ),
    Tool(
        "not_known",
        "Say that the memory does not hold the answer.",
        _object({"reason": _text("What is missing, in one sentence.")}, "reason"),
    ),
)

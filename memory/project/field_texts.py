"""How the texts in a project's fields are written, for code that has to compare them.

A field with few different texts is described by all of them: `{"fair", "good"}`. A field with short
texts is described by an example: `{"Rome", ...}`. Other texts are prose that nobody compares.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from memory.project.literals import string_literal
from memory.project.outline import SET_ASIDE, Domain
from memory.project.values import Record, Struct, Value

# The maximum number of different texts of a field that are all listed, and their maximum length.
# Categories, genres or cuisines often have about ten; listing them saves a call to read them.
MAX_TEXTS = 12
MAX_LENGTH = 24
# A field whose longest text has more characters than this gets no example.
MAX_SHORT = 32

# Descriptions by the names of class and field.
FieldTexts: TypeAlias = Mapping[tuple[str, str], str]


def describe_texts(parts: Iterable[tuple[Iterable[Record], bool]], domain: Domain) -> FieldTexts:
    """Describe the texts in the fields of a domain's records and of the objects in them.

    Each part is some records, with whether these are all of their collection; if not, there may be
    other texts in their fields.
    """
    counts: dict[tuple[str, str], Counter[str]] = {}
    open_ended = set[tuple[str, str]]()
    for records, is_whole in parts:
        of_part: dict[tuple[str, str], Counter[str]] = {}
        for record in records:
            _count(record, domain, of_part)
        for key, texts in of_part.items():
            counts.setdefault(key, Counter()).update(texts)
        if not is_whole:
            open_ended |= of_part.keys()
    described = {key: _describe(texts, key in open_ended) for key, texts in counts.items()}
    return {key: text for key, text in described.items() if text}


def _count(
    held: Record | Struct, domain: Domain, counts: dict[tuple[str, str], Counter[str]]
) -> None:
    for field in domain.classes[held.class_name].fields:
        if field.name in held.fields:
            value = held.fields[field.name]
        else:
            value = field.default if isinstance(field.default, str) else None
        if field.name != SET_ASIDE:
            _count_value(value, (held.class_name, field.name), domain, counts)


def _count_value(
    value: Value,
    key: tuple[str, str],
    domain: Domain,
    counts: dict[tuple[str, str], Counter[str]],
) -> None:
    match value:
        case str():
            counts.setdefault(key, Counter())[value] += 1
        case Struct():
            _count(value, domain, counts)
        case list():
            for item in value:
                _count_value(item, key, domain, counts)


def _describe(texts: Counter[str], is_open_ended: bool) -> str:
    """Return all texts if they are few and recur, an example if all are short, and otherwise ""."""
    longest = max(map(len, texts))
    recur = texts.total() >= 2 * len(texts)
    if not is_open_ended and recur and len(texts) <= MAX_TEXTS and longest <= MAX_LENGTH:
        return f"{{{', '.join(map(string_literal, sorted(texts)))}}}"
    if longest > MAX_SHORT or not any(texts):
        return ""
    return f"{{{string_literal(next(filter(None, texts)))}, ...}}"

"""The manifest: a summary of a project's contents, small enough for every prompt."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from memory.project.field_texts import FieldTexts
from memory.project.literals import string_literal
from memory.project.outline import (
    SET_ASIDE,
    Class,
    Collection,
    Domain,
    Enumeration,
    Outline,
    Singleton,
)
from memory.project.types import format_type, is_optional, without_none

# For projects with more classes than this, the manifest has only names and counts.
MAX_CLASSES = 80
_MAX_DOC = 100
_MAX_ORIGINAL = 60
_NO_TEXTS: FieldTexts = MappingProxyType({})


def render_manifest(outline: Outline) -> str:
    """Return manifest.py: valid Python with one line per collection, singleton and class."""
    brief = _is_brief(outline)
    lines = [f'"""Generated. {_legend(brief)}"""', "DOMAINS = {"]
    for domain, entries in _domains(outline, brief):
        if brief:
            lines.append(f"{string_literal(domain)}: {string_literal(', '.join(entries))},")
            continue
        lines.append(f"{string_literal(domain)}: [")
        lines += [f" {string_literal(entry)}," for entry in entries]
        lines.append("],")
    lines.append("}")
    if outline.constraints:
        lines.append("CONSTRAINTS = {")
        lines += [
            f" {string_literal(name)}: {string_literal(_short(doc))},"
            for name, doc in outline.constraints.items()
        ]
        lines.append("}")
    return "\n".join(lines) + "\n"


def manifest_text(
    outline: Outline,
    open_alerts: Sequence[tuple[str, str]] = (),
    *,
    failing: Mapping[str, str] = MappingProxyType({}),
    texts: Mapping[str, FieldTexts] = MappingProxyType({}),
    brief: bool = False,
    counts: bool = True,
) -> str:
    """Return the manifest as plain text.

    `open_alerts` has each open alert's severity and message. `failing` maps failing constraints'
    names to their errors, and `texts` maps domains to how the texts in their fields are written. If
    `brief` is set, the text has only names and counts, as it always does for large projects.
    Without `counts`, it stays the same until the schema or the constraints change.
    """
    brief = brief or _is_brief(outline)
    written = "; {} its texts, and others if it ends with ..." if texts and not brief else ""
    lines = [f"Domains ({_legend(brief)}{written}):"]
    for domain, entries in _domains(outline, brief, texts, counts=counts):
        if brief:
            lines.append(f"{domain}: {', '.join(entries)}")
        else:
            lines += [f"{domain}:", *(f"  {entry}" for entry in entries)]
    if outline.constraints:
        lines.append("Constraints:")
        for name, doc in outline.constraints.items():
            mark = f"FAILS: {_short(failing[name])} Its rule: " if name in failing else ""
            lines.append(f"  {name}: {mark}{_short(doc)}")
    if open_alerts:
        lines.append("Open alerts:")
        lines += [f"  {severity}: {message}" for severity, message in open_alerts]
    return "\n".join(lines) + "\n"


def _domains(
    outline: Outline,
    brief: bool,
    texts: Mapping[str, FieldTexts] = MappingProxyType({}),
    *,
    counts: bool = True,
) -> Iterator[tuple[str, list[str]]]:
    for domain in outline.domains.values():
        written = texts.get(domain.name, _NO_TEXTS)
        entries = _names(domain, counts) if brief else _entries(domain, written, counts)
        yield domain.name, list(entries)


def _is_brief(outline: Outline) -> bool:
    domains = outline.domains.values()
    return sum(len(domain.classes) + len(domain.enums) for domain in domains) > MAX_CLASSES


def _legend(brief: bool) -> str:
    return "fields: see schema.py" if brief else "str unless name:type; ? may be None"


def _names(domain: Domain, counts: bool) -> Iterator[str]:
    """Yield the names in a domain, with each collection's number of records: `trips 50`."""
    for collection in domain.collections.values():
        yield f"{collection.name} {collection.count}" if counts else collection.name
    yield from domain.singletons


def _entries(domain: Domain, texts: FieldTexts, counts: bool) -> Iterator[str]:
    """Yield descriptions of a domain's contents: `trips: 50 Trip(to, starts_on:date)`."""
    described: set[str] = set()

    def describe(class_name: str) -> str:
        if class_name in described:
            return class_name
        described.add(class_name)
        return _class(domain.classes[class_name], texts)

    for collection in domain.collections.values():
        count = f"{collection.count} " if counts else ""
        described_class = describe(collection.class_name)
        yield f"{collection.name}: {count}{described_class}{_set_aside(collection)}"
    for singleton in domain.singletons.values():
        yield f"{singleton.name} = {describe(singleton.class_name)}" + _set_aside(singleton)
    for class_ in domain.classes.values():
        if class_.name not in described:
            yield _class(class_, texts)
    yield from map(_enum, domain.enums.values())


def _set_aside(holder: Collection | Singleton) -> str:
    return f", {holder.set_aside} set aside" if holder.set_aside else ""


def _class(class_: Class, texts: FieldTexts) -> str:
    fields = []
    for field in class_.fields:
        if field.name == SET_ASIDE:
            continue
        type_ = format_type(without_none(field.type)).replace("datetime.", "")
        type_ = type_.replace("decimal.", "")
        mark = "?" if is_optional(field.type) else ""
        original = "" if field.original is None else f"='{_quoted(field.original)}'"
        typed = "" if type_ == "str" else f":{type_}"
        written = texts.get((class_.name, field.name), "")
        fields.append(f"{field.name}{original}{typed}{mark}{written}")
    return f"{class_.name}({', '.join(fields)})"


def _quoted(original: str) -> str:
    shown = original if len(original) <= _MAX_ORIGINAL else f"{original[: _MAX_ORIGINAL - 3]}..."
    return string_literal(shown)[1:-1]


def _enum(enumeration: Enumeration) -> str:
    return f"{enumeration.name} = {' | '.join(name for name, _ in enumeration.members)}"


def _short(doc: str) -> str:
    return doc if len(doc) <= _MAX_DOC else f"{doc[: _MAX_DOC - 3]}..."

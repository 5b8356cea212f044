"""Constraint skeletons, generated from a query in the console.

A skeleton contains the query, as a comment, and the records that the query reads; a person still
has to write the condition.
"""

import re
import textwrap
import uuid

from django.contrib import admin
from django.http import HttpRequest

from memory.kernel.admin.display import visible
from memory.project import Domain, Outline
from memory.project.outline import REQUIRED
from memory.project.types import ListOf, Named, format_type, members_of
from memory.versions.admin.staff_runs import may_ask
from memory.versions.models.runs import Run, RunKind

# A new constraint's name until someone renames it; its tests import it by this name.
_NEW = "my_rule"
# Values for the required fields of an example record, by type.
_VALUES = {
    "str": '"…"',
    "int": "1",
    "float": "1.0",
    "bool": "True",
    "datetime.date": "TODAY",
    "datetime.datetime": "datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)",
    "datetime.time": "datetime.time(12)",
    "decimal.Decimal": "decimal.Decimal(1)",
}
_NAME = re.compile(r"[^\W\d]\w*")


def query_of(request: HttpRequest, parameter: str) -> Run | None:
    """Return the query identified by a URL parameter, if the staff member may see it."""
    try:
        key = uuid.UUID(request.GET.get(parameter, ""))
    except ValueError:
        return None
    # The run's own screen decides who may see it.
    run: Run | None = admin.site.get_model_admin(Run).get_object(request, str(key))
    return run if run is not None and run.kind == RunKind.QUERY and may_ask(request) else None


def initial_of(request: HttpRequest) -> dict[str, str]:
    """Return the initial form values for a constraint started from a query in the console."""
    run = query_of(request, "from_query")
    return {"source": visible(of_workspace(run)), "description": ""} if run is not None else {}


def of_workspace(run: Run) -> str:
    """Return a workspace constraint skeleton for a query.

    It contains the shapes of the records that the query reads, and the query itself as a comment.
    """
    code = str(run.input.get("code", ""))
    names = set(_NAME.findall(code))
    outline = _outline_of(run)
    shapes, parameters = [], []
    for domain, name, class_name in _named_by(outline, code):
        class_ = outline.domains[domain].classes[class_name]
        fields = [
            f"    {field.name}: {format_type(field.type)}"
            for field in class_.fields
            if field.name in names and _is_plain(format_type(field.type))
        ]
        shape = "\n".join(
            [
                "@dataclass(kw_only=True)",
                f"class {class_.name}(Record):",
                *(fields or ["    pass  # declare the fields that you need"]),
            ]
        )
        if shape not in shapes:
            shapes.append(shape)
            parameters.append(f"{name}: Sequence[{class_.name}]")
    query = "\n".join(f"    # {line}".rstrip() for line in code.splitlines())
    arguments = ", ".join(["today: datetime.date", *parameters])
    blocks = "\n\n\n".join(shapes)
    first = parameters[0].partition(":")[0] if parameters else "[]"
    imports = "import datetime\n"
    if "decimal." in blocks:
        imports += "import decimal\n"
    return (
        '"""Describe in one line what must not happen."""\n\n'
        f"{imports}from collections.abc import Iterator, Sequence\n"
        "from dataclasses import dataclass\n\n"
        "from uac import Alert, Record, warning\n\n\n"
        f"{blocks}{chr(10) * 3 if blocks else ''}"
        f"def check({arguments}) -> Iterator[Alert]:\n"
        '    """Describe in one line what must not happen."""\n'
        "    # Created from this query:\n"
        f"{query}\n"
        f"    for one in {first}:\n"
        "        if False:  # the condition that must not occur\n"
        '            yield warning(f"{one.key} …", evidence=[one])\n'
    )


def _is_plain(type_: str) -> bool:
    """Return whether a shape can have a field of this type without defining another class."""
    words = set(_NAME.findall(type_))
    return words <= {
        *("str", "int", "float", "bool", "None", "datetime", "date", "time", "decimal", "Decimal"),
        "list",
    }


def of_user(run: Run | None) -> dict[str, str]:
    """Return a skeleton for one user's constraint: its name, source and tests.

    The source and the tests name the query's collections; the source contains the query as a
    comment.
    """
    code = str(run.input.get("code", "")) if run is not None else ""
    outline = _outline_of(run) if run is not None else Outline()
    holders = _named_by(outline, code)
    state = [f"from domains.{domain}.state import {name}\n" for domain, name, _ in holders]
    first = holders[0][1] if holders else "[]"
    example, needs = _example(outline, holders[0]) if holders else ("", [])
    decimals = "import decimal\n" if "decimal." in example else ""
    query = f"# Created from this query:\n{textwrap.indent(code, '# ')}\n" if code else ""
    source = (
        '"""Describe in one line what must not happen."""\n\n'
        "import datetime\nfrom collections.abc import Iterator\n\n"
        f"{''.join(state)}from uac import Alert, warning\n\n\n"
        "def check(today: datetime.date) -> Iterator[Alert]:\n"
        '    """Describe in one line what must not happen."""\n'
        f"{textwrap.indent(query, '    ')}"
        f"    for one in {first}:\n"
        "        if False:  # the condition that must not occur\n"
        '            yield warning(f"{one.key} …", evidence=[one])\n'
    )
    given = f", {holders[0][1]}=[EXAMPLE]" if holders else ""
    none = f", {holders[0][1]}=[]" if holders else ""
    tests = (
        f"import datetime\n{decimals}\n"
        f"from constraints import {_NEW}\n"
        f"{''.join(needs)}from uac.testing import run_check\n\n"
        "TODAY = datetime.date(2026, 1, 1)\n"
        f"{example}\n\n"
        "def test_fires() -> None:\n"
        f"    assert len(run_check({_NEW}, today=TODAY{given})) == 1\n\n\n"
        "def test_does_not_fire() -> None:\n"
        f"    assert run_check({_NEW}, today=TODAY{none}) == []\n"
    )
    return {"name": _NEW, "source": source, "tests": tests}


def _example(outline: Outline, holder: tuple[str, str, str]) -> tuple[str, list[str]]:
    """Return code that creates an example record with all required fields, and imports for it."""
    domain_name, _, class_name = holder
    domain = outline.domains[domain_name]
    needs, fields = [class_name], []
    for field in domain.classes[class_name].fields:
        if field.default is not REQUIRED:
            continue
        [kind, *_] = members_of(field.type)
        value = _VALUES.get(format_type(kind), "...")
        if isinstance(kind, ListOf):
            value = "[]"
        elif isinstance(kind, Named) and (members := _members(domain, kind.name)):
            needs.append(kind.name)
            value = f"{kind.name}.{members[0]}"
        fields.append(f", {field.name}={value}")
    return (
        f'EXAMPLE = {class_name}(key="a"{"".join(fields)})\n',
        [f"from domains.{domain_name}.schema import {', '.join(sorted(set(needs)))}\n"],
    )


def _members(domain: Domain, enumeration: str) -> list[str]:
    enum = domain.enums.get(enumeration)
    return [name for name, *_ in enum.members] if enum else []


def _named_by(outline: Outline, code: str) -> list[tuple[str, str, str]]:
    """Return (domain, name, class) for each collection or singleton that a query names."""
    names = list(dict.fromkeys(_NAME.findall(code)))
    named = []
    for domain in outline.domains.values():
        holders = [(one.name, one.class_name) for one in domain.collections.values()]
        holders += [(one.name, one.class_name) for one in domain.singletons.values()]
        named += [(domain.name, name, class_) for name, class_ in holders if name in names]
    return sorted(named, key=lambda holder: names.index(holder[1]))


def _outline_of(run: Run) -> Outline:
    return Outline() if run.checkpoint is None else Outline.from_json(run.checkpoint.outline)

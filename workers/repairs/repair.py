"""Mechanical repairs to Python code written by somebody else, usually a model.

A repair is applied only if the code can't run at all as it is, and can mean only one thing; a
repair corrects the form, never a value. So a repair never guesses the meaning of code that is cut
off, misspelled or contradictory: the author has to fix such code. Every repair has a name, which is
recorded wherever the repaired code is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from memory.kernel.texts import parse_valid
from memory.project import WriteConstraint
from memory.project.paths import constraint_files
from workers.repairs.invalid_syntax import TEXT_RULES, Rules, syntax_error
from workers.repairs.missing_imports import KNOWN_NAMES, add_missing_imports, library_of
from workers.repairs.run_time_errors import PROGRAM_RULES

# Repairs are tried in rounds, since one repair may make another possible: a code fence may hide
# wrong indentation.
MAX_ROUNDS = 8


@dataclass(frozen=True)
class Repaired:
    """The repaired source, the names of its repairs in order, and any remaining syntax error."""

    source: str
    repairs: tuple[str, ...] = ()
    error: str = ""
    line: int | None = None


def repair(source: str, library: Mapping[str, str] = MappingProxyType({})) -> Repaired:
    """Return the source with every mechanical repair that it needs; never raise.

    A source that needs no repair is returned unchanged. `error` describes a problem that no repair
    could correct. `library` maps the names in our library that may be imported to their modules; it
    is empty for a foreign project, where a name such as `Alert` may mean something else.
    """
    names: list[str] = []
    missing_imports = partial(add_missing_imports, modules={**KNOWN_NAMES, **library})
    of_program: Rules = {**PROGRAM_RULES, "missing_imports": missing_imports}
    for rules in (TEXT_RULES, of_program):
        for _ in range(MAX_ROUNDS):
            before = source
            for name, rule in rules.items():
                if rules is TEXT_RULES and parse_valid(source) is not None:
                    break
                changed = rule(source)
                if changed != source:
                    source = changed
                    names += [name] if name not in names else []
            if source == before:
                break
    error = syntax_error(source)
    return Repaired(source, tuple(names), *(error or ("", None)))


def put_right(path: str, source: str) -> Repaired:
    """Repair a project's file; return it unchanged if no repair makes it valid."""
    repaired = repair(source, library_of(path))
    return Repaired(source) if repaired.error else repaired


def repair_constraint(edit: WriteConstraint) -> tuple[WriteConstraint, list[tuple[str, str]]]:
    """Return the edit with its source and tests repaired, and a (path, name) pair for each repair.

    A source that no repair makes valid is returned unchanged.
    """
    path, tests_path = constraint_files(edit.name)
    source = put_right(path, edit.source)
    tests = put_right(tests_path, edit.tests_source)
    repairs = [(path, name) for name in source.repairs]
    repairs += [(tests_path, name) for name in tests.repairs]
    return replace(edit, source=source.source, tests_source=tests.source), repairs

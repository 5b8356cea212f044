"""The names of the standard library that users' code may import, frozen in a reviewed file.

A new version of Python adds names. What users' code may do should not grow because the server's
Python was upgraded, so the names are listed in `sandbox_image/library_names.py`, which the policy,
the sandbox and the type checker read. `python -m workers.policy.library` writes the list anew.
"""

import importlib
import textwrap
from pathlib import Path
from types import MappingProxyType

import sandbox_image
from sandbox_image.library_names import NAMES

FILE = Path(sandbox_image.__file__).parent / "library_names.py"
HEADER = '''"""The names of the standard library that users' code may import.

`python -m workers.policy.library` writes this file; every change of it has to be reviewed.
"""

NAMES = {
'''


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Public names that may not be imported, although their modules may: names that evaluate strings
# (dispatch evaluates annotations), build code or classes, copy attributes or globals by name, read
# files, or silence the type checker.
_LEFT_OUT = {
    "calendar": _names("HTMLCalendar LocaleHTMLCalendar LocaleTextCalendar setfirstweekday"),
    "dataclasses": _names("make_dataclass"),
    "enum": _names("EnumMeta EnumType global_enum global_enum_repr global_flag_repr global_str"),
    "functools": _names(
        "WRAPPER_ASSIGNMENTS WRAPPER_UPDATES singledispatch singledispatchmethod update_wrapper"
        " wraps"
    ),
    "typing": _names(
        "ForwardRef get_args get_origin get_type_hints no_type_check no_type_check_decorator"
    ),
    "zoneinfo": _names("TZPATH available_timezones reset_tzpath"),
}
BUILTIN_TYPES = _names("bool bytes dict float frozenset int list object set str tuple type")

LIBRARY = MappingProxyType(
    {name: _names(text) for name, text in NAMES.items()}
    | {
        "uac": _names(
            "Alert PartialDate Record Ref Severity add_months birthday critical full_months"
            " has_lapsed hours_between info original_data trust_of user_zone warning"
        ),
        "uac.testing": _names("run_check"),
        # Aliases for annotations in classes where a field shadows a type's name.
        "builtins": BUILTIN_TYPES,
    }
)


def names_of_this_python() -> dict[str, frozenset[str]]:
    """Return the public names that this version of Python has in the frozen list's modules."""
    return {name: _public(name) for name in NAMES}


def _public(name: str) -> frozenset[str]:
    module = importlib.import_module(name)
    names = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
    return frozenset(names) - _LEFT_OUT.get(name, frozenset())


def write() -> None:
    """Freeze the names of this version of Python."""
    lines = []
    for name, names in names_of_this_python().items():
        text = textwrap.indent(textwrap.fill(" ".join(sorted(names)), 92), " " * 8)
        lines.append(f'    "{name}": """\n{text}\n    """,\n')
    FILE.write_text(f"{HEADER}{''.join(lines)}}}\n")


if __name__ == "__main__":
    write()

"""The names that the static policy allows and forbids; `rules.py` holds the rules."""

import importlib
from types import (
    AsyncGeneratorType,
    CodeType,
    CoroutineType,
    FrameType,
    GeneratorType,
    MappingProxyType,
    TracebackType,
)


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
_BUILTIN_TYPES = _names("bool bytes dict float frozenset int list object set str tuple type")


def _public(name: str) -> frozenset[str]:
    module = importlib.import_module(name)
    names = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
    return frozenset(names) - _LEFT_OUT.get(name, frozenset())


LIBRARY = MappingProxyType(
    {
        name: _public(name)
        for name in (
            "calendar",
            "collections",
            "collections.abc",
            "dataclasses",
            "datetime",
            "decimal",
            "enum",
            "functools",
            "itertools",
            "math",
            "re",
            "statistics",
            "typing",
            "zoneinfo",
        )
    }
    | {
        "uac": _names(
            "Alert PartialDate Record Ref Severity add_months birthday critical full_months"
            " hours_between info original_data user_zone warning"
        ),
        "uac.testing": _names("run_check"),
        # Aliases for annotations in classes where a field shadows a type's name.
        "builtins": _BUILTIN_TYPES,
    }
)

QUERY_NAMES = {
    **{name: name for name in ("datetime", "itertools", "math", "re", "statistics")},
    "date": "datetime.date",
}

FORBIDDEN_NAMES = _names(
    "eval exec compile open input globals locals vars dir getattr setattr delattr breakpoint"
    " memoryview help exit quit"
)
# Forbidden only as calls, since variables often have these names: what these functions return
# varies from process to process.
FORBIDDEN_CALLS = _names("id hash")
# These functions build classes when called with more than one value; names in their string
# arguments would not be checked.
CLASS_BUILDERS = _names(
    "type builtins.type enum.Enum enum.Flag enum.IntEnum enum.IntFlag enum.StrEnum"
    " typing.NamedTuple typing.TypedDict"
)
# Names that type checkers assume to be true, no matter where they are imported from.
TYPE_CHECKER_NAMES = _names("TYPE_CHECKING MYPY")
CLOCK = _names(
    "now today utcnow fromtimestamp utcfromtimestamp localtime gmtime time_ns monotonic"
    " perf_counter"
)
# Modules that are exposed as attributes of an allowed module.
INNER_MODULES = _names("sys builtins importlib subprocess")
# Attributes that lead from a generator, an exception or a function to frames, and from there to all
# modules.
EXECUTION = frozenset(
    name
    for kind in (
        AsyncGeneratorType,
        CodeType,
        CoroutineType,
        FrameType,
        GeneratorType,
        TracebackType,
    )
    for name in dir(kind)
    if name.startswith(("ag_", "co_", "cr_", "f_", "gi_", "tb_"))
)
NAMED_TUPLE_METHODS = _names("_asdict _fields _replace")
DECORATORS = _names(
    "dataclass unique property cached_property staticmethod classmethod cache lru_cache"
)
# Callables that may be called while a module is imported, besides the classes in schemas.
CONSTRUCTORS = _names(
    "datetime.date datetime.datetime datetime.time datetime.timedelta datetime.timezone"
    " decimal.Decimal zoneinfo.ZoneInfo uac.PartialDate uac.Ref re.compile enum.auto"
    " dataclasses.field frozenset set tuple list dict"
)

"""The names that the static policy allows and forbids; `rules.py` holds the rules."""

from types import (
    AsyncGeneratorType,
    CodeType,
    CoroutineType,
    FrameType,
    GeneratorType,
    TracebackType,
)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


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

"""Report errors in user code by the file, line and frames of the user's own code."""

import dataclasses
import difflib
import enum
import re
import traceback
from collections.abc import Container
from types import FrameType, SimpleNamespace
from typing import Any

from .endings import NoValueError
from .uac import protocol
from .values import NotAValueError

QUERY = "<query>"

MAX_MESSAGE = 2_000
MAX_NAMES = 40  # how many known names to list in the message about an unknown name
MAX_TRACEBACK = 4_000

_NO_ORDER = re.compile(
    r"'\S{1,2}' not supported between instances of '([\w.]{1,100})' and '([\w.]{1,100})'"
)
# The datetimes of a record are aware.
_DATETIME = "datetime.datetime(2027, 1, 1, 12, 0, tzinfo=user_zone())"
_NAIVE = re.compile(r"can't (?:compare|subtract) offset-naive and offset-aware datetimes")
# What to write instead of a string that is compared with a value of another type. The keys are the
# type names that appear in Python's message.
_WRITTEN_AS = {
    "datetime.date": "a date, such as date(2027, 1, 1)",
    "datetime.datetime": f"a datetime, such as {_DATETIME}",
    "datetime.timedelta": "a duration, such as timedelta(days=30)",
    "int": "a number, such as 5 or int('5')",
    "float": "a number, such as 9.5 or float('9.5')",
    "decimal.Decimal": "a number, such as 5 or Decimal('9.50')",
    "PartialDate": "a date, such as PartialDate('2027') or date(2027, 1, 1)",
}


def describe(error: BaseException, user_files: Container[str]) -> dict[str, Any]:
    """Return an exception as the protocol's error object; user code can't make this fail.

    `user_files` are the names of the files that contain the user's code. In the result, `path` and
    `line` give the innermost frame in these files, or the position of a SyntaxError.
    """
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in user_files
    ]
    path, line = (frames[-1].filename, frames[-1].lineno) if frames else (None, None)
    if isinstance(error, SyntaxError) and error.filename in user_files:
        path, line = error.filename, error.lineno
    if (
        isinstance(error, (NotAValueError, NoValueError))
        and path is None
        and error.line is not None
    ):
        path, line = QUERY, error.line
    if type(line) is not int or not 0 <= line <= protocol.MAX_INTEGER:
        line = None  # a SyntaxError raised by user code may contain anything
    message = _message(error)
    if not message and isinstance(error, AssertionError) and frames:
        message = protocol.storable(frames[-1].line or "")  # the asserted expression
    message += _known_names(error) + _comparison_fix(error, message)
    listed = "".join(traceback.StackSummary.from_list(frames).format())
    kind = type(error).__name__
    return {
        "type": protocol.storable(kind[:200]),
        "message": message,
        "path": path,
        "line": line,
        "traceback": _tail(f"{listed}{kind}: {message}"),
    }


def _message(error: BaseException) -> str:
    try:
        # str() of a SyntaxError would repeat the file and the line.
        text = str(error.msg if isinstance(error, SyntaxError) else error)
    except BaseException:  # the exception class may be the user's, with any __str__
        text = f"a {type(error).__name__} that cannot be printed"
    return protocol.storable(text[:MAX_MESSAGE])


def _known_names(error: BaseException) -> str:
    """Return advice about an unknown name: the most similar known names, then all others.

    Most unknown names are guesses by somebody who had no list of the known names.
    """
    try:
        wanted: Any = getattr(error, "name", None)
        if type(wanted) is not str:
            return ""
        nearest: list[str] = []
        if isinstance(error, AttributeError):
            where, names = _attributes(error.obj)
        elif isinstance(error, NameError) and (last := _innermost(error)) is not None:
            names_in_scope = {**last.f_globals, **last.f_locals}
            where, names = "known names", set(names_in_scope)
            nearest = [
                f"{name}.{wanted}"
                for name in names_in_scope
                if _is_in(wanted, names_in_scope[name])
            ]
        else:
            return ""
        shown = sorted(one for one in names if one.isidentifier() and not one.startswith("_"))
        nearest = nearest or difflib.get_close_matches(wanted[:200], shown)
        meant = f": did you mean {' or '.join(map(repr, nearest))}?" if nearest else ":"
        more = ", …" if len(shown) > MAX_NAMES else ""
        message = f"{meant} {where} are {', '.join(shown[:MAX_NAMES])}{more}"
        return protocol.storable(message[:MAX_MESSAGE]) if shown else ""
    except BaseException:  # the classes may be the user's, with any methods
        return ""


def _comparison_fix(error: BaseException, message: str) -> str:
    """Return what to write instead if two values, such as a string and a date, can't be compared.

    Python's message only names the types, and dates and numbers may look like strings in the
    state's JSON.
    """
    if type(error) is not TypeError:
        return ""
    if message == "can't compare datetime.datetime to datetime.date":
        return ": compare the datetime's .date(), or compare with a datetime"
    if _NAIVE.fullmatch(message):
        return f": give the datetime without an offset the user's time zone, as in {_DATETIME}"
    if not (match := _NO_ORDER.fullmatch(message)):
        return ""
    left, right = match.groups()
    if "NoneType" in (left, right):
        return ": one of the values is None: test for that first, as in x is not None and x > …"
    if "str" not in (left, right):
        return ""
    literal = _WRITTEN_AS.get(right if left == "str" else left)
    return f": write the text as {literal}" if literal else ""


def _attributes(owner: object) -> tuple[str, set[str]]:
    """Return a description of the object that lacks an attribute, and the attributes it has.

    Only attributes that the user's project defines are included.
    """
    kind = owner if isinstance(owner, type) else type(owner)
    if issubclass(kind, enum.Enum) and isinstance(owner, type):
        return f"members of {kind.__name__}", set(kind.__members__)
    if dataclasses.is_dataclass(kind):
        own = {name for name, value in vars(kind).items() if callable(value)}
        fields = {field.name for field in dataclasses.fields(kind)}
        return f"fields of {kind.__name__}", fields | own
    if _is_domain(owner):
        return "names in this domain", set(vars(owner))
    return "", set()


def _is_domain(owner: object) -> bool:
    """Return whether an object is a domain, in the form in which queries see it.

    A domain that shares its name with one of its collections is a list.
    """
    return isinstance(owner, (SimpleNamespace, list)) and hasattr(owner, "__dict__")


def _is_in(name: str, owner: object) -> bool:
    return _is_domain(owner) and name in vars(owner)


def _innermost(error: BaseException) -> FrameType | None:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return frames[-1] if frames else None


def _tail(text: str) -> str:
    text = protocol.storable(text)
    while len(text.encode()) > MAX_TRACEBACK:
        text = text[len(text) // 10 :]
    return text

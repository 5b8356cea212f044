"""Errors of user code, told in the user's own terms: their file, their line, their frames."""

import traceback
from collections.abc import Container
from typing import Any

from .uac import protocol
from .values import NotAValueError

QUERY = "<query>"

MAX_MESSAGE = 2_000
MAX_TRACEBACK = 4_000


def describe(error: BaseException, user_files: Container[str]) -> dict[str, Any]:
    """An exception as the protocol's error object; it never raises what the user's code raises.

    `user_files` are the file names of the user's code. `path` and `line` are those of the
    innermost frame in them, or where a SyntaxError was found.
    """
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in user_files
    ]
    path, line = (frames[-1].filename, frames[-1].lineno) if frames else (None, None)
    if isinstance(error, SyntaxError) and error.filename in user_files:
        path, line = error.filename, error.lineno
    if isinstance(error, NotAValueError) and path is None and error.line is not None:
        path, line = QUERY, error.line
    if type(line) is not int or not 0 <= line <= protocol.MAX_INTEGER:
        line = None  # the user may raise a SyntaxError with anything in it
    message = _message(error)
    if not message and isinstance(error, AssertionError) and frames:
        message = protocol.storable(frames[-1].line or "")  # what was asserted
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
        # Of a SyntaxError, str() would repeat the file and the line.
        text = str(error.msg if isinstance(error, SyntaxError) else error)
    except BaseException:  # the class is the user's, and so is its __str__
        text = f"a {type(error).__name__} that cannot be printed"
    return protocol.storable(text[:MAX_MESSAGE])


def _tail(text: str) -> str:
    text = protocol.storable(text)
    while len(text.encode()) > MAX_TRACEBACK:
        text = text[len(text) // 10 :]
    return text

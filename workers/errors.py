"""Errors of a user's code, as runs and verdicts store them."""

from typing import Any

from workers.sandbox.interface import SandboxError, UserError


def user_error_json(error: UserError) -> dict[str, Any]:
    """Return the error with its type, message, path, line and traceback of user frames."""
    return {
        "type": error.type,
        "message": error.message,
        "path": error.path,
        "line": error.line,
        "traceback": error.traceback,
    }


def error_json(error: SandboxError) -> dict[str, Any]:
    """Return why a request to a sandbox failed; a limit's outcome stands for the type."""
    if error.error is not None:
        return user_error_json(error.error)
    return {
        "type": error.outcome,
        "message": error.message,
        "path": None,
        "line": None,
        "infrastructure": error.infrastructure,
    }

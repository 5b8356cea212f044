"""Errors in users' code, in the form stored with runs and verdicts."""

from typing import Any

from sandbox_image.uac import protocol
from workers.sandbox.interface import SandboxError
from workers.sandbox.results import UserError

# Maps the outcome of code that exceeds a workspace limit to the beginning of the error's message.
# If a `result_limit` message begins differently, the result is too large for the protocol, whose
# limit no setting can raise.
LIMITS = {
    "timeout": "",
    "out_of_memory": "",
    "output_limit": "",
    "result_limit": "the result is ",
    "alert_limit": "",
}
REMEDY = "a workspace limit, which the server's staff can raise"


def outcome_of(error: UserError) -> str:
    """Return the outcome of an error: one of protocol.OUTCOMES."""
    ours = not error.traceback and error.type in protocol.OUTCOMES
    return error.type if ours else "user_error"


def user_error_json(error: UserError) -> dict[str, Any]:
    """Return the error's type, message, path, line, and a traceback of the user's own frames."""
    return {
        "type": error.type,
        "message": _with_remedy(outcome_of(error), error.message),
        "path": error.path,
        "line": error.line,
        "traceback": error.traceback,
    }


def error_json(error: SandboxError) -> dict[str, Any]:
    """Return why a sandbox request failed; `type` is the outcome unless the user's code failed."""
    if error.error is not None:
        return user_error_json(error.error)
    return {
        "type": error.outcome,
        "message": error.message
        if error.infrastructure
        else _with_remedy(error.outcome, error.message),
        "path": None,
        "line": None,
        "infrastructure": error.infrastructure,
    }


def _with_remedy(outcome: str, message: str) -> str:
    beginning = LIMITS.get(outcome)
    if beginning is None or not message.startswith(beginning):
        return message
    return f"{message} ({REMEDY})"

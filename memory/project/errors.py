"""Errors of projects and their edits, and of runs of a project's code."""

from dataclasses import dataclass
from typing import Any

# Maps the type of an error of code that exceeds a workspace limit to the beginning of its message.
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
# How code ends other than by returning or raising: see `sandbox_image.uac.protocol.OUTCOMES`.
STOPPED = frozenset({*LIMITS, "input_limit", "killed", "protocol_error"})


@dataclass(frozen=True, kw_only=True)
class RunError:
    """Why a run, or code in it, failed: the form stored with runs, constraints and findings.

    `type` is the class of the exception in the user's code, described in terms of that code, or
    what happened otherwise ("timeout", "rejected" …). `infrastructure` is set if the server failed,
    not the code, and `provider_said` quotes a language model's provider.
    """

    type: str
    message: str
    path: str | None = None  # path of the file, such as "constraints/x.py"; "<query>" for a query
    line: int | None = None
    traceback: str = ""  # only the frames of the user's code, at most 4 KB
    infrastructure: bool = False
    provider_said: str = ""

    @property
    def outcome(self) -> str:
        """The outcome of a run with this error of the user's code: a `RunOutcome`."""
        return self.type if self.type in STOPPED and not self.traceback else "user_error"

    @property
    def explanation(self) -> str:
        """The message and, if the code exceeded a workspace's limit, who can raise it."""
        beginning = LIMITS.get(self.outcome)
        if self.infrastructure or beginning is None or not self.message.startswith(beginning):
            return self.message
        return f"{self.message} ({REMEDY})"

    def to_json(self) -> dict[str, Any]:
        """Return the error as JSON; the last three fields are left out if they have no value."""
        more = {
            "traceback": self.traceback,
            "infrastructure": self.infrastructure,
            "provider_said": self.provider_said,
        }
        return {
            "type": self.type,
            "message": self.explanation,
            "path": self.path,
            "line": self.line,
            **{name: value for name, value in more.items() if value},
        }


class EditError(Exception):
    """The project rejected an edit or a record; the message names the field and the fix.

    `code` is stable and meant for programs; `message` is meant for people and models.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ProjectError(Exception):
    """A stored project can't be read; the message names the file, the line and the reason."""

    def __init__(self, path: str, message: str, line: int | None = None) -> None:
        super().__init__(f"{path}:{line}: {message}" if line else f"{path}: {message}")
        self.path = path
        self.line = line
        self.message = message

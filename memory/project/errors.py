"""Errors raised by projects and their edits."""


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

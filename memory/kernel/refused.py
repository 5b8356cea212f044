"""Refusals of requests that are well formed, but cannot be met as things are."""


class Refused(Exception):
    """The message says why, and what to do instead.

    The API answers with `status` and, if the status alone does not say it, this kind of `problem`
    (see `memory.kernel.http.problems`).
    """

    status = 409
    problem = ""


class Erased(Refused):
    """The user was erased in the meantime."""

    status = 404

    def __init__(self) -> None:
        super().__init__("This user no longer exists in this workspace.")

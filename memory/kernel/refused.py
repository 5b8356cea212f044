"""Refusals of requests that are well formed, but cannot be met as things are."""

from collections.abc import Mapping
from typing import Any


class Refused(Exception):
    """The message says why, and what to do instead.

    The API answers with `status` and, if the status alone does not say it, this kind of `problem`
    (see `memory.kernel.http.problems`). `errors` says what is wrong with which field, if anything.
    """

    status = 409
    problem = ""
    errors: Mapping[str, Any] = {}


class Erased(Refused):
    """The user was erased in the meantime."""

    status = 404

    def __init__(self) -> None:
        super().__init__("This user no longer exists in this workspace.")

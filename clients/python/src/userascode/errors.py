"""What the client raises. Each problem type of the API has a class in `userascode.problems`."""

from collections.abc import Iterator, Mapping
from typing import Any

from userascode.models import FailedRun


class UserAsCodeError(Exception):
    """Anything that the client raises on purpose."""


class ConfigurationError(UserAsCodeError):
    """The address or the key of the server is missing or unusable."""


class ConnectionFailed(UserAsCodeError):
    """There was no answer, also not to the repeated request."""


class UnexpectedAnswer(UserAsCodeError):
    """The answer does not come from this API: perhaps the address is wrong, or a proxy answered."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}, which is not an answer of UaC: {text[:300]}")
        self.status = status


class StillRunning(UserAsCodeError):
    """An operation has not ended within `timeout`; it goes on at the server.

    `location` is the path of the resource that shows its progress, `progress` that resource.
    """

    def __init__(self, location: str, progress: Mapping[str, Any], seconds: float) -> None:
        super().__init__(f"not finished after {seconds:g} s, still running at {location}")
        self.location = location
        self.progress = progress


class Problem(UserAsCodeError):
    """An error of the API. `detail` says what is wrong and how to fix it.

    `fields` maps each wrong field to what is wrong with it. `answer` is the whole problem object;
    if a run failed, it has the run's `id`, `outcome`, `error` and `verdict`.
    """

    def __init__(self, answer: FailedRun, retry_after: float | None = None) -> None:
        self.answer = answer
        self.type = answer.type
        self.status = answer.status
        self.detail = answer.detail
        self.request_id = answer.request_id
        self.limit = answer.limit
        self.retry_after = retry_after
        self.fields = dict(_flatten(answer.errors or {}))
        super().__init__(str(self))

    def __str__(self) -> str:
        """Return the detail, with a line for each wrong field."""
        lines = [f"  {field}: {'; '.join(fixes)}" for field, fixes in self.fields.items()]
        request = f" [{self.request_id}]" if self.request_id else ""
        return "\n".join([f"{self.detail}{request}", *lines])


def _flatten(errors: Any, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield each wrong field of a request, such as `entries.0.kind`, with its messages."""
    if isinstance(errors, Mapping):
        for name, inner in errors.items():
            yield from _flatten(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(errors, list) and any(isinstance(one, Mapping) for one in errors):
        for number, inner in enumerate(errors):
            yield from _flatten(inner, f"{path}.{number}")
    else:
        yield path, [str(one) for one in (errors if isinstance(errors, list) else [errors])]

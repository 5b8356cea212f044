"""Questions whose sandbox is not available, or ends."""

from collections.abc import Callable
from typing import Any

import pytest

from memory.kernel.models.users import MemoryUser
from memory.kernel.work import hosts
from memory.versions import runs
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus, RunTrigger
from tests.factories import make_checkpoint
from tests.steps import attempt, not_none
from workers.execution import queries
from workers.sandbox.results import SandboxError

pytestmark = pytest.mark.django_db

NO_ENGINE = SandboxError("killed", "the Docker engine does not answer", infrastructure=True)
Failing = Callable[..., list[SandboxError]]

ENDED = SandboxError("killed", "the sandbox exited")


@pytest.fixture
def question(user: MemoryUser) -> Run:
    asked = {"code": "6 * 7"}
    version = make_checkpoint(user)
    return runs.queue(user, RunKind.QUERY, RunTrigger.API, checkpoint=version, input=asked)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Make the next evaluations raise these errors; the list has those that are left."""

    def do(*errors: SandboxError) -> list[SandboxError]:
        left = list(errors)
        evaluate = queries._evaluate

        def raising(*given: Any) -> Any:
            if left:
                raise left.pop(0)
            return evaluate(*given)

        monkeypatch.setattr(queries, "_evaluate", raising)
        return left

    return do


def test_query_is_given_back_and_answered_by_a_host_with_sandboxes(
    question: Run, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "live", lambda: ("another",))
    failing(NO_ENGINE, NO_ENGINE)

    with pytest.raises(SandboxError, match="does not answer"):
        attempt(question)

    question.refresh_from_db()
    assert (question.status, question.lease_expires_at) == (RunStatus.RUNNING, None)
    assert "does not answer" in question.last_error
    attempt(question)
    assert (question.status, question.outcome) == (RunStatus.DONE, RunOutcome.OK)
    assert question.output["value"] == 42


def test_query_without_any_usable_host_ends_as_a_server_failure(
    question: Run, failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "live", lambda: ())
    failing(NO_ENGINE, NO_ENGINE)

    attempt(question)

    assert (question.status, question.outcome) == (RunStatus.DONE, RunOutcome.KILLED)
    assert question.error is not None
    assert question.error["infrastructure"] is True
    assert "does not answer" in question.error["message"]


def test_query_is_repeated_once_its_sandbox_ends(question: Run, failing: Failing) -> None:
    failing(ENDED)

    attempt(question)

    assert (question.outcome, question.output["value"]) == (RunOutcome.OK, 42)


def test_code_ending_its_sandbox_is_run_twice(question: Run, failing: Failing) -> None:
    left = failing(ENDED, ENDED, ENDED)

    attempt(question)

    assert (question.outcome, len(left)) == (RunOutcome.KILLED, 1)
    assert "infrastructure" not in not_none(question.error)


def test_query_past_a_limit_is_not_retried(question: Run, failing: Failing) -> None:
    left = failing(SandboxError("timeout", "no response within 2 s"), ENDED)

    attempt(question)

    assert (question.outcome, len(left)) == (RunOutcome.TIMEOUT, 1)

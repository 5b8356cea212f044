"""Have a server call language models; import this module only with the server's settings."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet, Sum

from benchmarks.chat import Model
from benchmarks.harness import Client, Row, append
from deploy.embedded.system import System
from memory.kernel import encryption
from memory.kernel.models.users import Lane, LaneName
from memory.kernel.models.workspaces import Workspace
from memory.llm.models import LlmCall, LlmOutcome
from memory.log.models.entries import EntryOutcome, LogEntry, Outcome
from memory.versions.models.runs import Run, RunKind, RunOutcome

PATIENCE_SECONDS = 3600
# A user is skipped once the model has failed on them more often than this.
MAX_ATTEMPTS = 3


def set_model(workspace: str, model: Model) -> None:
    """Make a workspace use a model; raise ValidationError if its URL or key is invalid."""
    row = Workspace.objects.get(name=workspace)
    row.llm_model = f"openai:{model.name}"
    row.llm_base_url = model.base_url
    row.llm_api_key = encryption.encrypt(model.key.encode())
    row.full_clean()
    row.save()


def remember(
    system: System,
    client: Client,
    workspace: str,
    user_id: str,
    messages: Sequence[Mapping[str, Any]],
    problems: list[str],
) -> None:
    """Append messages and wait until all are settled; a model that fails is a problem."""
    append(client, user_id, messages)
    deadline = time.monotonic() + PATIENCE_SECONDS
    lane = Lane.objects.get(
        user__workspace__name=workspace, user__user_id=user_id, name=LaneName.STRUCTURE
    )
    while True:
        system.check()
        user = client.get(f"users/{user_id}/")[1]
        if user["entries"]["pending"] == 0:
            return
        status = user["structure"]
        lane.refresh_from_db()
        for_good = status["state"] == "stopped" and status["until"] is None
        if for_good or lane.attempts > MAX_ATTEMPTS or time.monotonic() > deadline:
            problems.append(f"{user_id}: not settled: {status['reason']}")
            return
        time.sleep(1)


def ask(client: Client, user_id: str, question: str) -> tuple[Any, Row]:
    """Ask the server a question; return the value, or None if it is not known, and its usage.

    Raises ValueError with the server's error if the model reaches no answer.
    """
    status, body = client.post(f"users/{user_id}/ask/?wait=60", {"question": question})
    if status == 202:
        run = client.finished(body["id"], PATIENCE_SECONDS)
        status, body = 200 if run["outcome"] == "ok" else 422, {**run, **(run["output"] or {})}
    if status != 200:
        raise ValueError(json.dumps(body.get("error") or body))
    return (plain(body["value"]) if body["known"] else None), _usage(
        LlmCall.objects.filter(run=body["id"])
    )


def spent(workspace: str) -> Row:
    """Return how far a workspace's work has got, and its use of the model."""
    entries = LogEntry.objects.filter(user__workspace__name=workspace).count()
    outcomes = EntryOutcome.objects.filter(user__workspace__name=workspace)
    proposals = Run.objects.filter(user__workspace__name=workspace, kind=RunKind.PROPOSAL)
    calls = LlmCall.objects.filter(workspace__name=workspace)
    return {
        "entries": entries,
        "pending": entries - outcomes.count(),
        "rejected": outcomes.filter(outcome=Outcome.REJECTED).count(),
        "proposals": proposals.count(),
        "refused": proposals.filter(outcome=RunOutcome.REJECTED).count(),
        **_usage(calls),
        "failed_calls": calls.exclude(outcome=LlmOutcome.OK).count(),
    }


def _usage(calls: QuerySet[LlmCall]) -> Row:
    totals = calls.aggregate(
        sent=Sum("input_tokens"), cached=Sum("cache_read_tokens"), returned=Sum("output_tokens")
    )
    tokens = {name: number or 0 for name, number in totals.items()}
    uncached = tokens["sent"] - tokens.pop("cached")
    return {"calls": calls.count(), **tokens, "uncached": uncached}


def plain(value: Any) -> Any:
    """Return a value in the API's typed JSON as JSON that reads like an answer."""
    match value:
        case list():
            return [plain(item) for item in value]
        case {"$tuple": items} | {"$set": items}:
            return plain(items)
        case {"$decimal": text}:
            return float(text)
        case {"$date": text} | {"$datetime": text} | {"$partial_date": text}:
            return text
        case {"$enum": _, "value": inner}:
            return plain(inner)
    return value

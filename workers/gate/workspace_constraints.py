"""Judge a version of a workspace constraint before anybody may approve it."""

from django.db import transaction
from django.utils import timezone

from memory.constraints import backtests
from memory.constraints.models.workspace_constraints import VersionState, WorkspaceConstraintVersion
from memory.kernel.work import leases
from workers.gate.cases import WorkspaceCase
from workers.gate.checks import judge


def judge_version(version: WorkspaceConstraintVersion) -> None:
    """Judge a version that the caller has claimed, and store the verdict.

    Raises GateUnavailable if no sandbox was available or if a sandbox failed; the version is then
    judged later.
    """
    verdict = judge(WorkspaceCase(constraint=version.constraint, version=version))
    with transaction.atomic():
        leases.release(
            version,
            state=VersionState.PASSED if verdict.accepted else VersionState.REFUSED,
            verdict=verdict.to_json(),
            bytecode=verdict.bytecode.get(version.constraint.path, ""),
            image_digest=verdict.image_digest,
            judged_at=timezone.now(),
            attempts=0,
            last_error="",
        )
        newer = version.constraint.versions.filter(number__gt=version.number)
        if verdict.accepted and not newer.exists():
            backtests.start(version, by="the checks")

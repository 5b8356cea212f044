"""Judge a version of a workspace constraint before anybody may approve it."""

import structlog
from django.db import transaction
from django.utils import timezone

from memory.constraints import workspace_constraints
from memory.models.workspace_constraints import VersionState
from memory.temporal import backtests
from memory.work import leases
from workers.gate.cases import WorkspaceCase
from workers.gate.judging import judge

logger = structlog.get_logger(__name__)


def judge_waiting(version_pk: str) -> None:
    """Judge the version, unless another worker has already judged it or is doing so now.

    The verdict is stored. Raises GateUnavailable if no sandbox was available or if a sandbox
    failed; the version is then judged later.
    """
    version = leases.claim(workspace_constraints.unjudged().filter(pk=version_pk))
    if version is None:
        return
    try:
        with leases.kept(version):
            verdict = judge(WorkspaceCase(constraint=version.constraint, version=version))
    except Exception as error:
        leases.fail(version, f"{type(error).__name__}: {error}")
        raise
    try:
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
    except leases.LeaseLost:
        logger.warning("lease_lost", version=version_pk)

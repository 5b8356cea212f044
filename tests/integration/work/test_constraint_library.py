"""Every constraint of the library passes the gate's checks for a new one."""

import pytest
from django.test import override_settings

from memory.constraints import constraint_library
from memory.constraints.models.workspace_constraints import (
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.kernel.models.workspaces import Workspace
from tests.integration.work.test_workspace_constraints import CHECKS
from workers.gate.cases import WorkspaceCase
from workers.gate.checks import judge


@pytest.mark.parametrize("name", constraint_library.names())
def test_library_constraint_passes_the_gate(name: str) -> None:
    of_library = constraint_library.read(name)
    constraint = WorkspaceConstraint(workspace=Workspace(name="acme"), name=name)
    version = WorkspaceConstraintVersion(
        constraint=constraint, number=1, source=of_library.source, tests=of_library.tests
    )
    with override_settings(UAC_SANDBOX_RUNNER="process"):
        verdict = judge(WorkspaceCase(constraint=constraint, version=version))
    found = [finding for check in verdict.checks for finding in check.findings]
    # Its boundaries are tested in its unit tests, which know the equivalent mutants.
    assert [finding for finding in found if finding.code != "boundary_unnoticed"] == []
    assert not any(finding.blocking for finding in found)
    assert [check.name for check in verdict.checks] == CHECKS


def test_unknown_name_is_not_in_the_library() -> None:
    with pytest.raises(KeyError):
        constraint_library.read("__init__")

"""Clients with other keys than the usual one."""

import pytest
from rest_framework.test import APIClient

from memory.kernel.models.workspaces import Scope, Workspace
from tests.conftest import new_client


@pytest.fixture
def manager(workspace: Workspace) -> APIClient:
    """A client with a key that has every scope."""
    return new_client(workspace, *Scope)


@pytest.fixture
def stranger() -> APIClient:
    """A client of another workspace, with a key that has every scope."""
    return new_client(Workspace.objects.create(name="other"), *Scope)

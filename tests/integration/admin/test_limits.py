"""The limits of a workspace's sandboxes: their display, and the staff's overrides."""

from typing import Any

import pytest
from django.test import Client

from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings import environment
from memory.kernel.settings.sandbox_limits import LIMITS, effective
from tests.integration.admin.conftest import add_url, list_url, page_url, shown, text_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("limits_as_delivered")]


def change(client: Client, workspace: Workspace, **chosen: Any) -> Any:
    here = {"name": workspace.name, "time_zone": workspace.time_zone}
    form = {**here, **dict.fromkeys(LIMITS, ""), **chosen}
    return client.post(page_url(workspace), form)


def test_effective_limit_is_shown_beside_the_override(
    admin_client: Client, workspace: Workspace, settings: Any
) -> None:
    settings.UAC_SANDBOX_LEASE_SECONDS = 10.0
    words = shown(admin_client.get(page_url(workspace)))
    assert "Container: kept for 10 s after its last use" in words
    assert "Wall seconds: 5 seconds , server default; at most 90 seconds" in words
    assert "Container memory (MiB): 1024 MiB , server default; at most 4096 MiB" in words
    for setting in environment.SANDBOXES.overridable.values():
        assert setting.meaning in words

    assert change(admin_client, workspace, wall_seconds="2", single_use="on").status_code == 302

    words = shown(admin_client.get(page_url(workspace)))
    assert "Container: destroyed after every use" in words
    assert "Wall seconds: 2 seconds , set for this workspace; at most 90 seconds" in words
    assert (
        "CPU seconds: 2 seconds , not the server default of 5 seconds, because of the other limits"
        in words
    )
    assert "single_use, wall_seconds" in shown(admin_client.get(list_url(Workspace)))


def test_empty_limit_is_the_servers(
    admin_client: Client, workspace: Workspace, settings: Any
) -> None:
    change(admin_client, workspace, wall_seconds="2")
    change(admin_client, workspace)
    settings.UAC_SANDBOX_WALL_SECONDS = 7.0

    workspace.refresh_from_db()
    assert workspace.wall_seconds is None
    assert effective(workspace.overrides(environment.SANDBOXES)).wall_seconds == 7
    assert not workspace.single_use


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({"memory_mib": "16"}, "It must be between 128 and 4096 (MiB), not 16."),
        ({"wall_seconds": "3600"}, "It must be between 0.1 and 90 (seconds), not 3600."),
        (
            {"wall_seconds": "1", "cpu_seconds": "3"},
            "choose at most 1 s, or set wall_seconds to at least 3.",
        ),
        ({"wall_seconds": "nan"}, "Enter a number"),
        ({"wall_seconds": "inf"}, "Enter a number"),
        ({"output_kib": "-1"}, "greater than or equal to 0"),
        ({"result_kib": "lots"}, "Enter a whole number"),
    ],
)
def test_invalid_limit_is_refused_beside_its_field(
    admin_client: Client, workspace: Workspace, chosen: dict[str, str], told: str
) -> None:
    response = change(admin_client, workspace, **chosen)

    assert told in shown(response)
    for holds in ("Wall seconds: 5 seconds", "Container memory (MiB): 1024 MiB"):
        assert holds in shown(response)
    assert list(response.context["adminform"].form.errors) == [list(chosen)[-1]]
    workspace.refresh_from_db()
    assert set(workspace.overrides(environment.SANDBOXES).values()) == {None}


def test_a_new_workspace_may_have_limits_at_once(admin_client: Client) -> None:
    assert "Wall seconds: 5 seconds" in shown(admin_client.get(add_url(Workspace)))

    form = {"name": "new", "time_zone": "UTC", "memory_mib": "2048", "single_use": "on"}
    admin_client.post(add_url(Workspace), form)

    workspace = Workspace.objects.get(name="new")
    assert (workspace.memory_mib, workspace.single_use) == (2048, True)


def test_viewer_sees_limits_and_changes_none(staff: Any, workspace: Workspace) -> None:
    client = staff("view_workspace")

    assert "Wall seconds: 5 seconds" in text_of(client.get(page_url(workspace))).replace("<b>", "")
    assert change(client, workspace, wall_seconds="1").status_code == 403

    workspace.refresh_from_db()
    assert workspace.wall_seconds is None

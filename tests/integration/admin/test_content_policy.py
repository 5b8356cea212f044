"""The content policy of a workspace, in its form."""

from typing import Any

import pytest
from django.test import Client

from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings import content_settings
from tests.integration.admin.conftest import page_url, shown

pytestmark = pytest.mark.django_db


def change(client: Client, workspace: Workspace, **chosen: str) -> Any:
    here = {"name": workspace.name, "time_zone": workspace.time_zone}
    return client.post(page_url(workspace), {**here, **chosen})


def test_each_kind_has_an_action(admin_client: Client, workspace: Workspace, settings: Any) -> None:
    settings.UAC_CONTENT_EMAIL_ADDRESS = "typed_only"
    chosen = {"content_secret": "masked", "content_iban_code": "stored"}

    assert change(admin_client, workspace, **chosen).status_code == 302

    workspace.refresh_from_db()
    assert workspace.content_policy == {"secret": "masked", "email_address": "typed_only"}
    words = shown(admin_client.get(page_url(workspace)))
    assert "E-mail addresses: typed only." in words


@pytest.mark.parametrize("action", ["hidden", "MASKED", "masked, refused"])
def test_another_action_is_refused_beside_its_field(
    admin_client: Client, workspace: Workspace, action: str
) -> None:
    answer = change(admin_client, workspace, content_secret=action)

    assert list(answer.context["adminform"].form.errors) == ["content_secret"]
    workspace.refresh_from_db()
    assert workspace.content_policy == {}


def test_personal_data_need_the_extra(
    admin_client: Client, workspace: Workspace, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_settings, "find_spec", lambda name: None)
    chosen = {"content_secret": "masked", "content_email_address": "masked"}

    answer = change(admin_client, workspace, **chosen)

    assert list(answer.context["adminform"].form.errors) == ["content_email_address"]
    settings.UAC_CONTENT_PHONE_NUMBER = "refused"
    assert list(content_settings.validate_server_settings()) == ["UAC_CONTENT_PHONE_NUMBER"]

"""Lists in which no new row appears under the pointer."""

import re
from typing import Any

import pytest
from django.test import Client

from memory.alerts.models.alerts import Alert, AlertState
from tests.integration.admin.conftest import Populate, Rows, list_url, messages_of, shown, text_of

pytestmark = pytest.mark.django_db


def listed(response: Any) -> list[Alert]:
    return list(response.context["cl"].result_list)


@pytest.mark.parametrize("query", ["", "?state__exact=open", "?o=3"], ids=["all", "open", "sorted"])
def test_after_an_action_no_row_of_the_list_has_moved(
    admin_client: Client, populate: Populate, query: str
) -> None:
    for name in ("ada", "bob", "cyd"):
        populate(user_id=name)
    address = list_url(Alert) + query
    before = listed(admin_client.get(address))

    chosen = {"action": "acknowledge", "_selected_action": str(before[0].pk)}
    after = admin_client.post(address, chosen, follow=True)

    assert messages_of(after) == ["1 alert acknowledged."]
    assert listed(after) == before
    assert listed(after)[0].state == AlertState.ACKNOWLEDGED
    assert "These are the same rows as before the action" in shown(after)
    # Loaded again, the list is sorted and filtered as usual.
    again = admin_client.get(address)
    assert before[0] not in listed(again)[:2]
    assert "These are the same rows as before the action" not in shown(again)


def test_browser_restores_no_ticked_boxes(admin_client: Client, rows: Rows) -> None:
    [box] = re.findall(
        r'<input[^>]*class="action-select"[^>]*>', text_of(admin_client.get(list_url(Alert)))
    )

    assert 'autocomplete="off"' in box

"""Lists in which no new row appears under the pointer."""

import datetime
import re
from typing import Any

import lxml.html
import pytest
from django.test import Client
from django.utils import timezone

from memory.alerts.models.alerts import Alert, AlertState
from memory.constraints.models.workspace_constraints import WorkspaceConstraint
from memory.kernel.admin.display import rule_of
from tests.integration.admin.conftest import (
    Populate,
    Rows,
    act,
    list_url,
    messages_of,
    page_url,
    shown,
    text_of,
)

pytestmark = pytest.mark.django_db


def listed(response: Any) -> list[Alert]:
    return list(response.context["cl"].result_list)


def press(client: Client, page: Any, name: str, **chosen: str) -> Any:
    """Press a page's first button of this name, with what the browser sends of its form."""
    buttons = lxml.html.document_fromstring(page.content).iter("button")
    button = next(
        one
        for one in buttons
        if name in (one.text_content().strip(), one.get("title"), one.get("aria-label"))
    )
    form = next(button.iterancestors("form"))
    fields: dict[str, list[str]] = {name: [value] for name, value in chosen.items()}
    for key, value in [*form.form_values(), (button.get("name"), button.get("value"))]:
        if key and key not in chosen:
            fields.setdefault(key, []).append(value or "")
    at = button.get("formaction") or form.get("action") or page.request["PATH_INFO"]
    return client.post(at, fields, follow=True)


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


@pytest.mark.parametrize("further", ["undo", "snooze_for_a_day", "resolve"])
def test_after_a_further_action_no_row_has_moved_either(
    admin_client: Client, populate: Populate, further: str
) -> None:
    for name in ("ada", "bob", "cyd"):
        populate(user_id=name)
    address = list_url(Alert)
    before = listed(admin_client.get(address))

    chosen = {"action": "acknowledge", "_selected_action": str(before[0].pk)}
    page = admin_client.post(address, chosen, follow=True)
    if further == "undo":
        page = press(admin_client, page, "Undo")
    else:
        row = {"action": further, "_selected_action": str(before[1].pk)}
        page = press(admin_client, page, "Run the selected action", **row)
    if further == "resolve":
        page = press(admin_client, page, "Resolve")

    assert len(messages_of(page)) == 1
    assert listed(page) == before


def test_undo_on_the_front_page_moves_no_alert(admin_client: Client, populate: Populate) -> None:
    for name in ("ada", "bob", "cyd"):
        populate(user_id=name)
    before = [one["key"] for one in admin_client.get("/admin/").context["home"]["worst"]]

    page = press(admin_client, admin_client.get("/admin/"), "Acknowledge")
    assert Alert.objects.get(pk=before[0]).state == AlertState.ACKNOWLEDGED
    page = press(admin_client, page, "Undo")

    assert Alert.objects.get(pk=before[0]).state == AlertState.OPEN
    assert [one["key"] for one in page.context["home"]["worst"]] == before


@pytest.mark.usefixtures("stopped")
def test_the_page_of_an_alert_carries_its_row(admin_client: Client, rows: Rows) -> None:
    def cells(page: Any, within: str) -> dict[str, str]:
        [row] = lxml.html.document_fromstring(page.content).xpath(within)
        texts = {one.get("class"): " ".join(one.text_content().split()) for one in row}
        return {name: texts[name] for name in ("field-standing", "field-about")}

    alert = rows[Alert]
    Alert.objects.update(escalate_at=timezone.now() + datetime.timedelta(minutes=90))
    for state in ("open", "acknowledged"):
        carried = cells(admin_client.get(page_url(alert)), "//template[@class='row']")

        assert carried == cells(
            admin_client.get(list_url(Alert)), "//*[@id='result_list']/tbody/tr"
        )
        assert carried["field-standing"] == state
        assert ("escalates in 1 h" in carried["field-about"]) == (state == "open")
        act(admin_client, "acknowledge", alert)


def test_the_inbox_names_rules_by_what_they_demand(
    admin_client: Client, populate: Populate
) -> None:
    alert = populate(user_id="fay")[Alert]
    other = populate(user_id="gil")[Alert]
    space, demand = alert.user.workspace, "Drugs must be safe."
    rule = WorkspaceConstraint.objects.create(workspace=space, name="safe", description=demand)
    Alert.objects.filter(pk=alert.pk).update(constraint=rule.path)

    groups = admin_client.get(list_url(Alert)).context["groups"]

    assert {group["name"] for group in groups} == {demand, rule_of(other.constraint)}
    assert {group["rule"] for group in groups} == {"workspace/safe", rule_of(other.constraint)}


def test_browser_restores_no_ticked_boxes(admin_client: Client, rows: Rows) -> None:
    [box] = re.findall(
        r'<input[^>]*class="action-select"[^>]*>', text_of(admin_client.get(list_url(Alert)))
    )

    assert 'autocomplete="off"' in box

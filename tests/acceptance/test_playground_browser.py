"""`/playground/` in a browser: a message's way, a query, and the past, within the policy."""

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from deploy.demo.recorded_model import Recording
from deploy.embedded.system import System
from tests.browser import visitor
from tests.system import LATE, create_person, new_client, running_system_of, task

SAID = "My tax return is 3 days late."
FACT = "The user's tax return is 3 days late."
TAX_RETURN = Recording(
    messages=[SAID],
    facts=[{"text": FACT, "sources": ["{seq:tax return}"]}],
    work=[
        [
            {
                "name": "edit",
                "arguments": {
                    "edits": [
                        {
                            "op": "add",
                            "domain": "work",
                            "class_name": "Task",
                            "key": "tax-return",
                            "fields": {"name": "tax return", "days": 3},
                            "sources": ["{seq:tax return}"],
                        }
                    ]
                },
            }
        ]
    ],
)


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with running_system_of(TAX_RETURN) as system:
        yield system


def enter(page: Page, key: str, user_id: str) -> None:
    page.get_by_label("Key").fill(key)
    page.get_by_label("User id").fill(user_id)
    page.get_by_role("button", name="Enter").click()


def step(page: Page, name: str) -> Locator:
    """Return a step in the way of the only message."""
    return page.locator(".way > li").filter(has=page.get_by_role("heading", name=name))


def test_a_message_becomes_a_version_and_an_alert(browser: Browser, system: System) -> None:
    # Given a user with a task that is not late, and a constraint
    client = new_client(system, "playground")
    person = create_person(client, "player")
    person.log(task("on-time", 0))
    person.write_constraint("late", LATE)
    trouble: list[str] = []
    addresses: list[str] = []

    with visitor(browser, system, trouble) as page:
        page.on("request", lambda request: addresses.append(request.url))
        page.goto("/playground/")
        enter(page, client.key, person.user_id)
        alerts = page.locator("#alerts")
        expect(alerts).to_have_text("None.")
        # When they say that another one is late
        before = time.time() * 1000
        page.get_by_label("Message of the user").fill(SAID)
        page.get_by_role("button", name="Send").click()
        # Then its way appears, to the alert with its evidence
        expect(step(page, "Facts")).to_contain_text(FACT)
        expect(step(page, "Edits")).to_contain_text("add work.Task tax-return")
        expect(step(page, "Gate")).to_contain_text("coverage: passed")
        expect(step(page, "Version")).to_contain_text("Version 3")
        expect(step(page, "Alerts")).to_contain_text("opened: warning: tax return is 3 days late")
        expect(alerts).to_contain_text("work.tasks 'tax-return'")
        expect(step(page, "Entry")).to_contain_text("covered")
        # And a query counts it, with its evidence
        page.get_by_label("Python").fill("[task.days for task in tasks if task.days > 0]")
        page.get_by_role("button", name="Run").click()
        answer = page.locator("#answer")
        expect(answer.locator("pre")).to_have_text(re.compile(r"\[\s*3\s*\]"))
        expect(answer).to_contain_text("work.tasks 'tax-return'")
        # But not as of the moment before the message, when there was no alert either
        slider = page.get_by_role("slider", name="As of")
        slider.evaluate(
            "(slider, moment) => {slider.value = moment;"
            " for (const name of ['input', 'change']) slider.dispatchEvent(new Event(name));}",
            before,
        )
        expect(alerts).to_have_text("None.")
        expect(page.locator("#known")).to_contain_text("tasks: 1 Task")
        page.get_by_role("button", name="Run").click()
        expect(answer.locator("pre")).to_have_text("[]")
        # And at the end of the slider, it is now
        slider.press("End")
        expect(alerts).to_contain_text("tax return is 3 days late")

    assert not trouble
    assert all(url.startswith(system.base_url) for url in addresses), addresses
    assert not any(client.key in url for url in addresses)


def test_a_new_user_is_created_and_problems_are_shown(browser: Browser, system: System) -> None:
    client = new_client(system, "playground-problems")
    trouble: list[str] = []

    with visitor(browser, system, trouble) as page:
        page.goto("/playground/")
        problem = page.get_by_role("alert")
        enter(page, "uac_0123456789ab_unknown", "new one")
        expect(problem).to_contain_text("Unauthorized")
        enter(page, client.key, " ")
        expect(problem).to_contain_text("user_id: ")
        enter(page, client.key, "new/one")
        page.get_by_label("Python").fill("nothing")
        page.get_by_role("button", name="Run").click()
        expect(problem).to_contain_text("Conflict")

    assert client.get("users/new%2Fone/")[0] == 200
    assert not [one for one in trouble if "violates" in one]


def test_a_wrong_key_is_named_so(browser: Browser, system: System) -> None:
    with visitor(browser, system, []) as page:
        page.goto("/playground/")
        enter(page, "uac_0_0", "player")

        expect(page.get_by_role("alert")).to_contain_text("This server knows no such key")
        expect(page.get_by_role("button", name="Enter")).to_be_visible()

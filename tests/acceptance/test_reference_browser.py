"""`/docs/` in a browser: a reader tries a request with a key, within the security policy."""

import json

from playwright.sync_api import Browser

from deploy.embedded.system import System
from tests.browser import visitor
from tests.system import create_person, new_client


def test_a_request_with_a_key_is_answered(browser: Browser, system: System) -> None:
    client = new_client(system, "reference")
    create_person(client, "reader")
    trouble: list[str] = []
    foreign: list[str] = []

    with visitor(browser, system, trouble) as page:
        page.on("request", lambda request: foreign.append(request.url))
        page.goto("/docs/")
        page.get_by_role("button", name="Authorize").click()
        page.locator(".auth-container input").fill(client.key)
        page.locator(".auth-btn-wrapper button[type=submit]").click()
        page.locator(".btn-done").click()
        listing = page.locator("#operations-users-users_list")
        listing.locator(".opblock-summary-control").click()
        with page.expect_response("**/v1/users") as answer:
            listing.locator("button.execute").click()
        # What to paste into a terminal is shown beside the answer.
        listing.locator(".curl-command, .request-snippets").first.wait_for()
        assert answer.value.status == 200
        assert "reader" in json.dumps(answer.value.json())

    assert not trouble
    assert all(url.startswith((system.base_url, "data:")) for url in foreign), foreign

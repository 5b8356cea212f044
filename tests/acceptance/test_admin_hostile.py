"""Every screen in a real browser, full of hostile texts: none of them acts.

The pages have a policy by which no inline script runs, and nothing in the admin itself breaks it.
"""

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from deploy.embedded.system import System
from tests.browser import PASSWORD, follow, log_in, visitor
from tests.system import running_system
from uac_site.content_security import POLICY

HOSTILE = (
    '"><script>document.title = "pwned"; alert(1)</script>'
    "<img src=x onerror=\"document.title = 'pwned'\"><style>* { display: none }</style>"
    '<a href="javascript:alert(1)">\'{{7*7}}</a>\u202egnp.exe\u2066\u200b'
)
# The admin's own scripts are in files; inline data for them is inert.
ACTIVE = "script:not([src], [type='application/json']), style, iframe"
# Rows of every model, inserted directly: there is no worker to process them.
ROWS = f"""
import json
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import transaction
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.alerts.models.alerts import Alert
from memory.versions.models.checkpoints import Checkpoint
from memory.kernel.models.users import Lane, MemoryUser
from memory.log.models.entries import LogEntry
from memory.versions.models.runs import Run
from memory.kernel.models.workspaces import Workspace
from memory.log.models.entries import EntryKind
from tests.integration.admin.conftest import _populate, list_url, page_url

text = {HOSTILE!r}
line = ("x" + text) * (100_000 // (len(text) + 1))
with transaction.atomic():
    rows = _populate(Workspace.objects.create(name=text[:90]), text, "ada")
    long = _populate(Workspace.objects.create(name="long"), "long", "bob")
Run.objects.filter(pk=long[Run].pk).update(stdout=line, input={{"code": line}})
Alert.objects.filter(pk=long[Alert].pk).update(message=line)
Lane.objects.update(last_error=line)
[entry] = entry_log.append(
    long[Alert].user, [Draft(kind=EntryKind.MESSAGE, content=line, role="user")], source="test"
)
User.objects.create_superuser("eve", "eve@example.org", {PASSWORD!r})
pages = {{model.__name__: [list_url(model), page_url(row)] for model, row in rows.items()}}
# Beside the lists and their rows there are pages of their own.
user, version = (page_url(rows[model]) for model in (MemoryUser, Checkpoint))
names = ("timeline/", "day/", "console/", "constraint/")
pages["of a user"] = [user.replace("change/", name) for name in names]
pages["of a version"] = [version.replace("change/", "project/")]
pages["of the server"] = ["/admin/", "/admin/memory/alarm/work/"]
pages["long"] = [page_url(one) for one in (entry, long[Alert], long[Run])]
print(json.dumps(pages))
"""


@pytest.fixture(scope="module")
def quiet() -> Iterator[System]:
    with running_system(sandbox_workers=0, default_workers=0, beats=0) as system:
        yield system
        system.check()


@pytest.fixture(scope="module")
def pages(quiet: System) -> dict[str, list[str]]:
    """Return the addresses of every list, and of one page of each, by the name of the model."""
    printed = quiet.manage("shell", "-v", "0", "-c", ROWS)
    found: dict[str, list[str]] = json.loads(printed.splitlines()[-1])
    return found


@pytest.fixture
def trouble() -> list[str]:
    """Collect a page's forbidden acts: native dialogs, errors, and breaches of the policy."""
    return []


@pytest.fixture
def page(
    browser: Browser, quiet: System, pages: dict[str, list[str]], trouble: list[str]
) -> Iterator[Page]:
    with visitor(browser, quiet, trouble) as page:
        log_in(page)
        yield page


def test_no_screen_does_what_somebody_wrote(
    page: Page, pages: dict[str, list[str]], trouble: list[str]
) -> None:
    assert len(pages) > 40
    for name, addresses in pages.items():
        for address in addresses:
            answer = page.goto(address)
            assert answer is not None
            assert answer.status == 200, address
            assert answer.headers["content-security-policy"] == POLICY
            assert page.title().endswith("| UaC"), (name, page.title())
            expect(page.locator("#content")).to_be_visible()
            assert page.locator(ACTIVE).count() == 0, address
            assert page.locator("a[href^='javascript:' i]").count() == 0, address
            assert trouble == [], (name, address)


def test_a_page_with_a_hundred_thousand_characters_in_a_line_keeps_its_width(
    page: Page, pages: dict[str, list[str]], trouble: list[str]
) -> None:
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        for address in pages["long"]:
            page.goto(address)
            expect(page.locator("#content h1")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, address
    assert trouble == []


def test_injected_script_is_blocked_and_reported(page: Page, trouble: list[str]) -> None:
    page.goto("/admin/")
    with page.expect_console_message(lambda message: "violates script-src" in message.text):
        page.evaluate(
            """() => {
                const script = document.createElement("script");
                script.textContent = "document.title = 'pwned'";
                document.body.append(script);
            }"""
        )
    assert "pwned" not in page.title()
    assert any("violates script-src" in text for text in trouble)


def test_admin_scripts_work_under_the_policy(
    page: Page, pages: dict[str, list[str]], trouble: list[str]
) -> None:
    # A form with dates: a calendar and a clock.
    page.goto("/admin/memory/apikey/add/")
    page.locator(".field-expires_at .date-icon").first.click()
    calendar = page.locator(".calendarbox:visible")
    calendar.locator("td a").first.click()
    expect(calendar).to_have_count(0)
    page.locator(".field-expires_at .clock-icon").first.click()
    page.locator(".clockbox:visible").get_by_role("link", name="Midnight").click()
    expect(page.locator("#id_expires_at_1")).to_have_value("00:00:00")

    # An account's page: choices moved between two boxes.
    page.goto("/admin/auth/user/1/change/")
    boxes = page.locator("#id_access-0-workspaces_from option")
    page.locator("#id_access-0-workspaces_from").select_option(label="long")
    number = boxes.count()
    page.locator("#id_access-0-workspaces_add, #id_access-0-workspaces_add_link").first.click()
    expect(boxes).to_have_count(number - 1)
    follow(page.get_by_role("button", name="Save and continue editing"))
    expect(page.locator(".messagelist .success")).to_be_visible()

    # A list: filter, search, choose, act; and the colours.
    page.goto("/admin/memory/alert/")
    follow(page.locator("#changelist-filter").get_by_role("link", name="open", exact=True))
    expect(page).to_have_url(re.compile("state__exact=open"))
    page.goto(f"{page.url}&q=bo")  # as from the search in the header
    page.locator("#searchbar").fill("bob")
    follow(page.locator("#changelist-search").get_by_role("button", name="Search"))
    page.locator("#action-toggle").check()
    expect(page.locator(".action-counter")).to_contain_text("1 of 1 selected")
    page.get_by_label("Action:").select_option("acknowledge")
    follow(page.get_by_role("button", name="Go", exact=True))
    expect(page.locator(".messagelist")).to_contain_text("1 alert acknowledged.")
    before = page.locator("html").get_attribute("data-theme")
    assert before is not None
    page.locator(".theme-toggle").first.click()
    expect(page.locator("html")).not_to_have_attribute("data-theme", before)
    assert trouble == []


def test_nobody_frames_a_page_and_no_form_leads_elsewhere(page: Page, quiet: System) -> None:
    answer = page.goto("/admin/login/?next=/admin/")
    assert answer is not None
    assert answer.headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert "form-action 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]

"""The admin of a whole server, in a browser.

A conftest that imports the fixtures has to have one named `system`.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.docker_engine import skip_or_fail
from uac_site.embedded.system import System

# Playwright is imported where a browser is used: every process imports this file.
if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Response

# A superuser, to go through the admin with.
STAFF = "eve"
PASSWORD = "correct horse battery staple"


# For a module and no longer: while it is there, a loop of events goes on in this thread, beside
# which tests cannot start one of theirs.
@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Chromium as the system has it."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        reason = "NOT RUN: the admin in a browser needs chromium (apt-get install chromium)"
        skip_or_fail(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def staff(system: System) -> str:
    """The name of a superuser of that server."""
    system.manage(
        "createsuperuser",
        "--noinput",
        environment={
            "DJANGO_SUPERUSER_USERNAME": STAFF,
            "DJANGO_SUPERUSER_EMAIL": f"{STAFF}@example.com",
            "DJANGO_SUPERUSER_PASSWORD": PASSWORD,
        },
    )
    return STAFF


@pytest.fixture
def page(browser: "Browser", system: System, staff: str) -> Iterator["Page"]:
    """The admin's front page, logged in; a page that fails or asks something fails the test."""
    trouble: list[str] = []
    with visitor(browser, system, trouble) as page:
        log_in(page, staff)
        yield page
    assert trouble == []


@contextmanager
def visitor(browser: "Browser", system: System, trouble: list[str]) -> Iterator["Page"]:
    """Open a page of somebody who is not logged in yet.

    What a page does that it must not is put into `trouble`: that it fails, asks something, or
    breaks the Content-Security-Policy.
    """
    from playwright.sync_api import expect

    def complain(message: "ConsoleMessage") -> None:
        if message.type == "error" and "favicon" not in str(message.location):
            trouble.append(message.text)

    def fail(response: "Response") -> None:
        if response.status >= 400 and not response.url.endswith("/favicon.ico"):
            trouble.append(f"{response.status} {response.url}")

    context = browser.new_context(base_url=system.base_url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(120_000)
    expect.set_options(timeout=120_000)
    context.add_init_script(
        "document.addEventListener('securitypolicyviolation', event =>"
        " console.error('violates ' + event.violatedDirective + ': ' + event.blockedURI))"
    )
    page = context.new_page()
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: trouble.append(dialog.message))
    page.on("console", complain)
    page.on("response", fail)
    try:
        yield page
    finally:
        context.close()


def follow(target: "Locator") -> None:
    """Click on what leads to a page, and wait until that is there, all of its scripts too.

    What is done next would else be done to the page before, or before a script listens.
    """
    with target.page.expect_navigation():
        target.click()


def log_in(page: "Page", name: str = STAFF) -> None:
    """Log in as one of the staff."""
    from playwright.sync_api import expect

    page.goto("/admin/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    follow(page.get_by_role("button", name="Log in"))
    expect(page.get_by_role("link", name="UaC: User as Code")).to_be_visible()

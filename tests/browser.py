"""The admin of a whole server, in a browser.

A conftest that imports the fixtures needs one named `system`.
"""

import datetime
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from benchmarks.harness import Client
from deploy.demo import person as sample
from deploy.embedded.system import System
from tests.docker_engine import skip_or_fail
from tests.system import DRUG_ALLERGY, Person, create_person, message
from tests.waiting import polled

# Playwright is imported only where a browser is used: every process imports this file.
if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Response

# A superuser who uses the admin.
STAFF = "eve"
PASSWORD = "correct horse battery staple"


# Only for a module: while it exists, an event loop runs in this thread, so that tests cannot start
# their own.
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
    create_staff(system)
    return STAFF


def create_staff(system: System) -> None:
    system.manage(
        "createsuperuser",
        "--noinput",
        environment={
            "DJANGO_SUPERUSER_USERNAME": STAFF,
            "DJANGO_SUPERUSER_EMAIL": f"{STAFF}@example.com",
            "DJANGO_SUPERUSER_PASSWORD": PASSWORD,
        },
    )


def create_maya(client: Client, said: str) -> Person:
    """Create a person with half a year of life, and a critical alert about a medicine."""
    person = create_person(client, "maya")
    life = sample.life(datetime.date(2026, 3, 1))
    person.log(*life.months)
    person.write_constraint("drug_allergy", DRUG_ALLERGY)
    person.log(life.prescription, message(said))
    polled(person.alerts, bool)
    return person


@pytest.fixture
def page(browser: "Browser", system: System, staff: str) -> Iterator["Page"]:
    """The admin's front page, logged in; a page error or a native dialog fails the test."""
    trouble: list[str] = []
    with visitor(browser, system, trouble) as page:
        log_in(page, staff)
        yield page
    assert not trouble, trouble


@contextmanager
def visitor(browser: "Browser", system: System, trouble: list[str]) -> Iterator["Page"]:
    """Open a page without logging in.

    Page errors, native dialogs, and breaches of the Content-Security-Policy are put into `trouble`.
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
    """Click on a link, and wait until its page is there, with all of its scripts.

    Otherwise the next step would act on the previous page, or before a script listens.
    """
    with target.page.expect_navigation():
        target.click()


def text_in(page: "Page", name: str) -> "Locator":
    """Return the field that the form sends, which the editor hides."""
    return page.locator(f"textarea[name={name}]")


def log_in(page: "Page", name: str = STAFF) -> None:
    """Log in as one of the staff."""
    from playwright.sync_api import expect

    page.goto("/admin/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    follow(page.get_by_role("button", name="Log in"))
    expect(page.get_by_role("link", name="UaC: User as Code")).to_be_visible()

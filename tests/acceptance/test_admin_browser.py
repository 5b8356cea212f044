"""The staff's way through the admin in a real browser: from an alert to what was said, and done."""

import datetime
import os
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.acceptance.conftest import Person, message, new_client, polled
from uac_site.demo import person as sample
from uac_site.embedded.system import System

STAFF = "eve"
PASSWORD = "correct horse battery staple"
MESSAGE = "Amoxicillin is a penicillin, and there is a severe penicillin allergy (hives)"
HOSTILE = '<script>document.title = "pwned"</script><img src=x onerror="alert(1)">\u202egnp.exe'


@pytest.fixture(scope="module")
def loaded(system: System) -> Person:
    """A person with half a year of life, and a critical alert about a medicine."""
    system.manage(
        "createsuperuser",
        "--noinput",
        environment={
            "DJANGO_SUPERUSER_USERNAME": STAFF,
            "DJANGO_SUPERUSER_EMAIL": "eve@example.com",
            "DJANGO_SUPERUSER_PASSWORD": PASSWORD,
        },
    )
    person = Person(new_client(system, "browser"), "maya")
    status, body = person.client.post("users/", {"user_id": person.user_id})
    assert status == 201, body
    life = sample.life(datetime.date(2026, 3, 1))
    [constraint] = [each for each in sample.constraints() if each.name == "drug_allergy"]
    person.log(*life.months)
    person.request(
        "PUT",
        "constraints/drug_allergy/?wait=30",
        {"source": constraint.source, "tests": constraint.tests},
        status=200,
    )
    person.log(life.prescription, message(HOSTILE))
    polled(person.alerts, bool)
    return person


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium as the system has it."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        reason = "NOT RUN: the admin in a browser needs chromium (apt-get install chromium)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, system: System, loaded: Person) -> Iterator[Page]:
    """The admin's front page, logged in; a page that fails or asks something fails the test."""
    context = browser.new_context(base_url=system.base_url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(20_000)
    page = context.new_page()
    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: trouble.append(dialog.message))
    page.on(
        "response",
        lambda response: (
            trouble.append(f"{response.status} {response.url}")
            if response.status >= 400 and not response.url.endswith("/favicon.ico")
            else None
        ),
    )
    page.goto("/admin/")
    page.get_by_label("Username").fill(STAFF)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("link", name="UaC: User as Code")).to_be_visible()
    yield page
    context.close()
    assert trouble == []


def colour(locator: Any) -> str:
    return str(locator.evaluate("element => getComputedStyle(element).backgroundColor"))


def test_from_the_front_page_three_clicks_lead_to_what_was_said(page: Page) -> None:
    page.locator("#content-main").get_by_role("link", name="Alerts", exact=True).click()
    row = page.get_by_role("row").filter(has_text=MESSAGE)
    expect(row.get_by_text("critical", exact=True)).to_be_visible()
    expect(row.get_by_text("open", exact=True)).to_be_visible()
    expect(row).to_contain_text("maya")
    expect(row).to_contain_text("drug_allergy")

    row.get_by_role("link", name=MESSAGE).click()
    expect(page.locator(".field-evidence_tree")).to_contain_text(
        "Medication amoxicillin in health.medications"
    )
    expect(page.locator(".field-evidence_tree")).to_contain_text("prescribed_by: Dr. Okafor")
    expect(page.locator(".field-rule")).to_contain_text("constraints/drug_allergy.py")
    expect(page.locator(".field-rule pre")).to_contain_text(
        "if allergy.drug_class and medication.drug_class == allergy.drug_class:"
    )

    evidence = page.locator(".field-evidence_tree li", has_text="amoxicillin in")
    evidence.get_by_role("link", name=re.compile(r"^#\d+$")).click()
    expect(page.get_by_role("heading", name="View log entry")).to_be_visible()
    expect(page.locator(".field-said")).to_contain_text('"name": "Amoxicillin"')
    expect(page.locator(".field-outcome")).to_contain_text("covered with v")

    page.get_by_role("link", name=MESSAGE).click()  # and back to the alert that cites it
    expect(page.get_by_role("heading", name="View alert")).to_be_visible()


def test_acknowledging_it_is_confirmed_shown_and_known_to_the_api(
    page: Page, loaded: Person
) -> None:
    page.goto("/admin/memory/alert/")
    row = page.get_by_role("row").filter(has_text=MESSAGE)
    row.get_by_role("checkbox").check()
    page.get_by_label("Action:").select_option("acknowledge")
    page.get_by_role("button", name="Go", exact=True).click()

    expect(page.locator(".messagelist")).to_have_text("1 alert acknowledged.")
    expect(row.get_by_text("acknowledged", exact=True)).to_be_visible()
    assert [alert["message"] for alert in loaded.alerts("acknowledged")] == [MESSAGE]
    assert loaded.alerts("open") == []

    row.get_by_role("link", name=MESSAGE).click()
    history = page.locator("#events-group")
    expect(history.get_by_role("row").filter(has_text="acknowledged")).to_contain_text(
        f"staff:{STAFF}"
    )
    expect(page.get_by_role("button", name="Acknowledge")).to_have_count(0)
    expect(page.get_by_role("button", name="Resolve")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_critical_alert_stands_out_in_either_scheme(page: Page, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto("/admin/memory/alert/")

    badge = page.get_by_role("row").filter(has_text=MESSAGE).get_by_text("critical", exact=True)
    assert colour(badge) == "rgb(179, 38, 30)"
    assert (
        colour(page.locator("body"))
        == {
            "light": "rgb(255, 255, 255)",
            "dark": "rgb(18, 18, 18)",
        }[scheme]
    )


def test_on_a_telephone_nothing_is_wider_than_the_screen(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto("/admin/memory/alert/")
    page.get_by_role("link", name=MESSAGE).click()

    expect(page.locator(".field-rule pre")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_what_a_person_said_does_not_act(page: Page) -> None:
    page.goto("/admin/memory/logentry/?kind__exact=message")
    entry = page.get_by_role("link").filter(has_text="document.title")
    expect(entry).to_have_text(
        '<script>document.title = "pwned"</script><img src=x onerror="alert(1)">\\u202egnp.exe'
    )
    expect(page).to_have_title("Select log entry to view | UaC")

    entry.click()
    expect(page.locator(".field-said")).to_contain_text("\\u202egnp.exe")
    expect(page).to_have_title(re.compile(r"View log entry \| UaC$"))
    assert page.locator(".readonly img, .readonly script").count() == 0

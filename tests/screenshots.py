"""`make screenshots`: the pictures of the README, from a server with the sample person.

They are taken light and dark, as a browser shows them, into docs/screenshots/.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Locator, Page, sync_playwright

from tests.browser import create_maya, create_staff, log_in
from tests.system import new_client, running_system

FOLDER = Path(__file__).parents[1] / "docs" / "screenshots"
SIZE = {"width": 1100, "height": 760}


def main() -> None:
    """Take all screenshots."""
    FOLDER.mkdir(exist_ok=True)
    with running_system() as system, sync_playwright() as playwright:
        create_staff(system)
        create_maya(new_client(system, "acme"), "I was at Dr. Okafor's: a sore throat.")
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        context = browser.new_context(base_url=system.base_url, viewport=SIZE)  # type: ignore[arg-type]
        page = context.new_page()
        log_in(page)
        walk(page)
        browser.close()


def walk(page: Page) -> None:
    """Go from the front page to the cause of the alert, and to the staff's other tasks."""
    taken(page, "home", lambda: page.goto("/admin/"))
    page.locator(".alerts, #content").get_by_role("link", name="1", exact=True).first.click()
    page.get_by_role("link", name="Amoxicillin is a penicillin").first.click()
    taken(page, "alert")
    page.locator(".field-evidence_tree").get_by_role("link", name="#").last.click()
    taken(page, "entry")
    page.goto("/admin/memory/memoryuser/")
    page.get_by_role("link", name="maya", exact=True).click()
    taken(page, "user")
    page.get_by_role("link", name="Query console").click()
    page.get_by_label("Query", exact=True).fill(
        "totals = Counter()\nfor one in expenses:\n"
        "    totals[one.category] += one.amount_cents // 100\ntotals"
    )
    page.get_by_role("button", name="Run", exact=True).click()
    result: Locator = page.get_by_role("region", name="Result")
    result.wait_for()
    taken(page, "console")


def taken(page: Page, name: str, go: Callable[[], object] = lambda: None) -> None:
    """Take a page in its current state, light and dark."""
    go()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.wait_for_timeout(300)
        page.screenshot(path=FOLDER / f"{name}-{scheme}.jpeg", type="jpeg", quality=72)


if __name__ == "__main__":
    main()

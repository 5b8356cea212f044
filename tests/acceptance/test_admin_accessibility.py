"""Accessibility of the admin's pages, by axe, in both themes."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from deploy.embedded.system import System
from tests.browser import create_maya, log_in
from tests.docker_engine import skip_or_fail
from tests.system import Person, new_client, ok

pytestmark = pytest.mark.extended

AXE = Path(__file__).parents[2] / "browser" / "node_modules" / "axe-core" / "axe.min.js"
LISTS = (
    *("alert", "pausedconstraint", "memoryuser", "logentry", "entryoutcome", "recordlocation"),
    *("run", "checkpoint", "workspaceconstraint", "backtest", "llmcall", "webhookendpoint"),
    *("delivery", "alarm", "lane", "pause", "workspace", "apikey", "staffaudit", "searchindex"),
)
# Lists whose first row's page is looked at.
ROWS = (
    *("alert", "logentry", "checkpoint", "run", "workspace", "apikey", "recordlocation"),
    "workspaceconstraint",
)
OTHERS = (
    *("/admin/", "/admin/auth/user/", "/admin/search/?q=amoxicillin"),
    *("/admin/memory/workspaceconstraint/add/", "/admin/account/factors/"),
)
OF_THE_USER = ("change", "day", "timeline", "console", "constraint")


@pytest.fixture(scope="module", autouse=True)
def loaded(system: System) -> Person:
    client = new_client(system, "accessible", "read", "write", "manage")
    ok(client.post("constraints/", {"library": "duplicate_payment"}))
    return create_maya(client, "I was at Dr. Okafor's: a sore throat.")


def pages(page: Page) -> Iterator[str]:
    """Yield the addresses of the pages."""
    yield from OTHERS
    for model in LISTS:
        yield f"/admin/memory/{model}/"
    for model in ROWS:
        yield first_row(page, model)
    user = first_row(page, "memoryuser", "?q=maya").partition("change/")[0]
    for name in OF_THE_USER:
        yield f"{user}{name}/"


def first_row(page: Page, model: str, query: str = "") -> str:
    """Return the address of the page of a list's first row."""
    page.goto(f"/admin/memory/{model}/{query}")
    found: list[str] = page.eval_on_selector_all(
        "#result_list a", "all => all.map(a => a.pathname)"
    )
    return next(one for one in found if re.search(rf"/{model}/[^/]+/change/$", one))


def violations(page: Page) -> list[str]:
    """Return what axe finds serious or critical on the page."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: Any = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{page.url}: {one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


def test_no_page_has_serious_violations_in_either_theme(
    browser: Browser, system: System, staff: str
) -> None:
    if not AXE.exists():
        skip_or_fail("NOT RUN: accessibility needs `npm ci` in browser/ (make test does it)")
    # axe styles elements in ways that the policy forbids.
    context = browser.new_context(base_url=system.base_url, bypass_csp=True)
    page = context.new_page()
    log_in(page, staff)
    found: list[str] = []
    addresses = list(pages(page))
    for address in addresses:
        page.goto(address)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            page.wait_for_timeout(100)
            found += [f"{scheme}: {one}" for one in violations(page)]

    context.close()
    assert len(addresses) >= 35
    assert found == []

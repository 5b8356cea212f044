"""The staff's way through the admin on a telephone and on other narrow screens."""

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from deploy.embedded.system import System
from tests.browser import create_maya
from tests.system import Person, new_client

PHONE = ViewportSize(width=390, height=844)
# The words of the elements that a selector finds which stand on more than one line.
BROKEN_WORDS = """selector => [...document.querySelectorAll(selector)].flatMap(element => {
    const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    const broken = [];
    while (texts.nextNode()) {
        for (const word of texts.currentNode.data.matchAll(/\\w+/g)) {
            const range = document.createRange();
            range.setStart(texts.currentNode, word.index);
            range.setEnd(texts.currentNode, word.index + word[0].length);
            if (new Set([...range.getClientRects()].map(one => one.top)).size > 1) {
                broken.push(word[0]);
            }
        }
    }
    return broken;
})"""


@pytest.fixture(scope="module", autouse=True)
def loaded(system: System) -> Person:
    return create_maya(new_client(system, "phone"), "I feel well.")


def right_of(page: Page, selector: str) -> float:
    """Return how far to the right the elements that are shown reach, in pixels."""
    edges = "all => Math.max(...all.map(one => one.getBoundingClientRect().right))"
    return float(page.locator(selector).evaluate_all(edges))


def test_history_of_an_alert_is_stacked_without_headings(page: Page) -> None:
    page.set_viewport_size(PHONE)
    page.goto("/admin/memory/alert/")
    address = page.locator("#result_list .field-headline a").first.get_attribute("href")
    page.goto(str(address))

    history = page.locator("#events-group")
    expect(history.get_by_text("severity: critical")).to_be_visible()
    expect(history.locator("thead")).to_be_hidden()
    assert right_of(page, "#events-group td") <= PHONE["width"]


def test_status_of_the_server_stands_below_the_headline(page: Page) -> None:
    page.set_viewport_size(PHONE)
    page.goto("/admin/")

    headline = page.locator("#now-heading").bounding_box()
    status = page.locator("#overview .server").bounding_box()
    assert headline is not None
    assert status is not None
    assert headline["y"] + headline["height"] <= status["y"]


def test_tables_of_the_front_page_keep_their_words_whole(page: Page) -> None:
    page.set_viewport_size(PHONE)
    page.goto("/admin/")

    expect(page.get_by_role("columnheader", name="threads")).to_be_visible()
    assert page.evaluate(BROKEN_WORDS, ".panel :is(thead th, td)") == []


@pytest.mark.parametrize("width", [900, 390])
def test_constraints_above_the_inbox_fade_where_they_are_cut(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/admin/memory/alert/")

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    mask = page.locator("nav.groups").evaluate("one => getComputedStyle(one).maskImage")
    assert mask != "none"

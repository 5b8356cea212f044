"""The staff's way through the admin in a real browser, once they have found the alert.

`tests/smoke` tests how they find it, and from there the entry behind it.
"""

import datetime
import re
import time
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from deploy.embedded.system import System
from tests.browser import PASSWORD, STAFF, create_maya, follow, text_in, visitor
from tests.system import LATE, Person, create_person, message, new_client, record, task
from tests.waiting import polled

MESSAGE = "Amoxicillin is a penicillin, and there is a severe penicillin allergy (hives)"
# Texts without a place to break a line at, for a browser that has no dictionary.
GERMAN = "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz" * 2
THAI = "การต่ออายุหนังสือเดินทางที่สถานทูตไทยประจำกรุงเบอร์ลินต้องทำให้เสร็จ" * 2
LONG = ((1, GERMAN), (2, THAI))
HOSTILE = '<script>document.title = "pwned"</script><img src=x onerror="alert(1)">\u202egnp.exe'


@pytest.fixture(scope="module", autouse=True)
def loaded(system: System) -> Person:
    return create_maya(new_client(system, "browser"), HOSTILE)


def width_of(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth"))


def open_alert(page: Page) -> None:
    """Go to the alert's own page; on a wide screen, a click opens it beside the list."""
    link = page.locator("#result_list").get_by_role("link", name=MESSAGE)
    page.goto(str(link.get_attribute("href")))


def colour(locator: Any) -> str:
    return str(locator.evaluate("element => getComputedStyle(element).backgroundColor"))


def test_the_front_page_begins_with_the_worst_open_alert(page: Page) -> None:
    page.goto("/admin/")

    band = page.locator("#overview section.band")
    expect(band.get_by_role("heading")).to_have_text("1 critical alert open")
    assert "bad" in str(band.get_attribute("class"))
    expect(band).to_contain_text(MESSAGE)
    expect(band).to_contain_text("open for")
    expect(band.get_by_role("button", name="Acknowledge")).to_be_visible()
    expect(page.locator("#user-tools")).to_contain_text("sees all workspaces")


def test_slash_searches_everything(page: Page) -> None:
    page.goto("/admin/memory/run/")
    page.locator("body").press("/")
    expect(page.get_by_role("searchbox", name="Search users, alerts")).to_be_focused()
    page.keyboard.type("amoxicillin")
    with page.expect_navigation():
        page.keyboard.press("Enter")

    expect(page.get_by_role("link", name=MESSAGE)).to_be_visible()
    for kind in ("Records", "Log entries"):
        links = page.locator(f"h2:text-is('{kind}') + ul.lines").get_by_role("link")
        expect(links.first).to_be_visible()


def test_enter_in_a_reason_does_nothing(page: Page, loaded: Person) -> None:
    page.goto("/admin/memory/alert/")
    open_alert(page)
    page.get_by_text("Snooze", exact=True).click()
    reason = page.locator(".menu").filter(has_text="Snooze").get_by_label("Reason")
    reason.fill("seen")
    reason.press("Enter")

    expect(page.locator(".messagelist")).to_have_count(0)
    expect(reason).to_have_value("seen")
    assert [alert["message"] for alert in loaded.alerts("open")] == [MESSAGE]


def test_acknowledgement_is_confirmed_and_reaches_the_api(page: Page, loaded: Person) -> None:
    page.goto("/admin/memory/alert/")
    row = page.get_by_role("row").filter(has_text=MESSAGE)
    row.get_by_role("checkbox").check()
    page.get_by_label("Action:").select_option("acknowledge")
    follow(page.get_by_role("button", name="Go", exact=True))

    expect(page.locator(".messagelist")).to_contain_text("1 alert acknowledged.")
    expect(row.get_by_text("acknowledged", exact=True)).to_be_visible()
    assert [alert["message"] for alert in loaded.alerts("acknowledged")] == [MESSAGE]
    assert loaded.alerts("open") == []

    open_alert(page)
    history = page.locator("#events-group")
    expect(history.get_by_role("row").filter(has_text="acknowledged")).to_contain_text(
        f"staff:{STAFF}"
    )
    expect(page.get_by_role("button", name="Acknowledge")).to_be_disabled()
    expect(page.get_by_role("button", name="Resolve")).to_be_enabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_critical_alert_stands_out_in_either_scheme(page: Page, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto("/admin/memory/alert/")

    badge = page.get_by_role("row").filter(has_text=MESSAGE).get_by_text("critical", exact=True)
    assert colour(badge) == "rgb(179, 38, 30)"
    grounds = {"light": "rgb(255, 255, 255)", "dark": "rgb(18, 18, 18)"}
    assert colour(page.locator("body")) == grounds[scheme]


def test_on_a_telephone_nothing_is_wider_than_the_screen(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto("/admin/memory/alert/")
    open_alert(page)

    page.locator(".field-rule summary").first.click()
    expect(page.locator(".field-rule pre").first).to_be_visible()
    assert width_of(page) <= 390
    follow(page.locator(".field-evidence_tree").get_by_role("link", name="Medication amoxicillin"))
    expect(page.locator("table.fields")).to_be_visible()
    assert width_of(page) <= 390


def test_the_statement_that_made_an_alert_needs_no_scrolling_of_its_box(page: Page) -> None:
    page.goto("/admin/memory/alert/")
    open_alert(page)

    box = page.locator(".field-rule pre").first
    expect(box).to_be_hidden()
    page.get_by_text("Raised on").click()
    assert box.evaluate("box => box.scrollHeight <= box.clientHeight")
    marked = box.locator("mark")
    expect(marked).to_have_count(5)  # from `yield critical(` to its closing bracket
    expect(marked.first).to_contain_text("yield critical(")
    whole = page.locator(".field-rule details details pre")
    expect(whole).to_be_hidden()
    page.get_by_text("Full source").click()
    expect(whole).to_contain_text("def check(today")


def is_on_screen(cell: Any) -> bool:
    """Return whether a cell is visible without scrolling the page, or a box in it, sideways."""
    return bool(
        cell.evaluate(
            """cell => {
                const place = cell.getBoundingClientRect();
                let right = window.innerWidth;
                for (let box = cell.parentElement; box; box = box.parentElement) {
                    if (getComputedStyle(box).overflowX !== 'visible') {
                        right = Math.min(right, box.getBoundingClientRect().right);
                    }
                }
                return place.width > 0 && place.left >= 0 && place.right <= right + 1;
            }"""
        )
    )


@pytest.mark.parametrize(
    ("address", "cells"),
    [
        (
            "/admin/memory/alert/",
            [f"#result_list .field-{name}" for name in ("level", "standing", "about")],
        ),
        (
            "/admin/memory/alarm/work/",
            [f"table.work thead th:nth-child({number})" for number in (1, 3, 5, 6, 7)],
        ),
        (
            "",
            [
                "section[aria-labelledby=cost-heading] tbody td:last-child",
                ".panel.known td[data-label=reaction]",
                ".panel.known td[data-label=sources]",
            ],
        ),
    ],
    ids=["alerts", "work", "user"],
)
def test_on_a_telephone_what_matters_is_on_the_screen(
    page: Page, loaded: Person, address: str, cells: list[str]
) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    if address:
        page.goto(address)
    else:
        of_the_user(page, loaded)

    for cell in cells:
        assert is_on_screen(page.locator(cell).first), cell


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_entry_outcomes_have_their_colours(page: Page, loaded: Person, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    of_the_user(page, loaded)

    bar = page.locator("svg.bar rect.good").first
    assert bar.evaluate("part => getComputedStyle(part).fill") == "rgb(63, 157, 90)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_chosen_period_can_be_read(page: Page, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto("/admin/")

    chosen = page.locator(".periods a[aria-current]")
    letters = chosen.evaluate("link => getComputedStyle(link).color")
    assert contrast(letters, colour(chosen)) >= 4.5


def contrast(*colours: str) -> float:
    """Return the contrast of two colours, as browsers write them (WCAG)."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted(map(luminance, colours))
    return (lighter + 0.05) / (darker + 0.05)


def test_hostile_message_does_not_act(page: Page) -> None:
    page.goto("/admin/memory/logentry/?kind__exact=message")
    entry = page.get_by_role("link").filter(has_text="document.title")
    expect(entry).to_have_text(
        '<script>document.title = "pwned"</script><img src=x onerror="alert(1)">\\u202egnp.exe'
    )
    expect(page).to_have_title("Log entries | UaC")

    follow(entry)
    expect(page.locator(".field-content_and_data")).to_contain_text("\\u202egnp.exe")
    expect(page).to_have_title(re.compile(r"Log entry \| UaC$"))
    assert page.locator(".readonly img, .readonly script").count() == 0


def open_console(page: Page) -> None:
    page.goto("/admin/memory/memoryuser/")
    follow(page.get_by_role("link", name="maya", exact=True))
    follow(page.get_by_role("link", name="Query console"))


def test_a_query_is_written_and_run_by_keyboard_alone(page: Page) -> None:
    open_console(page)
    query = page.get_by_label("Query", exact=True)
    sent = text_in(page, "code")
    query.focus()
    page.keyboard.type("names = []\nfor one in medications:\nnames.append(one.name)")
    expect(sent).to_have_value("names = []\nfor one in medications:\n    names.append(one.name)")
    query.fill("if True:")
    page.keyboard.press("Tab")
    expect(sent).to_have_value("    if True:")
    page.keyboard.press("Control+z")
    expect(sent).not_to_have_value("    if True:")
    page.keyboard.press("Control+y")
    expect(sent).to_have_value("    if True:")

    # nobody is caught in the field
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(page.get_by_label("As of")).to_be_focused()

    query.fill("Counter(one.drug_class for one in medications)")
    query.press("Control+Enter")
    result = page.get_by_role("region", name="Result")
    expect(result.get_by_role("row").filter(has_text="penicillin")).to_contain_text("1")
    expect(result.locator("svg.bar").first).to_be_visible()
    history = page.get_by_role("region", name="Your latest queries")
    expect(history.get_by_role("link")).to_have_text(
        ["Counter(one.drug_class for one in medications)"]
    )


def test_names_are_completed_and_the_failed_line_is_marked(page: Page) -> None:
    open_console(page)
    query = page.get_by_label("Query", exact=True)
    query.press_sequentially("1 / 0 + len(medic")
    expect(page.get_by_role("option", name="medications")).to_be_visible()
    page.wait_for_timeout(200)  # the editor takes no completion in its first moment
    page.keyboard.press("Enter")
    expect(text_in(page, "code")).to_have_value("1 / 0 + len(medications")
    query.press_sequentially(" + health.")
    expect(page.get_by_role("option", name="allergies")).to_be_visible()
    expect(page.get_by_role("option", name="drug_class")).to_have_count(0)
    expect(page.get_by_role("option", name="__debug__")).to_have_count(0)
    for _ in " + health.":
        query.press("Backspace")
    query.press_sequentially(")")
    query.press("Control+Enter")

    expect(page.get_by_role("region", name="Result")).to_contain_text("ZeroDivisionError")
    expect(page.locator(".editor .cm-lint-marker-error")).to_have_count(1)


def test_text_typed_during_a_query_is_kept(page: Page) -> None:
    """A page of unfinished work reloads itself, unless somebody is typing on it."""
    seconds = 3000

    def answer(route: Any) -> None:
        response = route.fetch()
        note = f'<span data-again="{seconds}" data-address="?look=1">this page reloads in'
        begin = '<div class="console">'
        note += " a moment</span>"
        route.fulfill(response=response, body=response.text().replace(begin, begin + note))

    page.clock.install()
    open_console(page)
    page.route("**/console/*", answer)
    page.reload()
    query = page.get_by_label("Query", exact=True)
    query.press_sequentially("len(medications)")
    page.clock.run_for((seconds + 60) * 1000)
    expect(page.get_by_text("reload this page to check again")).to_be_visible()
    expect(text_in(page, "code")).to_have_value("len(medications)")
    assert "look" not in page.url

    seconds = 2
    page.reload()
    expect(page.get_by_text("this page reloads in")).to_be_visible()
    page.clock.run_for(2_000)
    page.wait_for_url("**/console/?look=1")


def test_query_is_asked_without_script(browser: Browser, page: Page, system: System) -> None:
    context = browser.new_context(
        base_url=system.base_url,
        java_script_enabled=False,
        storage_state=page.context.storage_state(),
    )
    bare = context.new_page()
    open_console(bare)
    bare.get_by_label("Query", exact=True).fill("len(medications)")
    follow(bare.get_by_role("button", name="Run", exact=True))

    expect(bare.locator("p.answer")).to_have_text(re.compile(r"^\d+$"))
    context.close()


def test_a_project_is_browsed_from_a_file_to_what_was_said(page: Page, loaded: Person) -> None:
    of_the_user(page, loaded)
    follow(page.get_by_role("link", name="Project, file by file"))
    health = page.locator("ul.files li", has=page.get_by_text("health/", exact=True)).last
    follow(health.get_by_role("link", name="state.py"))
    expect(page.get_by_role("heading", name="domains/health/state.py")).to_be_visible()
    expect(page.get_by_role("button", name="Show", exact=True)).to_have_css("padding", "6px 14px")
    for scheme, ground in (("light", "rgb(248, 248, 248)"), ("dark", "rgb(33, 33, 33)")):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert colour(page.locator("pre.code")) == ground
    page.set_viewport_size({"width": 390, "height": 800})
    assert width_of(page) <= 390

    follow(page.locator("pre.code a").first)
    expect(page.get_by_role("heading", name="Log entry")).to_be_visible()


def place_of(block: Locator, text: str) -> float:
    """Return how far from the left a text in a block begins."""
    place: float = block.evaluate(
        """(block, text) => {
            const nodes = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
            while (nodes.nextNode()) {
                const at = nodes.currentNode.data.indexOf(text);
                if (at < 0) continue;
                const range = document.createRange();
                range.setStart(nodes.currentNode, at);
                range.setEnd(nodes.currentNode, at + 1);
                return range.getBoundingClientRect().x;
            }
        }""",
        text,
    )
    return place


def test_texts_from_right_to_left_keep_their_direction_and_order(
    page: Page, system: System
) -> None:
    person = create_person(new_client(system, "right to left"), "maryam")
    thanks = {**message("شكرا!\nOK."), "metadata": {"قناة": "واتساب AB-12"}}
    person.log(thanks, record("Task", "a", domain="work", names=["أول", "ثان", "ثالث"]))

    page.goto("/admin/memory/logentry/?q=maryam&kind__exact=message")
    follow(page.locator("#result_list tbody a").first)
    said = page.locator("pre.block", has_text="شكرا")
    assert place_of(said, "!") < place_of(said, "ش")
    assert place_of(said, "O") < place_of(said, ".")
    metadata = page.locator("pre.block", has_text="قناة")
    assert place_of(metadata, "قناة") < place_of(metadata, "AB-12")

    of_the_user(page, person)
    follow(page.get_by_role("link", name="Project, file by file"))
    work = page.locator("ul.files li", has=page.get_by_text("work/", exact=True)).last
    follow(work.get_by_role("link", name="state.py"))
    code = page.locator("pre.code")
    assert place_of(code, "أول") < place_of(code, "ثان") < place_of(code, "ثالث")


@pytest.mark.parametrize("width", [390, 1280])
def test_long_words_in_any_script_make_no_page_wider(
    page: Page, system: System, width: int
) -> None:
    client = new_client(system, f"long words {width}")
    person = create_person(client, f"long-{width}", metadata={"word": GERMAN, "sentence": THAI})
    person.log(message(GERMAN), message(THAI))
    person.log(*(record("Task", str(n), domain="work", name=text, days=1) for n, text in LONG))
    person.write_constraint("late", LATE)
    polled(lambda: person.alerts("open"), lambda alerts: len(alerts) == len(LONG))

    page.set_viewport_size({"width": width, "height": 900})
    for name in ("alert", "logentry", "memoryuser"):
        page.goto(f"/admin/memory/{name}/?q={person.user_id}")
        assert width_of(page) <= width, name
    of_the_user(page, person)
    assert width_of(page) <= width
    page.goto(f"/admin/memory/alert/?q={person.user_id}")
    link = page.locator("#result_list").get_by_role("link", name=GERMAN).first
    page.goto(str(link.get_attribute("href")))  # a click opens it beside the list
    assert width_of(page) <= width


# -- The front page, and the page of a user ------------------------------------------------------


def test_the_front_page_draws_what_went_on_and_leads_to_it(page: Page) -> None:
    page.goto("/admin/")
    panel = page.locator("section", has=page.get_by_role("heading", name="Gate decisions"))
    bar = panel.locator(".chart a").last
    assert panel.locator(".chart rect.good").count() >= 1

    with page.expect_navigation():
        bar.click()
    expect(page.get_by_role("heading", name="Versions", exact=True)).to_be_visible()

    page.goto("/admin/")
    panel.get_by_text("As a table").click()
    number = panel.locator("tbody a").first
    expected = number.inner_text()
    follow(number)
    expect(page.locator(".paginator")).to_contain_text(f"{expected} version")


def test_charts_follow_the_theme(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    page.goto("/admin/")
    swatch = page.locator(".chart .swatch.plain").first
    assert colour(swatch) == "rgb(163, 163, 163)"
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    assert colour(swatch) == "rgb(125, 125, 125)"


def of_the_user(page: Page, loaded: Person) -> None:
    page.goto(f"/admin/memory/memoryuser/?q={loaded.user_id}")
    follow(page.locator("#result_list").get_by_role("link", name=loaded.user_id, exact=True))


def test_time_bar_shows_past_days_and_the_forecast(page: Page, loaded: Person) -> None:
    polled(lambda: loaded.get("forecast/")["known_until"], bool)
    of_the_user(page, loaded)
    slider = page.get_by_role("slider", name="Day")
    day = page.locator("#day")
    expect(day.get_by_role("heading", name="What we know", exact=True)).to_be_visible()

    slider.press("End")
    expect(day.get_by_role("region", name="Forecast until")).to_be_visible()
    last = page.get_by_label("Day", exact=True).last.input_value()
    assert slider.get_attribute("aria-valuetext") == last

    slider.press("Home")
    expect(day.get_by_role("heading", name="What we knew")).to_be_visible()
    expect(day.get_by_role("region", name="Live alerts on this day")).to_contain_text(MESSAGE)
    expect(day.get_by_role("region", name="Files")).to_contain_text("domains/health/state.py")


def test_the_time_line_is_filtered_by_checkboxes(page: Page, loaded: Person) -> None:
    of_the_user(page, loaded)
    follow(page.get_by_role("link", name="The whole timeline"))
    for kind in ("entries", "versions", "runs"):
        page.get_by_role("checkbox", name=kind, exact=True).uncheck()
    follow(page.get_by_role("button", name="Show", exact=True))

    expect(page.locator(".moment.entries")).to_have_count(0)
    follow(page.locator(".moment.alerts").get_by_role("link", name=MESSAGE).first)
    expect(page.get_by_role("heading", name=re.compile("^Critical · "))).to_be_visible()


def test_progress_is_shown_until_done(page: Page, loaded: Person) -> None:
    """The page polls repeatedly, and stops once no work is in progress."""
    asked: list[bool] = []
    working = True

    def answer(route: Any) -> None:
        asked.append(working)
        text = "Typed records: in progress." if working else "Nothing is being processed."
        route.fulfill(json={"text": text, "working": working})

    def begun(route: Any) -> None:
        response = route.fetch()
        body = response.text().replace('data-working="0"', 'data-working="1"')
        route.fulfill(response=response, body=body)

    page.route("**/memoryuser/*/progress/", answer)
    page.route("**/memoryuser/*/change/*", begun)
    of_the_user(page, loaded)
    status = page.get_by_role("status")
    expect(status).to_have_attribute("aria-live", "polite")

    expect(status).to_have_text("Typed records: in progress.")
    working = False
    expect(status).to_have_text("Nothing is being processed.")
    expect(page.get_by_role("link", name="Reload the page")).to_be_visible()
    assert asked.count(False) == 1


def test_on_a_telephone_the_new_pages_fit(page: Page, loaded: Person) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto("/admin/")
    assert width_of(page) <= 390
    of_the_user(page, loaded)
    assert width_of(page) <= 390
    follow(page.get_by_role("link", name="The whole timeline"))
    assert width_of(page) <= 390


@pytest.mark.extended
def test_staff_sign_in_with_a_passkey_that_they_added(
    browser: "Browser", system: System, staff: str
) -> None:
    from playwright.sync_api import expect

    trouble: list[str] = []
    with visitor(browser, system, trouble) as page:
        at = system.base_url.replace("127.0.0.1", "localhost")  # passkeys need a name
        page.goto(f"{at}/admin/")
        page.get_by_label("Username").fill(staff)
        page.get_by_label("Password").fill(PASSWORD)
        follow(page.get_by_role("button", name="Log in"))
        devices = page.context.new_cdp_session(page)
        devices.send("WebAuthn.enable")
        options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True}
        verified = {"hasUserVerification": True, "isUserVerified": True}
        present = {"automaticPresenceSimulation": True}
        device = {"options": options | verified | present}
        devices.send("WebAuthn.addVirtualAuthenticator", device)
        follow(page.get_by_role("link", name="Sign-in"))
        follow(page.get_by_role("link", name="Add"))
        page.get_by_label("Name").fill("laptop")
        page.get_by_label("Passwordless").check()
        follow(page.get_by_role("button", name="Add"))
        expect(page.get_by_role("navigation", name="Rooms")).to_be_visible()
        follow(page.get_by_role("button", name="Log out"))

        page.goto(f"{at}/admin/login/?next=/admin/memory/alert/")
        follow(page.get_by_role("button", name="Use a passkey"))

        expect(page).to_have_url(f"{at}/admin/memory/alert/")
    assert not trouble, trouble
    system.manage(
        "shell",
        "-c",
        f"""
from allauth.mfa.models import Authenticator
Authenticator.objects.filter(user__username={staff!r}).delete()
""",
    )


# -- Slips, and an ended session -----------------------------------------------------------------


def test_after_an_act_the_pointer_rests_on_the_same_button_and_the_message_undoes_it(
    page: Page, loaded: Person
) -> None:
    page.goto("/admin/memory/alert/")
    open_alert(page)
    button = page.get_by_role("button", name="Reopen")
    if button.is_enabled():
        follow(button)
    button = page.get_by_role("button", name="Acknowledge")
    place = button.bounding_box()
    follow(button)

    assert button.bounding_box() == place
    expect(button).to_be_disabled()
    follow(page.get_by_role("button", name="Undo"))
    expect(button).to_be_enabled()
    assert [alert["message"] for alert in loaded.alerts("open")] == [MESSAGE]


@pytest.mark.parametrize("width", [768, 800, 1024])
def test_between_telephone_and_desk_nothing_covers_the_severity(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/admin/memory/alert/")
    badge = page.get_by_role("row").filter(has_text=MESSAGE).get_by_text("critical", exact=True)
    badge.scroll_into_view_if_needed()

    assert badge.evaluate(
        """badge => {
            const box = badge.getBoundingClientRect();
            const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
            return top === badge && getComputedStyle(badge).opacity === '1';
        }"""
    )


def test_on_paper_there_are_no_forms_and_no_source(page: Page) -> None:
    page.goto("/admin/memory/alert/")
    open_alert(page)
    page.emulate_media(media="print")

    expect(page.locator(".object-tools")).to_be_hidden()
    expect(page.locator("#rail")).to_be_hidden()
    expect(page.locator(".field-rule p").first).to_be_visible()
    expect(page.locator(".field-rule pre").first).to_be_hidden()
    expect(page.get_by_text("Times and run")).to_be_hidden()
    expect(page.locator(".printed")).to_contain_text(f"Printed by {STAFF}")
    badge = page.locator("#content").get_by_text("critical", exact=True).first
    assert badge.evaluate("badge => getComputedStyle(badge).borderTopWidth") == "2px"


def test_an_act_after_the_end_of_the_session_is_offered_after_the_login(
    page: Page, loaded: Person, system: System
) -> None:
    page.goto("/admin/memory/alert/")
    open_alert(page)
    # The browser still has the cookie of a session that has ended.
    [cookie] = [one for one in page.context.cookies() if one.get("name") == "sessionid"]
    assert cookie.get("expires") == -1
    with psycopg.connect(system.services.postgres.owner_url) as database:
        database.execute("UPDATE django_session SET expire_date = now() - interval '1 minute'")
    follow(page.get_by_role("button", name="Acknowledge"))
    expect(page.get_by_text("your session has ended")).to_be_visible()
    page.get_by_label("Username").fill(STAFF)
    page.get_by_label("Password").fill(PASSWORD)
    follow(page.get_by_role("button", name="Log in"))
    expect(page.get_by_text("your session had ended")).to_be_visible()
    follow(page.get_by_role("button", name="Acknowledge now"))

    expect(page.locator(".messagelist")).to_contain_text("1 alert acknowledged.")
    assert [alert["message"] for alert in loaded.alerts("acknowledged")] == [MESSAGE]


def test_a_snooze_ends_in_the_time_zone_of_the_reader(
    browser: Browser, page: Page, loaded: Person, system: System
) -> None:
    context = browser.new_context(
        base_url=system.base_url,
        timezone_id="Asia/Tokyo",
        storage_state=page.context.storage_state(),
    )
    hers = context.new_page()
    hers.goto("/admin/memory/alert/")
    open_alert(hers)
    hers.get_by_text("Snooze", exact=True).click()
    menu = hers.locator(".menu").filter(has_text="Snooze")
    day = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=3)
    menu.get_by_label("Until (Asia/Tokyo)").fill(f"{day}T09:00")
    follow(menu.get_by_role("button", name="Snooze until", exact=True))

    [alert] = loaded.alerts("snoozed")
    assert alert["snoozed_until"].startswith(f"{day}T00:00:00")
    follow(hers.get_by_role("button", name="Reopen"))
    context.close()


def delay(route: Route) -> None:
    time.sleep(0.5)
    route.continue_()


@pytest.mark.parametrize(("width", "height", "most"), [(1440, 900, 240), (390, 844, 380)])
def test_the_inbox_begins_with_alerts(page: Page, width: int, height: int, most: int) -> None:
    page.set_viewport_size({"width": width, "height": height})
    page.goto("/admin/memory/alert/")

    first = page.locator("#result_list tbody tr").first.bounding_box()
    assert first is not None
    assert first["y"] <= most
    assert is_on_screen(page.get_by_role("button", name="Go", exact=True))
    if width >= 1200:
        page.locator("#action-toggle").check()
        expect(page.locator("#result_list tbody input:checked")).not_to_have_count(0)


def test_one_button_of_an_alert_stands_out(page: Page) -> None:
    page.goto("/admin/memory/alert/")
    open_alert(page)

    tools = page.locator(".object-tools > li")
    buttons = tools.locator("> form > .button:enabled").or_(tools.locator("summary:not(.idle)"))
    grounds = [colour(one) for one in buttons.all()]
    assert len(grounds) >= 4
    assert sum(ground != "rgba(0, 0, 0, 0)" for ground in grounds) <= 1


def test_keys_wait_for_the_alert_and_escape_closes_a_menu(page: Page, loaded: Person) -> None:
    page.set_viewport_size({"width": 1600, "height": 900})
    page.goto("/admin/memory/alert/")
    chosen = page.get_by_role("complementary", name="The chosen alert")
    row = page.get_by_role("row").filter(has_text=MESSAGE)
    # The page of the alert is slower than the keys.
    page.route("**/alert/*/change/**", delay)
    page.keyboard.press("j")
    page.keyboard.press("a")

    expect(row.locator(".field-standing")).to_have_text(re.compile("acknowledged"))
    page.keyboard.press("n")
    note = chosen.get_by_label("Note")
    expect(note).to_be_focused()
    page.keyboard.press("Escape")
    expect(note).to_be_hidden()


def test_a_note_that_is_sent_twice_is_stored_once(page: Page, loaded: Person) -> None:
    page.set_viewport_size({"width": 1600, "height": 900})
    page.goto("/admin/memory/alert/")
    page.keyboard.press("j")
    chosen = page.get_by_role("complementary", name="The chosen alert")
    expect(chosen.get_by_role("heading", name=MESSAGE)).to_be_visible()
    page.route("**/admin/memory/alert/", delay)
    page.keyboard.press("n")
    page.keyboard.type("asked the pharmacy")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")

    expect(chosen.get_by_text("asked the pharmacy")).to_have_count(1)
    page.reload()
    page.keyboard.press("j")
    expect(chosen.get_by_text("asked the pharmacy")).to_have_count(1)


@pytest.mark.parametrize("width", [390, 1440])
def test_no_menu_of_an_alert_is_cut_off(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/admin/memory/alert/")
    if width < 1200:
        open_alert(page)
    else:
        page.keyboard.press("j")
    place = page.locator("#inbox" if width >= 1200 else "#content")
    for name in ("Snooze", "Rate", "Note", "Owner"):
        button = place.locator("summary").filter(has_text=name)
        button.click()
        menu = place.locator(".menu details[open] form")
        expect(menu).to_be_visible()
        box, around = menu.bounding_box(), place.bounding_box()
        assert box is not None
        assert around is not None
        assert around["x"] <= box["x"]
        assert box["x"] + box["width"] <= around["x"] + around["width"]
        button.click()  # the menu may cover the next one


def test_alerts_are_sorted_out_by_keys_beside_the_list(page: Page, loaded: Person) -> None:
    page.set_viewport_size({"width": 1600, "height": 900})
    page.goto("/admin/memory/alert/")
    page.keyboard.press("j")
    chosen = page.get_by_role("complementary", name="The chosen alert")
    expect(chosen.get_by_role("heading", name=MESSAGE)).to_be_visible()
    row = page.get_by_role("row").filter(has_text=MESSAGE)
    if chosen.get_by_role("button", name="Reopen").is_enabled():
        chosen.get_by_role("button", name="Reopen").click()
        expect(row.locator(".field-standing")).to_have_text(re.compile("open"))
    expect(row.locator(".field-about")).to_have_text(re.compile("escalates in"))
    page.keyboard.press("a")

    expect(row.locator(".field-standing")).to_have_text(re.compile("acknowledged"))
    expect(row.locator(".field-about")).not_to_have_text(re.compile("escalates in"))
    assert [alert["message"] for alert in loaded.alerts("acknowledged")] == [MESSAGE]
    page.keyboard.press("n")
    page.keyboard.type("called the doctor")
    page.keyboard.press("Enter")
    expect(chosen.get_by_text("called the doctor")).to_be_visible()
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_in_viewport(ratio=1)
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_hidden()
    assert re.match(r"\(\d+\) Alerts", page.title())

    page.keyboard.press("r")
    expect(chosen.get_by_label("Reason (")).to_be_focused()
    page.keyboard.press("Escape")
    expect(chosen.get_by_role("heading", name=MESSAGE)).to_be_visible()
    page.keyboard.press("r")
    expect(chosen.get_by_label("Reason (")).to_be_focused()
    page.keyboard.type("the doctor knows: all fine")
    page.keyboard.press("Enter")
    expect(row.locator(".field-standing")).to_have_text(re.compile("resolved"))
    expect(chosen.get_by_text("the doctor knows: all fine")).to_be_visible()
    chosen.get_by_role("button", name="Reopen").click()
    expect(row.locator(".field-standing")).to_have_text(re.compile("open"))


@pytest.mark.parametrize("width", [390, 1000, 1300])
def test_no_part_of_an_alert_is_wider_than_the_list(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/admin/memory/alert/")
    page.keyboard.press("j")
    if width >= 1200:
        expect(page.get_by_role("complementary", name="The chosen alert")).to_be_visible()
    box = page.locator("#result_list").bounding_box()
    assert box is not None
    for part in page.locator("#result_list tbody :is(.field-headline a, .field-about span)").all():
        place = part.bounding_box()
        assert place is not None
        assert place["x"] + place["width"] <= box["x"] + box["width"]


def test_one_key_acknowledges_and_goes_on_and_the_message_undoes_it(
    page: Page, system: System
) -> None:
    person = create_person(new_client(system, "keys"), "busy")
    person.log(task("report", 0))
    person.write_constraint("late", LATE)
    person.log(task("report", 3), task("talk", 2))
    polled(lambda: person.alerts("open"), lambda found: len(found) == 2)
    page.goto("/admin/memory/alert/?q=busy")
    rows = page.locator("#result_list tbody tr")
    page.keyboard.press("j")
    chosen = page.get_by_role("complementary", name="The chosen alert")
    expect(chosen.get_by_role("button", name="Acknowledge")).to_be_enabled()

    page.keyboard.press("A")
    expect(rows.nth(1)).to_have_class(re.compile("chosen"))
    expect(rows.nth(0).locator(".field-standing")).to_have_text(re.compile("acknowledged"))
    expect(chosen.get_by_role("button", name="Acknowledge")).to_be_enabled()
    chosen.get_by_role("button", name="Undo").click()

    expect(rows.nth(0).locator(".field-standing")).to_have_text(re.compile("open"))
    expect(rows.nth(0)).to_have_class(re.compile("chosen"))
    expect(rows.nth(1).locator(".field-standing")).to_have_text(re.compile("open"))

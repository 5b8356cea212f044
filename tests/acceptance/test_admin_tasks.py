"""The staff's tasks on each admin page, in a real browser: they work, and the API shows them."""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.browser import PASSWORD, follow, log_in, text_in, visitor
from tests.chaos import rules
from tests.system import EVERYTHING, LATE, create_person, message, new_client, ok, record
from tests.waiting import polled, scaled
from tests.webhook_receiver import receiver

# A run that failed permanently, as after its worker died again and again.
GIVEN_UP = """
from django.utils import timezone
from memory.versions.models.runs import Run
Run.objects.filter(pk={run!r}).update(
    outcome="abandoned", output=None, last_error="killed", dead_since=timezone.now()
)
"""


@pytest.fixture(scope="module")
def manager(system: System) -> Client:
    """A caller who may do everything, in a workspace of these tests."""
    return new_client(system, "tasks", *EVERYTHING)


def task(key: str, days: int) -> dict[str, Any]:
    return record("Task", key, domain="work", name=f"task {key}", days=days)


def open_row(page: Page, model: str, search: str, name: str | re.Pattern[str]) -> None:
    """Go to the page of a row, by the search of its list."""
    page.goto(f"/admin/memory/{model}/?q={search}")
    follow(page.locator("#result_list").get_by_role("link", name=name, exact=True).first)
    expect(page.locator("#content h1")).to_be_visible()


def act(page: Page, name: str, note: str = "", menu: str = "") -> None:
    """Run an action on the page of a row, which may be in a menu."""
    tools = page.locator(".object-tools")
    if menu:
        tools = tools.locator(".menu").filter(has_text=menu)
        tools.locator("summary").click()
    if note:
        tools.locator("[name=note]").fill(note)
    follow(tools.get_by_role("button", name=re.compile(f"^{name}…?$")))


def confirm(page: Page, name: str) -> None:
    follow(page.locator(".confirm").get_by_role("button", name=name, exact=True))


def save(page: Page) -> None:
    follow(page.get_by_role("button", name="Save", exact=True))


def said(page: Page, text: str | re.Pattern[str]) -> None:
    """Expect the page's message about what was done to contain the text."""
    expect(page.locator(".messagelist")).to_contain_text(text)


# -- Workspaces and their keys -------------------------------------------------------------------


def test_key_works_from_creation_to_revocation(page: Page, system: System, manager: Client) -> None:
    page.goto("/admin/memory/apikey/add/")
    page.get_by_label("Workspace:").select_option("tasks")
    page.get_by_label("Name:").fill("backend of the shop")
    save(page)
    secret = page.locator(".messagelist .secret").inner_text()
    caller = Client(system.base_url, secret)
    assert caller.get("users/")[0] == 200

    open_row(page, "apikey", "shop", "backend of the shop")
    assert secret not in page.content()
    expect(page.locator(".field-standing")).to_contain_text("valid")
    act(page, "Revoke")
    confirm(page, "Revoke")

    said(page, "1 key revoked.")
    expect(page.locator(".field-standing")).to_contain_text("revoked")
    assert caller.get("users/")[0] == 401
    assert manager.get("users/")[0] == 200


def test_workspace_rate_is_set_and_invalid_one_refused(page: Page, system: System) -> None:
    client = new_client(system, "tasks-rates")

    def reads(status: int) -> None:
        polled(lambda: client.get("users/")[0], lambda seen: seen == status)

    open_row(page, "workspace", "tasks-rates", "tasks-rates")
    field = page.locator(".field-reads_per_minute")
    field.locator("input").fill("0")
    save(page)
    expect(field.locator(".errorlist")).to_contain_text("1")
    reads(200)

    field.locator("input").fill("1")
    follow(page.get_by_role("button", name="Save and continue editing"))
    said(page, "was changed successfully")
    expect(page.locator(".field-quotas_in_effect")).to_contain_text(
        re.compile("Reads.*1, set", re.IGNORECASE)
    )
    reads(429)

    field.locator("input").fill("")
    save(page)
    said(page, "was changed successfully")
    reads(200)


def test_paused_workspace_keeps_entries_until_resumed(page: Page, system: System) -> None:
    person = create_person(new_client(system, "tasks-pause"), "ada")
    open_row(page, "workspace", "tasks-pause", "tasks-pause")
    act(page, "Pause")
    page.get_by_label("Reason").fill("moving to another house")
    follow(page.get_by_role("button", name="Pause", exact=True))
    said(page, "1 workspace paused")
    expect(page.locator(".field-paused")).to_contain_text("moving to another house")

    (entry,) = person.log(task("a", 0), wait=3)
    assert person.get(f"entries/{entry['seq']}/")["state"] == "pending"
    page.goto("/admin/memory/pause/?q=tasks-pause")
    expect(page.locator("#result_list")).to_contain_text("moving to another house")

    open_row(page, "workspace", "tasks-pause", "tasks-pause")
    act(page, "Resume")
    said(page, "1 workspace resumed")
    polled(
        lambda: person.get(f"entries/{entry['seq']}/")["state"],
        lambda state: state == "covered",
    )


# -- Webhooks ------------------------------------------------------------------------------------


def test_an_endpoint_is_added_tested_and_sent_the_same_again(page: Page, manager: Client) -> None:
    with receiver() as server:
        page.goto("/admin/memory/webhookendpoint/add/")
        page.get_by_label("Workspace:").select_option("tasks")
        page.get_by_label("Url:").fill(server.url)
        save(page)
        secret = page.locator(".messagelist .secret").inner_text()

        open_row(page, "webhookendpoint", server.url, server.url)
        assert secret not in page.content()
        act(page, "Send test")
        said(page, "A test was sent to 1 endpoint.")
        (first,) = polled(lambda: list(server.received), bool)
        assert first.verified(secret)["type"] == "ping"

        follow(page.locator(".field-every").get_by_role("link", name="all messages"))

        def settled() -> bool:
            page.reload()
            return page.locator("#result_list").get_by_text("delivered", exact=True).count() == 1

        polled(settled, bool)
        follow(page.locator("#result_list").get_by_role("link", name="ping", exact=True))
        calls = page.get_by_role("group", name="Calls").locator("tr.has_original")
        expect(calls).to_have_count(1)
        expect(calls.locator(".field-status")).to_have_text("200")
        expect(page.locator(".field-body")).to_contain_text('"type": "ping"')

        act(page, "Replay")
        said(page, "1 message will be sent again.")
        received = polled(lambda: list(server.received), lambda seen: len(seen) == 2)
        assert received[1].id == first.id

        open_row(page, "webhookendpoint", server.url, server.url)
        act(page, "Disable")
        confirm(page, "Disable")
        said(page, "Disabled 1 endpoint.")
    (endpoint,) = ok(manager.get("webhooks/"))["results"]
    assert (endpoint["url"], endpoint["enabled"]) == (server.url, False)


# -- Constraints of a workspace ------------------------------------------------------------------


def test_workspace_constraint_from_writing_to_disabling(page: Page, system: System) -> None:
    # Given a user whom it concerns
    manager = new_client(system, "tasks-rules", *EVERYTHING)
    ada = create_person(manager, "ada")
    ada.log(record("Purchase", "a", domain="money", what="tea", cents=-3))

    # When it is written in the form
    page.goto("/admin/memory/workspaceconstraint/add/")
    page.get_by_label("Workspace:").select_option("tasks-rules")
    page.get_by_label("Name:").fill(rules.NAME)
    page.get_by_label("Source").fill(rules.SOURCE)
    page.get_by_label("Tests").fill(rules.TESTS)
    save(page)
    said(page, "The first version is being checked.")

    # Then it is judged, and backtested by itself
    version = polled(
        lambda: ok(manager.get(f"constraints/{rules.NAME}/versions/1/")),
        lambda seen: seen["state"] != "checking",
        seconds=120,
    )
    assert version["state"] == "passed", version
    first = polled(lambda: finished(manager), bool, seconds=120)
    assert ada.alerts() == []

    # When it is backtested again, by hand
    open_row(page, "workspaceconstraintversion", rules.NAME, re.compile(f"^{rules.NAME} v1"))
    act(page, "Backtest")
    follow(page.locator(".messagelist").get_by_role("link"))
    expect(page.get_by_role("heading", name="Backtest", exact=True)).to_be_visible()
    polled(lambda: finished(manager), lambda keys: keys not in ([], first), seconds=120)
    page.reload()

    # Then its page shows the alerts that the constraint would have raised
    expect(page.locator(".field-fired")).to_contain_text("1 alert, for 1 of 1 user")

    # When it is approved there and given to all users, then she has an alert
    act(page, "Approve")
    expect(page.get_by_text("It applies to 1 user now. The backtest covered 1")).to_be_visible()
    confirm(page, "Approve")
    said(page, "runs for nobody yet")
    open_row(page, "workspaceconstraint", rules.NAME, rules.NAME)
    page.get_by_label("Percentage:").fill("101")
    save(page)
    expect(page.locator(".field-percentage .errorlist")).to_contain_text("100")
    page.get_by_label("Percentage:").fill("100")
    save(page)
    expect(page.locator(".field-sure .errorlist")).to_contain_text("tick the box")
    page.get_by_label("Change for whom it runs").check()
    save(page)
    (alert,) = polled(ada.alerts, bool, seconds=120)
    assert (alert["state"], alert["message"]) == ("open", "tea for -3 cents")

    # When it is disabled, then the alert is resolved
    open_row(page, "workspaceconstraint", rules.NAME, rules.NAME)
    expect(page.locator(".field-standing")).to_contain_text("runs")
    act(page, "Disable")
    confirm(page, "Disable")
    said(page, "1 constraint disabled.")
    polled(lambda: ada.alerts("resolved"), bool, seconds=120)


def finished(manager: Client) -> list[str]:
    """Return the ids of the finished backtests."""
    listed = ok(manager.get("backtests/"))["results"]
    return [one["id"] for one in listed if one["state"] == "finished"]


def test_a_constraint_of_one_user_is_refused_mended_and_speaks(page: Page, manager: Client) -> None:
    person = create_person(manager, "ruled")
    person.log(task("report", 3))
    open_row(page, "memoryuser", "ruled", "ruled")
    follow(page.get_by_role("link", name="Constraints for this user"))
    page.get_by_label("Name").fill("late")
    page.get_by_label("Source").fill(LATE["source"].replace("> 0", "> 2000"))
    page.get_by_label("Tests").fill(LATE["tests"])
    follow(page.get_by_role("button", name="Dry run"))
    trial = page.get_by_role("region", name="Dry run")
    expect(trial).to_contain_text("was backtested on 1 of 1", timeout=scaled(60_000))
    expect(text_in(page, "source")).to_have_value(re.compile("> 2000"))
    assert person.alerts() == []
    follow(page.get_by_role("button", name="Test and save"))

    result = page.get_by_role("region", name="Result").get_by_role("status")
    expect(result).to_contain_text("refused", timeout=scaled(60_000))
    expect(text_in(page, "source")).to_have_value(re.compile("> 2000"))

    page.get_by_label("Source").fill(LATE["source"])
    page.get_by_label("Source").press("Control+Enter")
    expect(result).to_contain_text("accepted", timeout=scaled(60_000))
    (alert,) = polled(person.alerts, bool)
    assert alert["constraint"] == "constraints/late.py"


# -- Versions and runs ---------------------------------------------------------------------------


def test_an_earlier_version_is_restored(page: Page, manager: Client) -> None:
    person = create_person(manager, "restored")
    person.log(task("report", 0))
    before, first = person.file("domains/work/state.py"), person.get()["head"]
    (talk,) = person.log(task("talk", 5))
    assert person.file("domains/work/state.py") != before
    newest = person.get()["head"]

    # When it is asked for, then a page says what it will exclude, and nothing is done yet
    open_row(page, "checkpoint", "restored", f"v{first}")
    act(page, "Restore")
    expect(page.locator("#content h1")).to_have_text(f"Roll back to version {first}?")
    for label, excluded in (
        ("User:", "restored"),
        ("Records not in this version:", "talk in work.tasks"),
        ("Alerts that will resolve:", "–"),
        ("Entries not in this version:", f"{talk['seq']}"),
    ):
        row = page.locator(".form-row").filter(has_text=label)
        expect(row.locator(".readonly")).to_contain_text(excluded)
    assert person.get()["head"] == newest

    # When it is confirmed, and those entries are dismissed
    page.get_by_label("Dismiss the entries that are not in this version").check()
    page.get_by_label("Reason").fill("told in error")
    follow(page.get_by_role("button", name="Roll back to this version", exact=True))

    said(page, f"Version {newest + 1} has the content of version {first}.")
    assert person.get()["head"] == newest + 1
    assert person.file("domains/work/state.py") == before
    entry = person.get(f"entries/{talk['seq']}/")
    assert (entry["state"], "told in error" in entry["reason"]) == ("dismissed", True)


def test_a_run_is_run_again_and_the_new_one_is_shown(page: Page, manager: Client) -> None:
    person = create_person(manager, "again")
    person.log(task("report", 4))
    code = {"code": "[one.days for one in tasks]"}
    run = person.post("query/?wait=100", code, status=200)

    page.goto(f"/admin/memory/run/{run['id']}/change/")
    act(page, "Run again")

    said(page, "The run was queued again")
    key = page.url.removesuffix("/change/").rpartition("/")[2]
    assert key != run["id"]
    again = polled(lambda: ok(manager.get(f"runs/{key}/")), lambda seen: seen["status"] == "done")
    assert (again["outcome"], again["output"]["value"]) == ("ok", [4])


def test_work_that_was_given_up_is_tried_again(page: Page, system: System, manager: Client) -> None:
    person = create_person(manager, "stuck")
    person.log(task("report", 4))
    run = person.post("query/?wait=100", {"code": "len(tasks)"}, status=200)
    system.manage("shell", "-v", "0", "-c", GIVEN_UP.format(run=run["id"]))
    assert ok(manager.get(f"runs/{run['id']}/"))["outcome"] == "abandoned"

    page.goto("/admin/memory/alarm/work/?kind=runs")
    row = page.get_by_role("row").filter(has_text="stuck")
    expect(row).to_contain_text("killed")
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    row.get_by_role("checkbox").check()
    follow(page.get_by_role("button", name="Retry now"))

    said(page, "Runs: 1 retried now.")
    done = polled(
        lambda: ok(manager.get(f"runs/{run['id']}/")), lambda seen: seen["status"] == "done"
    )
    assert (done["outcome"], done["output"]["value"]) == ("ok", 1)
    page.reload()
    expect(page.get_by_role("row").filter(has_text="stuck")).to_have_count(0)


# -- Redaction and erasure -----------------------------------------------------------------------


def test_entry_is_redacted_after_preview_and_reason(page: Page, manager: Client) -> None:
    person = create_person(manager, "redacted")
    person.log(task("report", 0))
    (entry,) = person.log(task("wolframite", 1))

    page.goto(f"/admin/memory/logentry/{entry['id']}/change/")
    act(page, "Redact")
    expect(page.get_by_role("heading", name="Redact", exact=True)).to_be_visible()
    expect(page.locator("#content")).to_contain_text("wolframite")
    assert "wolframite" in json.dumps(person.get(f"entries/{entry['seq']}/"))
    page.get_by_label("Reason").fill("asked for by telephone")
    follow(page.get_by_role("button", name="Redact", exact=True))

    said(page, "Redacted 1 entry in the log of redacted.")
    redacted = person.get(f"entries/{entry['seq']}/")
    assert redacted["redacted_at"] is not None
    assert redacted["data"] is None
    follow(page.locator(".messagelist").get_by_role("link"))
    expect(page.locator(".field-reason")).to_contain_text("asked for by telephone")
    path = f"entries/{entry['seq']}/"
    polled(
        lambda: person.request("DELETE", path, status=202)["state"], lambda state: state == "done"
    )
    assert "wolframite" not in person.file("domains/work/state.py")
    person.get("state/?as_of=v2", status=410)


def test_a_user_is_erased_after_it_was_shown_who_and_said_why(page: Page, manager: Client) -> None:
    person = create_person(manager, "forgotten")
    person.log(task("report", 0))

    open_row(page, "memoryuser", "forgotten", "forgotten")
    act(page, "Erase")
    expect(page.get_by_role("heading", name="Erase users")).to_be_visible()
    expect(page.locator("#content")).to_contain_text("1 entry")
    person.get()
    page.get_by_label("Reason").fill("asked for by letter")
    page.get_by_label("To confirm").fill("forgotten")
    follow(page.get_by_role("button", name="Erase", exact=True))

    said(page, "The user was erased:")
    person.get(status=404)
    follow(page.locator(".messagelist").get_by_role("link"))
    expect(page.locator(".field-reason")).to_contain_text("asked for by letter")

    def state() -> str:
        page.reload()
        return page.locator(".field-state .readonly").inner_text()

    polled(state, lambda seen: seen == "done", seconds=120)


# -- The staff -----------------------------------------------------------------------------------


def test_a_viewer_of_one_workspace_sees_its_users_and_no_content_which_is_noted(
    page: Page, browser: Browser, system: System, manager: Client
) -> None:
    # Given people of two workspaces
    create_person(manager, "vera-sees-her").log(message("Nobody else needs to know."))
    create_person(new_client(system, "tasks-other"), "vera-sees-him-not")

    # When an account is made for somebody who views one of them
    page.goto("/admin/auth/user/add/")
    page.get_by_label("Username:").fill("vera")
    page.get_by_label("Password:").fill(PASSWORD)
    page.get_by_label("Password confirmation:").fill(PASSWORD)
    save(page)
    page.get_by_label("Staff status").check()
    page.get_by_label("viewer: Sees lists").check()
    move(page, "access-0-workspaces", "tasks")
    save(page)
    said(page, "was changed successfully")

    # Then she sees it, and nothing of what was said there
    trouble: list[str] = []
    with visitor(browser, system, trouble) as her:
        log_in(her, "vera")
        her.goto("/admin/memory/memoryuser/?q=vera-sees")
        users = her.locator("#result_list tbody tr")
        expect(users).to_have_count(1)
        expect(users).to_contain_text("vera-sees-her")
        her.goto("/admin/memory/logentry/?q=vera-sees")
        expect(her.locator("#result_list tbody tr")).to_have_count(1)
        follow(her.locator("#result_list").get_by_role("link", name="#1").first)
        expect(her.locator(".field-content_and_data")).to_contain_text("(hidden)")
        assert "Nobody else" not in her.content()
        expect(her.locator(".object-tools").get_by_role("button")).to_have_count(0)
    assert trouble == []

    # And what she looked at is in the audit
    page.goto("/admin/memory/staffaudit/?q=vera")
    audit = page.locator("#result_list tbody tr")
    expect(audit.filter(has_text="log entry").filter(has_text="page")).to_have_count(1)
    expect(audit.filter(has_text="list").filter(has_text="tasks")).to_have_count(2)


def move(page: Page, name: str, option: str) -> None:
    """Choose an option in one of two boxes."""
    page.locator(f"#id_{name}_from").select_option(label=option)
    page.locator(f"#id_{name}_add, #id_{name}_add_link").first.click()
    expect(page.locator(f"#id_{name}_to option")).to_have_text([option])


# -- Alerts --------------------------------------------------------------------------------------


def test_alerts_are_handled_in_bulk_and_one_by_one(page: Page, manager: Client) -> None:
    person = create_person(manager, "alerted")
    person.log(*(task(key, 0) for key in "abc"))
    person.write_constraint("late", LATE)
    person.log(*(task(key, 2) for key in "abc"))
    polled(lambda: person.alerts("open"), lambda found: len(found) == 3)

    def state(key: str) -> str:
        (alert,) = [one for one in person.alerts() if one["message"].startswith(f"task {key} ")]
        return str(alert["state"])

    page.goto("/admin/memory/alert/?q=alerted")
    rows = page.locator("#result_list tbody tr .field-headline")
    places = rows.all_inner_texts()
    for key in "ab":
        page.get_by_role("row").filter(has_text=f"task {key} is").get_by_role("checkbox").check()
    page.get_by_label("Action:").select_option("acknowledge")
    follow(page.get_by_role("button", name="Go", exact=True))
    said(page, "2 alerts acknowledged.")
    # No new row has appeared under the pointer.
    assert rows.all_inner_texts() == places
    expect(page.locator("#result_list input:checked")).to_have_count(0)
    assert [state(key) for key in "abc"] == ["acknowledged", "acknowledged", "open"]

    page.goto(str(page.get_by_role("link", name="task c is").get_attribute("href")))
    act(page, "Snooze for a week", "until he is back", menu="Snooze")
    said(page, "1 alert snoozed.")
    assert state("c") == "snoozed"
    expect(page.locator("#events-group")).to_contain_text("until he is back")
    act(page, "Wrong", "it was done long ago", menu="Rate")
    said(page, "1 alert marked as wrong.")
    expect(page.locator(".field-judged")).to_contain_text("it was done long ago")
    act(page, "Resolve")
    page.get_by_label("Reason").fill("done")
    confirm(page, "Resolve")
    said(page, "1 alert resolved.")
    assert [state(key) for key in "abc"] == ["acknowledged", "acknowledged", "resolved"]

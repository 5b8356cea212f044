"""The query console: the staff's queries of a user's memory, their results, and the audit."""

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from memory.kernel import pauses
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.staff.models import StaffAudit
from memory.kernel.users import create_user
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind, LogEntry
from memory.privacy import redaction
from memory.versions import runs
from memory.versions.models.runs import Run, RunKind, RunOutcome, RunStatus, RunTrigger
from tests.conftest import finish_work
from tests.integration.admin.conftest import act, page_url, shown, text_of
from tests.integration.admin.test_hostile import HOSTILE
from tests.integration.commits.conftest import trip

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("nobody_waits")]

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def traveller(populate_module: Callable[[Callable[[], MemoryUser]], MemoryUser]) -> MemoryUser:
    """A user with three trips in two versions, the same for all tests here."""

    def make() -> MemoryUser:
        workspace = Workspace.objects.create(name="Company")
        user = create_user(workspace, "ada", time_zone="Europe/Berlin", metadata=None)
        for entries in (
            [trip("Rome", key="a", cost=840, on="2026-05-02")],
            [
                trip("Oslo", key="b", cost=99.5, on="2026-06-02"),
                trip("Rome", key="c", cost=0, on="2027-01-02"),
            ],
        ):
            entry_log.append(
                user, [Draft(kind=EntryKind.RECORD, data=e) for e in entries], source="test"
            )
            finish_work()
        return user

    return populate_module(make)


@pytest.fixture
def workspace(traveller: MemoryUser) -> Workspace:
    return Workspace.objects.get(pk=traveller.workspace_id)


@pytest.fixture
def trips(traveller: MemoryUser) -> MemoryUser:
    """The user, as if no query had been made yet."""
    return MemoryUser.objects.get(pk=traveller.pk)


def console(user: MemoryUser) -> str:
    return reverse("admin:memory_memoryuser_console", args=[user.pk])


@pytest.fixture
def ask(admin_client: Client, trips: MemoryUser, work: Callable[[], None]) -> Ask:
    """Send a query in the console, do the work, and return the page with the result."""

    def do(code: str, **more: str) -> Any:
        answer = admin_client.post(console(trips), {"code": code, **more})
        assert answer.status_code == 302, text_of_any(answer)
        work()
        return admin_client.get(answer.headers["Location"])

    return do


def text_of_any(response: Any) -> str:
    return str(response.content.decode())


def table_of(response: Any) -> list[list[str]]:
    [table] = re.findall(r'<table class="result">(.*?)</table>', text_of(response), re.DOTALL)
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    return [
        [
            html.unescape(re.sub(r"<[^>]+>", "", cell))
            for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        ]
        for row in rows
    ]


# -- Results -----------------------------------------------------------------------------------


def test_a_number_stands_large(ask: Ask) -> None:
    page = ask("sum(t.cost for t in trips)")

    assert '<p class="answer"><bdi>939.5</bdi></p>' in text_of(page)
    assert "ok as of v2" in shown(page)


def test_records_are_a_table_that_leads_to_their_entries(ask: Ask, trips: MemoryUser) -> None:
    page = ask("trips")

    assert table_of(page) == [
        ["key", "to", "cost", "on", "entries"],
        ["a", "Rome", "840", "2026-05-02", "#1"],
        ["b", "Oslo", "99.5", "2026-06-02", "#2"],
        ["c", "Rome", "0", "2027-01-02", "#3"],
    ]
    entry = LogEntry.objects.get(user=trips, seq=1)
    assert f'href="{page_url(entry)}"' in text_of(page)


@pytest.mark.parametrize(
    ("code", "rows"),
    [
        ("[(t.to, t.key) for t in trips[:1]]", [["1", "2"], ["Rome", "a"]]),
        ("[t.to for t in trips]", [["value"], ["Rome"], ["Oslo"], ["Rome"]]),
        ("[{'x': 1}, {'y': None}]", [["x", "y"], ["1", "–"], ["–", "–"]]),
        ("[{'x': [1, (2, 3)]}]", [["x"], ["[1, [2, 3]]"]]),
        ("{'a': 'b'}", [["key", "value"], ["a", "b"]]),
        ("[]", [[]]),
    ],
)
def test_list_of_records_is_a_table(ask: Ask, code: str, rows: list[list[str]]) -> None:
    found = table_of(ask(code))

    assert found[: len(rows)] == rows or (code == "[]" and found == [["value"]])


@pytest.mark.parametrize(
    ("code", "bars"),
    [
        ("Counter(t.to for t in trips)", [("0.000", "100.000"), ("0.000", "50.000")]),
        ("{t.on: t.cost for t in trips[:2]}", [("0.000", "100.000"), ("0.000", "11.845")]),
        ("[(t.to, -t.cost) for t in trips[:2]]", [("0.000", "100.000"), ("88.155", "11.845")]),
        ("{'a': -1e308, 'b': 1e308}", [("0.000", "50.000"), ("50.000", "50.000")]),
        ("{'a': 0, 'b': 0}", [("0.000", "0.300"), ("0.000", "0.300")]),
        (
            "{'a': Decimal('1.5'), 'b': timedelta(seconds=3)}",
            [("0.000", "50.000"), ("0.000", "100.000")],
        ),
        ("{'a': 1, 'b': 'text'}", []),
        ("{'a': 1, 'b': True}", []),
        ("{'a': 1, 'b': float('inf')}", []),
        ("{'a': 1}", []),
    ],
)
def test_series_has_bars_beside_numbers(ask: Ask, code: str, bars: list[tuple[str, str]]) -> None:
    page = text_of(ask(code))

    assert (
        re.findall(r'<rect class="\w*" x="([\d.]+)%" y="1" height="10" width="([\d.]+)%"', page)
        == bars
    )


def test_a_long_list_is_shown_in_part_and_counted(ask: Ask) -> None:
    page = ask("list(range(5000))")

    assert len(table_of(page)) == 201
    assert "5,000 rows, of which the first 200 are shown" in shown(page)


def test_too_large_result_names_the_limit(ask: Ask) -> None:
    page = ask("list(range(1_000_000))")

    words = shown(page)
    assert "result limit" in words
    assert "The query hit a limit: result_kib: 1024 KiB (current value)" in words


def test_an_error_marks_its_line_and_names_what_is_near(ask: Ask) -> None:
    page = ask("a = 1\ntripz")

    words = shown(page)
    assert "NameError" in words
    assert "trips" in re.search(r"NameError.{0,120}", words)[0]  # type: ignore[index]
    marked = re.findall(r"<mark>(.*?)</mark>", text_of(page))
    assert marked == ["tripz"]
    assert "error in the query" in words  # and not in the person's project


@pytest.mark.parametrize("code", ["(t for t in trips)", "def f():\n    yield 1\nf()", "lambda: 1"])
def test_code_without_value_is_explained(ask: Ask, code: str) -> None:
    page = ask(code)

    assert page.status_code == 200
    assert "Result" in shown(page)


def test_hostile_values_are_inert(ask: Ask) -> None:
    for code in (
        repr(HOSTILE),
        f"[{HOSTILE!r}]",
        f"{{{HOSTILE!r}: 1, 'b': 2}}",
        f"print({HOSTILE!r})",
    ):
        page = text_of(ask(code))
        assert "<script>alert" not in page
        for steering in "\u202e\u200b\U000e0041":
            assert steering not in page


# -- The moment that is asked about ------------------------------------------------------------


def test_the_past_is_asked_by_version_and_day(ask: Ask) -> None:
    assert "<bdi>1</bdi>" in text_of(ask("len(trips)", as_of="v1"))
    assert "<bdi>2027-03-01</bdi>" in text_of(ask("today", at="2027-03-01"))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"code": ""}, "Write a query"),
        ({"code": "  \r\n "}, "Write a query"),
        ({"code": "x" * 1_000_000}, "at most 20000 characters (it has 1000000)"),
        ({"code": "1\x00"}, "Null characters are not allowed"),
        ({"code": "1", "as_of": "v99"}, "This user has no version 99."),
        ({"code": "1", "as_of": "\u202e"}, "Give an entry's number"),
        ({"code": "1", "at": "someday"}, "Give a day"),
        ({"code": "1", "at": "2026-13-45"}, "Give a day"),
    ],
)
def test_invalid_query_is_refused_and_kept_in_the_field(
    admin_client: Client, trips: MemoryUser, asked: dict[str, str], says: str
) -> None:
    answer = admin_client.post(console(trips), asked)

    assert answer.status_code == 400
    assert says in html.unescape(text_of_any(answer))
    assert "\u202e" not in text_of_any(answer)
    assert not Run.objects.filter(kind=RunKind.QUERY).exists()


def test_a_number_that_is_none_has_no_bar(ask: Ask) -> None:
    page = ask("[Decimal('sNaN'), Decimal(1)]")
    assert page.status_code == 200
    assert "sNaN" in shown(page)


def test_waiting_query_is_polled_with_backoff(admin_client: Client, trips: MemoryUser) -> None:
    url = admin_client.post(console(trips), {"code": "len(trips)"}).headers["Location"]
    waits = []
    while match := re.search(r'content="(\d+);url=([^"]*)"', text_of(admin_client.get(url))):
        waits.append(int(match[1]))
        url = console(trips) + html.unescape(match[2])
    assert waits == sorted(waits)
    assert (waits[:3], waits[-1], len(waits)) == ([2, 4, 8], 60, 15)
    assert "reload this page" in shown(admin_client.get(url))
    assert admin_client.get(url.replace("look=15", "look=-1e9")).status_code == 200


def test_query_of_paused_user_is_not_polled(admin_client: Client, trips: MemoryUser) -> None:
    pauses.pause(trips, by="staff:eve", reason="asked for")

    answer = admin_client.post(console(trips), {"code": "1"})

    page = admin_client.get(answer.headers["Location"])
    assert 'http-equiv="refresh"' not in text_of(page)
    assert "Work on this user is paused" in shown(page)


# -- Who asked, and who may --------------------------------------------------------------------


def test_query_is_recorded_with_its_author(
    ask: Ask, trips: MemoryUser, admin_client: Client
) -> None:
    ask("len(trips)")
    ask("len(trips)")

    runs = list(Run.objects.filter(user=trips, kind=RunKind.QUERY))
    assert [(run.trigger, run.asked_by) for run in runs] == [(RunTrigger.STAFF, "staff:admin")] * 2
    words = shown(admin_client.get(page_url(runs[0])))
    assert "Requested by: staff:admin" in words


def test_last_queries_of_the_user_are_linked(
    admin_client: Client, trips: MemoryUser, work: Callable[[], None]
) -> None:
    for number in range(22):
        admin_client.post(console(trips), {"code": f"len(trips) + {number}"})
    work()
    Run.objects.filter(input__isnull=False, kind=RunKind.QUERY).filter(
        pk=Run.objects.filter(kind=RunKind.QUERY).order_by("-queued_at")[3].pk
    ).update(asked_by="staff:somebody-else")

    page = text_of(admin_client.get(console(trips)))

    listed = re.findall(r"<code>len\(trips\) \+ (\d+)</code>", page)
    assert listed == ["21", "20", "19", *map(str, range(17, 0, -1))]
    first = re.search(r'href="([^"]+\?run=[^"]+)"', page)
    assert first is not None
    loaded = text_of(admin_client.get(first[1]))
    assert re.search(r"<textarea[^>]*>\s*len\(trips\) \+ 21</textarea>", loaded)


def test_the_query_of_another_user_is_not_loaded(
    ask: Ask, admin_client: Client, workspace: Workspace
) -> None:
    ask("len(trips)")
    other = create_user(workspace, "bob", metadata=None)
    run = Run.objects.get(kind=RunKind.QUERY)

    assert admin_client.get(f"{console(other)}?run={run.pk}").status_code == 404
    for nonsense in ("x", "", "\u202e"):
        assert admin_client.get(console(other), {"run": nonsense}).status_code == 404


@pytest.mark.parametrize("lacks", ["view_memoryuser", "change_run", "view_content"])
def test_console_needs_its_permissions(
    staff: Callable[..., Client], trips: MemoryUser, lacks: str
) -> None:
    client = staff(*{"view_memoryuser", "view_run", "change_run", "view_content"} - {lacks})

    assert client.get(console(trips)).status_code == 403
    assert client.post(console(trips), {"code": "1"}).status_code == 403
    assert not Run.objects.filter(kind=RunKind.QUERY).exists()


def test_operator_of_runs_may_ask(staff: Callable[..., Client], trips: MemoryUser) -> None:
    client = staff("view_memoryuser", "view_run", "change_run", "view_content")

    assert client.get(console(trips)).status_code == 200
    assert client.post(console(trips), {"code": "1"}).status_code == 302
    assert Run.objects.get(kind=RunKind.QUERY).asked_by == "staff:eve"
    noted = StaffAudit.objects.filter(staff_name="eve", person=trips.public_id)
    assert list(noted.order_by("pk").values_list("kind", "what")) == [
        ("view", "console"),
        ("act", "query"),
    ]


def test_users_of_others_are_not_asked(staff: Callable[..., Client], trips: MemoryUser) -> None:
    elsewhere = Workspace.objects.create(name="elsewhere")
    client = staff(
        *("view_memoryuser", "view_run", "change_run", "view_content"), workspaces=[elsewhere]
    )

    assert client.get(console(trips)).status_code == 404
    assert client.post(console(trips), {"code": "1"}).status_code == 404
    assert not Run.objects.filter(kind=RunKind.QUERY).exists()


def test_queries_count_under_the_workspace_limit(
    admin_client: Client, trips: MemoryUser, workspace: Workspace
) -> None:
    Workspace.objects.filter(pk=workspace.pk).update(max_waiting_runs=1)
    runs._requested.clear()

    assert admin_client.post(console(trips), {"code": "1"}).status_code == 302
    runs._requested.clear()
    refused = admin_client.post(console(trips), {"code": "2"})

    assert refused.status_code == 400
    assert "max_waiting_runs" in text_of_any(refused)
    assert Run.objects.filter(kind=RunKind.QUERY).count() == 1


# -- Users of whom nothing is told -------------------------------------------------------------


def test_user_without_version_has_no_console(admin_client: Client, workspace: Workspace) -> None:
    user = create_user(workspace, "bob", metadata=None)

    page = admin_client.get(console(user))

    assert "no checkpoint yet" in shown(page)
    assert "<textarea" not in text_of(page)
    assert admin_client.post(console(user), {"code": "1"}).status_code == 400


def test_a_merged_user_is_not_asked(
    admin_client: Client, trips: MemoryUser, workspace: Workspace
) -> None:
    other = create_user(workspace, "bob", metadata=None)
    MemoryUser.objects.filter(pk=trips.pk).update(merged_into=other)

    assert "was merged into bob" in shown(admin_client.get(console(trips)))
    assert admin_client.post(console(trips), {"code": "1"}).status_code == 400
    assert not Run.objects.filter(kind=RunKind.QUERY).exists()


def test_an_erased_user_has_no_console(admin_client: Client, trips: MemoryUser) -> None:
    MemoryUser.objects.filter(pk=trips.pk).update(erased_at=timezone.now())

    assert admin_client.get(console(trips)).status_code == 404
    assert admin_client.post(console(trips), {"code": "1"}).status_code == 404


def test_redacted_text_is_in_no_result_and_no_history(
    ask: Ask, admin_client: Client, trips: MemoryUser, work: Callable[[], None]
) -> None:
    ask("[t for t in trips if t.to == 'Oslo']")
    run = Run.objects.get(kind=RunKind.QUERY)

    redaction.redact(trips, [2], by="staff:eve", reason="asked for")
    work()

    for address in (console(trips), f"{console(trips)}?run={run.pk}", page_url(run)):
        page = shown(admin_client.get(address))
        assert "Oslo" not in page
    assert "(redacted)" in shown(admin_client.get(console(trips)))


def test_query_text_is_redacted_with_its_result(
    ask: Ask, trips: MemoryUser, work: Callable[[], None]
) -> None:
    ask("'Oslo' in [t.to for t in trips]", as_of="v1")  # which does not hold the entry

    redaction.redact(trips, [2], by="staff:eve", reason="asked for")
    work()

    assert Run.objects.get(kind=RunKind.QUERY).input == {"redacted": True}


# -- What can be named -------------------------------------------------------------------------


# -- Running again -----------------------------------------------------------------------------


def run_again(client: Client, run: Run) -> Any:
    return act(client, "run_again", run, from_page="1")


def test_a_query_runs_again_on_the_same_version_and_moment(
    ask: Ask, admin_client: Client, work: Callable[[], None]
) -> None:
    ask("len(trips)", as_of="v1", at="2027-03-01")
    run = Run.objects.get(kind=RunKind.QUERY)

    page = run_again(admin_client, run)

    again = Run.objects.exclude(pk=run.pk).get(kind=RunKind.QUERY)
    assert page.redirect_chain[-1][0] == page_url(again)
    assert (again.checkpoint, again.instant, again.input) == (
        run.checkpoint,
        run.instant,
        run.input,
    )
    assert again.asked_by == "staff:admin"
    work()
    again.refresh_from_db()
    assert (again.outcome, again.output) == (RunOutcome.OK, run.output | again.output)


def test_constraints_rerun_on_newest_version(admin_client: Client, trips: MemoryUser) -> None:
    first = trips.checkpoints.get(version=1)
    run = Run.objects.create(
        user=trips,
        kind=RunKind.CONSTRAINTS,
        trigger=RunTrigger.DAILY,
        checkpoint=first,
        instant=timezone.now(),
        status=RunStatus.DONE,
        outcome=RunOutcome.OK,
        finished_at=timezone.now(),
    )

    run_again(admin_client, run)

    again = Run.objects.get(kind=RunKind.CONSTRAINTS, trigger=RunTrigger.STAFF)
    assert again.checkpoint == trips.head


def test_trial_run_of_constraint_is_repeated(admin_client: Client, trips: MemoryUser) -> None:
    run = Run.objects.create(
        user=trips,
        kind=RunKind.CONSTRAINT,
        trigger=RunTrigger.API,
        checkpoint=trips.head,
        instant=timezone.now(),
        input={"constraint": "constraints/late.py", "source_hash": "0", "as_of": None},
        status=RunStatus.DONE,
        outcome=RunOutcome.OK,
        finished_at=timezone.now(),
    )

    run_again(admin_client, run)

    again = Run.objects.get(kind=RunKind.CONSTRAINT, trigger=RunTrigger.STAFF)
    assert (again.checkpoint, again.instant, again.input) == (trips.head, run.instant, run.input)
    assert again.asked_by == "staff:admin"


def test_a_run_of_a_redacted_version_is_not_repeated(
    ask: Ask, admin_client: Client, trips: MemoryUser, work: Callable[[], None]
) -> None:
    ask("len(trips)")
    run = Run.objects.get(kind=RunKind.QUERY)
    redaction.redact(trips, [1], by="staff:eve", reason="asked for")
    work()

    words = shown(run_again(admin_client, run))

    assert "Nothing was done:" in words
    assert "redacted" in words
    assert Run.objects.filter(kind=RunKind.QUERY).count() == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"merged_into": True}, "was merged into"),
        ({"redacting_since": True}, "redaction of this user"),
        ({"erased_at": True}, "was erased"),
    ],
)
def test_a_run_of_somebody_who_is_gone_is_not_repeated(
    ask: Ask,
    admin_client: Client,
    trips: MemoryUser,
    workspace: Workspace,
    change: dict[str, Any],
    says: str,
) -> None:
    ask("len(trips)")
    run = Run.objects.get(kind=RunKind.QUERY)
    other = create_user(workspace, "bob", metadata=None)
    [name] = change
    value = other if name == "merged_into" else timezone.now()
    MemoryUser.objects.filter(pk=trips.pk).update(**{name: value})

    assert says in shown(run_again(admin_client, run))
    assert Run.objects.filter(kind=RunKind.QUERY).count() == 1


def test_viewer_cannot_run_again(ask: Ask, staff: Callable[..., Client]) -> None:
    ask("len(trips)")
    run = Run.objects.get(kind=RunKind.QUERY)
    client = staff("view_run")

    assert 'value="run_again"' not in text_of(client.get(page_url(run)))
    run_again(client, run)
    assert Run.objects.filter(kind=RunKind.QUERY).count() == 1


def test_the_page_of_a_run_shows_where_the_time_went(ask: Ask, admin_client: Client) -> None:
    ask("len(trips)")
    run = Run.objects.get(kind=RunKind.QUERY)

    page = admin_client.get(page_url(run))

    words = shown(page)
    for stage in ("waited", "loaded the project into a sandbox", "ran the query"):
        assert stage in words
    assert re.search(r"ran the query [\d.]+ s [\d.]+ s", words)
    assert text_of(page).count('<svg class="bar"') >= 3
    assert "style=" not in text_of(page).partition("waterfall")[2]


def test_query_of_the_product_is_not_listed(admin_client: Client, trips: MemoryUser) -> None:
    User.objects.create(username="bob", is_staff=True)
    Run.objects.create(
        user=trips,
        kind=RunKind.QUERY,
        trigger=RunTrigger.API,
        checkpoint=trips.head,
        instant=timezone.now(),
        input={"code": "of_the_product()"},
    )

    assert "of_the_product" not in text_of(admin_client.get(console(trips)))

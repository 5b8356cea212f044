"""The language models' screens: usage of calls, and a workspace's overrides and budget."""

import datetime
import html
import json
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.contrib.admin.models import LogEntry as StaffAction
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory.kernel import encryption
from memory.kernel.admin import paging
from memory.kernel.models.users import Lane, LaneName, MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.settings import environment
from memory.kernel.settings.language_models import Usage
from memory.kernel.staff.models import StaffAudit
from memory.llm import llm_calls, track_records
from memory.llm.llm_calls import Attempt, CallSession, Ending
from memory.llm.models import LlmCall, LlmOutcome, LlmPurpose, LlmSpending
from tests.factories import make_session
from tests.integration.admin.conftest import (
    Populate,
    Rows,
    act,
    add_url,
    list_url,
    page_url,
    shown,
    text_of,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def rows(populate: Populate) -> Rows:
    """Rows of one person, made for each test, since others count all rows."""
    return populate()


SECRET = "sk-very-secret"
EMPTY = dict.fromkeys(
    [
        *environment.SANDBOXES.overridable,
        *("llm_model", "llm_base_url", "llm_concurrency", "new_llm_api_key"),
        *("llm_tokens_per_day", "llm_tokens_per_month", "llm_cost_per_day", "llm_cost_per_month"),
        *("structure_entries", "structure_idle_seconds", "structure_age_seconds"),
        *environment.TRACK_RECORD.overridable,
    ],
    "",
)


@pytest.fixture(autouse=True)
def server_settings(settings: Settings) -> None:
    settings.UAC_LLM_MODEL = "openai:gpt-5-mini"
    settings.UAC_LLM_API_KEY = "sk-of-the-server"
    settings.UAC_LLM_PRICES = json.dumps({"openai:gpt-5-mini": {"input": 1, "output": 10}})
    settings.UAC_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]


def change(client: Client, workspace: Workspace, **chosen: Any) -> Any:
    here = {"name": workspace.name, "time_zone": workspace.time_zone}
    return client.post(page_url(workspace), {**here, **EMPTY, **chosen})


def call(
    workspace: Workspace, outcome: LlmOutcome | None = LlmOutcome.OK, **fields: Any
) -> LlmCall:
    work = CallSession(workspace=workspace, purpose=fields.pop("purpose", LlmPurpose.MEMORIZE))
    attempt = Attempt(
        model=fields.pop("model", "openai:gpt-5-mini"),
        turn=1,
        attempt=1,
        prompt={"messages": ["the prompt <b>of Ada</b>"]},
        most=Usage(input_tokens=500, output_tokens=1000),
        seconds=60,
        instructions=fields.pop("instructions", ""),
    )
    keep_content = fields.pop("keep_content", False)
    made = llm_calls.start(work, attempt, keep_content=keep_content)
    if outcome is not None:
        told = Usage(input_tokens=400, output_tokens=60)
        values = {"usage": told, "answer": {"text": "answered"}, **fields}
        ending = Ending(outcome=outcome, seconds=1.5, **values)
        llm_calls.finish(made, ending, keep_content=keep_content)
    return made


# -- Calls -------------------------------------------------------------------------------------


def test_call_page_has_cost_and_purpose(admin_client: Client, rows: Rows) -> None:
    page = admin_client.get(page_url(rows[LlmCall]))

    words, links = shown(page), text_of(page)
    for told in (
        "structure: facts to records",
        "refused by the model or its filter",
        "openai:model-of-ada",
        "request 1, attempt 1",
        "Tokens in: 120",
        "Tokens out: 30",
        "Reserved: 1,200 tokens",
        "1.50 s",
    ):
        assert told in words, told
    for name in ("checkpoint", "run", "lane", "memoryuser"):
        assert f"/admin/memory/{name}/" in links


def test_the_list_is_filtered_and_added_up(admin_client: Client, workspace: Workspace) -> None:
    other = Workspace.objects.create(name="other")
    for _ in range(2):
        call(workspace)
    call(workspace, LlmOutcome.TIMEOUT, usage=None)
    call(workspace, purpose=LlmPurpose.STRUCTURE)
    changed = call(
        other,
        model="google:of-nobody",
        usage=Usage(input_tokens=7, output_tokens=3),
        instructions="Keep the memory.",
    )

    def totals(**filters: Any) -> str:
        return shown(admin_client.get(list_url(LlmCall), filters))

    assert "Calls: 5 Tokens in: 1,207 Tokens out: 183" in totals()
    # All answered calls with a price: 400 at 1 and 60 at 10, per million tokens.
    assert "Cost: 0.003000 Calls without reported tokens: 1 Calls without a price: 1" in totals()
    assert "Calls: 4 Tokens in: 1,200" in totals(workspace__id__exact=workspace.pk)
    assert "Calls: 1 Tokens in: 7" in totals(model="google:of-nobody")
    assert "Calls: 1 Tokens in: 0" in totals(outcome__exact="timeout")
    assert "Calls: 1 Tokens in: 400" in totals(purpose__exact="structure")
    assert changed.instructions == llm_calls.version_of("Keep the memory.")
    assert "Calls: 1 Tokens in: 7" in totals(instructions=changed.instructions)
    assert "No rows match." in totals(outcome__exact="wrong_key")


def test_more_calls_than_are_soon_added_up_are_left_to_the_ledger(
    admin_client: Client, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "MAX_ROWS", 1)
    call(workspace)
    call(workspace)

    assert "see model spending" in shown(admin_client.get(list_url(LlmCall)))


def test_prompt_and_answer_are_for_those_who_may_read_them(
    admin_client: Client, staff: Any, workspace: Workspace
) -> None:
    address = page_url(call(workspace, keep_content=True))

    assert "the prompt <b>of Ada</b>" in unescaped(admin_client.get(address))
    assert "answered" in shown(admin_client.get(address))
    page = text_of(staff("view_llmcall").get(address))
    assert "of Ada" not in page
    assert '"answered"' not in page
    assert "Tokens in" in page


def unescaped(response: Any) -> str:
    assert "<b>of Ada" not in text_of(response)
    return html.unescape(text_of(response))


def test_the_permission_opens_the_content_alone(staff: Any, workspace: Workspace) -> None:
    made = call(workspace, keep_content=True)
    client = staff("view_llmcall", "view_llmcall_content", "view_content")

    assert "of Ada" in text_of(client.get(page_url(made)))
    assert client.get(list_url(LlmSpending)).status_code == 403


def test_content_that_is_not_kept_or_not_readable_says_so(
    admin_client: Client, workspace: Workspace, settings: Settings
) -> None:
    assert "Prompt: not stored" in shown(admin_client.get(page_url(call(workspace))))

    made = call(workspace, keep_content=True)
    settings.UAC_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    words = shown(admin_client.get(page_url(made)))
    assert "Prompt: None of the UAC_ENCRYPTION_KEYS can decrypt the stored content" in words


# -- The workspace -----------------------------------------------------------------------------


@pytest.mark.usefixtures("stopped")
def test_workspace_shows_limits_and_spending(admin_client: Client, workspace: Workspace) -> None:
    call(workspace)
    call(workspace, LlmOutcome.TIMEOUT, usage=None)
    call(workspace, None)

    words = shown(admin_client.get(page_url(workspace)))

    assert "calls are made" in words
    assert "openai:gpt-5-mini at https://api.openai.com/v1, with the server's key" in words
    assert "6 concurrent calls without a budget" in words
    assert (
        "Today: 460 tokens in 2 calls, cost 0.001000; estimated for calls without a response:"
        " 1,500 tokens; reserved for calls in progress: 1,500 tokens"
    ) in words


@pytest.mark.usefixtures("stopped")
def test_why_no_calls_are_made_is_said(
    admin_client: Client, workspace: Workspace, settings: Settings
) -> None:
    def says() -> str:
        return shown(admin_client.get(page_url(workspace)))

    call(workspace, usage=Usage(input_tokens=9000, output_tokens=500))
    change(admin_client, workspace, llm_tokens_per_day="10000")
    assert (
        "calls stopped The budget (tokens per day) is 10,000, of which 9,500 has been spent"
        in says()
    )
    assert "at most 10,000 tokens a day" in says()

    change(admin_client, workspace, llm_tokens_per_day="20000")
    assert "calls are made" in says()

    settings.UAC_LLM_MODEL = ""
    assert "no calls No language model is configured. Set UAC_LLM_MODEL" in says()


def test_chosen_models_key_is_never_shown(admin_client: Client, workspace: Workspace) -> None:
    response = change(
        admin_client, workspace, llm_model="anthropic:claude-sonnet-4-5", new_llm_api_key=SECRET
    )
    assert response.status_code == 302

    workspace.refresh_from_db()
    assert encryption.decrypt(bytes(workspace.llm_api_key or b"")) == SECRET.encode()
    page = admin_client.get(page_url(workspace))
    assert (
        "anthropic:claude-sonnet-4-5 at https://api.anthropic.com, with the workspace's own key"
        in (shown(page))
    )
    assert SECRET not in text_of(page)
    history = reverse("admin:memory_workspace_history", args=[workspace.pk])
    assert SECRET not in text_of(admin_client.get(history))
    assert SECRET not in str(list(StaffAction.objects.values()))
    assert "anthropic:claude-sonnet-4-5" in shown(admin_client.get(list_url(Workspace)))


def test_key_stays_until_replaced_or_removed(admin_client: Client, workspace: Workspace) -> None:
    def key() -> bytes | None:
        workspace.refresh_from_db()
        token = workspace.llm_api_key
        return encryption.decrypt(bytes(token)) if token else None

    change(admin_client, workspace, new_llm_api_key=SECRET)
    change(admin_client, workspace, llm_concurrency="2")
    assert (key(), workspace.llm_concurrency) == (SECRET.encode(), 2)

    change(admin_client, workspace, new_llm_api_key="sk-newer")
    assert key() == b"sk-newer"

    change(admin_client, workspace, forget_llm_api_key="on")
    assert key() is None


@pytest.mark.parametrize(
    ("chosen", "field", "told"),
    [
        ({"llm_model": "gpt-5"}, "llm_model", "Give a provider"),
        ({"llm_model": "anthropic:x"}, "llm_model", "the workspace its own key"),
        ({"llm_base_url": "ollama"}, "llm_base_url", "begins with https://"),
        ({"llm_concurrency": "0"}, "llm_concurrency", "greater than or equal to 1"),
        ({"llm_tokens_per_day": "-5"}, "llm_tokens_per_day", "greater than or equal to 0"),
        ({"llm_tokens_per_day": "10"}, "llm_tokens_per_day", "or 0 to allow no calls"),
        ({"llm_cost_per_day": "1.234"}, "llm_cost_per_day", "no more than 2 decimal places"),
        ({"llm_cost_per_day": "NaN"}, "llm_cost_per_day", "Enter a number"),
        ({"new_llm_api_key": "sk-ä"}, "new_llm_api_key", "The key contains invalid characters"),
        ({"structure_entries": "0"}, "structure_entries", "between 1 and 1000 (entries), not 0."),
        (
            {"structure_entries": "1001"},
            "structure_entries",
            "between 1 and 1000 (entries), not 1001.",
        ),
        (
            {"structure_idle_seconds": "0"},
            "structure_idle_seconds",
            "between 1 and 900 (seconds), not 0.",
        ),
        (
            {"structure_idle_seconds": "901"},
            "structure_idle_seconds",
            "It must be between 1 and 900 (seconds), not 901: structure_age_seconds is 900.",
        ),
        (
            {"structure_age_seconds": "59"},
            "structure_age_seconds",
            "It must be at least 60, not 59: structure_idle_seconds is 60.",
        ),
    ],
)
def test_invalid_setting_is_refused_beside_its_field(
    admin_client: Client, workspace: Workspace, chosen: dict[str, str], field: str, told: str
) -> None:
    response = change(admin_client, workspace, **chosen)

    assert told in shown(response)
    assert list(response.context["adminform"].form.errors) == [field]
    assert "openai:gpt-5-mini at https://api.openai.com/v1" in shown(response)
    workspace.refresh_from_db()
    assert (workspace.llm_model, workspace.llm_api_key) == ("", None)
    assert set(workspace.overrides(environment.STRUCTURING).values()) == {None}


def test_without_an_encryption_key_no_key_is_stored(
    admin_client: Client, workspace: Workspace, settings: Settings
) -> None:
    settings.UAC_ENCRYPTION_KEYS = []

    response = change(admin_client, workspace, new_llm_api_key=SECRET)

    assert (
        "The key cannot be stored. There is no key to encrypt content with: set"
        " UAC_ENCRYPTION_KEYS." in (shown(response))
    )
    assert SECRET not in text_of(response)


def test_a_new_workspace_may_have_a_model_at_once(admin_client: Client) -> None:
    assert "openai:gpt-5-mini" in shown(admin_client.get(add_url(Workspace)))

    admin_client.post(
        add_url(Workspace),
        {
            **EMPTY,
            "name": "new",
            "time_zone": "UTC",
            "llm_model": "google:gemini",
            "new_llm_api_key": SECRET,
        },
    )

    workspace = Workspace.objects.get(name="new")
    assert workspace.llm_model == "google:gemini"
    assert encryption.decrypt(bytes(workspace.llm_api_key or b"")) == SECRET.encode()


def test_viewer_sees_settings_and_changes_none(staff: Any, workspace: Workspace) -> None:
    client = staff("view_workspace")

    page = client.get(page_url(workspace))
    assert "calls are made" in shown(page)
    assert change(client, workspace, llm_model="openai:other").status_code == 403


# -- When it works -----------------------------------------------------------------------------


def test_a_workspace_gets_a_schedule_of_its_own(admin_client: Client, workspace: Workspace) -> None:
    everywhere = shown(admin_client.get(page_url(workspace)))
    assert (
        "Work begins when 20 of a user's entries are waiting, no entry has arrived for 60 s, the"
        " oldest entry has waited for 900 s, or an entry is urgent" in everywhere
    )

    change(admin_client, workspace, structure_entries="7", structure_age_seconds="300")

    workspace.refresh_from_db()
    assert workspace.overrides(environment.STRUCTURING) == {
        "structure_entries": 7,
        "structure_idle_seconds": None,
        "structure_age_seconds": 300,
    }
    assert (
        "when 7 of a user's entries are waiting, no entry has arrived for 60 s, the oldest entry"
        " has waited for" in (shown(admin_client.get(page_url(workspace))))
    )


def test_changed_model_retries_failed_work(
    admin_client: Client,
    rows: Rows,
    workspace: Workspace,
    populate: Populate,
    django_capture_on_commit_callbacks: Any,
) -> None:
    quiet = populate("Ibuprofen", "bob")[MemoryUser]
    tomorrow = timezone.now() + datetime.timedelta(days=1)
    model_lanes = Lane.objects.filter(name=LaneName.STRUCTURE)
    Lane.objects.update(run_after=tomorrow)
    model_lanes.filter(user=rows[MemoryUser]).update(due_at=timezone.now())
    model_lanes.filter(user=quiet).update(due_at=tomorrow)

    with django_capture_on_commit_callbacks(execute=True):
        change(admin_client, workspace, structure_entries="7")
    assert set(Lane.objects.values_list("run_after", flat=True)) == {tomorrow}
    with django_capture_on_commit_callbacks(execute=True):
        change(admin_client, workspace, structure_entries="7", llm_tokens_per_day="100000")

    tried = Lane.objects.exclude(run_after=tomorrow).get()
    assert (tried.user, tried.name) == (rows[MemoryUser], LaneName.STRUCTURE)
    assert tried.run_after <= timezone.now()


def test_a_users_page_says_how_it_stands_with_the_model(
    admin_client: Client, rows: Rows, settings: Settings
) -> None:
    user = rows[MemoryUser]
    lane = user.lanes.filter(name=LaneName.STRUCTURE)

    def told() -> str:
        words = shown(admin_client.get(page_url(user)))
        return words.partition("Language model: ")[2].partition(" Model calls")[0]

    assert "Model calls: 1 call, 150 tokens" in shown(admin_client.get(page_url(user)))
    lane.update(due_at=datetime.datetime(2126, 3, 1, 12, tzinfo=datetime.UTC))
    assert told() == "waiting 1 entry waiting; work will begin at 2126-03-01 12:00:00 UTC"
    lane.update(due_at=timezone.now())
    assert told() == "due 1 entry waiting"
    lane.update(
        run_after=datetime.datetime(2126, 3, 1, 12, tzinfo=datetime.UTC),
        last_error="CallFailed: <b>no answer</b>",
    )
    assert told() == (
        "stopped 1 entry waiting; will be retried at 2126-03-01 12:00:00 UTC"
        " CallFailed: <b>no answer</b>"
    )
    settings.UAC_LLM_MODEL = ""
    assert told().startswith(
        "stopped 1 entry waiting No language model is configured. Set UAC_LLM_MODEL"
    )
    lane.update(lease_expires_at=datetime.datetime(2126, 3, 1, tzinfo=datetime.UTC))
    assert told() == "working 1 entry waiting"


# -- Its track record --------------------------------------------------------------------------


@pytest.fixture
def waits(user: MemoryUser, settings: Settings) -> Lane:
    """The lane of a user who waits, since the gate refused the model's proposal."""
    settings.UAC_LLM_JUDGED_MINIMUM = 2
    for minutes in (1, 2):
        at = timezone.now() - datetime.timedelta(minutes=minutes)
        make_session(user, model="openai:gpt-5-mini", refusals=4, at=at)
    now = timezone.now()
    times = {"due_at": now, "run_after": now + datetime.timedelta(hours=1)}
    Lane.objects.filter(user=user, name=LaneName.STRUCTURE).update(**times)
    return Lane.objects.get(user=user, name=LaneName.STRUCTURE)


def test_the_workspace_and_the_calls_show_the_track_record(
    admin_client: Client, workspace: Workspace, waits: Lane
) -> None:
    record = (
        "100 % refused after all attempts (2 of 2 sessions; 8 of 8 proposals), 0 % undone (0 of 0"
    )

    page = shown(admin_client.get(page_url(workspace)))
    assert record in page
    assert (
        "stopped Stopped by its track record: openai:gpt-5-mini: after all"
        " attempts, the gate refused 100 %" in page
    )
    assert "more than 80 % of its sessions, or when more than 50 % of its accepted" in page

    assert record in shown(admin_client.get(page_url(LlmCall.objects.all()[0])))
    of_workspace = {"workspace__id__exact": str(workspace.pk)}
    assert record in shown(admin_client.get(list_url(LlmCall), of_workspace))
    assert record not in shown(admin_client.get(list_url(LlmCall)))
    of_other = {"workspace__id__exact": "no number"}
    assert record not in shown(admin_client.get(list_url(LlmCall), of_other, follow=True))


def let_go_on(client: Client, workspace: Workspace, note: str) -> str:
    return shown(act(client, "let_model_go_on", workspace, note=note))


def test_the_staff_let_a_model_go_on_with_a_reason(
    admin_client: Client, workspace: Workspace, waits: Lane
) -> None:
    # When somebody gives no reason, nothing happens
    assert "give a reason for letting the model continue" in let_go_on(admin_client, workspace, " ")
    assert track_records.why_stopped(Workspace.objects.get(pk=workspace.pk)) is not None
    # When somebody does
    told = let_go_on(admin_client, workspace, "the prompt was wrong")
    # Then what waits is tried at once, and the page and the audit say who let it go on
    assert "The language model continues in 1 workspace, with a new track record." in told
    assert track_records.why_stopped(Workspace.objects.get(pk=workspace.pk)) is None
    waits.refresh_from_db()
    assert waits.run_after <= timezone.now()
    page = shown(admin_client.get(page_url(workspace)))
    assert "staff:admin allowed the model to continue" in page
    assert "Reason: the prompt was wrong" in page
    acted = StaffAudit.objects.filter(what="let_model_go_on", workspace_id=workspace.pk)
    assert acted.exists()
    # And who asks again is told that it is not stopped
    assert "the language model is not stopped" in let_go_on(admin_client, workspace, "again")


def test_viewer_cannot_resume_a_model(staff: Any, workspace: Workspace, waits: Lane) -> None:
    client = staff("view_workspace")

    let_go_on(client, workspace, "because")

    assert track_records.why_stopped(Workspace.objects.get(pk=workspace.pk)) is not None


def test_a_workspace_gets_limits_of_its_own_for_the_track_record(
    admin_client: Client,
    workspace: Workspace,
    waits: Lane,
    django_capture_on_commit_callbacks: Any,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        change(admin_client, workspace, llm_refused_percent="100", llm_judged_days="3")

    workspace.refresh_from_db()
    assert workspace.overrides(environment.TRACK_RECORD) == {
        "llm_judged_sessions": None,
        "llm_judged_days": 3,
        "llm_judged_minimum": None,
        "llm_refused_percent": 100,
        "llm_undone_percent": None,
    }
    assert track_records.why_stopped(workspace) is None
    waits.refresh_from_db()
    assert waits.run_after <= timezone.now()

    refused = change(admin_client, workspace, llm_judged_minimum="51")
    assert "between 1 and 50 (sessions), not 51: llm_judged_sessions is 50." in shown(refused)

"""Backtests on the screens: their findings, shown where a version is approved; started by hand."""

import datetime
import re
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from memory.constraints import backtest_reports, backtests
from memory.constraints.admin import backtests as backtests_admin
from memory.constraints.models.backtests import Backtest, BacktestState
from memory.constraints.models.workspace_constraints import (
    WorkspaceConstraint,
    WorkspaceConstraintVersion,
)
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from tests.factories import make_checkpoint
from tests.integration.admin.conftest import (
    Staff,
    list_url,
    messages_of,
    offered,
    page_url,
    shown,
    text_of,
)
from tests.integration.admin.test_workspace_constraints import act
from tests.integration.time.test_forecast import NOTICE, settle
from tests.integration.work.test_workspace_constraints import made

pytestmark = pytest.mark.django_db

NOW = datetime.datetime(2026, 10, 5, 9, tzinfo=datetime.UTC)


@pytest.fixture
def version(workspace: Workspace, user: MemoryUser) -> WorkspaceConstraintVersion:
    """A version that passed its checks, in a workspace with a user to test it on."""
    MemoryUser.objects.filter(pk=user.pk).update(head=make_checkpoint(user))
    constraint = made(workspace)
    constraint.versions.update(state="passed")
    return constraint.versions.get()


@pytest.fixture
def backtest(version: WorkspaceConstraintVersion, user: MemoryUser) -> Backtest:
    """A running backtest, with the findings for one user."""
    backtest = backtests.start(version, by="test")
    problem = {"at": NOW.isoformat(), "version": 1, "kind": "error", "message": "no such day"}
    findings = [
        {
            "fingerprint": str(number) * 64,
            "severity": severity,
            "message": f"the lease of flat {number} ends",
            "evidence": [{"class": "Rental", "key": f"flat-{number}"}],
            "entries": [1],
            "opened_at": (NOW + datetime.timedelta(days=20 * number)).isoformat(),
            "day": (NOW + datetime.timedelta(days=20 * number)).date().isoformat(),
            "version": 1,
            "resolved_at": NOW.isoformat() if number else None,
        }
        for number, severity in enumerate(("warning", "critical", "critical"))
    ]
    bob = MemoryUser.objects.create(workspace=user.workspace, user_id="bob")
    result = {"alerts": 3, "findings": findings, "problems": [problem]}
    backtest.report = {"checked": 3, "users": {str(user.pk): result, str(bob.pk): None}}
    backtest.state = BacktestState.RUNNING
    backtest.save()
    return backtest


def end(backtest: Backtest, *problems: dict[str, Any]) -> None:
    """Finish a backtest, whose second user has these problems."""
    bob = MemoryUser.objects.get(user_id="bob")
    backtest.report["users"][str(bob.pk)] = {"alerts": 0, "findings": [], "problems": problems}
    backtest.state, backtest.finished_at = BacktestState.FINISHED, timezone.now()
    backtest.save()


def test_failed_users_do_not_count_as_silent(admin_client: Client, backtest: Backtest) -> None:
    end(backtest, {"kind": "failed", "message": "no engine", "at": None, "version": None})

    words = shown(admin_client.get(page_url(backtest)))

    assert "3 alerts, for 1 of 1 user" in words
    assert "backtested on 2 of 3 users, of whom 1 could not be evaluated" in words
    assert "failed bob no engine" in words


def test_approval_names_the_users_that_a_backtest_left_out_and_no_cause(
    backtest: Backtest, user: MemoryUser, version: WorkspaceConstraintVersion
) -> None:
    user.refresh_from_db()
    for name in ("carol", "dave", "eve"):
        MemoryUser.objects.create(workspace=user.workspace, user_id=name, head=user.head)
    end(backtest)

    detail = backtest_reports.tested(version).detail

    # A sample leaves users out as well as a project that is newer than the backtest.
    assert detail.endswith("backtested on 2 of 3 users. 4 users have a project now.")


def test_findings_name_their_users(
    admin_client: Client, backtest: Backtest, user: MemoryUser
) -> None:
    MemoryUser.objects.filter(pk=user.pk).update(metadata={"name": "Hugo Blanc"})
    Workspace.objects.update(name_field="name")
    end(backtest)

    assert f"Hugo Blanc · {user.user_id}" in shown(admin_client.get(page_url(backtest)))


def test_a_backtest_of_some_users_is_half_a_step(
    admin_client: Client, backtest: Backtest, user: MemoryUser, version: WorkspaceConstraintVersion
) -> None:
    user.refresh_from_db()
    end(backtest)
    step = r'<li class="(\w+)"><a [^>]*>(backtested[^<]*)<'
    url = page_url(version.constraint)
    assert re.findall(step, text_of(admin_client.get(url))) == [("done", "backtested")]

    for name in ("carol", "dave", "eve"):
        MemoryUser.objects.create(workspace=user.workspace, user_id=name, head=user.head)

    found = re.findall(step, text_of(admin_client.get(url)))
    assert found == [("part", "backtested, but not on 1 user")]


def test_its_page_tells_how_far_it_got_and_what_it_found(
    admin_client: Client, backtest: Backtest, user: MemoryUser
) -> None:
    response = admin_client.get(page_url(backtest))

    words = shown(response)
    assert "under way: 1 of 2 users" in words
    assert (
        "The backtest is still running (1 of 2 users so far): wait until it has finished." in words
    )
    assert "3 alerts, for 1 of 1 user" in words
    assert "2026-10-05 warning ada v1 the lease of flat 0 ends Rental flat-0" in words
    assert "error ada v1 on 2026-10-05 no such day" in words
    page = text_of(response)
    assert '<progress value="1" max="2"' in page
    assert f'href="{page_url(user)}"' in page
    assert offered(response) == ["cancel"]


def test_its_page_asks_how_far_it_got_until_it_has_ended(
    admin_client: Client, backtest: Backtest, client: Client
) -> None:
    address = reverse("admin:memory_backtest_progress", args=[backtest.pk])
    page = text_of(admin_client.get(page_url(backtest)))
    assert f'data-progress="{address}" data-working="1"' in page
    assert "memory/progress.js" in page

    first = admin_client.get(address).json()
    Backtest.objects.update(state=BacktestState.FINISHED, finished_at=timezone.now())
    last = admin_client.get(address).json()

    assert first == {"text": "under way: 1 of 2 users", "working": True, "done": 1, "of": 2}
    assert last == {"text": "finished: 1 of 2 users", "working": False, "done": 1, "of": 2}
    assert "data-progress" not in text_of(admin_client.get(page_url(backtest)))
    assert client.get(address).status_code == 302
    assert admin_client.post(address).status_code == 405
    nowhere = reverse("admin:memory_backtest_progress", args=[uuid.uuid4()])
    assert admin_client.get(nowhere).status_code == 404


def test_a_version_is_approved_from_its_backtest_once_it_has_finished(
    admin_client: Client, backtest: Backtest, version: WorkspaceConstraintVersion
) -> None:
    (refused,) = messages_of(act(admin_client, "approve", backtest))
    assert refused == (
        "lease_end: The backtest is still running (1 of 2 users so far): wait until it has"
        " finished."
    )
    page = text_of(admin_client.get(page_url(version)))
    assert f'href="{page_url(backtest)}"' in page
    constraint = WorkspaceConstraint.objects.get()
    assert constraint.live is None

    end(backtest)
    assert "approve" in offered(admin_client.get(page_url(backtest)))
    page = act(admin_client, "approve", backtest)
    asked = shown(page)
    assert "It applies to 0 users now. The backtest covered 2 users, and 3 alerts" in asked
    [again] = re.findall(r'<form id="again".*?</form>', text_of(page), re.DOTALL)
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', again))
    assert (fields["action"], "confirmed" in fields) == ("backtest", False)
    assert WorkspaceConstraint.objects.get().live is None
    [approved] = messages_of(act(admin_client, "approve", version, confirmed="1"))
    assert approved.startswith("lease_end v1 is approved and runs for nobody yet: ")
    assert approved.endswith("The constraint was backtested on 2 of 3 users.")
    constraint = WorkspaceConstraint.objects.get()
    assert constraint.live == version
    assert "approve" not in offered(admin_client.get(page_url(backtest)))


def test_backtest_is_cancelled_and_restarted_by_hand(
    admin_client: Client, backtest: Backtest, version: WorkspaceConstraintVersion
) -> None:
    (told,) = messages_of(act(admin_client, "cancel", backtest))
    assert "cancelled" in told
    (told,) = messages_of(act(admin_client, "cancel", backtest))
    assert "This backtest is already cancelled." in told
    assert "The backtest was cancelled (by staff:admin)" in shown(
        admin_client.get(page_url(backtest))
    )

    (told,) = messages_of(act(admin_client, "backtest", version))
    assert told.startswith("Started: <a href=")
    assert Backtest.objects.get().state == "waiting"


def test_account_without_approval_only_looks(
    staff: Staff, backtest: Backtest, user: MemoryUser
) -> None:
    client = staff("view_backtest", "change_backtest", "view_memoryuser", "change_memoryuser")

    for action in ("approve", "cancel"):
        act(client, action, backtest)
    act(client, "backtest_constraints", user)

    backtest.refresh_from_db()
    assert backtest.state == "running"
    assert Backtest.objects.count() == 1
    assert "Cancel" not in shown(client.get(page_url(backtest)))


def test_own_constraint_is_backtested_from_user_page(
    admin_client: Client, user: MemoryUser
) -> None:
    def on_page() -> list[str]:
        return offered(admin_client.get(page_url(user)))

    assert on_page() == ["pause", "erase"]
    settle(user, {"home_notice": NOTICE})
    assert on_page() == ["backtest_constraints", "pause", "erase"]

    (told,) = messages_of(act(admin_client, "backtest_constraints", user))

    backtest = Backtest.objects.get()
    assert f'href="{page_url(backtest)}"' in told
    assert (backtest.user, backtest.constraint) == (user, "constraints/home_notice.py")
    words = shown(admin_client.get(page_url(backtest)))
    assert "constraints/home_notice.py of ada" in words
    (told,) = messages_of(act(admin_client, "approve", backtest))
    assert told == ("1 backtest skipped: a user's own constraint goes live without approval.")


def test_of_several_backtests_those_of_own_constraints_are_left_out_loudly(
    admin_client: Client, backtest: Backtest, version: WorkspaceConstraintVersion, user: MemoryUser
) -> None:
    end(backtest)
    settle(user, {"home_notice": NOTICE})
    own = backtests.start_own(user, "constraints/home_notice.py", by="test")
    body = {"action": "approve", "_selected_action": [str(backtest.pk), str(own.pk)]}

    asked = admin_client.post(list_url(Backtest), body)

    assert "1 backtest skipped: a user's own constraint" in shown(asked)
    assert "Approve 1 version?" in shown(asked)


def test_an_approval_leads_back_to_the_page_it_was_asked_on(
    admin_client: Client, backtest: Backtest, version: WorkspaceConstraintVersion
) -> None:
    end(backtest)
    for row in (backtest, version.constraint, version):
        asked = act(admin_client, "approve", row)

        assert f'<a href="{page_url(row)}" class="button cancel-link">' in text_of(asked)
        fields = dict(re.findall(r'name="(back)" value="([^"]*)"', text_of(asked)))
        done = act(admin_client, "approve", version, confirmed="1", **fields)
        assert done.redirect_chain == [(page_url(row), 302)]

    foreign = act(admin_client, "approve", version, confirmed="1", back="//example.org/")
    assert foreign.redirect_chain == [(page_url(version), 302)]


def test_too_many_versions_are_not_approved_at_once(
    admin_client: Client, backtest: Backtest, version: WorkspaceConstraintVersion, monkeypatch: Any
) -> None:
    end(backtest)
    second = WorkspaceConstraintVersion.objects.create(
        constraint=version.constraint, number=2, source="", source_hash="", tests="", created_by=""
    )
    monkeypatch.setattr(backtests_admin, "MAX_APPROVED", 1)
    body = {"action": "approve", "_selected_action": [str(version.pk), str(second.pk)]}

    response = admin_client.post(list_url(WorkspaceConstraintVersion), body, follow=True)

    assert messages_of(response) == ["Nothing was done: select at most 1 rows."]
    assert WorkspaceConstraint.objects.get().live is None


def test_a_backtest_report_is_read_once_for_a_page(
    admin_client: Client, backtest: Backtest, version: WorkspaceConstraintVersion
) -> None:
    end(backtest)

    def reads(show: Callable[[], Any]) -> int:
        with CaptureQueriesContext(connection) as queries:
            show()
        return sum('"memory_backtest"."report"' in query["sql"] for query in queries)

    assert reads(lambda: act(admin_client, "approve", version)) == 1
    assert reads(lambda: admin_client.get(page_url(version))) == 1

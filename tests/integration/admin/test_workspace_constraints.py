"""Workspace constraints on the screens: written, judged, approved, given to users, disabled."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext

from memory.alerts.models.alerts import Alert, AlertState
from memory.constraints import constraint_library
from memory.constraints.models.backtests import Backtest
from memory.constraints.models.workspace_constraints import WorkspaceConstraint
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind
from tests.integration.admin.conftest import (
    Staff,
    add_url,
    list_url,
    messages_of,
    offered,
    page_url,
    shown,
    text_of,
)
from tests.integration.work.test_workspace_constraints import SOURCE, TESTS, rental
from workers.service import dispatching

pytestmark = pytest.mark.django_db

Work = Callable[[], None]


def add(client: Client, workspace: Workspace, **fields: str) -> Any:
    body = {"workspace": workspace.pk, "start_from": "", "name": "", "description": ""}
    return client.post(
        add_url(WorkspaceConstraint), {**body, "source": "", "tests": "", **fields}, follow=True
    )


def save(client: Client, constraint: WorkspaceConstraint, **fields: str) -> Any:
    body = {"description": constraint.description, "percentage": str(constraint.percentage)}
    body |= {"source": SOURCE, "tests": TESTS}
    return client.post(page_url(constraint), {**body, **fields}, follow=True)


def act(client: Client, action: str, row: Model, **fields: str) -> Any:
    body = {"action": action, "_selected_action": [str(row.pk)], "from_page": "1", **fields}
    return client.post(list_url(type(row)), body, follow=True)


def lease(client: Client, workspace: Workspace) -> WorkspaceConstraint:
    """Write the constraint as a browser sends it."""
    texts = {"source": SOURCE.replace("\n", "\r\n"), "tests": TESTS.replace("\n", "\r\n")}
    assert add(client, workspace, name="lease_end", **texts).status_code == 200
    return WorkspaceConstraint.objects.get()


def test_from_the_editor_to_an_alert_and_back(
    admin_client: Client, workspace: Workspace, user: MemoryUser, work: Work
) -> None:
    entry_log.append(user, [Draft(kind=EntryKind.RECORD, data=rental())], source="test")
    work()
    constraint = lease(admin_client, workspace)
    version = constraint.versions.get()
    assert (version.source, version.tests) == (SOURCE, TESTS)
    assert (version.created_by, version.state) == ("staff:admin", "checking")
    work()

    page = shown(admin_client.get(page_url(constraint)))
    assert "v1 passed, not approved Checks passed policy Is the code valid Python" in page
    assert "passed types Is the code correctly typed?" in page
    assert "applies to 1 user, 0 of them within the rollout percentage of 0 %" in page
    assert "Backtest: The constraint was backtested on 1 of 1 users." in page
    assert "Next: approve it." in page
    backtest = version.backtests.get()
    page = shown(admin_client.get(page_url(backtest)))
    assert "1 alert, for 1 of 1 user" in page
    assert "Approve" in page

    asked = act(admin_client, "approve", constraint)
    assert "Once approved, it runs for nobody until you set a percentage" in shown(asked)
    assert "It applies to 1 user now. The backtest covered 1 user" in shown(asked)
    constraint.refresh_from_db()
    assert constraint.live is None
    [approved] = messages_of(act(admin_client, "approve", version, confirmed="1"))
    assert approved.startswith("lease_end v1 is approved and runs for nobody yet: ")
    assert f"{page_url(constraint)}#id_percentage" in approved
    assert approved.endswith("The constraint was backtested on 1 of 1 users.")
    refused = shown(save(admin_client, constraint, percentage="100"))
    assert "rolled out to 0 %" in refused
    with CaptureQueriesContext(connection) as queries:
        told = messages_of(save(admin_client, constraint, percentage="100", sure="on"))
    assert "It runs for 1 user now, of 1 to whom it applies." in told
    statements = [query["sql"] for query in queries]
    counted = next(place for place, sql in enumerate(statements) if '"outline"' in sql)
    locking = next(
        place
        for place, sql in enumerate(statements)
        if sql.startswith('UPDATE "memory_memoryuser"')
    )
    assert counted < locking
    dispatching.dispatch()
    work()
    alert = Alert.objects.get()
    page = shown(admin_client.get(page_url(alert)))
    assert "workspace/constraints/lease_end.py is lease_end v1" in page
    assert "A lease that nobody may forget." in page
    page = shown(admin_client.get(list_url(WorkspaceConstraint)))
    assert "lease_end" in page
    assert "runs 100 v1 v1 approved 1 alert" in page

    assert messages_of(act(admin_client, "disable", constraint, confirmed="1")) == [
        "1 constraint disabled."
    ]
    dispatching.dispatch()
    work()
    alert.refresh_from_db()
    assert alert.state == AlertState.RESOLVED
    constraint.refresh_from_db()
    assert (constraint.enabled, constraint.changed_by) == (False, "staff:admin")


def test_library_constraint_is_taken_over(admin_client: Client, workspace: Workspace) -> None:
    add(admin_client, workspace, start_from="drug_allergy")

    constraint = WorkspaceConstraint.objects.get()
    known = constraint_library.read("drug_allergy")
    assert (constraint.name, constraint.description) == ("drug_allergy", known.summary)
    assert constraint.versions.get().source == known.source


def test_a_library_card_fills_the_form(
    admin_client: Client, workspace: Workspace, work: Work
) -> None:
    [card] = re.findall(
        r'href="(\?start_from=drug_allergy)"',
        text_of(admin_client.get(add_url(WorkspaceConstraint))),
    )
    form = admin_client.get(add_url(WorkspaceConstraint) + card).context["adminform"].form

    known = constraint_library.read("drug_allergy")
    filled = {name: form[name].value() for name in form.fields}
    assert (filled["source"], filled["tests"]) == (known.source, known.tests)
    assert (filled["name"], filled["description"]) == (known.name, known.summary)
    assert form["start_from"].is_hidden
    # There is one workspace to choose from.
    assert filled["workspace"] == str(workspace.pk)

    # What the form shows can be saved as it is.
    texts = ("start_from", "name", "description", "source", "tests")
    add(admin_client, workspace, **{name: filled[name] for name in texts})
    assert WorkspaceConstraint.objects.get().versions.get().source == known.source


def test_nothing_is_filled_without_a_choice_of_library_constraint_or_workspace(
    admin_client: Client, workspace: Workspace
) -> None:
    Workspace.objects.create(name="Other")
    form = (
        admin_client.get(add_url(WorkspaceConstraint) + "?start_from=x").context["adminform"].form
    )

    assert not form["source"].value()
    assert not form["workspace"].value()


def test_steps_taken_for_no_users_are_not_done(
    admin_client: Client, workspace: Workspace, user: MemoryUser, work: Work
) -> None:
    constraint = lease(admin_client, workspace)
    work()
    steps = r'<li class="(\w+)"><a [^>]*>((?:backtested|rolled)[^<]*)<'
    page = text_of(admin_client.get(page_url(constraint)))
    assert ("part", "backtested on 0 users") in re.findall(steps, page)

    act(admin_client, "approve", constraint.versions.get(), confirmed="1")
    save(admin_client, constraint, percentage="100", sure="on")
    page = text_of(admin_client.get(page_url(constraint)))
    assert re.findall(steps, page) == [
        ("part", "backtested on 0 users"),
        ("part", "rolled out to 100 %, but for 0 users"),
    ]


def test_saving_a_new_text_writes_a_version(admin_client: Client, workspace: Workspace) -> None:
    constraint = lease(admin_client, workspace)
    LogEntry.objects.all().delete()
    assert "historylink" not in admin_client.get(page_url(constraint)).content.decode()

    response = save(
        admin_client, constraint, description="new words", source=SOURCE.replace("\n", "\r\n")
    )
    assert "checked" not in "".join(messages_of(response))
    assert constraint.versions.count() == 1
    constraint.refresh_from_db()
    assert constraint.description == "new words"
    assert "historylink" in admin_client.get(page_url(constraint)).content.decode()

    response = save(admin_client, constraint, source=SOURCE + "# more\n")
    assert messages_of(response)[0].startswith("Version 2 is being checked.")
    assert constraint.versions.count() == 2
    page = admin_client.get(page_url(constraint)).content.decode()
    assert "# more" in page.partition("<textarea")[2]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": "Lease", "source": SOURCE, "tests": TESTS}, "Lease"),
        (
            {"name": "lease_end", "source": " ", "tests": TESTS},
            "This field must not be empty. Write Python code.",
        ),
        ({"name": "lease_end", "source": "#" * 70_000, "tests": TESTS}, "65536 bytes"),
        ({"name": "other", "start_from": "drug_allergy"}, "Leave the name empty"),
        ({"name": "", "source": SOURCE, "tests": TESTS}, "or choose a library constraint"),
        ({"name": "lease_end", "start_from": "nothing"}, "Select a valid choice"),
    ],
)
def test_error_is_shown_beside_its_field(
    admin_client: Client, workspace: Workspace, fields: dict[str, str], told: str
) -> None:
    response = add(admin_client, workspace, **fields)

    assert response.context["adminform"].form.errors
    assert told in shown(response)
    assert not WorkspaceConstraint.objects.exists()


def test_no_more_than_all_users_can_have_it(admin_client: Client, workspace: Workspace) -> None:
    constraint = lease(admin_client, workspace)

    response = save(admin_client, constraint, percentage="250")

    assert "Ensure this value is less than or equal to 100." in shown(response)


def test_a_name_that_is_taken_is_refused(admin_client: Client, workspace: Workspace) -> None:
    lease(admin_client, workspace)

    response = add(admin_client, workspace, name="lease_end", source=SOURCE, tests=TESTS)

    assert "The workspace already has a constraint with this name." in shown(response)
    assert WorkspaceConstraint.objects.count() == 1


def test_writer_may_not_approve(staff: Staff, workspace: Workspace, work: Work) -> None:
    writer = staff(
        *(f"{verb}_workspaceconstraint" for verb in ("add", "change", "view")),
        *("view_workspaceconstraintversion", "view_workspace", "change_workspaceconstraintversion"),
        *("view_backtest", "change_backtest", "view_content"),
    )
    constraint = lease(writer, workspace)
    work()

    before = Backtest.objects.get()
    rows: Sequence[Model] = (constraint.versions.get(), constraint)
    for row in rows:
        for action in ("approve", "backtest"):
            act(writer, action, row, confirmed="1")
    for action in ("approve", "cancel"):
        act(writer, action, Backtest.objects.get(), confirmed="1")
    act(writer, "disable", constraint, confirmed="1")
    save(writer, constraint, percentage="100", description="mine")

    constraint.refresh_from_db()
    assert (constraint.live, constraint.enabled, constraint.percentage) == (None, True, 0)
    assert constraint.description == "mine"
    assert Backtest.objects.get() == before
    for page_of in (constraint, before):
        assert "Approve" not in shown(writer.get(page_url(page_of)))
    page = shown(writer.get(page_url(constraint)))
    assert "Disable" not in page


def test_an_earlier_version_is_taken_back_on_its_page(
    admin_client: Client, workspace: Workspace, work: Work
) -> None:
    constraint = lease(admin_client, workspace)
    save(admin_client, constraint, source=SOURCE + "# more\n")
    work()
    second, first = constraint.versions.all()
    for version in (first, second, first):
        (told,) = messages_of(act(admin_client, "approve", version, confirmed="1"))
        assert told.startswith(f"{version} is approved and runs for nobody yet: ")
    constraint.refresh_from_db()
    assert constraint.live == first
    page = shown(admin_client.get(page_url(first)))
    assert "approved runs for nobody" in page
    save(admin_client, constraint, percentage="50", sure="on")
    response = admin_client.get(page_url(first))
    assert "approved live" in shown(response)
    assert "approve" not in offered(response)


def test_refused_version_has_its_reason_and_no_approval(
    admin_client: Client, workspace: Workspace, work: Work
) -> None:
    add(admin_client, workspace, name="lease_end", source=SOURCE.replace("<", "<="), tests=TESTS)
    work()
    constraint = WorkspaceConstraint.objects.get()

    assert "approve" not in offered(admin_client.get(page_url(constraint)))
    for action in ("approve", "backtest"):
        (told,) = messages_of(act(admin_client, action, constraint.versions.get(), confirmed="1"))
        assert "refused" in told
    page = shown(admin_client.get(page_url(constraint.versions.get())))
    assert "failed tests" in page
    assert "test_is_silent" in page or "AssertionError" in page

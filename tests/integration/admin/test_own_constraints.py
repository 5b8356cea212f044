"""A user's own constraints, written from the admin: the gate decides on each."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from memory.alerts.models.alerts import Alert
from memory.kernel.models.users import MemoryUser
from memory.kernel.staff.models import StaffAudit
from memory.log import entry_log
from memory.log.entry_log import Draft
from memory.log.models.entries import EntryKind
from memory.privacy import redaction
from memory.versions.checkpoints import read_file
from memory.versions.models.runs import Run, RunKind, RunTrigger
from tests.integration.admin.conftest import shown, text_of
from tests.integration.commits.conftest import trip

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("nobody_waits")]

SOURCE = '''"""Trips are cheap."""

import datetime
from collections.abc import Iterator

from domains.travel.state import trips
from uac import Alert, warning


def check(today: datetime.date) -> Iterator[Alert]:
    """Speak of each trip that costs more than 500."""
    for one in trips:
        if one.cost > 500:
            yield warning(f"{one.key} costs {one.cost}", evidence=[one])
'''
TESTS = """import datetime

from constraints import dear
from domains.travel.schema import Trip
from uac.testing import run_check

TODAY = datetime.date(2026, 1, 1)


def trip(cost: float) -> Trip:
    return Trip(key="a", to="Rome", cost=cost, on=TODAY)


def test_speaks() -> None:
    assert len(run_check(dear, today=TODAY, trips=[trip(501.0)])) == 1


def test_is_silent() -> None:
    assert run_check(dear, today=TODAY, trips=[trip(500.0)]) == []
"""
DEAR = {"name": "dear", "source": SOURCE, "tests": TESTS, "seen": ""}

Write = Callable[..., Any]


@pytest.fixture
def trips(user: MemoryUser, work: Callable[[], None]) -> MemoryUser:
    """A user with a trip that costs 840."""
    data = trip("Rome", key="a", cost=840.5, on="2026-05-02")
    entry_log.append(user, [Draft(kind=EntryKind.RECORD, data=data)], source="test")
    work()
    user.refresh_from_db()
    return user


def address(user: MemoryUser, **asked: str) -> str:
    found = reverse("admin:memory_memoryuser_constraint", args=[user.pk])
    return found + ("?" + "&".join(f"{key}={value}" for key, value in asked.items()) * bool(asked))


@pytest.fixture
def write(admin_client: Client, trips: MemoryUser, work: Callable[[], None]) -> Write:
    """Submit the form, do the work, and return the page with the result."""

    def post(**said: str) -> Any:
        answer = admin_client.post(address(trips), {**DEAR, **said})
        assert answer.status_code == 302, text_of(answer)
        work()
        trips.refresh_from_db()
        return admin_client.get(answer["Location"])

    return post


def refused(answer: Any) -> str:
    """Return the form's errors."""
    assert answer.status_code == 400
    answer.status_code = 200
    return shown(answer)


def seen(page: Any) -> str:
    return str(page.context["form"]["seen"].value())


def test_accepted_constraint_is_a_version_and_fires(write: Write, trips: MemoryUser) -> None:
    page = write()

    assert "accepted : it is now version v2" in shown(page)
    assert "Current alerts from the constraint: warning" in shown(page)
    assert trips.head is not None
    assert read_file(trips.head, "constraints/dear.py") == SOURCE
    assert read_file(trips.head, "tests/test_dear.py") == TESTS
    assert [alert.constraint for alert in Alert.objects.filter(user=trips)] == [
        "constraints/dear.py"
    ]
    run = Run.objects.get(kind=RunKind.PROPOSAL)
    assert (run.trigger, run.asked_by) == (RunTrigger.STAFF, "staff:admin")
    assert StaffAudit.objects.filter(what="constraint", kind="act").count() == 1


def test_refused_text_changes_nothing_and_is_kept(write: Write, trips: MemoryUser) -> None:
    deaf = SOURCE.replace("> 500", "> 50_000")

    page = write(source=deaf)

    words = shown(page)
    assert "refused" in words
    assert "test_speaks" in words
    assert "The newest version is unchanged" in words
    assert page.context["form"]["source"].value() == deaf
    assert trips.head is not None
    assert trips.head.version == 1
    assert not Alert.objects.filter(user=trips).exists()


def test_existing_constraint_is_changed_and_deleted(
    write: Write, trips: MemoryUser, admin_client: Client
) -> None:
    write()
    page = admin_client.get(address(trips, name="dear"))
    assert page.context["form"]["source"].value() == SOURCE
    assert 'name="name" value="dear"' in text_of(page)

    write(seen=seen(page), source=SOURCE.replace("costs", "is dear:"))
    assert trips.head is not None
    assert "is dear:" in read_file(trips.head, "constraints/dear.py")

    page = write(seen=seen(admin_client.get(address(trips, name="dear"))), delete="yes")
    assert "accepted" in shown(page)
    assert "constraints/dear.py" not in trips.head.tree
    assert [alert.state for alert in Alert.objects.filter(user=trips)] == ["resolved"]
    assert admin_client.get(address(trips, name="dear")).status_code == 404


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"name": "Dear Trips"}, "Name: "),
        ({"name": "class"}, "Name: "),
        ({"name": ""}, "Name: This field is required."),
        ({"source": ""}, "Source: This field is required."),
        ({"tests": "x" * 70_000}, "Tests: Ensure this value has at most 65536 characters"),
        ({"seen": "f" * 64}, "the user no longer has a constraint named dear"),
    ],
)
def test_bad_input_names_the_field_and_proposes_nothing(
    admin_client: Client, trips: MemoryUser, said: dict[str, str], words: str
) -> None:
    answer = admin_client.post(address(trips), {**DEAR, **said})

    assert words in refused(answer)
    assert not Run.objects.filter(kind=RunKind.PROPOSAL).exists()


def test_nobody_writes_over_what_came_meanwhile(
    write: Write, trips: MemoryUser, admin_client: Client
) -> None:
    write()
    opened = admin_client.get(address(trips, name="dear"))
    write(seen=seen(opened), source=SOURCE.replace("500", "600"), tests=TESTS.replace("50", "60"))

    answer = admin_client.post(address(trips), {**DEAR, "seen": seen(opened)})
    as_new = admin_client.post(address(trips), DEAR)

    assert "has changed since you opened it" in refused(answer)
    assert "The user already has a constraint named dear. Open that constraint" in refused(as_new)
    trips.refresh_from_db()
    assert trips.head is not None
    assert "600" in read_file(trips.head, "constraints/dear.py")


def test_second_of_two_concurrent_saves_changes_nothing(
    admin_client: Client, trips: MemoryUser, work: Callable[[], None]
) -> None:
    first = admin_client.post(address(trips), DEAR)
    second = admin_client.post(address(trips), {**DEAR, "source": SOURCE.replace("Trips", "All")})
    work()

    assert "accepted" in shown(admin_client.get(first["Location"]))
    refused_page = shown(admin_client.get(second["Location"]))
    assert "has changed since you opened it" in refused_page
    trips.refresh_from_db()
    assert trips.head is not None
    assert read_file(trips.head, "constraints/dear.py") == SOURCE


def test_pending_redaction_blocks_the_page(admin_client: Client, trips: MemoryUser) -> None:
    redaction.redact(trips, [1], by="staff:eve", reason="asked for")

    page = admin_client.get(address(trips))
    answer = admin_client.post(address(trips), DEAR)

    assert "redaction" in shown(page)
    assert "<textarea" not in text_of(page)
    assert answer.status_code == 400


def test_a_new_one_begins_with_a_form_to_fill_in(admin_client: Client, trips: MemoryUser) -> None:
    form = admin_client.get(address(trips)).context["form"]

    source, tests = (str(form[name].value()) for name in ("source", "tests"))
    compile(source, "constraint", "exec")
    compile(tests, "tests", "exec")
    assert f"from constraints import {form['name'].value()}\n" in tests


@pytest.mark.parametrize("asked", [{"run": "x"}, {"run": "0" * 32}, {"name": "none"}])
def test_unknown_constraint_is_not_found(
    admin_client: Client, trips: MemoryUser, asked: dict[str, str]
) -> None:
    assert admin_client.get(address(trips, **asked)).status_code == 404


def test_a_proposal_of_another_user_is_not_shown(
    write: Write, trips: MemoryUser, admin_client: Client
) -> None:
    write()
    run = Run.objects.get(kind=RunKind.PROPOSAL)
    other = MemoryUser.objects.create(workspace=trips.workspace, user_id="bob")

    assert admin_client.get(address(other, run=str(run.pk))).status_code == 404


@pytest.mark.parametrize(
    "permissions",
    [
        ("view_memoryuser", "view_checkpoint", "change_checkpoint"),
        ("view_memoryuser", "view_checkpoint", "view_content"),
    ],
)
def test_writing_needs_versions_and_content(
    staff: Callable[..., Client], trips: MemoryUser, permissions: tuple[str, ...]
) -> None:
    client = staff(*permissions)

    assert client.get(address(trips)).status_code == 403
    assert client.post(address(trips), DEAR).status_code == 403
    assert not Run.objects.filter(kind=RunKind.PROPOSAL).exists()


def test_failing_constraint_is_marked_on_page_and_list(
    write: Write, trips: MemoryUser, admin_client: Client, work: Callable[[], None]
) -> None:
    write()
    assert "fails" not in shown(admin_client.get(address(trips, name="dear")))
    without = trip("Oslo", key="b", cost=None, on="2026-05-03")
    entry_log.append(trips, [Draft(kind=EntryKind.RECORD, data=without)], source="test")
    work()

    page = shown(admin_client.get(address(trips, name="dear")))

    assert "This constraint fails: constraints/dear.py failed at line" in page
    assert "dear (fails)" in page
    assert "dear (fails)" in shown(admin_client.get(address(trips)))

"""E-mail to the staff: content, time and recipients; nothing is lost."""

import datetime
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Permission, User
from django.core import mail
from django.db import transaction
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory.alerts import alert_actions
from memory.alerts.delivery import staff_mail
from memory.alerts.models.alerts import Alert, Severity
from memory.alerts.models.staff_mail import MailCursor, MailMode, StaffSubscription
from memory.kernel.models.users import MemoryUser
from memory.kernel.models.workspaces import Workspace
from memory.kernel.staff.models import StaffAccess
from memory.kernel.users import create_user
from tests.integration.alerts.test_life import ALLERGY, finding, record, run_finds
from tests.mail_server import MailServer, mail_server
from tests.waiting import eventually, scaled
from workers import tasks
from workers.delivery import mailing
from workers.service import dispatching

db = pytest.mark.django_db
MINUTE = datetime.timedelta(minutes=1)
SMTP = "django.core.mail.backends.smtp.EmailBackend"


def staff(name: str = "eve", **fields: Any) -> User:
    return User.objects.create(
        **{
            "username": name,
            "email": f"{name}@example.org",
            "is_staff": True,
            "is_superuser": True,
            **fields,
        }
    )


def subscribe(workspace: Workspace | None, who: User | None = None, **fields: Any) -> Any:
    subscription = StaffSubscription(staff=who or staff(), workspace=workspace, **fields)
    staff_mail.start(subscription, timezone.now())
    return subscription


def tick() -> int:
    """Do what a tick of the dispatcher and the workers that it hints would do."""
    found = staff_mail.waiting().filter(run_after__lte=timezone.now())
    for subscription in list(found):
        tasks.work("mails", subscription.pk)
    return len(mail.outbox)


@pytest.fixture
def later() -> Iterator[Callable[[datetime.timedelta], None]]:
    """Move the clock ahead.

    Nothing else moves it: a wait of a second lasts a second, however slow the machine is.
    """
    with time_machine.travel(timezone.now(), tick=False) as clock:
        yield clock.shift


Later = Callable[[datetime.timedelta], None]


# -- What is told ------------------------------------------------------------------------------


@db
def test_a_new_alert_is_mailed_with_its_message_and_a_link(
    user: MemoryUser, admin_client: Client, settings: Settings
) -> None:
    settings.UAC_BASE_URL = "https://uac.example.org/"
    subscription = subscribe(user.workspace)
    run_finds(user, finding(record("m-1", 41), message="Amoxicillin conflicts"))

    tick()

    (sent,) = mail.outbox
    alert = Alert.objects.get()
    assert sent.to == ["eve@example.org"]
    assert sent.subject == "[UaC] 1 critical: Amoxicillin conflicts"
    assert "critical: Amoxicillin conflicts" in sent.body
    assert f"user ada in {user.workspace.name}; constraints/allergy.py" in sent.body
    assert "m-1" not in sent.body
    paths = [line.strip().removeprefix("https://uac.example.org") for line in sent.body.split("\n")]
    addresses = [path for path in paths if path.startswith("/admin/")]
    assert addresses == [
        f"/admin/memory/alert/{alert.pk}/change/",
        f"/admin/memory/staffsubscription/{subscription.pk}/change/",
    ]
    assert all(admin_client.get(address).status_code == 200 for address in addresses)
    assert tick() == 1


@db
def test_earlier_and_minor_events_are_not_mailed(user: MemoryUser) -> None:
    run_finds(user, finding(record("m-1")))
    subscribe(user.workspace, least_severity=Severity.WARNING)

    run_finds(
        user,
        finding(record("m-1")),
        finding(record("m-2"), severity=Severity.INFO),
    )
    assert tick() == 0

    run_finds(user, finding(record("m-1"), message="reworded"))
    alert_actions.acknowledge(Alert.objects.get(severity="critical"), actor="staff:eve")
    assert tick() == 0
    assert set(MailCursor.objects.values_list("seq", flat=True)) == {
        Alert.objects.get(severity="critical").events.latest("seq").seq
    }


@db
def test_worsened_and_woken_alerts_are_mailed(user: MemoryUser, later: Later) -> None:
    run_finds(user, finding(record("m-1"), severity=Severity.WARNING))
    subscribe(user.workspace)

    run_finds(user, finding(record("m-1"), severity=Severity.CRITICAL))
    assert tick() == 1
    later(2 * MINUTE)
    run_finds(user, finding(record("m-1"), severity=Severity.WARNING))
    assert tick() == 1
    alert_actions.snooze(Alert.objects.get(), actor="staff:eve", until=timezone.now() + MINUTE)
    later(2 * MINUTE)
    assert tick() == 1
    alert_actions.wake(10)
    assert tick() == 2


@db
def test_a_cause_more_is_told_and_one_less_is_not(user: MemoryUser, later: Later) -> None:
    own, theirs = ALLERGY, "workspace/constraints/allergy.py"
    both = [finding(record("m-1"), constraint=path) for path in (own, theirs)]
    run_find = partial(run_finds, user, completed=[own, theirs], existing=[own, theirs])
    run_find(both[0])
    subscribe(user.workspace)
    run_find(*both)
    assert tick() == 1

    later(2 * MINUTE)
    run_find(both[0])
    assert tick() == 1


@db
def test_subscriber_to_all_workspaces_is_mailed_of_others(user: MemoryUser) -> None:
    subscribe(user.workspace)
    subscribe(None, staff("mallory"))
    stranger = create_user(Workspace.objects.create(name="other"), "bob", metadata=None)
    run_finds(stranger, finding(record("m-1")))

    tick()

    assert [sent.to for sent in mail.outbox] == [["mallory@example.org"]]


@db
def test_markup_and_line_ends_stay_in_their_line(user: MemoryUser) -> None:
    subscribe(user.workspace)
    hostile = (
        "<script>alert(1)</script>\nBcc: thief@example.org\r\n\r\ncritical: forged\u2028\u202e\0x"
    )
    run_finds(user, finding(key="k", message=hostile.replace("\0", "")))

    tick()

    (sent,) = mail.outbox
    raw = sent.message()
    assert raw.get_content_type() == "text/plain"
    assert raw["Bcc"] is None
    assert "\n" not in sent.subject
    assert sent.recipients() == ["eve@example.org"]
    assert not any(line.startswith(("Bcc", "critical: forged")) for line in sent.body.split("\n"))
    assert "\u202e" not in sent.body
    assert "<script>alert(1)</script> Bcc: thief@example.org critical: forged" in sent.body


# -- How often ---------------------------------------------------------------------------------


@db
def test_mails_are_at_least_a_minute_apart(user: MemoryUser, later: Later) -> None:
    subscribe(user.workspace)
    found = []
    for number in range(4):
        found.append(finding(record(f"m-{number}")))
        run_finds(user, *found)
        tick()
    assert len(mail.outbox) == 1

    later(MINUTE)
    assert tick() == 2
    assert mail.outbox[1].subject == "[UaC] 3 critical: alerts"
    later(MINUTE)
    assert tick() == 2


@db
def test_more_than_twenty_are_counted_and_the_gravest_listed(user: MemoryUser) -> None:
    subscribe(user.workspace)
    warnings = [
        finding(record(f"w-{n}"), severity=Severity.WARNING, message=f"warning {n}")
        for n in range(30)
    ]
    run_finds(user, *warnings, finding(record("c"), message="the gravest"))

    tick()

    (sent,) = mail.outbox
    assert sent.subject == "[UaC] 1 critical, 30 warning: alerts"
    told = [line for line in sent.body.split("\n") if line.startswith(("critical:", "warning:"))]
    assert told[0] == "critical: the gravest"
    assert len(told) == 20
    assert "… and 11 more, none more severe" in sent.body


@db
def test_daily_digest_comes_at_its_hour_with_news_only(user: MemoryUser, later: Later) -> None:
    berlin = datetime.datetime.fromisoformat("2026-11-21T20:00:00+01:00")
    with time_machine.travel(berlin, tick=False) as clock:
        daily = subscribe(user.workspace, mode=MailMode.DAILY, hour=7, time_zone="Europe/Berlin")
        run_finds(user, finding(record("m-1")), finding(record("m-2"), severity=Severity.WARNING))
        alert_actions.resolve(
            Alert.objects.get(severity="warning"), actor="staff:eve", reason="done"
        )
        clock.shift(datetime.timedelta(hours=10, minutes=59))
        assert tick() == 0
        clock.shift(2 * MINUTE)
        assert tick() == 1
        assert tick() == 1
        clock.shift(datetime.timedelta(days=1))
        assert tick() == 1

    assert mail.outbox[0].subject == "[UaC] 1 critical, 1 warning: alerts"
    assert "warning, now resolved:" in mail.outbox[0].body
    daily.refresh_from_db()
    assert daily.digest_due_at == datetime.datetime.fromisoformat("2026-11-24T07:00:00+01:00")


@db
@pytest.mark.parametrize("mode", MailMode)
def test_mails_of_very_many_workspaces_are_sent_in_batches(
    later: Later, monkeypatch: pytest.MonkeyPatch, mode: MailMode
) -> None:
    # Given more workspaces with news than one mail tells of
    monkeypatch.setattr(staff_mail, "WORKSPACES", 2)
    subscribe(None, mode=mode)
    for number in range(5):
        workspace = Workspace.objects.create(name=f"workspace {number}")
        run_finds(create_user(workspace, "ada", metadata=None), finding(record("m-1")))

    # When the hour strikes, then as many mails are sent as it takes, and each tells of others
    later(datetime.timedelta(days=1))
    assert tick() == 3
    bodies = "".join(str(one.body) for one in mail.outbox)
    assert [bodies.count(f"in workspace {number};") for number in range(5)] == [1] * 5
    later(datetime.timedelta(days=1))
    assert tick() == 3


@db
@pytest.mark.parametrize(
    ("mode", "escalations", "mails"),
    [
        (MailMode.DAILY, True, 1),
        (MailMode.DAILY, False, 0),
        (MailMode.AT_ONCE, True, 1),
        (MailMode.AT_ONCE, False, 0),
    ],
)
def test_escalations_go_at_once_to_who_wants_them(
    user: MemoryUser, later: Later, mode: MailMode, escalations: bool, mails: int
) -> None:
    run_finds(user, finding(record("m-1"), severity=Severity.WARNING))
    subscribe(
        user.workspace,
        mode=mode,
        escalations=escalations,
        least_severity=Severity.CRITICAL,
        hour=(timezone.now().hour - 2) % 24,
    )
    later(datetime.timedelta(hours=24))
    StaffSubscription.objects.update(digest_due_at=timezone.now() + datetime.timedelta(hours=9))

    assert dispatching.dispatch()["escalated"] == 1
    assert tick() == mails
    assert tick() == mails
    if mails:
        assert mail.outbox[0].subject.startswith("[UaC] escalated: 1 warning: Amoxicillin")
        assert "1 escalated: open for too long" in mail.outbox[0].body


# -- To whom -----------------------------------------------------------------------------------


@db
@pytest.mark.parametrize(
    "change", [{"is_active": False}, {"is_staff": False}, {"email": ""}, {"enabled": False}]
)
def test_former_staff_are_not_mailed(user: MemoryUser, change: dict[str, Any]) -> None:
    subscription = subscribe(user.workspace)
    if "enabled" in change:
        StaffSubscription.objects.update(**change)
    else:
        User.objects.filter(pk=subscription.staff_id).update(**change)
    run_finds(user, finding(record("m-1")))

    assert tick() == 0
    assert dispatching.dispatch()["mails"] == 0


@db
def test_mail_waits_until_staff_have_permission(user: MemoryUser, later: Later) -> None:
    who = staff(is_superuser=False)
    StaffAccess.objects.create(user=who, all_workspaces=True)
    subscription = subscribe(user.workspace, who)
    run_finds(user, finding(record("m-1")))

    assert tick() == 0
    subscription.refresh_from_db()
    assert "eve has no permission to view alerts" in subscription.last_error

    who.user_permissions.add(Permission.objects.get(codename="view_alert"))
    later(MINUTE)
    assert tick() == 1
    subscription.refresh_from_db()
    assert (subscription.last_error, subscription.attempts) == ("", 0)


def reader(*codenames: str, workspaces: list[Workspace], name: str = "eve") -> User:
    """A member of the staff who may view alerts, and sees these workspaces."""
    who = staff(name, is_superuser=False)
    chosen = ["view_alert", *codenames]
    who.user_permissions.set(Permission.objects.filter(codename__in=chosen))
    StaffAccess.objects.create(user=who).workspaces.set(workspaces)
    return who


@db
@pytest.mark.parametrize("is_of_all", [True, False])
def test_staff_are_mailed_of_no_workspace_that_is_not_theirs(
    user: MemoryUser, workspace: Workspace, later: Later, is_of_all: bool
) -> None:
    other = Workspace.objects.create(name="other")
    who = reader("view_content", workspaces=[other])
    subscription = subscribe(None if is_of_all else workspace, who)
    run_finds(user, finding(record("m-1"), message="of somebody else's"))

    assert tick() == 0
    subscription.refresh_from_db()
    assert subscription.last_error == ""
    later(MINUTE)
    assert not staff_mail.waiting().exists()  # and nobody is woken for it again

    if is_of_all:
        run_finds(create_user(other, "bob", metadata=None), finding(record("m-1"), message="own"))
        assert tick() == 1
        assert "own" in mail.outbox[0].body
        assert "somebody else" not in f"{mail.outbox[0].subject} {mail.outbox[0].body}"


@db
def test_mail_without_content_permission_has_none(user: MemoryUser, workspace: Workspace) -> None:
    subscription = subscribe(workspace, reader(workspaces=[workspace]))
    run_finds(user, finding(record("m-1"), message="takes penicillin"))

    assert tick() == 1
    said = f"{mail.outbox[0].subject} {mail.outbox[0].body}"
    assert "penicillin" not in said
    assert "constraints/" not in said
    assert f"user {user.user_id} in" in said
    assert f"staffsubscription/{subscription.pk}/" in said


@db
def test_missing_mail_server_sends_none(user: MemoryUser, settings: Settings, later: Later) -> None:
    settings.EMAIL_BACKEND = mailing.NO_BACKEND
    subscription = subscribe(user.workspace)
    run_finds(user, finding(record("m-1")))

    tick()
    subscription.refresh_from_db()
    assert "EMAIL_URL is not set" in subscription.last_error

    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    later(MINUTE)
    assert tick() == 1


# -- A mail server that fails, hangs, loses and recovers ---------------------------------------


@pytest.fixture
def smtp(settings: Settings) -> Iterator[MailServer]:
    with mail_server() as server:
        settings.EMAIL_BACKEND = SMTP
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        settings.EMAIL_HOST_USER = settings.EMAIL_HOST_PASSWORD = ""
        settings.EMAIL_TIMEOUT = 60
        yield server


@pytest.fixture(autouse=True)
def nobody_was_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailing, "_silent_until", mailing._silent_until)


@db
@pytest.mark.parametrize("behaviour", ["fails", "hangs", "refuses", "loses"])
def test_a_mail_that_cannot_be_sent_is_sent_when_it_can(
    user: MemoryUser, smtp: MailServer, later: Later, settings: Settings, behaviour: str
) -> None:
    subscription = subscribe(user.workspace)
    run_finds(user, finding(record("m-1"), message="first"))
    smtp.behaviour = behaviour
    settings.EMAIL_TIMEOUT = 0.5 if behaviour == "hangs" else 60

    for attempt in range(1, 4):
        began = time.monotonic()
        tick()
        if behaviour == "hangs":
            assert time.monotonic() - began < scaled(100)  # less than the server would hang
        subscription.refresh_from_db()
        assert subscription.attempts == attempt
        assert subscription.last_error
        assert subscription.run_after > timezone.now()
        assert tick() == 0
        assert eventually(lambda attempt=attempt: smtp.connections == attempt)  # type: ignore[misc]
        later(5 * MINUTE)
    run_finds(user, finding(record("m-1")), finding(record("m-2"), message="second"))

    smtp.behaviour = "well"
    settings.EMAIL_TIMEOUT = 60
    tick()
    (sent,) = smtp.mails
    body = sent.get_content()
    assert "Amoxicillin" in body
    assert "first" not in body  # what it said before the second run
    assert "second" in body
    subscription.refresh_from_db()
    assert (subscription.attempts, subscription.last_error) == (0, "")
    later(5 * MINUTE)
    tick()
    assert len(smtp.mails) == 1


@db
def test_a_mail_server_that_hangs_holds_up_no_more_than_one_mail(
    user: MemoryUser, smtp: MailServer, later: Later, settings: Settings
) -> None:
    for name in ("eve", "mallory", "trent"):
        subscribe(user.workspace, staff(name))
    run_finds(user, finding(record("m-1")))
    smtp.behaviour = "hangs"
    settings.EMAIL_TIMEOUT = 0.5

    tick()
    assert eventually(lambda: smtp.connections == 1)

    smtp.behaviour = "well"
    settings.EMAIL_TIMEOUT = 60
    later(MINUTE)
    tick()
    assert sorted(sent["To"] for sent in smtp.mails) == [
        "eve@example.org",
        "mallory@example.org",
        "trent@example.org",
    ]


def test_killed_between_mail_and_cursor_it_is_sent_again_by_another(
    live_database: str,
    workspace: Workspace,
    user: MemoryUser,
    smtp: MailServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subscription = subscribe(workspace)
    with transaction.atomic():
        run_finds(user, finding(record("m-1")))

    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(staff_mail, "record_progress", killed)
        with pytest.raises(KeyboardInterrupt):
            tasks.work("mails", subscription.pk)
    assert len(smtp.mails) == 1
    tick()
    assert len(smtp.mails) == 1  # its lease holds

    StaffSubscription.objects.update(lease_expires_at=timezone.now())
    tick()
    assert len(smtp.mails) == 2
    subscription.refresh_from_db()
    assert subscription.cursors.get().seq == 1

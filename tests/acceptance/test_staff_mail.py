"""Real workers e-mail the staff, even if the mail server hangs and a worker is killed."""

from collections.abc import Iterator

import pytest

from benchmarks.harness import Client
from deploy.embedded.system import System
from tests.mail_server import MailServer
from tests.system import LATE, create_person, log_tasks, new_client, running_system
from tests.waiting import polled

TASKS = 6
SUBSCRIBE = """
from django.contrib.auth.models import User
from django.utils import timezone
from memory.staff import staff_mail
from memory.alerts.models.staff_mail import StaffSubscription
eve = User.objects.create(username="eve", email="eve@example.org", is_staff=True, is_superuser=True)
staff_mail.start(StaffSubscription(staff=eve), timezone.now())
"""


@pytest.fixture(scope="module")
def system(mails: MailServer) -> Iterator[System]:
    """A server that mails to that server, and notices a lost worker soon."""
    environment = {
        "UAC_LEASE_SECONDS": "3",
        "UAC_DISPATCH_SECONDS": "0.5",
        "UAC_BASE_URL": "https://uac.example.org",
        "EMAIL_URL": f"smtp://127.0.0.1:{mails.port}",
        "EMAIL_TIMEOUT": "20",
    }
    with running_system(environment=environment) as system:
        yield system


@pytest.fixture
def client(system: System) -> Client:
    return new_client(system, "mails")


def test_what_a_constraint_finds_is_mailed_when_the_mail_server_recovers(
    system: System, client: Client, mails: MailServer
) -> None:
    # Given somebody who wants to be told, and a mail server that hangs.
    system.manage("shell", "-c", SUBSCRIBE)
    person = create_person(client)
    log_tasks(person, *[0] * TASKS)
    person.write_constraint("late", LATE)
    mails.behaviour = "hangs"

    # When alerts open, and the worker is killed while it waits for the mail server.
    log_tasks(person, *[1] * TASKS)
    alerts = polled(lambda: person.alerts("open"), lambda found: len(found) == TASKS)
    polled(lambda: mails.connections, bool)
    system.kill("default-1")
    mails.behaviour = "well"
    system.start("default-1")

    # Then another one tells of all of them.
    polled(lambda: mails.mails, bool)
    told = "".join(mail.get_content() for mail in mails.mails)
    assert {alert["id"] for alert in alerts} == {
        alert["id"] for alert in alerts if f"alert/{alert['id']}/change/" in told
    }
    assert mails.mails[0]["To"] == "eve@example.org"
    system.check()

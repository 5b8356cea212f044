"""An unsafe production is refused before it starts."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.core.checks import run_checks
from django.core.management.base import SystemCheckError
from django.db import connection
from pytest_django.fixtures import Settings

from memory.models import StaffSubscription
from tests.services import SERVICES
from uac_site import checks

SAFE: dict[str, Any] = {
    "UAC_ENVIRONMENT": "production",
    "DEVELOPMENT": False,
    "DEBUG": False,
    "SECRET_KEY": "abcdefghijklmnopqrstuvwxyz0123456789-abcdefghijklmnopqrstuvwxyz",
    "ALLOWED_HOSTS": ["memory.example.com"],
    "UAC_SANDBOX_RUNNER": "docker",
    "SECURE_SSL_REDIRECT": True,
    "UAC_WEBHOOK_ALLOW_HTTP": False,
}


def found(settings: Settings, **changes: Any) -> list[str]:
    for name, value in {**SAFE, **changes}.items():
        setattr(settings, name, value)
    return [str(message.id) for message in run_checks(tags=[checks.TAG])]


def test_a_safe_production_is_accepted(settings: Settings) -> None:
    assert found(settings) == []


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"UAC_ENVIRONMENT": "prod"}, "uac.E001"),
        ({"REDIS_URL": ""}, "uac.E002"),
        ({"DATABASES": {}}, "uac.E002"),
        ({"DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3"}}}, "uac.E003"),
        ({"UAC_SANDBOX_RUNNER": "none"}, "uac.E004"),
        ({"UAC_SANDBOX_WALL_SECONDS": 0}, "uac.E005"),
        ({"UAC_SANDBOX_TOTAL_SECONDS_MOST": 3600}, "uac.E005"),
        ({"UAC_LLM_MODEL": "gpt-5-mini"}, "uac.E006"),
        ({"UAC_LLM_BASE_URL": "ftp://models"}, "uac.E006"),
        ({"UAC_LLM_BASE_URL": "https://key@models/v1"}, "uac.E006"),
        ({"UAC_LLM_ATTEMPTS": 0}, "uac.E006"),
        ({"UAC_LLM_TOKENS_PER_DAY": -1}, "uac.E006"),
        ({"UAC_LLM_PRICES": "cheap"}, "uac.E006"),
        ({"UAC_LLM_PRICES": '{"openai:gpt-5-mini": {"input": 1}}'}, "uac.E006"),
        ({"UAC_LLM_PRICES": '{"openai:gpt-5-mini": {"input": -1, "output": 1}}'}, "uac.E006"),
        ({"UAC_LLM_MODEL": "openai:gpt-5-mini", "UAC_LLM_COST_PER_DAY": 1.0}, "uac.E006"),
        ({"UAC_LLM_KEEP_CONTENT": True}, "uac.E006"),
        ({"UAC_ENCRYPTION_KEYS": ["secret"]}, "uac.E006"),
        ({"UAC_STRUCTURE_ENTRIES": 0}, "uac.E007"),
        ({"UAC_STRUCTURE_ENTRIES": 1001}, "uac.E007"),
        ({"UAC_STRUCTURE_IDLE_SECONDS": -1}, "uac.E007"),
        ({"UAC_STRUCTURE_IDLE_SECONDS": 901}, "uac.E007"),
        ({"UAC_WEBHOOK_ALLOWED_NETWORKS": ["10.0.0.0/8", "10.0.0.1/8"]}, "uac.E008"),
        ({"UAC_WEBHOOK_ALLOWED_NETWORKS": ["inside"]}, "uac.E008"),
        ({"UAC_WEBHOOK_RETRY_SECONDS": []}, "uac.E008"),
        ({"UAC_WEBHOOK_RETRY_SECONDS": [5, 1e9]}, "uac.E008"),
        ({"UAC_WEBHOOK_CONCURRENCY": 0}, "uac.E008"),
        ({"UAC_ALERTS_PER_CONSTRAINT": 0}, "uac.E009"),
        ({"UAC_ALERTS_PER_CONSTRAINT": 1001}, "uac.E009"),
        ({"UAC_ESCALATE_CRITICAL_MINUTES": -1}, "uac.E009"),
        ({"UAC_DAILY_RUN_HOUR": 24}, "uac.E014"),
        ({"UAC_INSTANT_MINUTES": 0}, "uac.E014"),
        ({"DEBUG": True}, "uac.E010"),
        ({"SECRET_KEY": "short"}, "uac.E011"),
        ({"SECRET_KEY": "x" * 60}, "uac.E011"),
        ({"ALLOWED_HOSTS": []}, "uac.E012"),
        ({"ALLOWED_HOSTS": ["*"]}, "uac.E012"),
        ({"UAC_SANDBOX_RUNNER": "process"}, "uac.E013"),
        ({"SECURE_SSL_REDIRECT": False}, "uac.W014"),
        ({"UAC_WEBHOOK_ALLOW_HTTP": True}, "uac.W015"),
    ],
)
@pytest.mark.filterwarnings("ignore:Overriding setting DATABASES")
def test_an_unsafe_production_is_named(
    settings: Settings, changes: dict[str, Any], check: str
) -> None:
    assert found(settings, **changes) == [check]


@pytest.mark.django_db
def test_mails_that_nobody_can_send_are_told_at_the_start(settings: Settings) -> None:
    def told(**changes: Any) -> list[str]:
        found(settings, **changes)
        return [str(one.id) for one in checks.check_mail(app_configs=None, databases=["default"])]

    nothing = {"EMAIL_BACKEND": checks.NO_MAIL[1], "UAC_BASE_URL": ""}
    assert told(**nothing) == []

    eve = User.objects.create(username="eve", email="eve@example.org", is_staff=True)
    subscription = StaffSubscription.objects.create(staff=eve)
    assert told(**nothing) == ["uac.W022", "uac.W023"]
    assert told(**nothing, DEVELOPMENT=True) == []
    smtp = "django.core.mail.backends.smtp.EmailBackend"
    assert told(EMAIL_BACKEND=smtp, UAC_BASE_URL="https://uac.example.org") == []

    subscription.enabled = False
    subscription.save()
    assert told(**nothing) == []


def test_development_may_do_what_production_may_not(settings: Settings) -> None:
    changes = {"DEVELOPMENT": True, "UAC_ENVIRONMENT": "development", "DEBUG": True}
    assert found(settings, **changes, UAC_SANDBOX_RUNNER="process", ALLOWED_HOSTS=[]) == []


@pytest.mark.parametrize(
    "command",
    [
        ["celery", "-A", "uac_site", "worker", "-P", "solo", "-Q", "nothing"],
        ["celery", "-A", "uac_site", "beat", "--schedule", "{folder}/schedule"],
        ["granian", "--interface", "wsgi", "--port", "0", "uac_site.wsgi:application"],
    ],
    ids=["worker", "beat", "web"],
)
def test_no_process_starts_in_an_unsafe_production(command: list[str], tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "UAC_ENVIRONMENT": "production",
        "UAC_SANDBOX_RUNNER": "process",
        "DATABASE_URL": SERVICES.postgres.runtime_url,
    }

    ended = subprocess.run(
        [sys.executable, "-m", *(part.format(folder=tmp_path) for part in command)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert ended.returncode != 0
    assert "uac.E013" in ended.stderr + ended.stdout
    assert " ready." not in ended.stderr + ended.stdout


@pytest.fixture
def as_role(live_database: str) -> Iterator[Any]:
    """Connect as another role for a while."""
    before = {name: connection.settings_dict[name] for name in ("USER", "PASSWORD")}

    def become(url: str) -> None:
        role = urlsplit(url)
        connection.close()
        connection.settings_dict.update(USER=role.username, PASSWORD=role.password)

    yield become
    connection.close()
    connection.settings_dict.update(before)


def test_the_server_starts_as_the_role_that_owns_nothing(live_database: str) -> None:
    checks.refuse_unsafe_start()


@pytest.mark.parametrize("role", ["owner_url", "superuser_url"])
def test_the_server_does_not_start_with_power_over_the_triggers(as_role: Any, role: str) -> None:
    as_role(getattr(SERVICES.postgres, role))

    with pytest.raises(SystemCheckError, match=r"uac\.E021"):
        checks.refuse_unsafe_start()

"""Every process refuses to start with unsafe production settings."""

import os
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
import psycopg
import pytest
import redis
from django.contrib.auth.models import User
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connection
from django.db.backends.base import base
from django.db.migrations.loader import MigrationLoader
from psycopg import sql
from pytest_django.fixtures import Settings

from memory.alerts.models.staff_mail import StaffSubscription
from memory.kernel.work.hints import redis_client
from tests.services import SERVICES, own_redis_server
from tests.waiting import scaled
from tests.webhook_receiver import certificate, tls
from uac_site import checks, service_checks

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


def found(settings: Settings, *, deploy: bool = False, **changes: Any) -> list[str]:
    for name, value in {**SAFE, **changes}.items():
        setattr(settings, name, value)
    found = run_checks(tags=[checks.TAG], include_deployment_checks=deploy)
    return [str(message.id) for message in found]


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
        ({"UAC_SANDBOX_TOTAL_SECONDS": 3600}, "uac.E005"),
        ({"UAC_CONTENT_SECRET": "hidden"}, "uac.E038"),
        ({"UAC_LLM_MODEL": "gpt-5-mini"}, "uac.E006"),
        ({"UAC_LLM_BASE_URL": "ftp://models"}, "uac.E006"),
        ({"UAC_LLM_BASE_URL": "https://key@models/v1"}, "uac.E006"),
        ({"UAC_LLM_ATTEMPTS": 0}, "uac.E006"),
        ({"UAC_EMBEDDINGS": "openai:m", "UAC_EMBEDDINGS_API_KEY": ""}, "uac.E032"),
        ({"UAC_LLM_TOKENS_PER_DAY": -1}, "uac.E006"),
        ({"UAC_LLM_PRICES": "cheap"}, "uac.E006"),
        ({"UAC_LLM_PRICES": '{"openai:gpt-5-mini": {"input": 1}}'}, "uac.E006"),
        ({"UAC_LLM_PRICES": '{"openai:gpt-5-mini": {"input": -1, "output": 1}}'}, "uac.E006"),
        ({"UAC_LLM_MODEL": "openai:of-nobody", "UAC_LLM_COST_PER_DAY": 1.0}, "uac.E006"),
        ({"UAC_LLM_INSTRUCTIONS": "/no/such/folder"}, "uac.E006"),
        ({"UAC_LLM_KEEP_CONTENT": True}, "uac.E006"),
        ({"UAC_ENCRYPTION_KEYS": ["secret"]}, "uac.E006"),
        ({"UAC_LLM_REFUSED_PERCENT": 101}, "uac.E006"),
        ({"UAC_LLM_JUDGED_MINIMUM": 51}, "uac.E006"),
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
        ({"UAC_ALARM_SILENT_SECONDS": 1}, "uac.E019"),
        ({"UAC_STUCK_ATTEMPTS": 0}, "uac.E019"),
        ({"UAC_WEB_LOCK_SECONDS": -1}, "uac.E019"),
        ({"UAC_WORKER_STATEMENT_SECONDS": float("nan")}, "uac.E019"),
        ({"DATABASE_POOLER": "session"}, "uac.E019"),
        ({"DATABASE_POOL": -1}, "uac.E019"),
        ({"DEBUG": True}, "uac.E010"),
        ({"SECRET_KEY": ""}, "uac.E011"),
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


def test_static_files_that_are_not_collected_are_told_to_the_web_process(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def told() -> list[str]:
        return found(settings, deploy=True, STATIC_ROOT=environ.Path(str(tmp_path)))

    monkeypatch.setattr(service_checks, "starting", "worker")
    assert told() == []
    monkeypatch.setattr(service_checks, "starting", "web")
    assert told() == ["uac.W024"]
    call_command("collectstatic", "--noinput", verbosity=0)
    assert told() == []


def test_development_may_do_what_production_may_not(settings: Settings) -> None:
    changes: dict[str, Any] = {"DEVELOPMENT": True, "UAC_ENVIRONMENT": "development", "DEBUG": True}
    assert found(settings, **changes, UAC_SANDBOX_RUNNER="process", ALLOWED_HOSTS=[]) == []


COMMANDS = {
    "worker": ["celery", "-A", "uac_site", "worker", "-P", "solo", "-Q", "nothing"],
    "beat": ["celery", "-A", "uac_site", "beat", "--schedule", "{folder}/schedule"],
    "web": ["granian", "--interface", "wsgi", "--port", "0", "uac_site.wsgi:application"],
}


def ended(process: str, folder: Path, **variables: str) -> str:
    """Start a process, which must end by itself with an error; return its output."""
    done = subprocess.run(
        [sys.executable, "-m", *(part.format(folder=folder) for part in COMMANDS[process])],
        env={**os.environ, "DATABASE_URL": SERVICES.postgres.runtime_url, **variables},
        capture_output=True,
        text=True,
        timeout=scaled(240),
        check=False,
    )
    said = done.stderr + done.stdout
    assert done.returncode != 0, said
    assert " ready." not in said
    return said


@pytest.mark.parametrize("process", COMMANDS)
def test_no_process_starts_in_an_unsafe_production(process: str, tmp_path: Path) -> None:
    said = ended(process, tmp_path, UAC_ENVIRONMENT="production", UAC_SANDBOX_RUNNER="process")

    assert "uac.E013" in said
    assert "Traceback" not in said


def test_setting_that_lacks_its_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['onelogin'] = None;"
        "from django.core.management import execute_from_command_line as execute;"
        "execute(['manage.py', 'check'])"
    )
    environment = {
        **os.environ,
        "DATABASE_URL": SERVICES.postgres.runtime_url,
        "UAC_SAML_METADATA_URL": "https://idp.example/m",
        "UAC_SAML_ENTITY_ID": "idp",
        "UAC_SIGN_IN_ROLES": "ops=operator",
        "DJANGO_SETTINGS_MODULE": "uac_site.settings",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )

    assert "userascode-server[saml]" in done.stderr
    assert "Traceback" not in done.stderr


def with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    login = f"{parts.username or ''}:{password}"
    return parts._replace(netloc=f"{login}@{parts.hostname}:{parts.port}").geturl()


WRONG: dict[str, tuple[str, list[str]]] = {
    "DATABASE_URL=postgres://uac:uac@nowhere.invalid:5432/uac": (
        "uac.E020",
        ["nowhere.invalid", "The host name is wrong"],
    ),
    "DATABASE_URL=postgres://uac:uac@127.0.0.1:1/uac": (
        "uac.E020",
        ["Nothing is listening on that port"],
    ),
    "DATABASE_URL=password": ("uac.E020", ["The user name or password is wrong."]),
    "DATABASE_URL=mysql://uac:uac@127.0.0.1/uac": ("uac.E002", ["postgres://uac:"]),
    "DATABASE_URL=postgres://uac:uac@127.0.0.1:port/uac": (
        "uac.E002",
        ["is not set or is not a valid URL"],
    ),
    "DATABASE_URL=nonsense": (
        "uac.E002",
        ["is not set or is not a valid URL", "postgres://uac:"],
    ),
    "REDIS_URL=http://127.0.0.1:6379/0": ("uac.E027", ["is not a valid URL"]),
    "REDIS_URL=redis://127.0.0.1:1/0": ("uac.E028", ["does not answer"]),
    "REDIS_URL=password": ("uac.E027", ["rejects the login"]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_address_is_named_with_what_to_do(wrong: str, tmp_path: Path) -> None:
    name, _, value = wrong.partition("=")
    if value == "password":
        urls = {"DATABASE_URL": SERVICES.postgres.runtime_url, "REDIS_URL": SERVICES.redis.url}
        value = with_password(urls[name], "wrong")

    said = ended("beat", tmp_path, **{name: value})

    check, words = WRONG[wrong]
    assert check in said
    assert name in said
    assert all(word in said for word in words)
    assert "Traceback" not in said


def serve(server: socket.socket, answer: Callable[[socket.socket], None]) -> None:
    """Let each client of a listening socket be answered, until it is shut down."""

    def run() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                with client, suppress(OSError):
                    answer(client)

    threading.Thread(target=run, daemon=True).start()


def test_a_missing_file_of_the_authority_is_named(tmp_path: Path) -> None:
    # A server that agrees to TLS, after which its client reads the authority's certificate.
    def agree(client: socket.socket) -> None:
        client.recv(8)
        client.sendall(b"S")
        client.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as server:
        serve(server, agree)
        url = f"postgres://uac:uac@127.0.0.1:{server.getsockname()[1]}/uac"

        said = ended(
            "beat", tmp_path, DATABASE_URL=f"{url}?sslmode=verify-full&sslrootcert=/no/file"
        )

        server.shutdown(socket.SHUT_RDWR)
    assert "uac.E020" in said
    assert "Name a file in sslrootcert" in said


@pytest.mark.parametrize(
    ("authority", "advice"),
    [("/no/file", "Name a file in ssl_ca_certs"), ("stranger", "not signed by the authority")],
)
def test_a_certificate_of_redis_that_is_not_trusted_is_named(
    authority: str, advice: str, settings: Settings, tmp_path: Path
) -> None:
    if authority == "stranger":
        (tmp_path / "other").mkdir()
        authority = str(certificate(tmp_path / "other", "127.0.0.1"))
    context = tls(certificate(tmp_path, "127.0.0.1"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        serve(server, lambda client: context.wrap_socket(client, server_side=True).close())
        address = f"rediss://127.0.0.1:{server.getsockname()[1]}/0"
        settings.REDIS_URL = f"{address}?ssl_cert_reqs=required&ssl_ca_certs={authority}"
        redis_client.cache_clear()
        try:
            (problem,) = service_checks.check_redis()
        finally:
            redis_client.cache_clear()
            server.shutdown(socket.SHUT_RDWR)

    assert problem.id == "uac.E028"
    assert advice in str(problem.hint)


def test_the_web_process_starts_without_redis_and_a_worker_does_not(settings: Settings) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"

    def told(kind: Any) -> list[str]:
        redis_client.cache_clear()
        service_checks.starting = kind
        return [str(one.id) for one in service_checks.check_redis()]

    try:
        assert (told("web"), told("worker")) == (["uac.W027"], ["uac.E028"])
    finally:
        redis_client.cache_clear()
        service_checks.starting = None


@pytest.fixture
def own_redis(settings: Settings) -> Iterator[redis.Redis]:
    """A Redis of the test's own, which it may misconfigure."""
    with own_redis_server() as found:
        settings.REDIS_URL = found.url
        redis_client.cache_clear()
        with redis.Redis.from_url(found.url) as client:
            yield client
    redis_client.cache_clear()


@pytest.mark.parametrize(
    ("configuration", "development", "check"),
    [
        ({}, False, []),
        ({"maxmemory-policy": "allkeys-lru"}, False, ["uac.E027"]),
        ({"maxmemory-policy": "allkeys-lru"}, True, ["uac.W028"]),
        ({"maxmemory-policy": "volatile-lru"}, False, ["uac.W028"]),
        ({"maxmemory": "1"}, False, ["uac.W029"]),
    ],
)
def test_a_redis_that_forgets_or_is_full_is_named(
    own_redis: redis.Redis,
    settings: Settings,
    configuration: dict[str, str],
    development: bool,
    check: list[str],
) -> None:
    settings.DEVELOPMENT = development
    for name, value in configuration.items():
        own_redis.config_set(name, value)

    assert [one.id for one in service_checks.check_redis()] == check


def test_a_redis_that_is_a_replica_is_named(own_redis: redis.Redis) -> None:
    own_redis.replicaof("127.0.0.1", "1")

    [found] = service_checks.check_redis()

    assert found.id == "uac.E027"


def test_a_database_without_all_migrations_is_named(live_database: str, as_role: Any) -> None:
    as_role(SERVICES.postgres.owner_url)
    [(_, newest)] = MigrationLoader(connection).graph.leaf_nodes("memory")
    with connection.cursor() as cursor:
        replaced = MigrationLoader(connection, replace_migrations=False)
        names = [newest, *(name for _, name in replaced.disk_migrations["memory", newest].replaces)]
        cursor.execute("DELETE FROM django_migrations WHERE name = ANY(%s)", [names])
    as_role(SERVICES.postgres.runtime_url)

    [found] = service_checks.check_database()

    assert found.id == "uac.E025"
    assert f"memory.{newest}" in str(found.msg)
    assert "manage.py migrate" in str(found.hint)


def test_an_old_database_is_named(live_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.features, "minimum_database_version", (99,))
    monkeypatch.setattr(base, "RAN_DB_VERSION_CHECK", set())
    connection.close()

    [found] = service_checks.check_database()

    assert (found.id, "PostgreSQL 99 or later" in str(found.msg)) == ("uac.E024", True)
    connection.close()


@pytest.fixture
def as_role(live_database: str) -> Iterator[Any]:
    """Connect as another role in this context."""
    before = {name: connection.settings_dict[name] for name in ("USER", "PASSWORD")}

    def become(url: str) -> None:
        role = urlsplit(url)
        connection.close()
        connection.settings_dict.update(USER=role.username, PASSWORD=role.password)

    yield become
    connection.close()
    connection.settings_dict.update(before)


def test_the_server_starts_as_the_role_that_owns_nothing(live_database: str) -> None:
    checks.refuse_unsafe_start("web")


@pytest.mark.parametrize("role", ["owner_url", "superuser_url"])
def test_the_server_does_not_start_with_power_over_the_triggers(as_role: Any, role: str) -> None:
    as_role(getattr(SERVICES.postgres, role))

    with pytest.raises(SystemExit, match=r"uac\.E021"):
        checks.refuse_unsafe_start("web")


@pytest.mark.parametrize("role", ["owner_url", "superuser_url"])
def test_member_of_a_powerful_role_is_refused(as_role: Any, role: str) -> None:
    powerful = urlsplit(getattr(SERVICES.postgres, role)).username or ""
    member = f"member_{uuid.uuid4().hex}"
    with psycopg.connect(SERVICES.postgres.superuser_url, autocommit=True) as superuser:
        for statement in (
            "CREATE ROLE {member} LOGIN PASSWORD 'secret'",
            "GRANT uac_runtime TO {member}",
            "GRANT {powerful} TO {member}",
        ):
            superuser.execute(_named(statement, member=member, powerful=powerful))
        try:
            as_role(f"postgres://{member}:secret@127.0.0.1")

            with pytest.raises(SystemExit, match=r"uac\.E021"):
                checks.refuse_unsafe_start("web")
        finally:
            connection.close()
            superuser.execute(_named("DROP ROLE {member}", member=member))


def _named(statement: str, **roles: str) -> sql.Composed:
    return sql.SQL(statement).format(**{key: sql.Identifier(one) for key, one in roles.items()})


def test_a_missing_secret_key_is_named_on_a_development_machine_too(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    development: dict[str, Any] = {"UAC_ENVIRONMENT": "development", "DEVELOPMENT": True}
    assert found(settings, **development, SECRET_KEY="short") == []

    monkeypatch.setattr(checks, "_secret_key", lambda: "")
    assert found(settings, **development) == ["uac.E011"]

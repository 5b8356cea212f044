"""System checks: every process refuses to start with unsafe production settings.

The checks run with every `manage.py` command, and when the web process or a worker starts. Checks
that query the database or Redis run only when such a process starts and with `check --deploy
--database default`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import OperationalError, ProgrammingError, transaction

from memory.alerts.delivery import delivery_attempts
from memory.alerts.models.staff_mail import StaffSubscription
from memory.integrations.mcp import issuer
from memory.kernel import tracing
from memory.kernel.database import timeouts
from memory.kernel.settings import (
    content_settings,
    environment,
    language_models,
    overrides,
    sandbox_limits,
)
from memory.recall.search import embeddings
from uac_site import service_checks
from uac_site.sign_in import roles

ENVIRONMENTS = ("development", "production")
EXAMPLES = {
    "DATABASE_URL": "postgres://uac:password@host:5432/uac",
    "REDIS_URL": "redis://:password@host:6379/0",
}
TAG = "uac"
# Functions that map the names of invalid settings to what is wrong with the settings. Other checks
# report out-of-range numbers.
VALIDATORS = (
    sandbox_limits.validate_server_settings,
    language_models.validate_server_settings,
    delivery_attempts.validate_server_settings,
    embeddings.validate_server_settings,
    tracing.validate_server_settings,
    roles.validate_server_settings,
    issuer.validate_server_settings,
    content_settings.validate_server_settings,
)
NO_MAIL = [
    f"django.core.mail.backends.{name}.EmailBackend"
    for name in ("console", "dummy", "filebased", "locmem")
]


def refuse_unsafe_start(kind: timeouts.Kind) -> None:
    """Apply the database limits for this kind of process, and run all checks that concern it.

    If a check finds an error, the process exits with the checks' messages.
    """
    if service_checks.is_named():
        timeouts.hold_to(kind)
    service_checks.starting = kind
    try:
        call_command("check", tags=[TAG], deploy=True, databases=["default"])
    except SystemCheckError as error:
        raise SystemExit(str(error)) from None
    except Exception as error:  # Celery would only log the error and continue
        raise SystemExit(f"The startup checks could not run: {error!r}") from error


@register(TAG)
def check_environment(
    *, app_configs: Sequence[AppConfig] | None, **kwargs: object
) -> list[CheckMessage]:
    """Check the settings that every deployment needs; in production, also reject unsafe values."""
    return [*_always(), *(() if settings.DEVELOPMENT else _production())]


def _always() -> Iterator[CheckMessage]:
    if not _secret_key():
        yield Error(
            "SECRET_KEY is not set: it is used to sign sessions and to hash API keys.",
            hint="Set SECRET_KEY to at least 50 random characters, or SECRET_KEY_FILE to the path"
            " of a file that contains them.",
            id="uac.E011",
        )
    if settings.UAC_ENVIRONMENT not in ENVIRONMENTS:
        yield Error(
            f"UAC_ENVIRONMENT is {settings.UAC_ENVIRONMENT!r}, which is not a known environment.",
            hint=f"Set it to one of: {', '.join(ENVIRONMENTS)}.",
            id="uac.E001",
        )
    for name, value in (
        ("DATABASE_URL", settings.DATABASES.get("default", {}).get("ENGINE", "")),
        ("REDIS_URL", settings.REDIS_URL),
    ):
        if not value or value == "django.db.backends.dummy":
            yield Error(
                f"{name} is not set or is not a valid URL.",
                hint=f"Set {name} to a URL such as {EXAMPLES[name]}, or {name}_FILE to the path of"
                " a file that contains it.",
                id="uac.E002",
            )
    engine = settings.DATABASES.get("default", {}).get("ENGINE", "")
    if engine and engine not in ("uac_site.database", "django.db.backends.dummy"):
        yield Error(
            f"DATABASE_URL selects the database engine {engine}.",
            hint="UaC runs on PostgreSQL only: use a postgres:// URL.",
            id="uac.E003",
        )
    if settings.UAC_SANDBOX_RUNNER not in ("docker", "process", "auto"):
        yield Error(
            f"UAC_SANDBOX_RUNNER is {settings.UAC_SANDBOX_RUNNER!r}, which is not a known runner.",
            hint="Set it to docker, or to auto or process on a development machine.",
            id="uac.E004",
        )
    if settings.DATABASE_POOLER not in ("", "transaction"):
        yield Error(
            f"DATABASE_POOLER is {settings.DATABASE_POOLER!r}, which is not supported.",
            hint="Set it to transaction, or leave it empty: a session pooler needs no setting.",
            id="uac.E019",
        )
    for name, problem in validate_server_settings().items():
        yield Error(problem, hint=f"Change {name}.", id=environment.CHECKS[name])


def validate_server_settings() -> dict[str, str]:
    """Map the name of each invalid server setting to what is wrong with its value."""
    errors = overrides.validate_server_settings()
    for validate in VALIDATORS:
        errors |= {name: f"{name}: {problem}" for name, problem in validate().items()}
    return errors


def _secret_key() -> str:
    try:
        return str(settings.SECRET_KEY)
    except ImproperlyConfigured:  # Django's error for an empty key
        return ""


def _production() -> Iterator[CheckMessage]:
    if settings.DEBUG:
        yield Error(
            "DEBUG is on in production.",
            hint="Unset DEBUG, or set UAC_ENVIRONMENT=development on a development machine.",
            id="uac.E010",
        )
    secret = _secret_key()
    if secret and (len(secret) < 50 or len(set(secret)) < 10):
        yield Error(
            "SECRET_KEY, which signs sessions and hashes API keys, is too weak.",
            hint="Use at least 50 random characters.",
            id="uac.E011",
        )
    if not settings.ALLOWED_HOSTS or "*" in settings.ALLOWED_HOSTS:
        yield Error(
            f"ALLOWED_HOSTS is {settings.ALLOWED_HOSTS!r}: in production, it must list the allowed"
            " hosts.",
            hint="List the host names that this server answers to, separated by commas.",
            id="uac.E012",
        )
    if settings.UAC_SANDBOX_RUNNER in ("process", "auto"):
        yield Error(
            f"UAC_SANDBOX_RUNNER={settings.UAC_SANDBOX_RUNNER} can run users' code without a"
            " container.",
            hint="Use docker in production; process and auto are for development machines.",
            id="uac.E013",
        )
    if not settings.SECURE_SSL_REDIRECT:
        yield Warning(
            "SECURE_SSL_REDIRECT is off: API keys may be sent in clear text.",
            hint="Turn it on, with UAC_BEHIND_PROXY=true behind a proxy that terminates TLS.",
            id="uac.W014",
        )
    if settings.UAC_WEBHOOK_ALLOW_HTTP:
        yield Warning(
            "UAC_WEBHOOK_ALLOW_HTTP is on: webhooks may send personal data in clear text.",
            hint="Turn it off, and set up TLS certificates for the receivers.",
            id="uac.W015",
        )


@register(TAG, deploy=True)
def check_mail(
    *, app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None, **kwargs: object
) -> list[CheckMessage]:
    """Warn if staff have subscribed to e-mails but no mail server or base URL is set."""
    if "default" not in (databases or ()) or settings.DEVELOPMENT or not service_checks.is_named():
        return []
    try:
        with transaction.atomic():
            if not StaffSubscription.objects.filter(enabled=True).exists():
                return []
    except (
        OperationalError,
        ProgrammingError,
    ):  # another check reports the failure, or no migrations have run yet
        return []
    problems: list[CheckMessage] = []
    if settings.EMAIL_BACKEND in NO_MAIL:
        problems.append(
            Warning(
                "Staff have subscribed to e-mail alerts, but EMAIL_URL does not name a mail"
                " server.",
                hint="Set EMAIL_URL to smtp+tls://user:password@host:587. Until then, mail stays"
                " queued.",
                id="uac.W022",
            )
        )
    if not settings.UAC_BASE_URL:
        problems.append(
            Warning(
                "UAC_BASE_URL is not set: links in e-mails to staff do not work.",
                hint="Set it to the address where staff access this server.",
                id="uac.W023",
            )
        )
    return problems


@register(TAG, deploy=True)
def check_static_files(
    *, app_configs: Sequence[AppConfig] | None, **kwargs: object
) -> list[CheckMessage]:
    """Warn if a production web process can't find the admin's style sheets and scripts."""
    is_web = service_checks.starting in (None, "web")
    style = Path(str(settings.STATIC_ROOT)) / "admin" / "css" / "base.css"
    if settings.DEVELOPMENT or not is_web or style.exists():
        return []
    return [
        Warning(
            f"There are no static files in {settings.STATIC_ROOT}: the admin has no styles.",
            hint="Run `manage.py collectstatic --noinput`, with this process's STATIC_ROOT.",
            id="uac.W024",
        )
    ]


# `migrate`, which has to run as the owner of the tables, doesn't run this check.
@register(TAG, deploy=True)
def check_database(
    *, app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None, **kwargs: object
) -> list[CheckMessage]:
    """Check the database and the role that the server connects with.

    The database must exist, be new enough and have all migrations applied, and the role must not be
    able to switch off triggers.
    """
    return list(service_checks.check_database()) if "default" in (databases or ()) else []


@register(TAG, deploy=True)
def check_broker(
    *, app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None, **kwargs: object
) -> list[CheckMessage]:
    """Check that Redis responds, accepts writes, and evicts nothing."""
    return list(service_checks.check_redis()) if "default" in (databases or ()) else []

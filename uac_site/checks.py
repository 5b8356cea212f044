"""System checks that refuse an unsafe production.

They run with every `manage.py` command, and at the start of the web process and of every worker;
the one that asks the database runs at those starts and with `check --deploy --database default`.
"""

from collections.abc import Iterator, Sequence

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.management import call_command
from django.db import OperationalError, ProgrammingError, connections, transaction

from memory import alert_settings, language_models, limits, scheduling, users, webhooks
from memory.models import StaffSubscription

ENVIRONMENTS = ("development", "production")
TAG = "uac"
NO_MAIL = [
    f"django.core.mail.backends.{name}.EmailBackend"
    for name in ("console", "dummy", "filebased", "locmem")
]


def refuse_unsafe_start() -> None:
    """Run every check of this module; raises SystemCheckError where one finds an error."""
    call_command("check", tags=[TAG], deploy=True, databases=["default"])


@register(TAG)
def check_environment(
    *, app_configs: Sequence[AppConfig] | None, **kwargs: object
) -> list[CheckMessage]:
    """Settings that every deployment needs, and those that only development may have."""
    return [*_always(), *(() if settings.DEVELOPMENT else _production())]


def _always() -> Iterator[CheckMessage]:
    if settings.UAC_ENVIRONMENT not in ENVIRONMENTS:
        yield Error(
            f"UAC_ENVIRONMENT is {settings.UAC_ENVIRONMENT!r}.",
            hint=f"Set it to one of: {', '.join(ENVIRONMENTS)}.",
            id="uac.E001",
        )
    for name, value in (
        ("DATABASE_URL", settings.DATABASES.get("default", {}).get("ENGINE", "")),
        ("REDIS_URL", settings.REDIS_URL),
    ):
        if not value or value == "django.db.backends.dummy":
            yield Error(
                f"{name} is not set.",
                hint=f"Set {name}, or {name}_FILE to the path of a file that holds it.",
                id="uac.E002",
            )
    engine = settings.DATABASES.get("default", {}).get("ENGINE", "")
    if engine and engine not in ("django.db.backends.postgresql", "django.db.backends.dummy"):
        yield Error(
            f"DATABASE_URL selects {engine}.",
            hint="UaC runs on PostgreSQL only: use a postgres:// URL.",
            id="uac.E003",
        )
    if settings.UAC_SANDBOX_RUNNER not in ("docker", "process", "auto"):
        yield Error(
            f"UAC_SANDBOX_RUNNER is {settings.UAC_SANDBOX_RUNNER!r}.",
            hint="Set it to docker, or to auto or process on a development machine.",
            id="uac.E004",
        )
    for name, problem in limits.wrong_settings().items():
        yield Error(f"{name}: {problem}", hint=f"Change {name}.", id="uac.E005")
    for name, problem in language_models.wrong_settings().items():
        yield Error(f"{name}: {problem}", hint=f"Change {name}.", id="uac.E006")
    for name, problem in scheduling.wrong_settings().items():
        yield Error(f"{name}: {problem}", hint=f"Change {name}.", id="uac.E007")
    for name, problem in webhooks.wrong_settings().items():
        yield Error(f"{name}: {problem}", hint=f"Change {name}.", id="uac.E008")
    for name, problem in alert_settings.wrong_settings().items():
        yield Error(f"{name}: {problem}", hint=f"Change {name}.", id="uac.E009")
    for name, problem in users.wrong_settings().items():
        yield Error(f"{name}: {problem}", hint=f"Change {name}.", id="uac.E014")


def _production() -> Iterator[CheckMessage]:
    if settings.DEBUG:
        yield Error(
            "DEBUG is on in production.",
            hint="Unset DEBUG, or set UAC_ENVIRONMENT=development on a development machine.",
            id="uac.E010",
        )
    if len(settings.SECRET_KEY) < 50 or len(set(settings.SECRET_KEY)) < 10:
        yield Error(
            "SECRET_KEY is too weak: it signs sessions and keys the hashes of API keys.",
            hint="Use at least 50 random characters.",
            id="uac.E011",
        )
    if not settings.ALLOWED_HOSTS or "*" in settings.ALLOWED_HOSTS:
        yield Error(
            f"ALLOWED_HOSTS is {settings.ALLOWED_HOSTS!r}.",
            hint="List the host names that this server answers to, separated by commas.",
            id="uac.E012",
        )
    if settings.UAC_SANDBOX_RUNNER in ("process", "auto"):
        yield Error(
            f"UAC_SANDBOX_RUNNER={settings.UAC_SANDBOX_RUNNER} can run people's code without a"
            " container.",
            hint="Use docker in production; process and auto are for development machines.",
            id="uac.E013",
        )
    if not settings.SECURE_SSL_REDIRECT:
        yield Warning(
            "SECURE_SSL_REDIRECT is off: API keys may travel in clear text.",
            hint="Leave it on, with UAC_BEHIND_PROXY=true behind a proxy that terminates TLS.",
            id="uac.W014",
        )
    if settings.UAC_WEBHOOK_ALLOW_HTTP:
        yield Warning(
            "UAC_WEBHOOK_ALLOW_HTTP is on: what webhooks tell of people may travel in clear text.",
            hint="Leave it off, and give the receivers certificates.",
            id="uac.W015",
        )


@register(TAG, deploy=True)
def check_mail(
    *, app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None, **kwargs: object
) -> list[CheckMessage]:
    """Where staff want to be told by e-mail, there must be a way, and links that lead here."""
    if "default" not in (databases or ()) or settings.DEVELOPMENT:
        return []
    try:
        with transaction.atomic():
            if not StaffSubscription.objects.filter(enabled=True).exists():
                return []
    except (OperationalError, ProgrammingError):  # another check, or the first `migrate`, tells
        return []
    found: list[CheckMessage] = []
    if settings.EMAIL_BACKEND in NO_MAIL:
        found.append(
            Warning(
                "Staff subscribe to alerts by e-mail, and EMAIL_URL names no mail server.",
                hint="Set EMAIL_URL to smtp+tls://user:password@host:587. What is not told waits.",
                id="uac.W022",
            )
        )
    if not settings.UAC_BASE_URL:
        found.append(
            Warning(
                "UAC_BASE_URL is not set: the links in mails to the staff lead nowhere.",
                hint="Set it to the address at which the staff open this server.",
                id="uac.W023",
            )
        )
    return found


# Not among the checks of `migrate`, which has to run as the owner.
@register(TAG, deploy=True)
def check_database_role(
    *, app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None, **kwargs: object
) -> list[CheckMessage]:
    """The runtime role must not be able to switch the append-only triggers off."""
    if "default" not in (databases or ()):
        return []
    try:
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
            (superuser,) = cursor.fetchone()
            cursor.execute(
                "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
                " AND pg_get_userbyid(relowner) = current_user"
            )
            (owned,) = cursor.fetchone()
    except OperationalError as error:
        return [
            Error(
                f"The database does not answer: {str(error).strip()}",
                hint="Check DATABASE_URL and that PostgreSQL runs.",
                id="uac.E020",
            )
        ]
    if superuser or owned:
        power = "is a superuser" if superuser else f"owns {owned} tables or indexes"
        return [
            Error(
                f"The database role of DATABASE_URL {power}: it could switch off the triggers"
                " that keep the log append-only.",
                hint="Create the roles of uac_site/database_roles.sql; migrate as uac_owner"
                " and run the server as uac.",
                id="uac.E021",
            )
        ]
    return []

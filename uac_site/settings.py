"""Settings, all read from the environment.

Instead of setting a variable `NAME`, you can set `NAME_FILE` to the path of a file that contains
the value, so that secrets can be mounted instead of exported. A trailing newline in the file is
ignored. `memory/kernel/settings/environment.py` lists the variables with their defaults;
`uac_site/checks.py` rejects combinations that are unsafe in production.
"""

import socket
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import django_stubs_ext
import structlog
from kombu import Queue
from redis.connection import parse_url

from memory.kernel.settings import environment
from uac_site.environment import env, read
from uac_site.logs import PROCESSORS
from uac_site.sign_in import configuration

# Allow Django's generic classes to be subscripted with type parameters at run time.
django_stubs_ext.monkeypatch()

BASE_DIR = Path(__file__).resolve().parent.parent

# The product's own settings, described in `memory/kernel/settings/environment.py`.
vars().update({name: read(name) for name in environment.SETTINGS if name.startswith("UAC_")})
# "production" by default: forgetting a variable must never make a server less safe.
DEVELOPMENT = read("UAC_ENVIRONMENT") == "development"

DEBUG = read("DEBUG")
SECRET_KEY = read("SECRET_KEY")
ALLOWED_HOSTS = read("ALLOWED_HOSTS")
CSRF_TRUSTED_ORIGINS = read("CSRF_TRUSTED_ORIGINS")

SOCIALACCOUNT_PROVIDERS = configuration.providers(read)
INSTALLED_APPS = [
    "uac_site.admin_site.StaffAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    # It takes 14 MiB in each process. A check reports the setting without the extra `saml`.
    *(
        ["allauth.socialaccount.providers.saml"]
        if read("UAC_SAML_METADATA_URL") and find_spec("onelogin")
        else []
    ),
    "allauth.usersessions",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "django_structlog",
    "memory",
    "uac_site",
]

MIDDLEWARE = [
    "memory.kernel.http.throttles.report_and_charge",
    "uac_site.request_log.request_ids",
    "uac_site.telemetry.Telemetry",
    "django.middleware.security.SecurityMiddleware",
    "uac_site.content_security.content_security_policy",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "uac_site.sign_in.sessions.limit_sessions",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "uac_site.request_log.RequestLog",
    "memory.kernel.http.clocks.refuse_with_wrong_clock",
    "memory.kernel.http.conditional.ConditionalGet",
    "memory.kernel.http.filters.drop_empty_parameters",
]

ROOT_URLCONF = "uac_site.urls"
# `uac_site.request_log.request_ids` has already validated the request ID.
DJANGO_STRUCTLOG_TRUST_UPSTREAM_REQUEST_ID = True
WSGI_APPLICATION = "uac_site.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "memory/templates"],  # before those of Django's admin
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "uac_site.sign_in.views.admin_context",
            ],
        },
    },
]

# Content rather than code: constraints to start from, which are read as text.
CONSTRAINT_LIBRARY = BASE_DIR / "uac_site" / "constraint_library"

# -- Database ----------------------------------------------------------------------------------
# The server runs as a role that owns no tables; migrations run with the owner's DATABASE_URL.
DATABASES = {}
DATABASE_POOLER = read("DATABASE_POOLER")
DATABASE_POOL = read("DATABASE_POOL")
try:
    _url = env.db_url("DATABASE_URL") if read("DATABASE_URL") else {}
except ValueError:
    _url = {}
_prepared = env.bool("DATABASE_PREPARED_STATEMENTS", default=DATABASE_POOLER != "transaction")
# Drivers for other database engines aren't installed: using one would fail before the checks could
# name DATABASE_URL as the cause.
if _url.get("ENGINE") == "django.db.backends.postgresql":
    DATABASES["default"] = {
        **_url,
        "ENGINE": "uac_site.database",
        "CONN_MAX_AGE": 0 if DATABASE_POOL else read("DATABASE_CONN_MAX_AGE"),
        "CONN_HEALTH_CHECKS": True,
        "DISABLE_SERVER_SIDE_CURSORS": DATABASE_POOLER == "transaction",
        "OPTIONS": {
            "application_name": "uac",
            "connect_timeout": 5,
            # Detect within eleven seconds that the database host has gone away: callers wait for
            # the threads that wait for it.
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": 10_000,
            # Use prepared statements: the database parses and plans each statement only once per
            # connection. PgBouncer has supported them since 1.21 (max_prepared_statements).
            "server_side_binding": _prepared,
            "prepare_threshold": 5 if _prepared else None,
            **_url.get("OPTIONS", {}),
        },
    }
    if DATABASE_POOL > 0:
        DATABASES["default"]["OPTIONS"]["pool"] = {
            "min_size": 1,
            "max_size": DATABASE_POOL,
            "timeout": 5,
        }

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# -- Redis and Celery --------------------------------------------------------------------------
REDIS_URL = read("REDIS_URL")
# Detect within eleven seconds that the Redis host has gone away, also while waiting for a message.
# Not every system's sockets have all of these options: macOS names TCP_KEEPIDLE otherwise.
REDIS_KEEPALIVE = {
    getattr(socket, name): value
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3))
    if hasattr(socket, name)
}

try:
    parse_url(REDIS_URL)  # type: ignore[no-untyped-call]
    CELERY_BROKER_URL = REDIS_URL
except ValueError:  # the system checks report the invalid URL, if Celery gets that far
    CELERY_BROKER_URL = "memory://"
# A Celery message is only a wake-up hint (see ARCHITECTURE.md): it is acknowledged early, has no
# result, and is never retried by Celery. Tasks, attempts and leases live in PostgreSQL.
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False
CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_TASK_QUEUES = [
    Queue(name, routing_key=name, no_ack=True) for name in ("default", "sandbox", "llm")
]
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
# No prefetching: see workers/service/consuming.py.
CELERY_WORKER_PREFETCH_MULTIPLIER = 0
CELERY_WORKER_DISABLE_PREFETCH = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# A Redis server that is full or has become a replica rejects commands for a while, and workers must
# survive that.
CELERY_BROKER_CHANNEL_ERROR_RETRY = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    "socket_keepalive": True,
    "socket_keepalive_options": REDIS_KEEPALIVE,
    "health_check_interval": 20,
    "max_connections": 20,
    # Hints have no priorities, so a queue is one list.
    "priority_steps": [0],
}
# Maximum number of threads per process that may send hints simultaneously, and the number of
# seconds after which a thread waiting for its turn gives up.
CELERY_BROKER_POOL_LIMIT = 10
CELERY_BROKER_POOL_ACQUIRE_TIMEOUT = 2
# Task time limits, which apply only to workers that run tasks in child processes. Threads can't be
# killed, but other workers can take over their tasks.
CELERY_TASK_SOFT_TIME_LIMIT = read("UAC_WORK_SECONDS")
CELERY_TASK_TIME_LIMIT = CELERY_TASK_SOFT_TIME_LIMIT + 60
# Hints are published in a request's thread, after commit: fail fast, since the dispatcher finds the
# work anyway.
CELERY_TASK_PUBLISH_RETRY = False
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULE = {
    "dispatch": {
        "task": "workers.dispatch",
        "schedule": read("UAC_DISPATCH_SECONDS"),
        # A clock tick that has been queued for longer than this (in seconds) is discarded: the next
        # tick does the same work.
        "options": {"expires": 10},
    },
}

# -- E-mail to staff ---------------------------------------------------------------------------
vars().update(env.email_url_config(read("EMAIL_URL")))
EMAIL_TIMEOUT = read("EMAIL_TIMEOUT")
DEFAULT_FROM_EMAIL = SERVER_EMAIL = read("UAC_MAIL_FROM")

# -- HTTP --------------------------------------------------------------------------------------
DATA_UPLOAD_MAX_MEMORY_SIZE = read("UAC_MAX_REQUEST_BYTES")
# No form accepts file uploads: uploaded files are skipped, not stored.
FILE_UPLOAD_HANDLERS: list[str] = []

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["memory.kernel.http.authentication.ApiKeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": [
        "memory.kernel.http.authentication.HasScope",
        "memory.kernel.http.authentication.ReachesUsers",
    ],
    "DEFAULT_THROTTLE_CLASSES": [
        "memory.kernel.http.throttles.WorkspaceLimits",
    ],
    "DEFAULT_RENDERER_CLASSES": ["memory.kernel.http.renderers.PiecewiseJSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["memory.kernel.http.parsers.StrictJSONParser"],
    "DEFAULT_FILTER_BACKENDS": ["memory.kernel.http.filters.StrictFilterBackend"],
    "DEFAULT_PAGINATION_CLASS": "memory.kernel.http.pagination.Pagination",
    "DEFAULT_SCHEMA_CLASS": "memory.kernel.http.openapi.Schema",
    "EXCEPTION_HANDLER": "memory.kernel.http.errors.exception_handler",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "UaC server",
    "DESCRIPTION": "User as Code: an agent's memory of its user, kept as typed Python that runs.",
    "VERSION": "1",
    "CONTACT": {"name": "The operator of this server"},
    "LICENSE": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    "SERVERS": [{"url": "/"}],
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PUBLIC": True,
    "SERVE_AUTHENTICATION": [],
    "SERVE_PERMISSIONS": [],
    "SCHEMA_PATH_PREFIX": "/v1/",
    "COMPONENT_SPLIT_REQUEST": True,
    "OAS_VERSION": "3.1.0",
    "PREPROCESSING_HOOKS": ["memory.kernel.http.openapi.paths_without_final_slash"],
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "memory.kernel.http.openapi.complete",
    ],
    "ENUM_NAME_OVERRIDES": {
        "CorpusEnum": [(name, name) for name in ("facts", "archive")],
        "EntryStatusEnum": [(name, name) for name in ("current", "replaced", "retired", "lapsed")],
        "ByEnum": "memory.log.models.entries.By",
        "EntryKindEnum": "memory.log.models.entries.EntryKind",
        "TextEntryKindEnum": "memory.log.api.entry_serializers.TEXT_KINDS",
        "RecordEntryKindEnum": "memory.log.api.entry_serializers.RECORD_KINDS",
        "RunKindEnum": "memory.versions.models.runs.RunKind",
        "RunOutcomeEnum": "memory.versions.models.runs.RunOutcome",
        "RunStatusEnum": "memory.versions.models.runs.RunStatus",
        "StructureStateEnum": "memory.llm.lane_status.LaneState",
        "AlertKindEnum": "memory.alerts.models.alerts.AlertKind",
        "AlertEventKindEnum": "memory.alerts.models.alerts.AlertEventKind",
        "AlertStateEnum": "memory.alerts.models.alerts.AlertState",
        "SeverityEnum": "memory.alerts.models.alerts.Severity",
        "VerdictEnum": "memory.alerts.models.alerts.Verdict",
        "JudgeEnum": "memory.alerts.models.alerts.Judge",
        "DeliveryStateEnum": "memory.alerts.models.webhooks.DeliveryStanding",
        "BacktestStateEnum": "memory.constraints.models.backtests.BacktestState",
        "VersionStateEnum": "memory.constraints.models.workspace_constraints.VersionState",
    },
}

# Swagger UI for /docs/. The package's app would bring Redoc as well: twice the size.
_SWAGGER_UI = files("drf_spectacular_sidecar") / "static/drf_spectacular_sidecar/swagger-ui-dist"
STATICFILES_DIRS = [("swagger-ui", str(_SWAGGER_UI))]
STATIC_URL = "static/"
STATIC_ROOT = env.path("STATIC_ROOT", default=BASE_DIR / "staticfiles")
# A development server serves the files from where they are: nothing has to be collected.
WHITENOISE_USE_FINDERS = DEVELOPMENT
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedStaticFilesStorage"},
}

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

# -- Sign-in of staff (`uac_site.sign_in`) ---------------------------------------------------------
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/admin/"
ACCOUNT_LOGOUT_REDIRECT_URL = "/admin/"
ACCOUNT_ADAPTER = "uac_site.sign_in.adapters.AccountAdapter"
ACCOUNT_EMAIL_NOTIFICATIONS = False
ACCOUNT_EMAIL_VERIFICATION = SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_REAUTHENTICATION_METHODS = ["password", "mfa"]
# The browser keeps the cookie until it is closed, longer than the session lasts: so what was sent
# too late is kept for whoever sent it (`uac_site.sign_in.interrupted`).
ACCOUNT_SESSION_REMEMBER = False
ACCOUNT_SIGNUP_FIELDS = ["username*", "email", "password1*"]
ACCOUNT_UNIQUE_EMAIL = False
MFA_ADAPTER = "uac_site.sign_in.adapters.FactorAdapter"
MFA_ALLOW_UNVERIFIED_EMAIL = True
MFA_FORMS = {
    "authenticate": "uac_site.sign_in.forms.AuthenticateForm",
    "reauthenticate": "uac_site.sign_in.forms.ReauthenticateForm",
}
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_SUPPORTED_TYPES = ["webauthn", "totp", "recovery_codes"]
MFA_TOTP_ISSUER = "User as Code"
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = DEVELOPMENT
SOCIALACCOUNT_ADAPTER = "uac_site.sign_in.adapters.ProviderAdapter"
# A form posted to our page may not be redirected to the provider (`form-action`), a link may.
SOCIALACCOUNT_LOGIN_ON_GET = True
SOCIALACCOUNT_STORE_TOKENS = False
SESSION_COOKIE_AGE = 60 * read("UAC_SESSION_IDLE_MINUTES")

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
FORMAT_MODULE_PATH = ["uac_site.formats"]

# -- Transport security: on, unless this is a development server -----------------------------------
SECURE_SSL_REDIRECT = read("SECURE_SSL_REDIRECT")
# Load balancers request these paths over plain HTTP, so don't redirect them.
SECURE_REDIRECT_EXEMPT = [r"^livez$", r"^readyz$"]
CSRF_FAILURE_VIEW = "uac_site.sign_in.interrupted.csrf_failure"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = not DEVELOPMENT
SECURE_HSTS_SECONDS = read("SECURE_HSTS_SECONDS")
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = not DEVELOPMENT
if read("UAC_BEHIND_PROXY"):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# -- Logs: one JSON object per line, with request and task IDs and never a user's content ----------
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "json": {
            "()": "structlog.stdlib.ProcessorFormatter",
            "processor": structlog.processors.JSONRenderer(),
            "foreign_pre_chain": PROCESSORS,
        },
    },
    "filters": {"routes": {"()": "uac_site.request_log.RouteForAddress"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "root": {"handlers": ["stderr"], "level": read("LOG_LEVEL")},
    "loggers": {
        # Celery needn't log the results of tasks: the tasks log their own.
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
        "django.request": {"filters": ["routes"]},
        "django.security.csrf": {"filters": ["routes"]},
        # At lower levels, these libraries log URL paths, which identify users, and rejected
        # requests, which quote users' texts.
        "httpx2": {"level": "WARNING"},
        "mcp": {"level": "WARNING"},
    },
}

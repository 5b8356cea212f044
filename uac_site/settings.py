"""Settings, every one of them from the environment.

A variable `NAME` may also be given as `NAME_FILE`, the path of a file that holds its value, so that
secrets can be mounted instead of exported; the end of its last line is not part of it.
docs/settings.md lists the variables; `uac_site/checks.py` refuses combinations that are unsafe in
production.
"""

from pathlib import Path

import django_stubs_ext
import environ
import structlog
from kombu import Queue
from redis.connection import parse_url

from uac_site.environment import FilesWithoutLineEnd
from uac_site.logs import PROCESSORS

# Lets Django's generic classes be written with their type parameters at run time.
django_stubs_ext.monkeypatch()

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()
env.ENVIRON = FilesWithoutLineEnd()

# "production" unless somebody says otherwise: forgetting a variable must never weaken a server.
UAC_ENVIRONMENT = env.str("UAC_ENVIRONMENT", default="production")
DEVELOPMENT = UAC_ENVIRONMENT == "development"

DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = env.str("SECRET_KEY", default="")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=[])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])

INSTALLED_APPS = [
    "uac_site.admin_site.StaffAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "django_structlog",
    "memory",
    "uac_site",
]

MIDDLEWARE = [
    "uac_site.request_log.request_ids",
    "uac_site.telemetry.Telemetry",
    "django.middleware.security.SecurityMiddleware",
    "uac_site.content_security.content_security_policy",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "uac_site.request_log.RequestLog",
    "memory.api.rates.tell_rates",
    "memory.api.conditional.ConditionalGet",
]

ROOT_URLCONF = "uac_site.urls"
# `uac_site.request_log.request_ids` has seen to it.
DJANGO_STRUCTLOG_TRUST_UPSTREAM_REQUEST_ID = True
WSGI_APPLICATION = "uac_site.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# -- Database ----------------------------------------------------------------------------------
# The server runs as a role that owns no table; migrations run with the owner's DATABASE_URL.
DATABASES = {}
# "transaction": between us and PostgreSQL is a pooler that gives connections out by transaction.
DATABASE_POOLER = env.str("DATABASE_POOLER", default="")
# So many connections a process shares among its threads; 0: each thread keeps one of its own.
DATABASE_POOL = env.int("DATABASE_POOL", default=0)
try:
    _url = env.db_url("DATABASE_URL") if env.str("DATABASE_URL", default="") else {}
except ValueError:
    _url = {}
_prepared = env.bool("DATABASE_PREPARED_STATEMENTS", default=DATABASE_POOLER != "transaction")
# Another engine's driver is not here, and would fail before the checks could name the variable.
if _url.get("ENGINE") == "django.db.backends.postgresql":
    DATABASES["default"] = {
        **_url,
        "ENGINE": "uac_site.database",
        "CONN_MAX_AGE": 0 if DATABASE_POOL else env.int("DATABASE_CONN_MAX_AGE", default=60),
        "CONN_HEALTH_CHECKS": True,
        "DISABLE_SERVER_SIDE_CURSORS": DATABASE_POOLER == "transaction",
        "OPTIONS": {
            "application_name": "uac",
            "connect_timeout": 5,
            # A database whose machine is gone is noticed within a minute.
            "keepalives_idle": 20,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 60_000,
            # The database parses and plans a statement that comes again once for a connection.
            # PgBouncer can do with it since 1.21 (max_prepared_statements).
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
# How long a statement, waiting for a lock, and a transaction that does nothing may take, at most:
# of a request, and of a worker. Commands of the operator's have no limit.
UAC_WEB_STATEMENT_SECONDS = env.float("UAC_WEB_STATEMENT_SECONDS", default=15.0)
UAC_WEB_LOCK_SECONDS = env.float("UAC_WEB_LOCK_SECONDS", default=5.0)
UAC_WORKER_STATEMENT_SECONDS = env.float("UAC_WORKER_STATEMENT_SECONDS", default=300.0)
UAC_WORKER_LOCK_SECONDS = env.float("UAC_WORKER_LOCK_SECONDS", default=30.0)
UAC_TRANSACTION_IDLE_SECONDS = env.float("UAC_TRANSACTION_IDLE_SECONDS", default=60.0)

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# -- Redis and Celery --------------------------------------------------------------------------
REDIS_URL = env.str("REDIS_URL", default="")

try:
    parse_url(REDIS_URL)  # type: ignore[no-untyped-call]
    CELERY_BROKER_URL = REDIS_URL
except ValueError:  # the checks name it, if Celery lets them
    CELERY_BROKER_URL = "memory://"
CELERY_BROKER_TRANSPORT = "uac_site.broker:Transport"
# A message is a hint (see ARCHITECTURE.md): acknowledged early, without result, never retried by
# Celery. Work, attempts and leases live in PostgreSQL.
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False
CELERY_TASK_DEFAULT_QUEUE = "default"
CELERY_TASK_QUEUES = [
    Queue(name, routing_key=name, no_ack=True) for name in ("default", "sandbox", "llm")
]
CELERY_TASK_ROUTES = {
    "workers.tasks.answer": {"queue": "llm"},
    "workers.tasks.backtest": {"queue": "sandbox"},
    "workers.tasks.checkpoint_records": {"queue": "sandbox"},
    "workers.tasks.execute_run": {"queue": "sandbox"},
    "workers.tasks.forecast": {"queue": "sandbox"},
    "workers.tasks.judge_workspace_constraint": {"queue": "sandbox"},
    "workers.tasks.redact": {"queue": "sandbox"},
    "workers.tasks.structure": {"queue": "llm"},
}
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
# See workers/service/consuming.py.
CELERY_WORKER_PREFETCH_MULTIPLIER = 0
CELERY_WORKER_DISABLE_PREFETCH = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# A Redis that has become a replica, or is full, refuses for a while: no reason for a worker to end.
CELERY_BROKER_CHANNEL_ERROR_RETRY = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    "socket_keepalive": True,
    "health_check_interval": 20,
    "max_connections": 20,
    # Of each queue, what goes in front and what comes behind it (memory/work/hints.py).
    "priority_steps": [0, 9],
}
# So many threads of a process send hints at a time; who waits for longer than this does without.
CELERY_BROKER_POOL_LIMIT = 10
CELERY_BROKER_POOL_ACQUIRE_TIMEOUT = 2
# Of pools of processes. Threads cannot be ended; their work can be claimed by others.
CELERY_TASK_SOFT_TIME_LIMIT = env.int("UAC_WORK_SECONDS", default=3600)
CELERY_TASK_TIME_LIMIT = CELERY_TASK_SOFT_TIME_LIMIT + 60
# Publishing happens on a request's thread, after commit: fail fast, the dispatcher finds the work.
CELERY_TASK_PUBLISH_RETRY = False
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULE = {
    "dispatch": {
        "task": "workers.tasks.dispatch",
        "schedule": env.float("UAC_DISPATCH_SECONDS", default=2.0),
        # A tick that waited longer than this is worthless: the next one does its work.
        "options": {"expires": 10},
    },
}

# -- The product -------------------------------------------------------------------------------
# "docker" is the real one. "process" runs user code in a plain child process: development only,
# as is "auto", which takes Docker where an engine answers and has the image, else processes.
UAC_SANDBOX_RUNNER = env.str("UAC_SANDBOX_RUNNER", default="auto" if DEVELOPMENT else "docker")
# The image of the Docker sandboxes; by default that of this release, which
# `python -m workers.sandbox.build` makes.
UAC_SANDBOX_IMAGE = env.str("UAC_SANDBOX_IMAGE", default="")
# The image that types are checked in; made by the same command.
UAC_TYPECHECK_IMAGE = env.str("UAC_TYPECHECK_IMAGE", default="")
# The OCI runtime of the containers, as the engine names it; by default the engine's own ("runc").
# One whose name contains "runsc" or "gvisor" has to prove that it is gVisor.
UAC_SANDBOX_RUNTIME = env.str("UAC_SANDBOX_RUNTIME", default="")
# What runs in a sandbox may use so much, unless its workspace has limits of its own: up to …_MOST.
# Of a query, a constraint or a file of tests:
UAC_SANDBOX_WALL_SECONDS = env.float("UAC_SANDBOX_WALL_SECONDS", default=5.0)
UAC_SANDBOX_WALL_SECONDS_MOST = env.float("UAC_SANDBOX_WALL_SECONDS_MOST", default=60.0)
UAC_SANDBOX_CPU_SECONDS = env.int("UAC_SANDBOX_CPU_SECONDS", default=5)
UAC_SANDBOX_CPU_SECONDS_MOST = env.int("UAC_SANDBOX_CPU_SECONDS_MOST", default=60)
UAC_SANDBOX_PROCESS_MEMORY_MIB = env.int("UAC_SANDBOX_PROCESS_MEMORY_MIB", default=256)
UAC_SANDBOX_PROCESS_MEMORY_MIB_MOST = env.int("UAC_SANDBOX_PROCESS_MEMORY_MIB_MOST", default=2032)
UAC_SANDBOX_OUTPUT_KIB = env.int("UAC_SANDBOX_OUTPUT_KIB", default=1024)
UAC_SANDBOX_OUTPUT_KIB_MOST = env.int("UAC_SANDBOX_OUTPUT_KIB_MOST", default=16 * 1024)
UAC_SANDBOX_RESULT_DEPTH = env.int("UAC_SANDBOX_RESULT_DEPTH", default=32)
UAC_SANDBOX_RESULT_DEPTH_MOST = env.int("UAC_SANDBOX_RESULT_DEPTH_MOST", default=48)
# Of all constraints, or all files of tests, of a run:
UAC_SANDBOX_TOTAL_SECONDS = env.float("UAC_SANDBOX_TOTAL_SECONDS", default=30.0)
UAC_SANDBOX_TOTAL_SECONDS_MOST = env.float("UAC_SANDBOX_TOTAL_SECONDS_MOST", default=90.0)
UAC_SANDBOX_RESULT_KIB = env.int("UAC_SANDBOX_RESULT_KIB", default=1024)
UAC_SANDBOX_RESULT_KIB_MOST = env.int("UAC_SANDBOX_RESULT_KIB_MOST", default=16 * 1024)
# Of a container, all told. A bit less than half of the memory is what a project may take.
UAC_SANDBOX_MEMORY_MIB = env.int("UAC_SANDBOX_MEMORY_MIB", default=1024)
UAC_SANDBOX_MEMORY_MIB_MOST = env.int("UAC_SANDBOX_MEMORY_MIB_MOST", default=4096)
UAC_SANDBOX_PIDS = env.int("UAC_SANDBOX_PIDS", default=32)
UAC_SANDBOX_PIDS_MOST = env.int("UAC_SANDBOX_PIDS_MOST", default=256)
UAC_SANDBOX_TMPFS_MIB = env.int("UAC_SANDBOX_TMPFS_MIB", default=0)
UAC_SANDBOX_TMPFS_MIB_MOST = env.int("UAC_SANDBOX_TMPFS_MIB_MOST", default=256)
# Containers kept ready: so many at least, and at most where many arrive.
UAC_SANDBOX_POOL_LEAST = env.int("UAC_SANDBOX_POOL_LEAST", default=2)
UAC_SANDBOX_POOL_MOST = env.int("UAC_SANDBOX_POOL_MOST", default=8)
# A user's container is kept for so long after its last use, with the project loaded, in case the
# user comes back; 0 for none. So many at most are kept that way.
UAC_SANDBOX_LEASE_SECONDS = env.float("UAC_SANDBOX_LEASE_SECONDS", default=10.0)
UAC_SANDBOX_LEASES = env.int("UAC_SANDBOX_LEASES", default=16)
# The name of a sandbox worker, by which the staff know it and hints find it; by default that of its
# Celery node, which no other worker has.
UAC_SANDBOX_HOST = env.str("UAC_SANDBOX_HOST", default="")
# The embedding model of the search: "wordllama", which is part of the installation and needs no
# network; the path of a folder with a static model, as model2vec or sentence-transformers save it;
# a provider's model, such as "openai:text-embedding-3-small"; or "off": then the search goes by
# words alone.
UAC_EMBEDDINGS = env.str("UAC_EMBEDDINGS", default="wordllama")
# What it was before, as long as logs are embedded anew: then it answers for those that are not yet.
UAC_EMBEDDINGS_PREVIOUS = env.str("UAC_EMBEDDINGS_PREVIOUS", default="")
# Of a provider's model: where it answers, if not at OpenAI, and the key, which is sent only there;
# how many numbers a vector has, where the model leaves the choice.
UAC_EMBEDDINGS_BASE_URL = env.str("UAC_EMBEDDINGS_BASE_URL", default="")
UAC_EMBEDDINGS_API_KEY = env.str("UAC_EMBEDDINGS_API_KEY", default="")
UAC_EMBEDDINGS_DIMENSIONS = env.int("UAC_EMBEDDINGS_DIMENSIONS", default=None)
# Texts of one call; seconds that a call may take, and all calls for a search together; tokens that
# each workspace may spend in a day of UTC.
UAC_EMBEDDINGS_BATCH = env.int("UAC_EMBEDDINGS_BATCH", default=64)
UAC_EMBEDDINGS_TIMEOUT_SECONDS = env.float("UAC_EMBEDDINGS_TIMEOUT_SECONDS", default=30.0)
UAC_EMBEDDINGS_QUERY_SECONDS = env.float("UAC_EMBEDDINGS_QUERY_SECONDS", default=2.0)
UAC_EMBEDDINGS_TOKENS_PER_DAY = env.int("UAC_EMBEDDINGS_TOKENS_PER_DAY", default=None)
# The language model: provider and model, such as "openai:gpt-5-mini"; empty for none. Workspaces
# may have their own. The key is sent to this provider, at this base URL, and nowhere else.
UAC_LLM_MODEL = env.str("UAC_LLM_MODEL", default="")
UAC_LLM_BASE_URL = env.str("UAC_LLM_BASE_URL", default="")
UAC_LLM_API_KEY = env.str("UAC_LLM_API_KEY", default="")
# One attempt is given up after so long, all told.
UAC_LLM_TIMEOUT_SECONDS = env.float("UAC_LLM_TIMEOUT_SECONDS", default=120.0)
# So often a question is asked where the failure may pass; between two attempts it waits: at first
# about so long, then twice as long each time, or as long as the provider says, but never longer
# than the most.
UAC_LLM_ATTEMPTS = env.int("UAC_LLM_ATTEMPTS", default=3)
UAC_LLM_BACKOFF_SECONDS = env.float("UAC_LLM_BACKOFF_SECONDS", default=1.0)
UAC_LLM_BACKOFF_SECONDS_MOST = env.float("UAC_LLM_BACKOFF_SECONDS_MOST", default=30.0)
# Tokens that one answer may have.
UAC_LLM_OUTPUT_TOKENS = env.int("UAC_LLM_OUTPUT_TOKENS", default=8192)
# Calls of one workspace at a time, on all workers together, and how long one waits for its turn:
# the first of a piece of work; one in the middle waits 20 times as long.
UAC_LLM_CONCURRENCY = env.int("UAC_LLM_CONCURRENCY", default=6)
UAC_LLM_TURN_SECONDS = env.float("UAC_LLM_TURN_SECONDS", default=30.0)
# A call that is under way for longer does not keep others waiting: a third of the calls that may be
# under way are begun beside such alone.
UAC_LLM_SLOW_SECONDS = env.float("UAC_LLM_SLOW_SECONDS", default=20.0)
# What each workspace may spend in a day and a month of UTC; without a value, there is no end.
UAC_LLM_TOKENS_PER_DAY = env.int("UAC_LLM_TOKENS_PER_DAY", default=None)
UAC_LLM_TOKENS_PER_MONTH = env.int("UAC_LLM_TOKENS_PER_MONTH", default=None)
UAC_LLM_COST_PER_DAY = env.float("UAC_LLM_COST_PER_DAY", default=None)
UAC_LLM_COST_PER_MONTH = env.float("UAC_LLM_COST_PER_MONTH", default=None)
# The price list, of a million tokens each: {"openai:gpt-5-mini": {"input": 0.25, "output": 2}}.
UAC_LLM_PRICES = env.str("UAC_LLM_PRICES", default="")
# When the model works on what a user has said: as soon as so many entries wait, or none has come
# for so long, or the oldest has waited for so long.
UAC_STRUCTURE_ENTRIES = env.int("UAC_STRUCTURE_ENTRIES", default=20)
UAC_STRUCTURE_IDLE_SECONDS = env.int("UAC_STRUCTURE_IDLE_SECONDS", default=60)
UAC_STRUCTURE_AGE_SECONDS = env.int("UAC_STRUCTURE_AGE_SECONDS", default=900)
# A model is stopped for a workspace when the gate refused more than this share of its proposals in
# the end, or more than that share of its accepted edits was undone (in percent; 100: never): of so
# many of its last sessions within so many days, and not before there are the minimum.
UAC_LLM_JUDGED_SESSIONS = env.int("UAC_LLM_JUDGED_SESSIONS", default=50)
UAC_LLM_JUDGED_DAYS = env.int("UAC_LLM_JUDGED_DAYS", default=7)
UAC_LLM_JUDGED_MINIMUM = env.int("UAC_LLM_JUDGED_MINIMUM", default=20)
UAC_LLM_REFUSED_PERCENT = env.int("UAC_LLM_REFUSED_PERCENT", default=80)
UAC_LLM_UNDONE_PERCENT = env.int("UAC_LLM_UNDONE_PERCENT", default=50)
# Characters of a user's log that one question may hold; it holds the manifest and the instructions
# besides, which are some 10,000.
UAC_LLM_WINDOW_CHARACTERS = env.int("UAC_LLM_WINDOW_CHARACTERS", default=12_000)
# How long the language model's worker waits for a sandbox worker to judge what the model wrote.
UAC_GATE_SECONDS = env.float("UAC_GATE_SECONDS", default=600.0)
# An alert that is open for so many minutes and acknowledged by nobody is escalated; 0 for never.
UAC_ESCALATE_CRITICAL_MINUTES = env.int("UAC_ESCALATE_CRITICAL_MINUTES", default=60)
UAC_ESCALATE_WARNING_MINUTES = env.int("UAC_ESCALATE_WARNING_MINUTES", default=24 * 60)
UAC_ESCALATE_INFO_MINUTES = env.int("UAC_ESCALATE_INFO_MINUTES", default=0)
# A constraint that finds more than so many at once, or would open more than so many alerts of one
# user within 24 hours, is paused.
UAC_ALERTS_PER_CONSTRAINT = env.int("UAC_ALERTS_PER_CONSTRAINT", default=100)
UAC_OPENINGS_PER_DAY = env.int("UAC_OPENINGS_PER_DAY", default=50)
# After so many days the words of messages go, runs, and calls of language models; 0 for never.
UAC_KEEP_MESSAGES_DAYS = env.int("UAC_KEEP_MESSAGES_DAYS", default=0)
UAC_KEEP_RUNS_DAYS = env.int("UAC_KEEP_RUNS_DAYS", default=0)
UAC_KEEP_LLM_CALLS_DAYS = env.int("UAC_KEEP_LLM_CALLS_DAYS", default=90)
# Where the staff open this server in a browser, for links in mails: https://uac.example.org
UAC_BASE_URL = env.str("UAC_BASE_URL", default="http://127.0.0.1:8000" if DEVELOPMENT else "")
# Whether prompts and answers are kept, encrypted, beside what every call has cost.
UAC_LLM_KEEP_CONTENT = env.bool("UAC_LLM_KEEP_CONTENT", default=False)
# What the database keeps encrypted: the newest key first, each of 32 bytes in URL-safe base64.
UAC_ENCRYPTION_KEYS = env.list("UAC_ENCRYPTION_KEYS", default=[])
# Webhooks: whether URLs may be http, and to which networks beside the internet they may lead.
UAC_WEBHOOK_ALLOW_HTTP = env.bool("UAC_WEBHOOK_ALLOW_HTTP", default=DEVELOPMENT)
UAC_WEBHOOK_ALLOWED_NETWORKS = env.list("UAC_WEBHOOK_ALLOWED_NETWORKS", default=[])
# One call ends after so long. To one endpoint so many go at a time, and in a minute.
UAC_WEBHOOK_TIMEOUT_SECONDS = env.float("UAC_WEBHOOK_TIMEOUT_SECONDS", default=10.0)
UAC_WEBHOOK_CONCURRENCY = env.int("UAC_WEBHOOK_CONCURRENCY", default=4)
UAC_WEBHOOK_PER_MINUTE = env.int("UAC_WEBHOOK_PER_MINUTE", default=600)
# The waits between the attempts at one delivery, in seconds: about three days together.
UAC_WEBHOOK_RETRY_SECONDS = env.list(
    "UAC_WEBHOOK_RETRY_SECONDS",
    cast=float,
    default=[5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400],
)
# An endpoint that has answered nothing but errors for so long is disabled.
UAC_WEBHOOK_DISABLE_DAYS = env.float("UAC_WEBHOOK_DISABLE_DAYS", default=5.0)
# The log of what was delivered or given up is kept for so long.
UAC_WEBHOOK_LOG_DAYS = env.int("UAC_WEBHOOK_LOG_DAYS", default=30)
# Where a sandbox worker answers Prometheus (/metrics); port 0 for nowhere. Several workers on one
# machine need a port each.
UAC_METRICS_PORT = env.int("UAC_METRICS_PORT", default=0)
UAC_METRICS_ADDRESS = env.str("UAC_METRICS_ADDRESS", default="127.0.0.1")
# Of each workspace, so many requests and entries in a minute (docs/limits.md) …
UAC_READS_PER_MINUTE = env.int("UAC_READS_PER_MINUTE", default=12_000)
UAC_WRITES_PER_MINUTE = env.int("UAC_WRITES_PER_MINUTE", default=12_000)
UAC_COSTLY_PER_MINUTE = env.int("UAC_COSTLY_PER_MINUTE", default=6_000)
UAC_ENTRIES_PER_MINUTE = env.int("UAC_ENTRIES_PER_MINUTE", default=120_000)
# … and altogether.
UAC_MAX_USERS = env.int("UAC_MAX_USERS", default=1_000_000)
UAC_MAX_ENTRIES = env.int("UAC_MAX_ENTRIES", default=100_000_000)
UAC_MAX_ENTRIES_PER_USER = env.int("UAC_MAX_ENTRIES_PER_USER", default=10_000_000)
UAC_MAX_LOG_MIB = env.int("UAC_MAX_LOG_MIB", default=100 * 1024)
# So much of it may wait to be worked on.
UAC_MAX_PENDING_ENTRIES = env.int("UAC_MAX_PENDING_ENTRIES", default=1_000_000)
UAC_MAX_WAITING_RUNS = env.int("UAC_MAX_WAITING_RUNS", default=1_000)
UAC_MAX_BACKTESTS = env.int("UAC_MAX_BACKTESTS", default=20)
# Requests that may wait for a result at one time, per web process; past it they answer 202.
UAC_WAITING_REQUESTS = env.int("UAC_WAITING_REQUESTS", default=12)
UAC_MAX_WAIT_SECONDS = env.float("UAC_MAX_WAIT_SECONDS", default=30.0)
# Server-sent events: so many streams go at one time, per process; half of them of one workspace.
# One that has nothing to tell says so after so many seconds. As often it looks at its key.
UAC_EVENT_STREAMS = env.int("UAC_EVENT_STREAMS", default=200)
UAC_EVENT_HEARTBEAT_SECONDS = env.float("UAC_EVENT_HEARTBEAT_SECONDS", default=15.0)
# Pending typed entries compiled into one checkpoint.
UAC_CHECKPOINT_BATCH = env.int("UAC_CHECKPOINT_BATCH", default=1000)
# A worker that is silent for this long has lost its claim, and somebody else repeats the work.
UAC_LEASE_SECONDS = env.int("UAC_LEASE_SECONDS", default=60)
UAC_MAX_ATTEMPTS = env.int("UAC_MAX_ATTEMPTS", default=5)
# A worker that is at one piece of work for this long hangs: its claim is renewed no more.
UAC_WORK_SECONDS = CELERY_TASK_SOFT_TIME_LIMIT
# A worker that is told to stop ends after so long, and gives back what it has not done by then.
UAC_STOP_SECONDS = env.float("UAC_STOP_SECONDS", default=7.0)
# A process whose clock is further off the database's does not start, and does nothing until it is
# right; 0: it may be. Two that are off either way must not take hints of ten seconds for old.
UAC_CLOCK_SECONDS = env.float("UAC_CLOCK_SECONDS", default=4.0)
# What was tried so often without success is shown to the staff.
UAC_STUCK_ATTEMPTS = env.int("UAC_STUCK_ATTEMPTS", default=5)
# So often it is looked whether something is wrong with the server; 0: never.
UAC_ALARM_SECONDS = env.float("UAC_ALARM_SECONDS", default=15.0)
# It is if work waits for so long; work that stands back, like a forecast, for so long; if so much
# fails again and again, or was given up; if the dispatcher or a sandbox worker is silent for long.
UAC_ALARM_WAITING_SECONDS = env.int("UAC_ALARM_WAITING_SECONDS", default=300)
UAC_ALARM_BACKGROUND_SECONDS = env.int("UAC_ALARM_BACKGROUND_SECONDS", default=6 * 3600)
UAC_ALARM_STUCK = env.int("UAC_ALARM_STUCK", default=1)
UAC_ALARM_SILENT_SECONDS = env.int("UAC_ALARM_SILENT_SECONDS", default=60)
# Local hour at which a user's constraints run each day.
UAC_DAILY_RUN_HOUR = env.int("UAC_DAILY_RUN_HOUR", default=6)
# So many minutes after a run, the constraints of a user run again if one of them takes the moment.
UAC_INSTANT_MINUTES = env.int("UAC_INSTANT_MINUTES", default=5)
# So many days ahead it is foreseen what the constraints will find; 0: it is not.
UAC_FORECAST_DAYS = env.int("UAC_FORECAST_DAYS", default=365)

# -- E-mail to the staff -----------------------------------------------------------------------
# smtp+tls://user:password@host:587, or as django-environ has it; by default mails are printed in
# development, and none can be sent in production.
vars().update(
    env.email_url("EMAIL_URL", default="consolemail://" if DEVELOPMENT else "dummymail://")
)
# Of one step of the conversation with the mail server.
EMAIL_TIMEOUT = env.float("EMAIL_TIMEOUT", default=10.0)
DEFAULT_FROM_EMAIL = SERVER_EMAIL = env.str("UAC_MAIL_FROM", default="uac@localhost")

# -- HTTP --------------------------------------------------------------------------------------
DATA_UPLOAD_MAX_MEMORY_SIZE = env.int("UAC_MAX_REQUEST_BYTES", default=8 * 1024 * 1024)
# No form takes files: those that are sent are read past, not stored.
FILE_UPLOAD_HANDLERS: list[str] = []

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["memory.api.authentication.ApiKeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": [
        "memory.api.authentication.HasScope",
        "memory.api.authentication.ReachesUsers",
    ],
    "DEFAULT_THROTTLE_CLASSES": ["memory.api.rates.Rates"],
    "DEFAULT_RENDERER_CLASSES": ["memory.api.renderers.PiecewiseJSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["memory.api.parsers.StrictJSONParser"],
    "DEFAULT_FILTER_BACKENDS": ["memory.api.filters.StrictFilterBackend"],
    "DEFAULT_PAGINATION_CLASS": "memory.api.pagination.Pagination",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "memory.api.errors.exception_handler",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "UaC server",
    "DESCRIPTION": "User as Code: an agent's memory of its user, kept as typed Python that runs.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PUBLIC": True,
    "SERVE_AUTHENTICATION": [],
    "SERVE_PERMISSIONS": [],
    "SCHEMA_PATH_PREFIX": "/v1/",
    "COMPONENT_SPLIT_REQUEST": True,
    "OAS_VERSION": "3.1.0",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "memory.api.openapi.complete",
    ],
    "ENUM_NAME_OVERRIDES": {
        "CorpusEnum": [(name, name) for name in ("facts", "archive")],
        "ByEnum": "memory.models.log.By",
        "CompleteByEnum": "memory.api.completing.CHOICES",
        "EntryKindEnum": "memory.models.log.EntryKind",
        "NewEntryKindEnum": "memory.api.entries.APPENDED_KINDS",
        "RunKindEnum": "memory.models.runs.RunKind",
        "RunOutcomeEnum": "memory.models.runs.RunOutcome",
        "StructureStateEnum": "memory.work.lanes.State",
        "AlertKindEnum": "memory.models.alerts.AlertKind",
        "AlertEventKindEnum": "memory.models.alerts.AlertEventKind",
        "AlertStateEnum": "memory.models.alerts.AlertState",
        "SeverityEnum": "memory.models.alerts.Severity",
        "VerdictEnum": "memory.models.alerts.Verdict",
        "JudgeEnum": "memory.models.alerts.Judge",
        "DeliveryStateEnum": "memory.models.webhooks.DeliveryStanding",
        "BacktestStateEnum": "memory.models.backtests.BacktestState",
        "VersionStateEnum": "memory.models.workspace_constraints.VersionState",
    },
}

STATIC_URL = "static/"
STATIC_ROOT = env.path("STATIC_ROOT", default=BASE_DIR / "staticfiles")
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

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
FORMAT_MODULE_PATH = ["uac_site.formats"]

# -- Transport security: on, unless this is a development server -----------------------------------
SECURE_SSL_REDIRECT = env.bool("SECURE_SSL_REDIRECT", default=not DEVELOPMENT)
# The load balancer asks over plain HTTP.
SECURE_REDIRECT_EXEMPT = [r"^livez$", r"^readyz$"]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = not DEVELOPMENT
SECURE_HSTS_SECONDS = env.int("SECURE_HSTS_SECONDS", default=0 if DEVELOPMENT else 31_536_000)
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = not DEVELOPMENT
# While a file of this name is there, /readyz answers 404: the load balancer sends nothing new.
UAC_DRAIN_FILE = env.str("UAC_DRAIN_FILE", default="")
if env.bool("UAC_BEHIND_PROXY", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# -- Logs: one JSON object a line, with request and task ids and never a person's content ----------
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
    "root": {"handlers": ["stderr"], "level": env.str("LOG_LEVEL", default="INFO")},
    "loggers": {
        # What a task came to is told by the task.
        "celery.worker.strategy": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
        "django.request": {"filters": ["routes"]},
        "django.security.csrf": {"filters": ["routes"]},
        # They tell of addresses and refusals, which name users and quote what was sent.
        "httpx2": {"level": "WARNING"},
        "mcp": {"level": "WARNING"},
    },
}

"""All environment variables that configure the server: defaults, units, ranges and meanings.

For each setting that a workspace can override, the table also names the field for the override. The
table is the source for the settings (`uac_site.environment`), for validating them and workspaces'
overrides (`memory.kernel.settings.overrides`), for the overrides form's help texts, and for
`docs/configuration.md` (`uac_site.configuration`). The settings module imports the table, so the
table must not import anything from Django.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Setting:
    """One environment variable.

    `maximum` may be the name of another setting, whose value is then the maximum. If `zero` is
    given, 0 is allowed even if it is out of range, and `zero` says what it means. `field` is the
    name of the field that a workspace uses to override the setting.
    """

    name: str
    default: Any
    meaning: str
    unit: str = ""
    minimum: float | None = None
    maximum: float | str | None = None
    zero: str = ""
    reason: str = ""
    field: str = ""
    # The only values allowed, if the value is one of a few words.
    choices: Sequence[str] = ()
    # The value's type, if it differs from the default's.
    kind: type[Any] | None = None
    # The default in development, if different.
    development: Any = None

    @property
    def value_type(self) -> type[Any]:
        """The value's type."""
        return self.kind or type(self.default)

    @property
    def help_text(self) -> str:
        """The field's help text in the workspace form."""
        return f"{self.meaning} 0 means {self.zero}." if self.zero else self.meaning

    def allows(self, value: float) -> bool:
        """Return whether a value is in range, ignoring any maximum set by another setting."""
        above = self.minimum is None or value >= self.minimum
        below = not isinstance(self.maximum, int | float) or value <= self.maximum
        return (above and below) or bool(self.zero and value == 0)

    def explain(self, value: float, maximum: float | None) -> str:
        """Return a message that says which values would be valid instead of this one."""
        minimum = plain(self.minimum or 0)
        bounds = (
            f"at least {minimum}" if maximum is None else f"between {minimum} and {plain(maximum)}"
        )
        notes = "; ".join(filter(None, (self.unit, self.zero and f"0 means {self.zero}")))
        return f"must be {bounds}{f' ({notes})' if notes else ''}, not {plain(value)}"

    def amount(self, value: float) -> str:
        """Return a value as text, with its unit."""
        return f"{plain(value)} {self.unit}".strip()


@dataclass(frozen=True)
class Group:
    """Settings on the same topic, and the id of the system check that reports invalid values."""

    title: str
    settings: Sequence[Setting]
    check: str = ""

    @cached_property
    def overridable(self) -> dict[str, Setting]:
        """The settings a workspace may override, keyed by field."""
        return {setting.field: setting for setting in self.settings if setting.field}


def plain(value: float) -> str:
    """Return a number as an operator would write it."""
    return str(int(value)) if value == value // 1 else f"{value:g}"


_INTERPRETER = "The interpreter needs at least this much to start, compile code and respond."
_LIFE = "A sandbox lives for only a few minutes, in which all checks of a proposal must finish."
_BUSY = "A busy machine needs this long even for an empty program."
_FRAME = "A response must fit into one frame of the protocol."
# The highest value that fits in an integer column in the database.
_COLUMN = 2**31 - 1
# A year; a longer wait would effectively mean never.
_YEAR_MINUTES = 366 * 24 * 60
# A century; a longer time would effectively mean for ever.
_CENTURY_DAYS = 36_525
# How long a wake-up hint is valid, and thus stays in a queue that nobody reads.
_HINT_SECONDS = 10
# Kinds of sensitive content, as the content policy names them, and in words. All but secrets are
# named as Presidio's entities.
SENSITIVE = {
    "secret": "keys, tokens and passwords with a known form",
    "email_address": "e-mail addresses",
    "phone_number": "telephone numbers",
    "credit_card": "numbers of payment cards",
    "iban_code": "bank accounts (IBAN)",
    "ip_address": "IP addresses",
}
STORED, MASKED, TYPED_ONLY, REFUSED = CONTENT_ACTIONS = (
    "stored",
    "masked",
    "typed_only",
    "refused",
)

# Laid out as a table with two or three lines per row.
# fmt: off
SERVER = Group("Server", (
    Setting("UAC_ENVIRONMENT", "production", "`production` or `development`."),
    Setting("SECRET_KEY", "", "Secret that signs sessions and keys the hashes of API keys: at least"
            " 50 random characters. Required."),
    Setting("DEBUG", False, "Show Django's debugging pages; not allowed in production."),
    Setting("ALLOWED_HOSTS", [], "Host names that the server answers to, separated by commas."
            " Required in production."),
    Setting("CSRF_TRUSTED_ORIGINS", [], "Other origins from which forms may be submitted, such as"
            " `https://admin.example.org`, separated by commas."),
    Setting("UAC_BASE_URL", "", "URL at which staff access this server, for links in e-mails and"
            " the approval of MCP clients.",
            development="http://127.0.0.1:8000"),
    Setting("UAC_BEHIND_PROXY", False, "Whether a proxy terminates TLS and sets"
            " `X-Forwarded-Proto`."),
    Setting("UAC_DRAIN_FILE", "", "While a file with this name exists, `/readyz` returns 404, so"
            " that load balancers send no new requests."),
    Setting("SECURE_SSL_REDIRECT", True, "Redirect http to https, except for `/livez` and"
            " `/readyz`.", development=False),
    Setting("SECURE_HSTS_SECONDS", 31_536_000, "How long browsers must connect over https only"
            " (HSTS).",
            "seconds", development=0),
    Setting("UAC_MAX_REQUEST_BYTES", 8 * 1024 * 1024, "Maximum size of a request body.", "bytes"),
    Setting("UAC_WAITING_REQUESTS", 12, "Maximum number of requests per web process that may wait"
            " for a result at the same time; further requests are answered with `202`."),
    Setting("UAC_MAX_WAIT_SECONDS", 30.0, "Longest time that a request waits for a result.",
            "seconds"),
    Setting("STATIC_ROOT", "", "Folder for the collected static files; by default `staticfiles` in"
            " the server's own folder."),
    Setting("LOG_LEVEL", "INFO", "Minimum level of log messages to write."),
))
SIGN_IN = Group("Staff sign-in", check="uac.E029", settings=(
    Setting("UAC_PASSWORD_SIGN_IN", True, "Accept passwords of staff accounts. Turn it off when all"
            " staff sign in at your identity provider."),
    Setting("UAC_SECOND_FACTOR", False, "Staff who sign in by password need a second factor (a"
            " passkey, or codes of an authenticator app); without one, they can only add one."),
    Setting("UAC_SESSION_IDLE_MINUTES", 60, "How long staff stay signed in without a request.",
            "minutes", minimum=5, maximum=_YEAR_MINUTES),
    Setting("UAC_SESSION_HOURS", 12, "How long staff stay signed in at most.",
            "hours", minimum=1, maximum=366 * 24),
    Setting("UAC_OIDC_ISSUER", "", "URL of the OpenID Connect provider at which staff sign in."),
    Setting("UAC_OIDC_CLIENT_ID", "", "This server's client id at that provider."),
    Setting("UAC_OIDC_CLIENT_SECRET", "", "This server's client secret at that provider."),
    Setting("UAC_OIDC_SCOPES", ["openid", "profile", "email"], "Scopes to ask that provider for,"
            " separated by commas; some tell a person's groups only with one more."),
    Setting("UAC_SAML_METADATA_URL", "", "URL of the metadata of the SAML provider at which staff"
            " sign in. Needs the extra `saml`."),
    Setting("UAC_SAML_ENTITY_ID", "", "Entity id of that provider in its metadata."),
    Setting("UAC_SIGN_IN_NAME", "your organisation", "Name of the provider on the sign-in page."),
    Setting("UAC_SIGN_IN_GROUPS_CLAIM", "groups", "Claim (OpenID Connect) or attribute (SAML) that"
            " lists the groups a person is in."),
    Setting("UAC_SIGN_IN_ROLES", [], "Roles that the provider's groups give, such as"
            " `memory-ops=operator`, separated by commas. Whoever is in none of the groups cannot"
            " sign in.", kind=list),
))
DATABASE = Group("Database and Redis", check="uac.E019", settings=(
    Setting("DATABASE_URL", "", "URL of the PostgreSQL database, with the role `uac`; migrations"
            " run with the owner's URL. Required."),
    Setting("DATABASE_POOL", 0, "Number of database connections that the threads of a process"
            " share.",
            minimum=0, zero="one per thread"),
    Setting("DATABASE_POOLER", "", "`transaction` if the server connects through a pooler in"
            " transaction mode."),
    Setting("DATABASE_PREPARED_STATEMENTS", True, "Use prepared statements for repeated queries;"
            " off by default if `DATABASE_POOLER` is `transaction`."),
    Setting("DATABASE_CONN_MAX_AGE", 60, "How long a thread keeps its database connection if there"
            " is no pool.", "seconds"),
    Setting("UAC_WEB_STATEMENT_SECONDS", 15.0, "Time limit for an SQL statement in a request.",
            "seconds", 0, 86_400, zero="no limit"),
    Setting("UAC_WEB_LOCK_SECONDS", 5.0, "Longest time that a request waits for a database lock.",
            "seconds",
            0, 86_400, zero="no limit"),
    Setting("UAC_WORKER_STATEMENT_SECONDS", 300.0, "Time limit for an SQL statement in a worker.",
            "seconds", 0, 86_400, zero="no limit"),
    Setting("UAC_WORKER_LOCK_SECONDS", 30.0, "Longest time that a worker waits for a database"
            " lock.",
            "seconds", 0, 86_400, zero="no limit"),
    Setting("UAC_TRANSACTION_IDLE_SECONDS", 60.0, "How long a transaction in a request or worker"
            " may be idle.",
            "seconds", 0, 86_400, zero="no limit"),
    Setting("REDIS_URL", "", "URL of Redis, which must run with `maxmemory-policy noeviction`."
            " Required."),
))
SANDBOXES = Group("Sandboxes", check="uac.E005", settings=(
    Setting("UAC_SANDBOX_RUNNER", "docker", "`docker`; on a development machine also `process` or"
            " `auto`, which uses Docker if an engine is available and has the image.",
            development="auto"),
    Setting("UAC_SANDBOX_IMAGE", "", "Image for the sandboxes; by default this release's image, as"
            " built by `make image`."),
    Setting("UAC_TYPECHECK_IMAGE", "", "Image in which types are checked; by default this release's"
            " image, also built by `make image`."),
    Setting("UAC_CONVERT_IMAGE", "", "Image in which documents are converted to text; by default"
            " this release's image, also built by `make image`."),
    Setting("UAC_SANDBOX_RUNTIME", "", "OCI runtime for the containers, such as `crun` or gVisor's"
            " `runsc`; by default the engine's own. See [runtimes.md](runtimes.md)."),
    Setting("UAC_SANDBOX_HOST", "", "Unique name of a sandbox worker; by default its Celery node's"
            " name (`--hostname`)."),
    Setting("UAC_SANDBOX_POOL_LEAST", 2, "Minimum number of containers that a sandbox worker"
            " keeps ready."),
    Setting("UAC_SANDBOX_POOL_MOST", 8, "Maximum number of containers that a sandbox worker keeps"
            " ready."),
    Setting("UAC_SANDBOX_LEASE_SECONDS", 10.0, "How long a user's container is kept for further"
            " requests for the user.", "seconds", zero="single-use containers"),
    Setting("UAC_SANDBOX_WALL_SECONDS", 5.0, "How many seconds one query, constraint or test file"
            " may take.", "seconds", 0.1, 90, reason=f"{_BUSY} {_LIFE}",
            field="wall_seconds"),
    Setting("UAC_SANDBOX_TOTAL_SECONDS", 30.0, "How many seconds all constraints, or all test"
            " files, in a run may take together.", "seconds", 0.1, 90,
            reason=f"{_BUSY} {_LIFE}", field="total_seconds"),
    Setting("UAC_SANDBOX_CPU_SECONDS", 5, "How many seconds of processor time one query, constraint"
            " or test file may take.", "seconds", 1, 90,
            reason=f"The kernel counts whole seconds. {_LIFE}", field="cpu_seconds"),
    Setting("UAC_SANDBOX_PROCESS_MEMORY_MIB", 256, "How many MiB of memory one query, constraint or"
            " test file may use, including the project that is loaded for it; at most a little less"
            " than half of the container's memory.",
            "MiB", 48, 2**20,
            reason=_INTERPRETER, field="process_memory_mib"),
    Setting("UAC_SANDBOX_OUTPUT_KIB", 1024, "How many KiB one query, constraint or test file may"
            " print.", "KiB", 1, 2**14,
            reason="The last KiB is always kept.", field="output_kib"),
    Setting("UAC_SANDBOX_RESULT_KIB", 1024, "How many KiB the value of a query, or the findings of"
            " a run, may take up.", "KiB", 1, 2**14,
            reason=f"An error message may be this long. {_FRAME}", field="result_kib"),
    Setting("UAC_SANDBOX_RESULT_DEPTH", 32, "Maximum nesting depth of a query's value.",
            "levels", 1, 48,
            reason="The protocol does not allow deeper nesting.", field="result_depth"),
    Setting("UAC_SANDBOX_MEMORY_MIB", 1024, "Memory per container, in MiB. The loaded project may"
            " use a little less than half of it.", "MiB", 128, "UAC_SANDBOX_MEMORY_MIB_MOST",
            reason=_INTERPRETER, field="memory_mib"),
    Setting("UAC_SANDBOX_MEMORY_MIB_MOST", 4096, "Largest `memory_mib` that a workspace may set.",
            "MiB", 128, 2**21),
))
CONSTRAINTS = Group("Constraints", check="uac.E014", settings=(
    Setting("UAC_DAILY_RUN_HOUR", 6, "Hour at which a user's constraints run each day, in the"
            " user's time zone.", "hour", 0, 23),
    Setting("UAC_INSTANT_MINUTES", 5, "Time after which a user's constraints run again if one of"
            " them reads the current time and has no forecast.", "minutes", 1, 24 * 60),
    Setting("UAC_FORECAST_DAYS", 365, "How far ahead constraint findings are forecast.",
            "days", 0, 1830, zero="no forecasts, but daily runs"),
))
ALERTS = Group("Alerts", check="uac.E009", settings=(
    Setting("UAC_ESCALATE_CRITICAL_MINUTES", 60, "Time after which a critical alert that is open"
            " and not acknowledged is escalated.", "minutes", 0, _YEAR_MINUTES, zero="never",
            field="escalate_critical_minutes"),
    Setting("UAC_ESCALATE_WARNING_MINUTES", 24 * 60, "Time after which a warning that is open and"
            " not acknowledged is escalated.", "minutes", 0, _YEAR_MINUTES, zero="never",
            field="escalate_warning_minutes"),
    Setting("UAC_ESCALATE_INFO_MINUTES", 0, "Time after which an info alert that is open and not"
            " acknowledged is escalated.", "minutes", 0, _YEAR_MINUTES, zero="never",
            field="escalate_info_minutes"),
    Setting("UAC_ALERTS_PER_CONSTRAINT", 100, "Maximum number of alerts that a constraint may raise"
            " at once; a constraint that raises more is paused.", "alerts", 1, 1000,
            reason="More than 1000 alerts do not fit into one response.",
            field="alerts_per_constraint"),
    Setting("UAC_OPENINGS_PER_DAY", 50, "Maximum number of alerts that a constraint may open for a"
            " user within 24 hours; a constraint that would open more is paused.", "alerts", 1,
            10_000, field="openings_per_day"),
))
SEARCH = Group("Search", check="uac.E032", settings=(
    Setting("UAC_EMBEDDINGS", "local", "Embedding model: `local`, i.e. those installed with the"
            " server, `wordllama` for English and `multilingual` for other languages, or one of"
            " these; the path of a folder with a static model; a provider's model, such as"
            " `openai:text-embedding-3-small`; or `off`. See [search.md](search.md)."),
    Setting("UAC_EMBEDDINGS_BASE_URL", "", "URL of the embedding provider's API, if the provider is"
            " not OpenAI."),
    Setting("UAC_EMBEDDINGS_API_KEY", "", "The embedding provider's API key, sent only to it."),
    Setting("UAC_EMBEDDINGS_DIMENSIONS", None, "Number of dimensions of each embedding; by default"
            " the model's own.", minimum=1, maximum=16_384, kind=int),
    Setting("UAC_EMBEDDINGS_BATCH", 64, "Maximum number of texts per embedding call.", minimum=1,
            maximum=2048),
    Setting("UAC_EMBEDDINGS_TIMEOUT_SECONDS", 30.0, "Time limit for an embedding call.", "seconds",
            1, 600),
    Setting("UAC_EMBEDDINGS_QUERY_SECONDS", 2.0, "Longest time that a search waits for its"
            " embedding calls.",
            "seconds", 0.1, 60),
    Setting("UAC_EMBEDDINGS_TOKENS_PER_DAY", None, "How many tokens each workspace may use for"
            " embeddings per day (UTC).", "tokens", 100_000, zero="no calls", kind=int,
            reason="With fewer, indexing makes no progress."),
))
LANGUAGE_MODEL = Group("Language model", check="uac.E006", settings=(
    Setting("UAC_LLM_MODEL", "", "Provider and model, such as `openai:gpt-5-mini`,"
            " `anthropic:claude-sonnet-4-5` or `google:gemini-2.5-flash`.", field="llm_model"),
    Setting("UAC_LLM_BASE_URL", "", "Base URL of the provider's API, if it is not the default one."
            " For Ollama, vLLM and llama.cpp, name the model `openai:…` and give that server's URL,"
            " such as `http://ollama:11434/v1`.", field="llm_base_url"),
    Setting("UAC_LLM_API_KEY", "", "The model provider's API key, sent only to it."),
    Setting("UAC_LLM_TIMEOUT_SECONDS", 120.0, "Time limit for each attempt to call the language"
            " model.", "seconds",
            1),
    Setting("UAC_LLM_ATTEMPTS", 3, "Maximum number of attempts to make a call that fails with a"
            " transient error.",
            minimum=1),
    Setting("UAC_LLM_BACKOFF_SECONDS", 1.0, "Wait before the second attempt to make a call; each"
            " further wait is twice as long, or as long as the provider requests.", "seconds", 0),
    Setting("UAC_LLM_BACKOFF_SECONDS_MOST", 30.0, "Longest wait between two attempts to make a"
            " call.", "seconds", 0),
    Setting("UAC_LLM_OUTPUT_TOKENS", 8192, "Maximum length of a language model's response.",
            "tokens", 1),
    Setting("UAC_LLM_CONCURRENCY", 6, "Maximum number of concurrent calls to the language model per"
            " workspace, across all workers.", "calls", 1, field="llm_concurrency"),
    Setting("UAC_LLM_TURN_SECONDS", 30.0, "How long a language model task waits for its turn to"
            " make its first call; it waits up to 20 times as long for later calls.", "seconds", 0),
    Setting("UAC_LLM_SLOW_SECONDS", 20.0, "A call that takes longer than this is considered slow."
            " A third of the concurrent call slots is kept free until calls become slow, so that"
            " slow calls do not hold up other work.", "seconds", 0),
    Setting("UAC_LLM_TOKENS_PER_DAY", None, "How many tokens a workspace may use per day (UTC).",
            "tokens", 0, kind=int, zero="no calls", field="llm_tokens_per_day"),
    Setting("UAC_LLM_TOKENS_PER_MONTH", None, "How many tokens a workspace may use per month"
            " (UTC).",
            "tokens", 0, kind=int, zero="no calls", field="llm_tokens_per_month"),
    Setting("UAC_LLM_COST_PER_DAY", None, "How much a workspace may spend per day (UTC), in the"
            " currency of `UAC_LLM_PRICES`.", minimum=0, kind=float, field="llm_cost_per_day"),
    Setting("UAC_LLM_COST_PER_MONTH", None, "How much a workspace may spend per month (UTC), in the"
            " currency of `UAC_LLM_PRICES`.",
            minimum=0, kind=float, field="llm_cost_per_month"),
    Setting("UAC_LLM_PRICES", "", 'Prices per million tokens, as JSON: `{"openai:gpt-5-mini":'
            ' {"input": 0.25, "output": 2, "cache_read": 0.03}}`. They override the list prices, in'
            " US dollars, that the server knows of many models."),
    Setting("UAC_LLM_WINDOW_CHARACTERS", 12_000, "Maximum number of characters from a user's log in"
            " one prompt; the manifest and the instructions add about 15,000.", "characters", 1000),
    Setting("UAC_LLM_COMBINE_STEPS", True, "Ask the model in a single call for the facts in"
            " messages and for the edits that add them to the project. With `false`, two separate"
            " calls are made, which a weak model handles better."),
    Setting("UAC_LLM_INSTRUCTIONS", "", "Folder with instructions for language models; its files"
            " replace those of the same name in `workers/authoring/instructions`."),
    Setting("UAC_LLM_KEEP_CONTENT", False, "Whether to store, encrypted, the prompts and"
            " responses of calls."),
    Setting("UAC_ENCRYPTION_KEYS", [], "Keys for encrypted content, separated by commas, newest"
            " first; each is 32 bytes in URL-safe base64. After you add a key, run `manage.py"
            " reencrypt`; the older keys are then no longer needed."),
))
TRACK_RECORD = Group("Language model track record", check="uac.E006", settings=(
    Setting("UAC_LLM_JUDGED_SESSIONS", 50, "A model is judged by at most this many of its most"
            " recent sessions.", "sessions", 1, 500, field="llm_judged_sessions"),
    # Calls may be deleted after a day, along with their sessions' results.
    Setting("UAC_LLM_JUDGED_DAYS", 7, "A model is judged only by sessions that began at most this"
            " many days before its newest session.", "days", 1, 90, field="llm_judged_days"),
    Setting("UAC_LLM_JUDGED_MINIMUM", 20, "A model is judged only if it has at least this many"
            " sessions.",
            "sessions", 1, "UAC_LLM_JUDGED_SESSIONS", field="llm_judged_minimum"),
    Setting("UAC_LLM_REFUSED_PERCENT", 80, "Stop a model if, after all attempts, the gate refused"
            " more than this percentage of its sessions; 100 means never.", "percent", 0, 100,
            field="llm_refused_percent"),
    Setting("UAC_LLM_UNDONE_PERCENT", 50, "Stop a model if more than this percentage of its"
            " accepted edits were undone, either by a rollback to an earlier version or by"
            " reopening their entries; 100 means never.", "percent", 0, 100,
            field="llm_undone_percent"),
))
STRUCTURING = Group("When the language model works", check="uac.E007", settings=(
    Setting("UAC_STRUCTURE_ENTRIES", 20, "Work on a user's entries begins as soon as this many of"
            " them are waiting.", "entries", 1, 1000, field="structure_entries"),
    Setting("UAC_STRUCTURE_IDLE_SECONDS", 60, "Work on a user's entries begins when no further"
            " entry has arrived for this long.", "seconds", 1, "UAC_STRUCTURE_AGE_SECONDS",
            field="structure_idle_seconds"),
    Setting("UAC_STRUCTURE_AGE_SECONDS", 900, "Work on a user's entries begins when the oldest one"
            " has waited for this long, even if more entries keep arriving.", "seconds", 1, _COLUMN,
            field="structure_age_seconds"),
))
QUOTAS = Group("Rates and quotas", check="uac.E030", settings=(
    Setting("UAC_READS_PER_MINUTE", 12_000, "Maximum number of read requests per minute.",
            "requests", 1, _COLUMN, field="reads_per_minute"),
    Setting("UAC_WRITES_PER_MINUTE", 12_000, "Maximum number of write requests per minute.",
            "requests", 1, _COLUMN, field="writes_per_minute"),
    Setting("UAC_COSTLY_PER_MINUTE", 6_000, "Maximum number of requests per minute that are"
            " expensive to compute: queries, questions, searches, contexts, proposals, imports,"
            " exports and backtests.", "requests", 1, _COLUMN, field="costly_per_minute"),
    Setting("UAC_ENTRIES_PER_MINUTE", 120_000, "Maximum number of entries appended to logs per"
            " minute.", "entries", 1, _COLUMN, field="entries_per_minute"),
    Setting("UAC_PROCESSOR_PERCENT", 20, "Percentage of a processor that one workspace's requests"
            " may use in each web process while other workspaces make requests; 100 means no"
            " limit.",
            "percent", 1, 100, field="processor_percent"),
    Setting("UAC_MAX_USERS", 1_000_000, "Maximum number of users.", "users", 1, _COLUMN,
            field="max_users"),
    Setting("UAC_MAX_ENTRIES", 100_000_000, "Maximum total number of entries in all users' logs.",
            "entries", 1, _COLUMN, field="max_entries"),
    Setting("UAC_MAX_ENTRIES_PER_USER", 10_000_000, "Maximum number of entries in one user's log.",
            "entries", 1, _COLUMN, field="max_entries_per_user"),
    Setting("UAC_MAX_LOG_MIB", 100 * 1024, "Maximum total size of all users' entries in MiB.",
            "MiB", 1, _COLUMN, field="max_log_mib"),
    Setting("UAC_MAX_PENDING_ENTRIES", 1_000_000, "Maximum number of pending entries; once it is"
            " reached, new entries are rejected.",
            "entries", 1, _COLUMN, field="max_pending_entries"),
    Setting("UAC_MAX_WAITING_RUNS", 1_000, "Maximum number of queued and running queries,"
            " questions, proposals and imports.", "runs", 1, _COLUMN, field="max_waiting_runs"),
    Setting("UAC_MAX_BACKTESTS", 20, "Maximum number of queued and running backtests.",
            "backtests", 1, _COLUMN, field="max_backtests"),
))
RETENTION = Group("Retention", check="uac.E031", settings=(
    Setting("UAC_KEEP_MESSAGES_DAYS", 0, "Time after which message text is deleted; data derived"
            " from it stays.", "days", 1, _CENTURY_DAYS, zero="for ever",
            field="keep_messages_days"),
    Setting("UAC_KEEP_RUNS_DAYS", 0, "Time after which runs are deleted, except the last run to"
            " report each live alert.", "days", 8, _CENTURY_DAYS, zero="for ever",
            reason="A request with an Idempotency-Key may be repeated for a week, and the response"
            " to a repeated request comes from the stored run.", field="keep_runs_days"),
    Setting("UAC_KEEP_LLM_CALLS_DAYS", 90, "Time after which language model calls are deleted;"
            " their cost stays on record.", "days", 1, _CENTURY_DAYS, zero="for ever",
            field="keep_llm_calls_days"),
))
CONTENT = Group("Content policy", check="uac.E038", settings=tuple(
    Setting(f"UAC_CONTENT_{kind.upper()}", STORED, f"What happens to {words} in new entries,"
            " proposals and imports: they are stored, masked, allowed in typed data only, or"
            " refused.", choices=CONTENT_ACTIONS, field=f"content_{kind}")
    for kind, words in SENSITIVE.items()
))
DOCUMENTS = Group("Documents", check="uac.E039", settings=(
    Setting("UAC_DOCUMENT_BYTES", 7 * 1024 * 1024, "Maximum size of an uploaded document; a request"
            " with it may have at most `UAC_MAX_REQUEST_BYTES`.", "bytes", 1, 32 * 1024 * 1024),
    Setting("UAC_DOCUMENT_PAGES", 500, "Maximum number of pages, slides, sheets or messages in a"
            " document.", "pages", 1, 10_000),
    Setting("UAC_DOCUMENT_CHARACTERS", 500_000, "Maximum length of a document's text.",
            "characters", 1000, 1_000_000),
    Setting("UAC_DOCUMENT_SECONDS", 30, "How many seconds of processor time converting a document"
            " to text may take.", "seconds", 1, 300),
))
WEBHOOKS = Group("Webhooks", check="uac.E008", settings=(
    Setting("UAC_WEBHOOK_ALLOW_HTTP", False, "Allow endpoints without TLS.", development=True),
    Setting("UAC_WEBHOOK_ALLOWED_NETWORKS", [], "Networks besides the public internet to which"
            " webhooks may be sent, such as `10.1.0.0/16`, separated by commas."),
    Setting("UAC_WEBHOOK_TIMEOUT_SECONDS", 10.0, "Time limit for a call to an endpoint.", "seconds",
            1),
    Setting("UAC_WEBHOOK_CONCURRENCY", 4, "Maximum number of concurrent calls to one endpoint.",
            "calls", 1),
    Setting("UAC_WEBHOOK_PER_MINUTE", 600, "Maximum number of calls to one endpoint per minute.",
            "calls", 1),
    Setting("UAC_WEBHOOK_RETRY_SECONDS", [5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 50_400.0,
            72_000.0, 86_400.0], "Waits between attempts to deliver a message, separated by commas;"
            " each is at most a week.", "seconds"),
))
MAIL = Group("E-mail to staff", (
    Setting("EMAIL_URL", "dummymail://", "URL of the mail server, such as"
            " `smtp+tls://user:password@host:587`. Without it, no e-mail is sent; in development,"
            " e-mails are printed.",
            development="consolemail://"),
    Setting("EMAIL_TIMEOUT", 10.0, "Longest wait for each response from the mail server.",
            "seconds"),
    Setting("UAC_MAIL_FROM", "uac@localhost", "Sender address of e-mails."),
))
EVENTS = Group("Events for agents", check="uac.E018", settings=(
    Setting("UAC_EVENT_STREAMS", 200, "Maximum number of concurrent event streams per process; one"
            " workspace may have at most half of them.", "streams", 0),
    Setting("UAC_EVENT_HEARTBEAT_SECONDS", 15.0, "How often a stream without events sends a"
            " keep-alive, and how often its API key is checked again.", "seconds", 1),
))
AGENTS = Group("Sign-in of MCP clients", check="uac.E037", settings=(
    Setting("UAC_MCP_ORIGINS", [], "Origins of web pages that may call the process for agents, such"
            " as `https://chat.example.com`, separated by commas; `*` allows all."),
    Setting("UAC_MCP_ISSUER", "", "Issuer of your own authorization server, at which MCP clients"
            " sign in. Without it, staff approve each client at `UAC_BASE_URL`."),
    Setting("UAC_MCP_JWKS_URL", "", "URL of that issuer's public keys. Required with"
            " `UAC_MCP_ISSUER`."),
    Setting("UAC_MCP_WORKSPACE", "", "Name of the workspace that has the issuer's users. Required"
            " with `UAC_MCP_ISSUER`."),
    Setting("UAC_MCP_USER_CLAIM", "sub", "Claim of an access token that contains the user_id."),
))
WORKERS = Group("Workers", (
    Setting("UAC_DISPATCH_SECONDS", 2.0, "How often the dispatcher looks for due work.", "seconds"),
    Setting("UAC_CHECKPOINT_BATCH", 1000, "Maximum number of typed entries that are compiled into"
            " one checkpoint.", "entries"),
    Setting("UAC_LEASE_SECONDS", 60, "Time after which a worker that has not renewed its lease"
            " loses it, and another worker redoes the work.", "seconds"),
    Setting("UAC_MAX_ATTEMPTS", 5, "Number of attempts after which work fails permanently; does not"
            " apply to work that is retried forever."),
    Setting("UAC_WORK_SECONDS", 3600, "Time after which work in progress is considered hung and its"
            " lease is no longer renewed.", "seconds"),
    Setting("UAC_STOP_SECONDS", 7.0, "How long a worker that is asked to stop may take to finish"
            " its work; it returns unfinished work to the queue.", "seconds"),
    Setting("UAC_CLOCK_SECONDS", 4.0, "Maximum difference between a process's clock and the"
            " database's; a process that exceeds it does no work, and refuses requests that write,"
            " until its clock is right.", "seconds", zero="no check"),
))
MONITORING = Group("Monitoring", check="uac.E019", settings=(
    Setting("UAC_METRICS_PORT", 0, "Port of a process's Prometheus endpoint; several processes on"
            " one machine need different ports. See [metrics.md](metrics.md).", zero="none"),
    Setting("UAC_METRICS_ADDRESS", "127.0.0.1", "Address of the Prometheus endpoint."),
    Setting("OTEL_EXPORTER_OTLP_ENDPOINT", "", "OpenTelemetry endpoint for traces, which need the"
            " extra `traces`; OpenTelemetry's other variables apply, too. See"
            " [metrics.md](metrics.md)."),
    Setting("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "", "Full URL of the OpenTelemetry endpoint for"
            " traces, used instead of `OTEL_EXPORTER_OTLP_ENDPOINT`."),
    Setting("UAC_STUCK_ATTEMPTS", 5, "Number of failed attempts after which work is shown to staff"
            " as failing.", minimum=1),
    Setting("UAC_ALARM_SECONDS", 15.0, "Interval between alarm checks. See"
            " [operations.md](operations.md).", "seconds", 0, zero="never"),
    Setting("UAC_ALARM_WAITING_SECONDS", 300, "Raise an alarm when work has waited for longer than"
            " this.", "seconds", _HINT_SECONDS),
    Setting("UAC_ALARM_BACKGROUND_SECONDS", 6 * 3600, "Raise an alarm when work that yields to"
            " other work, such as forecasts, has waited for longer than this.",
            "seconds", _HINT_SECONDS),
    Setting("UAC_ALARM_SILENT_SECONDS", 60, "Raise an alarm when the dispatcher or a sandbox worker"
            " has sent no heartbeat for longer than this.", "seconds", _HINT_SECONDS),
))
# fmt: on

GROUPS = (
    *(SERVER, SIGN_IN, DATABASE, WORKERS, SANDBOXES, CONSTRAINTS, ALERTS, SEARCH),
    *(LANGUAGE_MODEL, TRACK_RECORD, STRUCTURING, QUOTAS, RETENTION, CONTENT, DOCUMENTS, WEBHOOKS),
    *(MAIL, EVENTS, AGENTS, MONITORING),
)
SETTINGS = {setting.name: setting for group in GROUPS for setting in group.settings}
# Maps each variable to the id of the system check that reports invalid values.
CHECKS = {setting.name: group.check for group in GROUPS for setting in group.settings}

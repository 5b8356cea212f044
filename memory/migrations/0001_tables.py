"""All tables, with their indexes and constraints."""

import uuid

import django.contrib.postgres.fields
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import memory.models.alerts
import memory.models.fields
import memory.models.webhooks


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Alarm",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "run_after",
                    models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="The work is not attempted again before this time.",
                    ),
                ),
                (
                    "hinted_at",
                    models.DateTimeField(
                        help_text="When workers were last notified of the work.", null=True
                    ),
                ),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                (
                    "attempts",
                    models.IntegerField(
                        default=0,
                        help_text="How many times the work has been attempted since it last succeeded.",
                    ),
                ),
                ("last_error", models.TextField(blank=True, default="")),
                ("name", models.CharField(max_length=100, unique=True)),
                (
                    "detail",
                    models.TextField(
                        help_text="A description of the current or most recent problem."
                    ),
                ),
                (
                    "holds_since",
                    models.DateTimeField(
                        help_text="When the problem began; empty if there is no problem.", null=True
                    ),
                ),
                (
                    "seen_at",
                    models.DateTimeField(help_text="When the problem was last seen.", null=True),
                ),
                (
                    "raised_at",
                    models.DateTimeField(
                        help_text="When the alarm was raised; empty until a problem has lasted long enough to raise it.",
                        null=True,
                    ),
                ),
                (
                    "cleared_at",
                    models.DateTimeField(help_text="When the problem ended.", null=True),
                ),
                (
                    "is_told",
                    models.BooleanField(
                        default=True,
                        help_text="Whether staff have been notified of the last change by e-mail.",
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Workspace",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "llm_model",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="Provider and model, such as openai:gpt-5-mini, anthropic:claude-sonnet-4-5 or google:gemini-2.5-flash. For Ollama, vLLM and other servers with an OpenAI-compatible API, enter openai: followed by the model's name on that server, and set the base URL.",
                        max_length=200,
                        verbose_name="model",
                    ),
                ),
                (
                    "llm_base_url",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="The base URL of the provider's API, such as http://ollama:11434/v1, if it is not the default one. The server's own API key is never sent to this URL.",
                        max_length=500,
                        verbose_name="base URL",
                    ),
                ),
                ("llm_api_key", models.BinaryField(null=True, verbose_name="API key")),
                (
                    "llm_concurrency",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="The maximum number of concurrent calls to the model, across all workers.",
                        null=True,
                        validators=[django.core.validators.MinValueValidator(1)],
                        verbose_name="concurrent calls",
                    ),
                ),
                (
                    "llm_tokens_per_day",
                    models.PositiveBigIntegerField(
                        blank=True,
                        help_text="The maximum number of input and output tokens per day, from midnight to midnight UTC. 0 allows no calls.",
                        null=True,
                        verbose_name="tokens per day",
                    ),
                ),
                (
                    "llm_tokens_per_month",
                    models.PositiveBigIntegerField(
                        blank=True,
                        help_text="The maximum number of input and output tokens per calendar month (UTC).",
                        null=True,
                        verbose_name="tokens per month",
                    ),
                ),
                (
                    "llm_cost_per_day",
                    models.DecimalField(
                        blank=True,
                        decimal_places=2,
                        help_text="The maximum cost per day, from midnight to midnight UTC, in the currency of the server's price list.",
                        max_digits=12,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="cost per day",
                    ),
                ),
                (
                    "llm_cost_per_month",
                    models.DecimalField(
                        blank=True,
                        decimal_places=2,
                        help_text="The maximum cost per calendar month (UTC), in the currency of the server's price list.",
                        max_digits=12,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(0)],
                        verbose_name="cost per month",
                    ),
                ),
                ("wall_seconds", models.FloatField(blank=True, null=True)),
                ("total_seconds", models.FloatField(blank=True, null=True)),
                (
                    "cpu_seconds",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="CPU seconds"),
                ),
                (
                    "process_memory_mib",
                    models.PositiveIntegerField(
                        blank=True, null=True, verbose_name="process memory (MiB)"
                    ),
                ),
                (
                    "output_kib",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="output (KiB)"),
                ),
                (
                    "result_kib",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="result (KiB)"),
                ),
                ("result_depth", models.PositiveIntegerField(blank=True, null=True)),
                (
                    "memory_mib",
                    models.PositiveIntegerField(
                        blank=True, null=True, verbose_name="container memory (MiB)"
                    ),
                ),
                (
                    "pids",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="processes"),
                ),
                (
                    "tmpfs_mib",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="tmpfs (MiB)"),
                ),
                (
                    "single_use",
                    models.BooleanField(
                        default=False,
                        help_text="Destroy each container after one use. Otherwise, a user's container is kept for a short time, which makes further requests for the user many times faster.",
                        verbose_name="single-use containers",
                    ),
                ),
                (
                    "llm_judged_sessions",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="sessions"),
                ),
                (
                    "llm_judged_days",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="days"),
                ),
                (
                    "llm_judged_minimum",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="minimum"),
                ),
                (
                    "llm_refused_percent",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="refused (%)"),
                ),
                (
                    "llm_undone_percent",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="undone (%)"),
                ),
                (
                    "llm_resumptions",
                    models.JSONField(
                        blank=True,
                        editable=False,
                        help_text="For each model: when, by whom and why it was allowed to continue with a new track record.",
                        null=True,
                    ),
                ),
                (
                    "llm_stops",
                    models.JSONField(
                        blank=True,
                        editable=False,
                        help_text="For each stopped model: when and why it was stopped, and which limits applied.",
                        null=True,
                    ),
                ),
                (
                    "structure_entries",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="entries"),
                ),
                (
                    "structure_idle_seconds",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="idle seconds"),
                ),
                (
                    "structure_age_seconds",
                    models.PositiveIntegerField(
                        blank=True, null=True, verbose_name="age in seconds"
                    ),
                ),
                (
                    "escalate_critical_minutes",
                    models.PositiveIntegerField(
                        blank=True,
                        null=True,
                        verbose_name="escalate critical alerts after (minutes)",
                    ),
                ),
                (
                    "escalate_warning_minutes",
                    models.PositiveIntegerField(
                        blank=True, null=True, verbose_name="escalate warnings after (minutes)"
                    ),
                ),
                (
                    "escalate_info_minutes",
                    models.PositiveIntegerField(
                        blank=True, null=True, verbose_name="escalate info alerts after (minutes)"
                    ),
                ),
                ("alerts_per_constraint", models.PositiveIntegerField(blank=True, null=True)),
                ("openings_per_day", models.PositiveIntegerField(blank=True, null=True)),
                (
                    "reads_per_minute",
                    models.PositiveIntegerField(
                        blank=True, null=True, verbose_name="reads per minute"
                    ),
                ),
                (
                    "writes_per_minute",
                    models.PositiveIntegerField(
                        blank=True, null=True, verbose_name="writes per minute"
                    ),
                ),
                (
                    "costly_per_minute",
                    models.PositiveIntegerField(
                        blank=True, null=True, verbose_name="costly requests per minute"
                    ),
                ),
                (
                    "entries_per_minute",
                    models.PositiveIntegerField(
                        blank=True, null=True, verbose_name="entries per minute"
                    ),
                ),
                (
                    "processor_percent",
                    models.PositiveIntegerField(
                        blank=True, null=True, verbose_name="processor (%)"
                    ),
                ),
                (
                    "max_users",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="users"),
                ),
                (
                    "max_entries",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="entries"),
                ),
                (
                    "max_entries_per_user",
                    models.PositiveIntegerField(
                        blank=True, null=True, verbose_name="entries per user"
                    ),
                ),
                (
                    "max_log_mib",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="logs (MiB)"),
                ),
                (
                    "max_pending_entries",
                    models.PositiveIntegerField(
                        blank=True, null=True, verbose_name="pending entries"
                    ),
                ),
                (
                    "max_waiting_runs",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="waiting runs"),
                ),
                (
                    "max_backtests",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="backtests"),
                ),
                (
                    "keep_messages_days",
                    models.PositiveIntegerField(
                        blank=True, null=True, verbose_name="keep messages for (days)"
                    ),
                ),
                (
                    "keep_runs_days",
                    models.PositiveIntegerField(
                        blank=True, null=True, verbose_name="keep runs for (days)"
                    ),
                ),
                (
                    "keep_llm_calls_days",
                    models.PositiveIntegerField(
                        blank=True, null=True, verbose_name="keep model calls for (days)"
                    ),
                ),
                ("public_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("name", models.CharField(max_length=100, unique=True)),
                (
                    "time_zone",
                    models.CharField(
                        default="UTC",
                        help_text="The time zone for users created without one, such as Europe/Berlin.",
                        max_length=64,
                        validators=[memory.models.fields.validate_time_zone],
                    ),
                ),
                (
                    "users_by_entry",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="Whether an entry for an unknown user_id creates the user.",
                        verbose_name="create users with their first entry",
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Heartbeat",
            fields=[
                ("name", models.CharField(max_length=50, primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="SandboxHost",
            fields=[
                ("name", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("started_at", models.DateTimeField()),
                ("seen_at", models.DateTimeField(help_text="The time of the last heartbeat.")),
                (
                    "threads",
                    models.IntegerField(help_text="The maximum number of concurrent jobs."),
                ),
                (
                    "report",
                    models.JSONField(
                        default=dict, help_text="The worker's report on its sandboxes."
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Checkpoint",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("version", models.IntegerField()),
                (
                    "tree",
                    models.JSONField(
                        help_text="Maps the path of each file to the hash of its blob."
                    ),
                ),
                (
                    "outline",
                    models.JSONField(
                        help_text="An outline of the project, without its records: see memory.project.Outline."
                    ),
                ),
                (
                    "seen_seq",
                    models.BigIntegerField(
                        help_text="The number of the newest entry reflected in this version."
                    ),
                ),
                (
                    "origin",
                    models.CharField(
                        choices=[
                            ("records", "typed records"),
                            ("llm", "language model"),
                            ("proposed", "proposed edits"),
                            ("imported", "imported"),
                            ("restored", "restored"),
                            ("redaction", "redaction"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "edits",
                    memory.models.fields.ExactJSONField(
                        help_text="The edits that produced this version, each with the entries it is based on."
                    ),
                ),
                (
                    "verdict",
                    models.JSONField(help_text="The gate's checks, each with its findings."),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "parent",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="children",
                        to="memory.checkpoint",
                    ),
                ),
            ],
            options={
                "ordering": ["user", "-version"],
            },
        ),
        migrations.CreateModel(
            name="EventCounter",
            fields=[
                (
                    "workspace",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        serialize=False,
                        to="memory.workspace",
                    ),
                ),
                (
                    "last_seq",
                    models.BigIntegerField(
                        help_text="The number of events in the workspace so far."
                    ),
                ),
            ],
            options={
                "verbose_name": "event counter",
            },
        ),
        migrations.CreateModel(
            name="WorkspaceUse",
            fields=[
                (
                    "workspace",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="use",
                        serialize=False,
                        to="memory.workspace",
                    ),
                ),
                ("users", models.BigIntegerField(default=0)),
                ("entries", models.BigIntegerField(default=0)),
                ("log_bytes", models.BigIntegerField(default=0)),
                ("pending_records", models.BigIntegerField(default=0)),
                ("pending_structure", models.BigIntegerField(default=0)),
            ],
            options={
                "verbose_name": "workspace usage",
                "verbose_name_plural": "workspace usage",
                "ordering": ["workspace"],
            },
        ),
        migrations.CreateModel(
            name="Backtest",
            fields=[
                (
                    "run_after",
                    models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="The work is not attempted again before this time.",
                    ),
                ),
                (
                    "hinted_at",
                    models.DateTimeField(
                        help_text="When workers were last notified of the work.", null=True
                    ),
                ),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                (
                    "attempts",
                    models.IntegerField(
                        default=0,
                        help_text="How many times the work has been attempted since it last succeeded.",
                    ),
                ),
                ("last_error", models.TextField(blank=True, default="")),
                (
                    "dead_since",
                    models.DateTimeField(
                        help_text="When the work failed permanently; empty if it has not failed, or if staff have retried or dismissed it.",
                        null=True,
                    ),
                ),
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "constraint",
                    models.CharField(help_text="Path of the constraint's source.", max_length=300),
                ),
                ("source_hash", models.CharField(max_length=64)),
                (
                    "days",
                    models.PositiveIntegerField(help_text="How many days the backtest covers."),
                ),
                (
                    "most_users",
                    models.PositiveIntegerField(
                        help_text="The maximum number of users. If the constraint applies to more, a sample of this size is used."
                    ),
                ),
                (
                    "by",
                    models.CharField(
                        choices=[
                            ("recorded", "what was known then"),
                            ("occurred", "what was true then, according to the entries' own times"),
                        ],
                        db_default="recorded",
                        default="recorded",
                        help_text="Whether entries take effect when they were recorded or when they occurred.",
                        max_length=16,
                    ),
                ),
                (
                    "until",
                    models.DateTimeField(
                        help_text="The end of the period that the backtest covers."
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "waiting"),
                            ("running", "under way"),
                            ("finished", "finished"),
                            ("cancelled", "cancelled"),
                            ("failed", "failed"),
                        ],
                        default="waiting",
                        max_length=16,
                    ),
                ),
                (
                    "reason",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="Why the backtest was cancelled or failed.",
                        max_length=300,
                    ),
                ),
                ("cursor", models.CharField(blank=True, default="", max_length=32)),
                (
                    "picked",
                    models.BooleanField(
                        default=False, help_text="Whether the users to evaluate have been selected."
                    ),
                ),
                (
                    "looked_at",
                    models.PositiveIntegerField(
                        default=0,
                        help_text="How many users were checked for records with the shape that the constraint requires.",
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("created_by", models.CharField(max_length=200)),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="backtests",
                        to="memory.workspace",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(help_text="The component that uses this key.", max_length=100),
                ),
                ("prefix", models.CharField(editable=False, max_length=12, unique=True)),
                ("digest", models.CharField(editable=False, max_length=64)),
                (
                    "scopes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(
                            choices=[
                                ("read", "read"),
                                ("write", "write"),
                                (
                                    "manage",
                                    "manage webhooks and workspace constraints; redact entries; erase users",
                                ),
                            ],
                            max_length=16,
                        ),
                        size=None,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                (
                    "user_pks",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        blank=True,
                        editable=False,
                        help_text="The users that the key is limited to; empty if it allows all users.",
                        null=True,
                        size=None,
                    ),
                ),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "replaces",
                    models.ForeignKey(
                        blank=True,
                        editable=False,
                        help_text="The key that this key replaces.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="replaced_by",
                        to="memory.apikey",
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="api_keys",
                        to="memory.workspace",
                    ),
                ),
            ],
            options={
                "verbose_name": "API key",
                "ordering": ["workspace", "name"],
                "permissions": [("grant_manage", "Can give API keys the scope manage")],
            },
        ),
        migrations.CreateModel(
            name="MemoryUser",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("public_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                (
                    "user_id",
                    models.CharField(
                        max_length=128,
                        validators=[
                            django.core.validators.RegexValidator(
                                "\\A(?!\\.{1,2}$)[A-Za-z0-9._:@|+-]{1,128}\\Z",
                                "Use 1 to 128 of the characters A-Z a-z 0-9 . _ : @ | + -, but not . or .. alone",
                            )
                        ],
                    ),
                ),
                (
                    "time_zone",
                    models.CharField(
                        default="UTC",
                        max_length=64,
                        validators=[memory.models.fields.validate_time_zone],
                    ),
                ),
                ("metadata", models.JSONField(blank=True, default=dict)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "erased_at",
                    models.DateTimeField(
                        editable=False,
                        help_text="When the erasure of this user was requested.",
                        null=True,
                    ),
                ),
                ("last_seq", models.BigIntegerField(default=0, editable=False)),
                (
                    "last_hash",
                    models.BinaryField(
                        default=b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
                        max_length=32,
                    ),
                ),
                (
                    "log_bytes",
                    models.BigIntegerField(
                        default=0,
                        editable=False,
                        help_text="The size of the user's entries in bytes, not counting redacted entries.",
                    ),
                ),
                (
                    "redacting_since",
                    models.DateTimeField(
                        editable=False,
                        help_text="When the newest version was withheld because it may contain redacted content.",
                        null=True,
                    ),
                ),
                ("alerts_version", models.IntegerField(default=0, editable=False)),
                ("alerts_instant", models.DateTimeField(editable=False, null=True)),
                (
                    "constraints_due_at",
                    models.DateTimeField(
                        editable=False,
                        help_text="When the next scheduled run of the user's constraints is due.",
                        null=True,
                    ),
                ),
                (
                    "constraints_changed_at",
                    models.DateTimeField(
                        editable=False,
                        help_text="When the workspace's constraints changed; empty once they have run again for this user.",
                        null=True,
                    ),
                ),
                (
                    "head",
                    models.ForeignKey(
                        blank=True,
                        editable=False,
                        help_text="The newest accepted version of the project.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="memory.checkpoint",
                    ),
                ),
                (
                    "merged_into",
                    models.ForeignKey(
                        blank=True,
                        editable=False,
                        help_text="The user that this user was merged into; writes and queries for this user are rejected.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="memory.memoryuser",
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="users",
                        to="memory.workspace",
                    ),
                ),
            ],
            options={
                "verbose_name": "user",
                "ordering": ["workspace", "user_id"],
                "permissions": [
                    ("erase_memoryuser", "Can erase users permanently (privacy)"),
                    ("subject_access", "Can download all stored data about a person (privacy)"),
                ],
            },
        ),
        migrations.CreateModel(
            name="LogEntry",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                (
                    "seq",
                    models.BigIntegerField(
                        help_text="The entry's number in the user's log: 1, 2, 3 and so on, without gaps."
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("message", "message"),
                            ("fact", "fact"),
                            ("record", "typed record"),
                            ("correction", "correction"),
                            ("redaction", "redaction"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "occurred_at",
                    models.DateTimeField(
                        help_text="When the content was true, or when it was said."
                    ),
                ),
                (
                    "recorded_at",
                    models.DateTimeField(help_text="When the entry was recorded in the log."),
                ),
                (
                    "derived_from",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), blank=True, default=list, size=None
                    ),
                ),
                ("content", models.TextField(null=True)),
                ("data", memory.models.fields.ExactJSONField(null=True)),
                ("metadata", memory.models.fields.ExactJSONField(null=True)),
                ("session_id", models.CharField(max_length=200, null=True)),
                ("role", models.CharField(max_length=32, null=True)),
                ("speaker", models.CharField(max_length=200, null=True)),
                ("agent_id", models.CharField(max_length=200, null=True)),
                (
                    "source",
                    models.CharField(
                        help_text="The component that wrote the entry.", max_length=200, null=True
                    ),
                ),
                ("idempotency_key", models.CharField(max_length=255, null=True)),
                ("salt", models.BinaryField(max_length=16, null=True)),
                ("payload_hash", models.BinaryField(max_length=32)),
                ("hash", models.BinaryField(max_length=32)),
                ("redacted_at", models.DateTimeField(null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="entries",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "log entries",
                "ordering": ["user", "seq"],
            },
        ),
        migrations.CreateModel(
            name="Lane",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "run_after",
                    models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="The work is not attempted again before this time.",
                    ),
                ),
                (
                    "hinted_at",
                    models.DateTimeField(
                        help_text="When workers were last notified of the work.", null=True
                    ),
                ),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                (
                    "attempts",
                    models.IntegerField(
                        default=0,
                        help_text="How many times the work has been attempted since it last succeeded.",
                    ),
                ),
                ("last_error", models.TextField(blank=True, default="")),
                (
                    "name",
                    models.CharField(
                        choices=[("records", "typed records"), ("structure", "language model")],
                        max_length=16,
                    ),
                ),
                (
                    "due_at",
                    models.DateTimeField(
                        help_text="When the work is due; empty when nothing is pending.", null=True
                    ),
                ),
                (
                    "waiting",
                    models.PositiveIntegerField(
                        default=0,
                        help_text="How many entries have arrived since the last time nothing was pending.",
                    ),
                ),
                (
                    "waiting_since",
                    models.DateTimeField(
                        help_text="When the oldest of the waiting entries arrived.", null=True
                    ),
                ),
                ("cursor_seq", models.BigIntegerField(default=0)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="lanes",
                        to="memory.memoryuser",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="IdempotencyKey",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("key", models.CharField(max_length=255)),
                (
                    "fingerprint",
                    models.CharField(
                        help_text="SHA-256 of the request's method, path and body.", max_length=64
                    ),
                ),
                ("reference", models.JSONField(help_text="What the write created or changed.")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="idempotency_keys",
                        to="memory.workspace",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        help_text="The user affected by the write, if any.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="idempotency_keys",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="Forecast",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "run_after",
                    models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="The work is not attempted again before this time.",
                    ),
                ),
                (
                    "hinted_at",
                    models.DateTimeField(
                        help_text="When workers were last notified of the work.", null=True
                    ),
                ),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                (
                    "attempts",
                    models.IntegerField(
                        default=0,
                        help_text="How many times the work has been attempted since it last succeeded.",
                    ),
                ),
                ("last_error", models.TextField(blank=True, default="")),
                (
                    "dead_since",
                    models.DateTimeField(
                        help_text="When the work failed permanently; empty if it has not failed, or if staff have retried or dismissed it.",
                        null=True,
                    ),
                ),
                (
                    "due_at",
                    models.DateTimeField(
                        help_text="When the next forecast is due; empty if no forecast is due.",
                        null=True,
                    ),
                ),
                (
                    "basis",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="Hash of the forecast's inputs other than the version.",
                        max_length=64,
                    ),
                ),
                ("computed_at", models.DateTimeField(null=True)),
                (
                    "start",
                    models.DateTimeField(help_text="When the forecast begins.", null=True),
                ),
                ("horizon_days", models.PositiveIntegerField(default=0)),
                (
                    "known_until",
                    models.DateTimeField(
                        help_text="The time until which the forecast covers all constraints.",
                        null=True,
                    ),
                ),
                (
                    "needs_daily",
                    models.BooleanField(
                        default=False,
                        help_text="Whether the constraints have to run daily, because at least one of them has no forecast.",
                    ),
                ),
                (
                    "results",
                    memory.models.fields.ExactJSONField(
                        default=dict,
                        help_text="The result for each constraint, kept so that later forecasts can reuse it.",
                    ),
                ),
                (
                    "timeline",
                    memory.models.fields.ExactJSONField(
                        default=list, help_text="Which alerts open, change and resolve, and when."
                    ),
                ),
                ("next_change", models.DateTimeField(null=True)),
                (
                    "wakes_at",
                    models.DateTimeField(
                        help_text="When the constraints will run next because of the forecast.",
                        null=True,
                    ),
                ),
                (
                    "timings",
                    models.JSONField(
                        default=dict,
                        help_text="How many seconds and calls the forecast took, and how many results were new or reused.",
                    ),
                ),
                (
                    "checkpoint",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="memory.checkpoint",
                    ),
                ),
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="forecast",
                        to="memory.memoryuser",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="EntryOutcome",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("seq", models.BigIntegerField()),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("covered", "covered"),
                            ("dismissed", "dismissed"),
                            ("rejected", "rejected"),
                        ],
                        max_length=16,
                    ),
                ),
                ("reason", models.TextField(blank=True, default="")),
                (
                    "decided_at",
                    models.DateTimeField(
                        default=django.utils.timezone.now,
                        editable=False,
                        help_text="When the version that settled the entry was made; later if the outcome was only decided after that version already existed.",
                    ),
                ),
                (
                    "checkpoint",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="outcomes",
                        to="memory.checkpoint",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="outcomes",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "ordering": ["user", "seq"],
            },
        ),
        migrations.AddField(
            model_name="checkpoint",
            name="user",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="checkpoints",
                to="memory.memoryuser",
            ),
        ),
        migrations.CreateModel(
            name="Bytecode",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("path", models.CharField(max_length=300)),
                ("source_hash", models.CharField(max_length=64)),
                ("image_digest", models.CharField(max_length=80)),
                ("code", models.BinaryField()),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="bytecode",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "bytecode",
            },
        ),
        migrations.CreateModel(
            name="Blob",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "hash",
                    models.CharField(help_text="SHA-256 of the content in UTF-8.", max_length=64),
                ),
                (
                    "content",
                    models.TextField(
                        help_text="The file's content; empty if an entry it is based on was redacted.",
                        null=True,
                    ),
                ),
                (
                    "git_id",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="The content's object id in git.",
                        max_length=40,
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="blobs",
                        to="memory.memoryuser",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="BacktestUser",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("waiting", "waiting"), ("done", "done"), ("failed", "failed")],
                        default="waiting",
                        max_length=16,
                    ),
                ),
                (
                    "since",
                    models.DateTimeField(
                        help_text="The beginning of the period evaluated for this user.", null=True
                    ),
                ),
                (
                    "known_until",
                    models.DateTimeField(
                        help_text="When the evaluation stopped; empty if it covered the whole period.",
                        null=True,
                    ),
                ),
                (
                    "versions",
                    models.PositiveIntegerField(
                        default=0,
                        help_text="How many versions of the user's project fall within the period.",
                    ),
                ),
                (
                    "looks",
                    models.PositiveIntegerField(
                        default=0,
                        help_text="How many versions in the period the constraint ran on because the data it reads had changed.",
                    ),
                ),
                (
                    "problems",
                    memory.models.fields.ExactJSONField(
                        default=list,
                        help_text="When the constraint would have failed or been too noisy, and why.",
                    ),
                ),
                ("problem_count", models.PositiveIntegerField(default=0)),
                (
                    "left_out",
                    models.PositiveIntegerField(
                        default=0,
                        help_text="How many findings were not stored because there were too many.",
                    ),
                ),
                (
                    "error",
                    models.TextField(
                        blank=True,
                        default="",
                        help_text="Why the constraint could not be evaluated for this user.",
                    ),
                ),
                (
                    "backtest",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="users",
                        to="memory.backtest",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="memory.memoryuser",
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="backtest",
            name="user",
            field=models.ForeignKey(
                help_text="The user who owns the constraint; empty for a workspace constraint.",
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="backtests",
                to="memory.memoryuser",
            ),
        ),
        migrations.CreateModel(
            name="Alert",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("finding", "finding"),
                            ("constraint_error", "constraint failed"),
                            ("constraint_paused", "constraint paused"),
                        ],
                        default="finding",
                        max_length=20,
                    ),
                ),
                (
                    "constraint",
                    models.CharField(help_text="Path of the constraint's source.", max_length=300),
                ),
                ("fingerprint", models.CharField(max_length=64)),
                (
                    "severity",
                    models.CharField(
                        choices=[
                            ("info", "info"),
                            ("warning", "warning"),
                            ("critical", "critical"),
                        ],
                        max_length=16,
                    ),
                ),
                ("message", models.TextField()),
                (
                    "evidence",
                    models.JSONField(
                        default=list,
                        help_text="The records that the alert is based on, each with the log entries behind it.",
                    ),
                ),
                (
                    "entries",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), default=list, size=None
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("open", "open"),
                            ("acknowledged", "acknowledged"),
                            ("snoozed", "snoozed"),
                            ("resolved", "resolved"),
                        ],
                        default="open",
                        max_length=16,
                    ),
                ),
                ("opened_at", models.DateTimeField()),
                ("changed_at", models.DateTimeField()),
                ("resolved_at", models.DateTimeField(null=True)),
                (
                    "snoozed_until",
                    models.DateTimeField(
                        help_text="When the snooze ends; empty if the alert is not snoozed, or is snoozed until it changes.",
                        null=True,
                    ),
                ),
                ("holds_back", models.BooleanField(default=False)),
                (
                    "open_since",
                    models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="When the alert opened or was last reopened.",
                    ),
                ),
                (
                    "escalate_at",
                    models.DateTimeField(
                        help_text="When the alert will be escalated unless somebody acknowledges it before then.",
                        null=True,
                    ),
                ),
                ("escalated_at", models.DateTimeField(null=True)),
                (
                    "duplicate_of",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="duplicates",
                        to="memory.alert",
                    ),
                ),
                (
                    "was_duplicate_of",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="former_duplicates",
                        to="memory.alert",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="alerts",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "ordering": ["-opened_at"],
            },
        ),
        migrations.CreateModel(
            name="Merge",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "run_after",
                    models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="The work is not attempted again before this time.",
                    ),
                ),
                (
                    "hinted_at",
                    models.DateTimeField(
                        help_text="When workers were last notified of the work.", null=True
                    ),
                ),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                (
                    "attempts",
                    models.IntegerField(
                        default=0,
                        help_text="How many times the work has been attempted since it last succeeded.",
                    ),
                ),
                ("last_error", models.TextField(blank=True, default="")),
                ("by", models.CharField(max_length=200)),
                ("created_at", models.DateTimeField()),
                (
                    "last_seq",
                    models.BigIntegerField(
                        help_text="The number of the last entry in the merged user's log when the merge was requested."
                    ),
                ),
                (
                    "cursor_seq",
                    models.BigIntegerField(
                        default=0, help_text="The number of the last entry that has been processed."
                    ),
                ),
                (
                    "copied",
                    models.BigIntegerField(
                        default=0, help_text="How many entries have been copied."
                    ),
                ),
                (
                    "left_behind",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=300),
                        default=list,
                        help_text="The merged user's own constraints, which were not copied because they are not in the log.",
                        size=None,
                    ),
                ),
                ("alerts", models.JSONField(default=dict)),
                (
                    "due_at",
                    models.DateTimeField(
                        help_text="When work on the merge is due; empty once it is complete.",
                        null=True,
                    ),
                ),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "merged",
                    models.OneToOneField(
                        help_text="The user who is merged and closed: writes and queries for this user are rejected.",
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="merge",
                        to="memory.memoryuser",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        help_text="The user who remains after the merge.",
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="merges",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="CopiedEntries",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "from_seq",
                    models.BigIntegerField(
                        help_text="The number of the range's first entry in the merged user's log."
                    ),
                ),
                (
                    "seq",
                    models.BigIntegerField(
                        help_text="The number of the first entry's copy in the other user's log."
                    ),
                ),
                (
                    "number",
                    models.BigIntegerField(help_text="How many consecutive entries were copied."),
                ),
                (
                    "merge",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="ranges",
                        to="memory.merge",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "copied entries",
            },
        ),
        migrations.CreateModel(
            name="Pause",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ("reason", models.TextField(blank=True, default="")),
                ("paused_at", models.DateTimeField()),
                ("paused_by", models.CharField(max_length=200)),
                ("resumed_at", models.DateTimeField(null=True)),
                ("resumed_by", models.CharField(blank=True, default="", max_length=200)),
                (
                    "user",
                    models.ForeignKey(
                        help_text="The paused user; empty if the pause applies to all users in the workspace.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="pauses",
                        to="memory.memoryuser",
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="pauses",
                        to="memory.workspace",
                    ),
                ),
            ],
            options={
                "ordering": ["-paused_at"],
            },
        ),
        migrations.CreateModel(
            name="PausedConstraint",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                (
                    "constraint",
                    models.CharField(help_text="Path of the constraint's source.", max_length=300),
                ),
                (
                    "source_hash",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="Hash of the paused source; the constraint is resumed when its source changes.",
                        max_length=64,
                    ),
                ),
                ("reason", models.TextField()),
                ("paused_at", models.DateTimeField()),
                ("paused_by", models.CharField(max_length=200)),
                ("resumed_at", models.DateTimeField(null=True)),
                ("resumed_by", models.CharField(blank=True, default="", max_length=200)),
                ("resumed_because", models.TextField(blank=True, default="")),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="paused_constraints",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "ordering": ["-paused_at"],
            },
        ),
        migrations.CreateModel(
            name="RecordLocation",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("domain", models.CharField(max_length=100)),
                ("collection", models.CharField(max_length=100)),
                ("key", models.CharField(max_length=200)),
                ("path", models.CharField(max_length=300)),
                ("added_version", models.IntegerField()),
                ("retired_version", models.IntegerField(null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="locations",
                        to="memory.memoryuser",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Redaction",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "run_after",
                    models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="The work is not attempted again before this time.",
                    ),
                ),
                (
                    "hinted_at",
                    models.DateTimeField(
                        help_text="When workers were last notified of the work.", null=True
                    ),
                ),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                (
                    "attempts",
                    models.IntegerField(
                        default=0,
                        help_text="How many times the work has been attempted since it last succeeded.",
                    ),
                ),
                ("last_error", models.TextField(blank=True, default="")),
                (
                    "seq",
                    models.BigIntegerField(
                        help_text="The number of the log entry that records the redaction."
                    ),
                ),
                (
                    "asked",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        help_text="The numbers of the entries whose redaction was requested.",
                        size=None,
                    ),
                ),
                (
                    "entries",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        help_text="The numbers of the requested entries and of all entries derived from them.",
                        size=None,
                    ),
                ),
                ("by", models.CharField(max_length=200)),
                ("reason", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField()),
                (
                    "due_at",
                    models.DateTimeField(
                        help_text="When work on the redaction is due; empty once it is complete.",
                        null=True,
                    ),
                ),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "version",
                    models.IntegerField(
                        help_text="The version created without the redacted entries; empty if nothing in the project came from them.",
                        null=True,
                    ),
                ),
                (
                    "records",
                    models.PositiveIntegerField(
                        default=0, help_text="How many records were removed from the project."
                    ),
                ),
                (
                    "constraints",
                    models.PositiveIntegerField(
                        default=0, help_text="How many constraints were removed from the project."
                    ),
                ),
                (
                    "reopened",
                    models.PositiveIntegerField(
                        default=0,
                        help_text="How many other entries the removed records and constraints were also based on; these entries are pending again.",
                    ),
                ),
                (
                    "problem",
                    models.TextField(
                        blank=True,
                        default="",
                        help_text="The gate's objections to the project without the redacted entries.",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="redactions",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="Run",
            fields=[
                (
                    "run_after",
                    models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="The work is not attempted again before this time.",
                    ),
                ),
                (
                    "hinted_at",
                    models.DateTimeField(
                        help_text="When workers were last notified of the work.", null=True
                    ),
                ),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                (
                    "attempts",
                    models.IntegerField(
                        default=0,
                        help_text="How many times the work has been attempted since it last succeeded.",
                    ),
                ),
                ("last_error", models.TextField(blank=True, default="")),
                (
                    "dead_since",
                    models.DateTimeField(
                        help_text="When the work failed permanently; empty if it has not failed, or if staff have retried or dismissed it.",
                        null=True,
                    ),
                ),
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("constraints", "constraints"),
                            ("constraint", "trial of one constraint"),
                            ("query", "query"),
                            ("ask", "question"),
                            ("follow_up", "follow-up question"),
                            ("proposal", "proposal"),
                            ("import", "import"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "trigger",
                    models.CharField(
                        choices=[
                            ("api", "API request"),
                            ("checkpoint", "new checkpoint"),
                            ("daily", "daily"),
                            ("instant", "every few minutes"),
                            ("forecast", "forecast"),
                            ("workspace", "workspace constraints changed"),
                            ("command", "command line"),
                            ("model", "language model"),
                            ("resumed", "constraint resumed"),
                            ("staff", "staff"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "asked_by",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="The staff member who requested the run, if any.",
                        max_length=200,
                    ),
                ),
                ("instant", models.DateTimeField(help_text="The evaluation time of the run.")),
                ("input", memory.models.fields.ExactJSONField(default=dict)),
                (
                    "answer_key",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="The key under which the query's answer is cached: see `memory.recall.answer_cache`.",
                        max_length=64,
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[("queued", "queued"), ("running", "running"), ("done", "done")],
                        default="queued",
                        max_length=16,
                    ),
                ),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("ok", "ok"),
                            ("rejected", "rejected by the gate"),
                            ("superseded", "superseded by a newer version"),
                            ("cancelled", "cancelled"),
                            ("user_error", "error in the user's code"),
                            ("timeout", "time limit"),
                            ("out_of_memory", "memory limit"),
                            ("output_limit", "output limit"),
                            ("result_limit", "result limit"),
                            ("alert_limit", "too many alerts at once"),
                            ("killed", "killed"),
                            ("input_limit", "project too large"),
                            ("protocol_error", "invalid response from the sandbox"),
                            ("model_error", "language model found no answer"),
                            ("abandoned", "failed permanently after repeated server errors"),
                        ],
                        default="",
                        max_length=16,
                    ),
                ),
                ("output", memory.models.fields.ExactJSONField(null=True)),
                ("error", models.JSONField(null=True)),
                ("stdout", models.TextField(blank=True, default="")),
                ("runner", models.CharField(blank=True, default="", max_length=32)),
                (
                    "host",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="The worker that executed the run.",
                        max_length=100,
                    ),
                ),
                (
                    "timings",
                    models.JSONField(default=dict, help_text="How many seconds each stage took."),
                ),
                ("memory_bytes", models.BigIntegerField(null=True)),
                ("queued_at", models.DateTimeField(auto_now_add=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "checkpoint",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="runs",
                        to="memory.checkpoint",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="runs",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "ordering": ["-queued_at"],
            },
        ),
        migrations.CreateModel(
            name="LlmCall",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                (
                    "purpose",
                    models.CharField(
                        choices=[
                            ("memorize", "memorize: messages to facts"),
                            ("structure", "structure: facts to records"),
                            ("query", "answer a question"),
                            ("check", "test the settings"),
                            ("embed", "embed texts for search"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "work",
                    models.UUIDField(
                        help_text="The id of the task that the call was made for; all of its calls share this id."
                    ),
                ),
                (
                    "turn",
                    models.IntegerField(help_text="The request's number within the task."),
                ),
                (
                    "attempt",
                    models.IntegerField(help_text="The attempt's number for this request."),
                ),
                (
                    "accepted",
                    models.BooleanField(
                        help_text="Whether the gate accepted the session's proposals; empty if the session was not judged, or was interrupted.",
                        null=True,
                    ),
                ),
                (
                    "refusals",
                    models.IntegerField(
                        help_text="How many of the session's proposals the gate refused.",
                        null=True,
                    ),
                ),
                (
                    "model",
                    models.CharField(
                        help_text="The provider and model that were requested.", max_length=220
                    ),
                ),
                (
                    "answered_by",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="The name of the model that answered, as reported by the provider.",
                        max_length=200,
                    ),
                ),
                (
                    "prompt_hash",
                    models.CharField(
                        help_text="SHA-256 of the messages and tools that were sent.", max_length=64
                    ),
                ),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("started", "under way"),
                            ("ok", "answered"),
                            (
                                "invalid_call",
                                "answered with a tool call that cannot be carried out",
                            ),
                            ("truncated", "answer cut off at the token limit"),
                            ("empty", "empty answer"),
                            ("refused", "refused by the model or its filter"),
                            ("rate_limited", "provider's rate limit reached"),
                            ("unavailable", "provider failed or overloaded"),
                            ("timeout", "no response in time"),
                            ("connection_lost", "no connection, or connection lost"),
                            ("invalid_answer", "unreadable answer"),
                            ("wrong_key", "API key rejected"),
                            ("no_credit", "provider's credit or quota exhausted"),
                            ("unknown_model", "model or address unknown to the provider"),
                            ("too_long", "prompt longer than the model's context"),
                            ("rejected", "request rejected by the provider"),
                            ("interrupted", "interrupted: the worker exited"),
                        ],
                        default="started",
                        max_length=16,
                    ),
                ),
                ("error", models.TextField(blank=True, default="")),
                ("input_tokens", models.BigIntegerField(null=True)),
                ("output_tokens", models.BigIntegerField(null=True)),
                (
                    "cache_read_tokens",
                    models.BigIntegerField(
                        help_text="How many of the input tokens the provider read from its cache.",
                        null=True,
                    ),
                ),
                (
                    "cache_write_tokens",
                    models.BigIntegerField(
                        help_text="How many of the input tokens the provider wrote to its cache.",
                        null=True,
                    ),
                ),
                (
                    "cost",
                    models.DecimalField(
                        decimal_places=8,
                        help_text="The cost of the call; empty if the price or the number of tokens is unknown.",
                        max_digits=20,
                        null=True,
                    ),
                ),
                (
                    "reserved_tokens",
                    models.BigIntegerField(
                        help_text="The maximum number of tokens that the call may use."
                    ),
                ),
                ("reserved_cost", models.DecimalField(decimal_places=8, max_digits=20, null=True)),
                ("started_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "expires_at",
                    models.DateTimeField(
                        help_text="A call still unfinished at this time counts as interrupted, because its worker must have exited."
                    ),
                ),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "seconds",
                    models.FloatField(
                        help_text="Seconds from the request to the response.", null=True
                    ),
                ),
                ("prompt", models.BinaryField(null=True)),
                ("answer", models.BinaryField(null=True)),
                (
                    "checkpoint",
                    models.ForeignKey(
                        help_text="The version of the project that resulted from the call.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="llm_calls",
                        to="memory.checkpoint",
                    ),
                ),
                (
                    "lane",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="llm_calls",
                        to="memory.lane",
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="llm_calls",
                        to="memory.workspace",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="llm_calls",
                        to="memory.memoryuser",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="llm_calls",
                        to="memory.run",
                    ),
                ),
            ],
            options={
                "verbose_name": "model call",
                "ordering": ["-started_at"],
                "permissions": [
                    ("view_llmcall_content", "Can read prompts and answers of model calls")
                ],
            },
        ),
        migrations.CreateModel(
            name="AlertEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "seq",
                    models.BigIntegerField(
                        help_text="The event's number in the workspace: 1, 2, 3 and so on, without gaps."
                    ),
                ),
                (
                    "entries",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        db_default=models.Value(
                            [],
                            django.contrib.postgres.fields.ArrayField(
                                base_field=models.BigIntegerField(), size=None
                            ),
                        ),
                        default=list,
                        help_text="The numbers of the log entries that were rejected together.",
                        size=None,
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("opened", "opened"),
                            ("changed", "changed"),
                            ("acknowledged", "acknowledged"),
                            ("snoozed", "snoozed"),
                            ("reopened", "reopened"),
                            ("escalated", "escalated"),
                            ("resolved", "resolved"),
                            ("feedback", "feedback"),
                            ("erased", "erased"),
                            ("rejected", "entries rejected"),
                        ],
                        max_length=16,
                    ),
                ),
                ("at", models.DateTimeField()),
                (
                    "actor",
                    models.CharField(
                        help_text="Who caused the event: a constraint run, an API key or a person.",
                        max_length=200,
                    ),
                ),
                ("detail", models.JSONField(default=dict)),
                (
                    "alert",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="events",
                        to="memory.alert",
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="memory.workspace",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="entry_events",
                        to="memory.memoryuser",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="memory.run",
                    ),
                ),
            ],
            options={
                "ordering": ["alert", "seq"],
            },
        ),
        migrations.AddField(
            model_name="alert",
            name="last_run",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="alerts",
                to="memory.run",
            ),
        ),
        migrations.CreateModel(
            name="SearchIndex",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "run_after",
                    models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="The work is not attempted again before this time.",
                    ),
                ),
                (
                    "hinted_at",
                    models.DateTimeField(
                        help_text="When workers were last notified of the work.", null=True
                    ),
                ),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                (
                    "attempts",
                    models.IntegerField(
                        default=0,
                        help_text="How many times the work has been attempted since it last succeeded.",
                    ),
                ),
                ("last_error", models.TextField(blank=True, default="")),
                (
                    "due_at",
                    models.DateTimeField(
                        help_text="When indexing is due; empty if there is nothing to index.",
                        null=True,
                    ),
                ),
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="search_index",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "search indexes",
            },
        ),
        migrations.CreateModel(
            name="SearchSegment",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("first_seq", models.BigIntegerField()),
                ("last_seq", models.BigIntegerField()),
                (
                    "version",
                    models.PositiveSmallIntegerField(
                        help_text="The version of the segment's format."
                    ),
                ),
                (
                    "blocks",
                    models.PositiveIntegerField(
                        help_text="The number of blocks that contain the segment's postings."
                    ),
                ),
                (
                    "postings",
                    models.PositiveIntegerField(help_text="The number of postings in the segment."),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="segments",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "ordering": ["user", "first_seq"],
            },
        ),
        migrations.CreateModel(
            name="SearchBlock",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("number", models.PositiveIntegerField()),
                ("data", models.BinaryField()),
                (
                    "segment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="parts",
                        to="memory.searchsegment",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="StaffAccess",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "all_workspaces",
                    models.BooleanField(
                        default=False,
                        help_text="Includes workspaces that are created later. Superusers always see all workspaces.",
                    ),
                ),
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="access",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "workspaces",
                    models.ManyToManyField(
                        blank=True,
                        help_text="The workspaces the account can see, unless it can see all of them. If none are selected, the account cannot see any user's data.",
                        related_name="staff",
                        to="memory.workspace",
                    ),
                ),
            ],
            options={
                "verbose_name": "access to workspaces",
                "verbose_name_plural": "access to workspaces",
                "ordering": ["user"],
                "permissions": [
                    ("view_content", "Can see what people said and what was derived from it")
                ],
            },
        ),
        migrations.CreateModel(
            name="StaffAudit",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("staff_id", models.BigIntegerField(verbose_name="account id")),
                ("staff_name", models.CharField(max_length=150, verbose_name="staff")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("login", "logged in"),
                            ("logout", "logged out"),
                            ("view", "viewed"),
                            ("act", "acted on"),
                            ("add", "added"),
                            ("change", "changed"),
                            ("download", "downloaded"),
                        ],
                        max_length=16,
                    ),
                ),
                ("what", models.CharField(blank=True, max_length=100, verbose_name="action")),
                ("model", models.CharField(blank=True, max_length=100, verbose_name="kind of row")),
                (
                    "row",
                    models.CharField(
                        blank=True,
                        help_text="The row's key, if the action concerned one row.",
                        max_length=100,
                    ),
                ),
                ("number", models.BigIntegerField(default=1, verbose_name="rows")),
                (
                    "person",
                    models.UUIDField(
                        help_text="The user's public id, if the action concerned one user.",
                        null=True,
                    ),
                ),
                ("request_id", models.CharField(blank=True, max_length=100)),
                (
                    "workspace",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="memory.workspace",
                    ),
                ),
            ],
            options={
                "verbose_name": "audit entry",
                "verbose_name_plural": "audit entries",
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="StaffSubscription",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "run_after",
                    models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="The work is not attempted again before this time.",
                    ),
                ),
                (
                    "hinted_at",
                    models.DateTimeField(
                        help_text="When workers were last notified of the work.", null=True
                    ),
                ),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                (
                    "attempts",
                    models.IntegerField(
                        default=0,
                        help_text="How many times the work has been attempted since it last succeeded.",
                    ),
                ),
                ("last_error", models.TextField(blank=True, default="")),
                ("enabled", models.BooleanField(default=True)),
                (
                    "least_severity",
                    models.CharField(
                        choices=[
                            ("info", "info"),
                            ("warning", "warning"),
                            ("critical", "critical"),
                        ],
                        default="warning",
                        help_text="Less severe alerts are left out unless they are escalated.",
                        max_length=16,
                    ),
                ),
                (
                    "mode",
                    models.CharField(
                        choices=[("at_once", "immediately"), ("daily", "daily digest")],
                        default="at_once",
                        max_length=16,
                    ),
                ),
                (
                    "hour",
                    models.PositiveSmallIntegerField(
                        default=7,
                        help_text="The hour when the daily digest is sent.",
                        validators=[django.core.validators.MaxValueValidator(23)],
                    ),
                ),
                (
                    "time_zone",
                    models.CharField(
                        default="UTC",
                        max_length=64,
                        validators=[memory.models.fields.validate_time_zone],
                    ),
                ),
                (
                    "escalations",
                    models.BooleanField(
                        default=False,
                        help_text="Send escalated alerts by e-mail immediately, regardless of the mode.",
                    ),
                ),
                (
                    "operations",
                    models.BooleanField(
                        default=False,
                        help_text="Send alarms about the server itself by e-mail immediately.",
                        verbose_name="alarms",
                    ),
                ),
                ("digest_due_at", models.DateTimeField(editable=False, null=True)),
                ("sent_at", models.DateTimeField(editable=False, null=True)),
                (
                    "staff",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="alert_subscriptions",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        blank=True,
                        help_text="The workspace whose alerts are sent; leave empty for all workspaces.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="staff_subscriptions",
                        to="memory.workspace",
                    ),
                ),
            ],
            options={
                "verbose_name": "e-mail subscription",
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="MailCursor",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("seq", models.BigIntegerField(default=0)),
                ("escalations_seq", models.BigIntegerField(default=0)),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="memory.workspace",
                    ),
                ),
                (
                    "subscription",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="cursors",
                        to="memory.staffsubscription",
                    ),
                ),
            ],
            options={
                "verbose_name": "e-mail cursor",
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="UserErasure",
            fields=[
                (
                    "run_after",
                    models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="The work is not attempted again before this time.",
                    ),
                ),
                (
                    "hinted_at",
                    models.DateTimeField(
                        help_text="When workers were last notified of the work.", null=True
                    ),
                ),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                (
                    "attempts",
                    models.IntegerField(
                        default=0,
                        help_text="How many times the work has been attempted since it last succeeded.",
                    ),
                ),
                ("last_error", models.TextField(blank=True, default="")),
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("by", models.CharField(max_length=200)),
                ("reason", models.TextField()),
                ("created_at", models.DateTimeField()),
                (
                    "due_at",
                    models.DateTimeField(
                        help_text="When work on the erasure is due; empty once it is complete.",
                        null=True,
                    ),
                ),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "counts",
                    models.JSONField(
                        default=dict, help_text="How many rows of each kind were deleted."
                    ),
                ),
                (
                    "hosts",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=100),
                        default=list,
                        help_text="Sandbox hosts that have not yet confirmed that they hold none of the user's data.",
                        size=None,
                    ),
                ),
                (
                    "user",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="erasure",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "verbose_name": "erasure",
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="WebhookEndpoint",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "url",
                    models.CharField(
                        help_text="Must use https and a public address. Redirects are not followed, so give the final URL.",
                        max_length=2000,
                        verbose_name="URL",
                    ),
                ),
                (
                    "description",
                    models.CharField(
                        blank=True,
                        default="",
                        max_length=200,
                        validators=[memory.models.webhooks.validate_printable],
                    ),
                ),
                (
                    "event_types",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=16),
                        blank=True,
                        default=list,
                        help_text="The types of events that the endpoint receives; all types if none is selected.",
                        size=None,
                    ),
                ),
                (
                    "alert_kinds",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=20),
                        default=memory.models.webhooks.findings,
                        help_text="The kinds of alerts that the endpoint receives. Findings are meant for your users; failed and paused constraints are meant for the constraints' maintainers.",
                        size=None,
                    ),
                ),
                (
                    "least_severity",
                    models.CharField(
                        choices=[
                            ("info", "info"),
                            ("warning", "warning"),
                            ("critical", "critical"),
                        ],
                        default="info",
                        max_length=16,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("enabled", models.BooleanField(default=True)),
                ("disabled_at", models.DateTimeField(editable=False, null=True)),
                (
                    "disabled_reason",
                    models.CharField(blank=True, default="", editable=False, max_length=300),
                ),
                ("secret", models.BinaryField()),
                ("previous_secret", models.BinaryField(null=True)),
                ("previous_secret_until", models.DateTimeField(editable=False, null=True)),
                (
                    "failing_since",
                    models.DateTimeField(
                        editable=False,
                        help_text="When the current streak of failures began; empty if the last call succeeded.",
                        null=True,
                    ),
                ),
                (
                    "failures",
                    models.IntegerField(
                        default=0,
                        editable=False,
                        help_text="How many calls to the endpoint have failed since the last success.",
                    ),
                ),
                (
                    "not_before",
                    models.DateTimeField(
                        editable=False,
                        help_text="The endpoint is not called before this time.",
                        null=True,
                    ),
                ),
                ("minute_began_at", models.DateTimeField(editable=False, null=True)),
                (
                    "minute_calls",
                    models.IntegerField(
                        default=0,
                        editable=False,
                        help_text="How many calls have been made since the current minute began.",
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="webhooks",
                        to="memory.workspace",
                    ),
                ),
            ],
            options={
                "verbose_name": "webhook endpoint",
                "ordering": ["workspace", "created_at"],
            },
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                (
                    "run_after",
                    models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="The work is not attempted again before this time.",
                    ),
                ),
                (
                    "hinted_at",
                    models.DateTimeField(
                        help_text="When workers were last notified of the work.", null=True
                    ),
                ),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                (
                    "attempts",
                    models.IntegerField(
                        default=0,
                        help_text="How many times the work has been attempted since it last succeeded.",
                    ),
                ),
                ("last_error", models.TextField(blank=True, default="")),
                (
                    "dead_since",
                    models.DateTimeField(
                        help_text="When the work failed permanently; empty if it has not failed, or if staff have retried or dismissed it.",
                        null=True,
                    ),
                ),
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "seq",
                    models.BigIntegerField(help_text="The event's number in the feed.", null=True),
                ),
                ("type", models.CharField(max_length=32)),
                (
                    "payload",
                    models.TextField(
                        help_text="The body of the request, exactly as it is signed and sent."
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("delivered", "delivered"),
                            ("given_up", "failed permanently"),
                        ],
                        default="pending",
                        max_length=16,
                    ),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "settled_at",
                    models.DateTimeField(
                        help_text="When the message was delivered or failed permanently.", null=True
                    ),
                ),
                (
                    "alert",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="memory.alert",
                    ),
                ),
                (
                    "event",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="memory.alertevent",
                    ),
                ),
                (
                    "endpoint",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="memory.webhookendpoint",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "deliveries",
                "ordering": ["-created_at", "-seq"],
            },
        ),
        migrations.CreateModel(
            name="WorkspaceConstraint",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        help_text="A valid Python name, such as drug_allergy.", max_length=100
                    ),
                ),
                ("description", models.CharField(blank=True, default="", max_length=1000)),
                (
                    "percentage",
                    models.PositiveSmallIntegerField(
                        default=0,
                        help_text="Rollout percentage: the percentage of users with the constraint enabled. Raising it only adds users.",
                    ),
                ),
                (
                    "enabled",
                    models.BooleanField(
                        default=True,
                        help_text="If this is not set, the constraint does not run for any user.",
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("created_by", models.CharField(editable=False, max_length=200)),
                ("changed_at", models.DateTimeField(editable=False, null=True)),
                (
                    "changed_by",
                    models.CharField(
                        blank=True,
                        default="",
                        editable=False,
                        help_text="Who last changed the constraint.",
                        max_length=200,
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="constraints",
                        to="memory.workspace",
                    ),
                ),
            ],
            options={
                "ordering": ["workspace", "name"],
                "permissions": [
                    ("approve_workspaceconstraint", "Can approve and enable constraints")
                ],
            },
        ),
        migrations.CreateModel(
            name="WorkspaceConstraintVersion",
            fields=[
                (
                    "run_after",
                    models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="The work is not attempted again before this time.",
                    ),
                ),
                (
                    "hinted_at",
                    models.DateTimeField(
                        help_text="When workers were last notified of the work.", null=True
                    ),
                ),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                (
                    "attempts",
                    models.IntegerField(
                        default=0,
                        help_text="How many times the work has been attempted since it last succeeded.",
                    ),
                ),
                ("last_error", models.TextField(blank=True, default="")),
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("number", models.PositiveIntegerField()),
                ("source", models.TextField()),
                ("source_hash", models.CharField(max_length=64)),
                ("tests", models.TextField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("checking", "being checked"),
                            ("refused", "refused"),
                            ("passed", "passed, not approved"),
                            ("approved", "approved"),
                        ],
                        default="checking",
                        max_length=16,
                    ),
                ),
                (
                    "verdict",
                    models.JSONField(
                        help_text="The checks that were run, each with its findings.", null=True
                    ),
                ),
                ("bytecode", models.TextField(blank=True, default="")),
                ("image_digest", models.CharField(blank=True, default="", max_length=100)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("created_by", models.CharField(max_length=200)),
                ("judged_at", models.DateTimeField(null=True)),
                ("approved_at", models.DateTimeField(null=True)),
                ("approved_by", models.CharField(blank=True, default="", max_length=200)),
                (
                    "constraint",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="versions",
                        to="memory.workspaceconstraint",
                    ),
                ),
            ],
            options={
                "ordering": ["constraint", "-number"],
            },
        ),
        migrations.AddField(
            model_name="workspaceconstraint",
            name="live",
            field=models.ForeignKey(
                blank=True,
                editable=False,
                help_text="The approved version that is live.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="memory.workspaceconstraintversion",
            ),
        ),
        migrations.AddField(
            model_name="backtest",
            name="version",
            field=models.ForeignKey(
                help_text="The version of the workspace constraint; empty for a user's own constraint.",
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="backtests",
                to="memory.workspaceconstraintversion",
            ),
        ),
        migrations.CreateModel(
            name="AlertFeedback",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "judge",
                    models.CharField(
                        choices=[("product", "product"), ("staff", "staff")], max_length=16
                    ),
                ),
                (
                    "verdict",
                    models.CharField(
                        choices=[("useful", "useful"), ("wrong", "wrong")], max_length=16
                    ),
                ),
                ("note", models.TextField(blank=True, default="")),
                (
                    "actor",
                    models.CharField(
                        help_text="The API key or the person that gave the feedback.",
                        max_length=200,
                    ),
                ),
                ("at", models.DateTimeField()),
                (
                    "alert",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="feedback",
                        to="memory.alert",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "feedback",
                "ordering": ["alert", "judge"],
                "constraints": [
                    models.UniqueConstraint(fields=("alert", "judge"), name="one_verdict_per_judge")
                ],
            },
        ),
        migrations.CreateModel(
            name="BacktestFinding",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "fingerprint",
                    models.CharField(
                        help_text="Computed the same way as an alert's fingerprint.",
                        max_length=64,
                    ),
                ),
                (
                    "severity",
                    models.CharField(
                        choices=[
                            ("info", "info"),
                            ("warning", "warning"),
                            ("critical", "critical"),
                        ],
                        help_text="The highest severity that the alert would have reached.",
                        max_length=16,
                    ),
                ),
                (
                    "message",
                    models.TextField(help_text="The message the alert would have opened with."),
                ),
                (
                    "evidence",
                    models.JSONField(
                        default=list,
                        help_text="The evidence the alert would have opened with.",
                    ),
                ),
                (
                    "entries",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), default=list, size=None
                    ),
                ),
                ("opened_at", models.DateTimeField()),
                (
                    "day",
                    models.DateField(
                        help_text="The day the alert would have opened, in the user's time zone."
                    ),
                ),
                (
                    "version",
                    models.IntegerField(
                        help_text="The version of the user's project that would have caused the alert to open."
                    ),
                ),
                (
                    "changes",
                    memory.models.fields.ExactJSONField(
                        default=list,
                        help_text="When the severity or the evidence changed, and in which version of the project.",
                    ),
                ),
                (
                    "resolved_at",
                    models.DateTimeField(
                        help_text="When the alert would have been resolved; empty if it would still be open at the end.",
                        null=True,
                    ),
                ),
                ("resolved_version", models.IntegerField(null=True)),
                (
                    "result",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="findings",
                        to="memory.backtestuser",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["result", "opened_at"], name="finding_of_backtest")
                ],
            },
        ),
        migrations.CreateModel(
            name="DeliveryAttempt",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField(help_text="When the call began.")),
                ("seconds", models.FloatField()),
                (
                    "address",
                    models.GenericIPAddressField(
                        help_text="The IP address that was called.", null=True
                    ),
                ),
                (
                    "status",
                    models.PositiveIntegerField(
                        help_text="The HTTP status; empty if there was no response.", null=True
                    ),
                ),
                (
                    "error",
                    models.TextField(
                        blank=True,
                        default="",
                        help_text="Why the attempt failed; empty if the message was delivered.",
                    ),
                ),
                (
                    "answer",
                    models.TextField(
                        blank=True, default="", help_text="The beginning of the response."
                    ),
                ),
                (
                    "delivery",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="calls",
                        to="memory.delivery",
                    ),
                ),
            ],
            options={
                "verbose_name": "delivery attempt",
                "ordering": ["delivery", "at"],
                "indexes": [models.Index(fields=["-at"], name="delivery_attempt_age")],
            },
        ),
        migrations.CreateModel(
            name="LlmSpending",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("day", models.DateField(help_text="The day the calls began, in UTC.")),
                ("model", models.CharField(max_length=220)),
                (
                    "purpose",
                    models.CharField(
                        choices=[
                            ("memorize", "memorize: messages to facts"),
                            ("structure", "structure: facts to records"),
                            ("query", "answer a question"),
                            ("check", "test the settings"),
                            ("embed", "embed texts for search"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("started", "under way"),
                            ("ok", "answered"),
                            (
                                "invalid_call",
                                "answered with a tool call that cannot be carried out",
                            ),
                            ("truncated", "answer cut off at the token limit"),
                            ("empty", "empty answer"),
                            ("refused", "refused by the model or its filter"),
                            ("rate_limited", "provider's rate limit reached"),
                            ("unavailable", "provider failed or overloaded"),
                            ("timeout", "no response in time"),
                            ("connection_lost", "no connection, or connection lost"),
                            ("invalid_answer", "unreadable answer"),
                            ("wrong_key", "API key rejected"),
                            ("no_credit", "provider's credit or quota exhausted"),
                            ("unknown_model", "model or address unknown to the provider"),
                            ("too_long", "prompt longer than the model's context"),
                            ("rejected", "request rejected by the provider"),
                            ("interrupted", "interrupted: the worker exited"),
                        ],
                        max_length=16,
                    ),
                ),
                ("calls", models.BigIntegerField(default=0)),
                ("seconds", models.FloatField(default=0)),
                ("input_tokens", models.BigIntegerField(default=0)),
                ("output_tokens", models.BigIntegerField(default=0)),
                ("cost", models.DecimalField(decimal_places=8, default=0, max_digits=20)),
                (
                    "presumed_tokens",
                    models.BigIntegerField(
                        default=0,
                        help_text="Tokens presumed to have been used by calls without a usage report from the provider, such as calls that timed out.",
                    ),
                ),
                ("presumed_cost", models.DecimalField(decimal_places=8, default=0, max_digits=20)),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="llm_spending",
                        to="memory.workspace",
                    ),
                ),
            ],
            options={
                "verbose_name": "model spending",
                "verbose_name_plural": "model spending",
                "ordering": ["-day", "workspace", "model"],
                "indexes": [
                    models.Index(fields=["-day", "workspace", "model"], name="llm_spending_days")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("workspace", "day", "model", "purpose", "outcome"),
                        name="llm_spending_cell",
                    )
                ],
            },
        ),
        migrations.AddIndex(
            model_name="memoryuser",
            index=models.Index(fields=["-created_at"], name="user_newest"),
        ),
        migrations.AddIndex(
            model_name="memoryuser",
            index=models.Index(
                condition=models.Q(("constraints_due_at__isnull", False)),
                fields=["constraints_due_at"],
                name="user_constraints_due",
            ),
        ),
        migrations.AddIndex(
            model_name="memoryuser",
            index=models.Index(
                condition=models.Q(
                    ("constraints_changed_at__isnull", False), ("head__isnull", False)
                ),
                fields=["constraints_changed_at"],
                name="user_constraints_changed",
            ),
        ),
        migrations.AddConstraint(
            model_name="memoryuser",
            constraint=models.UniqueConstraint(
                fields=("workspace", "user_id"), name="user_id_in_workspace"
            ),
        ),
        migrations.AddIndex(
            model_name="logentry",
            index=models.Index(fields=["-recorded_at", "-seq"], name="entry_newest"),
        ),
        migrations.AddIndex(
            model_name="logentry",
            index=models.Index(fields=["user", "-recorded_at", "-seq"], name="entry_times"),
        ),
        migrations.AddIndex(
            model_name="logentry",
            index=models.Index(
                condition=models.Q(("redacted_at__isnull", False)),
                fields=["user", "seq"],
                name="entry_redacted",
            ),
        ),
        migrations.AddIndex(
            model_name="logentry",
            index=models.Index(
                condition=models.Q(("kind", "message"), ("redacted_at", None)),
                fields=["recorded_at"],
                name="entry_messages",
            ),
        ),
        migrations.AddIndex(
            model_name="logentry",
            index=models.Index(
                condition=models.Q(("kind__in", ("fact", "correction")), ("redacted_at", None)),
                fields=["user", "seq"],
                name="entry_statements",
            ),
        ),
        migrations.AddIndex(
            model_name="logentry",
            index=models.Index(
                models.F("user"),
                models.F("derived_from__0"),
                condition=models.Q(("kind", "correction")),
                name="entry_corrections",
            ),
        ),
        migrations.AddConstraint(
            model_name="logentry",
            constraint=models.UniqueConstraint(fields=("user", "seq"), name="entry_seq"),
        ),
        migrations.AddConstraint(
            model_name="logentry",
            constraint=models.UniqueConstraint(
                fields=("user", "idempotency_key"), name="entry_idempotency_key"
            ),
        ),
        migrations.AddIndex(
            model_name="lane",
            index=models.Index(
                condition=models.Q(("due_at__isnull", False)),
                fields=["name", "due_at"],
                name="lane_due",
            ),
        ),
        migrations.AddIndex(
            model_name="lane",
            index=models.Index(fields=["due_at", "id"], name="lane_longest"),
        ),
        migrations.AddConstraint(
            model_name="lane",
            constraint=models.UniqueConstraint(fields=("user", "name"), name="lane_of_user"),
        ),
        migrations.AddIndex(
            model_name="idempotencykey",
            index=models.Index(fields=["created_at"], name="idempotency_key_age"),
        ),
        migrations.AddConstraint(
            model_name="idempotencykey",
            constraint=models.UniqueConstraint(
                fields=("workspace", "key"), name="idempotency_key_in_workspace"
            ),
        ),
        migrations.AddIndex(
            model_name="forecast",
            index=models.Index(
                condition=models.Q(("dead_since__isnull", False)),
                fields=["dead_since"],
                name="forecast_dead",
            ),
        ),
        migrations.AddIndex(
            model_name="forecast",
            index=models.Index(
                condition=models.Q(("due_at__isnull", False)),
                fields=["due_at"],
                name="forecast_due",
            ),
        ),
        migrations.AddIndex(
            model_name="entryoutcome",
            index=models.Index(fields=["-decided_at", "-seq"], name="outcome_newest"),
        ),
        migrations.AddIndex(
            model_name="entryoutcome",
            index=models.Index(
                condition=models.Q(("outcome", "rejected")),
                fields=["decided_at"],
                name="outcome_rejected",
            ),
        ),
        migrations.AddConstraint(
            model_name="entryoutcome",
            constraint=models.UniqueConstraint(fields=("user", "seq"), name="outcome_of_entry"),
        ),
        migrations.AddIndex(
            model_name="checkpoint",
            index=models.Index(fields=["-created_at", "-id"], name="checkpoint_newest"),
        ),
        migrations.AddIndex(
            model_name="checkpoint",
            index=models.Index(
                condition=models.Q(("origin", "restored")),
                fields=["user", "version"],
                name="checkpoint_restored",
            ),
        ),
        migrations.AddConstraint(
            model_name="checkpoint",
            constraint=models.UniqueConstraint(
                fields=("user", "version"), name="checkpoint_version"
            ),
        ),
        migrations.AddConstraint(
            model_name="bytecode",
            constraint=models.UniqueConstraint(
                fields=("user", "path", "source_hash", "image_digest"), name="bytecode_of_file"
            ),
        ),
        migrations.AddConstraint(
            model_name="blob",
            constraint=models.UniqueConstraint(fields=("user", "hash"), name="blob_of_user"),
        ),
        migrations.AddConstraint(
            model_name="backtestuser",
            constraint=models.UniqueConstraint(
                fields=("backtest", "user"), name="user_of_backtest"
            ),
        ),
        migrations.AddIndex(
            model_name="merge",
            index=models.Index(
                condition=models.Q(("due_at__isnull", False)), fields=["due_at"], name="merge_due"
            ),
        ),
        migrations.AddIndex(
            model_name="copiedentries",
            index=models.Index(fields=["merge", "seq"], name="copied_as"),
        ),
        migrations.AddConstraint(
            model_name="copiedentries",
            constraint=models.UniqueConstraint(fields=("merge", "from_seq"), name="copied_once"),
        ),
        migrations.AddConstraint(
            model_name="pause",
            constraint=models.UniqueConstraint(
                condition=models.Q(("resumed_at__isnull", True)),
                fields=("user",),
                name="user_paused_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="pause",
            constraint=models.UniqueConstraint(
                condition=models.Q(("resumed_at__isnull", True), ("user__isnull", True)),
                fields=("workspace",),
                name="workspace_paused_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="pausedconstraint",
            constraint=models.UniqueConstraint(
                condition=models.Q(("resumed_at__isnull", True)),
                fields=("user", "constraint"),
                name="paused_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="recordlocation",
            constraint=models.UniqueConstraint(
                fields=("user", "domain", "collection", "key"), name="location_of_record"
            ),
        ),
        migrations.AddIndex(
            model_name="redaction",
            index=models.Index(
                condition=models.Q(("due_at__isnull", False)),
                fields=["due_at"],
                name="redaction_due",
            ),
        ),
        migrations.AddConstraint(
            model_name="redaction",
            constraint=models.UniqueConstraint(fields=("user", "seq"), name="redaction_of_user"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("dead_since__isnull", False)),
                fields=["dead_since"],
                name="run_dead",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["user", "-queued_at"], name="run_of_user"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("status", "done"), _negated=True),
                fields=["run_after"],
                name="run_unfinished",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(
                    ("trigger__in", ["api", "staff"]), models.Q(("status", "done"), _negated=True)
                ),
                fields=["user"],
                name="run_waited_for",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("asked_by", ""), _negated=True),
                fields=["user", "asked_by", "-queued_at"],
                name="run_of_staff",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("status", "done")),
                fields=["finished_at"],
                include=("outcome", "user"),
                name="run_ended",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["-queued_at"], name="run_newest"),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("outcome", "ok"), models.Q(("answer_key", ""), _negated=True)),
                fields=["checkpoint", "answer_key"],
                name="run_answer",
            ),
        ),
        migrations.AddIndex(
            model_name="llmcall",
            index=models.Index(fields=["-started_at"], name="llm_call_age"),
        ),
        migrations.AddIndex(
            model_name="llmcall",
            index=models.Index(fields=["workspace", "-started_at"], name="llm_call_of_workspace"),
        ),
        migrations.AddIndex(
            model_name="llmcall",
            index=models.Index(fields=["work"], name="llm_call_of_work"),
        ),
        migrations.AddIndex(
            model_name="llmcall",
            index=models.Index(
                condition=models.Q(("attempt", 1), ("purpose", "structure"), ("turn", 1)),
                fields=["workspace", "model", "-started_at"],
                name="llm_call_first_of_model",
            ),
        ),
        migrations.AddIndex(
            model_name="llmcall",
            index=models.Index(
                condition=models.Q(("accepted__isnull", False)),
                fields=["workspace", "model", "-started_at"],
                name="llm_call_judged_of_model",
            ),
        ),
        migrations.AddIndex(
            model_name="llmcall",
            index=models.Index(
                condition=models.Q(("outcome", "started")),
                fields=["workspace", "expires_at"],
                name="llm_call_under_way",
            ),
        ),
        migrations.AddIndex(
            model_name="alertevent",
            index=models.Index(
                condition=models.Q(("user__isnull", False)),
                fields=["user", "seq"],
                name="event_of_user",
            ),
        ),
        migrations.AddConstraint(
            model_name="alertevent",
            constraint=models.UniqueConstraint(
                fields=("workspace", "seq"), name="event_seq_in_workspace"
            ),
        ),
        migrations.AddConstraint(
            model_name="alertevent",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("alert__isnull", False), ("entries", []), ("user__isnull", True)),
                    models.Q(("alert__isnull", True), ("user__isnull", False)),
                    _connector="OR",
                ),
                name="event_of_alert_or_entries",
            ),
        ),
        migrations.AddIndex(
            model_name="alert",
            index=models.Index(fields=["user", "state"], name="alert_of_user"),
        ),
        migrations.AddIndex(
            model_name="alert",
            index=models.Index(fields=["user", "-opened_at"], name="alert_openings"),
        ),
        migrations.AddIndex(
            model_name="alert",
            index=models.Index(
                condition=models.Q(("duplicate_of", None)),
                fields=["opened_at"],
                include=("severity", "user"),
                name="alert_listed_opened",
            ),
        ),
        migrations.AddIndex(
            model_name="alert",
            index=models.Index(
                fields=["opened_at"], include=("severity", "user"), name="alert_opened"
            ),
        ),
        migrations.AddIndex(
            model_name="alert",
            index=models.Index(
                memory.models.alerts.Place("state", among="open,acknowledged,snoozed,resolved"),
                memory.models.alerts.Place("severity", among="critical,warning,info"),
                models.OrderBy(models.F("opened_at"), descending=True),
                name="alert_by_urgency",
            ),
        ),
        migrations.AddIndex(
            model_name="alert",
            index=models.Index(
                condition=models.Q(("state", "resolved"), _negated=True),
                fields=["severity", "state"],
                include=("user",),
                name="alert_live",
            ),
        ),
        migrations.AddIndex(
            model_name="alert",
            index=models.Index(
                condition=models.Q(("duplicate_of__isnull", False)),
                fields=["duplicate_of"],
                name="alert_duplicate",
            ),
        ),
        migrations.AddIndex(
            model_name="alert",
            index=models.Index(
                condition=models.Q(("was_duplicate_of__isnull", False)),
                fields=["was_duplicate_of"],
                name="alert_former_duplicate",
            ),
        ),
        migrations.AddIndex(
            model_name="alert",
            index=models.Index(
                condition=models.Q(
                    ("duplicate_of__isnull", False), models.Q(("state", "resolved"), _negated=True)
                ),
                fields=["duplicate_of"],
                name="alert_live_duplicate",
            ),
        ),
        migrations.AddIndex(
            model_name="alert",
            index=models.Index(
                condition=models.Q(("snoozed_until__isnull", False)),
                fields=["snoozed_until"],
                name="alert_to_wake",
            ),
        ),
        migrations.AddIndex(
            model_name="alert",
            index=models.Index(
                condition=models.Q(("escalate_at__isnull", False)),
                fields=["escalate_at"],
                name="alert_to_escalate",
            ),
        ),
        migrations.AddConstraint(
            model_name="alert",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "resolved"), _negated=True),
                fields=("user", "fingerprint"),
                name="one_live_alert_per_fingerprint",
            ),
        ),
        migrations.AddIndex(
            model_name="searchindex",
            index=models.Index(
                condition=models.Q(("due_at__isnull", False)), fields=["due_at"], name="search_due"
            ),
        ),
        migrations.AddConstraint(
            model_name="searchsegment",
            constraint=models.UniqueConstraint(
                fields=("user", "first_seq"), name="segment_of_user"
            ),
        ),
        migrations.AddConstraint(
            model_name="searchblock",
            constraint=models.UniqueConstraint(
                fields=("segment", "number"), name="block_of_segment"
            ),
        ),
        migrations.AddIndex(
            model_name="staffaudit",
            index=models.Index(fields=["at"], name="audit_at"),
        ),
        migrations.AddIndex(
            model_name="staffaudit",
            index=models.Index(fields=["staff_name", "id"], name="audit_staff"),
        ),
        migrations.AddIndex(
            model_name="staffaudit",
            index=models.Index(fields=["person", "id"], name="audit_person"),
        ),
        migrations.AddConstraint(
            model_name="mailcursor",
            constraint=models.UniqueConstraint(
                fields=("subscription", "workspace"), name="one_cursor_per_workspace"
            ),
        ),
        migrations.AddIndex(
            model_name="usererasure",
            index=models.Index(
                condition=models.Q(("due_at__isnull", False)), fields=["due_at"], name="erasure_due"
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("dead_since__isnull", False)),
                fields=["dead_since"],
                name="delivery_dead",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(fields=["-created_at", "-seq"], name="delivery_newest"),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(fields=["endpoint", "-created_at"], name="delivery_of_endpoint"),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("state", "pending")),
                fields=["endpoint", "run_after", "seq"],
                name="delivery_pending",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("lease_expires_at__isnull", False), ("state", "pending")),
                fields=["endpoint", "lease_expires_at"],
                name="delivery_leased",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("state", "pending")),
                fields=["endpoint", "alert", "seq"],
                name="delivery_order",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("state", "given_up")),
                fields=["endpoint", "created_at"],
                name="delivery_given_up",
            ),
        ),
        migrations.AddIndex(
            model_name="delivery",
            index=models.Index(
                condition=models.Q(("settled_at__isnull", False)),
                fields=["settled_at"],
                name="delivery_settled",
            ),
        ),
        migrations.AddConstraint(
            model_name="delivery",
            constraint=models.UniqueConstraint(
                fields=("endpoint", "event"), name="delivery_of_event"
            ),
        ),
        migrations.AddIndex(
            model_name="workspaceconstraintversion",
            index=models.Index(
                condition=models.Q(("state", "checking")),
                fields=["run_after"],
                name="constraint_version_unjudged",
            ),
        ),
        migrations.AddConstraint(
            model_name="workspaceconstraintversion",
            constraint=models.UniqueConstraint(
                fields=("constraint", "number"), name="version_number_of_constraint"
            ),
        ),
        migrations.AddConstraint(
            model_name="workspaceconstraint",
            constraint=models.UniqueConstraint(
                fields=("workspace", "name"), name="constraint_name_in_workspace"
            ),
        ),
        migrations.AddConstraint(
            model_name="workspaceconstraint",
            constraint=models.CheckConstraint(
                condition=models.Q(("percentage__lte", 100)), name="constraint_percentage"
            ),
        ),
        migrations.AddIndex(
            model_name="backtest",
            index=models.Index(
                condition=models.Q(("dead_since__isnull", False)),
                fields=["dead_since"],
                name="backtest_dead",
            ),
        ),
        migrations.AddIndex(
            model_name="backtest",
            index=models.Index(
                condition=models.Q(("state__in", ["waiting", "running"])),
                fields=["run_after"],
                name="backtest_due",
            ),
        ),
        migrations.AddConstraint(
            model_name="backtest",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ["waiting", "running"])),
                fields=("version",),
                name="one_backtest_of_version",
            ),
        ),
        migrations.AddConstraint(
            model_name="backtest",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ["waiting", "running"])),
                fields=("user", "constraint"),
                name="one_backtest_of_own",
            ),
        ),
    ]

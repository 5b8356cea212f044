"""All tables, with their indexes and constraints."""

import uuid
from collections.abc import Sequence

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

import memory.alerts.models.alerts
import memory.alerts.models.webhooks
import memory.kernel.models.fields

# The log only grows, so it is partitioned: vacuums and repairs process an eighth of it at a time.
# Django creates a plain table, which is replaced before it has any index. Eight partitions suffice
# for billions of entries; with more, a query about all users locks and reads more tables. A key of
# a partitioned table has to contain the user. The schema keeps the server's role away from the
# partitions, whose triggers are not those of the whole table.
PARTITIONS = 8
PARTITIONED_LOG = """
ALTER TABLE memory_logentry RENAME TO memory_unpartitioned;
CREATE TABLE memory_logentry (LIKE memory_unpartitioned) PARTITION BY HASH (user_id);
DROP TABLE memory_unpartitioned;
ALTER TABLE memory_logentry ADD PRIMARY KEY (id, user_id);
CREATE SCHEMA log_partitions;
""" + "".join(
    f"CREATE TABLE log_partitions.memory_logentry_{number} PARTITION OF memory_logentry"
    f" FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {number});"
    for number in range(PARTITIONS)
)


class AtOnce(Operation):
    """Operations that need nothing of each other's in the database; models are rendered once.

    Django renders a model and all that are related to it, here nearly all, for each operation: that
    takes two thirds of the time of all migrations.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        # A state without rendered models renders none until it is asked for one.
        vars(state).pop("apps", None)
        for operation in self.operations:
            operation.state_forwards(app_label, state)

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        for operation in self.operations:
            operation.database_forwards(app_label, schema_editor, from_state, to_state)

    def database_backwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,
    ) -> None:
        for operation in reversed(self.operations):
            operation.database_backwards(app_label, schema_editor, from_state, to_state)

    def describe(self) -> str:
        return f"{len(self.operations)} operations at once"


def rendered_once(operations: Sequence[Operation]) -> list[Operation]:
    """Return the same operations: all tables, then SQL, then what needs tables that exist."""
    tables = [one for one in operations if isinstance(one, migrations.CreateModel)]
    statements = [one for one in operations if isinstance(one, migrations.RunSQL)]
    others = [one for one in operations if one not in tables and one not in statements]
    return [AtOnce(tables), *statements, AtOnce(others)]


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        # Needs nothing of these, but they run faster before: their changes to tables would render
        # all models here again.
        ("mfa", "0003_authenticator_type_uniq"),
        ("socialaccount", "0006_alter_socialaccount_extra_data"),
    ]

    operations = [
        migrations.CreateModel(
            name="Alarm",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("run_after", models.DateTimeField(default=django.utils.timezone.now)),
                ("hinted_at", models.DateTimeField(null=True)),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                ("attempts", models.IntegerField(default=0)),
                ("last_error", models.TextField(blank=True, default="")),
                ("name", models.CharField(max_length=100, unique=True)),
                ("detail", models.TextField()),
                ("is_critical", models.BooleanField(default=False)),
                ("holds_since", models.DateTimeField(null=True)),
                ("seen_at", models.DateTimeField(null=True)),
                ("raised_at", models.DateTimeField(null=True)),
                ("cleared_at", models.DateTimeField(null=True)),
                ("is_notified", models.BooleanField(default=True)),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Workspace",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("llm_model", models.CharField(blank=True, default="", max_length=200)),
                ("llm_base_url", models.CharField(blank=True, default="", max_length=500)),
                ("llm_api_key", models.BinaryField(null=True)),
                ("llm_concurrency", models.PositiveIntegerField(blank=True, null=True)),
                ("llm_tokens_per_day", models.PositiveBigIntegerField(blank=True, null=True)),
                ("llm_tokens_per_month", models.PositiveBigIntegerField(blank=True, null=True)),
                (
                    "llm_cost_per_day",
                    models.DecimalField(blank=True, decimal_places=2, max_digits=12, null=True),
                ),
                (
                    "llm_cost_per_month",
                    models.DecimalField(blank=True, decimal_places=2, max_digits=12, null=True),
                ),
                ("wall_seconds", models.FloatField(blank=True, null=True)),
                ("total_seconds", models.FloatField(blank=True, null=True)),
                ("cpu_seconds", models.PositiveIntegerField(blank=True, null=True)),
                ("process_memory_mib", models.PositiveIntegerField(blank=True, null=True)),
                ("output_kib", models.PositiveIntegerField(blank=True, null=True)),
                ("result_kib", models.PositiveIntegerField(blank=True, null=True)),
                ("result_depth", models.PositiveIntegerField(blank=True, null=True)),
                ("memory_mib", models.PositiveIntegerField(blank=True, null=True)),
                ("single_use", models.BooleanField(default=False)),
                ("llm_judged_sessions", models.PositiveIntegerField(blank=True, null=True)),
                ("llm_judged_days", models.PositiveIntegerField(blank=True, null=True)),
                ("llm_judged_minimum", models.PositiveIntegerField(blank=True, null=True)),
                ("llm_refused_percent", models.PositiveIntegerField(blank=True, null=True)),
                ("llm_undone_percent", models.PositiveIntegerField(blank=True, null=True)),
                ("llm_resumptions", models.JSONField(blank=True, editable=False, null=True)),
                ("llm_stops", models.JSONField(blank=True, editable=False, null=True)),
                ("structure_entries", models.PositiveIntegerField(blank=True, null=True)),
                ("structure_idle_seconds", models.PositiveIntegerField(blank=True, null=True)),
                ("structure_age_seconds", models.PositiveIntegerField(blank=True, null=True)),
                ("escalate_critical_minutes", models.PositiveIntegerField(blank=True, null=True)),
                ("escalate_warning_minutes", models.PositiveIntegerField(blank=True, null=True)),
                ("escalate_info_minutes", models.PositiveIntegerField(blank=True, null=True)),
                ("alerts_per_constraint", models.PositiveIntegerField(blank=True, null=True)),
                ("openings_per_day", models.PositiveIntegerField(blank=True, null=True)),
                ("reads_per_minute", models.PositiveIntegerField(blank=True, null=True)),
                ("writes_per_minute", models.PositiveIntegerField(blank=True, null=True)),
                ("costly_per_minute", models.PositiveIntegerField(blank=True, null=True)),
                ("entries_per_minute", models.PositiveIntegerField(blank=True, null=True)),
                ("processor_percent", models.PositiveIntegerField(blank=True, null=True)),
                ("max_users", models.PositiveIntegerField(blank=True, null=True)),
                ("max_entries", models.PositiveIntegerField(blank=True, null=True)),
                ("max_entries_per_user", models.PositiveIntegerField(blank=True, null=True)),
                ("max_log_mib", models.PositiveIntegerField(blank=True, null=True)),
                ("max_pending_entries", models.PositiveIntegerField(blank=True, null=True)),
                ("max_waiting_runs", models.PositiveIntegerField(blank=True, null=True)),
                ("max_backtests", models.PositiveIntegerField(blank=True, null=True)),
                ("keep_messages_days", models.PositiveIntegerField(blank=True, null=True)),
                ("keep_runs_days", models.PositiveIntegerField(blank=True, null=True)),
                ("keep_llm_calls_days", models.PositiveIntegerField(blank=True, null=True)),
                ("content_secret", models.CharField(blank=True, default="", max_length=16)),
                ("content_email_address", models.CharField(blank=True, default="", max_length=16)),
                ("content_phone_number", models.CharField(blank=True, default="", max_length=16)),
                ("content_credit_card", models.CharField(blank=True, default="", max_length=16)),
                ("content_iban_code", models.CharField(blank=True, default="", max_length=16)),
                ("content_ip_address", models.CharField(blank=True, default="", max_length=16)),
                ("public_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("name", models.CharField(max_length=100, unique=True)),
                ("time_zone", models.CharField(default="UTC", max_length=64)),
                ("users_by_entry", models.BooleanField(default=False)),
                (
                    "name_field",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="The field of a user's metadata that staff see beside the id, such as name.",
                        max_length=100,
                    ),
                ),
                ("schema", models.JSONField(default=dict, editable=False)),
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
                ("seen_at", models.DateTimeField()),
                ("threads", models.IntegerField()),
                ("report", models.JSONField(default=dict)),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Checkpoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("version", models.IntegerField()),
                ("tree", models.JSONField()),
                ("outline", models.JSONField()),
                ("seen_seq", models.BigIntegerField()),
                ("origin", models.CharField(max_length=16)),
                ("edits", memory.kernel.models.fields.ExactJSONField()),
                ("verdict", models.JSONField()),
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
                "indexes": [models.Index(fields=["-created_at", "-id"], name="checkpoint_newest")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("verdict__contains", {"accepted": True}),
                            models.Q(
                                ("verdict__contains", {"checks": [{"passed": False}]}),
                                _negated=True,
                            ),
                        ),
                        name="checkpoint_accepted",
                    )
                ],
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
                ("last_seq", models.BigIntegerField()),
            ],
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
                "ordering": ["workspace"],
            },
        ),
        migrations.CreateModel(
            name="Backtest",
            fields=[
                ("run_after", models.DateTimeField(default=django.utils.timezone.now)),
                ("hinted_at", models.DateTimeField(null=True)),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                ("attempts", models.IntegerField(default=0)),
                ("last_error", models.TextField(blank=True, default="")),
                ("dead_since", models.DateTimeField(null=True)),
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("constraint", models.CharField(max_length=300)),
                ("source_hash", models.CharField(max_length=64)),
                ("days", models.PositiveIntegerField()),
                ("most_users", models.PositiveIntegerField()),
                ("by", models.CharField(default="recorded", max_length=16)),
                ("until", models.DateTimeField()),
                ("state", models.CharField(default="waiting", max_length=16)),
                ("reason", models.CharField(blank=True, default="", max_length=300)),
                ("report", models.JSONField(default=dict)),
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
                "indexes": [
                    models.Index(
                        condition=models.Q(("dead_since__isnull", False)),
                        fields=["dead_since"],
                        name="backtest_dead",
                    ),
                    models.Index(
                        condition=models.Q(("state__in", ["waiting", "running"])),
                        fields=["run_after"],
                        name="backtest_due",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state__in", ["waiting", "running"]), ("finished_at", None)),
                            models.Q(
                                models.Q(("state__in", ["waiting", "running"]), _negated=True),
                                models.Q(("finished_at", None), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="backtest_finished",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=100)),
                ("prefix", models.CharField(editable=False, max_length=12, unique=True)),
                ("digest", models.CharField(editable=False, max_length=64)),
                (
                    "scopes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=16), size=None
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
                "ordering": ["workspace", "name"],
                "permissions": [("grant_manage", "Can give API keys the scope manage")],
            },
        ),
        migrations.CreateModel(
            name="MemoryUser",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("public_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("user_id", models.CharField(max_length=256)),
                ("time_zone", models.CharField(default="UTC", max_length=64)),
                ("metadata", models.JSONField(blank=True, default=dict)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("erased_at", models.DateTimeField(editable=False, null=True)),
                ("last_seq", models.BigIntegerField(default=0, editable=False)),
                (
                    "last_hash",
                    models.BinaryField(
                        default=b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
                        max_length=32,
                    ),
                ),
                ("last_given_time", models.DateTimeField(editable=False, null=True)),
                ("log_bytes", models.BigIntegerField(default=0, editable=False)),
                ("redacting_since", models.DateTimeField(editable=False, null=True)),
                ("alerts_version", models.IntegerField(default=0, editable=False)),
                ("alerts_instant", models.DateTimeField(editable=False, null=True)),
                ("constraints_due_at", models.DateTimeField(editable=False, null=True)),
                ("constraints_changed_at", models.DateTimeField(editable=False, null=True)),
                (
                    "head",
                    models.ForeignKey(
                        blank=True,
                        editable=False,
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
                "ordering": ["workspace", "user_id"],
                "permissions": [
                    ("erase_memoryuser", "Can erase users permanently (privacy)"),
                    ("subject_access", "Can download all stored data about a person (privacy)"),
                ],
                "indexes": [
                    models.Index(fields=["-created_at"], name="user_newest"),
                    models.Index(
                        condition=models.Q(("constraints_due_at__isnull", False)),
                        fields=["constraints_due_at"],
                        name="user_constraints_due",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("constraints_changed_at__isnull", False), ("head__isnull", False)
                        ),
                        fields=["constraints_changed_at"],
                        name="user_constraints_changed",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("erased_at", None)),
                        fields=("workspace", "user_id"),
                        name="user_id_of_remembered",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="LogEntry",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ("seq", models.BigIntegerField()),
                ("kind", models.CharField(max_length=16)),
                ("occurred_at", models.DateTimeField()),
                ("recorded_at", models.DateTimeField()),
                (
                    "derived_from",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), blank=True, default=list, size=None
                    ),
                ),
                ("content", models.TextField(null=True)),
                ("data", memory.kernel.models.fields.ExactJSONField(null=True)),
                ("metadata", memory.kernel.models.fields.ExactJSONField(null=True)),
                ("session_id", models.CharField(max_length=200, null=True)),
                ("role", models.CharField(max_length=32, null=True)),
                ("speaker", models.CharField(max_length=200, null=True)),
                ("agent_id", models.CharField(max_length=200, null=True)),
                ("source", models.CharField(max_length=200, null=True)),
                ("idempotency_key", models.CharField(max_length=255, null=True)),
                ("key_hash", models.BinaryField(max_length=32, null=True)),
                ("salt", models.BinaryField(max_length=16, null=True)),
                ("payload_hash", models.BinaryField(max_length=32)),
                ("hash", models.BinaryField(max_length=32)),
                ("redacted_at", models.DateTimeField(null=True)),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="entries",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "ordering": ["user", "seq"],
            },
        ),
        migrations.RunSQL(PARTITIONED_LOG),
        migrations.CreateModel(
            name="Lane",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("run_after", models.DateTimeField(default=django.utils.timezone.now)),
                ("hinted_at", models.DateTimeField(null=True)),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                ("attempts", models.IntegerField(default=0)),
                ("last_error", models.TextField(blank=True, default="")),
                ("name", models.CharField(max_length=16)),
                ("due_at", models.DateTimeField(null=True)),
                ("waiting", models.PositiveIntegerField(default=0)),
                ("waiting_since", models.DateTimeField(null=True)),
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
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)),
                        fields=["name", "due_at"],
                        name="lane_due",
                    ),
                    models.Index(fields=["due_at", "id"], name="lane_longest"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "name"), name="lane_of_user")
                ],
            },
        ),
        migrations.CreateModel(
            name="IdempotencyKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("key", models.CharField(max_length=255)),
                ("fingerprint", models.CharField(max_length=64)),
                ("reference", models.JSONField()),
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
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="idempotency_keys",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
                "indexes": [models.Index(fields=["created_at"], name="idempotency_key_age")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("workspace", "key"), name="idempotency_key_in_workspace"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Forecast",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("run_after", models.DateTimeField(default=django.utils.timezone.now)),
                ("hinted_at", models.DateTimeField(null=True)),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                ("attempts", models.IntegerField(default=0)),
                ("last_error", models.TextField(blank=True, default="")),
                ("dead_since", models.DateTimeField(null=True)),
                ("due_at", models.DateTimeField(null=True)),
                ("basis", models.CharField(blank=True, default="", max_length=64)),
                ("computed_at", models.DateTimeField(null=True)),
                ("start", models.DateTimeField(null=True)),
                ("horizon_days", models.PositiveIntegerField(default=0)),
                ("known_until", models.DateTimeField(null=True)),
                ("needs_daily", models.BooleanField(default=False)),
                ("results", memory.kernel.models.fields.ExactJSONField(default=dict)),
                ("timeline", memory.kernel.models.fields.ExactJSONField(default=list)),
                ("next_change", models.DateTimeField(null=True)),
                ("wakes_at", models.DateTimeField(null=True)),
                ("timings", models.JSONField(default=dict)),
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
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("dead_since__isnull", False)),
                        fields=["dead_since"],
                        name="forecast_dead",
                    ),
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)),
                        fields=["due_at"],
                        name="forecast_due",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="EntryOutcome",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("seq", models.BigIntegerField()),
                ("outcome", models.CharField(max_length=16)),
                ("reason", models.TextField(blank=True, default="")),
                (
                    "superseded_by",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), null=True, size=None
                    ),
                ),
                (
                    "set_aside",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), default=list, size=None
                    ),
                ),
                (
                    "decided_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
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
                "indexes": [
                    models.Index(fields=["-decided_at", "-seq"], name="outcome_newest"),
                    models.Index(
                        condition=models.Q(("outcome", "rejected")),
                        fields=["decided_at"],
                        name="outcome_rejected",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "seq"), name="outcome_of_entry"),
                    models.CheckConstraint(
                        condition=models.Q(("seq__gte", 1)), name="outcome_numbered"
                    ),
                ],
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
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
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
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "path", "source_hash", "image_digest"),
                        name="bytecode_of_file",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Blob",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("hash", models.CharField(max_length=64)),
                ("content", models.TextField(null=True)),
                ("git_id", models.CharField(max_length=40)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="blobs",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("user", "hash"), name="blob_of_user")
                ],
            },
        ),
        migrations.AddField(
            model_name="backtest",
            name="user",
            field=models.ForeignKey(
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
                ("kind", models.CharField(default="finding", max_length=20)),
                ("constraint", models.CharField(max_length=300)),
                ("fingerprint", models.CharField(max_length=64)),
                ("severity", models.CharField(max_length=16)),
                ("message", models.TextField()),
                ("evidence", models.JSONField(default=list)),
                (
                    "entries",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), default=list, size=None
                    ),
                ),
                ("state", models.CharField(default="open", max_length=16)),
                ("opened_at", models.DateTimeField()),
                ("changed_at", models.DateTimeField()),
                ("resolved_at", models.DateTimeField(null=True)),
                ("snoozed_until", models.DateTimeField(null=True)),
                ("holds_back", models.BooleanField(default=False)),
                ("open_since", models.DateTimeField(default=django.utils.timezone.now)),
                ("escalate_at", models.DateTimeField(null=True)),
                ("escalated_at", models.DateTimeField(null=True)),
                (
                    "assigned_to",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="The staff member who takes care of it.",
                        max_length=150,
                    ),
                ),
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
                "indexes": [
                    models.Index(fields=["user", "state"], name="alert_of_user"),
                    models.Index(fields=["user", "-opened_at"], name="alert_openings"),
                    models.Index(
                        condition=models.Q(("duplicate_of", None)),
                        fields=["opened_at"],
                        include=("severity", "user"),
                        name="alert_listed_opened",
                    ),
                    models.Index(
                        memory.alerts.models.alerts.Place(
                            "state", among="open,acknowledged,snoozed,resolved"
                        ),
                        memory.alerts.models.alerts.Place(
                            "severity", among="critical,warning,info"
                        ),
                        models.OrderBy(models.F("opened_at"), descending=True),
                        name="alert_by_urgency",
                    ),
                    models.Index(
                        condition=models.Q(("state", "resolved"), _negated=True),
                        fields=["severity", "state"],
                        include=("user",),
                        name="alert_live",
                    ),
                    models.Index(
                        condition=models.Q(("duplicate_of__isnull", False)),
                        fields=["duplicate_of"],
                        name="alert_duplicate",
                    ),
                    models.Index(
                        condition=models.Q(("was_duplicate_of__isnull", False)),
                        fields=["was_duplicate_of"],
                        name="alert_former_duplicate",
                    ),
                    models.Index(
                        condition=models.Q(("snoozed_until__isnull", False)),
                        fields=["snoozed_until"],
                        name="alert_to_wake",
                    ),
                    models.Index(
                        condition=models.Q(("escalate_at__isnull", False)),
                        fields=["escalate_at"],
                        name="alert_to_escalate",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "resolved"), _negated=True),
                        fields=("user", "fingerprint"),
                        name="one_live_alert_per_fingerprint",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "resolved"), ("resolved_at__isnull", False)),
                            models.Q(
                                models.Q(("state", "resolved"), _negated=True),
                                models.Q(("resolved_at__isnull", False), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="alert_resolved",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("holds_back", False), ("state", "resolved"), _connector="OR"
                        ),
                        name="alert_holds_back",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("snoozed_until", None), ("state", "snoozed"), _connector="OR"
                        ),
                        name="alert_snoozed",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("escalate_at", None), ("state", "open"), _connector="OR"
                        ),
                        name="alert_escalates",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Merge",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("run_after", models.DateTimeField(default=django.utils.timezone.now)),
                ("hinted_at", models.DateTimeField(null=True)),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                ("attempts", models.IntegerField(default=0)),
                ("last_error", models.TextField(blank=True, default="")),
                ("by", models.CharField(max_length=200)),
                ("created_at", models.DateTimeField()),
                ("last_seq", models.BigIntegerField()),
                ("cursor_seq", models.BigIntegerField(default=0)),
                ("copied", models.BigIntegerField(default=0)),
                (
                    "skipped",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), default=list, size=None
                    ),
                ),
                (
                    "left_behind",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=300), default=list, size=None
                    ),
                ),
                ("alerts", models.JSONField(default=dict)),
                ("due_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "merged",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="merge",
                        to="memory.memoryuser",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="merges",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)),
                        fields=["due_at"],
                        name="merge_due",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("due_at", None), ("finished_at", None), _connector="OR"
                        ),
                        name="merge_finished",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("finished_at", None),
                            ("cursor_seq__gte", models.F("last_seq")),
                            _connector="OR",
                        ),
                        name="merge_complete",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="CopiedEntries",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("from_seq", models.BigIntegerField()),
                ("seq", models.BigIntegerField()),
                ("number", models.BigIntegerField()),
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
                "indexes": [models.Index(fields=["merge", "seq"], name="copied_as")],
                "constraints": [
                    models.UniqueConstraint(fields=("merge", "from_seq"), name="copied_once")
                ],
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
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("resumed_at__isnull", True)),
                        fields=("user",),
                        name="user_paused_once",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("resumed_at__isnull", True), ("user__isnull", True)),
                        fields=("workspace",),
                        name="workspace_paused_once",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PausedConstraint",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ("constraint", models.CharField(max_length=300)),
                ("source_hash", models.CharField(blank=True, default="", max_length=64)),
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
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("resumed_at__isnull", True)),
                        fields=("user", "constraint"),
                        name="paused_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="RecordLocation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("domain", models.CharField(max_length=100)),
                ("collection", models.CharField(max_length=100)),
                ("key", models.CharField(max_length=200)),
                ("path", models.CharField(max_length=300)),
                ("added_version", models.IntegerField()),
                ("retired_version", models.IntegerField(null=True)),
                ("ended_by", models.BigIntegerField(null=True)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="locations",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "domain", "collection", "key"), name="location_of_record"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Redaction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("run_after", models.DateTimeField(default=django.utils.timezone.now)),
                ("hinted_at", models.DateTimeField(null=True)),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                ("attempts", models.IntegerField(default=0)),
                ("last_error", models.TextField(blank=True, default="")),
                ("seq", models.BigIntegerField()),
                (
                    "asked",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), size=None
                    ),
                ),
                (
                    "entries",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), size=None
                    ),
                ),
                ("by", models.CharField(max_length=200)),
                ("reason", models.TextField(blank=True, default="")),
                ("created_at", models.DateTimeField()),
                ("due_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("version", models.IntegerField(null=True)),
                ("records", models.PositiveIntegerField(default=0)),
                ("constraints", models.PositiveIntegerField(default=0)),
                ("reopened", models.PositiveIntegerField(default=0)),
                ("problem", models.TextField(blank=True, default="")),
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
                "indexes": [
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)),
                        fields=["due_at"],
                        name="redaction_due",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "seq"), name="redaction_of_user"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("due_at", None), ("finished_at", None), _connector="OR"
                        ),
                        name="redaction_finished",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Run",
            fields=[
                ("run_after", models.DateTimeField(default=django.utils.timezone.now)),
                ("hinted_at", models.DateTimeField(null=True)),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                ("attempts", models.IntegerField(default=0)),
                ("last_error", models.TextField(blank=True, default="")),
                ("dead_since", models.DateTimeField(null=True)),
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=16)),
                ("trigger", models.CharField(max_length=16)),
                ("asked_by", models.CharField(blank=True, default="", max_length=200)),
                ("instant", models.DateTimeField()),
                ("input", memory.kernel.models.fields.ExactJSONField(default=dict)),
                ("answer_key", models.CharField(blank=True, default="", max_length=64)),
                ("status", models.CharField(default="queued", max_length=16)),
                ("outcome", models.CharField(blank=True, default="", max_length=16)),
                ("output", memory.kernel.models.fields.ExactJSONField(null=True)),
                ("error", models.JSONField(null=True)),
                ("stdout", models.TextField(blank=True, default="")),
                ("runner", models.CharField(blank=True, default="", max_length=32)),
                ("host", models.CharField(blank=True, default="", max_length=100)),
                ("timings", models.JSONField(default=dict)),
                ("memory_bytes", models.BigIntegerField(null=True)),
                (
                    "test_gaps",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), default=list, size=None
                    ),
                ),
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
                "indexes": [
                    models.Index(
                        condition=models.Q(("dead_since__isnull", False)),
                        fields=["dead_since"],
                        name="run_dead",
                    ),
                    models.Index(fields=["user", "-queued_at"], name="run_of_user"),
                    models.Index(
                        condition=models.Q(("status", "done"), _negated=True),
                        fields=["run_after"],
                        name="run_unfinished",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("trigger__in", ["api", "staff"]),
                            models.Q(("status", "done"), _negated=True),
                        ),
                        fields=["user"],
                        name="run_waited_for",
                    ),
                    models.Index(
                        condition=models.Q(("asked_by", ""), _negated=True),
                        fields=["user", "asked_by", "-queued_at"],
                        name="run_of_staff",
                    ),
                    models.Index(
                        condition=models.Q(("status", "done")),
                        fields=["finished_at"],
                        include=("outcome", "user"),
                        name="run_ended",
                    ),
                    models.Index(fields=["-queued_at"], name="run_newest"),
                    models.Index(
                        condition=models.Q(
                            ("outcome", "ok"), models.Q(("answer_key", ""), _negated=True)
                        ),
                        fields=["checkpoint", "answer_key"],
                        name="run_answer",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status", "done"), ("finished_at__isnull", False)),
                            models.Q(
                                models.Q(("status", "done"), _negated=True),
                                models.Q(("finished_at__isnull", False), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="run_finished",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status", "done"), models.Q(("outcome", ""), _negated=True)),
                            models.Q(models.Q(("status", "done"), _negated=True), ("outcome", "")),
                            _connector="OR",
                        ),
                        name="run_outcome",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("kind", "constraints"), _negated=True),
                            ("checkpoint__isnull", False),
                            _connector="OR",
                        ),
                        name="run_of_constraints",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LlmCall",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ("purpose", models.CharField(max_length=16)),
                ("work", models.UUIDField()),
                ("turn", models.IntegerField()),
                ("attempt", models.IntegerField()),
                ("accepted", models.BooleanField(null=True)),
                ("refusals", models.IntegerField(null=True)),
                ("model", models.CharField(max_length=220)),
                ("answered_by", models.CharField(blank=True, default="", max_length=200)),
                ("prompt_hash", models.CharField(max_length=64)),
                ("instructions", models.CharField(blank=True, default="", max_length=12)),
                ("outcome", models.CharField(default="started", max_length=16)),
                ("error", models.TextField(blank=True, default="")),
                ("input_tokens", models.BigIntegerField(null=True)),
                ("output_tokens", models.BigIntegerField(null=True)),
                ("cache_read_tokens", models.BigIntegerField(null=True)),
                ("cache_write_tokens", models.BigIntegerField(null=True)),
                ("cost", models.DecimalField(decimal_places=8, max_digits=20, null=True)),
                ("reserved_tokens", models.BigIntegerField()),
                ("reserved_cost", models.DecimalField(decimal_places=8, max_digits=20, null=True)),
                ("started_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("expires_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField(null=True)),
                ("seconds", models.FloatField(null=True)),
                ("prompt", models.BinaryField(null=True)),
                ("answer", models.BinaryField(null=True)),
                (
                    "checkpoint",
                    models.ForeignKey(
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
                "ordering": ["-started_at"],
                "permissions": [
                    ("view_llmcall_content", "Can read prompts and answers of model calls")
                ],
                "indexes": [
                    models.Index(fields=["-started_at"], name="llm_call_age"),
                    models.Index(fields=["workspace", "-started_at"], name="llm_call_of_workspace"),
                    models.Index(fields=["work"], name="llm_call_of_work"),
                    models.Index(
                        condition=models.Q(("accepted__isnull", False)),
                        fields=["workspace", "model", "-started_at"],
                        name="llm_call_judged_of_model",
                    ),
                    models.Index(
                        condition=models.Q(("outcome", "started")),
                        fields=["workspace", "expires_at"],
                        name="llm_call_under_way",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("outcome", "started"), ("finished_at", None)),
                            models.Q(
                                models.Q(("outcome", "started"), _negated=True),
                                models.Q(("finished_at", None), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="call_finished",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="AlertEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("seq", models.BigIntegerField()),
                (
                    "entries",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), default=list, size=None
                    ),
                ),
                ("kind", models.CharField(max_length=16)),
                ("at", models.DateTimeField()),
                ("actor", models.CharField(max_length=200)),
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
                "indexes": [
                    models.Index(
                        condition=models.Q(("user__isnull", False)),
                        fields=["user", "seq"],
                        name="event_of_user",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("workspace", "seq"), name="event_seq_in_workspace"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("alert__isnull", False), ("entries", []), ("user__isnull", True)
                            ),
                            models.Q(("alert__isnull", True), ("user__isnull", False)),
                            _connector="OR",
                        ),
                        name="event_of_alert_or_entries",
                    ),
                ],
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
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("run_after", models.DateTimeField(default=django.utils.timezone.now)),
                ("hinted_at", models.DateTimeField(null=True)),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                ("attempts", models.IntegerField(default=0)),
                ("last_error", models.TextField(blank=True, default="")),
                ("due_at", models.DateTimeField(null=True)),
                ("is_multilingual", models.BooleanField(db_default=False, default=False)),
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
                "indexes": [
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)),
                        fields=["due_at"],
                        name="search_due",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="SearchSegment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("first_seq", models.BigIntegerField()),
                ("last_seq", models.BigIntegerField()),
                ("version", models.PositiveSmallIntegerField()),
                ("blocks", models.PositiveIntegerField()),
                ("postings", models.PositiveIntegerField()),
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
                "constraints": [
                    models.UniqueConstraint(fields=("user", "first_seq"), name="segment_of_user"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("first_seq__gte", 1), ("last_seq__gte", models.F("first_seq"))
                        ),
                        name="segment_covers_entries",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="SearchBlock",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
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
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("segment", "number"), name="block_of_segment")
                ],
            },
        ),
        migrations.CreateModel(
            name="StaffAccess",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("all_workspaces", models.BooleanField(default=False)),
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
                    models.ManyToManyField(blank=True, related_name="staff", to="memory.workspace"),
                ),
            ],
            options={
                "ordering": ["user"],
                "permissions": [
                    ("view_content", "Can see what people said and what was derived from it")
                ],
            },
        ),
        migrations.CreateModel(
            name="StaffAudit",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("staff_id", models.BigIntegerField()),
                ("staff_name", models.CharField(max_length=150)),
                ("kind", models.CharField(max_length=16)),
                ("what", models.CharField(blank=True, max_length=100)),
                ("model", models.CharField(blank=True, max_length=100)),
                ("row", models.CharField(blank=True, max_length=100)),
                ("number", models.BigIntegerField(default=1)),
                ("person", models.UUIDField(null=True)),
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
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["at"], name="audit_at"),
                    models.Index(fields=["staff_name", "id"], name="audit_staff"),
                    models.Index(fields=["person", "id"], name="audit_person"),
                ],
            },
        ),
        migrations.CreateModel(
            name="StaffSubscription",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("run_after", models.DateTimeField(default=django.utils.timezone.now)),
                ("hinted_at", models.DateTimeField(null=True)),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                ("attempts", models.IntegerField(default=0)),
                ("last_error", models.TextField(blank=True, default="")),
                ("enabled", models.BooleanField(default=True)),
                ("least_severity", models.CharField(default="warning", max_length=16)),
                ("mode", models.CharField(default="at_once", max_length=16)),
                ("hour", models.PositiveSmallIntegerField(default=7)),
                ("time_zone", models.CharField(default="UTC", max_length=64)),
                ("escalations", models.BooleanField(default=False)),
                ("operations", models.BooleanField(default=False)),
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
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="staff_subscriptions",
                        to="memory.workspace",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="MailCursor",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
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
                "ordering": ["id"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("subscription", "workspace"), name="one_cursor_per_workspace"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="UserErasure",
            fields=[
                ("run_after", models.DateTimeField(default=django.utils.timezone.now)),
                ("hinted_at", models.DateTimeField(null=True)),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                ("attempts", models.IntegerField(default=0)),
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
                ("due_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("counts", models.JSONField(default=dict)),
                (
                    "hosts",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=100), default=list, size=None
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
                "ordering": ["-created_at"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)),
                        fields=["due_at"],
                        name="erasure_due",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("due_at", None), ("finished_at__isnull", False)),
                            models.Q(
                                models.Q(("due_at", None), _negated=True),
                                models.Q(("finished_at__isnull", False), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="erasure_finished",
                    )
                ],
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
                ("url", models.CharField(max_length=2000)),
                ("description", models.CharField(blank=True, default="", max_length=200)),
                (
                    "event_types",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=16),
                        blank=True,
                        default=list,
                        size=None,
                    ),
                ),
                (
                    "alert_kinds",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=20),
                        default=memory.alerts.models.webhooks.findings,
                        size=None,
                    ),
                ),
                ("least_severity", models.CharField(default="info", max_length=16)),
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
                ("failing_since", models.DateTimeField(editable=False, null=True)),
                ("failures", models.IntegerField(default=0, editable=False)),
                ("not_before", models.DateTimeField(editable=False, null=True)),
                ("minute_began_at", models.DateTimeField(editable=False, null=True)),
                ("minute_calls", models.IntegerField(default=0, editable=False)),
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
                "ordering": ["workspace", "created_at"],
            },
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                ("run_after", models.DateTimeField(default=django.utils.timezone.now)),
                ("hinted_at", models.DateTimeField(null=True)),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                ("attempts", models.IntegerField(default=0)),
                ("last_error", models.TextField(blank=True, default="")),
                ("dead_since", models.DateTimeField(null=True)),
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("seq", models.BigIntegerField(null=True)),
                ("type", models.CharField(max_length=32)),
                ("payload", models.TextField()),
                ("state", models.CharField(default="pending", max_length=16)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("settled_at", models.DateTimeField(null=True)),
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
                "ordering": ["-created_at", "-seq"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("dead_since__isnull", False)),
                        fields=["dead_since"],
                        name="delivery_dead",
                    ),
                    models.Index(fields=["-created_at", "-seq"], name="delivery_newest"),
                    models.Index(fields=["endpoint", "-created_at"], name="delivery_of_endpoint"),
                    models.Index(
                        condition=models.Q(("state", "pending")),
                        fields=["endpoint", "run_after", "seq"],
                        name="delivery_pending",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("lease_expires_at__isnull", False), ("state", "pending")
                        ),
                        fields=["endpoint", "lease_expires_at"],
                        name="delivery_leased",
                    ),
                    models.Index(
                        condition=models.Q(("state", "pending")),
                        fields=["endpoint", "alert", "seq"],
                        name="delivery_order",
                    ),
                    models.Index(
                        condition=models.Q(("state", "given_up")),
                        fields=["endpoint", "created_at"],
                        name="delivery_given_up",
                    ),
                    models.Index(
                        condition=models.Q(("settled_at__isnull", False)),
                        fields=["settled_at"],
                        name="delivery_settled",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("endpoint", "event"), name="delivery_of_event"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "pending"), ("settled_at", None)),
                            models.Q(
                                models.Q(("state", "pending"), _negated=True),
                                models.Q(("settled_at", None), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="delivery_settled",
                    ),
                ],
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
                ("name", models.CharField(max_length=100)),
                ("description", models.CharField(blank=True, default="", max_length=1000)),
                ("percentage", models.PositiveSmallIntegerField(default=0)),
                ("enabled", models.BooleanField(default=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("created_by", models.CharField(editable=False, max_length=200)),
                ("changed_at", models.DateTimeField(editable=False, null=True)),
                (
                    "changed_by",
                    models.CharField(blank=True, default="", editable=False, max_length=200),
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
                "constraints": [
                    models.UniqueConstraint(
                        fields=("workspace", "name"), name="constraint_name_in_workspace"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("percentage__lte", 100)), name="constraint_percentage"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="WorkspaceConstraintVersion",
            fields=[
                ("run_after", models.DateTimeField(default=django.utils.timezone.now)),
                ("hinted_at", models.DateTimeField(null=True)),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                ("attempts", models.IntegerField(default=0)),
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
                ("state", models.CharField(default="checking", max_length=16)),
                ("verdict", models.JSONField(null=True)),
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
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "checking")),
                        fields=["run_after"],
                        name="constraint_version_unjudged",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("constraint", "number"), name="version_number_of_constraint"
                    )
                ],
            },
        ),
        migrations.AddField(
            model_name="workspaceconstraint",
            name="live",
            field=models.ForeignKey(
                blank=True,
                editable=False,
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
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="backtests",
                to="memory.workspaceconstraintversion",
            ),
        ),
        migrations.CreateModel(
            name="AlertFeedback",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("judge", models.CharField(max_length=16)),
                ("verdict", models.CharField(max_length=16)),
                ("note", models.TextField(blank=True, default="")),
                ("actor", models.CharField(max_length=200)),
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
                "ordering": ["alert", "judge"],
                "constraints": [
                    models.UniqueConstraint(fields=("alert", "judge"), name="one_verdict_per_judge")
                ],
            },
        ),
        migrations.CreateModel(
            name="DeliveryAttempt",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("seconds", models.FloatField()),
                ("address", models.GenericIPAddressField(null=True)),
                ("status", models.PositiveIntegerField(null=True)),
                ("error", models.TextField(blank=True, default="")),
                ("answer", models.TextField(blank=True, default="")),
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
                "ordering": ["delivery", "at"],
                "indexes": [models.Index(fields=["-at"], name="delivery_attempt_age")],
            },
        ),
        migrations.CreateModel(
            name="LlmSpending",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("day", models.DateField()),
                ("model", models.CharField(max_length=220)),
                ("purpose", models.CharField(max_length=16)),
                ("outcome", models.CharField(max_length=16)),
                ("calls", models.BigIntegerField(default=0)),
                ("seconds", models.FloatField(default=0)),
                ("input_tokens", models.BigIntegerField(default=0)),
                ("output_tokens", models.BigIntegerField(default=0)),
                ("cost", models.DecimalField(decimal_places=8, default=0, max_digits=20)),
                ("presumed_tokens", models.BigIntegerField(default=0)),
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
        migrations.AddConstraint(
            model_name="logentry",
            constraint=models.UniqueConstraint(
                condition=models.Q(("redacted_at__isnull", False)),
                fields=("user", "key_hash"),
                name="entry_cleared_key",
            ),
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
            model_name="backtest",
            constraint=models.UniqueConstraint(
                fields=("version",),
                name="one_backtest_of_version",
            ),
        ),
        migrations.AddConstraint(
            model_name="backtest",
            constraint=models.UniqueConstraint(
                fields=("user", "constraint"),
                name="one_backtest_of_own",
            ),
        ),
        migrations.CreateModel(
            name="AgentConnection",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("client_name", models.CharField(max_length=100)),
                ("client_id", models.TextField(editable=False)),
                ("redirect_uri", models.CharField(max_length=500)),
                ("audience", models.TextField()),
                (
                    "scopes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=16), size=None
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("code_challenge", models.CharField(editable=False, max_length=128)),
                ("code_digest", models.CharField(editable=False, max_length=64)),
                ("access_digest", models.CharField(default="", editable=False, max_length=64)),
                ("refresh_digest", models.CharField(default="", editable=False, max_length=64)),
                (
                    "previous_refresh_digest",
                    models.CharField(default="", editable=False, max_length=64),
                ),
                ("refreshed_at", models.DateTimeField(editable=False, null=True)),
                ("revoked_at", models.DateTimeField(editable=False, null=True)),
                (
                    "approved_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="agent_connections",
                        to="memory.memoryuser",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
    ]
    operations = rendered_once(operations)

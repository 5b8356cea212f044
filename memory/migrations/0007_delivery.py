"""The feed of events, and webhooks."""

import uuid

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

import memory.models.webhooks

# Numbered in the order in which they happened. The constraints are checked at once, because a table
# cannot be altered while checks of it are pending.
NUMBERS = """
SET CONSTRAINTS ALL IMMEDIATE;
UPDATE memory_alertevent AS event SET workspace_id = numbered.workspace_id, seq = numbered.number
FROM (
    SELECT event.id, owner.workspace_id,
        row_number() OVER (PARTITION BY owner.workspace_id ORDER BY event.at, event.id) AS number
    FROM memory_alertevent AS event
    JOIN memory_alert AS alert ON alert.id = event.alert_id
    JOIN memory_memoryuser AS owner ON owner.id = alert.user_id
) AS numbered
WHERE numbered.id = event.id;
INSERT INTO memory_eventcounter (workspace_id, last_seq)
SELECT workspace_id, max(seq) FROM memory_alertevent GROUP BY workspace_id;
"""


class Migration(migrations.Migration):
    """Numbers for the events that there are, their counters, and the models of webhooks."""

    dependencies = [("memory", "0006_alert_life")]

    operations = [
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
                    models.BigIntegerField(help_text="How many events there have been."),
                ),
            ],
            options={"verbose_name": "event counter"},
        ),
        migrations.AddField(
            model_name="alertevent",
            name="workspace",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="memory.workspace",
            ),
        ),
        migrations.AddField(
            model_name="alertevent", name="seq", field=models.BigIntegerField(null=True)
        ),
        migrations.RunSQL(NUMBERS, migrations.RunSQL.noop),
        migrations.AlterField(
            model_name="alertevent",
            name="workspace",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="+",
                to="memory.workspace",
            ),
        ),
        migrations.AlterField(
            model_name="alertevent",
            name="seq",
            field=models.BigIntegerField(
                help_text="Its number in the workspace: 1, 2, 3 … without gaps."
            ),
        ),
        migrations.AlterField(
            model_name="alertevent",
            name="kind",
            field=models.CharField(
                choices=[
                    ("opened", "opened"),
                    ("changed", "changed"),
                    ("acknowledged", "acknowledged"),
                    ("snoozed", "snoozed"),
                    ("reopened", "reopened"),
                    ("escalated", "escalated"),
                    ("resolved", "resolved"),
                    ("feedback", "feedback"),
                ],
                max_length=16,
            ),
        ),
        migrations.AlterModelOptions(name="alertevent", options={"ordering": ["alert", "seq"]}),
        migrations.AddConstraint(
            model_name="alertevent",
            constraint=models.UniqueConstraint(
                fields=("workspace", "seq"), name="event_seq_in_workspace"
            ),
        ),
        migrations.AlterField(
            model_name="apikey",
            name="scopes",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(
                    choices=[("read", "read"), ("write", "write"), ("manage", "manage webhooks")],
                    max_length=16,
                ),
                size=None,
            ),
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
                        help_text="https, on a public address; the final one: redirects are not followed.",
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
                        help_text="Which events it is sent; none chosen: all.",
                        size=None,
                    ),
                ),
                (
                    "alert_kinds",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=20),
                        default=memory.models.webhooks.findings,
                        help_text="Of which alerts: those for your users, those for who keeps constraints working.",
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
                        help_text="Since when it has answered nothing but errors.",
                        null=True,
                    ),
                ),
                (
                    "failures",
                    models.IntegerField(
                        default=0, editable=False, help_text="Failed calls since the last success."
                    ),
                ),
                (
                    "not_before",
                    models.DateTimeField(
                        editable=False, help_text="Not called before this time.", null=True
                    ),
                ),
                ("minute_began_at", models.DateTimeField(editable=False, null=True)),
                (
                    "minute_calls",
                    models.IntegerField(
                        default=0, editable=False, help_text="Calls since that minute began."
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
                        help_text="Not tried again before this time.",
                    ),
                ),
                (
                    "hinted_at",
                    models.DateTimeField(help_text="When workers were last told of it.", null=True),
                ),
                ("lease_owner", models.CharField(blank=True, default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("token", models.BigIntegerField(default=0)),
                (
                    "attempts",
                    models.IntegerField(default=0, help_text="Tries since the last success."),
                ),
                ("last_error", models.TextField(blank=True, default="")),
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "seq",
                    models.BigIntegerField(
                        help_text="The number of the event in the feed.", null=True
                    ),
                ),
                ("type", models.CharField(max_length=32)),
                ("payload", models.TextField(help_text="The body, as it is signed and sent.")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("delivered", "delivered"),
                            ("given_up", "given up"),
                        ],
                        default="pending",
                        max_length=16,
                    ),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "settled_at",
                    models.DateTimeField(help_text="When it was delivered or given up.", null=True),
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
                        help_text="The address that was called.", null=True
                    ),
                ),
                (
                    "status",
                    models.PositiveIntegerField(
                        help_text="The HTTP status; empty: none.", null=True
                    ),
                ),
                (
                    "error",
                    models.TextField(blank=True, default="", help_text="Empty: it was delivered."),
                ),
                (
                    "answer",
                    models.TextField(
                        blank=True, default="", help_text="The beginning of the answer."
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
    ]

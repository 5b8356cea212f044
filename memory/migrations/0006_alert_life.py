"""The life of alerts: snooze, escalation, feedback, paused constraints, e-mail to the staff."""

import uuid

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import memory.models.users

# Alerts from before were open since they opened. Nobody is told now of what was open for long.
OPEN_SINCE = "UPDATE memory_alert SET open_since = opened_at"


class Migration(migrations.Migration):
    """What an alert's life needs."""

    dependencies = [
        ("memory", "0005_structure"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
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
                    models.CharField(help_text="The API key, or the person.", max_length=200),
                ),
                ("at", models.DateTimeField()),
            ],
            options={
                "verbose_name_plural": "feedback",
                "ordering": ["alert", "judge"],
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
            ],
            options={
                "verbose_name": "e-mail cursor",
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="PausedConstraint",
            fields=[
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False),
                ),
                (
                    "constraint",
                    models.CharField(help_text="Path of the constraint's source.", max_length=300),
                ),
                (
                    "source_hash",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="Another source resumes it by itself.",
                        max_length=64,
                    ),
                ),
                ("reason", models.TextField()),
                ("paused_at", models.DateTimeField()),
                ("paused_by", models.CharField(max_length=200)),
                ("resumed_at", models.DateTimeField(null=True)),
                ("resumed_by", models.CharField(blank=True, default="", max_length=200)),
                ("resumed_because", models.TextField(blank=True, default="")),
            ],
            options={
                "ordering": ["-paused_at"],
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
                        help_text="Alerts that are less severe are left out, unless they are escalated.",
                        max_length=16,
                    ),
                ),
                (
                    "mode",
                    models.CharField(
                        choices=[("at_once", "at once"), ("daily", "daily digest")],
                        default="at_once",
                        max_length=16,
                    ),
                ),
                (
                    "hour",
                    models.PositiveSmallIntegerField(
                        default=7,
                        help_text="Of the daily digest.",
                        validators=[django.core.validators.MaxValueValidator(23)],
                    ),
                ),
                (
                    "time_zone",
                    models.CharField(
                        default="UTC",
                        max_length=64,
                        validators=[memory.models.users.validate_time_zone],
                    ),
                ),
                (
                    "escalations",
                    models.BooleanField(
                        default=False,
                        help_text="Escalated alerts are mailed at once, whatever the mode.",
                    ),
                ),
                ("digest_due_at", models.DateTimeField(editable=False, null=True)),
                ("sent_at", models.DateTimeField(editable=False, null=True)),
            ],
            options={
                "verbose_name": "e-mail subscription",
                "ordering": ["id"],
            },
        ),
        migrations.AddField(
            model_name="alert",
            name="escalate_at",
            field=models.DateTimeField(
                help_text="When somebody else is told, unless it is acknowledged before.", null=True
            ),
        ),
        migrations.AddField(
            model_name="alert",
            name="escalated_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="alert",
            name="holds_back",
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name="alert",
            name="open_since",
            field=models.DateTimeField(
                default=django.utils.timezone.now, help_text="When it opened, or was reopened last."
            ),
        ),
        migrations.AddField(
            model_name="alert",
            name="snoozed_until",
            field=models.DateTimeField(
                help_text="Empty for one that is snoozed until it changes, or not at all.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="alerts_per_constraint",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="A constraint that finds more than so many at once is paused.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="escalate_critical_minutes",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="A critical alert that is open for so long is escalated; 0 for never.",
                null=True,
                verbose_name="escalate critical after (minutes)",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="escalate_info_minutes",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="An info that is open for so long is escalated; 0 for never.",
                null=True,
                verbose_name="escalate infos after (minutes)",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="escalate_warning_minutes",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="A warning that is open for so long is escalated; 0 for never.",
                null=True,
                verbose_name="escalate warnings after (minutes)",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="openings_per_day",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="A constraint that would open more than so many alerts of a user in 24 hours is paused.",
                null=True,
            ),
        ),
        migrations.AlterField(
            model_name="alert",
            name="kind",
            field=models.CharField(
                choices=[
                    ("finding", "finding"),
                    ("constraint_error", "constraint failed"),
                    ("constraint_paused", "constraint paused"),
                ],
                default="finding",
                max_length=20,
            ),
        ),
        migrations.AlterField(
            model_name="alert",
            name="state",
            field=models.CharField(
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
        migrations.AlterField(
            model_name="run",
            name="outcome",
            field=models.CharField(
                blank=True,
                choices=[
                    ("ok", "ok"),
                    ("rejected", "rejected by the gate"),
                    ("superseded", "superseded by a newer version"),
                    ("user_error", "error in the user's code"),
                    ("timeout", "time limit"),
                    ("out_of_memory", "memory limit"),
                    ("output_limit", "output limit"),
                    ("result_limit", "result limit"),
                    ("alert_limit", "too many alerts at once"),
                    ("killed", "killed"),
                    ("input_limit", "project too large"),
                    ("protocol_error", "invalid answer of the sandbox"),
                    ("abandoned", "given up after repeated failures of the server"),
                ],
                default="",
                max_length=16,
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="trigger",
            field=models.CharField(
                choices=[
                    ("api", "API request"),
                    ("checkpoint", "new checkpoint"),
                    ("daily", "daily"),
                    ("command", "command line"),
                    ("model", "language model"),
                    ("resumed", "constraint resumed"),
                ],
                max_length=16,
            ),
        ),
        migrations.AddIndex(
            model_name="alert",
            index=models.Index(fields=["user", "-opened_at"], name="alert_openings"),
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
        migrations.AddField(
            model_name="alertfeedback",
            name="alert",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="feedback",
                to="memory.alert",
            ),
        ),
        migrations.AddField(
            model_name="mailcursor",
            name="workspace",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="+", to="memory.workspace"
            ),
        ),
        migrations.AddField(
            model_name="pausedconstraint",
            name="user",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="paused_constraints",
                to="memory.memoryuser",
            ),
        ),
        migrations.AddField(
            model_name="staffsubscription",
            name="staff",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="alert_subscriptions",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="staffsubscription",
            name="workspace",
            field=models.ForeignKey(
                blank=True,
                help_text="Empty for all.",
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="staff_subscriptions",
                to="memory.workspace",
            ),
        ),
        migrations.AddField(
            model_name="mailcursor",
            name="subscription",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE,
                related_name="cursors",
                to="memory.staffsubscription",
            ),
        ),
        migrations.AddConstraint(
            model_name="alertfeedback",
            constraint=models.UniqueConstraint(
                fields=("alert", "judge"), name="one_verdict_per_judge"
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
            model_name="mailcursor",
            constraint=models.UniqueConstraint(
                fields=("subscription", "workspace"), name="one_cursor_per_workspace"
            ),
        ),
        migrations.RunSQL(OPEN_SINCE, migrations.RunSQL.noop),
    ]

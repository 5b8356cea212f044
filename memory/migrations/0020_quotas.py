import django.db.models.deletion
from django.db import migrations, models

# About what is counted from now on: the payload as JSON, names of its fields included.
LOG_BYTES = """
UPDATE memory_memoryuser AS person SET log_bytes = told.bytes
FROM (
    SELECT user_id, sum(
        160 + coalesce(octet_length(content), 0) + coalesce(octet_length(data::text), 0)
        + coalesce(octet_length(metadata::text), 0)
    ) AS bytes
    FROM memory_logentry WHERE redacted_at IS NULL GROUP BY user_id
) AS told
WHERE told.user_id = person.id
"""


class Migration(migrations.Migration):
    """Workspaces have rates and quotas; users know what their logs take."""

    dependencies = [
        ("memory", "0019_operations"),
    ]

    operations = [
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
                "verbose_name": "use of workspaces",
                "verbose_name_plural": "use of workspaces",
                "ordering": ["workspace"],
            },
        ),
        migrations.AddField(
            model_name="memoryuser",
            name="log_bytes",
            field=models.BigIntegerField(
                default=0,
                editable=False,
                help_text="What its entries take, without those redacted.",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="costly_per_minute",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Requests that compute: queries, questions, searches, contexts, proposals, imports, exports and backtests.",
                null=True,
                verbose_name="costly requests a minute",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="entries_per_minute",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Entries appended to logs.",
                null=True,
                verbose_name="entries a minute",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="max_backtests",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Backtests that may wait or go on.",
                null=True,
                verbose_name="backtests",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="max_entries",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Entries that the logs of all users may have.",
                null=True,
                verbose_name="entries",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="max_entries_per_user",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Entries that one user's log may have.",
                null=True,
                verbose_name="entries of a user",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="max_log_mib",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="MiB that the entries of all users may have.",
                null=True,
                verbose_name="logs (MiB)",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="max_pending_entries",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Entries that may wait to be worked on; past it no more are taken.",
                null=True,
                verbose_name="pending entries",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="max_users",
            field=models.PositiveIntegerField(
                blank=True, help_text="Users that there may be.", null=True, verbose_name="users"
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="max_waiting_runs",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Queries, questions, proposals and imports that may wait or go on.",
                null=True,
                verbose_name="waiting runs",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="reads_per_minute",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Requests that read.",
                null=True,
                verbose_name="reads a minute",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="writes_per_minute",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Requests that write.",
                null=True,
                verbose_name="writes a minute",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("trigger", "api"), models.Q(("status", "done"), _negated=True)),
                fields=["user"],
                name="run_asked_for",
            ),
        ),
        migrations.RunSQL(LOG_BYTES, migrations.RunSQL.noop),
    ]

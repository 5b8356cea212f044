"""When a language model works on a user: what waits, since when, and the workspaces' choice."""

from django.db import migrations, models

# Entries that came before nothing worked on them. Their age makes them due at once.
WAITING = """
UPDATE memory_lane AS lane SET waiting = rest.number, waiting_since = rest.first, due_at = now()
FROM (
    SELECT entry.user_id, count(*) AS number, min(entry.recorded_at) AS first
    FROM memory_logentry AS entry
    WHERE entry.kind IN ('message', 'fact', 'correction') AND NOT EXISTS (
        SELECT FROM memory_entryoutcome AS outcome
        WHERE outcome.user_id = entry.user_id AND outcome.seq = entry.seq)
    GROUP BY entry.user_id
) AS rest
WHERE lane.user_id = rest.user_id AND lane.name = 'structure';
"""


class Migration(migrations.Migration):
    """Columns of the lanes and the workspaces, and the model as a reason for a run."""

    dependencies = [("memory", "0004_imports")]

    operations = [
        migrations.AddField(
            model_name="lane",
            name="waiting",
            field=models.PositiveIntegerField(
                default=0, help_text="Entries that have come since nothing was pending."
            ),
        ),
        migrations.AddField(
            model_name="lane",
            name="waiting_since",
            field=models.DateTimeField(help_text="When the oldest of them came.", null=True),
        ),
        migrations.AddField(
            model_name="workspace",
            name="structure_entries",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Work begins as soon as so many entries of a user wait,",
                null=True,
                verbose_name="entries",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="structure_idle_seconds",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="or none has come for so long,",
                null=True,
                verbose_name="idle seconds",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="structure_age_seconds",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="or the oldest has waited for so long, even if others keep coming.",
                null=True,
                verbose_name="age in seconds",
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
                ],
                max_length=16,
            ),
        ),
        migrations.RunSQL(WAITING, migrations.RunSQL.noop),
    ]

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("memory", "0007_duplicate_alerts_index")]

    operations = [
        migrations.AddField(
            model_name="workspace",
            name="llm_judged_sessions",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="A model is judged by so many of its last sessions at most,",
                null=True,
                verbose_name="sessions",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="llm_judged_days",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="begun within so many days before its newest one,",
                null=True,
                verbose_name="days",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="llm_judged_minimum",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="and not before there are so many.",
                null=True,
                verbose_name="minimum",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="llm_refused_percent",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="It stops when the gate has refused more than this share of its sessions"
                " in the end; 100 for never.",
                null=True,
                verbose_name="refused (%)",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="llm_undone_percent",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="It stops when more than this share of its accepted edits was undone by a"
                " return to an earlier version, or by reopening their entries; 100 for never.",
                null=True,
                verbose_name="undone (%)",
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="llm_resumptions",
            field=models.JSONField(
                blank=True,
                editable=False,
                help_text="Model → since when it is judged anew, who let it go on, and why.",
                null=True,
            ),
        ),
    ]

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("memory", "0012_former_duplicates_index")]

    operations = [
        migrations.AddField(
            model_name="llmcall",
            name="accepted",
            field=models.BooleanField(
                help_text="Whether the gate accepted what its session proposed; empty where it was"
                " not judged, or cut off.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="llmcall",
            name="refusals",
            field=models.IntegerField(
                help_text="How many proposals of its session the gate refused.", null=True
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="llm_stops",
            field=models.JSONField(
                blank=True,
                editable=False,
                help_text="Model → since when it is stopped, why, and by which limits.",
                null=True,
            ),
        ),
    ]

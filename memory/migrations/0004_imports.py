"""Runs may import a project, and be asked for on the command line."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """The new kinds and triggers of runs."""

    dependencies = [("memory", "0003_llm_calls")]

    operations = [
        migrations.AlterField(
            model_name="run",
            name="kind",
            field=models.CharField(
                choices=[
                    ("constraints", "constraints"),
                    ("query", "query"),
                    ("proposal", "proposal"),
                    ("import", "import"),
                ],
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
                ],
                max_length=16,
            ),
        ),
    ]

"""Backtests by the entries' own times, runs of one constraint, users created by their first entry."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0034_versions_stay"),
    ]

    operations = [
        migrations.AddField(
            model_name="backtest",
            name="by",
            field=models.CharField(
                choices=[
                    ("recorded", "what was known then"),
                    ("occurred", "what was the case then, by the entries' own times"),
                ],
                db_default="recorded",
                default="recorded",
                help_text="Whether it goes by what was known, or by the entries' own times.",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="workspace",
            name="users_by_entry",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="Whether an entry for a user_id that is not there yet creates the user.",
                verbose_name="create users by their first entry",
            ),
        ),
        migrations.AlterField(
            model_name="run",
            name="kind",
            field=models.CharField(
                choices=[
                    ("constraints", "constraints"),
                    ("constraint", "one constraint, tried"),
                    ("query", "query"),
                    ("ask", "question"),
                    ("proposal", "proposal"),
                    ("import", "import"),
                ],
                max_length=16,
            ),
        ),
    ]
